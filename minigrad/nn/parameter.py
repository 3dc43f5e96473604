"""Parameter and Buffer: tensors that a module registers when they are assigned to its attributes."""

from typing import Any, ClassVar, Self

from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor


class Parameter(Tensor):
    """A tensor that becomes a parameter of a module when it is assigned to an attribute of the module.

    Raises TypeError if `data` is not a tensor, or does not hold floats although `requires_grad` is true.

    Parameters
    ----------
    data : Tensor
        Any shape. The parameter shares its memory, unless it is not contiguous, and is detached from the tape.
    requires_grad : bool
        Whether to compute gradients, which requires a float dtype; False freezes the parameter.

    Examples
    --------
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


class Buffer(Tensor):
    """A tensor that becomes a buffer of a module when it is assigned to an attribute of the module.

    Later assignments of tensors replace it; see `Module.register_buffer`, which does the same by a name. Raises
    TypeError if `data` is not a tensor.

    Parameters
    ----------
    data : Tensor
        Any shape. The buffer shares its memory, unless it is not contiguous, and is detached from the tape.
    persistent : bool
        Whether the buffer is part of the state_dict.

    Examples
    --------
    >>> class Counter(mg.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.count = mg.nn.Buffer(mg.tensor(0))
    >>> Counter().state_dict()
    {'count': tensor(0)}
    """

    __slots__ = ()
    persistent: ClassVar[bool] = True

    def __new__(cls, data: Any = None, persistent: bool = True) -> Self:
        made: Any = super().__new__(cls if persistent else _Temporary)
        return made

    def __init__(self, data: Tensor, persistent: bool = True) -> None:
        if not isinstance(data, Tensor):
            raise TypeError(f"[Buffer] expected a Tensor, got {kind_of(data)}")
        super().__init__(data.detach().contiguous())


class _Temporary(Buffer):
    """A buffer that is not part of the state_dict; nor are its copies."""

    __slots__ = ()
    persistent = False
