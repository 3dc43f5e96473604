"""Sequences of different lengths, as PyTorch's module of this name pads them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.join import pad, stack
from minigrad.engine.tensor.pytorch_names import lookup
from minigrad.engine.tensor.tensor import Tensor

__all__ = ["pad_sequence"]

if not TYPE_CHECKING:
    __getattr__ = lookup(__name__)


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Pad sequences to the length of the longest one and stack them; gradients flow back into each.

    `minigrad.data.pad_sequences` does this for arrays and lists of numbers, with the batch first. Recurrent layers take
    the lengths as ``lengths=`` in place of PyTorch's packed sequences. Raises TypeError for anything but tensors, and
    ValueError for no sequences, a 0-d tensor, shapes that differ in other axes, and an unknown `padding_side`. The
    result is ``(T, N, ...)``, or ``(N, T, ...)`` if `batch_first`, with the largest T.

    Parameters
    ----------
    sequences : sequence of Tensor
        Of shapes (T, ...), with a T of their own and all other axes equal.
    batch_first : bool
        Whether the batch is the first axis of the result, not the second.
    padding_value : float
    padding_side : {"right", "left"}

    Examples
    --------
    >>> mg.nn.utils.rnn.pad_sequence([mg.tensor([1, 2, 3]), mg.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    op = "pad_sequence"
    if padding_side not in ("left", "right"):
        raise ValueError(f'[{op}] expected padding_side "left" or "right", got {padding_side!r}')
    sequences = list(sequences)
    if not sequences:
        raise ValueError(f"[{op}] expected at least one sequence, got none")
    for x in sequences:
        if not isinstance(x, Tensor):
            raise TypeError(f"[{op}] expected tensors, got {kind_of(x)}")
        if x.ndim == 0:
            raise ValueError(f"[{op}] expected tensors of shape (T, ...), got a 0-d tensor")
    longest = max(len(x) for x in sequences)
    padded = []
    for x in sequences:
        rest = longest - len(x)
        widths = [(rest, 0) if padding_side == "left" else (0, rest)] + [(0, 0)] * (x.ndim - 1)
        padded.append(pad(x, widths, value=padding_value))
    return stack(padded, axis=0 if batch_first else 1)
