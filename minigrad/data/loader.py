"""DataLoader: batches in an order that can be repeated and resumed, made ahead by a thread if asked for."""

import atexit
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import numpy as np

from minigrad.data.collate import collate as collate_default
from minigrad.data.order import shuffled
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.random import randint

# For how many seconds the end of a loop, and of the process, wait at most for a batch that is being made: a sample may
# block until something happens that only comes after the loop.
PATIENCE = 5.0


class DataLoader:
    """The samples of a dataset in batches, once through in each iteration.

    The order of epoch k follows from the seed and k alone, whatever else draws random numbers. A loop that was left
    early is not continued: the next one is the next epoch, from its beginning, unless `load_state_dict` says where
    to go on. So is a loop that begins while another one runs.

    Parameters
    ----------
    dataset : Dataset, or whatever has a length and items
        If it has a method ``batch(indices)``, as every `Dataset` has, that makes the batches.
    batch_size : int
        The last batch of an epoch is smaller if the samples do not come out even.
    shuffle : bool
        Whether every epoch has another order.
    seed : int, optional
        Of the orders. By default a random one, which `manual_seed` determines.
    drop_last : bool
        Whether to leave out a last batch that is smaller.
    prefetch : int
        How many batches a thread makes ahead while the last one is used; 0 for no thread. This pays where samples are
        read or decoded, not for an `ArrayDataset`. Samples that draw from `minigrad.random` in the thread do so at no
        certain moment. See the notes below for when the thread ends.
    collate : callable, optional
        Makes a batch from a list of samples, such as `collate_padded`.

    Attributes
    ----------
    epoch : int
        The epoch of the last batch, or the one that the next iteration runs if a loop came to its end since; from 0.
    position : int
        How many batches of it were given out.
    seed : int

    Raises
    ------
    TypeError
        For a dataset without length or items, and arguments of other types.
    ValueError
        For sizes out of range.

    Notes
    -----
    The thread of a loop with `prefetch` ends with the loop, or with the process if the loop is still open then. Either
    waits for the batch that is being made, for 5 seconds at most: a thread that is blocked for longer, in a sample that
    waits for something, ends after that batch, or is abandoned by the process that ends.

    The child of a fork has no such thread. There an open loop goes on with the same batches, and makes those that were
    not made yet in a thread of its own. The loop of the parent goes on as well.

    Examples
    --------
    >>> from minigrad import data
    >>> numbers = data.ArrayDataset([0, 1, 2, 3, 4])
    >>> loader = data.DataLoader(numbers, batch_size=2, shuffle=True, seed=0)
    >>> len(loader)
    3
    >>> [x.tolist() for (x,) in loader]
    [[0, 2], [1, 4], [3]]
    >>> [x.tolist() for (x,) in loader]
    [[3, 2], [4, 1], [0]]
    """

    def __init__(
        self, dataset: Any, batch_size: int = 1, shuffle: bool = False, seed: int | None = None,
        drop_last: bool = False, prefetch: int = 0, collate: Callable[[list[Any]], Any] | None = None,
    ) -> None:  # fmt: skip
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise TypeError(f"[DataLoader] expected a dataset with length and items, got {type(dataset).__name__}")
        if collate is not None and not callable(collate):
            raise TypeError(f"[DataLoader] expected a collate that can be called, got {collate!r}")
        self.dataset = dataset
        self.batch_size = integer("DataLoader", "batch_size", batch_size, 1)
        self.shuffle, self.drop_last, self.collate = bool(shuffle), bool(drop_last), collate
        self.prefetch = integer("DataLoader", "prefetch", prefetch, 0)
        if seed is None:
            seed = randint(0, 2**63 - 1).item() if shuffle else 0
        self.seed: int = integer("DataLoader", "seed", seed)
        self.epoch = self.position = 0
        self._next = 0, 0  # the epoch and the position at which the next loop begins

    def __len__(self) -> int:
        """The number of batches in an epoch."""
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
        """The function that makes the batch at a position of an epoch."""
        count, size = len(self.dataset), self.batch_size
        order = shuffled(count, self.seed, epoch) if self.shuffle else np.arange(count)
        return lambda position: self._batch(order[position * size : (position + 1) * size])

    def _batch(self, indices: np.ndarray) -> Any:
        if self.collate is None and hasattr(self.dataset, "batch"):
            return self.dataset.batch(indices)
        return (self.collate or collate_default)([self.dataset[index] for index in indices.tolist()])

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is, and what determines its batches.

        Returns
        -------
        dict
            "seed", "epoch" and "position"; and what must be the same where it is loaded: "length" of the dataset,
            "batch_size", "shuffle", "drop_last".
        """
        return {"seed": self.seed, "epoch": self.epoch, "position": self.position, **self._plan()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was called: the next iteration gives the batches that were still to come.

        Where the loop had just got the last batch of an epoch, the next iteration gives none, so that what follows
        that loop is done, as it would have been.

        Raises
        ------
        ValueError
            For the state of a loader of other batches, or none at all.
        TypeError
            For a seed, an epoch or a position that is no integer. Nothing is taken over then, as with a ValueError.

        Examples
        --------
        >>> from minigrad import data
        >>> loader = data.DataLoader(data.ArrayDataset([0, 1, 2, 3, 4]), batch_size=2)
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
    """A thread that makes make(position) for each of the positions, up to `depth` of them before they are asked for.

    Its queues can be used from a finalizer, which may run in the midst of this thread, and after a fork: no lock of
    Python is held by either end.
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
                    raise RuntimeError("[DataLoader] expected no request for a batch after the loop was stopped")
                self._made.put((self._make(position), None))
        except BaseException as error:
            self._made.put((None, error))

    def lost(self) -> bool:
        """Whether nothing is left of what was made, and nobody makes more: the process forked, or ends."""
        return not self.is_alive() and self._made.empty()

    def get(self) -> Any:
        """The next item, or the error of the one that could not be made."""
        item, error = self._made.get()
        self._permits.put(None)
        if error is not None:
            raise error
        return item

    def stop(self) -> None:
        """Ask the thread to end after the item that it is making."""
        self.stopped = True
        self._permits.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for the thread to end, unless this is that thread, which may collect its consumer as garbage."""
        if self.is_alive() and self is not threading.current_thread():
            self.join(max(0.0, seconds))


def ahead(make: Callable[[int], Any], positions: range, depth: int) -> Generator[Any, None, None]:
    """make(position) for each of the positions, up to `depth` of them made in a thread before they are asked for.

    An error is raised here, after the items before it. The thread ends with the items or with this generator, whichever
    is first. The child of a fork uses what was made, and starts a thread of its own for the rest.
    """
    maker = Maker(make, positions, depth)
    try:
        maker.start()
        for k in range(len(positions)):
            if maker.lost():
                maker = Maker(make, positions[k:], depth)
                maker.start()
            yield maker.get()
    finally:
        if not maker.stopped:
            maker.stop()
            maker.wait(PATIENCE)


@atexit.register
def stop_all() -> None:
    """End the threads before the interpreter does, which would cut them off in the middle of a computation."""
    running = [thread for thread in threading.enumerate() if isinstance(thread, Maker) and not thread.stopped]
    deadline = time.monotonic() + PATIENCE
    for thread in running:
        thread.stop()
    for thread in running:
        thread.wait(deadline - time.monotonic())
