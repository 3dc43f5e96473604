from collections.abc import Sequence

from minigrad.engine.tensor import Tensor, TensorLike

def layer_norm(
    x: TensorLike,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor: ...
