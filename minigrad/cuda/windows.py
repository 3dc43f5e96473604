"""Convolution and pooling on a GPU: divides results among blocks; the kernels are in conv.cu and pooling.cu."""

import math

from minigrad.cuda.launch import BLOCK, MOST_BLOCKS, MULTIPROCESSORS, WARP, empty, has_tf32, launch, power_of_two
from minigrad.cuda.norms import Norms
from minigrad.engine.memory.dtype import get_float32_matmul_precision
from minigrad.engine.tensor.tensor import Tensor

# The rows and columns of the results that a block computes, and its threads, as in conv.cu
TILES = {"wide": (64, 128, 256), "narrow": (16, 64, 128)}
LONGEST = 1 << 31  # an axis is shorter than this
# The number of positions in one partial sum of a weight's gradient: enough to make a tile worthwhile, few enough for
# float32
FEWEST, MOST = 128, 4096


class Windows(Norms):
    """Windows that move over rows and columns."""

    def _tiles(self, rows: int, columns: int, jobs: int, kernel: str, *arguments: object, dtype: str) -> None:
        """Launch a kernel of conv.cu for `jobs` products with the given rows and columns."""
        name, blocks = tiling(rows, columns, jobs)
        threads = TILES[name][2]
        if dtype == "float32" and get_float32_matmul_precision() != "highest" and has_tf32(self.device):
            name += "_tf32"
        launch("conv.cu", f"{kernel}_{name}", dtype, self.device, blocks * threads, *arguments, block=threads,
               blocks=min(blocks, MOST_BLOCKS))  # fmt: skip

    def conv2d(self, x: Tensor, w: Tensor, bias: Tensor | None, at: tuple[int, ...], y: Tensor) -> None:
        shapes = sizes("conv2d", x, w, y)
        groups = x.shape[1] // w.shape[1]
        self._tiles(w.shape[0] // groups, y.shape[0] * math.prod(y.shape[2:]), groups, "conv2d", *shapes, at, x, w,
                    bias, y, dtype=x.dtype.name)  # fmt: skip

    def conv2d_backward_data(self, g: Tensor, w: Tensor, at: tuple[int, ...], dx: Tensor) -> None:
        shapes = sizes("conv2d_backward_data", dx, w, g)
        # Elements of dx with the same remainder modulo the stride are covered by the same taps of windows.
        remainders = at[0] * at[1]
        columns = dx.shape[0] * -(-dx.shape[2] // at[0]) * -(-dx.shape[3] // at[1])
        self._tiles(w.shape[1], columns, dx.shape[1] // w.shape[1] * remainders, "conv2d_backward_data", *shapes, at, g,
                    w, dx, dtype=g.dtype.name)  # fmt: skip

    def conv2d_backward_weight(
        self, x: Tensor, g: Tensor, at: tuple[int, ...], dw: Tensor, dbias: Tensor | None
    ) -> None:
        shapes = sizes("conv2d_backward_weight", x, dw, g)
        groups, bias = x.shape[1] // dw.shape[1], dbias is not None
        rows, columns = dw.shape[0] // groups, math.prod(dw.shape[1:]) + bias
        positions = g.shape[0] * math.prod(g.shape[2:])
        pieces = cut(positions, tiling(rows, columns, groups * -(-positions // FEWEST))[0], rows, columns, groups)
        partial = empty((pieces, dw.size + (dw.shape[0] if bias else 0)), x.dtype.name, x.device)
        self._tiles(rows, columns, groups * pieces, "conv2d_backward_weight", *shapes, at, pieces, bias, x, g, partial,
                    dtype=x.dtype.name)  # fmt: skip
        if dw.size:
            self._add_partials("add_partials", partial, dw.size, dw, dbias)

    def max_pool2d(self, x: Tensor, at: tuple[int, ...], y: Tensor | None, index: Tensor | None) -> None:
        out = y if y is not None else index
        assert out is not None
        launch("pooling.cu", "max_pool2d", x.dtype.name, self.device, out.size, planes(x), *x.shape[-2:],
               *out.shape[-2:], *at, x, y, index)  # fmt: skip

    def max_pool2d_backward(self, x: Tensor, g: Tensor, at: tuple[int, ...], dx: Tensor) -> None:
        launch("pooling.cu", "max_pool2d_backward", x.dtype.name, self.device, dx.size, planes(x), *x.shape[-2:],
               *g.shape[-2:], *at, x, g, dx)  # fmt: skip

    def average_pool2d(self, x: Tensor, rows: Tensor, columns: Tensor, divisor: float, y: Tensor) -> None:
        # The elements of a window if windows tile x; a team of threads sums windows of more than a few elements.
        elements = -(-x.shape[-2] // y.shape[-2]) * -(-x.shape[-1] // y.shape[-1])
        lanes = min(power_of_two(elements // 8), BLOCK) if elements > WARP else 1
        launch("pooling.cu", "average_pool2d", x.dtype.name, self.device, y.size * lanes, planes(x), *x.shape[-2:],
               *y.shape[-2:], lanes, x, rows, columns, divisor, y)  # fmt: skip

    def average_pool2d_backward(self, g: Tensor, rows: Tensor, columns: Tensor, divisor: float, dx: Tensor) -> None:
        launch("pooling.cu", "average_pool2d_backward", g.dtype.name, self.device, dx.size, planes(dx), *dx.shape[-2:],
               *g.shape[-2:], g, rows, columns, divisor, dx)  # fmt: skip


def planes(x: Tensor) -> int:
    return math.prod(x.shape[:-2])


def sizes(op: str, *tensors: Tensor) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of tensors after checking that conv.cu can index them."""
    for x in tensors:
        if max(x.shape) >= LONGEST:
            raise ValueError(f"[{op}] expected axes of less than {LONGEST} elements on a GPU, got shape {x.shape}")
    return tuple(x.shape for x in tensors)


def tiling(rows: int, columns: int, jobs: int) -> tuple[str, int]:
    """Return the kind and number of tiles of `jobs` products with the given rows and columns.

    The tiles are wide if there are enough of them for all multiprocessors.
    """
    blocks = {name: jobs * -(-rows // tall) * -(-columns // wide) for name, (tall, wide, _) in TILES.items()}
    name = "wide" if rows > TILES["narrow"][0] and blocks["wide"] >= MULTIPROCESSORS else "narrow"
    return name, blocks[name]


def cut(positions: int, tile: str, rows: int, columns: int, groups: int) -> int:
    """Return the number of pieces in which to sum the positions, which gives every multiprocessor about four blocks.

    It depends on the shape alone.
    """
    tall, wide, _ = TILES[tile]
    tiles = groups * -(-rows // tall) * -(-columns // wide)
    pieces = min(-(-4 * MULTIPROCESSORS // max(tiles, 1)), positions // FEWEST)
    return max(pieces, -(-positions // MOST), 1)
