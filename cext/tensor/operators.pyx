"""Operators of tensors: each is an operation of `minigrad.engine.ops` with the tensor as one operand."""
cimport cython

import numpy as np

from minigrad.engine.memory.array cimport Array
from minigrad.engine.memory.dtype cimport BOOL, is_float
from minigrad.engine.memory.refusals cimport kind_of
from minigrad.engine.ops.arguments cimport is_scalar
from minigrad.engine.ops.arithmetic cimport add, divide, floor_divide, multiply, negative, remainder, subtract
from minigrad.engine.ops.functions cimport power
from minigrad.engine.ops.in_place cimport in_place
from minigrad.engine.ops.logic cimport (
    bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or, bitwise_right_shift, bitwise_xor, equal, greater,
    greater_equal, less, less_equal, not_equal,
)
from minigrad.engine.ops.matmul cimport matmul
from minigrad.engine.ops.rounding cimport absolute
from minigrad.engine.ops import arithmetic, functions, logic

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
@cython.embedsignature.format("clinic")
cdef class Operators(Array):
    """What ``+``, ``@``, ``==``, ``+=`` and the other operators mean for a tensor."""

    def __hash__(self) -> int:
        return id(self) >> 4    # by identity: == is elementwise

    def __add__(self, other: TensorLike) -> Tensor:
        return add(self, other) if acceptable(other) else NotImplemented

    def __radd__(self, other: TensorLike) -> Tensor:
        return add(self, other) if acceptable(other) else NotImplemented

    def __sub__(self, other: TensorLike) -> Tensor:
        return subtract(self, other) if acceptable(other) else NotImplemented

    def __rsub__(self, other: TensorLike) -> Tensor:
        return subtract(other, self) if acceptable(other) else NotImplemented

    def __mul__(self, other: TensorLike) -> Tensor:
        return multiply(self, other) if acceptable(other) else unmultiplied(self, other)

    def __rmul__(self, other: TensorLike) -> Tensor:
        return multiply(self, other) if acceptable(other) else unmultiplied(self, other)

    def __truediv__(self, other: TensorLike) -> Tensor:
        return divide(self, other) if acceptable(other) else NotImplemented

    def __rtruediv__(self, other: TensorLike) -> Tensor:
        return divide(other, self) if acceptable(other) else NotImplemented

    def __floordiv__(self, other: TensorLike) -> Tensor:
        return floor_divide(self, other) if acceptable(other) else NotImplemented

    def __rfloordiv__(self, other: TensorLike) -> Tensor:
        return floor_divide(other, self) if acceptable(other) else NotImplemented

    def __mod__(self, other: TensorLike) -> Tensor:
        return remainder(self, other) if acceptable(other) else NotImplemented

    def __rmod__(self, other: TensorLike) -> Tensor:
        return remainder(other, self) if acceptable(other) else NotImplemented

    def __pow__(self, other: TensorLike, modulo: None = None) -> Tensor:
        return power(self, other) if modulo is None and acceptable(other) else NotImplemented

    def __rpow__(self, other: TensorLike, modulo: None = None) -> Tensor:
        return power(other, self) if acceptable(other) else NotImplemented

    def __matmul__(self, other: TensorLike) -> Tensor:
        return matmul(self, other) if acceptable(other) else NotImplemented

    def __rmatmul__(self, other: TensorLike) -> Tensor:
        return matmul(other, self) if acceptable(other) else NotImplemented

    def __and__(self, other: TensorLike) -> Tensor:
        return bitwise_and(self, other) if acceptable(other) else NotImplemented

    def __rand__(self, other: TensorLike) -> Tensor:
        return bitwise_and(self, other) if acceptable(other) else NotImplemented

    def __or__(self, other: TensorLike) -> Tensor:
        return bitwise_or(self, other) if acceptable(other) else NotImplemented

    def __ror__(self, other: TensorLike) -> Tensor:
        return bitwise_or(self, other) if acceptable(other) else NotImplemented

    def __xor__(self, other: TensorLike) -> Tensor:
        return bitwise_xor(self, other) if acceptable(other) else NotImplemented

    def __rxor__(self, other: TensorLike) -> Tensor:
        return bitwise_xor(self, other) if acceptable(other) else NotImplemented

    def __lshift__(self, other: TensorLike) -> Tensor:
        return bitwise_left_shift(self, other) if acceptable(other) else NotImplemented

    def __rlshift__(self, other: TensorLike) -> Tensor:
        return bitwise_left_shift(other, self) if acceptable(other) else NotImplemented

    def __rshift__(self, other: TensorLike) -> Tensor:
        return bitwise_right_shift(self, other) if acceptable(other) else NotImplemented

    def __rrshift__(self, other: TensorLike) -> Tensor:
        return bitwise_right_shift(other, self) if acceptable(other) else NotImplemented

    def __neg__(self) -> Tensor:
        return negative(self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return absolute(self)

    def __invert__(self) -> Tensor:
        return bitwise_invert(self)

    def __eq__(self, other: TensorLike) -> Tensor:
        return equal(self, other) if acceptable(other) else NotImplemented

    def __ne__(self, other: TensorLike) -> Tensor:
        return not_equal(self, other) if acceptable(other) else NotImplemented

    def __lt__(self, other: TensorLike) -> Tensor:
        return less(self, other) if acceptable(other) else NotImplemented

    def __le__(self, other: TensorLike) -> Tensor:
        return less_equal(self, other) if acceptable(other) else NotImplemented

    def __gt__(self, other: TensorLike) -> Tensor:
        return greater(self, other) if acceptable(other) else NotImplemented

    def __ge__(self, other: TensorLike) -> Tensor:
        return greater_equal(self, other) if acceptable(other) else NotImplemented

    def __iadd__(self, other: TensorLike) -> Self:
        return in_place("+=", arithmetic.add, ADD, self, other)

    def __isub__(self, other: TensorLike) -> Self:
        return in_place("-=", arithmetic.subtract, SUB, self, other)

    def __imul__(self, other: TensorLike) -> Self:
        return in_place("*=", arithmetic.multiply, MUL, self, other)

    def __itruediv__(self, other: TensorLike) -> Self:
        return in_place("/=", arithmetic.divide, DIVIDE, self, other)

    def __ifloordiv__(self, other: TensorLike) -> Self:
        return in_place("//=", arithmetic.floor_divide, -1, self, other)

    def __imod__(self, other: TensorLike) -> Self:
        return in_place("%=", arithmetic.remainder, -1, self, other)

    def __ipow__(self, other: TensorLike, modulo: None = None) -> Self:
        return in_place("**=", functions.power, -1, self, other)

    def __iand__(self, other: TensorLike) -> Self:
        return in_place("&=", logic.bitwise_and, -1, self, other)

    def __ior__(self, other: TensorLike) -> Self:
        return in_place("|=", logic.bitwise_or, -1, self, other)

    def __ixor__(self, other: TensorLike) -> Self:
        return in_place("^=", logic.bitwise_xor, -1, self, other)

    def __ilshift__(self, other: TensorLike) -> Self:
        return in_place("<<=", logic.bitwise_left_shift, -1, self, other)

    def __irshift__(self, other: TensorLike) -> Self:
        return in_place(">>=", logic.bitwise_right_shift, -1, self, other)
