"""Support for PyTorch's names: `minigrad.pytorch` is asked for names that modules lack, and for keywords that functions
lack, after a call has failed.
"""
import sys

from minigrad.engine.ops import (
    activation, conv, gather, join, layout, logic, matmul, norm, pooling, reduce, softmax, trigonometry,
)

cdef extern from *:
    """
    typedef PyObject* (*Again)(PyObject* function, PyObject* args, PyObject* options);
    // The implementations of a call: every module has its own, possibly several for different numbers of arguments.
    constexpr int MG_WAYS = 64;
    static vectorcallfunc mg_calls[MG_WAYS];
    static Again mg_again = nullptr;

    static PyObject* mg_options(PyObject* const* values, PyObject* names) {
        PyObject* options = PyDict_New();
        Py_ssize_t count = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
        for (Py_ssize_t i = 0; options != nullptr && i < count; i++)
            if (PyDict_SetItem(options, PyTuple_GET_ITEM(names, i), values[i]) < 0) Py_CLEAR(options);
        return options;
    }

    // Calls the function and, after a TypeError, calls it again if the arguments, renamed from PyTorch's, fit.
    template <int way>
    static PyObject* mg_call_or_again(PyObject* function, PyObject* const* values, size_t flags, PyObject* names) {
        PyObject* result = mg_calls[way](function, values, flags, names);
        if (result != nullptr || !PyErr_ExceptionMatches(PyExc_TypeError)) return result;
        PyObject *type, *error, *trace, *args = nullptr, *options = nullptr;
        PyErr_Fetch(&type, &error, &trace);
        Py_ssize_t count = PyVectorcall_NARGS(flags);
        args = PyTuple_New(count);
        for (Py_ssize_t i = 0; args != nullptr && i < count; i++) {
            Py_INCREF(values[i]);
            PyTuple_SET_ITEM(args, i, values[i]);
        }
        if (args != nullptr && (options = mg_options(values + count, names)) != nullptr)
            result = mg_again(function, args, options);
        Py_XDECREF(args);
        Py_XDECREF(options);
        if (result == Py_NotImplemented) {
            Py_CLEAR(result);
            PyErr_Restore(type, error, trace);
        } else {
            Py_XDECREF(type);
            Py_XDECREF(error);
            Py_XDECREF(trace);
        }
        return result;
    }

    template <int way = 0>
    static void mg_try_again(PyObject* function, Again again) {
        auto slot = reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function) +
                                                      Py_TYPE(function)->tp_vectorcall_offset);
        mg_again = again;
        if (mg_calls[way] == nullptr) mg_calls[way] = *slot;
        if (mg_calls[way] == *slot) {
            *slot = mg_call_or_again<way>;
        } else {
            if constexpr (way + 1 < MG_WAYS) mg_try_again<way + 1>(function, again);
        }
    }
    """
    ctypedef object (*Again)(object function, object args, object options)
    void mg_try_again(object function, Again again)


def lookup(module: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module: a name that it lacks may be one of PyTorch's."""
    def missing(name):
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name, obj=sys.modules[module])
        from minigrad.pytorch import find
        return find(module, name)

    return missing


# ── keywords ──────────────────────────────────────────────────────────────────────────────────────

def called_again(function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The result of a call with PyTorch's arguments; NotImplemented if these are not why the call failed."""
    code = function.__code__
    own = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    if len(args) <= code.co_argcount and all([name in own for name in options]) and function.__name__ != "where":
        return NotImplemented
    from minigrad.pytorch import call
    return call(function, args, options)


cdef object again(object function, object args, object options):
    return called_again(function, args, options)


for module in (activation, conv, gather, join, layout, logic, matmul, norm, pooling, reduce, softmax, trigonometry):
    for function in vars(module).values():
        if type(function) is type(lookup) and function.__module__ == module.__name__:
            mg_try_again(function, again)
