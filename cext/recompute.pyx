"""Recomputation: a function that keeps nothing for the backward pass runs again when the pass needs its values.

The first run records nodes as any code does, with their edges, so that the tape is that of the plain function: passes
that are recorded themselves, hooks, and captured tensors need nothing special. When the function returns, `Run` drops
the values that these nodes have saved. The first backward pass that arrives at one of them runs the function again. The
second run has to record the same operations with the same edges. Each hands the values that it saves to the node of the
first run, which also becomes the maker of its results, so that no other tape comes into being.

A run is told of everything that the function reads, writes and draws (`tape.set_run`). Runs may be nested. The part of
the tape that a second run fills belongs to the first runs around it already, so what happens in it is not passed on.
"""
import threading

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t
from libcpp.vector cimport vector

from collections.abc import Callable
from typing import Any
from weakref import ref

from minigrad.engine.array cimport Array, alias, device_name, empty_as, point, same_shape, shape_of, version
from minigrad.engine.backend cimport backend
from minigrad.engine.dtype cimport dtype_of
from minigrad.engine.tape cimport (
    Node, Place, accumulate, bury, current_run, last_sequence, set_recording, set_run,
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
    """The same lists, tuples and dicts anew: the function or its caller may change the given ones."""
    if type(tree) is list or type(tree) is tuple:
        return type(tree)([rebuilt(part) for part in tree])
    if type(tree) is dict:
        return {key: rebuilt(part) for key, part in tree.items()}
    return tree


cdef bint holds(object tree, object x):
    """Whether x is the value, or within its lists, tuples and dicts."""
    if isinstance(tree, (list, tuple, dict)):
        return any([holds(part, x) for part in (tree.values() if isinstance(tree, dict) else tree)])
    return tree is x


cdef bint alike(Array a, Array b) noexcept:
    return a.code == b.code and a.buffer.device == b.buffer.device and same_shape(a, b)


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
    node.kept = node.extra = None
    node.versions = 0
    return 0


cdef int take_over(Node node, Node source) noexcept:
    """Move the edges and the saved values of `source` to `node`."""
    cdef int i
    node.extra = None       # not by `drop`, which would clear the run's note of the node
    node.drop()
    node.inputs, node.slots = source.inputs, node.few
    if source.slots == source.few:
        node.few = source.few
    else:
        node.slots, source.slots = source.slots, source.few
    source.inputs = 0
    for i in range(node.inputs):
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
    cdef Run outer                  # the run around this one, while it lasts
    cdef bint second
    cdef vector[Reference] nodes    # of the recorded operations; NULL: it died
    cdef bint owns                  # whether `nodes` holds references, as it does during a run
    cdef list ops                   # the records of these operations
    cdef vector[int64_t] numbers    # and the sequence numbers of their nodes
    cdef size_t position            # how many operations the second run has recorded
    cdef set own                    # the addresses of the nodes of the run that is under way
    cdef dict fresh                 # address -> node: those of the second run that take no other's place
    cdef int64_t resumed            # the last sequence number before the second run
    cdef set gone                   # the addresses of the nodes of leaves that the first run made and that are gone
    cdef dict reads                 # id -> (a tensor that the function reads and does not make, its version)
    cdef dict unread                # those that the second run has not read yet
    cdef dict writes                # id -> (a tensor that the function writes to and does not make, its first values)
    cdef list calls                 # of modules: (a weak reference, the name of the class, whether it is training)
    cdef list buffers               # of these modules: (module, name, tensor)
    cdef Py_ssize_t call            # how many calls of modules the second run has made
    cdef list draws                 # of random numbers: (how many blocks, what the generator gave)
    cdef Py_ssize_t draw            # how many draws the second run has made
    cdef object difference          # between the runs, as an error, which the function may have caught
    cdef object lock

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                 arguments: list[Tensor]) -> None:
        self.function, self.args, self.kwargs, self.arguments = function, rebuilt(args), rebuilt(kwargs), arguments
        self.versions = [version(<Array?>x) for x in arguments]
        self.ops, self.calls, self.buffers, self.draws = [], [], [], []
        self.own, self.fresh, self.reads, self.writes = set(), {}, {}, {}
        self.lock = threading.RLock()

    def __dealloc__(self):
        self.disown()

    # ── the first run ──

    def first(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of the function, and keep what its operations save for the second run to compute."""
        self.outer, self.owns = current_run(), True
        set_run(self)
        try:
            result = self.function(*args, **kwargs)
            self.check_first()
            self.reads, self.writes = self.without_results(self.reads), self.without_results(self.writes)
            self.drop()
            self.reads, self.writes = alive(self.reads), alive(self.writes)
            self.check_writes()
        finally:
            set_run(self.outer)
            self.outer, self.own, self.buffers = None, set(), []
            self.disown()
        return result

    cdef dict without_results(self, dict noted):
        """The noted tensors that are not recorded results of this run."""
        return {key: entry for key, entry in noted.items() if entry[0]() is not None and not self.made(entry[0]())}

    cdef int check_first(self) except -1:
        """Refuse a function that the second run would not repeat."""
        for k, x in enumerate(self.arguments):
            if version(<Array>x) != self.versions[k]:
                raise GradientError(f"[recompute] expected a function that leaves its arguments as they are, got one "
                                    f"that writes to {self.name(<Array>x)} in place: let it work on a copy")
        for module, name, buffer in self.buffers:
            if getattr(module, name, None) is not buffer:
                raise GradientError(f"[recompute] expected modules that keep their buffers, got "
                                    f"{type(module).__name__}, which replaces {name!r}: let it write in place, as in "
                                    f"self.{name}.copy_(value)")
        return 0

    cdef int check_writes(self) except -1:
        """Refuse writes to memory of which the second run could not give each tensor its own."""
        cdef set found = set()
        for x, _ in self.writes.values():
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
                if node.slots[i].edge != NULL and (<Node>node.slots[i].edge).op.run == accumulate \
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
        """Run the function again, so that this and the other nodes of the first run hold what they saved."""
        with self.lock:
            if type(node.extra) is not Place or (<Place>node.extra).run is not self:
                return      # another thread has been here in the meantime
            if self.second or self.function is None:
                raise GradientError("[recompute] expected a second run that needs no values of the first, got a "
                                    "function that differentiates what its first run computed")
            self.repeat()

    cdef int repeat(self) except -1:
        cdef size_t k
        cdef list kept = []
        self.difference = None
        self.check_unchanged()
        for k in range(self.nodes.size()):
            if self.nodes[k] != NULL:
                Py_INCREF(<object>self.nodes[k])
                self.own.add(<size_t>self.nodes[k])
        self.owns = self.second = True
        self.position = self.call = self.draw = 0
        self.unread = {key: x for key, (x, _) in self.reads.items()}
        self.resumed = last_sequence()
        before, recorded = set_run(self), set_recording(True)
        try:
            for x, values in self.writes.values():
                kept.append((x, alias(<Array>x)))
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
            self.second, self.own, self.fresh, self.unread = False, set(), {}, None
            for x, memory in kept:
                point(<Array>x, <Array>memory)
            self.disown()
        return 0

    cdef int check_unchanged(self) except -1:
        """Refuse to run on other values than those of the first run."""
        for x, known in [*zip(self.arguments, self.versions), *self.reads.values()]:
            if id(x) not in self.writes and version(<Array>x) != known:
                raise self.changed(f"{self.name(<Array>x)} was written in place")
        for x, values in self.writes.values():
            if not alike(<Array>x, <Array>values):
                raise self.changed(f"{self.name(<Array>x)} became another tensor")
        return 0

    cdef int check_second(self) except -1:
        """Refuse a second run that did less than the first."""
        if self.position < self.nodes.size():
            raise self.differs(f"{self.position} recorded operations instead of {self.nodes.size()}")
        if self.call < len(self.calls) or self.draw < len(self.draws):
            raise self.differs("fewer calls of modules, or fewer random numbers")
        for x in self.unread.values():
            raise self.changed(f"{self.name(<Array>x)} was replaced: the second run has not read it")
        return 0

    cdef object changed(self, str what):
        """The error for a function that reads something else now."""
        return self.noted(f"[recompute] expected what the function reads to stay as it is until the backward pass, but "
                          f"{what}")

    cdef object differs(self, str what):
        """The error for a second run that does something else."""
        return self.noted(f"[recompute] expected the second run of the function to do the same as the first, got "
                          f"{what}: it may depend only on tensors, on the modes of modules and on minigrad's random "
                          f"numbers, and on values that stay the same")

    cdef object noted(self, str text):
        """The error for the first difference, which the function may catch."""
        if self.difference is None:
            self.difference = GradientError(text)
        return self.difference

    cdef str name(self, Array x):
        """What the user knows x as."""
        for key, value in [*enumerate(self.args), *self.kwargs.items()]:
            if holds(value, x):
                return f"{'' if value is x else 'a tensor in '}argument {key!r}"
        for reference, kind, _ in self.calls:
            for key, value in vars(reference()).items() if reference() is not None else ():
                if value is x:
                    return f"{kind}.{key}"
        return f"a tensor of shape {shape_of(x)} and {dtype_of(x.code)}"

    # ── what the tape tells ──

    cdef bint made(self, Array x):
        """Whether x is a recorded result of the run that is under way."""
        return x.node is not None and <size_t><PyObject*>x.node in self.own

    cdef Run repeating(self):
        """The innermost second run of this thread, or None."""
        cdef Run run = self
        while run is not None and not run.second:
            run = run.outer
        return run

    def repeated(self) -> bool:
        """Whether what happens has happened before, in a first run."""
        return self.repeating() is not None

    def has_hooks(self, Node node) -> bool:
        """Whether the first run has already added the hooks that a second one adds to this node."""
        cdef Run run = self.repeating()
        return run is not None and <size_t><PyObject*>node not in run.fresh \
            and not (node.op.run == accumulate and -node.sequence > run.resumed)

    def recorded(self, Node node, outs: tuple[Tensor, ...]) -> object:
        """Note an operation; return its node or, in a second run, that of the first run in its place."""
        cdef size_t k
        cdef Node other
        if not self.second:
            if self.outer is not None:
                node = self.outer.recorded(node, outs)
            self.ops.append(node.op)
            self.numbers.push_back(node.sequence)
            Py_INCREF(node)
            self.nodes.push_back(<PyObject*>node)
            self.own.add(<size_t><PyObject*>node)
            return node
        k = self.position
        self.position += 1
        if k >= self.nodes.size():
            raise self.differs(f"another operation, [{node.op.name}], after the last of the first run")
        if self.ops[k] is not node.op:
            was = "" if self.nodes[k] == NULL else f", {result_of(<Node>self.nodes[k])}"
            raise self.differs(f"[{node.op.name}], {result_of(node)}, instead of [{self.ops[k].name}]{was}")
        node.sequence = self.numbers[k]     # for passes within the function: their order is that of the first run
        if self.nodes[k] == NULL:
            self.own.add(<size_t><PyObject*>node)
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
        """Check that a node of the second run is what that of the first was."""
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
            if a.op.run == accumulate and b.op.run == accumulate:
                if <size_t><PyObject*>a in self.gone and -b.sequence > self.resumed:
                    continue        # a leaf that each run makes
                raise self.changed(f"input {i} of [{new.op.name}] is another leaf, as when a parameter was replaced")
            if a.freed and a.op.run != accumulate:
                continue            # no pass can go there
            raise self.changed(f"input {i} of [{new.op.name}] has another history")
        return 0

    def read(self, Array x) -> None:
        """Note a tensor that an operation reads, unless the run made it."""
        if self.outer is not None and not self.second:
            self.outer.read(x)
        if self.made(x):
            return
        if not self.second:
            if id(x) not in self.reads or self.reads[id(x)][0]() is None:
                self.reads[id(x)] = ref(x), version(x)
        elif id(x) in self.reads:
            self.unread.pop(id(x), None)
        elif not x.needs_grad:
            # A tensor that each run makes, and that was kept elsewhere after the first, is the same if its values are.
            for key, known in list(self.unread.items()):
                if not (<Array>known).needs_grad and alike(x, <Array>known) and bits(x) == bits(<Array>known):
                    del self.unread[key]
                    break

    def before_write(self, Array x) -> None:
        """Note the values of a tensor before a write, and of those that share its memory, unless the run made them."""
        cdef Array y
        if self.outer is not None and not self.second:
            self.outer.before_write(x)
        if self.second:
            for key, (known, _) in self.reads.items():
                if (<Array>known).buffer == x.buffer and key not in self.writes:
                    raise self.differs(f"a write to {self.name(<Array>known)}")
            return
        for found in [x, *[reference() for reference, _ in self.reads.values()]]:
            if found is None:
                continue
            y = found
            if y.buffer != x.buffer or self.made(y) or (id(y) in self.writes and self.writes[id(y)][0]() is not None):
                continue
            self.writes[id(y)] = ref(y), copied(y)

    def drawn_before(self, blocks: int) -> tuple[int, int] | None:
        """The next blocks of random numbers in a second run: those of the first. None in a first run."""
        cdef Run run = self.repeating()
        if run is None:
            return None
        if run.draw >= len(run.draws) or run.draws[run.draw][0] != blocks:
            raise run.differs("other random numbers")
        run.draw += 1
        return run.draws[run.draw - 1][1]

    def drew(self, blocks: int, drawn: tuple[int, int]) -> None:
        """Note blocks of random numbers."""
        cdef Run run = self
        while run is not None and not run.second:
            run.draws.append((blocks, drawn))
            run = run.outer

    def entered(self, module: Any) -> None:
        """Note the call of a module."""
        if self.outer is not None and not self.second:
            self.outer.entered(module)
        kind, training = type(module).__name__, bool(getattr(module, "training", False))
        if not self.second:
            self.calls.append((ref(module), kind, training))
            self.buffers += [(module, name, buffer) for name, buffer in module.named_buffers(recurse=False)]
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


cdef dict alive(dict noted):
    """The tensors that are still there, held from now on, so that one that takes the place of another is told apart."""
    return {key: (reference(), known) for key, (reference, known) in noted.items() if reference() is not None}


cdef bytes bits(Array x):
    run = set_run(None)
    try:
        return x._detached_numpy().tobytes()
    finally:
        set_run(run)
