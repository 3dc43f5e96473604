from collections.abc import Sequence

from minigrad.engine.tensor import Tensor, TensorLike

def layer_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
def rms_norm(
    x: TensorLike, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor: ...
def group_norm(
    x: TensorLike, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor: ...
def instance_norm(
    x: TensorLike, *, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor: ...
