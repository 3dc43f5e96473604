"""Datasets, batches, and the conversion of text to numbers."""

import typing as _typing

from minigrad.data.collate import collate
from minigrad.data.dataset import ArrayDataset, Dataset, Subset, TensorDataset, random_split
from minigrad.data.digits import digits
from minigrad.data.glove import Vectors, glove
from minigrad.data.loader import DataLoader
from minigrad.data.mnist import mnist
from minigrad.data.sequences import collate_padded, pad_sequences
from minigrad.data.text import Texts, character_names, imdb, topics
from minigrad.data.tokenizer import Tokenizer
from minigrad.engine.tensor.pytorch_names import lookup as _lookup

__all__ = [
    "ArrayDataset", "DataLoader", "Dataset", "Subset", "TensorDataset", "Texts", "Tokenizer", "Vectors",
    "character_names", "collate", "collate_padded", "digits", "glove", "imdb", "mnist", "pad_sequences", "random_split",
    "topics",
]  # fmt: skip

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
