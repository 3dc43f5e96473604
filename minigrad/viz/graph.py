"""The tape as a picture: an SVG of what was recorded behind a tensor."""

import html
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from minigrad.engine.inspection import contents, entries
from minigrad.engine.tape import GradientError
from minigrad.engine.tensor import Tensor
from minigrad.nn import Module
from minigrad.viz.layout import STRAIGHT, Item, Line, Point, place
from minigrad.viz.names import names_of, names_of_variables
from minigrad.viz.sources import public_place

PAD, HEAD = 10.0, 18.0  # around the inside of a box, and above it for its label
LABEL = 5.0  # between a label and a line
SMALLEST = 0.7  # the part of its size to which a wide picture shrinks before one has to scroll
FAR = 12  # operations: a leaf used again after as many is drawn again there


class Node:
    """One drawn operation or leaf, or a folded box."""

    def __init__(self, kind: str, name: str, below: str, tip: str) -> None:
        self.kind, self.name, self.below, self.tip = kind, name, below, tip
        self.count = int(kind.startswith("op"))
        self.parent: Box | None = None
        self.corner: Point = (0.0, 0.0)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height, from the number of letters."""
        return max(7.4 * len(self.name), 6.4 * len(self.below)) + 20, 38.0 if self.below else 24.0


class Box:
    """What was recorded inside of one call of a module, in the order in which it was recorded."""

    def __init__(self, label: str, path: str | None) -> None:
        self.label, self.path = label, path  # the path is that of the module in the outermost one, where it is known
        self.parent: Box | None = None
        self.children: list[Node | Box] = []
        self.corner: Point = (0.0, 0.0)
        self.size = (0.0, 0.0)
        self.label_at = PAD
        self.ports: dict[tuple[str, int], float] = {}  # (in or out, key of a line) -> its distance from the left

    def add(self, child: "Node | Box", first: bool = False) -> None:
        """Put a child at the end, or at the beginning."""
        child.parent = self
        self.children.insert(0 if first else len(self.children), child)

    def nodes(self) -> Iterator[Node]:
        """All nodes inside, at any depth."""
        for child in self.children:
            if isinstance(child, Box):
                yield from child.nodes()
            else:
                yield child

    def boxes(self) -> "Iterator[Box]":
        """All boxes inside, at any depth, the outer ones first."""
        for child in self.children:
            if isinstance(child, Box):
                yield child
                yield from child.boxes()


class Graph:
    """A picture of the tape behind a tensor; what `minigrad.viz.graph` returns.

    In a notebook it shows itself. It follows the page's light or dark mode.

    Attributes
    ----------
    svg : str
        The picture, a complete SVG document.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import viz
    >>> x = mg.tensor(3.0, requires_grad=True)
    >>> picture = viz.graph(x.exp())
    >>> picture.svg.startswith("<svg ")
    True
    """

    def __init__(self, svg: str, operations: int, leaves: int) -> None:
        self.svg = svg
        self._text = f"Graph of {_count(operations, 'operation')} and {_count(leaves, 'leaf', 'leaves')}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to an SVG file.

        Examples
        --------
        >>> import minigrad as mg
        >>> from minigrad import viz
        >>> x = mg.tensor(3.0, requires_grad=True)
        >>> viz.graph(x * x).save("square.svg")
        """
        Path(path).write_text(self.svg, encoding="utf-8")

    def __repr__(self) -> str:
        return f"<{self._text}>"

    def _repr_svg_(self) -> str:
        return self.svg

    def _repr_html_(self) -> str:
        return f'<div style="overflow-x:auto">{self.svg}</div>'


def graph(y: Tensor, names: Module | Mapping[str, Tensor | Module] | None = None, max_nodes: int | None = 150) -> Graph:
    """Draw the tape behind a tensor: operations with the shapes of their results, leaves, and the way between them.

    The forward pass runs downwards, backward upwards. Operations that ran inside of a module stand in a box with its
    name. A dot at the upper edge of an operation is an input that no gradient flows to: data, or a constant. Where an
    operation stands under the mouse, what it saved and its source line (see `minigrad.record_source`) are shown.

    Parameters
    ----------
    y : Tensor
        A result that requires grad.
    names : Module or mapping of str to Tensor or Module, optional
        What leaves are called: a module's parameters by their paths, in a mapping with the key before them. Without it
        the caller's variables are looked through, for tensors and for modules.
    max_nodes : int or None
        Where there is more to draw, boxes are folded to single nodes, the innermost first, and then the middle of what
        remains; the picture says so. None draws everything.

    Returns
    -------
    Graph
        With ``svg`` and ``save(path)``; a notebook shows it.

    Raises
    ------
    ValueError
        If nothing is recorded behind `y`, or `max_nodes` is less than 3.
    TypeError
        If `y` is not a tensor, or `names` holds something else.
    GradientError
        If a backward pass has freed the tape.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import viz
    >>> x = mg.tensor([1.0, 2.0], requires_grad=True)
    >>> viz.graph((x * x).sum())
    <Graph of 2 operations and 1 leaf>
    """
    if not isinstance(y, Tensor):
        raise TypeError(f"[graph] expected a tensor, got {type(y).__name__}")
    if max_nodes is not None and max_nodes < 3:
        raise ValueError(f"[graph] expected max_nodes of 3 or more, got {max_nodes}")
    rows = entries(y)
    if not rows:
        raise ValueError(f"[graph] nothing is recorded behind the tensor of shape {y.shape}: it requires no grad")
    freed = next((row for row in rows if row["freed"]), None)
    if freed is not None:
        raise GradientError(
            f"[graph] the tape from {freed['op']} on was freed by a backward pass: draw it before that, or pass "
            f"retain_graph=True to backward"
        )
    named = names_of_variables(dict(sys._getframe(1).f_locals)) if names is None else names_of(names, "graph")
    root, edges, dots = _tree(rows, {s: leaf for s, (leaf, _) in contents(y).items() if leaf is not None}, named)
    total, note = len(rows), ""
    if max_nodes is not None and sum(1 for _ in root.nodes()) > max_nodes:
        moved = Folds(root, edges, max_nodes).place
        edges = {(moved(a), moved(b)): None for a, b in edges if moved(a) is not moved(b)}
        shown = sum(node.kind in ("op", "op root", "leaf") for node in root.nodes())
        note = f"{shown} of {total} entries; the others are folded into the nodes with a dashed border"
    leaves = sum(row["sequence"] < 0 for row in rows)
    return Graph(_svg(root, list(edges), dots, note), total - leaves, leaves)


# ── from rows to boxes ────────────────────────────────────────────────────────────────────────────


def _tree(
    rows: Sequence[dict[str, Any]], leaves: Mapping[int, Tensor], named: Mapping[int, str]
) -> tuple[Box, dict[tuple[Node, Node], None], dict[Node, int]]:
    """The boxes with their nodes, the edges, and how many inputs of a node no gradient flows to."""
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
        tensor = leaves.get(row["sequence"])
        name = "leaf" if tensor is None else named.get(id(tensor), "leaf")
        tip = f"{row['index']}  {name}\n{row['shape']} {row['dtype']}"
        groups: list[list[Node]] = []
        for node in uses.get(row["index"], []):
            if groups and order[node] - order[groups[-1][-1]] <= FAR:
                groups[-1].append(node)
            else:
                groups.append([node])
        for n, group in enumerate(groups or [[]]):
            again = "\ndrawn again: it is the same leaf" if n else ""
            box = _common(group) if group else root
            short = name.removeprefix(box.path) if box.path is not None else name
            leaf = Node("leaf again" if n else "leaf", short, _shape(row["shape"]), tip + again)
            box.add(leaf, first=True)
            for node in group:
                edges[leaf, node] = None
    return root, edges, dots


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def _shape(shape: tuple[int, ...]) -> str:
    return " × ".join(map(str, shape)) if shape else "scalar"


def _outwards(child: Node | Box) -> list[Box]:
    """The boxes around a node or box, the innermost first."""
    found, box = [], child.parent
    while box is not None:
        found.append(box)
        box = box.parent
    return found


def _common(nodes: Sequence[Node]) -> Box:
    """The innermost box that all nodes are in."""
    shared = _outwards(nodes[0])
    for node in nodes[1:]:
        around = set(_outwards(node))
        shared = [box for box in shared if box in around]
    return shared[0]


# ── folding ───────────────────────────────────────────────────────────────────────────────────────


class Folds:
    """Folds boxes, deepest first, then the middle of long ones, until no more than `most` nodes remain."""

    def __init__(self, root: Box, edges: dict[tuple[Node, Node], None], most: int) -> None:
        self.root = root
        self.places: dict[Node, Node] = {}  # where a node has gone
        self.users: dict[Node, list[Node]] = {}
        for leaf, user in edges:
            if leaf.kind.startswith("leaf"):
                self.users.setdefault(leaf, []).append(user)
        count = sum(1 for _ in root.nodes())
        while count > most:
            boxes = [(len(_outwards(box)), box) for box in root.boxes()]
            deepest = max((depth for depth, _ in boxes), default=0)
            for box in [box for depth, box in boxes if depth == deepest] or [root]:
                short = len(box.children) <= most // 2 or not self.shorten(box, most // 2)
                if short and box.parent is not None:
                    self.fold(box.parent, [box], box.label)
            before, count = count, sum(1 for _ in root.nodes())
            if count == before:
                break

    def place(self, node: Node) -> Node:
        """What stands for a node now."""
        while node in self.places:
            node = self.places[node]
        return node

    def shorten(self, box: Box, most: int) -> bool:
        """Fold the middle of a box, with the leaves that only it uses, to `most` children; False if it cannot be."""
        steps = [child for child in box.children if not _is_leaf(child)]
        leaves = [child for child in box.children if isinstance(child, Node) and _is_leaf(child)]
        ends = min(most // 2, (len(steps) - 2) // 2)
        while ends > 0:
            middle = steps[ends:-ends]
            inside = set(_nodes(middle))
            along = [leaf for leaf in leaves if all(self.place(user) in inside for user in self.users.get(leaf, ()))]
            if len(box.children) - len(middle) - len(along) < most:
                self.fold(box, [*middle, *along], "…")
                return True
            ends -= 1
        return False

    def fold(self, box: Box, children: Sequence[Node | Box], name: str) -> None:
        """Put one node in the place of children of a box."""
        inside = list(_nodes(children))
        folded = Node("folded", name, "", "")
        folded.count = sum(node.count for node in inside)
        folded.below = _count(folded.count, "operation")
        folded.tip = f"{name}: {folded.below}"
        gone = set(children)
        at = box.children.index(children[0])
        box.children = [child for child in box.children[:at] if child not in gone] + [folded] + [
            child for child in box.children[at:] if child not in gone
        ]  # fmt: skip
        folded.parent = box
        self.places.update((node, folded) for node in inside)


def _nodes(children: Sequence[Node | Box]) -> Iterator[Node]:
    for child in children:
        if isinstance(child, Box):
            yield from child.nodes()
        else:
            yield child


def _is_leaf(child: Node | Box) -> bool:
    return isinstance(child, Node) and child.kind.startswith("leaf")


# ── layout ────────────────────────────────────────────────────────────────────────────────────────


def _arrange(root: Box, edges: Sequence[tuple[Node, Node]]) -> list[tuple[Node, Node, list[Point]]]:
    """Give every node and box its corner, every edge its points; both relative to the root."""
    boxes = [root, *root.boxes()]
    lines: dict[Box, dict[tuple[Any, Any, int], None]] = {box: {} for box in boxes}
    ways = []
    keys = {node: n for n, node in enumerate(root.nodes())}
    for source, target in edges:
        key, box = keys[source], _common([source, target])
        way: list[tuple[Box, tuple[Any, Any, int]]] = []
        child: Node | Box = source
        for outer in _outwards(source):
            if outer is box:
                break
            way.append((outer, (child, "out", key)))
            child = outer
        down = _outwards(target)
        down = down[: down.index(box)][::-1]
        way.append((box, (child, down[0] if down else target, key)))
        for n, inner in enumerate(down):
            way.append((inner, ("in", down[n + 1] if n + 1 < len(down) else target, key)))
        for outer, line in way:
            lines[outer][line] = None
        ways.append((source, target, way))
    routes: dict[tuple[Box, tuple[Any, Any, int]], list[Point]] = {}
    for box in reversed(boxes):  # the inner ones first
        found = _arrange_box(box, list(lines[box]))
        routes.update(((box, line), route) for line, route in found.items())
    for box in boxes:  # from relative to absolute, the outer ones first
        for child in box.children:
            child.corner = (child.corner[0] + box.corner[0], child.corner[1] + box.corner[1])
    drawn = []
    for source, target, way in ways:
        points: list[Point] = []
        for box, line in way:
            x, y = box.corner
            points += [(x + px, y + py) for px, py in routes[box, line]]
        drawn.append((source, target, points))
    return drawn


def _arrange_box(box: Box, lines: Sequence[tuple[Any, Any, int]]) -> dict[tuple[Any, Any, int], list[Point]]:
    """Place the children of one box, relative to its corner, and the lines between them."""
    incoming = list(dict.fromkeys(key for source, _, key in lines if source == "in"))
    outgoing = list(dict.fromkeys(key for _, target, key in lines if target == "out"))
    items = [Item(0.0, 0.0, -1, STRAIGHT) for _ in incoming]
    numbers: dict[Any, int] = {("in", key): n for n, key in enumerate(incoming)}
    for child in box.children:
        numbers[child] = len(items)
        items.append(Item(*child.size, weight=0.25 if _is_leaf(child) else 1.0))
    for key in outgoing:
        numbers["out", key] = len(items)
        items.append(Item(0.0, 0.0, 1, STRAIGHT))

    def shift(end: Any, kind: str, key: int) -> float:
        return end.ports[kind, key] - end.size[0] / 2 if isinstance(end, Box) else 0.0

    placed = place(items, [
        Line(numbers["in", key] if source == "in" else numbers[source],
             numbers["out", key] if target == "out" else numbers[target], key,
             shift(source, "out", key), shift(target, "in", key))
        for source, target, key in lines
    ])  # fmt: skip
    inset, top, width = PAD, PAD + (HEAD if box.label else 0.0), placed.width + 2 * PAD
    if box.label:  # in the first gap between the lines that come in
        wide = 6.8 * len(box.label)
        lines_in = sorted(inset + placed.corners[numbers["in", key]][0] for key in incoming)
        starts = [PAD, *(x + LABEL for x in lines_in)]
        fits = [a for a, b in zip(starts, lines_in, strict=False) if b - a >= wide]
        box.label_at = fits[0] if fits else starts[-1]
        width = max(width, box.label_at + wide + PAD)
    box.size = (width, placed.height + top + PAD)
    for child in box.children:
        x, y = placed.corners[numbers[child]]
        child.corner = (x + inset, y + top)
    for kind, keys in (("in", incoming), ("out", outgoing)):
        for key in keys:
            box.ports[kind, key] = placed.corners[numbers[kind, key]][0] + inset
    routes = {}
    for line, route in zip(lines, placed.routes, strict=True):
        points = [(x + inset, y + top) for x, y in route]
        if line[0] == "in":
            points.insert(0, (points[0][0], 0.0))
        if line[1] == "out":
            points.append((points[-1][0], box.size[1]))
        routes[line] = points
    return routes


# ── drawing ───────────────────────────────────────────────────────────────────────────────────────

# Colors are variables, so that one picture serves on a light and on a dark page, whichever way the page says what it
# is: by the system's setting, by furo's data-theme, or by JupyterLab's data-jp-theme-light.
LIGHT = "--ink:#1f2937;--faint:#6b7280;--line:#94a3b8;--op:#ffffff;--edge:#64748b;--box:#64748b;--leaf:#dbeafe;" \
    "--leaf-edge:#2563eb;--root:#fef3c7;--root-edge:#d97706"  # fmt: skip
DARK = "--ink:#e5e7eb;--faint:#9ca3af;--line:#64748b;--op:#1f2937;--edge:#94a3b8;--box:#94a3b8;--leaf:#172554;" \
    "--leaf-edge:#60a5fa;--root:#451a03;--root-edge:#f59e0b"  # fmt: skip
STYLE = f"""
.mg-graph{{{LIGHT};font-family:ui-sans-serif,system-ui,sans-serif}}
@media (prefers-color-scheme:dark){{.mg-graph{{{DARK}}}}}
body[data-theme="light"] .mg-graph,body[data-jp-theme-light="true"] .mg-graph{{{LIGHT}}}
body[data-theme="dark"] .mg-graph,body[data-jp-theme-light="false"] .mg-graph{{{DARK}}}
.mg-graph text{{fill:var(--ink);font-size:12px;text-anchor:middle}}
.mg-graph text.below{{fill:var(--faint);font-size:10.5px}}
.mg-graph text.box{{fill:var(--faint);font-size:11px;text-anchor:start}}
.mg-graph text.note{{fill:var(--faint);font-size:11px;text-anchor:start}}
.mg-graph rect.box{{fill:var(--box);fill-opacity:.07;stroke:var(--box);stroke-opacity:.45}}
.mg-graph rect.op,.mg-graph rect.folded{{fill:var(--op);stroke:var(--edge)}}
.mg-graph rect.folded{{stroke-dasharray:4 3}}
.mg-graph rect.root{{fill:var(--root);stroke:var(--root-edge);stroke-width:1.5}}
.mg-graph rect.leaf{{fill:var(--leaf);stroke:var(--leaf-edge)}}
.mg-graph rect.again{{stroke-dasharray:3 3}}
.mg-graph path{{fill:none;stroke:var(--line);stroke-width:1.3}}
.mg-graph path.head{{fill:var(--line);stroke:none}}
.mg-graph circle{{fill:var(--op);stroke:var(--edge)}}
"""


FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # by XML 1.0, section 2.2


def _escaped(text: str) -> str:
    """Text as it may stand in XML; what may not stand there in any form becomes the replacement character."""
    return html.escape(FORBIDDEN.sub("\ufffd", text))


def _svg(root: Box, edges: Sequence[tuple[Node, Node]], dots: Mapping[Node, int], note: str) -> str:
    drawn = _arrange(root, edges)
    width, height = root.size
    width, height = max(width, 6.2 * len(note) + 2 * PAD), height + (18 if note else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mg-graph" role="img" aria-label="the tape as a graph" '
        f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.1f} {height:.1f}" '
        f'style="max-width:100%;min-width:{SMALLEST * width:.0f}px;height:auto"><style>{STYLE}</style>'
    ]
    for box in root.boxes():
        (x, y), (w, h) = box.corner, box.size
        parts.append(f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="8"/>')
        parts.append(f'<text class="box" x="{x + box.label_at:.1f}" y="{y + 17:.1f}">{_escaped(box.label)}</text>')
    for _, _, points in drawn:
        x, y = points[-1]
        parts.append(f'<path d="{_curve([*points[:-1], (x, y - 5)])}"/>')
        parts.append(f'<path class="head" d="M{x:.1f} {y:.1f}l-3.5 -7h7z"/>')
    for node in root.nodes():
        (x, y), (w, h) = node.corner, node.size
        radius = h / 2 if node.kind.startswith("leaf") else 6
        parts.append(f"<g><title>{_escaped(node.tip)}</title>")
        parts.append(
            f'<rect class="{node.kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:g}"/>'
        )
        for n in range(dots.get(node, 0)):
            parts.append(f'<circle cx="{x + 8 + 8 * n:.1f}" cy="{y:.1f}" r="2.5"/>')
        middle, name = x + w / 2, _escaped(node.name)
        parts.append(f'<text x="{middle:.1f}" y="{y + (17 if node.below else 16):.1f}">{name}</text>')
        if node.below:
            below = _escaped(node.below)
            parts.append(f'<text class="below" x="{middle:.1f}" y="{y + 31:.1f}">{below}</text>')
        parts.append("</g>")
    if note:
        parts.append(f'<text class="note" x="{PAD}" y="{height - 6:.1f}">{_escaped(note)}</text>')
    return "".join(parts) + "</svg>"


def _curve(points: Sequence[Point]) -> str:
    """A path downwards through the points, vertical at each of them."""
    (x, y), *rest = points
    path = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in rest:
        if abs(next_x - x) < 0.05:
            path.append(f"V{next_y:.1f}")
        else:
            middle = (y + next_y) / 2
            path.append(f"C{x:.1f} {middle:.1f} {next_x:.1f} {middle:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return "".join(path)
