"""Views, copies, conversions and sums: the table, shared memory, chains of views, every pair of dtypes, exact sums."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import Suite, equals, near, raises, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import LAYOUT

import minigrad as mg

DTYPES = ["bool", "int32", "int64", "float32", "float64"]


class TestTable(Suite):
    ops = LAYOUT


# ── views ─────────────────────────────────────────────────────────────────────────────────────────

VIEWS = {
    "reshape": lambda x: mg.reshape(x, (4, 3, 2)),
    "permute_dims": lambda x: mg.permute_dims(x, (2, 0, 1)),
    "matrix_transpose": mg.matrix_transpose,
    "moveaxis": lambda x: mg.moveaxis(x, 0, 2),
    "expand_dims": lambda x: mg.expand_dims(x, 1),
    "squeeze": lambda x: mg.squeeze(mg.expand_dims(x, 1), 1),
    "flip": lambda x: mg.flip(mg.flip(x)),
    "broadcast_to": lambda x: mg.broadcast_to(x, (1, 2, 3, 4)),
    "T": lambda x: x.T.T,
    "mT": lambda x: x.mT,
    "transpose": lambda x: x.transpose(1, 0, 2),
    "slice": lambda x: x[:, ::2],
    "split": lambda x: mg.split(x, 2)[0],
    "unstack": lambda x: mg.unstack(x)[0],
    "detach": lambda x: x.detach(),
    "contiguous": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name, device):
    """No bytes are copied, and a write to the original is visible in the view."""
    x = mg.zeros((2, 3, 4), device=device)
    y = VIEWS[name](x)
    assert y.data_ptr() == x.data_ptr()
    x[0, 0, 0] = 5
    assert y.max().item() == 5
    assert y.version == x.version


@given(
    hnp.array_shapes(max_dims=4, max_side=4, min_dims=0),
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_chains_of_views(device, shape, steps, random):
    """Views of views have the same elements as NumPy's, and their gradients return to the right places."""
    a = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
    leaf = tensor(a, device, True)
    x, index = leaf, np.arange(a.size).reshape(shape)
    for step in steps:
        if step == 0:
            axes = random.sample(range(x.ndim), x.ndim)
            x, index = mg.permute_dims(x, axes), np.transpose(index, axes)
        elif step == 1 and x.ndim:
            axis = random.randrange(x.ndim)
            x, index = mg.flip(x, axis), np.flip(index, axis)
        elif step == 2 and x.ndim:
            key = tuple(slice(random.randint(0, n), None, random.choice([1, 2, -1, -2])) for n in x.shape)
            x, index = x[key], index[key]
        elif step == 3:
            x, index = mg.reshape(x, -1), index.reshape(-1)
        elif step == 4 and x.ndim < 6:
            x, index = x[None], index[None]
        elif step == 5 and x.ndim < 6:
            shape = (2, *x.shape)
            x, index = mg.broadcast_to(x, shape), np.broadcast_to(index, shape)
        elif step == 6:
            x, index = mg.squeeze(x), np.squeeze(index)
    assert x.shape == index.shape
    equals(x, a.reshape(-1)[index])
    equals(x.contiguous(), a.reshape(-1)[index])
    assert x.contiguous().is_contiguous()
    g = np.arange(1.0, index.size + 1).reshape(index.shape)
    x.backward(tensor(g, device))
    expected = np.zeros(a.size)
    np.add.at(expected, index.reshape(-1), g.reshape(-1))
    equals(leaf.grad, expected.reshape(a.shape))


@given(
    hnp.array_shapes(max_dims=4, max_side=4, min_side=0),
    hnp.array_shapes(max_dims=4, max_side=4, min_side=0),
    st.integers(-1, 3),
)
def test_reshape_is_numpys_or_refused(device, shape, target, free):
    """Every pair of shapes, with a -1 somewhere or not."""
    if free >= 0:
        target = tuple(-1 if k == free else n for k, n in enumerate(target))
    a = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    x = tensor(a, device)
    try:
        expected = a.reshape(target)
    except ValueError:
        refuses(ValueError, "reshape", str(target), mg.reshape, x, target)
    else:
        equals(mg.reshape(x, target), expected)
        equals(mg.reshape(x.T, target), a.T.reshape(target))


def test_numbers_one_by_one(device):
    """The methods take shapes and axes as one tuple or as several numbers."""
    x = mg.arange(24, device=device).reshape(2, 3, 4)
    assert x.reshape(4, -1).shape == x.reshape((4, -1)).shape == (4, 6)
    assert x.reshape(24).shape == x.reshape(-1).shape == (24,)
    assert x.permute_dims(2, 0, 1).shape == x.permute_dims((2, 0, 1)).shape == (4, 2, 3)
    assert x.transpose().shape == x.T.shape == (4, 3, 2)
    assert x.transpose(1, 0, 2).shape == x.transpose((1, 0, 2)).shape == (3, 2, 4)
    assert x.mT.shape == (2, 4, 3)
    refuses(ValueError, "transpose", ["(1, -1)", "x.swapaxes(1, -1)"], x.transpose, 1, -1)
    for axes in ((0, 1), (-2, -1), (0, -1)):  # they would change nothing, where PyTorch exchanges the axes
        refuses(ValueError, "transpose", f"x.swapaxes({axes[0]}, {axes[1]})", x[0].transpose, *axes)
    assert x[0].transpose(1, 0).shape == x[0].transpose(-1, 0).shape == (4, 3)
    assert x[0].transpose((0, 1)).shape == x[0].permute_dims(0, 1).shape == (3, 4)
    refuses(IndexError, "transpose", "5", x.transpose, 0, 5)


def test_reshape_and_copies(device):
    x = mg.ones((2, 3), device=device)
    assert mg.reshape(x, 6, copy=True).data_ptr() != x.data_ptr()
    assert mg.reshape(x, 6, copy=False).data_ptr() == x.data_ptr()
    assert mg.reshape(x.T, 6).data_ptr() != x.data_ptr()
    refuses(ValueError, "reshape", "without a copy", lambda y: mg.reshape(y, 6, copy=False), x.T)


def test_copies(device):
    x = tensor(np.arange(6.0).reshape(2, 3), device, True)
    for y in (x.copy(), x.T.copy(), x.T.contiguous()):
        assert y.data_ptr() != x.data_ptr()
        assert y.is_contiguous()
        assert y.requires_grad
    (x.T.contiguous() * tensor(np.arange(6.0).reshape(3, 2), device)).sum().backward()
    equals(x.grad, np.arange(6.0).reshape(3, 2).T)


# ── conversions ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_every_conversion(source, target, device, rng):
    """Values that fit are NumPy's; the way back restores them."""
    values = rng.integers(0, 2, 37) if "bool" in (source, target) else rng.integers(-1000, 1000, 37)
    a = values.astype(source)
    for x, b in ((tensor(a, device), a), (tensor(a, device)[::-2], a[::-2])):
        y = x.astype(target)
        assert y.dtype == target
        equals(y, b.astype(target))
        equals(y.astype(source), b)
        assert x.to(target).dtype == target


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("target", ["int32", "int64"])
def test_floats_that_integers_cannot_hold(source, target, device):
    """Floats are rounded toward zero and clamped to the range; NaN becomes 0."""
    info = np.iinfo(target)
    a = np.array([1.9, -1.9, 1e30, -1e30, np.inf, -np.inf, np.nan, -0.0], source)
    assert tensor(a, device).astype(target).tolist() == [1, -1, info.max, info.min, info.max, info.min, 0, 0]


def test_other_conversions(device):
    assert tensor(np.array([2**32 + 5, -1]), device).astype("int32").tolist() == [5, -1]
    assert tensor(np.array([0.0, -0.0, np.nan, 0.1]), device).astype("bool").tolist() == [False, False, True, True]
    big = tensor(np.array([1e300, -1e300, 1e-300]), device).astype("float32")
    assert big.tolist() == [np.inf, -np.inf, 0]


def test_conversion_gradients(device):
    """Between floats the gradient is converted back; integers have none."""
    x = tensor(np.array([1.0, 2.0], np.float32), device, True)
    y = x.astype("float64")
    y.backward(tensor(np.array([1 / 3, 1.0]), device))
    assert x.grad.dtype == "float32"
    assert x.grad.tolist() == [np.float32(1 / 3), 1.0]
    assert not x.astype("int32").requires_grad
    assert x.astype("float32", copy=False) is x
    assert x.astype("float32").data_ptr() != x.data_ptr()


# ── sums ──────────────────────────────────────────────────────────────────────────────────────────


def test_sum_is_accurate(device):
    """A million terms of 0.1 in float32: the error of a running sum would be 1e-3 of it."""
    x = mg.full(1_000_000, 0.1, dtype="float32", device=device)
    exact = 1_000_000 * float(np.float32(0.1))
    assert abs(x.sum().item() - exact) <= exact * 1e-6
    columns = mg.full((100_000, 7), 0.1, dtype="float32", device=device).sum(0)
    near(columns, 100_000 * float(np.float32(0.1)), rtol=1e-6)


def test_sum_of_integers_is_exact(device):
    """In int64, also of int32 and bool, beyond what a float can hold; overflow wraps."""
    x = tensor(np.array([2**31 - 1] * 5, np.int32), device)
    assert x.sum().item() == 5 * (2**31 - 1)
    y = tensor(np.array([2**53, 1, 1]), device)
    assert y.sum().item() == 2**53 + 2
    assert tensor(np.array([2**63 - 1, 1]), device).sum().item() == -(2**63)
    assert mg.ones(1000, dtype="bool", device=device).sum().item() == 1000
    assert x.sum(dtype="float64").dtype == "float64"


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_errors(device):
    x = mg.ones((2, 3), device=device)
    refuses(ValueError, "reshape", "(-1, -1)", mg.reshape, x, (-1, -1))
    refuses(ValueError, "permute_dims", ["2", "(0,)"], mg.permute_dims, x, (0,))
    refuses(ValueError, "moveaxis", "(0, 0)", mg.moveaxis, x, (0, 0), (0, 1))
    refuses(ValueError, "expand_dims", "(0, 0)", mg.expand_dims, x, (0, 0))
    refuses(ValueError, "broadcast_to", ["(2, 3)", "(2, 4)"], mg.broadcast_to, x, (2, 4))
    refuses(ValueError, "sum", "(0, -2)", mg.sum, x, (0, -2))
    refuses(TypeError, "astype", "complex64", mg.astype, x, "complex64")
    refuses(TypeError, "astype", "str", mg.astype, "x", "float32")
    refuses(ValueError, "reshape", ["8", "9"], mg.reshape, x, (2, 3, *[1] * 7))


def test_astype_takes_numpys_arguments():
    """As zarr calls it."""
    x = mg.tensor([1.5, 2.5], requires_grad=True)
    y = x.astype("float64", order="C", casting="same_kind", copy=False)
    assert (y.dtype, y.requires_grad) == ("float64", True)
    match = r"^\[astype\] expected a conversion that casting='safe' allows, got float32 to int32"
    raises(TypeError, match, x.astype, "int32", casting="safe")
    refuses(ValueError, "astype", "expected order 'K', 'A' or 'C', got 'F'", x.astype, "int32", order="F")
