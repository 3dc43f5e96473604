"""Parameters that a module computes from others: the machinery of weight norm, spectral norm and standardization."""

from typing import Any, ClassVar, TypeVar

from minigrad.autograd import no_grad
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module, check_module
from minigrad.nn.parameter import Parameter

M = TypeVar("M", bound=Module)

_CLASSES: dict[type[Module], type[Module]] = {}  # from a class to its subclass with computed parameters


class Computation:
    """How a module computes the parameter `name`; a subclass says from what."""

    kind: str  # what the parameter is called in errors, such as "weight-normalized"
    # The endings of the parts' names in torch.nn.utils.parametrizations, and here
    other_names: ClassVar[dict[str, str]] = {}

    def __init__(self, name: str, whole: str, parameters: tuple[str, ...] = (), buffers: tuple[str, ...] = ()) -> None:
        self.name, self.whole = name, whole  # `whole` is the parameter that takes the place of the computed one
        self.parameters, self.buffers = (*parameters, whole), buffers

    def value(self, module: Module) -> Tensor:
        """Compute the parameter."""
        raise NotImplementedError

    def __call__(self, module: Module) -> Tensor:
        """Compute the parameter on an access to it."""
        return self.value(module)

    def restart(self, module: Module) -> None:
        """Set the other parameters and the buffers after `whole` was initialized."""


class _Computing(Module):
    """A base inserted before the class of a module with computed parameters; other modules keep plain attributes."""

    def __getattr__(self, name: str) -> Tensor:
        compute = self.__dict__.get("_computed", {}).get(name)
        if compute is not None:
            return compute(self)
        own = getattr(super(), "__getattr__", None)  # the class may define its own attribute lookup
        if own is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return own(name)

    def _other_names(self) -> dict[str, str]:
        computed: dict[str, Computation] = self.__dict__.get("_computed", {})
        return {
            f"parametrizations.{name}.{other}": name + ending
            for name, compute in computed.items()
            for other, ending in compute.other_names.items()
        }

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Skip the bases' hook for a class made for computed parameters, as it is no subclass that a user wrote."""
        if cls.__bases__[0] is not _Computing:
            super().__init_subclass__(**arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        if is_computed(self, name):
            parameters = " or ".join(self.__dict__["_computed"][name].parameters)
            raise AttributeError(f"[{type(self).__name__}] expected an assignment to {parameters}, got one to {name!r}")
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Support copies and pickles, which cannot find this class by its name."""
        reduced: Any = super().__reduce_ex__(max(protocol, 2))
        return _rebuild, (_plain_class(self),), *reduced[2:]


def _computing_class(kind: type[Module]) -> type[Module]:
    if kind not in _CLASSES:
        names = {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
        if hasattr(kind, "reset_parameters"):
            names["reset_parameters"] = lambda module: _reset_parameters(module, kind)
        _CLASSES[kind] = type(kind.__name__, (_Computing, kind), names)
    return _CLASSES[kind]


def _reset_parameters(module: Module, plain: Any) -> None:
    """Reset the parameters as the plain class does, with the whole in place of the computed parameter."""
    members = module.__dict__
    if "_computed" not in members:  # called while a user's subclass is being constructed
        plain.reset_parameters(module)
        return
    computed, names = members.pop("_computed"), members["_parameters"]
    whole = {compute.whole: name for name, compute in computed.items()}
    others = {part for compute in computed.values() for part in compute.parameters} - whole.keys()
    members["_parameters"] = {whole.get(name, name): None for name in names if name not in others}
    members.update((name, members[part]) for part, name in whole.items())
    try:
        plain.reset_parameters(module)
    finally:
        for name in computed:
            del members[name]
        members.update(_computed=computed, _parameters=names)
    with no_grad():
        for compute in computed.values():
            compute.restart(module)


def _plain_class(module: Module) -> type[Module]:
    return type(module).__mro__[2] if isinstance(module, _Computing) else type(module)


def _rebuild(kind: type[Module]) -> Module:
    return Module.__new__(_computing_class(kind))


def is_computed(module: Module, name: str = "weight", kind: type[Computation] = Computation) -> bool:
    """Whether the module computes this parameter, by that kind of computation."""
    return isinstance(module.__dict__.get("_computed", {}).get(name), kind)


def plain_parameter(op: str, module: Module, name: str) -> Parameter:
    """Return a parameter of a module that is not computed, nor part of what is."""
    check_module(op, module)
    computed: dict[str, Computation] = module.__dict__.get("_computed", {})
    if name in computed:
        raise ValueError(f"[{op}] expected a parameter that is not {computed[name].kind} yet, got {name!r}")
    parameter = getattr(module, name, None) if name in module._parameters else None
    if not isinstance(parameter, Parameter):
        raise ValueError(f"[{op}] expected a parameter of {type(module).__name__}, got the name {name!r}")
    for compute in computed.values():
        if name in compute.parameters:
            raise ValueError(f"[{op}] expected a parameter that is not part of a {compute.kind} one, got {name!r}")
    return parameter


def make_computed(module: Module, compute: Computation, parts: dict[str, Any]) -> None:
    """Replace a parameter by the parameters and buffers of its computation."""
    delattr(module, compute.name)
    for name in compute.parameters:
        module.register_parameter(name, parts[name])
    for name in compute.buffers:
        module.register_buffer(name, parts[name])
    object.__setattr__(module, "__class__", _computing_class(_plain_class(module)))
    module.__dict__.setdefault("_computed", {})[compute.name] = compute


def make_plain(module: Module, name: str) -> None:
    """Turn a computed parameter back into an ordinary one with its current value, in the object that was the whole."""
    compute = module.__dict__["_computed"][name]
    whole = getattr(module, compute.whole)
    with no_grad():
        whole.copy_(compute.value(module))
    whole.requires_grad = any(getattr(module, part).requires_grad for part in compute.parameters)
    whole.grad = None
    del module.__dict__["_computed"][name]
    if not module.__dict__["_computed"]:
        del module.__dict__["_computed"]
        object.__setattr__(module, "__class__", _plain_class(module))
    for part in (*compute.parameters, *compute.buffers):
        delattr(module, part)
    module.register_parameter(name, whole)


def remove(op: str, module: M, name: str, kind: type[Computation]) -> M:
    """`make_plain`, for the function `op` that undoes one kind of computation."""
    check_module(op, module)
    if not is_computed(module, name, kind):
        raise ValueError(f"[{op}] expected a {kind.kind} parameter, got the name {name!r}")
    make_plain(module, name)
    return module
