"""capture: a training step that is recorded once and then runs without Python."""

import functools
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from types import MethodType
from typing import Any, Generic, ParamSpec, TypeVar

from minigrad.engine.memory.calls import CaptureError
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer
from minigrad.engine.replay.captured_step import Step, is_watched, key_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.engine.tensor.trees import map_tensors

__all__ = ["CaptureError", "Captured", "capture"]

inside: ContextVar[bool] = ContextVar("inside", default=False)  # whether a captured function runs
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


SIGNATURES = 100  # the calls of this many signatures are counted before a recording


class Methods(dict[tuple[int, int], Any]):
    """The captured methods of an object, which are not part of its deep copies and files."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Methods, ()


class Captured(Generic[Parameters, Result]):
    """A captured function, as `minigrad.capture` returns it; call it like the function itself.

    Attributes
    ----------
    recordings : int
        The number of runs recorded so far.
    """

    def __init__(self, function: Callable[Parameters, Result], warmup: int, limit: int) -> None:
        self._function, self._warmup, self._limit = function, warmup, limit
        self._calls: dict[Any, int] = {}  # the number of calls before the recording, by signature
        self._steps: dict[Any, list[Step]] = {}
        self._last: Step | None = None
        self._warned: set[str] = set()
        self.recordings = 0
        functools.update_wrapper(self, function, [n for n in functools.WRAPPER_ASSIGNMENTS if hasattr(function, n)], ())

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        # something observes each operation, or another captured function makes this call
        if is_watched() or inside.get():
            return self._function(*args, **kwargs)
        tensors: list[Tensor] = []
        key = key_of((args, kwargs), tensors)
        steps = self._steps.get(key)
        if steps is not None:
            for step in steps:
                if step.fits() and not step.is_stale():
                    return step.run(tensors)
        elif (calls := self._calls.get(key, 0)) < self._warmup:
            if len(self._calls) == SIGNATURES:
                self._calls.clear()
                self._warn(f"{SIGNATURES} kinds of arguments have been passed to {self._name}, too few times each to "
                           f"record a run: pass numbers that change as tensors")  # fmt: skip
            self._calls[key] = calls + 1
            return self._call_plainly(*args, **kwargs)
        if self.recordings == self._limit:
            self._warn(f"{self._limit} runs of {self._name} have been recorded, and others no longer are: they run as "
                       f"the plain function does. Arguments of other shapes, dtypes or numbers need another recording, "
                       f"and so does what the function reads from outside if it is replaced between calls; pass what "
                       f"changes as tensors, or a larger limit")  # fmt: skip
            return self._call_plainly(*args, **kwargs)
        self._steps = {k: kept for k, found in self._steps.items() if (kept := [s for s in found if not s.is_stale()])}
        token = inside.set(True)
        try:
            step = Step(self._function, args, kwargs, tensors)
        finally:
            inside.reset(token)
        if step.kernels is None:  # another thread captures
            return self._call_plainly(*args, **kwargs)
        if step.has_history:
            self._warn(f"the results of {self._name} have no history, so that no gradient goes through it: capture a "
                       f"step as a whole, with its backward pass")  # fmt: skip
        self.recordings += 1
        if step.failure is not None:
            self._warn(f"a run of {self._name} could not be recorded, so that the plain function runs: {step.failure}")
            return step.first()
        self._last = step
        self._steps.setdefault(key, []).append(step)
        self._calls.pop(key, None)
        return step.first()

    def _call_plainly(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function without recording, including any captured function that it calls."""
        token = inside.set(True)
        try:
            return detach_all(self._function(*args, **kwargs))
        finally:
            inside.reset(token)

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(f"[capture] {message}", stacklevel=3)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the captured method of an instance, which has its own recordings."""
        bound = self._function.__get__(instance, owner) if hasattr(self._function, "__get__") else None
        if instance is None or not isinstance(bound, MethodType):
            return self
        try:
            kept = vars(instance).setdefault("_captured", Methods())
        except TypeError:
            raise TypeError(
                f"[capture] expected a method of an object with a __dict__, where its recordings are kept, got "
                f"{kind_of(instance)}: capture a function that takes the object"
            ) from None
        key = id(self), id(instance)  # a shallow copy of an object shares its methods
        if key not in kept or kept[key]._function != bound:
            kept[key] = type(self)(bound, self._warmup, self._limit)
        return kept[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._function, self._warmup, self._limit)  # recordings belong to this process and object

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", None) or type(self._function).__name__

    def table(self) -> str:
        """The kernels and calls of the most recently recorded run, one per line.

        A call is made by Python in every run, for example the optimizer's step. The last column is the number of
        elements that a kernel touches, or of its threads on a GPU.
        """
        if self._last is None:
            return f"{self._name}: nothing is recorded yet"
        rows = self._last.rows()
        width = max(len(name) for name, _, _ in rows)
        lines = [f"{name:{width}}  {kind:8}  {elements or '':>10}" for name, kind, elements in rows]
        return "\n".join([f"{'operation':{width}}  {'':8}  {'elements':>10}", *lines])

    def __repr__(self) -> str:
        return f"<captured {self._name}: {self.recordings} recorded>"


def detach_all(tree: Any) -> Any:
    """The same result without history."""
    return map_tensors(lambda x: x.detach() if x.requires_grad and not x.is_leaf else x, tree)


def capture(
    function: Callable[Parameters, Result], *, warmup: int = 2, limit: int = 16
) -> Captured[Parameters, Result]:
    """Record a function once and replay its kernels, in order and in the same memory, without Python.

    Meant for whole training steps: forward pass, backward pass, and the optimizer's step. A small network spends most
    of its time in Python, which a captured step skips. The results are bit-identical.

    The first `warmup` calls run as usual. The next one is recorded, and later calls replay the recording with the
    values of their own arguments. A new recording is made for arguments of other shapes, dtypes or devices, for other
    numbers and strings, when modules switch between training and evaluation, and when anything else has changed that
    the function reads.

    Parameters
    ----------
    function : callable
        Its arguments and its result are tensors, numbers, strings, other constants, and tuples, lists and dicts of
        them. Arguments must not require grad.
    warmup : int
        The number of calls with the same signature that run before one is recorded.
    limit : int
        The largest number of recordings. Beyond it, the function runs as usual, with one warning.

    Returns
    -------
    Captured
        Called like the function. The tensors it returns have no history and own their memory.

    Raises
    ------
    TypeError
        If `function` is not callable; when called, for an argument that is a NumPy array or cannot be hashed.
    ValueError
        When called, for an argument that requires grad.
    CaptureError
        In the recorded call, for anything that a replay would not repeat: reading values, as ``item``, ``print``,
        ``numpy`` and ``if x > 0`` do, shapes that depend on values, hooks, conversions of NumPy arrays, iterators that
        the function may take items from, in-place writes to arguments, storing tensors of the run elsewhere, and work
        on two streams of a GPU. Some of these are only detected at the end of the call, after the optimizer's step. In
        later calls, if an argument shares memory with a tensor that the function writes to, or if another thread is in
        a call.

    Notes
    -----
    A replay reads the tensors outside the function from where they were during the recording: parameters, running
    statistics, the optimizer's state, and gradients, which it adds to if the function does. It therefore sees writes
    between calls, such as those of ``load_state_dict`` and ``copy_``. Learning rates and other options of optimizers,
    step counts, schedulers and random numbers keep changing, and labels, indices and lengths are checked in every call.

    A new recording is made if what the function reads in Python has changed: variables, attributes of objects and
    classes, layers and their options, and items of lists and dicts, also where functions and methods read them that it
    calls. Found are the names in its code and in theirs, and all attributes where the code calls ``getattr``. Not
    watched are NumPy arrays of more than 64 KiB, the code of installed packages and of the standard library, code that
    is no Python or that `eval` makes, variables read by ``globals()``, attributes that ``match`` reads by position, and
    what comes from elsewhere: files, the clock, environment and context variables, random numbers of Python and NumPy.

    The gradients that the function leaves in ``grad`` are overwritten by the next call. A recording keeps all memory
    that the function uses. When `capture` decorates a method, each instance has its own recordings. On a GPU, the
    kernels between two calls of Python are one CUDA Graph on CuPy's current stream; replays on different streams have
    to wait for one another. The page "A step without Python" shows all of this.

    Examples
    --------
    >>> model = mg.nn.Linear(2, 1)
    >>> optimizer = mg.optim.Adam(model.parameters(), lr=0.1)
    >>> @mg.capture
    ... def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = mg.nn.functional.mse_loss(model(x), y)
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> x = mg.random.normal(shape=(8, 2))
    >>> losses = [step(x, x.sum(1, keepdims=True)).item() for _ in range(100)]
    >>> losses[-1] < losses[0], step.recordings
    (True, 1)
    """
    if not callable(function):
        raise TypeError(f"[capture] expected a function, got {kind_of(function)}")
    return Captured(function, integer("capture", "warmup", warmup, 0), integer("capture", "limit", limit, 0))
