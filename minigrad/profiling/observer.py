"""Watching what a thread records and differentiates, beside whoever else watches it."""

from __future__ import annotations

from typing import Any

from minigrad.engine.tape import set_observer
from minigrad.engine.tensor import Tensor


class Observer:
    """What the tape calls while a block is open; all that it hears it passes on to who watched before.

    Somebody who came later may still be told when the block ends, and passes on to this one. Then it stays as a link
    between the two, and takes itself off once it stands at the end.
    """

    def __init__(self) -> None:
        self.open = False
        self._before: Any = None

    def install(self) -> None:
        """Begin to watch the calling thread."""
        self._before = set_observer(self)
        self.open = True

    def remove(self) -> None:
        """Watch no longer; put back who watched before, unless somebody else has taken this one's place."""
        self.open = False
        current = set_observer(self._before)
        if current is not self:
            set_observer(current)

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        """An operation was recorded."""
        self._leave_if_done()
        if self._before is not None:
            self._before.recorded(sequence, op, outs)

    def passed(self, op: str) -> None:
        """An operation was not recorded."""
        self._leave_if_done()
        if self._before is not None:
            self._before.passed(op)

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """A backward pass reached an operation: the gradients of its outputs are complete."""
        self._leave_if_done()
        if self._before is not None:
            self._before.entered(sequence, op, grads)

    def left(self, sequence: int) -> None:
        """And left it: it has sent its inputs theirs."""
        self._leave_if_done()
        if self._before is not None:
            self._before.left(sequence)

    def _leave_if_done(self) -> None:
        if not self.open:
            self.remove()
