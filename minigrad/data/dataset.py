"""Datasets, from which a DataLoader takes samples by index, one or a batch at a time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.arrays.creation import asarray
from minigrad.data.collate import collate
from minigrad.data.order import draw_order
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.gather import take
from minigrad.engine.ops.random import randint
from minigrad.engine.tensor.tensor import Tensor


class Dataset:
    """The base class of datasets; a subclass defines ``__len__`` and ``__getitem__``.

    A subclass that can fetch many samples faster than one by one also defines `batch`, or PyTorch's
    ``__getitems__(indices)``, which returns a list of samples. A `DataLoader` accepts any object with a length and
    items, such as a list or a data set of another library; only the latter of the two methods is called there.

    Examples
    --------
    >>> class Squares(mg.data.Dataset):
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, index):
    ...         return index, float(index**2)
    >>> for x, y in mg.data.DataLoader(Squares(), batch_size=3):
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
        return collate(samples(self, indices))


def describe(dataset: Any) -> str:
    """Return the text of a dataset within that of what holds it; a list of samples may be long."""
    return repr(dataset) if isinstance(dataset, (ArrayDataset, Subset)) else type(dataset).__name__


def samples(dataset: Any, indices: Any) -> list[Any]:
    """Return the samples of these indices, at once if the dataset has PyTorch's ``__getitems__``."""
    numbers = indices.tolist() if isinstance(indices, np.ndarray) else list(indices)
    fetch = getattr(dataset, "__getitems__", None)
    return [dataset[index] for index in numbers] if fetch is None else fetch(numbers)


def batch(dataset: Any, indices: Any) -> Any:
    """Return the batch of these indices; a method `batch` of other libraries may mean something else."""
    return dataset.batch(indices) if isinstance(dataset, Dataset) else collate(samples(dataset, indices))


class ArrayDataset(Dataset):
    """A dataset of tuples from arrays of equal length, such as images and labels (PyTorch's TensorDataset).

    Fetching a batch takes one operation per array, on the device of the array. Raises TypeError if an argument is not
    array-like, or has a dtype that minigrad does not support; ValueError for no arrays, arrays without axes, and
    lengths that differ.

    Parameters
    ----------
    *arrays : array-like
        Arrays of shape (N, …), all with the same N; memory is shared if `asarray` can share it.

    Examples
    --------
    >>> import numpy as np
    >>> dataset = mg.data.ArrayDataset(np.eye(4, dtype=np.float32), [3, 2, 1, 0])
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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{array.dtype} {array.shape}' for array in self.arrays)})"

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        """Return one sample by its index, or several by a slice or an array of integers or bools."""
        return tuple(array[index] for array in self.arrays)

    def batch(self, indices: Sequence[int]) -> tuple[Tensor, ...]:
        found = asarray(indices)
        return tuple(take(array, found.to(array.device), axis=0) for array in self.arrays)


class TensorDataset(ArrayDataset):
    """PyTorch's name for `ArrayDataset`; ``tensors`` are its arrays.

    Parameters
    ----------
    *tensors : Tensor
        Tensors of shape (N, …), all with the same N.

    Examples
    --------
    >>> dataset = mg.data.TensorDataset(mg.ones((4, 2)), mg.arange(4))
    >>> len(dataset), dataset[1]
    (4, (tensor([1., 1.]), tensor(1)))
    """

    def __init__(self, *tensors: Any) -> None:
        super().__init__(*tensors)
        self.tensors = self.arrays


class Subset(Dataset):
    """The samples of a dataset at some indices.

    Parameters
    ----------
    dataset : Dataset, or any object with a length and items
    indices : sequence of int

    Examples
    --------
    >>> part = mg.data.Subset(mg.data.ArrayDataset([10, 20, 30]), [2, 0])
    >>> len(part), part[0]
    (2, (tensor(30),))
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = [integer("Subset", "index", k) for k in indices]

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {describe(self.dataset)})"

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[self.indices[integer("Subset", "index", index)]]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return samples(self.dataset, [self.indices[k] for k in indices])

    def batch(self, indices: Sequence[int]) -> Any:
        return batch(self.dataset, [self.indices[k] for k in indices])


def random_split(dataset: Any, lengths: Sequence[float], seed: int | None = None) -> list[Subset]:
    """Divide a dataset at random into parts without common samples. Raises ValueError for lengths that do not add up.

    Parameters
    ----------
    dataset : Dataset, or any object with a length and items
    lengths : sequence of int, or of float
        The number of samples in each part, which add up to the size of the dataset; or fractions that add up to 1, in
        which case the samples left over after rounding down go to the first parts.
    seed : int, optional
        The seed of the order. By default, a random one, which `manual_seed` determines.

    Examples
    --------
    >>> train, test = mg.data.random_split(mg.data.ArrayDataset(list(range(10))), [0.8, 0.2], seed=0)
    >>> len(train), len(test)
    (8, 2)
    """
    count = len(dataset)
    if all(isinstance(n, float) for n in lengths) and abs(sum(lengths) - 1) < 1e-6:
        sizes = [int(count * number("random_split", "fraction", n, 0, 1)) for n in lengths]
        for k in range(count - sum(sizes)):
            sizes[k % len(sizes)] += 1
    else:
        sizes = [integer("random_split", "length", n, 0) for n in lengths]
    if sum(sizes) != count:
        raise ValueError(f"[random_split] expected lengths that add up to {count}, or to 1, got {list(lengths)}")
    order = draw_order(count, randint(0, 2**63 - 1).item() if seed is None else integer("random_split", "seed", seed))
    ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
    return [Subset(dataset, order[end - size : end].tolist()) for size, end in zip(sizes, ends, strict=True)]
