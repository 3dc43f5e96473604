"""What pages show alike: figures that can be read on light and on dark ones, and tables.

It needs nothing beside it: a notebook of such a page brings it along.
"""

from collections.abc import Iterable

import matplotlib as mpl
from IPython.display import Markdown
from matplotlib_inline.backend_inline import set_matplotlib_formats

from minigrad import viz

# Figures have no ground of their own: their colors can be read on a light and on a dark page.
set_matplotlib_formats("svg")
mpl.rcParams.update(viz.STYLE | {"figure.figsize": (7.0, 3.0), "figure.constrained_layout.use": True})
COLORS = {"none": "#7d7d7d", "BN": "#2b7fd0", "LN": "#e0702b", "GN": "#2f9e5b", "IN": "#9b62c2", "WN": "#a3841b"}


def text(value: object) -> str:
    """A cell: yes and no, three digits that count, or the value as it is."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def table(header: str, rows: Iterable[Iterable[object]]) -> Markdown:
    """A table; the names of the columns are divided by |."""
    names = [name.strip() for name in header.split("|")]
    lines = [names, ["---"] * len(names), *([text(value) for value in row] for row in rows)]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))
