"""Data sets, batches, and what makes numbers of texts."""

from minigrad.data.collate import collate
from minigrad.data.dataset import ArrayDataset, Dataset
from minigrad.data.images import digits
from minigrad.data.loader import DataLoader
from minigrad.data.sequences import collate_padded, pad_sequences
from minigrad.data.text import Texts, character_names, imdb, topics
from minigrad.data.tokenizer import Tokenizer

__all__ = [
    "ArrayDataset", "DataLoader", "Dataset", "Texts", "Tokenizer", "character_names", "collate", "collate_padded",
    "digits", "imdb", "pad_sequences", "topics",
]  # fmt: skip
