from minigrad.engine.tensor import Tensor, TensorLike

def softmax(x: TensorLike, axis: int = -1) -> Tensor: ...
def log_softmax(x: TensorLike, axis: int = -1) -> Tensor: ...
def cross_entropy(
    input: TensorLike,
    target: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor: ...
def nll_loss(
    log_probs: TensorLike,
    labels: TensorLike,
    weight: TensorLike | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor: ...
