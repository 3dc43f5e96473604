"""The primitives on a GPU; `minigrad.engine.backend.Backend` documents each method."""

import functools
import math
from typing import Any

import cupy
import numpy as np
from cupy_backends.cuda.libs import cublas

from minigrad.cuda import faults
from minigrad.cuda.attention import Attention
from minigrad.cuda.index import Index
from minigrad.cuda.launch import AXES, BLOCK, WARP, empty, launch, power_of_two
from minigrad.cuda.optimizer import Optimizer
from minigrad.cuda.random import Random
from minigrad.cuda.recurrent import Recurrent
from minigrad.cuda.softmax import Softmax
from minigrad.cuda.windows import Windows
from minigrad.engine.backend import register
from minigrad.engine.cpu import is_defined
from minigrad.engine.dtype import Code
from minigrad.engine.tensor import Tensor

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind
registered: set[int] = set()


def prepare(device: int) -> None:
    """Make this the backend of a GPU."""
    if device not in registered:
        register(1 + device, CUDA(device))
        registered.add(device)


def allocate(size: int, device: int) -> tuple[int, Any]:
    """Allocate from CuPy's memory pool on a device; return the address and the object that owns the memory."""
    prepare(device)
    with cupy.cuda.Device(device):
        try:
            memory = cupy.cuda.alloc(max(size, 1))
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(f"[allocate] no memory for {size} bytes on cuda:{device}: {error}") from None
    return memory.ptr, memory


def transfer(x: Tensor, index: int) -> Tensor:
    """Copy x to the device of that index, which may be its own: 0 is the CPU, 1 + i is cuda:i."""
    x = x.detach().contiguous()
    name = "cpu" if index == 0 else f"cuda:{index - 1}"
    out = empty(x.shape, x.dtype.name, name)
    kind = HOST_TO_DEVICE if x.device == "cpu" else DEVICE_TO_HOST if index == 0 else DEVICE_TO_DEVICE
    if kind == DEVICE_TO_DEVICE:
        wait(index - 1, int(x.device[5:]))
    with cupy.cuda.Device(int((name if index else x.device)[5:])):
        stream = cupy.cuda.get_current_stream()
        if x.size:
            cupy.cuda.runtime.memcpyAsync(out.data_ptr(), x.data_ptr(), x.nbytes, kind, stream.ptr)
        # The caller may read or overwrite CPU memory as soon as this returns.
        if kind != DEVICE_TO_DEVICE:
            stream.synchronize()
    if kind == DEVICE_TO_DEVICE:
        wait(int(x.device[5:]), index - 1)  # before x's memory is reused
    if kind == DEVICE_TO_HOST:
        faults.of(int(x.device[5:])).look()
    return out


def wait(device: int, other: int) -> None:
    """Let the current stream of a GPU wait for the work queued on the current stream of another."""
    if device == other:
        return
    with cupy.cuda.Device(other):
        event = cupy.cuda.get_current_stream().record()
    with cupy.cuda.Device(device):
        cupy.cuda.get_current_stream().wait_event(event)


def current_stream(device: int) -> int:
    """Return the current stream of a GPU in DLPack's numbering, after preparing the GPU for use."""
    prepare(device)
    with cupy.cuda.Device(device):
        return cupy.cuda.get_current_stream().ptr or 1


def hand_over(device: int, stream: int | None) -> None:
    """Let another stream, in DLPack's numbering, wait for the work queued on the current one."""
    if stream is not None and (type(stream) is not int or stream < -1 or stream == 0):
        raise BufferError(f"[dlpack] expected a DLPack stream, -1, 1, 2 or an address, got {stream!r}")
    if stream == -1 or (stream or 1) == current_stream(device):
        return
    with cupy.cuda.Device(device):
        event = cupy.cuda.get_current_stream().record()
        # CUDA and DLPack use the same numbers for the default streams.
        cupy.cuda.runtime.streamWaitEvent(stream or 1, event.ptr)


@functools.cache
def check_defined(primitive: str, op: int, dtype: str) -> None:
    """Reject an operation that a dtype does not have, for which a kernel would leave its result uninitialized."""
    if not is_defined(primitive, op, Code[dtype.upper()]):
        raise TypeError(f"[{primitive}] not defined for {dtype}")


class CUDA(Attention, Recurrent, Windows, Softmax, Index, Random, Optimizer):
    """The primitives on one GPU."""

    def __init__(self, device: int) -> None:
        self.device = device

    # ── elementwise ──

    def unary(self, op: int, x: Tensor, out: Tensor) -> None:
        check_defined("unary", op, x.dtype.name)
        self.elementwise("unary", x.dtype.name, (op, out.dtype.name == "bool"), out, x)

    def binary(self, op: int, a: Tensor, b: Tensor, out: Tensor) -> None:
        check_defined("binary", op, a.dtype.name)
        self.elementwise("binary", a.dtype.name, (op, out.dtype.name == "bool"), out, a, b)

    def where(self, condition: Tensor, a: Tensor, b: Tensor, out: Tensor) -> None:
        self.elementwise("where", a.dtype.name, (), out, condition, a, b)

    def copy(self, x: Tensor, out: Tensor) -> None:
        dtype = x.dtype.name
        if out.dtype.name == dtype:
            matrices = transposition(out.shape, out.dtype.itemsize, out.strides, x.strides)
            if matrices is not None:
                rows, columns, *axes, count, shape, axis = matrices
                blocks = count * -(-rows // WARP) * -(-columns // WARP)
                launch("elementwise.cu", "transpose", dtype, self.device, blocks * BLOCK, rows, columns, *axes, count,
                       len(shape), shape, axis, x, out)  # fmt: skip
                return
        self.elementwise("copy", dtype, (Code[out.dtype.name.upper()],), out, x)

    def fill(self, out: Tensor, value: float) -> None:
        numbers = (value, 0) if out.dtype.kind == "f" else (0.0, np.array(value, out.dtype.name).item())
        self.elementwise("fill", out.dtype.name, (), out, *numbers)

    def elementwise(self, kernel: str, dtype: str, first: tuple[int, ...], out: Tensor, *rest: Any) -> None:
        """Launch a kernel of elementwise.cu with `first`, the layout, the operands or numbers, and out."""
        arrays = out, *(x for x in rest if isinstance(x, Tensor))
        n, packed, groups, linear, shape, axis = layout(
            out.shape, tuple(x.dtype.itemsize for x in arrays), tuple(x.strides for x in arrays)
        )
        threads = groups if groups <= FEW_GROUPS else -(-groups // 2)
        launch("elementwise.cu", kernel, dtype, self.device, threads, *first, n, packed, len(shape), linear, shape,
               axis, *rest, out, block=SMALL_BLOCK)  # fmt: skip

    # ── reductions ──

    def reduce(self, op: int, outer: int, n: int, inner: int, x: Tensor, out: Tensor) -> None:
        check_defined("reduce", op, x.dtype.name)
        if out.size == 0:
            return
        tile = ReduceTile(outer, n, inner)
        pieces = tile.pieces(n)
        partial = empty((outer * inner * pieces * STATE,), "float64", x.device) if pieces > 1 else None
        launch("reduce.cu", "reduce_tiles", x.dtype.name, self.device, tile.threads * pieces, op, outer, n, inner,
               tile.wide, tile.deep, pieces, x, out, partial)  # fmt: skip
        if pieces > 1:
            tile = ReduceTile(out.size, pieces, 1)
            launch("reduce.cu", "reduce_pieces", x.dtype.name, self.device, tile.threads, op, out.size, pieces,
                   tile.deep, partial, out)  # fmt: skip

    def moments(self, outer: int, n: int, inner: int, x: Tensor, mean: Tensor, m2: Tensor) -> None:
        tile = ReduceTile(outer, n, inner)
        launch("reduce.cu", "moments", x.dtype.name, self.device, tile.threads, outer, n, inner, tile.wide, tile.deep,
               x, mean, m2)  # fmt: skip

    def cumulative_sum(self, outer: int, n: int, inner: int, x: Tensor, out: Tensor) -> None:
        if out.size:
            block = min(BLOCK, power_of_two(n, WARP))
            launch("reduce.cu", "cumulative_sum", x.dtype.name, self.device, outer * inner * block, outer, n, inner, x,
                   out, block=block)  # fmt: skip

    # ── products ──

    def gemm(self, a: Tensor, b: Tensor, out: Tensor, beta: float, bias: Tensor | None) -> None:
        a, b, out = a.detach(), b.detach(), out.detach()  # keep the memory, whatever other threads do meanwhile
        m, n, k = *out.shape[-2:], a.shape[-1]
        batch = out.shape[0] if out.ndim == 3 else 1
        if out.size == 0:
            return
        (op_b, ldb, stride_b), (op_a, lda, stride_a) = operand(b, k, n), operand(a, m, k)
        if max(m, n, k, lda, ldb, batch) >= 1 << 31:
            raise OverflowError(
                f"[matmul] expected sizes and strides below 2^31, the limit of cuBLAS, got {batch} "
                f"products of {m} x {k} with stride {lda} and {k} x {n} with stride {ldb}"
            )
        if bias is not None:
            self.copy(bias.detach().broadcast_to(out.shape), out)
            beta = 1.0
        if k == 0:
            if beta == 0:
                self.fill(out, 0.0)
            return
        # cuBLAS is column-major: out.T = b.T a.T
        with cupy.cuda.Device(self.device):
            handle = cupy.cuda.device.get_cublas_handle()
            product = cublas.sgemmStridedBatched if out.dtype == "float32" else cublas.dgemmStridedBatched
            one, other = factor(1.0, out.dtype.name), factor(beta, out.dtype.name)
            product(handle, op_b, op_a, n, m, k, one[1], b.data_ptr(), ldb, stride_b, a.data_ptr(), lda,
                    stride_a, other[1], out.data_ptr(), n, m * n, batch)  # fmt: skip


SMALL_BLOCK = 128  # of elementwise.cu, whose kernels use many registers: more of them fit on a multiprocessor
FEW_GROUPS = 1 << 18  # about as many threads as a GPU runs at once; of more groups, each thread gets two


@functools.lru_cache(1 << 12)
def collapsed(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


@functools.lru_cache(1 << 12)
def layout(
    shape: tuple[int, ...], sizes: tuple[int, ...], strides: tuple[tuple[int, ...], ...]
) -> tuple[int, int, int, int, tuple[int, ...], tuple[int, ...]]:
    """Return how elementwise.cu goes over arrays: the elements, those in packs, the groups, `linear`, and the axes.

    The first array is the output. The last axis can be read in packs if the elements of each array are neighbours in
    it, or all the same one, and if every line begins at a multiple of a pack.
    """
    n, pack = math.prod(shape), 16 // max(sizes)
    if n == 0:
        return 0, 0, 0, 0, (1,), (AXES - 1,)
    lengths, axes = collapsed(shape, strides)
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
    return n, packed, packed // pack + -(-(n - packed) // pack), linear, lengths, axes


@functools.lru_cache(1 << 12)
def transposition(
    shape: tuple[int, ...], size: int, out: tuple[int, ...], x: tuple[int, ...]
) -> tuple[int, int, int, int, int, tuple[int, ...], tuple[int, ...]] | None:
    """Return the arguments of the kernel `transpose` that precede the arrays, except `axes`; None if it is of no use.

    It needs one axis along which the elements of x are neighbours, and another for the output, both long.
    """
    if math.prod(shape) == 0:
        return None
    lengths, axes = collapsed(shape, (out, x))
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


SHORT = 8  # shorter axes would leave most of a tile of 32 x 32 elements empty


@functools.lru_cache(64)
def factor(number: float, dtype: str) -> tuple[Any, int]:
    """Store a number that cuBLAS reads from host memory; return its owner and its address."""
    held = np.array(number, dtype)
    return held, held.ctypes.data


def operand(x: Tensor, rows: int, columns: int) -> tuple[int, int, int]:
    """Return how cuBLAS reads a matrix or a batch of them: the transposition, the leading dimension and the stride."""
    size = x.dtype.itemsize
    *outer, row, column = (step // size for step in x.strides)
    stride = outer[0] if outer else 0
    # A stride along an axis of length one has no meaning.
    if column == 1 and (row >= columns or rows == 1):
        return cublas.CUBLAS_OP_N, max(row, columns) if rows > 1 else columns, stride
    if row == 1 or rows == 1:
        return cublas.CUBLAS_OP_T, max(column, rows) if columns > 1 else rows, stride
    return cublas.CUBLAS_OP_N, max(row, columns), stride


STATE = 2  # the most doubles that the state of a reduction takes


class ReduceTile:
    """How a block of threads reads x[outer, n, inner]; see reduce.cu."""

    def __init__(self, outer: int, n: int, inner: int) -> None:
        self.wide = min(power_of_two(inner), WARP)
        self.deep = min(power_of_two(n), BLOCK // self.wide)
        self.tiles = outer * -(-inner // self.wide)
        self.threads = -(-self.tiles // (BLOCK // (self.wide * self.deep))) * BLOCK

    def pieces(self, n: int) -> int:
        """Return how many pieces to split a column into so that few long columns keep a GPU busy.

        It depends on the shape alone.
        """
        return max(1, min(1024, 2048 // max(self.threads // BLOCK, 1), n // (16 * self.deep)))
