"""Dropout."""

from minigrad.engine.ops.arguments import number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.module import Module


class _Dropout(Module):
    """Base class with the probability."""

    _shown = "p={p}"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = number(type(self).__name__, "p", p, 0, 1)


class Dropout(_Dropout):
    """In training, y = x · keep / (1 − p), where each element is kept with probability 1 − p; in evaluation, y = x.

    The scale preserves the expected value (Srivastava et al. 2014, JMLR 15:1929, in its inverted form). Raises
    ValueError for a `p` outside [0, 1].

    Parameters
    ----------
    p : float
        The probability that an element becomes zero, from 0 to 1.
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Examples
    --------
    >>> layer = mg.nn.Dropout(0.5)
    >>> sorted(set(layer(mg.ones(1000)).tolist()))
    [0.0, 2.0]
    >>> layer.eval()(mg.ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`."""
        return F.dropout(x, self.p, self.training)


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of sequences: all steps of a channel are kept or become zero together.

    Tompson et al. 2015, https://arxiv.org/abs/1411.4280. `p` and `inplace` are as in `Dropout`.

    Examples
    --------
    >>> y = mg.nn.Dropout1d(0.5)(mg.ones((1, 100, 3)))
    >>> sorted(set(y.sum(2).reshape(-1).tolist()))
    [0.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, ``(N, C, T)`` or ``(C, T)``."""
        return F.dropout1d(x, self.p, self.training)


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of images, as `Dropout1d` for sequences.

    Examples
    --------
    >>> y = mg.nn.Dropout2d(0.5)(mg.ones((1, 100, 3, 3)))
    >>> sorted(set(y.sum((2, 3)).reshape(-1).tolist()))
    [0.0, 18.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`, ``(N, C, H, W)``."""
        return F.dropout2d(x, self.p, self.training)
