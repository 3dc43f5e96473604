"""Data sets, batches, and what makes numbers of texts."""

from minigrad.data.collate import collate
from minigrad.data.dataset import ArrayDataset, Dataset
from minigrad.data.images import digits
from minigrad.data.loader import DataLoader

__all__ = ["ArrayDataset", "DataLoader", "Dataset", "collate", "digits"]
