"""Training: a loop, and what is measured."""

from minigrad.train.loop import fit
from minigrad.train.measures import accuracy, confusion_matrix, evaluate, predict

__all__ = ["accuracy", "confusion_matrix", "evaluate", "fit", "predict"]
