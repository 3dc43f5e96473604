"""Indexing and sorting on a GPU."""

from typing import Any

from minigrad.cuda import faults
from minigrad.cuda.launch import BLOCK, MOST_BLOCKS, empty, launch, power_of_two
from minigrad.engine.devices.backend import Backend
from minigrad.engine.ops.gather import nonzero, take, take_along_axis, unique_values
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.rounding import isnan
from minigrad.engine.tensor.tensor import Tensor

TILE = 1024  # elements that a block sorts: TILE of order.cu
FEW = 16  # indices up to which one thread adds a column, as sorting them would take longer
WORDS = {1: "bool", 4: "int32", 8: "int64"}


class Index(Backend):
    """The primitives that gather, scatter and sort."""

    device: int

    # ── checks ──

    def class_labels(
        self, error: str, width: int, ignore: int, labels: Tensor, weight: Tensor | None, out: Tensor,
        inverse: Tensor | None,
    ) -> None:  # fmt: skip
        if labels.size and not width:
            raise IndexError(f"{error}, got some of no class")
        found = faults.of(self.device)
        message = found.number(f"{error} from 0 to {width - 1}, got {{}}")
        blocks = max(1, min(BLOCK, labels.size // (4 * BLOCK)))
        totals = None if inverse is None else empty((blocks,), "float64", out.device)
        wide = weight is not None and weight.dtype == "float64"
        self._index("check_labels", "int64", blocks * BLOCK, labels.size, width, ignore, labels, weight, wide, out,
                    totals, found.address, message)  # fmt: skip
        if inverse is not None:
            self._index("invert_total", "int64", BLOCK, blocks, totals, inverse.dtype == "float64", inverse)

    def checked_index(self, op: str, axis: int, n: int, index: Tensor, out: Tensor) -> None:
        if index.size and not n:
            raise IndexError(f"[{op}] an index is out of range for axis {axis} of length 0")
        found = faults.of(self.device)
        message = found.number(f"[{op}] index {{}} is out of range for axis {axis} of length {n}")
        self._index("check_index", "int64", index.size, index.size, n, index, out, found.address, message)

    # ── gather and scatter ──

    def take(self, outer: int, n: int, inner: int, x: Tensor, index: Tensor, out: Tensor) -> None:
        word, words = widest(inner, x, out)
        lanes = min(power_of_two(words), BLOCK)
        self._index("take", "int64", outer * index.size * lanes if words else 0, outer, n, words, index.size, word,
                    lanes, x, index, out)  # fmt: skip

    def put(self, outer: int, n: int, inner: int, x: Tensor, index: Tensor, v: Tensor) -> None:
        if v.size:
            word, words = widest(inner, x, v)
            lanes = min(power_of_two(words), BLOCK)
            self._index("put", "int64", outer * index.size * lanes, outer, n, words, index.size, word, lanes, x, index,
                        self._order(1, index.size, 1, False, index), v)  # fmt: skip

    def add_at(self, outer: int, n: int, inner: int, x: Tensor, index: Tensor, v: Tensor) -> None:
        self._add(outer, n, inner, x, index.size, False, index, v)

    def take_along(self, outer: int, n: int, inner: int, x: Tensor, m: int, index: Tensor, out: Tensor) -> None:
        self._index("take_along", "int64", out.size, outer, n, inner, m, x.dtype.itemsize, x, index, out)

    def add_along(self, outer: int, n: int, inner: int, x: Tensor, m: int, index: Tensor, v: Tensor) -> None:
        self._add(outer, n, inner, x, m, True, index, v)

    def _add(self, outer: int, n: int, inner: int, x: Tensor, m: int, along: bool, index: Tensor, v: Tensor) -> None:
        dtype, numbers = x.dtype.name, (outer, n, inner, m, along)
        if v.size == 0:
            return
        if m <= FEW or (along and outer * inner >= MOST_BLOCKS):
            self._index("add_columns", dtype, outer * inner, *numbers, x, index, v)
        else:
            order = self._order(outer if along else 1, m, inner if along else 1, False, index)
            self._index("add_sorted", dtype, v.size, *numbers, x, index, order, v)

    def _index(self, kernel: str, dtype: str, threads: int, *arguments: Any) -> None:
        launch("index.cu", kernel, dtype, self.device, threads, *arguments)

    # ── order ──

    def _order(self, outer: int, n: int, inner: int, descending: bool, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the stable sorting order along the middle axis: [outer, inner, n]."""
        columns, dtype = outer * inner, x.dtype.name
        order = empty((columns * n,), "int64", x.device) if out is None else out
        launch("order.cu", "sort_tiles", dtype, self.device, columns * -(-n // TILE) * BLOCK, columns, n, inner,
               descending, x, order)  # fmt: skip
        length, spare = TILE, None
        while length < n:
            spare = empty((columns * n,), "int64", x.device) if spare is None else spare
            launch("order.cu", "merge_runs", dtype, self.device, columns * n, columns, n, inner, descending, length, x,
                   order, spare)  # fmt: skip
            order, spare, length = spare, order, 2 * length
        return order

    def argsort(self, x: Tensor, descending: bool, out: Tensor) -> None:
        n = x.shape[-1] if x.ndim else 1
        if x.size:
            order = self._order(x.size // n, n, 1, descending, x, out)
            if order is not out:
                out.copy_(order.reshape(out.shape))

    def ranked(self, rows: int, n: int, x: Tensor, ranks: Tensor, out: Tensor) -> None:
        order = self._order(rows, n, 1, False, x).reshape((rows, n))
        last = order[:, n - 1 :]
        broken = isnan(take_along_axis(x.detach().reshape((rows, n)), last, 1))
        out.copy_(where(broken, last, take(order, ranks.reshape(-1), axis=1)).reshape(out.shape))

    # The size of the output depends on the values, so these two wait for the GPU and run on the CPU.

    def nonzero(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(place.to(x.device) for place in nonzero(x.detach().to("cpu")))

    def unique(self, x: Tensor) -> Tensor:
        return unique_values(x.detach().to("cpu")).to(x.device)


def widest(inner: int, x: Tensor, y: Tensor) -> tuple[int, int]:
    """Return the size in bytes of the largest words that rows of both arrays divide into, and the words of a row."""
    size = x.dtype.itemsize
    of_row = inner * size
    for word in (16, 8, 4):
        if word >= size and (of_row | x.data_ptr() | y.data_ptr()) % word == 0:
            return word, of_row // word
    return size, inner
