"""Padding sequences of different lengths into one array."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.arrays.creation import asarray
from minigrad.data.collate import collate
from minigrad.engine.memory.dtype import DTypeLike, get_default_dtype
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.tensor.tensor import Tensor


def pad_sequences(
    sequences: Sequence[Any], maxlen: int | None = None, dtype: DTypeLike = None, padding: str = "pre",
    truncating: str = "pre", value: float = 0,
) -> Tensor:  # fmt: skip
    """Pad or truncate sequences to the same length; arguments and defaults are Keras's, except the dtype.

    The result is (N, maxlen, …).

    Parameters
    ----------
    sequences : sequence
        N sequences of numbers, or of arrays of the same shape.
    maxlen : int, optional
        By default, the length of the longest sequence.
    dtype : DType, optional
        By default, the dtype of the sequences as arrays: Python ints become int64, floats the default dtype.
    padding : {"pre", "post"}
        Whether to pad before or after a sequence. Use "post" for recurrent layers that take lengths.
    truncating : {"pre", "post"}
        Whether to truncate at the beginning or at the end.
    value : float
        The padding value.

    Raises
    ------
    TypeError
        If `sequences` is a string or not a sequence of sequences, or `value` is not a number.
    ValueError
        For an unknown `padding` or `truncating`, elements whose shapes differ, and, without a `dtype`, a `value` that
        sequences of integers or bools cannot hold.

    Examples
    --------
    >>> mg.data.pad_sequences([[1, 2, 3], [4]])
    tensor([[1, 2, 3],
            [0, 0, 4]])
    >>> mg.data.pad_sequences([[1, 2, 3], [4]], maxlen=2, padding="post", truncating="post")
    tensor([[1, 2],
            [4, 0]])
    """
    for name, word in (("padding", padding), ("truncating", truncating)):
        if word not in ("pre", "post"):
            raise ValueError(f"[pad_sequences] expected {name} 'pre' or 'post', got {word!r}")
    if isinstance(sequences, str) or not hasattr(sequences, "__len__"):
        raise TypeError(f"[pad_sequences] expected a list of sequences, got a {type(sequences).__name__}")
    parts = [_elements(sequence) for sequence in sequences]
    filled = [part for part in parts if len(part)] or parts[:1]  # an empty list does not determine a dtype or shape
    shapes = sorted({part.shape[1:] for part in filled})
    if len(shapes) > 1:
        raise ValueError(f"[pad_sequences] expected elements of the same shape, got {shapes[0]} and {shapes[1]}")
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
    """Convert a sequence to an array (length, …) of the dtype that `tensor` would give it."""
    if isinstance(sequence, str) or not hasattr(sequence, "__len__"):
        raise TypeError(f"[pad_sequences] expected sequences of numbers, got {sequence!r}")
    found = sequence.numpy() if isinstance(sequence, Tensor) else np.asarray(sequence)
    if found.dtype.kind not in "buif":
        raise TypeError(f"[pad_sequences] expected sequences of numbers, got {sequence!r}")
    if isinstance(sequence, np.ndarray | Tensor):
        return found
    return found.astype(get_default_dtype().dtype) if found.dtype.kind == "f" else found


def collate_padded(samples: Sequence[Any], value: float = 0) -> tuple[Any, ...]:
    """Combine samples that begin with a sequence of any length into a batch for recurrent layers.

    Errors are as for `pad_sequences` and `collate`.

    Parameters
    ----------
    samples : sequence
        Sequences of T numbers or arrays, or tuples of a sequence and further values such as a label.
    value : float
        The padding after the end of a sequence.

    Returns
    -------
    tuple
        The sequences (B, longest T, …), their lengths (B,), and batches of the further values.

    Examples
    --------
    >>> names = [([3, 1, 4], 0), ([1], 1)]
    >>> for words, lengths, labels in mg.data.DataLoader(names, batch_size=2, collate=mg.data.collate_padded):
    ...     print(words.tolist(), lengths.tolist(), labels.tolist())
    [[3, 1, 4], [1, 0, 0]] [3, 1] [0, 1]
    """
    if not samples:
        raise ValueError("[collate_padded] expected at least one sample, got none")
    rows = [sample if isinstance(sample, tuple) else (sample,) for sample in samples]
    sequences = [row[0] for row in rows]
    rest = collate([row[1:] for row in rows])
    return (pad_sequences(sequences, padding="post", value=value), asarray([len(x) for x in sequences]), *rest)
