"""Weight normalization and weight standardization: a weight computed from parameters, independently of the data."""

from typing import ClassVar

from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.functions import rsqrt, sqrt, square
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.rounding import absolute
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.module import Module
from minigrad.nn.norm.computed import Computation, M, make_computed, plain_parameter, remove
from minigrad.nn.norm.norm_compositions import weight_standardization as standardize
from minigrad.nn.parameter import Parameter


def scale_down(v: Tensor, axes: tuple[int, ...] | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return m, u = v / m and ‖u‖² over `axes`, which are kept; or over all of v, as scalars, for None.

    m is the largest magnitude, or 1 if that is 0, so that no square overflows or underflows. The derivative treats it
    as a constant, since u / ‖u‖ does not depend on it.
    """
    keep = axes is not None
    with no_grad():
        largest = absolute(v).max(axes, keepdims=keep) if v.size else square(v).sum(axes, keepdims=keep)
        m = where(largest == 0, 1.0, largest)
    u = v / m
    return m, u, square(u).sum(axes, keepdims=keep)


class WeightNorm(Computation):
    """Computes w = g v / ‖v‖ from the parameters ``name_g`` and ``name_v`` of a module."""

    kind = "weight-normalized"
    other_names: ClassVar = {"original0": "_g", "original1": "_v"}

    def __init__(self, name: str, dim: int | None, ndim: int) -> None:
        super().__init__(name, f"{name}_v", (f"{name}_g",))
        self.axes = None if dim is None else tuple(axis for axis in range(ndim) if axis != dim)

    def norm(self, v: Tensor) -> Tensor:
        m, _, squares = scale_down(v, self.axes)
        return m * sqrt(squares)

    def value(self, module: Module) -> Tensor:
        g, v = (getattr(module, name) for name in self.parameters)
        _, u, squares = scale_down(v, self.axes)
        return u * (g * rsqrt(where(squares == 0, 1.0, squares)))  # v = 0: w = 0, dw/dv = g

    def restart(self, module: Module) -> None:
        g, v = (getattr(module, name) for name in self.parameters)
        g.copy_(self.norm(v))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Reparametrize a parameter as w = g v / ‖v‖, with a length g and a direction v for each slice along an axis.

    Salimans, Kingma 2016, https://arxiv.org/abs/1602.07868, equation 2. The parameter `name` is replaced by ``name_g``,
    the norms, and ``name_v``, the original parameter; ``module.name`` is then computed from these two on each access,
    so in-place writes to it are lost. If v is all zeros, its norm is taken as 1, so w is zero and the gradients are
    finite: dL/dv = g dL/dw and dL/dg = 0. Squares of the elements may underflow or overflow, as long
    as the dtype can represent the norms and, for gradients, g / ‖v‖. ``reset_parameters`` initializes v as the module
    initializes the parameter, and g to the norm of v.

    The names in `state_dict` are those of ``torch.nn.utils.weight_norm``, which ``torch.nn.utils.parametrizations``
    loads as well; `load_state_dict` also understands the names with which the latter saves,
    ``parametrizations.name.original0`` and ``original1``. The class of the module becomes a subclass of the same name.
    Raises ValueError if there is no such parameter, it has no such axis, it is already computed from others, or it is
    part of one that is; TypeError if `module` is not a module, or `dim` is not an integer.

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

    Examples
    --------
    >>> layer = mg.nn.utils.weight_norm(mg.nn.Linear(2, 1, bias=False))
    >>> {name: x.shape for name, x in layer.state_dict().items()}
    {'weight_g': (1, 1), 'weight_v': (1, 2)}
    >>> layer.load_state_dict({"weight_g": mg.tensor([[10.0]]), "weight_v": mg.tensor([[3.0, 4.0]])}).missing_keys
    []
    >>> [round(value, 4) for value in layer.weight[0].tolist()]
    [6.0, 8.0]
    """
    v = plain_parameter("weight_norm", module, name)
    dim = None if dim is None else integer("weight_norm", "dim", dim)
    if dim is not None and not -v.ndim <= dim < v.ndim:
        raise ValueError(f"[weight_norm] expected an axis of {name} of shape {v.shape}, got dim={dim}")
    compute = WeightNorm(name, None if dim is None else dim % v.ndim, v.ndim)
    with no_grad():
        g = Parameter(compute.norm(v), requires_grad=v.requires_grad)
    make_computed(module, compute, {f"{name}_g": g, f"{name}_v": v})
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Turn a weight-normalized parameter back into an ordinary one with its current value.

    Raises ValueError if `name` is not weight-normalized, and TypeError if `module` is not a module.

    Returns
    -------
    Module
        The same module. The parameter is the object that was ``name_v``; it requires gradients if g or v did.

    Examples
    --------
    >>> layer = mg.nn.utils.remove_weight_norm(mg.nn.utils.weight_norm(mg.nn.Linear(2, 1)))
    >>> [name for name, _ in layer.named_parameters()]
    ['bias', 'weight']
    """
    return remove("remove_weight_norm", module, name, WeightNorm)


class WeightStandardization(Computation):
    """Computes ŵ = (w − μ) / √(σ² + ε) from the parameter ``name_orig`` of a module."""

    kind = "standardized"

    def __init__(self, name: str, eps: float, dim: int) -> None:
        super().__init__(name, f"{name}_orig")
        self.eps, self.dim = eps, dim

    def value(self, module: Module) -> Tensor:
        return standardize(getattr(module, self.whole), self.eps, self.dim)


def weight_standardization(module: M, name: str = "weight", eps: float = 1e-5, dim: int = 0) -> M:
    """Reparametrize a parameter as ŵ = (w − μ) / √(σ² + ε), with the mean and variance of each slice along an axis.

    Qiao et al. 2019, https://arxiv.org/abs/1903.10520; `minigrad.nn.functional.weight_standardization` is the function.
    The parameter `name` is replaced by ``name_orig``, which is w, and computed from it as by `weight_norm`. It is meant
    for a linear layer or a convolution that a normalization with a weight and bias follows, as each output's weights
    have mean 0 and variance 1.

    Errors are as for `weight_norm`, and for a single weight per output and for a negative `eps`.

    Parameters
    ----------
    module, name
        As in `weight_norm`.
    eps : float
        ε, added to the variance.
    dim : int
        The axis of the outputs: 0 for `Linear` and `Conv2d`, 1 for `ConvTranspose2d`.

    Examples
    --------
    >>> layer = mg.nn.utils.weight_standardization(mg.nn.Conv2d(3, 6, 5, bias=False))
    >>> list(layer.state_dict())
    ['weight_orig']
    >>> bool(abs(layer.weight.mean((1, 2, 3))).max() < 1e-6)
    True
    """
    op = "weight_standardization"
    w, dim = plain_parameter(op, module, name), integer(op, "dim", dim)
    compute = WeightStandardization(name, number(op, "eps", eps, 0), dim)
    with no_grad():
        standardize(w, eps, dim)  # rejects what does not fit, before anything changes
    make_computed(module, compute, {f"{name}_orig": w})
    return module


def remove_weight_standardization(module: M, name: str = "weight") -> M:
    """Turn a standardized parameter back into an ordinary one, as `remove_weight_norm` does.

    Examples
    --------
    >>> layer = mg.nn.utils.weight_standardization(mg.nn.Linear(2, 1))
    >>> list(mg.nn.utils.remove_weight_standardization(layer).state_dict())
    ['bias', 'weight']
    """
    return remove("remove_weight_standardization", module, name, WeightStandardization)
