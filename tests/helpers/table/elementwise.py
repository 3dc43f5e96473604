"""Arithmetic, logic, functions of one number, activations."""

import math

import numpy as np

import minigrad as mg
from table.entry import NONZERO, ONE, POSITIVE, TWO, Op, T, case, cases, elementwise


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return elementwise(lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)))(x)


def prelu(lib):
    return lambda x, weight: lib.where(x > 0, x, lib.reshape(weight, (-1,) + (1,) * max(x.ndim - 2, 0)) * x)


def glu(lib):
    def glu(x, axis=-1):
        a, b = lib.split(x, 2, axis=axis)
        return a / (1 + lib.exp(-b))

    return glu


CONDITION = np.array([[True, False, True, False], [False, False, True, True], [True, True, False, True]])

ARITHMETIC = [
    Op("add", np.add, TWO, dtypes="fib"),
    Op("subtract", np.subtract, TWO, dtypes="fi"),
    Op("multiply", np.multiply, TWO, dtypes="fib"),
    Op("divide", np.divide, TWO, domain=((-2, 2), NONZERO), dtypes="fi"),
    Op("reciprocal", lambda x: 1 / x, ONE, domain=NONZERO),
    Op("floor_divide", np.floor_divide, TWO, domain=((-9, 9), NONZERO), dtypes="fi", ulps=0,
       torch=lambda t, x, y: t.floor(x / y)),
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
    Op("bitwise_left_shift", np.left_shift, TWO, dtypes="i", domain=((-99, 99), (0, 31)), ulps=0, gradient=False),
    Op("bitwise_right_shift", np.right_shift, TWO, dtypes="i", domain=((-99, 99), (0, 31)), ulps=0, gradient=False),
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
    Op("hypot", np.hypot, TWO, composition=lambda x, y: mg.sqrt(x * x + y * y)),
    Op("logaddexp", np.logaddexp, TWO, composition=lambda x, y: mg.log(mg.exp(x) + mg.exp(y))),
    Op("erf", elementwise(math.erf), ONE),
    Op("abs", np.abs, ONE, dtypes="fib", ulps=0),
    Op("sign", np.sign, ONE, dtypes="fi", ulps=0),
    Op("copysign", np.copysign, TWO, ulps=0),
    Op("floor", np.floor, ONE, ulps=0),
    Op("ceil", np.ceil, ONE, ulps=0),
    Op("trunc", np.trunc, ONE, ulps=0),
    Op("round", np.round, ONE, ulps=0),
    Op("isnan", np.isnan, ONE, gradient=False),
    Op("isinf", np.isinf, ONE, gradient=False),
    Op("isfinite", np.isfinite, ONE, gradient=False),
    Op("signbit", np.signbit, ONE, gradient=False),
    Op(
        "nan_to_num", np.nan_to_num, ulps=0,
        cases=(*ONE, case((3, 4), nan=1.0, posinf=2.0, neginf=-3.0)),
    ),
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

ACTIVATION = [
    Op("relu", lambda x: np.maximum(x, 0), ONE, ulps=0, composition=lambda x: mg.where(x > 0, x, 0)),
    Op("sigmoid", sigmoid, ONE, composition=lambda x: 1 / (1 + mg.exp(-x))),
    Op("silu", lambda x: x * sigmoid(x), ONE, torch="nn.functional.silu", composition=lambda x: x / (1 + mg.exp(-x))),
    Op("gelu", gelu, torch="nn.functional.gelu", cases=(*ONE, *(case(shape, approximate="tanh") for shape in [(7,), (2, 3, 19)])),
       composition=lambda x, approximate="none": x * (1 + (
           mg.erf(x / math.sqrt(2)) if approximate == "none" else mg.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))) / 2),
    Op("softplus", lambda x, beta=1, threshold=np.inf: np.where(x * beta > threshold, x, np.log1p(np.exp(x * beta)) / beta),
       torch="nn.functional.softplus",
       cases=(*ONE, case((3, 4), beta=2), case((3, 4), beta=-0.5), case((3, 4), beta=3, threshold=2.0), case((3, 4), threshold=0.5)),
       composition=lambda x, beta=1, threshold=math.inf: mg.where(x * beta > threshold, x, mg.log(1 + mg.exp(x * beta)) / beta)),
    Op("logsigmoid", lambda x: -np.log1p(np.exp(-x)), ONE, torch="nn.functional.logsigmoid", composition=lambda x: mg.log(mg.sigmoid(x))),
    Op("mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), ONE, torch="nn.functional.mish", domain=(-5, 5),
       composition=lambda x: x * ((1 + mg.exp(x)) ** 2 - 1) / ((1 + mg.exp(x)) ** 2 + 1)),
    Op("prelu", prelu(np), torch="nn.functional.prelu", composition=prelu(mg),
       cases=cases(((3, 4), (4,)), ((3, 4), (1,)), ((2, 3, 5), (3,)), ((2, 3, 2, 4), (3,)), ((5,), (1,)), ((0, 3), (3,)))),
    Op("glu", glu(np), torch=T("nn.functional.glu", axis="dim"), composition=glu(mg),
       cases=(case((4,)), case((3, 4)), case((4, 3), axis=0), case((2, 6, 3), axis=1), case((2, 3, 4), axis=-1), case((0, 4)), case((3, 0)))),
    Op("selu", lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)), ONE, torch="nn.functional.selu"),
    Op("hardswish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), ONE, torch=lambda t, x: x * t.clamp(x + 3, 0, 6) / 6, domain=(-5, 5)),
    Op("normalize", lambda x, p=2.0, axis=1: x / (np.abs(x) ** p).sum(axis, keepdims=True) ** (1 / p), torch=T("nn.functional.normalize", axis="dim"),
       cases=(case((3, 4)), case((3, 4), axis=0), case((2, 3, 5), p=1, axis=-1), case((2, 3, 5), p=3.0), case((3, 4), axis=(0, 1)), case((0, 3)))),
    Op("leaky_relu", lambda x, negative_slope=0.01: np.where(x > 0, x, negative_slope * x), torch="nn.functional.leaky_relu",
       cases=(*ONE, case((3, 4), negative_slope=0.3))),
    Op("elu", lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x)), torch="nn.functional.elu",
       cases=(*ONE, case((3, 4), alpha=0.7))),
    Op("hardsigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), ONE, torch=lambda t, x: t.clamp(x + 3, 0, 6) / 6, domain=(-5, 5)),
    Op("relu6", lambda x: np.clip(x, 0, 6), ONE, ulps=0, torch="nn.functional.relu6", domain=(-5, 9), composition=lambda x: mg.clip(x, 0, 6)),
    Op("hardtanh", lambda x, min_val=-1.0, max_val=1.0: np.clip(x, min_val, max_val), ulps=0, torch="nn.functional.hardtanh",
       cases=(*ONE, case((3, 4), min_val=-0.5, max_val=0.25)), composition=lambda x, min_val=-1.0, max_val=1.0: mg.clip(x, min_val, max_val)),
    Op("softsign", lambda x: x / (1 + np.abs(x)), ONE, torch="nn.functional.softsign", composition=lambda x: mg.where(x > 0, 1 - 1 / (1 + x), 1 / (1 - x) - 1)),
    Op(
        "dropout", lambda x, p, training: x * (p < 1), ulps=0, torch="nn.functional.dropout",
        cases=(case((3, 4), p=0.5, training=False), case((3, 4), p=0.0, training=True), case((3, 4), p=1.0, training=True)),
    ),
]  # fmt: skip
