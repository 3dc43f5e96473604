"""Parameter: a tensor that a module registers and an optimizer trains."""

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that becomes a parameter of a module when it is assigned to an attribute of the module.

    Parameters
    ----------
    data : Tensor
        Any shape. The parameter shares its memory, unless it is not contiguous, and is detached from the tape.
    requires_grad : bool
        Whether to compute gradients, which requires a float dtype; False freezes the parameter.

    Raises
    ------
    TypeError
        If `data` is not a tensor, or does not hold floats although `requires_grad` is true.

    Examples
    --------
    >>> import minigrad as mg
    >>> scale = mg.nn.Parameter(mg.ones(3))
    >>> scale.requires_grad, scale.shape
    (True, (3,))
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise TypeError(f"[Parameter] expected a Tensor, got {kind_of(data)}")
        if requires_grad and data.dtype.kind != "f":
            raise TypeError(f"[Parameter] expected floats, got {data.dtype}; pass requires_grad=False for other dtypes")
        super().__init__(data.detach().contiguous(), requires_grad)

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
