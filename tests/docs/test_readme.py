"""The README's Python runs and prints the shown output, and its speed table has measured numbers."""

import contextlib
import importlib.metadata
import io
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
# an installed package carries the README as its description
TEXT = README.read_text() if README.exists() else importlib.metadata.metadata("minigrad").get_payload()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def expected(block):
    """Return the expected output in the comments after the print calls: `print(x)  # 3.0`."""
    lines = []
    for line in block.splitlines():
        shown = re.search(r"^\s*print\(.*\)\s*# (.*)$|^# > (.*)$", line)
        if shown:
            lines.append(shown[1] or shown[2])
    return lines


def test_there_are_examples():
    assert len(BLOCKS) >= 3
    assert sum(len(expected(block)) for block in BLOCKS) >= 8


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_prints_what_it_says(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(BLOCKS[number], f"README block {number + 1}", "exec"), {"__name__": "readme"})
    assert printed.getvalue().splitlines() == expected(BLOCKS[number])


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="no benchmarks beside these tests")
def test_speed_table_is_a_measured_one(monkeypatch):
    """Every number of the table comes from a file in benchmarks/results/."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import compare

    shown = TEXT.split(compare.MARKS[0])[1].split(compare.MARKS[1])[0].strip()
    measured = [json.loads(path.read_text()) for path in (ROOT / "benchmarks" / "results").glob("*.json")]
    assert shown in [compare.table(results).strip() for results in measured if "times_ms" in results]
