"""Parameter: the kind of tensor that a module registers and an optimizer trains."""

from minigrad.engine.ops.arguments import kind_of
from minigrad.engine.tensor import Tensor


class Parameter(Tensor):
    """A tensor that a module lists among its parameters once it is assigned to one of its attributes.

    Parameters
    ----------
    data : Tensor
        Any shape. Its memory is shared (copied only if it is not contiguous), its history on the tape left behind.
    requires_grad : bool
        Whether gradients are computed for it; False freezes it. Then the dtype may be any, else it is a float.

    Raises
    ------
    TypeError
        If `data` is not a tensor, or not one of floats although `requires_grad` is true.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> scale = nn.Parameter(mg.ones(3))
    >>> scale.requires_grad, scale.shape
    (True, (3,))
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise TypeError(f"[Parameter] expected a Tensor, got {kind_of(data)}")
        if requires_grad and data.dtype.kind != "f":
            raise TypeError(f"[Parameter] expected floats, got {data.dtype}; pass requires_grad=False for others")
        super().__init__(data.detach().contiguous(), requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
