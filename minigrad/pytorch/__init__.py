"""PyTorch's names: each either works, as a small function, or raises an error that says what to write instead.

``methods`` and ``storage`` have the names of a tensor, which inherits them from `Extension`, ``functions`` the names of
modules; ``hints`` and ``layer_hints`` say what to write instead of the others. `KEYWORDS` maps PyTorch's argument
names to ours, and `COLLISIONS` lists the functions that mean something else here. The page "For users of PyTorch" shows
all of them.
"""

import importlib
import sys
from typing import Any

from minigrad import namespace as mg
from minigrad.engine.tensor.pytorch_names import connect
from minigrad.engine.tensor.tensor import Extension
from minigrad.pytorch import functions
from minigrad.pytorch.hints import FOREIGN, MODELS, POINTERS
from minigrad.pytorch.methods import KEYWORDS, TensorNames
from minigrad.pytorch.storage import StorageNames

DTYPES = {"float": "float32", "double": "float64", "long": "int64", "int": "int32"}


FUNCTIONS: dict[str, dict[str, Any]] = {
    "minigrad.autograd": {"grad": functions.autograd_grad},
    "minigrad.nn.functional": {"pad": functions.functional_pad},
}
FUNCTIONS["minigrad"] = {
    name: value for name, value in vars(functions).items()
    if getattr(value, "__module__", "").startswith(__name__) and not name.startswith("_") and not name.endswith("Names")
    and not any(value in others.values() for others in FUNCTIONS.values())
}  # fmt: skip


# Functions with an argument `inplace`, which is dropped: the result is a new tensor.
INPLACE = {
    "dropout", "dropout1d", "dropout2d", "elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "relu",
    "relu6", "selu", "silu",
}  # fmt: skip

# Functions whose results differ from PyTorch's; these keywords show that PyTorch's function is meant.
COLLISIONS = {
    "median": "mg.median(x, axis) is the mean of the two elements in the middle; PyTorch's median is the lower one, "
    "`x.sort(axis)` at (n - 1) // 2, and with dim its index, too",
    "max": "x.max(axis) gives the values and x.argmax(axis) the indices; PyTorch's x.max(dim) gives both",
    "min": "x.min(axis) gives the values and x.argmin(axis) the indices; PyTorch's x.min(dim) gives both",
    "sort": "x.sort(axis) gives the values and x.argsort(axis) the indices; PyTorch's x.sort(dim) gives both",
    "split": "x.split(n, axis) makes n parts, and a list has the indices between parts; for PyTorch's parts of n "
    "elements, or of the lengths in a list, write x.split_with_sizes(n, axis)",
}
DIVISORS = "divides by n here and by n - 1 in PyTorch: add correction=0 for ours, correction=1 for PyTorch's"


# The names here of the second operands that PyTorch calls other or target.
OPERANDS = {("x",), ("y",), ("target",), ("labels",)}


def call(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call one of minigrad's functions with PyTorch's arguments; NotImplemented if they are not PyTorch's."""
    code, name = function.__code__, function.__name__
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if name == "where" and len(args) == 1 and not options:
        return mg.nonzero(*args)
    if "correction" in own and (len(args) > code.co_argcount or any(isinstance(a, bool) for a in args)):
        raise TypeError(f"[{name}] {DIVISORS}")  # x.std(0, False), x.std(False)
    if len(args) <= code.co_argcount and all(k in own for k in options):
        return NotImplemented
    more, args = args[code.co_argcount :], args[: code.co_argcount]
    foreign = [k for k in options if k not in own]
    if name in COLLISIONS and (more or any(KEYWORDS.get(k) for k in foreign)):
        raise TypeError(f"[{name}] {COLLISIONS[name]}")
    if (
        len(more) == 1
        and isinstance(more[0], bool)
        and own[code.co_argcount :][:1] == ("keepdims",)
        and ("keepdims" not in options)
    ):
        options["keepdims"] = more[0]  # x.sum(1, True)
    elif name == "flip" and more:
        args = (args[0], (*args[1:], *more))
    elif more and not (len(more) == 1 and isinstance(more[0], bool) and name in INPLACE):  # F.relu(x, True)
        return NotImplemented
    for given in foreign:
        if given == "unbiased" and "correction" in own:
            ours: str | None = "correction"
            if not isinstance(options["unbiased"], bool):
                raise TypeError(f"[{name}] expected True or False for unbiased, got {options['unbiased']!r}")
            options["unbiased"] = int(options["unbiased"])
        elif given == "input" or (given in ("other", "target") and own[1:2] in OPERANDS):
            ours = own[0 if given == "input" else 1]
        elif given == "inplace" and name in INPLACE:
            ours = None
        elif KEYWORDS.get(given) in own:
            ours = KEYWORDS[given]
        else:  # NumPy's name for an argument of a function that has PyTorch's
            ours = next((theirs for theirs, name in KEYWORDS.items() if name == given and theirs in own), None)
            if ours is None:
                return NotImplemented
        value = options.pop(given)
        if ours is None:
            continue
        if ours in options or ours in own[: len(args)]:
            first, second = (given, ours) if given in KEYWORDS.values() else (ours, given)
            raise TypeError(f"[{name}] expected {first} or {second}, which are the same argument, got both")
        options[ours] = value
    if "correction" in own and foreign and "correction" not in options:
        raise TypeError(f"[{name}] {DIVISORS}")
    return function(*args, **options)


class Pointer:
    """A member of a class that raises an AttributeError with what to write instead."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def __get__(self, instance: Any, kind: type) -> Any:
        raise AttributeError(f"[{self.name}] {self.text}", name=self.name, obj=instance)


# The methods and properties that work, and all that a tensor has besides its own members.
METHODS: dict[str, Any] = {
    name: value for names in (TensorNames, StorageNames) for name, value in vars(names).items() if name[0] != "_"
}
MEMBERS: dict[str, Any] = {name: Pointer(name, text) for name, text in POINTERS["Tensor"].items()} | METHODS
for _name, _value in MEMBERS.items():
    setattr(Extension, _name, _value)
for _class, _pointers in (
    (mg.nn.Module, POINTERS["minigrad.nn.Module"] | MODELS), (mg.optim.Optimizer, POINTERS["minigrad.optim.Optimizer"])
):  # fmt: skip
    for _name, _text in _pointers.items():
        setattr(_class, _name, Pointer(_name, _text))


def find(module: str, name: str) -> Any:
    """Return a module's member by PyTorch's name, or raise an AttributeError that says what to write instead."""
    if module == "minigrad":
        if name == "utils":
            return importlib.import_module("minigrad.utils")
        if name in DTYPES:
            return getattr(mg, DTYPES[name])
    if name in FUNCTIONS.get(module, {}):
        return FUNCTIONS[module][name]
    elsewhere = POINTERS.get(module, {}).get(name) or FOREIGN.get(module, {}).get(name)
    if elsewhere is not None:
        raise AttributeError(f"[{name}] {elsewhere}", name=name)
    raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])


connect(call, find)
