"""The surroundings of a function: places in Python's memory, which a captured step compares before a replay.

The search begins at the function and its arguments, and follows the names in its code: variables of the functions
around it, global variables, attributes of objects. What they hold is searched too: bound methods, containers, layers,
the code of other functions and of classes. As one function passes objects to another, an attribute is read if any of
the functions found names it. Not searched: the standard library and installed packages, whose code changes nothing
that belongs to the user; optimizers and schedules, whose steps are made in each run; what no name leads to.
"""

import array
import gc
import io
import os
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MappingView
from contextlib import suppress
from functools import cached_property, partial, partialmethod
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from minigrad.engine.memory.calls import CaptureError
from minigrad.engine.ops.functions import exp
from minigrad.engine.ops.reduce import mean
from minigrad.engine.tensor.names import is_module
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import leaves

FUNCTIONS = (BuiltinFunctionType, type(exp), type(mean))  # the last two are the types of the engine's functions
CONSTANTS = (type(None), bool, int, float, complex, str, bytes, range, slice, Tensor, np.generic, *FUNCTIONS)
CONTAINERS = (dict, list, tuple, set, frozenset, deque)
BUFFERS = (np.ndarray, bytearray, array.array, memoryview)
LARGEST_BUFFER = 1 << 16  # bytes: comparing more in each call would take longer than many steps
# With these names, any attribute may be read.
DYNAMIC = {"getattr", "hasattr", "vars", "__dict__", "__getattribute__", "attrgetter"}
# Methods that no name in the code leads to: `Module` and `Function` call some, Python the special ones.
IMPLICIT = {"forward", "backward"}
CONSTRUCTION = {"__init__", "__new__", "__post_init__"}  # naming the class runs these
UNUSED = {"__repr__", "__str__", "__format__", "__getstate__", "__setstate__", "__reduce__", "__del__"}
COMPARISONS = {"__eq__", "__lt__", "__le__", "__gt__", "__ge__"}  # `dataclass` makes methods that read all attributes
REGISTRIES = ("_parameters", "_buffers", "_modules")  # names only; the objects are attributes
STANDARD_LIBRARY = os.path.dirname(os.__file__)


class Place(NamedTuple):
    """Where something is that may be replaced."""

    kind: str  # "cell", "entry" of a dict, "attribute", "slot", or all "items", "members" or "bytes"
    holder: Any
    name: str
    label: str  # in messages


def surroundings(function: Any, arguments: Any) -> list[Place]:
    """Return the places that decide what a function does with these arguments, tuples, lists and dicts of anything."""
    names = {"__wrapped__"}  # decorators keep the function there
    while True:
        search = Search(names, package_of(function))
        for x in (function, *leaves(arguments)):
            search.reach(x, type(x).__name__)
        while search.waiting:
            search.look_into(*search.waiting.pop())
        if search.read <= names:
            return list(search.places.values())
        names |= search.read


def package_of(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", "")).partition(".")[0]


def names_in(code: CodeType) -> set[str]:
    """Return the names that the code of a function and of the functions within it looks up."""
    return {*code.co_names}.union(*(names_in(part) for part in code.co_consts if isinstance(part, CodeType)))


class Search:
    """One search with the names known so far; it collects the names in the code that it finds."""

    def __init__(self, names: set[str], package: str) -> None:
        self.names, self.package, self.read = names, package, set[str]()
        self.any_name = not names.isdisjoint(DYNAMIC)
        self.places: dict[Any, Place] = {}
        self.seen: dict[int, Any] = {}
        self.waiting: list[tuple[Any, str]] = []

    def reach(self, x: Any, label: str) -> None:
        if not isinstance(x, CONSTANTS) and id(x) not in self.seen:
            self.seen[id(x)] = x
            self.waiting.append((x, label))

    def note(self, kind: str, holder: Any, name: str, label: str) -> None:
        self.places[kind, id(holder), name] = Place(kind, holder, name, label)

    def is_users(self, namespace: Mapping[str, Any]) -> bool:
        """Whether a module is the user's own: its code may depend on what the user changes."""
        package, file = str(namespace.get("__name__", "")).partition(".")[0], namespace.get("__file__") or ""
        if package == "minigrad" or (
            package in sys.stdlib_module_names and (not file or file.startswith(STANDARD_LIBRARY))
        ):
            return False
        return package == self.package or not ("site-packages" in file or "dist-packages" in file)

    def look_into(self, x: Any, label: str) -> None:
        match x:
            case FunctionType():
                self.look_into_function(x)
            case MethodType():
                self.reach(x.__self__, type(x.__self__).__name__)
                self.reach(x.__func__, label)
            case staticmethod() | classmethod():
                self.reach(x.__func__, label)
            case property():
                self.reach(x.fget, label)
            case cached_property():
                self.reach(x.func, label)
            case partial() | partialmethod():
                for part in (x.func, x.args, x.keywords):
                    self.reach(part, label)
            case ModuleType():
                if self.is_users(vars(x)):
                    self.look_up(vars(x), self.names, f"{x.__name__}.{{}}")
            case type():
                self.look_into_class(x, named=True)
                self.look_into_class(type(x), named=False)
            case MappingProxyType() | MappingView():
                for part in gc.get_referents(x):  # the mapping, which a proxy does not show
                    self.reach(part, label)
            case weakref.ref():
                self.reach(x(), label)
            case _ if type(x) not in weakref.ProxyTypes:
                self.look_into_object(x, label)

    def look_up(self, variables: dict[str, Any], names: Iterable[str], label: str) -> None:
        for name in variables.keys() & names:
            self.note("entry", variables, name, label.format(name))
            self.reach(variables[name], name)

    def look_into_function(self, f: FunctionType) -> None:
        if not self.is_users(f.__globals__):
            return
        names = names_in(f.__code__)
        self.read |= names
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            self.note("cell", cell, "", f"the variable {name}")
            with suppress(ValueError):  # the cell is empty
                self.reach(cell.cell_contents, name)
        self.look_up(f.__globals__, names, "the global variable {}")
        self.look_up(vars(f), self.names, f"{f.__name__}.{{}}")
        for name in names - f.__globals__.keys():  # the function may import modules itself
            for path in (name, f"{f.__globals__.get('__package__')}.{name}"):
                self.reach(sys.modules.get(path), path)
        self.note("slot", f, "__code__", f"the code of {f.__name__}")  # notebooks that reload modules replace these
        for name, defaults in (("__defaults__", f.__defaults__), ("__kwdefaults__", f.__kwdefaults__)):
            if defaults:
                self.note("slot", f, name, f"the defaults of {f.__name__}")
                self.reach(defaults, f"the defaults of {f.__name__}")

    def classes_of_users(self, kind: type) -> list[type]:
        return [one for one in kind.__mro__ if self.is_users(vars(sys.modules.get(one.__module__, sys)))]

    def look_into_class(self, kind: type, named: bool) -> None:
        found: set[str] = set()
        for one in reversed(self.classes_of_users(kind)):
            for name, value in vars(one).items():
                if name in self.names or self.any_name or is_implicit(name, value, named):
                    found.add(name)
                    self.reach(value, name)
            for name in found:  # a class may get one that hides its base's
                self.note("attribute", one, name, f"{one.__name__}.{name}")

    def look_into_object(self, x: Any, label: str) -> None:
        kind = type(x)
        if any(one.__module__.startswith("minigrad.optim") for one in kind.__mro__):
            return
        users = self.classes_of_users(kind)
        if isinstance(x, CONTAINERS):
            if not isinstance(x, tuple | frozenset):
                self.note("items", x, "", f"an item of {label}")
            for item in x.values() if isinstance(x, dict) else x:
                self.reach(item, f"an item of {label}")
        elif isinstance(x, BUFFERS):
            if fits_comparison(x):
                self.note("bytes", x, "", f"an item of {label}")
        elif isinstance(x, Iterator) and not users and not isinstance(x, io.IOBase):
            raise CaptureError(
                f"[capture] expected a step that takes nothing from an iterator, which a replay would not do, got "
                f"{label}, a {kind.__name__}: pass what changes as an argument"
            )
        # The code of other classes is not searched, so the names that it reads are unknown.
        any_name = self.any_name if users else hasattr(kind, "__getitem__") or hasattr(kind, "__getattr__")
        module, own = is_module(x), members(x)
        whole = module or (any_name and bool(own))
        if whole:
            self.note("members", x, "", f"an attribute of {kind.__name__}")
        for name, value in own.items():
            if (any_name or name in self.names or is_module(value)) and not (module and name in REGISTRIES):
                if not whole:
                    self.note("attribute", x, name, f"{kind.__name__}.{name}")
                self.reach(value, f"{kind.__name__}.{name}")
        for one in kind.__mro__:
            for name, value in vars(one).items():
                if not any_name and name not in self.names:
                    continue
                if isinstance(value, MemberDescriptorType):
                    self.note("slot", x, name, f"{kind.__name__}.{name}")
                    self.reach(getattr(x, name, None), f"{kind.__name__}.{name}")
                elif one in users and not whole and hasattr(x, "__dict__"):
                    self.note("attribute", x, name, f"{kind.__name__}.{name}")  # it may get one that hides the class's
        self.look_into_class(kind, named=False)


def is_implicit(name: str, value: Any, named: bool) -> bool:
    """Whether a function of a class may run although nothing names it."""
    if not isinstance(value, FunctionType | staticmethod | classmethod):
        return False
    if name in CONSTRUCTION:
        return named
    if name in COMPARISONS:
        return isinstance(value, FunctionType) and not value.__code__.co_filename.startswith("<")
    return name in IMPLICIT or (name.startswith("__") and name not in UNUSED)


def fits_comparison(x: Any) -> bool:
    """Whether the bytes of a buffer can be compared in each call; not all dtypes of NumPy show them."""
    try:
        return memoryview(x).nbytes <= LARGEST_BUFFER
    except (TypeError, ValueError):
        return False


def members(x: Any) -> dict[str, Any]:
    own = getattr(x, "__dict__", None)
    return own if isinstance(own, dict) else {}  # `list[int].__dict__` is the read-only one of `list`
