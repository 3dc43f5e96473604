"""Programs in the style of PyTorch's tutorials: with minigrad in its place they print and return the same losses."""

import random
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from peers import torch

import minigrad as mg

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reference" / "pytorch.md"
SCRIPTS = sorted((TESTS / "pytorch_scripts").glob("*.py"))
SUBSTITUTIONS = re.findall(r"-e 's/(.*?)/(.*?)/'", PAGE.read_text(encoding="utf-8"))


def losses_of(source, path):
    """Run a program and return its losses, each a number."""
    mg.manual_seed(0)
    torch.manual_seed(0)
    random.seed(0)
    names = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), names)
    return np.array([float(loss) for loss in names["losses"]])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_losses_agree(path, capsys):
    source = changed = path.read_text(encoding="utf-8")
    for pattern, replacement in SUBSTITUTIONS:
        changed = re.sub(pattern, replacement, changed, flags=re.MULTILINE)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        expected = losses_of(source, path)
    found = losses_of(changed, path)
    single = not re.search("float64|double", source)
    assert not re.search(r"^\s*(import|from) torch\b", changed, flags=re.MULTILINE)
    assert len(expected) >= 5
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-4 if single else 1e-9, atol=1e-6 if single else 1e-12)


def test_programs():
    assert len(SUBSTITUTIONS) == 2
    assert len(SCRIPTS) >= 25
    for path in SCRIPTS:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert 30 <= len(lines) <= 100, path
        assert "minigrad" not in path.read_text(encoding="utf-8"), path
