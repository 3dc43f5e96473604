"""Averages of a network's weights over the steps of its training, under PyTorch's names."""

import copy
import math
from collections.abc import Callable, Iterable
from typing import Any

from minigrad.arrays.creation import zeros
from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module, check_module
from minigrad.nn.norm.batch_norm import _BatchNorm
from minigrad.optim.lr_scheduler.base import LRScheduler
from minigrad.optim.optimizer import Optimizer

__all__ = ["SWALR", "AveragedModel", "get_ema_avg_fn", "get_ema_multi_avg_fn", "get_swa_avg_fn", "get_swa_multi_avg_fn",
           "update_bn"]  # fmt: skip

Average = Callable[[Tensor, Tensor, int], Tensor]
Averages = Callable[[list[Tensor], list[Tensor], int], Any]


def get_swa_avg_fn() -> Average:
    """Return the function (average, parameter, number of averaged ones) of the equally weighted mean.

    Examples
    --------
    >>> mg.optim.swa_utils.get_swa_avg_fn()(mg.tensor(2.0), mg.tensor(5.0), 2).item()
    3.0
    """
    return lambda average, parameter, count: average + (parameter - average) / (count + 1)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the function of an exponential average: decay · average + (1 − decay) · parameter. `decay` is in [0, 1].

    Examples
    --------
    >>> mg.optim.swa_utils.get_ema_avg_fn(0.75)(mg.tensor(2.0), mg.tensor(6.0), 5).item()
    3.0
    """
    decay = number("get_ema_avg_fn", "decay", decay, 0, 1)
    return lambda average, parameter, count: decay * average + (1 - decay) * parameter


def get_swa_multi_avg_fn() -> Averages:
    """Return `get_swa_avg_fn` for lists, which changes the averages in place."""
    return _for_lists(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Return `get_ema_avg_fn` for lists, which changes the averages in place."""
    return _for_lists(get_ema_avg_fn(decay))


def _for_lists(function: Average) -> Averages:
    def update(averages: list[Tensor], parameters: list[Tensor], count: int) -> None:
        for average, parameter in zip(averages, parameters, strict=True):
            average.copy_(function(average, parameter, count))

    return update


class AveragedModel(Module):
    """A copy of a module whose parameters are averages (Izmailov et al. 2018, https://arxiv.org/abs/1803.05407).

    Raises TypeError if `model` is not a Module, and ValueError for two functions.

    Parameters
    ----------
    model : Module
    device : str, optional
        Where the copy is.
    avg_fn : callable, optional
        (average, parameter, number of averaged ones) to the new average; by default `get_swa_avg_fn`.
    multi_avg_fn : callable, optional
        The same for lists of tensors, in place.
    use_buffers : bool
        Whether buffers of floating-point numbers are averaged; otherwise they are copied, as all others are.
        `update_bn` computes the statistics of `BatchNorm1d` anew.

    Attributes
    ----------
    module : Module
        The copy.
    n_averaged : Tensor
        The number of calls of `update_parameters`.

    Examples
    --------
    >>> model = mg.nn.Linear(1, 1, bias=False)
    >>> averaged = mg.optim.swa_utils.AveragedModel(model, avg_fn=mg.optim.swa_utils.get_ema_avg_fn(0.5))
    >>> for value in (4.0, 8.0):
    ...     _ = mg.nn.init.constant_(model.weight, value)
    ...     averaged.update_parameters(model)
    >>> averaged(mg.ones((1, 1))).item()
    6.0
    """

    n_averaged: Tensor

    def __init__(
        self, model: Module, device: str | None = None, avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None, use_buffers: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        check_module("AveragedModel", model)
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("[AveragedModel] expected avg_fn or multi_avg_fn, got both")
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", zeros((), dtype="int64", device=device))
        self.average = multi_avg_fn or _for_lists(avg_fn or get_swa_avg_fn())
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the copy."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Add the parameters of a model to the averages; the first ones are copied. Call it after a captured step.

        Raises ValueError if the names or shapes of its parameters and buffers are not those of the copy; nothing is
        changed then.
        """
        own, given = ({**dict(m.named_parameters()), **dict(m.named_buffers())} for m in (self.module, model))
        for name in {**own, **given}:
            shapes = [None if name not in some else some[name].shape for some in (own, given)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"[AveragedModel] {name}: expected shape {shapes[0]}, got {shapes[1]}")
        count, trained = int(self.n_averaged.item()), dict(self.module.named_parameters())
        averages, parameters = [], []
        with no_grad():
            for name, average in own.items():
                parameter = given[name].detach().to(average.device)
                is_averaged = name in trained or (self.use_buffers and str(average.dtype).startswith("float"))
                if count and is_averaged:
                    averages.append(average.detach())
                    parameters.append(parameter)
                else:
                    average.copy_(parameter)
            if averages:
                self.average(averages, parameters, count)
            self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Compute the running statistics of all BatchNorm layers anew, as means over the batches of one pass.

    Every batch has the same weight, however large. Other layers are in training mode, too, so that a `Dropout` drops;
    afterwards each module has the mode that it had.

    Parameters
    ----------
    loader : iterable
        Batches: a tensor that `model` takes, or a list or tuple that begins with it.
    model : Module
    device : str, optional
        Where each batch is moved first.

    Examples
    --------
    >>> layer = mg.nn.BatchNorm1d(1)
    >>> mg.optim.swa_utils.update_bn([mg.tensor([[1.0], [3.0]]), mg.tensor([[5.0], [7.0]])], layer)
    >>> layer.running_mean.tolist(), layer.momentum
    ([4.0], 0.1)
    """
    modes = [(module, module.training) for module in model.modules()]
    momenta = [(module, module.momentum) for module, _ in modes if isinstance(module, _BatchNorm)]
    if not momenta:
        return
    try:
        model.train()
        for module, _ in momenta:
            module.reset_running_stats()
            module.momentum = None
        with no_grad():
            for batch in loader:
                x = batch[0] if isinstance(batch, list | tuple) else batch
                model(x if device is None else x.to(device))
    finally:
        for module, momentum in momenta:
            module.momentum = momentum
        for one, training in modes:
            one.training = training


class SWALR(LRScheduler):
    """From the rate at its first step to `swa_lr`, in `anneal_epochs` steps.

    With other schedules, call only the step of one in each epoch: this one begins from the rate that it finds. Errors
    are as for `LRScheduler`.

    Parameters
    ----------
    optimizer : Optimizer
    swa_lr : float, or one for each group
    anneal_epochs : int
        With 0, the rate is `swa_lr` at once.
    anneal_strategy : {"cos", "linear"}
    last_epoch : int

    Examples
    --------
    >>> optimizer = mg.optim.SGD([mg.zeros(1, requires_grad=True)], lr=1.0)
    >>> scheduler = mg.optim.swa_utils.SWALR(optimizer, 0.5, anneal_epochs=2, anneal_strategy="linear")
    >>> scheduler.step(), scheduler.get_last_lr()
    (None, [0.75])
    """

    def __init__(
        self, optimizer: Optimizer, swa_lr: float | list[float], anneal_epochs: int = 10, anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:  # fmt: skip
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"[SWALR] expected anneal_strategy 'cos' or 'linear', got {anneal_strategy!r}")
        self.swa_lrs = [number("SWALR", "swa_lr", lr, 0) for lr in self._per_group("swa_lr", optimizer, swa_lr)]
        self.anneal_epochs = integer("SWALR", "anneal_epochs", anneal_epochs, 0)
        self.cosine = anneal_strategy == "cos"
        super().__init__(optimizer, last_epoch)

    def lr_at(self, group: int, epoch: int) -> float:
        return self.base_lrs[group]

    def _move(self, epoch: int) -> None:
        before, now = self._share(epoch - 1), self._share(epoch)
        for group, last in zip(self.optimizer.param_groups, self.swa_lrs, strict=True):
            first = last if before == 1 else (group["lr"] - before * last) / (1 - before)
            group["lr"] = last * now + first * (1 - now)
        self.last_epoch, self._last_lr = epoch, [group["lr"] for group in self.optimizer.param_groups]

    def _share(self, epoch: int) -> float:
        """The part of the way from the first rate to the last, after a step."""
        share = min(max(epoch / self.anneal_epochs if self.anneal_epochs else epoch + 1, 0.0), 1.0)
        return (1 - math.cos(math.pi * share)) / 2 if self.cosine else share

    def _join(self) -> None:
        self._check_groups("swa_lr", self.swa_lrs)
