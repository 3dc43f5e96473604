"""The examples run as a user runs them, and reach what they promise."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="no examples beside these tests")


def run(script, *arguments, folder=None):
    done = subprocess.run([sys.executable, EXAMPLES / script, *arguments], capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_help_describes_every_option(script):
    text = run(script, "--help")
    options = re.findall(r"^  (--[\w-]+)([^\n]*)(\n {10,}\S)?", text, re.MULTILINE)
    assert len(options) == (EXAMPLES / script).read_text(encoding="utf-8").count("add_argument(")
    for option, rest, continued in options:
        assert continued or "  " in rest.strip(), f"{option} says nothing"


def test_digits_reach_their_accuracy(tmp_path):
    """The demo: at least 97 % for the LN-MLP and 95 % for the LN-RNN on the fifth that is held out."""
    text = run("digits.py", folder=tmp_path)
    accuracy = {name: float(value) for name, value in re.findall(r"^(LN-\w+).* ([\d.]+) %", text, re.MULTILINE)}
    assert accuracy["LN-MLP"] >= 97
    assert accuracy["LN-RNN"] >= 95
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_digits_are_reproducible(tmp_path):
    """Same seed, same machine, same threads: the same numbers."""
    first, second = (run("digits.py", "--epochs", "1", "--plot", "", folder=tmp_path) for _ in range(2))
    assert first == second
    assert list(tmp_path.iterdir()) == []


def test_normalization_facts():
    """The invariance table of the paper with a row for RMSNorm, the widths of the misprint, and the other facts."""
    text = run("normalization_facts.py")

    def rows(name):
        """The cells of a fact's table, by the first one: columns are three spaces apart."""
        block = re.search(rf"^{name}\n.*\n((?:  .*\n)+)", text, re.MULTILINE)[1]
        cells = [re.split(r" {3,}", line.strip()) for line in block.splitlines()]
        return {first: rest for first, *rest in cells}

    found = {kind: " ".join(cell.split()[0] for cell in cells) for kind, cells in rows("invariance").items() if cells}
    assert {kind: found[kind] for kind in ("BN", "WN", "LN", "RMSNorm")} == {
        "BN": "yes no yes yes yes no no", "WN": "yes no yes no no no no", "LN": "yes yes no yes no yes no",
        "RMSNorm": "yes no no yes no yes no",
    }  # fmt: skip
    assert rows("epsilon") == {
        "σ of the input": ["σ of LN", "σ of the misprint"], "0.01": ["0.953", "3.07"], "0.1": ["1", "7.6"],
        "1": ["1", "0.997"], "10": ["1", "0.1"],
    }  # fmt: skip
    assert rows("by-hand")["[1.0, 2.0, 6.0]"] == ["[-0.9258, -0.4629, 1.3887]"]
    errors = {kind: cells[0] for kind, cells in rows("parts-of-a-batch").items() if kind != "norm"}
    assert max(float(errors[kind]) for kind in ("LN", "GN", "IN", "RMSNorm")) < 1e-12
    assert float(errors["BN"]) > 0.01
    ratios = {kind: cells[-1] for kind, cells in rows("learning-rate").items()}
    assert [ratios[kind] for kind in ("BN", "LN", "WN")] == ["16"] * 3
    assert float(ratios["none"]) < 8
    assert {cells[1] for size, cells in rows("batch-mates").items() if size.isdigit()} == {"0"}
    assert rows("recurrence")["layer"][-1] == "0"
    assert float(rows("recurrence")["batch"][-1]) > 0.01


def test_normalization_facts_are_reproducible():
    """The same seed gives the same numbers, another one others; and facts can be chosen."""
    chosen = ("--facts", "restoring", "invariance")
    first, second, other = (run("normalization_facts.py", "--seed", seed, *chosen) for seed in ("1", "1", "2"))
    assert first == second != other
    assert re.findall(r"^[\w-]+$", first, re.MULTILINE) == ["restoring", "invariance"]
