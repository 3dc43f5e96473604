"""Programs in the style of PyTorch's tutorials: translated, they print and return the same losses."""

import random
import re
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
from peers import torch

import minigrad as mg
from minigrad.pytorch.translation import Translator

FOLDER = Path(__file__).parents[1] / "pytorch_scripts"
UTILS = FOLDER / "utils.py"  # a module that the others import
SCRIPTS = sorted({*FOLDER.glob("*.py")} - {UTILS})


def translated(source):
    """Return a program without PyTorch, in which nothing is left to translate."""
    translator = Translator(source.encode())
    changed = translator.rewritten()
    assert not [str(f) for f in translator.findings if f.certain and not f.edited]
    assert not re.search(r"^\s*(import|from) torch\b", changed, flags=re.MULTILINE)
    assert not [str(f) for f in Translator(changed.encode()).findings]
    return changed


def losses_of(source, path, utils, monkeypatch):
    """Run a program and return its losses, each a number."""
    mg.manual_seed(0)
    torch.manual_seed(0)
    random.seed(0)
    monkeypatch.setitem(sys.modules, "utils", types.ModuleType("utils"))
    exec(compile(utils, str(UTILS), "exec"), vars(sys.modules["utils"]))
    names = {"__name__": path.stem}
    exec(compile(source, str(path), "exec"), names)
    return np.array([float(loss) for loss in names["losses"]])


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_losses_agree(path, capsys, monkeypatch):
    source, utils = path.read_text(encoding="utf-8"), UTILS.read_text(encoding="utf-8")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch")
        expected = losses_of(source, path, utils, monkeypatch)
    found = losses_of(translated(source), path, translated(utils), monkeypatch)
    single = not re.search("float64|double", source)
    assert len(expected) >= 5
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(found, expected, rtol=1e-4 if single else 1e-9, atol=1e-6 if single else 1e-12)


def test_programs():
    assert len(SCRIPTS) >= 48
    for path in SCRIPTS:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert 30 <= len(lines) <= 100, path
        assert "minigrad" not in path.read_text(encoding="utf-8"), path
