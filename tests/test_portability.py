"""The C++ compiles for a processor that has none of x86's instructions."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "cext"
COMPILER = shutil.which("aarch64-linux-gnu-g++")
REQUIRED = os.environ.get("MINIGRAD_REQUIRE_ARM64", "0") != "0"


@pytest.mark.skipif(not SOURCES.exists(), reason="no sources beside these tests")
@pytest.mark.skipif(not COMPILER and not REQUIRED, reason="no compiler for arm64: Debian's g++-aarch64-linux-gnu")
@pytest.mark.parametrize("file", [str(path.relative_to(SOURCES)) for path in sorted(SOURCES.rglob("*.cpp"))])
def test_compiles_for_arm64(file):
    assert COMPILER, "MINIGRAD_REQUIRE_ARM64 is set, but there is no aarch64-linux-gnu-g++ on the path"
    flags = "-std=c++20 -DMG_X86=0 -fopenmp-simd -Wall -Wextra -Werror -fsyntax-only".split()
    done = subprocess.run([COMPILER, *flags, f"-I{SOURCES}", SOURCES / file], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
