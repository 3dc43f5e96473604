"""Softmax and related operations on a GPU."""

from minigrad.cuda.launch import BLOCK, WARP, launch, power_of_two
from minigrad.engine.backend import Backend
from minigrad.engine.tensor import Tensor

HELD = 8  # elements of a row that a thread keeps; HELD in softmax.cu
LARGEST_BLOCK = 512  # launch bounds in softmax.cu; larger blocks leave 64 registers per thread, too few for some


def lanes(width: int) -> int:
    """Return how many threads share a row: lanes of a warp, or a whole block."""
    if width <= WARP * HELD:
        return min(power_of_two(width), WARP)
    return min(power_of_two(-(-width // HELD), 2 * WARP), LARGEST_BLOCK)


def start(kernel: str, rows: int, width: int, x: Tensor, *arguments: object) -> None:
    """Launch a kernel on the rows of x, the first of its arrays."""
    many = lanes(width)
    launch("softmax.cu", kernel, x.dtype.name, int(x.device[5:]), rows * many, rows, width, many, *arguments,
           block=many if many > WARP else BLOCK)  # fmt: skip


class Softmax(Backend):
    """The primitives that sum the exponentials of rows."""

    def softmax(self, rows: int, width: int, log: bool, x: Tensor, y: Tensor) -> None:
        start("softmax", rows, width, x, log, x, y)

    def softmax_backward(self, rows: int, width: int, log: bool, y: Tensor, g: Tensor, dx: Tensor) -> None:
        start("softmax_backward", rows, width, y, log, y, g, dx)

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
        start("cross_entropy_backward", rows, width, z, z, labels, ignore, weight, smoothing, lse, g, int(g.size > 1),
              dz)  # fmt: skip
