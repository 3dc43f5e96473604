"""The layers, orders and coordinates of graph drawings."""

import numpy as np
import pytest

from minigrad.viz.layout import GAP, Item, Line, _fit_rising, place


def test_a_diamond():
    items = [Item(40, 20)] * 4
    placed = place(items, [Line(0, 1, 0), Line(0, 2, 0), Line(1, 3, 1), Line(2, 3, 2)])
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = placed.corners
    assert y0 < y1 == y2 < y3
    assert x0 == x3 == pytest.approx((x1 + x2) / 2)
    assert abs(x1 - x2) == 40 + GAP
    assert placed.width == 80 + GAP


def test_sources_stand_right_above_what_they_lead_to():
    placed = place([Item(10, 10)] * 4, [Line(0, 1, 0), Line(1, 3, 1), Line(2, 3, 2)])
    assert placed.corners[2][1] == placed.corners[1][1]


def test_lines_pass_beside_nodes_between_their_ends():
    """From the first to the last of a chain, around the middle."""
    items = [Item(60, 20)] * 3
    placed = place(items, [Line(0, 1, "a"), Line(1, 2, "b"), Line(0, 2, "a")])
    (left, top), width = placed.corners[1], 60
    passing = [x for x, y in placed.routes[2] if top <= y <= top + 20]
    assert passing
    assert all(x < left or x > left + width for x in passing)


def test_crossings_are_undone():
    """Four parallel chains whose ends are given in another order."""
    items = [Item(10, 10)] * 8
    pairs = [(0, 6), (1, 4), (2, 7), (3, 5)]
    placed = place(items, [Line(a, b, a) for a, b in pairs])
    tops = sorted(pairs, key=lambda pair: placed.corners[pair[0]][0])
    assert tops == sorted(pairs, key=lambda pair: placed.corners[pair[1]][0])


def test_pooling_is_the_nearest_fit_rising_sequence(rng):
    """Its elements are the largest of the smallest means around them (Barlow et al. 1972)."""
    for _ in range(20):
        values, weights = rng.normal(size=7), rng.uniform(0.5, 3, size=7)
        expected = [
            max(
                min(np.average(values[j : k + 1], weights=weights[j : k + 1]) for k in range(i, 7))
                for j in range(i + 1)
            )
            for i in range(7)
        ]
        np.testing.assert_allclose(_fit_rising(values.tolist(), weights.tolist()), expected)
