"""Tensors made of data, of shapes, and of what was pickled."""
from libc.stdint cimport int64_t

from collections.abc import Sequence
from typing import Any

from minigrad.engine.memory.array cimport NOWHERE, Array, alias, empty
from minigrad.engine.memory.dtype cimport code_of, default_float, is_float
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.listener cimport note_read
from minigrad.engine.memory.refusals cimport must_copy, uninitialized
from minigrad.engine.memory.shapes cimport MAX_NDIM, device_index, parse_lengths
from minigrad.engine.ops.arguments cimport refuse_tensors
from minigrad.engine.ops.in_place cimport fill_array
from minigrad.engine.ops.layout cimport cast, copy_array
from minigrad.engine.ops.transfer cimport move
from minigrad.engine.tape.record cimport as_leaf
from minigrad.engine.tensor.tensor import Tensor


def make(data: Any, dtype: DTypeLike = None, device: str | None = None, requires_grad: bool = False, copy: bool = True,
         str op=None, bint shared=False, bint constant=False) -> Tensor:
    """The implementation of `minigrad.tensor` (copy=True), `minigrad.asarray` (copy=False), and `op` based on them.

    `shared` makes it an error if the memory of the data cannot be used as it is. With `constant`, the data follow from
    shapes and numbers alone.
    """
    if op is None:
        op = "tensor" if copy else "asarray"
    cdef int code = -1 if dtype is None else code_of(dtype, op)
    cdef Array x
    if isinstance(data, Array):
        note_read(<Array>data)
        x = <Array>data
        if x.buffer == NOWHERE:
            raise uninitialized(op, x)
        if op != "tensor" and not requires_grad and (code < 0 or code == x.code or is_float(code)):
            x = cast(move(x, x.buffer.device if device is None else device_index(device, op)),
                     x.code if code < 0 else code)      # with its history
            if shared and x is not data:
                raise must_copy(op, data)
            return copy_array(x) if copy and x is data else x
    elif op != "tensor" and op != "asarray":
        refuse_tensors(op, data)
    x = from_object(data, code, -1 if device is None else device_index(device, op), copy, op, shared,
                    not constant)
    if isinstance(data, Array):
        x = alias(x) if copy or x is not data or requires_grad else x
    return as_leaf(op, x, requires_grad)


EMPTY: Any = object()       # what `minigrad.empty` fills a tensor with


def constant(str op, shape: int | Sequence[int], value: TensorLike, dtype: DTypeLike = None, device: str | None = None,
             requires_grad: bool = False) -> Tensor:
    """The implementation of `minigrad.empty` (value EMPTY), `zeros`, `ones` and `full`."""
    cdef int64_t[MAX_NDIM] extent
    cdef int code = default_float if dtype is None else code_of(dtype, op)
    cdef Array x = empty(code, parse_lengths(op, shape, extent), extent, device_index(device, op))
    if value is not EMPTY:
        fill_array(op, x, value)
    return as_leaf(op, x, requires_grad)
