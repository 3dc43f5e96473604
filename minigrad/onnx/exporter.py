"""From the steps of a trace to a graph: names of values, constants that depend on a size, shapes."""

from typing import Any

import numpy as np

from minigrad.onnx.graph import TYPES, Free, Graph, Sizes
from minigrad.onnx.trace import Shape, Step, Trace, Value

Lengths = tuple[int, ...]  # the length of an axis in each run


class Exporter:
    """The graph being made, and the names of the values in it."""

    def __init__(self, opset: int, free: list[Free]) -> None:
        self.opset, self.graph = opset, Graph()
        self.sizes = Sizes(self.graph, free)
        self.names: dict[int, str] = {}
        self.step: Step | None = None

    def emit(self, trace: Trace, names: list[str], table: dict[str, Any]) -> None:
        """Add the nodes of all steps; `names` are those of the inputs, `table` says how each operation is written."""
        self.names.update((id(value), self.graph.unique(name)) for value, name in zip(trace.inputs, names, strict=True))
        for step in trace.steps:
            self.step = step
            if all(out.constant is not None for out in step.outs):
                continue  # computed from parameters alone, such as a normalized weight
            if step.op not in table:
                raise step.error("an operation that has a form in ONNX", step.op)
            made = table[step.op](self, step)
            for out, name in zip(step.outs, (made,) if isinstance(made, str) else made, strict=True):
                self.names[id(out)] = name

    def name(self, value: Value | None) -> str | None:
        """Return the name of a value in the graph; a constant is added when it is first named."""
        if value is None or id(value) in self.names:
            return None if value is None else self.names[id(value)]
        if value.constant is not None:
            found = self.graph.constant(value.constant, _label(value))
        else:
            found = self._varying(value)
        self.names[id(value)] = found
        return found

    def _varying(self, value: Value) -> str:
        """Return a constant that depends on the lengths of free axes.

        It is one number everywhere, or evenly spaced ones, or a matrix of one number on each side of its diagonal and
        one on it, as masks are.
        """
        arrays, lengths = value.numpy(), [self.sizes.of(axis) for axis in value.axes]
        if all(a.size and (a == a.flat[0]).all() for a in arrays) and None not in lengths:
            numbers = [a.flat[0] for a in arrays]
            one = numbers[0] if len(set(numbers)) == 1 else self.sizes.number(numbers, value.dtype)
            if one is not None and value.shape:
                return self.graph.Expand(one, self.sizes.shape(lengths))  # type: ignore[arg-type]
            if one is not None:
                return one if isinstance(one, str) else self.graph.constant(one)
        if value.ndim == 1 and isinstance(lengths[0], str) and all(len(a) > 1 for a in arrays):
            first, step = arrays[0][0], arrays[0][1] - arrays[0][0]
            if all(np.array_equal(a, first + step * np.arange(len(a), dtype=a.dtype)) for a in arrays):
                found = self.range(value.axes[0], value.dtype)
                return found if (first, step) == (0, 1) else self.graph.Add(self.graph.Mul(found, step), first)
        if value.ndim == 2 and None not in lengths and min(arrays[0].shape) > 1:
            table = np.array([arrays[0][0, 1], arrays[0][0, 0], arrays[0][1, 0]])
            if all(np.array_equal(a, table[np.sign(np.subtract.outer(*map(np.arange, a.shape))) + 1]) for a in arrays):
                rows, columns = (self.range(axis) for axis in value.axes)
                sides = self.graph.Sign(self.graph.Sub(self.graph.Unsqueeze(rows, np.array([1])), columns))
                return self.graph.Gather(table, self.graph.Add(sides, np.array(1)))
        assert self.step is not None
        raise self.step.error(
            "values that depend on the inputs through recorded operations alone",
            f"numbers of shape {value.shape} that change with the inputs, or with the length of a free axis,",
        )

    def range(self, lengths: Lengths, dtype: np.dtype | None = None) -> str:
        """Return 0, 1, … up to a length, as int64 by default."""
        n = self.resolved(lengths)
        end = np.array(n) if isinstance(n, int) else self.graph.Squeeze(n, np.array([0]))
        found = self.graph.Range(np.array(0), end, np.array(1))
        return found if dtype is None or dtype == np.int64 else self.graph.Cast(found, to=TYPES[dtype.name])

    def elementwise(self, step: Step) -> list[str]:
        """Return the names of the inputs of an operation for which ONNX broadcasts, without their own broadcasts."""
        given = [x for x in step.inputs if x is not None]
        bare = [_before_broadcast(x) for x in given]
        for shapes, wanted in zip(zip(*(x.shapes for x in bare), strict=True), step.outs[0].shapes, strict=True):
            if np.broadcast_shapes(*shapes) != wanted:
                bare = given
        return [self.name(x) for x in bare]  # type: ignore[misc]

    def resolved(self, lengths: Lengths, what: str = "a length") -> int | str:
        """Return a length that had these values as a number or as part of the graph."""
        found = self.sizes.of(lengths)
        if found is None:
            assert self.step is not None
            raise self.step.error(f"{what} that follows from the free axes", f"lengths of {_listed(lengths)}")
        return found

    def shape_of(self, axes: list[Lengths]) -> str:
        """Return a shape as int64 [n]."""
        return self.sizes.shape([self.resolved(axis) for axis in axes])

    def reshape(self, name: str, old: list[Lengths], new: list[Lengths]) -> str:
        """Return a value in another shape, with as few lengths in the graph as possible."""
        g = self.graph
        if old == new:
            return name
        if (added := _inserted(old, new)) is not None:
            return g.Unsqueeze(name, np.array(added))
        if (dropped := _inserted(new, old)) is not None:
            return g.Squeeze(name, np.array(dropped))
        lengths: list[int | str | None] = [
            axis[0] if len(set(axis)) == 1 else 0 if i < len(old) and axis == old[i] else None
            for i, axis in enumerate(new)
        ]
        open_places = [i for i, n in enumerate(lengths) if n is None]
        for i in open_places[1:]:
            lengths[i] = self.resolved(new[i])
        if open_places:
            lengths[open_places[0]] = -1
        return g.Reshape(name, self.sizes.shape(lengths))  # type: ignore[arg-type]


def _listed(lengths: Lengths) -> str:
    return ", ".join(map(str, lengths))


def _label(value: Value) -> str:
    """Return the name of a parameter, or of the first one that a constant is computed from."""
    if value.label or value.maker is None:
        return value.label
    found = next((label for x in value.maker.inputs if x is not None and (label := _label(x))), "")
    return found and f"{found}.{value.maker.op}"


def _before_broadcast(value: Value) -> Value:
    while value.maker is not None and value.maker.op == "broadcast_to" and value.maker.inputs[0] is not None:
        value = value.maker.inputs[0]
    return value


def _inserted(old: list[Lengths], new: list[Lengths]) -> list[int] | None:
    """Return the positions of the axes of length one to add to `old` to make `new`; None if that is not enough."""
    k, added = 0, []
    for i, axis in enumerate(new):
        if k < len(old) and axis == old[k]:
            k += 1
        elif set(axis) == {1}:
            added.append(i)
        else:
            return None
    return added if k == len(old) and added else None


__all__ = ["Exporter", "Lengths", "Shape"]
