"""The table of operations: each with its twin in NumPy, its twin in PyTorch, its inputs, and what of it is to be tested.

A new operation is one line here; `checks.Suite` makes the tests of it, and test_surface.py fails if the line is missing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train
from minigrad.nn import functional as F

INDIFFERENT = {
    "test_gradients",
    "test_float32_gradients",
    "test_recorded_gradients",
    "test_chosen_gradients",
    "test_torch",
}


@dataclass(frozen=True)
class Case:
    """Shapes of the tensors an operation takes, and its further arguments; arrays among these become tensors too."""

    shapes: tuple
    options: dict

    def __str__(self):
        shapes = ",".join("x".join(map(str, shape)) or "()" for shape in self.shapes)
        options = ",".join(f"{k}={v.shape if isinstance(v, np.ndarray) else v}" for k, v in self.options.items())
        return f"[{shapes}{';' if options else ''}{options}]".replace(" ", "")


def case(*shapes, **options):
    return Case(shapes, options)


def cases(*choices):
    """One case for each tuple of shapes."""
    return tuple(Case(shapes, {}) for shapes in choices)


@dataclass(frozen=True)
class Op:
    """One line of the table.

    `name` is the public name; `ours` calls it, if the name alone does not do. `torch` is the twin's name in PyTorch
    (default: the same), a function of torch and the arguments, or None if it has none. `domain` bounds the inputs, for
    all operands or for each; `dtypes` are the kinds it takes (float, int, bool). Results may be off by `ulps` units in
    the last place of numbers of order one; 0 demands equality. `composition` is the same of primitive operations.
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

    def interval(self, k):
        """The domain of operand k."""
        return self.domain[k] if isinstance(self.domain[0], tuple) else self.domain


# ── shapes ────────────────────────────────────────────────────────────────────────────────────────

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
    case((7,)),
    case((3, 4)),
    case((2, 3, 4), axis=0),
    case((2, 3, 4), axis=1),
    case((0, 3)),
    case((3, 0)),
    case((2, 1)),
)


# ── references that NumPy does not have ───────────────────────────────────────────────────────────


def elementwise(f):
    return np.vectorize(f, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    return e / e.sum(axis, keepdims=True)


def logsumexp(x, axis=None, keepdims=False):
    return np.log(np.exp(x).sum(axis, keepdims=keepdims))


def layer_norm(x, *affine, normalized_shape, eps=1e-5, weighted=True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    axes = tuple(range(-len(shape), 0))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    for k, a in enumerate(affine):
        y = y * a if k == 0 and weighted else y + a
    return y


def rms_norm(x, *affine, normalized_shape, eps=None):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    eps = np.finfo(x.dtype).eps if eps is None else eps
    y = x / np.sqrt((x * x).mean(tuple(range(-len(shape), 0)), keepdims=True) + eps)
    return y * affine[0] if affine else y


def channels(x, *affine, weighted=True):
    """A gain and a shift per channel, either of which may be missing, in the shape that meets x."""
    affine = [v.reshape(tuple(v.shape) + (1,) * (x.ndim - 2)) for v in affine]
    y = x * affine[0] if affine and weighted else x
    return y + affine[-1] if len(affine) == 2 or (affine and not weighted) else y


def group_norm(x, *affine, num_groups, eps=1e-5, weighted=True):
    rows = x.reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)
    y = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + eps)
    return channels(y.reshape(x.shape), *affine, weighted=weighted)


def instance_norm(x, *affine, eps=1e-5):
    return group_norm(x, *affine, num_groups=x.shape[1], eps=eps)


def batch_norm(x, *affine, eps=1e-5, weighted=True):
    axes = (0, *range(2, x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    return channels(y, *affine, weighted=weighted)


def given_batch_norm(sqrt):
    """By given statistics, in any library's arrays."""

    def batch_norm(x, mean, var, *affine, eps=1e-5, weighted=True):
        y = channels(x, -mean, weighted=False)
        y = channels(y, 1 / sqrt(var + eps))
        return channels(y, *affine, weighted=weighted)

    return batch_norm


def cross_entropy(z, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    """The definition: minus the sum of q log p with the smoothed distribution q of the labels."""
    rows, width = (1, z.size) if z.ndim == 1 else z.shape
    single, z, target = z.ndim == 1, z.reshape(rows, width), target.reshape(rows)
    counts = target != ignore_index
    w = np.ones(width) if weight is None else weight
    q = np.full((rows, width), label_smoothing / width)
    q[np.arange(rows), np.where(counts, target, 0)] += 1 - label_smoothing
    loss = -(q * w * (z - logsumexp(z, 1, True))).sum(1) * counts
    if reduction == "none":
        return loss.reshape(()) if single else loss
    return loss.sum() / (w[np.where(counts, target, 0)] * counts).sum() if reduction == "mean" else loss.sum()


def getitem(x, key):
    return x[key]


def permuted(x, axes):
    return np.transpose(x, axes)


# ── references that PyTorch spells differently ────────────────────────────────────────────────────


def T(name, **renamed):
    """PyTorch's function `name`, with options renamed."""

    def call(torch, *tensors, **options):
        f = reduce(getattr, name.split("."), torch)
        return f(*tensors, **{renamed.get(k, k): v for k, v in options.items()})

    return call


def torch_axes(name):
    """A reduction of PyTorch's: axis=None is all axes, axis=() is none."""

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


def torch_prod(torch, x, axis=None, keepdims=False):
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    for k in sorted([k % x.ndim for k in axes], reverse=True):
        x = x.prod(k, keepdim=keepdims)
    return x


def torch_layer_norm(torch, x, *affine, normalized_shape, eps=1e-5, weighted=True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    return torch.nn.functional.layer_norm(x, shape, *(affine if weighted else (None, *affine)), eps=eps)


def torch_batch_norm(torch, x, *affine, eps=1e-5, weighted=True):
    return torch.nn.functional.batch_norm(
        x, None, None, *(affine if weighted else (None, *affine)), training=True, eps=eps
    )


# ── compositions out of primitive operations ──────────────────────────────────────────────────────


def compose_layer_norm(x, *affine, normalized_shape, eps=1e-5, weighted=True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    axes = tuple(range(-len(shape), 0))
    centered = x - mg.mean(x, axes, keepdims=True)
    y = centered / mg.sqrt(mg.mean(centered * centered, axes, keepdims=True) + eps)
    for k, a in enumerate(affine):
        y = y * a if k == 0 and weighted else y + a
    return y


def compose_rms_norm(x, *affine, normalized_shape, eps=None):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    eps = np.finfo(str(x.dtype)).eps if eps is None else eps
    y = x / mg.sqrt(mg.mean(x * x, tuple(range(-len(shape), 0)), keepdims=True) + float(eps))
    return y * affine[0] if affine else y


def compose_group_norm(x, *affine, num_groups, eps=1e-5, weighted=True):
    rows = x.reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)
    centered = rows - mg.mean(rows, 2, keepdims=True)
    y = centered / mg.sqrt(mg.mean(centered * centered, 2, keepdims=True) + eps)
    return channels(y.reshape(x.shape), *affine, weighted=weighted)


def compose_batch_norm(x, *affine, eps=1e-5, weighted=True):
    axes = (0, *range(2, x.ndim))
    centered = x - mg.mean(x, axes, keepdims=True)
    return channels(centered / mg.sqrt(mg.mean(centered * centered, axes, keepdims=True) + eps), *affine, weighted=weighted)


def compose_softmax(x, axis=-1):
    e = mg.exp(x)
    return e / mg.sum(e, axis, keepdims=True)


def compose_var(x, axis=None, correction=0, keepdims=False):
    centered = x - mg.mean(x, axis, keepdims=True)
    n = x.size / max(mg.mean(x, axis).size, 1)
    return mg.sum(centered * centered, axis, keepdims=keepdims) / (n - correction)


def compose_cross_entropy(z, target, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0):
    rows, width = (1, z.size) if z.ndim == 1 else z.shape
    single, z, target = z.ndim == 1, z.reshape(rows, width), target.reshape(rows)
    counts = (target != ignore_index).astype(z.dtype)
    w = mg.ones(width, dtype=z.dtype, device=z.device) if weight is None else weight
    safe = mg.where(target != ignore_index, target, 0)
    hit = (mg.expand_dims(safe, 1) == mg.arange(width, device=z.device)).astype(z.dtype)
    q = hit * (1 - label_smoothing) + label_smoothing / width
    loss = -mg.sum(q * w * (z - mg.log(mg.sum(mg.exp(z), 1, keepdims=True))), 1) * counts
    if reduction == "none":
        return loss.reshape(()) if single else loss
    return loss.sum() / mg.sum(mg.take(w, safe) * counts) if reduction == "mean" else loss.sum()


# ── the table ─────────────────────────────────────────────────────────────────────────────────────

POSITIVE, NONZERO = (0.1, 3), (0.5, 2)
CONDITION = np.array([[True, False, True, False], [False, False, True, True], [True, True, False, True]])

ARITHMETIC = [
    Op("add", np.add, TWO, dtypes="fib"),
    Op("subtract", np.subtract, TWO, dtypes="fi"),
    Op("multiply", np.multiply, TWO, dtypes="fib"),
    Op("divide", np.divide, TWO, domain=((-2, 2), NONZERO), dtypes="fi"),
    Op("reciprocal", lambda x: 1 / x, ONE, domain=NONZERO),
    Op("floor_divide", np.floor_divide, TWO, domain=((-9, 9), NONZERO), dtypes="fi", ulps=0, gradient=False),
    Op("remainder", np.remainder, TWO, domain=((-9, 9), NONZERO), dtypes="fi"),
    Op("negative", np.negative, ONE, dtypes="fi", ulps=0),
    Op("positive", np.positive, ONE, dtypes="fi", ulps=0),
]  # fmt: skip

LOGIC = [
    Op("maximum", np.maximum, TWO, dtypes="fib", ulps=0),
    Op("minimum", np.minimum, TWO, dtypes="fib", ulps=0),
    *(
        Op(name, getattr(np, name), TWO, dtypes="fib", ulps=0, gradient=False)
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_xor")
    ),
    Op("logical_not", np.logical_not, ONE, dtypes="fib", ulps=0, gradient=False),
    Op("bitwise_and", np.bitwise_and, TWO, dtypes="ib", domain=(-99, 99), ulps=0, gradient=False),
    Op("bitwise_or", np.bitwise_or, TWO, dtypes="ib", domain=(-99, 99), ulps=0, gradient=False),
    Op("bitwise_xor", np.bitwise_xor, TWO, dtypes="ib", domain=(-99, 99), ulps=0, gradient=False),
    Op("bitwise_invert", np.invert, ONE, dtypes="ib", domain=(-99, 99), ulps=0, gradient=False),
    Op(
        "where", lambda x, y, condition: np.where(condition, x, y), dtypes="fib", ulps=0,
        ours=lambda x, y, condition: mg.where(condition, x, y), torch=lambda t, x, y, condition: t.where(condition, x, y),
        cases=tuple(
            case(*shapes, condition=CONDITION[index])
            for shapes in [((3, 4), (3, 4)), ((4,), (3, 1)), ((), (2, 3, 4)), ((1,), ())]
            for index in [..., (slice(0, 1),), (slice(None), slice(2, 3))]
        ),
    ),
    Op(
        "clip", lambda x, min=None, max=None: np.clip(x, min, max), dtypes="f", ulps=0, torch="clamp",
        cases=(
            case((3, 4), min=-1.0, max=0.5), case((3, 4), min=0.25), case((3, 4), max=0.25), case((), min=-1.0, max=1.0),
            case((0, 3), min=0.0, max=1.0), case((2, 5), min=np.linspace(-1, 0, 5), max=np.linspace(1, 0, 5)),
        ),
    ),
]  # fmt: skip

FUNCTIONS = [
    Op("exp", np.exp, ONE),
    Op("expm1", np.expm1, ONE),
    Op("exp2", np.exp2, ONE),
    Op("log", np.log, ONE, domain=POSITIVE),
    Op("log1p", np.log1p, ONE, domain=(-0.9, 3)),
    Op("log2", np.log2, ONE, domain=POSITIVE),
    Op("log10", np.log10, ONE, domain=POSITIVE),
    Op("sqrt", np.sqrt, ONE, domain=POSITIVE),
    Op("rsqrt", lambda x: 1 / np.sqrt(x), ONE, domain=POSITIVE, composition=lambda x: 1 / mg.sqrt(x)),
    Op("square", np.square, ONE, dtypes="fi", composition=lambda x: x * x),
    Op("power", np.power, TWO, domain=((0.2, 2), (-2, 2)), torch="pow", composition=lambda x, y: mg.exp(y * mg.log(x))),
    Op("erf", elementwise(math.erf), ONE),
    Op("abs", np.abs, ONE, dtypes="fib", ulps=0),
    Op("sign", np.sign, ONE, dtypes="fi", ulps=0),
    Op("floor", np.floor, ONE, ulps=0),
    Op("ceil", np.ceil, ONE, ulps=0),
    Op("round", np.round, ONE, ulps=0),
    Op("isnan", np.isnan, ONE, gradient=False),
    Op("isinf", np.isinf, ONE, gradient=False),
    Op("isfinite", np.isfinite, ONE, gradient=False),
]  # fmt: skip

TRIGONOMETRY = [
    Op("sin", np.sin, ONE),
    Op("cos", np.cos, ONE),
    Op("tan", np.tan, ONE, domain=(-1.2, 1.2), composition=lambda x: mg.sin(x) / mg.cos(x)),
    Op("asin", np.arcsin, ONE, domain=(-0.9, 0.9)),
    Op("acos", np.arccos, ONE, domain=(-0.9, 0.9)),
    Op("atan", np.arctan, ONE),
    Op("atan2", np.arctan2, TWO),
    Op("sinh", np.sinh, ONE),
    Op("cosh", np.cosh, ONE),
    Op("tanh", np.tanh, ONE, composition=lambda x: mg.sinh(x) / mg.cosh(x)),
    Op("asinh", np.arcsinh, ONE),
    Op("acosh", np.arccosh, ONE, domain=(1.2, 3)),
    Op("atanh", np.arctanh, ONE, domain=(-0.9, 0.9)),
]  # fmt: skip

LAYOUT = [
    Op(
        "reshape", lambda x, shape: x.reshape(shape), dtypes="fib", ulps=0, torch=lambda t, x, shape: x.reshape(shape),
        cases=(
            case((3, 4), shape=(2, 6)), case((3, 4), shape=-1), case((2, 3, 4), shape=(4, -1, 3)), case((), shape=(1, 1)),
            case((1,), shape=()), case((0, 3), shape=(3, 0, 2)), case((3, 4), shape=(3, 4)), case((2, 3), shape=[6]),
        ),
    ),
    Op(
        "permute_dims", permuted, dtypes="fib", ulps=0, torch=T("permute", axes="dims"),
        cases=(case((2, 3, 4), axes=(2, 0, 1)), case((2, 3, 4), axes=(-1, 1, -3)), case((), axes=()), case((0, 3), axes=(1, 0))),
    ),
    Op("matrix_transpose", np.matrix_transpose, cases(((3, 4),), ((2, 3, 4),), ((0, 3),)), dtypes="fib", ulps=0, torch="adjoint"),
    Op(
        "moveaxis", np.moveaxis, dtypes="fib", ulps=0,
        cases=(
            case((2, 3, 4), source=0, destination=-1), case((2, 3, 4, 5), source=(0, -1), destination=(2, 0)),
            case((0, 3), source=1, destination=0),
        ),
    ),
    Op(
        "expand_dims", np.expand_dims, dtypes="fib", ulps=0,
        torch=lambda t, x, axis: x[(None, ..., None) if isinstance(axis, tuple) else (*[slice(None)] * (axis % (x.ndim + 1)), None)],
        cases=(
            case((3, 4), axis=0), case((3, 4), axis=1), case((3, 4), axis=-1), case((), axis=0), case((3, 4), axis=(0, -1)),
            case((0, 3), axis=1),
        ),
    ),
    Op(
        "squeeze", np.squeeze, dtypes="fib", ulps=0,
        torch=lambda t, x, axis=None: t.squeeze(x) if axis is None else t.squeeze(x, axis),
        cases=(
            case((1, 3, 1, 4)), case((1, 3, 1, 4), axis=0), case((1, 3, 1, 4), axis=-2), case((1, 3, 1, 4), axis=(0, 2)),
            case((1, 1)), case((0, 1), axis=1), case((3, 4), axis=()),
        ),
    ),
    Op(
        "flip", np.flip, dtypes="fib", ulps=0, torch=lambda t, x, axis=None: t.flip(
            x, list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else axis),
        cases=(case((3, 4)), case((3, 4), axis=0), case((3, 4), axis=-1), case((2, 3, 4), axis=(0, 2)), case(()), case((0, 3))),
    ),
    Op(
        "broadcast_to", np.broadcast_to, dtypes="fib", ulps=0, torch=T("broadcast_to", shape="size"),
        cases=(
            case((3, 1), shape=(3, 4)), case((4,), shape=(2, 3, 4)), case((), shape=(2, 2)), case((1, 3), shape=(0, 3)),
            case((3, 4), shape=(3, 4)), case((3, 1), shape=(2, 3, 1)),
        ),
    ),
    Op("sum", np.sum, AXES + EMPTY, dtypes="fib", torch=torch_axes("sum")),
    Op(
        "astype", lambda x, dtype: x.astype(dtype), dtypes="fib", ulps=0, torch=None,
        cases=(*tuple(case((3, 4), dtype=d) for d in ("float64", "int64", "int32", "bool")), case((), dtype="float64")),
        gradient=False,
    ),
]  # fmt: skip

REDUCE = [
    Op("prod", np.prod, AXES + EMPTY, dtypes="fib", domain=(-1.5, 1.5), torch=torch_prod),
    Op("mean", np.mean, AXES, torch=torch_axes("mean"), composition=lambda x, axis=None, keepdims=False: mg.divide(
        mg.sum(x, axis, keepdims=keepdims), mg.sum(mg.ones_like(x), axis, keepdims=keepdims))),
    Op(
        "var", lambda x, axis=None, correction=0, keepdims=False: np.var(x, axis, ddof=correction, keepdims=keepdims),
        cases=(*AXES, case((3, 4), correction=1), case((3, 4, 5), axis=(0, 2), correction=1.5), case((2, 3), axis=0, correction=1)),
        torch=lambda t, x, axis=None, keepdims=False, correction=0: torch_axes("var")(t, x, axis, keepdims, correction=correction)
        if x.ndim and axis != () else x * 0, composition=compose_var,
    ),
    Op(
        "std", lambda x, axis=None, correction=0, keepdims=False: np.std(x, axis, ddof=correction, keepdims=keepdims),
        cases=(case((3, 4)), case((3, 4, 5), axis=1), case((3, 4, 5), axis=(0, 2), keepdims=True), case((3, 4), axis=1, correction=1)),
        torch=lambda t, x, axis=None, keepdims=False, correction=0: torch_axes("std")(t, x, axis, keepdims, correction=correction),
        composition=lambda x, **options: mg.sqrt(compose_var(x, **options)),
    ),
    Op("max", np.max, AXES, dtypes="fib", ulps=0, torch=torch_axes("amax")),
    Op("min", np.min, AXES, dtypes="fib", ulps=0, torch=torch_axes("amin")),
    Op("argmax", np.argmax, ONE_AXIS, dtypes="fib", ulps=0, gradient=False),
    Op("argmin", np.argmin, ONE_AXIS, dtypes="fib", ulps=0, gradient=False),
    Op("any", np.any, AXES + EMPTY, dtypes="fib", domain=(-0.5, 1), ulps=0, gradient=False),
    Op("all", np.all, AXES + EMPTY, dtypes="fib", ulps=0, gradient=False),
    Op(
        "logsumexp", logsumexp, AXES, torch=torch_axes("logsumexp"),
        composition=lambda x, axis=None, keepdims=False: mg.log(mg.sum(mg.exp(x), axis, keepdims=keepdims)),
    ),
    Op(
        "cumulative_sum", lambda x, axis=None, include_initial=False: np.cumulative_sum(x, axis=axis, include_initial=include_initial),
        dtypes="fib", torch=lambda t, x, axis=0, include_initial=False: t.cumsum(
            t.cat([t.zeros_like(x.narrow(axis, 0, 1)), x], axis) if include_initial else x, axis),
        cases=(
            case((7,)), case((3, 4), axis=0), case((3, 4), axis=-1), case((2, 3, 4), axis=1), case((0, 3), axis=1),
            case((3, 4), axis=1, include_initial=True), case((3, 4), axis=0, include_initial=True), case((3, 0), axis=1),
        ),
    ),
]  # fmt: skip


def sequence(f):
    """A function of a sequence as one of its elements."""
    return lambda *xs, **options: f(xs, **options)


JOIN = [
    Op(
        "concat", sequence(np.concat), dtypes="fib", ulps=0, ours=sequence(mg.concat), torch=lambda t, *xs, axis=0: t.cat(
            xs, axis) if axis is not None else t.cat([x.reshape(-1) for x in xs]),
        cases=(
            case((3, 4)), case((3, 4), (2, 4)), case((3, 4), (3, 1), (3, 0), axis=1), case((2, 3), (2, 3), axis=-2),
            case((2, 3), (4,), (), axis=None), case((0, 3), (0, 3)), case((2, 1, 3), (2, 2, 3), (2, 1, 3), axis=1),
        ),
    ),
    Op(
        "stack", sequence(np.stack), dtypes="fib", ulps=0, ours=sequence(mg.stack),
        torch=lambda t, *xs, axis=0: t.stack(xs, axis),
        cases=(
            case((3,), (3,)), case((2, 3), (2, 3), (2, 3), axis=1), case((2, 3), (2, 3), axis=-1), case((), (), ()), case((2, 3)),
            case((0, 2), (0, 2), axis=1),
        ),
    ),
    Op(
        "split", np.split, dtypes="fib", ulps=0,
        torch=lambda t, x, indices_or_sections, axis=0: t.tensor_split(x, indices_or_sections, axis),
        cases=(
            case((6, 2), indices_or_sections=3), case((6, 2), indices_or_sections=[1, 4]), case((2, 6), indices_or_sections=2, axis=1),
            case((4, 3), indices_or_sections=(0, 2, 2), axis=-1), case((4,), indices_or_sections=1), case((4,), indices_or_sections=[-1]),
            case((4,), indices_or_sections=[2, 9]), case((0, 2), indices_or_sections=2), case((3, 2), indices_or_sections=[]),
        ),
    ),
    Op(
        "unstack", np.unstack, dtypes="fib", ulps=0, torch=T("unbind", axis="dim"),
        cases=(case((3, 4)), case((3, 4), axis=1), case((2, 3, 4), axis=-2), case((1, 4)), case((3, 0))),
    ),
]  # fmt: skip

VECTORS = [((3,), (3,)), ((3, 4), (4,)), ((3,), (3, 4)), ((2, 3, 4), (4,)), ((3,), (2, 3, 4))]
MATRICES = [((3, 4), (4, 5)), ((1, 4), (4, 1)), ((3, 1), (1, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0))]
BATCHES = [
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 3, 4), (0, 4, 2)),
    ((2, 3, 0), (2, 0, 4)), ((2, 3, 0), (0, 4)), ((1, 3, 4), (2, 4, 1)), ((2, 0, 4), (4, 5)),
]  # fmt: skip

MATMUL = [
    Op("matmul", np.matmul, cases(*VECTORS, *MATRICES, *BATCHES), dtypes="fi"),
    Op(
        "linear", lambda x, w, b=0: x @ w.T + b, torch="nn.functional.linear",
        cases=cases(
            ((3, 4), (5, 4), (5,)), ((3, 4), (5, 4)), ((4,), (5, 4), (5,)), ((2, 3, 4), (5, 4), (5,)), ((2, 3, 4), (5, 4)),
            ((0, 4), (5, 4), (5,)), ((3, 0), (5, 0), (5,)), ((3, 4), (0, 4), (0,)), ((1, 1), (1, 1), (1,)), ((2, 0, 4), (5, 4), (5,)),
        ),
        composition=lambda x, w, b=None: mg.matmul(x, w.T) if b is None else mg.matmul(x, w.T) + b,
    ),
]  # fmt: skip

INDEX = [
    Op(
        "take", lambda x, indices, axis=None: np.take(x, indices, axis), dtypes="fib", ulps=0,
        torch=lambda t, x, indices, axis=0: t.index_select(x, axis, (indices % x.shape[axis]).reshape(-1)).reshape(
            (*x.shape[: axis % x.ndim], *indices.shape, *x.shape[axis % x.ndim + 1 :])),
        cases=(
            case((7,), indices=np.array([3, 0, 0, -1])), case((3, 4), indices=np.array([[2, 0], [1, -3]]), axis=0),
            case((3, 4), indices=np.array(2), axis=-1), case((2, 3, 4), indices=np.array([2, 2, 0]), axis=1),
            case((3, 4), indices=np.array([], dtype=np.int64), axis=1), case((0, 3), indices=np.array([1, 1]), axis=1),
            case((3, 4), indices=np.array([0, 2], dtype=np.int32), axis=1),
        ),
    ),
    Op(
        "take_along_axis", lambda x, indices, axis=-1: np.take_along_axis(x, indices, axis), dtypes="fib", ulps=0,
        torch=lambda t, x, indices, axis=-1: t.take_along_dim(x, indices % x.shape[axis], axis),
        cases=(
            case((3, 4), indices=np.array([[0, 3], [1, 1], [-1, 0]])), case((3, 4), indices=np.array([[2, 0, 0, -1]]), axis=0),
            case((2, 3, 4), indices=np.array([[[2], [0]], [[1], [1]]]), axis=1), case((1, 4), indices=np.array([[0], [3]])),
            case((7,), indices=np.array([6, 6, 0])), case((3, 4), indices=np.zeros((3, 0), dtype=np.int64)),
        ),
    ),
    Op(
        "sort", lambda x, axis=-1, descending=False: np.flip(np.sort(x, axis), axis) if descending else np.sort(x, axis),
        dtypes="fib", ulps=0, torch=lambda t, x, axis=-1, descending=False: t.sort(x, axis, descending)[0],
        cases=(
            case((7,)), case((3, 4)), case((3, 4), axis=0), case((2, 3, 4), axis=1, descending=True), case((0, 3)), case((3, 0)),
            case((7,), descending=True),
        ),
    ),
    Op("argsort", lambda x, axis=-1: np.argsort(x, axis, stable=True), (case((7,)), case((3, 4), axis=0), case((2, 3, 4), axis=1),
       case((0, 3)), case((3, 0))), dtypes="fib", ulps=0, gradient=False),
    Op("nonzero", np.nonzero, cases(((7,),), ((3, 4),), ((2, 3, 4),), ((0, 3),)), dtypes="fib", ulps=0, gradient=False),
    Op("unique_values", np.unique, cases(((),), ((7,),), ((3, 4),), ((0, 3),)), dtypes="fib", ulps=0, gradient=False),
    Op(
        "Tensor.__getitem__", getitem, dtypes="fib", ulps=0, ours=getitem,
        # PyTorch puts the axes elsewhere where a number precedes a slice and an array: there NumPy alone is the oracle.
        torch=lambda t, x, key: x[0][:, [1, 2]].T if key == (0, slice(None), [1, 2]) else x[tuple(t.tensor(k) if isinstance(k, list) and k else k for k in (key if isinstance(key, tuple) else (key,)))],
        cases=tuple(
            case((3, 4, 5), key=key)
            for key in [
                0, -1, (1, 2), (1, 2, 3), (), ..., None, slice(1, None), (slice(None), 2), (..., 1), (None, 1, ..., None),
                (slice(0, 0), 1), (slice(None, None, 2), slice(1, 3)), [0, 2, 2], [[0, 1], [2, 2]], (slice(None), [3, 0, 3]),
                ([0, 1], [2, 3]), ([0, 1], slice(None), [4, 4]), (slice(None), [0, 1], [4, 4]), ([[0], [2]], [1, 3]),
                (0, slice(None), [1, 2]), (slice(None), 1, [1, 2]), (None, [0, 1], [1, 2]), ([True, False, True],),
                (slice(None), [True, False, True, True]), (..., [True, False, True, True, False]), ([], slice(1, 3)),
                (slice(None, None, 2), None, [1, 1], 2),
            ]
        ),
    ),
]  # fmt: skip

NORM = [
    Op(
        "layer_norm", layer_norm, torch=torch_layer_norm, composition=compose_layer_norm, ulps=64,
        ours=lambda x, *affine, normalized_shape, eps=1e-5, weighted=True: mg.layer_norm(
            x, normalized_shape, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((4, 6), normalized_shape=6), case((4, 6), (6,), (6,), normalized_shape=6), case((4, 6), (6,), normalized_shape=(6,)),
            case((4, 6), (6,), normalized_shape=6, weighted=False), case((6,), (6,), (6,), normalized_shape=6, eps=0.1),
            case((2, 3, 4), (3, 4), (3, 4), normalized_shape=(3, 4)), case((2, 3, 4), (4,), (4,), normalized_shape=[4], eps=0.5),
            case((0, 6), (6,), (6,), normalized_shape=6), case((3, 0), (0,), (0,), normalized_shape=0),
            case((2, 0, 4), (4,), (4,), normalized_shape=4), case((67, 5), (5,), (5,), normalized_shape=5),
            case((2, 37), (37,), (37,), normalized_shape=37),
        ),
    ),
    Op(
        "rms_norm", rms_norm, composition=compose_rms_norm, ulps=64,
        torch=lambda torch, x, *affine, normalized_shape, eps=None: torch.nn.functional.rms_norm(
            x, (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape, *affine, eps=eps),
        ours=lambda x, *affine, normalized_shape, eps=None: mg.rms_norm(x, normalized_shape, *affine, eps=eps),
        cases=(
            case((4, 6), normalized_shape=6), case((4, 6), (6,), normalized_shape=(6,)), case((6,), (6,), normalized_shape=6, eps=0.1),
            case((2, 3, 4), (3, 4), normalized_shape=(3, 4), eps=1e-5), case((2, 3, 4), (4,), normalized_shape=[4], eps=0.5),
            case((0, 6), (6,), normalized_shape=6), case((3, 0), (0,), normalized_shape=0, eps=1e-5),
            case((67, 5), (5,), normalized_shape=5, eps=1e-3), case((2, 37), (37,), normalized_shape=37),
        ),
    ),
    Op(
        "group_norm", group_norm, composition=compose_group_norm, ulps=64,
        # PyTorch's backward fails where there is a bias but no weight (2.13)
        torch=lambda torch, x, *affine, num_groups, eps=1e-5, weighted=True: channels(torch.nn.functional.group_norm(
            x, num_groups, *(affine if weighted else ()), eps=eps), *(() if weighted else affine), weighted=False),
        ours=lambda x, *affine, num_groups, eps=1e-5, weighted=True: mg.group_norm(
            x, num_groups, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((4, 6), num_groups=2), case((4, 6), (6,), (6,), num_groups=1, eps=0.1), case((3, 6, 4), (6,), (6,), num_groups=2),
            case((2, 4, 3, 3), (4,), num_groups=2), case((2, 4, 3, 3), (4,), num_groups=2, weighted=False),
            case((2, 4, 3, 2, 2), (4,), (4,), num_groups=4), case((2, 2, 5, 19), (2,), (2,), num_groups=1),
            case((0, 4, 3), (4,), (4,), num_groups=2), case((66, 2, 3), (2,), (2,), num_groups=2),
        ),
    ),
    Op(
        "instance_norm", instance_norm, ulps=64,
        composition=lambda x, *affine, eps=1e-5: compose_group_norm(x, *affine, num_groups=x.shape[1], eps=eps),
        torch=lambda torch, x, *affine, eps=1e-5: torch.nn.functional.instance_norm(x, None, None, *affine, eps=eps),
        ours=lambda x, *affine, eps=1e-5: mg.instance_norm(x, *affine, eps=eps),
        cases=(
            case((3, 4, 5)), case((3, 4, 5), (4,), (4,), eps=0.1), case((2, 3, 4, 3), (3,), (3,)), case((2, 3, 4, 3), (3,)),
            case((2, 2, 2, 3, 2), (2,), (2,)), case((2, 1, 71), (1,), (1,)), case((66, 1, 5), (1,), (1,)),
        ),
    ),
    Op(
        "engine.batch_norm_train", batch_norm, torch=torch_batch_norm, composition=compose_batch_norm, ulps=64,
        ours=lambda x, *affine, eps=1e-5, weighted=True: batch_norm_train(x, *(affine if weighted else (None, *affine)), eps=eps)[0],
        # a broadcast batch has no variance: then the gradient is of the size of 1 / √eps
        cases=(
            case((7, 5), eps=0.1), case((7, 5), (5,), (5,), eps=0.3), case((7, 5), (5,), eps=0.1), case((7, 5), (5,), weighted=False, eps=0.1),
            case((2, 3, 4), (3,), (3,), eps=0.1), case((3, 4, 5, 3), (4,), (4,), eps=0.1), case((2, 2, 2, 3, 2), (2,), (2,), eps=0.1),
            case((2, 1), (1,), (1,), eps=0.1), case((1, 3, 5), (3,), (3,), eps=0.1), case((67, 3), (3,), (3,), eps=0.1),
            case((2, 2, 8, 9), (2,), (2,), eps=0.1),
        ),
    ),
    Op(
        "engine.batch_norm_eval", given_batch_norm(np.sqrt), torch=lambda torch, *xs, **options: given_batch_norm(torch.sqrt)(*xs, **options),
        composition=given_batch_norm(mg.sqrt), ulps=64,
        domain=((-2, 2), (-2, 2), (0.5, 2), (-2, 2), (-2, 2)),
        ours=lambda x, mean, var, *affine, eps=1e-5, weighted=True: batch_norm_eval(
            x, mean, var, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((7, 5), (5,), (5,)), case((7, 5), (5,), (5,), (5,), (5,), eps=0.1), case((7, 5), (5,), (5,), (5,)),
            case((7, 5), (5,), (5,), (5,), weighted=False), case((1, 3), (3,), (3,), (3,), (3,)), case((2, 3, 4), (3,), (3,), (3,), (3,)),
            case((3, 2, 8, 9), (2,), (2,), (2,), (2,)), case((2, 2, 2, 3, 2), (2,), (2,), (2,), (2,)),
            case((0, 3), (3,), (3,), (3,), (3,)), case((2, 3, 0), (3,), (3,), (3,), (3,)),
        ),
    ),
]  # fmt: skip

LABELS = np.array([2, 0, 1, 1, 2])
SOFTMAX = [
    Op("softmax", softmax, ROWS, torch=lambda t, x, axis=-1: t.softmax(x, axis), composition=compose_softmax),
    Op("log_softmax", lambda x, axis=-1: np.log(softmax(x, axis)), ROWS, torch=lambda t, x, axis=-1: t.log_softmax(x, axis),
       composition=lambda x, axis=-1: x - mg.log(mg.sum(mg.exp(x), axis, keepdims=True))),
    Op(
        "cross_entropy", cross_entropy, torch="nn.functional.cross_entropy", composition=compose_cross_entropy,
        cases=tuple(
            case(shape, target=target, **options)
            for shape, target in [((5, 3), LABELS), ((3,), np.array(1)), ((1, 3), np.array([2], dtype=np.int32))]
            for options in [
                {}, {"reduction": "sum"}, {"reduction": "none"}, {"label_smoothing": 0.2}, {"weight": np.array([0.5, 2.0, 1.25])},
                {"weight": np.array([0.5, 2.0, 1.25]), "label_smoothing": 0.3, "reduction": "none"},
                {"weight": np.array([0.5, 2.0, 1.25]), "label_smoothing": 0.3},
            ]
        ) + tuple(
            case((5, 3), target=LABELS, **options)
            for options in [
                {"ignore_index": 1}, {"ignore_index": 2, "label_smoothing": 0.1, "weight": np.array([0.5, 2.0, 1.25])},
                {"ignore_index": 0, "reduction": "none", "label_smoothing": 0.5}, {"label_smoothing": 1.0},
            ]
        ) + (case((0, 3), target=np.zeros(0, dtype=np.int64), reduction="sum"),),
    ),
]  # fmt: skip

ACTIVATION = [
    Op("relu", lambda x: np.maximum(x, 0), ONE, ulps=0, composition=lambda x: mg.where(x > 0, x, 0)),
    Op("sigmoid", sigmoid, ONE, composition=lambda x: 1 / (1 + mg.exp(-x))),
    Op("silu", lambda x: x * sigmoid(x), ONE, torch="nn.functional.silu", composition=lambda x: x / (1 + mg.exp(-x))),
    Op("gelu", elementwise(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))), ONE, torch="nn.functional.gelu",
       composition=lambda x: x * (1 + mg.erf(x / math.sqrt(2))) / 2),
    Op("softplus", lambda x: np.log1p(np.exp(x)), ONE, torch="nn.functional.softplus", composition=lambda x: mg.log(1 + mg.exp(x))),
    Op("leaky_relu", lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x), torch="nn.functional.leaky_relu",
       cases=(*ONE, case((3, 4), negative_slope=0.3))),
    Op("elu", lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)), torch="nn.functional.elu",
       cases=(*ONE, case((3, 4), alpha=0.7))),
    Op("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), ONE, torch=lambda t, x: t.clamp(x + 3, 0, 6) / 6, domain=(-5, 5)),
    Op(
        "dropout", lambda x, p, training: x * (p < 1), ulps=0, torch="nn.functional.dropout",
        cases=(case((3, 4), p=0.5, training=False), case((3, 4), p=0.0, training=True), case((3, 4), p=1.0, training=True)),
    ),
]  # fmt: skip


def einsum_case(subscripts, *shapes):
    return case(*shapes, subscripts=subscripts)


PRODUCTS = [
    Op("outer", np.outer, cases(((3,), (4,)), ((1,), (1,)), ((0,), (3,))), dtypes="fi"),
    Op(
        "vecdot", lambda x, y, axis=-1: np.vecdot(x, y, axis=axis), dtypes="fi", torch=lambda t, x, y, axis=-1: t.linalg.vecdot(x, y, dim=axis),
        cases=(case((4,), (4,)), case((3, 4), (3, 4)), case((3, 4), (4,)), case((3, 4), (3, 4), axis=0), case((2, 1, 4), (3, 4)), case((3, 0), (3, 0))),
    ),
    Op(
        "tensordot", np.tensordot, dtypes="fi", torch=T("tensordot", axes="dims"),
        cases=(
            case((2, 3, 4), (3, 4, 5)), case((2, 3), (3, 4), axes=1), case((2, 3), (4,), axes=0), case((2, 3, 4), (4, 5, 2), axes=((0, 2), (2, 0))),
            case((2, 3, 4), (4, 5, 2), axes=([-1], [0])), case((2, 3), (2, 3)), case((2, 0), (0, 3), axes=1), case((0, 3), (3, 4), axes=1),
            case((3, 0, 2), (2, 4), axes=1),
        ),
    ),
    Op(
        "einsum", lambda *xs, subscripts: np.einsum(subscripts, *xs), ours=lambda *xs, subscripts: mg.einsum(subscripts, *xs),
        torch=lambda t, *xs, subscripts: t.einsum(subscripts, *xs), dtypes="fi",
        cases=(
            einsum_case("ij,jk->ik", (2, 3), (3, 4)), einsum_case("ij,jk", (2, 3), (3, 4)), einsum_case("ij->ji", (2, 3)),
            einsum_case("ij->", (2, 3)), einsum_case("ii->i", (3, 3)), einsum_case("ii", (3, 3)), einsum_case("iij->j", (3, 3, 2)),
            einsum_case("iii->i", (3, 3, 3)), einsum_case("i,j->ji", (2,), (3,)), einsum_case("i,i->i", (3,), (3,)), einsum_case("i,i", (3,), (3,)),
            einsum_case("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), einsum_case("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
            einsum_case("i...,i->...", (3, 2, 4), (3,)), einsum_case("...,...", (2, 3), (3,)), einsum_case("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
            einsum_case("ij,jk,ik->", (2, 3), (3, 4), (2, 4)), einsum_case("i,ij,j->", (2,), (2, 3), (3,)), einsum_case("ba", (2, 3)),
            einsum_case("ij,kj->ikj", (2, 3), (4, 3)), einsum_case(" i j , j k -> k i ", (2, 3), (3, 4)), einsum_case(",->", (), ()),
            einsum_case("ij,jk->ik", (2, 0), (0, 3)), einsum_case("ij,jk->k", (0, 3), (3, 2)), einsum_case("i,ijj->", (2,), (2, 3, 3)),
        ),
    ),
    Op("transpose", np.transpose, dtypes="fib", ulps=0, torch=lambda t, x, axes=None: x.permute(axes or tuple(range(x.ndim))[::-1]),
       cases=(case((2, 3, 4)), case((2, 3, 4), axes=(1, 2, 0)), case((2, 3, 4), axes=(-1, 0, 1)), case(()), case((4,)))),
    Op(
        "roll", np.roll, dtypes="fib", ulps=0, torch=lambda t, x, shift, axis=None: t.roll(x, shift, axis),
        cases=(
            case((7,), shift=2), case((3, 4), shift=-5), case((3, 4), shift=1, axis=0), case((3, 4), shift=(1, -1), axis=(0, 1)),
            case((3, 4), shift=4, axis=-1), case((3, 4), shift=(1, 1), axis=(1, 1)), case((0, 3), shift=1, axis=0), case((3, 0), shift=1),
        ),
    ),
    Op(
        "repeat", np.repeat, ours=lambda x, repeats, axis=None: mg.repeat(x, repeats, axis=axis), dtypes="fib", ulps=0, torch=T("repeat_interleave", axis="dim"),
        cases=(
            case((3,), repeats=2), case((2, 3), repeats=3), case((2, 3), repeats=2, axis=0), case((2, 3), repeats=np.array([2, 0, 1]), axis=1),
            case((2, 3), repeats=2, axis=-1), case((2, 3), repeats=0, axis=0), case((0, 3), repeats=2, axis=1),
        ),
    ),
    Op(
        "tile", np.tile, ours=lambda x, reps: mg.tile(x, reps), dtypes="fib", ulps=0,
        torch=lambda t, x, reps: t.tile(x, reps if isinstance(reps, tuple) else (reps,)),
        cases=tuple(case(shape, reps=n) for shape, n in [
            ((3,), 2), ((2, 3), 2), ((2, 3), (2, 3)), ((2, 3), (2, 1, 2)), ((3,), (2, 2)), ((2, 3), (0, 1)), ((), 3), ((0, 3), (2, 2)), ((3,), 1)]),
    ),
    Op(
        "pad", lambda x, pad_width, value=0: np.pad(x, pad_width, constant_values=value), dtypes="fib", ulps=0,
        ours=lambda x, pad_width, value=0: mg.pad(x, pad_width, value=value),
        torch=lambda t, x, pad_width, value=0.0: t.nn.functional.pad(
            x, [n for w in np.broadcast_to(pad_width, (x.ndim, 2))[::-1].tolist() for n in w], value=value),
        cases=(
            case((3,), pad_width=1), case((2, 3), pad_width=(1, 2)), case((2, 3), pad_width=((1, 0), (0, 2))), case((2, 3), pad_width=1, value=3),
            case((2, 3), pad_width=0), case((0, 3), pad_width=1), case((2, 3), pad_width=[(0, 0), (1, 1)], value=1),
        ),
    ),
]  # fmt: skip

TRIANGLES = (case((3, 4)), case((4, 3), k=1), case((2, 3, 3), k=-1), case((0, 3)), case((3, 3), k=9))
CREATION = [
    Op("tril", lambda x, k=0: np.tril(x, k), TRIANGLES, torch=T("tril", k="diagonal"), dtypes="fib", ulps=0),
    Op("triu", lambda x, k=0: np.triu(x, k), TRIANGLES, torch=T("triu", k="diagonal"), dtypes="fib", ulps=0),
    Op(
        "meshgrid", np.meshgrid, torch=T("meshgrid"), dtypes="fib", ulps=0,
        cases=(case((2,), (3,), indexing="xy"), case((2,), (3,), (4,), indexing="ij"), case((2,), (3,), (4,), indexing="xy"), case((3,), indexing="ij"),
               case((0,), (2,), indexing="ij")),
    ),
]  # fmt: skip

ALL = [
    *ARITHMETIC, *LOGIC, *FUNCTIONS, *TRIGONOMETRY, *LAYOUT, *REDUCE, *JOIN, *MATMUL, *INDEX, *NORM, *SOFTMAX, *ACTIVATION,
    *PRODUCTS, *CREATION,
]  # fmt: skip
assert all(a.name != b.name for a, b in pairwise(sorted(ALL, key=lambda op: op.name))), (
    "an operation stands twice in the table"
)
