"""Resolve what the tests of every wheel of a release need, from the package index; a program of `make wheel-requirements`.

Each wheel is tested before it is published, so one requirement without a wheel for its platform stops a release.
"""

import subprocess
import sys
import tempfile
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
MACHINES = {"linux": ("x86_64", "aarch64"), "macos": ("x86_64", "arm64"), "windows": ("AMD64",)}
# The tags that pip does not derive from a newer one
GLIBC = [f"manylinux_2_{minor}" for minor in range(28, 4, -1)] + ["manylinux2014", "manylinux2010", "manylinux1"]
MUSL = [f"musllinux_1_{minor}" for minor in range(2, -1, -1)]


def identifiers():
    """Return the names of all wheels that the workflow builds, such as cp311-manylinux_x86_64."""
    found = []
    for system, machines in MACHINES.items():
        for machine in machines:
            command = "cibuildwheel", "--print-build-identifiers", "--platform", system, "--archs", machine, str(ROOT)
            found += subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return found


def requirements(identifier, project):
    """Return what is installed for the tests of a wheel."""
    options = dict(project["tool"]["cibuildwheel"])
    for override in options.pop("overrides", []):
        if fnmatch(identifier, override["select"]):
            options |= override
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *options.get("test-requires", [])]
    return asked + [line for extra in options["test-extras"] for line in extras[extra]]


def tags(identifier):
    """Return pip's options for the Python and the platform of a wheel."""
    python, _, platform = identifier.partition("-")
    system, _, machine = platform.partition("_")
    names = {"manylinux": GLIBC, "musllinux": MUSL, "macosx": ["macosx_15_0"], "win": ["win"]}[system]
    platforms = [word for name in names for word in ("--platform", f"{name}_{machine}")]
    return ["--implementation", "cp", "--python-version", python.removeprefix("cp"), *platforms]


def main():
    """Print a line for each wheel, or for those of the patterns given; return how many cannot be tested."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = sys.argv[1:] or ["*"]
    failed, found = 0, [name for name in identifiers() if any(fnmatch(name, pattern) for pattern in patterns)]
    assert found, "cibuildwheel names no wheels"
    for identifier in found:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--only-binary=:all:", "--target"]
            done = subprocess.run(
                [*command, folder, *tags(identifier), *requirements(identifier, project)],
                capture_output=True,
                text=True,
            )
        problems = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        print(identifier, *(problems or [done.stderr] if done.returncode else ["resolves"]), sep=": ", flush=True)
        failed += done.returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
