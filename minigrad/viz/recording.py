"""The results of a forward pass, kept as they were at the time: `viz.record()`."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

from minigrad.engine.memory.listener import Listener, listen, stop_listening
from minigrad.engine.tape.inspection import contents
from minigrad.engine.tape.modes import record_source
from minigrad.engine.tensor.tensor import Tensor
from minigrad.viz.values import describe, wait_for

_newest: record | None = None


def newest() -> record | None:
    """Return the recording that began last."""
    return _newest


class record:
    """Keep what every operation in the block computes, its source line and its time, for `explore`.

    A tape holds no more than what backward needs. Inside this block the values of every result are also kept as the
    operation is recorded, so that later writes in place do not show: all numbers of a tensor of at most 8 rows of 8,
    and statistics and a sample of larger ones. The values of leaves are taken at the end of the block.

    The newest recording is kept until the next one begins; hold on to the object to explore an older one. Only what the
    calling thread computes is recorded, and nothing under `minigrad.no_grad`. Raises RuntimeError if a block of the
    same object is entered while one is still open.

    Attributes
    ----------
    values : dict of int to list of dict
        For the sequence number of each operation (see ``x.tape()``), what is shown of each of its outputs:
        ``shape``, ``dtype``, ``device``, and ``numbers`` (rows), or ``stats`` and ``first`` of a larger one.
    leaves : dict of int to dict
        The same for the leaves that the last result depends on.
    seconds : dict of int to float
        For each operation, the time since the previous one was recorded, including the time spent in Python; on a GPU,
        until the result is computed.

    Examples
    --------
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> with mg.viz.record() as recording:
    ...     y = (x * x).sum()
    >>> [shown[0]["numbers"] for shown in recording.values.values()]
    [[[1.0, 4.0]], [[5.0]]]
    """

    def __init__(self) -> None:
        self.values: dict[int, list[dict[str, Any]]] = {}
        self.leaves: dict[int, dict[str, Any]] = {}
        self.seconds: dict[int, float] = {}
        self._notes: Notes | None = None
        self._lines: record_source | None = None

    def __enter__(self) -> record:
        global _newest
        if self._notes is not None:
            raise RuntimeError("[record] expected a block that is not open yet: enter another viz.record()")
        _newest = self
        self._lines = record_source()
        self._lines.__enter__()
        self._notes = Notes(self)
        listen(self._notes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._notes is None or self._lines is None:
            raise RuntimeError("[record] expected a block that is open: use viz.record() in a with statement")
        stop_listening(self._notes)
        self._lines.__exit__(kind, error, trace)
        for out in self._notes.last:
            for sequence, (leaf, _, _) in contents(out).items():
                if leaf is not None and sequence not in self.leaves:
                    self.leaves[sequence] = describe(leaf)
        self._notes.last = ()
        self._notes = self._lines = None


class Notes(Listener):
    """The listener that fills a recording for one block."""

    def __init__(self, recording: record) -> None:
        super().__init__()
        self.recording = recording
        self.last: tuple[Tensor, ...] = ()
        self._since = time.perf_counter()

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        """An operation was recorded."""
        wait_for(outs)
        self.recording.seconds[sequence] = time.perf_counter() - self._since
        self.recording.values[sequence] = [describe(out) for out in outs]
        self.last = outs
        super().recorded(sequence, op, outs)
        self._since = time.perf_counter()

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """A backward pass inside the block reached an operation."""
        super().entered(sequence, op, grads)
        self._since = time.perf_counter()

    def left(self, sequence: int) -> None:
        """The pass has left the operation."""
        super().left(sequence)
        self._since = time.perf_counter()
