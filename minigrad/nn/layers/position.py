"""Positions in a sequence, which attention does not see by itself."""

import numpy as np

from minigrad.arrays.creation import computed, empty, operand
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.listener import note_composed
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.join import concat, split, stack
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import init
from minigrad.nn.module import Module
from minigrad.nn.parameter import Parameter


def angles(width: int, first: int, length: int, base: float) -> np.ndarray:
    """Return p base^(-2 i / width) as ``(length, width / 2)``, for the positions p from `first` and i from 0."""
    return np.outer(np.arange(first, first + length), base ** (-np.arange(0, width, 2) / width))


def waves(f: np.ufunc, x: Tensor, first: int, length: int, base: float) -> Tensor:
    """Return the sine or cosine of the angles for the features of x, ``(length, width / 2)``."""
    width = x.shape[-1]
    found = computed(f(angles(width, first, length, base)).astype(str(x.dtype)), device=x.device)
    note_composed("positions", (found,), [], (f.__name__, width, first, base))
    return found


def rotary(x: Tensor, start: int = 0, base: float = 10_000.0) -> Tensor:
    """Rotate pairs of features by angles proportional to the position.

    The pair i, features i and i + D/2, is rotated by the angle p base^(-2 i / D) at position p: with a, b before and
    c, d after, c = a cos φ - b sin φ and d = a sin φ + b cos φ. The product of a rotated query and a rotated key
    depends on the distance of their positions alone (Su et al. 2021, arXiv:2104.09864, with neighboring features as
    pairs; the order of the features makes no difference to a model that learns them).

    Raises ValueError for an x without two axes or with an odd D, a negative `start`, and a `base` below 1.

    Parameters
    ----------
    x : Tensor
        ``(..., T, D)`` with an even D: queries or keys; the result has this shape.
    start : int
        The position of the first step.
    base : float
        At least 1; the longest period is 2 π base.

    Examples
    --------
    >>> q, k = mg.tensor([[1.0, 2.0]]), mg.tensor([[3.0, 4.0]])
    >>> near = mg.nn.functional.rotary(q, 5) @ mg.nn.functional.rotary(k, 3).T
    >>> far = mg.nn.functional.rotary(q, 105) @ mg.nn.functional.rotary(k, 103).T
    >>> abs(near.item() - far.item()) < 1e-4
    True
    """
    x = operand("rotary", x)
    if x.ndim < 2 or x.shape[-1] % 2 or x.dtype.kind != "f":
        raise ValueError(f"[rotary] expected floats of shape (..., T, D) with an even D, got {x.dtype} {x.shape}")
    start, base = integer("rotary", "start", start, 0), number("rotary", "base", base, 1)
    cos, sin = (waves(f, x, start, x.shape[-2], base) for f in (np.cos, np.sin))
    a, b = split(x, 2, axis=-1)
    return concat([a * cos - b * sin, a * sin + b * cos], axis=-1)


class _Positions(Module):
    """Base class of what is added to a sequence, with the layout of the Transformer layers."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first

    def _length(self, x: Tensor, start: int, width: int) -> tuple[int, int]:
        """Return the checked `start`, and T."""
        name = type(self).__name__
        if not isinstance(x, Tensor):
            raise TypeError(f"[{name}] expected a tensor, got {kind_of(x)}")
        if x.ndim not in (2, 3) or x.shape[-1] != width:
            batched = f"(N, T, {width})" if self.batch_first else f"(T, N, {width})"
            raise ValueError(f"[{name}] expected x of shape {batched} or (T, {width}), got {x.shape}")
        return integer(name, "start", start, 0), x.shape[-2 if self.batch_first else 0]

    def _add(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + (positions if self.batch_first or x.ndim == 2 else positions[:, None])


class SinusoidalPositions(_Positions):
    """Adds sines and cosines of the position, with periods from 2 π to 2 π base.

    Feature 2 i of position p is sin(p base^(-2 i / E)), feature 2 i + 1 the cosine (Vaswani et al. 2017,
    arXiv:1706.03762). Raises ValueError for a width that is odd or below 2, and a `base` below 1.

    Parameters
    ----------
    width : int
        E, an even number.
    base : float
        At least 1.
    batch_first : bool
        Whether inputs are ``(N, T, E)`` instead of ``(T, N, E)``; without a batch ``(T, E)``.

    Examples
    --------
    >>> mg.nn.SinusoidalPositions(4)(mg.zeros((2, 1, 4)))[0]
    tensor([[0., 1., 0., 1.]])
    """

    _shown = "{width}, base={base:g}"

    def __init__(self, width: int, base: float = 10_000.0, batch_first: bool = False) -> None:
        super().__init__(batch_first)
        self.width = integer("SinusoidalPositions", "width", width, 1)
        self.base = number("SinusoidalPositions", "base", base, 1)
        if self.width % 2:
            raise ValueError(f"[SinusoidalPositions] expected an even width, got {width}")

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Add the positions from `start`; the shape stays."""
        start, length = self._length(x, start, self.width)
        table = stack([waves(f, x, start, length, self.base) for f in (np.sin, np.cos)], -1)
        return self._add(x, table.reshape(length, self.width))


class LearnedPositions(_Positions):
    """Adds a parameter for each position: `weight`, ``(max_length, E)``, from N(0, 0.02²) as in GPT-2.

    Raises ValueError for sizes below 1; when called, for a sequence that ends beyond the last position.

    Parameters
    ----------
    max_length : int
        The number of positions.
    width : int
        E.
    batch_first : bool
        As in `SinusoidalPositions`.
    device, dtype
        As in `Linear`.

    Examples
    --------
    >>> mg.nn.LearnedPositions(16, 4)(mg.zeros((2, 1, 4))).shape
    (2, 1, 4)
    """

    weight: Parameter
    _shown = "{max_length}, {width}"

    def __init__(
        self, max_length: int, width: int, batch_first: bool = False, device: str | None = None, dtype: DTypeLike = None
    ) -> None:
        super().__init__(batch_first)
        self.max_length = integer("LearnedPositions", "max_length", max_length, 1)
        self.width = integer("LearnedPositions", "width", width, 1)
        self.weight = Parameter(empty((self.max_length, self.width), dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values."""
        init.normal_(self.weight, 0.0, 0.02)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Add the positions from `start`; the shape stays."""
        start, length = self._length(x, start, self.width)
        if start + length > self.max_length:
            raise ValueError(
                f"[LearnedPositions] expected at most {self.max_length} positions, got {start + length}: "
                f"create the layer with a larger max_length"
            )
        return self._add(x, self.weight[start : start + length])
