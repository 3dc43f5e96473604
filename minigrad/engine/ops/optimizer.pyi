from minigrad.engine.tensor import Tensor

def sgd_step(
    params: list[Tensor],
    grads: list[Tensor],
    momenta: list[Tensor] | None,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    first: bool = False,
) -> None: ...
def adam_step(
    params: list[Tensor],
    grads: list[Tensor],
    m: list[Tensor],
    v: list[Tensor],
    max_v: list[Tensor] | None,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    step: int,
) -> None: ...
def rmsprop_step(
    params: list[Tensor],
    grads: list[Tensor],
    v: list[Tensor],
    momenta: list[Tensor] | None,
    means: list[Tensor] | None,
    lr: float,
    alpha: float,
    eps: float,
    weight_decay: float,
    momentum: float,
) -> None: ...
def adagrad_step(
    params: list[Tensor], grads: list[Tensor], sums: list[Tensor], lr: float, eps: float, weight_decay: float
) -> None: ...
def grad_norm(grads: list[Tensor]) -> float: ...
def scale_(tensors: list[Tensor], factor: float) -> None: ...
