"""Operations on tensors that all ranks call together.

Before tensors are exchanged, the ranks compare a text of operation, shape, dtype and device, so that calls that do not
match are errors on every rank and never wait for each other. benchmarks/distributed.py measures what that costs.
"""

from typing import Any

from minigrad.arrays.creation import empty
from minigrad.autograd.function import Function
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tape.in_place import note_write
from minigrad.engine.tape.modes import no_grad
from minigrad.engine.tape.node import GradientError, is_grad_enabled
from minigrad.engine.tensor.tensor import Tensor
from minigrad.ranks.communicator import find_device_error, world

OPS = ("sum", "mean", "max", "min")


def _agree(name: str, x: Any, op: str | None = None, root: int | None = None, *, ops: tuple[str, ...] = OPS,
           in_place: bool = False, parts: bool = False) -> None:  # fmt: skip
    """Check the arguments of an operation on every rank, and that they agree."""
    problem = _problem(name, x, op, root, ops, in_place, parts)
    text = ""
    if problem is None:
        how = f" {op}" if op else "" if root is None else f" from rank {root}"
        text = f"{name}{how} of {x.dtype} {x.shape} on {x.device.partition(':')[0]}"
    world().agree(name, text, problem)


def _problem(
    name: str, x: Any, op: str | None, root: int | None, ops: tuple[str, ...], in_place: bool, parts: bool
) -> Exception | None:
    """Return the error of the arguments on this rank."""
    begin = f"[{name}] {world().where()}"
    if not isinstance(x, Tensor):
        return TypeError(f"{begin}expected a tensor, got {kind_of(x)}")
    if op is not None and op not in ops:
        return ValueError(f"{begin}expected op {', '.join(map(repr, ops))}, got {op!r}")
    if op is not None and (x.dtype.kind == "b" or (op == "mean" and x.dtype.kind != "f")):
        return TypeError(f"{begin}expected {'floats' if op == 'mean' else 'numbers'} for {op!r}, got {x.dtype}")
    if root is not None and not (type(root) is int and 0 <= root < world().size):
        return ValueError(f"{begin}expected a root from 0 to {world().size - 1}, got {root!r}")
    if in_place and not x.is_contiguous():
        return ValueError(f"{begin}expected a contiguous tensor, got strides {x.strides} for shape {x.shape}")
    if in_place and x.requires_grad and is_grad_enabled():
        return GradientError(f"{begin}a tensor that requires grad cannot be written in place while operations are "
                             f"recorded: use all_reduce, or minigrad.no_grad()")  # fmt: skip
    if parts and (x.ndim == 0 or x.shape[0] != world().size):
        return ValueError(f"{begin}expected a part for each of {world().size} ranks along axis 0, got shape {x.shape}")
    found = find_device_error(x.device) if world().size > 1 else None
    return None if found is None else type(found)(f"{begin}{found}")


def barrier() -> None:
    """Wait until every rank has called this.

    Examples
    --------
    >>> mg.distributed.barrier()
    """
    world().agree("barrier", "barrier")


def all_reduce_(x: Tensor, op: str = "sum") -> Tensor:
    """Combine x over the ranks, in place, without a copy on the CPU.

    The result is x, which has the same values on all ranks, to the last bit.

    Parameters
    ----------
    x : Tensor
        Contiguous, of the same shape and dtype on all ranks.
    op : {"sum", "mean", "max", "min"}

    Raises
    ------
    ValueError
        If the ranks do not agree on operation, shape, dtype and kind of device, on every rank; for a tensor that is not
        contiguous, or another `op`.
    TypeError
        If x is not a tensor of numbers, or not of floats for a mean.
    GradientError
        If x requires grad and operations are recorded.
    RuntimeError
        For a tensor on a GPU without NCCL.

    Examples
    --------
    >>> mg.distributed.all_reduce_(mg.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    _agree("all_reduce_", x, op, in_place=True)
    if world().size > 1:
        note_write("all_reduce_", x)
        _reduce_(x, op)
    return x


def _reduce_(x: Tensor, op: str) -> None:
    world().engine(x.device).reduce_(x, "sum" if op == "mean" else op)
    if op == "mean":
        with no_grad():
            x /= world().size


def broadcast_(x: Tensor, root: int = 0) -> Tensor:
    """Write the values of one rank into x on all ranks, without a copy on the CPU. Errors are as for `all_reduce_`.

    Parameters
    ----------
    x : Tensor
        Contiguous, of the same shape and dtype on all ranks.
    root : int
        The rank whose values they become.

    Examples
    --------
    >>> mg.distributed.broadcast_(mg.ones(2))
    tensor([1., 1.])
    """
    _agree("broadcast_", x, root=root, in_place=True)
    if world().size > 1:
        note_write("broadcast_", x)
        world().engine(x.device).broadcast_(x, root)
    return x


def all_gather(x: Tensor) -> Tensor:
    """Return the tensors of all ranks along a new first axis. Errors are as for `all_reduce_`.

    The result, ``(size, *x.shape)``, has no gradient.

    Parameters
    ----------
    x : Tensor
        Of the same shape and dtype on all ranks.

    Examples
    --------
    >>> mg.distributed.all_gather(mg.tensor([1.0, 2.0]))
    tensor([[1., 2.]])
    """
    _agree("all_gather", x)
    if world().size == 1:
        return x.detach().expand_dims(0).copy()
    out = empty((world().size, *x.shape), dtype=x.dtype, device=x.device)
    world().engine(x.device).gather(x.detach().contiguous(), out)
    return out


def reduce_scatter(x: Tensor, op: str = "sum") -> Tensor:
    """Combine tensors of one part for each rank, and return the part of this one. Errors are as for `all_reduce_`.

    The result, the combination of ``x[rank()]`` over the ranks, has no gradient.

    Parameters
    ----------
    x : Tensor
        Of shape ``(size, ...)``, the same on all ranks.
    op : {"sum", "mean", "max", "min"}

    Examples
    --------
    >>> mg.distributed.reduce_scatter(mg.tensor([[1.0, 2.0]]))
    tensor([1., 2.])
    """
    _agree("reduce_scatter", x, op, parts=True)
    if world().size == 1:
        return x.detach()[0].copy()
    out = empty(x.shape[1:], dtype=x.dtype, device=x.device)
    world().engine(x.device).scatter(x.detach().contiguous(), out, "sum" if op == "mean" else op)
    return out / world().size if op == "mean" else out


class AllReduce(Function):
    """y = Σ x over the ranks, or their mean; dx = Σ g, or the mean: each rank's x is in every rank's y."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str) -> Tensor:
        ctx.op = op
        y = x.copy()
        if world().size > 1:
            _reduce_(y, op)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return AllReduce.apply(g, ctx.op), None


def all_reduce(x: Tensor, op: str = "sum") -> Tensor:
    """Return the sum or the mean of x over the ranks, on the tape.

    The gradient of x is the gradient of the sum of all ranks' losses: the gradients of the result are combined over the
    ranks in the same way. So all ranks have to call ``backward``. It has derivatives of every order. Errors are as for
    `all_reduce_`.

    Parameters
    ----------
    x : Tensor
        Of the same shape and dtype on all ranks.
    op : {"sum", "mean"}

    Examples
    --------
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> mg.distributed.all_reduce(x).sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """
    _agree("all_reduce", x, op, ops=("sum", "mean"))
    y: Tensor = AllReduce.apply(x, op)
    return y
