"""The functions that einops needs for minigrad's tensors.

einops looks for its backends among the subclasses of its own class, so this module imports einops, in 2 ms. minigrad
imports it where einops is installed, whichever of the two a program imports first.
"""

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

from minigrad.arrays.creation import arange, asarray
from minigrad.arrays.products import einsum, tile
from minigrad.engine.ops.join import concat, stack
from minigrad.engine.ops.layout import expand_dims
from minigrad.engine.tensor.tensor import Tensor


class Backend(AbstractBackend):
    framework_name = "minigrad"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return asarray(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.detach().to("cpu").numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return arange(start, stop)

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        return stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return expand_dims(x, new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return concat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.kind == "f"

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)
