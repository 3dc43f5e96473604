"""Muon, for the matrices of hidden layers."""

import math

from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params


class Muon(Optimizer):
    """Momentum made orthogonal (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/), in PyTorch's form.

    b ← μ b + (1 − μ) g;  d = μ b + (1 − μ) g if `nesterov`, otherwise b;  p ← p − η λ p − η s O for an A × B matrix p.
    O has d's singular vectors, and singular values near 1: X = d / max(‖d‖, ε), then `ns_steps` times
    X ← a X + b X Xᵀ X + c (X Xᵀ)² X (Newton–Schulz), transposed if A > B. s = √max(1, A / B), or with
    ``adjust_lr_fn="match_rms_adamw"`` 0.2 √max(A, B), which suits rates of `AdamW` (https://arxiv.org/abs/2502.16982).

    Errors are as for `Adam`, and for parameters that are not matrices.

    Parameters
    ----------
    params : iterable of Tensor, or iterable of dict
        Matrices, or groups of them; vectors and embeddings need another optimizer.
    lr, weight_decay, momentum, eps : float
        η, λ, μ, ε.
    nesterov : bool
    ns_coefficients : (float, float, float)
        a, b, c.
    ns_steps : int
    adjust_lr_fn : {None, "original", "match_rms_adamw"}
        None means "original".

    Notes
    -----
    PyTorch iterates in bfloat16 whatever the parameters are; here O has their precision.

    Examples
    --------
    >>> x = mg.zeros((2, 2), requires_grad=True)
    >>> optimizer = mg.optim.Muon([x], lr=0.5)
    >>> x.grad = mg.tensor([[3.0, 0.0], [0.0, 0.001]])
    >>> optimizer.step()                    # the smaller singular value grows by 3.4445 in each of 5 iterations
    >>> [[round(value, 2) for value in row] for row in x.tolist()]
    [[-0.35, 0.0], [0.0, -0.08]]
    """

    optional = ("momentum_buffer",)
    nonnegative = ("lr", "weight_decay", "momentum", "eps")

    def __init__(
        self, params: Params, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
        nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn,
        })  # fmt: skip

    def check(self, group: Group) -> None:
        super().check(group)
        group["ns_steps"] = integer("Muon", "ns_steps", group["ns_steps"], 0)
        group["ns_coefficients"] = tuple(number("Muon", "ns_coefficients", c) for c in group["ns_coefficients"])
        if len(group["ns_coefficients"]) != 3:
            raise ValueError(f"[Muon] expected three ns_coefficients, got {len(group['ns_coefficients'])}")
        if group["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            raise ValueError(
                f'[Muon] expected adjust_lr_fn None, "original" or "match_rms_adamw", got {group["adjust_lr_fn"]!r}'
            )
        for parameter in group["params"]:
            if isinstance(parameter, Tensor) and parameter.ndim != 2:
                raise ValueError(f"[Muon] expected matrices, got shape {parameter.shape}: optim.AdamW takes others")

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        lr, momentum, matches = group["lr"], group["momentum"], group["adjust_lr_fn"] == "match_rms_adamw"
        with no_grad():
            for p, g, b in zip(batch.parameters, grads, batch.buffers("momentum_buffer"), strict=True):
                if not p.size:
                    continue
                rows, columns = p.shape
                b += (1 - momentum) * (g - b)
                d = g + momentum * (b - g) if group["nesterov"] else b
                scale = 0.2 * math.sqrt(max(rows, columns)) if matches else math.sqrt(max(1, rows / columns))
                change = orthogonal(d.T if rows > columns else d, group)
                p *= 1 - lr * group["weight_decay"]
                p -= lr * scale * (change.T if rows > columns else change)


def orthogonal(d: Tensor, group: Group) -> Tensor:
    """Return a matrix with the singular vectors of d and singular values near 1, by Newton–Schulz iterations."""
    a, b, c = group["ns_coefficients"]
    x = d / d.abs().max().clip(group["eps"])  # its norm does not overflow
    x = x / (x * x).sum().sqrt().clip(1.0)
    for _ in range(group["ns_steps"]):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x
