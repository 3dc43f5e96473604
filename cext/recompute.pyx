"""Recomputation: a function that saves nothing for the backward pass runs again when the pass needs its values.

The first run records ordinary nodes with their edges, so the tape is that of the plain function: recorded passes, hooks
and captured tensors need no special treatment. When the function returns, `Run` drops the values that these nodes have
saved. The first backward pass that reaches one of them runs the function again. The second run has to record the same
operations with the same edges. The values that each operation saves move to the node of the first run, which also takes
the place of the new node as the maker of the results, so there is no second tape.

The tape notifies a run of everything that the function reads, writes and draws (`tape.set_run`). The second run has to
read the same tensors in the same order. Tensors made during a run are not compared, because they follow from the rest;
`Array.moment` distinguishes them from older ones. Runs may be nested. The part of the tape that a second run fills
already belongs to the first runs around it, so a second run does not notify them.
"""
import os
import threading

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from collections.abc import Callable
from typing import Any
from weakref import ref

from minigrad.engine import calls
from minigrad.engine.array cimport (
    Array, alias, device_name, empty_as, first_element, next_moment, point, same_shape, shape_of, version,
)
from minigrad.engine.backend cimport backend
from minigrad.engine.dtype cimport dtype_of
from minigrad.engine.tape cimport (
    Node, Place, accumulate, bury, count_saved, current_run, last_sequence, set_recording, set_run,
)
from minigrad.engine.tape import GradientError

cdef extern from "Python.h":
    Py_ssize_t Py_REFCNT(PyObject*)

ctypedef PyObject* Reference


cdef Array copied(Array x):
    """A copy of x, with the version of its memory."""
    cdef Array out
    run = set_run(None)         # a backend may compute with tensors itself
    try:
        out = empty_as(x, x.code)
        backend(x).copy(x, out)
        out.buffer.version = x.buffer.version
        return out
    finally:
        set_run(run)


cdef object rebuilt(object tree):
    """A copy of lists, tuples and dicts, at every depth: the function or its caller may change the originals."""
    if type(tree) is list or type(tree) is tuple:
        return type(tree)([rebuilt(part) for part in tree])
    if type(tree) is dict:
        return {key: rebuilt(part) for key, part in tree.items()}
    return tree


cdef bint holds(object tree, object x):
    """Whether x is the value itself or inside its lists, tuples and dicts."""
    if isinstance(tree, (list, tuple, dict)):
        return any([holds(part, x) for part in (tree.values() if isinstance(tree, dict) else tree)])
    return tree is x


cdef bint alike(Array a, Array b) noexcept:
    return a.code == b.code and a.buffer.device == b.buffer.device and same_shape(a, b)


cdef object plain(object value):
    """The numbers and strings among the values that a node keeps besides tensors."""
    if type(value) is tuple:
        return tuple([plain(part) for part in <tuple>value])
    return value if isinstance(value, (bool, int, float, str)) else None


cdef bint is_constant(Array x) noexcept:
    """Whether x is a single number, possibly broadcast."""
    cdef int i
    for i in range(x.ndim_):
        if x.extent[i] != 1 and x.step[i] != 0:
            return False
    return x.count > 0


cdef str result_of(Node node):
    """The shapes and dtypes of the node's outputs."""
    shapes = node.layouts if node.outputs > 1 else [(tuple([node.extent[i] for i in range(node.ndim)]), node.code)]
    return ", ".join([f"{shape} {dtype_of(code)}" for shape, code in shapes]) + f" on {device_name(node.device)}"


cdef int drop_saved(Node node) noexcept:
    """Drop what the node saved; its edges stay."""
    cdef int i
    cdef PyObject* x
    for i in range(node.inputs):
        x = node.slots[i].value
        if x != NULL:
            node.slots[i].value = NULL
            (<Array>x).savers -= 1
            Py_DECREF(<object>x)
    count_saved(node.extra, -1)
    node.kept = node.extra = None
    node.versions = 0
    return 0


cdef int take_over(Node node, Node source) noexcept:
    """Move the edges and the saved values of `source` to `node`."""
    cdef int i
    node.extra = None       # before `drop`, which would clear the run's pointer to the node
    node.drop()
    node.inputs, node.slots = source.inputs, node.few
    if source.slots == source.few:
        node.few = source.few
    else:
        node.slots, source.slots = source.slots, source.few
    source.inputs = 0
    for i in range(node.inputs):
        # The node is older than `source`, which saved the value: `replace_saved` must not stop before it.
        if node.slots[i].value != NULL and (<Array>node.slots[i].value).saved_since > node.sequence:
            (<Array>node.slots[i].value).saved_since = node.sequence
    node.kept, node.extra, node.versions, node.freed = source.kept, source.extra, source.versions, False
    source.kept = source.extra = None
    bury()
    return 0


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Run:
    """A call of a function, from its first run until the second has filled its nodes."""
    cdef object function
    cdef tuple args
    cdef dict kwargs
    cdef list arguments             # the tensors among them
    cdef list versions              # and the versions of these
    cdef object outer               # the run around the first one, while that lasts; a second run notifies no other
    cdef bint second
    cdef int64_t since, until       # the moments at which the first run began and ended
    cdef int64_t began              # and at which the current run began
    cdef list elsewhere             # (first moment, end) of other runs that were repeated during this one
    cdef vector[Reference] nodes    # of the recorded operations (NULL: it died); of fixed size once places point to it
    cdef bint owns                  # whether `nodes` holds references, as it does during a run
    cdef list ops                   # (the record of each of these operations, the plain values that it depends on)
    cdef vector[int64_t] numbers    # and the sequence numbers of their nodes
    cdef size_t position            # how many operations the second run has recorded
    cdef dict fresh                 # address -> node, of those of the second run that replace no node of the first
    cdef int64_t resumed            # the last sequence number before the second run; that of a leaf is negative
    cdef set gone                   # the addresses of the nodes of leaves that the first run made and that have died
    cdef list reads                 # in order: (a weak reference to a tensor that is older than the run, its version)
    cdef Py_ssize_t reading         # how many reads the second run has made
    cdef dict writes                # id -> (a weak reference to an older tensor that is written to, its first values)
    cdef list kept                  # in a second run: (one of these tensors, its memory)
    cdef list calls                 # of modules: (a weak reference, the name of the class, whether it is training)
    cdef Py_ssize_t call            # how many calls of modules the second run has made
    cdef list draws                 # of random numbers: (the number of blocks, what the generator returned)
    cdef Py_ssize_t draw            # how many draws the second run has made
    cdef object difference          # between the runs, as an error, which the function may have caught
    cdef object lock
    cdef object thread              # of the second run, while it lasts

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 arguments: list[Tensor]) -> None:
        self.function, self.args, self.kwargs, self.arguments = function, rebuilt(args), rebuilt(kwargs), arguments
        self.versions = [version(<Array?>x) for x in arguments]
        self.ops, self.calls, self.draws, self.reads, self.elsewhere, self.kept = [], [], [], [], [], []
        self.fresh, self.writes = {}, {}
        self.lock = threading.RLock()

    def __dealloc__(self):
        self.disown()

    # ── the first run ──

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function and return its result; drop what its operations saved."""
        self.outer, self.owns = current_run(), True
        self.since = self.began = next_moment()
        set_run(self)
        try:
            result = self.function(*args, **kwargs)
            self.check_first()
            self.drop()
        finally:
            set_run(self.outer)
            self.outer, self.until = None, next_moment()
            self.disown()
        return result

    cdef int check_first(self) except -1:
        """Refuse a function that the second run would not repeat."""
        for k, x in enumerate(self.arguments):
            if version(<Array>x) != self.versions[k]:
                raise GradientError(f"[recompute] expected a function that leaves its arguments as they are, got one "
                                    f"that writes to {self.name(<Array>x)} in place: let it work on a copy")
        for reference, known in self.reads:
            x = reference()
            if x is not None and not self.writes_to(<Array>x) and version(<Array>x) != known:
                raise self.foreign(<Array>x)
        self.writes = {key: entry for key, entry in self.writes.items() if entry[0]() is not None}
        cdef set found = set()
        for reference, _ in self.writes.values():   # of memory that tensors share, each could not have its own again
            x = reference()
            if <size_t>(<Array>x).buffer in found:
                raise GradientError(f"[recompute] expected a function that writes to memory of one tensor, got one "
                                    f"that writes to {self.name(<Array>x)}, which shares it with another")
            found.add(<size_t>(<Array>x).buffer)
        return 0

    cdef int drop(self) except -1:
        """Drop what the nodes saved, and the run's references to them; a node that nothing else uses dies."""
        cdef size_t k = self.nodes.size()
        cdef Node node
        cdef int i
        cdef Place place
        cdef list places = [Place.__new__(Place) for _ in range(k)]
        while k > 0:            # the newest first, as it uses older ones
            k -= 1
            if self.nodes[k] == NULL:
                continue
            if Py_REFCNT(self.nodes[k]) == 1:
                self.disown_node(k)
                continue
            node, place = <Node>self.nodes[k], places[k]
            place.run, place.node = self, &self.nodes[k]
            drop_saved(node)
            node.extra = place
            Py_DECREF(node)
        self.owns = False
        if self.gone is not None:
            return 0
        self.gone = set()
        for k in range(self.nodes.size()):
            if self.nodes[k] == NULL:
                continue
            node = <Node>self.nodes[k]
            for i in range(node.inputs):
                if node.slots[i].edge != NULL and (<Node>node.slots[i].edge).op.differentiate == accumulate \
                        and (<Node>node.slots[i].edge).leaf == NULL:
                    self.gone.add(<size_t>node.slots[i].edge)
        return 0

    cdef int disown(self) noexcept:
        """Drop the run's references to nodes."""
        cdef size_t k = self.nodes.size()
        while self.owns and k > 0:
            k -= 1
            if self.nodes[k] != NULL:
                self.disown_node(k)
        self.owns = False
        return 0

    cdef int disown_node(self, size_t k) noexcept:
        cdef PyObject* node = self.nodes[k]
        self.nodes[k] = NULL
        Py_DECREF(<object>node)
        return 0

    # ── the second run ──

    def restore(self, Node node) -> None:
        """Run the function again, which restores the saved values of this and the other nodes of the first run."""
        if not self.lock.acquire(timeout=calls.PATIENCE):
            raise GradientError(f"[recompute] a second run in another thread did not end within {calls.PATIENCE} "
                                f"seconds: two passes that wait for each other do not, so run passes over a tape that "
                                f"threads share outside of functions that recompute was given")
        try:
            if type(node.extra) is not Place or (<Place>node.extra).run is not self:
                return      # another thread has been here in the meantime
            if self.second or self.function is None:
                raise GradientError("[recompute] expected a second run that needs no values of the first, got a "
                                    "function that differentiates what its first run computed")
            self.repeat()
        finally:
            self.lock.release()

    cdef int repeat(self) except -1:
        cdef size_t k
        cdef Run run
        self.difference = None
        self.check_unchanged()
        for k in range(self.nodes.size()):
            if self.nodes[k] != NULL:
                Py_INCREF(<object>self.nodes[k])
        self.owns = self.second = True
        self.position = self.call = self.draw = self.reading = 0
        self.resumed, self.began, self.elsewhere = last_sequence(), next_moment(), []
        self.thread = threading.get_ident()
        repeating.append(self)
        before, recorded = set_run(self), set_recording(True)
        try:
            for reference, values in self.writes.values():
                x = reference()
                if x is not None:
                    self.kept.append((x, alias(<Array>x)))
                    point(<Array>x, copied(<Array>values))
            self.function(*rebuilt(self.args), **rebuilt(self.kwargs))
            if self.difference is not None:
                raise self.difference
            self.check_second()
        except BaseException as error:
            self.drop()
            error.add_note("in the second run of a function that recompute was given, within a backward pass")
            raise
        else:
            self.function = self.args = self.kwargs = self.arguments = self.reads = self.writes = self.calls = None
        finally:
            set_run(before)
            set_recording(recorded)
            self.finish()
            around = before
            while type(around) is Run:
                run = <Run>around
                if not run.within(self.since):      # it fills an older part of the tape
                    run.elsewhere.append((self.began, next_moment()))
                around = run.outer
        return 0

    cdef int finish(self) except -1:
        """End the second run."""
        self.second, self.fresh, self.thread = False, {}, None
        for x, memory in self.kept:
            point(<Array>x, <Array>memory)
        self.kept = []
        self.disown()
        repeating.remove(self)
        return 0

    cdef int check_unchanged(self) except -1:
        """Raise if tensors that the first run read have changed since."""
        for x, known in [*zip(self.arguments, self.versions), *[(x(), known) for x, known in self.reads]]:
            if x is not None and not self.writes_to(<Array>x) and version(<Array>x) != known:
                raise self.changed(f"{self.name(<Array>x)} was written in place")
        for reference, values in self.writes.values():
            x = reference()
            if x is not None and not alike(<Array>x, <Array>values):
                raise self.changed(f"{self.name(<Array>x)} became another tensor")
        return 0

    cdef int check_second(self) except -1:
        """Raise if the second run did less than the first."""
        if self.position < self.nodes.size():
            raise self.differs(f"{self.position} recorded operations instead of {self.nodes.size()}")
        if self.call < len(self.calls) or self.draw < len(self.draws):
            raise self.differs("fewer calls of modules, or fewer random numbers")
        if self.reading < len(self.reads):
            raise self.changed(f"{self.named(self.reads[self.reading][0]())} is not read any more")
        return 0

    cdef object foreign(self, Array x):
        """The error for a recorded write to a tensor that is older than the run."""
        return GradientError(f"[recompute] expected a function that writes only to tensors of its own while operations "
                             f"are recorded, got one that changes {self.name(x)}: let it work on a copy, or write "
                             f"under minigrad.no_grad()")

    cdef object changed(self, str what):
        """The error for a second run that would read something else."""
        return self.noted(f"[recompute] expected what the function reads to stay as it is until the backward pass, but "
                          f"{what}")

    cdef object differs(self, str what):
        """The error for a second run that does something else."""
        return self.noted(f"[recompute] expected the second run of the function to do the same as the first, got "
                          f"{what}: it may depend only on tensors, on the modes of modules and on minigrad's random "
                          f"numbers, and on values that stay the same")

    cdef object noted(self, str text):
        """The error for the first difference; it is kept, because the function may catch it."""
        if self.difference is None:
            self.difference = GradientError(text)
        return self.difference

    cdef str named(self, object x):
        """The name of a tensor that may have died."""
        return "a tensor that is gone" if x is None else self.name(<Array>x)

    cdef str name(self, Array x):
        """The name by which the user knows x."""
        for key, value in [*enumerate(self.args), *self.kwargs.items()]:
            if holds(value, x):
                return f"{'' if value is x else 'a tensor in '}argument {key!r}"
        for reference, kind, _ in self.calls:
            for key, value in vars(reference()).items() if reference() is not None else ():
                if value is x:
                    return f"{kind}.{key}"
        return f"a tensor of shape {shape_of(x)} and {dtype_of(x.code)}"

    # ── notifications from the tape ──

    cdef bint made(self, Array x):
        """Whether the current run made x."""
        return self.within(x.moment)

    cdef bint within(self, int64_t moment):
        """Whether a moment belongs to the current run."""
        if moment < self.began:
            return False
        for first, end in self.elsewhere:
            if first <= moment < end:
                return False
        return True

    cdef bint writes_to(self, Array x):
        """Whether the function writes to x, which is older than the run."""
        entry = self.writes.get(id(x))
        return entry is not None and entry[0]() is x

    cdef list constants(self, Node node):
        """The plain values that an operation depends on, including those that the run converted to tensors."""
        cdef list found = [] if node.extra is None else [plain(node.extra)]
        cdef int i
        cdef Array x
        for i in range(node.inputs):
            if node.slots[i].value != NULL and node.slots[i].edge == NULL:
                x = <Array>node.slots[i].value
                if x.buffer.device == 0 and self.made(x) and is_constant(x):
                    found.append(first_element(x))
        return found

    cdef Run repeating(self):
        """The innermost second run of this thread, or None."""
        run = self
        while type(run) is Run and not (<Run>run).second:
            run = (<Run>run).outer
        return run if type(run) is Run else None

    def repeated(self) -> bool:
        """Whether a second run of this thread is repeating a first one."""
        return self.repeating() is not None

    def has_hooks(self, Node node) -> bool:
        """Whether the first run has already added the hooks that a second one adds to this node."""
        cdef Run run = self.repeating()
        return run is not None and <size_t><PyObject*>node not in run.fresh \
            and not (node.op.differentiate == accumulate and -node.sequence > run.resumed)

    def recorded(self, Node node, outs: tuple[Tensor, ...]) -> object:
        """Note an operation; return its node or, in a second run, that of the first run in its place."""
        cdef size_t k
        cdef Node other
        if not self.second:
            if self.outer is not None:
                node = self.outer.recorded(node, outs)
            self.ops.append((node.op, self.constants(node)))
            self.numbers.push_back(node.sequence)
            Py_INCREF(node)
            self.nodes.push_back(<PyObject*>node)
            return node
        k = self.position
        self.position += 1
        if k >= self.nodes.size():
            raise self.differs(f"another operation, [{node.op.name}], after the last of the first run")
        op, known = self.ops[k]
        if op is not node.op:
            was = "" if self.nodes[k] == NULL else f", {result_of(<Node>self.nodes[k])}"
            raise self.differs(f"[{node.op.name}], {result_of(node)}, instead of [{op.name}]{was}")
        found = self.constants(node)
        if found != known and repr(found) != repr(known):       # NaN is not equal to itself
            raise self.differs(f"[{node.op.name}] with {', '.join(map(str, found))} instead of "
                               f"{', '.join(map(str, known))}")
        node.sequence = self.numbers[k]     # for passes within the function: their order is that of the first run
        if self.nodes[k] == NULL:
            self.fresh[<size_t><PyObject*>node] = node
            return node
        other = <Node>self.nodes[k]
        self.compare(other, node)
        take_over(other, node)
        for out in outs:
            if (<Array>out).node is node:
                (<Array>out).node = other
        return other

    cdef int compare(self, Node old, Node new) except -1:
        """Check that a node of the second run equals that of the first."""
        cdef int i
        cdef Node a, b
        first, second = result_of(old), result_of(new)
        if first != second:
            raise self.differs(f"results of [{new.op.name}] of another shape, dtype or device, {second} instead of "
                               f"{first}")
        if old.freed:       # by a pass within the function
            return 0
        if old.inputs != new.inputs:
            raise self.differs(f"[{new.op.name}] of {new.inputs} tensors instead of {old.inputs}")
        for i in range(new.inputs):
            if old.slots[i].edge == new.slots[i].edge and (old.slots[i].edge == NULL
                                                           or old.slots[i].output == new.slots[i].output):
                continue
            if old.slots[i].edge == NULL or new.slots[i].edge == NULL:
                now = "no longer requires" if new.slots[i].edge == NULL else "now requires"
                raise self.changed(f"input {i} of [{new.op.name}] {now} grad")
            a, b = <Node>old.slots[i].edge, <Node>new.slots[i].edge
            if a.op.differentiate == accumulate and b.op.differentiate == accumulate:
                if <size_t><PyObject*>a in self.gone and -b.sequence > self.resumed:
                    continue        # a leaf that each run makes
                if a.leaf != NULL and self.since <= (<Array>a.leaf).moment < self.until:
                    raise self.differs(f"another leaf as input {i} of [{new.op.name}], which it makes again while that "
                                       f"of the first run is still in use: make it outside of the function")
                raise self.changed(f"input {i} of [{new.op.name}] is another leaf, as when a parameter was replaced")
            if a.freed and a.op.differentiate != accumulate:
                continue            # no pass can go there
            raise self.changed(f"input {i} of [{new.op.name}] has another history")
        return 0

    def read(self, Array x) -> None:
        """Note a tensor whose values are read, unless the run made it."""
        if self.outer is not None and not self.second:
            self.outer.read(x)
        if self.made(x):
            return
        if not self.second:
            self.reads.append((ref(x), version(x)))
            return
        if self.reading >= len(self.reads):
            raise self.changed(f"{self.name(x)} is read, which the first run has not read: a function that keeps a "
                               f"state has to write it in place, as with copy_")
        reference, known = self.reads[self.reading]
        self.reading += 1
        if reference() is not x:
            raise self.changed(f"{self.name(x)} is read where the first run has read {self.named(reference())}: a "
                               f"function that keeps a state has to write it in place, as with copy_")
        if version(x) != known:
            raise self.changed(f"{self.name(x)} was written in place")

    def before_write(self, Array x) -> None:
        """Note the values of a tensor before a write, and of those that share its memory, unless the run made them."""
        cdef Array y
        cdef list found = [] if self.made(x) else [x]
        if self.outer is not None and not self.second:
            self.outer.before_write(x)
        if x.buffer.references > 1:
            for reference, _ in self.reads:
                y = reference()
                if y is not None and y.buffer == x.buffer:
                    found.append(y)
        for known in found:
            if self.writes_to(<Array>known):
                continue
            if self.second:
                raise self.differs(f"a write to {self.name(<Array>known)}")
            self.writes[id(known)] = ref(known), copied(<Array>known)

    def before_recorded_write(self, Array x) -> None:
        if not self.made(x):
            raise self.foreign(x)

    def drawn_before(self, blocks: int) -> list[int] | None:
        """The next blocks of random numbers in a second run: those of the first. None in a first run."""
        cdef Run run = self.repeating()
        if run is None:
            return None
        if run.draw >= len(run.draws) or run.draws[run.draw][0] != blocks:
            raise run.differs("other random numbers")
        run.draw += 1
        return run.draws[run.draw - 1][1]

    def drew(self, blocks: int, drawn: list[int]) -> None:
        """Note blocks of random numbers."""
        run = self
        while type(run) is Run and not (<Run>run).second:
            (<Run>run).draws.append((blocks, drawn))
            run = (<Run>run).outer

    def before_set(self) -> None:
        raise GradientError("[set_] a function that recompute was given cannot make another tensor of one: it runs "
                            "again within a backward pass; write in place, as with copy_")

    def before_backward(self) -> None:
        raise GradientError("[recompute] expected a function that adds to no tensor's grad, which its second run would "
                            "do again, got one that calls backward: use minigrad.grad in it")

    def touches_grad(self, leaf: Tensor, replaced: bool) -> None:
        if self.outer is not None:
            self.outer.touches_grad(leaf, replaced)

    def calls_hook(self) -> None:
        if self.outer is not None:
            self.outer.calls_hook()

    def entered(self, module: Any) -> None:
        """Note the call of a module."""
        if self.outer is not None and not self.second:
            self.outer.entered(module)
        kind, training = type(module).__name__, bool(getattr(module, "training", False))
        if not self.second:
            self.calls.append((ref(module), kind, training))
            return
        if self.call >= len(self.calls) or self.calls[self.call][1] != kind:
            raise self.differs(f"a call of {kind} that the first run has not made")
        reference, _, was_training = self.calls[self.call]
        self.call += 1
        if reference() is not None and reference() is not module:
            raise self.changed(f"a {kind} was replaced by another one")
        if training != was_training:
            modes = "evaluation", "training"
            raise self.changed(f"{kind} went from {modes[was_training]} to {modes[training]}")


cdef list repeating = []    # the second runs in progress


def forget_other_threads() -> None:
    """In the child of a fork, end the second runs of other threads, which a pass of this thread may start again."""
    cdef Run run
    for run in list(repeating):
        if run.thread != threading.get_ident():
            run.drop()
            run.finish()
            run.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
