from typing import Literal

from minigrad.engine.tensor import Tensor, TensorLike

def batch_norm_train(
    x: TensorLike, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> tuple[Tensor, Tensor, Tensor]: ...
def batch_norm_eval(
    x: TensorLike,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
    op: Literal["batch_norm", "instance_norm"] = "batch_norm",
) -> Tensor: ...
