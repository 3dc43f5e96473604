"""Products and rearrangements of minigrad.arrays.products: the table, random einsums, and invalid arguments."""

import numpy as np
import pytest
from checks import Suite, array, equals, near, raises, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import PRODUCTS

import minigrad as mg


class TestTable(Suite):
    ops = PRODUCTS


# ── einsum ────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def einsums(draw):
    """Draw (subscripts, shapes): up to three operands, repeated letters, sums, ellipses, with -> or without."""
    letters = "ijkLA"
    sizes = {c: draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 3)) for c in letters}
    dots = draw(st.lists(st.integers(1, 3), max_size=2)) if draw(st.booleans()) else None
    terms, shapes = [], []
    for _ in range(draw(st.integers(1, 3))):
        term = draw(st.lists(st.sampled_from(letters), max_size=3))
        shape = [sizes[c] for c in term]
        if dots is not None and (draw(st.booleans()) or not terms):
            place, hidden = draw(st.integers(0, len(term))), dots[draw(st.integers(0, len(dots))) :]
            hidden = [draw(st.sampled_from([1, n])) for n in hidden]
            shape[place:place], term[place:place] = hidden, ["..."]
        terms.append("".join(term))
        shapes.append(tuple(shape))
    used = sorted({c for term in terms for c in term if c.isalpha()})
    subscripts = ",".join(terms)
    if draw(st.booleans()) or dots is not None:
        output = draw(st.permutations(draw(st.lists(st.sampled_from(used), unique=True)) if used else []))
        if dots is not None:
            output.insert(draw(st.integers(0, len(output))), "...")
        subscripts += "->" + "".join(output)
    return subscripts, shapes


@given(einsums(), st.integers(0, 2**32 - 1))
def test_einsum(device, described, seed):
    """The result is NumPy's; the gradient is checked by differences that are exact for a polynomial."""
    subscripts, shapes = described
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    leaves = [tensor(a, device, True) for a in arrays]
    y, expected = mg.einsum(subscripts, *leaves), np.einsum(subscripts, *arrays)
    near(y, expected, rtol=1e-12, atol=1e-12)
    g = rng.standard_normal(y.shape)
    for k, dx in enumerate(mg.grad(y, leaves, tensor(g, device))):
        v = rng.standard_normal(shapes[k])
        moved = np.einsum(subscripts, *[v if i == k else a for i, a in enumerate(arrays)])  # linear in each operand
        np.testing.assert_allclose((array(dx) * v).sum(), (g * moved).sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("subscripts", "shapes"), [
    ("ij,jk->ik", [(1, 3), (3, 2)]), ("i,i->i", [(1,), (3,)]), ("i,i->", [(1,), (3,)]), ("ij,ij,i->j", [(2, 1), (1, 3), (2,)]),
    ("i,i,i->", [(1,), (1,), (3,)]), ("...i,...i->...", [(1, 3), (2, 3)]), ("ij,kj->ik", [(2, 1), (3, 4)]),
])  # fmt: skip
def test_einsum_broadcasts_ones(subscripts, shapes, device, rng):
    """A length of one broadcasts to any length, as in NumPy."""
    arrays = [rng.standard_normal(shape) for shape in shapes]
    near(mg.einsum(subscripts, *[tensor(a, device) for a in arrays]), np.einsum(subscripts, *arrays), rtol=1e-12, atol=1e-13)  # fmt: skip
    assert mg.gradcheck(
        lambda *xs: mg.einsum(subscripts, *xs), [tensor(a, device, True) for a in arrays], rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize(("subscripts", "shapes", "said"), [
    ("ij,jk->ik", [(2, 3)], ["2 operands", "got 1"]), ("ij->i", [(2, 3), (2,)], ["1 operands", "got 2"]),
    ("ij->i", [(2,)], ["'ij'", "(2,)"]), ("i->i", [(2, 3)], "'i'"), ("ij,jk->ik", [(2, 3), (4, 5)], ["'j'", "3", "4"]),
    ("ij->k", [(2, 3)], "'ij->k'"), ("ij->ii", [(2, 3)], "'ij->ii'"), ("ii->i", [(2, 3)], ["'i'", "2", "3"]),
    ("i1->i", [(2, 3)], "'i1'"), ("i.j->i", [(2, 3, 4)], "'i.j'"), ("...i...->i", [(2, 3)], "'...i...'"), ("ij->ij->i", [(2, 3)], "ij->ij->i"),
    ("...ij->...", [(2,)], "(2,)"), ("", [], "0"), ("i...->...", [(2, 3), (3,)], "got 2"),
    ("...i,...i->i...", [(2, 4), (3, 4)], ["2", "3"]),
])  # fmt: skip
def test_einsum_refusals(subscripts, shapes, said, device):
    xs = [mg.ones(shape, device=device) for shape in shapes]
    refuses(ValueError, "einsum", said, lambda *xs: mg.einsum(subscripts, *xs), *xs)


# ── the others ────────────────────────────────────────────────────────────────────────────────────


def test_integers_stay_what_they_are(device):
    """Products of int32 are int32, wrap where they overflow, and are exact where float64 is not."""
    for dtype in ("int32", "int64"):
        x = tensor(np.array([2**16, 3, 5], dtype), device)
        for y in (
            mg.vecdot(x, x), mg.einsum("i,i", x, x), mg.einsum("i,i,j->", x, x, x[1:2]), mg.tensordot(x, x, axes=1),
            mg.outer(x, x),
        ):  # fmt: skip
            assert y.dtype == dtype
        with np.errstate(all="ignore"):
            assert mg.vecdot(x, x).item() == np.vecdot(array(x), array(x))
    big = tensor(np.array([2**53 + 1, 1]), device)
    assert mg.einsum("i->", big).item() == 2**53 + 2


def test_sequences_and_arrays_are_taken(device):
    """On any device."""
    assert mg.outer([1, 2], [3, 4]).tolist() == [[3, 4], [6, 8]]
    assert mg.vecdot([1.0, 2.0], np.array([3.0, 4.0], np.float32)).item() == 11
    assert mg.einsum("i,i", [1, 2], [3, 4]).item() == 11
    assert mg.tensordot([[1, 2]], [[3], [4]], axes=1).tolist() == [[11]]
    assert mg.transpose([[1, 2]]).tolist() == [[1], [2]]
    assert mg.roll([1, 2, 3], 1).tolist() == [3, 1, 2]
    assert mg.repeat([1, 2], [1, 2]).tolist() == [1, 2, 2]
    assert mg.tile([1, 2], 2).tolist() == [1, 2, 1, 2]
    assert mg.pad([1], 1).tolist() == [0, 1, 0]


def test_a_pair_that_numpy_and_pytorch_understand_differently():
    raises(ValueError, r"\[pad\] expected one width.*for each of 2 axes, got \(1, 2\)", mg.pad, mg.ones((2, 3)), (1, 2))
    assert mg.pad(mg.ones(2), (1, 2)).tolist() == mg.nn.functional.pad(mg.ones(2), (1, 2)).tolist()


def test_counts_in_any_form(device):
    x = tensor(np.arange(6.0).reshape(2, 3), device)
    assert mg.repeat(x, mg.full((), 2, dtype="int64", device=device), axis=0).shape == (4, 3)
    assert mg.repeat(x, np.int64(2), axis=0).shape == (4, 3)
    assert mg.repeat(x, np.array([1, 2]), axis=0).shape == (3, 3)
    assert mg.repeat(x, [3], axis=1).shape == (2, 9)
    assert mg.tile(x, np.int64(2)).shape == (2, 6)
    assert mg.pad(x, np.int64(1)).shape == (4, 5)
    assert mg.roll(x, np.int64(1), axis=np.int64(-1)).tolist() == [[2, 0, 1], [5, 3, 4]]
    assert mg.tensordot(x, x, axes=((0, -1), (-2, 1))).item() == 55
    assert mg.repeat(x, True, axis=0).shape == (2, 3)
    assert mg.repeat(x[:0], [], axis=0).shape == (0, 3)


@pytest.mark.parametrize("axes", [
    (-1, -1), (0, 0), (1, (1,)), ([0], -2), np.array([1, 1]), np.array([[0, 1], [0, 1]]), np.int64(0), np.array(2), [1, 1],
], ids=str)  # fmt: skip
def test_axes_of_tensordot(axes, device, rng):
    """One axis of each as an int, and all other forms that NumPy accepts."""
    a, b = rng.standard_normal((2, 3)), rng.standard_normal((2, 3))
    found, expected = mg.tensordot(tensor(a, device), tensor(b, device), axes=axes), np.tensordot(a, b, axes=axes)
    assert found.shape == expected.shape
    near(found, expected, rtol=1e-12)
    if isinstance(axes, np.ndarray):
        found = mg.tensordot(tensor(a, device), tensor(b, device), axes=tensor(axes, device))
        near(found, expected, rtol=1e-12)


def test_many_copies(device):
    """Works for 2 numbers and for 8 axes: no list of positions or pieces, and no additional axis."""
    x = tensor(np.array([1.0, 2.0], np.float32), device)
    y = mg.repeat(x, 10**5)
    equals(y, np.repeat([1, 2], 10**5))
    equals(mg.repeat(x, [10**5, 1]), np.repeat([1, 2], [10**5, 1]))
    equals(mg.tile(x, 10**5), np.tile([1, 2], 10**5))
    a = np.arange(2.0**8).reshape((2,) * 8)
    equals(mg.tile(tensor(a, device), (1, 2) * 4), np.tile(a, (1, 2) * 4))
    for axis in (0, 3, 7):
        equals(mg.repeat(tensor(a, device), 3, axis=axis), np.repeat(a, 3, axis))
    view = tensor(a, device).permute_dims(range(7, -1, -1))[:, ::-1]
    equals(mg.repeat(view, 2, axis=1), np.repeat(a.T[:, ::-1], 2, 1))


def test_copies_share_no_memory(device):
    """They share memory neither with x nor with one another, also for a single one of each."""
    for shape in ((3,), (1, 3), (3, 1)):
        for n in (1, 2):
            for copies in (lambda x, n=n: mg.tile(x, n), lambda x, n=n: mg.tile(x, (n, 1)), lambda x, n=n: mg.repeat(x, n),
                           lambda x, n=n: mg.repeat(x, n, axis=0), lambda x: mg.repeat(x, [1] * x.shape[0], axis=0)):  # fmt: skip
                x = mg.zeros(shape, device=device)
                y = copies(x)
                y += 1
                y[..., 0] += 1
                assert array(x).max() == 0
                assert array(y).sum() == y.size + y.size // y.shape[-1]


def test_more_than_any_memory(device):
    """The error is raised before anything is created, with the name of the operation."""
    x = mg.ones((2, 3), device=device)
    for n in (2**56, 2**62, 2**63 - 1, 2**63, 2**100):
        refuses(MemoryError, "repeat", str(6 * n), mg.repeat, x, n)
        refuses(MemoryError, "repeat", str(3 * n), mg.repeat, x, n, axis=1)
        refuses(MemoryError, "tile", str(3 * n), mg.tile, x, n)
        refuses(MemoryError, "tile", str(2 * n), mg.tile, x, (n, 1))
        refuses(MemoryError, "pad", str(n + 2), mg.pad, x, ((0, n), (0, 0)))
    refuses(MemoryError, "repeat", str(2**57 + 1), mg.repeat, x, [2**57, 1], axis=0)
    refuses(MemoryError, "repeat", str(2**48 + 1), mg.repeat, x, [2**48, 1], axis=0)
    refuses(MemoryError, "tile", str(2**48), mg.tile, x, (2**47, 1))
    assert mg.tile(x[:0], 2**40).shape == (0, 3 * 2**40)
    assert mg.repeat(x[:0], 2**40).shape == (0,)


def test_pad_of_other_dtypes(device):
    assert mg.pad(tensor(np.array([1], np.int32), device), 1, value=7).dtype == "int32"
    assert mg.pad(tensor(np.array([1], np.int32), device), 1, value=2.0).tolist() == [2, 1, 2]
    refuses(TypeError, "pad", "int32", mg.pad, tensor(np.array([1], np.int32), device), 1, value=1.5)
    refuses(OverflowError, "pad", "int32", mg.pad, tensor(np.array([1], np.int32), device), 1, value=2**40)
    assert mg.pad(tensor(np.array([True]), device), (0, 2)).tolist() == [True, False, False]


def test_errors(device):
    x, v = mg.ones((2, 3), device=device), mg.ones(3, device=device)
    refuses(ValueError, "outer", ["(2, 3)", "(3,)"], mg.outer, x, v)
    refuses(ValueError, "vecdot", ["(2, 3)", "(2, 2)"], mg.vecdot, x, mg.ones((2, 2), device=device))
    refuses(ValueError, "tensordot", "3", lambda x: mg.tensordot(x, x, axes=3), x)
    refuses(ValueError, "tensordot", "-1", lambda x: mg.tensordot(x, x, axes=-1), x)
    refuses(ValueError, "tensordot", ["(2, 3)"], lambda x: mg.tensordot(x, x, axes=([0], [1])), x)
    refuses(ValueError, "tensordot", "[0, 1]", lambda x: mg.tensordot(x, x, axes=([0, 1], [0])), x)
    refuses(ValueError, "tensordot", "[0, 0]", lambda x: mg.tensordot(x, x, axes=([0, 0], [0, 0])), x)
    refuses(IndexError, "tensordot", "got 2", lambda x: mg.tensordot(x, x, axes=([2], [0])), x)
    refuses(IndexError, "tensordot", "got 0", lambda x: mg.tensordot(x[0, 0], x, axes=([0], [0])), x)
    refuses(IndexError, "tensordot", "got 2", lambda x: mg.tensordot(x, x, axes=(0, 2)), x)
    for axes in (1.5, None, "ab", (0, 1.5), ([0], None)):
        refuses(TypeError, "tensordot", "expected an integer", lambda x, axes=axes: mg.tensordot(x, x, axes=axes), x)
    for axes in ((0,), (0, 0, 0), ()):
        refuses(ValueError, "tensordot", str(axes), lambda x, axes=axes: mg.tensordot(x, x, axes=axes), x)
    refuses(TypeError, "roll", "1.5", mg.roll, x, 1.5)
    refuses(ValueError, "repeat", ["3", "[1, 2]"], mg.repeat, v, [1, 2])
    refuses(TypeError, "repeat", "1.5", mg.repeat, v, 1.5)
    refuses(ValueError, "tile", "-1", mg.tile, x, (1, -1))
    refuses(TypeError, "tile", "1.5", mg.tile, x, 1.5)
    refuses(ValueError, "pad", ["2 axes", "[(1, 1)]"], mg.pad, x, [(1, 1)])
    refuses(ValueError, "pad", "-1", mg.pad, x, (1, -1))
    refuses(ValueError, "pad", "(1, 2, 3)", mg.pad, x, (1, 2, 3))
    refuses(TypeError, "pad", "1.5", mg.pad, x, 1.5)


def test_diag_refuses(device):
    refuses(ValueError, "diag", "(1, 1, 1)", mg.diag, mg.ones((1, 1, 1), device=device))
    refuses(ValueError, "diag", "()", mg.diag, mg.ones((), device=device))
    refuses(TypeError, "diag", "1.5", mg.diag, mg.ones(2, device=device), 1.5)
    refuses(MemoryError, "diag", "", mg.diag, mg.ones(2, device=device), 1 << 40)
    assert mg.diag(mg.ones((2, 3), device=device), 9).shape == (0,)
