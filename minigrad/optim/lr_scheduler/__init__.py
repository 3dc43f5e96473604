"""Learning-rate schedules, under PyTorch's names."""

from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.lr_scheduler.formulas import (
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiStepLR,
    StepLR,
)
from minigrad.optim.lr_scheduler.one_cycle import OneCycleLR
from minigrad.optim.lr_scheduler.plateau import ReduceLROnPlateau
from minigrad.optim.lr_scheduler.sequential import SequentialLR

__all__ = [
    "CosineAnnealingLR", "ExponentialLR", "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "OneCycleLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip
