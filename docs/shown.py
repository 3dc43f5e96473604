"""What several pages show alike: tables, and what the recorded experiments say of a claim."""

import re
from collections.abc import Iterable
from pathlib import Path

import matplotlib as mpl
from IPython.display import Markdown

RESULTS = Path(__file__).resolve().parent.parent / "examples" / "results" / "README.md"

# A white card with dark ink can be read on a light and on a dark page.
mpl.rcParams.update({
    "figure.facecolor": "white", "savefig.facecolor": "white", "figure.figsize": (7.0, 3.0), "figure.dpi": 130,
    "figure.constrained_layout.use": True, "axes.grid": True, "grid.alpha": 0.3, "font.size": 9,
})  # fmt: skip
COLORS = {"none": "#6e6e6e", "BN": "#0b6cb8", "LN": "#d1500a", "GN": "#2a8a3e", "IN": "#8a4fb0", "WN": "#a3841b"}


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


def claims(experiment: str, *words: str) -> Markdown:
    """The rows about an experiment in the table of recorded results, those that hold all of the words."""
    rows = []
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"| [{experiment}]") and all(word in line for word in words):
            rows.append([cell.strip() for cell in line.strip("| ").split(" | ")][1:])
    if not rows:
        raise LookupError(f"no claim of {experiment} with {words}")
    return table("the document says | criterion | measured | verdict", rows)


def recorded(experiment: str, start: str = "") -> Markdown:
    """The table of numbers in an experiment's own section, the first whose header begins with the words given."""
    section = re.split(r"^## ", RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    block = next(part for part in section if part.startswith(experiment + "\n"))
    found = next(part for part in re.findall(r"(?:^\|.*\n)+", block, re.MULTILINE) if part.startswith(f"| {start}"))
    return Markdown(found)
