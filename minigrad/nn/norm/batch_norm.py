"""Normalization layers that can keep running statistics: batch, batch re-, instance, recurrent batch normalization.

The conventions are PyTorch's; docs/reference/conventions.md lists the arguments for Keras's and Flax's.
"""

import warnings

from minigrad.arrays.creation import ones, zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.norm.norm_functions import apply_batch_norm, renormalize
from minigrad.nn.norm.row_norms import Affine, check_tensor


class _ChannelNorm(Affine):
    """Base class with a weight and bias per channel, optional running statistics, and the input check.

    `statistics` is the shape of the running statistics, channels last, or None if there are none.
    """

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None
    layouts: tuple[str, ...]  # the axes of an input, one letter each, for every allowed rank
    unbiased_running_var = True
    _optional: tuple[str, ...] = ("num_batches_tracked",)  # no other library than PyTorch counts the batches

    def __init__(
        self, num_features: int, eps: float, momentum: float | None, affine: bool, weight: bool,
        bias: bool, statistics: tuple[int, ...] | None, device: str | None, dtype: DTypeLike,
    ) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        self.num_features = num_features = integer(name, "num_features", num_features, 1)
        self.eps = number(name, "eps", eps, 0)
        self.momentum = None if momentum is None else number(name, "momentum", momentum, 0, 1)
        if momentum is not None and 0.9 <= momentum < 1:
            warnings.warn(
                f"[{name}] momentum={momentum} is the weight of each new batch: what Keras, Flax and Paddle call "
                f"{momentum} is {round(1 - momentum, 6)} here, see docs/reference/conventions.md",
                stacklevel=3,
            )
        self.affine, self.track_running_stats = affine, statistics is not None
        self.add_affine(num_features, affine and weight, affine and bias, device, dtype)
        mean = None if statistics is None else zeros(statistics, dtype=dtype, device=device)
        var = None if statistics is None else ones(statistics, dtype=dtype, device=device)
        count = None if statistics is None else zeros(statistics[:-1], dtype="int64", device=device)
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", var)
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Set the running mean to zeros, the running variance to ones and the counter to zero."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        """Set `weight` to ones and `bias` to zeros, and reset the running statistics."""
        self.reset_running_stats()
        super().reset_parameters()

    def _check(self, x: Tensor) -> None:
        check_tensor(type(self).__name__, x)
        for axes in self.layouts:
            if len(axes) == x.ndim and x.shape[axes.index("C")] == self.num_features:
                return
        expected = " or ".join(f"({', '.join(axes)})".replace("C", str(self.num_features)) for axes in self.layouts)
        raise ValueError(f"[{type(self).__name__}] expected an input of shape {expected}, got {x.shape}")

    def _normalize(
        self, x: Tensor, mean: Tensor | None, var: Tensor | None, count: Tensor | None,
        affine: tuple[Tensor | None, ...] | None = None, over_ranks: bool = False,
    ) -> Tensor:  # fmt: skip
        """Apply `F.batch_norm`; in training, update the running statistics and count the batch.

        `affine` takes the place of the weight and the bias; with `over_ranks`, the batch includes those of all ranks.
        """
        momentum: float | Tensor | None = self.momentum
        if momentum is None:  # average over all batches; their count may be on a GPU
            momentum = 0.0
            if self.training and mean is not None and count is not None:
                momentum = 1.0 / (count + 1).to(mean.dtype)
        weight, bias = (self.weight, self.bias) if affine is None else affine
        y = apply_batch_norm(
            x, mean, var, weight, bias, self.training or (mean is None and var is None), momentum, self.eps,
            self.unbiased_running_var, over_ranks,
        )  # fmt: skip
        if self.training and count is not None:
            count += 1
        return y

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
            f"{self.affine_repr(self.affine)}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_ChannelNorm):
    """Batch normalization for inputs of any rank."""

    def _over_ranks(self) -> bool:
        """Whether the statistics of the batch are those over all ranks."""
        return False

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: str | None = None, dtype: DTypeLike = None, *,
        bias: bool = True, weight: bool = True, unbiased_running_var: bool = True,
    ) -> None:  # fmt: skip
        statistics = (num_features,) if track_running_stats else None
        super().__init__(num_features, eps, momentum, affine, weight, bias, statistics, device, dtype)
        self.unbiased_running_var = unbiased_running_var

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`."""
        self._check(x)
        over_ranks = self.training and self._over_ranks()
        if self.training and not self.track_running_stats:  # tracking was switched off after construction
            return self._normalize(x, None, None, None, over_ranks=over_ranks)
        return self._normalize(x, self.running_mean, self.running_var, self.num_batches_tracked, over_ranks=over_ranks)


class BatchNorm1d(_BatchNorm):
    """Batch normalization of features, or of channels along one axis.

    y = (x − μ) / √(σ² + ε) · γ + β for each channel, where γ is `weight` and β is `bias`. In training, μ and σ² are the
    mean and the biased variance of the batch, over all axes but the second (Ioffe, Szegedy 2015,
    https://arxiv.org/abs/1502.03167, algorithm 1), and each running statistic r moves towards the statistic s of the
    batch: r ← (1 − m) r + m s. In evaluation, μ and σ² are the running statistics.

    Raises ValueError for `num_features` below 1, a negative `eps` or a `momentum` outside [0, 1]; when called, for an
    input of another shape or, in training, with only one value per channel.

    Parameters
    ----------
    num_features : int
        C, the number of channels.
    eps : float
        ε, added to the variance.
    momentum : float or None
        m, the weight of the new value (Keras and Flax specify 1 − m); None averages over all batches.
    track_running_stats : bool
        Whether to keep running statistics; without them, evaluation also uses the statistics of the batch.
    unbiased_running_var : bool
        Whether the running variance averages the unbiased variance, n / (n − 1) times the biased one used to normalize.
        True (the default) matches PyTorch, False matches Keras and Flax.
    affine, bias, weight, device, dtype
        As in `LayerNorm`, where `affine` is `elementwise_affine`.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``: γ, initialized to ones, and β, initialized to zeros.
    running_mean, running_var : Tensor or None
        ``(C,)``, buffers, initialized to zeros and ones.
    num_batches_tracked : Tensor or None
        ``()``, int64, a buffer: the number of batches seen in training.

    Examples
    --------
    >>> bn = mg.nn.BatchNorm1d(2)
    >>> y = bn(mg.tensor([[1.0, 10.0], [3.0, 50.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[-1.0, -1.0], [1.0, 1.0]]
    >>> [round(value, 3) for value in (*bn.running_mean.tolist(), *bn.running_var.tolist())]
    [0.2, 3.0, 1.1, 80.9]
    """

    layouts = ("NC", "NCL")


class BatchNorm2d(_BatchNorm):
    """Batch normalization of the channels of images ``(N, C, H, W)``; otherwise like `BatchNorm1d`.

    Examples
    --------
    >>> mg.nn.BatchNorm2d(6)(mg.random.normal(0.0, 1.0, (8, 6, 24, 24))).shape
    (8, 6, 24, 24)
    """

    layouts = ("NCHW",)


class _BatchRenorm(_BatchNorm):
    """Batch renormalization for inputs of any rank; inherits from the batch normalization it is in evaluation."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.01, affine: bool = True,
        r_max: float = 3.0, d_max: float = 5.0, device: str | None = None, dtype: DTypeLike = None, *,
        bias: bool = True, weight: bool = True, unbiased_running_var: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            num_features, eps, momentum, affine, device=device, dtype=dtype, bias=bias, weight=weight,
            unbiased_running_var=unbiased_running_var,
        )  # fmt: skip
        name = type(self).__name__
        self.r_max, self.d_max = number(name, "r_max", r_max, 1), number(name, "d_max", d_max, 0)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`."""
        self._check(x)
        mean, var, affine = self.running_mean, self.running_var, None
        if self.training:
            affine = renormalize(x, mean, var, self.weight, self.bias, self.eps, self.r_max, self.d_max)
        return self._normalize(x, mean, var, self.num_batches_tracked, affine)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, r_max={self.r_max}, d_max={self.d_max}"


class BatchRenorm1d(_BatchRenorm, BatchNorm1d):
    """Batch renormalization of features, or of channels along one axis.

    In training, y = ((x − μ_B) / σ_B · r + d) · γ + β with the mean μ_B and the standard deviation σ_B of the batch.
    `functional.batch_renorm` defines the corrections r and d (Ioffe 2017, https://arxiv.org/abs/1702.03275, algorithm
    1). With r_max = 1 and d_max = 0, this is `BatchNorm1d`. The paper begins with these and then increases them: assign
    to the attributes `r_max` and `d_max` during training.

    Errors are as for `BatchNorm1d`, and for limits that are too small.

    Parameters
    ----------
    num_features, eps, momentum, affine, device, dtype, bias, weight, unbiased_running_var
        As in `BatchNorm1d`, whose state it loads; the default `momentum` is the paper's. The running variance averages
        the variance, while the paper averages σ.
    r_max : float
        The limit of r, at least 1.
    d_max : float
        The limit of d, at least 0.

    Examples
    --------
    >>> bn, x = mg.nn.BatchRenorm1d(1, eps=0.0, momentum=0.5), mg.tensor([[2.0], [4.0]])
    >>> bn(x).tolist(), bn.running_mean.tolist(), bn.running_var.tolist()
    ([[2.0], [4.0]], [1.5], [1.5])
    """


class BatchRenorm2d(_BatchRenorm, BatchNorm2d):
    """Batch renormalization of the channels of images ``(N, C, H, W)``; otherwise like `BatchRenorm1d`.

    Examples
    --------
    >>> mg.nn.BatchRenorm2d(6)(mg.random.normal(0.0, 1.0, (8, 6, 24, 24))).shape
    (8, 6, 24, 24)
    """


class RecurrentBatchNorm1d(_ChannelNorm):
    """Batch normalization within a recurrent network: shared weight and bias, separate statistics for each time step.

    In training, each step normalizes with the statistics of its own batch; in evaluation, with its own running
    statistics (Cooijmans et al. 2016, https://arxiv.org/abs/1603.09025, section 3). All steps from `max_length` − 1 on
    share the last row of the running statistics. A step that training never reached is evaluated with the statistics of
    the last trained step before it, so sequences may be longer than any in training.

    Raises ValueError as in `BatchNorm1d`, and for a negative `time`; TypeError for a `time` that is not an integer.

    Parameters
    ----------
    num_features : int
        C, the number of features.
    max_length : int
        T, the number of steps with separate statistics.
    eps, momentum, affine, device, dtype, bias, weight, unbiased_running_var
        As in `BatchNorm1d`.
    gain : float
        The initial value of `weight`: 0.1 keeps the derivative of a following tanh large (section 4 of the paper).

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``: γ and β, shared by all steps.
    running_mean, running_var : Tensor
        ``(T, C)``, buffers, initialized to zeros and ones.
    num_batches_tracked : Tensor
        ``(T,)``, int64, a buffer: the number of batches seen in training at each step; empty ones do not count.

    Examples
    --------
    >>> norm = mg.nn.RecurrentBatchNorm1d(3, max_length=5)
    >>> for time in range(2):
    ...     y = norm(mg.random.normal(time, 1.0, (8, 3)), time)
    >>> norm.num_batches_tracked.tolist()
    [1, 1, 0, 0, 0]
    >>> x = mg.ones((1, 3))
    >>> norm.eval()(x, 7).tolist() == norm(x, 1).tolist()
    True
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    layouts = ("NC",)
    _optional = ()  # the counts say which steps have statistics

    def __init__(
        self, num_features: int, max_length: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        device: str | None = None, dtype: DTypeLike = None, *, gain: float = 0.1, bias: bool = True,
        weight: bool = True, unbiased_running_var: bool = True,
    ) -> None:  # fmt: skip
        max_length = integer("RecurrentBatchNorm1d", "max_length", max_length, 1)
        statistics = (max_length, num_features)
        super().__init__(num_features, eps, momentum, affine, weight, bias, statistics, device, dtype)
        self.max_length, self.unbiased_running_var = max_length, unbiased_running_var
        self.gain = number("RecurrentBatchNorm1d", "gain", gain)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set `weight` to `gain` and `bias` to zeros, and reset the running statistics."""
        super().reset_parameters()
        if self.weight is not None:
            init.constant_(self.weight, self.gain)

    def forward(self, x: Tensor, time: int) -> Tensor:
        """``(N, C)`` at step `time`, counted from 0, to the same shape."""
        self._check(x)
        return self._columns(x, time)

    def _columns(self, x: Tensor, time: int, first: int = 0) -> Tensor:
        """As `forward` for some of the features, of which `first` is the first; the last ones count the batch."""
        time = integer("RecurrentBatchNorm1d", "time", time, 0)
        step = self._row_of(time)
        # A step that has seen only empty batches has no statistics.
        count = self.num_batches_tracked[step] if x.size else None
        end = first + x.shape[1]
        if end == self.num_features and not first:
            return self._normalize(x, self.running_mean[step], self.running_var[step], count)
        if count is not None and end < self.num_features:
            count = count + 0
        affine = tuple(p if p is None else p[first:end] for p in (self.weight, self.bias))
        mean, var = (statistics[step][first:end] for statistics in (self.running_mean, self.running_var))
        return self._normalize(x, mean, var, count, affine)

    def _row_of(self, time: int) -> int:
        """Return the row of the statistics of a step."""
        step = min(time, self.max_length - 1)
        if not self.training and not int(self.num_batches_tracked[step]):
            trained = self.num_batches_tracked[:step].nonzero()[0]
            step = int(trained[-1]) if trained.size else step
        return step

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, {self.max_length}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}"
            f"{self.affine_repr(self.affine)}, gain={self.gain}"
        )


class _InstanceNorm(_ChannelNorm):
    """Instance normalization for inputs of any rank."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: str | None = None, dtype: DTypeLike = None, *,
        bias: bool = True, weight: bool = True,
    ) -> None:  # fmt: skip
        statistics = (num_features,) if track_running_stats else None
        super().__init__(num_features, eps, momentum, affine, weight, bias, statistics, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, which may lack the batch axis."""
        self._check(x)
        single = x.ndim == len(self.layouts[0])
        # The statistics exist but are not used if tracking was switched off after construction.
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        y = F.instance_norm(
            x.expand_dims(0) if single else x, mean, var, self.weight, self.bias, self.training or mean is None,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization along one axis: each channel of each sample is normalized separately.

    y = (x − μ) / √(σ² + ε) · γ + β, with the mean μ and the biased variance σ² of each channel of each sample (Ulyanov,
    Vedaldi, Lempitsky 2016, https://arxiv.org/abs/1607.08022); γ is `weight` and β is `bias`. Training and evaluation
    are the same unless the layer keeps running statistics. These average, in training, the batch means of μ and of the
    unbiased variance, and replace μ and σ² in evaluation.

    Raises ValueError for `num_features` below 1, a negative `eps` or a `momentum` outside [0, 1]; when called, for an
    input of another shape or with only one value per channel and sample.

    Parameters
    ----------
    num_features, eps, affine, bias, weight, device, dtype
        As in `BatchNorm1d`; the default is no `weight` and no `bias`.
    momentum : float or None
        m, the weight of the new value in the running statistics; None leaves them as they are (as in PyTorch).
    track_running_stats : bool
        Whether to keep running statistics.

    Attributes
    ----------
    weight, bias : Parameter or None
        ``(C,)``: γ, initialized to ones, and β, initialized to zeros.
    running_mean, running_var, num_batches_tracked : Tensor or None
        ``(C,)``, ``(C,)`` and ``()``, buffers as in `BatchNorm1d`; the counter stays 0 (as in PyTorch).

    Examples
    --------
    >>> y = mg.nn.InstanceNorm1d(2)(mg.tensor([[1.0, 3.0], [50.0, 10.0]]))
    >>> [[round(value, 3) for value in row] for row in y.tolist()]
    [[-1.0, 1.0], [1.0, -1.0]]
    """

    layouts = ("CL", "NCL")


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of images ``(N, C, H, W)`` or ``(C, H, W)``; otherwise like `InstanceNorm1d`.

    Examples
    --------
    >>> mg.nn.InstanceNorm2d(3)(mg.random.normal(0.0, 1.0, (8, 3, 6, 6))).shape
    (8, 3, 6, 6)
    """

    layouts = ("CHW", "NCHW")
