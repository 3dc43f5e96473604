"""Arrays of other libraries as tensors, also those whose dtypes minigrad does not have."""

import re
from typing import Any

from minigrad.arrays.creation import asarray
from minigrad.engine.tensor.tensor import Tensor

# The dtype that holds all values of another one: of half precision and less, and of other integers.
WIDER = [
    (r"b?float(16|8_\w+)|half", "float32"),
    (r"int8|u?int16", "int32"),
    (r"uint32|uint64", "int64"),
]  # fmt: skip


def is_array(value: Any) -> bool:
    """Return whether a value is a tensor, or an array or a number of NumPy or another library."""
    return hasattr(value, "__dlpack__") or (hasattr(value, "__array__") and hasattr(value, "dtype"))


def as_tensor(value: Any) -> Tensor:
    """Return an array-like as a tensor without a gradient, in a wider dtype if minigrad does not have its own.

    Raises TypeError for anything but arrays of numbers, and ValueError for integers from 2⁶³ up.
    """
    if isinstance(value, Tensor):
        return asarray(value).detach()
    if hasattr(value, "__dlpack__") and callable(getattr(value, "detach", None)):
        value = value.detach()  # a parameter of another library does not share its memory otherwise
    dtype = getattr(value, "dtype", "")
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2].lower()
    wider = next((dtype for pattern, dtype in WIDER if re.fullmatch(pattern, name)), None)
    if wider == "float32" and callable(getattr(value, "float", None)):
        return asarray(value.float())
    try:
        return asarray(value, dtype=wider)
    except (TypeError, ValueError):
        if wider != "float32" or not hasattr(value, "astype"):
            raise
        return asarray(value.astype(wider))
