"""Every device offers the same primitives: the methods of Backend and of each backend have equal signatures."""

import inspect

import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad.cuda.backend import CUDA
from minigrad.engine.devices import backend, cpu
from minigrad.engine.memory.dtype import Code

ABSTRACT = {name: method for name, method in vars(backend.Backend).items() if not name.startswith("_")}
BACKENDS = [cpu.CPU, CUDA]


def own(cls, name):
    """Return a method of a class, or of a base that is not the interface."""
    return next((vars(c)[name] for c in cls.__mro__ if c is not backend.Backend and name in vars(c)), None)


def names(method):
    """Return the parameters of a method, without their types."""
    return [(p.name, p.kind, p.default) for p in list(inspect.signature(method).parameters.values())[1:]]


def test_the_interface_holds_the_primitives():
    assert {"unary", "binary", "reduce", "gemm", "normalize", "normalize_backward", "optimize", "normal"} <= set(
        ABSTRACT
    )
    assert len(ABSTRACT) >= 30


@pytest.mark.parametrize("name", ABSTRACT)
@pytest.mark.parametrize("cls", BACKENDS)
def test_signatures_agree(cls, name):
    method = own(cls, name)
    assert method is not None, f"{cls.__name__}.{name} is missing"
    assert names(method) == names(ABSTRACT[name])


@pytest.mark.parametrize("cls", BACKENDS)
def test_nothing_beyond_the_interface(cls):
    found = {name for c in cls.__mro__ if c not in (backend.Backend, object) for name in vars(c)}
    assert {name for name in found if not name.startswith("_")} <= set(ABSTRACT)


def test_the_interface_is_abstract_and_documented():
    assert all(method.__doc__ for method in ABSTRACT.values())
    x, abstract = mg.zeros((1, 1)), backend.Backend()
    for call in (
        lambda: abstract.unary(0, x, x), lambda: abstract.gemm(x, x, x, 0.0, None),
        lambda: abstract.sum_of_squares([x]),
        lambda: abstract.optimize(None, [x], [x], [], ()), lambda: abstract.softmax(1, 1, False, x, x),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()


OPERATIONS = {"unary": backend.Unary, "binary": backend.Binary, "reduce": backend.Reduce}


@pytest.mark.parametrize("primitive", OPERATIONS)
def test_operations_and_dtypes_beyond_the_table(primitive):
    for op, code in ((len(OPERATIONS[primitive]), 0), (-1, 0), (0, len(Code)), (0, -1)):
        raises(IndexError, rf"^\[{primitive}\].* got {op}, {code}$", cpu.is_defined, primitive, op, code)


UNDEFINED = [
    pytest.param(primitive, op, dtype, id=f"{primitive}-{op.name}-{dtype}")
    for primitive, ops in OPERATIONS.items()
    for op in ops for dtype in ("bool", "uint8", "int32", "int64", "float32", "float64")
    if not cpu.is_defined(primitive, op, Code[dtype.upper()])
]  # fmt: skip


@pytest.mark.parametrize("primitive, op, dtype", UNDEFINED)
def test_what_a_dtype_does_not_have_is_refused(primitive, op, dtype, device):
    x, out = (mg.ones(3, dtype=dtype, device=device) for _ in range(2))
    arguments = {"unary": (x, out), "binary": (x, x, out), "reduce": (1, 3, 1, x, out)}[primitive]
    one = cpu.CPU() if device == "cpu" else CUDA(0)
    refuses(TypeError, primitive, f"not defined for {dtype}", getattr(one, primitive), op, *arguments)
