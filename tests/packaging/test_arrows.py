"""Dependencies point one way: what each part of the source may include and import."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CEXT = ROOT / "cext"

pytestmark = pytest.mark.skipif(not CEXT.exists(), reason="no sources beside these tests")

# The engine loads these from the rest of the package, on first use: protocols of other libraries, and the GPU.
ON_FIRST_USE = {"minigrad.cuda", "minigrad.interop.numpy_protocol", "minigrad.pytorch", "minigrad.array.array_api"}


def includes(path):
    """Return the headers of ours that a C++ file includes, by their path below cext/."""
    found = re.findall(r'^ *#include "(.*)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    beside = [(path.parent / name).resolve() for name in found]
    return {str(p.relative_to(CEXT)) if p.exists() else name for p, name in zip(beside, found, strict=True)}


def test_the_ground_floor_includes_nothing_of_ours():
    assert includes(CEXT / "types.hpp") == set()


@pytest.mark.parametrize("path", sorted((CEXT / "runtime").glob("*")), ids=lambda path: path.name)
def test_the_runtime_knows_no_kernel(path):
    assert {name for name in includes(path) if not name.startswith("runtime/")} <= {"types.hpp"}


@pytest.mark.parametrize("path", sorted((CEXT / "kernels").glob("*")), ids=lambda path: path.name)
def test_kernels_know_neither_python_nor_memory(path):
    assert "Python.h" not in path.read_text(encoding="utf-8")
    assert {name for name in includes(path) if not name.startswith("kernels/")} <= {"types.hpp", "runtime/pool.hpp"}


@pytest.mark.parametrize("path", sorted(CEXT.rglob("*.p[yx][xdi]")), ids=lambda path: path.name)
def test_the_engine_imports_only_the_engine(path):
    """Examples in docstrings aside."""
    imported = re.findall(
        r"^ *(?:from|import|cimport) (minigrad[\w.]*)", path.read_text(encoding="utf-8"), re.MULTILINE
    )
    upward = {name for name in imported if not name.startswith("minigrad.engine")}
    assert {".".join(name.split(".")[:2]) for name in upward} <= ON_FIRST_USE


@pytest.mark.parametrize("name", ["array", "backend", "calls", "dtype", "interop", "recording", "tape", "writes"])
def test_operations_use_the_tape_and_not_the_other_way_round(name):
    for path in CEXT.glob(f"{name}.p[yx][xd]"):
        assert "minigrad.engine.ops" not in path.read_text(encoding="utf-8")
