"""Autograd in Python: derivatives of tensors and functions, custom operations, and gradient checks.

The tape, the backward pass and the modes such as `no_grad` are compiled: they are in `minigrad.engine`.
"""

import typing as _typing
from collections.abc import Callable as _Callable

from minigrad.autograd.capturing import Captured, CaptureError, capture
from minigrad.autograd.function import Function
from minigrad.autograd.gradcheck import gradcheck
from minigrad.autograd.gradients import hessian, jacobian, value_and_grad, vjp
from minigrad.autograd.products import hvp, jvp
from minigrad.autograd.recomputation import recompute
from minigrad.autograd.tape_table import TapeTable
from minigrad.engine.tape.modes import detect_anomaly, enable_grad, no_grad, record_source
from minigrad.engine.tape.node import GradientError, is_grad_enabled
from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.engine.tensor.tensor import Tensor as _Tensor

__all__ = [
    "CaptureError", "Captured", "Function", "GradientError", "TapeTable", "capture", "detect_anomaly", "enable_grad",
    "gradcheck", "hessian", "hvp", "is_grad_enabled", "jacobian", "jvp", "no_grad", "per_sample_grad", "recompute",
    "record_source", "value_and_grad", "vjp",
]  # fmt: skip

per_sample_grad: _Callable[..., dict[str, _Tensor]]  # minigrad.nn defines it, and minigrad sets it here

if _typing.TYPE_CHECKING:
    grad: _Callable[..., tuple[_Tensor | None, ...]]
else:
    __getattr__ = _lookup(__name__)
