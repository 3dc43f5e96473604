"""Combining samples into batches."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad.arrays.creation import asarray, tensor
from minigrad.engine.ops.join import stack
from minigrad.engine.tensor.tensor import Tensor


def collate(samples: Sequence[Any]) -> Any:
    """Combine samples of the same structure into a batch.

    Tensors, arrays and numbers are stacked along a new first axis; tuples and lists become a tuple of batches, dicts a
    dict of batches, and strings a list. Raises TypeError for samples of other types, and ValueError for no samples, for
    samples whose shapes, lengths or keys differ, and for samples nested too deeply, such as lists that contain
    themselves.

    Parameters
    ----------
    samples : sequence
        At least one.

    Examples
    --------
    >>> mg.data.collate([([0.5, 1.5], "one"), ([2.5, 3.5], "two")])
    ((tensor([0.5, 2.5]), tensor([1.5, 3.5])), ['one', 'two'])
    """
    try:
        return _collate(samples)
    except RecursionError:
        raise ValueError("[collate] expected samples with a few levels, got some nested too deeply") from None


def _collate(samples: Sequence[Any]) -> Any:
    if not samples:
        raise ValueError("[collate] expected at least one sample, got none")
    first = samples[0]
    kinds = {type(sample) for sample in samples}
    if isinstance(first, Tensor | np.ndarray):
        return _stack(samples)
    if all(isinstance(sample, int | float | np.generic) for sample in samples):
        return tensor(list(samples))
    if isinstance(first, str | bytes) and len(kinds) == 1:
        return list(samples)
    if isinstance(first, Mapping) and len(kinds) == 1:
        if any(sample.keys() != first.keys() for sample in samples):
            raise ValueError(f"[collate] expected samples with the keys {list(first)}, got {_show(samples, list)}")
        return {key: _collate([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple | list) and len(kinds) == 1:
        if len({len(sample) for sample in samples}) > 1:
            raise ValueError(
                f"[collate] expected samples of one length, got {_show(samples, len)}: collate_padded pads sequences"
            )
        columns = tuple(_collate(column) for column in zip(*samples, strict=True))
        return type(first)(*columns) if hasattr(first, "_fields") else columns
    raise TypeError(
        "[collate] expected tensors, arrays, numbers, strings, tuples or dicts, all of one kind, got "
        + ", ".join(sorted(kind.__name__ for kind in kinds))
    )


def _stack(samples: Sequence[Any]) -> Tensor:
    shapes = [np.shape(sample) if not isinstance(sample, Tensor) else sample.shape for sample in samples]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"[collate] expected samples of one shape, got {_show(shapes, tuple)}: collate_padded pads sequences, and "
            f"ArrayDataset(x, y) has the rows of arrays as samples"
        )
    if all(isinstance(sample, np.ndarray) for sample in samples):
        return asarray(np.stack(samples))
    return stack([sample if isinstance(sample, Tensor) else tensor(sample) for sample in samples])


def _show(samples: Sequence[Any], what: Any) -> str:
    """Show `what` of the first sample, and of the first one that differs from it."""
    values = [what(sample) for sample in samples]
    return f"{values[0]} and {next(value for value in values if value != values[0])}"
