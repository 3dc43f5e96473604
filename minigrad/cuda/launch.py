"""The single function that launches CUDA kernels.

CuPy's `RawKernel` does not check its arguments' dtype, layout or device, and ignores strides. `launch` checks every
argument against the kernel's declaration in the ``.cu`` file, and passes exactly what is declared there.

======================================  ==============================================================
declared                                expected
======================================  ==============================================================
``T* x``, ``int64* index``, ...         a contiguous array of that dtype on the launch's device, or None
``void* x``                             the same, of any dtype
``T* x, Stride x_step``                 one array of any layout: its address, its strides in bytes
``Extent shape``                        a tuple of lengths
``Tensors list``                        (five lists of arrays of dtype T, or None; their sizes; the number of chunks
                                        each of them is split into)
``T eps``, ``int64 n``, ...             a number
======================================  ==============================================================
"""

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from minigrad.engine import backend
from minigrad.engine.dtype import Code
from minigrad.engine.tensor import EMPTY, Tensor, constant

WARP, BLOCK = 32, 256  # the default number of threads of a block
MOST_BLOCKS = 1 << 16  # of a grid; kernels loop over any further work

FOLDER = Path(__file__).parent
TYPES = {"bool": "Bool", "int32": "int", "int64": "int64", "float32": "float", "float64": "double"}
DTYPES = {c: name for name, c in TYPES.items()}
# CuPy passes a Python number in eight bytes, and a shorter parameter reads the first of them; a NumPy number takes ten
# times as long to create.
SCALARS = {"int": int, "int64": int, "uint64": int, "float": np.float32, "double": float, "Bool": int}
KERNEL = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)')
AXES = 8  # the most axes of an array
STRUCT = np.dtype(f"V{8 * AXES}")
MOST_TENSORS = 64  # of a list; the parameters of a kernel are limited to 4096 bytes
TENSORS = np.dtype([
    ("count", np.int64), ("array", np.uint64, (5, MOST_TENSORS)), ("size", np.int64, MOST_TENSORS),
    ("chunk", np.int64, MOST_TENSORS + 1),
])  # fmt: skip


def parameters(text: str) -> dict[str, list[tuple[str, str]]]:
    """Parse the declared (type, name) of every parameter of every kernel in the text of a module."""
    found = {}
    for name, declared in KERNEL.findall(text):
        words = [re.sub("const |__restrict__ |__grid_constant__ ", "", one).split() for one in declared.split(",")]
        found[name] = [(" ".join(parts[:-1]).replace(" *", "*"), parts[-1]) for parts in words]
    return found


@functools.cache
def source(file: str) -> tuple[str, dict[str, list[tuple[str, str]]]]:
    """Return the text of a module, and the parameters of its kernels."""
    text = (FOLDER / file).read_text(encoding="utf-8")
    return f"{(FOLDER / 'common.cuh').read_text(encoding='utf-8')}{_numbers()}{text}", parameters(text)


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
    "EVERY": ("bool", *WHOLE, *FLOAT),
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
    kinds = f"-DFLOATING={dtype.startswith('float'):d}", f"-DBOOLEAN={dtype == 'bool':d}"
    return "-std=c++17", f"-DELEMENT={TYPES[dtype]}", *kinds


@functools.cache
def _module(file: str, dtype: str, device: int) -> Any:
    import cupy

    with cupy.cuda.Device(device):
        return cupy.RawModule(code=functions(dtype) + source(file)[0], options=options(dtype))


@functools.cache
def _kernel(file: str, name: str, dtype: str, device: int) -> tuple[Any, list[tuple[str, str, str | None, bool]]]:
    """Return the kernel for a dtype, and the kind, name, dtype and whether it may be strided of each argument."""
    import cupy

    expected = []
    declared = source(file)[1][name]
    for (kind, parameter), (following, _) in zip(declared, [*declared[1:], ("", "")], strict=True):
        if kind != "Stride":
            word = kind.rstrip("*")
            required = dtype if word == "T" else DTYPES.get(word)
            expected.append((TYPES[dtype] if kind == "T" else kind, parameter, required, following == "Stride"))
    with cupy.cuda.Device(device):
        return _module(file, dtype, device).get_function(name), expected


def empty(shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
    """Return an uninitialized tensor."""
    return constant("empty", shape, EMPTY, dtype, device)


def power_of_two(n: int, least: int = 1) -> int:
    """Return the smallest power of two that is at least n, and at least `least`."""
    return max(1 << max(n - 1, 0).bit_length(), least)


def launch(
    file: str, name: str, dtype: str, device: int, threads: int, *arguments: Any, block: int = BLOCK, blocks: int = 0
) -> None:
    """Launch a kernel on CuPy's current stream.

    Parameters
    ----------
    file, name : str
        The ``.cu`` file and the kernel in it.
    dtype : str
        T.
    device : int
        The number of the GPU.
    threads : int
        The number of threads that have work; with 0, nothing is launched.
    *arguments
        One for each parameter in order, except ``Stride``.
    block : int
        The number of threads per block.
    blocks : int
        The number of blocks; by default, it follows from `threads`.

    Raises
    ------
    TypeError, ValueError
        For an argument that does not match the kernel's declaration.
    """
    import cupy

    if threads == 0:
        return
    kernel, expected = _kernel(file, name, dtype, device)
    if len(arguments) != len(expected):
        raise TypeError(f"[{name}] expected the arguments of {source(file)[1][name]}, got {len(arguments)}")
    packed: list[Any] = []
    views: list[Tensor] = []  # keep the memory alive, whatever other threads do to the tensors meanwhile
    for given, (kind, parameter, required, strided) in zip(arguments, expected, strict=True):
        number = SCALARS.get(kind)
        if number is not None:
            packed.append(number(given))
            if kind == "int" and not -(1 << 31) <= given < 1 << 31:
                raise OverflowError(f"[{name}] expected {parameter} to be a 32-bit int, got {given}")
        elif kind == "Extent":
            packed.append(_eight(given, 1))
        elif kind == "Tensors":
            packed.append(_tensors(name, given, dtype, device, views))
        elif given is None:
            packed.append(0)
        else:
            view = _checked(name, parameter, given, required, device, strided)
            views.append(view)
            packed.append(view.data_ptr())
            if strided:
                packed.append(_eight(view.strides, 0))
    block = min(block, -(-threads // WARP) * WARP)
    grid = blocks or min(-(-threads // block), MOST_BLOCKS)
    with cupy.cuda.Device(device):
        kernel((grid,), (block,), tuple(packed))


@functools.lru_cache(1 << 12)  # a model repeats its shapes, and creating this takes longer than all else here
def _eight(numbers: tuple[int, ...], fill: int) -> np.ndarray:
    """Pack lengths or strides into a struct of AXES numbers, which CuPy passes by value; the last axis comes last."""
    return np.array((fill,) * (AXES - len(numbers)) + numbers, np.int64).view(STRUCT)


def _tensors(
    kernel: str, given: tuple[list[Any], list[int], list[int]], dtype: str, device: int, views: list[Tensor]
) -> np.ndarray:
    """Pack lists of arrays into a struct, which CuPy passes by value; add views that keep their memory to `views`."""
    packed = np.zeros(1, TENSORS)
    lists, sizes, chunks = given
    struct, n = packed[0], len(sizes)
    struct["count"], struct["size"][:n] = n, sizes
    np.cumsum(chunks, out=struct["chunk"][1 : n + 1])
    for k, arrays in enumerate(lists):
        for i, one in enumerate(arrays or ()):
            view = _checked(kernel, f"tensor {i} of list {k}", one, dtype, device, False)
            if view.size != sizes[i]:
                raise ValueError(f"[{kernel}] expected {sizes[i]} elements in tensor {i} of list {k}, got {view.size}")
            views.append(view)
            struct["array"][k, i] = view.data_ptr()
    return packed


def _checked(kernel: str, parameter: str, given: Any, required: str | None, device: int, strided: bool) -> Tensor:
    """Return a view of an array after checking that it is as declared."""
    if not isinstance(given, Tensor):
        raise TypeError(f"[{kernel}] expected {parameter} to be an array, got {type(given).__name__}")
    view = Tensor.detach(given)
    if view.device != f"cuda:{device}":
        raise ValueError(f"[{kernel}] expected {parameter} on cuda:{device}, got {view.device}")
    if required is not None and view.dtype.name != required:
        raise TypeError(f"[{kernel}] expected {parameter} to be {required}, got {view.dtype}")
    if not strided and not view.is_contiguous():
        raise ValueError(f"[{kernel}] expected {parameter} to be contiguous, got strides {view.strides}")
    return view
