"""Sums, means, extremes and other reductions."""

import numpy as np

import minigrad as mg
from table.entry import AXES, EMPTY, ONE_AXIS, Op, case, torch_axes


def logsumexp(x, axis=None, keepdims=False):
    return np.log(np.exp(x).sum(axis, keepdims=keepdims))


def torch_prod(torch, x, axis=None, keepdims=False):
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    for k in sorted([k % x.ndim for k in axes], reverse=True):
        x = x.prod(k, keepdim=keepdims)
    return x


def torch_quantile(torch, x, q, axis, keepdims):
    axes = list(range(x.ndim)) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    kept = [1 if k in axes else n for k, n in enumerate(x.shape)]
    y = x.movedim(axes, list(range(-len(axes), 0))).flatten(x.ndim - len(axes)) if x.ndim else x[None]
    y = torch.quantile(y, q, dim=-1) if y.numel() else y.sum(-1)  # PyTorch refuses empty tensors
    return y.reshape([*torch.as_tensor(q).shape, *kept]) if keepdims else y


def compose_var(x, axis=None, correction=0, keepdims=False):
    centered = x - mg.mean(x, axis, keepdims=True)
    n = x.size / max(mg.mean(x, axis).size, 1)
    return mg.sum(centered * centered, axis, keepdims=keepdims) / (n - correction)


def linear_scan(a, b, initial=None, axis=0, reverse=False):
    a, b = (np.moveaxis(x, axis, 0) for x in np.broadcast_arrays(a, b))
    h, order = np.empty(a.shape), range(len(a))
    state = np.zeros(a.shape[1:]) if initial is None else initial
    for t in reversed(order) if reverse else order:
        h[t] = state = a[t] * state + b[t]
    return np.moveaxis(h, 0, axis)


def compose_linear_scan(library, a, b, initial=None, axis=0, reverse=False):
    """Compute it step by step, with minigrad or PyTorch."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = (library.moveaxis(library.broadcast_to(x, shape), axis, 0) for x in (a, b))
    order, states, state = range(len(a)), [], initial
    for t in reversed(order) if reverse else order:
        state = b[t] if state is None else a[t] * state + b[t]
        states.append(library.broadcast_to(state, b.shape[1:]))
    if not states:
        return a * b if initial is None else a * b + initial
    states = library.stack(states[::-1] if reverse else states)
    return library.moveaxis(states, 0, axis)


REDUCE = [
    Op("prod", np.prod, AXES + EMPTY, dtypes="fib", domain=(-1.5, 1.5), torch=torch_prod),
    Op("mean", np.mean, AXES, torch=torch_axes("mean"), composition=lambda x, axis=None, keepdims=False: mg.divide(
        mg.sum(x, axis, keepdims=keepdims), mg.sum(mg.ones_like(x), axis, keepdims=keepdims))),
    Op(
        "var", lambda x, axis=None, correction=0, keepdims=False: np.var(x, axis, ddof=correction, keepdims=keepdims),
        cases=(*AXES, case((3, 4), correction=1), case((3, 4, 5), axis=(0, 2), correction=1.5), case((2, 3), axis=0, correction=1)),
        torch=lambda t, x, axis=None, keepdims=False, correction=0: torch_axes("var")(t, x, axis, keepdims, correction=correction)
        if x.ndim and axis != () else x * 0, composition=compose_var,
    ),
    Op(
        "std", lambda x, axis=None, correction=0, keepdims=False: np.std(x, axis, ddof=correction, keepdims=keepdims),
        cases=(case((3, 4)), case((3, 4, 5), axis=1), case((3, 4, 5), axis=(0, 2), keepdims=True), case((3, 4), axis=1, correction=1)),
        torch=lambda t, x, axis=None, keepdims=False, correction=0: torch_axes("std")(t, x, axis, keepdims, correction=correction),
        composition=lambda x, **options: mg.sqrt(compose_var(x, **options)),
    ),
    Op("max", np.max, AXES, dtypes="fib", ulps=0, torch=torch_axes("amax")),
    Op("min", np.min, AXES, dtypes="fib", ulps=0, torch=torch_axes("amin")),
    Op("argmax", np.argmax, ONE_AXIS, dtypes="fib", ulps=0, gradient=False),
    Op("argmin", np.argmin, ONE_AXIS, dtypes="fib", ulps=0, gradient=False),
    Op("any", np.any, AXES + EMPTY, dtypes="fib", domain=(-0.5, 1), ulps=0, gradient=False),
    Op("all", np.all, AXES + EMPTY, dtypes="fib", ulps=0, gradient=False),
    Op(
        "logsumexp", logsumexp, AXES, torch=torch_axes("logsumexp"),
        composition=lambda x, axis=None, keepdims=False: mg.log(mg.sum(mg.exp(x), axis, keepdims=keepdims)),
    ),
    Op(
        "cumulative_sum", lambda x, axis=None, include_initial=False: np.cumulative_sum(x, axis=axis, include_initial=include_initial),
        dtypes="fib", torch=lambda t, x, axis=0, include_initial=False: t.cumsum(
            t.cat([t.zeros_like(x.narrow(axis, 0, 1)), x], axis) if include_initial else x, axis),
        cases=(
            case((7,)), case((3, 4), axis=0), case((3, 4), axis=-1), case((2, 3, 4), axis=1), case((0, 3), axis=1),
            case((3, 4), axis=1, include_initial=True), case((3, 4), axis=0, include_initial=True), case((3, 0), axis=1),
        ),
    ),
    Op(
        "linear_scan", linear_scan, domain=(-1.2, 1.2), torch=compose_linear_scan,
        composition=lambda *tensors, **options: compose_linear_scan(mg, *tensors, **options),
        cases=(
            case((7,), (7,)), case((7,), (7,), reverse=True), case((5, 3), (5, 3)), case((2, 5, 3), (2, 5, 3), (2, 3), axis=1),
            case((2, 5, 3), (2, 5, 3), (3,), axis=1, reverse=True), case((9, 6), (9, 6), (9,), axis=-1), case((), (4,), ()),
            case((5, 1), (3,), (1,)), case((3, 1), (5,), axis=-1, reverse=True),
            case((0, 3), (0, 3), (3,)), case((4, 0), (4, 0)), case((1, 2), (1, 2), (2,)), case((70, 2), (70, 2), (2,)),
        ),
    ),
    Op(
        "cumulative_prod", lambda x, axis=None, include_initial=False: np.cumulative_prod(x, axis=axis, include_initial=include_initial),
        dtypes="fib", ours=lambda x, **options: mg.cumulative_prod(x, **options), torch=lambda t, x, axis=0, include_initial=False: t.cumprod(
            t.cat([t.ones_like(x.narrow(axis, 0, 1)), x], axis) if include_initial else x, axis),
        cases=(
            case((7,)), case((3, 4), axis=0), case((3, 4), axis=-1), case((2, 3, 4), axis=1), case((0, 3), axis=1),
            case((3, 4), axis=1, include_initial=True), case((3, 0), axis=1),
        ),
    ),
    Op(
        "diff", np.diff, dtypes="fib", torch=lambda t, x, n=1, axis=-1, prepend=None, append=None: t.diff(
            x, n, axis, x.narrow(axis, 0, 1) * 0 + prepend if prepend else None, append),
        cases=(
            case((7,)), case((3, 4)), case((3, 4), axis=0), case((3, 4), n=2), case((3, 4), n=0), case((3, 4), n=5), case((0, 3)), case((3, 0)),
            case((3, 4), prepend=1), case((3, 4), n=3, append=np.ones((3, 2)), axis=1),
        ),
    ),
    Op("count_nonzero", np.count_nonzero, (case((7,)), case((3, 4), axis=0), case((3, 4), axis=(0, 1)), case((3, 4), axis=1, keepdims=True),
       case((0, 3), axis=1), case(())), dtypes="fib", ulps=0, gradient=False),
    Op(
        "median", np.median, dtypes="fi", torch=lambda t, x, axis=None, keepdims=False: torch_quantile(t, x, 0.5, axis, keepdims),
        cases=(case((7,)), case((8,)), case((3, 4)), case((3, 4, 5), axis=1), case((2, 3, 4), axis=(0, 2), keepdims=True), case(()), case((0, 3), axis=1)),
    ),
    Op(
        "quantile", np.quantile, dtypes="fi", ours=lambda x, q, **options: mg.quantile(x, q, **options),
        torch=lambda t, x, q, axis=None, keepdims=False: torch_quantile(t, x, t.as_tensor(q, dtype=x.dtype), axis, keepdims),
        cases=(
            case((7,), q=0.3), case((8,), q=(0.0, 0.25, 1.0)), case((3, 4), q=0.9, axis=0), case((3, 4, 5), q=0.1, axis=(0, 2), keepdims=True),
            case((3, 4), q=(0.5, 0.2), axis=1, keepdims=True), case((1,), q=0.7), case((0, 3), q=0.5, axis=1),
        ),
    ),
]  # fmt: skip
