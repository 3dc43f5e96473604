"""Recurrent layers: one operation runs a layer over the whole sequence (engine/ops/recurrent)."""

import warnings
from collections.abc import Sequence
from typing import Literal, TypeAlias

from minigrad.creation import arange, zeros
from minigrad.engine.dtype import DType
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.join import concat, split, stack, unstack
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.recurrent import GATES, Cell, gate, projected, recurrent
from minigrad.engine.ops.recurrent import Lengths as CheckedLengths
from minigrad.engine.ops.slices import flip
from minigrad.engine.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.batch_norm import RecurrentBatchNorm1d
from minigrad.nn.module import Module
from minigrad.nn.recurrence import Recurrent

Lengths: TypeAlias = Tensor | Sequence[int]


class Sequences(Recurrent):
    """Base class of stacked layers in one or both directions."""

    max_length: int | None = None

    def _set_max_length(self, max_length: int | None) -> None:
        self.max_length = None if max_length is None else integer(self.name, "max_length", max_length, 1)
        if (max_length is not None) != (self.norm == "batch"):
            raise ValueError(f"[{self.name}] expected max_length only with norm='batch', which requires it, "
                             f"got {max_length} and norm={self.norm!r}")  # fmt: skip

    def _finish(
        self, num_layers: int, batch_first: bool, dropout: float, bidirectional: bool,
        device: str | None, dtype: DType | str | None,
    ) -> None:  # fmt: skip
        self.num_layers = num_layers = integer(self.name, "num_layers", num_layers, 1)
        self.dropout = number(self.name, "dropout", dropout, 0, 1)
        if self.dropout and num_layers == 1:
            warnings.warn(
                f"[{self.name}] dropout={self.dropout} has no effect with one layer: it drops elements between layers",
                stacklevel=3,
            )
        self.batch_first = self._flag("batch_first", batch_first)
        self.bidirectional = self._flag("bidirectional", bidirectional)
        for layer in range(num_layers):
            width = self.input_size if layer == 0 else self.hidden_size * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                self._add_layer(suffix, width, device, dtype)
        self.reset_parameters()

    def _add_layer(self, suffix: str, input_size: int, device: str | None, dtype: DType | str | None) -> None:
        super()._add_layer(suffix, input_size, device, dtype)
        for name, (features, bias) in self._batch_norms().items():
            assert self.max_length is not None
            norm = RecurrentBatchNorm1d(features, self.max_length, self.eps, bias=bias, device=device, dtype=dtype)
            self.register_module(name + suffix, norm)

    def _batch_norms(self) -> dict[str, tuple[int, bool]]:
        """Return the features of each batch norm of one layer in one direction, and whether it has a bias."""
        if self.norm != "batch":
            return {}
        columns = GATES[self.kind] * self.hidden_size
        norms = {"bn_ih": (columns, False), "bn_hh": (columns, False)}
        return {**norms, "bn_c": (self.hidden_size, True)} if self.kind == "lstm" else norms

    def _all_suffixes(self) -> list[str]:
        return [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _suffixes(self, layer: int) -> list[str]:
        """Return the suffixes of the parameters' names in one layer, one for each direction."""
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def _run(self, x: Tensor, states: list[Tensor | None], lengths: Lengths | None) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs of the last layer and the last h (for an LSTM, also c) of every layer and direction."""
        if lengths is not None and self.norm == "batch":
            raise ValueError(f"[{self.name}] expected no lengths with norm='batch', which has no statistics for them")
        self._check_input(x)
        given, size = x.shape, self.input_size
        batched = len(given) == 3
        if len(given) not in (2, 3) or given[-1] != size:
            axes = "N, T" if self.batch_first else "T, N"
            raise ValueError(f"[{self.name}] expected an input of shape ({axes}, {size}) or (T, {size}), got {given}")
        if not batched:
            x = x.expand_dims(1)
        elif self.batch_first:
            x = x.permute_dims((1, 0, 2))
        steps, batch, _ = x.shape
        if steps == 0:
            raise ValueError(f"[{self.name}] expected at least one step, got an input of shape {given}")
        checked = None
        if lengths is not None:
            if not batched:
                raise ValueError(f"[{self.name}] expected a batch with lengths, got an input of shape {given}")
            checked = CheckedLengths(lengths, steps, batch, self.name, x.device)
            alive = (arange(steps, device=x.device).expand_dims(1) < checked.values).expand_dims(2)
            x = where(alive, x, 0.0)  # so that the padding does not affect the gradients of the weights
        one, count = (batch, self.hidden_size), self.num_layers * (2 if self.bidirectional else 1)
        starts = []  # those of h and, for an LSTM, of c
        for state in states:
            if state is None:
                starts.append([zeros(one, dtype=x.dtype, device=x.device)] * count)
                continue
            self._check_state(state, (count, *one) if batched else (count, self.hidden_size), x)
            starts.append([state.reshape(one)] if count == 1 else list(unstack(state.reshape((count, *one)))))

        firsts, ends = zip(*starts, strict=True), []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                backwards = suffix.endswith("_reverse")
                found = self._layer(_reversed(x, checked) if backwards else x, next(firsts), suffix, checked)
                outputs.append(_reversed(found[0], checked) if backwards else found[0])
                ends.append(found[1:])
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        if count == 1:
            finals = [end.reshape((1, *one)) for end in ends[0]]
        else:
            finals = [stack(list(end)) for end in zip(*ends, strict=True)]
        if not batched:
            return x.squeeze(1), [final.squeeze(1) for final in finals]
        return (x.permute_dims((1, 0, 2)) if self.batch_first else x), finals

    def _layer(
        self, x: Tensor, first: tuple[Tensor, ...], suffix: str, lengths: CheckedLengths | None
    ) -> tuple[Tensor, ...]:
        """Run one layer in one direction; return the outputs ``(T, N, H)`` and the last states."""
        if self.norm == "batch":
            return self._normalized_by_batch(x, first, suffix)
        h, c = first if self.kind == "lstm" else (first[0], None)
        cell, loop = self._loop(suffix)
        source = self._source(suffix, x)
        return recurrent(cell, projected(cell, *source), h, c, *loop, lengths, source)

    def _normalized_by_batch(self, x: Tensor, first: tuple[Tensor, ...], suffix: str) -> tuple[Tensor, ...]:
        """As `_layer`, composed step by step."""
        norms = {name: getattr(self, name + suffix) for name in self._batch_norms()}
        if x.shape[1] == 1 and any(norm.training for norm in norms.values()):
            raise ValueError(f"[{self.name}] expected more than one sample in training with norm='batch', got one")
        weight, bias = getattr(self, "weight_hh" + suffix), getattr(self, "bias_ih" + suffix)
        cell, states, outputs = self._loop(suffix)[0], first, []
        for time, share in enumerate(unstack(F.linear(x, getattr(self, "weight_ih" + suffix)))):
            a, u = norms["bn_ih"](share, time), norms["bn_hh"](F.linear(states[0], weight), time)
            states = self._batch_step(cell, a if bias is None else a + bias, u, states, norms, time)
            outputs.append(states[0])
        return stack(outputs), *states

    def _batch_step(
        self, cell: Cell, x: Tensor, u: Tensor, states: tuple[Tensor, ...], norms: dict[str, Module], time: int
    ) -> tuple[Tensor, ...]:
        """Return the next states, from the normalized contributions of the input and of the state."""
        raise NotImplementedError


def _reversed(x: Tensor, lengths: CheckedLengths | None) -> Tensor:
    """Reverse x ``(T, N, ...)`` in time, each sample up to its length."""
    if lengths is None:
        return flip(x, 0)
    time = arange(x.shape[0], device=x.device).expand_dims(1)
    ends = lengths.values
    return x[where(time < ends, ends - 1 - time, time), arange(x.shape[1], device=x.device)]


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
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

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
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> rnn = nn.RNN(28, 128, norm="layer")
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
        eps: float = 1e-5, device: str | None = None, dtype: DType | str | None = None,
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

    def _batch_step(
        self, cell: Cell, x: Tensor, u: Tensor, states: tuple[Tensor, ...], norms: dict[str, Module], time: int
    ) -> tuple[Tensor, ...]:
        return ((F.tanh if self.nonlinearity == "tanh" else F.relu)(x + u),)


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
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over all columns, which for LN_ih and LN_hh are those of all four gates; γ is
    a norm's ``weight`` and β its ``bias``, and all steps share them. The options change these lines, both of them
    together as in TensorFlow's LayerNormBasicLSTMCell::

        norm_each_gate:  a = W_ih x_t + b_ih + W_hh h_{t-1};  i, f, g, o = LN(a_i), LN(a_f), LN(a_g), LN(a_o)
        carry_norm:      c_t = LN_c(σ(f) c_{t-1} + σ(i) tanh(g));  h_t = σ(o) tanh(c_t)

    ``norm="rms"`` is ``norm="layer"`` with RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4) for LN.

    With ``norm="batch"`` (Cooijmans et al. 2016, https://arxiv.org/abs/1603.09025, equations 6 to 8), composed step by
    step, with separate statistics for every step as in `RNN`; BN_c has a bias β too::

        i, f, g, o = BN_ih(W_ih x_t) + BN_hh(W_hh h_{t-1}) + b_ih
        c_t = σ(f) c_{t-1} + σ(i) tanh(g)
        h_t = σ(o) tanh(BN_c(c_t))

    The gates are blocks of `hidden_size` rows of the weights, in the order i, f, g, o. A plain version of one step is
    ``lstm_step`` in ``minigrad.engine.ops.recurrent`` (source: ``cext/ops/recurrent.pyx``).

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x, and of h and c.
    num_layers : int
        The number of stacked layers; each one takes the outputs of the one below.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone (as in Keras). With a norm there is at most b_ih.
    batch_first : bool
        Whether a batch is ``(N, T, input_size)`` instead of ``(T, N, input_size)``.
    dropout : float
        The probability that an output passed to the next layer becomes zero in training; unused with a single layer.
    bidirectional : bool
        Whether a second set of weights runs from the end to the beginning; the outputs of both are concatenated.
    norm : {None, "layer", "rms", "batch"}
        What to normalize, as above.
    norm_each_gate, carry_norm : bool
        The variants of ``norm="layer"`` and ``norm="rms"``, as above; they may be combined.
    forget_bias : float, optional
        The initial bias of f, instead of random numbers: the sum of its parts in b_ih and b_hh or, with
        `norm_each_gate`, the β of LN(a_f), since an earlier constant bias has no effect.
    gate_activation : {"sigmoid", "hard_sigmoid", "hardsigmoid"}
        σ(a): 1/(1 + e^−a), Keras 2's clip(0.2 a + 0.5, 0, 1), or Keras 3's and PyTorch's
        clip(a/6 + 0.5, 0, 1).
    max_length : int, optional
        Required with ``norm="batch"``, and only there: the number of steps with separate statistics.
    eps : float
        Added to the variances of the norms. If it is 0 and W_hh h is normalized, a state of zeros, which is the default
        initial state, gives NaN.
    proj_size : int
        Only 0, for PyTorch's scripts.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(4 hidden_size, input_size)``, above the first layer ``(4 hidden_size, D hidden_size)`` for D directions: the
        rows of i, f, g and o in this order; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size). The
        names end in ``_l1`` for the second layer, in ``_l0_reverse`` for the second direction.
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
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> lstm = nn.LSTM(100, 128, norm="layer", batch_first=True)
    >>> output, (h_n, c_n) = lstm(mg.zeros((2, 80, 100)), lengths=[80, 13])
    >>> output.shape, h_n.shape, c_n.shape
    ((2, 80, 128), (1, 2, 128), (1, 2, 128))
    """

    kind = "lstm"
    norms = (None, "layer", "rms", "batch")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["input"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *, norm: str | None = None,
        norm_each_gate: bool = False, carry_norm: bool = False, forget_bias: float | None = None,
        gate_activation: str = "sigmoid", max_length: int | None = None, eps: float = 1e-5, proj_size: int = 0,
        device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        if integer(self.name, "proj_size", proj_size, 0):
            raise TypeError(
                f"[{self.name}] expected no proj_size, got {proj_size}: an nn.Linear(hidden_size, {proj_size}) of the "
                f"output makes it narrower, without a narrower state"
            )
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_lstm(norm_each_gate, carry_norm, forget_bias)
        self._set_gates(gate_activation)
        self._set_max_length(max_length)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def forward(
        self, x: Tensor, hx: tuple[Tensor | None, Tensor | None] | None = None, lengths: Lengths | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Run over a batch of sequences.

        Parameters
        ----------
        x : Tensor
            ``(T, N, input_size)``, with `batch_first` ``(N, T, input_size)``; without a batch, ``(T, input_size)``.
        hx : (Tensor or None, Tensor or None), optional
            h_0 and c_0, each ``(num_layers D, N, hidden_size)``, without a batch ``(num_layers D, hidden_size)``;
            zeros in place of None.
        lengths : sequence of int or Tensor, shape (N,), optional
            The number of steps of each sample, from 0 to T, in any order, on any device; lengths on a GPU are copied
            to the CPU to be checked. The elements of `x` after the end of a sample have no effect.

        Returns
        -------
        output : Tensor
            Every h_t of the last layer, in the layout of `x`; 0 after the end of a sample.
        (h_n, c_n) : (Tensor, Tensor)
            The states of every layer and direction at each sample's end, in the layout of h_0.
        """
        output, (h_n, c_n) = self._run(x, [*self._pair(hx)], lengths)
        return output, (h_n, c_n)

    def _batch_step(
        self, cell: Cell, x: Tensor, u: Tensor, states: tuple[Tensor, ...], norms: dict[str, Module], time: int
    ) -> tuple[Tensor, ...]:
        i, f, g, o = split(x + u, 4, axis=-1)
        c = gate(cell, f) * states[1] + gate(cell, i) * F.tanh(g)
        return gate(cell, o) * F.tanh(norms["bn_c"](c, time)), c


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
        LN(a) = (a − mean(a)) / √(var(a) + ε) γ + β

    with the mean and the biased variance over all columns, which for LN_ih and LN_hh are those of r and z together; γ
    is a norm's ``weight`` and β its ``bias``, and all steps share them. As β is initialized to 0, h stays 0 while the
    inputs at the start of a sequence are zeros, and each such step multiplies gradients by W_h / √ε: pad sequences at
    the end and pass ``lengths``, or increase ε. ``convention`` selects the last line independently of the norm::

        "torch":  h_t = (1 − z) n + z h_{t-1}
        "paper":  h_t = (1 − z) h_{t-1} + z n

    ``norm="rms"`` is ``norm="layer"`` with RMS(a) = a / √(mean(a²) + ε) γ + β (Zhang, Sennrich 2019,
    https://arxiv.org/abs/1910.07467, equation 4) for LN.

    With ``norm="batch"``, as in `LSTM` composed step by step, with separate statistics for every step::

        (a_r, a_z, a_n), (u_r, u_z, u_n) = BN_ih(W_ih x_t) + b_ih, BN_hh(W_hh h_{t-1})
        r, z, n = σ(a_r + u_r), σ(a_z + u_z), tanh(a_n + r u_n)

    The gates are blocks of `hidden_size` rows of the weights, in the order r, z, n. A plain version of one step is
    ``gru_step`` in ``minigrad.engine.ops.recurrent`` (source: ``cext/ops/recurrent.pyx``).

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    num_layers : int
        The number of stacked layers; each one takes the outputs of the one below.
    bias : bool or "input"
        Whether to add b_ih and b_hh, or b_ih alone; with "layer" and "rms" there is none, with "batch" at most b_ih.
    batch_first : bool
        Whether a batch is ``(N, T, input_size)`` instead of ``(T, N, input_size)``.
    dropout : float
        The probability that an output passed to the next layer becomes zero in training; unused with a single layer.
    bidirectional : bool
        Whether a second set of weights runs from the end to the beginning; the outputs of both are concatenated.
    norm : {None, "layer", "rms", "batch"}
        What to normalize, as above.
    convention : {None, "torch", "paper"}
        Which term z weights, as above; None means "paper" with "layer" and "rms", otherwise "torch".
    gate_activation : {"sigmoid", "hard_sigmoid", "hardsigmoid"}
        σ(a): 1/(1 + e^−a), Keras 2's clip(0.2 a + 0.5, 0, 1), or Keras 3's and PyTorch's
        clip(a/6 + 0.5, 0, 1).
    max_length : int, optional
        Required with ``norm="batch"``, and only there: the number of steps with separate statistics.
    eps : float
        Added to the variances of the norms. If it is 0 and W_hh h is normalized, a state of zeros, which is the default
        initial state, gives NaN.
    device : str, optional
    dtype : DType, optional
        float32 or float64; by default that of `get_default_dtype`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(3 hidden_size, input_size)``, above the first layer ``(3 hidden_size, D hidden_size)`` for D directions: the
        rows of r, z and n in this order; like all weights and biases from U(−1/√hidden_size, 1/√hidden_size). The
        names end in ``_l1`` for the second layer, in ``_l0_reverse`` for the second direction.
    weight_hh_l0 : Parameter
        ``(3 hidden_size, hidden_size)``
    bias_ih_l0, bias_hh_l0 : Parameter or None
        ``(3 hidden_size,)``
    ln_ih_l0, ln_hh_l0 : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(3 hidden_size,)`` each, first those of the gates,
        then those of the candidate, and ``eps``. The layer reads them without calling them, so hooks on them are not
        called.
        With ``norm="rms"`` their names begin with ``rms``.
    bn_ih_l0, bn_hh_l0 : RecurrentBatchNorm1d
        With ``norm="batch"``: γ of ``(3 hidden_size,)``.

    Raises
    ------
    ValueError, TypeError
        As in `LSTM`.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> gru = nn.GRU(28, 64, bidirectional=True)
    >>> output, h_n = gru(mg.zeros((10, 32, 28)))
    >>> output.shape, h_n.shape
    ((10, 32, 128), (2, 32, 64))
    """

    kind = "gru"
    norms = (None, "layer", "rms", "batch")

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["input"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *, norm: str | None = None,
        convention: str | None = None, gate_activation: str = "sigmoid", max_length: int | None = None,
        eps: float = 1e-5, device: str | None = None, dtype: DType | str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, norm, eps)
        self._set_gru(convention)
        self._set_gates(gate_activation)
        self._set_max_length(max_length)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def forward(self, x: Tensor, hx: Tensor | None = None, lengths: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """Run over a batch of sequences; parameters and results as in ``RNN.forward``."""
        output, (h_n,) = self._run(x, [hx], lengths)
        return output, h_n

    def _batch_step(
        self, cell: Cell, x: Tensor, u: Tensor, states: tuple[Tensor, ...], norms: dict[str, Module], time: int
    ) -> tuple[Tensor, ...]:
        (x_r, x_z, x_n), (u_r, u_z, u_n) = split(x, 3, axis=-1), split(u, 3, axis=-1)
        z, n = gate(cell, x_z + u_z), F.tanh(x_n + gate(cell, x_r + u_r) * u_n)
        return (((1.0 - z) * states[0] + z * n if cell.swap else (1.0 - z) * n + z * states[0]),)
