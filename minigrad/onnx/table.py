"""How each operation is written in ONNX: a table from the names on the tape to nodes."""

from collections.abc import Callable
from math import log, pi, sqrt
from typing import Any

import numpy as np

from minigrad.onnx import recurrent
from minigrad.onnx.exporter import Exporter, Lengths
from minigrad.onnx.graph import TYPES
from minigrad.onnx.trace import Step, Value
from minigrad.onnx.windows import WINDOWS

Written = str | tuple[str, ...] | list[str]

# Operations that are one node on the elements of their inputs.
PLAIN = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "divide": "Div", "equal": "Equal", "erf": "Erf",
    "exp": "Exp", "floor": "Floor", "gelu": "Gelu", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "isnan": "IsNaN", "isinf": "IsInf", "less": "Less", "less_equal": "LessOrEqual", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor", "maximum": "Max",
    "minimum": "Min", "multiply": "Mul", "negative": "Neg", "reciprocal": "Reciprocal", "relu": "Relu",
    "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin", "sinh": "Sinh", "softplus": "Softplus",
    "sqrt": "Sqrt", "std": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh",
}  # fmt: skip

# Those that are a formula: the graph, a number in the dtype of the first input, and the inputs.
FORMULAS: dict[str, Callable[..., str]] = {
    "expm1": lambda g, n, x: g.Sub(g.Exp(x), n(1)),
    "exp2": lambda g, n, x: g.Pow(n(2), x),
    "log1p": lambda g, n, x: g.Log(g.Add(n(1), x)),
    "log2": lambda g, n, x: g.Div(g.Log(x), n(log(2))),
    "log10": lambda g, n, x: g.Div(g.Log(x), n(log(10))),
    "logaddexp": lambda g, n, a, b: g.Add(
        g.Max(a, b), g.Log(g.Add(n(1), g.Exp(g.Neg(g.Abs(g.Sub(a, b))))))),
    "rsqrt": lambda g, n, x: g.Reciprocal(g.Sqrt(x)),
    "square": lambda g, n, x: g.Mul(x, x),
    "squared_difference": lambda g, n, a, b: g.Mul(d := g.Sub(a, b), d),
    "hypot": lambda g, n, a, b: g.Sqrt(g.Add(g.Mul(a, a), g.Mul(b, b))),
    "silu": lambda g, n, x: g.Mul(x, g.Sigmoid(x)),
    "gelu_tanh": lambda g, n, x: g.Mul(x, g.Sigmoid(g.Mul(x, g.Add(
        n(2 * sqrt(2 / pi)), g.Mul(n(2 * sqrt(2 / pi) * 0.044715), g.Mul(x, x)))))),
    "trunc": lambda g, n, x: g.Mul(g.Sign(x), g.Floor(g.Abs(x))),
    "isfinite": lambda g, n, x: g.Not(g.Or(g.IsNaN(x), g.IsInf(x))),
    "not_equal": lambda g, n, a, b: g.Not(g.Equal(a, b)),
    "where": lambda g, n, a, b, c: g.Where(c, a, b),
}  # fmt: skip


def _plain(node: str) -> Callable[[Exporter, Step], str]:
    return lambda e, s: e.graph.add(node, *e.elementwise(s))


def _formula(write: Callable[..., str]) -> Callable[[Exporter, Step], str]:
    return lambda e, s: write(e.graph, lambda value: np.asarray(value, s.inputs[0].dtype), *e.elementwise(s))  # type: ignore[union-attr]


def _with_option(node: str, attribute: str) -> Callable[[Exporter, Step], str]:
    """A node whose attribute is the operation's only option."""
    return lambda e, s: e.graph.add(node, e.name(s.inputs[0]), **{attribute: s.options})


def _x(e: Exporter, s: Step) -> tuple[Value, str]:
    """Return the first input and its name."""
    x = s.inputs[0]
    assert x is not None
    return x, e.name(x)  # type: ignore[return-value]


def _same(e: Exporter, s: Step) -> str:
    return _x(e, s)[1]


def _astype(e: Exporter, s: Step) -> str:
    return e.graph.Cast(_x(e, s)[1], to=TYPES[s.outs[0].dtype.name])


def _bitwise(on_bools: str, on_integers: str) -> Callable[[Exporter, Step], str]:
    return lambda e, s: e.graph.add(on_bools if s.outs[0].dtype == bool else on_integers, *e.elementwise(s))


def _remainder(e: Exporter, s: Step) -> str:
    g, (a, b) = e.graph, e.elementwise(s)
    return g.Mod(a, b) if s.outs[0].dtype.kind == "i" else g.Sub(a, g.Mul(b, g.Floor(g.Div(a, b))))


def _floor_divide(e: Exporter, s: Step) -> str:
    g, (a, b) = e.graph, e.elementwise(s)
    return g.Div(g.Sub(a, g.Mod(a, b)), b) if s.outs[0].dtype.kind == "i" else g.Floor(g.Div(a, b))


def _power(e: Exporter, s: Step) -> str:
    if sum(x is not None for x in s.inputs) == 2:
        return e.graph.Pow(*e.elementwise(s))
    x, name = _x(e, s)
    return e.graph.Pow(name, np.asarray(0.5 if s.options is None else s.options, x.dtype))


def _clip(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    return e.graph.Clip(name, *[None if limit is None else np.asarray(limit, x.dtype) for limit in s.options])


# ── layout ────────────────────────────────────────────────────────────────────────────────────────


def _reshape(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    return e.reshape(name, x.axes, s.outs[0].axes)


def _broadcast(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    new = s.outs[0].axes
    kept = [None] * (len(new) - x.ndim) + x.axes
    return name if kept == new else e.graph.Expand(
        name, e.sizes.shape([1 if axis == old else e.resolved(axis) for axis, old in zip(new, kept, strict=True)])
    )  # fmt: skip


def _positions(e: Exporter, s: Step) -> str:
    """Sines or cosines of p base^(-2 i / width), computed in float64 as in `minigrad.nn`."""
    g, (f, width, first, base) = e.graph, s.options
    place = g.Add(e.range(s.outs[0].axes[0], np.dtype(float)), np.array(float(first)))
    phi = g.Mul(g.Unsqueeze(place, np.array([1])), base ** (-np.arange(0, width, 2) / width))
    return g.Cast(g.add(f.title(), phi), to=TYPES[s.outs[0].dtype.name])


def _permute(e: Exporter, s: Step) -> str:
    return e.graph.Transpose(_x(e, s)[1], perm=list(s.options))


def _place(e: Exporter, places: Lengths, lengths: Lengths) -> int | str:
    """Return an index from the front, or else from the end, or else computed."""
    from_end = {place - n for place, n in zip(places, lengths, strict=True)}
    if len(set(places)) > 1 and len(from_end) == 1 and max(from_end) < 0:
        return from_end.pop()
    return e.resolved(places, "an index")


def _slice(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    g, windows, gone = e.graph, [], []
    for k, (axis, parts) in enumerate(zip(x.axes, zip(*(spec for spec, _ in s.runs), strict=True), strict=True)):
        starts, steps, lengths, (keep, *_) = zip(*parts, strict=True)
        step = steps[0]
        if keep and step == 1 and set(starts) == {0} and lengths == axis:
            continue
        if all(m == len(range(a, n if step > 0 else -1, step)) for a, m, n in zip(starts, lengths, axis, strict=True)):
            end: int | str = 2**63 - 1 if step > 0 else -(2**63)
        else:
            end = _place(e, tuple(a + step * n for a, n in zip(starts, lengths, strict=True)), axis)
        windows.append((_place(e, starts, axis), end, k, step))
        gone += [] if keep else [k]
        if len(set(steps)) > 1:
            raise s.error("one step of a slice for all lengths", f"steps of {steps}")
    if not windows:
        return name
    if len(windows) == 1 and gone and isinstance(windows[0][0], int):
        return g.Gather(name, np.array(windows[0][0]), axis=gone[0])
    found = g.Slice(name, *(e.sizes.shape(list(column)) for column in zip(*windows, strict=True)))
    return g.Squeeze(found, np.array(gone)) if gone else found


def _join(e: Exporter, s: Step) -> str:
    axis, _, keep = s.options
    names = [e.name(x) for x in s.inputs]
    return e.graph.Concat(*(names if keep else [e.graph.Unsqueeze(x, np.array([axis])) for x in names]), axis=axis)


def _split(e: Exporter, s: Step) -> list[str]:
    x, name = _x(e, s)
    g, (axis, bounds, keep, _) = e.graph, s.options
    if not keep:
        return [g.Gather(name, np.array(k), axis=axis) for k in bounds[:-1]]
    if len({b for _, b, _, _ in s.runs}) > 1 or bounds[0] != 0 or bounds[-1] != x.shape[axis]:
        raise s.error("pieces of the same lengths for all lengths of the free axes", f"bounds {bounds}")
    made = g.Split(name, np.diff(bounds), axis=axis, outputs=len(s.outs))
    return made if isinstance(made, list) else [made]


def _take(e: Exporter, s: Step) -> str:
    return e.graph.Gather(_x(e, s)[1], e.name(s.options[1]), axis=s.options[0])


def _take_along(e: Exporter, s: Step) -> str:
    return e.graph.GatherElements(_x(e, s)[1], e.name(s.options[1]), axis=s.options[0])


def _index(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    if not x.depends and all((a >= 0).all() for a in x.numpy()):
        return name
    length = e.resolved(tuple(s.runs))
    return e.graph.Where(
        e.graph.Less(name, np.array(0)),
        e.graph.Add(name, length if isinstance(length, str) else np.array(length)),
        name,
    )


def _argsort(e: Exporter, s: Step) -> str:
    name = _same(e, s)
    axis, descending = s.options
    length = e.graph.Shape(name, start=axis, end=axis + 1)
    return e.graph.TopK(name, length, axis=axis, largest=int(descending), outputs=2)[1]


# ── reductions ────────────────────────────────────────────────────────────────────────────────────


def _sum(e: Exporter, s: Step) -> str:
    """The options are the shape and the shape with ones in place of the summed axes, not the axes themselves."""
    x, name = _x(e, s)
    axes = [k for k, (n, m) in enumerate(zip(*s.runs[-1], strict=True)) if n != m]
    dropped = x.ndim - s.outs[0].ndim
    ones = [k for k in range(x.ndim) if k not in axes and x.shapes[-1][k] == 1]
    axes += ones[: dropped - len(axes)] if dropped else []
    return e.graph.ReduceSum(name, np.array(axes, np.int64), keepdims=int(not dropped)) if axes else name


def _reduce(node: str, axes_of: Callable[[Any], Any] = lambda options: options) -> Callable[[Exporter, Step], str]:
    """A node with the axes as an input; whether they are kept shows in the result."""

    def write(e: Exporter, s: Step) -> str:
        x, name = _x(e, s)
        axes = np.array(axes_of(s.options), np.int64)
        return e.graph.add(node, name, axes, keepdims=int(s.outs[0].ndim == x.ndim)) if axes.size else name

    return write


def _var(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    g, (axes, divisor, keepdims, _) = e.graph, s.options
    counts = tuple(int(np.prod([shape[k] for k in axes])) for shape in x.shapes)
    if divisor != counts[0] and len(set(counts)) > 1:
        raise s.error("correction=0 over a free axis", f"{counts[0] - divisor}")
    squares = g.Sub(name, g.ReduceMean(name, np.array(axes), keepdims=1))
    mean = g.ReduceMean(g.Mul(squares, squares), np.array(axes), keepdims=int(keepdims))
    return mean if divisor == counts[0] else g.Mul(mean, np.asarray(counts[0] / divisor, x.dtype))


def _logsumexp(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    g, axes, keep = e.graph, np.array(s.options), s.outs[0].ndim == x.ndim
    top = g.ReduceMax(name, axes, keepdims=1)
    found = g.Add(top, g.Log(g.ReduceSum(g.Exp(g.Sub(name, top)), axes, keepdims=1)))
    return found if keep else g.Squeeze(found, axes)


def _position(node: str) -> Callable[[Exporter, Step], str]:
    def write(e: Exporter, s: Step) -> str:
        x, name = _x(e, s)
        keep = s.outs[0].ndim == x.ndim and x.ndim > 0
        if len(s.options) == x.ndim > 1:
            found = e.graph.add(node, e.graph.Reshape(name, np.array([-1])), axis=0, keepdims=0)
            return e.graph.Reshape(found, np.array([1] * x.ndim)) if keep else found
        return e.graph.add(node, name, axis=s.options[0], keepdims=int(keep))

    return write


def _decide(node: str) -> Callable[[Exporter, Step], str]:
    def write(e: Exporter, s: Step) -> str:
        x, name = _x(e, s)
        number = e.graph.Cast(e.graph.Cast(name, to=TYPES["bool"]), to=TYPES["int32"])
        found = e.graph.add(node, number, np.array(s.options), keepdims=int(s.outs[0].ndim == x.ndim))
        return e.graph.Cast(found, to=TYPES["bool"])

    return write


# ── layers ────────────────────────────────────────────────────────────────────────────────────────


def _linear(e: Exporter, s: Step) -> str:
    (x, name), g = _x(e, s), e.graph
    weight, bias = e.name(s.inputs[1]), e.name(s.inputs[2])
    if x.ndim == 2:
        return g.Gemm(name, weight, *([] if bias is None else [bias]), transB=1)
    product = g.MatMul(name, g.Transpose(weight, perm=[1, 0]))
    return product if bias is None else g.Add(product, bias)


def _seen_product(e: Exporter, s: Step) -> str:
    a, name = _x(e, s)
    return e.graph.MatMul(e.graph.Where(e.name(s.options), name, np.asarray(0, a.dtype)), e.name(s.inputs[1]))


def _affine(x: Value, weight: Value | None, bias: Value | None, e: Exporter, size: int) -> list[Any]:
    """Return scale and bias where ONNX requires both."""
    return [
        np.full(size, fill, x.dtype) if p is None else e.name(p) for p, fill in ((weight, 1), (bias, 0))
    ]  # fmt: skip


def _layer_norm(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    _, weight, bias = s.inputs
    first = s.options[1].ndim - 1
    scale = np.ones(x.shape[first:], x.dtype) if weight is None else e.name(weight)
    rest = [] if bias is None else [e.name(bias)]
    return e.graph.LayerNormalization(name, scale, *rest, axis=first, epsilon=float(s.options[3]))


def _rms_norm(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    g, weight, first, eps = e.graph, s.inputs[1], s.options[1].ndim - 1, float(s.options[3])
    if e.opset >= 23:
        scale = np.ones(x.shape[first:], x.dtype) if weight is None else e.name(weight)
        return g.RMSNormalization(name, scale, axis=first, epsilon=eps)
    return recurrent.rms_norm(g, name, list(range(first, x.ndim)), np.asarray(eps, x.dtype), e.name(weight))


def _group_norm(e: Exporter, s: Step) -> str:
    """GroupNormalization itself subtracts E[x]² from E[x²] in onnxruntime and cancels."""
    x, name = _x(e, s)
    g, (_, weight, bias), groups = e.graph, s.inputs, s.options[1].shape[-1]
    ones, zeros = _affine(x, None, None, e, groups)
    rows = g.Reshape(name, np.array([0, groups, -1]))
    found = g.Reshape(g.InstanceNormalization(rows, ones, zeros, epsilon=float(s.options[3])), g.Shape(name))
    for op, p in (("Mul", weight), ("Add", bias)):
        if p is not None:
            found = g.add(op, found, g.Reshape(e.name(p), np.array([-1] + [1] * (x.ndim - 2))))
    return found


def _instance_norm(e: Exporter, s: Step) -> str:
    if len(s.inputs) == 5:
        return _batch_norm(e, s)
    x, name = _x(e, s)
    affine = _affine(x, s.inputs[1], s.inputs[2], e, x.shape[1])
    return e.graph.InstanceNormalization(name, *affine, epsilon=float(s.options[3]))


def _batch_norm(e: Exporter, s: Step) -> str:
    x, name = _x(e, s)
    if len(s.inputs) != 5:
        raise s.error("statistics of training", "those of the batch")
    mean, var = (e.name(p) for p in s.inputs[1:3])
    affine = _affine(x, s.inputs[3], s.inputs[4], e, x.shape[1])
    return e.graph.BatchNormalization(name, *affine, mean, var, epsilon=float(s.options[1]))


def _attention(e: Exporter, s: Step) -> str:
    """Scores, a mask, softmax and the product; a query that sees no key gives 0."""
    g, (q, k, v), (_, mask, _, scale, causal, dropout, _) = e.graph, s.inputs, s.options
    assert q is not None
    assert k is not None
    names, seen = [e.name(x) for x in (q, k, v)], e.name(mask)
    if dropout:
        raise s.error("dropout_p=0", f"{dropout}")
    if e.opset >= 23:
        return g.Attention(*names, *([] if seen is None else [seen]), scale=float(scale), is_causal=int(causal))
    queries, keys, values = names
    if k.shape[1] != q.shape[1]:
        order = np.repeat(np.arange(k.shape[1]), q.shape[1] // k.shape[1])
        keys, values = g.Gather(keys, order, axis=1), g.Gather(values, order, axis=1)
    scores = g.MatMul(g.Mul(queries, np.asarray(scale, q.dtype)), g.Transpose(keys, perm=[0, 1, 3, 2]))
    if mask is not None and mask.dtype != bool:
        scores = g.Add(scores, seen)
        seen = g.Greater(seen, np.asarray(-np.inf, q.dtype))
    if causal:
        rows, columns = (e.range(x.axes[2]) for x in (q, k))
        triangle = g.LessOrEqual(columns, g.Unsqueeze(rows, np.array([1])))
        seen = triangle if seen is None else g.And(seen, triangle)
    if seen is None:
        return g.MatMul(g.Softmax(scores, axis=-1), values)
    hidden = g.Where(seen, scores, np.asarray(np.finfo(q.dtype).min, q.dtype))
    return g.MatMul(g.Where(seen, g.Softmax(hidden, axis=-1), np.asarray(0, q.dtype)), values)


TABLE: dict[str, Callable[[Exporter, Step], Written]] = {
    **{op: _plain(node) for op, node in PLAIN.items()},
    **{op: _formula(write) for op, write in FORMULAS.items()},
    **WINDOWS,
    **recurrent.TABLE,
    "all": _decide("ReduceMin"),
    "any": _decide("ReduceMax"),
    "argmax": _position("ArgMax"),
    "argmin": _position("ArgMin"),
    "argsort": _argsort,
    "astype": _astype,
    "batch_norm": _batch_norm,
    "bitwise_and": _bitwise("And", "BitwiseAnd"),
    "bitwise_invert": _bitwise("Not", "BitwiseNot"),
    "bitwise_or": _bitwise("Or", "BitwiseOr"),
    "bitwise_xor": _bitwise("Xor", "BitwiseXor"),
    "broadcast_to": _broadcast,
    "clip": _clip,
    "concat": _join,
    "copy": _same,
    "cumulative_sum": lambda e, s: e.graph.CumSum(_x(e, s)[1], np.array(s.options)),
    "elu": _with_option("Elu", "alpha"),
    "floor_divide": _floor_divide,
    "group_norm": _group_norm,
    "identity": _same,
    "index": _index,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "leaky_relu": _with_option("LeakyRelu", "alpha"),
    "linear": _linear,
    "log_softmax": _with_option("LogSoftmax", "axis"),
    "logsumexp": _logsumexp,
    "matmul": lambda e, s: e.graph.MatMul(e.name(s.inputs[0]), e.name(s.inputs[1])),
    "max": _reduce("ReduceMax"),
    "mean": _reduce("ReduceMean", lambda options: options[3]),
    "min": _reduce("ReduceMin"),
    "permute_dims": _permute,
    "positions": _positions,
    "power": _power,
    "prod": _reduce("ReduceProd"),
    "remainder": _remainder,
    "reshape": _reshape,
    "rms_norm": _rms_norm,
    "scaled_dot_product_attention": _attention,
    "seen_product": _seen_product,
    "slice": _slice,
    "softmax": _with_option("Softmax", "axis"),
    "split": _split,
    "stack": _join,
    "sum": _sum,
    "take": _take,
    "take_along_axis": _take_along,
    "to": _same,
    "var": _var,
}
