"""Random numbers on a GPU, the same as on the CPU."""

from typing import Any

import numpy as np

from minigrad.cuda.launch import launch
from minigrad.engine.devices.backend import Backend
from minigrad.engine.tensor.tensor import Tensor


class Random(Backend):
    """The primitives that draw numbers from the counter-based generator."""

    device: int

    def uniform(self, seed: int, offset: int, low: float, high: float, out: Tensor) -> None:
        number = np.dtype(out.dtype.name).type
        start, end = number(low), number(high)
        most = np.nextafter(end, number(-np.inf)) if end > start else start
        self._draw("uniform", seed, offset, out, start, number(high - low), most, out)

    def normal(self, seed: int, offset: int, mean: float, std: float, out: Tensor) -> None:
        self._draw("normal", seed, offset, out, mean, std, out)

    def integers(self, seed: int, offset: int, low: int, high: int, out: Tensor) -> None:
        self._draw("integers", seed, offset, out, low, high, out)

    def dropout(self, seed: int, offset: int, p: float, x: Tensor, y: Tensor, keep: Tensor) -> None:
        self._draw("dropout", seed, offset, x, p, 1 / (1 - p), x, y, keep)

    def _draw(self, kernel: str, seed: int, offset: int, out: Tensor, *arguments: Any) -> None:
        """Launch a kernel, each thread of which makes four values of `out`."""
        launch("random.cu", kernel, out.dtype.name, self.device, -(-out.size // 4), seed, offset, out.size,
               *arguments)  # fmt: skip
