"""Functions of one variable: the table, accuracy in units in the last place, special values, powers, angles."""

import math

import numpy as np
import pytest
from checks import Suite, array, equals, near, refuses, tensor
from table import FUNCTIONS, TRIGONOMETRY

import minigrad as mg
from minigrad.nn import functional as F


class TestTable(Suite):
    ops = FUNCTIONS + TRIGONOMETRY


# ── accuracy ──────────────────────────────────────────────────────────────────────────────────────


def vectorized(f):
    return np.vectorize(f, otypes=[float])


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


# name: (function, reference in float64, inputs from, to, largest error of float32 in units in the last place)
# Two-sided inputs have both signs and every magnitude from 1e-40 up to the bound.
ACCURACY = {
    "exp": (mg.exp, np.exp, -103, 88.7, 1.5),
    "expm1": (mg.expm1, np.expm1, -103, 88.7, 2),
    "exp2": (mg.exp2, np.exp2, -148, 127.9, 1.5),
    "log": (mg.log, np.log, 0, 3e38, 1.5),
    "log1p": (mg.log1p, np.log1p, -0.9999, 3e38, 2),
    "log2": (mg.log2, np.log2, 0, 3e38, 1.5),
    "log10": (mg.log10, np.log10, 0, 3e38, 2),
    "sqrt": (mg.sqrt, np.sqrt, 0, 3e38, 0.5),
    "rsqrt": (mg.rsqrt, lambda x: 1 / np.sqrt(x), 0, 3e38, 1.5),
    "reciprocal": (mg.reciprocal, lambda x: 1 / x, -3e38, 3e38, 0.5),
    "sin": (mg.sin, np.sin, -1e6, 1e6, 1.5),
    "cos": (mg.cos, np.cos, -1e6, 1e6, 1.5),
    "tan": (mg.tan, np.tan, -1e4, 1e4, 1.5),
    "asin": (mg.asin, np.arcsin, -1, 1, 1.5),
    "acos": (mg.acos, np.arccos, -1, 1, 1.5),
    "atan": (mg.atan, np.arctan, -3e38, 3e38, 1.5),
    "sinh": (mg.sinh, np.sinh, -89, 89, 2),
    "cosh": (mg.cosh, np.cosh, -89, 89, 2),
    "tanh": (mg.tanh, np.tanh, -3e38, 3e38, 3),
    "asinh": (mg.asinh, np.arcsinh, -3e38, 3e38, 2),
    "acosh": (mg.acosh, np.arccosh, 1, 3e38, 2),
    "atanh": (mg.atanh, np.arctanh, -0.9999, 0.9999, 2),
    "erf": (mg.erf, vectorized(math.erf), -3e38, 3e38, 2),
    "sigmoid": (mg.sigmoid, sigmoid, -87, 3e38, 4),
    "silu": (F.silu, lambda x: x * sigmoid(x), -87, 3e38, 4),
    "softplus": (F.softplus, softplus, -87, 3e38, 4),
    "gelu": (F.gelu, vectorized(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2))), -12, 3e38, 6),
}


def inputs(low, high, rng, dtype, n=20_000):
    """Return values of every magnitude, more of them small, and a fine grid over the inner part of the range."""
    smallest = 1e-40 if dtype == "float32" else 1e-310
    parts = [np.linspace(max(low, -20), min(high, 20), n)]
    if high > 0:
        parts.append(np.exp(rng.uniform(math.log(max(low, smallest)), math.log(high), n)))
    if low < 0:
        parts.append(-np.exp(rng.uniform(math.log(smallest), math.log(-low), n)))
    values = np.concatenate(parts).astype(dtype)
    return values[(values > low) & (values < high)]


def errors(ours, exact, dtype):
    """Return |ours - exact| in units in the last place of the exact value; subnormals have the smallest unit."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        unit = np.abs(np.spacing(np.where(np.abs(rounded) < np.finfo(dtype).max, rounded, 1e38)).astype(np.float64))
        found = np.abs(ours.astype(np.float64) - exact) / unit
    return np.where(ours == rounded, 0, found)


# The largest errors of CUDA's functions, where they are larger: CUDA C++ Programming Guide, Mathematical Functions.
CUDA = {"exp": 2, "exp2": 2, "tan": 4, "atanh": 3}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(name, dtype, device, rng):
    """float64 is within four units of NumPy, whose own error is one, as the C library's is."""
    function, reference, low, high, bound = ACCURACY[name]
    if dtype == "float64":
        low, bound = -1 if name == "gelu" else low, 5  # below, the rounding of x / sqrt(2) is magnified in both
    elif device != "cpu":
        bound = CUDA.get(name, bound)
    x = inputs(low, high, rng, dtype, 20_000 if dtype == "float32" else 2_000)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    found = errors(array(function(tensor(x, device))), exact, dtype)
    worst = np.argmax(found)
    assert found[worst] <= bound, f"{found[worst]:.2f} units at {x[worst]!r}"


# float32 derivatives of the fused kernels, in units in the last place of 1, as they pass through zero
DERIVATIVES = {
    "tanh": (mg.tanh, lambda x: 1 / np.cosh(np.minimum(np.abs(x), 300)) ** 2),
    "sigmoid": (mg.sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
    "silu": (F.silu, lambda x: sigmoid(x) * (1 + x * sigmoid(-x))),
    "softplus": (F.softplus, sigmoid),
    "gelu": (
        F.gelu,
        vectorized(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)) + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)),
    ),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_float32_accuracy_of_derivatives(name, device, rng):
    function, reference = DERIVATIVES[name]
    values = inputs(-80, 80, rng, "float32", 5_000)
    x = tensor(values, device, True)
    g = rng.uniform(0.5, 2, values.shape).astype(np.float32)
    function(x).backward(tensor(g, device))
    exact = reference(values.astype(np.float64)) * g
    near(x.grad, exact, rtol=0, atol=8 * 2**-23 * g.max())


# name: from where to where the derivative keeps its digits, and the largest error of float32 and of float64 in units in
# the last place of the value. Left out are its zeros (silu's near -1.3, gelu's near -0.75) and where it is subnormal; of
# the sigmoid, whose derivative is computed from the value, also where the value is nearly 1.
RELATIVE = {
    "sigmoid": ([(-87, 1)], 5), "silu": ([(-87, -3), (-0.5, 100)], 6), "softplus": ([(-87, 100)], 4),
    "gelu": ([(-12, -2), (-0.3, 100)], 10),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", RELATIVE)
def test_relative_accuracy_of_derivatives(name, dtype, device, rng):
    """Small derivatives, far from the center, are as accurate as large ones."""
    function, reference = DERIVATIVES[name]
    ranges, bound = RELATIVE[name]
    for low, high in ranges:
        values = np.concatenate([np.linspace(low, high, 20_000), rng.uniform(low, high, 20_000)]).astype(dtype)
        if (name, dtype) == ("gelu", "float64"):
            values = values[np.abs(values) < 3]  # beyond, the rounding of x / sqrt(2) is magnified in both
        x = tensor(values, device, True)
        y = function(x)
        y.backward(tensor(np.ones_like(values), device))
        found = errors(array(x.grad), reference(values.astype(np.float64)), dtype)
        worst = np.argmax(found)
        assert found[worst] <= bound, f"{found[worst]:.2f} units at {values[worst]!r}"


# ── special values ────────────────────────────────────────────────────────────────────────────────

SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-38, -1e-38, 3.4e38, -3.4e38, 100.0, -100.0,
    1000.0, -1000.0, 1e10,
]  # fmt: skip


@pytest.mark.parametrize("name", ACCURACY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_special_values(name, dtype, device):
    """Infinities, NaN, zeros of either sign, subnormal and huge numbers: as the exact function, rounded."""
    function, reference, *_, bound = ACCURACY[name]
    x = np.array(SPECIAL).astype(dtype)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
        if name == "silu":
            exact = np.where(x == -np.inf, np.nan, exact)  # -inf * 0
        expected = exact.astype(dtype)
    ours = array(function(tensor(x, device)))
    for other in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(other(ours), other(expected), err_msg=f"{other.__name__} of {x}")
    finite = np.isfinite(expected)
    tiny = np.finfo(dtype).tiny
    assert np.all((errors(ours[finite], exact[finite], dtype) <= max(bound, 6)) | (np.abs(exact[finite]) < tiny))
    assert np.all(np.abs(ours[finite & (np.abs(exact) < tiny)]) <= tiny)
    zeros = (expected == 0) & (ours == 0) & (exact == 0)
    np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(expected[zeros]), err_msg=f"zeros of {x[zeros]}")


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign", "abs", "square"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_exact_functions(name, dtype, device):
    values = np.array([*SPECIAL, 0.4999999701976776, 1.5, 2.5, -1.5, -2.5, 8388609.0, -8388609.0, 2**52 + 0.5]).astype(
        dtype
    )
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(values)
    ours = array(getattr(mg, name)(tensor(values, device)))
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(np.signbit(ours[expected == 0]), np.signbit(expected[expected == 0]))


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite", "signbit"])
def test_tests(name, device):
    for dtype in ("float32", "float64", "int64", "bool"):
        with np.errstate(all="ignore"):
            values = np.array(SPECIAL if dtype.startswith("float") else [0, 1]).astype(dtype)
        y = getattr(mg, name)(tensor(values, device))
        assert y.dtype == "bool"
        equals(y, getattr(np, name)(values))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["hypot", "logaddexp", "copysign", "nextafter"])
def test_pairs_of_special_values(name, dtype, device):
    """Infinities, NaN, zeros of either sign, the smallest and the largest numbers, each with each."""
    limits = np.finfo(dtype)
    sizes = [0.0, 1.0, 3.0, limits.smallest_subnormal, limits.tiny, limits.max / 3, limits.max, np.inf, np.nan]
    if name == "logaddexp":
        sizes[3:5] = [1e-8, 80.0]  # the difference of subnormals is lost beside ln 2
    a = np.array([sign * size for size in sizes for sign in (1, -1)], dtype)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a[:, None], a)
    ours = array(getattr(mg, name)(tensor(a, device)[:, None], tensor(a, device)))
    exact = name in ("copysign", "nextafter")
    np.testing.assert_allclose(ours, expected, rtol=0 if exact else 4 * limits.eps, atol=0)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(ours[number]), np.signbit(expected[number]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_magnitudes_of_pairs(dtype, device, rng):
    """hypot and logaddexp of numbers of every magnitude, to a few units of what is added."""
    a, b = (inputs(-1e30, 1e30, rng, dtype, 3_000) for _ in range(2))
    b = rng.permutation(np.resize(b, a.shape))
    for name in ("hypot", "logaddexp"):
        expected = getattr(np, name)(a.astype(np.longdouble), b)
        larger, magnified = 0, 1
        if name == "logaddexp":  # its terms may cancel, and e^-|a - b| magnifies the rounding of a - b
            larger, magnified = np.maximum(a, b), 1 + np.abs(a - b)
        scale = np.abs(larger) + magnified * np.abs(expected - larger)
        error = np.abs(array(getattr(mg, name)(tensor(a, device), tensor(b, device))) - expected)
        assert (error / (scale * np.finfo(dtype).eps + np.finfo(dtype).smallest_subnormal)).max() <= 6, name


def test_gradients_of_pairs_at_their_limits(device):
    """Halves for equal infinities, 1 and 0 for unequal ones, no gradient of hypot at the origin, signs of zeros."""

    def gradient(function, a, b):
        x, y = (tensor(np.array(v), device, True) for v in (a, b))
        return [g.tolist() for g in mg.grad(function(x, y).sum(), [x, y])]

    inf = math.inf
    assert gradient(mg.logaddexp, [inf, -inf, inf, 0.0, 1e4], [inf, -inf, 0.0, inf, -1e4]) == [
        [0.5, 0.5, 1, 0, 1], [0.5, 0.5, 0, 1, 0],
    ]  # fmt: skip
    assert gradient(mg.hypot, [0.0, 3 * 2.0**600, -1.0], [0.0, 4 * 2.0**600, 0.0]) == [[0, 0.6, -1], [0, 0.8, 0]]
    assert gradient(mg.copysign, [2.0, -2.0, 2.0, 0.0], [-0.0, 1.0, 5.0, -1.0]) == [[-1, -1, 1, 0], [0, 0, 0, 0]]
    tie = tensor(np.array([1.0]), device, True)  # the second derivative of logaddexp where both are equal
    assert mg.gradcheck(mg.logaddexp, [tie, tensor(np.array([1.0]), device, True)], order=2)
    assert not mg.nextafter(tie, 2.0).requires_grad


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_gradient_zero(name, device):
    x = tensor(np.array([-1.5, 0.0, 2.0, 2.7]), device, True)
    y = getattr(mg, name)(x)
    assert y.requires_grad
    y.backward(tensor(np.array([1.0, 2.0, 3.0, 4.0]), device))
    assert x.grad.tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round"])
def test_steps_pass_integers(name, device):
    x = tensor(np.array([3, -4], np.int32), device)
    y = getattr(mg, name)(x)
    assert y.dtype == "int32"
    assert y.tolist() == [3, -4]


def test_gradients_at_zero(device):
    """abs: 0; sqrt and log: infinite; rsqrt: -infinite; x·|x|: smooth."""
    x = mg.zeros(1, dtype="float64", device=device, requires_grad=True)
    assert mg.grad(mg.abs(x), x).tolist() == [0.0]
    assert mg.grad(mg.sqrt(x), x).tolist() == [math.inf]
    assert mg.grad(mg.log(x), x).tolist() == [math.inf]
    assert mg.grad(mg.rsqrt(x), x).tolist() == [-math.inf]
    assert mg.grad(x * mg.abs(x), x).tolist() == [0.0]
    p = tensor(np.array([2.0]), device, True)
    assert mg.grad(x**p, p).tolist() == [0.0]


# ── powers ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 2.0, 7, np.float32(2.5), np.int64(3)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constant_powers(exponent, dtype, device, rng):
    values = rng.uniform(0.5, 2, 37).astype(dtype)
    x = tensor(values, device, True)
    y = x**exponent
    assert y.dtype == dtype
    n, exact = float(exponent), values.astype(float)
    rtol = 8 * np.finfo(dtype).eps
    near(y, exact**n, rtol=rtol)
    g = rng.standard_normal(37).astype(dtype)
    y.backward(tensor(g, device))
    near(x.grad, g * n * exact ** (n - 1), rtol=rtol)
    if dtype == "float64":
        assert mg.gradcheck(lambda x: x**exponent, x, order=3 if dtype == "float64" else 1, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("negative", [False, True])
def test_float32_accuracy_of_powers(negative, device, rng):
    """Results of every magnitude, from bases of every magnitude and exponents that are whole for negative bases."""
    x = np.exp(rng.uniform(-87, 88, 100_000)).astype(np.float32)
    p = (rng.uniform(-148, 127.9, x.size) / np.log2(x)).astype(np.float32)
    if negative:
        x, p = -x, np.rint(p)
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) ** p
    assert (np.sign(exact) == -1).any() == negative
    found = errors(array(tensor(x, device) ** tensor(p, device)), exact, "float32")
    worst = np.argmax(found)
    bound = 0.6 if device == "cpu" else 4  # CUDA's powf
    assert found[worst] <= bound, f"{found[worst]:.2f} units at {x[worst]!r} to the power {p[worst]!r}"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5])
def test_a_constant_exponent_is_no_other(exponent, dtype, device):
    """x**n is x**tensor(n) bit for bit, its gradients included, also at zeros and infinities and of either sign."""
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.25, -2.25, np.inf, -np.inf, np.nan, 3.0, 1e-30], dtype)
    x, n = tensor(values, device, True), mg.tensor(exponent, dtype=dtype, device=device)
    with np.errstate(all="ignore"):
        expected = np.power(values, np.full(values.shape, exponent, dtype))
        slope = exponent * np.power(values, np.full(values.shape, exponent - 1, dtype)) if exponent else values * 0
    ones = mg.ones(x.shape, dtype=dtype, device=device)
    for y in (x**exponent, x**n):
        near(y, expected, rtol=2 * np.finfo(dtype).eps)
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(array(y)[zeros]), np.signbit(expected[zeros]))
        found = array(mg.grad(y, x, ones))
        np.testing.assert_allclose(found, np.where(exponent == 0, 0, slope), rtol=4 * np.finfo(dtype).eps)
    equals(x**exponent, array(x**n))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_powers_of_integers(dtype, device):
    """Exact, with wrapping on overflow; no negative exponents."""
    assert (tensor(np.array([True, False]), device) ** 2).tolist() == [1, 0]
    base, exponent = np.meshgrid(np.arange(-7, 8, dtype=dtype), np.arange(0, 40, dtype=dtype))
    with np.errstate(all="ignore"):
        expected = base**exponent
    x, n = tensor(base, device), tensor(exponent, device)
    equals(x**n, expected)
    for k in (0, 1, 2, 3, 31):
        y = x**k
        assert y.dtype == dtype
        equals(y, base ** np.asarray(k, dtype))
    equals(2**n, np.asarray(2, dtype) ** exponent)
    refuses(ValueError, "power", "integers to negative powers", mg.power, x, -1)
    refuses(ValueError, "power", "integers to negative powers", mg.power, x, n - 3)
    assert (x**0.5).dtype == "float32"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_powers_of_special_values(dtype, device):
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, np.inf, -np.inf, np.nan, 3.0, -3.0], dtype)
    with np.errstate(all="ignore"):
        expected = values[:, None] ** values
    ours = array(tensor(values, device)[:, None] ** tensor(values, device))
    np.testing.assert_allclose(ours, expected, rtol=2 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(np.signbit(ours[expected == 0]), np.signbit(expected[expected == 0]))


# ── dtypes and errors ─────────────────────────────────────────────────────────────────────────────


KEEP_INTEGERS = "square power abs sign floor ceil trunc round nan_to_num".split()


@pytest.mark.parametrize(
    "op", [op for op in FUNCTIONS + TRIGONOMETRY if op.name not in KEEP_INTEGERS], ids=lambda op: op.name
)
def test_integers_become_float32(op, device):
    function, count = getattr(mg, op.name), len(op.cases[0].shapes)
    y = function(*[tensor(np.array([1, 2, 3]), device)] * count)
    assert y.dtype == ("bool" if op.name in ("isnan", "isinf", "isfinite", "signbit") else "float32")
    equals(y, array(function(*[tensor(np.array([1.0, 2.0, 3.0], np.float32), device)] * count)))


def test_errors(device):
    flags = mg.ones(2, dtype="bool", device=device)
    refuses(TypeError, "sign", "bool", mg.sign, flags)
    refuses(TypeError, "power", "bool", mg.power, flags, flags)
    refuses(TypeError, "square", "bool", mg.square, flags)
    refuses(TypeError, "exp", "str", mg.exp, "one")
    refuses(TypeError, "abs", "NoneType", mg.abs, None)
    refuses(ValueError, "power", ["(2,)", "(3,)"], mg.power, mg.ones(2, device=device), mg.ones(3, device=device))


# ── angles ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_quadrants(dtype, device):
    """atan2 of zeros and infinities of either sign."""
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    ours = array(mg.atan2(tensor(values, device)[:, None], tensor(values, device)))
    np.testing.assert_allclose(ours, np.arctan2(values[:, None], values), rtol=4 * np.finfo(dtype).eps)
    zeros = ours == 0
    np.testing.assert_array_equal(np.signbit(ours[zeros]), np.signbit(np.arctan2(values[:, None], values)[zeros]))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_large_angles(name, device):
    """float32 angles whose spacing is far larger than the period, alone and among small ones."""
    values = np.array([2.0**24 - 1, 2.0**24, 1e8, -3e15, 1e30, 3.4e38, 0.5, -1.0], np.float32)
    for x in (values, np.concatenate([np.linspace(-9, 9, 300, dtype=np.float32), values])):
        exact = getattr(np, name)(x.astype(np.float64))
        near(getattr(mg, name)(tensor(x, device)), exact, rtol=2e-7, atol=1e-7)


def test_multiples_of_pi(device):
    """sin keeps its digits near its zeros, as the range reduction is not in float32."""
    x = (np.arange(1, 2000) * math.pi).astype(np.float32)
    near(mg.sin(tensor(x, device)), np.sin(x.astype(np.float64)), rtol=3e-7)


def test_saturation(device):
    """tanh and its gradient far out: exactly ±1 and 0, never NaN."""
    x = tensor(np.array([-1e30, -50, 50, 1e30], np.float32), device, True)
    y = mg.tanh(x)
    assert y.tolist() == [-1, -1, 1, 1]
    y.backward(mg.ones(4, device=device))
    assert x.grad.tolist() == [0, 0, 0, 0]
