"""Indexing against NumPy, exactly: reading, writing, gradients, the order of axes, and every kind of invalid key."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import Suite, array, equals, near, refuses, tensor, waited
from hypothesis import assume, given
from hypothesis import strategies as st
from table import INDEX

import minigrad as mg


class TestTable(Suite):
    ops = INDEX


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────

SLICES = st.builds(
    slice, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6), st.none() | st.integers(-3, 3).filter(bool),
)  # fmt: skip


@st.composite
def keyed_shapes(draw, arrays=True):
    """Draw (shape, key): numbers, slices, None, ..., broadcastable integer arrays, masks over one or two axes."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, max_side=4, min_side=0))
    kinds = ["number", "slice"] + ["array", "array", "mask"] * arrays
    common = draw(hnp.array_shapes(min_dims=0, max_dims=2, max_side=3)) if arrays else ()
    first = draw(st.integers(0, len(shape)))  # axes before an ellipsis, and after it
    last = draw(st.integers(first, len(shape)))
    parts = []
    for start, stop in ((0, first), (last, len(shape))):
        axis = start
        while axis < stop:
            n, kind = shape[axis], draw(st.sampled_from(kinds))
            axis += 1
            if kind == "number" and n:
                parts.append(draw(st.integers(-n, n - 1)))
            elif kind == "array" and n:
                drop = draw(st.integers(0, len(common)))
                part = tuple(1 if draw(st.booleans()) else m for m in common[drop:])
                indices = draw(hnp.arrays(np.int64, part, elements=st.integers(-n, n - 1)))
                parts.append(
                    draw(st.sampled_from([lambda a: a, lambda a: a.astype(np.int32), lambda a: a.tolist()]))(indices)
                )
            elif kind == "mask":
                stretch = draw(st.integers(0, min(1, stop - axis)))
                parts.append(draw(hnp.arrays(bool, shape[axis - 1 : axis + stretch])))
                axis += stretch
            else:
                parts.append(draw(SLICES))
        if stop == first and (last < len(shape) or draw(st.booleans())):
            parts.append(...)
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), None)
    if arrays and draw(st.integers(0, 9)) == 0:
        # A 0-d mask. With a False one, NumPy does not check whether other indices are in range.
        parts.insert(0, draw(st.booleans()) or any(isinstance(part, (list, np.ndarray)) for part in parts))
    return shape, parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


def ours(key, device, as_tensors):
    """The same key with tensors instead of arrays, or as it is."""

    def convert(part):
        return tensor(part, device) if isinstance(part, np.ndarray) else part

    if not as_tensors:
        return key
    return tuple(convert(part) for part in key) if isinstance(key, tuple) else convert(key)


def numbered(shape):
    return np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)


def read(a, key):
    """Return NumPy's result for a key, or that it rejects the key."""
    try:
        return a[key]
    except IndexError:
        return None


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


@given(keyed_shapes(), st.booleans())
def test_reading(device, shaped, as_tensors):
    """Elements and order of axes are NumPy's; each element gets a gradient for every time it was read."""
    shape, key = shaped
    a = numbered(shape)
    x, expected = tensor(a, device, True), read(a, key)
    if expected is None:
        refuses(IndexError, "index", "", lambda x: x[ours(key, device, as_tensors)], x)
        return
    y = x[ours(key, device, as_tensors)]
    assert y.shape == expected.shape
    equals(y, expected)
    g = np.arange(1.0, expected.size + 1).reshape(expected.shape)
    for create_graph in (False, True):
        dx = mg.grad(y, x, tensor(g, device), retain_graph=True, create_graph=create_graph)
        scattered = np.zeros(shape)
        np.add.at(scattered, key, g)
        equals(dx, scattered)


@given(keyed_shapes(arrays=False))
def test_basic_reading_is_a_view(device, shaped):
    """Of a view, too: a transposed and reversed tensor."""
    shape, key = shaped
    a = numbered(shape).T[::-1] if shape else numbered(shape)
    x = tensor(numbered(shape), device)
    x = x.T[::-1] if shape else x
    expected = read(a, key)
    assume(expected is not None)
    y = x[key]
    equals(y, expected)
    y.fill_(-1)
    assert (array(x) == -1).sum() == np.size(expected)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_every_dtype(dtype, device, rng):
    a = rng.integers(0, 9, (4, 5, 3)).astype(dtype)
    for key in (2, (..., 1), [3, 0, 3], ([0, 1], slice(None), [2, 2]), a[:, 0, 0] > 0, a > 2):
        equals(tensor(a, device)[key], a[key])


@pytest.mark.parametrize("name", ["int8", "int16", "uint8", "uint32", "int32", "int64"])
def test_indices_of_every_width(name, device):
    """Arrays of NumPy's other integers are indices too, also without an axis."""
    a = np.arange(5.0)
    x = tensor(a, device)
    assert x[np.array([4, 1], name)].tolist() == [4.0, 1.0]
    assert x[np.array(3, name)].item() == 3.0
    assert x[np.dtype(name).type(3)].item() == 3.0
    assert mg.take(x, np.array([4, 1], name)).tolist() == [4.0, 1.0]
    largest = np.array([2**64 - 1], np.uint64)  # not -1
    refuses(ValueError, "index", str(largest[0]), x.__getitem__, largest)


class Array:
    """An array of another library; with one element it is an integer too."""

    def __init__(self, values):
        self.values = np.array(values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __index__(self):
        return self.values.__index__()


class ArrayElsewhere(Array):
    """An array that NumPy cannot access, like CuPy's."""

    def __array__(self, dtype=None, copy=None):
        raise TypeError("no implicit conversion")

    def __dlpack__(self, **options):
        return self.values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.values.__dlpack_device__()


@pytest.mark.parametrize("make", ["torch", Array, ArrayElsewhere])
def test_indices_of_other_libraries(make, device):
    """Arrays of one element are arrays, and masks masks, from any library."""
    make = pytest.importorskip("torch").tensor if make == "torch" else make
    a = np.arange(6.0).reshape(3, 2)
    x = tensor(a, device)
    for key in ([1], [[2]], [0, 1], [True, False, True], 1, [[True, False]] * 3, [-1, -1, 0]):
        found, expected = x[make(key)], a[np.array(key)]
        assert found.shape == expected.shape
        equals(found, expected)
    x[make([True, False, False])] = 9
    assert x.tolist() == [[9, 9], [2, 3], [4, 5]]
    refuses(IndexError, "setitem", ["(1,)", "3"], x.__setitem__, make([True]), 5)
    refuses(IndexError, "index", "float", x.__getitem__, make([1.5]))
    equals(mg.take(x, make([1]), axis=1), array(x)[:, [1]])


def test_other_forms_of_keys(device):
    x = tensor(np.arange(6.0).reshape(2, 3), device)
    assert x[mg.full((), 1, dtype="int64", device=device)].tolist() == [3, 4, 5]
    assert x[()].tolist() == x.tolist()
    assert x[(0, 1),].tolist() == x.tolist()
    assert x[[]].shape == x[np.zeros(0, int)].shape == (0, 3)
    assert x[[True, False]].tolist() == [[0, 1, 2]]
    assert x[True].shape == (1, 2, 3)
    assert x[False].shape == (0, 2, 3)
    assert x[np.zeros((2, 3), bool)].shape == x[:0][np.zeros((0, 3), bool)].shape == (0,)
    for key in (np.zeros(0, bool), np.zeros((0, 3), bool), np.zeros((2, 0), bool), (slice(None), np.zeros(0, bool))):
        assert x[key].shape == array(x)[key].shape  # an axis of a mask may be empty, as the array API says
        x[key] = 7
    refuses(IndexError, "index", ["(1,)", "2"], x.__getitem__, np.zeros(1, bool))
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert x[np.True_, 0].tolist() == [[0, 1, 2]]
    assert x[x > 2].tolist() == [3, 4, 5]
    assert x[0][1].item() == 1.0


def test_gradients_meet_in_one_tensor(device):
    """Gradients of slices, takes and uses of a whole tensor are summed, in any order."""
    a = np.arange(1.0, 7.0)
    for create_graph in (False, True):
        x = tensor(a, device, True)
        y = (x[1:3] * 2).sum() + (x * x).sum() + (x[[0, 0, 5]] * 3).sum() + x[4] + mg.take(x, [1, 1]).sum()
        assert mg.grad(y, x, create_graph=create_graph).tolist() == [2 + 6, 4 + 2 + 2, 6 + 2, 8, 10 + 1, 12 + 3]


# ── writing ───────────────────────────────────────────────────────────────────────────────────────


def winners(shape, key):
    """Return whether each element of a key keeps the written value, which the last of equal indices does."""
    number = np.zeros(shape, int)
    part = np.asarray(number[key])
    order = np.arange(part.size).reshape(part.shape)
    number.reshape(-1)[np.arange(np.prod(shape, dtype=int)).reshape(shape)[key].reshape(-1)] = order.reshape(-1)
    return number[key] == order


@given(keyed_shapes(), st.booleans(), st.data())
def test_writing(device, shaped, as_tensors, data):
    """Values broadcast and are written as in NumPy; there dx is 0 and dv is g."""
    shape, key = shaped
    a = numbered(shape)
    part = read(a, key)
    assume(part is not None)
    part = np.shape(part)
    drop = data.draw(st.integers(0, len(part)))
    value = -1 - numbered(tuple(1 if data.draw(st.booleans()) else n for n in part[drop:]))
    kept, full = winners(shape, key), np.broadcast_to(value, part)
    expected = a.copy()
    expected.reshape(-1)[np.arange(a.size).reshape(shape)[key].reshape(-1)] = full.reshape(-1)
    x = tensor(a, device)
    x[ours(key, device, as_tensors)] = tensor(value, device)
    equals(x, expected)
    assert x.version == 1

    leaf, v, g = tensor(a, device, True), tensor(value, device, True), np.arange(1.0, a.size + 1).reshape(shape)
    y = leaf * 1
    y[ours(key, device, as_tensors)] = v
    equals(y, expected)
    rest, share = g.copy(), np.where(kept, g[key], 0)
    rest[key] = 0
    lead = share.ndim - value.ndim
    axes = tuple(k for k in range(share.ndim) if k < lead or value.shape[k - lead] == 1)
    share = share.sum(axes).reshape(value.shape)
    for create_graph in (False, True):
        dx, dv = mg.grad(y, [leaf, v], tensor(g, device), retain_graph=True, create_graph=create_graph)
        equals(dx, rest)
        equals(dv, share)


def test_writing_numbers_and_sequences(device):
    x = mg.zeros((2, 3), dtype="int32", device=device)
    x[0] = 5
    x[1] = [1, 2, 3]
    x[:, 1] = np.array([7, 8])
    x[x > 6] = 0
    assert x.tolist() == [[5, 0, 5], [1, 0, 3]]
    x[...] = True
    assert x.tolist() == [[1] * 3] * 2
    flags = mg.zeros(2, dtype="bool", device=device)
    flags[1] = 5
    assert flags.tolist() == [False, True]
    x[0, 0] = 2.0  # integral values fit
    assert x[0, 0].item() == 2


def test_writing_overlapping_parts(device):
    """Writing a tensor into itself works as if the source had been copied first."""
    for move in (lambda x: x.__setitem__(slice(1, None), x[:-1]), lambda x: x.__setitem__(slice(None), x[::-1]),
                 lambda x: x.__setitem__(slice(None, -1), x[1:])):  # fmt: skip
        a, x = np.arange(50.0), tensor(np.arange(50.0), device)
        move(a)
        move(x)
        equals(x, a)


def test_gradcheck_of_writing(device, rng):
    """To second order, with masks, repeated indices and slices."""
    for key in (
        (slice(None), 1), ([0, 2, 0],), ([0, 0], slice(None), [1, 1]), (rng.random((3, 4)) < 0.5,),
        (..., slice(None, None, -2)),
    ):  # fmt: skip
        a = rng.standard_normal((3, 4, 2))
        v = rng.standard_normal(a[key].shape)

        def function(x, v, key=key):
            y = x * x
            y[key] = v * v
            return y * y

        assert mg.gradcheck(function, [tensor(a, device, True), tensor(v, device, True)], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("key", [
    slice(None, None, 2**70), slice(None, None, -(2**70)), slice(2**70), slice(2**70, None), slice(-(2**70), 2**70, 3),
    slice(None, -(2**70), -1), slice(3, None, 2**63 - 1), slice(None, None, -(2**63)),
])  # fmt: skip
def test_slices_beyond_all_integers(key, device):
    a = np.arange(10.0).reshape(5, 2)
    x = tensor(a, device)
    equals(x[key], a[key])
    x[key] = a[key] = -1
    equals(x, a)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "bool"])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_the_last_of_equal_indices_wins(width, dtype, device, rng):
    """Copies elements of every size, singly and in rows, however many there are."""
    index = rng.integers(-9, 9, 2600)
    x, v = (rng.integers(0, 2 if dtype == "bool" else 1000, (n, width)).astype(dtype) for n in (9, 2600))
    written = tensor(x, device)
    written[tensor(index, device)] = tensor(v, device)
    for i, row in zip(index, v, strict=True):
        x[i] = row
    equals(written, x)


# ── bad keys ──────────────────────────────────────────────────────────────────────────────────────


@given(hnp.array_shapes(min_dims=1, max_dims=3, max_side=4), st.data())
def test_out_of_range(device, shape, data):
    """One bad index anywhere: IndexError, and nothing has been written."""
    axis = data.draw(st.integers(0, len(shape) - 1))
    n = shape[axis]
    bad = data.draw(st.sampled_from([n, -n - 1, n + 7, 2**62, -(2**62)]))
    x, where = tensor(numbered(shape), device), f"axis {axis} of length {n}"
    keys = [bad, [0, bad, 0], np.array([[bad]])]
    for part in keys:
        key = (*[slice(None)] * axis, part)
        refuses(IndexError, "index", [str(bad), where], lambda x, key=key: x[key], x)
        refuses(IndexError, "setitem", [str(bad), where], lambda x, key=key: x.__setitem__(key, 1), x)
    refuses(IndexError, "take", [str(bad), where], lambda x: mg.take(x, [0, bad], axis=axis), x)
    index = np.zeros([1 if k != axis else 2 for k in range(len(shape))], dtype=np.int64)
    index.reshape(-1)[1] = bad
    refuses(IndexError, "take_along_axis", [str(bad), where], lambda x: mg.take_along_axis(x, index, axis=axis), x)


def test_out_of_range_where_the_indices_are(device):
    """Indices on a GPU are checked there: the next transfer raises the error once, and work can continue."""
    x, plain = mg.ones((4, 3), device=device), mg.tensor([[1, 2]], device=device)
    for bad in (4, -5, 2**62, -(2**62)):
        i, where = mg.tensor([0, bad], device=device), [str(bad), "axis 0 of length 4"]
        refuses(IndexError, "take", where, waited(lambda x, i: mg.take(x, i, axis=0)), x, i)
        refuses(IndexError, "index", where, waited(lambda x, i: x[i]), x, i)
        refuses(IndexError, "index", where, lambda x, i: x[i].tolist(), x, i)
        refuses(IndexError, "setitem", where, waited(lambda i: mg.zeros((4, 3), device=device).__setitem__(i, 1)), i)
        refuses(IndexError, "take_along_axis", where, waited(lambda x, i: mg.take_along_axis(x, i[:, None], 0)), x, i)
    refuses(IndexError, "take", "axis 0 of length 0", lambda x, i: mg.take(x[:0], i[0], axis=0), x, plain)
    assert x[plain].tolist() == [[[1.0] * 3] * 2]


def test_bad_keys(device):
    x = tensor(np.arange(6.0).reshape(2, 3), device)
    for key, numbers in [
        ((0, 0, 0), ["2", "(2, 3)", "3"]), ((..., ...), "ellipsis"), ("a", "'a'"), (1.0, "1.0"), ([0.5], "float"), ({1}, "{1}"),
        (np.array([1.5]), "float64"), (([0, 1], [0, 1, 2]), ["(2,)", "(3,)"]), ([True, False, True], ["(3,)", "(2, 3)"]),
        (np.ones((2, 2), bool), ["(2, 2)", "axis 1"]), (np.ones((2, 3, 1), bool), ["2", "3"]), ((slice(None), [True, True]), "axis 1"),
    ]:  # fmt: skip
        refuses(IndexError, "index", numbers, lambda x, key=key: x[key], x)
        refuses(IndexError, "setitem", numbers, lambda x, key=key: x.__setitem__(key, 0), x)
    refuses(IndexError, "index", "at most 0", lambda x: x[0], x[0, 0])


def test_bad_values(device):
    x, n = mg.ones((2, 3), device=device), mg.ones((2, 3), dtype="int64", device=device)
    refuses(ValueError, "setitem", ["(2,)", "(2, 3)"], lambda x, v: x.__setitem__(..., v), x, mg.ones(2, device=device))
    parts = ["(2, 3)", "(3,)"]
    refuses(ValueError, "setitem", parts, lambda x, v: x.__setitem__(0, v), x, mg.ones((2, 3), device=device))
    refuses(TypeError, "setitem", ["int64", "float32"], lambda n, x: n.__setitem__(0, x[0]), n, x)
    refuses(TypeError, "setitem", ["int64", "0.5"], lambda n: n.__setitem__(0, 0.5), n)
    refuses(TypeError, "setitem", "nan", lambda n: n.__setitem__(0, np.nan), n)
    parts = ["broadcast", "(4, 2, 3)"]
    refuses(ValueError, "setitem", parts, lambda x: mg.broadcast_to(x, (4, 2, 3)).__setitem__(0, 1), x)
    refuses(TypeError, "setitem", "str", lambda x: x.__setitem__(0, "a"), x)
    refuses(OverflowError, "setitem", str(2**70), lambda n: n.__setitem__(0, 2**70), n)


def test_slices_of_columns(device, rng):
    """Many indices are handled in slices of the columns, of which the last is narrower here."""
    x, g = rng.standard_normal((5, 37)), rng.standard_normal((2000, 37))
    index = rng.integers(0, 5, 2000)
    grad = np.zeros((5, 37))
    np.add.at(grad, index, g)
    leaf = tensor(x, device, True)
    near(mg.grad(leaf[tensor(index, device)], leaf, tensor(g, device)), grad, rtol=1e-12, atol=1e-12)
    along, grad = rng.integers(0, 5, (2000, 37)), np.zeros((5, 37))
    np.add.at(grad, (along, np.arange(37)), g)
    y = mg.take_along_axis(leaf, tensor(along, device), axis=0)
    near(mg.grad(y, leaf, tensor(g, device)), grad, rtol=1e-12, atol=1e-12)
    order = rng.permutation(2000)
    written = tensor(np.zeros((2000, 37)), device)
    written[tensor(order, device)] = tensor(g, device)
    np.testing.assert_array_equal(array(written)[order], g)
