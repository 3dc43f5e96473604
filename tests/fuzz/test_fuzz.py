"""The fuzzer finds seeded faults, and none in minigrad."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad as mg
from fuzz.__main__ import fuzz

# The memory that was not written is the C library's, see `fuzz.__main__.child`; a sanitizer has its own in that place.
pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or "LD_PRELOAD" in os.environ, reason="the fuzzer needs glibc's allocator"
)
FATAL = {"crashes": "SIGSEGV", "aborts": "SIGABRT", "hangs": "hang"}
OTHERS = {
    "loses_tensors": "leak",
    "reads_unwritten": "unwritten faults.reads_unwritten",
    "computes_with_unwritten": "differs faults.computes_with_unwritten",
    "raises_wrongly": "undocumented AssertionError faults.py:raises_wrongly",
    "drops_an_error": "unraisable ZeroDivisionError",
    "keeps_memory": "memory",
}


@pytest.mark.parametrize("fault", FATAL)
def test_finds_what_ends_a_process(fault, monkeypatch):
    monkeypatch.setattr("fuzz.__main__.HANG", 2)
    found = fuzz(programs=1, only=f"faults.{fault}$", shrinking=0)
    assert list(found) == [f"{FATAL[fault]} faults.{fault}"]


def test_finds_what_does_not():
    found = fuzz(programs=3, only="|".join(f"faults.{fault}$" for fault in OTHERS), shrinking=0)
    assert set(OTHERS.values()) <= set(found)


def test_reproductions_stand_alone(tmp_path):
    """A shrunk program is a script that needs nothing of the fuzzer but the seeded fault, and contains little else."""
    found = fuzz(programs=1, only=r"faults.crashes$|mg.zeros$|mg.exp$")
    script = found["SIGSEGV faults.crashes"]
    assert script.count("with suppress") <= 2
    places = [str(Path(__file__).parents[1]), str(Path(mg.__file__).parents[1])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(places)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, timeout=60
    )
    assert done.returncode < 0, done.stderr


def test_minigrad_holds():
    assert not fuzz(programs=80, shrinking=10)
