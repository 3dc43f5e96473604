"""Datasets, from which a DataLoader takes samples by index, one or a batch at a time."""

from collections.abc import Sequence
from typing import Any

from minigrad.creation import asarray
from minigrad.data.collate import collate
from minigrad.engine.ops.gather import take
from minigrad.engine.tensor import Tensor


class Dataset:
    """The base class of datasets; a subclass defines ``__len__`` and ``__getitem__``.

    A subclass that can fetch many samples faster than one by one also defines `batch`. A `DataLoader` accepts any
    object with a length and items, such as a list.

    Examples
    --------
    >>> from minigrad import data
    >>> class Squares(data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, index):
    ...         return index, float(index**2)
    >>> for x, y in data.DataLoader(Squares(), batch_size=3):
    ...     print(x, y)
    tensor([0, 1, 2]) tensor([0., 1., 4.])
    tensor([3]) tensor([9.])
    """

    def __len__(self) -> int:
        raise NotImplementedError(f"[{type(self).__name__}] __len__ is not defined")

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"[{type(self).__name__}] __getitem__ is not defined")

    def batch(self, indices: Sequence[int]) -> Any:
        """Return the samples of these indices as a batch; by default, `collate` combines them."""
        return collate([self[index] for index in indices])


class ArrayDataset(Dataset):
    """A dataset of tuples from arrays of equal length, such as images and labels (PyTorch's TensorDataset).

    A batch takes one operation per array, on the device of the array.

    Parameters
    ----------
    *arrays : array-like
        Arrays of shape (N, …), all with the same N; memory is shared if `asarray` can share it.

    Attributes
    ----------
    arrays : tuple of Tensor

    Raises
    ------
    TypeError
        If an argument is not array-like, or has a dtype that minigrad does not support.
    ValueError
        For no arrays, arrays without axes, and lengths that differ.

    Examples
    --------
    >>> import numpy as np
    >>> from minigrad import data
    >>> dataset = data.ArrayDataset(np.eye(4, dtype=np.float32), [3, 2, 1, 0])
    >>> dataset[1]
    (tensor([0., 1., 0., 0.]), tensor(2))
    >>> x, y = dataset[:3]
    >>> x.shape, y.tolist()
    ((3, 4), [3, 2, 1])
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = tuple(asarray(array).detach() for array in arrays)
        shapes = [array.shape for array in self.arrays]
        if not shapes or () in shapes or len({shape[0] for shape in shapes}) > 1:
            raise ValueError(f"[ArrayDataset] expected arrays of the same length, got shapes {shapes}")

    def __len__(self) -> int:
        return self.arrays[0].shape[0]

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        """Return one sample by its index, or several by a slice or an array of integers or bools."""
        return tuple(array[index] for array in self.arrays)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        found = asarray(indices)
        return tuple(take(array, found.to(array.device), axis=0) for array in self.arrays)
