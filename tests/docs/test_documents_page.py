"""The pages that check the documents contain every description and every error exactly once."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "documents").glob("*.md"))
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="no documentation beside these tests")


def test_every_row_has_one_anchor():
    """S1 to S66 and E1 to E27, except E2, each have a heading of the same number."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    expected = {f"s{n}" for n in range(1, 67)} | {f"e{n}" for n in range(1, 28)} - {"e2"}
    anchors = re.findall(r"^\(([se]\d+)\)=$", text, re.MULTILINE)
    assert sorted(anchors) == sorted(expected)
    headings = re.findall(r"^\(([se]\d+)\)=\n### ([SE]\d+) · \S", text, re.MULTILINE)
    assert [anchor.upper() for anchor, _ in headings] == [title for _, title in headings]
    assert len(headings) == len(expected)


def test_the_list_of_errors_is_whole():
    """The index links to every error."""
    links = re.findall(r"\[(E\d+)\]\(#(e\d+)\)", (DOCS / "documents" / "index.md").read_text(encoding="utf-8"))
    assert [anchor.upper() for _, anchor in links] == [name for name, _ in links]
    assert sorted(int(name[1:]) for name, _ in links) == [n for n in range(1, 28) if n != 2]


def test_every_row_computes_or_leads_somewhere():
    """Every row has evidence: a cell, a link to a computation, or a figure of an experiment."""
    words = []
    for page in PAGES:
        parts = re.split(r"^\(([se]\d+)\)=$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        for anchor, body in zip(parts[::2], parts[1::2], strict=True):
            if "```{code-cell}" not in body and "](" not in body:
                words.append(anchor)
    # shapes that the table before them shows: one of statistics, one of a network's summary
    assert sorted(words) == ["s35", "s36", "s37", "s46"]
