"""Recurrent layers on a GPU: where the recurrent weights are kept, and how blocks divide the work of recurrent.cu."""

import functools
from typing import Any, NamedTuple

import cupy

from minigrad.cuda.launch import MOST_BLOCKS, WARP, empty, kernel, launch, power_of_two
from minigrad.cuda.norms import Norms
from minigrad.engine.ops.recurrent import Cell
from minigrad.engine.tensor.tensor import Tensor

ALONE, CLUSTER, GRID = range(3)  # as in block_group.cuh
SUMS = 5  # as in recurrent.cu
BLOCK = 256  # the most threads of a block
SIZES = {"float32": 4, "float64": 8}
PACK = 16  # bytes that one instruction reads
PART = 1 << 16  # bytes of W for each block of a cluster: estimated so that reading them takes as long as its barriers
CACHED = 1 << 20  # bytes of W up to which reading it from the cache costs less than launching a product at every step
PORTABLE = 8  # blocks of a cluster on every GPU that has clusters
MULTIPROCESSORS, MOST_SHARED = 16, 97  # cudaDeviceAttr: their number, and bytes of shared memory for a block
RESERVED = 1 << 10  # bytes of shared memory that a plan leaves free for the static variables of `team_sum`
SAMPLES = 8, 4, 256  # the most samples of a group with W in shared memory, with W in the cache, and of a grid
WIDTHS = {8: 5, 4: 2, 1: 1}  # samples that a product takes at a time: the least number of samples for which it pays
NARROW = 64  # units that a warp takes rather than a block


class BlockGroup(NamedTuple):
    """Blocks that take the same samples through all steps; `resident`: each has its part of W in shared memory."""

    kind: int
    size: int = 1
    resident: bool = True


class Recurrent(Norms):
    """All steps of a recurrent layer."""

    def recurrent(self, cell: Cell, arrays: dict[str, Any]) -> None:
        layer, weight = Steps(self.device, cell, arrays), arrays["w"].detach()
        given = [arrays.get(name) for name in ("x", "bias")]
        last = [arrays.get(name) for name in ("h_last", "c_last")]
        rest = *given, cell.eps, cell.eps_c, *last
        if layer.group is not None:
            matrix = weight if layer.group.resident else self._padded(weight.T)
            self._steps("recurrent", layer, 0, layer.steps, matrix, *rest)
            return
        h, z = arrays["h"].detach(), arrays["z"].detach()
        for t in range(layer.steps):
            self.gemm(h[t], weight.T, z[t if layer.keep else 0], 0.0, None)
            self._steps("recurrent", layer, t, t + 1, None, *rest)

    def recurrent_backward(self, cell: Cell, arrays: dict[str, Any]) -> None:
        layer, weight = Steps(self.device, cell, arrays), arrays["w"].detach()
        dh, dz = arrays["dh"], arrays["dz"].detach()
        affine = self._sums(arrays, ("dgamma", "dbeta"), layer.columns)
        affine_c = self._sums(arrays, ("dgamma_c", "dbeta_c"), layer.hidden)
        rest = arrays["gy"], dh, arrays.get("dc"), arrays["dx"], dz, affine, affine_c
        if layer.group is not None:
            matrix = weight if layer.group.resident else self._padded(weight)
            self._steps("recurrent_backward", layer, 0, layer.steps, matrix, *rest)
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
        """Return a contiguous matrix whose rows begin at multiples of 16 bytes, as do its columns; the padding is 0."""
        pack = PACK // matrix.dtype.itemsize
        rows, columns = (-(-n // pack) * pack for n in matrix.shape)
        padded = (rows, columns) != matrix.shape
        if not padded and matrix.is_contiguous() and matrix.data_ptr() % PACK == 0:
            return matrix
        out = empty((rows, columns), matrix.dtype.name, matrix.device)
        if padded:
            self.fill(out, 0.0)
        self.copy(matrix, out[: matrix.shape[0], : matrix.shape[1]].detach())
        return out

    def _sums(self, arrays: dict[str, Any], wanted: tuple[str, str], width: int) -> Tensor | None:
        """Return a zeroed scratch buffer for two sums over the steps of each sample, or None if neither is wanted."""
        if all(arrays.get(name) is None for name in wanted):
            return None
        out = empty((arrays["h"].shape[1], 2 * width), "float64", arrays["h"].device)
        self.fill(out, 0.0)
        return out

    def _steps(self, name: str, layer: "Steps", begin: int, end: int, w: Tensor | None, *rest: Any) -> None:
        if layer.batch == 0:
            return
        group = layer.group or BlockGroup(ALONE, 1, False)
        backward = name == "recurrent_backward"
        plan = plan_of(self.device, layer.dtype, group, layer.gates, layer.hidden, backward, w is None, layer.batch)
        sums = arrived = None
        if group.kind == GRID:
            device = f"cuda:{self.device}"
            sums, arrived = empty((plan.sums, 2), "float64", device), empty((1,), "int32", device)
            self.fill(arrived, 0)
        groups = 1 if group.kind == GRID else min(-(-layer.batch // plan.samples), MOST_BLOCKS // group.size)
        blocks = groups * group.size
        launch("recurrent.cu", name, layer.dtype, self.device, blocks * plan.block,
               group.kind, group.size, plan.units, plan.samples, plan.lanes, plan.width, plan.wide, plan.chunk,
               plan.stride, plan.buffer, group.resident, *plan.places, sums, arrived, w,
               layer.kind, begin, end, *layer.arguments, *rest, block=plan.block, blocks=blocks, shared=plan.bytes,
               cluster=group.size if group.kind == CLUSTER else 0, cooperative=group.kind == GRID)  # fmt: skip


class Steps:
    """The arguments that the kernels of recurrent.cu take of a layer."""

    def __init__(self, device: int, cell: Cell, arrays: dict[str, Any]) -> None:
        h, w, z = arrays["h"], arrays["w"], arrays["z"]
        self.kind, norm = cell.codes
        self.dtype = h.dtype.name
        states, self.batch, self.hidden = h.shape
        self.steps, self.columns = states - 1, w.shape[0]
        self.gates = self.columns // self.hidden
        self.keep = z.shape[0] == self.steps
        self.group = choose_group(device, self.dtype, self.gates, self.hidden)
        sizes = cell.sizes
        ends = tuple(sum(sizes[: i + 1]) for i in range(len(sizes))) + (0,) * (8 - len(sizes))
        names = "gamma", "beta", "gamma_c", "beta_c", "h", "c", "z", "act", "stats", "stats_c", "raw_c"
        self.arguments = (
            norm, cell.norm_cell, cell.centered, cell.swap, cell.slope, self.batch, self.hidden,
            self.columns, self.steps, len(sizes), ends, self.keep, arrays.get("lengths"),
            *[arrays.get(name) for name in names],
        )  # fmt: skip


@functools.cache
def limits(device: int) -> tuple[int, int]:
    """Return how many multiprocessors a GPU has, and how much shared memory a block may have."""
    attribute = cupy.cuda.runtime.deviceGetAttribute
    return attribute(MULTIPROCESSORS, device), attribute(MOST_SHARED, device) - RESERVED


@functools.cache
def choose_group(device: int, dtype: str, gates: int, hidden: int) -> BlockGroup | None:
    """Choose the block group for some weights; None if cuBLAS has to compute the product of every step.

    The choice depends on the weights and on the GPU alone, and so does the order of summation: a sample's result is the
    same in every batch and for any number of steps.
    """
    capability, multiprocessors = int(cupy.cuda.Device(device).compute_capability), limits(device)[0]
    size = gates * hidden * hidden * SIZES[dtype]
    choices = []
    if size > PART and capability >= 90:
        choices.append(BlockGroup(CLUSTER, min(power_of_two(-(-size // PART)), PORTABLE)))
    choices.append(BlockGroup(ALONE))
    if size <= CACHED:
        choices.append(BlockGroup(ALONE, 1, False))
    if capability >= 80:
        choices.append(BlockGroup(GRID, -(-hidden // -(-hidden // multiprocessors))))
    for group in choices:
        if all(count_groups(device, dtype, group, gates, hidden, backward) for backward in (False, True)):
            return group
    return None


@functools.cache
def count_groups(device: int, dtype: str, group: BlockGroup, gates: int, hidden: int, backward: bool) -> int:
    """Return how many groups a GPU runs at the same time, 0 if it cannot run any."""
    plan, (multiprocessors, shared) = Plan(group, gates, hidden, dtype, backward, False), limits(device)
    # Many samples at a time make up for what the blocks of a grid read from the cache.
    most = max(WIDTHS) if group.kind == GRID else 1
    plan.divide(most, 1, shared)
    if not plan.fits or plan.width < most:
        return 0
    if group.kind == ALONE:
        return multiprocessors
    of = kernel("recurrent.cu", "recurrent_backward" if backward else "recurrent", dtype, device)
    count = of.count_resident(plan.block, plan.bytes, group.size if group.kind == CLUSTER else 0)
    return count if group.kind == CLUSTER else min(count, 1)


@functools.lru_cache(1024)
def plan_of(
    device: int, dtype: str, group: BlockGroup, gates: int, hidden: int, backward: bool, given: bool, batch: int
) -> "Plan":
    """Return how a group computes one direction of a layer."""
    plan = Plan(group, gates, hidden, dtype, backward, given)
    plan.divide(batch, count_groups(device, dtype, group, gates, hidden, backward), limits(device)[1])
    return plan


class Plan:
    """How a group divides one direction of a layer: units, samples, threads and memory.

    The fields are those of `BlockGroup` in block_group.cuh. Those that decide the order of summation follow from the
    weights; `divide` adds the others, which depend on the batch.
    """

    def __init__(self, group: BlockGroup, gates: int, hidden: int, dtype: str, backward: bool, given: bool) -> None:
        self.group, self.given, self.pack = group, given, PACK // SIZES[dtype]
        self.units = -(-hidden // group.size)
        k, n = (gates * hidden, self.units) if backward else (hidden, gates * self.units)
        self.rows, self.packs = -(-k // self.pack), -(-n // self.pack)  # in the block's part of W
        # numbers that a block keeps of each sample, and sums in float64
        self.own = self.units * (gates + 2 if backward else 2 * gates + 2)
        self.affine = self.units * (2 * gates + 2) if backward else 0
        self.wide = power_of_two(self.packs)
        self.block = min(power_of_two(self.wide * self.rows, WARP), BLOCK)
        self.deep = self.block // self.wide  # threads that share the sum of a column
        self.lanes = WARP if group.size > 1 or hidden <= NARROW else self.block

    def divide(self, batch: int, groups: int, shared: int) -> None:
        """Divide a batch among groups, and shared memory among its uses; set whether there is enough of it."""
        most = SAMPLES[2 if self.group.kind == GRID else not self.group.resident]
        wanted = 1 if self.given else max(min(-(-batch // max(groups, 1)), most), 1)
        self.fits = (self.deep > 0 or self.given) and any(
            self._lay_out(samples, width, own, shared)
            for samples in range(wanted, 0, -1)
            for width, least in WIDTHS.items()
            if samples >= least
            for own in (not self.given, False)
        )

    def _lay_out(self, samples: int, width: int, own: bool, shared: int) -> bool:
        """Lay out the shared memory, in packs; return whether there is enough of it."""
        self.samples, self.width, self.chunk = samples, width, self.rows
        grid = self.group.kind == GRID
        self.sums = samples * SUMS * self.group.size
        matrix = self.rows * self.pack * self.packs if self.group.resident else 0
        parts = 0 if self.given else self.block // WARP * min(self.wide, WARP) * width
        rows = -(-samples * self.own // self.pack) + -(-samples * self.affine // 2) if own else 0
        fixed = matrix + parts + rows + (0 if grid else self.sums)
        factors = 0 if self.given else -(-samples // width) * width * self.rows
        self.buffer = factors * self.pack if self.group.size > 1 and not grid else 0
        factors *= 2 if self.buffer else 1
        if grid:  # as many rows at a time as there is memory for
            left = max(shared // PACK - fixed, 0) // (width * self.deep) * self.deep
            self.chunk = min(self.rows, max(left, self.deep))
            factors = width * self.chunk
            if (2 if own else 4) * self.chunk < self.rows:
                return False
        self.stride, self.bytes = self.chunk * self.pack, (fixed + factors) * PACK
        at = matrix, matrix + factors, matrix + factors + parts, matrix + factors + parts + rows
        self.places = at[0], at[1], at[2] if own else -1, -1 if grid else at[3]
        return self.bytes <= shared
