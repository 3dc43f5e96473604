"""The C++ compiles for processors and a system that this machine's build omits, with the build's own flags; without a compiler, no build begins."""

import os
import platform
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kept import made_once

ROOT = Path(__file__).parents[2]
SOURCES = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("cext/**/*.cpp"))]
OTHERS = {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu", "x86_64-w64-mingw32-g++": "g++-mingw-w64-x86-64-posix"}
REQUIRED = os.environ.get("MINIGRAD_REQUIRE_CROSS", "0") != "0"

pytestmark = pytest.mark.skipif(not SOURCES, reason="no sources beside these tests")


def check(compiler, file, *flags, target):
    build = runpy.run_path(str(ROOT / "setup.py"))
    fused = build["FUSED"]["clang" if "clang" in compiler else "gcc"]
    command = [*shlex.split(compiler), *build["COMMON"], *build["KERNEL"], fused, *flags, "-Werror", file]

    def output(*options):
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    made_once(lambda: output(*target).encode(), command, target, output("--version"), output("-E"))


@pytest.mark.parametrize("compiler, package", OTHERS.items())
@pytest.mark.parametrize("file", SOURCES)
def test_compiles_for_arm64_and_windows(file, compiler, package):
    """Also where <math.h> defines HUGE, as on musl."""
    if not shutil.which(compiler):
        assert not REQUIRED, f"MINIGRAD_REQUIRE_CROSS is set, but there is no {compiler} on the path"
        pytest.skip(f"no {compiler}: Debian's {package}")
    check(compiler, file, "-DHUGE=1.0f", target=["-fsyntax-only"])


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="only x86 has AVX-512")
@pytest.mark.parametrize("file", [file for file in SOURCES if file.startswith("cext/kernels/")])
def test_compiles_for_avx512(file):
    """It generates code, as flags and instructions are only checked together there."""
    switches = runpy.run_path(str(ROOT / "setup.py"))["ISAS"]["avx512"]
    names = ["-DMG_HAS_AVX2", "-DMG_HAS_AVX512"] if file.endswith("dispatch.cpp") else ["-DMG_ISA=avx512"]
    check(os.environ.get("CXX", "g++"), file, *switches, *names, "-O1", target=["-c", "-o", os.devnull])


def build_by(compiler, folder, *options):
    """Run a build in a copy of the tree that has not been built."""
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "cext", "minigrad"):
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "out", *options]
    environment = {**os.environ, "CXX": compiler, "PYTHONPATH": ""}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.parametrize("compiler, reason", [
    ("absent-c++", "No such file or directory: 'absent-c++'"),
    ("sh -c 'echo Python.h: not found >&2; exit 1'", "sh failed: Python.h: not found"),
])  # fmt: skip
def test_a_build_without_a_compiler_names_the_packages(tmp_path, compiler, reason):
    """Before Cython has translated anything."""
    done = build_by(compiler, tmp_path)
    assert done.returncode == 1
    assert reason in done.stderr
    assert "apt install g++ python3-dev" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "build").rglob("*.cpp"))


def test_commands_have_no_folders_that_do_not_exist(tmp_path):
    """As a name that changes with every build would compile all modules again."""
    (tmp_path / "present").mkdir()
    done = build_by(
        "sh -c 'echo \"$@\" >&2; exit 1' sh", tmp_path, f"--include-dirs={tmp_path}/present:{tmp_path}/absent"
    )
    assert f"-I{tmp_path}/present" in done.stderr
    assert f"-I{tmp_path}/absent" not in done.stderr
