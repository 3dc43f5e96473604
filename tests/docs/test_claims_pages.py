"""The pages of common claims contain every description and every error once, each with a verdict and evidence."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ROOT / "docs" / "claims"
INDEX = CLAIMS / "index.md"
PAGES = sorted(CLAIMS.glob("*.md"))
pytestmark = pytest.mark.skipif(not CLAIMS.exists(), reason="no documentation beside these tests")

ERRORS = {f"e{n}" for n in range(1, 28)} - {"e2"}
# A claim: its anchors, its heading, and what follows up to the next heading or anchor.
CLAIM = re.compile(r"((?:^\([\w-]+\)=\n)+)^(##+) (.+)\n\n((?:(?!^\([\w-]+\)=$|^##+ )[^\n]*\n)*)", re.MULTILINE)
VERDICT = re.compile(r"\*\*(True|True under a condition|False|Undecided)\*\*(?: \([^)\n]+\))? · (.+)\n\n")


def claims():
    for page in PAGES:
        for anchors, _, heading, body in CLAIM.findall(page.read_text(encoding="utf-8")):
            yield re.findall(r"[\w-]+", anchors), heading, body


def test_every_number_has_one_anchor():
    """s1 to s66 and e1 to e27, except e2, each stand over the heading of one claim."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    expected = sorted({f"s{n}" for n in range(1, 67)} | ERRORS)
    assert sorted(re.findall(r"^\(([se]\d+)\)=$", text, re.MULTILINE)) == expected
    assert sorted(a for anchors, _, _ in claims() for a in anchors if re.fullmatch(r"[se]\d+", a)) == expected


def test_every_claim_has_a_verdict_a_source_and_evidence():
    """The verdict comes first, with texts that the index explains; then a cell, or a link to a computation."""
    texts = INDEX.read_text(encoding="utf-8").partition("## The texts")[2].partition("\n## ")[0]
    names = set(re.findall(r"^\| (the [^|]+?) \|", texts, re.MULTILINE))
    assert len(names) == 6
    said = set()
    for _, heading, body in claims():
        found = VERDICT.match(body)
        assert found, heading
        sources = set(found[2].split(", "))
        assert sources <= names, heading
        said |= sources
        rest = body[found.end() :]
        assert "```{code-cell}" in rest or "](" in rest, heading
    assert said == names


def test_a_claim_that_is_an_error_is_not_called_true():
    for anchors, heading, body in claims():
        assert not ERRORS & set(anchors) or not body.startswith("**True**"), heading


def test_the_list_of_errors_is_whole():
    """The index links to every error, once, on the page that has it."""
    links = re.findall(r"\]\((\w+\.md)#(e\d+)\)", INDEX.read_text(encoding="utf-8"))
    assert sorted(anchor for _, anchor in links) == sorted(ERRORS)
    for page, anchor in links:
        assert f"({anchor})=\n" in (CLAIMS / page).read_text(encoding="utf-8"), anchor


def test_no_page_shows_a_number_of_the_list():
    """Readers see claims in words; the numbers are addresses only."""
    docs = [
        path for suffix in ("md", "rst") for path in (ROOT / "docs").rglob(f"*.{suffix}") if "_build" not in path.parts
    ]
    pages = [*docs, ROOT / "README.md", ROOT / "examples" / "results" / "README.md"]
    assert len(pages) > 50
    shown = [
        (page.name, code) for page in pages for code in re.findall(r"\b[SE]\d{1,2}\b", page.read_text(encoding="utf-8"))
    ]
    assert not shown
