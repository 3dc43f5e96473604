"""The kernels of the ``.cu`` files, and the single function that launches them.

The CUDA driver knows nothing of dtypes, layouts and devices. `launch`, which is compiled
(cext/devices/cuda_launch.pxi), checks every argument against the kernel's declaration in the ``.cu`` file, and passes
exactly what is declared there.

======================================  ==============================================================
declared                                expected
======================================  ==============================================================
``T* x``, ``int64* index``, ...         a contiguous array of that dtype on the launch's device, or None
``void* x``                             the same, of any dtype
``T* x, Stride x_step``                 one array of any layout: its address, its strides in bytes
``Extent shape``                        a tuple of lengths
``Tensors list``                        (five lists of arrays of dtype T, or None; the most elements of a chunk)
``T eps``, ``int64 n``, ...             a number
======================================  ==============================================================
"""

import functools
import re
from pathlib import Path
from typing import Any

from minigrad.cuda import modules
from minigrad.engine.devices import backend
from minigrad.engine.devices.cuda import (
    BLOCK,
    MOST_BLOCKS,
    MOST_TENSORS,
    WARP,
    Kernel,
    kernel,
    kernels,
    launch,
    power_of_two,
)
from minigrad.engine.memory.dtype import Code
from minigrad.engine.tensor.factories import EMPTY, constant
from minigrad.engine.tensor.tensor import Tensor

__all__ = ["BLOCK", "FOLDER", "MOST_BLOCKS", "MOST_TENSORS", "MULTIPROCESSORS", "WARP", "empty", "functions",
           "has_tf32", "kernel", "kernels", "launch", "load", "options", "parameters", "power_of_two",
           "source"]  # fmt: skip

FOLDER = Path(__file__).parent
MULTIPROCESSORS = 132  # an H200's, for which work is divided
TYPES = {"uint8": "Bool", "bool": "Bool", "int32": "int", "int64": "int64", "float32": "float", "float64": "double"}
DTYPES = {c: name for name, c in TYPES.items()}
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)')


def parameters(text: str) -> dict[str, list[tuple[str, str]]]:
    """Parse the declared (type, name) of every parameter of every kernel in the text of a module.

    A list that several kernels share is a macro whose name ends in ``_PARAMETERS``.
    """
    lists = dict(re.findall(r"#define (\w+_PARAMETERS) +(.*)", text.replace("\\\n", "")))

    def expand(declared: str) -> str:
        return re.sub(r"\w+_PARAMETERS", lambda name: expand(lists[name[0]]), declared)

    found = {}
    for name, declared in KERNEL.findall(text):
        plain = re.sub("const |__restrict__ |__grid_constant__ ", "", expand(declared))
        words = [one.split() for one in plain.split(",")]
        found[name] = [(" ".join(parts[:-1]).replace(" *", "*"), parts[-1]) for parts in words]
    return found


@functools.cache
def source(file: str) -> tuple[str, dict[str, list[tuple[str, str]]]]:
    """Return the text of a module, and the parameters of its kernels."""
    text = re.sub(r'#include "(.*)"', lambda found: _read(found[1]), _read(file))
    return f"{_read('common.cuh')}{_numbers()}{text}", parameters(text)


def _read(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


def _numbers() -> str:
    """Return the enumerations of dtypes and operations as C++."""
    lines = []
    for enum in (Code, backend.Unary, backend.Binary, backend.Reduce):
        members = ", ".join(f"{member.name} = {member.value}" for member in enum)
        lines.append(f"enum {enum.__name__} {{ {members} }};\n")
    return "".join(lines)


WHOLE, FLOAT = ("int32", "int64"), ("float32", "float64")
TYPE_LISTS = {
    "BIT": ("bool",), "WHOLE": WHOLE, "INTEGER": ("bool", *WHOLE), "FLOAT": FLOAT, "NUMBER": WHOLE + FLOAT,
    "EVERY": ("bool", "uint8", *WHOLE, *FLOAT),
}  # fmt: skip


@functools.cache
def functions(dtype: str) -> str:
    """Return the element-wise functions of a dtype as lists of macro calls such as `UNARY(EXP, T, exp(x))`."""
    lines = []
    for kind, rows in backend.FUNCTIONS.items():
        calls = [
            f"{kind.upper()}({name}, {result}, {expression})"
            for name, _, types, result, expression in rows if dtype in TYPE_LISTS[types]
        ]  # fmt: skip
        lines.append(f"#define {kind.upper()}_FUNCTIONS {' '.join(calls)}\n")
    return "".join(lines)


def options(dtype: str) -> tuple[str, ...]:
    """Return the compiler options for a module of a dtype."""
    kinds = (f"-DFLOATING={dtype.startswith('float'):d}", f"-DSINGLE={dtype == 'float32':d}",
             f"-DBOOLEAN={TYPES[dtype] == 'Bool':d}")  # fmt: skip
    return "-std=c++17", f"-DELEMENT={TYPES[dtype]}", *kinds


@functools.cache
def _module(file: str, dtype: str, device: int) -> Any:
    return modules.load(functions(dtype) + source(file)[0], options(dtype), device)


def load(file: str, name: str, dtype: str, device: int) -> Kernel:
    """Load a kernel for a dtype, with the kind, name, dtype and whether it may be strided of each argument."""
    import cupy

    expected = []
    declared = source(file)[1][name]
    for (kind, parameter), (following, _) in zip(declared, [*declared[1:], ("", "")], strict=True):
        if kind != "Stride":
            word = kind.rstrip("*")
            required = dtype if word in ("T", "Tensors") else DTYPES.get(word) if kind != word else None
            expected.append((TYPES[dtype] if kind == "T" else kind, parameter, required, following == "Stride"))
    with cupy.cuda.Device(device):
        return Kernel(name, _module(file, dtype, device).get_function(name), device, expected)


@functools.cache
def has_tf32(device: int) -> bool:
    """Whether the tensor cores of a GPU multiply TF32."""
    import cupy

    return int(cupy.cuda.Device(device).compute_capability) >= 80


def empty(shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
    """Return an uninitialized tensor."""
    return constant("empty", shape, EMPTY, dtype, device)
