from collections.abc import Callable
from enum import IntEnum

from minigrad.engine.tensor import Tensor

class Backend:  # of its primitives those that parts of a backend in Python call of other parts
    def copy(self, x: Tensor, out: Tensor) -> None: ...
    def fill(self, out: Tensor, value: float) -> None: ...
    def gemm(self, a: Tensor, b: Tensor, out: Tensor, beta: float, bias: Tensor | None) -> None: ...

FUNCTIONS: dict[str, list[tuple[str, int, str, str, str]]]
Unary: type[IntEnum]
Binary: type[IntEnum]
Reduce: type[IntEnum]

def register(device: int, instance: Backend) -> None: ...
def intercept(function: Callable[[int, Backend], Backend] | None) -> None: ...
