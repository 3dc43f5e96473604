"""Schedules in sequence, and several as one."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from minigrad.engine.ops.arguments import integer
from minigrad.optim.lr_scheduler.base import LRScheduler, Schedule, rates_of
from minigrad.optim.optimizer import Optimizer


class SequentialLR(LRScheduler):
    """Several schedules in sequence, such as a warm-up and a decay; each counts steps from its own beginning.

    Other schedules of the optimizer multiply with the one whose turn it is. The first one starts from the initial rates
    that the optimizer has when all are created; a `OneCycleLR` sets them to max_lr / div_factor.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
        The schedules, all for this optimizer.
    milestones : sequence of int
        The steps at which the second schedule begins, the third, and so on: one fewer than schedulers.
    last_epoch : int
        As for `LRScheduler`; the schedules may be created with any.

    Examples
    --------
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
        self._check_optimizer(optimizer)
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"[SequentialLR] expected one milestone fewer than schedulers, got {len(milestones)} milestones and "
                f"{len(schedulers)} schedulers"
            )
        for scheduler in schedulers:
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"[SequentialLR] expected schedulers whose step() has no arguments, got {scheduler!r}")
            if scheduler.optimizer is not optimizer:
                raise ValueError("[SequentialLR] expected all schedulers to have the same optimizer")
        self.milestones = [integer("SequentialLR", "milestones", milestone) for milestone in milestones]
        self.schedulers = list(schedulers)
        rates = rates_of(optimizer)
        given = rates.now()
        for scheduler in sorted(schedulers, key=lambda one: one.last_epoch):
            rates.remove(scheduler._place)
            if scheduler.last_epoch == 0:  # one that resumes has not changed the rates that the optimizer provides
                given = rates.now()
        bases = self._active(0)[0].base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        if integer("SequentialLR", "last_epoch", last_epoch, -1) != -1:
            rates.rebase(bases)
            for group, rate in zip(optimizer.param_groups, given, strict=True):
                group["lr"] = rate
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        scheduler, own = self._active(epoch)
        return scheduler.lr_at(group, own)

    def _active(self, epoch: int) -> tuple[LRScheduler, int]:
        """Return the schedule of an epoch, and the epoch as that schedule counts."""
        index = bisect_right(self.milestones, epoch)
        return self.schedulers[index], epoch - self.milestones[index - 1] if index else epoch

    def _set_momentum(self, epoch: int) -> None:
        scheduler, own = self._active(epoch)
        scheduler._move(own)

    def _join(self) -> None:
        for scheduler in self.schedulers:
            scheduler._join()
        super()._join()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all schedules, in "schedulers", and what `LRScheduler.state_dict` returns."""
        return {**super().state_dict(), "schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        super().check_state(state_dict)
        for name, own in (("schedulers", self.schedulers), ("milestones", self.milestones)):
            if len(state_dict[name]) != len(own):
                raise ValueError(f"[SequentialLR] expected {len(own)} {name}, got {len(state_dict[name])}")
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.check_state(state)

    def _restore(self, state: Mapping[str, Any]) -> None:
        for scheduler, own in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler._restore(own)
        super()._restore({**state, "schedulers": self.schedulers})


class ChainedScheduler(Schedule):
    """Several schedules that are stepped together: their factors multiply, as those of all schedules of an optimizer.

    Raises TypeError for anything else, such as a `ReduceLROnPlateau`, whose step takes an argument; ValueError for no
    schedules, or several optimizers.

    Parameters
    ----------
    schedulers : sequence of LRScheduler
        The schedules, all for one optimizer.
    optimizer : Optimizer, optional
        Theirs.

    Examples
    --------
    >>> from minigrad.optim.lr_scheduler import ChainedScheduler, ConstantLR, ExponentialLR
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = ChainedScheduler([ConstantLR(optimizer, 0.1, total_iters=1), ExponentialLR(optimizer, 0.5)])
    >>> scheduler.get_last_lr(), scheduler.step(), scheduler.get_last_lr()
    ([0.1], None, [0.5])
    """

    def __init__(self, schedulers: Sequence[Any], optimizer: Optimizer | None = None) -> None:
        if not schedulers:
            raise ValueError("[ChainedScheduler] expected at least one scheduler, got none")
        for scheduler in schedulers:
            if not isinstance(scheduler, LRScheduler | ChainedScheduler):
                got = f"{scheduler!r}"
                raise TypeError(f"[ChainedScheduler] expected schedulers whose step() has no arguments, got {got}")
        self.schedulers, self.optimizer = list(schedulers), optimizer or schedulers[0].optimizer
        if any(scheduler.optimizer is not self.optimizer for scheduler in schedulers):
            raise ValueError("[ChainedScheduler] expected all schedulers to have the same optimizer")

    def step(self) -> None:
        """Advance all schedules."""
        for scheduler in self.schedulers:
            scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all schedules, in "schedulers"."""
        return {"schedulers": [scheduler.state_dict() for scheduler in self.schedulers]}

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        super().check_state(state_dict)
        if len(state_dict["schedulers"]) != len(self.schedulers):
            expected, got = len(self.schedulers), len(state_dict["schedulers"])
            raise ValueError(f"[ChainedScheduler] expected {expected} schedulers, got {got}")
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.check_state(state)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; raise ValueError and load nothing for any other state."""
        self.check_state(state_dict)
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)
