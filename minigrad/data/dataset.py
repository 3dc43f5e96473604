"""What a DataLoader draws from: samples by number, singly or a batch at a time."""

from collections.abc import Sequence
from typing import Any

from minigrad.creation import asarray
from minigrad.data.collate import collate
from minigrad.engine.ops.index import take
from minigrad.engine.tensor import Tensor


class Dataset:
    """A number of samples; a subclass defines ``__len__`` and ``__getitem__``.

    A subclass that can fetch many samples at once quicker than one after the other defines `batch` as well. A
    `DataLoader` also takes what is no Dataset but has a length and items, such as a list.

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
        """The samples of these numbers as one batch; unless a subclass knows better, by `collate`."""
        return collate([self[index] for index in indices])


class ArrayDataset(Dataset):
    """Arrays of equal length, such as images and their labels, as a dataset of tuples (PyTorch's TensorDataset).

    A batch is taken out of each array by one operation, on the device where the array is.

    Parameters
    ----------
    *arrays : array-like
        Of shapes (N, …), all with the same N; memory is shared where `asarray` can share it.

    Attributes
    ----------
    arrays : tuple of Tensor

    Raises
    ------
    TypeError
        For what is no array, and dtypes that minigrad does not have.
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
            raise ValueError(f"[ArrayDataset] expected arrays of one length, got shapes {shapes}")

    def __len__(self) -> int:
        return self.arrays[0].shape[0]

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        """A sample by its number; several by a slice or an array of numbers or bools."""
        return tuple(array[index] for array in self.arrays)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        found = asarray(indices)
        return tuple(take(array, found.to(array.device), axis=0) for array in self.arrays)
