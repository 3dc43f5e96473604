"""Spectral normalization: a weight divided by its largest singular value."""

from typing import ClassVar

from minigrad import random
from minigrad.autograd import no_grad
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.functions import sqrt
from minigrad.engine.ops.layout import moveaxis
from minigrad.engine.ops.logic import maximum, where
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.layers.conv import ConvTranspose2d
from minigrad.nn.module import Module
from minigrad.nn.norm.computed import Computation, M, make_computed, plain_parameter, remove
from minigrad.nn.norm.weight_norm import scale_down

FIRST_ITERATIONS = 15  # as in torch.nn.utils.parametrizations.spectral_norm


class SpectralNorm(Computation):
    """Computes w / σ, with σ = uᵀ W v, from the parameter ``name_orig`` and the buffers ``name_u`` and ``name_v``."""

    kind = "spectrally normalized"
    other_names: ClassVar = {"original": "_orig", "0._u": "_u", "0._v": "_v"}

    def __init__(self, name: str, n_power_iterations: int, eps: float, dim: int) -> None:
        super().__init__(name, f"{name}_orig", buffers=(f"{name}_u", f"{name}_v"))
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim

    def matrix(self, w: Tensor) -> Tensor:
        rows = moveaxis(w, self.dim, 0)
        return rows.reshape((rows.shape[0], -1))

    def iterate(self, matrix: Tensor, u: Tensor, v: Tensor, times: int) -> None:
        """Move u and v towards the singular vectors of the largest singular value, in place."""
        with no_grad():
            for _ in range(times):
                v.copy_(self.normalize(u @ matrix, v))
                u.copy_(self.normalize(matrix @ v, u))

    def normalize(self, x: Tensor, old: Tensor) -> Tensor:
        """Return x / max(‖x‖, ε); `old` if x is 0, from which no later iteration would get away."""
        m, y, squares = scale_down(x, None)
        return where(squares == 0, old, y / maximum(sqrt(squares), self.eps / m))

    def value(self, module: Module) -> Tensor:
        w = getattr(module, self.whole)
        # The next iteration may come before the backward pass, which needs these values.
        u, v = (getattr(module, name).copy() for name in self.buffers)
        sigma = (u * (self.matrix(w) @ v)).sum()
        return w / where(sigma == 0, 1.0, sigma)

    def __call__(self, module: Module) -> Tensor:
        if module.training:
            u, v = (getattr(module, name) for name in self.buffers)
            self.iterate(self.matrix(getattr(module, self.whole).detach()), u, v, self.n_power_iterations)
        return self.value(module)

    def restart(self, module: Module) -> None:
        for name, value in zip(self.buffers, self.first(getattr(module, self.whole)), strict=True):
            getattr(module, name).copy_(value)

    def first(self, w: Tensor) -> tuple[Tensor, Tensor]:
        """Return u and v after some iterations from a random u."""
        with no_grad():
            matrix = self.matrix(w.detach())
            u, v = (random.normal(0.0, 1.0, (n,), dtype=w.dtype).to(w.device) for n in matrix.shape)
            u, v = self.normalize(u, u), self.normalize(v, v)
        self.iterate(matrix, u, v, FIRST_ITERATIONS)
        return u, v


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Reparametrize a parameter as w / σ, with an estimate σ of its largest singular value.

    Miyato et al. 2018, https://arxiv.org/abs/1802.05957, algorithm 1. As a matrix W, w has one row for each output. In
    training, each access to ``module.name`` first iterates v ← Wᵀu / ‖Wᵀu‖ and u ← W v / ‖W v‖, `n_power_iterations`
    times; in evaluation, u and v stay as they are. Then σ = uᵀ W v, in which u and v are constants to the gradient.
    If σ is 0, as for w = 0, it is taken as 1.

    The parameter `name` is replaced by ``name_orig`` and the buffers ``name_u`` and ``name_v``: the names and state of
    `torch.nn.utils.spectral_norm`, though u and v begin with 15 iterations, as in
    ``torch.nn.utils.parametrizations``, whose names `load_state_dict` also understands:
    ``parametrizations.name.original``, ``0._u`` and ``0._v``. ``module.name`` is computed as by `weight_norm`, and
    ``reset_parameters`` also draws a new u.

    Errors are as for `weight_norm`, and for a parameter of one axis, `n_power_iterations` below 1 or a negative `eps`.

    Parameters
    ----------
    module : Module
    name : str
        The name of one of its own parameters, of at least two axes.
    n_power_iterations : int
    eps : float
        ε, the smallest norm to divide u and v by.
    dim : int, optional
        The axis of the outputs: by default 0, and 1 for `ConvTranspose2d`.

    Examples
    --------
    >>> layer = mg.nn.Linear(2, 2, bias=False)
    >>> layer.load_state_dict({"weight": mg.tensor([[4.0, 0.0], [0.0, 1.0]])}).missing_keys
    []
    >>> layer = mg.nn.utils.spectral_norm(layer)
    >>> list(layer.state_dict())
    ['weight_orig', 'weight_u', 'weight_v']
    >>> [[round(value, 4) for value in row] for row in layer.weight.tolist()]
    [[1.0, 0.0], [0.0, 0.25]]
    """
    op = "spectral_norm"
    w = plain_parameter(op, module, name)
    axis = int(isinstance(module, ConvTranspose2d)) if dim is None else integer(op, "dim", dim)
    if w.ndim < 2 or not -w.ndim <= axis < w.ndim:
        raise ValueError(f"[{op}] expected an axis of {name} of two axes or more, got dim={axis} and shape {w.shape}")
    times, eps = integer(op, "n_power_iterations", n_power_iterations, 1), number(op, "eps", eps, 0)
    compute = SpectralNorm(name, times, eps, axis % w.ndim)
    u, v = compute.first(w)
    make_computed(module, compute, {f"{name}_orig": w, f"{name}_u": u, f"{name}_v": v})
    return module


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Turn a spectrally normalized parameter back into an ordinary one, as `remove_weight_norm` does.

    Examples
    --------
    >>> layer = mg.nn.utils.remove_spectral_norm(mg.nn.utils.spectral_norm(mg.nn.Linear(2, 1)))
    >>> list(layer.state_dict())
    ['bias', 'weight']
    """
    return remove("remove_spectral_norm", module, name, SpectralNorm)
