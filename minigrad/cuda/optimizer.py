"""Optimizer steps on a GPU: a few kernel launches for all parameters."""

from typing import Any

from minigrad.cuda.launch import BLOCK, MOST_TENSORS, empty, launch
from minigrad.engine.devices.backend import Backend
from minigrad.engine.devices.cuda import count_chunks
from minigrad.engine.ops.optimizer import Rule
from minigrad.engine.tensor.tensor import Tensor

Tensors = list[Tensor]
LISTS = 5  # a kernel's: parameters, gradients and three states
NUMBERS = 12  # a kernel takes so many: NUMBERS_PARAMETERS in optimizer.cu
CHUNK = 1024  # elements that a block takes at a time; CHUNK in optimizer.cu
SUMS = 512  # blocks that sum squares


class Optimizer(Backend):
    """The primitives of lists of tensors."""

    device: int

    def optimize(
        self, rule: Rule, p: Tensors, g: Tensors, states: list[Tensors | None], numbers: tuple[float, ...]
    ) -> None:
        for tensors, chunks in batches(p, g, *states):
            launch("optimizer.cu", rule.name, p[0].dtype.name, self.device, chunks * BLOCK, tensors, *numbers,
                   *(0,) * (NUMBERS - len(numbers)))  # fmt: skip

    def sum_of_squares(self, g: Tensors) -> float:
        """Return a Python number, which waits for the GPU."""
        dtype = g[0].dtype.name
        parts = list(batches(g, g))
        counts = [min(chunks, SUMS) for _, chunks in parts]
        sums = empty((max(sum(counts), 1),), "float64", g[0].device)
        result = empty((1,), "float64", g[0].device)
        done = 0
        for (tensors, chunks), count in zip(parts, counts, strict=True):
            launch("optimizer.cu", "square_sums", dtype, self.device, chunks * BLOCK, tensors,
                   sums[done : done + count], blocks=count)  # fmt: skip
            done += count
        launch("optimizer.cu", "sum_of", dtype, self.device, BLOCK, done, sums, result)
        return float(result.item())


def batches(p: Tensors, *others: Tensors | None) -> Any:
    """Yield as many tensors at a time as a kernel takes, with the total number of their chunks."""
    lists = [p, *others, *[None] * (LISTS - 1 - len(others))]
    for first in range(0, len(p), MOST_TENSORS):
        part = slice(first, first + MOST_TENSORS)
        some = lists if len(p) <= MOST_TENSORS else [None if one is None else one[part] for one in lists]
        yield (some, CHUNK), count_chunks(p[part], CHUNK)
