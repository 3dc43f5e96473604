"""Convolution and pooling: windows that move over rows and columns, extracted one by one."""

import numpy as np

import minigrad as mg
from table.entry import Op, case


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def starts(length, kernel, stride, pad, dilation=1, ceil_mode=False):
    """Return the first row of each window, which may lie before x."""
    rest = length + 2 * pad - dilation * (kernel - 1) - 1
    n = (-(-rest // stride) if ceil_mode else rest // stride) + 1
    if ceil_mode and (n - 1) * stride >= length + pad:
        n -= 1
    return [k * stride - pad for k in range(n)]


def inside(begin, kernel, dilation, length):
    """Return the rows of a window that lie in x, as a slice."""
    rows = [i for i in range(begin, begin + kernel * dilation, dilation) if 0 <= i < length]
    return slice(rows[0], rows[-1] + 1, dilation)


def grid(lib, x, kernel, stride, padding, dilation, ceil_mode, result):
    """Return result(rows, columns) of the starts of all windows as (..., P, Q)."""
    places = [
        starts(x.shape[k - 2], pair(kernel)[k], pair(stride)[k], pair(padding)[k], pair(dilation)[k], ceil_mode)
        for k in range(2)
    ]
    return lib.stack([lib.stack([result(i, j) for j in places[1]], axis=-1) for i in places[0]], axis=-2)


def conv2d(lib):
    def conv2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
        if x.ndim == 3:
            return conv2d(x[None], w, b, stride, padding, dilation, groups)[0]
        sizes = [d * (k - 1) for d, k in zip(pair(dilation), w.shape[2:], strict=True)]
        if isinstance(padding, str):
            before = [size // 2 if padding == "same" else 0 for size in sizes]
            after = [size - k if padding == "same" else 0 for size, k in zip(sizes, before, strict=True)]
        else:
            before = after = pair(padding)
        x = lib.pad(x, ((0, 0), (0, 0), *zip(before, after, strict=True)))
        x = x.reshape((x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
        w = w.reshape((groups, w.shape[0] // groups, *w.shape[1:]))
        (sh, sw), (dh, dw) = pair(stride), pair(dilation)
        rows, columns = (x.shape[3] - sizes[0] - 1) // sh + 1, (x.shape[4] - sizes[1] - 1) // sw + 1
        y = 0
        for k in range(w.shape[3]):
            for m in range(w.shape[4]):
                part = x[..., k * dh :: sh, m * dw :: sw][..., :rows, :columns]
                y = y + lib.einsum("ngcpq,goc->ngopq", part, w[..., k, m])
        y = y.reshape((y.shape[0], y.shape[1] * y.shape[2], *y.shape[3:]))
        return y if b is None else y + b[:, None, None]

    return conv2d


def conv_transpose2d(lib):
    def conv_transpose2d(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
        if x.ndim == 3:
            return conv_transpose2d(x[None], w, b, stride, padding, output_padding, groups, dilation)[0]
        (s, t), (p, r), (e, f), (d, u) = map(pair, (stride, padding, output_padding, dilation))
        (n, c, h, k), (_, o, m, width) = x.shape, w.shape
        out = np.zeros(
            (n, groups, o, (h - 1) * s + d * (m - 1) + 1 + e, (k - 1) * t + u * (width - 1) + 1 + f), x.dtype
        )
        parts = np.reshape(x, (n, groups, c // groups, h, k)), np.reshape(w, (groups, c // groups, o, m, width))
        for i in range(m):
            for j in range(width):
                window = np.einsum("ngchk,gco->ngohk", parts[0], parts[1][..., i, j])
                out[..., i * d : i * d + (h - 1) * s + 1 : s, j * u : j * u + (k - 1) * t + 1 : t] += window
        out = np.reshape(out, (n, groups * o, *out.shape[3:]))
        out = out[:, :, p : out.shape[2] - p, r : out.shape[3] - r]
        return out if b is None else out + np.reshape(b, (-1, 1, 1))

    return conv_transpose2d


def max_pool2d(lib):
    def max_pool2d(x, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False):
        def most(i, j):
            (kh, kw), (dh, dw) = pair(kernel_size), pair(dilation)
            return x[..., inside(i, kh, dh, x.shape[-2]), inside(j, kw, dw, x.shape[-1])].max((-2, -1))

        return grid(lib, x, kernel_size, stride or kernel_size, padding, dilation, ceil_mode, most)

    return max_pool2d


def avg_pool2d(lib):
    def avg_pool2d(
        x, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None
    ):
        def mean(i, j):
            n = 1
            for begin, kernel, pad, length in zip((i, j), pair(kernel_size), pair(padding), x.shape[-2:], strict=True):
                end = min(begin + kernel, length + pad)
                n *= end - begin if count_include_pad else min(end, length) - max(begin, 0)
            part = x[..., max(i, 0) : i + pair(kernel_size)[0], max(j, 0) : j + pair(kernel_size)[1]]
            return part.sum((-2, -1)) / (divisor_override or n)

        return grid(lib, x, kernel_size, stride or kernel_size, padding, 1, ceil_mode, mean)

    return avg_pool2d


def adaptive_avg_pool2d(lib):
    def adaptive_avg_pool2d(x, output_size):
        height, width = x.shape[-2:]
        m, n = (size or length for size, length in zip(pair(output_size), (height, width), strict=True))

        def mean(i, j):
            part = x[..., i * height // m : -(-(i + 1) * height // m), j * width // n : -(-(j + 1) * width // n)]
            return part.mean((-2, -1))

        return lib.stack([lib.stack([mean(i, j) for j in range(n)], axis=-1) for i in range(m)], axis=-2)

    return adaptive_avg_pool2d


def sequences(pool):
    """Return pooling of sequences: of images with one row."""

    def pool1d(x, kernel_size, stride=None, padding=0, **options):
        options |= {"dilation": (1, options["dilation"])} if "dilation" in options else {}
        return pool(x[..., None, :], (1, kernel_size), (1, stride or kernel_size), (0, padding), **options)[..., 0, :]

    return pool1d


CONV = [
    Op(
        "conv2d", conv2d(np), torch="nn.functional.conv2d", composition=conv2d(mg), ulps=64,
        cases=(
            case((2, 3, 5, 6), (4, 3, 3, 2), (4,)), case((2, 3, 4, 5), (4, 3, 1, 1)), case((3, 5, 4), (2, 3, 2, 3), (2,)),
            case((2, 2, 5, 5), (3, 2, 3, 3), (3,), stride=2, padding=1), case((1, 2, 6, 7), (2, 2, 2, 3), stride=(2, 1), padding=(0, 2), dilation=(3, 2)),
            case((2, 4, 3, 4), (6, 2, 2, 2), (6,), groups=2), case((1, 3, 4, 4), (3, 1, 3, 3), (3,), padding=1, groups=3),
            case((1, 2, 4, 5), (2, 2, 2, 4), (2,), padding="same"), case((1, 1, 5, 5), (1, 1, 2, 3), padding="same", dilation=2),
            case((1, 2, 4, 4), (2, 2, 3, 3), (2,), padding="valid"), case((0, 2, 4, 4), (3, 2, 3, 3), (3,)), case((2, 1, 4, 19), (7, 1, 2, 4), (7,)),
            case((1, 1, 2, 2), (1, 1, 2, 2)), case((1, 2, 3, 3), (2, 2, 4, 5), stride=5, padding=2),
        ),
    ),
    Op(
        "conv_transpose2d", conv_transpose2d(np), torch="nn.functional.conv_transpose2d", ulps=64,
        cases=(
            case((2, 3, 3, 4), (3, 2, 3, 2), (2,)), case((3, 4, 3), (3, 2, 2, 2)), case((1, 2, 3, 3), (2, 3, 4, 4), (3,), stride=2, padding=1),
            case((1, 2, 2, 3), (2, 2, 3, 3), (2,), stride=(2, 3), padding=(1, 0), output_padding=(1, 2)),
            case((1, 4, 3, 2), (4, 2, 2, 2), (4,), groups=2), case((1, 2, 3, 3), (2, 1, 2, 3), dilation=(3, 2)),
            case((0, 2, 3, 3), (2, 3, 2, 2), (3,)),
            case((2, 4, 3, 2), (4, 1, 2, 3), (2,), stride=(2, 1), padding=(2, 1), output_padding=(2, 1), dilation=(3, 2), groups=2),
        ),
    ),
]  # fmt: skip

POOLING = [
    Op(
        "max_pool2d", max_pool2d(np), torch="nn.functional.max_pool2d", composition=max_pool2d(mg), ulps=0,
        cases=(
            case((2, 3, 4, 6), kernel_size=2), case((3, 5, 7), kernel_size=2), case((2, 2, 5, 6), kernel_size=(3, 2), stride=1),
            case((1, 2, 5, 5), kernel_size=3, stride=2, padding=1), case((1, 2, 5, 6), kernel_size=2, ceil_mode=True),
            case((1, 1, 7, 8), kernel_size=(2, 3), stride=(3, 2), padding=(1, 0), dilation=(2, 3)), case((0, 2, 4, 4), kernel_size=2),
            case((2, 1, 2, 38), kernel_size=2), case((1, 2, 5, 5), kernel_size=2, stride=3, ceil_mode=True, padding=1),
            case((1, 2, 3, 5), kernel_size=4, stride=2, ceil_mode=True),
        ),
    ),
    Op(
        "avg_pool2d", avg_pool2d(np), torch="nn.functional.avg_pool2d", composition=avg_pool2d(mg),
        cases=(
            case((2, 3, 4, 6), kernel_size=2), case((3, 5, 7), kernel_size=2), case((2, 2, 5, 6), kernel_size=(3, 2), stride=1),
            case((1, 2, 5, 5), kernel_size=3, stride=2, padding=1), case((1, 2, 5, 5), kernel_size=3, stride=2, padding=1, count_include_pad=False),
            case((1, 2, 6, 5), kernel_size=3, stride=2, padding=1, ceil_mode=True), case((1, 1, 4, 5), kernel_size=2, divisor_override=3),
            case((1, 2, 3, 5), kernel_size=4, stride=2, ceil_mode=True),
            case((1, 2, 6, 5), kernel_size=(3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False), case((0, 2, 4, 4), kernel_size=2),
        ),
    ),
    Op(
        "max_pool1d", sequences(max_pool2d(np)), torch="nn.functional.max_pool1d", composition=sequences(max_pool2d(mg)), ulps=0,
        cases=(
            case((2, 3, 6), kernel_size=2), case((3, 7), kernel_size=3, stride=2, padding=1), case((2, 2, 9), kernel_size=2, stride=3, dilation=3),
            case((1, 2, 6), kernel_size=4, stride=3, ceil_mode=True), case((0, 2, 4), kernel_size=2),
        ),
    ),
    Op(
        "avg_pool1d", sequences(avg_pool2d(np)), torch="nn.functional.avg_pool1d", composition=sequences(avg_pool2d(mg)),
        cases=(
            case((2, 3, 6), kernel_size=2), case((3, 7), kernel_size=3, stride=2, padding=1), case((2, 2, 9), kernel_size=3, stride=1, padding=1, count_include_pad=False),
            case((1, 2, 6), kernel_size=4, stride=3, ceil_mode=True), case((0, 2, 4), kernel_size=2),
        ),
    ),
    Op(
        "adaptive_avg_pool2d", adaptive_avg_pool2d(np), torch="nn.functional.adaptive_avg_pool2d", composition=adaptive_avg_pool2d(mg),
        cases=(
            case((2, 3, 4, 6), output_size=2), case((3, 5, 7), output_size=(3, 2)), case((2, 2, 5, 4), output_size=1),
            case((1, 2, 3, 4), output_size=(5, None)), case((0, 2, 4, 4), output_size=(3, 3)),
        ),
    ),
]  # fmt: skip
