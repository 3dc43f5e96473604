"""Products of derivatives with vectors."""

from collections.abc import Callable
from typing import Any

from minigrad.arrays.creation import zeros_like
from minigrad.autograd.gradients import _depends_on_more, _grad_or_zeros, _make_fresh, grad
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tape.modes import enable_grad
from minigrad.engine.tape.node import is_grad_enabled
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import leaves, map_tensors


def _arguments(op: str, f: Callable[..., Any], x: Any, v: Any, called: str) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Return the arguments of f, and the tensors of v, which must match the tensors of the arguments one by one."""
    if not callable(f):
        raise TypeError(f"[{op}] expected a function, got {kind_of(f)}")
    args, vectors = (tuple(t) if isinstance(t, tuple | list) else (t,) for t in (x, v))
    if map_tensors(lambda t: 0, args) != map_tensors(lambda t: 0, vectors):
        raise TypeError(f"[{op}] expected {called} in the structure of the inputs, got {kind_of(v)} for {kind_of(x)}")
    points, found = leaves(args), leaves(vectors)
    for k, (point, vector) in enumerate(zip(points, found, strict=True)):
        if not isinstance(point, Tensor):
            raise TypeError(f"[{op}] expected tensors as inputs, got {kind_of(point)}")
        if point.dtype.kind != "f":
            raise TypeError(f"[{op}] expected inputs of floats, got {point.dtype} for input {k}")
        if (vector.shape, vector.dtype, vector.device) != (point.shape, point.dtype, point.device):
            raise ValueError(
                f"[{op}] expected {called} like the inputs, {point.shape} and {point.dtype} on {point.device} for "
                f"input {k}, got {vector.shape} and {vector.dtype} on {vector.device}"
            )
    return args, found


def _push(ys: list[Tensor], points: list[Tensor], vectors: list[Tensor], recorded: bool) -> list[Tensor]:
    """The derivative of ys in a direction: the gradient u ↦ Jᵀu is linear, and its own gradient is v ↦ J v."""
    tangents = [zeros_like(y) for y in ys]
    wanted = [k for k, y in enumerate(ys) if y.requires_grad]
    if not wanted:
        return tangents
    us = [zeros_like(ys[k]).requires_grad_() for k in wanted]
    back = grad([ys[k] for k in wanted], points, us, create_graph=True, allow_unused=True)
    for k, t in zip(wanted, _pull(back, us, vectors, recorded), strict=True):
        tangents[k] = t
    return tangents


def _pull(back: Any, xs: list[Tensor], vectors: list[Tensor], recorded: bool) -> list[Tensor]:
    """The gradient with respect to xs of recorded gradients, with the vectors as cotangents; zeros if it is none."""
    pairs = [(g, v) for g, v in zip(back, vectors, strict=True) if g is not None and g.requires_grad]
    if not pairs:
        return [zeros_like(x) for x in xs]
    gs, vs = zip(*pairs, strict=True)
    return list(_grad_or_zeros(gs, xs, vs, recorded, recorded))


def _depends_on_others(ys: list[Tensor], points: list[Tensor], vectors: list[Tensor]) -> bool:
    """Whether a product has a gradient: through a vector, or through what ys depend on besides the points."""
    return any(v.requires_grad for v in vectors) or any(y.requires_grad and _depends_on_more(y, points) for y in ys)


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """f's value, and its derivative in a direction: the Jacobian times a vector.

    Two backward passes replace a forward mode: the gradient u ↦ Jᵀu is recorded, and as it is linear in u, its own
    gradient with the cotangent v is J v. That costs a gradient with ``create_graph=True`` and a pass through it, and
    memory for the tape of f and of its gradient. Raises TypeError or ValueError if the tangents do not match the
    primals, or if f returns anything but tensors.

    Parameters
    ----------
    f : callable
        Returns a tensor, or tensors within tuples, lists and dicts.
    primals : Tensor, sequence or dict
        A tensor or a dict of tensors is the only argument of f; a sequence holds its arguments, each of which is a
        tensor or a structure of them.
    tangents : Tensor, sequence or dict
        The direction, in the structure of the primals, each tensor of the same shape and dtype.

    Returns
    -------
    value, tangent
        Both in the structure of what f returns. The tangent is zeros for what does not depend on the primals, and for
        integers. Both are recorded, and can be differentiated, if a tangent or anything else that f depends on
        requires grad.

    Examples
    --------
    >>> mg.jvp(mg.exp, mg.tensor([0.0, 1.0]), mg.tensor([1.0, 0.0]))
    (tensor([1.       , 2.7182817]), tensor([1., 0.]))
    """
    args, vectors = _arguments("jvp", f, primals, tangents, "tangents")
    recorded = is_grad_enabled()
    with enable_grad():
        args = map_tensors(lambda x: _make_fresh(x, recorded), args)
        value = f(*args)
        points, ys = leaves(args), leaves(value)
        for y in ys:
            if not isinstance(y, Tensor):
                raise TypeError(f"[jvp] expected a function that returns tensors, got {kind_of(y)}")
        recorded = recorded and _depends_on_others(ys, points, vectors)
        found = iter(_push(ys, points, vectors, recorded))
    return (value if recorded else map_tensors(Tensor.detach, value)), map_tensors(lambda y: next(found), value)


def hvp(f: Callable[..., Tensor], x: Any, v: Any) -> Any:
    """The Hessian of a function of one value, times a vector.

    The gradient is recorded and pulled back with the cotangent v (Pearlmutter 1994, Neural Computation 6:147): two
    backward passes and memory linear in x, where `hessian` takes a pass for each element and memory for all pairs.
    Raises TypeError or ValueError if v does not match x, or f returns anything but a tensor of one element. The result,
    in the structure of x, is recorded as those of `jvp` are.

    Parameters
    ----------
    f : callable
        Returns a tensor of one element.
    x, v : Tensor, sequence or dict
        The point and the vector, in the structure of the arguments of `jvp`.

    Examples
    --------
    >>> mg.hvp(lambda x: (x ** 3).sum(), mg.tensor([1.0, 2.0]), mg.tensor([1.0, 1.0]))
    tensor([ 6., 12.])
    """
    args, vectors = _arguments("hvp", f, x, v, "a vector")
    recorded = is_grad_enabled()
    with enable_grad():
        args = map_tensors(lambda point: _make_fresh(point, recorded), args)
        y, points = f(*args), leaves(args)
        if not isinstance(y, Tensor):
            raise TypeError(f"[hvp] expected a function that returns a tensor, got {kind_of(y)}")
        if y.size != 1:
            raise ValueError(f"[hvp] expected a function of one value, got shape {y.shape}")
        recorded = recorded and _depends_on_others([y], points, vectors)
        back = grad(y, points, create_graph=True, allow_unused=True) if y.requires_grad else [None] * len(points)
        rows = iter(_pull(back, points, vectors, recorded))
    product = map_tensors(lambda point: next(rows), args)
    return type(x)(product) if isinstance(x, list) else product if isinstance(x, tuple) else product[0]
