"""The figures of the site: built pages, opened in a browser, and what is read from them."""

import re

import numpy as np
import pytest
from test_site import DOCS

import minigrad as mg

FIGURES = {
    name: path.relative_to(DOCS).with_suffix("")
    for path in sorted(DOCS.rglob("*.md"))
    for name in re.findall(r'^<div data-figure="(\w+)">$', path.read_text(encoding="utf-8"), re.MULTILINE)
}

# The color of each text in a figure, and what is painted under it, as [text, red, green, blue, red, green, blue].
INKS = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => below.map((value, k) => value + (top[k] - value) * top[3] / 255);
  const ground = (e) => e ? over(rgba(getComputedStyle(e).backgroundColor), ground(e.parentElement)) : [255, 255, 255];
  const box = document.querySelector("[data-figure]"), found = [];
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT);
  const seen = [...box.querySelectorAll("input[type=text], button")];
  while (walker.nextNode()) if (walker.currentNode.data.trim()) seen.push(walker.currentNode.parentElement);
  for (const e of seen) {
    if (e.closest(":disabled, .hidden")) continue;
    const below = ground(e), style = getComputedStyle(e);
    found.push([e.textContent || e.value, ...over(rgba(e.closest("svg") ? style.fill : style.color), below), ...below]);
  }
  return found;
}"""
SHOW = """([name, theme]) => {
  document.body.dataset.theme = theme;
  const box = document.querySelector("[data-figure]");
  box.replaceChildren();
  figures[name].show(box);
}"""


def luminance(color):
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in np.array(color) / 255]
    return np.dot([0.2126, 0.7152, 0.0722], linear)


def number(text):
    """The number that a figure shows."""
    return float(text.replace("−", "-").replace("∞", "inf"))


def numbers(locator):
    return np.array([number(text) for text in locator.all_inner_texts()])


def attributes(locator, *names):
    """Numbers among the attributes of elements, a row for each element."""
    return np.array(
        locator.evaluate_all("(all, names) => all.map((e) => names.map((name) => +e.getAttribute(name)))", names)
    )


def tensor(values, **options):
    return mg.tensor(np.asarray(values, dtype="float64"), **options)


each_figure = pytest.mark.parametrize("name", FIGURES)
