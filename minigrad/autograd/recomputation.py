"""recompute: a function whose operations save nothing for the backward pass, which calls it again."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from minigrad.autograd.trees import leaves
from minigrad.engine.ops.arguments import kind_of
from minigrad.engine.recompute import Run
from minigrad.engine.tape import is_grad_enabled
from minigrad.engine.tensor import Tensor

__all__ = ["recompute"]

Called = TypeVar("Called", bound=Callable[..., Any])


def recompute(f: Called) -> Called:
    """f with gradient checkpointing: the backward pass calls f again instead of keeping what its operations save.

    A deep network keeps what its operations save for the backward pass. With each block given to `recompute`, it keeps
    the arguments of all blocks instead, and in the backward pass the rest of one block at a time; the time of a second
    forward pass is added (Chen et al. 2016, https://arxiv.org/abs/1604.06174). Gradients are equal bit for bit, for
    everything that f depends on: arguments, parameters, and other tensors that it captures. Derivatives of every order,
    hooks and nested uses need no care.

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
        If f is not callable.
    GradientError
        When called, if f writes to an argument in place, replaces a buffer of a module, or calls ``backward``. In the
        backward pass, if a tensor that f reads has been written in place or replaced since, if a module has changed
        between training and evaluation, or if f computes something else than before: other operations, other shapes or
        dtypes, other random numbers. The tape is then as it was before the second call.

    Notes
    -----
    The second call draws the random numbers of the first, so dropout drops the same elements, and the generator is not
    advanced. Tensors that f itself writes to outside of the tape, such as running statistics, have the values of the
    first call during the second and their own again after it: they move once. Other threads would see the former
    meanwhile.

    Everything else that f depends on has to stay the same, as what it reads of Python's values, of NumPy arrays, of
    other random generators or through `Tensor.item` is not checked. Side effects of Python, as in printing or
    appending to a list, happen twice.

    A backward pass with ``retain_graph=True`` keeps what it computes again, for the next one. If f stores its result
    where f itself can reach it, as in an attribute of the module, the garbage collector cannot free the cycle: it ends
    with the next call or with a backward pass.

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

    # modules and partial objects have no __name__
    @functools.wraps(f, [name for name in functools.WRAPPER_ASSIGNMENTS if hasattr(f, name)], ())
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not is_grad_enabled():
            return f(*args, **kwargs)
        tensors = [x for x in leaves((*args, *kwargs.values())) if isinstance(x, Tensor)]
        return Run(f, args, kwargs, tensors).first(args, kwargs)

    return recomputed  # type: ignore[return-value]
