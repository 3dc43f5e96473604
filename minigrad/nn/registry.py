"""The contents of a module: the names of its parameters, buffers and submodules, and the checks of an assignment."""

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, ClassVar

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.parameter import Buffer, Parameter
from minigrad.tools.arguments import Constructed


class Registry(Constructed):
    """The base of `Module`: registers what is assigned, and finds what is registered.

    The registries hold only names, in the order of assignment; the objects are ordinary instance attributes, so
    ``self.weight`` costs no more than any other attribute.
    """

    _parameters: dict[str, None]
    _buffers: dict[str, bool]  # name -> whether it is part of the state_dict
    _modules: dict[str, None]
    _hooks: dict[str, dict[Any, Callable[..., Any]]] | None = None
    _optional: tuple[str, ...] = ()  # the buffers that a state need not have
    _methods: ClassVar[frozenset[str]] = frozenset()  # the names that no parameter, buffer or submodule may have

    # ── assignment ──

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter):
            self._register("_parameters", name, value)
        elif isinstance(value, Buffer):
            self._register("_buffers", name, value, value.persistent)
        elif isinstance(value, Registry):
            self._register("_modules", name, value)
        else:
            self._check_plain(name, value)
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._unregister(name)

    def _register(self, registry: str, name: str, value: object, entry: bool | None = None) -> None:
        members = self.__dict__
        if registry not in members:
            raise AttributeError(
                f"[{type(self).__name__}] call super().__init__() before assigning {name!r}, a {type(value).__name__}"
            )
        if not isinstance(name, str):
            raise TypeError(f"[{type(self).__name__}] expected a name of type str, got {name!r}")
        if not name or "." in name:
            raise ValueError(f"[{type(self).__name__}] expected a nonempty name without dots, got {name!r}")
        if name != "forward" or not isinstance(value, Registry):  # a module named forward replaces the method
            self._check_name(name)
        if isinstance(value, Registry):
            self._check_child(value)
        if name not in members[registry]:
            self._unregister(name)
        members[registry][name] = entry
        members[name] = value

    def _unregister(self, name: str) -> None:
        for registry in ("_parameters", "_buffers", "_modules"):
            self.__dict__.get(registry, {}).pop(name, None)

    def _check_child(self, module: "Registry") -> None:
        if any(inner is self for _, inner in module._walk("", set())):
            kind = type(module).__name__
            raise ValueError(f"[{type(self).__name__}] expected a module that does not contain this one, got a {kind}")

    def _check_plain(self, name: str, value: object) -> None:
        """Reject a value of another kind than the registered one, so that nothing is unregistered silently."""
        if name in self._methods and not callable(value):  # a function replaces a method on purpose
            self._check_name(name)
        members = self.__dict__
        if value is None or "_modules" not in members:
            return
        kind = (
            "a Parameter" if name in members["_parameters"]
            else "a Module" if name in members["_modules"]
            else "a Tensor" if name in members["_buffers"] and not isinstance(value, Tensor)
            else None
        )  # fmt: skip
        if isinstance(value, FunctionType) and isinstance(getattr(value, "__wrapped__", None), Registry):
            raise TypeError(
                f"[{type(self).__name__}] expected the module itself for {name!r}, got a function that wraps it, whose "
                f"parameters would not be found: wrap it where it is called, as in mg.recompute(self.{name})(x)"
            )
        if kind is not None:
            raise TypeError(
                f"[{type(self).__name__}] expected {kind} or None for {name!r}, got {kind_of(value)}; "
                f"`del` the attribute first to make it something else"
            )

    def _check_name(self, name: str) -> None:
        if name in self._methods:
            raise AttributeError(
                f"[{type(self).__name__}] expected a name that no method of Module has, got {name!r}: "
                f"choose another, such as {name + '_'!r}"
            )

    def _check_new(self, registry: str, name: str) -> None:
        """Reject a name that another attribute has: registering only replaces within the same registry."""
        if isinstance(name, str) and name not in self.__dict__.get(registry, ()) and hasattr(self, name):
            raise ValueError(f"[{type(self).__name__}] expected a new name, got {name!r}, which already exists")

    # ── traversal ──

    def _children(self) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for name in self._modules:
            module = self.__dict__[name]
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def _walk(self, path: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
        if id(self) not in seen:
            seen.add(id(self))
            yield path, self
            for name, child in self._children():
                yield from child._walk(join(path, name), seen)

    def _named_members(self, registry: str, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self._walk(prefix, set()) if recurse else [(prefix, self)]:
            for name in getattr(module, registry):
                value = module.__dict__[name]
                if value is not None and id(value) not in seen:
                    seen.add(id(value))
                    yield join(path, name), value

    def _state(self, path: str) -> Iterator[tuple[str, Tensor]]:
        for place, module in self._places(path):
            buffers = (name for name, persistent in module._buffers.items() if persistent)
            for name in (*module._parameters, *buffers):
                if module.__dict__[name] is not None:
                    yield join(place, name), module.__dict__[name]

    def _places(self, path: str) -> Iterator[tuple[str, "Registry"]]:
        """Iterate over (dotted path, module) as `_walk` does, but shared modules at each of their places."""
        yield path, self
        for name in self._modules:
            if self.__dict__[name] is not None:
                yield from self.__dict__[name]._places(join(path, name))

    def _other_names(self) -> dict[str, str]:
        """Return the names that PyTorch gives to parameters and buffers of this module, if they are others."""
        return {}


def join(path: str, name: str) -> str:
    """Return the dotted path of a member of the module at `path`."""
    return f"{path}.{name}" if path else name
