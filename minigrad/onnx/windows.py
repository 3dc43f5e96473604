"""Operations on windows and borders in ONNX: convolutions, pooling, padding."""

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.onnx.exporter import Exporter
from minigrad.onnx.trace import Step, Value

MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def _count(n: int, pads: int, kernel: int, stride: int, dilation: int = 1) -> int:
    return (n + pads - dilation * (kernel - 1) - 1) // stride + 1


def _ends(s: Step, x: Value, kernel: tuple[int, ...], stride: Any, pad: Any, dilation: Any) -> list[int]:
    """Return the padding at the ends of the last axes: as at their beginnings, or what every run needed."""
    found = []
    for i in range(2):
        axes = list(zip(x.axes[-2 + i], s.outs[0].axes[-2 + i], strict=True))
        need = {(p - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1 - n - pad[i] for n, p in axes}
        if all(_count(n, 2 * pad[i], kernel[i], stride[i], dilation[i]) == p for n, p in axes):
            found.append(pad[i])
        elif len(need) == 1 and min(need) >= 0:
            found.append(need.pop())
        else:
            raise s.error("one padding for all lengths of the free axes", f"padding of {need}")
    return found


def conv(e: Exporter, s: Step) -> str:
    x, weight, bias = s.inputs
    assert x is not None
    assert weight is not None
    at, kernel = s.options[0], weight.shape[2:]
    stride, pad, dilation = at[:2], at[2:4], at[4:]
    ends = _ends(s, x, kernel, stride, pad, dilation)
    return e.graph.Conv(
        e.name(x), e.name(weight), *([] if bias is None else [e.name(bias)]), kernel_shape=list(kernel),
        strides=list(stride), pads=[*pad, *ends], dilations=list(dilation), group=x.shape[1] // weight.shape[1],
    )  # fmt: skip


def conv_transpose(e: Exporter, s: Step) -> str:
    x, weight = s.inputs[:2]
    assert x is not None
    assert weight is not None
    at, kernel = s.options[0], weight.shape[2:]
    stride, pad, dilation = at[:2], at[2:4], at[4:]
    extra = [
        m - ((n - 1) * stride[i] - 2 * pad[i] + dilation[i] * (kernel[i] - 1) + 1)
        for i, (n, m) in enumerate(zip(x.shape[2:], s.outs[0].shape[2:], strict=True))
    ]
    return e.graph.ConvTranspose(
        e.name(x), e.name(weight), kernel_shape=list(kernel), strides=list(stride), pads=[*pad, *pad],
        dilations=list(dilation), group=s.outs[0].shape[1] // weight.shape[1], output_padding=extra,
    )  # fmt: skip


def _with_batch(e: Exporter, x: Value, write: Callable[[str], str]) -> str:
    """ONNX pools (N, C, H, W) alone."""
    name = e.name(x)
    assert name is not None
    if x.ndim == 4:
        return write(name)
    return e.graph.Squeeze(write(e.graph.Unsqueeze(name, np.array([0]))), np.array([0]))


def max_pool(e: Exporter, s: Step) -> str:
    x, at = s.inputs[0], s.options
    assert x is not None
    kernel, stride, pad, dilation = at[:2], at[2:4], at[4:6], at[6:]
    ceil = any(
        _count(n, 2 * pad[i], kernel[i], stride[i], dilation[i]) != p
        for i in range(2)
        for n, p in zip(x.axes[-2 + i], s.outs[0].axes[-2 + i], strict=True)
    )
    attributes = {"kernel_shape": kernel, "strides": stride, "pads": (*pad, *pad), "dilations": dilation}
    lists = {key: list(value) for key, value in attributes.items()}

    def write(name: str) -> str:
        """Ask for indices, too, if x comes from a Pad: else onnxruntime up to 1.31 pads with −∞ instead of zeros."""
        after_pad = any(node.op_type == "Pad" and name in node.output for node in e.graph.nodes)
        found = e.graph.MaxPool(name, outputs=1 + after_pad, ceil_mode=int(ceil), **lists)
        return found[0] if after_pad else found

    return _with_batch(e, x, write)


def avg_pool(e: Exporter, s: Step) -> str:
    """Windows that move in equal steps are AveragePool; others, of given lengths, products with two matrices."""
    x, g = s.inputs[0], e.graph
    assert x is not None
    tables: list[list[np.ndarray]] = [s.options[k].numpy() for k in range(2)]
    divisor = s.options[2]
    sizes = x.axes[-2:]
    if not divisor and all(
        a.tolist() == [[0, n, n]] for table, axis in zip(tables, sizes, strict=True)
        for a, n in zip(table, axis, strict=True)
    ):  # fmt: skip
        return g.ReduceMean(e.name(x), np.array([x.ndim - 2, x.ndim - 1]), keepdims=1)
    for padded in (0, 1):
        moves = [_moves(table, axis, padded) for table, axis in zip(tables, sizes, strict=True)]
        if not divisor and None not in moves:
            kernel, stride, pad = zip(*moves, strict=True)
            attributes = {"kernel_shape": list(kernel), "strides": list(stride), "pads": [*pad, *pad]}
            return _with_batch(e, x, lambda name: g.AveragePool(name, count_include_pad=padded, **attributes))  # noqa: B023
    if any(len(set(axis)) > 1 for axis in sizes):
        raise s.error("windows that move in equal steps over a free axis", "others")
    rows, columns = (
        _means(table[0], axis[0], bool(divisor), x.dtype) for table, axis in zip(tables, sizes, strict=True)
    )
    found = g.MatMul(g.MatMul(rows, e.name(x)), np.ascontiguousarray(columns.T))
    return g.Div(found, np.asarray(divisor, x.dtype)) if divisor else found


def _moves(table: list[np.ndarray], axis: tuple[int, ...], padded: int) -> tuple[int, int, int] | None:
    """Return kernel, stride and padding of windows [begin, end, length] that move over an axis; None for others."""
    first = table[0]
    kernel = int(first[:, 2].max())
    pad = max(kernel - int(first[0, 1]), 0)
    stride = int(first[1, 1] - first[0, 1]) if len(first) > 1 else kernel
    for a, n in zip(table, axis, strict=True):
        if stride < 1 or 2 * pad > kernel or _count(n, 2 * pad, kernel, stride) != len(a):
            return None
        start = np.arange(len(a)) * stride - pad
        begin, end = np.maximum(start, 0), np.minimum(start + kernel, n)
        length = np.full(len(a), kernel) if padded else end - begin
        if not np.array_equal(a, np.stack([begin, end, length], 1)):
            return None
    return kernel, stride, pad


def _means(table: np.ndarray, n: int, sums: bool, dtype: np.dtype) -> np.ndarray:
    """Return the matrix whose product with an axis of n elements gives the means, or the sums, of its windows."""
    matrix = np.zeros((len(table), n), dtype)
    for row, (begin, end, length) in zip(matrix, table, strict=True):
        row[begin:end] = 1 if sums else 1 / length
    return matrix


def pad(e: Exporter, s: Step) -> str:
    x, (widths, mode, _) = s.inputs[0], s.options
    assert x is not None
    if mode not in MODES or len({options[0] for options in s.runs}) > 1:
        raise s.error(f"a mode of {', '.join(MODES)} and widths that depend on no length", f"{mode!r} and {widths}")
    pads = np.array([w[0] for w in widths] + [w[1] for w in widths])
    given = [e.name(x), pads]
    if mode == "constant" and pads.any():
        axis = next(k for k, w in enumerate(widths) if any(w))
        border = np.moveaxis(s.outs[0].numpy()[0], axis, 0)[0 if widths[axis][0] else -1]
        given.append(border.reshape(-1)[0])
    return e.graph.Pad(*given, mode=MODES[mode])


WINDOWS: dict[str, Callable[[Exporter, Step], str]] = {
    "avg_pool2d": avg_pool,
    "conv2d": conv,
    "conv2d_backward_data": conv_transpose,
    "max_pool2d": max_pool,
    "pad": pad,
}
