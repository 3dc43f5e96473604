"""Batch normalization with statistics over all ranks of a distributed run."""

from typing import Any

from minigrad.nn.module import Module, check_module
from minigrad.nn.norm.batch_norm import BatchNorm1d, BatchNorm2d, _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """Batch normalization by the statistics over all ranks, for inputs ``(N, C)``, ``(N, C, L)`` or ``(N, C, H, W)``.

    In training, μ and σ² are the mean and the biased variance over the samples of all ranks, and gradients pass through
    them to every rank. So it computes `BatchNorm1d` or `BatchNorm2d` of the whole batch, even if the ranks have
    different numbers of samples. Each rank sends 2 C + 1 numbers for every rank in the forward pass, and as many in the
    backward pass. In one process, and in evaluation, it is `BatchNorm1d` or `BatchNorm2d`.

    The arguments and the state are those of `BatchNorm1d`; the running statistics are the same on all ranks. Errors are
    as for `BatchNorm1d`; and on every rank, if the ranks have other numbers of channels.

    Examples
    --------
    >>> x = mg.random.normal(0.0, 1.0, (8, 6, 24, 24))
    >>> (mg.nn.SyncBatchNorm(6)(x) == mg.nn.BatchNorm2d(6)(x)).all().item()
    True
    """

    layouts = ("NC", "NCL", "NCHW")

    def _over_ranks(self) -> bool:
        from minigrad.ranks.communicator import size

        return size() > 1

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: None = None) -> Module:
        """`nn.convert_sync_batchnorm`, as PyTorch names it; there are no groups of processes."""
        if process_group is not None:
            raise TypeError(f"[convert_sync_batchnorm] expected process_group=None, got {process_group!r}")
        return convert_sync_batchnorm(module)


def convert_sync_batchnorm(module: Module) -> Module:
    """Replace every `BatchNorm1d` and `BatchNorm2d` in a module by a `SyncBatchNorm` with the same parameters.

    Layers derived from these, such as `BatchRenorm1d`, and `RecurrentBatchNorm1d` stay as they are. Raises TypeError if
    it is not a module. The result is the module, or the layer that takes its place.

    Parameters
    ----------
    module : Module
        Changed in place, unless it is itself such a layer. The parameters are the same objects, so an optimizer may
        have them already.

    Examples
    --------
    >>> mg.nn.convert_sync_batchnorm(mg.nn.Sequential(mg.nn.Linear(2, 3), mg.nn.BatchNorm1d(3)))[1]
    SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """
    check_module("convert_sync_batchnorm", module)
    made: dict[int, SyncBatchNorm] = {}  # a layer may be used in several places

    def convert(layer: Module) -> Any:
        if type(layer) not in (BatchNorm1d, BatchNorm2d):
            return layer
        if id(layer) not in made:
            made[id(layer)] = sync = SyncBatchNorm.__new__(SyncBatchNorm)
            sync.__dict__.update(layer.__dict__)
        return made[id(layer)]

    for inner in list(module.modules()):
        for name in inner._modules:
            child = inner.__dict__[name]
            if child is not None:
                inner.__dict__[name] = convert(child)
    result: Module = convert(module)
    return result
