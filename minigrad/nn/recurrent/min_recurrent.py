"""Recurrent layers whose gates depend on the input alone, so that `linear_scan` runs all of their steps."""

from minigrad.arrays.creation import arange, empty
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.activation import sigmoid, softplus
from minigrad.engine.ops.join import split
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.matmul import linear
from minigrad.engine.ops.recurrent import Lengths as CheckedLengths
from minigrad.engine.ops.recurrent import normalized
from minigrad.engine.ops.scan import linear_scan
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.parameter import Parameter
from minigrad.nn.recurrent.recurrence import PREFIXES, GateNorm
from minigrad.nn.recurrent.sequences import Lengths, Sequences


class _Minimal(Sequences):
    """Base class: the parameters, and a layer that scans over h_t = a_t h_{t−1} + b_t."""

    gates: int

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, *, norm: str | None = None, eps: float = 1e-5,
        device: str | None = None, dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, self._flag("bias", bias), norm, eps)
        self._finish(num_layers, batch_first, dropout, bidirectional, device, dtype)

    def _add_layer(self, suffix: str, input_size: int, device: str | None, dtype: DTypeLike) -> None:
        rows, biased = self.gates * self.hidden_size, self.bias and self.norm is None
        weight = Parameter(empty((rows, input_size), dtype=dtype, device=device))
        self.register_parameter("weight_ih" + suffix, weight)
        bias = Parameter(empty((rows,), dtype=dtype, device=device)) if biased else None
        self.register_parameter("bias_ih" + suffix, bias)
        for name, sizes in self._norm_sizes().items():
            norm = GateNorm(sizes, self.eps, device, dtype, centered=self.norm == "layer")
            self.register_module(name + suffix, norm)

    def _norm_sizes(self) -> dict[str, tuple[int, ...]]:
        return {} if self.norm is None else {PREFIXES[self.norm]: (self.hidden_size,) * self.gates}

    def _layer(
        self, x: Tensor, first: tuple[Tensor, ...], suffix: str, lengths: CheckedLengths | None
    ) -> tuple[Tensor, ...]:
        a, b = self._coefficients(*self._products(x, suffix))
        alive = None
        if lengths is not None:  # a step after the end keeps the state
            time = arange(x.shape[0], device=x.device).expand_dims(1)
            alive = (time < lengths.values).expand_dims(2)
            a, b = where(alive, a, 1.0), where(alive, b, 0.0)
        h = linear_scan(a, b, first[0])
        return h if alive is None else where(alive, h, 0.0), h[-1]

    def _products(self, x: Tensor, suffix: str) -> list[Tensor]:
        """Return the products of the input with the rows of each gate, and their bias or norm."""
        none = [None] * self.gates
        weights = split(getattr(self, "weight_ih" + suffix), self.gates)
        bias = getattr(self, "bias_ih" + suffix)
        biases = none if bias is None else split(bias, self.gates)
        products = [linear(x, w, b) for w, b in zip(weights, biases, strict=True)]
        for name, sizes in self._norm_sizes().items():
            norm = self._norm_of(name + suffix, sizes)
            gammas, betas = (none if p is None else split(p, self.gates) for p in (norm.weight, norm.bias))
            products = [
                normalized(z, (self.hidden_size,), gamma, beta, norm.eps, self.norm == "layer")
                for z, gamma, beta in zip(products, gammas, betas, strict=True)
            ]
        return products

    def _coefficients(self, *products: Tensor) -> tuple[Tensor, Tensor]:
        """Return a and b."""
        raise NotImplementedError

    def forward(self, x: Tensor, hx: Tensor | None = None, lengths: Lengths | None = None) -> tuple[Tensor, Tensor]:
        """Run over a batch of sequences; parameters and results as in ``RNN.forward``."""
        output, (h_n,) = self._run(x, [hx], lengths)
        return output, h_n


class MinGRU(_Minimal):
    """A network of minimal gated recurrent units over sequences.

    For every step t (Feng et al. 2024, "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201, section 3.1)::

        z, c = W_ih x_t + b_ih
        h_t = (1 − σ(z)) h_{t-1} + σ(z) c

    The gate and the candidate c do not depend on h_{t-1}, and there is no tanh: the recurrence is linear in h, so that
    `minigrad.linear_scan` runs all steps at once. With ``norm="layer"`` the products are normalized, each over its
    units, and have no other bias::

        z, c = LN_z(W_z x_t), LN_c(W_c x_t)

    with LN, and RMS for ``norm="rms"``, as in `RNN`. Raises ValueError for unknown options; when called, for shapes and
    lengths that do not match and for a sequence of no steps; TypeError as in `RNN`.

    Parameters
    ----------
    input_size, hidden_size : int
        Sizes of the last axis of x and of h.
    bias : bool
        Whether to add b_ih; a norm has its own bias instead.
    norm : {None, "layer", "rms"}
        What to normalize, as above.
    num_layers, batch_first, dropout, bidirectional, eps, device, dtype
        As in `RNN`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(2 hidden_size, input_size)``, above the first layer ``(2 hidden_size, D hidden_size)`` for D directions: the
        rows of z, then those of c. Initial values and other names are as in `RNN`.
    bias_ih_l0 : Parameter or None
        ``(2 hidden_size,)``
    ln_l0 : GateNorm
        With ``norm="layer"``: γ and β, ``weight`` and ``bias`` of ``(2 hidden_size,)`` each, and ``eps``. The layer
        reads them without calling them, so hooks on them are not called. With ``norm="rms"`` its name is ``rms_l0``.

    Examples
    --------
    >>> layer = mg.nn.MinGRU(28, 64, num_layers=2, norm="layer")
    >>> output, h_n = layer(mg.zeros((10, 32, 28)))
    >>> output.shape, h_n.shape
    ((10, 32, 64), (2, 32, 64))
    """

    kind, gates = "mingru", 2

    def _coefficients(self, *products: Tensor) -> tuple[Tensor, Tensor]:
        z, c = products
        z = sigmoid(z)
        return 1 - z, z * c


class MinLSTM(_Minimal):
    """A network of minimal long short-term memories over sequences.

    For every step t (Feng et al. 2024, "Were RNNs All We Needed?", https://arxiv.org/abs/2410.01201, section 3.2)::

        f, i, c = W_ih x_t + b_ih
        h_t = (σ(f) h_{t-1} + σ(i) c) / (σ(f) + σ(i))

    There is no cell state and no output gate; the division makes the two gates add up to one. Otherwise it is as in
    `MinGRU`, with three blocks of rows in the order f, i, c. Parameters are as in `MinGRU`.

    Attributes
    ----------
    weight_ih_l0 : Parameter
        ``(3 hidden_size, input_size)``, above the first layer ``(3 hidden_size, D hidden_size)``.
    bias_ih_l0 : Parameter or None
        ``(3 hidden_size,)``
    ln_l0 : GateNorm
        With ``norm="layer"``: γ and β of ``(3 hidden_size,)``; with ``norm="rms"`` its name is ``rms_l0``.

    Examples
    --------
    >>> layer = mg.nn.MinLSTM(28, 64, bidirectional=True, batch_first=True)
    >>> output, h_n = layer(mg.zeros((32, 10, 28)), lengths=[10] * 31 + [3])
    >>> output.shape, h_n.shape
    ((32, 10, 128), (2, 32, 64))
    """

    kind, gates = "minlstm", 3

    def _coefficients(self, *products: Tensor) -> tuple[Tensor, Tensor]:
        f, i, c = products
        # σ(i) / (σ(f) + σ(i)) = σ(log σ(i) − log σ(f)), also where both gates vanish
        d = softplus(-f) - softplus(-i)
        share = sigmoid(d)
        return 1 - share, share * c
