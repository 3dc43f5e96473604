"""What a module computes: a list of operations, seen in runs of several sizes, whose differences show what is free."""

import sys
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Any

import numpy as np

from minigrad.autograd import no_grad
from minigrad.engine.memory.calls import current_call
from minigrad.engine.memory.listener import Listener, listen, stop_listening
from minigrad.engine.ops.recurrent import Lengths
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import leaves
from minigrad.tools.places import public_place

Shape = tuple[int, ...]


class Seen:
    """An array of one run, and the row that made it; a constant or an input has none."""

    def __init__(self, array: Tensor, row: "Row | None" = None, name: str = "") -> None:
        self.array, self.row, self.name = array, row, name
        self.depends: bool = row is not None and any(x.depends for x in row.read())  # on the inputs' values


class Row:
    """A computed operation of one run."""

    def __init__(self, op: str, inputs: list[Seen | None], options: Any, where: str) -> None:
        self.op, self.inputs, self.options, self.where = op, inputs, options, where
        self.outs: list[Seen] = []

    def read(self) -> list[Seen]:
        """Return the arrays that the operation may read."""
        return [x for x in (*self.inputs, *leaves(self.options)) if isinstance(x, Seen)]


class Run(Listener):
    """One run. Arrays are known by their memory and layout, because views and detached tensors are other objects."""

    def __init__(self, named: Iterable[tuple[str, Tensor]]) -> None:
        self.seen: dict[Any, Seen] = {}
        self.rows: list[Row] = []
        for name, x in named:
            self.seen.setdefault(_key(x), Seen(x, name=name))

    def of(self, x: Tensor) -> Seen:
        """Return what is known of an array; one that no operation has made is a constant."""
        return self.seen.setdefault(_key(x), Seen(x))

    def computed(self, op: str, outs: tuple[Tensor, ...], inputs: Sequence[Tensor | None], options: Any) -> None:
        row = Row(op, [None if x is None else self.of(x) for x in inputs], self._seen_in(options), _place())
        row.outs = [Seen(x, row) for x in outs]
        self.seen.update(zip(map(_key, outs), row.outs, strict=True))
        self.rows.append(row)

    def _seen_in(self, options: Any) -> Any:
        """Return the options with `Seen` in place of each array."""
        if isinstance(options, tuple | list):
            return tuple(map(self._seen_in, options))
        options = options.values if isinstance(options, Lengths) else options
        return self.of(options) if isinstance(options, Tensor) else options

    def read(self, x: Tensor) -> None:
        """Refuse an element that the user's Python code reads: what is computed from it would be fixed."""
        found = self.seen.get(_key(x))
        if found is not None and found.depends and current_call() is None and not _is_ours(sys._getframe(1)):
            raise ValueError(
                f"[onnx.export] expected a forward that computes with tensors alone, got elements read at {_place()}: "
                f"what Python computes from them would be the same for all inputs; use minigrad.where for a choice"
            )

    def before_write(self, x: Tensor) -> None:
        """Refuse writes to what an operation has read or made; other memory may be filled."""
        first, end = _memory(x)
        if any(begin < end and first < last for begin, last in (_memory(y.array) for y in self.seen.values())):
            self.before_set()

    def before_recorded_write(self, x: Tensor) -> None:
        self.before_set()

    def before_set(self) -> None:
        raise ValueError(
            f"[onnx.export] expected a forward that writes to no tensor in evaluation, got a write at {_place()}: ONNX "
            f"has no writes; compute a new tensor"
        )

    def live(self, outputs: list[Seen]) -> list[Row]:
        """Return the rows that the outputs depend on."""
        needed, kept = {id(x) for x in outputs}, []
        for row in reversed(self.rows):
            if any(id(x) in needed for x in row.outs):
                needed.update(id(x) for x in row.read())
                kept.append(row)
        return kept[::-1]


def _key(x: Tensor) -> Any:
    return (x.data_ptr(), x.shape, x.strides, x.dtype) if x.size else id(x)


def _memory(x: Tensor) -> tuple[int, int]:
    """Return the addresses where the elements of an array begin and end."""
    spans = [(n - 1) * step for n, step in zip(x.shape, x.strides, strict=True)] if x.size else []
    start = x.data_ptr()
    end = start + sum(max(span, 0) for span in spans) + (x.dtype.itemsize if x.size else 0)
    return start + sum(min(span, 0) for span in spans), end


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "minigrad"


def _place() -> str:
    """Return file:line of the innermost caller outside minigrad."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame):
        frame = frame.f_back
    return public_place(f"{frame.f_code.co_filename}:{frame.f_lineno}")


# ── runs of several sizes, side by side ────────────────────────────────────────────────────────────


class Value:
    """An array of the exported graph, as each run has seen it."""

    def __init__(self, seen: tuple[Seen, ...], maker: "Step | None", depends: bool) -> None:
        self.maker, self.depends = maker, depends  # on the inputs' values
        self.arrays = [x.array for x in seen]
        self.shapes: list[Shape] = [x.shape for x in self.arrays]
        self.shape, self.dtype, self.ndim = self.shapes[0], np.dtype(self.arrays[0].dtype.name), len(self.shapes[0])
        self.label = seen[0].name  # the name of a parameter or a buffer
        self._constant: np.ndarray | bool | None = False  # False: not known yet

    @property
    def axes(self) -> list[tuple[int, ...]]:
        """The lengths of each axis in all runs."""
        return list(zip(*self.shapes, strict=True))

    def numpy(self) -> list[np.ndarray]:
        """Return the elements in each run."""
        return [x.detach().to("cpu").numpy() for x in self.arrays]

    @property
    def constant(self) -> np.ndarray | None:
        """The elements, if they depend neither on the inputs nor on a size; otherwise None."""
        if isinstance(self._constant, bool):
            found = None if self.depends or len(set(self.shapes)) > 1 else self.numpy()
            same = found is not None and all(np.array_equal(found[0], x, equal_nan=x.dtype.kind == "f") for x in found)
            self._constant = found[0] if same and found is not None else None
        return self._constant


class Step:
    """An operation of the exported graph; `options` are those of the first run, `runs` those of each."""

    def __init__(self, rows: tuple[Row, ...], value: Callable[[tuple[Any, ...]], Any]) -> None:
        self.op, self.where = rows[0].op, rows[0].where
        self.inputs: list[Value | None] = [value(x) for x in zip(*(row.inputs for row in rows), strict=True)]
        self.runs = [row.options for row in rows]
        self.options: Any = _merged(tuple(self.runs), value)
        depends = any(x.depends for x in (*self.inputs, *leaves(self.options)) if isinstance(x, Value))
        self.outs = [Value(x, self, depends) for x in zip(*(row.outs for row in rows), strict=True)]

    def error(self, expected: str, got: str) -> ValueError:
        """Return an error that names the operation and the place in the user's source."""
        return ValueError(f"[onnx.export] expected {expected}, got {got} in {self.op}, at {self.where}")


def _merged(options: tuple[Any, ...], value: Callable[[tuple[Any, ...]], Any]) -> Any:
    """Return the options of the first run, with a `Value` for the arrays of all runs."""
    first = options[0]
    if isinstance(first, tuple):
        return tuple(_merged(parts, value) for parts in zip(*options, strict=False))
    return value(options) if isinstance(first, Seen) else first


class Trace:
    """The runs of a module, merged: inputs, steps and outputs."""

    def __init__(self, runs: list[Run], inputs: list[list[Seen]], outputs: list[list[Seen]]) -> None:
        lives = [run.live(found) for run, found in zip(runs, outputs, strict=True)]
        self._values: dict[int, tuple[tuple[int, ...], Value]] = {}
        self.inputs = [self._enter(x, Value(x, None, True)) for x in zip(*inputs, strict=True)]
        self.steps: list[Step] = []
        for rows in zip(*lives, strict=False):
            if len({(row.op, len(row.inputs), len(row.outs)) for row in rows}) > 1:
                raise _differ(rows)
            step = Step(rows, self._value)
            for seen, made in zip(zip(*(row.outs for row in rows), strict=True), step.outs, strict=True):
                self._enter(seen, made)
            self.steps.append(step)
        if len({len(rows) for rows in lives}) > 1 or len({len(found) for found in outputs}) > 1:
            raise _differ(tuple(rows[-1] for rows in lives))
        self.outputs = [self._value(x) for x in zip(*outputs, strict=True)]

    def _enter(self, seen: tuple[Seen, ...], value: Value) -> Value:
        self._values[id(seen[0])] = tuple(map(id, seen)), value
        return value

    def _value(self, seen: tuple[Any, ...]) -> Any:
        """Return the value of what the runs have seen in one place; None for nothing."""
        if seen[0] is None:
            return None
        if id(seen[0]) not in self._values:
            return self._enter(seen, Value(seen, None, False))
        ids, value = self._values[id(seen[0])]
        if ids != tuple(map(id, seen)):
            raise _differ(tuple(x.row or Row("a constant", [], None, "the module") for x in seen))
        return value


def _differ(rows: tuple[Row, ...]) -> ValueError:
    places = " and ".join(dict.fromkeys(f"{row.op} at {row.where}" for row in rows))
    return ValueError(
        f"[onnx.export] expected the same operations for all values and all lengths of the free axes, got {places}: a "
        f"Python loop over a free axis and a branch on values cannot be exported"
    )


def trace(
    function: Callable[..., Any], runs: list[tuple[list[Tensor], tuple[Any, ...], dict[str, Any]]],
    named: list[tuple[str, Tensor]],
) -> tuple[Trace, Any]:  # fmt: skip
    """Call a function with the arguments of each run; return the trace and the results of the first run."""
    found, inputs, outputs, results = [], [], [], []
    for tensors, args, kwargs in runs:
        run = Run(named)
        inputs.append([run.of(x) for x in tensors])
        for given in inputs[-1]:
            given.depends = True
        with no_grad():
            listen(run)
            try:
                results.append(function(*args, **kwargs))
            finally:
                stop_listening(run)
        made = [x for x in leaves(results[-1]) if x is not None]
        if strange := [type(x).__name__ for x in made if not isinstance(x, Tensor)]:
            raise TypeError(f"[onnx.export] expected tensors as results, got {', '.join(strange)}")
        outputs.append([run.of(x) for x in made])
        found.append(run)
    return Trace(found, inputs, outputs), results[0]
