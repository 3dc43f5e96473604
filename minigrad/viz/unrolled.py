"""A recurrent layer step by step: its composition, run on what the tape kept of the layer, and differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from minigrad.engine.memory.listener import Listener, listen, stop_listening
from minigrad.engine.ops.logic import where
from minigrad.engine.tape.backward import differentiate
from minigrad.engine.tape.inspection import contents, entries, operations
from minigrad.engine.tape.modes import enable_grad
from minigrad.engine.tensor.tensor import Tensor
from minigrad.viz.values import describe

KEPT = {"h_t": "h_{t−1}", "c_t": "c_{t−1}"}  # the states that a step carries on, and what they were before it
Values = dict[int, Sequence[Tensor | None]]  # the outputs of an operation, or their gradients, by sequence number


class Step(NamedTuple):
    """One time step: what it read and computed, by name, the samples that have not ended, and the operation it ends at.

    No sample has ended if `alive` is None.
    """

    given: dict[str, Tensor]
    made: dict[str, Tensor]
    alive: Tensor | None
    last: int


class Unrolled(Listener):
    """The composition of a recurrent layer, run on its inputs, and differentiated with the gradients of its outputs.

    Its tape is in `rows`, as `minigrad.engine.tape.inspection.entries` makes them, with the records of the operations
    in `ops` and the names of the leaves, the inputs, in `names`. The operation `first` divides the input into `steps`.
    """

    def __init__(
        self, names: Sequence[str], composition: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None],
        grads: Sequence[Tensor | None],
    ) -> None:  # fmt: skip
        super().__init__()
        self._values: Values = {}
        self._grads: Values = {}
        self.steps: list[Step] = []
        self._last = 0
        leaves = [None if x is None else x.detach().requires_grad_() for x in inputs]
        listen(self)
        try:
            with enable_grad():
                outs = composition(*leaves, seen=self._add_step)
            self.rows, self.ops = entries(*outs), operations(*outs)
            held = contents(*outs).items()
            self._values |= {sequence: (leaf,) for sequence, (leaf, _, _) in held if leaf is not None}
            roots, seeds = zip(*[(y, g) for y, g in zip(outs, grads, strict=True) if g is not None], strict=True)
            given = [leaf for leaf in leaves if leaf is not None]
            differentiate(list(roots), list(seeds), given, False, False, "explore")
        finally:
            stop_listening(self)
        self._place = {id(x): (s, k) for s, outs in self._values.items() for k, x in enumerate(outs)}
        pairs = zip(leaves, names, strict=True)
        self.names = {self.number(leaf): name for leaf, name in pairs if leaf is not None and id(leaf) in self._place}
        x = next(row["index"] for row in self.rows if row["sequence"] == self.number(given[0]))
        self.first = next(row["sequence"] for row in self.rows if x in row["inputs"])

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        """An operation of the composition was recorded; other listeners are not told of it."""
        self._values[sequence], self._last = outs, sequence

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        """The gradients of an operation's outputs are complete."""
        self._grads[sequence] = grads

    def left(self, sequence: int) -> None:
        """The operation's inputs have received their gradients."""

    def _add_step(self, given: dict[str, Tensor | None], made: dict[str, Tensor | None], alive: Tensor | None) -> None:
        """Note a step that was computed."""
        read, computed = ({name: x for name, x in part.items() if x is not None} for part in (given, made))
        self.steps.append(Step(read, computed, alive, self._last))

    def values(self, sequence: int) -> list[dict[str, Any]]:
        """Describe the outputs of an operation, or a leaf."""
        return [describe(x) for x in self._values[sequence] if x is not None]

    def grads(self, sequence: int) -> list[dict[str, Any] | None] | None:
        """Describe the gradients of an operation's outputs; None if none arrived."""
        found = self._grads.get(sequence)
        return None if found is None else [None if g is None else describe(g) for g in found]

    def number(self, x: Tensor) -> int:
        """Return the sequence number of the operation that computed x."""
        return self._place[id(x)][0]

    def describe_step(self, step: Step) -> list[list[tuple[str, dict[str, Any], dict[str, Any] | None]]]:
        """Return name, value and gradient of all that a step read, and of all that it computed.

        A sample that has ended keeps its state.
        """
        return [
            [(name, *self._describe(x, step, step.given.get(KEPT.get(name, "")))) for name, x in part.items()]
            for part in (step.given, step.made)
        ]

    def _describe(self, x: Tensor, step: Step, before: Tensor | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
        grad = self._grad(x)
        if step.alive is not None and before is not None:
            kept = self._grad(before)
            grad = kept if grad is None else where(step.alive, grad, 0.0 if kept is None else kept)
            x = where(step.alive, x.detach(), before.detach())
        return describe(x), None if grad is None else describe(grad)

    def _grad(self, x: Tensor) -> Tensor | None:
        sequence, k = self._place[id(x)]
        found = self._grads.get(sequence)
        return None if found is None else found[k]
