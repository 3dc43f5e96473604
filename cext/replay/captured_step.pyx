"""Captured steps: what a captured run depends on, and how it is replayed with other arguments.

A run is recorded with copies of the arguments; a replay first copies its own arguments to their addresses. Everything
else that the step reads from outside stays where it is: parameters, running statistics, gradients. `Watch` notes these
tensors, and `Known` what Python finds at the places of `surroundings`. Before each replay, `Step.fits` and
`Step.is_stale` check that they are still the same.
"""
import gc

cimport cython
from cpython.dict cimport PyDict_GetItemWithError, PyDict_Next
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from typing import Any
from weakref import ref

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.kernel_list cimport restore
from minigrad.engine.memory.array cimport Array, alias, empty_as, next_moment, same_shape, shape_of
from minigrad.engine.memory.calls cimport refuse_in_capture
from minigrad.engine.memory.dtype cimport default_float, matmul_precision
from minigrad.engine.memory.listener cimport Listener, current_listener, set_listener
from minigrad.engine.tape.node cimport ANOMALY, Node, modes, recording
from minigrad.engine.devices.backend import is_intercepted
from minigrad.engine.devices.kernel_list import CapturedKernels
from minigrad.engine.memory.calls import CaptureError
from minigrad.engine.replay.surroundings import surroundings
from minigrad.engine.tensor.trees import map_leaves, map_tensors

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(object items, Py_ssize_t i)   # borrowed


cdef object signature(object tree, list tensors):
    """Return what has to be equal for a captured run to be replayed; append the tensors in `tree` to `tensors`."""
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
    """The signature of arguments, with what is set for all operations; the tensors in it are appended to the list."""
    return recording(), default_float, matmul_precision, signature(tree, tensors)


def is_watched() -> bool:
    """Whether something observes each operation: a listener, a profile or detect_anomaly."""
    return current_listener() is not None or is_intercepted() or bool(modes() & ANOMALY)


cdef Array twin(Array x):
    """A copy of x whose axes have the same order in memory."""
    cdef Array out
    order = sorted(range(x.ndim_), key=lambda i: -abs(x.step[i]))
    out = <Array>x.detach().permute_dims(tuple(order)).copy()
    back = [0] * x.ndim_
    for place, axis in enumerate(order):
        back[axis] = place
    return <Array>out.permute_dims(tuple(back)) if x.ndim_ else out


cdef bint same_layout(Array a, Array b) noexcept:
    """Whether two arrays are the same elements of the same memory."""
    cdef int i
    if a.data != b.data or a.code != b.code or not same_shape(a, b):
        return False
    for i in range(a.ndim_):
        if a.step[i] != b.step[i]:
            return False
    return True


cdef enum Kind:
    CELL, ENTRY, ATTRIBUTE, SLOT, ITEMS, MEMBERS, BYTES


cdef tuple KINDS = ("cell", "entry", "attribute", "slot", "items", "members", "bytes")
cdef object MISSING = object()


@cython.final
cdef class Known:
    """The value at a place of `surroundings` before the run."""
    cdef Kind kind
    cdef object holder, name, value
    cdef readonly str label

    def __cinit__(self, place):
        self.kind = <Kind><int>KINDS.index(place.kind)
        self.holder, self.name, self.label = place.holder, place.name, place.label
        self.value = self.found()

    cdef object found(self):
        """The value there now."""
        if self.kind == CELL:
            try:
                return self.holder.cell_contents
            except ValueError:      # it is empty
                return MISSING
        if self.kind == ENTRY:
            return (<dict>self.holder).get(self.name, MISSING)
        if self.kind == ATTRIBUTE:
            return self.holder.__dict__.get(self.name, MISSING)
        if self.kind == SLOT:
            return getattr(self.holder, self.name, MISSING)
        if self.kind == BYTES:
            return memoryview(self.holder).tobytes()
        items = self.holder.__dict__ if self.kind == MEMBERS else self.holder
        return [x for pair in dict.items(items) for x in pair] if isinstance(items, dict) else list(items)

    cdef bint is_there(self) except -1:
        """Whether it still is."""
        cdef PyObject* entry
        if self.kind == ENTRY:
            entry = PyDict_GetItemWithError(self.holder, self.name)
            return entry != NULL and (entry == <PyObject*>self.value or is_same(<object>entry, self.value))
        if self.kind == MEMBERS:
            return has_items(<dict>self.holder.__dict__, <list>self.value)
        if self.kind == ITEMS:
            if isinstance(self.holder, dict):
                return has_items(<dict>self.holder, <list>self.value)
            if len(self.holder) != len(<list>self.value):
                return False
            for x, known in zip(self.holder, <list>self.value):
                if not is_same(x, known):
                    return False
            return True
        found = self.found()
        return found == self.value if self.kind == BYTES else is_same(found, self.value)


cdef inline bint is_same(object x, object known) except -1:
    """Whether it is the same object or an equal number or string."""
    if x is known:
        return True
    kind = type(x)
    return kind is type(known) and (kind is float or kind is int or kind is str) and repr(x) == repr(known)


cdef bint has_items(dict items, list known) except -1:
    """Whether a dict has these keys and values, which alternate, in this order."""
    cdef PyObject* key
    cdef PyObject* value
    cdef Py_ssize_t place = 0, i = 0
    if 2 * len(items) != len(known):
        return False
    while PyDict_Next(items, &place, &key, &value):
        if key != PyList_GET_ITEM(known, i) and <object>key != known[i]:
            return False
        if value != PyList_GET_ITEM(known, i + 1) and not is_same(<object>value, known[i + 1]):
            return False
        i += 2
    return True


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Watch(Listener):
    """Notes what a run of a step depends on."""
    cdef int64_t since
    cdef dict tensors       # id -> (weak reference, requires grad, alias) of each older tensor
    cdef dict written       # address of a buffer -> (alias, version) before the first write
    cdef dict leaves        # id -> (leaf, whether its gradient was read before it was replaced, its alias)
    cdef dict earlier       # id -> (leaf, its gradient from before the run, which a call uses)
    cdef dict modules       # id -> each module that ran or could be found before
    cdef list known         # what the function reads from outside, and those modules

    def __init__(self, places: Any) -> None:
        self.since, self.tensors, self.written, self.leaves = next_moment(), {}, {}, {}
        self.modules, self.earlier, self.known = {}, {}, []
        self.find(places)

    cdef int find(self, places) except -1:
        """Note what is at these places."""
        self.known += [Known(place) for place in places]
        self.modules.update({id(place.holder): place.holder for place in places if place.kind == "members"})
        return 0

    def read(self, Array x) -> None:
        if x.moment < self.since and id(x) not in self.tensors:
            self.tensors[id(x)] = ref(x), bool(x.needs_grad), alias(x)

    def before_write(self, Array x) -> None:
        self.read(x)
        if <size_t>x.buffer not in self.written:
            self.written[<size_t>x.buffer] = alias(x), x.buffer.version

    def before_recorded_write(self, Array x) -> None:
        if x.moment < self.since:
            refuse_in_capture("a write to a tensor from outside whose gradient is recorded: write detached values, or "
                              "to a copy")

    def before_set(self) -> None:
        refuse_in_capture("set_, which makes another tensor of one: write in place, as with copy_")

    def touches_grad(self, Array leaf, bint replaced) -> None:
        if leaf.moment < self.since and id(leaf) not in self.leaves:
            grad = leaf.grad_
            self.leaves[id(leaf)] = leaf, not replaced, None if grad is None else alias(<Array>grad)

    def call_reads(self, tree: Any) -> None:
        """Note the gradients that a call may use of the tensors in lists and tuples."""
        if isinstance(tree, (list, tuple)):
            for part in tree:
                self.call_reads(part)
        elif isinstance(tree, Array) and (<Array>tree).grad_ is not None and id(tree) not in self.leaves:
            self.earlier.setdefault(id(tree), (tree, (<Array>tree).grad_))

    def grads(self) -> list[tuple[Tensor, Tensor | None]]:
        """The current gradients of the leaves whose gradients the run has read or replaced."""
        return [(leaf, (<Array>leaf).grad_) for leaf, _, _ in self.leaves.values()]

    def calls_module(self, module: Any) -> None:
        if id(module) not in self.modules:
            self.find(surroundings(module, ()))

    def calls_hook(self) -> None:
        refuse_in_capture("a hook")

    def adds_hook(self, x: Tensor) -> bool:
        refuse_in_capture("a hook")


@cython.final
cdef class Output:
    """The place of a tensor in the result of a step."""
    cdef Py_ssize_t index

    def __cinit__(self, Py_ssize_t index):
        self.index = index


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Step:
    """A captured run of a function."""
    cdef readonly object kernels      # None if another capture was in progress
    cdef readonly object failure        # why the run cannot be repeated, if no error was due
    cdef readonly bint has_history      # whether the result had a history, and no gradient of a leaf was computed
    cdef list arguments     # copies, which the kernels read
    cdef object result      # what the run returned, with an `Output` in place of each tensor that it made
    cdef list outputs       # these tensors
    cdef list grads         # (leaf, gradient) at the end
    cdef list written       # (alias, writes in each run) of memory from outside
    # what has to be as it was before the run
    cdef list tensors       # (weak reference, requires grad, alias) of those that it reads from outside
    cdef list entry         # (leaf, alias of its gradient or None) of the gradients that it adds to
    cdef list known         # what is at the places that the function reads
    cdef list optimizers    # (optimizer, number of its parameters)
    cdef bint busy

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
        cdef Watch watch = Watch(surroundings(function, (args, kwargs)))
        cdef Array x
        cdef Known place
        self.arguments, self.kernels, self.outputs = [twin(x) for x in tensors], CapturedKernels(watch), []
        copies = iter(self.arguments)
        args, kwargs = map_tensors(lambda x: next(copies), args), map_tensors(lambda x: next(copies), kwargs)
        before = [x.buffer.version for x in tensors]
        if not self.kernels.begin():
            self.kernels = None
            return
        set_listener(watch)
        try:
            result = function(*args, **kwargs)
            self.check_arguments(tensors, before)
            self.check_gradients(watch)
            self.grads = watch.grads()
            self.has_history = not watch.leaves
            self.result = map_leaves(lambda leaf: self.kept(leaf, watch), result)
            del result
        finally:
            set_listener(None)
            self.kernels.end()
        self.check_stored(watch)
        self.known = watch.known
        for place in self.known:
            if not place.is_there():
                self.failure = f"it changes {place.label}, which later runs would leave out: change it outside"
                return
        try:
            self.kernels.divide()
        except CaptureError:
            raise
        except (MemoryError, RuntimeError) as error:
            self.failure = error
        self.entry = [(leaf, held) for leaf, was_read, held in watch.leaves.values() if was_read]
        self.tensors = list(watch.tensors.values())
        self.written = [(held, (<Array>held).buffer.version - known) for held, known in watch.written.values()]
        self.optimizers = [(one, parameters_of(one)) for one in self.kernels.owners()
                           if hasattr(one, "param_groups")]

    cdef int check_arguments(self, list tensors, list before) except -1:
        """Refuse a run that changed its arguments."""
        cdef Array x, given
        for x, given, version in zip(self.arguments, tensors, before):
            if x.buffer.version:
                raise CaptureError(f"[capture] expected a step that leaves its arguments as they are, got one that "
                                   f"writes to an argument of shape {shape_of(x)} in place")
            if x.needs_grad:
                raise CaptureError(f"[capture] expected a step that leaves its arguments as they are, got one that "
                                   f"lets an argument of shape {shape_of(x)} require grad: use "
                                   f"detach().requires_grad_()")
            if given.buffer.version != version:
                raise shared_argument(given)
        return 0

    cdef int check_gradients(self, Watch watch) except -1:
        """Refuse a run whose optimizer uses gradients that the run before has left: it overwrites them."""
        for leaf, before in watch.earlier.values():
            left = (<Array>leaf).grad_
            if left is not None and (<Array>left).buffer != (<Array>before).buffer:
                raise CaptureError(f"[capture] expected an optimizer that uses the gradients of its own call, got "
                                   f"those of the call before for a parameter of shape {shape_of(leaf)}: call "
                                   f"backward() first, or capture the optimizer's step as a function of its own")
        return 0

    cdef int check_stored(self, Watch watch) except -1:
        """Refuse a run that keeps a tensor which the next run will overwrite."""
        known = [*self.outputs, *[grad for _, grad in self.grads], *[held for held, _ in watch.written.values()],
                 *[entry[2] for entry in watch.tensors.values()], *[entry[2] for entry in watch.leaves.values()]]
        if not self.kernels.stored(known):
            return 0
        gc.collect()        # it may be in a reference cycle that nothing uses
        if size := self.kernels.stored(known):
            raise CaptureError(f"[capture] expected a step that keeps no tensor of a run, which the next run "
                               f"overwrites, got one that stores {size} bytes outside of it: return the tensor, or "
                               f"write to one that exists, as with copy_")
        return 0

    def fits(self) -> bool:
        """Whether the step would still do what it did: nothing that it depends on has been replaced."""
        cdef Array x, held
        cdef Known place
        for place in self.known:
            if not place.is_there():
                return False
        for optimizer, count in self.optimizers:
            if parameters_of(optimizer) != count:
                return False
        for leaf, held in self.entry:
            x = (<Array>leaf).grad_
            if (x is None) != (held is None) or (x is not None and not same_layout(x, held)):
                return False
        for leaf, _ in self.grads:
            if (<Array>leaf).node is not None and (<Node>(<Array>leaf).node).hooks:
                return False
        return True

    def is_stale(self) -> bool:
        """Whether a tensor that the step reads from outside has died or changed its memory, layout or requires_grad."""
        cdef Array x
        for reference, needs_grad, held in self.tensors:
            x = reference()
            if x is None or x.needs_grad != <bint>needs_grad or not same_layout(x, <Array>held):
                return True
        return False

    def run(self, tensors: list[Tensor]) -> Any:
        """Run the step again with the values of these arguments; return its result."""
        cdef Array x
        cdef Py_ssize_t i, count = len(tensors)
        if self.busy:
            raise CaptureError("[capture] expected one call at a time, got one while another one runs")
        self.busy = True
        try:
            self.kernels.follow()
            before = [(<Array>x).buffer.version for x in tensors]
            for i in range(count):
                x = tensors[i]
                backend(x).copy(x, <Array>self.arguments[i])
            self.kernels.run()
            for held, writes in self.written:
                (<Array>held).buffer.version += <int64_t>writes
            restore(self.grads)
            for _, grad in self.grads:
                if grad is not None:
                    (<Array>grad).buffer.version += 1
            for i in range(count):
                if (<Array>tensors[i]).buffer.version != <int64_t>before[i]:
                    raise shared_argument(<Array>tensors[i])
            return map_leaves(self.copied, self.result)
        finally:
            try:
                self.kernels.leave()
            finally:
                self.busy = False

    def rows(self) -> list[tuple[str, str, int]]:
        """(operation, "forward", "backward" or "call", elements touched) of each kernel and call, in order."""
        return self.kernels.rows()

    def first(self) -> Any:
        """The result of the captured run."""
        result = map_leaves(self.copied, self.result)
        self.kernels.leave()
        return result

    def copied(self, leaf: Any) -> Any:
        """A part of the result; a copy of a tensor that the run has made."""
        if type(leaf) is not Output:
            return leaf
        cdef Array x = self.outputs[(<Output>leaf).index], out = empty_as(x, x.code)
        backend(x).copy(x, out)
        return out

    def kept(self, leaf: Any, Watch watch: Watch) -> Any:
        """A part of the result; an `Output` for a tensor that the run has made."""
        if isinstance(leaf, Array):
            if (<Array>leaf).moment < watch.since:
                watch.read(leaf)
                return leaf
            self.has_history = self.has_history and (<Array>leaf).node is not None
            self.outputs.append(alias(<Array>leaf))
            return Output(len(self.outputs) - 1)
        if leaf is None or isinstance(leaf, (bool, int, float, str)):
            return leaf
        raise CaptureError(f"[capture] expected a step that returns tensors, None, numbers or strings, in tuples, "
                           f"lists or dicts, got {type(leaf).__name__}")


cdef object shared_argument(Array x):
    """The error for an argument that shares memory with a tensor to which the step writes."""
    return CaptureError(f"[capture] expected arguments with memory of their own, got one of shape {shape_of(x)} that "
                        f"shares memory with a tensor which the step writes to: pass a copy")


cdef Py_ssize_t parameters_of(object optimizer) except -1:
    """How many parameters an optimizer has."""
    cdef Py_ssize_t count = 0
    for group in optimizer.param_groups:
        count += len(group["params"])
    return count
