"""Memory of a GPU that was freed is kept for reuse by its stream."""

import cupy
import pytest

import minigrad as mg
from minigrad.cuda import backend
from minigrad.engine.devices import gpu_memory

LIMIT = 1 << 20


class Fresh:
    """Stands for CuPy's pool: blocks at addresses that it counts, of which it can run out."""

    class Block:
        def __init__(self, ptr):
            self.ptr = ptr

    def __init__(self):
        self.sizes, self.full = [], False

    def __call__(self, size):
        if self.full:
            self.full = False
            raise MemoryError
        self.sizes.append(size)
        return self.Block(len(self.sizes) << 30)


@pytest.fixture
def fresh():
    """Replace CuPy's pool under cuda:0."""
    backend.prepare(0)
    pool = Fresh()
    gpu_memory.Pool(0, pool, LIMIT)
    yield pool
    backend.registered.discard(0)
    backend.prepare(0)


def test_a_freed_block_is_reused(fresh):
    address, owner = gpu_memory.allocate(1000, 0)
    other, _kept = gpu_memory.allocate(1000, 0)
    del owner
    assert gpu_memory.allocate(3000, 0)[0] not in (address, other)
    assert gpu_memory.allocate(700, 0)[0] == address  # CuPy's pool rounds both to 1024
    assert len({address, other}) == 2
    assert fresh.sizes == [1024, 1024, 3072]


def test_a_block_that_is_in_use_is_not_given_out(fresh):
    owners = [gpu_memory.allocate(512, 0) for _ in range(50)]
    assert len({address for address, _ in owners}) == 50
    kept = {address for address, _ in owners[:25]}
    del owners[25:]
    owners += [gpu_memory.allocate(512, 0) for _ in range(25)]
    assert len({address for address, _ in owners}) == 50
    assert kept < {address for address, _ in owners}
    assert len(fresh.sizes) == 50


def test_a_block_returns_to_the_stream_it_was_allocated_for(fresh):
    first, owner = gpu_memory.allocate(512, 0)
    with cupy.cuda.Stream(non_blocking=True):
        del owner
        second, owner = gpu_memory.allocate(512, 0)
        assert second != first
        assert gpu_memory.allocate(512, 0)[0] not in (first, second)
    del owner
    assert gpu_memory.allocate(512, 0)[0] == first


def test_the_default_streams_of_threads_share_nothing(fresh):
    with cupy.cuda.Stream.ptds:
        assert gpu_memory.allocate(512, 0)[0] != gpu_memory.allocate(512, 0)[0]


def test_little_memory_is_kept(fresh):
    most = LIMIT // 16
    assert gpu_memory.allocate(most + 1, 0)[0] != gpu_memory.allocate(most + 1, 0)[0]  # too large
    owners = [gpu_memory.allocate(most, 0) for _ in range(17)]
    made = len(fresh.sizes)
    del owners  # the last does not fit any more, and takes the place of the others
    again = [gpu_memory.allocate(most, 0) for _ in range(3)]
    assert len(fresh.sizes) == made + len(again) - 1


def test_kept_memory_is_given_back_when_there_is_no_other(fresh):
    gpu_memory.allocate(512, 0)
    fresh.full = True
    gpu_memory.allocate(1024, 0)
    gpu_memory.allocate(512, 0)
    assert fresh.sizes == [512, 1024, 512]
    mg.empty_cache()
    fresh.full = True
    with pytest.raises(MemoryError):
        gpu_memory.allocate(512, 0)


def test_a_pool_may_be_gone_before_its_memory(fresh):
    _, owner = gpu_memory.allocate(512, 0)
    gpu_memory.Pool(0, fresh, LIMIT)
    del owner
    gpu_memory.allocate(512, 0)
    assert fresh.sizes == [512, 512]
