"""Where the time of a block goes: every kernel it runs, listed under the operation that started it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter_ns
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from minigrad.autograd import function
from minigrad.cuda import synchronize
from minigrad.engine.backend import Backend, intercept
from minigrad.engine.tape import is_grad_enabled, last_sequence
from minigrad.engine.tensor import Tensor
from minigrad.profiling.observer import Observer

if TYPE_CHECKING:
    from minigrad.profiling.work import Event

__all__ = ["profile"]

PRIMITIVES = [name for name in dir(Backend) if not name.startswith("_")]
PHASES = {"forward": "forward", "backward": "backward", "other": "no operation"}


# A Python frame, its code object and the instruction it is at: all kernels of one call of a compiled operation share
# these. The code object is included because a new frame is often allocated where the last one was.
Site = tuple[int, int, int]


def site_of(frame: FrameType) -> Site:
    return id(frame), id(frame.f_code), frame.f_lasti


@dataclass(slots=True)
class Running:
    """A node whose backward is running, and the caller of the pass that runs it."""

    sequence: int
    op: str
    call: int
    caller: Site
    before: int  # the number of the last node that was recorded before it began


class Thread:
    """The state of one thread."""

    def __init__(self) -> None:
        self.site: Site | None = None
        self.pending: list[Event] = []  # kernels of an operation that is not reported yet
        self.nodes: list[Running] = []  # a node, then one of a pass that its backward runs, and so on

    def in_backward(self, frame: FrameType | None) -> bool:
        """Whether the pass that runs a node is still on the stack; a node that raised is never reported as left."""
        while self.nodes:
            if frame is None:
                self.nodes.clear()
            elif site_of(frame) == self.nodes[0].caller:
                return True
            else:
                frame = frame.f_back
        return False

    def enter(self, node: Running, frame: FrameType) -> None:
        """Note that a pass enters a node, and so has left its previous one; drop the passes that are off the stack.

        The backward of a compiled operation may run a pass of its own, which has the same caller and covers only nodes
        recorded since that backward began.
        """
        above = set()
        outer = frame.f_back if self.nodes else None
        while outer is not None:
            above.add(site_of(outer))
            outer = outer.f_back

        def around(other: Running) -> bool:
            return other.caller in above or (other.caller == node.caller and abs(node.sequence) > other.before)

        self.nodes = [*itertools.takewhile(around, self.nodes), node]

    def leave(self, sequence: int) -> None:
        self.nodes = list(itertools.takewhile(lambda node: node.sequence != sequence, self.nodes))


class profile:
    """Record every kernel that runs in the block: its time, bytes and floating-point operations.

    A profile prints as a table with one row for each operation, forward and backward separately. A kernel counts for
    the operation that started it, whether fused or not, recorded or not; a kernel outside of any operation (in an
    optimizer's step, or for a new tensor) counts under its own name. Two rows have no kernels: the time "outside of
    kernels", spent in Python, in the tape and in the user's own code, and the time that the profile itself takes.
    The shares are of the wall time and add up to it, unless several threads run kernels at once.

    While a profile is active, every kernel starts through Python, which costs a few microseconds; at other times
    profiling costs nothing. On a GPU, the profile waits for each kernel to measure its time: nothing overlaps, and the
    block is slower than without a profile. A profile covers all threads, and only one can be active at a time. In the
    child of a fork it continues only if the thread that forked had started it.

    Attributes
    ----------
    events : list of minigrad.profiling.Event
        One for each kernel, in the order in which they ended.
    wall : float
        Seconds from the beginning of the block to its end, or so far.
    outside : float
        The part of `wall` in which no kernel ran, without the time that the profile itself took.

    Raises
    ------
    RuntimeError
        If a profile is already active, in this or another thread, or if this one was used before.

    Examples
    --------
    >>> import minigrad as mg
    >>> w = mg.ones((64, 32), requires_grad=True)
    >>> with mg.profile() as p:
    ...     (mg.ones((8, 64)) @ w).sum().backward()
    >>> [(event.op, event.phase, event.flops) for event in p.events if event.kernel == "gemm"]
    [('matmul', 'forward', 32768), ('matmul', 'backward', 32768)]
    """

    _active: profile | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._began = self._ended = 0
        self._own = 0  # nanoseconds that the profile itself took in the thread that started it
        self._calls = itertools.count(1)
        self._local = threading.local()
        self._threads: list[Thread] = []
        self._home = 0

    # ── the block ──

    def __enter__(self) -> profile:
        with profile._lock:
            if profile._active is not None:
                raise RuntimeError("[profile] expected no other profile to be active, got one inside of another")
            if self._began:
                raise RuntimeError("[profile] expected a new profile, got one that was used before")
            profile._active = self
        self._home = threading.get_ident()
        self._began = perf_counter_ns()
        try:
            intercept(self._stand_in)
            self._here()
            self._began = perf_counter_ns()  # after its own preparations
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._ended = perf_counter_ns()
        try:
            intercept(None)
        finally:
            for thread in self._threads:
                self._flush(thread)
            profile._active = None
            if hasattr(self._local, "observer"):
                self._local.observer.remove()

    @property
    def wall(self) -> float:
        """float: seconds from the beginning of the block to its end, or so far."""
        return ((self._ended or perf_counter_ns()) - self._began) / 1e9 if self._began else 0.0

    # ── the backend of a profiled block ──

    def _stand_in(self, device: int, backend: Backend) -> Backend:
        """A backend that records each call and forwards it to another one, whose own inner calls it does not see."""
        name = "cpu" if device == 0 else f"cuda:{device - 1}"
        wait = None if device == 0 else partial(synchronize, device - 1)
        methods = {key: self._noting(key, getattr(backend, key), name, wait) for key in PRIMITIVES}
        return cast(Backend, type("Profiled", (Backend,), methods)())

    def _noting(
        self, primitive: str, method: Callable[..., Any], device: str, wait: Callable[[], None] | None
    ) -> Callable[..., Any]:
        from minigrad.profiling.work import Event, arrays_of, bytes_of, flops_of, name_of

        def call(_: Backend, *args: Any) -> Any:
            entered = perf_counter_ns()
            thread, frame = self._here(), sys._getframe(1)
            backward = thread.in_backward(frame)
            site = None if backward else self._site(frame)
            del frame
            if site != thread.site:
                self._flush(thread)
            if wait is not None:
                wait()
            began = perf_counter_ns()
            result = method(*args)
            if wait is not None:
                wait()
            ended = perf_counter_ns()
            arrays = arrays_of(primitive, args)
            event = Event(
                "", "", name_of(primitive, args), (began - self._began) / 1e9, (ended - began) / 1e9,
                bytes_of(primitive, args, arrays), flops_of(primitive, args), tuple(x.shape for x in arrays),
                device, threading.get_ident(), 0,
            )  # fmt: skip
            del arrays
            if backward:
                node = thread.nodes[0]
                event.op, event.phase, event.call = node.op, "backward", node.call
                self.events.append(event)
            else:
                thread.pending.append(event)
                thread.site = site
            self._spent(began - entered + perf_counter_ns() - ended)
            return result

        return call

    @staticmethod
    def _site(frame: FrameType) -> Site:
        """Where a kernel was called from.

        A compiled operation has no frame of its own: while its kernels run and when it is reported, its caller's frame
        is at the same instruction. The kernels of a Function are called from frames inside its `apply`.
        """
        outermost = None
        if not is_grad_enabled():
            above: FrameType | None = frame
            while above is not None:
                if above.f_code is APPLY:
                    outermost = above  # whatever it calls belongs to it
                above = above.f_back
        return site_of(frame) if outermost is None else (id(outermost), id(APPLY), 0)

    def _flush(self, thread: Thread) -> None:
        """Book the pending kernels under their own names: no operation was reported for them."""
        for event in thread.pending:
            event.op, event.phase, event.call = event.kernel, "other", next(self._calls)
        self.events += thread.pending
        thread.pending, thread.site = [], None

    def _spent(self, nanoseconds: int) -> None:
        if threading.get_ident() == self._home:
            self._own += nanoseconds

    # ── what the observers call ──

    def _here(self) -> Thread:
        """The state of the calling thread, which is observed from now on."""
        thread: Thread | None = getattr(self._local, "thread", None)
        if thread is None:
            thread = self._local.thread = Thread()
            self._threads.append(thread)
            observer = self._local.observer = ThreadObserver(self)
            observer.install()
        return thread

    def _ran(self, op: str, frame: FrameType) -> None:
        """Book the pending kernels on an operation that has run, recorded or not."""
        thread = self._here()
        if thread.in_backward(frame):  # the kernels are those of the node that the pass runs
            return
        if frame.f_code is RECORD and frame.f_back is not None:
            site = id(frame.f_back), id(APPLY), 0
            if site != thread.site and self._site(frame) == thread.site:
                return  # a Function in the forward of another one
        else:
            site = self._site(frame)
            if site[1] == id(APPLY):
                return  # an operation in the forward of a Function
        if site != thread.site:
            self._flush(thread)
        call = next(self._calls)
        for event in thread.pending:
            event.op, event.phase, event.call = op, "forward", call
        self.events += thread.pending
        thread.pending, thread.site = [], None

    def _entered(self, op: str, sequence: int, frame: FrameType) -> None:
        thread = self._here()
        self._flush(thread)
        thread.enter(Running(sequence, op, next(self._calls), site_of(frame), last_sequence()), frame)

    def _left(self, sequence: int) -> None:
        self._here().leave(sequence)

    # ── results ──

    @property
    def outside(self) -> float:
        """float: seconds of the block in which neither a kernel nor the profile itself ran."""
        busy, reached = 0.0, 0.0
        for event in sorted(self.events, key=lambda event: event.start):
            end = event.start + event.duration
            busy += max(0.0, end - max(reached, event.start))
            reached = max(reached, end)
        return max(0.0, self.wall - busy - self._own / 1e9)

    def _rows(self) -> list[list[str]]:
        wall = self.wall or 1.0
        rows: list[list[str]] = []
        for phase, title in PHASES.items():
            ops: dict[str, list[Event]] = {}
            for event in self.events:
                if event.phase == phase:
                    ops.setdefault(event.op, []).append(event)
            seconds = {op: sum(event.duration for event in events) for op, events in ops.items()}
            if ops:
                rows.append([title])
            for op in sorted(ops, key=lambda op: -seconds[op]):
                time, events = seconds[op], ops[op]
                size, flops = (sum(getattr(event, what) for event in events) for what in ("bytes", "flops"))
                calls = len({event.call for event in events})
                rows.append([
                    op, str(calls), str(len(events)), f"{1e3 * time:.3f}", f"{time / wall:.1%}", f"{size / 1e6:.3f}",
                    f"{flops / 1e6:.3f}", *(f"{n / time / 1e9:.1f}" if n and time else "" for n in (size, flops)),
                ])  # fmt: skip
        rows.append(["no kernel"])
        for name, time in (("outside of kernels", self.outside), ("this profile itself", self._own / 1e9)):
            rows.append([name, "", "", f"{1e3 * time:.3f}", f"{time / wall:.1%}", "", "", "", ""])
        return rows

    def __str__(self) -> str:
        from minigrad.tables import as_text

        return as_text(HEAD, self._rows(), NUMBERS) + f"\n{self._note()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from minigrad.tables import as_html

        return as_html(HEAD, self._rows(), NUMBERS, self._note())

    def _note(self) -> str:
        return f"wall time {1e3 * self.wall:.3f} ms, {len(self.events)} kernels"

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Write all events as a trace that chrome://tracing and ui.perfetto.dev show on a timeline.

        Every run of an operation is a bar, with its kernels below it; clicking on a kernel shows its shapes, bytes and
        floating-point operations.

        Parameters
        ----------
        path : path-like
            The JSON file to write.

        Examples
        --------
        >>> import minigrad as mg
        >>> with mg.profile() as p:
        ...     y = mg.ones(3).exp()
        >>> p.trace("trace.json")
        """
        process, entries = os.getpid(), []
        spans: dict[tuple[int, int], list[Event]] = {}
        for event in self.events:
            spans.setdefault((event.call, event.thread), []).append(event)

        def bar(name: str, kind: str, events: list[Event], args: dict[str, Any]) -> dict[str, Any]:
            start, end = events[0].start, max(event.start + event.duration for event in events)
            return {"name": name, "cat": kind, "ph": "X", "ts": 1e6 * start, "dur": 1e6 * (end - start), "pid": process,
                    "tid": events[0].thread, "args": args}  # fmt: skip

        for events in spans.values():
            name, phase = events[0].op, events[0].phase
            if phase != "other":
                title = f"{name} backward" if phase == "backward" else name
                entries.append(bar(title, phase, events, {"kernels": len(events)}))
            for event in events:
                entries.append(bar(event.kernel, "kernel", [event], {
                    "op": event.op, "phase": PHASES[event.phase], "shapes": [list(shape) for shape in event.shapes],
                    "bytes": event.bytes, "flops": event.flops, "device": event.device,
                }))  # fmt: skip
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": entries, "displayTimeUnit": "ms"}, file)


def end_in_child() -> None:
    """End a profile in the child of a fork if the thread that started it does not exist there."""
    profile._lock = threading.Lock()  # that thread may have held it
    active = profile._active
    if active is not None and active._home != threading.get_ident():
        active.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=end_in_child)


HEAD = ["op", "calls", "kernels", "ms", "share", "MB", "MFLOP", "GB/s", "GFLOP/s"]
NUMBERS = range(1, len(HEAD))

APPLY, RECORD = function.Function.apply.__func__.__code__, function._record.__code__  # type: ignore[attr-defined]


class ThreadObserver(Observer):
    """Reports one thread's operations to a profile; removes itself if it outlives the profile.

    If its thread ends first, the tape keeps this object for the life of the process, so it must not keep the profile.
    """

    def __init__(self, owner: profile) -> None:
        super().__init__()
        self.profile = weakref.ref(owner)

    def _owner(self) -> profile | None:
        owner = self.profile()
        if owner is not None and profile._active is owner:
            return owner
        self.open = False
        return None

    def recorded(self, sequence: int, op: str, outs: tuple[Tensor, ...]) -> None:
        began = perf_counter_ns()
        if (owner := self._owner()) is not None:
            owner._ran(op, caller_of(sys._getframe(1)))
            owner._spent(perf_counter_ns() - began)
        super().recorded(sequence, op, outs)

    def passed(self, op: str) -> None:
        began = perf_counter_ns()
        if (owner := self._owner()) is not None:
            owner._ran(op, caller_of(sys._getframe(1)))
            owner._spent(perf_counter_ns() - began)
        super().passed(op)

    def entered(self, sequence: int, op: str, grads: tuple[Tensor | None, ...]) -> None:
        began = perf_counter_ns()
        if (owner := self._owner()) is not None:
            owner._entered(op, sequence, caller_of(sys._getframe(1)))
            owner._spent(perf_counter_ns() - began)
        super().entered(sequence, op, grads)

    def left(self, sequence: int) -> None:
        if (owner := self._owner()) is not None:
            owner._left(sequence)
        super().left(sequence)


METHODS = ("recorded", "passed", "entered", "left")


def caller_of(frame: FrameType) -> FrameType:
    """The frame that called the reported operation: the first one that is not an observer forwarding the report."""
    while forwards(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def forwards(frame: FrameType) -> bool:
    """Whether a frame is a method of an observer, and not a user's function of the same name."""
    code = frame.f_code
    if code.co_name not in METHODS or not code.co_argcount:
        return False
    kind = type(frame.f_locals.get(code.co_varnames[0]))
    return all(hasattr(kind, name) for name in METHODS)
