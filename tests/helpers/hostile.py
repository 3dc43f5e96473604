"""Cases that may kill their process: those of one group run in a child, which names each before it begins."""

import os
import subprocess
import sys

import minigrad as mg

GROUPS = {}
REFUSALS = ("IndexError", "ValueError", "TypeError", "OverflowError", "MemoryError", "BufferError", "GradientError")


def group(function):
    GROUPS[function.__name__] = function
    return function


def survives(group):
    """Run the cases of a group in a child process, which must finish, and return how each of them ended.

    The child gets all but small blocks from the system and returns them immediately, so a later read crashes it.
    """
    module = sys.modules[GROUPS[group].__module__]
    path = os.pathsep.join([*sys.path, os.path.dirname(module.__file__)])
    with subprocess.Popen(
        [sys.executable, "-c", f"import hostile, {module.__name__}; hostile.run({group!r})"],
        env=os.environ | {"PYTHONPATH": path, "MALLOC_MMAP_THRESHOLD_": "65536"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        try:
            out, errors = child.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            child.kill()
            out, errors = child.communicate()
    lines = out.splitlines()
    assert child.returncode == 0, f"ended with {child.returncode} in {lines[-1:]}\n{errors}"
    return dict(line.rsplit(" -> ", 1) for line in lines)


def run(group):
    """Run in the child: every case by name, and how it ended."""
    for name, case in GROUPS[group]().items():
        print(name, end=" -> ", flush=True)
        try:
            result = case()
            for y in result if isinstance(result, (list, tuple)) else [result]:
                if isinstance(y, mg.Tensor):
                    y.detach().sum()  # reads every element
        except Exception as error:
            print(type(error).__name__, flush=True)
        else:
            print("result", flush=True)
