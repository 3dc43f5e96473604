"""The tree: dependencies point one way, as CONTRIBUTING.md draws them, and every file is short."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CEXT = ROOT / "cext"

pytestmark = pytest.mark.skipif(not CEXT.exists(), reason="no sources beside these tests")

IMPORT = re.compile(r"^ *(?:from +(minigrad[\w.]*) +c?import +(\([^)]*\)|.*)|c?import +(minigrad[\w.]*))", re.MULTILINE)


def sources():
    """Return the files of each module of minigrad, by its name."""
    found = {}
    for folder, package in ((CEXT, "minigrad.engine"), (ROOT / "minigrad", "minigrad")):
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".pyx", ".pxd", ".pxi") and path.parent != CEXT:
                parts = [*path.relative_to(folder).parent.parts, path.stem]
                name = ".".join([package, *parts]).removesuffix(".__init__")
                found.setdefault(name, []).append(path)
    return found


def imported(path):
    """Yield (module, names) of every import of minigrad in a file, however late, for types or not."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from ((alias.name, []) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module, [alias.name for alias in node.names]
    else:
        for module, names, alone in IMPORT.findall(re.sub(r'#.*|"""[\s\S]*?"""', "", text)):
            yield module or alone, re.findall(r"\w+", names)


def arrows():
    """Return the modules that each module of minigrad imports."""
    modules = sources()
    found = {name: set() for name in modules}
    for name, paths in modules.items():
        for module, members in (pair for path in paths for pair in imported(path)):
            below = {f"{module}.{member}" for member in members} & {*modules}
            found[name] |= below if len(below) == len(members) > 0 else below | ({module} & {*modules})
        found[name].discard(name)
    return found


def unit(module):
    """Return the folder of a module, or the file, of which CONTRIBUTING.md has a row."""
    parts = module.split(".")
    if parts[:2] == ["minigrad", "engine"]:
        return f"cext/{parts[2]}" if len(parts) > 2 and (CEXT / parts[2]).is_dir() else "minigrad/engine"
    return "minigrad" if len(parts) == 1 else f"minigrad/{parts[1]}"


def order():
    """Return the rows of the table in CONTRIBUTING.md: each may import those before it."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Layout")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall("`(.*?)`", row)]


def test_imports_point_down():
    rows = order()
    upward = [
        f"{module} imports {other}"
        for module, others in arrows().items()
        for other in others
        if unit(module) != unit(other) and rows.index(unit(module)) < rows.index(unit(other))
    ]
    assert not upward


def test_no_import_is_part_of_a_circle():
    left = arrows()
    while free := [name for name in left if not left[name] & {*left} or name not in set().union(*left.values())]:
        for name in free:
            del left[name]
    assert not left  # what is left is part of a circle, or between two


def test_every_folder_has_a_row():
    folders = {unit(module) for module in sources()}
    assert folders <= {*order()}


def test_files_are_short():
    """A file that has more lines has more than one subject."""
    kinds = "*.py", "*.pyx", "*.pxd", "*.pxi", "*.[ch]pp", "*.inc", "*.cu", "*.cuh", "*.js"
    paths = [path for folder in ("cext", "minigrad", "tests") for kind in kinds for path in (ROOT / folder).rglob(kind)]
    lengths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in paths}
    assert {name: n for name, n in lengths.items() if n > 500} == {}


def includes(path):
    """Return the headers of ours that a C++ file includes, by their path below cext/ or below the root."""
    found = re.findall(r'^ *#include "(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    beside = [(path.parent / name).resolve() for name in found]
    return {
        str(p.relative_to(CEXT if p.is_relative_to(CEXT) else ROOT)) if p.exists() else name
        for p, name in zip(beside, found, strict=True)
    }


def test_the_ground_floor_includes_nothing_of_ours():
    assert includes(CEXT / "types.hpp") == set()


@pytest.mark.parametrize("path", sorted((CEXT / "runtime").glob("*")), ids=lambda path: path.name)
def test_the_runtime_knows_no_kernel(path):
    assert {name for name in includes(path) if not name.startswith("runtime/")} <= {"types.hpp"}


@pytest.mark.parametrize("path", sorted((CEXT / "kernels").glob("*")), ids=lambda path: path.name)
def test_kernels_know_neither_python_nor_memory(path):
    assert "Python.h" not in path.read_text(encoding="utf-8")
    below = {"types.hpp", "runtime/pool.hpp", "minigrad/cuda/update_rules.cuh"}  # formulas for both devices
    assert {name for name in includes(path) if not name.startswith("kernels/")} <= below
