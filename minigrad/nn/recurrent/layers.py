"""Recurrent layers: one operation runs a layer over the whole sequence (engine/ops/recurrent)."""

from typing import Literal

from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.recurrent.sequences import Lengths, Sequences


class RNN(Sequences):
    """A recurrent network over sequences.

    Without a norm, for every step t (Elman 1990)::

        h_t = f(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)

    With ``norm="layer"`` (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equation 4)::

        h_t = f(LN(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh))
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over the units; γ is the norm's ``weight`` and β its ``bias``, and all steps
    share them. With ``norm="batch"`` (Cooijmans et al. 2016, https://arxiv.org/abs/1603.09025), composed step by step::

        h_t = f(BN_ih(W_ih x_t) + BN_hh(W_hh h_{t-1}) + b_ih)
        BN(a) = (a − mean_t(a)) / √(var_t(a) + ε) γ

    with the mean and the biased variance of every unit over the batch, in evaluation the running ones of step t; steps
    beyond the last trained one use its statistics. All steps share γ. ``norm="rms"`` is ``norm="layer"`` with
    RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019, https://arxiv.org/abs/1910.07467, equation 4) for LN.

    ``bias="input"`` omits b_hh, ``bias=False`` omits both biases. A plain version of one step is ``rnn_step`` in
    ``minigrad.engine.ops.recurrent`` (source: ``cext/ops/recurrent.pyx``), with ``norm="batch"`` ``RNN._batch_step``.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    num_layers : int
        The number of stacked layers; each one takes the outputs of the one below.
    nonlinearity : {"tanh", "relu"}
        f.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone; with ``norm="batch"`` there is at most b_ih.
    batch_first : bool
        Whether a batch is ``(N, T, input_size)`` instead of ``(T, N, input_size)``.
    dropout : float
        The probability that an output passed to the next layer becomes zero in training; unused with a single layer.
    bidirectional : bool
        Whether a second set of weights runs from the end to the beginning; the outputs of both are concatenated.
    norm : {None, "layer", "rms", "batch"}
        What to normalize, as above.
    max_length : int, optional
        Required with ``norm="batch"``, and only there: the number of steps with separate statistics.
    eps : float
        Added to the variances of the norms. If it is 0 with ``norm="batch"``, a state of zeros, which is the default
        initial state, gives NaN in training.
    device, dtype
        As in `Linear`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(hidden_size, input_size)``, above the first layer ``(hidden_size, D hidden_size)`` for D directions; like
        all weights and biases, from U(−1/√hidden_size, 1/√hidden_size). The names end in ``_l1`` for the second layer,
        in ``_l0_reverse`` for the second direction.
    weight_hh_l0 : Parameter
        ``(hidden_size, hidden_size)``
    bias_ih_l0, bias_hh_l0 : Parameter or None
        ``(hidden_size,)``
    ln_l0 : GateNorm
        With ``norm="layer"``: γ and β, its ``weight`` and ``bias`` of ``(hidden_size,)``, and its ``eps``. The layer
        reads it without calling it, so hooks on it are not called. With ``norm="rms"`` its name is ``rms_l0``.
    bn_ih_l0, bn_hh_l0 : RecurrentBatchNorm1d
        With ``norm="batch"``: γ, the ``weight`` of ``(hidden_size,)``, initialized to 0.1, and ``running_mean`` and
        ``running_var`` of ``(max_length, hidden_size)``.

    Raises
    ------
    ValueError
        For unknown or incompatible options; when called, for shapes and lengths that do not match, for a sequence of no
        steps, and, with ``norm="batch"`` in training, for a single sample.
    TypeError
        For sizes and flags of another type; when called, for an input or a state that is not a Tensor or has another
        dtype than the weights, for lengths that are not integers, for a norm replaced by one of another kind.

    Examples
    --------
    >>> rnn = mg.nn.RNN(28, 128, norm="layer")
    >>> output, h_n = rnn(mg.zeros((10, 32, 28)))
    >>> output.shape, h_n.shape
    ((10, 32, 128), (1, 32, 128))
    """

    kind = "rnn"
    norms = (None, "layer", "rms", "batch")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool | Literal["input"] = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, *, norm: str | None = None, max_length: int | None = None,
        eps: float = 1e-5, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_nonlinearity(nonlinearity)
        self._set_max_length(max_length)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None, lengths: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """Run over a batch of sequences.

        Parameters
        ----------
        x : Tensor
            ``(T, N, input_size)``, with `batch_first` ``(N, T, input_size)``; without a batch, ``(T, input_size)``.
        hx : Tensor, optional
            h_0: ``(num_layers D, N, hidden_size)``, without a batch ``(num_layers D, hidden_size)``; zeros by default.
        lengths : sequence of int or Tensor, shape (N,), optional
            The number of steps of each sample, from 0 to T, in any order, on any device; lengths on a GPU are copied
            to the CPU to be checked. The elements of `x` after the end of a sample have no effect.
            Not supported with ``norm="batch"``, which has no statistics for them.

        Returns
        -------
        output : Tensor
            Every h_t of the last layer, in the layout of `x`; 0 after the end of a sample.
        h_n : Tensor
            The state of every layer and direction at each sample's end, in the layout of `hx`.
        """
        output, (h_n,) = self._run(x, [hx], lengths)
        return output, h_n


class LSTM(Sequences):
    """A long short-term memory over sequences.

    Without a norm, for every step t (Hochreiter, Schmidhuber 1997, with the forget gate of Gers et al. 2000)::

        i, f, g, o = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh
        c_t = σ(f) c_{t-1} + σ(i) tanh(g)
        h_t = σ(o) tanh(c_t)

    With ``norm="layer"`` (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450, equations 20 to 22; c itself is
    carried on without normalization)::

        i, f, g, o = LN_ih(W_ih x_t) + LN_hh(W_hh h_{t-1}) + b_ih
        c_t = σ(f) c_{t-1} + σ(i) tanh(g)
        h_t = σ(o) tanh(LN_c(c_t))

    with LN as in `RNN`, over all columns, which for LN_ih and LN_hh are those of all four gates. The options change
    these lines, the first two together as in TensorFlow's LayerNormBasicLSTMCell, the first and the last as in the
    package keras-layernorm-rnn (whose bias is LN's β: ``bias=False`` here)::

        norm_each_gate:   a = W_ih x_t + b_ih + W_hh h_{t-1};  i, f, g, o = LN(a_i), LN(a_f), LN(a_g), LN(a_o)
        carry_norm:       c_t = LN_c(σ(f) c_{t-1} + σ(i) tanh(g));  h_t = σ(o) tanh(c_t)
        norm_cell=False:  h_t = σ(o) tanh(c_t)

    ``norm="rms"`` has RMS in the place of LN, as in `RNN`. With ``norm="batch"`` (Cooijmans et al. 2016,
    https://arxiv.org/abs/1603.09025, equations 6 to 8), composed step by step, with separate statistics for every step
    as in `RNN`; BN_c has a bias β too::

        i, f, g, o = BN_ih(W_ih x_t) + BN_hh(W_hh h_{t-1}) + b_ih
        c_t = σ(f) c_{t-1} + σ(i) tanh(g)
        h_t = σ(o) tanh(BN_c(c_t))

    The gates are blocks of `hidden_size` rows of the weights, in the order i, f, g, o. A plain version of one step is
    ``lstm_step`` in ``minigrad.engine.ops.recurrent`` (source: ``cext/ops/recurrent.pyx``). Errors are as for `RNN`.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x, and of h and c.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone (as in Keras). With a norm there is at most b_ih.
    norm : {None, "layer", "rms", "batch"}
        What to normalize, as above.
    norm_each_gate, carry_norm, norm_cell : bool
        The variants of ``norm="layer"`` and ``norm="rms"``, as above; they may be combined, but without its norm c
        cannot be carried normalized. ``norm_cell=False`` also omits the BN_c of ``norm="batch"``.
    forget_bias : float, optional
        The initial bias of f, instead of random numbers: the sum of its parts in b_ih and b_hh or, with
        `norm_each_gate`, the β of LN(a_f), since an earlier constant bias has no effect.
    gate_activation : {"sigmoid", "hard_sigmoid", "hardsigmoid"}
        σ(a): 1/(1 + e^−a), Keras 2's clip(0.2 a + 0.5, 0, 1), or Keras 3's and PyTorch's
        clip(a/6 + 0.5, 0, 1).
    eps : float
        Added to the variances of the norms. If it is 0 and W_hh h is normalized, a state of zeros, which is the default
        initial state, gives NaN.
    proj_size : int
        Only 0, for PyTorch's scripts.
    num_layers, batch_first, dropout, bidirectional, max_length, device, dtype
        As in `RNN`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(4 hidden_size, input_size)``, above the first layer ``(4 hidden_size, D hidden_size)`` for D directions: the
        rows of i, f, g and o in this order. Initial values and other names are as in `RNN`.
    weight_hh_l0 : Parameter
        ``(4 hidden_size, hidden_size)``
    bias_ih_l0, bias_hh_l0 : Parameter or None
        ``(4 hidden_size,)``
    ln_ih_l0, ln_hh_l0 : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(4 hidden_size,)`` each, and ``eps``. With
        `norm_each_gate`, a single ``ln_l0`` of the same size holds γ and β of the four norms side by side.
    ln_c_l0 : LayerNorm
        With ``norm="layer"``: ``weight`` and ``bias`` of ``(hidden_size,)``. The layer reads the norms without calling
        them, so hooks on them are not called. With ``norm="rms"`` the names of all norms begin with ``rms``.
    bn_ih_l0, bn_hh_l0, bn_c_l0 : RecurrentBatchNorm1d
        With ``norm="batch"``: of ``4 hidden_size`` features, γ alone, and of ``hidden_size`` features, with β.

    Examples
    --------
    >>> lstm = mg.nn.LSTM(100, 128, norm="layer", batch_first=True)
    >>> output, (h_n, c_n) = lstm(mg.zeros((2, 80, 100)), lengths=[80, 13])
    >>> output.shape, h_n.shape, c_n.shape
    ((2, 80, 128), (1, 2, 128), (1, 2, 128))
    """

    kind = "lstm"
    norms = (None, "layer", "rms", "batch")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["input"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *, norm: str | None = None,
        norm_each_gate: bool = False, carry_norm: bool = False, norm_cell: bool = True,
        forget_bias: float | None = None, gate_activation: str = "sigmoid", max_length: int | None = None,
        eps: float = 1e-5, proj_size: int = 0, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        if integer(self.name, "proj_size", proj_size, 0):
            raise TypeError(
                f"[{self.name}] expected no proj_size, got {proj_size}: an nn.Linear(hidden_size, {proj_size}) of the "
                f"output makes it narrower, without a narrower state"
            )
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_lstm(norm_each_gate, carry_norm, norm_cell, forget_bias)
        self._set_gates(gate_activation)
        self._set_max_length(max_length)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def forward(
        self, x: Tensor, hx: tuple[Tensor | None, Tensor | None] | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over a batch of sequences; parameters and results as in ``RNN.forward``, but with two states.

        Parameters
        ----------
        hx : (Tensor or None, Tensor or None), optional
            h_0 and c_0, each ``(num_layers D, N, hidden_size)``, without a batch ``(num_layers D, hidden_size)``;
            zeros in place of None.

        Returns
        -------
        output, (h_n, c_n) : Tensor, (Tensor, Tensor)
            The states of every layer and direction at each sample's end are in the layout of h_0.
        """
        output, (h_n, c_n) = self._run(x, [*self._pair(hx)], lengths)
        return output, (h_n, c_n)


class GRU(Sequences):
    """A network of gated recurrent units over sequences.

    Without a norm, for every step t (Cho et al. 2014, with the reset gate where PyTorch applies it)::

        r = σ(W_ir x_t + b_ir + W_hr h_{t-1} + b_hr)
        z = σ(W_iz x_t + b_iz + W_hz h_{t-1} + b_hz)
        n = tanh(W_in x_t + b_in + r (W_hn h_{t-1} + b_hn))
        h_t = (1 − z) n + z h_{t-1}

    With ``norm="layer"``, which adds no other biases (Ba, Kiros, Hinton 2016, https://arxiv.org/abs/1607.06450,
    equations 25 to 27)::

        r, z = σ(LN_ih(W_ir x_t, W_iz x_t) + LN_hh(W_hr h_{t-1}, W_hz h_{t-1}))
        n = tanh(LN_in(W_in x_t) + r LN_hn(W_hn h_{t-1}))
        h_t = (1 − z) h_{t-1} + z n

    with LN as in `RNN`, over all columns, which for LN_ih and LN_hh are those of r and z together. As β is initialized
    to 0, h stays 0 while the inputs at the start of a sequence are zeros, and each such step multiplies gradients by
    W_h / √ε: pad sequences at the end and pass ``lengths``, or increase ε. `convention` selects the last line
    independently of the norm::

        "torch":  h_t = (1 − z) n + z h_{t-1}
        "paper":  h_t = (1 − z) h_{t-1} + z n

    With ``reset_after=False`` the reset gate multiplies the state instead of the product with it, as in the paper of
    Cho et al., in Keras under the same name, and by default in ONNX (``linear_before_reset=0``) and dm-haiku. A step
    then has two products, one after the other, and is composed of other operations::

        n = tanh(W_in x_t + b_in + W_hn (r h_{t-1}) + b_hn)          without a norm
        n = tanh(LN_in(W_in x_t) + LN_hn(W_hn (r h_{t-1})))          with "layer"

    ``norm="rms"`` has RMS in the place of LN, as in `RNN`. With ``norm="batch"``, composed step by step as in `LSTM`,
    with separate statistics for every step::

        (a_r, a_z, a_n), (u_r, u_z, u_n) = BN_ih(W_ih x_t) + b_ih, BN_hh(W_hh h_{t-1})
        r, z, n = σ(a_r + u_r), σ(a_z + u_z), tanh(a_n + r u_n)

    The gates are blocks of `hidden_size` rows of the weights, in the order r, z, n. A plain version of one step is
    ``gru_step`` in ``minigrad.engine.ops.recurrent`` (source: ``cext/ops/recurrent.pyx``). Errors are as for `RNN`.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone; with "layer" and "rms" there is none, with "batch" at most b_ih.
    norm : {None, "layer", "rms", "batch"}
        What to normalize, as above.
    convention : {None, "torch", "paper"}
        Which term z weights, as above; None means "paper" with "layer" and "rms", otherwise "torch".
    reset_after : bool
        Whether r multiplies the product with the state, or the state, as above.
    num_layers, batch_first, dropout, bidirectional, max_length, device, dtype
        As in `RNN`.
    gate_activation, eps
        As in `LSTM`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(3 hidden_size, input_size)``, above the first layer ``(3 hidden_size, D hidden_size)`` for D directions: the
        rows of r, z and n in this order. Initial values and other names are as in `RNN`.
    weight_hh_l0 : Parameter
        ``(3 hidden_size, hidden_size)``
    bias_ih_l0, bias_hh_l0 : Parameter or None
        ``(3 hidden_size,)``
    ln_ih_l0, ln_hh_l0 : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(3 hidden_size,)`` each, first those of the gates,
        then those of the candidate, and ``eps``. The layer reads them without calling them, so hooks on them are not
        called. With ``norm="rms"`` their names begin with ``rms``.
    bn_ih_l0, bn_hh_l0 : RecurrentBatchNorm1d
        With ``norm="batch"``: γ of ``(3 hidden_size,)``.

    Examples
    --------
    >>> gru = mg.nn.GRU(28, 64, bidirectional=True)
    >>> output, h_n = gru(mg.zeros((10, 32, 28)))
    >>> output.shape, h_n.shape
    ((10, 32, 128), (2, 32, 64))
    """

    kind = "gru"
    norms = (None, "layer", "rms", "batch")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["input"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *, norm: str | None = None,
        convention: str | None = None, reset_after: bool = True, gate_activation: str = "sigmoid",
        max_length: int | None = None, eps: float = 1e-5, device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_gru(convention, reset_after)
        self._set_gates(gate_activation)
        self._set_max_length(max_length)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None, lengths: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """Run over a batch of sequences; parameters and results as in ``RNN.forward``."""
        output, (h_n,) = self._run(x, [hx], lengths)
        return output, h_n
