"""Schedules given by a one-line formula."""

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

from minigrad.engine.ops.arguments import integer, number
from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.optimizer import Optimizer


class LambdaLR(LRScheduler):
    """base · f(t).

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable, or one for each group
        f, a function of the number of steps t.
    last_epoch : int

    Examples
    --------
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
        self.lr_lambdas = self._per_group("lr_lambda", optimizer, lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                name = type(self).__name__
                raise TypeError(f"[{name}] expected a function of the epoch for lr_lambda, got {function!r}")
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return float(self.base_lrs[group] * self.lr_lambdas[group](epoch))

    def _join(self) -> None:
        self._check_groups("lr_lambda", self.lr_lambdas)


class MultiplicativeLR(LambdaLR):
    """base · f(1) f(2) … f(t).

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable, or one for each group
        f, a function of the number of the step.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.MultiplicativeLR(optimizer, lambda t: 0.5)
    >>> scheduler.step(), scheduler.step(), scheduler.get_last_lr()
    (None, None, [0.25])
    """

    _products: Mapping[int, tuple[int, float]] = {}  # by group, with the number of factors; replaced, never changed

    def lr_at(self, group: int, epoch: int) -> float:
        count, product = self._products.get(group, (0, 1.0))
        if count > epoch:
            count, product = 0, 1.0
        for t in range(count + 1, epoch + 1):
            product *= self.lr_lambdas[group](t)
        self._products = {**self._products, group: (epoch, product)}
        return float(self.base_lrs[group] * product)


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
        self.step_size = integer("StepLR", "step_size", step_size, 1)
        self.gamma = number("StepLR", "gamma", gamma)
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
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.5)
    >>> scheduler.step(), scheduler.step(), scheduler.get_last_lr()
    (None, None, [0.25])
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = sorted(integer("MultiStepLR", "milestones", milestone) for milestone in milestones)
        self.gamma = number("MultiStepLR", "gamma", gamma)
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
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    >>> scheduler.step(), scheduler.step(), scheduler.get_last_lr()
    (None, None, [0.25])
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = number("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * self.gamma**epoch


class LinearLR(LRScheduler):
    """base · f, with f changing linearly from `start_factor` to `end_factor` in `total_iters` steps, as for a warm-up.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor : float
        In (0, 1].
    end_factor : float
        In [0, 1].
    total_iters : int
        At least 1; with 0, PyTorch keeps base · start_factor.
    last_epoch : int

    Examples
    --------
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
        self.start_factor = number("LinearLR", "start_factor", start_factor, 0, 1)
        if start_factor == 0:
            raise ValueError("[LinearLR] expected start_factor > 0, got 0")
        self.end_factor = number("LinearLR", "end_factor", end_factor, 0, 1)
        self.total_iters = integer("LinearLR", "total_iters", total_iters, 1)
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
        The number of steps until η_min is reached; the rate rises again after that.
    eta_min : float
        η_min.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    >>> scheduler.step(), [round(lr, 6) for lr in scheduler.get_last_lr()]
    (None, [0.5])
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max = integer("CosineAnnealingLR", "T_max", T_max, 1)
        self.eta_min = number("CosineAnnealingLR", "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        angle = math.pi * (epoch % (2 * self.T_max)) / self.T_max  # the lowest rate is exact
        return self.eta_min + (self.base_lrs[group] - self.eta_min) * (1 + math.cos(angle)) / 2


class CosineAnnealingWarmRestarts(LRScheduler):
    """`CosineAnnealingLR` that starts again after T_0 steps, then after T_0 · T_mult, T_0 · T_mult², … steps.

    Parameters
    ----------
    optimizer : Optimizer
    T_0 : int
        The number of steps of the first period.
    T_mult : int
        How many times as long each period is as the one before.
    eta_min : float
        The lowest rate.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    >>> for _ in range(3):
    ...     print(round(optimizer.param_groups[0]["lr"], 6))
    ...     scheduler.step()
    1.0
    0.5
    1.0
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_0 = integer("CosineAnnealingWarmRestarts", "T_0", T_0, 1)
        self.T_mult = integer("CosineAnnealingWarmRestarts", "T_mult", T_mult, 1)
        self.eta_min = number("CosineAnnealingWarmRestarts", "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        period = self.T_0
        if self.T_mult == 1:
            epoch %= period
        while epoch >= period:
            epoch -= period
            period *= self.T_mult
        return self.eta_min + (self.base_lrs[group] - self.eta_min) * (1 + math.cos(math.pi * epoch / period)) / 2


class ConstantLR(LRScheduler):
    """base · factor for `total_iters` steps, then base.

    Parameters
    ----------
    optimizer : Optimizer
    factor : float
        In [0, 1].
    total_iters : int
        With 0, PyTorch keeps base · factor.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=1)
    >>> scheduler.get_last_lr(), scheduler.step(), scheduler.get_last_lr()
    ([0.5], None, [1.0])
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor = number("ConstantLR", "factor", factor, 0, 1)
        self.total_iters = integer("ConstantLR", "total_iters", total_iters, 0)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group] * (self.factor if epoch < self.total_iters else 1)


class PolynomialLR(LRScheduler):
    """base · (1 − t / total_iters)^power, and 0 after `total_iters` steps.

    Parameters
    ----------
    optimizer : Optimizer
    total_iters : int
    power : float
        0 or more.
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=2)
    >>> scheduler.step(), scheduler.get_last_lr()
    (None, [0.5])
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters = integer("PolynomialLR", "total_iters", total_iters, 1)
        self.power = number("PolynomialLR", "power", power, 0)
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return float(self.base_lrs[group] * (1 - min(epoch, self.total_iters) / self.total_iters) ** self.power)
