"""Schedules in sequence."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from minigrad.engine.ops.arguments import integer
from minigrad.optim.lr_scheduler.base import LRScheduler, check_optimizer, check_state
from minigrad.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """Several schedules in sequence, such as a warm-up and a decay; each counts steps from its own beginning.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
        The schedules, all for this optimizer.
    milestones : sequence of int
        The steps at which the second schedule begins, the third, and so on: one fewer than schedulers.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad.optim.lr_scheduler import ExponentialLR, LinearLR, SequentialLR
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> warm_up = LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> scheduler = SequentialLR(optimizer, [warm_up, ExponentialLR(optimizer, 0.5)], milestones=[2])
    >>> for _ in range(4):
    ...     print(optimizer.param_groups[0]["lr"])
    ...     scheduler.step()
    0.5
    0.75
    1.0
    0.5
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        check_optimizer(self, optimizer)
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"[SequentialLR] expected one milestone fewer than schedulers, got {len(milestones)} milestones and "
                f"{len(schedulers)} schedulers"
            )
        for scheduler in schedulers:
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(
                    f"[SequentialLR] expected schedulers whose step() takes no arguments, got {scheduler!r}"
                )
            if scheduler.optimizer is not optimizer:
                raise ValueError("[SequentialLR] expected all schedulers to have the same optimizer")
        places = [integer("SequentialLR", "milestones", milestone) for milestone in milestones]
        last_epoch = integer("SequentialLR", "last_epoch", last_epoch, -1)
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self.schedulers, self.milestones = list(schedulers), places
        if last_epoch == -1:
            self.schedulers[0].restart()

    def step(self) -> None:
        self._join()
        self.last_epoch += 1
        index = bisect_right(self.milestones, self.last_epoch)
        if index > 0 and self.milestones[index - 1] == self.last_epoch:
            self.schedulers[index].restart()
        else:
            self.schedulers[index].step()

    def _join(self) -> None:
        for scheduler in self.schedulers:
            scheduler._join()

    def get_last_lr(self) -> list[float]:
        return self.schedulers[bisect_right(self.milestones, self.last_epoch)].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all schedules, in "schedulers", and the step count."""
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return {"last_epoch": self.last_epoch, "milestones": list(self.milestones), "schedulers": states}

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        check_state(self, state_dict)
        for name, own in (("schedulers", self.schedulers), ("milestones", self.milestones)):
            if len(state_dict[name]) != len(own):
                raise ValueError(f"[SequentialLR] expected {len(own)} {name}, got {len(state_dict[name])}")
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.check_state(state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self.check_state(state_dict)
        self.last_epoch, self.milestones = state_dict["last_epoch"], list(state_dict["milestones"])
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
