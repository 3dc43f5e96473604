"""Every device offers the same primitives: the methods of Backend and of each backend have equal signatures."""

import inspect

import pytest

import minigrad as mg
from minigrad.engine import backend, cpu

ABSTRACT = {name: method for name, method in vars(backend.Backend).items() if not name.startswith("_")}
BACKENDS = [cpu.CPU]


def test_the_interface_holds_the_primitives():
    assert {"unary", "binary", "reduce", "gemm", "layer_norm", "layer_norm_backward", "optimize", "normal"} <= set(
        ABSTRACT
    )
    assert len(ABSTRACT) >= 30


@pytest.mark.parametrize("name", ABSTRACT)
@pytest.mark.parametrize("cls", BACKENDS)
def test_signatures_agree(cls, name):
    method = vars(cls).get(name)
    assert method is not None, f"{cls.__name__}.{name} is missing"
    assert inspect.signature(method) == inspect.signature(ABSTRACT[name])


@pytest.mark.parametrize("cls", BACKENDS)
def test_nothing_beyond_the_interface(cls):
    assert {name for name in vars(cls) if not name.startswith("_")} <= set(ABSTRACT)


def test_the_interface_is_abstract_and_documented():
    assert all(method.__doc__ for method in ABSTRACT.values())
    x, abstract = mg.zeros((1, 1)), backend.Backend()
    for call in (
        lambda: abstract.unary(0, x, x), lambda: abstract.gemm(x, x, x, 0.0, None),
        lambda: abstract.sum_of_squares([x]),
        lambda: abstract.optimize("sgd", [x], [x], None, None, None, {}), lambda: abstract.softmax(1, 1, False, x, x),
    ):  # fmt: skip
        with pytest.raises(NotImplementedError):
            call()
