from minigrad.engine.tensor import Tensor, TensorLike

def softmax(x: TensorLike, axis: int = -1) -> Tensor: ...
def log_softmax(x: TensorLike, axis: int = -1) -> Tensor: ...
def cross_entropy(
    input: TensorLike,
    target: TensorLike,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
