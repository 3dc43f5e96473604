"""The tape as a picture: an SVG of the recorded history of a tensor."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tape.inspection import contents
from minigrad.engine.tensor.names import name_leaves, names_of, names_of_variables
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import Module
from minigrad.tools.files import check_path
from minigrad.tools.places import public_place
from minigrad.viz.boxes import Box, Folds, Node, find_common_box, pluralize
from minigrad.viz.drawing import draw
from minigrad.viz.tapes import entries_of

FAR = 12  # operations: a leaf used again after this many is drawn again there


class Graph:
    """A picture of the tape of a tensor; what `minigrad.viz.graph` returns.

    A notebook shows it. It follows the page's light or dark mode.

    Attributes
    ----------
    svg : str
        The picture, a complete SVG document.

    Examples
    --------
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> picture = mg.viz.graph(x.exp())
    >>> picture.svg.startswith("<svg ")
    True
    """

    def __init__(self, svg: str, operations: int, leaves: int) -> None:
        self.svg = svg
        self._text = f"Graph of {pluralize(operations, 'operation')} and {pluralize(leaves, 'leaf', 'leaves')}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file.

        Examples
        --------
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> mg.viz.graph(x * x).save("square.svg")
        """
        with open(check_path("graph", path), "w", encoding="utf-8") as file:
            file.write(self.svg)

    def __repr__(self) -> str:
        return f"<{self._text}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'


def graph(y: Tensor, names: Module | Mapping[str, Tensor | Module] | None = None, max_nodes: int | None = 150) -> Graph:
    """Draw the tape of a tensor: operations with the shapes of their results, leaves, and the edges between them.

    The forward pass runs downwards, backward upwards. Operations that ran inside a module are in a box with its name. A
    dot at the upper edge of an operation is an input that no gradient flows to: data, or a constant. Hovering over an
    operation shows what it saved and its source line (see `minigrad.record_source`).

    Parameters
    ----------
    y : Tensor
        A result that requires grad.
    names : Module or mapping of str to Tensor or Module, optional
        Names for leaves. A module's parameters are named by their paths; in a mapping, the module's key comes first. By
        default, the caller's variables are searched for tensors and modules. Other parameters have their paths in the
        outermost module that the operations ran in.
    max_nodes : int or None
        If there is more to draw, boxes are folded into single nodes, the innermost first, and then the middle of what
        remains; the picture says so. None draws everything.

    Returns
    -------
    Graph
        With ``svg`` and ``save(path)``; a notebook shows it.

    Raises
    ------
    ValueError
        If `max_nodes` is less than 3.
    TypeError
        If `y` is not a tensor, `max_nodes` is not an integer, or `names` holds anything else.
    GradientError
        If `y` depends on nothing that requires grad, or its tape is no longer whole: a backward pass has freed it,
        or a leaf became another tensor (`Tensor.set_`).

    Examples
    --------
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> mg.viz.graph((x * x).sum())
    <Graph of 2 operations and 1 leaf>
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"[graph] expected a tensor, got {kind_of(y)}")
    if max_nodes is not None and integer("graph", "max_nodes", max_nodes) < 3:
        raise ValueError(f"[graph] expected max_nodes of 3 or more, got {max_nodes}")
    rows = entries_of(y, "graph")
    named = names_of_variables(dict(sys._getframe(1).f_locals)) if names is None else names_of(names, "graph")
    name_leaves(rows, contents(y), named)
    root, edges, dots = _tree(rows)
    total, note = len(rows), ""
    if max_nodes is not None and sum(1 for _ in root.nodes()) > max_nodes:
        place = Folds(root, edges, max_nodes).place
        edges = {(place(a), place(b)): None for a, b in edges if place(a) is not place(b)}
        shown = sum(node.kind in ("op", "op root", "leaf") for node in root.nodes())
        note = f"{shown} of {total} entries; the others are folded into the nodes with a dashed border"
    leaves = sum(row["sequence"] < 0 for row in rows)
    return Graph(draw(root, list(edges), dots, note), total - leaves, leaves)


# ── from rows to boxes ────────────────────────────────────────────────────────────────────────────


def _tree(rows: Sequence[dict[str, Any]]) -> tuple[Box, dict[tuple[Node, Node], None], dict[Node, int]]:
    """Return the boxes with their nodes, the edges, and how many inputs of a node no gradient flows to."""
    root = Box("", None)
    made: dict[int, Node] = {}
    uses: dict[int, list[Node]] = {}
    edges: dict[tuple[Node, Node], None] = {}
    dots: dict[Node, int] = {}
    order: dict[Node, int] = {}
    path: list[tuple[int, Box]] = []  # the calls that are open
    for row in rows:
        if row["sequence"] < 0:  # a leaf
            continue
        depth = 0
        while depth < min(len(path), len(row["calls"])) and path[depth][0] == row["calls"][depth]:
            depth += 1
        del path[depth:]
        for call, (name, kind) in list(zip(row["calls"], row["scope"], strict=True))[depth:]:
            outer = path[-1][1] if path else root
            inner = "" if outer is root else None if outer.path is None or not name else f"{outer.path}{name}."
            box = Box(f"{name}: {kind}" if name else kind, inner)
            outer.add(box)
            path.append((call, box))
        inputs = ", ".join("-" if i is None else str(i) for i in row["inputs"])
        tip = (
            f"{row['index']}  {row['op']}\n{row['shape']} {row['dtype']}\ninputs {inputs}\n"
            f"saves {row['saved_bytes']:,} bytes for backward"
        )
        tip += f"\n{public_place(row['where'])}" if row["where"] else ""
        node = Node("op", row["op"], _shape(row["shape"]), tip)
        made[row["index"]] = node
        order[node] = len(order)
        (path[-1][1] if path else root).add(node)
        dots[node] = row["inputs"].count(None)
        for i in row["inputs"]:
            if i in made:
                edges[made[i], node] = None
            elif i is not None:
                uses.setdefault(i, []).append(node)
    if made:
        made[rows[-1]["index"]].kind = "op root"
    for row in rows:
        if row["sequence"] > 0:
            continue
        name = row["name"] or "leaf"
        tip = f"{row['index']}  {name}\n{row['shape']} {row['dtype']}"
        groups: list[list[Node]] = []
        for node in uses.get(row["index"], []):
            if groups and order[node] - order[groups[-1][-1]] <= FAR:
                groups[-1].append(node)
            else:
                groups.append([node])
        for n, group in enumerate(groups or [[]]):
            again = "\ndrawn again: it is the same leaf" if n else ""
            box = find_common_box(group) if group else root
            short = name.removeprefix(box.path) if box.path is not None else name
            leaf = Node("leaf again" if n else "leaf", short, _shape(row["shape"]), tip + again)
            box.add(leaf, first=True)
            for node in group:
                edges[leaf, node] = None
    return root, edges, dots


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) if shape else "scalar"
