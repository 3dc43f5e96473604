"""Shared helpers of the pages: figures that are readable on light and dark backgrounds, and tables.

This file imports no other file of the documentation, because the downloaded notebooks include it.
"""

from collections.abc import Iterable

import matplotlib as mpl
from IPython.display import Markdown
from matplotlib_inline.backend_inline import set_matplotlib_formats

from minigrad import viz

# Figures are transparent, and their colors are readable on a light and on a dark page.
set_matplotlib_formats("svg")
mpl.rcParams.update(viz.STYLE | {"figure.figsize": (7.0, 3.0), "figure.constrained_layout.use": True})
COLORS = {"none": "#7d7d7d", "BN": "#2b7fd0", "LN": "#e0702b", "GN": "#2f9e5b", "IN": "#9b62c2", "WN": "#a3841b"}


def text(value: object) -> str:
    """A table cell: yes or no for a bool, three significant digits for a float, other values as they are."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(header: str, rows: Iterable[Iterable[object]]) -> Markdown:
    """A Markdown table; | separates the column names in `header`."""
    names = [name.strip() for name in header.split("|")]
    lines = [names, ["---"] * len(names), *([text(value) for value in row] for row in rows)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))
