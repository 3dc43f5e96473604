"""Adagrad."""

from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("adagrad", flops=6)


class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan, Singer 2011, https://jmlr.org/papers/v12/duchi11a.html).

    g ← g + λ p;  s ← s + g²;  p ← p − η / (1 + (t − 1) κ) · g / (√s + ε) at step t. With `eps_in_sqrt`, √(s + ε)
    replaces √s + ε, as in Keras and optax, where ε is 1e-7 and s is 0.1 before the first step.

    Errors are as for `Adam`.

    Parameters
    ----------
    params, lr, weight_decay, eps, maximize, foreach, fused
        As for `Adam`.
    lr_decay : float
        κ.
    initial_accumulator_value : float
        s before the first step.
    eps_in_sqrt : bool
        Whether to add ε to the sum, inside the root.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.Adagrad([x], lr=0.5)
    >>> x.grad = mg.tensor([2.0])
    >>> optimizer.step()                    # s = 4, and 0.5 * 2 / 2
    >>> round(x.item(), 4)
    0.5
    """

    needed = ("step", "sum")
    nonnegative = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")

    def __init__(
        self, params: Params, lr: float = 1e-2, lr_decay: float = 0.0,
        weight_decay: float = 0.0, initial_accumulator_value: float = 0.0, eps: float = 1e-10,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None, eps_in_sqrt: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value, "eps": eps, "maximize": maximize,
            "eps_in_sqrt": eps_in_sqrt,
        })  # fmt: skip

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        sums = batch.buffers("sum", group["initial_accumulator_value"])
        lr = group["lr"] / (1 + (batch.count() - 1) * group["lr_decay"])
        eps = (group["eps"], 0.0) if group["eps_in_sqrt"] else (0.0, group["eps"])
        RULE(batch.parameters, grads, [sums], group["weight_decay"], *eps, lr)
