"""The emulation of CuPy offers no more than CuPy: every name in it exists there, even without a GPU."""

import ast
import importlib.machinery
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import minigrad.cuda

EMULATION = str(Path(__file__).parent.parent / "emulation")
ELSEWHERE = [path for path in sys.path if path != EMULATION]
INSTALLED = importlib.machinery.PathFinder.find_spec("cupy", ELSEWHERE) is not None


def test_cupy_is_there_where_it_is_promised():
    assert INSTALLED or os.environ.get("MINIGRAD_REQUIRE_CUPY", "0") == "0"


NAMES = {
    "cupy": ["__version__"],
    "cupy.cuda": ["Device", "Event", "Stream", "alloc", "alloc_pinned_memory", "get_current_stream"],
    "cupy.cuda.compiler": ["compile_using_nvrtc"],
    "cupy.cuda.function": ["Module"],
    "cupy.cuda.memory": ["OutOfMemoryError"],
    "cupy.cuda.runtime": [
        "deviceSynchronize", "getDeviceCount", "getDeviceProperties", "memcpyAsync", "runtimeGetVersion", "setDevice",
        "streamWaitEvent",
    ],
    "cupy_backends.cuda.libs.nccl": ["NcclCommunicator", "get_unique_id"],
    "cupy_backends.cuda.libs.nvrtc": ["getVersion"],
}  # fmt: skip


@pytest.mark.skipif(not INSTALLED, reason="CuPy is not installed: pip install cupy-cuda12x")
def test_the_names_in_use_exist():
    # NCCL is a separate library; without it, its module cannot be imported, but can be read.
    program = f"""
import importlib.util, pathlib
for module, names in {json.dumps(NAMES)}.items():
    if module.endswith("nccl"):
        text = pathlib.Path(importlib.util.find_spec(module).origin).read_bytes()
        missing = [name for name in names if name.encode() not in text]
    else:
        missing = [name for name in names if not hasattr(importlib.import_module(module), name)]
    assert not missing, (module, missing)
import cupy
assert "emulation" not in cupy.__file__
module = cupy.cuda.function.Module()
assert hasattr(module, "get_function")
assert hasattr(cupy.cuda.function.Function, "ptr")
assert hasattr(cupy.cuda.Stream, "begin_capture") and hasattr(cupy.cuda.Stream, "end_capture")
assert hasattr(cupy.cuda.Graph, "launch")
from cupy_backends.cuda import stream
assert '"intptr_t (int)"' in repr(stream.__pyx_capi__["get_stream_ptr"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not INSTALLED, reason="CuPy is not installed: pip install cupy-cuda12x")
def test_the_communicator_of_the_emulation_has_the_parameters_of_that_of_nccl():
    """The compiled module contains the signatures of its methods; it cannot be imported without NCCL."""
    libraries = importlib.machinery.PathFinder.find_spec("cupy_backends", ELSEWHERE).submodule_search_locations[0]
    text = next(Path(libraries, "cuda", "libs").glob("nccl*.so")).read_bytes().decode("latin-1")
    emulation = ast.parse(Path(EMULATION, "cupy", "nccl.py").read_text(encoding="utf-8"))
    (communicator,) = (node for node in emulation.body if isinstance(node, ast.ClassDef))
    functions = [node for node in communicator.body if isinstance(node, ast.FunctionDef)]
    methods = [f for f in functions if f.name not in ("__init__", "memory")]
    assert len(methods) == 4
    for method in methods:
        parameters = re.search(rf"NcclCommunicator\.{method.name}\(self, ([^)]*)\)", text)[1]
        assert [p.split()[-1] for p in parameters.split(", ")] == [a.arg for a in method.args.args[1:]], method.name
    defined = {t.id for node in emulation.body if isinstance(node, ast.Assign) for t in ast.walk(node.targets[0])
               if isinstance(t, ast.Name) and t.id.startswith("NCCL_")}  # fmt: skip
    assert {name for name in defined if name not in text} == set()


def test_every_name_in_use_is_listed():
    """NAMES lists everything that the files of minigrad/cuda use from CuPy."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(minigrad.cuda.__file__).parent.glob("*.py"))
    short = {"cupy.cuda": "cupy.cuda.", "cupy.cuda.compiler": "compiler.", "cupy.cuda.function": "function.",
             "cupy.cuda.runtime": "runtime.", "cupy_backends.cuda.libs.nvrtc": "nvrtc."}  # fmt: skip
    for module, prefix in short.items():
        found = set(re.findall(rf"(?<![\w.]){re.escape(prefix)}(\w+)", text))
        known = set(NAMES[module]) | {name.rpartition(".")[2] for name in NAMES if name.startswith(module + ".")}
        assert found <= known, found - known
