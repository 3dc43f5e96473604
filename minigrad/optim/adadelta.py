"""Adadelta."""

from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("adadelta", flops=14)


class Adadelta(Optimizer):
    """Adadelta (Zeiler 2012, https://arxiv.org/abs/1212.5701, algorithm 1), with a rate.

    g ← g + λ p;  v ← ρ v + (1 − ρ) g²;  Δ = √(u + ε) / √(v + ε) g;  u ← ρ u + (1 − ρ) Δ²;  p ← p − η Δ.

    Errors are as for `Adam`.

    Parameters
    ----------
    params, weight_decay, maximize, foreach, capturable
        As for `Adam`.
    lr : float
        η, 1 in the paper.
    rho : float
        ρ, in [0, 1].
    eps : float
        ε, which sets the size of the first steps.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.Adadelta([x], rho=0.75, eps=0.01)
    >>> x.grad = mg.tensor([2.0])
    >>> optimizer.step()                    # 1 - 2 · 0.1 / √1.01
    >>> round(x.item(), 4)
    0.801
    """

    needed = ("step", "square_avg", "acc_delta")
    nonnegative = ("lr", "rho", "eps", "weight_decay")

    def __init__(
        self, params: Params, lr: float = 1.0, rho: float = 0.9, eps: float = 1e-6, weight_decay: float = 0.0,
        foreach: bool | None = None, *, capturable: bool = False, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize})

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        batch.count()
        RULE(
            batch.parameters, grads, [batch.buffers("square_avg"), batch.buffers("acc_delta")], group["weight_decay"],
            group["rho"], 1 - group["rho"], group["eps"], group["lr"],
        )  # fmt: skip
