"""Recomputation: a function that saves nothing for the backward pass runs again when the pass reaches it.

A call of the function is one node of the tape. The first run is recorded as usual, but its nodes die when the function
returns, because the results get the node of the call instead. The inputs of that node are the older nodes to which the
first run's nodes lead. In a backward pass, the function runs again, and an inner pass takes the gradients of the
results to the inputs. So hooks, nested uses and derivatives of every order need no special treatment.

The first run notes in order what it reads, computes, calls and draws; a second run has to make the same entries. Memory
from outside that the function writes has its first values during a second run.
"""
import os
import threading

cimport cython
from libc.stdint cimport int64_t

from collections.abc import Callable
from typing import Any
from weakref import ref

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, alias, empty_as, first_element, next_moment, shape_of, version
from minigrad.engine.memory.dtype cimport dtype_of, itemsize, matmul_precision
from minigrad.engine.memory.listener cimport Listener
from minigrad.engine.memory.shapes cimport device_name
from minigrad.engine.tape.backward cimport continue_pass
from minigrad.engine.tape.hooks cimport show_collector
from minigrad.engine.tape.in_place cimport follow
from minigrad.engine.tape.inspection cimport bytes_of
from minigrad.engine.tape.node cimport Node, Op, described, set_recording
from minigrad.engine.tape.record cimport is_leaf, last_sequence, track_many
from minigrad.engine.memory import calls
from minigrad.engine.memory.listener import listen, stop_listening
from minigrad.engine.tape.node import GradientError
from minigrad.engine.tensor.trees import leaves


cdef Op recompute_op = described("recompute", run_again, "y = f(x…), of which nothing is saved",
                                 "dx: the derivative of f, which runs again", "x…", "y…", "")

cdef str READ = "a read of", DRAW = "blocks of random numbers", RESULTS = "results that require grad"   # kinds of entry
cdef str PRECISION = "precision of products"


cdef object rebuilt(object tree):
    """A copy of lists, tuples and dicts, at every depth: the function or its caller may change the originals."""
    if type(tree) is list or type(tree) is tuple:
        return type(tree)([rebuilt(part) for part in tree])
    if type(tree) is dict:
        return {key: rebuilt(part) for key, part in tree.items()}
    return tree


cdef Array copied(Array x):
    cdef Array out = empty_as(x, x.code)
    backend(x).copy(x, out)
    return out


@cython.final
@cython.binding(False)
@cython.embedsignature(True)
cdef class Run(Listener):
    """A run of a function: the first one, or a second one in a backward pass, which has to do the same."""
    cdef Run first          # None in the first run
    cdef object function
    cdef tuple args
    cdef dict kwargs
    cdef int64_t began      # the moment, which tells tensors that the run makes from others
    cdef list entries       # what the first run did, in order: (kind, weak reference, details, random numbers)
    cdef size_t place       # how many of them a second run has repeated
    cdef object difference  # where it has not, an error that the function may have caught
    cdef str precision      # the precision of products when the run last recorded an operation
    cdef set memories       # addresses of the buffers of older tensors that are read
    cdef dict writes        # layout in memory -> (alias, values, version) before the first write to older memory
    cdef list current       # during a second run, (alias, values, version) as they were before it
    cdef object thread

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, rebuilt(args), rebuilt(kwargs)
        self.entries, self.memories, self.writes = [], set(), {}

    cdef tuple call(self):
        """Call the function; return its result, and the tensors in it that it has computed and that require grad."""
        self.began = next_moment()
        listen(self)
        try:
            result = self.function(*rebuilt(self.args), **rebuilt(self.kwargs))
        finally:
            stop_listening(self)
        outs = list({id(x): x for x in leaves((result,)) if isinstance(x, Array) and (<Array>x).needs_grad
                     and (<Array>x).moment >= self.began and not is_leaf(<Array>x)}.values())
        self.note(RESULTS, None, len(outs))
        return result, outs

    def run(self) -> Any:
        """Call the function for the first time, and return its result with the call as its history."""
        since = last_sequence()
        result, outs = self.call()
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

    cdef list run_again(self, Run first):
        """Call the function as `first` did, and return the tensors in its result that require grad."""
        self.first, self.function, self.args, self.kwargs = first, first.function, first.args, first.kwargs
        self.entries, self.memories, self.writes = first.entries, first.memories, first.writes
        self.thread, self.current = threading.get_ident(), []
        recording = set_recording(True)
        running.append(self)
        try:
            for x, _, _ in self.writes.values():
                self.current.append((x, copied(<Array>x), (<Array>x).buffer.version))
            restore(reversed(self.writes.values()))     # where they overlap, the first write knows the first values
            return self.call()[1]
        except BaseException as error:
            error.add_note("in the second run of a function that recompute was given, within a backward pass")
            raise
        finally:
            set_recording(recording)
            restore(self.current)
            running.remove(self)

    # ── entries ──

    cdef int note(self, str kind, object subject, object details, list drawn=None) except -1:
        """Make an entry; a second run raises an error, again after the function has caught it, if it is another."""
        if self.first is None:
            self.entries.append((kind, subject, details, drawn))
            return 0
        if self.difference is None:
            entry = kind, subject, details, drawn
            was = self.entries[self.place]
            same = subject is was[1] or (kind != READ and was[1] is not None and was[1]() is None)
            if kind == was[0] and same and (details == was[2] or repr(details) == repr(was[2])):    # NaN is unequal
                self.place += 1
                return 0
            if kind == was[0] == READ and same and details[0] != was[2][0]:
                self.difference = GradientError(
                    f"[recompute] expected what the function reads to stay as it is until the backward pass, but "
                    f"{self.name_of(subject())} was written in place")
            else:
                self.difference = self.differs(f"{self.text(entry)}, instead of {self.text(was)}")
        raise self.difference

    cdef object differs(self, str what):
        return GradientError(f"[recompute] expected the second run of the function to do the same as the first, got "
                             f"{what}: it may depend only on tensors, on the modes of modules and on minigrad's random "
                             f"numbers, and on values that stay the same; a state that it keeps has to be written in "
                             f"place, as with copy_")

    cdef str text(self, tuple entry):
        """An entry in words."""
        kind, subject, details, _ = entry
        if kind == READ:
            x = subject()
            grad = "requires grad" if details[1] else "does not require grad"
            return f"{kind} {'a tensor that is gone' if x is None else f'{self.name_of(x)}, which {grad}'}"
        if kind in (RESULTS, DRAW, PRECISION):
            return f"{details} {kind}"
        if subject is not None:
            return f"{kind} in {'training' if details else 'evaluation'}"
        layouts, constants = details
        layouts = [f", {shape} {dtype_of(code)} on {device_name(device)}" for shape, code, device in layouts]
        return f"{kind}{''.join(layouts)}" + (f", with {', '.join(map(str, constants))}" if constants else "")

    cdef str name_of(self, object x):
        """The name by which the user knows a tensor."""
        for key, value in [*enumerate(self.args), *self.kwargs.items()]:
            if any([x is part for part in leaves((value,))]):
                return f"{'' if value is x else 'a tensor in '}argument {key!r}"
        for module in [subject() for kind, subject, _, _ in self.entries if kind != READ and subject is not None]:
            for key, value in vars(module).items() if module is not None else ():
                if value is x:
                    return f"{type(module).__name__}.{key}"
        return f"a tensor of shape {shape_of(<Array>x)} and {dtype_of((<Array>x).code)}"

    # ── notifications ──

    def read(self, Array x: Tensor) -> None:
        Listener.read(self, x)
        if x.moment < self.began:
            self.memories.add(<size_t>x.buffer)
            self.note(READ, ref(x), (version(x), bool(x.needs_grad)))

    def before_write(self, Array x: Tensor) -> None:
        """Keep the values of older memory, also if the run has made a view of it."""
        if self.first is None:
            Listener.before_write(self, x)      # a second run leaves memory as it was
        if x.moment >= self.began and <size_t>x.buffer not in self.memories:
            return
        place = <size_t>x.buffer, <size_t>x.data, shape_of(x), x.strides
        if place not in self.writes:
            if self.first is not None:
                raise self.differs(f"a write to {self.name_of(x)}")
            self.writes[place] = alias(x), copied(x), x.buffer.version

    def before_recorded_write(self, Array x: Tensor) -> None:
        if x.moment < self.began:
            raise GradientError(f"[recompute] expected a function that writes only to tensors of its own while "
                                f"operations are recorded, got one that changes {self.name_of(x)}: let it work on a "
                                f"copy, or write under minigrad.no_grad()")

    def before_set(self) -> None:
        raise GradientError("[set_] a function that recompute was given cannot make another tensor of one: it runs "
                            "again within a backward pass; write in place, as with copy_")

    def before_backward(self) -> None:
        raise GradientError("[recompute] expected a function that adds to no tensor's grad, which its second run would "
                            "do again, got one that calls backward: use minigrad.grad in it")

    def adds_hook(self, Array x: Tensor) -> bool:
        """To older tensors, the first run has added it."""
        return (self.first is None or x.moment >= self.began) and Listener.adds_hook(self, x)

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        Listener.recorded(self, sequence, op, outs)
        if self.precision is not matmul_precision:
            self.precision = matmul_precision
            self.note(PRECISION, None, matmul_precision)
        layouts = [(shape_of(<Array>y), (<Array>y).code, (<Array>y).buffer.device) for y in outs]
        self.note(f"[{op}]", None, (layouts, constants_of(outs, self.began)))

    def calls_module(self, module: Any) -> None:
        Listener.calls_module(self, module)
        self.note(f"a call of {type(module).__name__}", ref(module), bool(getattr(module, "training", False)))

    def draws(self, blocks: int) -> list[int] | None:
        if self.first is None:
            return Listener.draws(self, blocks)
        if blocks == 0:
            return [0, 0]       # nothing is drawn
        self.note(DRAW, None, blocks)
        return self.entries[self.place - 1][3]

    def drew(self, blocks: int, drawn: list[int]) -> None:
        if self.first is None and blocks:
            Listener.drew(self, blocks, drawn)
            self.note(DRAW, None, blocks, drawn)


cdef int restore(object writes) except -1:
    """Let memory have the given values and versions."""
    for x, values, known in writes:
        backend(<Array>x).copy(<Array>values, <Array>x)
        (<Array>x).buffer.version = known
    return 0


cdef tuple history_since(list outs, int64_t sequence, int64_t moment):
    """Find where the history of tensors leads: weak references to leaves since then, and the outputs of older nodes.

    No output of an older node need have been read: a gradient that the function takes reads what backward has saved.
    """
    cdef list made = [], older = [], places = [((<Array>x).node, (<Array>x).output) for x in outs]
    cdef set seen = set(places)
    cdef Array input
    cdef Node node
    cdef int i
    for node, output in places:         # the list grows
        if node.leaf != NULL and (<Array>node.leaf).moment >= moment:
            made.append(ref(<object>node.leaf))
        elif node.sequence <= sequence:
            input = alias(<Array>outs[0])       # any tensor serves to name an output
            input.node, input.needs_grad, input.output = node, True, output
            older.append(input)
        else:
            for i in range(node.inputs):
                place = node.edge(i), node.slots[i].output
                if place[0] is not None and place not in seen:
                    seen.add(place)
                    places.append(place)
    return made, older


cdef list constants_of(tuple outs, int64_t began):
    """The numbers and strings that an operation depends on, besides tensors."""
    cdef list constants = []
    cdef Node node
    cdef Array x
    cdef int i
    for out in outs:
        if (<Array>out).node is not None:
            node = <Node>(<Array>out).node
            constants = [part for part in leaves((node.extra,)) if isinstance(part, (bool, int, float, str))]
            for i in range(node.inputs):
                x = node.value(i)
                if x is not None and node.slots[i].edge == NULL and x.buffer.device == 0 and x.moment >= began \
                        and bytes_of(x) == itemsize(x.code):        # a single number, possibly broadcast
                    constants.append(first_element(x))
            break
    return constants


cdef int run_again(Node node, Array g) except -1:
    """The backward of a call: run the function again, and differentiate the second run."""
    cdef Run first = <Run>node.extra[0], second = Run.__new__(Run)
    if not first.writes:
        return continue_pass(node, second.run_again(first), g)
    held = lock
    if not held.acquire(timeout=calls.PATIENCE):
        raise GradientError(f"[recompute] a second run in another thread did not end within {calls.PATIENCE} seconds")
    try:
        outs = second.run_again(first)
    finally:
        held.release()
    return continue_pass(node, outs, g)


cdef list running = []      # the second runs in progress
cdef object lock = threading.RLock()    # second runs that write to memory from outside take turns


def forget_other_threads() -> None:
    """In the child of a fork, end the second runs of other threads."""
    global lock
    cdef Run run
    lock = threading.RLock()
    for run in list(running):
        if run.thread != threading.get_ident():
            restore(run.current)
            running.remove(run)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget_other_threads)
