"""The tensor as a Python object: conversion, printing, copying, writes, and errors."""

import copy
import pickle
import types

import numpy as np
import pytest
from checks import array, equals, raises, refuses

import minigrad as mg
from minigrad import nn

# ── printing and conversion ───────────────────────────────────────────────────────────────────────

PRINTED = [
    (lambda device: mg.tensor(1.0, device=device), "tensor(1.)"),
    (lambda device: mg.tensor([1.5, -2.0], device=device), "tensor([ 1.5, -2. ])"),
    (lambda device: mg.zeros(0, device=device), "tensor([])"),
    (lambda device: mg.zeros((0, 3), device=device), "tensor([], shape=(0, 3))"),
    (lambda device: mg.zeros((2, 0), device=device), "tensor([], shape=(2, 0))"),
    (lambda device: mg.zeros((2**62, 0), device=device), f"tensor([], shape=({2**62}, 0))"),
    (lambda device: mg.zeros(0, dtype="bool", device=device), "tensor([], dtype=bool)"),
    (lambda device: mg.zeros((0, 3), dtype="int64", device=device), "tensor([], shape=(0, 3), dtype=int64)"),
    (lambda device: mg.zeros(0, dtype="float64", device=device), "tensor([], dtype=float64)"),
    (lambda device: mg.tensor([True, False], device=device), "tensor([ True, False])"),
    (lambda device: mg.tensor([1], device=device), "tensor([1])"),
    (lambda device: mg.tensor([1], dtype="int32", device=device), "tensor([1], dtype=int32)"),
    (lambda device: mg.ones(1, dtype="float64", device=device), "tensor([1.], dtype=float64)"),
    (lambda device: mg.ones(2, requires_grad=True, device=device), "tensor([1., 1.], requires_grad=True)"),
    (lambda device: mg.ones(2, requires_grad=True, device=device) * 2, "tensor([2., 2.], op=multiply)"),
    (lambda device: mg.tensor([float("nan"), float("inf")], device=device), "tensor([nan, inf])"),
    (lambda device: mg.tensor([[1, 2], [3, 4]], device=device), "tensor([[1, 2],\n        [3, 4]])"),
]


@pytest.mark.parametrize("make, text", PRINTED, ids=[text for _, text in PRINTED])
def test_repr(make, text, device):
    x = make(device)
    if device != "cpu":  # shown after shape and dtype if it is not the default
        for end in (", op=multiply)", ", requires_grad=True)", ")"):
            if text.endswith(end):
                text = f"{text.removesuffix(end)}, device={device}{end}"
                break
    assert str(x) == text


def test_repr_of_the_large_is_short(device):
    assert len(repr(mg.zeros((2000, 2000), device=device))) < 1000
    assert "..." in repr(mg.zeros(2000, device=device))


def test_format(device):
    assert f"{mg.tensor(1 / 3, device=device):.3f}" == "0.333"
    assert f"{mg.tensor([[2.0]], device=device):.1e}" == "2.0e+00"
    x = mg.tensor([1, 2], device=device)
    assert f"{x}" == repr(x) == ("tensor([1, 2])" if device == "cpu" else f"tensor([1, 2], device={device})")
    raises(TypeError, "spec", x.__format__, 1.5)


@pytest.mark.parametrize("value, dtype, kind", [
    (1.5, "float32", float), (1.5, "float64", float), (-3, "int32", int), (1 << 40, "int64", int), (True, "bool", bool),
])  # fmt: skip
def test_item_and_tolist(value, dtype, kind, device):
    for shape in ((), (1,), (1, 1, 1)):
        x = mg.full(shape, value, dtype=dtype, device=device)
        assert x.item() == value
        assert type(x.item()) is kind
    assert mg.full((2, 1), value, dtype=dtype, device=device).tolist() == [[value], [value]]
    assert mg.tensor(value, dtype=dtype, device=device).tolist() == value


def test_item_of_what_is_not_one_number(device):
    for shape in ((2,), (0,), (1, 3)):
        refuses(ValueError, "item", str(shape), mg.zeros(shape, device=device).item)
        refuses(ValueError, "bool", [str(shape), "x.any() or x.all()"], bool, mg.zeros(shape, device=device))
        raises(ValueError, r"^\[item\]", float, mg.zeros(shape, device=device))


def test_conversion_to_pythons_numbers(device):
    x = mg.tensor(2.75, requires_grad=True, device=device)
    assert float(x) == 2.75
    assert int(x) == 2
    assert complex(x) == 2.75
    assert bool(x)
    assert not bool(mg.tensor(0.0, device=device))
    assert bool(mg.tensor(float("nan"), device=device))
    assert range(5)[mg.tensor(3, device=device)] == 3
    assert [1, 2, 3][mg.tensor(1, dtype="int32", device=device)] == 2
    for bad in (mg.tensor(1.0, device=device), mg.tensor([1], device=device), mg.tensor(True, device=device)):
        with pytest.raises(TypeError, match=r"^\[index\]"):
            [1, 2, 3][bad]


def test_a_subclass_that_forgets_to_be_made():
    """It has no elements, and operations reject it."""

    class Forgetful(mg.Tensor):
        def __init__(self, name):
            self.name = name

    x, y = Forgetful("x"), mg.ones(3)
    assert (x.shape, x.device, x.tolist(), repr(x)) == ((0,), "cpu", [], "tensor([], dtype=bool)")
    for f in (lambda: x + 1, lambda: 1 - x, lambda: y * x, lambda: x / y, lambda: x + x[:, None], x.exp, x.sum, lambda: x @ y,
              lambda: mg.stack([x]), lambda: nn.Linear(2, 2)(x), lambda: x.reshape(1)):  # fmt: skip
        raises(TypeError, "got a Forgetful whose __init__ did not call Tensor", f)


def test_len_iter_contains_hash(device):
    x = mg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True, device=device)
    assert len(x) == 2
    rows = list(x)
    equals(rows[1], [3, 4])
    (rows[0] * rows[1]).sum().backward()
    equals(x.grad, [[3, 4], [1, 2]])
    assert rows[1].device == x.grad.device == device
    assert 3.0 in x
    assert 5.0 not in x
    for what in (len, iter):
        raises(TypeError, "0-d", what, mg.tensor(1.0, device=device))
    y = mg.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    assert len({x, y, x}) == 2
    assert {x: "x"}[x] == "x"


def test_attributes(device):
    x = mg.zeros((2, 3, 4), device=device)
    assert (x.shape, x.ndim, x.size, x.nbytes) == ((2, 3, 4), 3, 24, 96)
    assert x.dtype == mg.float32 == "float32"
    for other in ({"a": "b"}, {"names": 1}, [], [1], (1, 2), object(), None, "no", "f4,", (float, 10**30), float):
        assert mg.float32 != other
    assert x.dtype == np.float32
    assert x.dtype != "float64"
    assert x.device == x.T.device == device
    assert x.strides == (48, 16, 4)
    assert x.T.shape == (4, 3, 2)
    assert x.mT.shape == (2, 4, 3)
    assert x.is_contiguous()
    assert not x.T.is_contiguous()
    assert x.contiguous() is x
    assert x.T.contiguous().strides == (24, 8, 4)


# ── copies ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_deepcopy_and_pickle(dtype, copied, device):
    x = mg.tensor(np.array([[1, 0, 2], [0, 3, 1]]), dtype=dtype, device=device)
    for original in (x, x.T, x[:, ::2], mg.zeros((0, 2), dtype=dtype, device=device)):
        made = copied(original)
        equals(made, array(original))
        assert (made.dtype, made.device) == (original.dtype, device)
        assert (made.requires_grad, type(made)) == (False, mg.Tensor)
        assert made.size == 0 or made.data_ptr() != original.data_ptr()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_deepcopy_and_pickle_of_leaves_and_parameters(copied, device):
    for original in (
        mg.ones(2, requires_grad=True, device=device),
        nn.Parameter(mg.ones(2, device=device)),
        nn.Parameter(mg.tensor([1, 2], device=device), requires_grad=False),
    ):
        made = copied(original)
        assert type(made) is type(original)
        assert made.requires_grad == original.requires_grad
        assert made.is_leaf
        assert made.device == device
    x = mg.ones(2, requires_grad=True, device=device)
    x.sum().backward()
    a, b = copy.deepcopy([x, x])
    assert a is b
    equals(a.grad, [1, 1])
    assert a.device == a.grad.device == device
    a.grad.fill_(5)
    equals(x.grad, [1, 1])


def test_deepcopy_of_the_computed(device):
    y = mg.ones(2, requires_grad=True, device=device) * 2
    refuses(mg.GradientError, "deepcopy", "detach", copy.deepcopy, y)
    parts = "the attribute kept.h,"
    refuses(mg.GradientError, "deepcopy", parts, copy.deepcopy, types.SimpleNamespace(kept={"h": [y]}))
    equals(copy.deepcopy(y.detach()), [2, 2])
    equals(pickle.loads(pickle.dumps(y)), [2, 2])
    assert pickle.loads(pickle.dumps(y)).device == device


def test_copy_is_on_the_tape_and_detach_is_not(device):
    x = mg.ones(2, requires_grad=True, device=device)
    for copied in (x.copy(), copy.copy(x)):
        assert copied.requires_grad
        assert copied.data_ptr() != x.data_ptr()
    (x.copy() * 3).sum().backward()
    equals(x.grad, [3, 3])
    parameter = copy.copy(mg.nn.Parameter(x))
    assert type(parameter) is mg.nn.Parameter
    assert parameter.is_leaf
    assert parameter.data_ptr() != x.data_ptr()
    d = x.detach()
    assert not d.requires_grad
    assert d.data_ptr() == x.data_ptr()
    d.fill_(4)
    equals(x, [4, 4])


# ── operators ─────────────────────────────────────────────────────────────────────────────────────

# ── requires_grad and grad ────────────────────────────────────────────────────────────────────────


def test_requires_grad_rules(device):
    x = mg.ones(2, device=device)
    assert x.requires_grad_() is x
    assert x.requires_grad
    x.requires_grad = False
    assert not (x * 2).requires_grad
    for dtype in ("int64", "int32", "bool"):
        refuses(TypeError, "requires_grad", str(dtype), mg.ones(2, dtype=dtype, device=device).requires_grad_)
        with pytest.raises(TypeError):
            mg.ones(2, dtype=dtype, requires_grad=True, device=device)
        mg.ones(2, dtype=dtype, device=device).requires_grad_(False)
    y = mg.ones(2, requires_grad=True, device=device) * 2
    y.requires_grad_()
    refuses(mg.GradientError, "requires_grad", "detach", y.requires_grad_, False)
    assert not (mg.ones(2, requires_grad=True, device=device) > 0).requires_grad
    assert not mg.ones(2, requires_grad=True, device=device).astype("int64").requires_grad


def test_grad_can_be_set_to_what_fits(device):
    x = mg.ones(2, requires_grad=True, device=device)
    x.grad = mg.ones(2, device=device)
    (x * 2).sum().backward()
    equals(x.grad, [3, 3])
    x.grad = None
    assert x.grad is None
    for bad in (
        mg.ones(3, device=device), mg.ones(2, dtype="float64", device=device), mg.ones((1, 2), device=device),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"^\[grad\] expected shape \(2,\), float32"):
            x.grad = bad
    with pytest.raises(TypeError):
        x.grad = np.ones(2)
    assert x.grad is None


def test_no_circle_of_grads(device):
    """Nothing would free it."""
    x, y, z = (mg.ones(2, device=device) for _ in range(3))
    x.grad, y.grad = y, z
    for one in (x, y, z):
        with pytest.raises(ValueError, match=r"^\[grad\] expected a tensor that does not lead back to this one"):
            z.grad = one
    z.grad = x.copy()


# ── to ────────────────────────────────────────────────────────────────────────────────────────────


def test_to(device):
    x = mg.ones(2, requires_grad=True, device=device)
    assert x.to(device) is x.to("float32") is x.to(mg.float32, device) is x
    assert x.to(copy=True) is not x
    assert x.to(copy=True).device == device
    for arguments in (
        ("float64",), (mg.float64,), (np.float64,), (device, "float64"), ("float64", device),
        (mg.ones(1, dtype="float64", device=device),),
    ):  # fmt: skip
        y = x.to(*arguments)
        assert y.dtype == "float64"
        assert y.device == device
    (y * 3).sum().backward()
    equals(x.grad, [3, 3])
    assert x.grad.dtype == "float32"
    assert x.grad.device == device
    raises((TypeError, ValueError), r"tpu", x.to, "tpu")
    raises(ValueError, r"^\[zeros\]", mg.zeros, 2, device="gpu")
    raises(ValueError, r"^\[to\]", x.to, "cuda:x")


# ── limits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(1 << 50,), (1 << 62, 4), (1 << 40, 1 << 40), (7, 0x6DB6DB6DB6DB6DB7)])
def test_sizes_beyond_memory(shape, device):
    with pytest.raises((MemoryError, ValueError)):
        mg.zeros(shape, device=device)
    if len(shape) > 1:
        raises(ValueError, r"\[", mg.ones(1, device=device).reshape, shape)
        raises(ValueError, r"\[", mg.broadcast_to, mg.ones(1, device=device), shape)


def test_broadcasts_larger_than_memory_are_views(device):
    x = mg.broadcast_to(mg.ones(1, device=device), (1 << 30, 1 << 20))
    assert x.size == 1 << 50
    assert x[123456, 7].item() == 1


def test_empty_tensors(device):
    x = mg.zeros((0, 3), requires_grad=True, device=device)
    (x * 2).sum().backward()
    assert x.grad.shape == (0, 3)
    assert (x @ mg.ones((3, 2), device=device)).shape == (0, 2)
    equals(mg.ones((2, 0), device=device) @ mg.ones((0, 3), device=device), np.zeros((2, 3)))


def test_eight_axes_are_the_most(device):
    x = mg.zeros((1,) * 8, device=device)
    assert (x + 1).sum().item() == 1
    for make in (
        lambda: mg.zeros((1,) * 9, device=device),
        lambda: x.expand_dims(0),
        lambda: x[None],
        lambda: mg.stack([x]),
        lambda: x[mg.zeros((1, 1), dtype="int64", device=device)],
        lambda: x.broadcast_to((1,) * 9),
        lambda: mg.tensor(np.zeros((1,) * 9), device=device),
        lambda: x.reshape((1,) * 9),
        lambda: mg.jacobian(lambda x: x * 1, mg.zeros((1,) * 5, device=device)),
    ):
        raises((ValueError, IndexError), r"8 axes", make)


def test_negative_and_fractional_lengths():
    refuses(ValueError, "zeros", "-1", mg.zeros, (2, -1))
    refuses(TypeError, "zeros", "1.5", mg.zeros, (2, 1.5))
