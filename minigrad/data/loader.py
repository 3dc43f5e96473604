"""DataLoader: batches in a reproducible and resumable order, optionally prefetched by a thread."""

import atexit
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from queue import SimpleQueue
from typing import Any, Never

import numpy as np

from minigrad.data.dataset import batch, describe, samples
from minigrad.data.order import draw_order
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.random import randint

# The most seconds that the end of a loop, or of the process, waits for a batch in progress: a sample may block until
# something happens after the loop.
PATIENCE = 5.0

# PyTorch's other arguments, and advice for each.
OTHERS = {
    "sampler": "has no sampler: data.Subset(dataset, indices) has the samples in any order, indices may repeat",
    "batch_sampler": "has no batch_sampler: iterate over dataset.batch(indices) for lists of indices of your own",
    "generator": "has no generator: seed=0 determines the orders",
    "worker_init_fn": "has no worker_init_fn: batches are prepared by one thread of this process",
    "persistent_workers": "has no persistent_workers: batches are prepared by one thread of this process",
    "prefetch_factor": "has no prefetch_factor: prefetch=2 prepares two batches ahead",
    "timeout": "has no timeout: batches are prepared by one thread of this process",
}


class DataLoader:
    """Iterates over the samples of a dataset in batches, one epoch per loop.

    The order of epoch k depends only on the seed and k, not on other uses of random numbers. A loop that is left early
    is not continued: the next loop starts the next epoch, unless `load_state_dict` sets another position. The same
    holds for a loop that starts while another one is running.

    Parameters
    ----------
    dataset : Dataset, or any object with a length and items
        The batches of a `Dataset` are made by its method `batch`. Otherwise, PyTorch's method ``__getitems__(indices)``
        returns the samples of a batch if the dataset has it, as those of Hugging Face do.
    batch_size : int
        The number of samples in a batch; the last batch of an epoch may be smaller.
    shuffle : bool
        Whether to draw a new order for every epoch.
    seed : int, optional
        The seed of the orders. By default, a random one, which `manual_seed` determines.
    drop_last : bool
        Whether to drop the last batch if it is smaller.
    prefetch : int
        The number of batches that a thread prepares ahead while the last one is used; 0 for no thread. Prefetching pays
        off if samples are read or decoded, not for an `ArrayDataset`. If samples draw from `minigrad.random` in the
        thread, the order of their draws relative to others is undefined. See the notes for when the thread ends.
    collate : callable, optional
        Makes a batch from a list of samples, such as `collate_padded`.
    shard : (int, int), optional
        ``(rank, size)``: this loader returns the part of each batch for one of `size` processes, which together get
        every sample once. `batch_size` remains that of the whole batch, so all processes get equally many batches, and
        a run may continue on another number of processes. With `shuffle`, `seed` has to be given.
    collate_fn : callable, optional
        PyTorch's name for `collate`.
    num_workers : int
        PyTorch's name for `prefetch`: the number of batches that one thread, and not a process, prepares ahead.
    pin_memory : bool
        Accepted for compatibility with PyTorch; has no effect.
    **others
        Any other argument raises a TypeError; for PyTorch's arguments, it says what to write instead.

    Attributes
    ----------
    epoch : int
        The epoch of the last batch or, if a loop has finished since, that of the next loop; from 0.
    position : int
        The number of batches of this epoch that were returned.
    seed : int

    Raises
    ------
    TypeError
        For a dataset without length or items, and arguments of other types.
    ValueError
        For sizes out of range, a shard of a number of processes for which the last batch, or every batch, has too few
        samples, and shards of random orders without a seed.

    Notes
    -----
    The thread of a loop with `prefetch` ends with the loop, or with the process if the loop is still open then. Either
    waits at most 5 seconds for the batch in progress: a thread that is blocked for longer, in a sample that waits for
    something, ends after that batch, or is abandoned when the process exits.

    The child of a fork does not have this thread. An open loop continues there with the same batches, and prepares the
    remaining ones in its own thread. The loop of the parent continues as well.

    Examples
    --------
    >>> numbers = mg.data.ArrayDataset([0, 1, 2, 3, 4])
    >>> loader = mg.data.DataLoader(numbers, batch_size=2, shuffle=True, seed=0)
    >>> len(loader)
    3
    >>> [x.tolist() for (x,) in loader]
    [[0, 2], [1, 4], [3]]
    >>> [x.tolist() for (x,) in loader]
    [[3, 2], [4, 1], [0]]

    The parts of two processes:

    >>> for rank in range(2):
    ...     loader = mg.data.DataLoader(numbers, batch_size=3, shard=(rank, 2))
    ...     print([x.tolist() for (x,) in loader])
    [[0, 2], [3]]
    [[1], [4]]
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, shuffle: bool = False, seed: int | None = None,
        drop_last: bool = False, prefetch: int = 0, collate: Callable[[list[Any]], Any] | None = None, *,
        shard: tuple[int, int] | None = None, collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0, pin_memory: bool = False, **others: Never,
    ) -> None:  # fmt: skip
        for name in others:
            raise TypeError(f"[DataLoader] {OTHERS.get(name, f'got an unexpected argument {name!r}')}")
        if collate is not None and collate_fn is not None:
            raise TypeError("[DataLoader] expected collate or collate_fn, which are the same argument, got both")
        collate = collate_fn if collate is None else collate
        prefetch = prefetch or num_workers
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise TypeError(f"[DataLoader] expected a dataset with length and items, got {type(dataset).__name__}")
        if collate is not None and not callable(collate):
            raise TypeError(f"[DataLoader] expected a callable collate, got {collate!r}")
        self.dataset = dataset
        self.batch_size = integer("DataLoader", "batch_size", batch_size, 1)
        self.shuffle, self.drop_last, self.collate = bool(shuffle), bool(drop_last), collate
        self.prefetch = integer("DataLoader", "prefetch", prefetch, 0)
        self.shard = self._check_shard(shard, seed)
        if seed is None:
            seed = randint(0, 2**63 - 1).item() if shuffle else 0
        self.seed: int = integer("DataLoader", "seed", seed)
        self.epoch = self.position = 0
        self._next = 0, 0  # the epoch and the position at which the next loop begins

    def __repr__(self) -> str:
        order = f", shuffle=True, seed={self.seed}" if self.shuffle else ""
        return f"DataLoader({describe(self.dataset)}, batch_size={self.batch_size}{order})"

    def _check_shard(self, shard: Any, seed: int | None) -> tuple[int, int]:
        """Return the rank and the number of processes, for which every batch has to suffice."""
        if shard is None:
            return 0, 1
        if not isinstance(shard, tuple) or len(shard) != 2:
            raise TypeError(f"[DataLoader] expected a shard (rank, size), got {shard!r}")
        size = integer("DataLoader", "the size of a shard", shard[1], 1)
        rank = integer("DataLoader", "the rank of a shard", shard[0], 0)
        if rank >= size:
            raise ValueError(f"[DataLoader] expected a rank from 0 to {size - 1} in a shard, got {rank}")
        if size > 1 and self.shuffle and seed is None:
            raise ValueError("[DataLoader] expected a seed with a shard: each process would draw another order")
        last = len(self.dataset) % self.batch_size
        if self.batch_size < size or (not self.drop_last and 0 < last < size):
            found = f"a batch of {self.batch_size}" if self.batch_size < size else f"the last batch of {last}"
            raise ValueError(
                f"[DataLoader] expected a sample of each batch for each of {size} processes, got {found}: choose "
                f"another batch_size, or drop_last=True"
            )
        return rank, size

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        count = len(self.dataset)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self.epoch, self.position = self._next
        self._next = epoch + 1, 0
        positions = range(start, len(self))
        make = self._maker(epoch)
        batches = ahead(make, positions, self.prefetch) if self.prefetch else (make(k) for k in positions)
        with closing(batches):
            for position, batch in enumerate(batches, start + 1):
                self.epoch, self.position = epoch, position
                yield batch
        self.epoch, self.position = self._next

    def _maker(self, epoch: int) -> Callable[[int], Any]:
        """Return the function that makes the batch at a position of an epoch."""
        count, size = len(self.dataset), self.batch_size
        order = draw_order(count, self.seed, epoch) if self.shuffle else np.arange(count)
        rank, ranks = self.shard
        return lambda position: self._batch(order[position * size + rank : (position + 1) * size : ranks])

    def _batch(self, indices: np.ndarray) -> Any:
        if self.collate is None:
            return batch(self.dataset, indices)
        return self.collate(samples(self.dataset, indices))

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader and the options that determine its batches.

        Returns
        -------
        dict
            "seed", "epoch" and "position"; and "length" of the dataset, "batch_size", "shuffle" and "drop_last", which
            must be the same when it is loaded.
        """
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._plan()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called: the next loop returns the remaining batches of the epoch.

        If the loop had just received the last batch of an epoch, the next loop returns none, so that the code after
        that loop runs as it would have.

        Raises
        ------
        ValueError
            For the state of a loader with other batches, or an invalid state. Nothing is loaded then.
        TypeError
            For a seed, an epoch or a position that is not an integer. Nothing is loaded then.

        Examples
        --------
        >>> loader = mg.data.DataLoader(mg.data.ArrayDataset([0, 1, 2, 3, 4]), batch_size=2)
        >>> for (x,) in loader:
        ...     state = loader.state_dict()
        ...     break
        >>> loader.load_state_dict(state)
        >>> [x.tolist() for (x,) in loader]
        [[2, 3], [4]]
        """
        own = self.state_dict()
        if not isinstance(state_dict, Mapping) or state_dict.keys() != own.keys():
            raise ValueError(f"[DataLoader] expected a state with {', '.join(own)}, got {state_dict!r}")
        other = {name: state_dict[name] for name, value in self._plan().items() if state_dict[name] != value}
        if other:
            expected = {name: own[name] for name in other}
            raise ValueError(f"[DataLoader] expected the state of a loader with {expected}, got {other}")
        names = ("seed", "epoch", "position")
        seed, epoch, position = (integer("DataLoader", name, state_dict[name]) for name in names)
        if epoch < 0 or not 0 <= position <= len(self):
            raise ValueError(f"[DataLoader] expected a position from 0 to {len(self)}, got {position} in epoch {epoch}")
        self.seed, self.epoch, self.position = seed, epoch, position
        self._next = epoch, position

    def _plan(self) -> dict[str, Any]:
        return {
            "length": len(self.dataset), "batch_size": self.batch_size, "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }  # fmt: skip


class Maker(threading.Thread):
    """A thread that computes make(position) for each of the positions, up to `depth` items ahead.

    Its queues can be used after a fork, and from a finalizer, which may interrupt this thread: neither end holds a
    Python lock.
    """

    def __init__(self, make: Callable[[int], Any], positions: range, depth: int) -> None:
        super().__init__(name="minigrad-prefetch", daemon=True)
        self._make, self._positions = make, positions
        self._made: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._permits: SimpleQueue[None] = SimpleQueue()  # one for each item that may be made, and one to stop
        for _ in range(min(depth, len(positions))):
            self._permits.put(None)
        self.stopped = False

    def run(self) -> None:
        try:
            for position in self._positions:
                self._permits.get()
                if self.stopped:
                    return
                self._made.put((self._make(position), None))
        except BaseException as error:
            self._made.put((None, error))

    def is_lost(self) -> bool:
        """Return whether no items are left and no more will be made, because the process forked or exits."""
        return not self.is_alive() and self._made.empty()

    def get(self) -> Any:
        """Return the next item, or raise the error of the one that could not be made."""
        item, error = self._made.get()
        self._permits.put(None)
        if error is not None:
            raise error
        return item

    def stop(self) -> None:
        """Ask the thread to end after the item in progress."""
        self.stopped = True
        self._permits.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for the thread to end, unless called in it, as its garbage collection may finalize the consumer."""
        if self.is_alive() and self is not threading.current_thread():
            self.join(max(0.0, seconds))


def ahead(make: Callable[[int], Any], positions: range, depth: int) -> Generator[Any, None, None]:
    """Yield make(position) for each of the positions, computed in a thread up to `depth` items ahead.

    An error is raised here, after the items before it. The thread ends with the items or with this generator, whichever
    is first. The child of a fork uses the items that were made, and starts its own thread for the rest.
    """
    maker = Maker(make, positions, depth)
    try:
        maker.start()
        for k in range(len(positions)):
            if maker.is_lost():
                maker = Maker(make, positions[k:], depth)
                maker.start()
            yield maker.get()
    finally:
        if not maker.stopped:
            maker.stop()
            maker.wait(PATIENCE)


@atexit.register
def stop_all() -> None:
    """End the threads before the interpreter exits, which would stop them in the middle of a computation."""
    running = [thread for thread in threading.enumerate() if isinstance(thread, Maker) and not thread.stopped]
    deadline = time.monotonic() + PATIENCE
    for thread in running:
        thread.stop()
    for thread in running:
        thread.wait(deadline - time.monotonic())
