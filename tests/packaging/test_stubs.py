"""The type stubs that the build writes from the annotations in the Cython sources."""

import importlib
import inspect
import pkgutil
import types
from pathlib import Path

import pytest
from checks import raises

import minigrad as mg
from minigrad.pytorch import Pointer

SOURCE = Path(__file__).resolve().parents[2] / "cext"
FOUND = [importlib.import_module(found.name) for found in pkgutil.walk_packages(mg.engine.__path__, "minigrad.engine.")]
MODULES = {module.__name__: module for module in FOUND if not module.__file__.endswith(".py")}
del MODULES["minigrad.engine.cython_shared"]  # it has nothing for Python

beside_sources = pytest.mark.skipif(not SOURCE.exists(), reason="no sources beside these tests")


def loaded(module):
    """Return what the stub of a module defines, as Python objects."""
    path = Path(module.__file__)
    text = path.with_name(path.name.partition(".")[0] + ".pyi").read_text(encoding="utf-8")
    stub = types.ModuleType(module.__name__)
    vars(stub)["overload"] = lambda function: function  # the last one, which is its own
    text = text.replace("from typing import overload\n", "")
    # the values of an enumeration are not in its stub
    exec("from __future__ import annotations\n" + text.replace("(IntEnum)", ""), vars(stub))
    return stub


def public(space, name):
    """Return {"function" or "Class.member": object} of what a module defines itself."""
    found = {}
    for key, value in vars(space).items():
        if isinstance(value, type) and value.__module__ == name:
            found[key] = value
            inherited = {member for base in value.__mro__[1:] for member in vars(base)}
            found |= {f"{key}.{member}": v for member, v in vars(value).items() if member not in inherited}
        elif callable(value) and getattr(value, "__module__", None) == name:
            found[key] = value
    found = {key: value for key, value in found.items() if not isinstance(value, Pointer)}
    return {key: value for key, value in found.items() if not key.rpartition(".")[2].startswith("_")}


def parameters(function):
    """Return the parameters of a function except `self`, which is positional only at run time."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("name", MODULES)
def test_stub_agrees_with_its_module(name):
    stub = loaded(MODULES[name])
    written, real = public(stub, name), public(MODULES[name], name)
    variables = vars(stub).get("__annotations__", {})
    assert {*written} == {key for key in real if key.partition(".")[0] not in variables}
    for variable in variables:
        assert hasattr(MODULES[name], variable)
    for key, value in written.items():
        if isinstance(value, types.FunctionType):
            assert parameters(value) == parameters(real[key]), key


def test_stubs_state_every_type():
    """`mypy`, which is not installed everywhere, checks the same."""
    functions = [
        value for name, module in MODULES.items() for value in public(loaded(module), name).values()
        if isinstance(value, types.FunctionType)
    ]  # fmt: skip
    assert len(functions) > 250
    for function in functions:
        given = inspect.signature(function)
        types_of = [p.annotation for p in given.parameters.values() if p.name != "self"] + [given.return_annotation]
        assert inspect.Parameter.empty not in types_of, function.__qualname__


PXD = """
cdef extern from "kernels.hpp":
    cpdef enum Code "mg::Code":
        BOOL, INT32
cdef class Shape(Base):
    cdef readonly int size, ndim
    cdef readonly tuple names   # -> tuple[str, ...]
    cdef int hidden
"""
PYX = '''
import numpy as np
from minigrad.engine.ops import reduce
from minigrad.engine.devices.backend cimport Base

LIMIT: int = 3
unseen = 4
Length: TypeAlias = int | np.integer

cdef class Shape(Base):
    """Text that is left out."""
    def __cinit__(self, int size):
        pass

    cpdef overriding(self, Array x):
        return x

    @property
    def last(self) -> Length:
        return 1

    def __eq__(self, other: Any) -> Tensor:
        return NotImplemented

    sum = reduce.sum

def untyped(*a, **b):
    pass

cpdef plain(x, Array y: Tensor | None,
            double z=1e-5):
    pass

cpdef object whole(Array x, str op=None):  # -> int
    return 1

def many(list a or None, *args: Any, bint on=False, axis: Callable[[int], str] | None = None, **names: Shape) -> None:
    pass

cdef int compiled(Array x):
    return 0
'''
STUB = """\
from collections.abc import Callable
from enum import IntEnum
from minigrad.engine.devices.backend import Base
from minigrad.engine.ops import reduce as reduce
from minigrad.engine.tensor.tensor import Tensor
from typing import Any
from typing import TypeAlias
from typing import overload
import numpy as np
class Code(IntEnum):
    BOOL = ...
    INT32 = ...
LIMIT: int
Length: TypeAlias = int | np.integer
class Shape(Base):
    @property
    def size(self) -> int: ...
    @property
    def ndim(self) -> int: ...
    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def last(self) -> Length: ...
    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    sum = reduce.sum
def untyped(*a, **b): ...
def plain(x, y: Tensor | None, z: float = 1e-5) -> None: ...
def whole(x: Tensor, op: str | None = None) -> int: ...
@overload
def many(a: list | None, *args: Any, on: bool = False, dim: Callable[[int], str] | None = None, **names: Shape) -> None: ...
@overload
def many(a: list | None, *args: Any, on: bool = False, axis: Callable[[int], str] | None = None, **names: Shape) -> None: ...
"""


@beside_sources
def test_rules(tmp_path, monkeypatch):
    CompileError = pytest.importorskip("Cython.Compiler.Errors").CompileError
    monkeypatch.syspath_prepend(SOURCE)
    from stubs import Stub

    (tmp_path / "shape.pxd").write_text(PXD, encoding="utf-8")
    (tmp_path / "shape.pyx").write_text(PYX, encoding="utf-8")
    assert str(Stub("minigrad.engine.shape", tmp_path / "shape.pyx")) == STUB
    (tmp_path / "shape.pxd").unlink()
    (tmp_path / "shape.pyx").write_text("cpdef first(x):\n    if x:\n        return x[0]\n", encoding="utf-8")
    with pytest.raises(CompileError, match=r"shape.pyx:1:0: state the type of the result: # -> T"):
        Stub("minigrad.engine.shape", tmp_path / "shape.pyx")


@beside_sources
def test_a_kernel_that_is_declared_is_put_into_the_table(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(SOURCE)
    import declare

    monkeypatch.setattr(declare, "SOURCE", tmp_path)
    source = tmp_path / "kernels" / "scan.cpp"
    source.parent.mkdir()
    kernel = "MG_KERNEL(scan[FLOATS])\ntemplate <class T>\nvoid scan(int64_t n, const T* x) {}\n"
    source.write_text(kernel, encoding="utf-8")
    assert "    void (*scan[FLOATS])(int64_t n, const void* x);\n" in declare.table()["kernels/table.inc"]
    assert declare.table()["kernels/put.inc"] == "#define MG_PUT_SCAN MG_FLOATS(scan); \n"
    source.write_text(kernel.replace("FLOATS", "DTYPES"), encoding="utf-8")
    raises(SystemExit, r"scan.cpp: MG_KERNEL\(scan\) is not put into the table by fill_scan", declare.table)
