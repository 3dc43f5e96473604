"""Arguments whose conversion replaces the operation's tensors, and sequences that misreport their length: each ends in a
result or in a Python exception.
"""

import itertools

import numpy as np
import pytest
from checks import refuses
from hostile import GROUPS, REFUSALS, group, survives

import minigrad as mg
import minigrad.nn.functional as F
from minigrad.engine.ops import recurrent

# ── conversions that change the tensor ────────────────────────────────────────────────────────────

N = 256  # N x N floats are mapped memory: to touch it after it was given back is a segmentation fault

BECOMES = {
    "one element": lambda: mg.zeros((1, 1)),
    "a scalar": lambda: mg.zeros(()),
    "integers": lambda: mg.zeros((1, 1), dtype="int64"),
    "float64": lambda: mg.zeros((N, N // 2), dtype="float64"),
    "empty": lambda: mg.zeros((0, 0, 0)),
}


class Evil:
    """A number, truth value, sequence or array whose conversion makes x another tensor."""

    def __init__(self, x, become, value):
        self.x, self.become, self.value = x, become, value

    def spring(self):
        self.x.set_(self.become())
        mg.empty_cache()
        return self.value

    def __index__(self):
        return int(self.spring())

    def __float__(self):
        return float(self.spring())

    def __bool__(self):
        return bool(self.spring())

    def __iter__(self):
        return iter(self.spring())

    def __len__(self):
        return len(self.spring())

    def __getitem__(self, k):
        return self.spring()[k]


class EvilArray(Evil):
    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.spring())


class EvilFloat(float):
    def __float__(self):
        self.evil.spring()
        return 1.0

    def __bool__(self):
        return self.evil.spring() is not None

    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = lambda self, other: bool(self)
    __hash__ = None


class EvilInt(int):
    __float__ = EvilFloat.__float__
    __bool__ = EvilFloat.__bool__
    __hash__ = None
    __eq__ = __lt__ = __gt__ = __le__ = __ge__ = EvilFloat.__eq__

    def __index__(self):
        self.evil.spring()
        return 1

    __int__ = __index__


class EvilSequence:
    def __iter__(self):
        self.evil.spring()
        return super().__iter__()

    def __len__(self):
        self.evil.spring()
        return super().__len__()


class EvilList(EvilSequence, list):
    def __getitem__(self, k):
        self.evil.spring()
        return super().__getitem__(k)


class EvilTuple(EvilSequence, tuple):
    pass


def of(kind, value, x, become):
    """Make an instance of a builtin's subclass whose methods change x."""
    made = kind(value)
    made.evil = Evil(x, become, value)
    return made


# name: f(x, e, make), where e(value) is Evil, and make(kind, value) an evil instance of a kind
CONVERSIONS = {
    "x[i]": lambda x, e, make: x[e(N - 1)],
    "x[:, i]": lambda x, e, make: x[:, e(N - 1)],
    "x[i:]": lambda x, e, make: x[e(N - 4) :],
    "x[::i]": lambda x, e, make: x[:: e(2)],
    "x[:, ..., i:j]": lambda x, e, make: x[:, ..., e(3) : e(N)],
    "x[[i]]": lambda x, e, make: x[[e(N - 1)]],
    "x[0, array]": lambda x, e, make: x[0, make(EvilArray, [N - 1])],
    "x[array, array]": lambda x, e, make: x[make(EvilArray, [N - 1]), make(EvilArray, [N - 1])],
    "x[mask]": lambda x, e, make: x[make(EvilArray, np.ones((N, N), bool))],
    "x[list]": lambda x, e, make: x[make(EvilList, [N - 1])],
    "x[int, None, i]": lambda x, e, make: x[make(EvilInt, 1), None, e(N - 1)],
    "x[i] = 1": lambda x, e, make: x.__setitem__(e(N - 1), 1),
    "x[i:] = row": lambda x, e, make: x.__setitem__(slice(e(N - 2), None), [[1.0] * N] * 2),
    "x[[i]] = 1": lambda x, e, make: x.__setitem__([e(N - 1)], 1),
    "x[:] = float": lambda x, e, make: x.__setitem__(slice(None), make(EvilFloat, 1.0)),
    "x[:] = int": lambda x, e, make: x.__setitem__(slice(None), make(EvilInt, 1)),
    "x[:] = list": lambda x, e, make: x.__setitem__(slice(None), make(EvilList, [1.0] * N)),
    "x[:] = array": lambda x, e, make: x.__setitem__(slice(None), make(EvilArray, [1.0] * N)),
    "fill_(float)": lambda x, e, make: x.fill_(make(EvilFloat, 1.0)),
    "fill_(int)": lambda x, e, make: x.fill_(make(EvilInt, 1)),
    "fill_(array)": lambda x, e, make: x.fill_(make(EvilArray, 1.0)),
    "copy_(array)": lambda x, e, make: x.copy_(make(EvilArray, np.ones((N, N)))),
    "x + float": lambda x, e, make: x + make(EvilFloat, 1.0),
    "int * x": lambda x, e, make: make(EvilInt, 1) * x,
    "x + list": lambda x, e, make: mg.add(x, make(EvilList, [1.0] * N)),
    "x + array": lambda x, e, make: mg.add(x, make(EvilArray, np.ones((N, N), np.float32))),
    "array - x": lambda x, e, make: mg.subtract(make(EvilArray, np.ones((N, N), np.float32)), x),
    "x += float": lambda x, e, make: x.__iadd__(make(EvilFloat, 1.0)),
    "x *= array": lambda x, e, make: x.__imul__(make(EvilArray, np.ones((N, N), np.float32))),
    "x ** float": lambda x, e, make: x ** make(EvilFloat, 3.0),
    "x ** int": lambda x, e, make: x ** make(EvilInt, 3),
    "x < float": lambda x, e, make: x < make(EvilFloat, 1.0),
    "clip": lambda x, e, make: mg.clip(x, make(EvilFloat, 0.0), make(EvilFloat, 1.0)),
    "clip int": lambda x, e, make: mg.clip(x, make(EvilInt, 0), None),
    "clip array": lambda x, e, make: mg.clip(x, make(EvilArray, np.zeros((N, N), np.float32)), 1),
    "where(mask)": lambda x, e, make: mg.where(make(EvilArray, np.ones((N, N), bool)), x, x),
    "where(x, y)": lambda x, e, make: mg.where(x, make(EvilFloat, 1.0), make(EvilArray, np.ones((N, N), np.float32))),
    "where(x > 0)": lambda x, e, make: mg.where(True, x, make(EvilArray, np.ones((N, N), np.float32))),
    "maximum": lambda x, e, make: mg.maximum(x, make(EvilArray, np.ones((N, N), np.float32))),
    "matmul": lambda x, e, make: mg.matmul(x, make(EvilArray, np.ones((N, 2), np.float32))),
    "linear weight": lambda x, e, make: mg.linear(x, make(EvilArray, np.ones((2, N), np.float32))),
    "linear bias": lambda x, e, make: mg.linear(x, mg.ones((2, N)), make(EvilArray, np.ones(2, np.float32))),
    "reshape": lambda x, e, make: mg.reshape(x, (e(N * 2), N // 2)),
    "reshape list": lambda x, e, make: mg.reshape(x, make(EvilList, [N * 2, N // 2])),
    "reshape copy": lambda x, e, make: mg.reshape(x, (N * 2, N // 2), copy=e(True)),
    "permute_dims": lambda x, e, make: mg.permute_dims(x, (e(1), e(0))),
    "permute_dims list": lambda x, e, make: mg.permute_dims(x, make(EvilList, [1, 0])),
    "moveaxis": lambda x, e, make: mg.moveaxis(x, e(0), e(1)),
    "moveaxis tuple": lambda x, e, make: mg.moveaxis(x, make(EvilTuple, (0,)), make(EvilList, [1])),
    "expand_dims": lambda x, e, make: mg.expand_dims(x, e(1)),
    "squeeze": lambda x, e, make: mg.squeeze(mg.expand_dims(x, 0), e(0)),
    "flip": lambda x, e, make: mg.flip(x, (e(0), e(1))),
    "broadcast_to": lambda x, e, make: mg.broadcast_to(x, (e(2), N, N)),
    "roll": lambda x, e, make: mg.roll(x, e(1), axis=e(0)),
    "concat": lambda x, e, make: mg.concat([x, x], axis=e(1)),
    "concat array": lambda x, e, make: mg.concat([x, make(EvilArray, np.ones((N, N), np.float32))]),
    "stack": lambda x, e, make: mg.stack([x, x], axis=e(1)),
    "split": lambda x, e, make: mg.split(x, e(2), axis=1),
    "split list": lambda x, e, make: mg.split(x, [e(2), e(N)], axis=e(1)),
    "unstack": lambda x, e, make: mg.unstack(x, axis=e(1)),
    "repeat": lambda x, e, make: mg.repeat(x, e(2), axis=e(1)),
    "tile": lambda x, e, make: mg.tile(x, (e(1), e(2))),
    "pad": lambda x, e, make: mg.pad(x, (e(1), e(1))),
    "tril": lambda x, e, make: mg.tril(x, k=e(1)),
    "sum": lambda x, e, make: mg.sum(x, e(1)),
    "sum tuple": lambda x, e, make: mg.sum(x, (e(0), e(1))),
    "sum keepdims": lambda x, e, make: mg.sum(x, 1, keepdims=e(True)),
    "mean keepdims": lambda x, e, make: mg.mean(x, (0, 1), keepdims=e(True)),
    "prod keepdims": lambda x, e, make: mg.prod(x, (0, 1), keepdims=e(True)),
    "var": lambda x, e, make: mg.var(x, 1, correction=e(1)),
    "var keepdims": lambda x, e, make: mg.var(x, e(1), correction=make(EvilFloat, 1.0), keepdims=e(True)),
    "max": lambda x, e, make: mg.max(x, e(1)),
    "argmax": lambda x, e, make: mg.argmax(x, e(1)),
    "any": lambda x, e, make: mg.any(x, e(1)),
    "logsumexp": lambda x, e, make: mg.logsumexp(x, 1, keepdims=e(True)),
    "cumulative_sum": lambda x, e, make: mg.cumulative_sum(x, 1, include_initial=e(True)),
    "linear_scan": lambda x, e, make: mg.linear_scan(x, make(EvilArray, np.ones((N, N))), make(EvilArray, np.ones(N)), e(1)),
    "softmax": lambda x, e, make: mg.softmax(x, e(1)),
    "sort": lambda x, e, make: mg.sort(x, 1, descending=e(True)),
    "argsort": lambda x, e, make: mg.argsort(x, e(1), descending=e(True)),
    "take": lambda x, e, make: mg.take(x, [e(N - 1)], axis=1),
    "take axis": lambda x, e, make: mg.take(x, [N - 1], axis=e(1)),
    "take_along_axis": lambda x, e, make: mg.take_along_axis(x, make(EvilArray, np.zeros((N, 1), int)), axis=1),
    "take_along_axis axis": lambda x, e, make: mg.take_along_axis(x, np.zeros((N, 1), int), axis=e(1)),
    "astype": lambda x, e, make: mg.astype(x, "float32", copy=e(True)),
    "tensordot": lambda x, e, make: mg.tensordot(x, mg.ones((N, 2)), axes=e(1)),
    "einsum": lambda x, e, make: mg.einsum("ij,jk->ik", x, make(EvilArray, np.ones((N, 2), np.float32))),
    "__dlpack__": lambda x, e, make: (x.__dlpack__(max_version=(e(1), 0), copy=e(True)), None)[1],
    "layer_norm": lambda x, e, make: mg.layer_norm(x, e(N)),
    "layer_norm eps": lambda x, e, make: mg.layer_norm(x, N, eps=e(1e-5)),
    "layer_norm weight": lambda x, e, make: mg.layer_norm(x, N, make(EvilArray, np.ones(N, np.float32))),
    "layer_norm shape": lambda x, e, make: mg.layer_norm(x, make(EvilList, [N])),
    "rms_norm": lambda x, e, make: mg.rms_norm(x, N, make(EvilArray, np.ones(N, np.float32)), eps=e(0)),
    "group_norm": lambda x, e, make: mg.group_norm(x, e(2), None, make(EvilArray, np.ones(N, np.float32)), e(0.1)),
    "batch_norm": lambda x, e, make: F.batch_norm(x, None, None, None, None, True, 0.1, e(1e-5)),
    "batch_norm weight": lambda x, e, make: F.batch_norm(
        x, None, None, make(EvilArray, np.ones(N, np.float32)), None, True),
    "batch_norm eval": lambda x, e, make: F.batch_norm(
        x, mg.zeros(N), mg.ones(N), None, make(EvilArray, np.ones(N, np.float32)), False, 0.1, e(1e-5)),
    "leaky_relu": lambda x, e, make: F.leaky_relu(x, e(0.1)),
    "elu": lambda x, e, make: F.elu(x, make(EvilFloat, 1.0)),
    "dropout": lambda x, e, make: F.dropout(x, e(0.5), e(True)),
    "cross_entropy": lambda x, e, make: mg.cross_entropy(x, make(EvilArray, np.zeros(N, np.int64))),
    "cross_entropy options": lambda x, e, make: mg.cross_entropy(
        x, mg.zeros(N, dtype="int64"), make(EvilArray, np.ones(N, np.float32)), e(-100), "mean", e(0.1)),
    "nll_loss": lambda x, e, make: F.nll_loss(x, mg.zeros(N, dtype="int64"), make(EvilArray, np.ones(N, np.float32))),
}  # fmt: skip

IMAGES = {
    "conv2d bias": lambda x, e, make: F.conv2d(x, mg.ones((2, 2, 3, 3)), make(EvilArray, np.ones(2, np.float32))),
    "conv2d stride": lambda x, e, make: F.conv2d(x, mg.ones((2, 2, 3, 3)), None, e(1)),
    "conv2d padding": lambda x, e, make: F.conv2d(x, mg.ones((2, 2, 3, 3)), padding=(e(1), e(1))),
    "conv2d dilation": lambda x, e, make: F.conv2d(x, mg.ones((2, 2, 3, 3)), dilation=e(1)),
    "conv2d groups": lambda x, e, make: F.conv2d(x, mg.ones((2, 2, 3, 3)), groups=e(1)),
    "conv2d weight": lambda x, e, make: F.conv2d(x, make(EvilArray, np.ones((2, 2, 3, 3), np.float32))),
    "max_pool2d": lambda x, e, make: F.max_pool2d(x, e(2)),
    "max_pool2d rest": lambda x, e, make: F.max_pool2d(x, 2, e(2), e(1), e(1), e(True)),
    "avg_pool2d": lambda x, e, make: F.avg_pool2d(x, (e(2), e(2))),
    "avg_pool2d rest": lambda x, e, make: F.avg_pool2d(x, 2, e(2), e(1), e(True), e(True), e(3)),
    "avg_pool2d flag": lambda x, e, make: F.avg_pool2d(x, 2, 2, 0, e(True)),
    "adaptive_avg_pool2d": lambda x, e, make: F.adaptive_avg_pool2d(x, (e(7), 7)),
    "adaptive_avg_pool2d list": lambda x, e, make: F.adaptive_avg_pool2d(x, make(EvilList, [7, None])),
    "instance_norm": lambda x, e, make: mg.instance_norm(x, weight=make(EvilArray, np.ones(2, np.float32)), eps=e(0.1)),
}  # fmt: skip


def sprung(cases, shape):
    """Every case with every tensor that x becomes, both with and without the tape."""

    def case(call, become, requires_grad):
        x = mg.ones(shape, requires_grad=requires_grad)
        y = call(x, lambda value: Evil(x, become, value), lambda kind, value: (
            kind(x, become, value) if issubclass(kind, Evil) else of(kind, value, x, become)))  # fmt: skip
        y = y[0] if isinstance(y, (list, tuple)) and len(y) else y
        if isinstance(y, mg.Tensor) and y.requires_grad:
            y.sum().backward()
        return y

    found = {}
    for name, call in cases.items():
        for what, become in BECOMES.items():
            for requires_grad in (False, True):
                key = f"{name}, {what}{', recorded' if requires_grad else ''}"
                found[key] = lambda call=call, become=become, recorded=requires_grad: case(call, become, recorded)
    return found


@group
def conversions():
    return sprung(CONVERSIONS, (N, N))


@group
def conversions_of_images():
    return sprung(IMAGES, (1, 2, N, N // 2))


@pytest.mark.parametrize("name", ["conversions", "conversions_of_images"])
def test_conversions_come_first(name):
    """An operation converts every argument before it reads any layout, and set_ refuses inside it: x's memory stays."""
    ends = survives(name)
    assert len(ends) == len(GROUPS[name]())
    assert set(ends.values()) <= {"result", "RuntimeError", *REFUSALS}


# ── sequences that lie, and that grow ─────────────────────────────────────────────────────────────


class Longer(list):
    """A list that claims to be shorter than it is."""

    def __len__(self):
        return 1


class Shorter(list):
    """A list that claims to be longer than it is."""

    def __len__(self):
        return 5


class Growing(list):
    """A list that grows whenever one of its elements is converted."""

    def __init__(self):
        super().__init__([Grower(self)])


class Grower:
    def __init__(self, whole):
        self.whole = whole

    def __index__(self):
        if len(self.whole) < 10_000:
            self.whole.append(self)
        return len(self.whole) % 3


SEQUENCES = {
    "zeros": lambda s: mg.zeros(s),
    "normal": lambda s: mg.random.normal(shape=s),
    "reshape": lambda s: mg.reshape(mg.ones((2, 3)), s),
    "broadcast_to": lambda s: mg.broadcast_to(mg.ones((2, 3)), s),
    "permute_dims": lambda s: mg.permute_dims(mg.ones((2, 3)), s),
    "moveaxis": lambda s: mg.moveaxis(mg.ones((2, 3)), s, s),
    "expand_dims": lambda s: mg.expand_dims(mg.ones((2, 3)), s),
    "squeeze": lambda s: mg.squeeze(mg.ones((1, 1)), s),
    "flip": lambda s: mg.flip(mg.ones((2, 3)), s),
    "sum": lambda s: mg.sum(mg.ones((2, 3)), s),
    "var": lambda s: mg.var(mg.ones((2, 3)), s),
    "index": lambda s: mg.ones((2, 3))[s],
    "indices": lambda s: mg.ones((2, 3))[tuple(s)],
    "setitem": lambda s: mg.ones((2, 3)).__setitem__(s, s),
    "split": lambda s: mg.split(mg.ones(3), s),
    "take": lambda s: mg.take(mg.ones(3), s),
    "roll": lambda s: mg.roll(mg.ones((2, 3)), s, axis=s),
    "repeat": lambda s: mg.repeat(mg.ones(3), s),
    "tile": lambda s: mg.tile(mg.ones(3), s),
    "pad": lambda s: mg.pad(mg.ones(3), s),
    "concat": lambda s: mg.concat(s),
    "layer_norm": lambda s: mg.layer_norm(mg.ones((2, 3)), s),
    "max_pool2d": lambda s: F.max_pool2d(mg.ones((1, 4, 4)), s, s),
    "avg_pool2d": lambda s: F.avg_pool2d(mg.ones((1, 4, 4)), s),
    "adaptive_avg_pool2d": lambda s: F.adaptive_avg_pool2d(mg.ones((1, 4, 4)), s),
    "conv2d": lambda s: F.conv2d(mg.ones((1, 4, 4)), mg.ones((1, 1, 2, 2)), None, s, s, s),
    "cell": lambda s: recurrent.Cell("rnn_tanh", "state", s).sizes and None,
    "lengths": lambda s: recurrent.Lengths(s, 3, 2).values,
    "tensor": lambda s: mg.tensor(s),
    "dlpack": lambda s: (mg.ones(3).__dlpack__(max_version=s, dl_device=s), None)[1],
}


@group
def sequences():
    kinds = {
        "longer": lambda: Longer([1] * 100), "shorter": lambda: Shorter([1]), "growing": Growing,
        "lying tuple": lambda: type("Lying", (tuple,), {"__len__": lambda self: 2})([2] * 100), "empty": tuple,
    }  # fmt: skip
    return {f"{op}, {kind}": lambda call=call, make=make: call(make()) for op, call in SEQUENCES.items()
            for kind, make in kinds.items()}  # fmt: skip


def test_sequences_of_another_length():
    """The elements written from a sequence are counted while writing, and those read from one are counted first."""
    ends = survives("sequences")
    assert set(ends.values()) <= {"result", *REFUSALS}
    assert ends["zeros, longer"] == ends["zeros, growing"] == ends["zeros, lying tuple"] == "ValueError"


def test_endless_shape():
    """A shape is read only up to the maximum number of axes."""
    refuses(ValueError, "zeros", ["8", "9"], mg.zeros, iter(lambda: 1, 2))
    refuses(ValueError, "permute_dims", "2 axes", mg.permute_dims, mg.ones((2, 3)), itertools.repeat(1))
    refuses(ValueError, "split", "65536 pieces", mg.split, mg.ones(3), itertools.repeat(1))


def test_numbers_beyond_64_bits():
    x, weight = mg.ones((1, 1, 3, 3)), mg.ones((1, 1, 2, 2))
    refuses(ValueError, "conv2d", str(2**63), F.conv2d, x, weight, groups=2**63)
    refuses(ValueError, "conv_transpose2d", str(2**63), F.conv_transpose2d, x, weight, groups=2**63)
    refuses(ValueError, "conv1d", str(2**63), F.conv1d, x[0], weight[0], groups=2**63)
    refuses(ValueError, "concat", str(2**63), mg.concat, [mg.ones((2**62, 0))] * 2)
    x = mg.ones((1, 0, 5))
    refuses(ValueError, "conv1d", str(2**64), F.conv1d, x, mg.zeros((0, 2**34, 1)), groups=2**30)
    refuses(ValueError, "conv2d", str(2**64), F.conv2d, x[None], mg.zeros((0, 2**34, 1, 1)), groups=2**30)
    for weight, dilation, padding in ((2**33, 2**31 - 1, 0), (2**34, 2**30, "same")):
        refuses(ValueError, "conv1d", str(dilation * (weight - 1) + 1), F.conv1d, mg.ones((1, 1, 5)),
                mg.zeros((0, 1, weight)), dilation=dilation, padding=padding)  # fmt: skip
