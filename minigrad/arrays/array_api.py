"""Answers to the Python array API standard about data types, devices and the library itself.

The standard is at https://data-apis.org/array-api. Promotion is the standard's, and where the standard leaves it open,
from integers to floats, the order bool < uint8 < int32 < int64 < float32 < float64 decides.
"""

import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad import cuda
from minigrad.engine.memory.dtype import (
    DType,
    DTypeLike,
    bool_,
    float32,
    float64,
    get_default_dtype,
    int32,
    int64,
    uint8,
)
from minigrad.engine.tensor.tensor import TensorLike

__array_api_version__ = "2024.12"
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
ASCENDING = (bool_, uint8, int32, int64, float32, float64)
KINDS = {
    "bool": "b", "signed integer": "i", "unsigned integer": "u", "integral": "iu", "real floating": "f",
    "complex floating": "", "numeric": "iuf",
}  # fmt: skip


class FloatInfo(NamedTuple):
    """The result of `finfo`."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerInfo(NamedTuple):
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: DType


def _dtype(op: str, given: Any) -> DType:
    """The data type that is given, or an array's."""
    given = getattr(given, "dtype", given)
    for dtype in ASCENDING:
        if dtype == given:
            return dtype
    raise TypeError(f"[{op}] expected float32, float64, int32, int64, uint8 or bool, got {given!r}")


def finfo(dtype: "DTypeLike | TensorLike", /) -> FloatInfo:
    """The limits of a floating-point type, or of a tensor's.

    Returns
    -------
    FloatInfo
        bits, max and min (the largest and the lowest finite number), eps (from 1 to the next number),
        smallest_normal, and dtype.

    Examples
    --------
    >>> mg.finfo(mg.float32).eps
    1.1920928955078125e-07
    """
    found = _dtype("finfo", dtype)
    if found.kind != "f":
        raise TypeError(f"[finfo] expected a floating dtype, got {found}")
    info = np.finfo(found.name)
    eps, high, low, smallest = (float(v) for v in (info.eps, info.max, info.min, info.smallest_normal))
    return FloatInfo(int(info.bits), eps, high, low, smallest, found)


def iinfo(dtype: "DTypeLike | TensorLike", /) -> IntegerInfo:
    """The limits of an integer type, or of a tensor's.

    Returns
    -------
    IntegerInfo
        bits, max, min, and dtype.

    Examples
    --------
    >>> mg.iinfo("int32").max
    2147483647
    """
    found = _dtype("iinfo", dtype)
    if found.kind not in "iu":
        raise TypeError(f"[iinfo] expected an integer dtype, got {found}")
    info = np.iinfo(found.name)
    return IntegerInfo(info.bits, info.max, info.min, found)


def isdtype(dtype: DTypeLike, kind: "DTypeLike | tuple[DTypeLike, ...]") -> bool:
    """Whether a data type is of a kind.

    Parameters
    ----------
    dtype : DType
    kind : str, DType or tuple of these
        "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" or "numeric"; a
        data type means that one; a tuple means any of its items.

    Examples
    --------
    >>> mg.isdtype(mg.int32, "integral"), mg.isdtype(mg.int32, ("bool", mg.float32))
    (True, False)
    """
    found = _dtype("isdtype", dtype)
    return any(
        found.kind in KINDS[one] if isinstance(one, str) and one in KINDS else found == _dtype("isdtype", one)
        for one in (kind if isinstance(kind, tuple) else (kind,))
    )


def result_type(*arrays_and_dtypes: "DTypeLike | TensorLike") -> DType:
    """The data type of a result of these operands.

    Parameters
    ----------
    *arrays_and_dtypes : Tensor, DType or number
        At least one. A Python number takes the data type of the others, unless it is of a higher kind.

    Examples
    --------
    >>> mg.result_type(mg.int32, mg.float32), mg.result_type(mg.zeros(2, dtype="int32"), 1.5)
    (minigrad.float32, minigrad.float32)
    """
    if not arrays_and_dtypes:
        raise ValueError("[result_type] expected at least one tensor, data type or number, got none")
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float))]
    others = [x for x in arrays_and_dtypes if not isinstance(x, (bool, int, float))]
    found = ASCENDING[max((ASCENDING.index(_dtype("result_type", x)) for x in others), default=0)]
    if any(isinstance(x, float) for x in numbers) and found.kind != "f":
        return get_default_dtype()
    if any(not isinstance(x, bool) for x in numbers) and found is bool_:
        return int64
    return found


def can_cast(from_: "DTypeLike | TensorLike", to: DTypeLike, /) -> bool:
    """Whether promotion converts the first data type, or a tensor's, to the second.

    Promotion from int32 and int64 to floats may round, which NumPy's function of this name calls unsafe.

    Examples
    --------
    >>> mg.can_cast(mg.int32, mg.int64), mg.can_cast(mg.float64, mg.float32)
    (True, False)
    """
    return result_type(_dtype("can_cast", from_), _dtype("can_cast", to)) == to


class NamespaceInfo:
    """The result of `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """The abilities of this library: masks, shapes that depend on values, and the number of axes of a tensor."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}

    def default_device(self) -> str:
        """The device of a tensor that is created without saying where."""
        return "cpu"

    def devices(self) -> list[str]:
        """The devices of this machine."""
        return ["cpu", *(f"cuda:{k}" for k in range(cuda.device_count()))]

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType]:
        """The data types of tensors that are created without a `dtype`; the same on each device."""
        return {"real floating": get_default_dtype(), "integral": int64, "indexing": int64}

    def dtypes(self, *, device: str | None = None, kind: str | Sequence[str] | None = None) -> dict[str, DType]:
        """The data types of a kind, as `isdtype` names it, or of any; the same on each device.

        Without uint8, which lacks the standard's arithmetic.
        """
        return {
            dtype.name: dtype
            for dtype in ASCENDING
            if dtype is not uint8 and (kind is None or isdtype(dtype, kind if isinstance(kind, str) else tuple(kind)))
        }


def __array_namespace_info__() -> NamespaceInfo:
    """The description of this library that the Python array API standard asks for.

    Returns
    -------
    NamespaceInfo
        With methods ``capabilities()``, ``default_device()``, ``devices()``, ``default_dtypes(device=None)`` and
        ``dtypes(device=None, kind=None)``.

    Examples
    --------
    >>> mg.__array_namespace_info__().dtypes(kind="real floating")
    {'float32': minigrad.float32, 'float64': minigrad.float64}
    """
    return NamespaceInfo()


def namespace(api_version: str | None) -> Any:
    """The module that implements a version of the standard: ``minigrad``."""
    if api_version is not None and api_version not in VERSIONS:
        raise ValueError(f"[array_namespace] expected version {VERSIONS[0]} to {VERSIONS[-1]}, got {api_version!r}")
    return sys.modules["minigrad"]
