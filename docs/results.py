"""The recorded results of the experiments, read from examples/results."""

import re
from pathlib import Path

from IPython.display import Markdown
from shown import table

RESULTS = Path(__file__).resolve().parent.parent / "examples" / "results" / "README.md"


def _rows(experiment: str, words: tuple[str, ...]) -> list[list[str]]:
    rows = []
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"| [{experiment}]") and all(word in line for word in words):
            rows.append([cell.strip() for cell in line.strip("| ").split(" | ")][1:])
    if not rows:
        raise LookupError(f"no claim of {experiment} with {words}")
    return rows


def claims(experiment: str, *words: str) -> Markdown:
    """The rows about an experiment in the table of recorded results that contain all of the words."""
    return table("claim | criterion | measured | verdict", _rows(experiment, words))


def verdicts(experiment: str, *words: str) -> str:
    """The verdicts of these rows, one word each; a page that states them asserts that they are unchanged."""
    return " ".join(row[-1].strip("*") for row in _rows(experiment, words))


def means(experiment: str, *cells: str) -> list[float]:
    """The means of "mean ± deviation" in the row of an experiment's section that begins with these cells."""
    for line in _section(experiment).splitlines():
        found = [cell.strip() for cell in line.strip("| ").split(" | ")]
        numbers = [cell for cell in found[len(cells) :] if cell]
        if found[: len(cells)] == list(cells) and numbers and all(" ± " in cell for cell in numbers):
            return [float(cell.split(" ± ")[0]) for cell in numbers]
    raise LookupError(f"no row of {experiment} with {cells}")


def _section(experiment: str) -> str:
    parts = re.split(r"^## ", RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return next(part for part in parts if part.startswith(experiment + "\n"))


def recorded(experiment: str, start: str = "") -> Markdown:
    """The first table in an experiment's own section whose header begins with the given words."""
    blocks = re.findall(r"(?:^\|.*\n)+", _section(experiment), re.MULTILINE)
    return Markdown(next(block for block in blocks if block.startswith(f"| {start}")))
