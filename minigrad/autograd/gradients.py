"""Gradients of tensors, and derivatives of functions as functions."""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, overload

from minigrad.arrays.creation import asarray, empty, zeros, zeros_like
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.join import stack
from minigrad.engine.ops.layout import reshape
from minigrad.engine.tape.backward import differentiate
from minigrad.engine.tape.inspection import count_leaves
from minigrad.engine.tape.modes import enable_grad
from minigrad.engine.tape.node import is_grad_enabled
from minigrad.engine.tensor.tensor import Tensor

# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


def _as_list(xs: Tensor | Sequence[Tensor], op: str = "grad") -> list[Tensor]:
    found = list(xs) if isinstance(xs, Iterable) and not isinstance(xs, Tensor) else [xs]
    for x in found:
        if not isinstance(x, Tensor):
            raise TypeError(f"[{op}] expected tensors, got {kind_of(x)}")
    return found


@overload
def grad(
    y: Tensor | Sequence[Tensor], xs: Tensor, grad: Tensor | Sequence[Tensor | None] | None = None, *,
    retain_graph: bool = False, create_graph: bool = False, allow_unused: Literal[False] = False,
) -> Tensor: ...  # fmt: skip
@overload
def grad(
    y: Tensor | Sequence[Tensor], xs: Sequence[Tensor], grad: Tensor | Sequence[Tensor | None] | None = None, *,
    retain_graph: bool = False, create_graph: bool = False, allow_unused: Literal[False] = False,
) -> tuple[Tensor, ...]: ...  # fmt: skip
@overload
def grad(
    y: Tensor | Sequence[Tensor], xs: Tensor | Sequence[Tensor], grad: Tensor | Sequence[Tensor | None] | None = None,
    *, retain_graph: bool = False, create_graph: bool = False, allow_unused: bool = False,
) -> Any: ...  # fmt: skip
def grad(
    y: Tensor | Sequence[Tensor], xs: Tensor | Sequence[Tensor], grad: Tensor | Sequence[Tensor | None] | None = None,
    *, retain_graph: bool = False, create_graph: bool = False, allow_unused: bool = False,
) -> Any:  # fmt: skip
    """The gradients of y with respect to xs; no tensor's ``grad`` changes.

    Raises GradientError if y or an x does not require grad, if y has several elements and no `grad`, or if y does not
    depend on an x, unless `allow_unused`.

    Parameters
    ----------
    y : Tensor or sequence of Tensor
        The tensor to differentiate. If there are several, their sum is differentiated, each weighted by its `grad`.
    xs : Tensor or sequence of Tensor
        Leaves or intermediate results.
    grad : Tensor or sequence, optional
        The cotangent of each y, with the same shape; optional for a y with one element, where it defaults to 1.
    retain_graph, create_graph : bool
        As in `Tensor.backward`.
    allow_unused : bool
        Whether xs may contain tensors that y does not depend on; their gradients are None.

    Returns
    -------
    Tensor or tuple of Tensor
        One for each x, with the same shape: a tuple if `xs` is a sequence.

    Examples
    --------
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> y = x ** 3
    >>> dy = mg.grad(y, x, create_graph=True)
    >>> mg.grad(dy, x)
    tensor(12.)
    """
    roots, targets = _as_list(y), _as_list(xs)
    if not (grad is None or isinstance(grad, Tensor | Sequence)):
        raise TypeError(f"[grad] expected a cotangent that is a tensor or a sequence of them, got {grad!r}")
    cotangents = [grad] * len(roots) if grad is None or isinstance(grad, Tensor) else list(grad)
    if isinstance(grad, Tensor) and len(roots) > 1:
        raise ValueError(f"[grad] expected a cotangent for each of {len(roots)} tensors, got one tensor")
    if len(cotangents) != len(roots):
        raise ValueError(f"[grad] expected a cotangent for each of {len(roots)} tensors, got {len(cotangents)}")
    found = differentiate(roots, cotangents, targets, retain_graph, create_graph, "grad", allow_unused)
    return found[0] if isinstance(xs, Tensor) else tuple(found)


def _grad_or_zeros(
    y: Tensor | Sequence[Tensor], xs: Sequence[Tensor], cotangent: Any, retain: bool, create: bool
) -> tuple[Tensor, ...]:
    """As `grad`, with zeros for an x that y does not depend on."""
    found = grad(y, xs, cotangent, retain_graph=retain, create_graph=create, allow_unused=True)
    return tuple(zeros_like(x) if g is None else g for x, g in zip(xs, found, strict=True))


# ── functions of functions ────────────────────────────────────────────────────────────────────────
#
# Each evaluates f at fresh points, so that no tensor's `grad` changes. If recording is on and the result depends on
# something else that requires grad (an argument with a history, a parameter that f captures), the derivatives are
# recorded and can be differentiated in turn; otherwise they are plain numbers.


def _make_fresh(x: Any, recorded: bool) -> Tensor:
    """A new tensor equal to x to differentiate at; it keeps x's history if `recorded`."""
    x = asarray(x)
    return reshape(x, x.shape) if recorded and x.requires_grad else x.detach().requires_grad_()


def _evaluate(f: Callable[..., Tensor], args: list[Any], numbers: Sequence[int]) -> tuple[Tensor, list[Tensor], bool]:
    """Return f at fresh points, the points at the positions `numbers`, and whether to record the derivatives."""
    recorded = is_grad_enabled()
    with enable_grad():
        for k in numbers:
            args[k] = _make_fresh(args[k], recorded)
        y = f(*args)
        if not isinstance(y, Tensor):
            raise TypeError(f"[grad] expected a function that returns a tensor, got {kind_of(y)}")
        points = [args[k] for k in numbers]
        return y, points, recorded and y.requires_grad and _depends_on_more(y, points)


def _depends_on_more(y: Tensor, points: list[Tensor]) -> bool:
    """Whether y or a point depends on a leaf other than the points."""
    return count_leaves([y, *points]) > sum(x.is_leaf for x in points)


def _derivatives(y: Tensor, points: list[Tensor], cotangent: Tensor | None, retain: bool, recorded: bool) -> Any:
    if not y.requires_grad:
        return tuple(zeros_like(x) for x in points)
    return _grad_or_zeros(y, points, cotangent, retain, recorded)


def value_and_grad(f: Callable[..., Tensor], argnums: int | Sequence[int] = 0) -> Callable[..., tuple[Tensor, Any]]:
    """A function that returns f's value and its gradient with respect to the arguments `argnums`.

    Both are recorded, and can be differentiated, if f depends on something else that requires grad.

    Examples
    --------
    >>> mg.value_and_grad(lambda x: (x * x).sum())(mg.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    @functools.wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        for k in numbers:
            if not -len(args) <= k < len(args):
                raise IndexError(f"[value_and_grad] expected an argument {k}, got {len(args)} positional arguments")
        y, points, recorded = _evaluate(functools.partial(f, **kwargs), list(args), numbers)
        grads = _derivatives(y, points, None, recorded, recorded)
        return y if recorded else y.detach(), grads[0] if isinstance(argnums, int) else grads

    return differentiated


def vjp(f: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """f's value at the inputs, and a function that pulls a cotangent of the value back to the inputs.

    Returns
    -------
    y : Tensor
    pull_back : callable
        Takes a tensor of y's shape; returns a tensor for one input, a tuple for several. May be called any number of
        times.

    Examples
    --------
    >>> y, pull_back = mg.vjp(mg.exp, mg.tensor([0.0, 1.0]))
    >>> pull_back(mg.tensor([1.0, 0.0]))
    tensor([1., 0.])
    """
    y, points, recorded = _evaluate(f, list(inputs), range(len(inputs)))

    def pull_back(cotangent: Tensor) -> Any:
        if not isinstance(cotangent, Tensor):
            raise TypeError(f"[vjp] expected a cotangent that is a tensor, got {cotangent!r}")
        grads = _derivatives(y, points, cotangent, True, is_grad_enabled() and (recorded or cotangent.requires_grad))
        return grads if len(points) > 1 else grads[0]

    return y if recorded else y.detach(), pull_back


def jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The derivatives of every element of f(x) with respect to every element of x.

    Raises MemoryError if the result does not fit into memory; raised before the first pass. The result, of shape
    ``(*f(x).shape, *x.shape)``, takes a backward pass for each element of f(x).

    Examples
    --------
    >>> mg.jacobian(lambda x: x * x, mg.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    y, (point,), recorded = _evaluate(f, [x], [0])
    if not y.requires_grad or y.size == 0:
        return zeros(y.shape + x.shape, dtype=x.dtype, device=x.device)
    empty(y.shape + x.shape, dtype=x.dtype, device=x.device)  # fails before the first pass if the result does not fit
    with enable_grad():
        flat = reshape(y, -1)
        rows = [_grad_or_zeros(flat[i], [point], None, True, recorded)[0] for i in range(flat.size)]
        return reshape(stack(rows), y.shape + x.shape)


def hessian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The second derivatives of a function that returns one value.

    Raises ValueError if f(x) does not have exactly one element. The result has the shape ``(*x.shape, *x.shape)``.

    Examples
    --------
    >>> mg.hessian(lambda x: (x ** 3).sum(), mg.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """

    def gradient(point: Tensor) -> Tensor:
        y = f(point)
        if y.size != 1:
            raise ValueError(f"[hessian] expected a function of one value, got shape {y.shape}")
        return _derivatives(y, [point], None, True, True)[0]

    return jacobian(gradient, x)
