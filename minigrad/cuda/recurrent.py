"""Recurrent layers on a GPU: decides which products the kernel computes itself; recurrent.cu computes the steps."""

from typing import Any

from minigrad.cuda.launch import WARP, empty, launch, power_of_two
from minigrad.cuda.norms import Norms
from minigrad.engine.ops.recurrent import Cell
from minigrad.engine.tensor import Tensor

LARGEST = 512  # threads of a block
PACK = 16  # bytes that one instruction reads
CACHED = 1 << 20  # bytes of W up to which reading it from the cache costs less than launching a product at every step
MANY = 132  # samples beyond which a block takes several, so that all blocks run at once, one on each multiprocessor


class Recurrent(Norms):
    """All steps of a recurrent layer."""

    def recurrent(self, cell: Cell, arrays: dict[str, Any]) -> None:
        layer, weight = Steps(cell, arrays), arrays["w"].detach()
        given = [arrays.get(name) for name in ("x", "bias")]
        last = [arrays.get(name) for name in ("h_last", "c_last")]
        rest = *given, cell.eps, cell.eps_c, *last
        if layer.cached:
            self._steps("recurrent", layer, 0, layer.steps, self._padded(weight.T), *rest)
            return
        h, z = arrays["h"].detach(), arrays["z"].detach()
        for t in range(layer.steps):
            self.gemm(h[t], weight.T, z[t if layer.keep else 0], 0.0, None)
            self._steps("recurrent", layer, t, t + 1, None, *rest)

    def recurrent_backward(self, cell: Cell, arrays: dict[str, Any]) -> None:
        layer, weight = Steps(cell, arrays), arrays["w"].detach()
        dh, dz = arrays["dh"], arrays["dz"].detach()
        affine = self._sums(arrays, ("dgamma", "dbeta"), layer.columns)
        affine_c = self._sums(arrays, ("dgamma_c", "dbeta_c"), layer.hidden)
        rest = arrays["gy"], dh, arrays.get("dc"), arrays["dx"], dz, affine, affine_c
        if layer.cached:
            self._steps("recurrent_backward", layer, 0, layer.steps, self._padded(weight), *rest)
        else:
            for t in reversed(range(layer.steps)):
                self._steps("recurrent_backward", layer, t, t + 1, None, *rest)
                self.gemm(dz[t], weight, dh.detach(), 1.0, None)
        if affine is not None:
            self._add_partials("add_wide_partials", affine, layer.columns, arrays.get("dgamma"), arrays.get("dbeta"))
        if affine_c is not None:
            self._add_partials("add_wide_partials", affine_c, layer.hidden, arrays.get("dgamma_c"),
                               arrays.get("dbeta_c"))  # fmt: skip

    def _padded(self, matrix: Tensor) -> Tensor:
        """Return a contiguous matrix whose rows begin at multiples of 16 bytes; the padding is not initialized."""
        rows, columns = matrix.shape
        width = -(-columns // (PACK // matrix.dtype.itemsize)) * (PACK // matrix.dtype.itemsize)
        if width == columns and matrix.is_contiguous() and matrix.data_ptr() % PACK == 0:
            return matrix
        out = empty((rows, width), matrix.dtype.name, matrix.device)
        self.copy(matrix, out[:, :columns].detach())
        return out

    def _sums(self, arrays: dict[str, Any], wanted: tuple[str, str], width: int) -> Tensor | None:
        """Return a zeroed scratch buffer for two sums over the steps of each sample, or None if neither is wanted."""
        if all(arrays.get(name) is None for name in wanted):
            return None
        out = empty((arrays["h"].shape[1], 2 * width), "float64", arrays["h"].device)
        self.fill(out, 0.0)
        return out

    def _steps(self, kernel: str, layer: "Steps", begin: int, end: int, *rest: Any) -> None:
        launch("recurrent.cu", kernel, layer.dtype, self.device, layer.blocks * layer.block, layer.kind, layer.samples,
               begin, end, *layer.arguments, *rest, block=layer.block)  # fmt: skip


class Steps:
    """The arguments that the kernels of recurrent.cu take, and how the samples are divided among blocks."""

    def __init__(self, cell: Cell, arrays: dict[str, Any]) -> None:
        h, w, z = arrays["h"], arrays["w"], arrays["z"]
        self.kind, norm = cell.codes
        self.dtype = h.dtype.name
        states, self.batch, self.hidden = h.shape
        self.steps, self.columns = states - 1, w.shape[0]
        self.keep = z.shape[0] == self.steps
        # depends on the weights alone, so that a sample's result is the same in every batch and number of steps
        self.cached = w.nbytes <= CACHED
        self.samples = 4 if self.cached and self.batch > MANY else 1
        self.blocks = -(-self.batch // self.samples)
        self.block = min(power_of_two(4 * self.hidden, WARP), LARGEST)
        sizes = cell.sizes
        ends = tuple(sum(sizes[: i + 1]) for i in range(len(sizes))) + (0,) * (8 - len(sizes))
        names = "gamma", "beta", "gamma_c", "beta_c", "h", "c", "z", "act", "stats", "stats_c", "raw_c"
        self.arguments = (
            norm, cell.norm_cell, cell.centered, cell.swap, cell.slope, self.batch, self.hidden,
            self.columns, self.steps, len(sizes), ends, self.keep, arrays.get("lengths"),
            *[arrays.get(name) for name in names],
        )  # fmt: skip
