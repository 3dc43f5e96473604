"""Reading and sorting by index."""

import numpy as np

import minigrad as mg
from table.entry import Op, case, cases


def scatter_add(x, v, axis, indices):
    y = x.copy()
    places = list(np.ix_(*map(range, indices.shape)))
    places[axis] = indices
    np.add.at(y, tuple(places), v)
    return y


def getitem(x, key):
    return x[key]


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
        "scatter_add", scatter_add, ours=lambda x, v, axis, indices: mg.scatter_add(x, axis, indices, v),
        torch=lambda t, x, v, axis, indices: t.scatter_add(x, axis, indices % x.shape[axis], v),
        cases=(
            case((5,), (4,), axis=0, indices=np.array([3, 0, 3, -1])), case((3, 4), (3, 2), axis=1, indices=np.array([[0, 0], [1, 3], [-1, 2]])),
            case((2, 3), (4, 3), axis=-2, indices=np.array([[0, 1, 0], [1, 1, 1], [0, 0, 0], [1, 0, 1]])),
            case((3, 4), (3, 0), axis=1, indices=np.zeros((3, 0), dtype=np.int64)),
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
    *(
        Op(name, unique, cases(((),), ((7,),), ((3, 4),), ((0, 3),)), dtypes="fib", ulps=0, gradient=False)
        for name, unique in [("unique_all", np.unique_all), ("unique_counts", np.unique_counts), ("unique_inverse", np.unique_inverse)]
    ),
    Op("unique_values", np.unique, cases(((),), ((7,),), ((3, 4),), ((0, 3),)), dtypes="fib", ulps=0, gradient=False),
    Op(
        "Tensor.__getitem__", getitem, dtypes="fib", ulps=0, ours=getitem,
        # PyTorch orders the axes differently if a number precedes a slice and an array: there, only NumPy is the reference.
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
