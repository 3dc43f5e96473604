"""Recurrent cells, one step at a time."""

from typing import Literal

from minigrad.arrays.creation import zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.recurrent import gru_step, lstm_step, projected, rnn_step
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.recurrent.recurrence import Recurrent


class _StepCell(Recurrent):
    """Base class with the step of the three cells."""

    def _finish(self, device: str | None, dtype: DTypeLike) -> None:
        self._add_layer("", self.input_size, device, dtype)
        self.reset_parameters()

    def _step(self, x: Tensor, h: Tensor | None, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
        self._check_input(x)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            size = self.input_size
            raise ValueError(f"[{self.name}] expected an input of shape (N, {size}) or ({size},), got {x.shape}")
        shape = (*x.shape[:-1], self.hidden_size)
        for state in (h, c):
            if state is not None:
                self._check_state(state, shape, x)
        h = zeros(shape, dtype=x.dtype, device=x.device) if h is None else h
        cell, loop = self._loop("")
        share = projected(cell, *self._source("", x))
        if self.kind == "lstm":
            c = zeros(shape, dtype=x.dtype, device=x.device) if c is None else c
            return lstm_step(cell, share, h, c, *loop)[:2]
        return (rnn_step if self.kind == "rnn" else gru_step)(cell, share, h, None, *loop)[:2]


class RNNCell(_StepCell):
    """One step of `RNN`.

    Without a norm (Elman 1990)::

        h' = f(W_ih x + b_ih + W_hh h + b_hh)

    With a norm it is the step of `RNN` with this norm. The parameters are those of `RNN`, whose names for the first
    layer end in ``_l0``.

    Parameters
    ----------
    input_size, hidden_size, bias, nonlinearity, eps, device, dtype
        As in `RNN`.
    norm : {None, "layer", "rms"}
        Whether the sum is normalized before f.

    Raises
    ------
    ValueError
        For sizes below 1, an unknown `nonlinearity` or `norm`; when called, for shapes that do not match.
    TypeError
        For sizes of another type; when called, for an input or a state that is not a Tensor or has another dtype than
        the weights.

    Examples
    --------
    >>> cell = mg.nn.RNNCell(3, 5, norm="layer")
    >>> cell(mg.zeros((2, 3))).shape
    (2, 5)
    """

    kind = "rnn"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, nonlinearity: str = "tanh", *,
        norm: str | None = None, eps: float = 1e-5, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_nonlinearity(nonlinearity)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and h of matching shape (zeros if None) to the next h."""
        return self._step(x, hx, None)[0]


class LSTMCell(_StepCell):
    """One step of `LSTM`.

    Without a norm (Hochreiter, Schmidhuber 1997, with the forget gate of Gers et al. 2000)::

        i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
        c' = σ(f) c + σ(i) tanh(g)
        h' = σ(o) tanh(c')

    With a norm, and with `norm_each_gate`, `carry_norm` and `norm_cell`, it is the step of `LSTM` with these options.
    Raises ValueError for unknown or incompatible options; when called, for shapes that do not match; TypeError as in
    `RNNCell`. The parameters are those of `LSTM`, whose names for the first layer end in ``_l0``.

    Parameters
    ----------
    input_size, hidden_size, bias, norm_each_gate, carry_norm, norm_cell, forget_bias, gate_activation, eps
        As in `LSTM`.
    device, dtype
        As in `Linear`.
    norm : {None, "layer", "rms"}
        What to normalize.

    Examples
    --------
    >>> h, c = mg.nn.LSTMCell(3, 5, norm="layer")(mg.zeros((2, 3)))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    kind = "lstm"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, *, norm: str | None = None,
        norm_each_gate: bool = False, carry_norm: bool = False, norm_cell: bool = True,
        forget_bias: float | None = None, gate_activation: str = "sigmoid", eps: float = 1e-5,
        device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_lstm(norm_each_gate, carry_norm, norm_cell, forget_bias)
        self._set_gates(gate_activation)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: tuple[Tensor | None, Tensor | None] | None = None) -> tuple[Tensor, Tensor]:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and (h, c) of matching shape (zeros if None) to the next."""
        h, c = self._step(x, *self._pair(hx))
        assert c is not None
        return h, c


class GRUCell(_StepCell):
    """One step of `GRU`.

    Without a norm (Cho et al. 2014, with the reset gate where PyTorch applies it)::

        r = σ(W_ir x + b_ir + W_hr h + b_hr)
        z = σ(W_iz x + b_iz + W_hz h + b_hz)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))
        h' = (1 − z) n + z h

    With a norm, and with `convention` and `reset_after`, it is the step of `GRU` with these options. Raises ValueError
    for unknown options; when called, for shapes that do not match; TypeError as in `RNNCell`. The parameters are those
    of `GRU`, whose names for the first layer end in ``_l0``.

    Parameters
    ----------
    input_size, hidden_size, bias, convention, reset_after, gate_activation, eps, device, dtype
        As in `GRU`.
    norm : {None, "layer", "rms"}
        What to normalize.

    Examples
    --------
    >>> mg.nn.GRUCell(3, 5)(mg.zeros((2, 3))).shape
    (2, 5)
    """

    kind = "gru"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, *, norm: str | None = None,
        convention: str | None = None, reset_after: bool = True, gate_activation: str = "sigmoid",
        eps: float = 1e-5, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_gru(convention, reset_after)
        self._set_gates(gate_activation)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and h of matching shape (zeros if None) to the next h."""
        return self._step(x, hx, None)[0]
