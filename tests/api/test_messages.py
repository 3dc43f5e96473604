"""Wrong input: the error begins with the name of the called operation and states the numbers. Nothing is changed.

The first part passes wrong operands and options to every operation of the table; the second lists other cases.
"""

import math
import operator

import numpy as np
import pytest
from checks import Inputs, refuses
from table import ALL

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

# ── every operation of the table ──────────────────────────────────────────────────────────────────

NO_TENSORS = {
    "an object": object(), "a string": "abc", "a complex number": 1j, "complex numbers": np.ones(3, complex),
    "int8": np.ones(3, np.int8), "a ragged list": [[1.0], [1.0, 2.0]], "a dict": {},
}  # fmt: skip
OPTIONAL = {("linear", 2), ("conv2d", 2), ("conv_transpose2d", 2)} | {
    (f"{kind}_norm", k) for kind in ("layer", "rms", "group", "instance") for k in (1, 2)
}
OPTIONAL |= {("engine.batch_norm_train", 1), ("engine.batch_norm_train", 2)}
OPTIONAL |= {("engine.batch_norm_eval", 3), ("engine.batch_norm_eval", 4)}
OPTIONAL |= {
    *((name, k) for name in ("dynamic_tanh", "deep_norm") for k in (2, 3)),
    *(("filter_response_norm", k) for k in (1, 2, 3)),
    ("linear_scan", 2),
}
METHODS = {"Tensor.__getitem__"}  # the indexed object is a tensor


@pytest.mark.parametrize("op", [op for op in ALL if op.name not in METHODS], ids=lambda op: op.name)
def test_operands(op, rng):
    """Each operand in turn is an object that is not a tensor and cannot be converted to one."""
    case = max(op.cases, key=lambda case: len(case.shapes))
    inputs = Inputs(op, case, {"f": "float32", "i": "int64", "b": "bool"}[op.dtypes[0]], None, rng, "cpu")
    options = inputs.options(mg.tensor)
    for k in range(len(case.shapes)):
        for wrong in [*NO_TENSORS.values(), *([] if (op.name, k) in OPTIONAL else [None])]:
            operands = inputs.tensors(())
            operands[k] = wrong
            error = ValueError if isinstance(wrong, list) else TypeError
            refuses(error, "batch_norm" if "batch_norm" in op.name else op.name, [], op, *operands, **options)


AXES = [op for op in ALL if any("axis" in case.options for case in op.cases)]


@pytest.mark.parametrize("op", AXES, ids=lambda op: op.name)
def test_axes(op, rng):
    """An axis that does not exist, and one that is not an integer."""
    case = max((case for case in op.cases if "axis" in case.options), key=lambda case: len(case.shapes[0]))
    inputs = Inputs(op, case, {"f": "float32", "i": "int64", "b": "bool"}[op.dtypes[0]], None, rng, "cpu")
    options, operands = inputs.options(mg.tensor), inputs.tensors(())
    for axis in (99, -99):
        refuses(IndexError, op.name, str(axis), op, *operands, **{**options, "axis": axis})
    for axis in (1.5, "no", object()):
        refuses(TypeError, op.name, repr(axis), op, *operands, **{**options, "axis": axis})


# ── everything else ───────────────────────────────────────────────────────────────────────────────

X, V, I = mg.ones((2, 3)), mg.ones(4), mg.arange(6).reshape(2, 3)  # noqa: E741
ROW = nn.Linear(3, 2)
B = mg.tensor([True, False])
DEVICE = 'the device "cpu", "cuda" or "cuda:N", got '
DTYPES = "expected float32, float64, int32, int64, uint8 or bool, got "


def leaf(*shape):
    return mg.ones(shape, requires_grad=True)


def each(functions, error, parts, *arguments, **options):
    """The same arguments are refused by several functions."""
    return [(name, error, parts, lambda f=f: f(*arguments, **options)) for name, f in functions.items()]


SHAPED = {
    "zeros": mg.zeros, "ones": mg.ones, "empty": mg.empty, "full": lambda shape, **o: mg.full(shape, 1.0, **o),
    "uniform": lambda shape, **o: mg.random.uniform(shape=shape, **o), "normal": lambda shape, **o: mg.random.normal(shape=shape, **o),
}  # fmt: skip
DATA = {"tensor": mg.tensor, "asarray": mg.asarray}
MAKERS = SHAPED | DATA | {"eye": mg.eye, "arange": mg.arange, "linspace": lambda n, **o: mg.linspace(0, 1, n, **o)}
LIKE = {f"{name}_like": getattr(mg, f"{name}_like") for name in ("zeros", "ones", "empty")}
RANDINT = {"randint": lambda shape, **o: mg.random.randint(0, 2, shape, **o)}

# (operation, exception, parts of the message, call)
CREATION = [
    *each(MAKERS, TypeError, [DTYPES, "'int7'"], 3, dtype="int7"),
    *each(
        LIKE | {name: getattr(mg, name) for name in ("sum", "prod", "astype")},
        TypeError,
        [DTYPES, "'int7'"],
        X,
        dtype="int7",
    ),
    ("cumulative_sum", TypeError, [DTYPES, "'int7'"], lambda: mg.cumulative_sum(V, dtype="int7")),
    ("to", TypeError, [DTYPES, "'int7'"], lambda: X.to("int7")),
    *each(MAKERS | RANDINT | {"permutation": mg.random.permutation}, ValueError, [DEVICE, "'tpu'"], 3, device="tpu"),
    ("full_like", ValueError, [DEVICE, "'tpu'"], lambda: mg.full_like(X, 3, device="tpu")),
    ("to", ValueError, [DEVICE, "'cuda:x'"], lambda: X.to("cuda:x")),
    ("zeros", ValueError, [DEVICE, "7"], lambda: mg.zeros(3, device=7)),
    *each(SHAPED | RANDINT, ValueError, ["-2", "axis 1"], (3, -2)),
    *each(SHAPED | RANDINT, TypeError, ["integers", "1.5"], (3, 1.5)),
    *each(
        {name: getattr(mg, name) for name in ("reshape", "broadcast_to")}, TypeError, ["integers", "1.5"], X, (3, 1.5)
    ),
    ("zeros", TypeError, ["integers", "'ab'"], lambda: mg.zeros("ab")),
    ("zeros", ValueError, ["8 axes", "9"], lambda: mg.zeros((1,) * 9)),
    ("full", TypeError, ["int32", "0.5"], lambda: mg.full((2,), 0.5, dtype="int32")),
    ("full", OverflowError, ["int32", str(1 << 40)], lambda: mg.full((2,), 1 << 40, dtype="int32")),
    ("full", TypeError, "str", lambda: mg.full(2, "a")),
    ("full_like", TypeError, ["int64", "0.5"], lambda: mg.full_like(I, 0.5)),
    *each(LIKE, TypeError, "list", [1.0]),
    ("full_like", TypeError, "list", lambda: mg.full_like([1.0], 0)),
    *each(DATA | {"zeros": mg.zeros}, TypeError, "int64", 3, dtype="int64", requires_grad=True),
    *each(
        DATA | {"Tensor": mg.Tensor, "add": lambda a: mg.add(X, a)}, TypeError, [DTYPES, "int8"], np.ones(3, np.int8)
    ),
    *each(DATA, ValueError, "list", [[1.0], [1.0, 2.0]]),
    ("tensor", TypeError, "object", lambda: mg.tensor(object())),
    ("tensor", TypeError, "<U1", lambda: mg.tensor(["a", "b"], dtype="float32")),
    ("from_dlpack", TypeError, "list", lambda: mg.from_dlpack([1.0])),
    ("arange", ValueError, "step", lambda: mg.arange(0, 3, 0)),
    ("arange", ValueError, "inf", lambda: mg.arange(math.inf)),
    ("arange", TypeError, "'a'", lambda: mg.arange("a")),
    ("linspace", ValueError, "-1", lambda: mg.linspace(0, 1, -1)),
    ("linspace", TypeError, "2.5", lambda: mg.linspace(0, 1, 2.5)),
    ("linspace", TypeError, "'a'", lambda: mg.linspace("a", 1, 2)),
    ("eye", ValueError, "-1", lambda: mg.eye(-1)),
    ("eye", TypeError, "1.5", lambda: mg.eye(1.5)),
    ("eye", TypeError, "'a'", lambda: mg.eye(2, k="a")),
    ("tril", TypeError, "1.5", lambda: mg.tril(X, k=1.5)),
    ("triu", ValueError, "(4,)", lambda: mg.triu(V)),
    ("meshgrid", ValueError, "'ab'", lambda: mg.meshgrid(V, indexing="ab")),
    ("meshgrid", ValueError, "(2, 3)", lambda: mg.meshgrid(X)),
    ("manual_seed", TypeError, "1.5", lambda: mg.manual_seed(1.5)),
    ("uniform", ValueError, ["2", "1"], lambda: mg.random.uniform(2, 1)),
    ("uniform", TypeError, "'a'", lambda: mg.random.uniform("a", 1)),
    ("uniform", TypeError, "int64", lambda: mg.random.uniform(dtype="int64")),
    ("normal", ValueError, "-1", lambda: mg.random.normal(0, -1)),
    ("normal", TypeError, "None", lambda: mg.random.normal(0, None)),
    ("randint", ValueError, ["3", "2"], lambda: mg.random.randint(3, 2)),
    ("randint", ValueError, str(1 << 70), lambda: mg.random.randint(0, 1 << 70)),
    ("randint", TypeError, "0.5", lambda: mg.random.randint(0.5, 2)),
    ("permutation", ValueError, "-1", lambda: mg.random.permutation(-1)),
    ("permutation", TypeError, "2.5", lambda: mg.random.permutation(2.5)),
    ("set_state", ValueError, "[1]", lambda: mg.random.set_state([1])),
    ("set_state", ValueError, "{'seed': 1}", lambda: mg.random.set_state({"seed": 1})),
]

KEYS = [
    (7, IndexError, ["7", "axis 0", "2"]),
    ((0, 7), IndexError, ["7", "axis 1", "3"]),
    ((slice(None), mg.tensor([-9])), IndexError, ["-9", "axis 1"]),
    ((slice(None), [9]), IndexError, ["9", "axis 1", "3"]),
    ((0, 0, 0), IndexError, ["2", "3"]),
    ((..., ...), IndexError, "one ellipsis"),
    ("a", IndexError, "'a'"),
    (slice("a"), TypeError, "slice"),
    (slice(None, None, 0), ValueError, "step"),
    ([[0], [0, 1]], IndexError, "[[0], [0, 1]]"),
    ((slice(None), B), IndexError, ["(2,)", "axis 1", "3"]),
    (mg.tensor([0.0]), IndexError, "float32"),
    (([0, 1], [0, 1, 2]), IndexError, ["(2,)", "(3,)"]),
    (np.array(["a"]), TypeError, "<U1"),
]
ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
BITS = {"&": "and", "|": "or", "^": "xor"}
IN_PLACE = [
    (X, 1j, TypeError, "1j", ARITHMETIC | BITS),
    (X, V, ValueError, ["(2, 3)", "(4,)"], ARITHMETIC | BITS),
    (I, 1 << 70, OverflowError, ["int64", str(1 << 70)], ARITHMETIC | BITS),
    (X, 2, TypeError, "float32", BITS),
    (B, True, TypeError, "bool", {"-": "sub", "//": "floordiv", "%": "mod"}),
    (I, -2, ValueError, "negative", {"**": "pow"}),
]

BINARY = "add subtract multiply divide floor_divide remainder maximum minimum power atan2 equal less logical_and matmul"
SHAPES = [
    *each({name: getattr(mg, name) for name in BINARY.split()}, ValueError, ["(2, 3)", "(4,)"], X, V),
    ("where", ValueError, ["(2, 3)", "(4,)"], lambda: mg.where(True, X, V)),
    ("clip", ValueError, ["(2, 3)", "(4,)"], lambda: mg.clip(X, V)),
    ("+=", ValueError, ["(2, 3)", "(4,)"], lambda: X.__iadd__(V)),
    ("*=", ValueError, ["(3,)", "(2, 3)"], lambda: mg.ones(3).__imul__(X)),
    ("/=", TypeError, ["float32", "int64"], lambda: I.__itruediv__(2)),
    ("+=", TypeError, ["float32", "int64"], lambda: I.__iadd__(0.5)),
    ("setitem", ValueError, ["(4,)", "(3,)"], lambda: X.__setitem__(0, V)),
    ("setitem", TypeError, ["int64", "0.5"], lambda: I.__setitem__(0, 0.5)),
    ("setitem", OverflowError, ["int32", str(1 << 40)], lambda: mg.zeros(2, dtype="int32").__setitem__(0, 1 << 40)),
    ("fill_", OverflowError, ["int32", str(1 << 40)], lambda: mg.zeros(2, dtype="int32").fill_(1 << 40)),
    ("fill_", TypeError, ["int64", "0.5"], lambda: I.fill_(0.5)),
    ("fill_", TypeError, "str", lambda: X.fill_("a")),
    ("fill_", ValueError, "(2, 3)", lambda: mg.broadcast_to(mg.ones(3), (2, 3)).fill_(1)),
    ("copy_", ValueError, ["(4,)", "(2, 3)"], lambda: X.copy_(V)),
    ("add", OverflowError, ["int32", str(1 << 40)], lambda: mg.zeros(2, dtype="int32") + (1 << 40)),
    *(
        (op, error, numbers, lambda f=f, key=key: f(key))
        for key, error, numbers in KEYS
        for op, f in [("index", lambda key: X[key]), ("setitem", lambda key: X.__setitem__(key, 1.0))]
    ),
    *(
        (f"{op}=", error, numbers, lambda a=a, name=name, value=value: getattr(operator, f"i{name}")(a, value))
        for a, value, error, numbers, operators in IN_PLACE
        for op, name in operators.items()
    ),
    ("set_", TypeError, "list", lambda: mg.ones(2).set_([1.0])),
    ("set_", TypeError, "int64", lambda: leaf(2).set_(I)),
    ("take", IndexError, ["9", "axis 1", "3"], lambda: mg.take(X, mg.tensor([9]), 1)),
    ("take", ValueError, "2 axes", lambda: mg.take(X, mg.tensor([0]))),
    ("take_along_axis", IndexError, ["9", "axis 1", "3"], lambda: mg.take_along_axis(X, mg.tensor([[9]]), 1)),
    ("take_along_axis", ValueError, "(1,)", lambda: mg.take_along_axis(X, mg.tensor([0]), 1)),
    ("reshape", ValueError, ["6", "(2, 3)", "(4, 2)"], lambda: mg.reshape(X, (4, 2))),
    ("reshape", ValueError, "-2", lambda: mg.reshape(X, (-2, 3))),
    ("broadcast_to", ValueError, ["(2, 3)", "(4,)"], lambda: mg.broadcast_to(X, (4,))),
    ("broadcast_to", ValueError, "-1", lambda: mg.broadcast_to(X, (-1, 2, 3))),
    ("sum", TypeError, "array([0, 1])", lambda: X.sum(axis=np.array([0, 1]))),
    ("var", TypeError, "'a'", lambda: mg.var(X, correction="a")),
    ("broadcast_to", TypeError, "'ab'", lambda: mg.broadcast_to(X, "ab")),
    ("permute_dims", ValueError, ["2", "(0, 0)"], lambda: mg.permute_dims(X, (0, 0))),
    ("permute_dims", TypeError, "1.5", lambda: mg.permute_dims(X, 1.5)),
    ("permute_dims", IndexError, "2", lambda: mg.permute_dims(X, (0, 2))),
    ("matrix_transpose", ValueError, "(4,)", lambda: mg.matrix_transpose(V)),
    ("moveaxis", ValueError, "(0, 1)", lambda: mg.moveaxis(X, (0, 1), 0)),
    ("squeeze", ValueError, ["axis 0", "(2, 3)"], lambda: mg.squeeze(X, 0)),
    ("expand_dims", IndexError, "5", lambda: mg.expand_dims(X, 5)),
    ("concat", ValueError, ["(2, 3)", "(4,)"], lambda: mg.concat([X, V])),
    ("concat", ValueError, "at least one", lambda: mg.concat([])),
    ("concat", TypeError, "int", lambda: mg.concat(5)),
    ("stack", ValueError, ["(2, 3)", "(4,)"], lambda: mg.stack([X, V])),
    ("stack", TypeError, "float", lambda: mg.stack(1.5)),
    ("split", ValueError, ["3", "2"], lambda: mg.split(X, 2, axis=1)),
    ("split", TypeError, "1.5", lambda: mg.split(X, 1.5)),
    ("split", ValueError, "0", lambda: mg.split(X, 0)),
    ("max", ValueError, "(0, 3)", lambda: mg.max(mg.zeros((0, 3)), axis=0)),
    ("argmin", ValueError, "(0,)", lambda: mg.argmin(mg.zeros(0))),
    ("sum", ValueError, "(0, 0)", lambda: mg.sum(X, axis=(0, 0))),
    ("cumulative_sum", ValueError, "2 axes", lambda: mg.cumulative_sum(X)),
    ("matmul", ValueError, ["(2, 3)", "(2, 3)"], lambda: X @ X),
    ("matmul", ValueError, "()", lambda: mg.matmul(X, mg.ones(()))),
    ("linear", ValueError, ["(2, 3)", "(5, 4)"], lambda: mg.linear(X, mg.ones((5, 4)))),
    ("linear", TypeError, ["float32", "float64"], lambda: mg.linear(X, mg.ones((5, 3), dtype="float64"))),
    ("outer", ValueError, "(2, 3)", lambda: mg.outer(X, V)),
    ("vecdot", ValueError, ["(2, 3)", "(4,)"], lambda: mg.vecdot(X, V)),
    ("tensordot", ValueError, ["(2, 3)", "(4,)"], lambda: mg.tensordot(X, V, axes=1)),
    ("einsum", ValueError, ["3", "4"], lambda: mg.einsum("ij,j", X, V)),
    ("einsum", ValueError, "'...ij->...ji...'", lambda: mg.einsum("...ij->...ji...", X)),
    ("einsum", ValueError, "'...i...j'", lambda: mg.einsum("...i...j->ij", X)),
    ("einsum", ValueError, "2", lambda: mg.einsum("ij,jk", X)),
    ("roll", ValueError, "(1, 2)", lambda: mg.roll(X, (1, 2), axis=0)),
    ("repeat", ValueError, ["2", "-1"], lambda: mg.repeat(X, -1, axis=0)),
    ("tile", ValueError, "-1", lambda: mg.tile(X, -1)),
    ("pad", ValueError, ["2", "(-1, 0)"], lambda: mg.pad(X, (-1, 0))),
    ("square", TypeError, "bool", lambda: mg.square(B)),
    ("bitwise_and", TypeError, "float32", lambda: mg.bitwise_and(X, 1)),
    ("power", ValueError, "negative", lambda: mg.power(I, -2)),
    ("mean", TypeError, "int64", lambda: mg.mean(I)),
    ("std", TypeError, "int64", lambda: mg.std(I)),
    ("item", ValueError, "(2, 3)", X.item),
    ("softmax", TypeError, "int64", lambda: mg.softmax(I)),
    ("conv2d", ValueError, ["(C, H, W)", "(2, 3)"], lambda: F.conv2d(X, mg.ones((1, 1, 1, 1)))),
    (
        "conv2d", ValueError, ["2 channels", "(1, 2, 1, 1)", "(1, 2, 3)"],
        lambda: F.conv2d(X[None], mg.ones((1, 2, 1, 1))),
    ),
    *each(
        {name: getattr(F, name) for name in ("max_pool2d", "avg_pool2d")},
        ValueError,
        ["one of 3", "axis of 2"],
        X[None],
        3,
    ),
    ("adaptive_avg_pool2d", ValueError, "-1", lambda: F.adaptive_avg_pool2d(X[None], -1)),
    ("dropout", TypeError, "'a'", lambda: F.dropout(X, "a")),
    ("dropout", ValueError, "1.5", lambda: F.dropout(X, 1.5)),
    ("layer_norm", ValueError, ["(..., 4)", "(2, 3)"], lambda: mg.layer_norm(X, 4)),
    ("layer_norm", ValueError, ["(3,)", "(4,)"], lambda: mg.layer_norm(X, 3, V)),
    ("layer_norm", ValueError, "-1", lambda: mg.layer_norm(X, 3, eps=-1)),
]  # fmt: skip

LAYER = nn.Linear(5, 2)
LABELS = mg.tensor([0, 2])
LABELED = {name: getattr(F, name) for name in ("cross_entropy", "nll_loss")}
BESIDE = "mse_loss l1_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits"
LOSSES = [
    *each(LABELED, IndexError, ["2", "5"], X, mg.tensor([0, 5])),
    *each(LABELED, ValueError, "(3,)", X, mg.tensor([0, 1, 2])),
    *each(LABELED, TypeError, ["integer labels", "float32", "(2,)"], X, mg.ones(2)),
    *each(LABELED, ValueError, ["at least one class", "(2, 0)"], mg.ones((2, 0)), LABELS),
    *each(LABELED, TypeError, "int64", X, LABELS, weight=[1, 1, 1]),
    *each(LABELED, ValueError, "'avg'", X, LABELS, reduction="avg"),
    *each(LABELED, ValueError, ["(3,)", "(4,)"], X, LABELS, weight=V),
    *each(LABELED, TypeError, "bool", X, B),
    *each({name: getattr(F, name) for name in BESIDE.split()}, TypeError, "list", [[1.0, 2.0]], mg.tensor([0])),
    ("cross_entropy", ValueError, "1.5", lambda: F.cross_entropy(X, LABELS, label_smoothing=1.5)),
    ("one_hot", TypeError, "list", lambda: F.one_hot([0, 1])),
    ("one_hot", IndexError, ["1", "2"], lambda: F.one_hot(LABELS, 2)),
    ("mse_loss", ValueError, ["(2, 3)", "(4,)"], lambda: F.mse_loss(X, V)),
    ("binary_cross_entropy", ValueError, "nan", lambda: F.binary_cross_entropy(X, X * math.nan)),
    ("smooth_l1_loss", ValueError, "-1", lambda: F.smooth_l1_loss(X, X, beta=-1.0)),
]

TAPE = [
    ("backward", mg.GradientError, "(2, 3)", X.backward),
    ("backward", mg.GradientError, ["(2,)", "y.sum()"], lambda: leaf(2).backward()),
    ("backward", mg.GradientError, "(2, 3)", lambda: leaf(2, 3).backward()),
    ("backward", mg.GradientError, ["(2, 3)", "(3, 2)"], lambda: (leaf(2, 3) * 2).backward(mg.ones((3, 2)))),
    ("backward", TypeError, "float", lambda: (leaf(2, 3) * 2).backward(1.0)),
    ("grad", mg.GradientError, "(2, 3)", lambda: mg.grad(leaf(3).sum(), X)),
    ("grad", ValueError, ["1", "2"], lambda: mg.grad([leaf(1)], leaf(1), [mg.ones(1), mg.ones(1)])),
    ("grad", mg.GradientError, "(2, 3)", lambda: mg.grad(X, leaf(1))),
    ("grad", mg.GradientError, ["(3,)", "(2,)"], lambda: mg.grad(leaf(3) * 2, leaf(1), mg.ones(2))),
    ("grad", TypeError, "3.0", lambda: mg.grad(leaf(1), leaf(1), 3.0)),
    ("vjp", TypeError, "1.0", lambda: mg.vjp(mg.exp, leaf(1))[1](1.0)),
    ("grad", TypeError, "str", lambda: mg.grad("ab", leaf(1))),
    ("grad", TypeError, "int", lambda: mg.grad(leaf(3).sum(), 5)),
    ("grad", TypeError, "float", lambda: mg.value_and_grad(lambda x: 1.0)(1.0)),
    ("hessian", ValueError, "(3,)", lambda: mg.hessian(lambda x: x * 2, mg.ones(3))),
    ("jvp", TypeError, "int", lambda: mg.jvp(3, mg.ones(3), mg.ones(3))),
    ("jvp", ValueError, ["(3,)", "(2,)"], lambda: mg.jvp(mg.exp, mg.ones(3), mg.ones(2))),
    ("jvp", ValueError, "float64", lambda: mg.jvp(mg.exp, mg.ones(3), mg.ones(3, dtype="float64"))),
    ("jvp", TypeError, "int64", lambda: mg.jvp(mg.exp, mg.arange(3), mg.arange(3))),
    ("jvp", TypeError, "structure", lambda: mg.jvp(mg.add, (leaf(1), leaf(2)), (leaf(1),))),
    ("jvp", TypeError, "float", lambda: mg.jvp(lambda x: 2.0, mg.ones(3), mg.ones(3))),
    ("hvp", ValueError, "(3,)", lambda: mg.hvp(lambda x: x * 2, mg.ones(3), mg.ones(3))),
    ("hvp", ValueError, ["(3,)", "(2,)"], lambda: mg.hvp(mg.sum, mg.ones(3), mg.ones(2))),
    ("hvp", TypeError, "tuple", lambda: mg.hvp(lambda x: (x, x), mg.ones(3), mg.ones(3))),
    ("per_sample_grad", TypeError, "builtin", lambda: mg.per_sample_grad(F.mse_loss, print, X, X)),
    ("per_sample_grad", TypeError, "int", lambda: mg.per_sample_grad(5, ROW, X)),
    ("per_sample_grad", TypeError, "list", lambda: mg.per_sample_grad(F.mse_loss, ROW, X, [1.0])),
    ("per_sample_grad", ValueError, ["(2, 3)", "(3,)"], lambda: mg.per_sample_grad(F.mse_loss, ROW, X, mg.ones(3))),
    ("per_sample_grad", ValueError, "(1, 2)", lambda: mg.per_sample_grad(mg.exp, ROW, X)),
    ("requires_grad", TypeError, "int64", lambda: I.requires_grad_()),
    ("register_hook", mg.GradientError, "(2, 3)", lambda: X.register_hook(print)),
    ("register_hook", TypeError, "3", lambda: leaf(2).register_hook(3)),
    ("value_and_grad", IndexError, ["2", "1"], lambda: mg.value_and_grad(lambda x: x.sum(), argnums=2)(leaf(2))),
    ("grad", ValueError, ["(3,)", "(2,)"], lambda: setattr(leaf(3), "grad", mg.ones(2))),
    ("grad", TypeError, "int", lambda: setattr(leaf(3), "grad", 1)),
    ("+=", mg.GradientError, "(3,)", lambda: leaf(3).__iadd__(1)),
    ("numpy", TypeError, "requires grad", lambda: leaf(3).numpy()),
    ("gradcheck", TypeError, "float32", lambda: mg.gradcheck(mg.exp, leaf(2))),
    ("set_num_threads", ValueError, "0", lambda: mg.set_num_threads(0)),
    ("set_num_threads", ValueError, str(2**40), lambda: mg.set_num_threads(2**40)),
    ("set_num_threads", TypeError, "1.5", lambda: mg.set_num_threads(1.5)),
]

NETWORKS = [
    ("Linear", ValueError, "-1", lambda: nn.Linear(-1, 2)),
    ("Linear", TypeError, "1.5", lambda: nn.Linear(1.5, 2)),
    ("linear", ValueError, ["(2, 3)", "(2, 5)"], lambda: LAYER(X)),
    ("ReLU", TypeError, "3", lambda: nn.ReLU().register_forward_hook(3)),
    ("LayerNorm", ValueError, "-1", lambda: nn.LayerNorm(-1)),
    ("Conv2d", ValueError, ["3", "2"], lambda: nn.Conv2d(4, 3, 1, groups=2)),
    ("MaxPool2d", ValueError, "0", lambda: nn.MaxPool2d(0)),
    ("Flatten", IndexError, "2", lambda: nn.Flatten(2)(X)),
    ("Dropout", ValueError, "2", lambda: nn.Dropout(2)),
    ("SmoothL1Loss", ValueError, "-1", lambda: nn.SmoothL1Loss(beta=-1.0)),
    ("CrossEntropyLoss", ValueError, "'avg'", lambda: nn.CrossEntropyLoss(reduction="avg")),
    ("SGD", ValueError, "-1", lambda: optim.SGD([leaf(1)], lr=-1)),
    ("Adam", ValueError, "at least one", lambda: optim.Adam([])),
    ("Adam", TypeError, "int", lambda: optim.Adam([3])),
    ("StepLR", ValueError, "0", lambda: optim.lr_scheduler.StepLR(optim.SGD([leaf(1)], lr=1.0), 0)),
]  # fmt: skip

ROWS = [*CREATION, *SHAPES, *LOSSES, *TAPE, *NETWORKS]


@pytest.mark.parametrize(
    "k", range(len(ROWS)), ids=[f"{op}-{error.__name__}-{k}" for k, (op, error, *_) in enumerate(ROWS)]
)
def test_message(k):
    op, error, numbers, call = ROWS[k]
    before = [x.tolist() for x in (X, V, I)]
    refuses(error, op, numbers, call)
    assert before == [x.tolist() for x in (X, V, I)]
