"""Check gradients against finite differences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.arrays.creation import asarray, zeros_like
from minigrad.autograd.gradients import _as_list, _grad_or_zeros, _make_fresh
from minigrad.engine.tape.modes import enable_grad, no_grad
from minigrad.engine.tape.node import GradientError
from minigrad.engine.tensor.tensor import Tensor


def gradcheck(
    f: Callable[..., Tensor | Sequence[Tensor]], inputs: Tensor | Sequence[Tensor], *, order: int = 2,
    eps: float = 1e-6, rtol: float = 1e-4, atol: float = 1e-6, seed: int = 0,
) -> bool:  # fmt: skip
    """Compare the gradients of f with central differences in random directions.

    The outputs y are reduced to a number with a random cotangent c, ``s(x) = sum(c y(x))``; a cotangent of ones would
    not do, because a normalization maps it to zero whatever its formula. For a random direction v, the directional
    derivative ``(s(x + eps v) - s(x - eps v)) / (2 eps)`` has to equal ``sum(v ds/dx)``. For order 2, the gradient
    itself, as a function of the inputs and the cotangent, is checked in the same way.

    Parameters
    ----------
    f : callable
        Takes the inputs and returns a tensor or a sequence of them; has to be deterministic, which is checked, and
        smooth at the inputs.
    inputs : Tensor or sequence of Tensor
        float64; those that require grad are checked.
    order : int
        The highest derivative to check.
    eps, rtol, atol : float
        The step, and the relative and absolute tolerances of the derivative.
    seed : int
        The seed of the directions and cotangents.

    Returns
    -------
    bool
        True; a mismatch raises an error.

    Raises
    ------
    GradientError
        If the derivatives differ; the message names the input, the order and both numbers. Also if f returns different
        numbers when it is called again, as dropout does.
    TypeError
        If an input is not float64.

    Examples
    --------
    >>> mg.gradcheck(mg.tanh, mg.tensor([0.5, -1.0], dtype="float64", requires_grad=True))
    True
    """
    points = _as_list(inputs, "gradcheck")
    for k, x in enumerate(points):
        if x.requires_grad and x.dtype != "float64":
            raise TypeError(f"[gradcheck] expected float64 inputs, got {x.dtype} for input {k}")
    if not any(x.requires_grad for x in points):
        raise ValueError("[gradcheck] expected at least one input that requires grad")
    # A separate stream: inputs that the caller drew from the same seed must not reappear as the cotangent, to which
    # the gradient of a normalization, for example, is orthogonal.
    random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,))).standard_normal

    def function(*xs: Tensor) -> list[Tensor]:
        return [y for y in _as_list(f(*xs), "gradcheck") if y.dtype.kind == "f"]

    for level in range(order):
        # Each derivative is a difference of the previous one, so it has fewer correct digits.
        looser = 10**level
        with enable_grad():
            points, function = _check_derivative(
                function, points, level + 1, random, eps * looser, rtol * looser, atol * looser
            )
    return True


_Outputs = Callable[..., list[Tensor]]


def _equal(xs: list[Tensor], ys: list[Tensor]) -> bool:
    """Whether two lists of tensors hold the same numbers; NaN equals NaN."""
    arrays = [[x.detach().to("cpu").numpy() for x in found] for found in (xs, ys)]
    return len(xs) == len(ys) and all(np.array_equal(a, b, equal_nan=True) for a, b in zip(*arrays, strict=True))


def _check_derivative(
    f: _Outputs, points: list[Tensor], level: int, random: Callable[..., Any], eps: float, rtol: float, atol: float
) -> tuple[list[Tensor], _Outputs]:
    """Check one derivative of f; return the points at which to check the next one, and the gradient as a function."""
    count, wanted = len(points), [k for k, x in enumerate(points) if x.requires_grad]

    def gradient(*args: Tensor, create_graph: bool = True) -> list[Tensor]:
        with enable_grad():
            xs = [_make_fresh(x, create_graph) if points[k].requires_grad else x for k, x in enumerate(args[:count])]
            pairs = [(y, c) for y, c in zip(f(*xs), args[count:], strict=True) if y.requires_grad]
            targets = [xs[k] for k in wanted]
            if not pairs:
                return [zeros_like(x) for x in targets]
            ys, cs = zip(*pairs, strict=True)
            return list(_grad_or_zeros(ys, targets, cs, False, create_graph))

    @no_grad()
    def s(*xs: Tensor) -> float:
        return sum(float((c * y).sum()) for c, y in zip(cotangents, f(*xs), strict=True))

    plain = [x.detach() for x in points]
    with no_grad():
        outputs = f(*plain)
        cotangents = [asarray(random(y.shape), dtype=y.dtype, device=y.device) for y in outputs]
        if not _equal(outputs, f(*plain)):
            what = "gave two results" if level == 1 else f"has two derivatives of order {level - 1}"
            raise GradientError(
                f"[gradcheck] expected a deterministic function, got one that {what} at the same inputs: "
                f"switch off dropout and other randomness, or seed the random numbers inside the function"
            )
    for k, g in zip(wanted, gradient(*plain, *cotangents, create_graph=False), strict=True):
        x = plain[k]
        if g.shape != x.shape:
            raise GradientError(f"[gradcheck] the gradient of input {k} has shape {g.shape} instead of {x.shape}")
        for _ in range(2):
            v = asarray(random(x.shape), dtype=x.dtype, device=x.device)
            above, below = (s(*plain[:k], x + step * v, *plain[k + 1 :]) for step in (eps, -eps))
            numeric, analytic = (above - below) / (2 * eps), float((g * v).sum())
            if not abs(numeric - analytic) <= atol + rtol * max(abs(numeric), abs(analytic)):
                raise GradientError(
                    f"[gradcheck] derivative {level} with respect to input {k} of shape {x.shape}: "
                    f"the tape gives {analytic:.9g}, differences give {numeric:.9g}"
                )
    again = [x.detach().requires_grad_(x.requires_grad) for x in points]
    return again + [c.requires_grad_() for c in cotangents], gradient
