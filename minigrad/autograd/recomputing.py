"""recompute: a function whose intermediate results are computed again for the backward pass instead of kept."""

import functools
from collections.abc import Callable, Iterator, Sequence
from types import CellType
from typing import Any

from minigrad.autograd.function import Function, holds_gradients
from minigrad.engine.backward import differentiate
from minigrad.engine.inspection import contents
from minigrad.engine.modes import enable_grad, no_grad
from minigrad.engine.ops.arguments import kind_of
from minigrad.engine.ops.layout import reshape
from minigrad.engine.ops.random import get_state, set_state
from minigrad.engine.tape import GradientError, is_grad_enabled, last_sequence
from minigrad.engine.tensor import Tensor

__all__ = ["recompute"]


def recompute(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function that returns what f returns, but keeps only its arguments for the backward pass.

    The backward pass calls f again, from the same arguments and the same state of the random numbers, so that dropout
    draws the same elements: gradients are equal bit for bit. Memory falls from the intermediate results of all calls
    to the arguments of all calls and the intermediate results of one; the time of a second forward pass is added (Chen
    et al. 2016, arXiv:1604.06174). Where no gradient is recorded, f is simply called.

    Parameters
    ----------
    f : callable
        A module or another function of tensors and other values, which returns a tensor or a tuple of them. It may read
        leaves that are not arguments, such as the parameters of a module; they get their gradients too. The second call
        leaves the buffers of a module unchanged, such as the running statistics of batch normalization, if f is the
        module, a method of it, or a function that has the module in its closure.

    Returns
    -------
    callable

    Raises
    ------
    TypeError
        When called, if f returns anything but tensors, or if a tensor that requires grad is within a list, tuple or
        dict among the arguments.
    GradientError
        When called, if f reads a tensor with a history that is not an argument; in the backward pass, if an argument or
        a parameter was written in place meanwhile, or if f returns other shapes than before.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> block = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8))
    >>> x = mg.ones((4, 8), requires_grad=True)
    >>> y = mg.recompute(block)(x)
    >>> y.sum().backward()
    >>> x.grad.shape, block[0].weight.grad.shape
    ((4, 8), (32, 8))
    """
    if not callable(f):
        raise TypeError(f"[recompute] expected a function, got {kind_of(f)}")

    # partial objects and modules have no __name__
    @functools.wraps(f, [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(f, name)], ())
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not is_grad_enabled():
            return f(*args, **kwargs)
        values = (*args, *kwargs.values())
        places = [k for k, value in enumerate(values) if isinstance(value, Tensor)]
        tensors = [values[k] for k in places]
        call = Call(f, values, places, tuple(kwargs))
        points = _fresh(tensors, False)
        y = call.run(points)
        results = [y] if isinstance(y, Tensor) else list(y)
        leaves = _other_leaves(results, points, call.began)
        if any(z.requires_grad for z in results):
            results = Recomputed.apply(call, [z.detach() for z in results], *tensors, *leaves)
        return results[0] if isinstance(y, Tensor) else tuple(results)

    return recomputed


class Call:
    """A call of f, without the tensors among its arguments, and the state in which it began."""

    def __init__(self, f: Callable[..., Any], values: Sequence[Any], places: list[int], names: tuple[str, ...]) -> None:
        for value in values:
            if holds_gradients(value) and not isinstance(value, Tensor):
                raise TypeError(
                    f"[recompute] expected tensors as arguments of their own, got one that requires grad within a "
                    f"{type(value).__name__}: it would get no gradient"
                )
        self.f, self.places, self.names = f, places, names
        self.others = [None if isinstance(value, Tensor) else value for value in values]
        self.state = get_state()
        self.began = last_sequence()

    def run(self, tensors: Sequence[Tensor]) -> Any:
        """Return f's result, recorded."""
        values = list(self.others)
        for k, x in zip(self.places, tensors, strict=True):
            values[k] = x
        count = len(values) - len(self.names)
        with enable_grad():
            y = self.f(*values[:count], **dict(zip(self.names, values[count:], strict=True)))
        if not isinstance(y, Tensor) and not (
            isinstance(y, list | tuple) and y and all(isinstance(z, Tensor) for z in y)
        ):
            raise TypeError(f"[recompute] expected a function of a tensor or a tuple of them, got {kind_of(y)}")
        return y


def _fresh(tensors: Sequence[Tensor], recorded: bool) -> list[Tensor]:
    """Return tensors equal to the given ones, with their history if `recorded`."""
    return [
        reshape(x, x.shape) if recorded and x.requires_grad else x.detach().requires_grad_(x.requires_grad)
        for x in tensors
    ]


def _other_leaves(results: list[Tensor], points: list[Tensor], began: int) -> list[Tensor]:
    """Return the leaves besides the points that the results of a call depend on."""
    given, found = {id(x) for x in points}, {}
    for y in results:
        for number, (leaf, _) in contents(y).items() if y.requires_grad else ():
            if leaf is not None and id(leaf) not in given:
                found[id(leaf)] = leaf
            elif leaf is None and number <= began:
                raise GradientError(
                    "[recompute] expected a function whose results depend on its arguments and on leaves, got one that "
                    "reads another tensor with a history: make that tensor an argument"
                )
    return list(found.values())


class Recomputed(Function):
    """The recorded operation of a `Call`: its inputs are the tensors among the arguments, and the other leaves."""

    @staticmethod
    def forward(ctx: Any, call: Call, results: list[Tensor], *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.call = call
        ctx.save_for_backward(*tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        call, recorded, state = ctx.call, is_grad_enabled(), get_state()
        arguments, leaves = ctx.saved_tensors[: len(call.places)], ctx.saved_tensors[len(call.places) :]
        points, buffers = _fresh(arguments, recorded), [(b, b.version, b.copy()) for b in _buffers(call.f)]
        try:
            set_state(call.state)
            y = call.run(points)
        finally:
            set_state(state)
            with no_grad():
                for buffer, version, value in buffers:
                    if buffer.version != version:
                        buffer.copy_(value)
        results = [y] if isinstance(y, Tensor) else list(y)
        if [y.shape for y in results] != [g.shape for g in grads]:
            raise GradientError(
                f"[recompute] expected the shapes {[g.shape for g in grads]} of the first call, got "
                f"{[y.shape for y in results]}"
            )
        pairs = [(y, g) for y, g in zip(results, grads, strict=True) if y.requires_grad]
        wanted = [x for x in (*points, *leaves) if x.requires_grad]
        # the outer pass runs the hooks of leaves
        found = iter(differentiate([y for y, _ in pairs], [g for _, g in pairs], wanted, False, recorded, "recompute",
                                   target_hooks=False))  # fmt: skip
        return None, None, *(next(found) if x.requires_grad else None for x in (*points, *leaves))


def _buffers(f: Any) -> Iterator[Tensor]:
    """Yield the buffers of the modules that f is, that it belongs to, or that it names."""
    from minigrad.nn.module import Module

    waiting, seen = [f], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Module):
            yield from (b for b in value.buffers() if b is not None)
        elif isinstance(value, functools.partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, CellType):
            waiting += [value.cell_contents]
        elif callable(value):
            waiting += [getattr(value, "__self__", None), getattr(value, "__wrapped__", None)]
            waiting += getattr(value, "__closure__", None) or ()
