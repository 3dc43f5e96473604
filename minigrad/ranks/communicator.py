"""The processes of a run, and the engines that exchange tensors between them: MPI on the CPU, NCCL on GPUs."""

import logging
import os
import platform
import sys
import time
import zlib
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from minigrad.engine.devices.cpu import get_num_threads, set_num_threads
from minigrad.engine.devices.kernel_list import refuse
from minigrad.engine.tensor.tensor import Tensor

logger = logging.getLogger("minigrad.distributed")

INSTALL = "pip install '.[mpi]'"
# Variables of a process that a launcher has started, and where that launcher gives the number of processes. The first
# counts: Open MPI's launcher sets PMIx's variables too, and an mpiexec may run in a job of Slurm.
LAUNCHERS = {
    "PMI_RANK": "PMI_SIZE", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_RANK": "MV2_COMM_WORLD_SIZE", "FLUX_TASK_RANK": "FLUX_JOB_SIZE", "PMIX_RANK": "",
    "SLURM_PROCID": "SLURM_NTASKS",
}  # fmt: skip
GRACE = 0.2  # the seconds in which the ranks that raise the same error can all print it before the first ends the run
KEY_LENGTH = 128  # NCCL_UNIQUE_ID_BYTES in nccl.h
WIDTH = 256  # bytes of a text that ranks compare


def count_launched() -> int:
    """Return the number of processes according to the launcher: 1 without one, 0 if it does not say."""
    return next((int(os.environ.get(size) or 0) for rank, size in LAUNCHERS.items() if rank in os.environ), 1)


def read_patience() -> float:
    """Return how many seconds a rank waits for the others: MINIGRAD_DISTRIBUTED_TIMEOUT, by default ten minutes."""
    return float(os.environ.get("MINIGRAD_DISTRIBUTED_TIMEOUT") or 600)


give_way = getattr(os, "sched_yield", partial(time.sleep, 0))


def wait(request: Any, name: str) -> None:
    """Wait for what MPI has begun, and give the processor to other ranks meanwhile."""
    if request.Test():
        return
    limit = time.monotonic() + read_patience()
    while not request.Test():
        give_way()
        if time.monotonic() > limit:
            raise RuntimeError(
                f"[{name}] {world().where()}waited {read_patience():g} s for the other ranks, which called something "
                f"else or nothing; MINIGRAD_DISTRIBUTED_TIMEOUT sets the limit in seconds"
            )


class Mpi:
    """Collectives on tensors on the CPU, whose memory MPI reads and writes."""

    def __init__(self, comm: Any) -> None:
        from mpi4py import MPI

        self.comm, self.in_place = comm, MPI.IN_PLACE
        self.ops = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}

    def reduce_(self, x: Tensor, op: str) -> None:
        wait(self.comm.Iallreduce(self.in_place, memory(x), self.ops[op]), "all_reduce")

    def broadcast_(self, x: Tensor, root: int) -> None:
        wait(self.comm.Ibcast(memory(x), root), "broadcast_")

    def gather(self, x: Tensor, out: Tensor) -> None:
        wait(self.comm.Iallgather(memory(x), memory(out)), "all_gather")

    def scatter(self, x: Tensor, out: Tensor, op: str) -> None:
        wait(self.comm.Ireduce_scatter_block(memory(x), memory(out), self.ops[op]), "reduce_scatter")

    def start(self, x: Tensor) -> "MpiRequest":
        """Begin to sum x over the ranks, in place."""
        return MpiRequest(self.comm.Iallreduce(self.in_place, memory(x), self.ops["sum"]))


class MpiRequest:
    """A sum that was begun. The tensor belongs to MPI until `wait` returns."""

    def __init__(self, request: Any) -> None:
        self.request = request

    def progress(self) -> None:
        """Let MPI work on whatever was begun: it does so only while it is called."""
        self.request.Test()

    def wait(self) -> None:
        wait(self.request, "DataParallel")


def memory(x: Tensor) -> np.ndarray:
    return x.detach().numpy()


class Nccl:
    """Collectives on tensors on one GPU, queued on its current stream."""

    def __init__(self, comm: Any, device: str) -> None:
        import cupy
        from cupy.cuda import nccl

        self.cuda, self.device = cupy.cuda, int(device.removeprefix("cuda:"))
        key = np.array(nccl.get_unique_id() if comm.rank == 0 else [0] * KEY_LENGTH, np.int64)
        comm.Bcast(key)
        with self.cuda.Device(self.device):
            self.nccl = nccl.NcclCommunicator(comm.size, tuple(key.tolist()), comm.rank)
            self.stream = self.cuda.Stream(non_blocking=True)
        self.ops = {"sum": nccl.NCCL_SUM, "max": nccl.NCCL_MAX, "min": nccl.NCCL_MIN}
        self.types = {
            "float32": nccl.NCCL_FLOAT32, "float64": nccl.NCCL_FLOAT64, "int32": nccl.NCCL_INT32,
            "int64": nccl.NCCL_INT64, "bool": nccl.NCCL_UINT8, "uint8": nccl.NCCL_UINT8,
        }  # fmt: skip

    def _queue(self, method: str, *arguments: Any, stream: Any = None) -> None:
        refuse(f"NCCL's {method}: call it outside of the step")
        with self.cuda.Device(self.device):
            stream = self.cuda.get_current_stream() if stream is None else stream
            getattr(self.nccl, method)(*arguments, stream.ptr)

    def reduce_(self, x: Tensor, op: str, stream: Any = None) -> None:
        address, kind = x.data_ptr(), self.types[str(x.dtype)]
        self._queue("allReduce", address, address, x.size, kind, self.ops[op], stream=stream)

    def broadcast_(self, x: Tensor, root: int) -> None:
        self._queue("bcast", x.data_ptr(), x.size, self.types[str(x.dtype)], root)

    def gather(self, x: Tensor, out: Tensor) -> None:
        self._queue("allGather", x.data_ptr(), out.data_ptr(), x.size, self.types[str(x.dtype)])

    def scatter(self, x: Tensor, out: Tensor, op: str) -> None:
        kind = self.types[str(x.dtype)]
        self._queue("reduceScatter", x.data_ptr(), out.data_ptr(), out.size, kind, self.ops[op])

    def start(self, x: Tensor) -> "NcclRequest":
        """As `Mpi.start`, on a stream of its own."""
        with self.cuda.Device(self.device):
            self.stream.wait_event(self.cuda.get_current_stream().record())
            self.reduce_(x, "sum", self.stream)
            return NcclRequest(self, self.stream.record())


class NcclRequest:
    """A sum that was begun. `wait` lets the current stream wait for it, not the process."""

    def __init__(self, engine: Nccl, event: Any) -> None:
        self.engine, self.event = engine, event

    def progress(self) -> None:
        """Do nothing: a GPU needs no help."""

    def wait(self) -> None:
        with self.engine.cuda.Device(self.engine.device):
            self.engine.cuda.get_current_stream().wait_event(self.event)


class Communicator:
    """The processes of an MPI communicator, or this process alone without one."""

    def __init__(self, comm: Any = None) -> None:
        self.rank: int = 0 if comm is None else comm.rank
        self.size: int = 1 if comm is None else comm.size
        self.local_rank = 0
        self.engines: dict[tuple[str, bool], Mpi | Nccl] = {}
        if comm is not None:
            from mpi4py import MPI

            neighbors = comm.Split_type(MPI.COMM_TYPE_SHARED)
            self.local_rank = neighbors.rank
            # How many ranks on this machine may run on the same cores as this one.
            cores = sorted(getattr(os, "sched_getaffinity", lambda process: ())(0))
            self.sharing: int = neighbors.allgather(cores).count(cores)
            self.comm = comm
            # Gradients are sent while a backward pass may call other operations, and the numbers of samples while a
            # forward pass may. With communicators of their own, none of them can be taken for another.
            self.background, self.shares = Mpi(comm.Dup()), comm.Dup()
            self.engines["cpu", False], self.engines["cpu", True] = Mpi(comm), self.background

    def where(self) -> str:
        """Return which rank this is, for errors."""
        return f"rank {self.rank} of {self.size}: " if self.size > 1 else ""

    def engine(self, device: str, background: bool = False) -> Mpi | Nccl:
        """Return what exchanges the tensors of a device: in the background, only gradients."""
        if (device, background) not in self.engines:
            self.engines[device, background] = Nccl(self.comm, device)
        return self.engines[device, background]

    def exchange(self, op: str, text: str) -> list[str]:
        """Return the texts of all ranks, cut at `WIDTH` bytes."""
        own = text.encode()[:WIDTH].ljust(WIDTH)
        every = bytearray(WIDTH * self.size)
        wait(self.comm.Iallgather(own, every), op)
        if every == own * self.size:
            return [text] * self.size
        return [every[k : k + WIDTH].decode(errors="ignore").rstrip() for k in range(0, len(every), WIDTH)]

    def exchange_long(self, op: str, text: str) -> list[str]:
        """Return the texts of all ranks, of any lengths."""
        own, lengths = np.frombuffer(text.encode(), np.uint8), np.empty(self.size, np.int64)
        wait(self.comm.Iallgather(np.array([len(own)]), lengths), op)
        every = np.empty(lengths.sum(), np.uint8)
        wait(self.comm.Iallgatherv(own, [every, lengths]), op)
        return [part.tobytes().decode() for part in np.split(every, lengths.cumsum()[:-1])]

    def agree(self, op: str, text: str, problem: Exception | None = None) -> None:
        """Raise on every rank if one has a problem, or if they do not all have the same text."""
        if self.size == 1:
            if problem is not None:
                raise problem
            return
        texts = self.exchange(op, text if problem is None else str(problem))
        if problem is not None:
            raise problem
        if any(other != text[:WIDTH] for other in texts):
            lines = "".join(f"\n  {ranks(texts, other)}: {other}" for other in dict.fromkeys(texts))
            raise ValueError(f"[{op}] {self.where()}expected the same call on all ranks, got{lines}")


def ranks(values: list[Any], value: Any) -> str:
    """Return which ranks have a value, as text."""
    found = [str(rank) for rank, other in enumerate(values) if other == value]
    return f"rank{'s' * (len(found) > 1)} {', '.join(found)}"


def find_device_error(device: str) -> Exception | None:
    """Return the error for a device that no engine can exchange tensors of."""
    if device == "cpu":
        return None
    try:
        from cupy.cuda import nccl

        if nccl.available:
            return None
        reason = "this CuPy has none"
    except (ImportError, AttributeError) as error:
        reason = str(error)
    wheels = "pip install '.[cuda12x]' or '.[cuda13x]'"
    return RuntimeError(f"tensors on {device} are exchanged by NCCL, but {reason}: {wheels}, or move them to the CPU")


# ── the communicator of this process ──────────────────────────────────────────────────────────────

_alone = Communicator()
_world: Communicator | None = None


def world() -> Communicator:
    """Return the communicator that `init` has made; without a launcher, one of a single process."""
    if _world is not None:
        return _world
    if count_launched() != 1:
        raise RuntimeError("[distributed] a launcher started this process as one of several: call init() first")
    return _alone


def init() -> None:
    """Connect the processes that a launcher started, such as ``mpiexec -n 4 python train.py``.

    Tensors on the CPU will be exchanged by MPI, tensors on a GPU by NCCL, each rank with a GPU of its own (see
    `local_rank`). Without a launcher there is one process, and mpi4py is not imported.

    The ranks on one machine share its cores, unless MINIGRAD_NUM_THREADS or OMP_NUM_THREADS is set or the launcher has
    bound each rank to some.

    From here on, an uncaught exception in one rank ends all of them: it is printed with the number of the rank, and
    then ``MPI_Abort`` is called. A rank that is killed is noticed by the launcher, which ends the others and prints the
    number of its process; the logger "minigrad.distributed" tells, at level INFO, which process each rank is.

    Raises
    ------
    RuntimeError
        If called twice; if a launcher started several processes but mpi4py cannot be imported, or its MPI library
        knows of one process only, as it does under the ``mpiexec`` of another MPI.

    Examples
    --------
    >>> mg.distributed.init()
    >>> mg.distributed.rank(), mg.distributed.size()
    (0, 1)
    """
    global _world
    if _world is not None:
        raise RuntimeError(f"[init] {_world.where()}expected one call, got a second")
    count = count_launched()
    if count == 1:
        _world = Communicator()
        return
    started = f"[init] a launcher started this process{f' as one of {count}' if count else ''}"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise RuntimeError(f"{started}, which needs mpi4py ({error}): {INSTALL}") from error
    if MPI.COMM_WORLD.size == 1 and count:
        library = MPI.Get_library_version().partition("\n")[0].strip()
        raise RuntimeError(
            f"{started}, but mpi4py finds itself alone: its library is {library}, so start it with the mpiexec of "
            f"that; or, as a single process, without {next(name for name in LAUNCHERS if name in os.environ)}"
        )
    _world = Communicator(MPI.COMM_WORLD.Dup())
    if not {"MINIGRAD_NUM_THREADS", "OMP_NUM_THREADS"} & os.environ.keys():
        set_num_threads(max(1, get_num_threads() // _world.sharing))
    _end_together(MPI, _world)
    logger.info("%sprocess %d on %s", _world.where(), os.getpid(), platform.node())


def _end_together(mpi: Any, world: Communicator) -> None:
    """Let an uncaught exception end all ranks."""
    before = sys.excepthook

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        print(f"minigrad: {world.where()}uncaught {kind.__name__}, which ends all ranks", file=sys.stderr)
        before(kind, error, trace)
        sys.stdout.flush()
        sys.stderr.flush()
        time.sleep(GRACE)
        mpi.COMM_WORLD.Abort(1)

    sys.excepthook = end


def rank() -> int:
    """Return the number of this process, from 0 to `size` − 1.

    Examples
    --------
    >>> if mg.distributed.rank() == 0:
    ...     print("once, however many processes there are")
    once, however many processes there are
    """
    return world().rank


def size() -> int:
    """Return the number of processes: 1 without a launcher.

    Examples
    --------
    >>> mg.distributed.size()
    1
    """
    return world().size


def local_rank() -> int:
    """Return the number of this process among the processes on its machine: the number of the GPU for it to use.

    Examples
    --------
    >>> f"cuda:{mg.distributed.local_rank()}"
    'cuda:0'
    """
    return world().local_rank


# ── comparisons ───────────────────────────────────────────────────────────────────────────────────


def compare(op: str, expected: str, text: str) -> None:
    """Raise on every rank if the lines of a text differ, naming the first that does."""
    texts = [one.splitlines() for one in world().exchange_long(op, text)]
    for k in range(max(map(len, texts))):
        lines = [one[k] if k < len(one) else "nothing" for one in texts]
        if len(set(lines)) > 1:
            found = "; ".join(f"{ranks(lines, line)}: {line}" for line in dict.fromkeys(lines))
            raise ValueError(
                f"[{op}] {world().where()}expected {expected} in the same order on all ranks, got, as number {k}, "
                f"{found}"
            )


def find_unlike(tensors: Sequence[tuple[str, Tensor]]) -> str | None:
    """Return the name of the first tensor of which the ranks have other bits, the same name on every rank."""
    if not tensors:
        return None
    names = [name for name, _ in tensors]
    own = [zlib.crc32(x.detach().to("cpu").numpy().tobytes()) for _, x in tensors]
    texts = world().exchange_long("DataParallel", "\n".join(map(str, own)))
    for name, *sums in zip(names, *(text.splitlines() for text in texts), strict=False):
        if len(set(sums)) > 1:
            return name
    return None
