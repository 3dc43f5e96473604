"""Operations that move elements: layout, joining and splitting."""

import numpy as np

import minigrad as mg
from table.entry import AXES, EMPTY, Op, T, case, cases, torch_axes


def permuted(x, axes):
    return np.transpose(x, axes)


def pixel_shuffle(x, upscale_factor):
    """Each r by r part of the result from r² channels."""
    r = upscale_factor
    y = np.zeros((*x.shape[:-3], x.shape[-3] // r**2, x.shape[-2] * r, x.shape[-1] * r), x.dtype)
    for i in range(r):
        for j in range(r):
            y[..., i::r, j::r] = x[..., i * r + j :: r * r, :, :]
    return y


LAYOUT = [
    Op(
        "pixel_shuffle", pixel_shuffle, dtypes="fib", ulps=0,
        torch=lambda t, x, upscale_factor: (  # PyTorch 2.13 raises an error in the backward pass of an empty result
            t.nn.functional.pixel_shuffle(x, upscale_factor) if x.numel() else x.reshape(pixel_shuffle(x.detach().numpy(), upscale_factor).shape)
        ),
        cases=(
            case((1, 4, 2, 3), upscale_factor=2), case((9, 1, 2), upscale_factor=3), case((2, 1, 8, 2, 1), upscale_factor=2),
            case((3, 2, 2), upscale_factor=1), case((0, 4, 2, 2), upscale_factor=2), case((1, 0, 2, 2), upscale_factor=2),
        ),
    ),
    Op(
        "reshape", lambda x, shape: x.reshape(shape), dtypes="fib", ulps=0, torch=lambda t, x, shape: x.reshape(shape),
        cases=(
            case((3, 4), shape=(2, 6)), case((3, 4), shape=-1), case((2, 3, 4), shape=(4, -1, 3)), case((), shape=(1, 1)),
            case((1,), shape=()), case((0, 3), shape=(3, 0, 2)), case((3, 4), shape=(3, 4)), case((2, 3), shape=[6]),
        ),
    ),
    Op(
        "permute_dims", permuted, dtypes="fib", ulps=0, torch=T("permute", axes="dims"),
        cases=(case((2, 3, 4), axes=(2, 0, 1)), case((2, 3, 4), axes=(-1, 1, -3)), case((), axes=()), case((0, 3), axes=(1, 0))),
    ),
    Op("matrix_transpose", np.matrix_transpose, cases(((3, 4),), ((2, 3, 4),), ((0, 3),)), dtypes="fib", ulps=0, torch="adjoint"),
    Op(
        "moveaxis", np.moveaxis, dtypes="fib", ulps=0,
        cases=(
            case((2, 3, 4), source=0, destination=-1), case((2, 3, 4, 5), source=(0, -1), destination=(2, 0)),
            case((0, 3), source=1, destination=0),
        ),
    ),
    Op(
        "swapaxes", np.swapaxes, dtypes="fib", ulps=0, torch=lambda t, x, axis1, axis2: t.swapaxes(x, axis1, axis2),
        cases=(case((2, 3, 4), axis1=0, axis2=-1), case((2, 3), axis1=1, axis2=1), case((0, 3), axis1=0, axis2=1)),
    ),
    Op("ravel", np.ravel, cases(((),), ((7,),), ((3, 4),), ((2, 0),)), dtypes="fib", ulps=0),
    Op(
        "expand_dims", np.expand_dims, dtypes="fib", ulps=0,
        torch=lambda t, x, axis: x[(None, ..., None) if isinstance(axis, tuple) else (*[slice(None)] * (axis % (x.ndim + 1)), None)],
        cases=(
            case((3, 4), axis=0), case((3, 4), axis=1), case((3, 4), axis=-1), case((), axis=0), case((3, 4), axis=(0, -1)),
            case((0, 3), axis=1),
        ),
    ),
    Op(
        "squeeze", np.squeeze, dtypes="fib", ulps=0,
        torch=lambda t, x, axis=None: t.squeeze(x) if axis is None else t.squeeze(x, axis),
        cases=(
            case((1, 3, 1, 4)), case((1, 3, 1, 4), axis=0), case((1, 3, 1, 4), axis=-2), case((1, 3, 1, 4), axis=(0, 2)),
            case((1, 1)), case((0, 1), axis=1), case((3, 4), axis=()),
        ),
    ),
    Op(
        "flip", np.flip, dtypes="fib", ulps=0, torch=lambda t, x, axis=None: t.flip(
            x, list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else axis),
        cases=(case((3, 4)), case((3, 4), axis=0), case((3, 4), axis=-1), case((2, 3, 4), axis=(0, 2)), case(()), case((0, 3))),
    ),
    Op(
        "broadcast_to", np.broadcast_to, dtypes="fib", ulps=0, torch=T("broadcast_to", shape="size"),
        cases=(
            case((3, 1), shape=(3, 4)), case((4,), shape=(2, 3, 4)), case((), shape=(2, 2)), case((1, 3), shape=(0, 3)),
            case((3, 4), shape=(3, 4)), case((3, 1), shape=(2, 3, 1)),
        ),
    ),
    Op("sum", np.sum, AXES + EMPTY, dtypes="fib", torch=torch_axes("sum")),
    Op(
        "astype", lambda x, dtype: x.astype(dtype), dtypes="fib", ulps=0, torch=None,
        cases=(*tuple(case((3, 4), dtype=d) for d in ("float64", "int64", "int32", "bool")), case((), dtype="float64")),
        gradient=False,
    ),
]  # fmt: skip


def sequence(f):
    """Turn a function of a sequence into one of its elements."""
    return lambda *xs, **options: f(xs, **options)


JOIN = [
    Op(
        "concat", sequence(np.concat), dtypes="fib", ulps=0, ours=sequence(mg.concat), torch=lambda t, *xs, axis=0: t.cat(
            xs, axis) if axis is not None else t.cat([x.reshape(-1) for x in xs]),
        cases=(
            case((3, 4)), case((3, 4), (2, 4)), case((3, 4), (3, 1), (3, 0), axis=1), case((2, 3), (2, 3), axis=-2),
            case((2, 3), (4,), (), axis=None), case((0, 3), (0, 3)), case((2, 1, 3), (2, 2, 3), (2, 1, 3), axis=1),
        ),
    ),
    Op(
        "stack", sequence(np.stack), dtypes="fib", ulps=0, ours=sequence(mg.stack),
        torch=lambda t, *xs, axis=0: t.stack(xs, axis),
        cases=(
            case((3,), (3,)), case((2, 3), (2, 3), (2, 3), axis=1), case((2, 3), (2, 3), axis=-1), case((), (), ()), case((2, 3)),
            case((0, 2), (0, 2), axis=1),
        ),
    ),
    Op(
        "split", np.split, dtypes="fib", ulps=0,
        torch=lambda t, x, indices_or_sections, axis=0: t.tensor_split(x, indices_or_sections, axis),
        cases=(
            case((6, 2), indices_or_sections=3), case((6, 2), indices_or_sections=[1, 4]), case((2, 6), indices_or_sections=2, axis=1),
            case((4, 3), indices_or_sections=(0, 2, 2), axis=-1), case((4,), indices_or_sections=1), case((4,), indices_or_sections=[-1]),
            case((4,), indices_or_sections=[2, 9]), case((0, 2), indices_or_sections=2), case((3, 2), indices_or_sections=[]),
        ),
    ),
    Op(
        "unstack", np.unstack, dtypes="fib", ulps=0, torch=T("unbind", axis="dim"),
        cases=(case((3, 4)), case((3, 4), axis=1), case((2, 3, 4), axis=-2), case((1, 4)), case((3, 0))),
    ),
]  # fmt: skip
