"""LRScheduler: the rate of each parameter group as a function of how often `step` was called.

Every schedule states one formula, `lr_at`. If something else has changed a group's rate since the last step (another
schedule, or the user), the change stays as a factor, so that schedules on one optimizer multiply. So do PyTorch's, but
for two: its `LambdaLR` overwrites what others did, and its `CosineAnnealingLR` adds what `eta_min` contributes.
"""

from collections.abc import Mapping
from typing import Any

from minigrad.engine.ops.arguments import integer
from minigrad.optim.optimizer import Optimizer


class LRScheduler:
    """The base of all schedules: `lr_at` is what each of them defines.

    A group that is added to the optimizer later takes part from the next step on, where the schedule has no options of
    each group's own.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        −1 to begin; where a run is resumed, the number of steps done less one; the optimizer then brings the rates.

    Attributes
    ----------
    base_lrs : list of float
        Each group's rate when its first schedule was made.
    last_epoch : int
        How often `step` was called.

    Raises
    ------
    TypeError
        If `optimizer` is no `Optimizer`.
    ValueError
        For options out of range, or a `last_epoch` for an optimizer that never had a schedule.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(self, optimizer)
        self.optimizer = optimizer
        last_epoch = integer(type(self).__name__, "last_epoch", last_epoch, -1)
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(f"[{type(self).__name__}] expected 'initial_lr' in parameter group {k} to resume")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        if last_epoch == -1:
            self._values = list(self.base_lrs)
            self.step()
        else:  # the optimizer comes with the rates of this step
            self.last_epoch += 1
            self._values, self._last_lr = self._lrs(), [group["lr"] for group in optimizer.param_groups]

    def lr_at(self, group: int, epoch: int) -> float:
        """The rate of a group after `epoch` steps, if nothing else changes it."""
        raise NotImplementedError(f"[{type(self).__name__}] lr_at is not defined")

    def step(self) -> None:
        """Go on to the next epoch (or batch, whichever the schedule counts) and set the rates."""
        self._join()
        self.last_epoch += 1
        values = self._lrs()
        for group, before, now in zip(self.optimizer.param_groups, self._values, values, strict=True):
            group["lr"] = now if group["lr"] == before or before == 0 else group["lr"] * (now / before)
        self._values = values
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def restart(self) -> None:
        """Set the rates to those of the beginning."""
        self._join()
        self.last_epoch, self._values = -1, list(self.base_lrs)
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base
        self.step()

    def get_last_lr(self) -> list[float]:
        """The rate of each group, as the last step left it."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer and what the user passed as functions."""
        return {name: value for name, value in self.__dict__.items() if name not in ("optimizer", "lr_lambdas")}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; the optimizer's state, which holds the rates, is loaded by itself.

        Raises
        ------
        ValueError
            For the state of another kind of schedule or another number of groups. Nothing is taken over then.
        """
        self.check_state(state_dict)
        self.__dict__.update(state_dict)

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        """Raise ValueError for a state that is not one of this schedule."""
        check_state(self, state_dict)
        count = len(self.base_lrs)
        if len(state_dict["base_lrs"]) > count:  # the state of a schedule that has taken in later groups
            count = len(self.optimizer.param_groups)
        for name in ("base_lrs", "_values", "_last_lr"):
            if len(state_dict[name]) != count:
                raise ValueError(f"[{type(self).__name__}] expected {count} {name}, got {len(state_dict[name])}")

    def _join(self) -> None:
        """Take in the groups that were added since, which go on from their rates by the factors of the others."""
        for group in self.optimizer.param_groups[len(self.base_lrs) :]:
            group.setdefault("initial_lr", group["lr"])
            self.base_lrs = [*self.base_lrs, group["initial_lr"]]  # new lists: `state_dict` gave the old ones away
            self._values = [*self._values, self.lr_at(len(self._values), self.last_epoch)]
            self._last_lr = [*self._last_lr, group["lr"]]

    def _lrs(self) -> list[float]:
        return [self.lr_at(group, self.last_epoch) for group in range(len(self.base_lrs))]


def check_optimizer(scheduler: object, optimizer: Optimizer) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"[{type(scheduler).__name__}] expected an Optimizer, got {type(optimizer).__name__}")


def check_state(scheduler: Any, state_dict: Any) -> None:
    """Refuse what has other entries than the schedule, or a number in the place of a list."""
    own = scheduler.state_dict()
    if not isinstance(state_dict, Mapping) or state_dict.keys() != own.keys():
        got = ", ".join(map(str, state_dict)) if isinstance(state_dict, Mapping) else repr(state_dict)
        raise ValueError(f"[{type(scheduler).__name__}] expected a state with {', '.join(own)}, got {got}")
    for name, value in own.items():
        if _kind(state_dict[name]) is not _kind(value):
            raise ValueError(
                f"[{type(scheduler).__name__}] expected {name} to be like {value!r}, got {state_dict[name]!r}"
            )


def _kind(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def per_group(scheduler: object, name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group."""
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(f"[{type(scheduler).__name__}] expected {count} values of {name}, got {len(values)}")
    return values


def check_groups(scheduler: object, name: str, values: list[Any], optimizer: Optimizer) -> None:
    """Refuse groups that were added after the schedule took one value for each."""
    count = len(optimizer.param_groups)
    if len(values) != count:
        raise ValueError(
            f"[{type(scheduler).__name__}] expected the {len(values)} parameter groups that it was given {name} for, "
            f"got {count}: make the schedule after the last group was added"
        )
