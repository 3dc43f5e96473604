"""The page of a tape in a browser: content, interaction, and speed with 2,000 entries."""

import re

import numpy as np
import pytest
from browsers import open_tab
from pages import content

import minigrad as mg
from minigrad import nn, viz
from minigrad.nn import functional as F

LOAD, STEP = 1.5, 0.05  # seconds, for 2,000 entries on a busy machine of two cores


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page; errors of its script and network requests fail the test."""
    tabs, troubles = [], []

    def open_page(page, hash="", **options):
        path = tmp_path / "page.html"
        path.write_text(page if isinstance(page, str) else page.html, encoding="utf-8")
        tabs.append(open_tab(browser, f"{path.as_uri()}{hash}", troubles, **options))
        return tabs[-1]

    yield open_page
    for tab in tabs:
        tab.context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def mlp():
    """A page of 13 entries: six leaves, then linear, layer_norm, relu, linear, cross_entropy, sum, multiply."""
    mg.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.LayerNorm(5), nn.ReLU(), nn.Linear(5, 3))
    with viz.record():
        loss = F.cross_entropy(model(mg.random.normal(0, 1, (4, 6))), mg.tensor([0, 1, 2, 1]), reduction="sum") * 0.25
    return viz.explore(loss, names=model, title="An MLP")


@pytest.fixture(scope="module")
def long_tape():
    mg.manual_seed(0)
    w = mg.random.normal(0, 1, (32, 32)).requires_grad_()
    h = mg.random.normal(0, 1, (16, 32))
    with viz.record():
        for _ in range(500):
            h = (h @ w * 0.2).tanh() + 0.1
        loss = (h * h).sum()
    page = viz.explore(loss)
    assert len(loss.tape()) >= 2000
    return page


def step(tab):
    return tab.inner_text("#step")


def test_a_reader_steps_forward_and_backward(visit, mlp):
    tab = visit(mlp)
    assert step(tab) == "forward #6, step 7 of 21"
    tab.keyboard.press("Home")
    assert step(tab) == "forward #0, step 1 of 21"
    for _ in range(6):
        tab.keyboard.press("ArrowRight")
    assert step(tab) == "forward #6, step 7 of 21"
    assert tab.inner_text(".operation strong") == "linear"
    assert tab.locator("#picture .gradient").count() == 0
    tab.keyboard.press("b")
    assert step(tab) == "backward #12, step 14 of 21"
    tab.click("#next")
    assert step(tab) == "backward #11, step 15 of 21"
    assert tab.locator("#picture .gradient").count() == 2
    tab.keyboard.press("End")
    assert step(tab) == "backward: 6 leaves, step 21 of 21"
    tab.keyboard.press("ArrowRight")
    assert step(tab) == "backward: 6 leaves, step 21 of 21"
    tab.keyboard.press("Home")
    tab.keyboard.press("ArrowLeft")
    assert step(tab) == "forward #0, step 1 of 21"
    tab.fill("#slider", "18")
    assert step(tab) == "backward #7, step 19 of 21"


def test_leaves_take_their_gradients_in_one_step(visit, mlp):
    tab = visit(mlp)
    tab.keyboard.press("End")
    names = {"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias"}
    assert set(tab.locator("#picture .symbol").all_inner_texts()) == names
    assert tab.locator("#picture .gradient :is(table, canvas)").count() == 6
    assert tab.locator("#rows .row.now").count() == 6
    tab.locator("#rows .row", has_text="1.bias").click()
    assert step(tab) == "backward: 6 leaves, step 21 of 21"
    assert tab.locator("#picture .symbol").first.inner_text() == "1.bias"
    tab.keyboard.press("ArrowDown")
    assert step(tab) == "backward #6, step 20 of 21"
    tab.keyboard.press("ArrowUp")
    assert step(tab) == "backward: 6 leaves, step 21 of 21"


def test_values_equation_and_source_of_an_entry(visit, mlp):
    tab = visit(mlp, hash="#9")
    assert step(tab) == "forward #8, step 9 of 21"
    cards = tab.locator("#picture .card")
    inside, outside = (
        [float(text.replace("−", "-")) for text in cards.nth(k).locator("td").all_inner_texts()] for k in (0, 1)
    )
    assert len(inside) == 20
    assert outside == [max(value, 0) for value in inside]
    assert tab.inner_text(".equation.live") == "y = max(x, 0)"
    tab.keyboard.press("b")
    tab.locator("#rows .row[data-entry='8']").click()
    assert step(tab) == "backward #8, step 18 of 21"
    assert tab.inner_text(".equation.live") == "dx = g where x > 0, else 0"
    assert "cross_entropy" in tab.inner_text("pre.code .here")
    assert "Sequential › 2: ReLU" in tab.inner_text("#picture .operation")


def test_references_lead_from_entry_to_entry(visit, mlp):
    tab = visit(mlp, hash="#8")
    tab.locator("#picture .ref", has_text="1.weight").click()
    assert step(tab) == "forward #3, step 4 of 21"
    tab.locator("#picture .users .ref").click()
    assert step(tab) == "forward #7, step 8 of 21"


def test_a_gradient_is_shown_when_it_is_complete(visit):
    """x is used in three products: backward, its gradient is complete once the first of them is visited, last."""
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    with viz.record():
        y = (x * 2 + x * 3 + x * 4).sum()
    tab = visit(viz.explore(y, names={"x": x}), hash="#10")
    assert tab.inner_text(".operation strong") == "multiply"
    assert "1 of 3 uses have contributed" in tab.inner_text("#picture")
    tab.keyboard.press("End")
    assert tab.locator("#picture .gradient td").all_inner_texts() == ["9", "9"]


def test_search_filters_by_op_and_module(visit, mlp):
    tab = visit(mlp)
    tab.keyboard.press("/")
    tab.keyboard.type("layernorm")
    assert tab.locator("#rows .op").all_inner_texts() == ["layer_norm"]  # parameters belong to no module
    tab.fill("#find", "SEQUENTIAL relu")
    assert tab.locator("#rows .op").all_inner_texts() == ["relu"]
    tab.keyboard.press("ArrowDown")
    assert step(tab) == "forward #8, step 9 of 21"
    tab.keyboard.press("Escape")
    assert tab.locator("#rows .row").count() == 13


def test_a_map_of_a_long_tape_leads_to_its_entries(visit, mlp, long_tape):
    """It is there for long tapes only, and has a color for each module."""
    assert not visit(mlp).is_visible("#map")
    tab = visit(long_tape)
    count = len(content(long_tape)["entries"])
    box = tab.locator("#map").bounding_box()
    tab.mouse.click(box["x"] + 5, box["y"] + 0.75 * box["height"])
    assert int(re.search(r"#(\d+)", step(tab))[1]) == pytest.approx(0.75 * count, abs=0.005 * count)

    model = nn.Sequential(*(nn.Sequential(*(nn.Tanh() for _ in range(60))) for _ in range(2)))
    tab = visit(viz.explore(model(mg.ones(3, requires_grad=True)).sum(), names=model))
    colors = tab.evaluate("""() => [0.2, 0.45, 0.55, 0.8].map((share) => {
      const map = document.querySelector("#map");
      return map.getContext("2d").getImageData(map.width / 2, share * map.height, 1, 1).data.join();
    })""")
    assert colors[0] == colors[1] != colors[2] == colors[3]


def test_a_recurrent_layer_opens_into_time_steps_and_operations(visit):
    mg.manual_seed(0)
    layer = nn.GRU(3, 4)
    with viz.record():
        y, _ = layer(mg.random.normal(0, 1, (3, 2, 3)))
        loss = (y * y).sum()
    tab = visit(viz.explore(loss, names=layer))
    names = tab.locator("#rows .row[aria-level='2'] .op")
    before = step(tab)
    assert names.count() == 0
    tab.locator("#rows .row", has_text="gru").last.click()
    there = step(tab)
    tab.click("#picture .opener")
    assert step(tab).rpartition(" of ")[0] == there.rpartition(" of ")[0]  # the same place in a longer tape
    texts = names.all_inner_texts()
    assert [text for text in texts if "t = " in text] == ["▸ t = 1", "▸ t = 2", "▸ t = 3"]
    tab.locator("#rows .row", has_text="t = 2").click()
    assert step(tab).startswith("forward t = 2, step ")
    assert tab.locator("#picture .symbol").all_inner_texts() == ["xt", "ht−1", "r", "z", "n", "ht"]
    assert tab.locator("#picture .gradient").count() == 0
    tab.keyboard.press("Enter")
    assert tab.locator("#rows .row[aria-level='3'] .scope", has_text="r").count() > 0
    tab.keyboard.press("ArrowRight")
    assert step(tab).startswith("forward t = 2, step ")
    assert tab.locator("#picture .operation strong").inner_text() != "t = 2"
    tab.keyboard.press("ArrowLeft")
    tab.keyboard.press("Enter")
    tab.keyboard.press("b")
    tab.locator("#rows .row", has_text="t = 2").click()
    assert step(tab).startswith("backward t = 2, step ")
    assert tab.locator("#picture .gradient :is(table, canvas)").count() == 6
    tab.keyboard.press("ArrowRight")
    assert step(tab).startswith("backward t = 1, step ")
    tab.click("#picture .users .ref")
    assert tab.locator("#picture .operation strong").inner_text() == "gru"
    tab.click("#rows .row.now .toggle")
    tab.keyboard.press("Home")
    assert step(tab).rpartition(" of ")[2] == before.rpartition(" of ")[2]


def test_the_focus_is_on_the_row_and_not_around_the_list(visit, mlp):
    tab = visit(mlp)
    tab.locator("#rows .row[data-entry='7']").click()
    tab.keyboard.press("ArrowDown")
    outline = "e => getComputedStyle(e).outlineStyle"
    assert tab.evaluate("document.activeElement.id") == "list"
    assert tab.eval_on_selector("#list", outline) == "none"
    assert tab.eval_on_selector("#rows .row.now", outline) == "solid"
    assert tab.get_attribute("#list", "aria-activedescendant") == "row-8"
    assert tab.get_attribute("#rows .row.now", "id") == "row-8"


def test_cells_show_their_index_and_number(visit, rng):
    small, large = rng.normal(size=(2, 3, 4)), rng.normal(size=(40, 70))
    x, y = mg.tensor(small, requires_grad=True), mg.tensor(large, requires_grad=True)
    with viz.record():
        loss = x.exp().sum() + y.exp().sum()
    tab = visit(viz.explore(loss, names={"x": x, "y": y}))
    tip = tab.locator("#tip")
    for name in ("x", "y"):
        tab.locator("#rows .row.leaf", has_text=name).click()
        if name == "x":
            tab.locator("#picture td").nth(4 * 4 + 2).hover()
            index, number = tip.inner_text().replace("−", "-").rsplit(" ", 1)
            assert index == "[1, 1, 2]"
            assert float(number) == pytest.approx(small[1, 1, 2], rel=1e-7)
            tab.focus("#picture table")
            before = step(tab)
            for key in ("ArrowLeft", "ArrowDown", "ArrowRight"):
                tab.keyboard.press(key)
            assert step(tab) == before
            assert tip.inner_text().startswith("[1, 2, 2] ")
            assert tab.locator("#picture td.at").count() == 1
            tab.keyboard.press("Tab")
            assert not tip.is_visible()
            continue
        canvas = tab.locator("#picture canvas")
        box = canvas.bounding_box()
        for row, column in ((0, 0), (7, 31), (15, 12)):
            canvas.hover(position={"x": (column + 0.5) * box["width"] / 32, "y": (row + 0.5) * box["height"] / 16})
            index, number = tip.inner_text().replace("−", "-").split(" ≈ ")
            at = tuple(np.linspace(0, n - 1, k).round().astype(int)[i] for n, k, i in ((40, 16, row), (70, 32, column)))
            assert index == f"[{at[0]}, {at[1]}]"
            assert float(number) == pytest.approx(large[at], abs=np.abs(large).max() / 127 + 0.05 * abs(large[at]))
    tab.keyboard.press("Home")
    assert not tip.is_visible()


def test_memory_rises_forward_and_falls_backward(visit, mlp):
    tab = visit(mlp, hash="#1")
    held = []
    for _ in range(21):
        held.append(float(tab.inner_text("#bytes").split(" B held")[0]))
        tab.keyboard.press("ArrowRight")
    assert held == sorted(held[:13]) + sorted(held[13:], reverse=True)
    assert held[12] == max(held) > 0
    assert held[-1] == 0
    box = tab.locator("#curve").bounding_box()
    tab.mouse.click(box["x"] + box["width"] * 19.5 / 21, box["y"] + 10)
    assert step(tab) == "backward #6, step 20 of 21"


def test_it_plays(visit, mlp):
    tab = visit(mlp)
    tab.select_option("#speed", "60")
    tab.click("#play")
    assert tab.get_attribute("#play", "aria-label") == "Pause"
    tab.locator("#play[aria-label='Play']").wait_for(timeout=10000)
    assert step(tab) == "backward: 6 leaves, step 21 of 21"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1000, 1400])
def test_nothing_is_wider_than_the_screen(visit, mlp, width, dark):
    tab = visit(mlp, width=width, height=844, dark=dark, hash="#20")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = tab.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    light = [sum(map(int, color[4:-1].split(","))) for color in (ground, ink)]
    assert light == sorted(light, reverse=not dark)
    assert tab.locator("#picture .card").first.is_visible()
    assert tab.locator("#picture .brief").is_visible() == (width < 1080)


def test_hostile_names_are_text(visit):
    name = """</script><img src=x onerror="document.title='broken'">"""
    layer = type(name, (nn.Linear,), {})(2, 3)
    with viz.record():
        y = layer(mg.ones((1, 2))).sum()
    tab = visit(viz.explore(y, names={name: layer.weight}, title=name))
    assert tab.title() == name
    assert tab.inner_text("h1") == name
    assert name in tab.locator("#rows .scope").all_inner_texts()
    assert tab.locator("img").count() == 0


def test_what_a_tape_does_not_keep_is_said(visit):
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    tab = visit(viz.explore((x + 1).sum(), recording=viz.record()), hash="#3")
    assert "not kept: run the forward pass under viz.record()" in tab.inner_text("#picture")
    assert "not recorded" in tab.inner_text("#details")


def test_numbers_out_of_the_ordinary(visit):
    x = mg.tensor([float("nan"), float("inf"), -1e-9, 123456.0], requires_grad=True)
    with viz.record():
        loss = mg.concat([x] * 20).sum() + x[:0].sum()
    tab = visit(viz.explore(loss, names={"x": x}), hash="#1")
    assert tab.locator("#picture td").all_inner_texts() == ["NaN", "∞", "−1.00e−9", "123456"]
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#picture canvas, #picture .note").count() >= 1


def test_inside_a_notebook_it_follows_the_theme_around_it(visit, mlp):
    tab = visit(f"<!doctype html><body data-theme='dark'>{mlp._repr_html_()}</body>")
    frame = tab.frame_locator("iframe")
    assert frame.locator(":root.dark #step").inner_text() == "forward #6, step 7 of 21"
    tab.evaluate("document.body.dataset.theme = 'light'")
    frame.locator(":root:not(.dark) #step").wait_for()


def lenet():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.BatchNorm2d(4), nn.Flatten(), nn.Dropout(0.5),
        nn.Linear(36, 3),
    )  # fmt: skip
    return F.cross_entropy(model(mg.random.normal(0, 1, (2, 1, 8, 8))), mg.tensor([0, 2])), model


def lstm_cell():
    cell = nn.LSTMCell(3, 4, norm="layer")
    h, c = cell(mg.random.normal(0, 1, (2, 3)), (mg.zeros((2, 4)), mg.zeros((2, 4))))
    return (h * h).sum() + c.sum(), cell


def lstm():
    layer = nn.LSTM(3, 4, norm="layer")
    y, (_, c) = layer(mg.random.normal(0, 1, (5, 2, 3)), lengths=[5, 2])
    return (y * y).sum() + c.sum(), layer


def second_order():
    layer = nn.LayerNorm(3)
    y = layer(mg.random.normal(0, 1, (4, 3))).exp().sum()
    return (mg.grad(y, layer.weight, create_graph=True) ** 2).sum(), layer


def oddities():
    x = mg.random.normal(0, 1, (30, 2)).requires_grad_()
    rows = mg.concat([x[k] for k in range(30)])  # more inputs than the page shows at first
    empty = x[:0].exp().sum()
    chosen = mg.where(rows > 0, rows, float("nan")).sum()
    return chosen + empty + mg.take(x, mg.tensor([0, 0]), axis=0).sum(), None


@pytest.mark.parametrize("make", [lenet, lstm_cell, lstm, second_order, oddities])
@pytest.mark.parametrize("recorded", [True, False])
def test_every_step_of_every_kind_of_tape_can_be_seen(visit, make, recorded):
    mg.manual_seed(0)
    if recorded:
        with viz.record() as recording:
            loss, model = make()
    else:
        (loss, model), recording = make(), viz.record()
    tab = visit(viz.explore(loss, names=model, recording=recording), hash="#1")
    empty = tab.evaluate("""() => {
        const steps = Number(document.querySelector("#slider").max), empty = [];
        for (let t = 0; t <= steps; t++) {
            const picture = document.querySelector("#picture"), text = picture.textContent + document.querySelector("#details").textContent;
            if (!picture.querySelector(".card") || !document.querySelector(".equation.live").textContent || /undefined|\\[object|null/.test(text)) empty.push(t);
            dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        }
        return empty;
    }""")
    assert empty == []
    (last, steps) = re.search(r"^backward.*, step (\d+) of (\d+)$", step(tab)).groups()
    assert last == steps


def test_two_thousand_entries_load_and_step_quickly(visit, long_tape):
    tab = visit(long_tape)
    loads = []
    for _ in range(3):
        tab.reload()
        loads.append(
            tab.evaluate("(t => t.loadEventEnd - t.startTime)(performance.getEntriesByType('navigation')[0])") / 1000
        )
    assert sorted(loads)[1] < LOAD
    # from the key to the end of layout, over both halves of the tape; the browser decides when to draw the frame
    steps = tab.evaluate("""() => {
        const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key }));
        const taken = [];
        for (const key of ["ArrowRight", "b", "ArrowRight"]) for (let k = 0; k < (key === "b" ? 1 : 30); k++) {
            const start = performance.now();
            press(key);
            document.body.getBoundingClientRect();
            taken.push((performance.now() - start) / 1000);
        }
        return taken;
    }""")
    assert len(steps) == 61
    assert sorted(steps)[30] < STEP
    assert tab.locator("#rows .row").count() < 60
    tab.keyboard.press("End")
    assert step(tab).startswith("backward #0, step ")
