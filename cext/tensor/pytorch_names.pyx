"""PyTorch's names: functions that also take PyTorch's names of their arguments, and modules that also have members of
PyTorch's names. `minigrad.pytorch`, which knows them, is asked after a call or a lookup has failed.
"""
cimport cython
from cpython.ref cimport Py_INCREF, PyObject

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

from minigrad.engine.ops import (
    activation, conv, gather, join, layout, logic, matmul, norm, pooling, reduce, slices, softmax, trigonometry,
)

cdef extern from *:
    """
    // PEP 590: an instance is called through its pointer at `offset`. Cython has no syntax for that.
    static void mg_declare_vectorcall(PyTypeObject* type, Py_ssize_t offset) {
        type->tp_vectorcall_offset = offset;
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR;
    }
    """
    ctypedef PyObject* (*vectorcallfunc)(PyObject* function, PyObject** values, size_t flags, PyObject* names)
    vectorcallfunc PyVectorcall_Function(object function)
    Py_ssize_t PyVectorcall_NARGS(size_t flags)
    object PyVectorcall_Call(object function, object args, object options)
    bint PyErr_ExceptionMatches(object kind)
    void PyErr_SetObject(object kind, object error)
    void mg_declare_vectorcall(type kind, Py_ssize_t offset)

Called = TypeVar("Called", bound=Callable[..., Any])

cdef object pytorch_call = None, pytorch_find = None    # the functions of minigrad.pytorch


def connect(call: Callable[..., Any], find: Callable[[str, str], Any]) -> None:
    """Set what is asked after a call (function, args, options) or a lookup (module, name) has failed."""
    global pytorch_call, pytorch_find
    pytorch_call, pytorch_find = call, find


@cython.final
@cython.internal
cdef class Renaming:
    """A function that, after a TypeError, is called again if the arguments, renamed from PyTorch's, fit."""
    cdef vectorcallfunc call, call_function
    cdef object function
    cdef dict __dict__

    def __init__(self, function):
        self.call, self.call_function = <vectorcallfunc>call_or_again, PyVectorcall_Function(function)
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, *args, **options):
        return PyVectorcall_Call(self, args, options)

    def __get__(self, instance, owner):
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self):
        return self.function.__name__

    def __repr__(self):
        return repr(self.function)


cdef PyObject* call_or_again(PyObject* self, PyObject** values, size_t flags, PyObject* names) noexcept:
    cdef PyObject* result = (<Renaming>self).call_function(<PyObject*>(<Renaming>self).function, values, flags, names)
    if result == NULL and PyErr_ExceptionMatches(TypeError):
        return (<vectorcallfunc>call_again)(self, values, flags, names)
    return result


cdef PyObject* call_again(PyObject* self, PyObject** values, size_t flags, PyObject* names) except NULL:
    cdef Py_ssize_t k, count = PyVectorcall_NARGS(flags)
    try:
        raise_error()
    except TypeError as error:
        failure = error.with_traceback(error.__traceback__.tb_next)     # without this function
    args = tuple([<object>values[k] for k in range(count)])
    options = {} if names == NULL else {name: <object>values[count + k] for k, name in enumerate(<object>names)}
    result = pytorch_call((<Renaming>self).function, args, options)
    if result is NotImplemented:
        PyErr_SetObject(type(failure), failure)
        return NULL
    Py_INCREF(result)
    return <PyObject*>result


cdef int raise_error() except -1:
    """Raise the error that a C function has set."""
    return -1


def rename_arguments(function: Called) -> Called:
    """Let a function also take PyTorch's names of its arguments."""
    return Renaming(function)


cdef Renaming example = Renaming(rename_arguments)      # the offset of a pointer is the same in all of them
mg_declare_vectorcall(Renaming, <char*>&example.call - <char*><PyObject*>example)
for module in (
    activation, conv, gather, join, layout, logic, matmul, norm, pooling, reduce, slices, softmax, trigonometry,
):
    for name, value in list(vars(module).items()):
        if type(value) is type(rename_arguments) and value.__module__ == module.__name__:
            setattr(module, name, Renaming(value))


def lookup(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: a name that it lacks may be one of PyTorch's."""
    def missing(name):
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        return pytorch_find(module, name)

    return missing
