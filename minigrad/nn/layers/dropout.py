"""Dropout."""

from minigrad.engine.ops.arguments import number
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.module import Module


class Dropout(Module):
    """In training, y = x · keep / (1 − p), where each element is kept with probability 1 − p; in evaluation, y = x.

    The scale preserves the expected value (Srivastava et al. 2014, JMLR 15:1929, in its inverted form).

    Parameters
    ----------
    p : float
        The probability that an element becomes zero, from 0 to 1.
    inplace : bool
        Accepted for compatibility with PyTorch; the result is a new tensor regardless.

    Raises
    ------
    ValueError
        For a `p` outside [0, 1].

    Examples
    --------
    >>> import minigrad as mg
    >>> layer = mg.nn.Dropout(0.5)
    >>> sorted(set(layer(mg.ones(1000)).tolist()))
    [0.0, 2.0]
    >>> layer.eval()(mg.ones(2)).tolist()
    [1.0, 1.0]
    """

    _shown = "p={p}"

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        self.p = number("Dropout", "p", p, 0, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of the shape of `x`."""
        return F.dropout(x, self.p, self.training)
