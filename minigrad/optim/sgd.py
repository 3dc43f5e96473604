"""Stochastic gradient descent."""

from minigrad.engine.ops.arguments import number
from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("sgd", flops=2)


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

    g ← g + λ p;  b ← μ b + (1 − τ) g (b ← g in the first step);  p ← p − η b or, with Nesterov momentum,
    p ← p − η (g + μ b) (Sutskever et al. 2013, https://proceedings.mlr.press/v28/sutskever13.html, in PyTorch's form).
    Without momentum, p ← p − η g. With `lr_in_momentum`, b ← μ b + η (1 − τ) g and p ← p − b, or p ← p − (η g + μ b),
    as in Keras: a change of η then acts on later gradients only.

    Errors are as for `Adam`, and for `nesterov` without momentum or with dampening.

    Parameters
    ----------
    params : iterable of Tensor, or iterable of dict
        The tensors to train, or groups of tensors with their own options.
    lr : float
        η.
    momentum : float
        μ.
    dampening : float
        τ.
    weight_decay : float
        λ.
    nesterov : bool
        Whether to use Nesterov momentum; requires momentum and no dampening.
    maximize : bool
        Whether to maximize: −g replaces g.
    foreach, fused : bool, optional
        PyTorch's, without effect: one kernel updates all parameters.
    decoupled_weight_decay : bool
        Whether p ← p − η λ p replaces g ← g + λ p, as in all of Keras's optimizers.
    lr_in_momentum : bool
        Whether η is a factor of what b adds up.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.SGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.5]
    """

    optional = ("momentum_buffer",)
    nonnegative = ("lr", "momentum", "weight_decay")

    def __init__(
        self, params: Params, lr: float = 1e-3, momentum: float = 0.0,
        dampening: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None,
        decoupled_weight_decay: bool = False, lr_in_momentum: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay, "nesterov": nesterov,
            "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay, "lr_in_momentum": lr_in_momentum,
        })  # fmt: skip

    def check(self, group: Group) -> None:
        super().check(group)
        group["dampening"] = number("SGD", "dampening", group["dampening"])
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError(
                f"[SGD] nesterov: expected momentum > 0 and dampening 0, got {group['momentum']} and "
                f"{group['dampening']}"
            )

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        # The kernel applies the weight decay to g or to p, and computes
        # b ← momentum b + fresh g,  p ← p − direct g − carried b.
        lr, momentum, momenta = group["lr"], group["momentum"], None
        fresh, direct, carried = 0.0, lr, 0.0
        if momentum:
            fresh = 1 - group["dampening"] if batch.has("momentum_buffer") else 1.0
            momenta = batch.buffers("momentum_buffer")
            fresh, scale = (fresh * lr, 1.0) if group["lr_in_momentum"] else (fresh, lr)
            direct, carried = (lr, momentum * scale) if group["nesterov"] else (0.0, scale)
        RULE(batch.parameters, grads, [momenta], *self.decay(group), momentum, fresh, direct, carried)
