"""Learning-rate schedules: the rate of each parameter group as a function of how often `step` was called.

Every schedule states one formula, `lr_at`. If something else has changed a group's rate since the last step (another
schedule, or the user), the change stays as a factor, so that schedules on one optimizer multiply as PyTorch's do.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from minigrad.optim.optimizer import Optimizer


class LRScheduler:
    """The base of all schedules: `lr_at` is what each of them defines.

    Parameters
    ----------
    optimizer : Optimizer
    last_epoch : int
        −1 to begin; where a run is resumed, one less than the number of steps done. The optimizer then brings the rates.

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
        _check_optimizer(self, optimizer)
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise ValueError(f"[{type(self).__name__}] expected 'initial_lr' in parameter group {number} to resume")
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
        self.last_epoch += 1
        values = self._lrs()
        for group, before, now in zip(self.optimizer.param_groups, self._values, values, strict=True):
            group["lr"] = now if group["lr"] == before or before == 0 else group["lr"] * (now / before)
        self._values = values
        self._last_lr = [group["lr"] for group in self.optimizer.param_groups]

    def restart(self) -> None:
        """Set the rates to those of the beginning."""
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
        """Take over what `state_dict` gave; the optimizer's state, which holds the rates, is loaded by itself."""
        self.__dict__.update(state_dict)

    def _lrs(self) -> list[float]:
        return [self.lr_at(group, self.last_epoch) for group in range(len(self.base_lrs))]


class LambdaLR(LRScheduler):
    """base · f(t).

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable, or one for each group
        f, of the number of steps t.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 / (1 + t))
    >>> scheduler.step()
    >>> scheduler.get_last_lr()
    [0.5]
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        _check_optimizer(self, optimizer)
        self.lr_lambdas = _per_group(self, "lr_lambda", optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * self.lr_lambdas[group](epoch)


class StepLR(LRScheduler):
    """base · γ^⌊t / step_size⌋.

    Parameters
    ----------
    optimizer : Optimizer
    step_size : int
    gamma : float
        γ.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     scheduler.step()
    ...     print(optimizer.param_groups[0]["lr"])
    1.0
    0.5
    0.5
    0.25
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        if step_size < 1:
            raise ValueError(f"[StepLR] expected step_size >= 1, got {step_size}")
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """base · γ^k, k the number of milestones reached.

    Parameters
    ----------
    optimizer : Optimizer
    milestones : sequence of int
    gamma : float
        γ.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    >>> scheduler.step(), scheduler.step(), scheduler.get_last_lr()
    (None, None, [0.25])
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * self.gamma ** bisect_right(self.milestones, epoch)


class ExponentialLR(LRScheduler):
    """base · γᵗ.

    Parameters
    ----------
    optimizer : Optimizer
    gamma : float
        γ.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> scheduler.step(), scheduler.step(), scheduler.get_last_lr()
    (None, None, [0.25])
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * self.gamma**epoch


class LinearLR(LRScheduler):
    """base · f, with f rising (or falling) evenly from `start_factor` to `end_factor` in `total_iters` steps: warm-up.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor : float
        In (0, 1].
    end_factor : float
        In [0, 1].
    total_iters : int
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.5, total_iters=2)
    >>> for _ in range(3):
    ...     print(optimizer.param_groups[0]["lr"])
    ...     scheduler.step()
    0.5
    0.75
    1.0
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if not (0 < start_factor <= 1 and 0 <= end_factor <= 1):
            raise ValueError(f"[LinearLR] expected factors in (0, 1] and [0, 1], got {start_factor} and {end_factor}")
        if total_iters < 1:
            raise ValueError(f"[LinearLR] expected total_iters >= 1, got {total_iters}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        share = min(epoch, self.total_iters) / self.total_iters
        return self.base_lrs[group] * (self.start_factor + (self.end_factor - self.start_factor) * share)


class CosineAnnealingLR(LRScheduler):
    """η_min + (base − η_min)(1 + cos(π t / T_max)) / 2 (Loshchilov and Hutter 2016, https://arxiv.org/abs/1608.03983).

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Steps until η_min is reached; the rate rises again after that.
    eta_min : float
        η_min.
    last_epoch : int

    Examples
    --------
    >>> import minigrad as mg
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> scheduler.step(), [round(lr, 6) for lr in scheduler.get_last_lr()]
    (None, [0.5])
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        if T_max < 1:
            raise ValueError(f"[CosineAnnealingLR] expected T_max >= 1, got {T_max}")
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.eta_min + (self.base_lrs[group] - self.eta_min) * (1 + math.cos(math.pi * epoch / self.T_max)) / 2


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down again in one run, momentum the other way (Smith 2017, https://arxiv.org/abs/1708.07120).

    From max_lr / div_factor to max_lr during the first `pct_start` of the steps, then down to
    max_lr / (div_factor · final_div_factor). Meant to be stepped once per batch.

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float, or one for each group
    total_steps : int, optional
        Or else `epochs` and `steps_per_epoch`.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        In [0, 1].
    anneal_strategy : {"cos", "linear"}
    cycle_momentum : bool
        Whether momentum (for Adam: β₁) moves from `max_momentum` to `base_momentum` and back.
    base_momentum, max_momentum : float
    div_factor, final_div_factor : float
    three_phase : bool
        Whether the way down mirrors the way up before the last, steeper descent.
    last_epoch : int

    Raises
    ------
    ValueError
        Also when stepped more than `total_steps` times.

    Examples
    --------
    >>> import minigrad as mg
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
        _check_optimizer(self, optimizer)
        if total_steps is None and (epochs is None or steps_per_epoch is None):
            raise ValueError("[OneCycleLR] expected total_steps, or epochs and steps_per_epoch")
        self.total_steps = total_steps if total_steps is not None else (epochs or 0) * (steps_per_epoch or 0)
        if self.total_steps < 1:
            raise ValueError(f"[OneCycleLR] expected at least one step, got {self.total_steps}")
        if not 0 <= pct_start <= 1:
            raise ValueError(f"[OneCycleLR] expected pct_start from 0 to 1, got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"[OneCycleLR] expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}")
        self.cosine = anneal_strategy == "cos"
        peak = pct_start * self.total_steps - 1
        self.ends = [peak, 2 * peak, self.total_steps - 1] if three_phase else [peak, self.total_steps - 1]
        self.turns = []     # each group's rate at the beginning and at the end of each phase
        for group, top in zip(optimizer.param_groups, _per_group(self, "max_lr", optimizer, max_lr), strict=True):
            low = top / div_factor
            last = low / final_div_factor
            self.turns.append([low, top, low, last] if three_phase else [low, top, last])
            if last_epoch == -1:
                group.update(initial_lr=low, max_lr=top, min_lr=last, lr=low)
        self.momenta = None
        if cycle_momentum:
            if not {"momentum", "betas"} & set(optimizer.defaults):
                raise ValueError(f"[OneCycleLR] {optimizer.name} has no momentum to cycle: pass cycle_momentum=False")
            middle = [max_momentum] if three_phase else []
            self.momenta = [max_momentum, base_momentum, *middle, max_momentum]
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self._between(self.turns[group], epoch)

    def step(self) -> None:
        if self.last_epoch >= self.total_steps:
            raise ValueError(f"[OneCycleLR] expected at most {self.total_steps} steps, got one more")
        super().step()
        if self.momenta is not None:
            momentum = self._between(self.momenta, self.last_epoch)
            for group in self.optimizer.param_groups:
                if "momentum" in group:
                    group["momentum"] = momentum
                else:
                    group["betas"] = (momentum, *group["betas"][1:])

    def _between(self, turns: list[float], epoch: int) -> float:
        phase = next((i for i, end in enumerate(self.ends) if epoch <= end), len(self.ends) - 1)
        begin = self.ends[phase - 1] if phase else 0
        share = (epoch - begin) / (self.ends[phase] - begin) if self.ends[phase] != begin else 1.0
        share = (1 - math.cos(math.pi * share)) / 2 if self.cosine else share
        return turns[phase] + (turns[phase + 1] - turns[phase]) * share


class SequentialLR(LRScheduler):
    """Several schedules one after the other, such as a warm-up and a decay; each counts from its own beginning.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
        All of this optimizer.
    milestones : sequence of int
        The step where the second begins, the third, and so on: one fewer than schedulers.
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
        _check_optimizer(self, optimizer)
        if not schedulers or len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"[SequentialLR] expected one milestone fewer than schedulers, got {len(milestones)} milestones and "
                f"{len(schedulers)} schedulers"
            )
        for scheduler in schedulers:
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"[SequentialLR] expected schedulers of a step() without arguments, got {scheduler!r}")
            if scheduler.optimizer is not optimizer:
                raise ValueError("[SequentialLR] expected all schedulers to have the same optimizer")
        self.optimizer, self.last_epoch = optimizer, last_epoch + 1
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        if last_epoch == -1:
            self.schedulers[0].restart()

    def step(self) -> None:
        self.last_epoch += 1
        index = bisect_right(self.milestones, self.last_epoch)
        if index > 0 and self.milestones[index - 1] == self.last_epoch:
            self.schedulers[index].restart()
        else:
            self.schedulers[index].step()

    def get_last_lr(self) -> list[float]:
        return self.schedulers[bisect_right(self.milestones, self.last_epoch)].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        """The states of all schedules, in "schedulers", and the step count."""
        states = [scheduler.state_dict() for scheduler in self.schedulers]
        return {"last_epoch": self.last_epoch, "milestones": list(self.milestones), "schedulers": states}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        if len(state_dict["schedulers"]) != len(self.schedulers):
            raise ValueError(
                f"[SequentialLR] expected {len(self.schedulers)} schedulers, got {len(state_dict['schedulers'])}"
            )
        self.last_epoch, self.milestones = state_dict["last_epoch"], list(state_dict["milestones"])
        for scheduler, state in zip(self.schedulers, state_dict["schedulers"], strict=True):
            scheduler.load_state_dict(state)


class ReduceLROnPlateau:
    """The rate times `factor` whenever a quantity has not improved for more than `patience` steps.

    Parameters
    ----------
    optimizer : Optimizer
    mode : {"min", "max"}
        Whether less or more is better.
    factor : float
        Below 1.
    patience : int
    threshold : float
        How much better counts as better.
    threshold_mode : {"rel", "abs"}
        Whether `threshold` is a share of the best value or a difference from it.
    cooldown : int
        Steps after a reduction during which nothing is counted.
    min_lr : float, or one for each group
    eps : float
        A reduction by no more than this is not done.

    Raises
    ------
    TypeError
        If `optimizer` is no `Optimizer`.
    ValueError
        For options out of range.

    Examples
    --------
    >>> import minigrad as mg
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
        _check_optimizer(self, optimizer)
        if mode not in ("min", "max"):
            raise ValueError(f"[ReduceLROnPlateau] expected mode 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"[ReduceLROnPlateau] expected threshold_mode 'rel' or 'abs', got {threshold_mode!r}")
        if not factor < 1:
            raise ValueError(f"[ReduceLROnPlateau] expected factor < 1, got {factor}")
        self.optimizer, self.mode, self.factor, self.patience = optimizer, mode, factor, patience
        self.threshold, self.threshold_mode, self.cooldown, self.eps = threshold, threshold_mode, cooldown, eps
        self.min_lrs = _per_group(self, "min_lr", optimizer, min_lr)
        self.best = math.inf if mode == "min" else -math.inf
        self.num_bad_epochs = self.cooldown_counter = self.last_epoch = 0

    def step(self, metrics: Any) -> None:
        """Look at the quantity (a number, or a tensor of one element) and reduce the rates if it is time."""
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

    def get_last_lr(self) -> list[float]:
        """The rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """All but the optimizer."""
        return {name: value for name, value in self.__dict__.items() if name != "optimizer"}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self.__dict__.update(state_dict)


def _check_optimizer(scheduler: object, optimizer: Optimizer) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"[{type(scheduler).__name__}] expected an Optimizer, got {type(optimizer).__name__}")


def _per_group(scheduler: object, name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """One value for each group."""
    count = len(optimizer.param_groups)
    values = list(value) if isinstance(value, list | tuple) else [value] * count
    if len(values) != count:
        raise ValueError(f"[{type(scheduler).__name__}] expected {count} values of {name}, got {len(values)}")
    return values
