"""Random tensors; `minigrad.manual_seed` seeds them all."""

from minigrad.engine.ops.random import get_state, manual_seed, normal, permutation, randint, set_state, uniform

__all__ = ["get_state", "manual_seed", "normal", "permutation", "randint", "set_state", "uniform"]
