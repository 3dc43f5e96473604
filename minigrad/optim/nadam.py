"""NAdam."""

import math

from minigrad.optim.adam import Adam
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params


class NAdam(Adam):
    """Adam with Nesterov momentum (Dozat 2016, https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ).

    m and v are `Adam`'s;  μₜ = β₁ (1 − 0.96^(t ψ) / 2);  M ← M μₜ, beginning with 1;
    p ← p − η (μₜ₊₁ m / (1 − M μₜ₊₁) + (1 − μₜ) g / (1 − M)) / (√v̂ + ε) at step t.

    Errors are as for `Adam`.

    Parameters
    ----------
    params, lr, betas, eps, weight_decay, decoupled_weight_decay, foreach, maximize, capturable
        As for `Adam`.
    momentum_decay : float
        ψ.

    Notes
    -----
    M, the number "mu_product" in the states, is a float64 here; PyTorch's is a float32 for float64 parameters too.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.NAdam([x], lr=0.5, betas=(0.5, 0.9))
    >>> x.grad = mg.ones(1)
    >>> optimizer.step()                    # 0.5 (1 + 0.25 · 0.5 / (1 − 0.25²)), but for ψ and ε
    >>> round(x.item(), 3)
    0.433
    """

    needed = ("step", "mu_product", "exp_avg", "exp_avg_sq")
    optional = ()
    check = Optimizer.check  # groups may differ in where their decay acts
    numbers = ("step", "mu_product")
    nonnegative = ("lr", "eps", "weight_decay", "momentum_decay")

    def __init__(
        self, params: Params, lr: float = 2e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, momentum_decay: float = 4e-3, decoupled_weight_decay: bool = False,
        *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super(Adam, self).__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        })  # fmt: skip

    def factors(self, group: Group, batch: Batch, t: int) -> tuple[float, float, float, float]:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        mu, following = (beta1 * (1 - 0.96 ** (k * group["momentum_decay"]) / 2) for k in (t, t + 1))
        product = batch.number("mu_product", 1.0) * mu
        batch.put("mu_product", product)
        direct, rate = lr * (1 - mu) / (1 - product), lr * following / (1 - product * following)
        return rate, direct, 1 / math.sqrt(1 - beta2**t), group["eps"]
