"""Learning-rate schedules, under PyTorch's names."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.lr_scheduler.cyclic import CyclicLR
from minigrad.optim.lr_scheduler.formulas import (
    ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LambdaLR, LinearLR, MultiplicativeLR,
    MultiStepLR, PolynomialLR, StepLR,
)  # fmt: skip
from minigrad.optim.lr_scheduler.one_cycle import OneCycleLR
from minigrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from minigrad.optim.lr_scheduler.sequential import ChainedScheduler, SequentialLR

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
