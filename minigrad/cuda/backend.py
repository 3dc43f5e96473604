"""The primitives on a GPU; `minigrad.engine.devices.backend.Backend` documents each method."""

import ctypes
import functools
import importlib
from typing import Any

import cupy
from cupy_backends.cuda.libs import cublas  # noqa: F401  # it loads the library, wherever that is

from minigrad.cuda import faults
from minigrad.cuda.attention import Attention
from minigrad.cuda.elementwise import Elementwise, check_defined
from minigrad.cuda.index import Index
from minigrad.cuda.launch import BLOCK, WARP, empty, has_tf32, launch, power_of_two
from minigrad.cuda.optimizer import Optimizer
from minigrad.cuda.random import Random
from minigrad.cuda.recurrent import Recurrent
from minigrad.cuda.softmax import Softmax
from minigrad.cuda.staging import HOST_TO_DEVICE, LARGEST, ring
from minigrad.cuda.windows import Windows
from minigrad.engine.devices import cuda
from minigrad.engine.devices.backend import register
from minigrad.engine.devices.gpu_memory import Pool
from minigrad.engine.devices.kernel_list import repeat
from minigrad.engine.tensor.tensor import Tensor

DEVICE_TO_HOST, DEVICE_TO_DEVICE = 2, 3  # cudaMemcpyKind
KEPT = 64  # this fraction of a GPU's memory may wait for reuse outside CuPy's pool
registered: set[int] = set()


def c_function(module: str, name: str) -> Any:
    """Return a C function that a module of CuPy shares with the others, or None: it is not public."""
    try:
        return importlib.import_module(module).__pyx_capi__.get(name)
    except (ImportError, AttributeError):
        return None


cuda.connect(
    ctypes.CDLL("libcuda.so.1"),
    ctypes.CDLL(f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}"),
    cupy.cuda,
    c_function("cupy_backends.cuda.stream", "get_stream_ptr"),
)


def prepare(device: int) -> None:
    """Make this the backend of a GPU."""
    if device not in registered:
        register(1 + device, CUDA(device))
        memory = cupy.cuda.runtime.getDeviceProperties(device)["totalGlobalMem"]
        Pool(device, functools.partial(allocate, device), memory // KEPT)
        registered.add(device)


def allocate(device: int, size: int) -> Any:
    """Allocate from CuPy's memory pool on a device."""
    with cupy.cuda.Device(device):
        try:
            return cupy.cuda.alloc(size)
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(f"[allocate] no memory for {size} bytes on cuda:{device}: {error}") from None


def transfer(x: Tensor, index: int) -> Tensor:
    """Copy x to the device of that index, which may be its own: 0 is the CPU, 1 + i is cuda:i."""
    x = x.detach().contiguous()
    out = empty(x.shape, x.dtype.name, "cpu" if index == 0 else f"cuda:{index - 1}")
    repeat(copy_across, (x, out))
    return out


def copy_across(x: Tensor, out: Tensor) -> None:
    """Copy contiguous memory; return when the caller may read or write the memory of the CPU."""
    source, target = (-1 if one.device == "cpu" else int(one.device[5:]) for one in (x, out))
    kind = HOST_TO_DEVICE if source < 0 else DEVICE_TO_HOST if target < 0 else DEVICE_TO_DEVICE
    if kind == DEVICE_TO_DEVICE:
        wait(target, source)
    with cupy.cuda.Device(source if target < 0 else target):
        stream = cupy.cuda.get_current_stream()
        if kind == HOST_TO_DEVICE and x.nbytes <= LARGEST:
            if x.nbytes:
                ring(target).copy(x, out, stream)
        else:
            if x.nbytes:
                cupy.cuda.runtime.memcpyAsync(out.data_ptr(), x.data_ptr(), x.nbytes, kind, stream.ptr)
            if kind != DEVICE_TO_DEVICE:
                stream.synchronize()
    if kind == DEVICE_TO_DEVICE:
        wait(source, target)  # before x's memory is reused
    if kind == DEVICE_TO_HOST:
        faults.of(source).look()


copy_across.__name__ = "to"  # as a captured step shows the call


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


class CUDA(Elementwise, Attention, Recurrent, Windows, Softmax, Index, Random, Optimizer):
    """The primitives on one GPU."""

    def __init__(self, device: int) -> None:
        self.device = device

    # ── reductions ──

    def reduce(self, op: int, outer: int, n: int, inner: int, x: Tensor, out: Tensor) -> None:
        check_defined("reduce", op, x.dtype.name)
        if out.size == 0:
            return
        tile = ReduceTile(outer, n, inner)
        pieces = tile.pieces
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

    def linear_scan(
        self, outer: int, n: int, inner: int, reverse: bool, a: Tensor, b: Tensor, initial: Tensor | None, h: Tensor
    ) -> None:
        self._scan("linear_scan", outer, n, inner, reverse, initial, a, (b, initial), (h,))

    def linear_scan_backward(
        self, outer: int, n: int, inner: int, reverse: bool, a: Tensor, h: Tensor | None, initial: Tensor | None,
        g: Tensor, da: Tensor | None, db: Tensor | None, dinitial: Tensor | None,
    ) -> None:  # fmt: skip
        self._scan("linear_scan_backward", outer, n, inner, reverse, None, a, (h, initial, g), (da, db, dinitial))

    def _scan(
        self, kernel: str, outer: int, n: int, inner: int, reverse: bool, start: Tensor | None, a: Tensor,
        inputs: tuple[Tensor | None, ...], outputs: tuple[Tensor | None, ...],
    ) -> None:  # fmt: skip
        """Scan the columns, in pieces if there are too few of them."""
        columns, dtype = outer * inner, a.dtype.name
        wide = 1 if inner == 1 else WARP
        tiles = -(-columns // wide)
        deep = min(power_of_two(-(-n // SCAN_RUN)), SCAN_THREADS // wide)
        pieces = max(1, min(-(-n // (4 * deep * SCAN_RUN)), SCAN_BLOCKS // tiles))
        block = wide * deep
        sizes = columns, n, inner, reverse, wide, deep, pieces
        states = None
        if pieces > 1:
            totals, states = (empty((k * pieces * columns,), "float64", a.device) for k in (2, 1))
            launch("scan.cu", kernel, dtype, self.device, tiles * pieces * block, *sizes, totals, None, a, *inputs,
                   *(None for _ in outputs), block=block)  # fmt: skip
            deep = min(power_of_two(-(-pieces // SCAN_RUN)), SCAN_THREADS // wide)
            launch("scan.cu", "linear_scan_pieces", dtype, self.device, tiles * wide * deep, columns, pieces, wide,
                   deep, start, totals, states, block=wide * deep)  # fmt: skip
        launch("scan.cu", kernel, dtype, self.device, tiles * pieces * block, *sizes, None, states, a, *inputs,
               *outputs, block=block)  # fmt: skip

    def ctc(self, e: Tensor, skip: Tensor, lengths: Tensor, last: Tensor, alpha: Tensor, loss: Tensor) -> None:
        self._paths("ctc", e, skip, lengths, last, alpha, loss)

    def ctc_backward(
        self, e: Tensor, skip: Tensor, lengths: Tensor, last: Tensor, alpha: Tensor, loss: Tensor, g: Tensor,
        beta: Tensor, de: Tensor,
    ) -> None:  # fmt: skip
        self._paths("ctc_backward", e, skip, lengths, last, alpha, loss, g, beta, de)

    def _paths(self, kernel: str, e: Tensor, *rest: Tensor) -> None:
        """Launch a kernel with a block for each sample."""
        steps, batch, states = e.shape
        block = min(power_of_two(states, WARP), BLOCK)
        launch("ctc.cu", kernel, "float64", self.device, batch * block, steps, batch, states, e, *rest, block=block)

    # ── products ──

    def gemm(self, a: Tensor, b: Tensor, out: Tensor, beta: float, bias: Tensor | None) -> None:
        if bias is not None:
            self._copy_in_order(bias.detach().broadcast_to(out.shape), out)
            beta = 1.0
        if not cuda.multiply(self.device, a, b, out, beta, has_tf32(self.device)) and beta == 0:
            self.fill(out, 0.0)


SCAN_RUN, SCAN_THREADS = 4, 512  # scan.cu has the same
SCAN_BLOCKS = 1024  # enough to keep a GPU busy
STATE = 2  # the most doubles that the state of a reduction takes


@functools.lru_cache(1 << 12)
class ReduceTile:
    """How a block of threads reads x[outer, n, inner]; see reduce.cu."""

    def __init__(self, outer: int, n: int, inner: int) -> None:
        self.wide = min(power_of_two(inner), WARP)
        # A thread takes at least 64 elements if that leaves a warp for a row: merging costs as much as many loads.
        self.deep = min(power_of_two(n), max(power_of_two(-(-n // 64)), WARP), BLOCK // self.wide)
        self.tiles = outer * -(-inner // self.wide)
        self.threads = -(-self.tiles // (BLOCK // (self.wide * self.deep))) * BLOCK
        # How many pieces to split a column into so that few long columns keep a GPU busy: depends on the shape alone
        self.pieces = max(1, min(1024, 2048 // max(self.threads // BLOCK, 1), n // (16 * BLOCK // self.wide)))
