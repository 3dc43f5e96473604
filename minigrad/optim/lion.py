"""Lion."""

from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("lion", flops=9)


class Lion(Optimizer):
    """Lion (Chen et al. 2023, https://arxiv.org/abs/2302.06675, algorithm 2).

    p ← p − η (sign(β₁ m + (1 − β₁) g) + λ p);  m ← β₂ m + (1 − β₂) g. Every element moves by η in each step, so that
    rates are 3 to 10 times smaller than `AdamW`'s, and decays as much larger.

    Parameters are as for `AdamW`, and errors as for `Adam`.

    Examples
    --------
    >>> x = mg.tensor([1.0, 1.0], requires_grad=True)
    >>> optimizer = mg.optim.Lion([x], lr=0.25)
    >>> x.grad = mg.tensor([5.0, -0.01])
    >>> optimizer.step()
    >>> x.tolist()
    [0.75, 1.25]
    """

    needed = ("exp_avg",)

    def __init__(
        self, params: Params, lr: float = 1e-4, betas: tuple[float, float] = (0.9, 0.99), weight_decay: float = 0.0,
        *, maximize: bool = False, foreach: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize})

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        (beta1, beta2), lr = group["betas"], group["lr"]
        shrink = 1 - lr * group["weight_decay"]
        RULE(batch.parameters, grads, [batch.buffers("exp_avg")], shrink, beta1, 1 - beta1, beta2, 1 - beta2, lr)
