# Python's syntax for tensors: operators, indexing, conversion to numbers and text. The class is part of the module of
# Tensor, because a class of another module would free the memory of each tensor by one more call.
cimport cython

import numpy as np

from minigrad.engine.memory.array cimport Array, shape_of
from minigrad.engine.memory.dtype cimport BOOL, INT64, default_float, is_float
from minigrad.engine.memory.refusals cimport kind_of
from minigrad.engine.ops.arguments cimport is_scalar
from minigrad.engine.ops.arithmetic cimport add, divide, floor_divide, multiply, negative, remainder, subtract
from minigrad.engine.ops.functions cimport power
from minigrad.engine.ops.in_place cimport in_place
from minigrad.engine.ops.index cimport getitem, setitem
from minigrad.engine.ops.logic cimport (
    bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor, equal, greater,
    greater_equal, less, less_equal, not_equal,
)
from minigrad.engine.ops.matmul cimport matmul
from minigrad.engine.ops.rounding cimport absolute
from minigrad.engine.ops import arithmetic, functions, join, logic
from minigrad.engine.tape.record import leaf, maker

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ADD, DIVIDE, MUL, SUB


cdef bint acceptable(object x):
    """Whether x can be an operand; otherwise Python tries the other operand."""
    return isinstance(x, Array) or is_scalar(x) or isinstance(x, (np.ndarray, list, tuple))


cdef object unmultiplied(Array x, object other):
    """NotImplemented; for a string, which Python would then repeat x times, an error unless x is such a number."""
    if isinstance(other, (str, bytes, bytearray)) and (x.code == BOOL or is_float(x.code) or x.ndim_ != 0):
        raise TypeError(f"[multiply] expected numbers, got {kind_of(other)}")
    return NotImplemented


@cython.binding(False)
@cython.embedsignature(True)
cdef class Operators(Array):
    """The base class of Tensor with the methods that Python's syntax calls; `minigrad.engine.ops` does the work."""

    def __hash__(self) -> int:
        return id(self) >> 4    # by identity: == is elementwise

    # The methods of OPERATORS, COMPARISONS and METHODS in cext/declare.py

    def __mul__(self, other: TensorLike) -> Tensor:
        return multiply(self, other) if acceptable(other) else unmultiplied(self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return multiply(self, other) if acceptable(other) else unmultiplied(self, other)

    def __pow__(self, other: TensorLike, modulo: None = None) -> Tensor:
        return power(self, other) if modulo is None and acceptable(other) else NotImplemented

    def __rpow__(self, other: TensorLike, modulo: None = None) -> Tensor:
        return power(other, self) if acceptable(other) else NotImplemented

    def __matmul__(self, other: TensorLike) -> Tensor:
        return matmul(self, other) if acceptable(other) else NotImplemented

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return matmul(other, self) if acceptable(other) else NotImplemented

    def __neg__(self) -> Tensor:
        return negative(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return absolute(self)

    def __invert__(self) -> Tensor:
        return bitwise_invert(self)

    def __imul__(self, other: TensorLike) -> Self:
        return in_place("*=", arithmetic.multiply, MUL, self, other)

    def __ipow__(self, other: TensorLike, modulo: None = None) -> Self:
        return in_place("**=", functions.power, -1, self, other)

    # ── numbers, sequences and text ──

    def __len__(self) -> int:
        if self.ndim_ == 0:
            raise TypeError("[len] a 0-d tensor has no length")
        return self.extent[0]

    def __bool__(self) -> bool:
        if self.count != 1:
            raise ValueError(f"[bool] expected one element, got shape {shape_of(self)}: use x.any() or x.all()")
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __index__(self) -> int:
        if self.code == BOOL or is_float(self.code) or self.ndim_ != 0:
            raise TypeError(f"[index] expected a 0-d integer tensor, got {self.dtype} of shape {shape_of(self)}")
        return self.item()

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim_ == 0:
            raise TypeError("[iter] a 0-d tensor cannot be iterated")
        return iter(join.unstack(self))

    def __contains__(self, item: object) -> bool:
        return bool(equal(self, item).any())

    def __format__(self, str spec not None) -> str:
        return format(self.item(), spec) if spec and self.count == 1 else format(str(self), spec)

    def __repr__(self) -> str:
        if self.count == 0:         # NumPy refuses some empty shapes, such as (2**62, 0)
            text = f"[], shape={shape_of(self)}" if self.extent[0] or self.ndim_ > 1 else "[]"
        else:
            text = np.array2string(self._detached_numpy(), separator=", ", prefix="tensor(", threshold=1000)
        # Values show that they are integers or bools, and a float of the default dtype needs no note.
        cdef bint evident = self.code == default_float or self.count and self.code in (INT64, BOOL)
        notes = "" if evident else f", dtype={self.dtype}"
        if self.buffer.device:
            notes += f", device={self.device}"
        if self.node is not None and not leaf(self):
            notes += f", op={maker(self)}"
        elif self.needs_grad:
            notes += ", requires_grad=True"
        return f"tensor({text}{notes})"

    def __getitem__(self, key: Any) -> Tensor:
        return getitem(self, key)

    def __setitem__(self, key: Any, value: TensorLike) -> None:
        setitem(self, key, value)
