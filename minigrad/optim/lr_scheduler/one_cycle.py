"""The one-cycle schedule."""

import math
from collections.abc import Sequence

from minigrad.engine.ops.arguments import integer, number
from minigrad.optim.lr_scheduler.base import LRScheduler, rates_of
from minigrad.optim.optimizer import Optimizer


class OneCycleLR(LRScheduler):
    """One rise to `max_lr` and fall per run, with the opposite for momentum (Smith 2017, arXiv:1708.07120).

    The rate rises from max_lr / div_factor to max_lr during the first `pct_start` of the steps, then falls to
    max_lr / (div_factor · final_div_factor). Call `step` once per batch. Raises ValueError for options out of range,
    and when `step` is called more than `total_steps` times.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float, or one for each group
    total_steps : int, optional
        By default, ``epochs * steps_per_epoch``.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        The fraction of steps during which the rate rises, in [0, 1].
    anneal_strategy : {"cos", "linear"}
    cycle_momentum : bool
        Whether momentum (for Adam, β₁) moves from `max_momentum` to `base_momentum` and back.
    base_momentum, max_momentum : float
    div_factor, final_div_factor : float
        Above 0.
    three_phase : bool
        Whether the fall first mirrors the rise, before a last, steeper phase.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.Adam([mg.zeros(1, requires_grad=True)])
    >>> scheduler = mg.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10)
    >>> rates = scheduler.get_last_lr()
    >>> for _ in range(9):
    ...     scheduler.step()
    ...     rates += scheduler.get_last_lr()
    >>> [round(rate, 2) for rate in rates]
    [0.04, 0.52, 1.0, 0.95, 0.81, 0.61, 0.39, 0.19, 0.05, 0.0]
    """

    def __init__(
        self, optimizer: Optimizer, max_lr: float | Sequence[float], total_steps: int | None = None,
        epochs: int | None = None, steps_per_epoch: int | None = None, pct_start: float = 0.3,
        anneal_strategy: str = "cos", cycle_momentum: bool = True, base_momentum: float = 0.85,
        max_momentum: float = 0.95, div_factor: float = 25.0, final_div_factor: float = 1e4,
        three_phase: bool = False, last_epoch: int = -1,
    ) -> None:  # fmt: skip
        self._check_optimizer(optimizer)
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, got neither")
        name = "OneCycleLR"
        if total_steps is None:
            total_steps = integer(name, "epochs", epochs, 1) * integer(name, "steps_per_epoch", steps_per_epoch, 1)
        self.total_steps = integer(name, "total_steps", total_steps, 1)
        last_epoch = integer(name, "last_epoch", last_epoch, -1)
        pct_start = number(name, "pct_start", pct_start, 0, 1)
        div_factor = number(name, "div_factor", div_factor, 0)
        final_div_factor = number(name, "final_div_factor", final_div_factor, 0)
        for key, value in (("div_factor", div_factor), ("final_div_factor", final_div_factor)):
            if value == 0:
                raise ValueError(f"[OneCycleLR] expected {key} > 0, got 0")
        base_momentum = number(name, "base_momentum", base_momentum, 0, 1)
        max_momentum = number(name, "max_momentum", max_momentum, 0, 1)
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"[OneCycleLR] expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}")
        self.cosine = anneal_strategy == "cos"
        peak = pct_start * self.total_steps - 1
        self.ends = [peak, 2 * peak, self.total_steps - 1] if three_phase else [peak, self.total_steps - 1]
        self.turns = []  # each group's rate at the boundaries of the phases
        for group, top in zip(optimizer.param_groups, self._per_group("max_lr", optimizer, max_lr), strict=True):
            top = number(name, "max_lr", top, 0)
            low = top / div_factor
            last = low / final_div_factor
            self.turns.append([low, top, low, last] if three_phase else [low, top, last])
            if last_epoch == -1:
                group.update(initial_lr=low, max_lr=top, min_lr=last)
        self.momenta = None
        if cycle_momentum:
            self._check_momentum(optimizer)
            middle = [max_momentum] if three_phase else []
            self.momenta = [max_momentum, base_momentum, *middle, max_momentum]
        if last_epoch == -1:
            rates_of(optimizer).rebase([turns[0] for turns in self.turns])
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        if epoch > self.total_steps:
            raise ValueError(f"[OneCycleLR] expected at most {self.total_steps} steps, got one more")
        return self._between(self.turns[group], epoch)

    def _set_momentum(self, epoch: int) -> None:
        if self.momenta is not None:
            self._set_momenta([self._between(self.momenta, epoch)] * len(self.optimizer.param_groups))

    def _join(self) -> None:
        self._check_groups("max_lr", self.turns)

    def _between(self, turns: list[float], epoch: int) -> float:
        phase = next((i for i, end in enumerate(self.ends) if epoch <= end), len(self.ends) - 1)
        begin = self.ends[phase - 1] if phase else 0
        share = (epoch - begin) / (self.ends[phase] - begin) if self.ends[phase] != begin else 1.0
        share = (1 - math.cos(math.pi * share)) / 2 if self.cosine else share
        return turns[phase] + (turns[phase + 1] - turns[phase]) * share
