"""Methods of compiled classes reject objects of other types: an unchecked `self` would be read as a struct."""

import copy
import importlib
import pkgutil

import numpy as np
import pytest
from checks import raises

import minigrad as mg
from minigrad import engine

HEAP = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes that Python code defines


def compiled_classes():
    modules = [importlib.import_module(m.name) for m in pkgutil.walk_packages(engine.__path__, "minigrad.engine.")]
    found = {c for m in modules for c in vars(m).values() if isinstance(c, type) and not c.__flags__ & HEAP}
    return sorted((c for c in found if c.__module__.startswith("minigrad.")), key=lambda c: c.__qualname__)


def own_methods(cls):
    """All methods except functions such as `Tensor.exp`, which convert their first argument."""
    return {
        name: value
        for name, value in vars(cls).items()
        if callable(value) and "." in getattr(value, "__qualname__", ".") and name not in {"__new__", "__pyx_vtable__"}
    }


class Lookalike:
    """Has every attribute, and claims any class."""

    def __getattr__(self, name):
        return self


# The descriptor rejects it before any of our code runs.
@pytest.mark.parametrize("cls", compiled_classes(), ids=lambda c: c.__qualname__)
def test_a_wrong_self_is_a_type_error(cls):
    for method in own_methods(cls).values():
        for wrong in (None, 5, "text", np.ones(3), Lookalike()):
            for arguments in ((), (None,), (0, 0)):
                raises(TypeError, "descriptor", method, wrong, *arguments)


def test_the_classes_and_methods_that_a_caller_reaches_are_among_them():
    array = mg.Tensor.__base__.__base__
    assert {mg.Tensor, mg.Tensor.__base__, array, mg.DType, mg.no_grad} <= set(compiled_classes())
    assert {"detach", "to", "backward", "__deepcopy__"} <= own_methods(mg.Tensor).keys()
    assert {"item", "numpy", "_detached_numpy"} <= own_methods(array).keys()


def test_properties_check_their_self_too():
    for cls in compiled_classes():
        for value in vars(cls).values():
            if hasattr(type(value), "__get__") and not callable(value):
                for wrong in (5, "text", np.ones(3)):
                    raises(TypeError, "descriptor", value.__get__, wrong)


@pytest.mark.parametrize(
    "cls", [engine.memory.listener.Listener, engine.devices.cpu.CPU, engine.tape.inspection.Outline]
)
def test_classes_that_do_not_say_how_are_not_copied(cls):
    raises(TypeError, "cannot pickle", copy.copy, cls())
