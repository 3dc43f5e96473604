"""Notebook output: tables of the tape and of summaries, and collapsible modules."""

import re
from xml.etree import ElementTree

import minigrad as mg
from minigrad import nn


def parse(html):
    """Parse HTML into a tree; raises if a tag is not closed or a character not escaped."""
    return ElementTree.fromstring(f"<page>{html.replace(' open>', '>')}</page>")


def cells(html):
    rows = [["".join(cell.itertext()) for cell in row] for row in parse(html).iter("tr")]
    return rows[0], rows[1:]


def test_the_tape():
    x = mg.ones((2, 3), requires_grad=True)
    y = x.exp().sum()
    table = y.tape()
    head, rows = cells(table._repr_html_())
    assert head == ["#", "op", "inputs", "shape", "dtype", "saved bytes"]
    assert [row[1] for row in rows] == ["leaf", "exp", "sum"]
    assert [row[2] for row in rows] == ["", "0", "1"]
    y.backward()
    assert [row[1] for row in cells(y.tape()._repr_html_())[1]] == ["sum (freed by backward)"]
    assert f"{table.saved_bytes} bytes are saved" in table._repr_html_()


def test_the_cell_of_a_notebook_is_called_that():
    namespace = {"x": mg.ones((), requires_grad=True)}
    with mg.record_source():
        exec(compile("y = x.exp()", "/somewhere/ipykernel_12/345.py", "exec"), namespace)
    _, rows = cells(namespace["y"].tape()._repr_html_())
    assert rows[-1][-1].strip() == "notebook cell:1"


def test_a_long_tape_shows_its_ends():
    y = mg.ones((2, 3), requires_grad=True)
    for _ in range(399):
        y = y.exp()
    assert [row[0] for row in cells(y.tape()._repr_html_())[1]] == [str(k) for k in range(400)]
    assert [row[0] for row in cells(y.exp().tape()._repr_html_())[1]][200] == "… 1 more row …"
    for _ in range(20_000):
        y = y.exp()
    page = y.tape()._repr_html_()
    _, rows = cells(page)
    assert [row[0] for row in rows] == [*map(str, range(200)), "… 20,000 more rows …", *map(str, range(20_200, 20_400))]
    assert len(rows[200]) == 1
    assert len(page) < 500_000
    assert f"{y.tape().saved_bytes:,} bytes are saved" in page


def test_the_tape_of_modules_with_source():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    with mg.record_source():
        y = model(mg.ones((2, 3))).sum()  # here
    head, rows = cells(y.tape()._repr_html_())
    assert head[-2:] == ["module", "source"]
    found = {row[1]: row[-2:] for row in rows if row[1] != "leaf"}
    assert [place for place, _ in found.values()] == ["0 (Linear)", "1 (ReLU)", ""]
    assert all(
        re.match(r"([\w/]+/)?test_reprs\.py:\d+  ", source) and source.endswith("# here")
        for _, source in found.values()
    )
    assert "module" not in repr(y.tape()).splitlines()[0]


def test_summary():
    summary = nn.summary(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), (None, 4))
    head, rows = cells(summary._repr_html_())
    assert head == ["Layer (type)", "Output shape", "Parameters"]
    assert rows == [["0 (Linear)", "(None, 3)", "15"], ["1 (BatchNorm1d)", "(None, 3)", "12"]]
    for line in str(summary).splitlines()[-3:]:
        assert line in summary._repr_html_()


def test_modules_fold():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
            self.gain = nn.Parameter(mg.ones(3))
            self.gain.requires_grad_(False)

        def extra_repr(self):
            return "<b & c>"

    model = Named()
    page = model._repr_html_()
    text = "".join(parse(page).itertext())
    assert page.count("<details") == 3  # a module without content does not fold
    assert page.count(" open>") == 2
    for part in ("Named(<b & c>) 18 parameters", "gain: float32 (3,), frozen", "(body): Sequential() 15 parameters",
                 "(0): Linear(", "weight: float32 (3, 4)", "(1): ReLU()"):  # fmt: skip
        assert part in text


def test_names_are_escaped():
    model, name = nn.Module(), "<i>"
    setattr(model, name, nn.ReLU())
    assert "(<i>): ReLU()" in "".join(parse(model._repr_html_()).itertext())
