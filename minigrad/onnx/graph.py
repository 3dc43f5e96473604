"""A graph of ONNX nodes in the making: names, constants, and lengths of axes that are known when it runs."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from minigrad.onnx.trace import Value

TYPES = {
    "float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "int32": TensorProto.INT32,
    "int64": TensorProto.INT64, "bool": TensorProto.BOOL, "uint8": TensorProto.UINT8,
}  # fmt: skip


class Graph:
    """Nodes and constants. ``graph.Add(a, b)`` adds a node and returns the name of its result.

    Inputs are names, None for an absent one, and numbers or arrays, which become constants. What has been computed from
    the same inputs is not computed again. A body of a Scan shares the names with the graph around it.
    """

    def __init__(self, around: "Graph | None" = None) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.labels: dict[int, str] = {} if around is None else around.labels  # names for arrays, by their id
        self._names: dict[str, int] = {} if around is None else around._names  # how often each name was wanted
        self._known: dict[Any, Any] = {}

    def unique(self, name: str) -> str:
        """Return a name that no other value of this graph, or of a graph inside or around it, has."""
        count = self._names[name] = self._names.get(name, -1) + 1
        return self.unique(f"{name}_{count}") if count else name

    def constant(self, array: Any, name: str = "") -> str:
        """Return the name of a constant; equal small ones are one."""
        name, array = name or self.labels.get(id(array), ""), np.asarray(array)
        key = (array.tobytes(), array.shape, array.dtype) if array.size <= 16 and not name else None
        if key in self._known:
            return self._known[key]
        short = "_".join(str(k) for k in array.ravel()) if array.size <= 4 and array.dtype.kind in "iu" else array.dtype
        found = self.unique(name or f"constant_{short}")
        self.constants[found] = array
        if key is not None:
            self._known[key] = found
        return found

    def add(self, op: str, *inputs: Any, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """Add a node; return the name of its result, or of each one if there are several."""
        given = ["" if x is None else x if isinstance(x, str) else self.constant(x) for x in inputs]
        key = None if "body" in attributes or name else (op, *given, str(sorted(attributes.items())))
        if key in self._known:
            return self._known[key]
        made = [self.unique(name or op.lower()) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, given, made, name=made[0] + "_node", **attributes))
        found = made[0] if outputs == 1 else made
        if key is not None:
            self._known[key] = found
        return found

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if not op[0].isupper():
            raise AttributeError(op)
        return partial(self.add, op)

    def body(self) -> "Graph":
        """Return an empty graph to be the body of a Scan."""
        return Graph(self)

    def proto(self, name: str, inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]) -> GraphProto:
        """Return the graph without the nodes and constants that nothing uses."""
        used, nodes = {x.name for x in outputs}, []
        for node in reversed(self.nodes):
            if used.intersection(node.output):
                used.update(node.input)
                nodes.append(node)
        arrays = [numpy_helper.from_array(np.array(a, order="C"), k) for k, a in self.constants.items() if k in used]
        return helper.make_graph(nodes[::-1], name, inputs, outputs, arrays)


class Free:
    """A free axis: its name, its length in each run, and the input and axis that it is read from."""

    def __init__(self, name: str, sizes: tuple[int, ...], source: str, axis: int) -> None:
        self.name, self.sizes, self.source, self.axis = name, sizes, source, axis


class Sizes:
    """Lengths as parts of the graph: numbers, or int64 [1] computed from the lengths of free axes."""

    def __init__(self, graph: Graph, free: list[Free]) -> None:
        self.graph, self.free = graph, free
        self._known: dict[str, str] = {}

    def length(self, axis: Free) -> str:
        """Return the name of the length of a free axis."""
        if axis.name not in self._known:
            shape = self.graph.Shape(axis.source, start=axis.axis, end=axis.axis + 1, name=f"length_{axis.name}")
            self._known[axis.name] = shape
        return self._known[axis.name]

    def of(self, sizes: tuple[int, ...]) -> int | str | None:
        """Return a number that had this value in each run; None if no formula of the free lengths is known.

        The formulas are a product of lengths with an integer, and k n + c.
        """
        if len(set(sizes)) == 1:
            return sizes[0]
        for product in self._products():
            scale = prod(axis.sizes[0] for axis in product)
            found = sizes[0] // scale if scale else 0
            if found and all(n == found * prod(axis.sizes[i] for axis in product) for i, n in enumerate(sizes)):
                return self._times(found, product)
        for axis in self.free:
            rise, run = sizes[1] - sizes[0], axis.sizes[1] - axis.sizes[0]
            k, c = rise // run, sizes[0] - rise // run * axis.sizes[0]
            if k and all(n == k * m + c for n, m in zip(sizes, axis.sizes, strict=True)):
                return self.graph.Add(self._times(k, [axis]), np.array([c]))
        return None

    def number(self, values: list[Any], dtype: np.dtype) -> str | None:
        """Return a scalar that had this value in each run: a length n, 1 / n, or c times that for a free length."""
        plain = np.asarray(values, float)
        for op, whole in (
            ("", plain),
            ("Reciprocal", np.divide(1, plain, where=plain != 0, out=np.full_like(plain, np.inf))),
        ):
            rounded = np.rint(whole) if np.isfinite(whole).all() else whole + 0.5
            if np.allclose(whole, rounded, rtol=1e-6, atol=0) and (dtype.kind == "f" or not op):
                found = self.of(tuple(map(int, rounded)))
                if found is not None:
                    n = self._scalar(found, dtype)
                    return self.graph.add(op, n) if op else n
        if dtype.kind != "f":
            return None
        for product in self._products():
            counts = np.array([prod(axis.sizes[i] for axis in product) for i in range(len(values))], float)
            for op, factors in (("Mul", np.asarray(values) / counts), ("Div", np.asarray(values) * counts)):
                if np.allclose(factors, factors[0], rtol=1e-6, atol=0):
                    n = self._scalar(self._times(1, product), dtype)
                    return self.graph.add(op, np.asarray(factors[0], dtype), n)
        return None

    def _scalar(self, length: int | str, dtype: np.dtype) -> str:
        return self.graph.Cast(self.graph.Squeeze(length, np.array([0])), to=TYPES[dtype.name])

    def shape(self, lengths: list[int | str]) -> str:
        """Return int64 [n] of n lengths."""
        if all(isinstance(n, int) for n in lengths):
            return self.graph.constant(np.array(lengths, np.int64))
        return self.graph.Concat(*[n if isinstance(n, str) else np.array([n]) for n in lengths], axis=0)

    def _products(self) -> list[list[Free]]:
        """Return the sets of free axes, smallest first."""
        sets = [[axis for i, axis in enumerate(self.free) if mask >> i & 1] for mask in range(1, 1 << len(self.free))]
        return sorted(sets, key=len)

    def _times(self, factor: int, axes: list[Free]) -> str:
        found = self.length(axes[0])
        for axis in axes[1:]:
            found = self.graph.Mul(found, self.length(axis))
        return found if factor == 1 else self.graph.Mul(found, np.array([factor]))


def info(name: str, value: Value, free: list[Free]) -> ValueInfoProto:
    """Return the declaration of an input or output, with the names of its free axes."""
    names = {axis.sizes: axis.name for axis in free}
    shape = [names.get(sizes, sizes[0] if len(set(sizes)) == 1 else None) for sizes in value.axes]
    return helper.make_tensor_value_info(name, TYPES[value.dtype.name], shape)
