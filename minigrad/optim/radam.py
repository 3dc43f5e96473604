"""RAdam."""

import math

from minigrad.optim.adam import Adam
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params


class RAdam(Adam):
    """Rectified Adam (Liu et al. 2019, https://arxiv.org/abs/1908.03265, algorithm 2).

    m and v are `Adam`'s;  ρ∞ = 2 / (1 − β₂) − 1;  ρ = ρ∞ − 2 t β₂ᵗ / (1 − β₂ᵗ) at step t;
    p ← p − η r m̂ √(1 − β₂ᵗ) / (√v + ε), with r² = (ρ − 4)(ρ − 2) ρ∞ / ((ρ∞ − 4)(ρ∞ − 2) ρ), if ρ > 5, as from the
    sixth step for β₂ = 0.999, and p ← p − η m̂ before.

    Parameters and errors are as for `Adam`.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.RAdam([x], lr=0.5)
    >>> x.grad = mg.tensor([0.25])
    >>> optimizer.step()                    # the first steps are not adaptive: 0.5 · 0.25
    >>> round(x.item(), 4)
    0.875
    """

    optional = ()
    check = Optimizer.check  # groups may differ in where their decay acts

    def __init__(
        self, params: Params, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        weight_decay: float = 0.0, decoupled_weight_decay: bool = False,
        *, foreach: bool | None = None, maximize: bool = False, capturable: bool = False,
    ) -> None:  # fmt: skip
        super(Adam, self).__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
            "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize,
        })  # fmt: skip

    def factors(self, group: Group, batch: Batch, t: int) -> tuple[float, float, float, float]:
        beta1, beta2 = group["betas"]
        rate, correction, longest = group["lr"] / (1 - beta1**t), 1 - beta2**t, 2 / (1 - beta2) - 1
        length = longest - 2 * t * beta2**t / correction
        if length <= 5:
            return rate, 0.0, 0.0, 1.0
        square = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        return rate * math.sqrt(square * correction), 0.0, 1.0, group["eps"]
