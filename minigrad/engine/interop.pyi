from typing import Any

from minigrad.engine.tensor import Tensor

def from_dlpack(data: Any) -> Tensor: ...
