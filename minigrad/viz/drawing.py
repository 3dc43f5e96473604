"""A picture of a tape as SVG: where everything is, and what it looks like."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from minigrad.viz.boxes import PAD, Box, Node, enclosing, find_common_box, is_leaf
from minigrad.viz.layout import STRAIGHT, Item, Line, Point, place

HEAD = 18.0  # the height of a box's label
LABEL = 5.0  # the space between a label and a line
SMALLEST = 0.7  # the scale to which a wide picture shrinks before it scrolls

# ── layout ────────────────────────────────────────────────────────────────────────────────────────


def _arrange(root: Box, edges: Sequence[tuple[Node, Node]]) -> list[tuple[Node, Node, list[Point]]]:
    """Give every node and box its corner, every edge its points; both relative to the root."""
    boxes = [root, *root.boxes()]
    lines: dict[Box, dict[tuple[Any, Any, int], None]] = {box: {} for box in boxes}
    ways = []
    keys = {node: n for n, node in enumerate(root.nodes())}
    for source, target in edges:
        key, box = keys[source], find_common_box([source, target])
        way: list[tuple[Box, tuple[Any, Any, int]]] = []
        child: Node | Box = source
        for outer in enclosing(source):
            if outer is box:
                break
            way.append((outer, (child, "out", key)))
            child = outer
        down = enclosing(target)
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
    for box in boxes:  # the corners become absolute, the outer boxes' first
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
        items.append(Item(*child.size, weight=0.25 if is_leaf(child) else 1.0))
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
    if box.label:  # it goes into the first gap between incoming lines
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

# Colors are variables, so that one picture fits light and dark pages, however the page states its theme: by the
# system's setting, by furo's data-theme, or by JupyterLab's data-jp-theme-light.
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


FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, section 2.2


def _escape(text: str) -> str:
    """Text escaped for XML; what XML does not allow in any form becomes the replacement character."""
    return html.escape(FORBIDDEN.sub("\ufffd", text))


def draw(root: Box, edges: Sequence[tuple[Node, Node]], dots: Mapping[Node, int], note: str) -> str:
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
        parts.append(f'<text class="box" x="{x + box.label_at:.1f}" y="{y + 17:.1f}">{_escape(box.label)}</text>')
    for _, _, points in drawn:
        x, y = points[-1]
        parts.append(f'<path d="{_curve([*points[:-1], (x, y - 5)])}"/>')
        parts.append(f'<path class="head" d="M{x:.1f} {y:.1f}l-3.5 -7h7z"/>')
    for node in root.nodes():
        (x, y), (w, h) = node.corner, node.size
        radius = h / 2 if node.kind.startswith("leaf") else 6
        parts.append(f"<g><title>{_escape(node.tip)}</title>")
        parts.append(
            f'<rect class="{node.kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius:g}"/>'
        )
        for n in range(dots.get(node, 0)):
            parts.append(f'<circle cx="{x + 8 + 8 * n:.1f}" cy="{y:.1f}" r="2.5"/>')
        middle, name = x + w / 2, _escape(node.name)
        parts.append(f'<text x="{middle:.1f}" y="{y + (17 if node.below else 16):.1f}">{name}</text>')
        if node.below:
            below = _escape(node.below)
            parts.append(f'<text class="below" x="{middle:.1f}" y="{y + 31:.1f}">{below}</text>')
        parts.append("</g>")
    if note:
        parts.append(f'<text class="note" x="{PAD}" y="{height - 6:.1f}">{_escape(note)}</text>')
    return "".join(parts) + "</svg>"


def _curve(points: Sequence[Point]) -> str:
    """Return a path downwards through the points, vertical at each of them."""
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
