"""Softmax and related operations on a GPU."""

import functools

from minigrad.cuda.launch import BLOCK, WARP, launch, power_of_two
from minigrad.engine.devices.backend import Backend
from minigrad.engine.tensor.tensor import Tensor

HELD, HELD_BACKWARD = 128, 8  # a thread's part of a row: bytes forward, elements backward; as in softmax.cu
LONG = 512  # threads for a row that is too long for that; larger blocks leave 64 registers per thread, too few for some


@functools.lru_cache(1 << 12)
def team(width: int, size: int) -> tuple[int, bool]:
    """Return how many threads of a forward kernel share a row of elements of `size` bytes, and whether they hold it."""
    packs, held = (width * size // 16, HELD // 16) if width * size % 16 == 0 else (width, HELD // size // 2)
    lanes = max(min(power_of_two(packs), WARP), power_of_two(-(-packs // held)))
    return (lanes, True) if lanes <= BLOCK else (LONG, False)


def start(kernel: str, rows: int, width: int, x: Tensor, *arguments: object) -> None:
    """Launch a forward kernel on the rows of x, the first of its arrays."""
    lanes, held = team(width, x.dtype.itemsize)
    _launch(kernel + ("_held" if held else "_long"), lanes, rows, width, x, arguments)


def start_backward(kernel: str, rows: int, width: int, x: Tensor, *arguments: object) -> None:
    """Launch a backward kernel on the rows of x, the first of its arrays."""
    if width <= WARP * HELD_BACKWARD:
        lanes = min(power_of_two(width), WARP)
    else:
        lanes = min(power_of_two(-(-width // HELD_BACKWARD), 2 * WARP), LONG)
    _launch(kernel, lanes, rows, width, x, arguments)


def _launch(kernel: str, lanes: int, rows: int, width: int, x: Tensor, arguments: tuple[object, ...]) -> None:
    launch("softmax.cu", kernel, x.dtype.name, int(x.device[5:]), rows * lanes, rows, width, lanes, *arguments,
           block=lanes if lanes > WARP else BLOCK)  # fmt: skip


class Softmax(Backend):
    """The primitives that sum the exponentials of rows."""

    def softmax(self, rows: int, width: int, log: bool, x: Tensor, y: Tensor) -> None:
        start("softmax", rows, width, x, log, x, y)

    def softmax_backward(self, rows: int, width: int, log: bool, y: Tensor, g: Tensor, dx: Tensor) -> None:
        start_backward("softmax_backward", rows, width, y, log, y, g, dx)

    def logsumexp(self, rows: int, width: int, x: Tensor, y: Tensor) -> None:
        start("logsumexp", rows, width, x, x, y)

    def cross_entropy(
        self, rows: int, width: int, z: Tensor, labels: Tensor, ignore: int, weight: Tensor | None, smoothing: float,
        loss: Tensor, lse: Tensor,
    ) -> None:  # fmt: skip
        start("cross_entropy", rows, width, z, z, labels, ignore, weight, smoothing, loss, lse)

    def cross_entropy_backward(
        self, rows: int, width: int, z: Tensor, labels: Tensor, ignore: int, weight: Tensor | None, smoothing: float,
        lse: Tensor, g: Tensor, dz: Tensor,
    ) -> None:  # fmt: skip
        start_backward("cross_entropy_backward", rows, width, z, z, labels, ignore, weight, smoothing, lse, g,
                       int(g.size > 1), dz)  # fmt: skip
