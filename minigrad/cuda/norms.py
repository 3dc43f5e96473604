"""Normalization on a GPU: divides rows and columns among threads; the kernels are in norm.cu and batch_norm.cu."""

import functools

from minigrad.cuda.launch import BLOCK, MULTIPROCESSORS, WARP, empty, launch, power_of_two
from minigrad.engine.devices.backend import Backend
from minigrad.engine.tensor.tensor import Tensor

HELD, HELD_BACKWARD = 128, 64  # bytes of a row that a thread holds, as in norm.cu
SMALL_BLOCK = 128  # threads: several small blocks on a multiprocessor do not wait for the memory at the same time
LONG = 512  # threads for a row that is too long to be held
RESIDENT = 1024, 640  # threads of norm_long_backward and of norm_held_backward on a multiprocessor
SHORT_PLANE = 32  # contiguous elements of a channel below which threads read neighbouring columns


@functools.lru_cache(1 << 12)
class Team:
    """The threads that work on a row of `size` bytes.

    Each holds up to `held`; `whole` if that is all of it, with at most as many threads as `most`.
    """

    def __init__(self, size: int, held: int, most: int = BLOCK) -> None:
        least = power_of_two(-(-size // (held if size % 16 == 0 else held // 2)))
        self.whole = least <= most
        # Rather than leave lanes of a warp idle, threads may hold less, down to 16 bytes, which one instruction reads.
        self.lanes = max(least, min(power_of_two(-(-size // 16)), WARP)) if self.whole else LONG
        self.block = max(self.lanes, SMALL_BLOCK)
        self.count = self.block // self.lanes  # teams of a block


class Norms(Backend):
    """Normalization of rows and of channels."""

    device: int

    def normalize(
        self, rows: int, groups: int, m: int, inner: int, x: Tensor, gamma: Tensor | None, beta: Tensor | None,
        eps: float, y: Tensor, mean: Tensor | None, rstd: Tensor,
    ) -> None:  # fmt: skip
        kind = "rms" if mean is None else "norm" if inner == 1 else "group"
        size = m * inner * x.dtype.itemsize
        team = Team(size, HELD)
        kind += "_long" if not team.whole else "_held" if size % 16 == 0 else "_odd"
        launch("norm.cu", kind, x.dtype.name, self.device,
               -(-rows // team.count) * team.block, rows, m * inner, groups, inner, team.lanes, x, gamma, beta, eps, y,
               mean, rstd, block=team.block)  # fmt: skip

    def normalize_backward(
        self, rows: int, groups: int, m: int, inner: int, x: Tensor, gamma: Tensor | None, mean: Tensor | None,
        rstd: Tensor, g: Tensor, dx: Tensor | None, dgamma: Tensor | None, dbeta: Tensor | None,
    ) -> None:  # fmt: skip
        name, size = x.dtype.name, x.dtype.itemsize
        if groups == inner == 1:
            if m == 0:
                return
            team, centered = Team(m * size, HELD_BACKWARD, LONG), mean is not None
            # At most as many blocks as run at once, each of which sums its own rows, and all about as many rows
            jobs, most = -(-rows // team.count), MULTIPROCESSORS * (RESIDENT[team.whole] // team.block)
            blocks, affine = -(-jobs // max(-(-jobs // most), 1)), dgamma is not None or dbeta is not None
            partial = empty((blocks, m * (1 + centered)), name, x.device) if affine else None
            kind = "long" if not team.whole else "held" if m * size % 16 == 0 else "odd"
            launch("norm.cu", f"{'norm' if centered else 'rms'}_{kind}_backward", name, self.device,
                   blocks * team.block, rows, m, team.lanes, x, gamma, mean, rstd, g, dx, partial,
                   block=team.block)  # fmt: skip
            if partial is not None:
                self._add_partials("add_partials", partial, m, dgamma, dbeta)
            return
        samples = rows // groups if m * inner else 0
        partial = empty((samples, 2 * groups * m), "float64", x.device)
        block = min(power_of_two(-(-m * inner // 8), WARP), BLOCK)
        packs = -(-inner * size // 16)
        # At most a warp works on a channel, so that many are read at once; a whole block works on a long channel if a
        # row has few of them.
        lanes = block if packs * m >= 8 * BLOCK and m < BLOCK // WARP else min(power_of_two(packs), WARP)
        launch("norm.cu", "group_backward", name, self.device, samples * groups * block, rows, groups, m, inner, lanes,
               x, gamma, mean, rstd, g, dx, partial, block=block)  # fmt: skip
        self._add_partials("add_wide_partials", partial, groups * m, dgamma, dbeta)

    def _add_partials(
        self, kernel: str, partial: Tensor, count: int, dgamma: Tensor | None, dbeta: Tensor | None
    ) -> None:
        """Sum over the rows of `partial`, whose first `count` columns belong to dgamma."""
        (n, columns), out = partial.shape, dgamma if dgamma is not None else dbeta
        wide = min(power_of_two(columns), WARP)
        block = min(power_of_two(n * wide // 8, BLOCK), 1024)  # about eight rows for each thread
        if out is not None:
            launch("norm.cu", kernel, out.dtype.name, self.device, -(-columns // wide) * block, n, columns, count, wide,
                   partial, dgamma, dbeta, block=block)  # fmt: skip

    # ── channels ──

    def batch_norm(
        self, outer: int, channels: int, inner: int, x: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: float,
        y: Tensor, mean: Tensor, var: Tensor, statistics: Tensor,
    ) -> None:  # fmt: skip
        tile, name = ChannelTile(outer, channels, inner, x.dtype.itemsize), x.dtype.name
        partial, by = tile.scratch(name, x.device)
        shape = tile.shape
        if tile.packed:
            launch("batch_norm.cu", "batch_norm_packs", name, self.device, tile.threads, *tile.sizes, x, partial)
        else:
            launch("batch_norm.cu", "batch_norm", name, self.device, tile.threads, *shape, x, gamma, beta, eps, y,
                   mean, var, statistics, partial)  # fmt: skip
        if partial is not None:
            launch("batch_norm.cu", "batch_norm_merge", name, self.device, channels * WARP, *shape, gamma, beta, eps,
                   mean, var, statistics, partial, by, block=BLOCK)  # fmt: skip
            launch("batch_norm.cu", "batch_norm_apply", name, self.device, tile.groups, outer, channels, inner, x, by,
                   y)  # fmt: skip

    def batch_norm_eval(
        self, outer: int, channels: int, inner: int, x: Tensor, gamma: Tensor | None, beta: Tensor | None,
        mean: Tensor, var: Tensor, eps: float, y: Tensor, statistics: Tensor,
    ) -> None:  # fmt: skip
        tile, by = ChannelTile(outer, channels, inner, x.dtype.itemsize), empty((4, channels), x.dtype.name, x.device)
        launch("batch_norm.cu", "batch_norm_given", x.dtype.name, self.device, channels, channels, gamma, beta, eps,
               mean, var, statistics, by)  # fmt: skip
        launch("batch_norm.cu", "batch_norm_apply", x.dtype.name, self.device, tile.groups, outer, channels, inner, x,
               by, y)  # fmt: skip

    def batch_norm_backward(
        self, outer: int, channels: int, inner: int, given: bool, x: Tensor, gamma: Tensor | None, statistics: Tensor,
        g: Tensor, dx: Tensor | None, dgamma: Tensor | None, dbeta: Tensor | None,
    ) -> None:  # fmt: skip
        if x.size == 0:
            for gradient in (dgamma, dbeta):
                if gradient is not None:
                    self.fill(gradient, 0.0)
            return
        tile, name = ChannelTile(outer, channels, inner, x.dtype.itemsize), x.dtype.name
        partial, by = tile.scratch(name, x.device)
        shape = tile.shape
        if tile.packed:
            if not given or dgamma is not None or dbeta is not None:
                launch("batch_norm.cu", "batch_norm_packs_backward", name, self.device, tile.threads, *tile.sizes, x,
                       statistics, g, partial)  # fmt: skip
        else:
            launch("batch_norm.cu", "batch_norm_backward", name, self.device, tile.threads, *shape, given, x, gamma,
                   statistics, g, dx, dgamma, dbeta, partial)  # fmt: skip
        if partial is not None:
            launch("batch_norm.cu", "batch_norm_merge_sums", name, self.device, channels * WARP, *shape, given, gamma,
                   statistics, dgamma, dbeta, partial, by, block=BLOCK)  # fmt: skip
            if dx is not None:
                launch("batch_norm.cu", "batch_norm_apply_backward", name, self.device, tile.groups, outer, channels,
                       inner, given, x, g, by, dx)  # fmt: skip


@functools.lru_cache(1 << 12)
class ChannelTile:
    """How blocks of threads read the channels of x[outer, channels, inner]; see batch_norm.cu."""

    def __init__(self, outer: int, channels: int, inner: int, size: int) -> None:
        planes, pack = inner >= SHORT_PLANE, 16 // size
        columns = channels if planes else channels * inner
        wide = min(power_of_two(inner), BLOCK) if planes else WARP
        # A channel of fewer than 64 elements for each thread stays whole, which saves two launches; otherwise a piece
        # has at least 8, so that few channels fill the GPU too. The number of pieces depends on the length of a channel
        # alone, so that its result does not depend on the other channels.
        work = outer * inner // BLOCK if planes else outer * wide // BLOCK
        pieces = 1 if work < 64 else min(128, work // 8, outer)
        # A thread reads several columns at once if that leaves a block for each multiprocessor.
        self.packed = (
            not planes and pieces > 1 and columns % pack == 0 and columns // (wide * pack) * pieces >= MULTIPROCESSORS
        )
        tiles = channels if planes else -(-columns // (wide * pack if self.packed else wide))
        self.whole = pieces == 1 and (planes or inner == 1)
        self.threads = tiles * pieces * BLOCK
        self.columns, self.sizes = columns, (outer, channels, inner, wide, pieces)
        self.shape = *self.sizes, planes
        # The threads of batch_norm_apply, each for four rows of neighbours in one channel or of a channel each
        together = inner % pack == 0 or (inner == 1 and channels % pack == 0)
        self.groups = -(-outer // 4) * (channels * inner // (pack if together else 1))

    def scratch(self, dtype: str, device: str) -> tuple[Tensor | None, Tensor | None]:
        """Return scratch buffers for partial sums and coefficients, or None if a block has all of a channel."""
        if self.whole:
            return None, None
        channels, pieces = self.sizes[1], self.sizes[4]
        return empty((2, pieces, self.columns), "float64", device), empty((4, channels), dtype, device)
