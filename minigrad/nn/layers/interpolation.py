"""Interpolation of images, as products with the matrices that hold the weights of each row and column."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.arrays.creation import computed, memory_for
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.gather import take
from minigrad.engine.ops.logic import where
from minigrad.engine.tensor.pytorch_names import rename_arguments
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.losses.functions import check_float

MODES = {"nearest": (3, 4), "linear": (3,), "bilinear": (4,)}  # the axes that x may have


@rename_arguments
def interpolate(
    x: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest", align_corners: bool | None = None,
) -> Tensor:  # fmt: skip
    """Resize images (N, C, H, W) or sequences (N, C, T), as PyTorch's `interpolate`.

    Raises TypeError if x is not a tensor of floats, and ValueError for another number of axes, an unknown mode, lengths
    below 1, and unless exactly one of `size` and `scale_factor` is given.

    Parameters
    ----------
    x : Tensor
        Floats.
    size : int or sequence of int, optional
        The new lengths; a single number applies to all axes.
    scale_factor : float or sequence of float, optional
        In place of `size`: the new lengths are ⌊n · scale_factor⌋.
    mode : {"nearest", "linear", "bilinear"}
        "nearest" repeats elements; the others weight the two nearest in each axis, "linear" for (N, C, T).
    align_corners : bool, optional
        Whether the first and last elements keep their values; otherwise elements are areas, and edges are repeated.

    Examples
    --------
    >>> x = mg.tensor([[[0.0, 4.0]]])
    >>> mg.nn.functional.interpolate(x, scale_factor=2)
    tensor([[[0., 0., 4., 4.]]])
    >>> mg.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
    tensor([[[0., 2., 4.]]])
    """
    check_float("interpolate", x)
    check_mode("interpolate", mode, align_corners)
    if x.ndim not in MODES[mode]:
        raise ValueError(
            f"[interpolate] expected {' or '.join(map(str, MODES[mode]))} axes for {mode!r}, got {x.shape}"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("[interpolate] expected either size or scale_factor")
    if 0 in x.shape[2:]:
        raise ValueError(f"[interpolate] expected lengths of 1 or more, got shape {x.shape}")
    given = size if scale_factor is None else scale_factor
    several = list(given) if isinstance(given, (tuple, list)) else [given] * (x.ndim - 2)
    if len(several) != x.ndim - 2:
        raise ValueError(f"[interpolate] expected one number or {x.ndim - 2} for shape {x.shape}, got {given}")
    for axis, value in enumerate(several, 2):
        n = x.shape[axis]
        if scale_factor is None:
            new = integer("interpolate", "size", value, 1)
            step = n / new
        else:
            factor = number("interpolate", "scale_factor", value, 1 / n, 2**40)
            new, step = integer("interpolate", "size", int(n * factor), 1), 1 / factor
        shape = (*x.shape[:axis], new, *x.shape[axis + 1 :])
        with memory_for("interpolate", shape):
            if 0 in shape:  # a result without elements costs no work in proportion to its lengths
                x = x[(slice(None),) * axis + (slice(1),)].broadcast_to(shape)
            else:
                x = _resize(x, axis, n, new, step, mode, bool(align_corners))
    return x


def check_mode(op: str, mode: str, align_corners: bool | None) -> None:
    """Check the mode, and that it has corners to align if `align_corners` is given."""
    if mode not in MODES:
        raise ValueError(f"[{op}] expected mode {', '.join(map(repr, MODES))}, got {mode!r}")
    if mode == "nearest" and align_corners is not None:
        raise ValueError(f"[{op}] expected no align_corners for mode 'nearest', got {align_corners!r}")


def check_lengths(op: str, size: Any, scale_factor: Any) -> None:
    """Check the numbers for one axis or for each."""
    for n in size if isinstance(size, (tuple, list)) else [size]:
        if n is not None:
            integer(op, "size", n, 1)
    for factor in scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor]:
        if factor is not None:
            number(op, "scale_factor", factor)


def _resize(x: Tensor, axis: int, n: int, new: int, step: float, mode: str, corners: bool) -> Tensor:
    places = np.arange(new)
    if mode == "nearest":
        return take(x, computed(np.minimum((places * step).astype(np.int64), n - 1), device=x.device), axis)
    exact = places * ((n - 1) / max(new - 1, 1)) if corners else np.maximum((places + 0.5) * step - 0.5, 0)
    low = np.minimum(exact.astype(np.int64), n - 1)
    shape = (new,) + (1,) * (x.ndim - 1 - axis)
    weight = computed((exact - low).reshape(shape), x.dtype, x.device)
    first, second = (take(x, computed(k, device=x.device), axis) for k in (low, np.minimum(low + 1, n - 1)))
    # An infinite neighbor does not count where its weight is 0.
    return first * (1 - weight) + where(weight == 0, 0, second) * weight
