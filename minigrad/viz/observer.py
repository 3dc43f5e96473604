"""Observing what a thread records and differentiates, alongside its other observers."""

from __future__ import annotations

from typing import Any

from minigrad.engine.tape import set_observer
from minigrad.engine.tensor import Tensor


class Observer:
    """What the tape calls while a block is open; it forwards every call to the previous observer.

    If a later observer is still installed when the block ends, it keeps forwarding to this one, which then stays as a
    link to the previous observer and removes itself once no later observer is left.
    """

    def __init__(self) -> None:
        self.open = False
        self._before: Any = None

    def install(self) -> None:
        """Start observing the calling thread."""
        self._before = set_observer(self)
        self.open = True

    def remove(self) -> None:
        """Stop observing, and reinstall the previous observer unless a later one has taken this one's place."""
        self.open = False
        current = set_observer(self._before)
        if current is not self:
            set_observer(current)

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        """An operation was recorded."""
        self._leave_if_done()
        if self._before is not None:
            self._before.recorded(sequence, op, outs)

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """A backward pass reached an operation: the gradients of its outputs are complete."""
        self._leave_if_done()
        if self._before is not None:
            self._before.entered(sequence, op, grads)

    def left(self, sequence: int) -> None:
        """The pass left the operation: its inputs have received their gradients."""
        self._leave_if_done()
        if self._before is not None:
            self._before.left(sequence)

    def _leave_if_done(self) -> None:
        if not self.open:
            self.remove()
