"""The cyclic schedule."""

from collections.abc import Callable, Sequence

from minigrad.engine.ops.arguments import integer, number
from minigrad.optim.lr_scheduler.base import LRScheduler, rates_of
from minigrad.optim.optimizer import Optimizer


class CyclicLR(LRScheduler):
    """base + (max − base) h s: h rises from 0 to 1 and falls again in each cycle (Smith 2015, arXiv:1506.01186).

    s = 1 for "triangular", 2^(1 − c) in cycle c = 1, 2, … for "triangular2", γᵗ for "exp_range". Momentum is
    max_momentum − (max_momentum − base_momentum) h s. Call `step` once per batch.

    Raises TypeError or ValueError for options out of range, and an optimizer without momentum.

    Parameters
    ----------
    optimizer : Optimizer
    base_lr, max_lr : float, or one for each group
    step_size_up : int
        The number of steps of the rise.
    step_size_down : int, optional
        Of the fall; by default the same.
    mode : {"triangular", "triangular2", "exp_range"}
    gamma : float
        γ.
    scale_fn : callable, optional
        s as a function of c or, with scale_mode="iterations", of t, in place of `mode`.
    scale_mode : {"cycle", "iterations"}
    cycle_momentum : bool
        Whether momentum (for Adam, β₁) changes.
    base_momentum, max_momentum : float, or one for each group
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0, momentum=0.9)
    >>> scheduler = mg.optim.lr_scheduler.CyclicLR(optimizer, 0.0, 1.0, step_size_up=2, mode="triangular2")
    >>> rates = scheduler.get_last_lr()
    >>> for _ in range(6):
    ...     scheduler.step()
    ...     rates += scheduler.get_last_lr()
    >>> rates
    [0.0, 0.5, 1.0, 0.5, 0.0, 0.25, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, base_lr: float | Sequence[float], max_lr: float | Sequence[float],
        step_size_up: int = 2000, step_size_down: int | None = None, mode: str = "triangular", gamma: float = 1.0,
        scale_fn: Callable[[int], float] | None = None, scale_mode: str = "cycle", cycle_momentum: bool = True,
        base_momentum: float | Sequence[float] = 0.8, max_momentum: float | Sequence[float] = 0.9, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self._check_optimizer(optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") or scale_mode not in ("cycle", "iterations"):
            raise ValueError(
                f"[CyclicLR] expected mode 'triangular', 'triangular2' or 'exp_range' and scale_mode 'cycle' or "
                f"'iterations', got {mode!r} and {scale_mode!r}"
            )

        def numbers(name: str, value: float | Sequence[float]) -> list[float]:
            return [number("CyclicLR", name, one, 0) for one in self._per_group(name, optimizer, value)]

        self.up = integer("CyclicLR", "step_size_up", step_size_up, 1)
        self.down = self.up if step_size_down is None else integer("CyclicLR", "step_size_down", step_size_down, 1)
        self.mode, self.gamma, self.scale_fn = mode, number("CyclicLR", "gamma", gamma), scale_fn
        self.by_cycle = scale_mode == "cycle" if scale_fn else mode != "exp_range"
        self.lows, self.tops = numbers("base_lr", base_lr), numbers("max_lr", max_lr)
        self.momenta = [numbers("base_momentum", base_momentum), numbers("max_momentum", max_momentum)]
        if not cycle_momentum:
            self.momenta = []
        else:
            self._check_momentum(optimizer)
        if integer("CyclicLR", "last_epoch", last_epoch, -1) == -1:
            for group, low in zip(optimizer.param_groups, self.lows, strict=True):
                group["initial_lr"] = low
            rates_of(optimizer).rebase(self.lows)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.lows[group] + (self.tops[group] - self.lows[group]) * self._height(epoch)

    def _set_momentum(self, epoch: int) -> None:
        if self.momenta:
            height = self._height(epoch)
            self._set_momenta([top - (top - low) * height for low, top in zip(*self.momenta, strict=True)])

    def _height(self, epoch: int) -> float:
        cycle, step = divmod(epoch, self.up + self.down)
        height = step / self.up if step <= self.up else (self.up + self.down - step) / self.down
        number = cycle + 1 if self.by_cycle else epoch
        if self.scale_fn:
            return height * self.scale_fn(number)
        base = {"triangular": 1.0, "triangular2": 0.5, "exp_range": self.gamma}[self.mode]
        return float(height * base ** (number - 1 if self.by_cycle else number))

    def _join(self) -> None:
        self._check_groups("max_lr", self.tops)
