"""A schedule that monitors a metric instead of counting steps."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from minigrad.engine.ops.arguments import integer, number
from minigrad.optim.lr_scheduler.base import Schedule
from minigrad.optim.optimizer import Optimizer


class ReduceLROnPlateau(Schedule):
    """Multiplies the rate by `factor` whenever a metric has not improved for more than `patience` steps.

    Raises TypeError if `optimizer` is not an `Optimizer`, and ValueError for options out of range.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Whether a lower or a higher metric is better.
    factor : float
        Below 1.
    patience : int
    threshold : float
        The smallest change that counts as an improvement.
    threshold_mode : {"rel", "abs"}
        Whether `threshold` is a fraction of the best value or an absolute difference.
    cooldown : int
        The number of steps after a reduction that do not count towards `patience`.
    min_lr : float, or one for each group
    eps : float
        Reductions by no more than this are skipped.

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 3.0, 3.0):
    ...     scheduler.step(loss)
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, mode: str = "min", factor: float = 0.1, patience: int = 10, threshold: float = 1e-4,
        threshold_mode: str = "rel", cooldown: int = 0, min_lr: float | Sequence[float] = 0.0, eps: float = 1e-8,
    ) -> None:  # fmt: skip
        self._check_optimizer(optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"[ReduceLROnPlateau] expected mode 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"[ReduceLROnPlateau] expected threshold_mode 'rel' or 'abs', got {threshold_mode!r}")
        name = "ReduceLROnPlateau"
        self.optimizer, self.mode, self.threshold_mode = optimizer, mode, threshold_mode
        self.factor, self.threshold = number(name, "factor", factor), number(name, "threshold", threshold)
        if not self.factor < 1:
            raise ValueError(f"[{name}] expected factor < 1, got {factor}")
        self.patience, self.cooldown = integer(name, "patience", patience), integer(name, "cooldown", cooldown)
        self.min_lrs = [number(name, "min_lr", least) for least in self._per_group("min_lr", optimizer, min_lr)]
        self.eps = number(name, "eps", eps)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics: Any) -> None:
        """Check the metric (a number, or a tensor of one element) and reduce the rates if it has stopped improving."""
        self._check_groups("min_lr", self.min_lrs)
        current = float(metrics)
        self.last_epoch += 1
        if self._is_better(current):
            self.best, self.num_bad_epochs = current, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            for group, least in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                reduced = max(group["lr"] * self.factor, least)
                if group["lr"] - reduced > self.eps:
                    group["lr"] = reduced
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0

    def _is_better(self, value: float) -> bool:
        sign = 1 if self.mode == "min" else -1
        if math.isinf(self.best):
            return sign * value < sign * self.best
        margin = self.threshold * (self.best if self.threshold_mode == "rel" else 1)
        return sign * value < sign * self.best - margin

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; raise ValueError and load nothing for any other state."""
        self.check_state(state_dict)
        self.__dict__.update(state_dict)
