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
    assert len(options) >= 5
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
