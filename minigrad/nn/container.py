"""Modules that hold modules or parameters, as a list or by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar, overload

from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module, check_module
from minigrad.nn.parameter import Parameter

Self = TypeVar("Self", bound="_Numbered")


class _Numbered(Module):
    """Base class that behaves like a list of submodules, named by their position."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def _list(self) -> list[Module]:
        members = self.__dict__
        return [members[name] for name in self._modules]

    def _renumber(self, modules: list[Module]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        self.extend(modules)

    def _name(self, index: int) -> str:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"[{type(self).__name__}] expected an index from {-count} to {count - 1}, got {index}")
        return list(self._modules)[index]

    def append(self: Self, module: Module) -> Self:
        """Add a module at the end and return this one. Raises TypeError if `module` is not a `Module`."""
        check_module(type(self).__name__, module)
        self._register("_modules", str(len(self)), module)
        return self

    def extend(self: Self, modules: Iterable[Module]) -> Self:
        """Add several modules at the end and return this one."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"[{type(self).__name__}] expected an iterable of modules, got {modules!r}")
        for module in modules:
            self.append(module)
        return self

    def insert(self: Self, index: int, module: Module) -> Self:
        """Insert a module before position `index`, as `list.insert` does, and return this one."""
        check_module(type(self).__name__, module)
        self._check_child(module)
        modules = self._list()
        modules.insert(index, module)
        self._renumber(modules)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)._of(self._list()[index])
        return self.__dict__[self._name(index)]

    @classmethod
    def _of(cls: type[Self], modules: list[Module]) -> Self:
        return cls(modules)

    def __setitem__(self, index: int, module: Module) -> None:
        check_module(type(self).__name__, module)
        setattr(self, self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        modules = self._list()
        if not isinstance(index, slice):
            self._name(index)
        del modules[index]
        self._renumber(modules)


class ModuleList(_Numbered):
    """A list of modules whose parameters are registered; it computes nothing by itself.

    Parameters
    ----------
    modules : iterable of Module

    Examples
    --------
    >>> layers = mg.nn.ModuleList(mg.nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), len(list(layers.parameters()))
    (3, 6)
    """


class Sequential(_Numbered):
    """Modules that are called in order, each on the output of the previous one.

    Parameters
    ----------
    *modules : Module
        Named "0", "1", …; or a single dict of str to Module, which gives the names.

    Examples
    --------
    >>> model = mg.nn.Sequential(mg.nn.Linear(3, 8), mg.nn.Tanh())
    >>> model.append(mg.nn.Linear(8, 2))(mg.zeros((5, 3))).shape
    (5, 2)
    >>> model
    Sequential(
      (0): Linear(in_features=3, out_features=8, bias=True)
      (1): Tanh()
      (2): Linear(in_features=8, out_features=2, bias=True)
    )
    """

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        named = modules[0] if len(modules) == 1 else None
        if isinstance(named, Mapping):
            super().__init__()
            for name, module in named.items():
                self.register_module(name, module)
        else:
            if isinstance(named, list | tuple):
                raise TypeError(f"[Sequential] expected modules, got a {type(named).__name__}: nn.Sequential(*modules)")
            super().__init__(modules)  # type: ignore[arg-type]  # `append` rejects anything that is not a module

    @classmethod
    def _of(cls, modules: list[Module]) -> "Sequential":
        return cls(*modules)

    def forward(self, x: Any) -> Any:
        """The output of the last module; `x` itself if there is none."""
        members = self.__dict__
        for name in self._modules:
            x = members[name](x)
        return x


class ModuleDict(Module):
    """A dict of modules whose parameters are registered; it computes nothing by itself.

    Parameters
    ----------
    modules : mapping of str to Module, or iterable of pairs

    Examples
    --------
    >>> heads = mg.nn.ModuleDict({"digit": mg.nn.Linear(4, 10), "color": mg.nn.Linear(4, 3)})
    >>> list(heads), heads["color"].out_features
    (['digit', 'color'], 3)
    """

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules by name; one of the same name is replaced."""
        for name, module in dict(modules).items():
            self[name] = module

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __getitem__(self, name: str) -> Any:
        if name not in self._modules:
            raise KeyError(f"[ModuleDict] expected one of {list(self._modules)}, got {name!r}")
        return self.__dict__[name]

    def __setitem__(self, name: str, module: Module) -> None:
        check_module("ModuleDict", module)
        self.register_module(name, module)

    def __delitem__(self, name: str) -> None:
        self[name]
        delattr(self, name)

    def keys(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self)

    def values(self) -> Iterator[Module]:
        """Iterate over the modules."""
        return (self[name] for name in self)

    def items(self) -> Iterator[tuple[str, Module]]:
        """Iterate over (name, module)."""
        return ((name, self[name]) for name in self)


class ParameterList(Module):
    """A list of parameters that are registered; it computes nothing by itself.

    Parameters
    ----------
    values : iterable of Tensor
        A tensor that is not a `Parameter` becomes one.

    Examples
    --------
    >>> scales = mg.nn.ParameterList([mg.ones(3), mg.ones(2)])
    >>> len(scales), [p.shape for p in scales.parameters()]
    (2, [(3,), (2,)])
    """

    def __init__(self, values: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.extend(values)

    def append(self, value: Tensor) -> "ParameterList":
        """Add a parameter at the end and return this module."""
        self.register_parameter(str(len(self)), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def extend(self, values: Iterable[Tensor]) -> "ParameterList":
        """Add several parameters at the end and return this module."""
        for value in values:
            self.append(value)
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return (self.__dict__[name] for name in self._parameters)

    def __getitem__(self, index: int) -> Parameter:
        return list(self)[integer("ParameterList", "index", index)]

    def __setitem__(self, index: int, value: Tensor) -> None:
        name = list(self._parameters)[integer("ParameterList", "index", index)]
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))
