"""The parts of the table: cases, entries, and the shapes and references that several families share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

import minigrad as mg
from minigrad.nn import functional as F

INDIFFERENT = {
    "test_gradients", "test_float32_gradients", "test_recorded_gradients", "test_chosen_gradients", "test_torch",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Shapes of the tensors an operation takes, and its other arguments, of which arrays become tensors too."""

    shapes: tuple
    options: dict

    def __str__(self):
        shapes = ",".join("x".join(map(str, shape)) or "()" for shape in self.shapes)
        options = ",".join(f"{k}={v.shape if isinstance(v, np.ndarray) else v}" for k, v in self.options.items())
        return f"[{shapes}{';' if options else ''}{options}]".replace(" ", "")


def case(*shapes, **options):
    return Case(shapes, options)


def cases(*choices):
    """Make one case for each tuple of shapes."""
    return tuple(Case(shapes, {}) for shapes in choices)


@dataclass(frozen=True)
class Op:
    """One line of the table.

    `name` is the public name; `ours` calls it, if the name alone is not enough. `torch` is the counterpart's name in
    PyTorch (default: the same), a function of torch and the arguments, or None if there is none. `domain` bounds the
    inputs, for all operands or for each; `dtypes` are the kinds it takes (float, int, bool). Results may differ by
    `ulps` units in the last place of numbers of order one; 0 requires equality. `composition` computes the same with
    primitive operations.
    """

    name: str
    numpy: Callable
    cases: tuple
    torch: str | Callable | None = ""
    domain: tuple = (-2, 2)
    dtypes: str = "f"
    ulps: float = 16
    gradient: bool = True
    ours: Callable | None = None
    composition: Callable | None = None

    def __call__(self, *tensors, **options):
        if self.ours is not None:
            return self.ours(*tensors, **options)
        return (
            getattr(mg, self.name, None)(*tensors, **options)
            if hasattr(mg, self.name)
            else getattr(F, self.name)(*tensors, **options)
        )

    def takes_part(self, test):
        """Whether a test of checks.Suite applies."""
        return (
            (self.gradient or test not in INDIFFERENT)
            and (self.torch is not None or test != "test_torch")
            and (self.composition is not None or test != "test_composition")
        )

    def shaped_by_values(self, case):
        """Whether the shape of the result depends on values: of the operand, of a mask, or of numbers of repeats."""
        key = case.options.get("key")
        masks = [k for k in (key if isinstance(key, tuple) else (key,)) if isinstance(k, list) and True in k]
        mask = any(isinstance(k[0], bool) for k in masks) or not isinstance(case.options.get("repeats", 1), int)
        return self.name == "nonzero" or self.name.startswith("unique_") or mask

    def interval(self, k):
        """Return the domain of operand k."""
        return self.domain[k] if isinstance(self.domain[0], tuple) else self.domain


ONE = cases(((),), ((7,),), ((3, 4),), ((2, 3, 19),), ((0, 3),))

TWO = cases(
    ((), ()), ((7,), (7,)), ((3, 19), (3, 19)), ((3, 19), (19,)), ((3, 1), (1, 19)), ((2, 1, 4), (3, 1)), ((), (3, 4)), ((0, 3), (1, 3)),
)  # fmt: skip

AXES = (
    case((7,)), case((3, 4, 5)), case((3, 4, 5), axis=0), case((3, 4, 5), axis=1), case((3, 4, 5), axis=-1),
    case((3, 4, 5), axis=(0, 2)), case((3, 4, 5), axis=(-1, 0, 1)), case((3, 4, 5), axis=(0, 1), keepdims=True),
    case((3, 4, 5), axis=1, keepdims=True), case((2, 3), axis=()), case((), axis=None), case((3, 1, 2), axis=1),
    case((0, 3), axis=1), case((2, 0, 3), axis=0),
)  # fmt: skip

EMPTY = (case((3, 0), axis=1), case((0,)))

ONE_AXIS = (
    case((7,), axis=None), case((3, 4), axis=None), case((3, 4, 5), axis=0), case((3, 4, 5), axis=1),
    case((3, 4, 5), axis=-1), case((3, 4, 5), axis=1, keepdims=True), case((0, 3), axis=1),
)  # fmt: skip

ROWS = (
    case((7,)), case((3, 4)), case((2, 3, 4), axis=0), case((2, 3, 4), axis=1), case((0, 3)), case((3, 0)),
    case((2, 1)),
)  # fmt: skip


def elementwise(f):
    return np.vectorize(f, otypes=[float])


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def T(name, **renamed):
    """Return PyTorch's function `name`, with options renamed."""

    def call(torch, *tensors, **options):
        f = reduce(getattr, name.split("."), torch)
        return f(*tensors, **{renamed.get(k, k): v for k, v in options.items()})

    return call


def torch_axes(name):
    """Return a reduction of PyTorch: axis=None is all axes, axis=() is none."""

    def call(torch, x, axis=None, keepdims=False, **options):
        if axis == ():
            axis, x, keepdims = x.ndim, x[..., None], False
        axis = tuple(range(x.ndim)) if axis is None else axis
        return (
            getattr(torch, name)(x, dim=axis, keepdim=keepdims, **options)
            if x.ndim
            else getattr(torch, name)(x[None], dim=(0,))
        )

    return call


POSITIVE, NONZERO = (0.1, 3), (0.5, 2)
