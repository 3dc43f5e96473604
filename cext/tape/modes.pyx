"""Modes of the calling thread, for the duration of a block or of a decorated function."""
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

cimport cython
from libc.stdint cimport uint64_t
from libcpp.vector cimport vector

from minigrad.engine.tape.node cimport ANOMALY, RECORDING, WHERE, switch

cdef extern from *:
    """
    #include <cstdint>
    #include <vector>
    struct Entered { uint64_t mode; int which, before; };
    static thread_local std::vector<Entered> mg_entered;    // what to restore, the innermost block last
    """
    cdef struct Entered:
        uint64_t mode
        int which, before
    vector[Entered] mg_entered

Called = TypeVar("Called", bound=Callable[..., Any])

cdef uint64_t modes = 0


def run_in_steps(mode: Mode, generator: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The generator, with its steps run inside the mode and the code between them outside."""
    step, value = generator.send, None
    try:
        while True:
            with mode:
                item = step(value)
            try:
                step, value = generator.send, (yield item)
            except GeneratorExit:
                with mode:
                    generator.close()
                raise
            except BaseException as error:
                step, value = generator.throw, error
    except StopIteration as end:
        return end.value


def decorate(mode: Mode, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function or generator function, with each call run inside the mode."""
    if inspect.isgeneratorfunction(function):
        @functools.wraps(function)
        def generate(*args, **kwargs):
            return run_in_steps(mode, function(*args, **kwargs))

        return generate

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with mode:
            return function(*args, **kwargs)

    return wrapped


@cython.freelist(8)
@cython.binding(False)
@cython.embedsignature(True)
cdef class Mode:
    """Switches of the calling thread. One object may be entered by many threads, and again inside its own block."""
    cdef uint64_t number
    cdef int which, on

    def __cinit__(self, *arguments):
        global modes
        if arguments:
            name = type(self).__name__
            raise TypeError(f"[{name}] expected no argument, got {arguments[0]!r}; as a decorator it is @{name}()")
        modes += 1
        self.number = modes

    def __enter__(self) -> None:
        cdef Entered block
        block.mode, block.which, block.before = self.number, self.which, switch(self.which, self.on)
        mg_entered.push_back(block)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        cdef size_t k = mg_entered.size(), above
        cdef int which, shared
        while k > 0:
            k -= 1
            if mg_entered[k].mode != self.number:
                continue
            # Generators may leave their blocks in a different order than they entered them: then the next block that
            # set the same switch, and is still open, restores what this one found.
            which = mg_entered[k].which
            for above in range(k + 1, mg_entered.size()):
                shared = which & mg_entered[above].which
                mg_entered[above].before = mg_entered[above].before & ~shared | mg_entered[k].before & shared
                which &= ~shared
            switch(which, mg_entered[k].before)
            mg_entered.erase(mg_entered.begin() + k)
            return
        raise RuntimeError(f"[{type(self).__name__}] this thread leaves a block that it has not entered")

    def __call__(self, function: Called) -> Called:
        if not callable(function) or isinstance(function, type) or inspect.iscoroutinefunction(function) \
                or inspect.isasyncgenfunction(function):
            raise TypeError(f"[{type(self).__name__}] expected a function or a generator function to decorate, got "
                            f"{function!r}")
        return decorate(self, function)


cdef class no_grad(Mode):
    """no_grad()\n--\n\nRecord nothing inside the block or the decorated function.

    The mode belongs to the thread. A block that waits, at an ``await``, or at a ``yield`` of a generator with the block
    in its body, leaves it on for the other asyncio tasks and for the caller: compute inside the block and wait outside.
    A generator function decorated with ``@no_grad()`` switches it off at each ``yield``.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.ones(2, requires_grad=True)
    >>> with mg.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __cinit__(self):
        self.which = RECORDING


cdef class enable_grad(Mode):
    """enable_grad()\n--\n\nRecord again inside a block that `no_grad` surrounds.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.ones(2, requires_grad=True)
    >>> with mg.no_grad(), mg.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    def __cinit__(self):
        self.which = self.on = RECORDING


cdef class record_source(Mode):
    """record_source()\n--\n\nNote the source line of each operation on the tape, for `Tensor.tape` and errors.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.ones(2, requires_grad=True)
    >>> with mg.record_source():
    ...     y = x.exp()
    >>> y.tape()[1]["where"] is None
    False
    """

    def __cinit__(self):
        self.which = self.on = WHERE


cdef class detect_anomaly(Mode):
    """detect_anomaly()\n--\n\nRaise where a backward pass first makes NaN or infinity, and name the operation.

    Put both the forward and the backward pass inside the block. Slow: every gradient is read.

    Examples
    --------
    >>> import minigrad as mg
    >>> x = mg.zeros(1, requires_grad=True)
    >>> with mg.detect_anomaly():
    ...     x.sqrt().backward()
    Traceback (most recent call last):
    minigrad.engine.tape.node.GradientError: [sqrt] backward gave a gradient with NaN or infinity for input 0 ...
    """

    def __cinit__(self):
        self.which = self.on = ANOMALY | WHERE
