"""Adam and AdamW."""

import math

from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("adam", flops=12)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014, https://arxiv.org/abs/1412.6980, algorithm 1), with L2 decay added to the gradient.

    g ← g + λ p;  m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;
    p ← p − η m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) at step t.

    Raises TypeError if `params` contains anything but tensors or dicts, and ValueError for no parameters, duplicate
    parameters, negative options, or betas outside [0, 1).

    Parameters
    ----------
    params : iterable of Tensor, or iterable of dict
        The tensors to train, or groups of tensors with their own options.
    lr : float
        η.
    betas : (float, float)
        β₁ and β₂, in [0, 1).
    eps : float
        ε.
    weight_decay : float
        λ.
    amsgrad : bool
        Whether to use the largest v so far in place of v (Reddi et al. 2018,
        https://openreview.net/forum?id=ryQu7f-RZ).
    maximize : bool
        Whether to maximize: −g replaces g.
    foreach, fused, capturable : bool, optional
        PyTorch's, without effect: one kernel updates all parameters.
    decoupled_weight_decay : bool
        Whether p ← p − η λ p replaces g ← g + λ p, as in `AdamW`.
    eps_before_correction : bool
        Whether p ← p − η √(1 − β₂ᵗ) m̂ / (√v + ε), as in Keras, TensorFlow and MindSpore: ε is then large in the first
        steps, in which a gradient of 1e-6 moves p by 0.24 η instead of 0.91 η with Keras's ε of 1e-7.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()                    # the first step is lr, whatever the gradient
    >>> round(x.item(), 4)
    0.5
    """

    needed: tuple[str, ...] = ("step", "exp_avg", "exp_avg_sq")
    optional: tuple[str, ...] = ("max_exp_avg_sq",)
    nonnegative: tuple[str, ...] = ("lr", "eps", "weight_decay")

    def __init__(
        self, params: Params, lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None,
        capturable: bool = False, decoupled_weight_decay: bool = False, eps_before_correction: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay,
            "eps_before_correction": eps_before_correction,
        })  # fmt: skip

    def check(self, group: Group) -> None:
        super().check(group)
        own, decoupled = self.defaults["decoupled_weight_decay"], group["decoupled_weight_decay"]
        if decoupled != own:
            raise ValueError(f"[{self.name}] expected decoupled_weight_decay={own}, got {decoupled}")

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        largest = batch.buffers("max_exp_avg_sq") if group.get("amsgrad") else None
        states = [batch.buffers("exp_avg"), batch.buffers("exp_avg_sq"), largest]
        decay, shrink = self.decay(group)
        rate, direct, root, eps = self.factors(group, batch, batch.count())
        RULE(
            batch.parameters, grads, states, decay, shrink, beta1, 1 - beta1, beta2, 1 - beta2, rate, direct, root, eps
        )

    def factors(self, group: Group, batch: Batch, t: int) -> tuple[float, float, float, float]:
        """Return the factors a, b, c and ε of p ← p − (a m + b g) / (c √v + ε) at step t."""
        beta1, beta2 = group["betas"]
        rate, root = group["lr"] / (1 - beta1**t), math.sqrt(1 - beta2**t)
        if group["eps_before_correction"]:
            return rate * root, 0.0, 1.0, group["eps"]
        return rate, 0.0, 1 / root, group["eps"]


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, https://arxiv.org/abs/1711.05101).

    p ← p − η λ p before the step of `Adam`, with no decay in the gradient. Parameters (but `decoupled_weight_decay`)
    and errors are as for `Adam`.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.AdamW([x], lr=0.5, weight_decay=0.5)
    >>> x.grad = mg.zeros(1)
    >>> optimizer.step()
    >>> x.tolist()
    [0.75]
    """

    def __init__(
        self, params: Params, lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None,
        capturable: bool = False, eps_before_correction: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True,
            eps_before_correction=eps_before_correction,
        )  # fmt: skip
