"""recompute: a function whose operations save nothing for the backward pass, which calls it again."""

import functools
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar

from minigrad.engine.ops.arguments import kind_of
from minigrad.engine.recompute import Run
from minigrad.engine.tape import is_grad_enabled
from minigrad.engine.tensor import Tensor
from minigrad.engine.trees import leaves

__all__ = ["recompute"]

Called = TypeVar("Called", bound=Callable[..., Any])


def recompute(f: Called, *unexpected: Any) -> Called:
    """f with gradient checkpointing: the backward pass calls f again instead of keeping what its operations save.

    A deep network keeps what its operations save for the backward pass. With each block given to `recompute`, it keeps
    the arguments of all blocks instead, and in the backward pass the rest of one block at a time; the time of a second
    forward pass is added (Chen et al. 2016, https://arxiv.org/abs/1604.06174). If f does the same in both calls,
    gradients are equal bit for bit, for everything that f depends on: arguments, parameters, and other tensors that it
    captures. Derivatives of every order, hooks and nested uses need no care.

    Parameters
    ----------
    f : callable
        A module, a method or any other function; also as a decorator. It may return anything: tensors, containers of
        them, other values.

    Returns
    -------
    callable
        Returns what f returns. Where no operations are recorded, as in `no_grad`, it only calls f.

    Raises
    ------
    TypeError
        If f is not callable. When called, if an argument is an iterator, which a second call would find empty, or if f
        is a generator or a coroutine function, which computes nothing when called.
    GradientError
        When called, if f writes to an argument in place, writes to a captured tensor while operations are recorded,
        or calls ``set_`` or ``backward``. In the backward pass, if a tensor that f reads has been
        written in place or replaced since, even by f itself, if a module has changed between training and evaluation,
        or if f computes something else than before: other operations, on other tensors, with other shapes, dtypes or
        scalars, other random numbers. The tape is then as it was before the second call.

    Notes
    -----
    The second call draws the random numbers of the first, so dropout drops the same elements, and the generator is not
    advanced. Tensors that f itself writes to outside of the tape, such as running statistics, have the values of the
    first call during the second and their own again after it: they move once. Other threads would see the former
    meanwhile.

    A state that f keeps has to be such a tensor. These functions are refused in the backward pass, although they may be
    correct: one that replaces a tensor, as in ``self.h = h.detach()``, one that makes a tensor or a layer in its first
    call and uses it in later ones, one that appends to a list of tensors that it reads, and one that makes a leaf or a
    module which is kept.

    Everything else that f depends on has to stay the same. What it reads of Python's values, of NumPy arrays and of
    other random generators is checked only where an operation is recorded with another scalar. What it computes in
    other threads, and what it writes through NumPy, is not seen. Side effects of Python, as in printing or appending to
    a list, happen twice.

    A backward pass with ``retain_graph=True`` keeps what it computes again, for the next one. If f stores its result
    where f itself can reach it, as in an attribute of the module, the cycle ends with the next call or with a backward
    pass. Without either it is never freed: the garbage collector does not see it.

    A module's attribute has to be the module, not ``recompute(module)``, so that its parameters are found: call
    ``mg.recompute(self.block)(x)`` in ``forward``.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> blocks = [nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 8)) for _ in range(3)]
    >>> x = mg.ones((4, 8), requires_grad=True)
    >>> h = x
    >>> for block in blocks:
    ...     h = h + mg.recompute(block)(h)
    >>> h.sum().backward()
    >>> x.grad.shape
    (4, 8)
    """
    if not callable(f):
        raise TypeError(f"[recompute] expected a function, got {kind_of(f)}")

    if unexpected:
        raise TypeError("[recompute] expected the function alone, got arguments for it: write recompute(f)(x)")

    # modules and partial objects have no __name__
    @functools.wraps(f, [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(f, name)], ())
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not is_grad_enabled():
            return f(*args, **kwargs)
        inputs = leaves((*args, *kwargs.values()))
        for x in inputs:
            if isinstance(x, Iterator):
                raise TypeError(
                    f"[recompute] expected arguments that a second call can read again, got {kind_of(x)}: pass a list"
                )
        result = Run(f, args, kwargs, [x for x in inputs if isinstance(x, Tensor)]).first(args, kwargs)
        if isinstance(result, Generator | Coroutine):
            result.close()
            raise TypeError(
                f"[recompute] expected a function that computes its result when called, got one that returns "
                f"{kind_of(result)}: let it return a list, or give recompute what the function calls"
            )
        return result

    return recomputed  # type: ignore[return-value]
