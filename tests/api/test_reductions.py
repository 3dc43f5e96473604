"""minigrad.arrays.reductions: overflow, zeros, NaN, large integers, order statistics, searches, sets, and invalid arguments."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import agree, array, equals, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.engine.ops.gather import ranked

NAN, INF = math.nan, math.inf
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, INF, -INF, NAN])
VECTORS = st.one_of(
    hnp.arrays(np.int64, st.integers(0, 9), elements=st.sampled_from([-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1])),
    hnp.arrays(np.float32, st.integers(0, 9), elements=FLOATS),
)


# ── values along an axis ──────────────────────────────────────────────────────────────────────────


def test_running_products(device):
    """In order, so that nothing overflows which does not in a loop; and the gradient of zeros."""
    a = np.array([1e-300, 1e300, 1e300, 0.0, 2.0])
    x = tensor(a, device, True)
    y = mg.cumulative_prod(x)
    equals(y, np.cumprod(a))
    y.sum().backward()
    assert x.grad.tolist()[3] == (1e-300 * 1e300) * 1e300 * 3
    equals(mg.cumulative_prod(tensor(np.full(3, 2**30, np.int32), device)), np.cumprod(np.full(3, 2**30)))
    assert mg.cumulative_prod(tensor(np.ones(2, bool), device)).dtype == "int64"
    assert mg.cumulative_prod(tensor(np.ones(2), device), dtype="float32").dtype == "float32"
    assert mg.cumulative_prod(mg.ones(0, device=device), include_initial=True).tolist() == [1]
    refuses(ValueError, "cumulative_prod", "2 axes", mg.cumulative_prod, mg.ones((2, 3), device=device))
    refuses(IndexError, "cumulative_prod", "2", mg.cumulative_prod, mg.ones((2, 3), device=device), axis=2)


@pytest.mark.parametrize("axis", [True, False])
def test_a_bool_is_no_axis(axis):
    """In PyTorch, the first argument of some reductions is a flag."""
    x = mg.arange(24.0).reshape((2, 3, 4))
    for f in (mg.count_nonzero, mg.median, lambda x, axis: mg.count_nonzero(x, (axis, 2)),
              lambda x, axis: mg.cumulative_prod(x, axis=axis), lambda x, axis: mg.quantile(x, 0.5, axis), lambda x, axis: mg.diff(x, axis=axis),
              lambda x, axis: mg.roll(x, 1, axis), lambda x, axis: mg.repeat(x, 2, axis=axis),
              lambda x, axis: x.gather(axis, mg.zeros((1, 1, 1), dtype="int64")), lambda x, axis: x.topk(1, axis),
              lambda x, axis: mg.nn.Softmax(axis), lambda x, axis: mg.nn.Softmax(dim=axis)):  # fmt: skip
        with pytest.raises(TypeError, match=f"expected an integer (axis|dim), got {axis}"):
            f(x, axis)


def test_diff_of_integers_and_of_bools(device):
    a = np.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1])
    equals(mg.diff(tensor(a, device)), np.diff(a))
    b = np.array([True, True, False])
    equals(mg.diff(tensor(b, device), 2), np.diff(b, 2))
    joined = mg.diff(tensor(np.array([1, 2], np.int32), device), prepend=tensor(np.array([0.5], np.float32), device))
    assert (joined.dtype, joined.tolist()) == ("float32", [0.5, 1])
    refuses(ValueError, "diff", "-1", mg.diff, mg.ones(3, device=device), -1)
    refuses(IndexError, "diff", "1", mg.diff, mg.ones(3, device=device), axis=1)
    refuses(ValueError, "concat", "2", mg.diff, mg.ones((2, 3), device=device), append=mg.ones((3, 1), device=device))


def test_nan_to_num(device):
    for dtype in ("float32", "float64"):
        a = np.array([NAN, INF, -INF, -0.0, 3.0], dtype)
        x = tensor(a, device, True)
        for options in ({}, {"nan": 7, "posinf": 8, "neginf": -9.5}):
            y = mg.nan_to_num(x, **options)
            assert y.dtype == dtype
            equals(y, np.nan_to_num(a, **options))
        y.sum().backward()
        assert x.grad.tolist() == [0, 0, 0, 1, 1]
    assert mg.nan_to_num(tensor(np.array([2**53 + 1]), device)).tolist() == [2**53 + 1]


# ── order ─────────────────────────────────────────────────────────────────────────────────────────


def test_quantiles_of_special_values(device):
    for values in ([1, NAN, 2], [INF, INF], [-INF, 0, INF], [5], [1, 2, INF]):
        a = np.array(values, dtype=np.float64)
        with np.errstate(invalid="ignore"):
            equals(mg.median(tensor(a, device)), np.median(a))
    assert mg.quantile(tensor(np.array([0.0, 1.0, INF]), device), 0.5).item() == 1.0
    assert mg.quantile(tensor(np.array([-INF, 0.0, INF, INF]), device), [0.0, 0.5, 1.0]).tolist() == [-INF, INF, INF]
    assert mg.median(tensor(np.array([1, 2], np.int32), device)).dtype == "float32"
    rows = tensor(np.array([[1.0, NAN], [1.0, 3.0]]), device)
    equals(mg.quantile(rows, [0.0, 0.5], 1), [[NAN, 1], [NAN, 2]])
    refuses(ValueError, "median", "(0,)", mg.median, mg.ones(0, device=device))
    refuses(ValueError, "quantile", "1.5", mg.quantile, mg.ones(2, device=device), 1.5)
    refuses(ValueError, "quantile", "nan", mg.quantile, mg.ones(2, device=device), NAN)
    refuses(ValueError, "median", "distinct", mg.median, mg.ones((2, 2), device=device), (0, -2))
    refuses(IndexError, "median", "3", mg.median, mg.ones((2, 2), device=device), 3)
    refuses(TypeError, "median", "lower", lambda: mg.median(mg.ones(2, device=device), dim=0))


def test_selected_elements_are_numpys_with_the_places_of_a_stable_sort(device, rng):
    """Rows shorter and longer than what is compared or counted at once; equal elements, both zeros, few leading digits."""
    draws = [
        lambda n: rng.standard_normal((2, n)), lambda n: rng.integers(-2, 3, (2, n)), lambda n: 1000 + rng.random((2, n)),
        lambda n: rng.choice([-INF, INF, 0.0, -0.0, 1e-30, -3], (2, n)), lambda n: np.where(rng.random((2, n)) < 1 / n, NAN, 1),
    ]  # fmt: skip
    for n in (1, 2, 63, 64, 65, 66, 1001, 5000):
        for draw in draws:
            for dtype in ("float32", "float64"):
                a = draw(n).astype(dtype)
                q = [int(rng.integers(n)) / max(n - 1, 1), 1.0, 0.0]
                x = mg.tensor(a, device=device, requires_grad=True)
                with np.errstate(invalid="ignore"):
                    np.testing.assert_array_equal(array(mg.median(x, 1)), np.median(a, 1), err_msg=f"{n} {dtype}")
                nearest = np.round(np.array(q) * (n - 1)).astype(int)
                expected = np.where(np.isnan(a).any(1, keepdims=True), NAN, np.sort(a, 1)[:, nearest])
                y = ranked(x, mg.tensor(nearest, device=device))
                equals(y, expected)
                (dx,) = mg.grad(y, [x], [mg.tensor([[1.0, 2, 4]] * 2, dtype=dtype, device=device)])
                order, places = np.argsort(a, 1, kind="stable"), np.zeros_like(a)
                for row in range(2):
                    broken = np.flatnonzero(np.isnan(a[row]))
                    np.add.at(places[row], broken[[-1] * 3] if broken.size else order[row, nearest], [1, 2, 4])
                equals(dx, places)


@given(VECTORS, st.data())
def test_searchsorted_is_numpys(a, data):
    a = np.sort(a)
    values = data.draw(
        hnp.arrays(a.dtype, st.sampled_from([(), (3,), (2, 2), (0,)]), elements=st.sampled_from([*a.tolist(), 0, 1]))
    )
    for side in ("left", "right"):
        found = mg.searchsorted(mg.tensor(a), mg.tensor(values), side=side)
        assert found.dtype == "int64"
        equals(found, np.searchsorted(a, values, side=side))


def test_searchsorted(device):
    a = np.array([3.0, 1.0, NAN, 2.0, 2.0])
    x, values = tensor(a, device), tensor(np.array([[2.0, NAN], [0.0, 9.0]]), device)
    for side in ("left", "right"):
        found = mg.searchsorted(x, values, side=side, sorter=mg.argsort(x))
        equals(found, np.searchsorted(np.sort(a), array(values), side=side))
    big = tensor(np.array([2**53, 2**53 + 1, 2**53 + 2]), device)
    assert mg.searchsorted(big, tensor(np.array([2**53 + 1]), device), side="right").tolist() == [2]
    assert mg.searchsorted(big, 1.5).tolist() == 0
    refuses(ValueError, "searchsorted", "(1, 3)", mg.searchsorted, big[None], big)
    refuses(ValueError, "searchsorted", "middle", mg.searchsorted, big, big, side="middle")


# ── sets ──────────────────────────────────────────────────────────────────────────────────────────


@given(VECTORS)
def test_unique_is_numpys(a):
    check_unique(a, "cpu")


@pytest.mark.parametrize("a", [
    np.array([[2**53 + 1, 2**53], [2**53, 7]]), np.array([NAN, 1.0, NAN, -0.0, 0.0], np.float32), np.array(True),
    np.zeros((2, 0)),
], ids=["large", "nan", "scalar", "empty"])  # fmt: skip
def test_unique(a, device):
    check_unique(a, device)


def check_unique(a, device):
    x, theirs = tensor(a, device), np.unique_all(a)
    found = mg.unique_all(x)
    agree(found, theirs)
    assert found._fields == theirs._fields
    equals(mg.unique_values(x), array(found.values))
    for ours, expected in [(mg.unique_counts(x), np.unique_counts(a)), (mg.unique_inverse(x), np.unique_inverse(a))]:
        assert ours._fields == expected._fields
        agree(ours, expected)
