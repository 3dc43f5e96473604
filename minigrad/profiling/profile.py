"""Where the time in a block of code is spent: every kernel it runs, listed under the operation that started it."""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

from minigrad.cuda import synchronize
from minigrad.engine.devices.backend import Backend, intercept
from minigrad.engine.memory.calls import current_call
from minigrad.engine.tape.inspection import outlined

if TYPE_CHECKING:
    from minigrad.profiling.work import Event

PRIMITIVES = [name for name in dir(Backend) if not name.startswith("_")]
ROUNDS, TRIALS = 3, 20  # the runs of a kernel that measure the cost of a profile
WORTH_SAYING = 0.03  # the share of a profile's own time from which on it is told below the table
PHASES = {"forward": "forward", "backward": "backward", "other": "no operation"}


class profile:
    """Record every kernel that runs in the block: its time, bytes and floating-point operations.

    A profile prints as a table with one row for each operation, forward and backward separately. A kernel is listed
    under the operation that started it, whether fused or not, recorded or not; a kernel outside any operation (in
    an optimizer's step, or for a new tensor) is listed under its own name. Two rows have no kernels: the time "outside
    of kernels", spent in Python, in the tape and in the user's own code, and the time that the profile itself takes.
    The shares are of the wall time and add up to it, unless several threads run kernels at once.

    While a profile is active, every kernel starts through Python, which costs some microseconds; at other times
    profiling costs nothing. This cost is in the row of the profile itself and in no other: what the profile sees of it
    is measured, and the rest is estimated, from a small kernel that is run with and without a profile. On a GPU, the
    profile waits for each kernel to measure its time: nothing overlaps, and the block is slower than without a profile.
    A profile covers all threads, and only one can be active at a time. In the child of a fork it continues only if the
    thread that forked had started it.

    Raises RuntimeError if a profile is already active, in this or another thread, or if this one was used before.

    Attributes
    ----------
    events : list of minigrad.profiling.Event
        One for each kernel, in the order in which they ended.
    wall : float
        Seconds from the beginning of the block to its end, or so far.
    outside : float
        The part of `wall` in which no kernel ran, without the time that the profile itself took.

    Examples
    --------
    >>> w = mg.ones((64, 32), requires_grad=True)
    >>> with mg.profile() as p:
    ...     (mg.ones((8, 64)) @ w).sum().backward()
    >>> [(event.op, event.phase, event.flops) for event in p.events if event.kernel == "gemm"]
    [('matmul', 'forward', 32768), ('matmul', 'backward', 32768)]
    """

    _active: profile | None = None
    _lock = threading.Lock()

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._records: deque[tuple[Any, ...]] = deque()  # calls for which no events have been made yet
        self._began = self._ended = 0
        self._own = 0  # nanoseconds that the profile itself took in the thread that started it, as measured
        self._kernels = 0  # the number of kernels that ran in that thread
        self._unseen = 0  # nanoseconds that each of them cost besides
        self._calls = itertools.count(1)  # numbers for kernels outside any operation
        self._home = 0

    @property
    def events(self) -> list[Event]:
        """List of Event: one for each kernel that has run, in the order in which they ended."""
        from minigrad.profiling.work import Event, arrays_of, bytes_of, flops_of, name_of

        while self._records:  # made here, since this takes longer than most small kernels
            operation, primitive, args, began, ended, device, thread = self._records.popleft()
            arrays, kernel = arrays_of(args), name_of(primitive, args)
            number, op, phase = operation or (-next(self._calls), kernel, "other")
            self._events.append(Event(
                op, phase, kernel, (began - self._began) / 1e9, (ended - began) / 1e9,
                bytes_of(primitive, args, arrays), flops_of(primitive, args), tuple(x.shape for x in arrays),
                device, thread, number,
            ))  # fmt: skip
        return self._events

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
            self._unseen = self._measure_unseen()
            intercept(self._wrap)
            self._own = self._kernels = 0
            self._records.clear()
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
            profile._active = None

    @property
    def wall(self) -> float:
        """float: seconds from the beginning of the block to its end, or so far."""
        return ((self._ended or perf_counter_ns()) - self._began) / 1e9 if self._began else 0.0

    def _measure_unseen(self) -> int:
        """Run a small kernel with and without the profile: the time between them that `_own` does not include."""
        from minigrad.arrays.creation import zeros

        x, least = zeros(1), [sys.maxsize, sys.maxsize]
        for profiled in (False, True) * ROUNDS:  # in turn, since a busy machine slows all trials of one round
            intercept(self._wrap if profiled else None)
            for _ in range(TRIALS):
                own, began = self._own, perf_counter_ns()
                x.fill_(0.0)
                least[profiled] = min(least[profiled], perf_counter_ns() - began - (self._own - own))
        return max(0, least[True] - least[False])

    @property
    def _cost(self) -> float:
        """Seconds that the profile itself took in the thread that started it."""
        return (self._own + self._kernels * self._unseen) / 1e9

    # ── the backend of a profiled block ──

    def _wrap(self, device: int, backend: Backend) -> Backend:
        """A backend that records each call and forwards it to another one, whose nested calls are not recorded."""
        name = "cpu" if device == 0 else f"cuda:{device - 1}"
        wait = None if device == 0 else partial(synchronize, device - 1)
        methods = {key: self._note_calls(key, getattr(backend, key), name, wait) for key in PRIMITIVES}
        return cast(Backend, type("Profiled", (Backend,), methods)())

    def _note_calls(
        self, primitive: str, method: Callable[..., Any], device: str, wait: Callable[[], None] | None
    ) -> Callable[..., Any]:
        home, record = self._home, self._records.append

        def call(_: Backend, *args: Any) -> Any:
            entered = perf_counter_ns()
            operation = current_call()
            if wait is not None:
                wait()
            began = perf_counter_ns()
            result = method(*args)
            if wait is not None:
                wait()
            ended = perf_counter_ns()
            thread = get_ident()
            record((operation, primitive, outlined(args), began, ended, device, thread))
            if thread == home:
                self._kernels += 1
                self._own += began - entered + perf_counter_ns() - ended
            return result

        return call

    # ── results ──

    @property
    def outside(self) -> float:
        """float: seconds of the block in which neither a kernel nor the profile itself ran."""
        busy, reached = 0.0, 0.0
        for event in sorted(self.events, key=lambda event: event.start):
            end = event.start + event.duration
            busy += max(0.0, end - max(reached, event.start))
            reached = max(reached, end)
        return max(0.0, self.wall - busy - self._cost)

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
        for name, time in (("outside of kernels", self.outside), ("this profile itself", self._cost)):
            rows.append([name, "", "", f"{1e3 * time:.3f}", f"{time / wall:.1%}", "", "", "", ""])
        return rows

    def __str__(self) -> str:
        from minigrad.tools.tables import as_text

        return as_text(HEAD, self._rows(), NUMBERS) + f"\n{self._note()}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from minigrad.tools.tables import as_html

        return as_html(HEAD, self._rows(), NUMBERS, self._note())

    def _note(self) -> str:
        said = f"wall time {1e3 * self.wall:.3f} ms, {len(self.events)} kernels"
        cost = self._cost / (self.wall or 1.0)
        return said if cost < WORTH_SAYING else f"{said}; {cost:.0%} of the time is the profile's own"

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
    profile._lock = threading.Lock()  # another thread may have held it
    active = profile._active
    if active is not None and active._home != threading.get_ident():
        active.__exit__()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=end_in_child)


HEAD = ["op", "calls", "kernels", "ms", "share", "MB", "MFLOP", "GB/s", "GFLOP/s"]
NUMBERS = range(1, len(HEAD))
