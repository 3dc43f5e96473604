"""Layered drawing of a directed graph without cycles: what is computed later is further down.

The stages follow Sugiyama, Tagawa and Toda (1981): layers by longest paths, dummies where an edge crosses a
layer, orders by barycenters, then coordinates. The last stage places a layer by least squares, which with a distance to
keep between neighbors is an isotonic regression, solved by pooling (Barlow et al. 1972).
"""

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import NamedTuple

SWEEPS = 6
GAP = 14.0  # the space between neighbors in a layer
RISE, STEP = 24.0, 6.0  # the space between layers; STEP next to a layer that only lines pass through
STRAIGHT = 8.0  # the weight of a line that only passes a layer

Point = tuple[float, float]


class Item(NamedTuple):
    """A rectangle to place; ``port`` is -1 for a line that comes in at the top, 1 for one that leaves at the bottom.

    An item with more ``weight`` is aligned more closely with the items that it is connected to.
    """

    width: float
    height: float
    port: int = 0
    weight: float = 1.0


class Line(NamedTuple):
    """From one item to a later one, ``start`` and ``end`` away from their middles. Equal keys share one line."""

    source: int
    target: int
    key: Hashable
    start: float = 0.0
    end: float = 0.0


class Placed(NamedTuple):
    """Upper left corners of the items, the points that each line passes, and the size of the whole."""

    corners: list[Point]
    routes: list[list[Point]]
    width: float
    height: float


def place(items: Sequence[Item], lines: Sequence[Line]) -> Placed:
    """Place items; every line leads from an item to one further on in the list."""
    layers = _layers(items, lines)
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    widths = [item.width for item in items]
    weights = [item.weight for item in items]
    for k, layer in enumerate(layers):
        rows[layer].append(k)
    # Dummies continue the list of items; links join items and dummies of neighboring layers.
    chains: dict[tuple[int, Hashable], list[int]] = {}
    links: list[tuple[int, int, float, float]] = []
    for source, target, key, start, end in lines:
        chain = chains.setdefault((source, key), [])
        while len(chain) < layers[target] - layers[source] - 1:
            dummy = len(widths)
            widths.append(0.0)
            weights.append(STRAIGHT)
            links.append((chain[-1] if chain else source, dummy, 0.0 if chain else start, 0.0))
            rows[layers[source] + len(chain) + 1].append(dummy)
            chain.append(dummy)
        reached = layers[target] - layers[source] - 1
        links.append((chain[reached - 1] if reached else source, target, 0.0 if reached else start, end))
    above: list[list[tuple[int, float]]] = [[] for _ in widths]
    below: list[list[tuple[int, float]]] = [[] for _ in widths]
    for a, b, start, end in links:
        above[b].append((a, start - end))
        below[a].append((b, end - start))
    _order(rows, above, below)
    middles = _coordinates(rows, widths, weights, above, below)
    left = min((middles[k] - widths[k] / 2 for row in rows for k in row), default=0.0)
    heights = [max((items[k].height for k in row if k < len(items)), default=0.0) for row in rows]
    tops = _tops(heights)
    corners = [
        (middles[k] - item.width / 2 - left, tops[layers[k]] + (heights[layers[k]] - item.height) / 2)
        for k, item in enumerate(items)
    ]
    routes = []
    for source, target, key, start, end in lines:
        x, layer = middles[source] + start - left, layers[source]
        port = items[source].port == -1
        route = [(x, 0.0), (x, heights[0])] if port else [(x, corners[source][1] + items[source].height)]
        for step, dummy in enumerate(chains[source, key][: layers[target] - layer - 1], layer + 1):
            x = middles[dummy] - left
            route += [(x, tops[step]), (x, tops[step] + heights[step])]
        x, layer = middles[target] + end - left, layers[target]
        if items[target].port == 1:
            route += [(x, tops[layer]), (x, tops[-1] + heights[-1])]
        else:
            route.append((x, corners[target][1]))
        routes.append(route)
    right = max((middles[k] + widths[k] / 2 for row in rows for k in row), default=0.0)
    return Placed(corners, routes, right - left, tops[-1] + heights[-1] if rows else 0.0)


def _tops(heights: Sequence[float]) -> list[float]:
    tops = [0.0]
    for above, below in pairwise(heights):
        tops.append(tops[-1] + above + (RISE if above and below else STEP))
    return tops


def _layers(items: Sequence[Item], lines: Sequence[Line]) -> list[int]:
    """Longest paths from the top; an item without predecessors moves down to just above its first successor."""
    layers = [0] * len(items)
    followers: list[list[int]] = [[] for _ in items]
    led_to = [False] * len(items)
    for line in lines:
        followers[line.source].append(line.target)
        led_to[line.target] = True
    for k, targets in enumerate(followers):
        for target in targets:
            layers[target] = max(layers[target], layers[k] + 1)
    last = max(layers, default=0)
    for k, targets in enumerate(followers):
        if items[k].port == 1:
            layers[k] = last
        elif not led_to[k] and items[k].port == 0 and targets:
            layers[k] = min(layers[target] for target in targets) - 1
    return layers


def _order(rows: list[list[int]], above: list[list[tuple[int, float]]], below: list[list[tuple[int, float]]]) -> None:
    """Sort each layer by the mean place of its neighbors in the layer before, downwards and upwards in turn."""
    place = {k: n for row in rows for n, k in enumerate(row)}
    for sweep in range(SWEEPS):
        towards, order = (above, rows[1:]) if sweep % 2 == 0 else (below, rows[-2::-1])
        for row in order:
            means = {}
            for k in row:
                near = towards[k]
                means[k] = sum(place[other] for other, _ in near) / len(near) if near else float(place[k])
            row.sort(key=means.__getitem__)
            for n, k in enumerate(row):
                place[k] = n


def _coordinates(
    rows: list[list[int]], widths: Sequence[float], weights: Sequence[float], above: list[list[tuple[int, float]]],
    below: list[list[tuple[int, float]]],
) -> list[float]:  # fmt: skip
    """Return the middles: each layer in turn as near as possible to where its neighbors would have it."""
    middles = [0.0] * len(widths)
    offsets: list[list[float]] = []
    for row in rows:
        x = 0.0
        offset: list[float] = []
        for n, k in enumerate(row):
            x += (widths[row[n - 1]] + widths[k]) / 2 + GAP if n else 0.0
            offset.append(x)
            middles[k] = x
        offsets.append(offset)
        for k in row:
            middles[k] -= x / 2
    for sweep in range(SWEEPS):
        turns = range(len(rows)) if sweep % 2 == 0 else range(len(rows) - 1, -1, -1)
        for n in turns:
            row, wishes = rows[n], []
            for k in row:
                near = (above[k] if sweep % 2 == 0 else below[k]) or (below[k] if sweep % 2 == 0 else above[k])
                total = sum(weights[other] for other, _ in near)
                wish = sum(weights[other] * (middles[other] + shift) for other, shift in near)
                wishes.append(wish / total if near else middles[k])
            pulls = [weights[k] for k in row]
            pooled = _fit_rising([wish - distance for wish, distance in zip(wishes, offsets[n], strict=True)], pulls)
            for k, value, distance in zip(row, pooled, offsets[n], strict=True):
                middles[k] = value + distance
    return middles


def _fit_rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the nondecreasing sequence nearest to the values in the weighted sum of squares."""
    blocks: list[tuple[float, float, int]] = []  # sum, weight, length
    for value, weight in zip(values, weights, strict=True):
        total, pull, count = value * weight, weight, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / pull:
            more, stronger, length = blocks.pop()
            total, pull, count = total + more, pull + stronger, count + length
        blocks.append((total, pull, count))
    return [total / pull for total, pull, count in blocks for _ in range(count)]
