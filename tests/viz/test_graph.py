"""The picture of a tape shows every operation, leaf and edge, inside the right boxes and without overlaps."""

import itertools
import json
import math
import os
import re
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from checks import doubling, raises, refuses

import minigrad as mg
from minigrad import nn, viz
from minigrad.nn import functional as F
from minigrad.viz.layout import GAP, Item, Line, _fit_rising, place

# Seconds, on a busy machine; a sanitizer, which is loaded before Python, makes everything several times slower.
LIMIT = 10 if os.environ.get("LD_PRELOAD") else 2
SVG = "{http://www.w3.org/2000/svg}"


class Picture:
    """An SVG of `graph`, read back."""

    def __init__(self, graph):
        self.root = ElementTree.fromstring(graph.svg)
        self.nodes = []  # (kind, (x, y, width, height), texts, tip)
        for group in self.root.iter(f"{SVG}g"):
            rect = group.find(f"{SVG}rect")
            texts = [text.text for text in group.iter(f"{SVG}text")]
            self.nodes.append((rect.get("class"), area(rect), texts, group.find(f"{SVG}title").text))
        boxes = [rect for rect in self.root.findall(f"{SVG}rect") if rect.get("class") == "box"]
        labels = [text for text in self.root.findall(f"{SVG}text") if text.get("class") == "box"]
        self.boxes = [(label.text, area(rect)) for rect, label in zip(boxes, labels, strict=True)]
        self.heads = [path for path in self.root.findall(f"{SVG}path") if path.get("class") == "head"]
        self.curves = [path.get("d") for path in self.root.findall(f"{SVG}path") if path.get("class") is None]
        self.dots = len(list(self.root.iter(f"{SVG}circle")))
        notes = [text.text for text in self.root.findall(f"{SVG}text") if text.get("class") == "note"]
        self.note = notes[0] if notes else ""

    def of(self, kind):
        return [node for node in self.nodes if node[0].split()[0] == kind]

    def named(self, name):
        return [node for node in self.nodes if node[2][0] == name]


def area(rect):
    return tuple(float(rect.get(key)) for key in ("x", "y", "width", "height"))


def inside(small, big):
    return (big[0] <= small[0] and big[1] <= small[1] and small[0] + small[2] <= big[0] + big[2]
            and small[1] + small[3] <= big[1] + big[3])  # fmt: skip


def apart(a, b):
    return a[0] + a[2] <= b[0] or b[0] + b[2] <= a[0] or a[1] + a[3] <= b[1] or b[1] + b[3] <= a[1]


def mlp():
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3))
    return F.cross_entropy(model(mg.ones((2, 6))), mg.zeros(2, dtype=mg.int64)), model


class Cell(nn.Module):
    """An LSTM with layer normalization (Ba, Kiros and Hinton 2016), composed of smaller modules."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(5, 24, bias=False), nn.Linear(6, 24, bias=False)
        self.norm_x, self.norm_h, self.norm_c = nn.LayerNorm(24), nn.LayerNorm(24), nn.LayerNorm(6)

    def forward(self, x, h, c):
        f, i, o, g = mg.split(self.norm_h(self.h(h)) + self.norm_x(self.x(x)), 4, axis=-1)
        c = mg.sigmoid(f) * c + mg.sigmoid(i) * mg.tanh(g)
        return mg.sigmoid(o) * mg.tanh(self.norm_c(c)), c


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.head = Cell(), nn.Linear(6, 2)

    def forward(self, x):
        h = c = mg.zeros((x.shape[1], 6))
        for step in range(len(x)):
            h, c = self.cell(x[step], h, c)
        return self.head(h).sum()


def lenet():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.LayerNorm((4, 12, 12)), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3),
        nn.ReLU(), nn.Flatten(), nn.Linear(96, 10),
    )  # fmt: skip
    return F.cross_entropy(model(mg.ones((2, 1, 12, 12))), mg.zeros(2, dtype=mg.int64)), model


def residual():
    x, w = mg.ones((4, 4), requires_grad=True), mg.ones((4, 4), requires_grad=True)
    y = x
    for _ in range(4):
        y = y + 0.5 * (y @ w).tanh()
    return y.sum(), {"x": x, "w": w}


def lstm():
    layer = nn.LSTM(3, 4, norm="layer")
    y, (h, c) = layer(mg.ones((5, 2, 3)))
    return y.sum() + h.sum() + c.sum(), layer


def differentiated():
    x = mg.ones((2, 3), requires_grad=True)
    (g,) = mg.grad((F.layer_norm(x, (3,)) ** 2).sum(), [x], create_graph=True)
    return g.sum(), {"x": x}


def unrolled():
    model = Unrolled()
    return model(mg.ones((3, 2, 5))), model


EXAMPLES = [mlp, lenet, unrolled, residual, lstm, differentiated]


@pytest.mark.parametrize("example", EXAMPLES)
def test_everything_is_drawn(example):
    y, names = example()
    rows, picture = y.tape(), Picture(viz.graph(y, names, max_nodes=None))
    ops = [row for row in rows if row["op"] != "leaf"]
    assert sorted(node[2][0] for node in picture.of("op")) == sorted(row["op"] for row in ops)
    first = [node for node in picture.of("leaf") if "again" not in node[0]]
    assert len(first) == len(rows) - len(ops)
    assert {node[2][0] for node in first}.isdisjoint({"leaf"})  # all have names
    joined = {(i, row["index"]) for row in ops for i in row["inputs"] if i is not None}
    assert len(picture.heads) == len(picture.curves) == len(joined)
    assert picture.dots == sum(row["inputs"].count(None) for row in ops)
    assert picture.note == ""


@pytest.mark.parametrize("example", EXAMPLES)
def test_later_operations_are_further_down(example):
    y, names = example()
    picture = Picture(viz.graph(y, names, max_nodes=None))
    tops = {int(node[3].split()[0]): node[1] for node in picture.of("op")}
    for row in y.tape():
        for i in row["inputs"] if row["op"] != "leaf" else []:
            if i in tops:
                assert tops[i][1] + tops[i][3] < tops[row["index"]][1]
    for curve in picture.curves:  # and every line leads downwards all the way
        parts = re.findall(r"([MVC])([-\d. ]+)", curve)
        heights = [
            float(y)
            for kind, numbers in parts
            for y in numbers.split()[0 if kind == "V" else 1 :: 1 if kind == "V" else 2]
        ]
        assert heights == sorted(heights)


@pytest.mark.parametrize("example", EXAMPLES)
def test_nothing_lies_over_another(example):
    y, names = example()
    picture = Picture(viz.graph(y, names, max_nodes=None))
    for (_, a, texts, _), (_, b, others, _) in itertools.combinations(picture.nodes, 2):
        assert apart(a, b), (texts, others)
    for (label, a), (other, b) in itertools.combinations(picture.boxes, 2):
        assert apart(a, b) or inside(a, b) or inside(b, a), (label, other)
    for _, a, texts, _ in picture.nodes:
        for label, box in picture.boxes:
            assert apart(a, box) or inside(a, box), (texts, label)
    width, height = float(picture.root.get("width")), float(picture.root.get("height"))
    assert all(inside(node[1], (0, 0, width + 1, height + 1)) for node in picture.nodes)


def test_modules_are_boxes_one_for_each_call():
    y, names = mlp()
    labels = [label for label, _ in Picture(viz.graph(y, names)).boxes]
    assert labels == ["Sequential", "0: Linear", "1: LayerNorm", "2: ReLU", "3: Linear"]
    y, names = unrolled()
    picture = Picture(viz.graph(y, names, max_nodes=None))
    labels = [label for label, _ in picture.boxes]
    assert labels.count("cell: Cell") == 3
    assert labels.count("norm_c: LayerNorm") == 3
    # a leaf that is used again far away is drawn again, with a note
    again = [node for node in picture.of("leaf") if "again" in node[0]]
    assert again
    assert all("the same leaf" in node[3] for node in again)


def test_operations_stand_in_the_box_of_their_module():
    y, names = mlp()
    picture = Picture(viz.graph(y, names))
    boxes = dict(picture.boxes)
    for op, label in (("layer_norm", "1: LayerNorm"), ("relu", "2: ReLU")):
        ((_, at, _, _),) = picture.named(op)
        assert [name for name, box in boxes.items() if inside(at, box)] == ["Sequential", label]
    ((_, at, _, _),) = picture.named("cross_entropy")
    assert not any(inside(at, box) for box in boxes.values())


def test_leaves_have_the_names_of_the_callers_variables():
    slope = mg.tensor([1.0, 2.0], requires_grad=True)
    layer = nn.Linear(2, 1)
    picture = Picture(viz.graph((layer(slope)).sum()))
    assert {node[2][0] for node in picture.of("leaf")} == {"slope", "weight", "bias"}
    given = Picture(viz.graph((layer(slope)).sum(), {"<s>&'\"": slope}))
    assert {node[2][0] for node in given.of("leaf")} == {"<s>&'\"", "weight", "bias"}


def test_paths_of_parameters_begin_where_their_box_ends():
    y, model = unrolled()
    names = {node[2][0] for node in Picture(viz.graph(y, model)).of("leaf")}
    assert names == {"weight", "bias"}
    y, layer = lstm()  # its norms are not called as modules: the box is that of the layer
    names = {node[2][0] for node in Picture(viz.graph(y, layer)).of("leaf")}
    assert names == {name for name, _ in layer.named_parameters()}


def test_the_shapes_and_what_is_saved():
    x = mg.ones((3, 4), requires_grad=True)
    with mg.record_source():
        y = x.exp().sum()
    ((_, _, (op, shape), tip),) = Picture(viz.graph(y)).named("exp")
    assert (op, shape) == ("exp", "3 × 4")
    assert "saves 48 bytes" in tip
    assert "test_graph.py:" in tip
    ((kind, _, (_, shape), _),) = Picture(viz.graph(y)).named("sum")
    assert (kind, shape) == ("op root", "scalar")


def test_a_leaf_alone_and_a_parameter_used_twice():
    x = mg.tensor(2.0, requires_grad=True)
    picture = Picture(viz.graph(x))
    assert [node[2] for node in picture.nodes] == [["x", "scalar"]]
    assert viz.graph(x)._text == "Graph of 0 operations and 1 leaf"
    assert len(Picture(viz.graph(x * x)).heads) == 1


def chain(length):
    y = mg.ones(3, requires_grad=True)
    for _ in range(length // 2):
        y = (y * 1.01).tanh()
    return y


def test_a_long_tape_is_folded_and_says_so():
    y = chain(2000)
    start = time.perf_counter()
    picture = Picture(viz.graph(y))
    assert time.perf_counter() - start < LIMIT
    assert len(picture.nodes) <= 150
    ((_, _, (name, below), _),) = picture.of("folded")
    drawn = len(picture.of("op"))
    assert (name, below) == ("…", f"{2000 - drawn:,} operations")
    assert picture.note.startswith(f"{drawn + 1} of 2001 entries")
    assert len(picture.heads) == len(picture.nodes) - 1  # still one chain


def test_two_thousand_entries_at_once():
    y = chain(2000)
    start = time.perf_counter()
    picture = Picture(viz.graph(y, max_nodes=None))
    assert time.perf_counter() - start < LIMIT
    assert len(picture.of("op")) == 2000


def test_boxes_are_folded_before_anything_else():
    model = Unrolled()
    y = model(mg.ones((20, 2, 5)))
    picture = Picture(viz.graph(y, max_nodes=200))
    folded = picture.of("folded")
    assert len(picture.nodes) <= 200
    assert {node[2][0] for node in folded} <= {"x: Linear", "h: Linear", "norm_x: LayerNorm", "norm_h: LayerNorm",
                                               "norm_c: LayerNorm", "cell: Cell", "head: Linear", "…"}  # fmt: skip
    counted = sum(int(node[2][1].split()[0].replace(",", "")) for node in folded)
    ops = sum(row["op"] != "leaf" for row in y.tape())
    assert counted + len(picture.of("op")) == ops
    few = Picture(viz.graph(y, max_nodes=12))
    assert len(few.nodes) <= 12
    assert [label for label, _ in few.boxes] == ["Unrolled"]


def test_a_long_box_keeps_its_ends():
    class Long(nn.Module):
        def forward(self, x):
            for _ in range(300):
                x = x.tanh()
            return x

    y = Long()(mg.ones(2, requires_grad=True)).sum()
    picture = Picture(viz.graph(y, max_nodes=40))
    assert [label for label, _ in picture.boxes] == ["Long"]
    assert len(picture.named("tanh")) >= 10
    assert len(picture.of("folded")) == 1


def test_shows_and_saves_itself(tmp_path):
    y, names = mlp()
    graph = viz.graph(y, names)
    assert repr(graph) == "<Graph of 6 operations and 6 leaves>"
    assert graph._repr_svg_() == graph.svg
    assert graph.svg in graph._repr_html_()
    graph.save(tmp_path / "mlp.svg")
    assert (tmp_path / "mlp.svg").read_text(encoding="utf-8") == graph.svg


def test_light_and_dark():
    """The picture follows the theme of the page, or else of the system."""
    x = mg.ones((), requires_grad=True)
    style = ElementTree.fromstring(viz.graph(x.exp()).svg).find(f"{SVG}style").text
    for rule in (
        "prefers-color-scheme:dark", 'body[data-theme="dark"]', 'body[data-theme="light"]', "data-jp-theme-light",
    ):  # fmt: skip
        assert rule in style


def test_errors():
    x = mg.ones(2, requires_grad=True)
    refuses(TypeError, "graph", "expected a tensor, got list", viz.graph, [x])
    match = r"\[graph\] expected a tensor that depends on something .* got one of shape \(2,\)"
    raises(mg.GradientError, match, viz.graph, mg.ones(2))
    refuses(ValueError, "graph", "expected max_nodes of 3 or more, got 2", viz.graph, x.exp(), max_nodes=2)


NAMES = [
    (3, "as a module or a mapping, got int"),
    ({1: mg.ones(2)}, "that are strings, got 1 of type int"),
    ({"x": [1.0]}, "of tensors and modules, got list for 'x'"),
    ({"x": type("Tensor", (), {"__module__": "torch"})()}, "of tensors and modules, got torch.Tensor for 'x'"),
]


@pytest.mark.parametrize("draw", [viz.graph, viz.explore])
@pytest.mark.parametrize("names, message", NAMES, ids=["int", "key", "value", "foreign"])
def test_names_that_are_none(draw, names, message):
    x = mg.ones((), requires_grad=True)
    raises(TypeError, rf"^\[{draw.__name__}\] expected names {message}$", draw, x.exp(), names=names)


@pytest.mark.parametrize("most", ["5", b"5", [3], 1j, math.nan, 5.0, np.array([3, 4])])
def test_max_nodes_that_is_no_integer(most):
    with pytest.raises(TypeError, match=r"^\[graph\] expected an integer max_nodes, got "):
        viz.graph(mg.ones(1, requires_grad=True) * 2, max_nodes=most)


@pytest.mark.parametrize("path, error", [
    (None, TypeError), (3, TypeError), (["x"], TypeError), ("a\0b", ValueError), ("\ud800", ValueError),
])  # fmt: skip
def test_paths_that_are_none(path, error):
    raises(error, r"^\[graph\] expected a path", viz.graph(mg.ones(1, requires_grad=True) * 2).save, path)


@pytest.mark.parametrize(
    "name", ["", "a\0b", "\ud800", "\uffff", "x\ny\r\t", "\"'<&>]]>", "\x1b[31m", "\u202e", "x" * 10_000]
)
def test_names_that_xml_cannot_hold(tmp_path, name):
    x = mg.ones(1, requires_grad=True)
    model = nn.Module()
    picture = viz.graph(x * 2, names={name: x})
    picture.save(tmp_path / "names.svg")
    ElementTree.parse(tmp_path / "names.svg")
    if name:
        model.register_module(name, nn.Linear(1, 1))
        y = getattr(model, name)(x)
        ElementTree.fromstring(viz.graph(y, names=model).svg.encode())


def test_names_of_tensors_and_modules_in_one_mapping():
    x, layers = mg.ones(2, requires_grad=True), [nn.Linear(2, 2), nn.Linear(2, 2, bias=False)]
    y = layers[1](layers[0](x)).sum()
    names = {"_x": x, "longer": x, "a": layers[0], "b": layers[1]}
    wanted = {"_x", "a.weight", "a.bias", "b.weight"}
    assert {node[2][0] for node in Picture(viz.graph(y, names)).of("leaf")} == wanted
    (text,) = re.findall(r'<script type="application/json" id="tape">(.*?)</script>', viz.explore(y, names=names).html)
    assert {entry["name"] for entry in json.loads(text)["entries"] if entry["leaf"]} == wanted


def test_a_function_that_is_called_leaf_is_an_operation():
    x = mg.ones(2, requires_grad=True)
    graph = viz.graph(doubling("leaf").apply(x).exp())
    picture = Picture(graph)
    assert repr(graph) == "<Graph of 2 operations and 1 leaf>"
    assert [node[2][0] for node in picture.of("op")] == ["leaf", "exp"]
    assert [node[2][0] for node in picture.of("leaf")] == ["x"]
    y, _ = mg.value_and_grad(lambda x: doubling("leaf").apply(x).sum())(mg.ones(2))
    assert not y.requires_grad  # it depends on nothing else that does


def test_what_xml_forbids_is_replaced():
    x = mg.ones(2, requires_grad=True)
    kind = type("Box\x0b\x01\x7f", (nn.Module,), {"forward": lambda self, x: doubling("up\x1b[1m\ufffe\ttab").apply(x)})
    graph = viz.graph(kind()(x), {"\x08name\x85\ud800": x})
    picture = Picture(graph)  # XML that can be read
    assert [node[2][0] for node in picture.of("op")] == ["up\ufffd[1m\ufffd\ttab"]
    assert [node[2][0] for node in picture.of("leaf")] == ["\ufffdname\x85\ufffd"]
    assert [label for label, _ in picture.boxes] == ["Box\ufffd\ufffd\x7f"]
    graph.svg.encode("utf-8")


def test_tooltips_hold_no_folder_of_the_machine(tmp_path, monkeypatch):
    namespace = {"x": mg.ones((), requires_grad=True)}
    with mg.record_source():
        exec(compile("y = x.exp()", str(tmp_path / "secret" / "inner" / "code.py"), "exec"), namespace)
    ((_, _, _, tip),) = Picture(viz.graph(namespace["y"])).named("exp")
    assert tip.splitlines()[-1] == "inner/code.py:1"
    monkeypatch.chdir(tmp_path)
    ((_, _, _, tip),) = Picture(viz.graph(namespace["y"])).named("exp")
    assert tip.splitlines()[-1] == str(Path("secret/inner/code.py:1"))


def test_available_without_an_import_of_its_own():
    assert mg.viz.graph is viz.graph


def test_a_tape_that_was_freed_is_not_drawn_as_if_it_were_whole():
    x = mg.ones(3, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    match = r"^\[graph\] expected a tape that is whole, got one .* freed from sum on: .*retain_graph=True"
    raises(mg.GradientError, match, viz.graph, y)
    kept = (x * x).sum()
    kept.backward(retain_graph=True)
    assert repr(viz.graph(kept)) == "<Graph of 2 operations and 1 leaf>"


@pytest.mark.parametrize("show", [viz.graph, viz.explore])
def test_a_tape_whose_leaf_became_another_tensor_is_not_shown(show):
    x, w = mg.ones(3, requires_grad=True), mg.ones(3, requires_grad=True)
    y = (x + w).sum()
    w.set_(mg.ones((2, 2)))
    raises(mg.GradientError, rf"^\[{show.__name__}\] .* a leaf of shape \(3,\) became another tensor .*again$", show, y)


# ── layers, orders and coordinates ───────────────────────────────────────────────────────────────────


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
