"""A tensor as pages show it: all of its numbers if it is small, else statistics and a sample, ready for JSON."""

import base64
import math
from functools import lru_cache
from typing import Any

import numpy as np

from minigrad import cuda
from minigrad.engine.tensor.tensor import Tensor

SMALL = 8, 8  # rows and columns up to which every number is shown
SAMPLE = 16, 32  # rows and columns of the sample of a larger tensor
STRIP = 1, 64  # the same for a vector
FIRST = 8  # how many numbers of a larger tensor are shown as they are
DIGITS = 8
EXACT = 2**53  # larger integers are not exact in JavaScript


def host(x: Tensor) -> np.ndarray:
    """Return the values of x in the memory of the CPU; nothing is recorded."""
    return x.detach().to("cpu").numpy()


def wait_for(tensors: tuple[Tensor | None, ...]) -> None:
    """Wait until the GPU that tensors are on has computed them, as timing requires."""
    device = next((x.device for x in tensors if x is not None), "cpu")
    if device != "cpu":
        cuda.synchronize(device)


def number(value: float | int) -> float | int | str:
    """Return a value for JSON; NaN, infinities and integers that would lose digits become text."""
    if isinstance(value, int):  # bool is a subclass
        return int(value) if abs(value) <= EXACT else str(value)
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return float(f"{value:.{DIGITS}g}")


def rows_of(array: np.ndarray) -> np.ndarray:
    """Return an array as a matrix: its last axis as columns, all others as rows."""
    columns = array.shape[-1] if array.ndim else 1
    return array.reshape(math.prod(array.shape[:-1]), columns)


def describe(x: Tensor) -> dict[str, Any]:
    """Describe a tensor for a page.

    Returns
    -------
    dict
        ``shape``, ``dtype`` and ``device``; then ``numbers`` (rows of numbers) for a tensor of at most 8 rows of 8, or
        ``first`` (its first numbers), ``stats``, and the sample ``map`` (base64 of signed bytes: rows and columns
        ``map_shape``, evenly spaced; 127 is ``scale``, -128 is NaN) for a larger one.
    """
    array = host(x)
    shown: dict[str, Any] = {"shape": list(x.shape), "dtype": str(x.dtype), "device": x.device}
    matrix = rows_of(array)
    if matrix.shape[0] <= SMALL[0] and matrix.shape[1] <= SMALL[1]:
        shown["numbers"] = [[number(value) for value in row] for row in matrix.tolist()]
        return shown
    if not array.size:
        return shown
    shown["first"] = [number(value) for value in array.flat[:FIRST].tolist()]
    matrix = matrix.astype(np.float64)
    shown["stats"] = statistics(matrix.ravel())
    return shown | sample(matrix, vector=array.ndim == 1)


def statistics(values: np.ndarray) -> dict[str, float | int | str]:
    """Of the finite values: smallest, mean, largest, standard deviation; of all: share of zeros, what is not finite."""
    finite = values[np.isfinite(values)] if not_finite(values) else values
    infinite = int(np.isinf(values).sum()) if finite.size < values.size else 0
    found: dict[str, float | int | str] = {
        "zeros": number(1 - np.count_nonzero(values) / values.size),
        "nan": values.size - finite.size - infinite,
        "inf": infinite,
    }
    if finite.size:
        with np.errstate(over="ignore", invalid="ignore"):
            mean = finite.mean()
            deviation = finite - mean
            std = math.sqrt(np.vdot(deviation, deviation) / finite.size)
        found |= {"min": number(finite.min()), "mean": number(mean), "max": number(finite.max()), "std": number(std)}
    return found


def not_finite(values: np.ndarray) -> bool:
    """Return whether there may be NaN or infinity among the values."""
    with np.errstate(over="ignore", invalid="ignore"):
        return not math.isfinite(values.sum())


@lru_cache(maxsize=1024)
def places(length: int, limit: int) -> np.ndarray:
    """Return at most `limit` evenly spaced indices, including the first and the last."""
    return np.linspace(0, length - 1, min(length, limit)).round().astype(int)


def sample(matrix: np.ndarray, vector: bool) -> dict[str, Any]:
    """Evenly spaced values, in 255 levels that are symmetric about 0."""
    down, across = (places(n, limit) for n, limit in zip(matrix.shape, STRIP if vector else SAMPLE, strict=True))
    values = matrix[down[:, None], across]
    unknown = np.isnan(values)
    values = np.where(unknown, 0, values)
    size = np.abs(values)
    scale = float(size.max() if np.isfinite(size).all() else size[np.isfinite(size)].max(initial=0)) or 1.0
    coded = np.rint(np.clip(values / scale, -1, 1) * 127).astype(np.int8)
    coded[unknown] = -128
    return {
        "map": base64.b64encode(coded.tobytes()).decode(),
        "map_shape": list(coded.shape),
        "scale": number(scale),
    }
