"""Every figure can be used by keyboard, finger and eye, whatever it shows."""

import re

import numpy as np
import pytest
from figure_pages import FIGURES, INKS, each_figure, luminance
from test_site import DOCS, pytestmark  # noqa: F401


def test_every_figure_has_a_script_and_the_other_way_round():
    scripts = {path.stem for path in (DOCS / "_static" / "figures").glob("*.js")}
    assert scripts == {"shared", *FIGURES}
    assert len(FIGURES) >= 5


@each_figure
def test_scripts_are_loaded_where_they_are_needed(site, name):
    loaded = re.findall(r"figures/(\w+)\.js", (site / FIGURES[name]).with_suffix(".html").read_text(encoding="utf-8"))
    assert loaded == ["shared", name]
    assert "figures/" not in (site / "start" / "index.html").read_text(encoding="utf-8")


@each_figure
def test_every_control_has_a_name(visit, name):
    controls = re.findall(
        r"- (slider|textbox|radio|button|group|img|table)\b(.*)", visit(name).locator("[data-figure]").aria_snapshot()
    )
    assert controls
    assert not [kind for kind, rest in controls if kind != "table" and not rest.startswith(' "')]


@each_figure
def test_keys_reach_and_change_every_control(visit, name):
    tab = visit(name)
    box = tab.locator("[data-figure]")
    sequence = "[...document.querySelectorAll('[data-figure] :is(input, button):enabled')]"
    for index, kind in enumerate(tab.evaluate(f"{sequence}.map((e) => e.type)")):
        control = tab.locator("[data-figure] :is(input, button):enabled").nth(index)
        if kind == "radio":
            continue
        control.focus()
        if kind == "button":
            tab.keyboard.press("Enter")
        elif kind == "range" or control.get_attribute("inputmode"):
            was, shown = float(control.input_value()), box.inner_text()
            down = float(control.get_attribute("max") or np.inf) == was
            tab.keyboard.press("ArrowDown" if down else "ArrowUp")
            assert (float(control.input_value()) < was) is down
            assert float(control.input_value()) != was
            assert box.inner_text() != shown
        else:
            tab.keyboard.press("End")
            tab.keyboard.type(" * a")
            assert control.input_value().endswith("* a")
    for group in tab.locator("[data-figure] fieldset:enabled").all():
        before = group.locator("input:checked").input_value()
        group.locator("input:checked").focus()
        tab.keyboard.press("ArrowRight")
        assert group.locator("input:checked").input_value() != before

    # Tab passes through all of them in their order, once per group of radio buttons
    stops = tab.evaluate(f"{sequence}.filter((e) => e.type !== 'radio' || e.checked).length")
    tab.locator("[data-figure] :is(input:not([type=radio]), input:checked, button):enabled").first.focus()
    for _ in range(stops - 1):
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.matches('[data-figure] *')")
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    tab.keyboard.press("Tab")
    assert not tab.evaluate("document.activeElement.matches('[data-figure] *')")


@each_figure
@pytest.mark.parametrize("scheme", ["light", "dark", "switched to dark"])
def test_texts_can_be_read(visit, name, scheme):
    tab = visit(name, dark=scheme == "dark", theme="dark" if "switched" in scheme else "auto")
    tab.locator("[data-figure] :is(input, button)").first.focus()
    inks = tab.evaluate(INKS)
    assert len(inks) > 8
    fields = tab.locator("[data-figure] input[type=text]")
    if fields.count():  # also what is said about bad input
        fields.first.fill("?")
        assert tab.locator(".says.wrong").count() == 1
        inks += tab.evaluate(INKS)
    faint = []
    for text, *colors in inks:
        levels = sorted([luminance(colors[:3]), luminance(colors[3:])])
        if (levels[1] + 0.05) / (levels[0] + 0.05) < 4.5:
            faint.append((text, colors))
    assert not faint
    ground = np.mean([luminance(colors[3:]) for _, *colors in inks])
    assert ground < 0.1 if "dark" in scheme else ground > 0.6


@each_figure
def test_it_fits_a_phone(visit, name):
    tab = visit(name, width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    right = "(box) => Math.max(...[box, ...box.querySelectorAll('*')].map((e) => e.getBoundingClientRect().right))"
    assert tab.locator("[data-figure]").evaluate(right) <= 390
    small = "(box) => [...box.querySelectorAll('svg')].filter((e) => e.getBoundingClientRect().width < 310).length"
    assert tab.locator("[data-figure]").evaluate(small) == 0


@each_figure
def test_without_javascript_it_says_what_it_shows(visit, name):
    box = visit(name, scripts=False, width=390).locator("[data-figure]")
    assert box.locator("input, svg").count() == 0
    assert len(box.inner_text().split()) > 20
    assert box.locator("table").count() == 1
    assert box.bounding_box()["x"] + box.bounding_box()["width"] <= 390
