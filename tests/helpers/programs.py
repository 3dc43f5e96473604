"""Programs in processes of their own."""

import os
import subprocess
import sys
import textwrap

import pytest

import minigrad as mg

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
# From Python 3.12 on, a process with threads, such as those of the pool, is warned when it forks.
QUIET = "-Wignore:This process:DeprecationWarning"


def run(folder, program, timeout=60):
    """Run a program in a separate interpreter, from a file, which spawned processes import."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    search = os.pathsep.join([os.path.dirname(os.path.dirname(mg.__file__)), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, QUIET, path], env={**os.environ, "PYTHONPATH": search}, capture_output=True, text=True,
        timeout=timeout,
    )  # fmt: skip
