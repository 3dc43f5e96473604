"""Random tensors; `minigrad.manual_seed` seeds them all."""

import typing as _typing

from minigrad.engine.ops.random import get_state, manual_seed, normal, permutation, randint, set_state, uniform
from minigrad.engine.tensor.pytorch_names import lookup as _lookup

__all__ = ["get_state", "manual_seed", "normal", "permutation", "randint", "set_state", "uniform"]

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
