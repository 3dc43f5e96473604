"""Recomputation: a function that saves nothing for the backward pass runs again when the pass reaches it.

A call of the function is one node of the tape. The first run is recorded as usual, but its nodes die when the function
returns, because the results get the node of the call instead. The inputs of that node are the older nodes to which the
first run's nodes lead. In a backward pass, the function runs again, and an inner pass takes the gradients of the
results to the inputs. So hooks, nested uses and derivatives of every order need no special treatment.

`FirstRun` notes what the function reads, draws and writes; `SecondRun` checks that it does the same again.
"""
import os
import threading

cimport cython
from libc.stdint cimport int64_t

from collections.abc import Callable
from typing import Any
from weakref import ref

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, alias, empty_as, first_element, next_moment, point, shape_of, version
from minigrad.engine.memory.dtype cimport dtype_of
from minigrad.engine.memory.listener cimport Listener, current_listener, set_listener
from minigrad.engine.memory.shapes cimport device_name
from minigrad.engine.tape.backward cimport continue_pass
from minigrad.engine.tape.hooks cimport show_collector
from minigrad.engine.tape.in_place cimport follow
from minigrad.engine.tape.node cimport Node, Op, described, set_recording
from minigrad.engine.tape.record cimport is_leaf, last_sequence, leaf_op, track_many
from minigrad.engine.memory import calls
from minigrad.engine.tape.node import GradientError
from minigrad.engine.tensor.trees import leaves


cdef Op recompute_op = described("recompute", run_again, "y = f(x…), of which nothing is saved",
                                 "dx: the derivative of f, which runs again", "x…", "y…", "")


cdef Array copied(Array x):
    """A copy of x, with the version of its memory, of which no listener is told."""
    cdef Array out
    before = set_listener(None)
    try:
        out = empty_as(x, x.code)
        backend(x).copy(x, out)
        out.buffer.version = x.buffer.version
        return out
    finally:
        set_listener(before)


cdef object rebuilt(object tree):
    """A copy of lists, tuples and dicts, at every depth: the function or its caller may change the originals."""
    if type(tree) is list or type(tree) is tuple:
        return type(tree)([rebuilt(part) for part in tree])
    if type(tree) is dict:
        return {key: rebuilt(part) for key, part in tree.items()}
    return tree


cdef object changed(str what):
    return GradientError(f"[recompute] expected what the function reads to stay as it is until the backward pass, but "
                         f"{what}")


cdef object differs(str what):
    return GradientError(f"[recompute] expected the second run of the function to do the same as the first, got {what}:"
                         f" it may depend only on tensors, on the modes of modules and on minigrad's random numbers, "
                         f"and on values that stay the same")


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class FirstRun(Listener):
    """A call of a function, and what it depends on."""
    cdef object function
    cdef tuple args
    cdef dict kwargs
    cdef int64_t began              # the moment, which tells tensors that the run makes from others
    cdef list reads                 # in order: (weak reference, version, whether it requires grad) of older tensors
    cdef dict writes                # id -> (weak reference, first values) of each older tensor that is written
    cdef list ops                   # see `outline`
    cdef list modules               # (weak reference, class name, whether it is training) of each call of a module
    cdef list drawn                 # (number of blocks, what the generator returned) of random numbers
    cdef object lock

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, rebuilt(args), rebuilt(kwargs)
        self.reads, self.writes = [], {}
        self.ops, self.modules, self.drawn = [], [], []
        self.lock = threading.RLock()

    def run(self) -> Any:
        """Run the function, and return its result with the call as its history."""
        cdef list given = [x for x in leaves((self.args, self.kwargs)) if isinstance(x, Array)], outs
        versions, since = [version(<Array>x) for x in given], last_sequence()
        self.outer, self.began = current_listener(), next_moment()
        set_listener(self)
        try:
            result = self.function(*rebuilt(self.args), **rebuilt(self.kwargs))
        finally:
            set_listener(self.outer)
            self.outer = None
        for x, known in zip(given, versions):
            if version(<Array>x) != known:
                raise GradientError(f"[recompute] expected a function that leaves its arguments as they are, got one "
                                    f"that writes to {self.name_of(x)} in place: let it work on a copy")
        self.check_writes()
        outs = results_since(result, self.began)
        made, inputs = history_since(outs, since, self.began)
        if inputs:
            before = [(<Array>y).node for y in outs]
            track_many(recompute_op, outs, inputs, [], (self,))
            for y, node in zip(outs, before):
                follow(<Array>y, <Node>node, <Node>(<Array>y).node)
                show_collector(<Array>y)        # the function may lead to what it has returned
            del before, node    # all of the first run dies here
        if any([reference() is not None for reference in made]):
            raise GradientError("[recompute] expected a function that keeps no leaf that it makes, as its second run "
                                "makes another one, which gets the gradient: make it outside of the function")
        return result

    cdef int check_writes(self) except -1:
        """Refuse writes that the second run could not repeat."""
        for reference, known, _ in self.reads:
            x = reference()
            if x is not None and id(x) not in self.writes and version(<Array>x) != known:
                raise self.foreign_write(x)
        self.writes = {key: entry for key, entry in self.writes.items() if entry[0]() is not None}
        cdef set found = set()
        for reference, _ in self.writes.values():   # tensors that share memory could not each have it again
            x = reference()
            if <size_t>(<Array>x).buffer in found:
                raise GradientError(f"[recompute] expected a function that writes to memory of one tensor, got one "
                                    f"that writes to {self.name_of(x)}, which shares it with another")
            found.add(<size_t>(<Array>x).buffer)
        return 0

    cdef object foreign_write(self, object x):
        """The error for a recorded write to a tensor from outside."""
        return GradientError(f"[recompute] expected a function that writes only to tensors of its own while operations "
                             f"are recorded, got one that changes {self.name_of(x)}: let it work on a copy, or write "
                             f"under minigrad.no_grad()")

    cdef str name_of(self, object x):
        """The name by which the user knows a tensor."""
        for key, value in [*enumerate(self.args), *self.kwargs.items()]:
            if any([x is part for part in leaves((value,))]):
                return f"{'' if value is x else 'a tensor in '}argument {key!r}"
        for reference, kind, _ in self.modules:
            for key, value in vars(reference()).items() if reference() is not None else ():
                if value is x:
                    return f"{kind}.{key}"
        return f"a tensor of shape {shape_of(<Array>x)} and {dtype_of((<Array>x).code)}"

    # ── notifications ──

    def read(self, Array x: Tensor) -> None:
        Listener.read(self, x)
        if x.moment < self.began:
            self.reads.append((ref(x), version(x), bool(x.needs_grad)))

    def before_write(self, Array x: Tensor) -> None:
        """Note the values of a tensor, and of those that share its memory, unless the run made them."""
        cdef list found = [x] if x.moment < self.began else []
        Listener.before_write(self, x)
        if x.buffer.references > 1:
            found += [y for y in [reference() for reference, _, _ in self.reads]
                      if y is not None and (<Array>y).buffer == x.buffer]
        for y in found:
            if id(y) not in self.writes:
                self.writes[id(y)] = ref(y), copied(<Array>y)

    def before_recorded_write(self, Array x: Tensor) -> None:
        if x.moment < self.began:
            raise self.foreign_write(x)

    def before_set(self) -> None:
        raise GradientError("[set_] a function that recompute was given cannot make another tensor of one: it runs "
                            "again within a backward pass; write in place, as with copy_")

    def before_backward(self) -> None:
        raise GradientError("[recompute] expected a function that adds to no tensor's grad, which its second run would "
                            "do again, got one that calls backward: use minigrad.grad in it")

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        Listener.recorded(self, sequence, op, outs)
        self.ops.append(outline(op, outs, self.began))

    def calls_module(self, module: Any) -> None:
        Listener.calls_module(self, module)
        self.modules.append((ref(module), type(module).__name__, bool(getattr(module, "training", False))))

    def drew(self, blocks: int, drawn: list[int]) -> None:
        Listener.drew(self, blocks, drawn)
        self.drawn.append((blocks, drawn))


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class SecondRun(Listener):
    """Another run of the function, in a backward pass."""
    cdef FirstRun first
    cdef int64_t began
    cdef size_t position, op, module, draw      # how many reads, operations, ... it has repeated
    cdef int outputs
    cdef list memory                # (tensor, its memory) of those that the function writes
    cdef object difference          # the first one, which the function may have caught
    cdef object thread

    def __cinit__(self, FirstRun first):
        self.first, self.memory, self.thread = first, [], threading.get_ident()

    cdef list run(self, Node node):
        """The results that require grad."""
        cdef FirstRun first = self.first
        self.outputs = node.outputs
        for reference, known, _ in first.reads:
            x = reference()
            if x is not None and id(x) not in first.writes and version(<Array>x) != known:
                raise changed(f"{first.name_of(x)} was written in place")
        self.outer, self.began = current_listener(), next_moment()
        recording = set_recording(True)
        running.append(self)
        set_listener(self)
        try:
            self.bring_back_first_values()
            outs = results_since(first.function(*rebuilt(first.args), **rebuilt(first.kwargs)), self.began)
            if self.difference is None:
                self.check_end(outs)
            if self.difference is not None:
                raise self.difference
        except BaseException as error:
            error.add_note("in the second run of a function that recompute was given, within a backward pass")
            raise
        finally:
            set_listener(self.outer)
            set_recording(recording)
            self.outer = None
            self.restore_memory()
            running.remove(self)
        return outs

    cdef int bring_back_first_values(self) except -1:
        """Let the tensors that the function writes have the values that they had in its first run."""
        for reference, values in self.first.writes.values():
            x = reference()
            if x is None:
                continue
            if layout(<Array>x) != layout(<Array>values):
                raise changed(f"{self.first.name_of(x)} became another tensor")
            self.memory.append((x, alias(<Array>x)))
            point(<Array>x, copied(<Array>values))
        return 0

    cdef int restore_memory(self) except -1:
        for x, memory in self.memory:
            point(<Array>x, <Array>memory)
        self.memory = []
        return 0

    cdef int check_end(self, list outs) except -1:
        cdef FirstRun first = self.first
        if self.op < <size_t>len(first.ops):
            self.stop(differs(f"{self.op} recorded operations instead of {len(first.ops)}"))
        if self.module < <size_t>len(first.modules) or self.draw < <size_t>len(first.drawn):
            self.stop(differs("fewer calls of modules, or fewer random numbers"))
        if self.position < <size_t>len(first.reads):
            x = first.reads[self.position][0]()
            name = "a tensor that is gone" if x is None else first.name_of(x)
            self.stop(changed(f"{name} is not read any more"))
        if <int>len(outs) != self.outputs:
            self.stop(differs(f"{len(outs)} results that require grad instead of {self.outputs}"))
        return 0

    cdef int stop(self, object difference) except -1:
        if self.difference is None:
            self.difference = difference
        raise self.difference

    # ── notifications ──

    def read(self, Array x: Tensor) -> None:
        Listener.read(self, x)
        if x.moment >= self.began:
            return
        if self.position >= <size_t>len(self.first.reads):
            self.stop(changed(f"{self.first.name_of(x)} is read, which the first run has not read: a function that "
                              f"keeps a state has to write it in place, as with copy_"))
        reference, known, needed_grad = self.first.reads[self.position]
        self.position += 1
        if reference() is not x:
            was = "a tensor that is gone" if reference() is None else self.first.name_of(reference())
            self.stop(changed(f"{self.first.name_of(x)} is read where the first run has read {was}: a function that "
                              f"keeps a state has to write it in place, as with copy_"))
        if version(x) != known:
            self.stop(changed(f"{self.first.name_of(x)} was written in place"))
        if bool(x.needs_grad) != needed_grad:
            now = "no longer" if needed_grad else "now"
            self.stop(changed(f"{self.first.name_of(x)} {now} requires grad"))

    def before_write(self, Array x: Tensor) -> None:
        if x.moment < self.began and id(x) not in self.first.writes:
            self.stop(differs(f"a write to {self.first.name_of(x)}"))

    def before_recorded_write(self, Array x: Tensor) -> None:
        if x.moment < self.began:
            raise self.first.foreign_write(x)

    def before_set(self) -> None:
        self.first.before_set()

    def before_backward(self) -> None:
        self.first.before_backward()

    def adds_hook(self, Array x: Tensor) -> bool:
        """To older tensors, the first run has added it."""
        return x.moment >= self.began and Listener.adds_hook(self, x)

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        Listener.recorded(self, sequence, op, outs)
        if self.op >= <size_t>len(self.first.ops):
            self.stop(differs(f"another operation, [{op}], after the last of the first run"))
        now, was = outline(op, outs, self.began), self.first.ops[self.op]
        self.op += 1
        if now[:2] != was[:2]:
            self.stop(differs(f"{text_of(now[0], now[1])}, instead of {text_of(was[0], was[1])}"))
        if now != was and repr(now) != repr(was):       # NaN is not equal to itself
            self.stop(differs(f"[{op}] with {', '.join(map(str, now[2]))} instead of {', '.join(map(str, was[2]))}"))

    def calls_module(self, module: Any) -> None:
        Listener.calls_module(self, module)
        kind, training = type(module).__name__, bool(getattr(module, "training", False))
        if self.module >= <size_t>len(self.first.modules) or self.first.modules[self.module][1] != kind:
            self.stop(differs(f"a call of {kind} that the first run has not made"))
        reference, _, was_training = self.first.modules[self.module]
        self.module += 1
        if reference() is not None and reference() is not module:
            self.stop(changed(f"a {kind} was replaced by another one"))
        if training != was_training:
            modes = "evaluation", "training"
            self.stop(changed(f"{kind} went from {modes[was_training]} to {modes[training]}"))

    def draws(self, blocks: int) -> list[int]:
        if self.draw >= <size_t>len(self.first.drawn) or self.first.drawn[self.draw][0] != blocks:
            self.stop(differs("other random numbers"))
        self.draw += 1
        return self.first.drawn[self.draw - 1][1]

    def drew(self, blocks: int, drawn: list[int]) -> None:
        pass

    def repeats_draws(self) -> bool:
        return True


cdef list results_since(object result, int64_t moment):
    """The tensors in a result that have been computed since then and require grad, each once."""
    cdef dict found = {}
    for x in leaves((result,)):
        if isinstance(x, Array) and (<Array>x).needs_grad and (<Array>x).moment >= moment and not is_leaf(<Array>x):
            found[id(x)] = x
    return list(found.values())


cdef tuple history_since(list outs, int64_t sequence, int64_t moment):
    """Find where the history of tensors leads: weak references to leaves since then, and the outputs of older nodes.

    No output of an older node need have been read: a gradient that the function takes reads what backward has saved.
    """
    cdef set seen = set()
    cdef list made = [], older = [], stack = [((<Array>x).node, (<Array>x).output) for x in reversed(outs)]
    cdef Array input
    cdef Node node
    cdef int i
    while stack:
        node, output = place = stack.pop()
        if place in seen:
            continue
        seen.add(place)
        if node.op is leaf_op and node.leaf == NULL:
            continue
        if node.leaf != NULL and (<Array>node.leaf).moment >= moment:
            made.append(ref(<object>node.leaf))
        elif node.sequence <= sequence:
            input = alias(<Array>outs[0])       # any tensor serves to name an output
            input.node, input.needs_grad, input.output = node, True, output
            older.append(input)
        else:
            for i in reversed(range(node.inputs)):
                if node.slots[i].edge != NULL:
                    stack.append((<Node>node.slots[i].edge, node.slots[i].output))
    return made, older


cdef tuple layout(Array x):
    return shape_of(x), x.code, x.buffer.device


cdef str text_of(str op, list layouts):
    """The results of an operation in words."""
    return f"[{op}], " + ", ".join([f"{shape} {dtype_of(code)} on {device_name(device)}"
                                    for shape, code, device in layouts])


cdef tuple outline(str op, tuple outs, int64_t began):
    """(the operation, the layouts of its results, the numbers and strings that it depends on)."""
    cdef list constants = []
    cdef Node node
    cdef Array x
    cdef int i
    for out in outs:
        if (<Array>out).node is not None:
            node = <Node>(<Array>out).node
            constants = [] if node.extra is None else [plain(node.extra)]
            for i in range(node.inputs):
                if node.slots[i].value != NULL and node.slots[i].edge == NULL:
                    x = <Array>node.slots[i].value
                    if x.buffer.device == 0 and x.moment >= began and is_constant(x):
                        constants.append(first_element(x))
            break
    return op, [layout(<Array>out) for out in outs], constants


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


cdef int run_again(Node node, Array g) except -1:
    """The backward of a call: run the function again, and differentiate the second run."""
    cdef FirstRun first = <FirstRun>node.extra[0]
    if not first.lock.acquire(timeout=calls.PATIENCE):
        raise GradientError(f"[recompute] a second run in another thread did not end within {calls.PATIENCE} seconds")
    try:
        outs = SecondRun(first).run(node)
    finally:
        first.lock.release()
    grads = [g] if node.outputs == 1 else [node.gradient(k) for k in range(node.outputs)]
    given = [(y, d) for y, d in zip(outs, grads) if d is not None]
    return continue_pass(node, [y for y, _ in given], [d for _, d in given])


cdef list running = []      # the second runs in progress


def forget_other_threads() -> None:
    """In the child of a fork, end the second runs of other threads."""
    cdef SecondRun run
    for run in list(running):
        if run.thread != threading.get_ident():
            run.restore_memory()
            run.first.lock = threading.RLock()
            running.remove(run)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
