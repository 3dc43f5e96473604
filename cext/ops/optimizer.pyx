"""The update rules of the optimizers: one kernel for a whole list of parameters. Nothing here is recorded.

The formulas are in minigrad/cuda/update_rules.cuh, for the CPU too.
"""
cimport cython
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from collections.abc import Iterable
from typing import Any

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, same_shape, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport is_float
from minigrad.engine.devices.cpu import states_of_rule


cdef int check(str op, list params, list lists) except -1:
    """Check for equal lengths and shapes, contiguity, and one dtype and device for all; increment the versions."""
    cdef Array first, p, x
    cdef int i
    if not params:
        raise ValueError(f"[{op}] expected at least one tensor")
    first = <Array?>params[0]
    if not is_float(first.code):
        raise TypeError(f"[{op}] expected floating-point tensors, got {first.dtype}")
    for xs in [params] + lists:
        if xs is None:
            continue
        if len(<list>xs) != len(params):
            raise ValueError(f"[{op}] expected lists of one length, got {len(params)} and {len(<list>xs)}")
        for i in range(len(<list>xs)):
            p, x = <Array?>params[i], <Array?>(<list>xs)[i]
            if not same_shape(p, x):
                raise ValueError(f"[{op}] tensor {i}: expected shape {shape_of(p)}, got {shape_of(x)}")
            if x.code != first.code or x.buffer.device != first.buffer.device:
                raise TypeError(f"[{op}] tensor {i}: expected {first.dtype} on {first.device}, "
                                f"got {x.dtype} on {x.device}")
            if not x.packed:
                raise ValueError(f"[{op}] tensor {i} of shape {shape_of(x)} is not contiguous")
    return 0


cdef void bump(list xs) noexcept:
    for x in xs:
        (<Array>x).buffer.version += 1


cdef list contiguous(list grads):
    """Gradients as the kernels read them."""
    return [g if (<Array?>g).packed else g.contiguous() for g in grads]


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Rule:
    """The update rule of an optimizer: a kernel of this name on the CPU and one on the GPU.

    Parameters
    ----------
    name : str
        The function's in update_rules.cuh.
    flops : int
        Operations for each element of a parameter, as a profile counts them.
    """
    cdef readonly str name      # -> str
    cdef readonly int flops     # -> int
    cdef int states             # lists of states that the kernel always uses

    def __init__(self, str name: str, int flops: int):
        self.name, self.flops, self.states = name, flops, states_of_rule(name)

    def __call__(self, list params: list[Tensor], list grads: list[Tensor], list states: list[list[Tensor] | None],
                 *numbers: float) -> None:
        """Update parameters and states, at most three lists of tensors or None, by the kernel with its numbers."""
        cdef Call _call = begin(None)
        cdef Py_ssize_t given = 0
        while given < len(states) and states[given] is not None:
            given += 1
        if given < self.states or len(states) > 3:
            raise ValueError(f"[{self.name}] expected at most 3 lists of states, the first {self.states} of which are "
                             f"not None, got {['a list' if xs is not None else None for xs in states]}")
        grads = contiguous(grads)
        check(self.name, params, [grads, *states])
        backend(<Array>params[0]).optimize(self, params, grads, states, numbers)
        bump(params)
        for xs in states:
            if xs is not None:
                bump(xs)


def grads_of(object parameters: Iterable[Tensor]) -> tuple[list[Any], list[int]]:
    """The gradients of parameters, and for each the number of its dtype and device, or -1 if it is None."""
    cdef Array g
    cdef list grads = [(<Array?>x).grad_ for x in parameters], kinds = []
    for g in grads:
        kinds.append(-1 if g is None else g.code + 8 * g.buffer.device)
    return grads, kinds


def are_same(object given: Iterable[Any], list known: list[Any]) -> bool:
    """Whether two sequences consist of the same objects."""
    cdef Py_ssize_t i = 0, count = len(known)
    for x in given:
        if i == count or x is not known[i]:
            return False
        i += 1
    return i == count


def states_hold(object state: dict[Tensor, dict[str, Any]], list parameters: list[Tensor],
                list states: list[dict[str, Any]], dict seen: dict[str, list[Any]], int64_t entries,
                object absent: Any) -> bool:
    """Whether `state` has these states for the parameters, and they hold the objects in `seen` and nothing else.

    An object in `seen` that is `absent` means that there is no entry.
    """
    cdef Py_ssize_t i, total = 0
    cdef list values
    cdef PyObject* found
    for i in range(len(parameters)):
        if PyDict_GetItem(state, parameters[i]) != <PyObject*>states[i]:
            return False
        total += len(states[i])
    if total != entries:
        return False
    for name, values in seen.items():
        for i in range(len(states)):
            found = PyDict_GetItem(states[i], name)
            if (<PyObject*>absent if found == NULL else found) != <PyObject*>values[i]:
                return False
    return True


def grad_norm(list grads: list[Tensor]) -> float:
    """float: the Euclidean norm of all elements of all tensors."""
    cdef Call _call = begin(None)
    grads = contiguous(grads)
    check("grad_norm", grads, [])
    return sqrt(backend(<Array>grads[0]).sum_of_squares(grads))


def scale_(list tensors: list[Tensor], double factor) -> None:
    """Multiply every tensor by a number, in place."""
    cdef Call _call = begin(None)
    for x in tensors:
        x *= factor
