"""Training on several processes and machines: the same script, started by ``mpiexec``.

Tensors on the CPU are exchanged by MPI (mpi4py), tensors on a GPU by NCCL (CuPy). Without a launcher there is one
process, and nothing is imported or exchanged.
"""

from minigrad.distributed.data_parallel import DataParallel
from minigrad.ranks.collectives import all_gather, all_reduce, all_reduce_, barrier, broadcast_, reduce_scatter
from minigrad.ranks.communicator import init, local_rank, rank, size

__all__ = [
    "DataParallel", "all_gather", "all_reduce", "all_reduce_", "barrier", "broadcast_", "init", "local_rank", "rank",
    "reduce_scatter", "size",
]  # fmt: skip
