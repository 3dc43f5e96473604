"""RMSprop."""

from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor
from minigrad.optim.optimizer import Batch, Group, Optimizer, Params

RULE = Rule("rmsprop", flops=8)


class RMSprop(Optimizer):
    """RMSprop (Hinton 2012, lecture 6e of "Neural Networks for Machine Learning"), in PyTorch's form.

    g ← g + λ p;  v ← α v + (1 − α) g²;  p ← p − η g / (√v + ε). With `centered`, v − (mean of g)² replaces v (Graves
    2013, https://arxiv.org/abs/1308.0850); with `momentum`, b ← μ b + g / (√v + ε) and p ← p − η b.

    With `eps_in_sqrt`, √(v + ε) replaces √v + ε; with `lr_in_momentum`, b ← μ b + η g / (√v + ε) and p ← p − b. Keras,
    optax and Paddle have both, and `alpha` 0.9, 0.9 and 0.95.

    Errors are as for `Adam`.

    Parameters
    ----------
    params, lr, eps, weight_decay, maximize, foreach, fused, capturable, decoupled_weight_decay
        As for `Adam`.
    alpha : float
        α.
    momentum : float
        μ.
    centered : bool
    eps_in_sqrt : bool
        Whether to add ε inside the root.
    lr_in_momentum : bool
        Whether the momentum buffer sums steps, which contain η, instead of gradients.

    Examples
    --------
    >>> x = mg.tensor([1.0], requires_grad=True)
    >>> optimizer = mg.optim.RMSprop([x], lr=0.5, alpha=0.75)
    >>> x.grad = mg.tensor([2.0])
    >>> optimizer.step()                    # v = 4 / 4, and 0.5 * 2 / 1
    >>> round(x.item(), 4)
    0.0
    """

    needed = ("step", "square_avg")
    optional = ("momentum_buffer", "grad_avg")
    nonnegative = ("lr", "alpha", "eps", "weight_decay", "momentum")

    def __init__(
        self, params: Params, lr: float = 1e-2, alpha: float = 0.99,
        eps: float = 1e-8, weight_decay: float = 0.0, momentum: float = 0.0, centered: bool = False,
        *, maximize: bool = False, foreach: bool | None = None, fused: bool | None = None,
        capturable: bool = False, decoupled_weight_decay: bool = False, eps_in_sqrt: bool = False,
        lr_in_momentum: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(params, {
            "lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum,
            "centered": centered, "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay,
            "eps_in_sqrt": eps_in_sqrt, "lr_in_momentum": lr_in_momentum,
        })  # fmt: skip

    def update(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        batch.count()
        momenta = batch.buffers("momentum_buffer") if group["momentum"] else None
        means = batch.buffers("grad_avg") if group["centered"] else None
        alpha, eps, lr = group["alpha"], group["eps"], group["lr"]
        states = [batch.buffers("square_avg"), momenta, means]
        RULE(
            batch.parameters, grads, states, *self.decay(group), alpha, 1 - alpha,
            *((eps, 0.0) if group["eps_in_sqrt"] else (0.0, eps)), group["momentum"],
            *((lr, 1.0) if group["lr_in_momentum"] else (1.0, lr)),
        )  # fmt: skip
