"""What einops asks of a library about its tensors.

einops looks for its backends among the subclasses of its own class, so this module imports einops, in 2 ms. minigrad
imports it where einops is installed, whichever of the two a program imports first.
"""

from collections.abc import Sequence
from typing import Any

from einops._backends import AbstractBackend

import minigrad as mg


class Backend(AbstractBackend):
    framework_name = "minigrad"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, mg.Tensor)

    def from_numpy(self, x: Any) -> mg.Tensor:
        return mg.asarray(x)

    def to_numpy(self, x: mg.Tensor) -> Any:
        return x.detach().to("cpu").numpy()

    def arange(self, start: int, stop: int) -> mg.Tensor:
        return mg.arange(start, stop)

    def stack_on_zeroth_dimension(self, tensors: Sequence[mg.Tensor]) -> mg.Tensor:
        return mg.stack(tensors)

    def add_axis(self, x: mg.Tensor, new_position: int) -> mg.Tensor:
        return mg.expand_dims(x, new_position)

    def tile(self, x: mg.Tensor, repeats: Sequence[int]) -> mg.Tensor:
        return mg.tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[mg.Tensor], axis: int) -> mg.Tensor:
        return mg.concat(tensors, axis)

    def is_float_type(self, x: mg.Tensor) -> bool:
        return x.dtype.kind == "f"

    def einsum(self, pattern: str, *x: mg.Tensor) -> mg.Tensor:
        return mg.einsum(pattern, *x)
