"""Emulation of the names of ``cupy.cuda.nccl``: ranks on the memory of the CPU, connected by MPI.

The methods of the communicator have the parameters of CuPy's.
"""

import ctypes

import numpy as np

from . import cuda

available = True
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 = (
    range(9)
)
TYPES = {
    NCCL_UINT8: np.uint8, NCCL_INT32: np.int32, NCCL_INT64: np.int64, NCCL_FLOAT32: np.float32,
    NCCL_FLOAT64: np.float64,
}  # fmt: skip
KEY = tuple((37 * k) % 256 - 128 for k in range(128))  # chars, as CuPy returns them


def get_unique_id():
    return KEY


class NcclCommunicator:
    """One rank, with memory of the device that is current when it is made."""

    def __init__(self, ndev, commId, rank):
        from mpi4py import MPI

        assert commId == KEY, "the id of rank 0"
        self.comm, self.device = MPI.COMM_WORLD.Dup(), cuda.chosen[-1]
        assert (self.comm.size, self.comm.rank) == (ndev, rank)
        self.ops = {NCCL_SUM: MPI.SUM, NCCL_MAX: MPI.MAX, NCCL_MIN: MPI.MIN}
        devices = self.comm.allgather(self.device)
        assert len(set(devices)) == ndev, f"ranks share GPUs: {devices}"

    def memory(self, address, count, datatype, stream):
        """Return an array over memory of this device, which has to hold so many elements, after the stream's work."""
        assert cuda.chosen[-1] == self.device, f"called with device {cuda.chosen[-1]}, made with device {self.device}"
        cuda.submit(stream, lambda: None)
        if queue := cuda.queue_of(stream):
            queue.finish()
        kind = np.dtype(TYPES[datatype])
        if not count:
            return np.empty(0, kind)
        rows = [(cuda.table[k], cuda.table[k + 1]) for k in range(0, 2 * cuda.allocations()[1], 2)]
        held = [start + size - address for start, size in rows if start <= address < start + size]
        assert max(held, default=0) >= count * kind.itemsize, "memory of a device"
        return np.frombuffer((ctypes.c_char * (count * kind.itemsize)).from_address(address), kind)

    def allReduce(self, sendbuf, recvbuf, count, datatype, op, stream):
        own = self.memory(sendbuf, count, datatype, stream).copy()
        self.comm.Allreduce(own, self.memory(recvbuf, count, datatype, stream), self.ops[op])

    def bcast(self, buff, count, datatype, root, stream):
        self.comm.Bcast(self.memory(buff, count, datatype, stream), root)

    def allGather(self, sendbuf, recvbuf, count, datatype, stream):
        out = self.memory(recvbuf, count * self.comm.size, datatype, stream)
        self.comm.Allgather(self.memory(sendbuf, count, datatype, stream), out)

    def reduceScatter(self, sendbuf, recvbuf, recvcount, datatype, op, stream):
        own = self.memory(sendbuf, recvcount * self.comm.size, datatype, stream)
        self.comm.Reduce_scatter_block(own, self.memory(recvbuf, recvcount, datatype, stream), self.ops[op])
