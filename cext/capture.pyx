"""Captured steps: what a recorded run depends on, and how it is run again with other arguments.

A run is recorded with copies of the arguments, at whose addresses later runs put theirs. Everything else that the step
reads from outside stays where it is: parameters, running statistics, gradients. `Watch` notes what that is, and
`Step.fits` checks it before each run.
"""
cimport cython
from libc.stdint cimport int64_t

from typing import Any
from weakref import ref

from minigrad.engine.array cimport Array, alias, empty_as, next_moment, shape_of, version
from minigrad.engine.backend cimport backend
from minigrad.engine.backend import is_intercepted
from minigrad.engine.calls cimport refuse_in_capture
from minigrad.engine.calls import CaptureError
from minigrad.engine.dtype cimport default_float
from minigrad.engine.recording import Recording
from minigrad.engine.tape import checks_gradients
from minigrad.engine.tape cimport Node, current_observer, current_run, recording, set_run


cdef object signature(object tree, list tensors):
    """What has to be equal for a recorded run to be used; the tensors are collected."""
    cdef Array x
    cdef int i
    kind = type(tree)
    if isinstance(tree, Array):
        x = <Array>tree
        if x.needs_grad:
            raise ValueError(f"[capture] expected arguments that do not require grad, got one of shape {shape_of(x)}: "
                             f"let the step make it require grad, x.detach().requires_grad_()")
        tensors.append(x)
        if x.packed:
            return (x.code, x.buffer.device, *[x.extent[i] for i in range(x.ndim_)])
        return (x.code, x.buffer.device, shape_of(x), tuple([x.step[i] for i in range(x.ndim_)]))
    if isinstance(tree, (tuple, list)):
        return (kind, *[signature(part, tensors) for part in tree])
    if isinstance(tree, dict):
        return (kind, *[(key, signature(part, tensors)) for key, part in tree.items()])
    if kind is float:
        return repr(tree)
    if tree is None or kind is int or kind is bool or kind is str:
        return (kind, tree)
    if hasattr(tree, "__array__"):
        raise TypeError(f"[capture] expected tensors as arguments, got {kind.__name__}: convert it with mg.asarray")
    try:
        hash(tree)
    except TypeError:
        raise TypeError(f"[capture] expected arguments that are tensors, numbers, strings or other constants that can "
                        f"be hashed, in tuples, lists or dicts, got {kind.__name__}") from None
    return (kind, tree)


def key_of(tree: Any, tensors: list[Tensor]) -> tuple[Any, ...]:
    """The signature of arguments, with the modes of the thread; the tensors in it are appended to the list."""
    return recording(), default_float, signature(tree, tensors)


def is_watched() -> bool:
    """Whether something follows each operation: recompute, a recording, an observer, a profile, or detect_anomaly."""
    return current_run() is not None or current_observer() is not None or is_intercepted() or checks_gradients()


cdef object mapped(object f, object tree):
    """The same structure of tuples, lists and dicts, with each tensor x replaced by f(x)."""
    from minigrad.autograd.trees import mapped

    return mapped(f, tree)


cdef Array twin(Array x):
    """A copy of x with axes in the same order in memory."""
    cdef Array out
    order = sorted(range(x.ndim_), key=lambda i: -abs(x.step[i]))
    out = <Array>x.detach().permute_dims(tuple(order)).copy()
    back = [0] * x.ndim_
    for place, axis in enumerate(order):
        back[axis] = place
    return <Array>out.permute_dims(tuple(back)) if x.ndim_ else out


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Watch:
    """What a run of a step depends on. It takes the place of a run of `recompute`, see `tape.set_run`."""
    cdef int64_t since
    cdef dict tensors       # id -> (weak reference, address, requires grad, alias) of each older tensor
    cdef dict written       # address of a buffer -> (alias, version) before the first write
    cdef dict leaves        # id -> (leaf, whether its gradient was read before it was replaced, gradient, its alias)
    cdef list modules       # (weak reference, whether it trains) of each module that ran

    def __init__(self) -> None:
        self.since, self.tensors, self.written, self.leaves, self.modules = next_moment(), {}, {}, {}, []

    def read(self, Array x) -> None:
        if x.moment < self.since and id(x) not in self.tensors:
            self.tensors[id(x)] = ref(x), <size_t>x.data, bool(x.needs_grad), alias(x)

    def before_write(self, Array x) -> None:
        self.read(x)
        if <size_t>x.buffer not in self.written:
            self.written[<size_t>x.buffer] = alias(x), x.buffer.version

    def before_set(self) -> None:
        refuse_in_capture("set_, which makes another tensor of one: write in place, as with copy_")

    def before_backward(self) -> None:
        pass

    def touches_grad(self, Array leaf, bint replaced) -> None:
        if id(leaf) not in self.leaves:
            grad = leaf.grad_
            self.leaves[id(leaf)] = leaf, not replaced, grad, None if grad is None else alias(<Array>grad)

    def grads(self) -> list[tuple[Tensor, Tensor | None]]:
        """The gradients that leaves have now, of those whose gradients the run has touched."""
        return [(leaf, (<Array>leaf).grad_) for leaf, _, _, _ in self.leaves.values()]

    def recorded(self, Node node, outs: tuple[Tensor, ...]) -> object:
        return node

    def entered(self, module: Any) -> None:
        self.modules.append((ref(module), bool(getattr(module, "training", False))))

    def calls_hook(self) -> None:
        refuse_in_capture("a hook")

    def has_hooks(self, Node node) -> bool:
        refuse_in_capture("a hook")

    def repeated(self) -> bool:
        return False

    def drawn_before(self, blocks: int) -> None:
        return None

    def drew(self, blocks: int, drawn: list[int]) -> None:
        pass


@cython.final
cdef class Output:
    """The place of a tensor in the result of a step."""
    cdef Py_ssize_t number

    def __cinit__(self, Py_ssize_t number):
        self.number = number


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Step:
    """A recorded run of a function."""
    cdef object recording
    cdef list arguments     # copies, at whose addresses kernels read
    cdef object result      # as the run has returned it, with an `Output` in place of each tensor it made
    cdef list outputs       # these tensors
    cdef list tensors       # (weak reference, address, requires grad, alias): what it reads from outside
    cdef list written       # (alias, writes in each run)
    cdef list entry         # (leaf, address of its gradient or 0): what gradients it adds to
    cdef list modules
    cdef list grads         # (leaf, gradient) at the end
    cdef bint busy

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
        cdef Array x
        cdef Watch watch = Watch()
        copies = iter([twin(<Array>x) for x in tensors])
        self.arguments, self.recording = [], Recording(watch)
        for x in tensors:
            if x.buffer.device:
                raise CaptureError(f"[capture] expected arguments on the CPU, got one on {x.device}: "
                                   f"steps are captured on the CPU")

        def given(Array x):
            self.arguments.append(next(copies))
            return self.arguments[-1]

        args, kwargs = mapped(given, args), mapped(given, kwargs)
        versions = [version(<Array>x) for x in self.arguments]
        if not self.recording.begin():
            self.recording = None
            return
        set_run(watch)
        try:
            result = function(*args, **kwargs)
            for x, known in zip(self.arguments, versions):
                if version(x) != known:
                    raise CaptureError(f"[capture] expected a step that leaves its arguments as they are, got one that "
                                       f"writes to an argument of shape {shape_of(x)} in place")
            self.grads = watch.grads()
            self.outputs = []
            self.result = self.kept(result, watch.since)
        finally:
            set_run(None)
            self.recording.end()
        self.entry = [(leaf, 0 if grad is None else <size_t>(<Array>held).data, held)
                      for leaf, was_read, grad, held in watch.leaves.values() if was_read]
        self.tensors = list(watch.tensors.values())
        self.written = [(held, (<Array>held).buffer.version - known) for held, known in watch.written.values()]
        self.modules = watch.modules

    @property
    def exists(self) -> bool:
        """Whether there is a recording: one can be made at a time."""
        return self.recording is not None

    def fits(self) -> bool:
        """Whether the step would do now what it did, in the modes that modules are in and with the gradients there."""
        for leaf, address, _ in self.entry:
            grad = (<Array>leaf).grad_
            if (0 if grad is None else <size_t>(<Array>grad).data) != <size_t>address:
                return False
        for reference, training in self.modules:
            if getattr(reference(), "training", False) is not training:
                return False
        return True

    def is_stale(self) -> bool:
        """Whether a tensor that the step reads from outside is no longer there, or no longer what it was."""
        cdef Array x
        for reference, address, needs_grad, _ in self.tensors:
            x = reference()
            if x is None or <size_t>x.data != <size_t>address or x.needs_grad != <bint>needs_grad:
                return True
        return False

    def run(self, tensors: list[Tensor]) -> Any:
        """Run the step again with the values of these arguments; return its result."""
        cdef Array x, argument
        cdef Py_ssize_t i
        if self.busy:
            raise CaptureError("[capture] expected one call at a time, got one while another one runs")
        self.busy = True
        try:
            for i in range(len(tensors)):
                x, argument = tensors[i], self.arguments[i]
                backend(x).copy(x, argument)
            self.recording.run()
            for held, writes in self.written:
                (<Array>held).buffer.version += <int64_t>writes
            for leaf, grad in self.grads:
                if (<Array>leaf).grad_ is not grad:
                    (<Array>leaf).grad_ = grad
                if grad is not None:
                    (<Array>grad).buffer.version += 1
            return self.given(self.result)
        finally:
            self.busy = False

    def rows(self) -> list[tuple[str, str, int]]:
        """(operation, "forward", "backward" or "call", elements touched) of each kernel and call, in order."""
        return self.recording.rows()

    def first(self) -> Any:
        """The result of the recorded run."""
        return self.given(self.result)

    cdef object given(self, object tree):
        """The result, with copies of the tensors that the run made."""
        cdef Array x, out
        if type(tree) is Output:
            x = self.outputs[(<Output>tree).number]
            out = empty_as(x, x.code)
            backend(x).copy(x, out)
            return out
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return type(tree)(*[self.given(part) for part in tree])
        if type(tree) is tuple or type(tree) is list:
            return type(tree)([self.given(part) for part in tree])
        if type(tree) is dict:
            return {key: self.given(part) for key, part in tree.items()}
        return tree

    cdef object kept(self, object tree, int64_t since):
        """A result with places for the tensors that the run has made."""
        if isinstance(tree, Array):
            if (<Array>tree).moment < since:
                return tree
            self.outputs.append(alias(<Array>tree))
            return Output(len(self.outputs) - 1)
        kind = type(tree)
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return kind(*[self.kept(part, since) for part in tree])
        if kind is tuple or kind is list:
            return kind([self.kept(part, since) for part in tree])
        if kind is dict:
            return {key: self.kept(part, since) for key, part in tree.items()}
        if tree is None or isinstance(tree, (bool, int, float, str)):
            return tree
        raise CaptureError(f"[capture] expected a step that returns tensors, None, numbers or strings, in tuples, "
                           f"lists or dicts, got {kind.__name__}")
