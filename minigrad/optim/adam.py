"""Adam and AdamW."""

import math

from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("adam", flops=12)


class Adam(Optimizer):
    """Adam (Kingma and Ba 2014, https://arxiv.org/abs/1412.6980, algorithm 1), with L2 decay added to the gradient.

    g ← g + λ p;  m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;
    p ← p − η m̂ / (√v̂ + ε), with m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) at step t.

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
    foreach, fused : bool, optional
        PyTorch's, without effect: one kernel updates all parameters.
    decoupled_weight_decay : bool
        Whether p ← p − η λ p replaces g ← g + λ p, as in `AdamW`.

    Raises
    ------
    TypeError
        If `params` contains anything but tensors or dicts.
    ValueError
        For no parameters, duplicate parameters, negative options, or betas outside [0, 1).

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()                    # the first step is lr, whatever the gradient
    >>> round(x.item(), 4)
    0.5
    """

    needed = ("step", "exp_avg", "exp_avg_sq")
    optional = ("max_exp_avg_sq",)
    nonnegative = ("lr", "eps", "weight_decay")

    def __init__(
        self, params: Params, lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.0, amsgrad: bool = False,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:  # fmt: skip
        self.decoupled = bool(decoupled_weight_decay)
        super().__init__(params, {
            "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
            "maximize": maximize,
        })  # fmt: skip

    def check(self, group: Group) -> None:
        super().check(group)
        betas = group["betas"]
        if not isinstance(betas, tuple | list):
            raise TypeError(f"[{self.name}] expected two betas, got {betas!r}")
        if len(betas) != 2:
            raise ValueError(f"[{self.name}] expected two betas, got {betas}")
        group["betas"] = betas = tuple(number(self.name, "betas", beta, 0) for beta in betas)
        decoupled = group.get("decoupled_weight_decay", self.decoupled)  # from the state of a PyTorch optimizer
        if decoupled != self.decoupled:
            raise ValueError(f"[{self.name}] expected decoupled_weight_decay={self.decoupled}, got {decoupled}")
        if not max(betas) < 1:
            raise ValueError(f"[{self.name}] expected two betas in [0, 1), got {betas}")

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
        largest = batch.buffers("max_exp_avg_sq") if group["amsgrad"] else None
        states, t = [batch.buffers("exp_avg"), batch.buffers("exp_avg_sq"), largest], batch.count()
        added, factor = (0.0, 1 - lr * decay) if self.decoupled else (decay, 1.0)
        RULE(
            batch.parameters, grads, states, lr / (1 - beta1**t), 1 / math.sqrt(1 - beta2**t), group["eps"], beta1,
            beta2, 1 - beta1, 1 - beta2, added, factor, largest is not None,
        )  # fmt: skip


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2017, https://arxiv.org/abs/1711.05101).

    p ← p − η λ p before the step of `Adam`, with no decay in the gradient. Parameters (but the last) and errors are as
    for `Adam`.

    Examples
    --------
    >>> import minigrad as mg
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
    ) -> None:  # fmt: skip
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)
