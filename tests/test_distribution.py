"""What the source tree states in several places: how to install it, its version, its Pythons, its linters."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="no source tree beside these tests")

FROM_THE_INDEX = re.compile(r"\bpip3? install\b[^#]*?[\s'\"`]minigrad\b(?![/.])|(?<!/)\bminigrad\[[a-z]")


def text(path):
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("end", ["", "[cuda12x]", "==0.1.0"])
@pytest.mark.parametrize("command", ["pip install {}", "pip install -U '{}'", "python -m pip install numpy {}"])
def test_commands_that_name_the_index_are_recognized(command, end):
    assert FROM_THE_INDEX.search(command.format("minigrad" + end))
    assert not FROM_THE_INDEX.search(command.format("./minigrad" + end))


def test_no_file_says_to_install_minigrad_from_the_index():
    """There the name belongs to somebody else's package. A checkout is installed by its path."""
    folders = "minigrad cext tests docs examples benchmarks .ci .github".split()
    files = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    files = [path for path in files if path.is_file() and path.suffix not in {".so", ".pyc", ".png"}]
    files = [path for path in files if "_build" not in path.parts]
    assert len(files) > 300
    lines = [(path, line) for path in files for line in path.read_text("utf-8", "replace").splitlines()]
    assert not [f"{path.relative_to(ROOT)}: {line}" for path, line in lines if FROM_THE_INDEX.search(line)]
