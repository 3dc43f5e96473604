"""DataLoader: batches in an order that can be repeated and resumed, made ahead by a thread if asked for."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from queue import SimpleQueue
from typing import Any

import numpy as np

from minigrad.data.collate import collate as collate_default
from minigrad.data.order import shuffled
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.random import randint


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
        certain moment.
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
        batches = self._batches(epoch, start)
        if self.prefetch:
            batches = ahead(batches, self.prefetch)
        with closing(batches):
            for position, batch in enumerate(batches, start + 1):
                self.epoch, self.position = epoch, position
                yield batch
        self.epoch, self.position = self._next

    def _batches(self, epoch: int, start: int) -> Generator[Any, None, None]:
        count, size = len(self.dataset), self.batch_size
        order = shuffled(count, self.seed, epoch) if self.shuffle else np.arange(count)
        for position in range(start, len(self)):
            yield self._batch(order[position * size : (position + 1) * size])

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


def ahead(items: Iterator[Any], depth: int) -> Generator[Any, None, None]:
    """The same items, up to `depth` of them made in a thread before they are asked for.

    An error of `items` is raised here, after the items before it. The thread ends with the items or with this
    generator, whichever is first.
    """
    ready: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
    room = threading.Semaphore(depth)
    stopped = threading.Event()

    def work() -> None:
        try:
            while room.acquire() and not stopped.is_set():
                ready.put((True, next(items)))
        except BaseException as error:  # StopIteration is the end
            ready.put((False, error))

    thread = threading.Thread(target=work, name="minigrad-prefetch", daemon=True)
    try:
        thread.start()
        while True:
            more, item = ready.get()
            if not more:
                break
            room.release()
            yield item
        if not isinstance(item, StopIteration):
            raise item
    finally:
        stopped.set()
        room.release()
        if thread.is_alive() and thread is not threading.current_thread():  # as garbage it may be collected anywhere
            thread.join()
