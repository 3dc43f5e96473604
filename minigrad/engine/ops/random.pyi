from collections.abc import Sequence

from minigrad.engine.dtype import DTypeLike
from minigrad.engine.tensor import Tensor

def manual_seed(value: int) -> None: ...
def get_state() -> dict[str, int]: ...
def set_state(state: dict[str, int]) -> None: ...
def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | Sequence[int] = (),
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
) -> Tensor: ...
def normal(
    mean: float = 0.0,
    std: float = 1.0,
    shape: int | Sequence[int] = (),
    *,
    dtype: DTypeLike = None,
    device: str | None = None,
) -> Tensor: ...
def randint(low: int, high: int, shape: int | Sequence[int] = (), *, device: str | None = None) -> Tensor: ...
def permutation(n: int, *, device: str | None = None) -> Tensor: ...
