"""Losses as modules; each calls the corresponding function in `minigrad.nn.functional`."""

from collections.abc import Sequence
from inspect import signature
from typing import Any

from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.losses.functions import above_zero, check_divergence_reduction, check_reduction
from minigrad.nn.module import Module


class _Named(Module):
    """A loss, of which PyTorch calls the two arguments `input` and `target`."""

    def __new__(cls, *args: Any, **options: Any) -> Any:
        if isinstance(args[1:2] and args[1], Tensor):
            raise TypeError(
                f"[{cls.__name__}] expected options, got two tensors: the loss is made first and called then, "
                f"nn.{cls.__name__}()(x, target)"
            )
        return super().__new__(cls)

    def __call__(self, *args: Any, **named: Any) -> Any:
        for name in ("input", "target")[len(args) :]:
            if name not in named:
                break
            args = *args, named.pop(name)
        return super().__call__(*args, **named)


class _Loss(_Named):
    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = check_reduction(type(self).__name__, reduction)

    def extra_repr(self) -> str:
        """The options that differ from their defaults; of a tensor, only that it is given."""
        options = [option for option in signature(type(self)).parameters.values() if option.name in self.__dict__]
        values = [True if isinstance(value := getattr(self, o.name), Tensor) else value for o in options]
        pairs = zip(options, values, strict=True)
        return ", ".join(f"{o.name}={value!r}" for o, value in pairs if repr(value) != repr(o.default))


class _WeightedLoss(_Loss):
    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)


class CrossEntropyLoss(_WeightedLoss):
    """−log softmax(x)[label]; see `functional.cross_entropy` for the arguments, shapes and errors.

    Examples
    --------
    >>> round(mg.nn.CrossEntropyLoss()(mg.zeros((2, 4)), mg.tensor([0, 3])).item(), 4)      # log 4
    1.3863
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(weight, reduction)
        self.ignore_index = integer("CrossEntropyLoss", "ignore_index", ignore_index)
        self.label_smoothing = number("CrossEntropyLoss", "label_smoothing", label_smoothing, 0, 1)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Map logits ``(N, C, ...)`` and labels ``(N, ...)``, or class probabilities, to a scalar or ``(N, ...)``."""
        return F.cross_entropy(logits, labels, self.weight, self.ignore_index, self.reduction, self.label_smoothing)


class NLLLoss(_WeightedLoss):
    """−x[label] for log-probabilities x; see `functional.nll_loss` for the arguments.

    Examples
    --------
    >>> mg.nn.NLLLoss()(mg.tensor([[-1.0, -2.0], [-3.0, -4.0]]), mg.tensor([0, 1])).item()
    2.5
    """

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(weight, reduction)
        self.ignore_index = integer("NLLLoss", "ignore_index", ignore_index)

    def forward(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        """Map log-probabilities ``(N, C, ...)`` and integer labels ``(N, ...)`` to a scalar or ``(N, ...)``."""
        return F.nll_loss(log_probs, labels, self.weight, self.ignore_index, self.reduction)


class BCELoss(_WeightedLoss):
    """−y log p − (1 − y) log(1 − p) for probabilities p; see `functional.binary_cross_entropy` for the arguments.

    Examples
    --------
    >>> round(mg.nn.BCELoss()(mg.tensor([0.5]), mg.tensor([1.0])).item(), 4)      # log 2
    0.6931
    """

    def forward(self, probs: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of probabilities and labels in [0, 1] of the same shape."""
        return F.binary_cross_entropy(probs, labels, self.weight, self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """`BCELoss` of σ(z) for logits z; see `functional.binary_cross_entropy_with_logits` for the arguments.

    Examples
    --------
    >>> mg.nn.BCEWithLogitsLoss()(mg.tensor([100.0]), mg.tensor([0.0])).item()
    100.0
    """

    pos_weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean", pos_weight: Tensor | None = None) -> None:
        super().__init__(weight, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of logits and labels in [0, 1] of the same shape."""
        return F.binary_cross_entropy_with_logits(logits, labels, self.weight, self.reduction, self.pos_weight)


class MSELoss(_Loss):
    """(x − y)²; see `functional.mse_loss` for `reduction`.

    Examples
    --------
    >>> mg.nn.MSELoss()(mg.tensor([1.0, 3.0]), mg.tensor([0.0, 0.0])).item()
    5.0
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of an input and a target of the same shape."""
        return F.mse_loss(x, target, self.reduction)


class L1Loss(_Loss):
    """|x − y|; see `functional.l1_loss`.

    Examples
    --------
    >>> mg.nn.L1Loss()(mg.tensor([1.0, -3.0]), mg.tensor([0.0, 0.0])).item()
    2.0
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of an input and a target of the same shape."""
        return F.l1_loss(x, target, self.reduction)


class SmoothL1Loss(_Loss):
    """(x − y)² / 2β where |x − y| < β, else |x − y| − β/2; see `functional.smooth_l1_loss` for the arguments.

    Examples
    --------
    >>> mg.nn.SmoothL1Loss(reduction="none")(mg.tensor([1.0, 3.0]), mg.tensor([0.5, 0.0])).tolist()
    [0.125, 2.5]
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = number("SmoothL1Loss", "beta", beta, 0)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of an input and a target of the same shape."""
        return F.smooth_l1_loss(x, target, self.reduction, self.beta)


class HuberLoss(_Loss):
    """(x − y)² / 2 where |x − y| < δ, else δ (|x − y| − δ/2); see `functional.huber_loss` for the arguments.

    Examples
    --------
    >>> mg.nn.HuberLoss(delta=2.0)(mg.tensor([5.0]), mg.tensor([0.0])).item()
    8.0
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = above_zero("HuberLoss", "delta", delta)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of an input and a target of the same shape."""
        return F.huber_loss(x, target, self.reduction, self.delta)


class KLDivLoss(_Named):
    """y (log y − x) for log-probabilities x and probabilities y; see `functional.kl_div` for the arguments.

    Examples
    --------
    >>> mg.nn.KLDivLoss("batchmean")(mg.log(mg.tensor([[0.5, 0.5]])), mg.tensor([[0.5, 0.5]])).item()
    0.0
    """

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__()
        self.reduction = check_divergence_reduction("KLDivLoss", reduction)
        self.log_target = bool(log_target)

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """Return the loss of log-probabilities and a target of the same shape."""
        return F.kl_div(x, target, self.reduction, self.log_target)


class TripletMarginLoss(_Loss):
    """max(‖a − b‖ₚ − ‖a − c‖ₚ + margin, 0); see `functional.triplet_margin_loss` for the arguments.

    Examples
    --------
    >>> loss = mg.nn.TripletMarginLoss(margin=0.5)
    >>> loss(mg.zeros((1, 2)), mg.zeros((1, 2)), mg.ones((1, 2))).item()
    0.0
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.margin, self.swap = above_zero("TripletMarginLoss", "margin", margin), bool(swap)
        self.p, self.eps = number("TripletMarginLoss", "p", p), number("TripletMarginLoss", "eps", eps)

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss of vectors ``(N, D)`` or ``(D,)``."""
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, self.reduction
        )


class GaussianNLLLoss(_Loss):
    """(log v + (x − y)² / v) / 2 for a variance v; see `functional.gaussian_nll_loss` for the arguments.

    Examples
    --------
    >>> mg.nn.GaussianNLLLoss()(mg.tensor([1.0, 3.0]), mg.tensor([0.0, 0.0]), mg.ones(2)).item()
    2.5
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = bool(full), number("GaussianNLLLoss", "eps", eps, 0)

    def forward(self, x: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """Return the loss of means, of targets of the same shape, and of variances."""
        return F.gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)


class CTCLoss(_Loss):
    """The loss of sequences of labels without their places in time; see `functional.ctc_loss` for the arguments.

    Examples
    --------
    >>> log_probs = mg.log_softmax(mg.zeros((6, 2, 5)))        # 6 steps, 2 samples, the blank and 4 labels
    >>> targets = mg.tensor([[1, 2, 2], [4, -1, -1]])
    >>> round(mg.nn.CTCLoss()(log_probs, targets, [6, 4], [3, 1]).item(), 4)
    3.1217
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction)
        self.blank = integer("CTCLoss", "blank", blank, 0)
        self.zero_infinity = bool(zero_infinity)

    def forward(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int],
        target_lengths: Tensor | Sequence[int],
    ) -> Tensor:  # fmt: skip
        """Map log-probabilities ``(T, N, C)`` and labels ``(N, S)`` to a scalar or ``(N,)``."""
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class CosineSimilarity(Module):
    """x·y / (‖x‖ ‖y‖) along an axis; see `functional.cosine_similarity` for the arguments.

    Examples
    --------
    >>> mg.nn.CosineSimilarity(dim=0)(mg.tensor([3.0, 4.0]), mg.tensor([3.0, 0.0]))
    tensor(0.6)
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = integer("CosineSimilarity", "dim", dim)
        self.eps = number("CosineSimilarity", "eps", eps, 0)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the similarity of the vectors of two tensors."""
        return F.cosine_similarity(x, y, self.dim, self.eps)
