"""Gradients: of tensors, as functions of functions, of your own operations, and how to check them."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ContextDecorator
from typing import Any

import numpy as np

from minigrad.creation import asarray, zeros_like
from minigrad.engine import tape
from minigrad.engine.backward import differentiate, record_function
from minigrad.engine.ops.join import stack
from minigrad.engine.ops.layout import reshape
from minigrad.engine.tape import GradientError, is_grad_enabled
from minigrad.engine.tensor import Tensor

__all__ = [
    "Function", "GradientError", "detect_anomaly", "enable_grad", "grad", "gradcheck", "hessian", "is_grad_enabled",
    "jacobian", "no_grad", "record_source", "value_and_grad", "vjp",
]  # fmt: skip


# ── modes ─────────────────────────────────────────────────────────────────────────────────────────


class _Mode(ContextDecorator):
    """A switch of the calling thread for the length of a block; the same object may be entered again inside it."""

    _switch: Callable[[bool], bool]
    _to = True

    def __init__(self) -> None:
        self._before = threading.local()

    def __enter__(self) -> "_Mode":
        stack_ = self._before.__dict__.setdefault("stack", [])
        stack_.append(type(self)._switch(self._to))
        return self

    def __exit__(self, *_: object) -> None:
        type(self)._switch(self._before.stack.pop())


class no_grad(_Mode):
    """Record nothing inside the block or the decorated function.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.ones(2, requires_grad=True)
    >>> with mg.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    _switch = staticmethod(tape.set_recording)
    _to = False


class enable_grad(_Mode):
    """Record again inside a block that `no_grad` surrounds."""

    _switch = staticmethod(tape.set_recording)


class record_source(_Mode):
    """Note on the tape the source line of every operation in the block; `Tensor.tape` and errors then show it.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.ones(2, requires_grad=True)
    >>> with mg.record_source():
    ...     y = x.exp()
    >>> y.tape()[1]["where"].endswith(":1")
    True
    """

    _switch = staticmethod(tape.set_where)


class detect_anomaly(_Mode):
    """Raise where a backward pass first produces NaN or infinity, naming the operation and its source line.

    Put both the forward and the backward pass inside the block. Slow: every gradient is read.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.zeros(1, requires_grad=True)
    >>> with mg.detect_anomaly():
    ...     x.sqrt().backward()
    Traceback (most recent call last):
    minigrad.engine.tape.GradientError: [sqrt] backward gave a gradient with NaN or infinity for input 0 of shape (1,), ...
    """

    def __enter__(self) -> "detect_anomaly":
        stack_ = self._before.__dict__.setdefault("stack", [])
        stack_.append((tape.set_anomaly(True), tape.set_where(True)))
        return self

    def __exit__(self, *_: object) -> None:
        anomaly, where = self._before.stack.pop()
        tape.set_anomaly(anomaly)
        tape.set_where(where)


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


def _as_list(xs: Tensor | Sequence[Tensor]) -> list[Tensor]:
    return [xs] if isinstance(xs, Tensor) else list(xs)


def grad(
    y: Tensor | Sequence[Tensor],
    xs: Tensor | Sequence[Tensor],
    grad: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> Any:
    """The gradients of y with respect to xs, without touching anyone's ``grad``.

    Parameters
    ----------
    y : Tensor or sequence of Tensor
        What to differentiate; several are differentiated as their sum, each weighted by its `grad`.
    xs : Tensor or sequence of Tensor
        Leaves or intermediate results.
    grad : Tensor or sequence, optional
        The cotangent of each y, of its shape; may be left out for one element (then 1).
    retain_graph, create_graph : bool
        As in `Tensor.backward`.
    allow_unused : bool
        Give None for an x that y does not depend on, instead of zeros.

    Returns
    -------
    Tensor or tuple of Tensor
        One for each x, of its shape: a tuple if `xs` is a sequence.

    Raises
    ------
    GradientError
        If y or an x does not require grad, or if y has several elements and no `grad`.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.tensor(2.0, requires_grad=True)
    >>> y = x ** 3
    >>> dy = mg.grad(y, x, create_graph=True)
    >>> mg.grad(dy, x)
    tensor(12.)
    """
    roots, targets = _as_list(y), _as_list(xs)
    cotangents = [grad] * len(roots) if grad is None or isinstance(grad, Tensor) else list(grad)
    if len(cotangents) != len(roots) or (isinstance(grad, Tensor) and len(roots) > 1):
        raise ValueError(f"[grad] expected a cotangent for each of {len(roots)} tensors, got {len(_as_list(grad))}")  # type: ignore[arg-type]
    found = differentiate(roots, cotangents, targets, retain_graph, create_graph)
    if not allow_unused:
        found = [zeros_like(x) if g is None else g for x, g in zip(targets, found, strict=True)]
    return found[0] if isinstance(xs, Tensor) else tuple(found)


def _traced(x: Tensor) -> Tensor:
    """A fresh point to differentiate at, which keeps its history if it has one."""
    if x.requires_grad and is_grad_enabled():
        return reshape(x, x.shape)
    return x.detach().requires_grad_()


def value_and_grad(f: Callable[..., Tensor], argnums: int | Sequence[int] = 0) -> Callable[..., tuple[Tensor, Any]]:
    """A function that returns f's value and its gradient with respect to the arguments `argnums`.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.value_and_grad(lambda x: (x * x).sum())(mg.tensor([1.0, 2.0]))
    (tensor(5.), tensor([2., 4.]))
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    def differentiated(*args: Any, **kwargs: Any) -> tuple[Tensor, Any]:
        points = list(args)
        with enable_grad():
            for k in numbers:
                points[k] = asarray(points[k]).detach().requires_grad_()
            y = f(*points, **kwargs)
            targets = [points[k] for k in numbers]
            if not y.requires_grad:
                grads = tuple(zeros_like(x) for x in targets)
            else:
                grads = grad(y, targets)
        return y.detach(), grads[0] if isinstance(argnums, int) else grads

    return differentiated


def vjp(f: Callable[..., Tensor], *inputs: Tensor) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """f's value at the inputs, and the function that pulls a cotangent of the value back to the inputs.

    Returns
    -------
    y : Tensor
    pull_back : callable
        Takes a tensor of y's shape; returns a tensor for one input, else a tuple. May be called any number of times.

    Examples
    --------
    >>> import minigrad as mg
    >>> y, pull_back = mg.vjp(mg.exp, mg.tensor([0.0, 1.0]))
    >>> pull_back(mg.tensor([1.0, 0.0]))
    tensor([1., 0.])
    """
    with enable_grad():
        points = [x.detach().requires_grad_() for x in inputs]
        y = f(*points)

    def pull_back(cotangent: Tensor) -> Any:
        if not y.requires_grad:
            return tuple(zeros_like(x) for x in points) if len(points) > 1 else zeros_like(points[0])
        grads = grad(y, points, cotangent, retain_graph=True)
        return grads if len(points) > 1 else grads[0]

    return y.detach(), pull_back


def jacobian(f: Callable[[Tensor], Tensor], x: Tensor, *, create_graph: bool = False) -> Tensor:
    """The derivatives of every element of f(x) with respect to every element of x.

    Returns
    -------
    Tensor, shape (*f(x).shape, *x.shape)
        One backward pass for each element of f(x).

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.jacobian(lambda x: x * x, mg.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    with enable_grad():
        point = _traced(x)
        y = f(point)
        if not y.requires_grad or y.size == 0:
            return asarray(np.zeros(y.shape + x.shape), dtype=x.dtype, device=x.device)
        flat = reshape(y, -1)
        rows = [grad(flat[i], point, retain_graph=True, create_graph=create_graph) for i in range(flat.size)]
        return reshape(stack(rows), y.shape + x.shape)


def hessian(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The second derivatives of a function of one value.

    Returns
    -------
    Tensor, shape (*x.shape, *x.shape)

    Raises
    ------
    ValueError
        If f(x) does not have exactly one element.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.hessian(lambda x: (x ** 3).sum(), mg.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """

    def gradient(point: Tensor) -> Tensor:
        y = f(point)
        if y.size != 1:
            raise ValueError(f"[hessian] expected a function of one value, got shape {y.shape}")
        if not y.requires_grad:
            return zeros_like(point)
        return grad(y, point, create_graph=True)

    return jacobian(gradient, x)


# ── your own operation ────────────────────────────────────────────────────────────────────────────


class Context:
    """What ``forward`` leaves for ``backward``: attributes of any name, and tensors through `save_for_backward`.

    Attributes
    ----------
    needs_input_grad : tuple of bool
        For each argument of ``forward``, whether its gradient is wanted.
    saved_tensors : tuple of Tensor
    """

    needs_input_grad: tuple[bool, ...]

    def __init__(self) -> None:
        self._saved: tuple[Tensor | None, ...] = ()
        self._outputs: dict[int, Tensor] = {}

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward; writing them in place before then is an error that backward reports."""
        self._saved = tensors

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """The tensors given to `save_for_backward`."""
        return self._saved


class Function:
    """An operation of your own: a subclass states its forward and its backward.

    ``forward(ctx, *args)`` computes with tensors, unrecorded, and returns a tensor or a tuple of them.
    ``backward(ctx, *grads)`` takes the gradient of each output and returns that of each argument (None for arguments
    that are not tensors, or have none). Call it by ``MyFunction.apply(*args)``. If backward itself consists of
    operations of minigrad, the gradient can be differentiated again.

    Examples
    --------
    >>> import minigrad as mg
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
    def forward(ctx: Any, *args: Any) -> Any:
        """The result of the operation."""
        raise NotImplementedError("[Function] forward is not defined")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """The gradient of each argument of forward."""
        raise NotImplementedError("[Function] backward is not defined")

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the operation and record it."""
        ctx = Context()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        with no_grad():
            result = cls.forward(ctx, *args)
        outputs = [result] if isinstance(result, Tensor) else list(result)
        for y in outputs:
            if not isinstance(y, Tensor):
                raise TypeError(f"[{cls.__name__}] forward: expected tensors, got {type(y).__name__}")
        # An argument handed through unchanged must become another tensor, or it would be its own input.
        outputs = [y.detach() if any(y is a for a in args) else y for y in outputs]
        tensors = [a for a in args if isinstance(a, Tensor)]

        def backward(node: Any, grads: list[Tensor | None]) -> list[Tensor | None]:
            full = [zeros_like(y) if g is None else g for y, g in zip(shapes, grads, strict=True)]
            found = cls.backward(ctx, *full)
            found = list(found) if isinstance(found, (tuple, list)) else [found]
            if len(found) != len(args):
                raise GradientError(
                    f"[{cls.__name__}] backward: expected {len(args)} gradients, one for each argument, got {len(found)}"
                )
            return [g for g, a in zip(found, args_are_tensors, strict=True) if a]

        args_are_tensors = [isinstance(a, Tensor) for a in args]
        shapes = [y.detach() for y in outputs]
        saved = tuple(s for s in ctx._saved if s is not None)
        # A saved output is kept without its node, which would be a cycle, and joined to the tape again when read.
        ctx._saved = tuple(s.detach() if any(s is y for y in outputs) else s for s in ctx._saved)
        saved = tuple(s for s in ctx._saved if s is not None)
        record_function(cls.__name__, tensors, outputs, backward, saved)
        return outputs[0] if isinstance(result, Tensor) else tuple(outputs)


# ── the tape as a table ───────────────────────────────────────────────────────────────────────────


class TapeTable(Sequence):
    """The rows that `Tensor.tape` returns; each is a dict, and the whole prints as a table."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    @property
    def saved_bytes(self) -> int:
        """How many bytes all rows together save for backward, a tensor saved by several counted each time."""
        return sum(row["saved_bytes"] for row in self._rows)

    def __repr__(self) -> str:
        sourced = any(row["where"] for row in self._rows)
        head = ["#", "op", "inputs", "shape", "dtype", "saved bytes"] + ["source"] * sourced
        body = [
            [
                str(row["index"]),
                row["op"],
                ", ".join("-" if i is None else str(i) for i in row["inputs"]),
                str(row["shape"]),
                str(row["dtype"]),
                str(row["saved_bytes"]),
            ]
            + [row["where"] or ""] * sourced
            for row in self._rows
        ]
        widths = [max(len(line[k]) for line in [head, *body]) for k in range(len(head))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in [head, *body])


# ── checking ──────────────────────────────────────────────────────────────────────────────────────


def gradcheck(
    f: Callable[..., Tensor | Sequence[Tensor]],
    inputs: Tensor | Sequence[Tensor],
    *,
    order: int = 2,
    eps: float = 1e-6,
    rtol: float = 1e-4,
    atol: float = 1e-6,
    seed: int = 0,
) -> bool:
    """Compare the gradients of f with central differences in random directions.

    The outputs y are reduced to a number by a random cotangent c, never one of ones (whose gradient a normalization
    annuls whatever its formula): ``s(x) = sum(c y(x))``. For a random direction v the directional derivative
    ``(s(x + eps v) - s(x - eps v)) / (2 eps)`` has to equal ``sum(v ds/dx)``. For order 2 the gradient itself, as a
    function of the inputs and the cotangent, is checked in the same way.

    Parameters
    ----------
    f : callable
        Takes the inputs, returns a tensor or a sequence of them. Has to be deterministic and smooth at the inputs.
    inputs : Tensor or sequence of Tensor
        float64; those that require grad are checked.
    order : int
        The highest derivative to check.
    eps, rtol, atol : float
        The step, and the tolerances relative to the derivative and absolute.
    seed : int
        Of the directions and cotangents.

    Returns
    -------
    bool
        True; a difference raises.

    Raises
    ------
    GradientError
        If the derivatives differ: with the input, the order and both numbers.
    TypeError
        If an input is not float64.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.gradcheck(mg.tanh, mg.tensor([0.5, -1.0], dtype="float64", requires_grad=True))
    True
    """
    points = _as_list(inputs)
    for k, x in enumerate(points):
        if x.requires_grad and x.dtype != "float64":
            raise TypeError(f"[gradcheck] expected float64 inputs, got {x.dtype} for input {k}")
    if not any(x.requires_grad for x in points):
        raise ValueError("[gradcheck] expected at least one input that requires grad")
    _check_order(f, points, 1, order, eps, rtol, atol, np.random.default_rng(seed))
    return True


def _check_order(
    f: Callable[..., Any],
    points: list[Tensor],
    level: int,
    order: int,
    eps: float,
    rtol: float,
    atol: float,
    rng: np.random.Generator,
) -> None:
    def outputs(xs: list[Tensor]) -> list[Tensor]:
        ys = f(*xs)
        return [y for y in _as_list(ys) if y.dtype in ("float32", "float64")]

    with enable_grad():
        xs = [x.detach().requires_grad_(x.requires_grad) for x in points]
        ys = outputs(xs)
    cotangents = [asarray(rng.standard_normal(y.shape)) for y in ys]
    wanted = [k for k, x in enumerate(points) if x.requires_grad]
    live = [k for k, y in enumerate(ys) if y.requires_grad]
    if live:
        grads = grad([ys[k] for k in live], [xs[k] for k in wanted], [cotangents[k] for k in live])
    else:
        grads = tuple(zeros_like(xs[k]) for k in wanted)

    def value(shifted: list[Tensor]) -> float:
        with no_grad():
            return float(sum((c * y).sum().item() for c, y in zip(cotangents, outputs(shifted), strict=True)))

    for k, g in zip(wanted, grads, strict=True):
        if g.shape != points[k].shape:
            raise GradientError(f"[gradcheck] the gradient of input {k} has shape {g.shape} instead of {points[k].shape}")
        if points[k].size == 0:
            continue
        for _ in range(2):
            v = rng.standard_normal(points[k].shape)
            base = points[k].detach().numpy()
            sides = []
            for sign in (1, -1):
                shifted = [x.detach() for x in points]
                shifted[k] = asarray(base + sign * eps * v)
                sides.append(value(shifted))
            numeric = (sides[0] - sides[1]) / (2 * eps)
            analytic = float((g.detach().numpy() * v).sum())
            if not abs(numeric - analytic) <= atol + rtol * max(abs(numeric), abs(analytic)):
                raise GradientError(
                    f"[gradcheck] derivative {level} with respect to input {k} of shape {points[k].shape}: "
                    f"the tape gives {analytic:.9g}, differences give {numeric:.9g}"
                )
    if level >= order or not live:
        return

    def gradient(*args: Tensor) -> list[Tensor]:
        with enable_grad():
            ins = list(args[: len(points)])
            inner = [_traced(x) if points[k].requires_grad else x for k, x in enumerate(ins)]
            ys = outputs(inner)
            weights = args[len(points) :]
            return list(
                grad([ys[k] for k in live], [inner[k] for k in wanted], [weights[j] for j in range(len(live))], create_graph=True)
            )

    extended = [x.detach().requires_grad_(x.requires_grad) for x in points]
    extended += [asarray(cotangents[k].numpy()).requires_grad_() for k in live]
    _check_order(gradient, extended, level + 1, order, eps * 10, rtol * 10, atol * 10, rng)
