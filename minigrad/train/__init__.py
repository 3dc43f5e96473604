"""Training: a loop, and what is measured."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.train.loop import fit
from minigrad.train.measures import accuracy, confusion_matrix, evaluate, predict

__all__ = ["accuracy", "confusion_matrix", "evaluate", "fit", "predict"]

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
