"""Function: a custom operation, written in Python."""

from collections.abc import Sequence
from copy import copy
from typing import Any

from minigrad.arrays.creation import zeros
from minigrad.engine.memory.calls import Covering
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tape.modes import no_grad
from minigrad.engine.tape.node import GradientError, is_grad_enabled
from minigrad.engine.tape.python_function import attach, record_function, result_over
from minigrad.engine.tensor.tensor import Tensor


class Context:
    """The values that ``forward`` keeps for ``backward``: attributes of any name, and tensors by `save_for_backward`.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        For each argument of ``forward``, whether its gradient is wanted.
    saved_tensors : tuple of Tensor
        The tensors given to `save_for_backward`.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.constants: set[int] = set()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save tensors for backward, which raises an error if they have been written in place since.

        A floating-point tensor that forward computes but does not return would be a constant in a second derivative, so
        a backward pass with ``create_graph=True`` rejects it: return it as an additional result, recompute it in
        backward or, if it really is a constant, make it an attribute.
        """
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise TypeError(f"[save_for_backward] expected tensors or None, got {kind_of(x)}")
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *outputs: Tensor) -> None:
        """Say which results of forward have no gradient, such as indices as floats: they do not require grad."""
        self.constants = {id(y) for y in outputs}


class Function:
    """A custom operation: a subclass defines its forward and its backward.

    ``forward(ctx, *args)`` computes with tensors, unrecorded, and returns a tensor or a tuple of them.
    ``backward(ctx, *grads)`` takes a gradient for each output and returns one for each argument (None for arguments
    that are not tensors or have no gradient). Call the operation as ``MyFunction.apply(*args)``. If backward itself
    consists of minigrad operations on its gradients and on saved arguments and results, the gradient can be
    differentiated again.

    An attribute of ctx may lead to a result: the garbage collector finds that cycle. It does not find one through what
    was computed from the result, see `Tensor.register_hook`.

    Raises
    ------
    TypeError
        If a list, tuple or dict among the arguments contains a tensor that requires grad while operations are recorded:
        pass such tensors as separate arguments (``apply(*tensors)``). Also if forward returns anything but tensors.

    Examples
    --------
    >>> class Cube(mg.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x * x
    ...     @staticmethod
    ...     def backward(ctx, g):
    ...         x, = ctx.saved_tensors
    ...         return g * 3 * x * x
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> Cube.apply(x).backward()
    >>> x.grad
    tensor(12.)
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        """The result of the operation."""
        raise NotImplementedError("[Function] forward is not defined")

    @staticmethod
    def backward(ctx: Any, *grads: Any, **kwargs: Any) -> Any:
        """The gradient of each argument of forward."""
        raise NotImplementedError("[Function] backward is not defined")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the operation and record it."""
        for k, a in enumerate(args):
            if isinstance(a, (list, tuple, dict)) and is_grad_enabled() and _holds_gradients(a):
                raise TypeError(
                    f"[{cls.__name__}] expected tensors as arguments of their own, got one that requires grad within "
                    f"argument {k}, a {type(a).__name__}: it would get no gradient"
                )
        ctx = Context(tuple(isinstance(a, Tensor) and a.requires_grad for a in args))
        with Covering(cls.__name__), no_grad():
            result = cls.forward(ctx, *args)
        results = (result,) if isinstance(result, Tensor) else result
        if not isinstance(results, (tuple, list)) or not results or not all(isinstance(y, Tensor) for y in results):
            raise TypeError(f"[{cls.__name__}] forward: expected a tensor or a tuple of tensors, got {result!r}")
        # Aliases, because forward may return an argument, or one tensor twice.
        outputs = [result_over(y, [a for a in args if isinstance(a, Tensor)]) for y in results]
        _record(cls, ctx, args, results, outputs)
        outputs = [y.detach() if id(x) in ctx.constants else y for x, y in zip(results, outputs, strict=True)]
        return outputs[0] if isinstance(result, Tensor) else tuple(outputs)


def _holds_gradients(container: Any) -> bool:
    """Whether a container holds a tensor that requires grad, at any depth."""
    waiting, seen = [container], set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, Tensor):
            if value.requires_grad:
                return True
        elif isinstance(value, (list, tuple, dict)) and id(value) not in seen:  # a container may hold itself
            seen.add(id(value))
            waiting.extend(value.values() if isinstance(value, dict) else value)
    return False


def _record(
    cls: type[Function], ctx: Context, args: tuple[Any, ...], results: Sequence[Tensor], outputs: list[Tensor]
) -> None:
    """Record a call on the tape, which keeps the saved tensors, and only the layout of all others."""
    are_tensors = [isinstance(a, Tensor) for a in args]
    layouts = [(y.shape, y.dtype, y.device) for y in outputs]
    # A saved output is kept without its node, which would form a cycle, and is attached again when backward reads it.
    given = {id(a) for a in args}
    numbers = {id(y): k for k, y in enumerate(results) if id(y) not in given}
    places = [numbers.get(id(s)) for s in ctx.saved_tensors]
    saved = tuple(
        s if s is None or k is None else result_over(s, [outputs[k]])
        for s, k in zip(ctx.saved_tensors, places, strict=True)
    )
    lost = [
        k for k, s in enumerate(ctx.saved_tensors)
        if s is not None and id(s) not in given | numbers.keys() and s.dtype.kind == "f" and not s.requires_grad
    ]  # fmt: skip
    ctx.saved_tensors = ()

    def backward(node: Any, grads: list[Tensor | None], saved: list[Tensor | None]) -> list[Tensor | None]:
        if lost and is_grad_enabled():
            raise GradientError(
                f"[{cls.__name__}] backward: saved tensor {lost[0]} is neither an argument nor a result of forward, "
                f"and a second derivative would take it for a constant: save the argument itself and compute the rest "
                f"again in backward, or return it as another result, or make a constant an attribute of ctx"
            )
        context = copy(ctx)
        context.saved_tensors = tuple(
            s if s is None or k is None else attach(s, node, k) for s, k in zip(saved, places, strict=True)
        )
        full = [
            zeros(shape, dtype=dtype, device=device) if g is None else g
            for g, (shape, dtype, device) in zip(grads, layouts, strict=True)
        ]
        found = cls.backward(context, *full)
        found = found if isinstance(found, (tuple, list)) else (found,)
        if len(found) != len(are_tensors):
            raise GradientError(
                f"[{cls.__name__}] backward: expected {len(are_tensors)} gradients, one for each argument, "
                f"got {len(found)}"
            )
        return [g for g, is_tensor in zip(found, are_tensors, strict=True) if is_tensor]

    inputs = [a for a in args if isinstance(a, Tensor)]
    record_function(cls.__name__, inputs, outputs, backward, saved)
