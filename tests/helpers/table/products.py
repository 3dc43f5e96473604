"""Matrix products, and operations composed of them."""

import numpy as np

import minigrad as mg
from table.entry import Op, T, case, cases

VECTORS = [((3,), (3,)), ((3, 4), (4,)), ((3,), (3, 4)), ((2, 3, 4), (4,)), ((3,), (2, 3, 4))]

MATRICES = [((3, 4), (4, 5)), ((1, 4), (4, 1)), ((3, 1), (1, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((3, 4), (4, 0))]

BATCHES = [
    ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 3, 4), (0, 4, 2)),
    ((2, 3, 0), (2, 0, 4)), ((2, 3, 0), (0, 4)), ((1, 3, 4), (2, 4, 1)), ((2, 0, 4), (4, 5)),
]  # fmt: skip

MATMUL = [
    Op("matmul", np.matmul, cases(*VECTORS, *MATRICES, *BATCHES), dtypes="fi"),
    Op(
        "linear", lambda x, w, b=0: x @ w.T + b, torch="nn.functional.linear",
        cases=cases(
            ((3, 4), (5, 4), (5,)), ((3, 4), (5, 4)), ((4,), (5, 4), (5,)), ((2, 3, 4), (5, 4), (5,)), ((2, 3, 4), (5, 4)),
            ((0, 4), (5, 4), (5,)), ((3, 0), (5, 0), (5,)), ((3, 4), (0, 4), (0,)), ((1, 1), (1, 1), (1,)), ((2, 0, 4), (5, 4), (5,)),
        ),
        composition=lambda x, w, b=None: mg.matmul(x, w.T) if b is None else mg.matmul(x, w.T) + b,
    ),
]  # fmt: skip


def einsum_case(subscripts, *shapes):
    return case(*shapes, subscripts=subscripts)


PRODUCTS = [
    Op("outer", np.outer, cases(((3,), (4,)), ((1,), (1,)), ((0,), (3,))), dtypes="fi"),
    Op(
        "vecdot", lambda x, y, axis=-1: np.vecdot(x, y, axis=axis), dtypes="fi", torch=lambda t, x, y, axis=-1: t.linalg.vecdot(x, y, dim=axis),
        cases=(case((4,), (4,)), case((3, 4), (3, 4)), case((3, 4), (4,)), case((3, 4), (3, 4), axis=0), case((2, 1, 4), (3, 4)), case((3, 0), (3, 0))),
    ),
    Op(
        "tensordot", np.tensordot, dtypes="fi", torch=T("tensordot", axes="dims"),
        cases=(
            case((2, 3, 4), (3, 4, 5)), case((2, 3), (3, 4), axes=1), case((2, 3), (4,), axes=0), case((2, 3, 4), (4, 5, 2), axes=((0, 2), (2, 0))),
            case((2, 3, 4), (4, 5, 2), axes=([-1], [0])), case((2, 3), (2, 3)), case((2, 0), (0, 3), axes=1), case((0, 3), (3, 4), axes=1),
            case((3, 0, 2), (2, 4), axes=1),
        ),
    ),
    Op(
        "einsum", lambda *xs, subscripts: np.einsum(subscripts, *xs), ours=lambda *xs, subscripts: mg.einsum(subscripts, *xs),
        torch=lambda t, *xs, subscripts: t.einsum(subscripts, *xs), dtypes="fi",
        cases=(
            einsum_case("ij,jk->ik", (2, 3), (3, 4)), einsum_case("ij,jk", (2, 3), (3, 4)), einsum_case("ij->ji", (2, 3)),
            einsum_case("ij->", (2, 3)), einsum_case("ii->i", (3, 3)), einsum_case("ii", (3, 3)), einsum_case("iij->j", (3, 3, 2)),
            einsum_case("iii->i", (3, 3, 3)), einsum_case("i,j->ji", (2,), (3,)), einsum_case("i,i->i", (3,), (3,)), einsum_case("i,i", (3,), (3,)),
            einsum_case("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), einsum_case("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)),
            einsum_case("i...,i->...", (3, 2, 4), (3,)), einsum_case("...,...", (2, 3), (3,)), einsum_case("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
            einsum_case("ij,jk,ik->", (2, 3), (3, 4), (2, 4)), einsum_case("i,ij,j->", (2,), (2, 3), (3,)), einsum_case("ba", (2, 3)),
            einsum_case("ij,kj->ikj", (2, 3), (4, 3)), einsum_case(" i j , j k -> k i ", (2, 3), (3, 4)), einsum_case(",->", (), ()),
            einsum_case("ij,jk->ik", (2, 0), (0, 3)), einsum_case("ij,jk->k", (0, 3), (3, 2)), einsum_case("i,ijj->", (2,), (2, 3, 3)),
        ),
    ),
    Op(
        "diagonal", np.diagonal, dtypes="fib", ulps=0, torch=T("diagonal", axis1="dim1", axis2="dim2"),
        cases=(
            case((3, 4)), case((3, 4), offset=2), case((4, 3), offset=-1), case((2, 3, 4), axis1=1, axis2=2), case((2, 3, 4), axis1=-1, axis2=0),
            case((3, 3), offset=3), case((0, 3)), case((2, 3, 4), offset=1, axis1=2, axis2=1),
        ),
    ),
    Op("diag", np.diag, dtypes="fib", ulps=0, torch=lambda t, x, k=0: t.diag(x, k),
       cases=(case((3,)), case((3,), k=2), case((3,), k=-1), case((0,)), case((0,), k=1), case((3, 4)), case((3, 4), k=1), case((3, 4), k=-2))),
    Op(
        "trace", np.trace, dtypes="fi", torch=lambda t, x, offset=0, axis1=0, axis2=1: x.diagonal(offset, axis1, axis2).sum(-1),
        cases=(case((3, 4)), case((3, 4), offset=-1), case((2, 3, 4), axis1=2, axis2=0), case((0, 3)), case((3, 3), offset=4)),
    ),
    Op("kron", np.kron, cases(((2,), (3,)), ((2, 3), (3, 2)), ((2, 3), (4,)), ((3,), (2, 1, 2)), ((), (3,)), ((), ()), ((0, 2), (3, 3))), dtypes="fi"),
    Op(
        "broadcast_arrays", np.broadcast_arrays, cases(((3, 1), (1, 4)), ((3,), ()), ((2, 3), (3,), (2, 1)), ((0, 3), (1, 3))), dtypes="fib", ulps=0,
        torch="broadcast_tensors",
    ),
    Op("transpose", np.transpose, dtypes="fib", ulps=0, torch=lambda t, x, axes=None: x.permute(axes or tuple(range(x.ndim))[::-1]),
       cases=(case((2, 3, 4)), case((2, 3, 4), axes=(1, 2, 0)), case((2, 3, 4), axes=(-1, 0, 1)), case(()), case((4,)))),
    Op(
        "roll", np.roll, dtypes="fib", ulps=0, torch=lambda t, x, shift, axis=None: t.roll(x, shift, axis),
        cases=(
            case((7,), shift=2), case((3, 4), shift=-5), case((3, 4), shift=1, axis=0), case((3, 4), shift=(1, -1), axis=(0, 1)),
            case((3, 4), shift=4, axis=-1), case((3, 4), shift=(1, 1), axis=(1, 1)), case((0, 3), shift=1, axis=0), case((3, 0), shift=1),
        ),
    ),
    Op(
        "repeat", np.repeat, ours=lambda x, repeats, axis=None: mg.repeat(x, repeats, axis=axis), dtypes="fib", ulps=0, torch=T("repeat_interleave", axis="dim"),
        cases=(
            case((3,), repeats=2), case((2, 3), repeats=3), case((2, 3), repeats=2, axis=0), case((2, 3), repeats=np.array([2, 0, 1]), axis=1),
            case((2, 3), repeats=2, axis=-1), case((2, 3), repeats=0, axis=0), case((0, 3), repeats=2, axis=1),
        ),
    ),
    Op(
        "tile", np.tile, ours=lambda x, reps: mg.tile(x, reps), dtypes="fib", ulps=0,
        torch=lambda t, x, reps: t.tile(x, reps if isinstance(reps, tuple) else (reps,)),
        cases=tuple(case(shape, reps=n) for shape, n in [
            ((3,), 2), ((2, 3), 2), ((2, 3), (2, 3)), ((2, 3), (2, 1, 2)), ((3,), (2, 2)), ((2, 3), (0, 1)), ((), 3), ((0, 3), (2, 2)), ((3,), 1)]),
    ),
    Op(
        "pad", lambda x, pad_width, mode="constant", value=0: np.pad(
            x, pad_width, mode, **{"constant_values": value} if mode == "constant" else {}), dtypes="fib", ulps=0,
        torch=lambda t, x, pad_width, mode="constant", value=0.0: x.reshape(-1)[t.from_numpy(
            np.pad(np.arange(x.numel()).reshape(x.shape), pad_width, mode))]
        if mode != "constant" else t.nn.functional.pad(
            x, [n for w in np.broadcast_to(pad_width, (x.ndim, 2))[::-1].tolist() for n in w], value=value),
        cases=(
            case((3,), pad_width=1), case((3,), pad_width=(1, 2)), case((2, 3), pad_width=((1, 2), (1, 2))), case((2, 3), pad_width=((1, 0), (0, 2))), case((2, 3), pad_width=1, value=3),
            case((2, 3), pad_width=0), case((0, 3), pad_width=1), case((2, 3), pad_width=[(0, 0), (1, 1)], value=1),
            *(case(shape, pad_width=widths, mode=mode)
              for mode in ("reflect", "symmetric", "edge", "wrap")
              for shape, widths in [((3,), 2), ((3, 4), ((2, 1), (0, 3))), ((2, 1, 3), ((1, 1), (0, 0), (1, 2))), ((0, 3), ((0, 0), (1, 2)))]),
        ),
    ),
]  # fmt: skip
