"""Connectionist temporal classification: the loss of a sequence of labels without their places in time."""

import math
from collections.abc import Sequence

from minigrad.arrays.creation import arange, asarray, full
from minigrad.engine.devices.kernel_list import repeat
from minigrad.engine.ops.arguments import integer
from minigrad.engine.ops.gather import numbered, take_along_axis
from minigrad.engine.ops.join import concat, stack
from minigrad.engine.ops.logic import maximum, where
from minigrad.engine.ops.recurrent import Lengths
from minigrad.engine.ops.reduce import cumulative_sum
from minigrad.engine.ops.scan import paths_loss
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.losses.functions import check_float, check_reduction

OP = "ctc_loss"


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor | Sequence[int] | int,
    target_lengths: Tensor | Sequence[int] | int, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification: loss = −ln Σ over the alignments of Π over t of the probabilities.

    An alignment gives each step of the input a label or the blank, so that the target remains when repeated labels are
    merged and blanks are then removed; between two equal labels of a target it needs a blank (Graves, Fernández, Gomez,
    Schmidhuber 2006, https://doi.org/10.1145/1143844.1143891). The sums over all of them run in float64.

    The gradient is the derivative for any `log_probs`: dx = −g p, where p is the probability of a class in a step,
    given the target. PyTorch's is e^x − p, which is right only after log_softmax; through log_softmax both are the
    same. An infinite loss, of a target without an alignment, does not depend on `log_probs`: its gradient is 0, where
    PyTorch's is NaN.

    The result is a scalar, or ``(N,)`` for "none".

    Parameters
    ----------
    log_probs : Tensor
        ``(T, N, C)`` or ``(T, C)``: the logarithms of the classes' probabilities, as from `log_softmax`.
    targets : Tensor
        Integers, ``(N, S)``, padded with any values, or ``(sum(target_lengths),)``, one target after the other;
        ``(S,)`` for an input without a batch.
    input_lengths, target_lengths : Tensor or sequence of int
        ``(N,)``, or ``()`` without a batch: the steps of each sample, from 0 to T, and the labels of its target. What
        is beyond them has no influence.
    blank : int
        The class of the blank.
    reduction : {"mean", "sum", "none"}
        The mean, as in PyTorch, is over the samples, of each loss divided by the number of its labels, at least 1.
    zero_infinity : bool
        Whether an infinite loss counts as 0.

    Raises
    ------
    TypeError
        If `log_probs` are not floats, or other arguments not integers.
    ValueError
        For shapes or lengths that do not match, an unknown `reduction`, or a blank among the labels (this on the CPU
        only, as reading values would wait for the GPU).
    IndexError
        For labels that are not from 0 to C − 1; on a GPU, they are reported at the next transfer to the CPU.

    Examples
    --------
    >>> log_probs = mg.log(mg.tensor([[0.5, 0.5], [0.25, 0.75]]))     # two steps, the blank and one label
    >>> loss = mg.nn.functional.ctc_loss(log_probs, mg.tensor([1]), 2, 1)
    >>> round(mg.exp(-loss).item(), 4)                                # 1 1, 1 blank, blank 1: all but two blanks
    0.875
    """
    check_reduction(OP, reduction)
    check_float(OP, log_probs)
    blank = integer(OP, "blank", blank, 0)
    labels = asarray(targets, device=log_probs.device)
    if labels.dtype.kind not in "iu":
        raise TypeError(f"[{OP}] expected integer targets, got {labels.dtype}")
    single = log_probs.ndim == 2
    if single:
        log_probs, labels = log_probs.expand_dims(1), labels.expand_dims(0)
        input_lengths, target_lengths = (asarray(n).reshape(1) for n in (input_lengths, target_lengths))
    if log_probs.ndim != 3 or labels.ndim not in (1, 2) or (labels.ndim == 2 and labels.shape[0] != log_probs.shape[1]):
        raise ValueError(
            f"[{OP}] expected log_probs (T, N, C) and targets (N, S) or (sum of lengths,), or (T, C) and (S,), got "
            f"{log_probs.shape} and {labels.shape}"
        )
    steps, batch, classes = log_probs.shape
    if blank >= classes:
        raise ValueError(f"[{OP}] expected a blank below {classes}, the number of classes, got {blank}")
    device = log_probs.device
    ends = Lengths(input_lengths, steps, batch, OP, device).values
    counts = Lengths(target_lengths, labels.shape[-1], batch, OP, device).values
    states = _states(labels, counts, blank, classes)
    before = concat([full((batch, 2), blank, dtype="int64", device=device), states], axis=1)[:, :-2]
    skip = where(states != before, 0.0, full(states.shape, -math.inf, dtype="float64", device=device))
    taken = take_along_axis(log_probs, states.expand_dims(0), axis=2)
    loss = paths_loss(taken.astype("float64"), skip, ends, 2 * counts).astype(log_probs.dtype)
    if zero_infinity:
        loss = where(loss == math.inf, 0.0, loss)
    if reduction == "mean":
        return (loss / maximum(counts, 1)).mean()
    return loss.sum() if reduction == "sum" else loss.squeeze(0) if single else loss


def _states(labels: Tensor, counts: Tensor, blank: int, classes: int) -> Tensor:
    """Return the labels of each target with blanks before, between, after and beyond them: ``(N, 2 S + 1)``."""
    batch, device = counts.shape[0], labels.device
    if labels.ndim == 1:
        total, longest = (int(n) for n in (counts.sum(), counts.max() if batch else 0))
        if total != labels.shape[0]:
            raise ValueError(f"[{OP}] expected {total} labels, the sum of target_lengths, got targets {labels.shape}")
        first = cumulative_sum(counts) - counts
        places = first.expand_dims(1) + arange(longest, device=device)
        labels = labels[where(places < total, places, 0)] if total else labels.reshape((batch, 0))
    alive = arange(labels.shape[1], device=device) < counts.expand_dims(1)
    if device == "cpu":
        repeat(_refuse_blanks, (labels, alive, blank))
    labels = numbered(f"[{OP}] expected targets", where(alive, labels, blank), classes)
    blanks = full((batch, 1), blank, dtype="int64", device=device)
    pairs = stack([blanks.broadcast_to(labels.shape), labels], axis=2)
    return concat([pairs.reshape((batch, 2 * labels.shape[1])), blanks], axis=1)


def _refuse_blanks(labels: Tensor, alive: Tensor, blank: int) -> None:
    if bool(((labels == blank) & alive).any()):
        raise ValueError(f"[{OP}] expected targets without the blank {blank}, got it among the labels")
