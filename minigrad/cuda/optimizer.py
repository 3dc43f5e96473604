"""Optimizer steps on a GPU: a few kernel launches for all parameters."""

import math
from typing import Any

from minigrad.cuda.launch import BLOCK, MOST_TENSORS, empty, launch
from minigrad.engine.backend import Backend
from minigrad.engine.cuda import count_chunks
from minigrad.engine.tensor import Tensor

Tensors = list[Tensor]
CHUNK = 1024  # elements that a block takes at a time; CHUNK in optimizer.cu
SUMS = 512  # blocks that sum squares


class Optimizer(Backend):
    """The primitives of lists of tensors."""

    device: int

    def optimize(
        self, rule: str, p: Tensors, g: Tensors, s1: Tensors | None, s2: Tensors | None, s3: Tensors | None,
        step: dict[str, Any],
    ) -> None:  # fmt: skip
        lists = (p, g, s1, s2, s3)
        numbers = RULES[rule](lists, step)
        for tensors, chunks in batches(lists):
            launch("optimizer.cu", rule, p[0].dtype.name, self.device, chunks * BLOCK, tensors, *numbers)

    def sum_of_squares(self, g: Tensors) -> float:
        """Return a Python number, which waits for the GPU."""
        dtype = g[0].dtype.name
        parts = list(batches((g, g, None, None, None)))
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


def batches(lists: tuple[Tensors | None, ...]) -> Any:
    """Yield as many tensors at a time as a kernel takes, with the total number of their chunks."""
    p = lists[0] or []
    for first in range(0, len(p), MOST_TENSORS):
        part = slice(first, first + MOST_TENSORS)
        some = lists if len(p) <= MOST_TENSORS else [None if one is None else one[part] for one in lists]
        yield (some, CHUNK), count_chunks(p[part], CHUNK)


def sgd(lists: Any, step: Any) -> tuple[Any, ...]:
    return (step["lr"], step["weight_decay"], step["momentum"], 1 - step["dampening"], step["nesterov"],
            lists[2] is None, step["first"])  # fmt: skip


def adam(lists: Any, step: Any) -> tuple[Any, ...]:
    lr, beta1, beta2, decay = step["lr"], step["beta1"], step["beta2"], step["weight_decay"]
    added, factor = (0.0, 1 - lr * decay) if step["decoupled"] else (decay, 1.0)
    return (lr / step["correction1"], 1 / math.sqrt(step["correction2"]), step["eps"], beta1, beta2, 1 - beta1,
            1 - beta2, added, factor, lists[4] is not None)  # fmt: skip


def rmsprop(lists: Any, step: Any) -> tuple[Any, ...]:
    return (step["lr"], step["weight_decay"], step["eps"], step["beta2"], 1 - step["beta2"], step["momentum"],
            lists[3] is not None, lists[4] is not None)  # fmt: skip


def adagrad(lists: Any, step: Any) -> tuple[Any, ...]:
    return step["lr"], step["weight_decay"], step["eps"]


RULES = {"sgd": sgd, "adam": adam, "rmsprop": rmsprop, "adagrad": adagrad}
