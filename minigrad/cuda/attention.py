"""Attention on a GPU."""

from typing import Any

from minigrad.cuda.launch import MOST_BLOCKS, WARP, empty, has_tf32, launch
from minigrad.engine.devices.backend import Backend
from minigrad.engine.tensor.tensor import Tensor

SIDE, THREADS = 64, 256  # the side of a tile and the threads of a block, as in attention.cu
HEIGHT, WIDTHS, FEWER = 64, (32, 64, 128), 128  # a block's rows, columns and threads, as in attention_tensor.cu


class Attention(Backend):
    """The primitives of attention."""

    device: int

    def attention(
        self, precision: str, scale: float, causal: bool, dropout: float, seed: int, offset: int, q: Tensor, k: Tensor,
        v: Tensor, mask: Tensor | None, y: Tensor, statistics: Tensor,
    ) -> None:  # fmt: skip
        given = arguments(scale, causal, dropout, seed, offset, q, k, v, mask)
        self._attend("attention", precision, q.shape[0] * q.shape[1], q.shape[2], tiles(v.shape[3]), given,
                     (y, statistics))  # fmt: skip

    def attention_backward(
        self, precision: str, scale: float, causal: bool, dropout: float, seed: int, offset: int, q: Tensor, k: Tensor,
        v: Tensor, mask: Tensor | None, y: Tensor, statistics: Tensor, g: Tensor, dq: Tensor | None, dk: Tensor | None,
        dv: Tensor | None,
    ) -> None:  # fmt: skip
        given = arguments(scale, causal, dropout, seed, offset, q, k, v, mask)
        delta = None
        if dq is not None or dk is not None:
            delta = empty(q.shape[:3], q.dtype.name, q.device)
            launch("attention.cu", "attention_delta", q.dtype.name, self.device, delta.size * WARP, delta.size,
                   v.shape[3], g, y, delta)  # fmt: skip
        if dq is not None:
            self._attend("attention_backward_query", precision, q.shape[0] * q.shape[1], q.shape[2], tiles(q.shape[3]),
                         given, (statistics, g, delta, dq))  # fmt: skip
        if dk is not None or dv is not None:
            slices = sum(tiles(d.shape[3]) for d in (dk, dv) if d is not None)
            self._attend("attention_backward_key", precision, k.shape[0] * k.shape[1], k.shape[2], slices, given,
                         (statistics, g, delta, dk, dv))  # fmt: skip

    def _attend(
        self,
        kernel: str,
        precision: str,
        heads: int,
        rows: int,
        slices: int,
        given: tuple[Any, ...],
        own: tuple[Any, ...],
    ) -> None:
        """Launch a kernel for the tiles of all rows of all heads: on tensor cores, or else by slices of columns."""
        _, _, _, _, width, value_width, *_, q, _, _, _, _, _ = given
        fits = [most for most in WIDTHS if max(width, value_width) <= most]
        if fits and q.dtype == "float32" and has_tf32(self.device):
            file, kernel = "attention_tensor.cu", f"{kernel}_{fits[0]}"
            threads, jobs = FEWER, heads * -(-rows // HEIGHT)
            own = precision != "highest", *own
        else:
            file, threads, jobs = "attention.cu", THREADS, heads * tiles(rows) * slices
        launch(file, kernel, q.dtype.name, self.device, jobs * threads, jobs, *given, *own, block=threads,
               blocks=min(jobs, MOST_BLOCKS))  # fmt: skip


def tiles(length: int) -> int:
    """Return the number of tiles that cover a length."""
    return -(-length // SIDE)


def arguments(
    scale: float, causal: bool, dropout: float, seed: int, offset: int, q: Tensor, k: Tensor, v: Tensor,
    mask: Tensor | None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the arguments that all kernels share, which follow the number of jobs."""
    heads = q.shape[1]
    rows = v.strides[1 if v.shape[1] > 1 else 0] // (v.shape[3] * v.dtype.itemsize)
    kind = 0 if mask is None else 1 if mask.dtype == "bool" else 2
    return (q.shape[2], k.shape[2], heads, heads // k.shape[1], q.shape[3], v.shape[3], scale,
            causal, dropout, seed, offset, q, k, v, rows, q if mask is None else mask, kind)  # fmt: skip
