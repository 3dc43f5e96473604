"""Element-wise operations on a GPU: decides how elementwise.cu goes over arrays of any layout."""

import functools
import math
from typing import Any

import numpy as np

from minigrad.cuda.launch import BLOCK, WARP, launch
from minigrad.engine.devices.backend import Backend
from minigrad.engine.devices.cpu import is_defined
from minigrad.engine.devices.cuda import layout_of
from minigrad.engine.memory.dtype import Code
from minigrad.engine.memory.refusals import undefined
from minigrad.engine.tensor.tensor import Tensor

CODES = {code.name.lower(): code.value for code in Code}
AXES = 8  # the most axes of an array, as in common.cuh
SMALL_BLOCK = 128  # threads: kernels of elementwise.cu use many registers, so that more small blocks fit
FEW_PLACES = 1 << 18  # about as many threads as a GPU runs at once; above, each gets several packs or elements
PACK, FLIGHT = 4, 4  # the most elements of a pack, and the packs of a thread, as in elementwise.cu
SHORT = 8  # shorter axes would leave most of a tile of 32 x 32 elements empty


@functools.cache
def check_defined(primitive: str, op: int, dtype: str) -> None:
    """Reject an operation that a dtype does not have, for which a kernel would leave its result uninitialized."""
    if not is_defined(primitive, op, CODES[dtype]):
        raise undefined(primitive, dtype)


class Elementwise(Backend):
    """Functions of elements, selections and copies."""

    device: int

    def unary(self, op: int, x: Tensor, out: Tensor) -> None:
        check_defined("unary", op, x.dtype.name)
        self._elementwise("unary", x.dtype.name, (op, out.dtype.name == "bool"), out, x)

    def binary(self, op: int, a: Tensor, b: Tensor, out: Tensor) -> None:
        check_defined("binary", op, a.dtype.name)
        self._elementwise("binary", a.dtype.name, (op, out.dtype.name == "bool"), out, a, b)

    def where(self, condition: Tensor, a: Tensor, b: Tensor, out: Tensor) -> None:
        self._elementwise("where", a.dtype.name, (), out, condition, a, b)

    def clip(self, low: float, high: float, x: Tensor, out: Tensor) -> None:
        self._elementwise("clip", x.dtype.name, (), out, low, high, x)

    def copy(self, x: Tensor, out: Tensor) -> None:
        dtype = x.dtype.name
        if dtype == out.dtype.name and (x.strides[-1:] != out.strides[-1:] or out.shape[-1:] == (1,)):
            matrices = plan_transpose(out.shape, out.dtype.itemsize, out.strides, x.strides)
            if matrices is not None:
                rows, columns, *axes, count, shape, axis = matrices
                blocks = count * -(-rows // WARP) * -(-columns // WARP)
                launch("elementwise.cu", "transpose", dtype, self.device, blocks * BLOCK, rows, columns, *axes, count,
                       len(shape), shape, axis, x, out)  # fmt: skip
                return
        self._copy_in_order(x, out)

    def _copy_in_order(self, x: Tensor, out: Tensor) -> None:
        """Copy with neighbouring threads on neighbouring elements of the output."""
        self._elementwise("copy", x.dtype.name, (CODES[out.dtype.name],), out, x)

    def fill(self, out: Tensor, value: float) -> None:
        numbers = (value, 0) if out.dtype.kind == "f" else (0.0, np.array(value, out.dtype.name).item())
        self._elementwise("fill", out.dtype.name, (), out, *numbers)

    def _elementwise(self, kernel: str, dtype: str, first: tuple[int, ...], out: Tensor, *rest: Any) -> None:
        """Launch a kernel of elementwise.cu with `first`, the layout, the operands or numbers, and out."""
        n, packed, threads, linear, shape, axis = layout_of(layout, out, rest)
        launch("elementwise.cu", kernel, dtype, self.device, threads, *first, n, packed, len(shape), linear, shape,
               axis, *rest, out, block=SMALL_BLOCK)  # fmt: skip


@functools.lru_cache(1 << 12)
def collapse(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the lengths of the axes that are left, and which of the strides' eight axes each of them is.

    Axes of length one are dropped, and neighbouring axes that are one axis in all arrays are merged.
    """
    lengths: list[int] = []
    axes: list[int] = []  # from the last axis to the first
    for k in reversed(range(len(shape))):
        if shape[k] == 1:
            continue
        if axes and all(step[k] == step[axes[-1]] * lengths[-1] for step in strides):
            lengths[-1] *= shape[k]
        else:
            lengths.append(shape[k])
            axes.append(k)
    missing = AXES - len(shape)
    if not axes:
        return (1,), (AXES - 1,)
    return tuple(lengths[::-1]), tuple(missing + k for k in reversed(axes))


def layout(
    shape: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Return how elementwise.cu goes over arrays: the elements, those in packs, the threads, `linear`, and the axes.

    The first array is the output. The last axis can be read in packs if the elements of each array are neighbours in
    it, or all the same one, and if every line begins at a multiple of a pack.
    """
    n, pack = math.prod(shape), min(PACK, 16 // max(sizes))
    if n == 0:
        return 0, 0, 0, 0, (1,), (AXES - 1,)
    lengths, axes = collapse(shape, strides)
    missing, linear, whole = AXES - len(shape), 0, len(lengths) == 1 or lengths[-1] % pack == 0
    for k, (size, step) in enumerate(zip(sizes, strides, strict=True)):
        left = [step[axis - missing] if axis >= missing else 0 for axis in axes]
        last = left[-1]
        expected, one = last, True
        for length, found in zip(lengths[::-1], left[::-1], strict=True):
            one = one and found == expected
            expected *= length
        linear |= one << k
        whole = whole and (last == size or (last == 0 and k > 0))
        whole = whole and (last == 0 or all(found % (pack * size) == 0 for found in left[:-1]))
    packed = n - n % pack if whole else 0
    packs, others = packed // pack, n - packed
    each = 1 if packs + others <= FEW_PLACES else FLIGHT
    # Different blocks work on packs and on single elements.
    threads = -(-packs // (each * SMALL_BLOCK)) * SMALL_BLOCK + -(-others // min(each, pack))
    return n, packed, threads, linear, lengths, axes


@functools.lru_cache(1 << 12)
def plan_transpose(
    shape: tuple[int, ...], size: int, out: tuple[int, ...], x: tuple[int, ...]
) -> tuple[int, int, int, int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Return the arguments of the kernel `transpose` that precede the arrays, except `axes`; None if it is of no use.

    It needs one axis along which the elements of x are neighbours, and another for the output, both long.
    """
    if math.prod(shape) == 0:
        return None
    lengths, axes = collapse(shape, (out, x))
    missing = AXES - len(shape)
    rows = [k for k, axis in enumerate(axes) if axis >= missing and x[axis - missing] == size]
    columns = [k for k, axis in enumerate(axes) if axis >= missing and out[axis - missing] == size]
    if len(rows) != 1 or len(columns) != 1 or rows == columns:
        return None
    row, column = rows[0], columns[0]
    if min(lengths[row], lengths[column]) < SHORT:
        return None
    others = [k for k in range(len(lengths)) if k not in (row, column)]
    matrices = tuple(lengths[k] for k in others) or (1,)
    return (lengths[row], lengths[column], axes[row], axes[column], math.prod(matrices), matrices,
            tuple(axes[k] for k in others) or (axes[row],))  # fmt: skip
