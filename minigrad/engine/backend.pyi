from enum import IntEnum
from typing import Any

from minigrad.engine.tensor import Tensor

class Backend:
    def copy(self, x: Tensor, out: Tensor) -> Any: ...
    def fill(self, out: Tensor, value: float) -> Any: ...
    def gemm(self, a: Tensor, b: Tensor, out: Tensor, beta: float, bias: Tensor | None) -> Any: ...

Unary: type[IntEnum]
Binary: type[IntEnum]
Reduce: type[IntEnum]

def register(device: int, instance: Backend) -> None: ...
