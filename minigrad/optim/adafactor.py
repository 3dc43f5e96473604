"""Adafactor."""

import math

from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018, https://arxiv.org/abs/1804.04235), in PyTorch's form.

    The state of a matrix is a column r and a row c: with κ = t^γ, r ← (1 − κ) r + κ (mean of g² over the row), c
    likewise, v = r c / max(mean(r), ε₁); of a vector, v ← (1 − κ) v + κ g². u = g / √max(v, ε₁²);
    p ← p − η λ p − max(ε₂, rms(p)) min(η, 1/√t) u / max(1, rms(u) / d) at step t.

    Errors are as for `Adam`.

    Parameters
    ----------
    params : iterable of Tensor, or iterable of dict
        The tensors to train, or groups of tensors with their own options. Of more than two axes, the last two count.
    lr : float
        η, the largest step relative to rms(p).
    beta2_decay : float
        γ, at most 0.
    eps : (float or None, float)
        ε₁, by default the dtype's distance from 1 to the next number, and ε₂.
    d : float
        At least 1.
    weight_decay, maximize, foreach
        As for `Adam`.

    Examples
    --------
    >>> x = mg.tensor([[2.0, 2.0], [2.0, 2.0]], requires_grad=True)
    >>> optimizer = mg.optim.Adafactor([x], lr=0.25)
    >>> x.grad = mg.ones((2, 2))
    >>> optimizer.step()                    # 2 - 0.25 rms(x)
    >>> x.tolist(), optimizer.state[x]["row_var"].shape
    ([[1.5, 1.5], [1.5, 1.5]], (2, 1))
    """

    needed = ("step",)
    optional = ("row_var", "col_var", "variance")
    nonnegative = ("lr", "weight_decay")

    def __init__(
        self, params: Params, lr: float = 1e-2, beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3), d: float = 1.0, weight_decay: float = 0.0,
        *, foreach: bool | None = None, maximize: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
            "maximize": maximize,
        })  # fmt: skip

    def check(self, group: Group) -> None:
        super().check(group)
        for option, least, most in (("beta2_decay", -math.inf, 0.0), ("d", 1.0, math.inf)):
            group[option] = number("Adafactor", option, group[option], least, most)
        if not isinstance(group["eps"], tuple | list) or len(group["eps"]) != 2:
            raise ValueError(f"[Adafactor] expected two numbers eps, got {group['eps']!r}")
        first, second = group["eps"]
        first = first if first is None else number("Adafactor", "eps", first, 0)
        group["eps"] = first, number("Adafactor", "eps", second, 0)

    def shapes(self, parameter: Tensor) -> dict[str, tuple[int, ...]]:
        shape = parameter.shape
        if len(shape) < 2:
            return {"step": (), "variance": shape}
        return {"step": (), "row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        shapes = [self.shapes(p) for p in batch.parameters]
        states = [batch.buffers(name, 0.0, [shape[name] for shape in shapes]) for name in shapes[0] if name != "step"]
        t, lr, (least, relative) = batch.count(), group["lr"], group["eps"]
        keep = t ** group["beta2_decay"]
        with no_grad():
            for p, g, *averages in zip(batch.parameters, grads, *states, strict=True):
                if not p.size:
                    continue
                eps = EPSILON[p.dtype.name] if least is None else least
                square, v = g * g, averages[0]
                for average, axis in zip(averages, (-1, -2), strict=False):
                    average += keep * ((square.mean(axis, keepdims=True) if p.ndim > 1 else square) - average)
                if p.ndim > 1:
                    rows, columns = averages
                    v = rows / rows.mean(-2, keepdims=True).clip(eps) * columns
                change = g / v.clip(eps * eps).sqrt()
                step = rms(p).clip(relative) * min(lr, 1 / math.sqrt(t)) / (rms(change) / group["d"]).clip(1.0)
                p *= 1 - lr * group["weight_decay"]
                p -= step * change


def rms(x: Tensor) -> Tensor:
    """Return the root of the mean of the squares."""
    return (x * x).mean().sqrt()
