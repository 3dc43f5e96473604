"""Recurrent cells, one step at a time."""

from typing import Literal

from minigrad.creation import zeros
from minigrad.engine.dtype import DType
from minigrad.engine.ops.recurrent import gru_step, lstm_step, projected, rnn_step
from minigrad.engine.tensor import Tensor
from minigrad.nn.recurrence import Recurrent


class _StepCell(Recurrent):
    """Base class with the step of the three cells."""

    def _finish(self, device: str | None, dtype: DType | str | None) -> None:
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
    """One step of a recurrent network.

    Without a norm (Elman 1990)::

        h' = f(W_ih x + b_ih + W_hh h + b_hh)

    With ``norm="layer"`` (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equation 4)::

        h' = f(LN(W_ih x + b_ih + W_hh h + b_hh))
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over the units; γ is the norm's ``weight`` and β its ``bias``. ``norm="rms"``
    is ``norm="layer"`` with RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467,
    equation 4) for LN.
    ``bias="input"`` omits b_hh, ``bias=False`` omits both biases.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone.
    nonlinearity : {"tanh", "relu"}
        f.
    norm : {None, "layer", "rms"}
        Whether the sum is normalized before f.
    eps : float
        Added to the variances of the norms.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight_ih : Parameter
        ``(hidden_size, input_size)``; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size).
    weight_hh : Parameter
        ``(hidden_size, hidden_size)``
    bias_ih, bias_hh : Parameter or None
        ``(hidden_size,)``
    ln : GateNorm
        With ``norm="layer"``: γ and β, its ``weight`` and ``bias`` of ``(hidden_size,)``, and its ``eps``. With
        ``norm="rms"`` its name is ``rms``.

    Raises
    ------
    ValueError
        For sizes below 1, an unknown `nonlinearity` or `norm`; when called, for shapes that do not match.
    TypeError
        For sizes of another type; when called, for an input or a state that is not a Tensor or has another dtype than
        the weights.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> cell = nn.RNNCell(3, 5, norm="layer")
    >>> cell(mg.zeros((2, 3))).shape
    (2, 5)
    """

    kind = "rnn"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, nonlinearity: str = "tanh", *,
        norm: str | None = None, eps: float = 1e-5, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_nonlinearity(nonlinearity)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and h of matching shape (zeros if None) to the next h."""
        return self._step(x, hx, None)[0]


class LSTMCell(_StepCell):
    """One step of an LSTM.

    Without a norm (Hochreiter, Schmidhuber 1997, with the forget gate of Gers et al. 2000)::

        i, f, g, o = W_ih x + b_ih + W_hh h + b_hh
        c' = σ(f) c + σ(i) tanh(g)
        h' = σ(o) tanh(c')

    With ``norm="layer"`` (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equations 20 to 22)::

        i, f, g, o = LN_ih(W_ih x) + LN_hh(W_hh h) + b_ih
        c' = σ(f) c + σ(i) tanh(g)
        h' = σ(o) tanh(LN_c(c'))
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over all columns, which for LN_ih and LN_hh are those of all four gates; γ is
    a norm's ``weight`` and β its ``bias``. The options change these lines::

        norm_each_gate:  a = W_ih x + b_ih + W_hh h;  i, f, g, o = LN(a_i), LN(a_f), LN(a_g), LN(a_o)
        carry_norm:      c' = LN_c(σ(f) c + σ(i) tanh(g));  h' = σ(o) tanh(c')

    ``norm="rms"`` is ``norm="layer"`` with RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4) for LN.

    The gates are blocks of `hidden_size` rows of the weights, in the order i, f, g, o.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone. With a norm there is at most b_ih.
    norm : {None, "layer", "rms"}
        What to normalize, as above.
    norm_each_gate, carry_norm : bool
        The variants of both norms, as above; they may be combined.
    forget_bias : float, optional
        The initial bias of f, instead of random numbers: the sum of its parts in b_ih and b_hh or, with
        `norm_each_gate`, the β of LN(a_f).
    gate_activation : {"sigmoid", "hard_sigmoid", "hardsigmoid"}
        σ(a): 1/(1 + e^−a), Keras 2's clip(0.2 a + 0.5, 0, 1), or Keras 3's and PyTorch's
        clip(a/6 + 0.5, 0, 1).
    eps : float
        Added to the variances of the norms. If it is 0 and W_hh h is normalized, a state of zeros, which is the default
        initial state, gives NaN.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight_ih : Parameter
        ``(4 hidden_size, input_size)``; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size).
    weight_hh : Parameter
        ``(4 hidden_size, hidden_size)``
    bias_ih, bias_hh : Parameter or None
        ``(4 hidden_size,)``
    ln_ih, ln_hh : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(4 hidden_size,)`` each, and ``eps``. With
        `norm_each_gate`, a single ``ln`` of the same size holds γ and β of the four norms side by side.
    ln_c : LayerNorm
        With ``norm="layer"``: ``weight`` and ``bias`` of ``(hidden_size,)``. With ``norm="rms"`` the names of all norms
        begin with ``rms``.

    Raises
    ------
    ValueError
        For unknown or incompatible options; when called, for shapes that do not match.
    TypeError
        As in `RNNCell`.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> h, c = nn.LSTMCell(3, 5, norm="layer")(mg.zeros((2, 3)))
    >>> h.shape, c.shape
    ((2, 5), (2, 5))
    """

    kind = "lstm"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, *, norm: str | None = None,
        norm_each_gate: bool = False, carry_norm: bool = False, forget_bias: float | None = None,
        gate_activation: str = "sigmoid", eps: float = 1e-5, device: str | None = None,
        dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_lstm(norm_each_gate, carry_norm, forget_bias)
        self._set_gates(gate_activation)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: tuple[Tensor | None, Tensor | None] | None = None) -> tuple[Tensor, Tensor]:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and (h, c) of matching shape (zeros if None) to the next."""
        h, c = self._step(x, *self._pair(hx))
        assert c is not None
        return h, c


class GRUCell(_StepCell):
    """One step of a GRU.

    Without a norm (Cho et al. 2014, with the reset gate where PyTorch applies it)::

        r = σ(W_ir x + b_ir + W_hr h + b_hr)
        z = σ(W_iz x + b_iz + W_hz h + b_hz)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))
        h' = (1 − z) n + z h

    With ``norm="layer"`` (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equations 25 to 27)::

        r, z = σ(LN_ih(W_ir x, W_iz x) + LN_hh(W_hr h, W_hz h))
        n = tanh(LN_in(W_in x) + r LN_hn(W_hn h))
        h' = (1 − z) h + z n
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over all columns, which for LN_ih and LN_hh are those of r and z together; γ
    is a norm's ``weight`` and β its ``bias``. ``convention`` selects the last line independently of the norm::

        "torch":  h' = (1 − z) n + z h
        "paper":  h' = (1 − z) h + z n

    ``norm="rms"`` is ``norm="layer"`` with RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4) for LN.

    The gates are blocks of `hidden_size` rows of the weights, in the order r, z, n.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone; with a norm there is none.
    norm : {None, "layer", "rms"}
        What to normalize, as above.
    convention : {None, "torch", "paper"}
        Which term z weights, as above; None means "torch" without a norm and "paper" with one.
    gate_activation : {"sigmoid", "hard_sigmoid", "hardsigmoid"}
        σ(a): 1/(1 + e^−a), Keras 2's clip(0.2 a + 0.5, 0, 1), or Keras 3's and PyTorch's
        clip(a/6 + 0.5, 0, 1).
    eps : float
        Added to the variances of the norms. If it is 0 and W_hh h is normalized, a state of zeros, which is the default
        initial state, gives NaN.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight_ih : Parameter
        ``(3 hidden_size, input_size)``; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size).
    weight_hh : Parameter
        ``(3 hidden_size, hidden_size)``
    bias_ih, bias_hh : Parameter or None
        ``(3 hidden_size,)``
    ln_ih, ln_hh : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(3 hidden_size,)`` each, first those of the gates,
        then those of the candidate, and ``eps``. With ``norm="rms"`` their names begin with ``rms``.

    Raises
    ------
    ValueError
        For unknown options; when called, for shapes that do not match.
    TypeError
        As in `RNNCell`.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> nn.GRUCell(3, 5)(mg.zeros((2, 3))).shape
    (2, 5)
    """

    kind = "gru"

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool | Literal["input"] = True, *, norm: str | None = None,
        convention: str | None = None, gate_activation: str = "sigmoid",
        eps: float = 1e-5, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_gru(convention)
        self._set_gates(gate_activation)
        self._finish(device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None) -> Tensor:
        """Map x ``(N, input_size)`` or ``(input_size,)`` and h of matching shape (zeros if None) to the next h."""
        return self._step(x, hx, None)[0]
