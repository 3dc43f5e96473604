"""recompute: gradient checkpointing, in which the backward pass calls a function again."""

import functools
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import Any, TypeVar

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.replay.recompute import Run
from minigrad.engine.tape.node import is_grad_enabled
from minigrad.engine.tensor.trees import leaves

Called = TypeVar("Called", bound=Callable[..., Any])


def recompute(f: Called, *unexpected: Any) -> Called:
    """f with gradient checkpointing: the backward pass calls f again instead of keeping what its operations save.

    A deep network keeps everything that its operations save for the backward pass. If each block is wrapped in
    `recompute`, it keeps only the arguments of the blocks, and during the backward pass the saved values of one block
    at a time, at the cost of a second forward pass (Chen et al. 2016, https://arxiv.org/abs/1604.06174). If f does the
    same in both calls, gradients are bit-identical to those of the plain function, for everything that f depends on:
    arguments, parameters, and other tensors that it captures. Hooks, nested uses and derivatives of every order work as
    usual; the sums in higher derivatives may have another order. On the tape, the call is one operation.

    Parameters
    ----------
    f : callable
        A module, a method or any other function; `recompute` may also be used as a decorator. f may return anything:
        tensors, containers of tensors, other values.

    Returns
    -------
    callable
        Returns what f returns. If no operations are recorded, as in `no_grad`, it only calls f.

    Raises
    ------
    TypeError
        If f is not callable. When called, if an argument is an iterator, which a second call would find empty, or if f
        is a generator or a coroutine function, which computes nothing when called.
    GradientError
        When called, if f writes to an argument or a captured tensor while operations are recorded, keeps a leaf that it
        makes, or calls ``set_`` or ``backward``. In the backward pass, if a tensor that f reads has since been written
        in place or replaced, even by f itself, if a module has switched between training and evaluation, if the
        precision of products is another, or if f does not repeat its first call: other operations, on other tensors,
        with other shapes, dtypes or scalars, other random numbers. The tape is then as it was before the second call.

    Notes
    -----
    The second call draws the random numbers of the first, so dropout drops the same elements, and the generator is not
    advanced. Tensors that f itself writes to outside of the tape, such as running statistics, are set to their initial
    values for the second call and restored after it, so they are updated once. Other threads may see the initial values
    in the meantime.

    Any state that f keeps has to be in such tensors. The backward pass rejects these functions, although they may be
    correct: one that replaces a tensor, as in ``self.h = h.detach()``, one that creates a tensor or a layer in its
    first call and uses it in later ones, and one that appends to a list of tensors that it reads.

    Everything else that f depends on has to stay the same. Python values, NumPy arrays and other random generators are
    checked only in so far as they change a scalar of a recorded operation. Computations in other threads and writes
    through NumPy go unnoticed. Python's side effects, such as printing or appending to a list, happen twice.

    Every backward pass calls f again, also one over a tape that an earlier pass has retained. What f keeps of its own
    tensors, such as the weights of an attention in a list, is not part of the tape of the result: its gradient is that
    of the plain operations that made it. A second derivative with respect to a result of f counts only what
    follows f: what the second call saves are functions of the inputs, not of that result.

    Assign the module itself to an attribute, not ``recompute(module)``, so that its parameters are found, and call
    ``mg.recompute(self.block)(x)`` in ``forward``.

    Examples
    --------
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
        result = Run(f, args, kwargs).run()
        if isinstance(result, Generator | Coroutine):
            result.close()
            raise TypeError(
                f"[recompute] expected a function that computes its result when called, got one that returns "
                f"{kind_of(result)}: let it return a list, or give recompute what the function calls"
            )
        return result

    return recomputed  # type: ignore[return-value]
