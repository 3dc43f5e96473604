"""Optimizers, learning-rate schedules and gradient clipping, under PyTorch's names."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.nn.utils import clip_grad_norm_, clip_grad_value_
from minigrad.optim import lr_scheduler, swa_utils
from minigrad.optim.adadelta import Adadelta
from minigrad.optim.adafactor import Adafactor
from minigrad.optim.adagrad import Adagrad
from minigrad.optim.adam import Adam, AdamW
from minigrad.optim.lbfgs import LBFGS
from minigrad.optim.lion import Lion
from minigrad.optim.muon import Muon
from minigrad.optim.nadam import NAdam
from minigrad.optim.optimizer import Optimizer
from minigrad.optim.radam import RAdam
from minigrad.optim.rmsprop import RMSprop
from minigrad.optim.sgd import SGD

__all__ = [
    "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Lion", "Muon", "NAdam", "Optimizer", "RAdam",
    "RMSprop", "clip_grad_norm_", "clip_grad_value_", "lr_scheduler", "swa_utils",
]  # fmt: skip

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
