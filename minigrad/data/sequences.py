"""Sequences of different lengths made one array."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.creation import asarray
from minigrad.data.collate import collate
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor import Tensor

if TYPE_CHECKING:
    from minigrad.engine.dtype import DTypeLike


def pad_sequences(
    sequences: Sequence[Any], maxlen: int | None = None, dtype: "DTypeLike" = None, padding: str = "pre",
    truncating: str = "pre", value: float = 0,
) -> Tensor:  # fmt: skip
    """Sequences of one length, filled up or cut; arguments and their defaults are Keras's, but for the dtype.

    Parameters
    ----------
    sequences : sequence
        N sequences of numbers, or of arrays that are all of one shape.
    maxlen : int, optional
        Default: the length of the longest.
    dtype : DType, optional
        Default: what the sequences have as arrays: Python ints are int64, floats float32.
    padding : {"pre", "post"}
        Where to fill up: before a sequence or after it. For recurrent networks that take lengths: "post".
    truncating : {"pre", "post"}
        Where to cut: off the beginning or off the end.
    value : float
        What to fill up with.

    Returns
    -------
    Tensor
        (N, maxlen, …).

    Raises
    ------
    TypeError
        For one text, and other things that are no sequences, and for a `value` that is no number.
    ValueError
        For other words for `padding` and `truncating`, elements of shapes that differ, and a `value` that sequences of
        integers or bool cannot hold where no `dtype` is given.

    Examples
    --------
    >>> from minigrad import data
    >>> data.pad_sequences([[1, 2, 3], [4]])
    tensor([[1, 2, 3],
            [0, 0, 4]])
    >>> data.pad_sequences([[1, 2, 3], [4]], maxlen=2, padding="post", truncating="post")
    tensor([[1, 2],
            [4, 0]])
    """
    for name, word in (("padding", padding), ("truncating", truncating)):
        if word not in ("pre", "post"):
            raise ValueError(f"[pad_sequences] expected {name} 'pre' or 'post', got {word!r}")
    if isinstance(sequences, str) or not hasattr(sequences, "__len__"):
        raise TypeError(f"[pad_sequences] expected a list of sequences, got a {type(sequences).__name__}")
    parts = [_elements(sequence) for sequence in sequences]
    filled = [part for part in parts if len(part)] or parts[:1]  # an empty list says nothing about its elements
    shapes = sorted({part.shape[1:] for part in filled})
    if len(shapes) > 1:
        raise ValueError(f"[pad_sequences] expected elements of one shape, got {shapes[0]} and {shapes[1]}")
    longest = max(map(len, parts), default=0)
    length = longest if maxlen is None else integer("pad_sequences", "maxlen", maxlen, 0)
    kinds = {part.dtype for part in filled}
    kind = np.result_type(*({kind for kind in kinds if kind.kind == "f"} or kinds or {np.dtype(np.int64)}))
    value = number("pad_sequences", "value", value)
    if kind.kind != "f":
        least, most = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        if not (least <= value <= most and value == int(value)):
            if dtype is None:
                raise ValueError(f"[pad_sequences] expected a value that sequences of {kind} can hold, got {value}")
            kind = np.dtype(np.float64)
    out = np.full((len(parts), length, *(shapes[0] if shapes else ())), value, kind)
    for row, part in zip(out, parts, strict=True):
        kept = part[max(0, len(part) - length) :] if truncating == "pre" else part[:length]
        if len(kept):
            row[length - len(kept) if padding == "pre" else 0 :][: len(kept)] = kept
    return asarray(out, dtype)


def _elements(sequence: Any) -> np.ndarray:
    """A sequence as an array (length, …) of the dtype that `tensor` would give it."""
    if isinstance(sequence, str) or not hasattr(sequence, "__len__"):
        raise TypeError(f"[pad_sequences] expected sequences of numbers, got {sequence!r}")
    found = sequence.numpy() if isinstance(sequence, Tensor) else np.asarray(sequence)
    if found.dtype.kind not in "bif":
        raise TypeError(f"[pad_sequences] expected sequences of numbers, got {sequence!r}")
    if isinstance(sequence, np.ndarray | Tensor):
        return found
    return found.astype(np.float32) if found.dtype.kind == "f" else found


def collate_padded(samples: Sequence[Any], value: float = 0) -> tuple[Any, ...]:
    """One batch from samples that begin with a sequence, each of its own length, as recurrent layers take them.

    Parameters
    ----------
    samples : sequence
        Sequences of T numbers or arrays; or tuples of a sequence and more, such as a label.
    value : float
        What stands behind the end of a sequence.

    Returns
    -------
    tuple
        The sequences (B, longest T, …), their lengths (B,), and batches of what else the samples hold.

    Raises
    ------
    TypeError, ValueError
        As `pad_sequences` and `collate`.

    Examples
    --------
    >>> from minigrad import data
    >>> names = [([3, 1, 4], 0), ([1], 1)]
    >>> for words, lengths, labels in data.DataLoader(names, batch_size=2, collate=data.collate_padded):
    ...     print(words.tolist(), lengths.tolist(), labels.tolist())
    [[3, 1, 4], [1, 0, 0]] [3, 1] [0, 1]
    """
    if not samples:
        raise ValueError("[collate_padded] expected at least one sample, got none")
    rows = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    sequences = [row[0] for row in rows]
    rest = collate([row[1:] for row in rows])
    return (pad_sequences(sequences, padding="post", value=value), asarray([len(x) for x in sequences]), *rest)
