"""Recurrent layers, composed step by step out of other operations."""

import math

from minigrad.creation import empty, zeros
from minigrad.engine.array import DType
from minigrad.engine.ops.join import stack, unstack
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.norm import LayerNorm
from minigrad.nn.parameter import Parameter

ACTIVATIONS = {"tanh": F.tanh, "relu": F.relu}


class RNNCell(Module):
    """One step of a recurrent network: h' = f(W_ih x + b_ih + W_hh h + b_hh).

    With ``norm="layer"``, h' = f(LN(W_ih x + b_ih + W_hh h + b_hh)) (Ba, Kiros, Hinton 2016,
    https://arxiv.org/abs/1607.06450, equation 4).

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool
        Whether there are b_ih and b_hh.
    nonlinearity : {"tanh", "relu"}
        f.
    norm : {None, "layer"}
        Whether the sum is normalized before f.
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.

    Attributes
    ----------
    weight_ih : Parameter
        ``(hidden_size, input_size)``; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size).
    weight_hh : Parameter
        ``(hidden_size, hidden_size)``
    bias_ih, bias_hh : Parameter or None
        ``(hidden_size,)``
    norm : LayerNorm or None
        With gain and bias of ``(hidden_size,)``.

    Raises
    ------
    ValueError
        For sizes below 1, an unknown `nonlinearity` or `norm`; when called, for shapes that do not fit.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> cell = nn.RNNCell(3, 5, norm="layer")
    >>> cell(mg.zeros((2, 3))).shape
    (2, 5)
    """

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    norm: LayerNorm | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", *,
        norm: str | None = None, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_options(type(self).__name__, input_size, hidden_size, nonlinearity, norm)
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        _add_parameters(self, "", input_size, hidden_size, bias, norm, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases anew; gain 1 and bias 0 of the norm."""
        _reset_parameters(self, self.hidden_size)

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """x ``(N, input_size)`` or ``(input_size,)`` and h of the same form (zeros if absent) to the next h."""
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            size = self.input_size
            raise ValueError(f"[RNNCell] expected an input (N, {size}) or ({size},), got {x.shape}")
        shape = (*x.shape[:-1], self.hidden_size)
        h = zeros(shape, dtype=x.dtype, device=x.device) if h is None else _check_state("RNNCell", h, shape)
        projected = F.linear(x, self.weight_ih, _sum(self.bias_ih, self.bias_hh))
        return _step(projected, h, self.weight_hh, self.norm, ACTIVATIONS[self.nonlinearity])

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, bias={self.bias_ih is not None}, {self.nonlinearity!r}"


class RNN(Module):
    """A recurrent network over a sequence: h_t = f(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh).

    With ``norm="layer"``, h_t = f(LN(W_ih x_t + b_ih + W_hh h_{t−1} + b_hh)), with one gain and one bias for all
    steps (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equation 4). W_ih x_t is computed for all steps at
    once.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    nonlinearity : {"tanh", "relu"}
        f.
    bias : bool
        Whether there are b_ih and b_hh.
    batch_first : bool
        Whether a batch is ``(N, T, input_size)`` instead of ``(T, N, input_size)``.
    norm : {None, "layer"}
        Whether the sum is normalized before f.
    device : str, optional
    dtype : DType, optional
        float32 (default) or float64.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(hidden_size, input_size)``; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size).
    weight_hh_l0 : Parameter
        ``(hidden_size, hidden_size)``
    bias_ih_l0, bias_hh_l0 : Parameter or None
        ``(hidden_size,)``
    norm_l0 : LayerNorm or None
        With gain and bias of ``(hidden_size,)``.

    Raises
    ------
    ValueError
        For sizes below 1, an unknown `nonlinearity` or `norm`; when called, for shapes that do not fit and for a
        sequence of no steps.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> rnn = nn.RNN(28, 128, norm="layer")
    >>> output, h_n = rnn(mg.zeros((10, 32, 28)))
    >>> output.shape, h_n.shape
    ((10, 32, 128), (1, 32, 128))
    """

    weight_ih_l0: Parameter
    weight_hh_l0: Parameter
    bias_ih_l0: Parameter | None
    bias_hh_l0: Parameter | None
    norm_l0: LayerNorm | None

    def __init__(
        self, input_size: int, hidden_size: int, *, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, norm: str | None = None, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        _check_options(type(self).__name__, input_size, hidden_size, nonlinearity, norm)
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        self.batch_first, self.norm = batch_first, norm
        _add_parameters(self, "_l0", input_size, hidden_size, bias, norm, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights and biases anew; gain 1 and bias 0 of the norm."""
        _reset_parameters(self, self.hidden_size)

    def forward(self, x: Tensor, h_0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run over a sequence.

        Parameters
        ----------
        x : Tensor
            ``(T, N, input_size)``, with `batch_first` ``(N, T, input_size)``; without a batch ``(T, input_size)``.
        h_0 : Tensor, optional
            ``(1, N, hidden_size)``, without a batch ``(1, hidden_size)``; zeros if absent.

        Returns
        -------
        output : Tensor
            Every h_t, in the layout of `x`.
        h_n : Tensor
            The last h_t, in the layout of `h_0`.
        """
        if x.ndim not in (2, 3) or x.shape[-1] != self.input_size:
            size, axes = self.input_size, "N, T" if self.batch_first else "T, N"
            raise ValueError(f"[RNN] expected an input ({axes}, {size}) or (T, {size}), got {x.shape}")
        time = 1 if self.batch_first and x.ndim == 3 else 0
        if x.shape[time] == 0:
            raise ValueError(f"[RNN] expected at least one step, got an input of shape {x.shape}")
        shape = (*(n for axis, n in enumerate(x.shape[:-1]) if axis != time), self.hidden_size)
        h = zeros(shape, dtype=x.dtype, device=x.device) if h_0 is None else _check_state("RNN", h_0, (1, *shape))[0]
        projected = F.linear(x, self.weight_ih_l0, _sum(self.bias_ih_l0, self.bias_hh_l0))
        states, activation = [], ACTIVATIONS[self.nonlinearity]
        for step in unstack(projected, axis=time):
            h = _step(step, h, self.weight_hh_l0, self.norm_l0, activation)
            states.append(h)
        return stack(states, time), h.expand_dims(0)

    def extra_repr(self) -> str:
        options = f", nonlinearity={self.nonlinearity!r}" if self.nonlinearity != "tanh" else ""
        options += ", bias=False" if self.bias_ih_l0 is None else ""
        options += ", batch_first=True" if self.batch_first else ""
        options += f", norm={self.norm!r}" if self.norm is not None else ""
        return f"{self.input_size}, {self.hidden_size}{options}"


def _step(projected: Tensor, h: Tensor, weight: Tensor, norm: Module | None, activation: F.Activation) -> Tensor:
    """f(LN(W_ih x + W_hh h)), where `projected` is W_ih x and the biases."""
    total = projected + F.linear(h, weight)
    return activation(total if norm is None else norm(total))


def _sum(bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor | None:
    return None if bias_ih is None or bias_hh is None else bias_ih + bias_hh


def _check_options(op: str, input_size: int, hidden_size: int, nonlinearity: str, norm: str | None) -> None:
    if input_size < 1 or hidden_size < 1:
        raise ValueError(f"[{op}] expected sizes of at least 1, got {input_size} and {hidden_size}")
    if nonlinearity not in ACTIVATIONS:
        raise ValueError(f"[{op}] expected nonlinearity 'tanh' or 'relu', got {nonlinearity!r}")
    if norm not in (None, "layer"):
        raise ValueError(f"[{op}] expected norm None or 'layer', got {norm!r}")


def _check_state(op: str, h: Tensor, shape: tuple[int, ...]) -> Tensor:
    if h.shape != shape:
        raise ValueError(f"[{op}] expected a state of shape {shape}, got {h.shape}")
    return h


def _add_parameters(
    module: Module, suffix: str, input_size: int, hidden_size: int, bias: bool, norm: str | None,
    device: str | None, dtype: DType | str | None,
) -> None:  # fmt: skip
    """Weights, biases and norm of one layer, under PyTorch's names."""
    for name, shape in {
        "weight_ih": (hidden_size, input_size), "weight_hh": (hidden_size, hidden_size),
        "bias_ih": (hidden_size,), "bias_hh": (hidden_size,),
    }.items():  # fmt: skip
        wanted = bias or name.startswith("weight")
        parameter = Parameter(empty(shape, dtype=dtype, device=device)) if wanted else None
        module.register_parameter(name + suffix, parameter)
    layer = LayerNorm(hidden_size, device=device, dtype=dtype) if norm == "layer" else None
    module.register_module("norm" + suffix, layer)


def _reset_parameters(module: Module, hidden_size: int) -> None:
    bound = 1 / math.sqrt(hidden_size)
    for parameter in module.parameters(recurse=False):
        init.uniform_(parameter, -bound, bound)
    for child in module.children():
        if isinstance(child, LayerNorm):
            child.reset_parameters()
