"""LRScheduler: the rate of each parameter group as a function of the number of calls of `step`.

Every schedule defines one formula, `lr_at`, and contributes the factor `lr_at` / base to the rates; what something else
has set remains a factor (see `Rates`). So schedules on one optimizer multiply, as PyTorch's do with three exceptions:
its `LambdaLR` and `OneCycleLR` overwrite other changes, its `CosineAnnealingLR` adds the contribution of `eta_min`, and
some of its products are lost after one factor has been 0.
"""

from collections.abc import Mapping
from typing import Any

from minigrad.engine.devices.kernel_list import repeated
from minigrad.engine.ops.arguments import integer
from minigrad.optim.lr_scheduler.rates import Rates
from minigrad.optim.optimizer import Optimizer


class Schedule:
    """The base class of everything that changes rates: the checks of its arguments and states."""

    optimizer: Optimizer

    def get_last_lr(self) -> list[float]:
        """Return the rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _per_group(self, name: str, optimizer: Optimizer, value: Any) -> list[Any]:
        """Return one value for each group."""
        self._check_optimizer(optimizer)
        count = len(optimizer.param_groups)
        values = list(value) if isinstance(value, list | tuple) else [value] * count
        if len(values) != count:
            raise ValueError(f"[{type(self).__name__}] expected {count} values of {name}, got {len(values)}")
        return values

    def _check_optimizer(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"[{type(self).__name__}] expected an Optimizer, got {type(optimizer).__name__}")

    def _check_groups(self, name: str, values: list[Any]) -> None:
        """Reject groups that were added after the schedule was given one value for each."""
        count = len(self.optimizer.param_groups)
        if len(values) != count:
            raise ValueError(
                f"[{type(self).__name__}] expected the {len(values)} parameter groups that it was given {name} for, "
                f"got {count}: create the schedule after adding the last group"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes except the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        """Raise ValueError for a state with other entries, or for example a number in place of a list."""
        own = self.state_dict()
        if not isinstance(state_dict, Mapping) or state_dict.keys() != own.keys():
            got = ", ".join(map(str, state_dict)) if isinstance(state_dict, Mapping) else repr(state_dict)
            raise ValueError(f"[{type(self).__name__}] expected a state with {', '.join(own)}, got {got}")
        for name, value in own.items():
            if _kind(state_dict[name]) is not _kind(value):
                got = f"{state_dict[name]!r}"
                raise ValueError(f"[{type(self).__name__}] expected {name} to be like {value!r}, got {got}")


class LRScheduler(Schedule):
    """The base class of schedules; each of them defines `lr_at`.

    A group that is added to the optimizer later takes part from the next step on, unless the schedule has options that
    are given per group. Raises TypeError if `optimizer` is not an `Optimizer`, and ValueError for options out of range,
    or a `last_epoch` for an optimizer that never had a schedule.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        −1 to start; to resume a run, the number of completed steps minus one. The optimizer then provides the rates.

    Attributes
    ----------
    base_lrs : list of float
        Each group's rate when its first schedule was created.
    last_epoch : int
        The number of calls of `step`.
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self._check_optimizer(optimizer)
        self.optimizer = optimizer
        last_epoch = integer(type(self).__name__, "last_epoch", last_epoch, -1)
        for k, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(f"[{type(self).__name__}] expected 'initial_lr' in group {k} to resume, got none")
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self._place = rates_of(optimizer).add(self.base_lrs)
        if last_epoch == -1:
            self.last_epoch, self._values = -1, list(self.base_lrs)
            self.step()
        else:  # the optimizer already has the rates of this step
            self.last_epoch = last_epoch + 1
            self._values = [self.lr_at(group, self.last_epoch) for group in range(len(self.base_lrs))]
            self._last_lr = [group["lr"] for group in optimizer.param_groups]
            rates_of(optimizer).replace(self._place, self.base_lrs, self._values)

    def __init_subclass__(cls) -> None:
        if "step" in cls.__dict__:
            cls.step = repeated(cls.step)  # type: ignore[method-assign]

    def lr_at(self, group: int, epoch: int) -> float:
        """Return the rate of a group after `epoch` steps, if nothing else changes it."""
        raise NotImplementedError(f"[{type(self).__name__}] lr_at is not defined")

    @repeated
    def step(self) -> None:
        """Advance to the next epoch (or batch, if the schedule counts batches) and set the rates."""
        self._join()
        self._move(self.last_epoch + 1)

    def get_last_lr(self) -> list[float]:
        """Return the rate of each group after the last step."""
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Return all attributes except the optimizer and functions passed by the user, and the rates without them."""
        left_out = ("optimizer", "lr_lambdas", "scale_fn", "_place")
        own = {name: value for name, value in self.__dict__.items() if name not in left_out}
        return own | {"_plain": rates_of(self.optimizer).explain()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the result of `state_dict`; load the optimizer's state, before or after, separately.

        Rates that were set by hand since the optimizer has its schedules, or by its ``load_state_dict``, stay. Raises
        ValueError for the state of another kind of schedule or another number of groups; nothing is loaded then.
        """
        self.check_state(state_dict)
        self._restore(state_dict)
        rates_of(self.optimizer).load(self._place, self.base_lrs, self._values, state_dict["_plain"])
        self._set_momentum(self.last_epoch)

    def check_state(self, state_dict: Mapping[str, Any]) -> None:
        super().check_state(state_dict)
        count = len(self.base_lrs)
        if len(state_dict["base_lrs"]) > count:  # the state of a schedule that includes groups added later
            count = len(self.optimizer.param_groups)
        for name in ("base_lrs", "_values", "_last_lr"):
            if len(state_dict[name]) != count:
                raise ValueError(f"[{type(self).__name__}] expected {count} {name}, got {len(state_dict[name])}")

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update((name, value) for name, value in state.items() if name != "_plain")

    def _move(self, epoch: int) -> None:
        """Set the rates of an epoch, and whatever else the schedule sets."""
        before, values = self._values, [self.lr_at(group, epoch) for group in range(len(self.base_lrs))]
        self.last_epoch, self._values = epoch, values
        self._last_lr = rates_of(self.optimizer).change(self._place, before, values)
        self._set_momentum(epoch)

    def _set_momentum(self, epoch: int) -> None:
        """Set the momentum of an epoch, for schedules that change it."""

    def _check_momentum(self, optimizer: Optimizer) -> None:
        if not {"momentum", "betas"} & set(optimizer.defaults):
            raise ValueError(
                f"[{type(self).__name__}] expected an optimizer with momentum, got {optimizer.name}: pass "
                f"cycle_momentum=False"
            )

    def _set_momenta(self, momenta: list[float]) -> None:
        """Set each group's momentum, for Adam β₁."""
        for group, momentum in zip(self.optimizer.param_groups, momenta, strict=True):
            if "momentum" in group:
                group["momentum"] = momentum
            else:
                group["betas"] = (momentum, *group["betas"][1:])

    def _join(self) -> None:
        """Include the groups that were added since, whose rates change by the same factors as the others."""
        if len(self.base_lrs) < len(self.optimizer.param_groups):
            for group in self.optimizer.param_groups[len(self.base_lrs) :]:
                group.setdefault("initial_lr", group["lr"])
                self.base_lrs = [*self.base_lrs, group["initial_lr"]]  # new lists: `state_dict` returned the old ones
                self._values = [*self._values, self.lr_at(len(self._values), self.last_epoch)]
                self._last_lr = [*self._last_lr, group["lr"]]
            rates_of(self.optimizer).replace(self._place, self.base_lrs, self._values)


def rates_of(optimizer: Optimizer) -> Rates:
    """Return the rates of an optimizer."""
    if optimizer._rates is None:
        optimizer._rates = Rates()
    rates: Rates = optimizer._rates
    rates.groups = optimizer.param_groups
    return rates


def _kind(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
