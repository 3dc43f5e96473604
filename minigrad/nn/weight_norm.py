"""Weight normalization: a parameter computed from its lengths and directions."""

from typing import Any, TypeVar

from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.functions import absolute, rsqrt, sqrt, square
from minigrad.engine.ops.logic import where
from minigrad.engine.tensor import Tensor
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter

M = TypeVar("M", bound=Module)

_CLASSES: dict[type[Module], type[Module]] = {}  # from a class to its subclass with computed weights


class WeightNorm:
    """Computes w = g v / ‖v‖ from the parameters ``name_g`` and ``name_v`` of a module."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def scaled(self, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return m, u = v / m and ‖u‖² of each slice, keeping the axes, or scalars of all of v if `dim` is None.

        m is the largest magnitude, or 1 if that is 0, so that no square overflows or underflows. The derivative treats
        it as a constant, since u / ‖u‖ does not depend on it.
        """
        axes = None if self.dim is None else tuple(axis for axis in range(v.ndim) if axis != self.dim)
        keep = axes is not None
        with no_grad():
            largest = absolute(v).max(axes, keepdims=keep) if v.size else square(v).sum(axes, keepdims=keep)
            m = where(largest == 0, 1.0, largest)
        u = v / m
        return m, u, square(u).sum(axes, keepdims=keep)

    def norm(self, v: Tensor) -> Tensor:
        m, _, squares = self.scaled(v)
        return m * sqrt(squares)

    def __call__(self, module: Module) -> Tensor:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        _, u, squares = self.scaled(v)
        return u * (g * rsqrt(where(squares == 0, 1.0, squares)))  # v = 0: w = 0, dw/dv = g


class _Computing(Module):
    """A base inserted before the class of a module with computed weights; other modules keep plain attributes."""

    def __getattr__(self, name: str) -> Tensor:
        compute = self.__dict__.get("_computed", {}).get(name)
        if compute is not None:
            return compute(self)
        own = getattr(super(), "__getattr__", None)  # the class may define its own attribute lookup
        if own is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        return own(name)

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Skip the bases' hook for a class made for computed weights, as it is no subclass that a user wrote."""
        if cls.__bases__[0] is not _Computing:
            super().__init_subclass__(**arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        if is_weight_normed(self, name):
            raise AttributeError(
                f"[{type(self).__name__}] expected an assignment to {name}_g or {name}_v, got one to {name!r}"
            )
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
    """Reset the parameters as the plain class does, with v in place of the computed parameter; g becomes its norm."""
    members = module.__dict__
    if "_computed" not in members:  # called while a user's subclass is being constructed
        plain.reset_parameters(module)
        return
    computed, names = members.pop("_computed"), members["_parameters"]
    whole = {f"{name}_v": name for name in computed}
    split = {f"{name}_g" for name in computed}
    members["_parameters"] = {whole.get(name, name): None for name in names if name not in split}
    members.update((name, members[v]) for v, name in whole.items())
    try:
        plain.reset_parameters(module)
    finally:
        for name in computed:
            del members[name]
        members.update(_computed=computed, _parameters=names)
    with no_grad():
        for name, compute in computed.items():
            members[f"{name}_g"].copy_(compute.norm(members[f"{name}_v"]))


def _plain_class(module: Module) -> type[Module]:
    return type(module).__mro__[2] if isinstance(module, _Computing) else type(module)


def _rebuild(kind: type[Module]) -> Module:
    return Module.__new__(_computing_class(kind))


def is_weight_normed(module: Module, name: str = "weight") -> bool:
    """Whether `weight_norm` was applied to this parameter."""
    return name in module.__dict__.get("_computed", ())


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Reparametrize a parameter as w = g v / ‖v‖, with a length g and a direction v for each slice along an axis.

    Salimans, Kingma 2016, https://arxiv.org/abs/1602.07868, equation 2. The parameter `name` is replaced by ``name_g``,
    the norms, and ``name_v``, the original parameter; ``module.name`` is then computed from these two on each access,
    so in-place writes to it are lost. If v is all zeros, its norm is taken as 1, so w is zero and the gradients are
    finite (that of v is g times that of w, that of g is 0). Squares of the elements may underflow or overflow, as long
    as the dtype can represent the norms and, for gradients, g / ‖v‖. ``reset_parameters`` initializes v as the module
    initializes the parameter, and g to the norm of v.

    The names in `state_dict` are those of ``torch.nn.utils.weight_norm``, which ``torch.nn.utils.parametrizations``
    loads as well (but saves as ``parametrizations.name.original0`` and ``original1``). The class of the module becomes
    a subclass of the same name.

    Parameters
    ----------
    module : Module
    name : str
        The name of one of its own parameters.
    dim : int or None
        The axis of the slices, counted from the end if negative; None for a single norm of all elements, which PyTorch
        also writes as −1.

    Returns
    -------
    Module
        The same module. Create a new optimizer, as an existing one does not know g.

    Raises
    ------
    ValueError
        If there is no such parameter, it has no such axis, it is already weight-normalized, or it is the g or the v of
        another one.
    TypeError
        If `module` is not a module, or `dim` is not an integer.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> layer = nn.utils.weight_norm(nn.Linear(2, 1, bias=False))
    >>> {name: x.shape for name, x in layer.state_dict().items()}
    {'weight_g': (1, 1), 'weight_v': (1, 2)}
    >>> layer.load_state_dict({"weight_g": mg.tensor([[10.0]]), "weight_v": mg.tensor([[3.0, 4.0]])}).missing_keys
    []
    >>> [round(value, 4) for value in layer.weight[0].tolist()]
    [6.0, 8.0]
    """
    if not isinstance(module, Module):
        raise TypeError(f"[weight_norm] expected a Module, got {type(module).__name__}")
    if is_weight_normed(module, name):
        raise ValueError(f"[weight_norm] expected a parameter that is not weight-normalized yet, got {name!r}")
    v = getattr(module, name, None) if name in module._parameters else None
    if not isinstance(v, Parameter):
        raise ValueError(f"[weight_norm] expected a parameter of {type(module).__name__}, got the name {name!r}")
    if any(name in (f"{whole}_g", f"{whole}_v") for whole in module.__dict__.get("_computed", ())):
        raise ValueError(
            f"[weight_norm] expected a parameter that is not half of a weight-normalized one, got {name!r}"
        )
    dim = None if dim is None else integer("weight_norm", "dim", dim)
    if dim is not None and not -v.ndim <= dim < v.ndim:
        raise ValueError(f"[weight_norm] expected an axis of {name} of shape {v.shape}, got dim={dim}")
    compute = WeightNorm(name, None if dim is None else dim % v.ndim)
    with no_grad():
        g = Parameter(compute.norm(v), requires_grad=v.requires_grad)
    delattr(module, name)
    module.register_parameter(f"{name}_g", g)
    module.register_parameter(f"{name}_v", v)
    object.__setattr__(module, "__class__", _computing_class(_plain_class(module)))
    module.__dict__.setdefault("_computed", {})[name] = compute
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Turn a weight-normalized parameter back into an ordinary one with its current value.

    Returns
    -------
    Module
        The same module. The parameter is the object that was ``name_v``; it requires gradients if g or v did.

    Raises
    ------
    ValueError
        If `name` is not weight-normalized.
    TypeError
        If `module` is not a module.

    Examples
    --------
    >>> from minigrad import nn
    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 1)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    if not isinstance(module, Module):
        raise TypeError(f"[remove_weight_norm] expected a Module, got {type(module).__name__}")
    if not is_weight_normed(module, name):
        raise ValueError(f"[remove_weight_norm] expected a weight-normalized parameter, got the name {name!r}")
    g, v = getattr(module, f"{name}_g"), getattr(module, f"{name}_v")
    with no_grad():
        v.copy_(getattr(module, name))
    v.requires_grad = v.requires_grad or g.requires_grad
    v.grad = None
    del module.__dict__["_computed"][name]
    if not module.__dict__["_computed"]:
        del module.__dict__["_computed"]
        object.__setattr__(module, "__class__", _plain_class(module))
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    module.register_parameter(name, v)
    return module
