"""Datasets, batches, and the conversion of text to numbers."""

from minigrad.data.collate import collate
from minigrad.data.dataset import ArrayDataset, Dataset
from minigrad.data.digits import digits
from minigrad.data.glove import Vectors, glove
from minigrad.data.loader import DataLoader
from minigrad.data.mnist import mnist
from minigrad.data.sequences import collate_padded, pad_sequences
from minigrad.data.text import Texts, character_names, imdb, topics
from minigrad.data.tokenizer import Tokenizer

__all__ = [
    "ArrayDataset", "DataLoader", "Dataset", "Texts", "Tokenizer", "Vectors", "character_names", "collate",
    "collate_padded", "digits", "glove", "imdb", "mnist", "pad_sequences", "topics",
]  # fmt: skip
