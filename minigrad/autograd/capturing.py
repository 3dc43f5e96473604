"""capture: a training step that is recorded once, and from then on runs without Python."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from minigrad.autograd.trees import mapped
from minigrad.engine.calls import CaptureError
from minigrad.engine.capture import Step, is_watched, key_of
from minigrad.engine.ops.arguments import integer, kind_of
from minigrad.engine.tensor import Tensor

__all__ = ["CaptureError", "Captured", "capture"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Captured(Generic[Parameters, Result]):
    """What `minigrad.capture` returns: call it as the function itself.

    Attributes
    ----------
    recordings : int
        How many runs have been recorded so far.
    """

    def __init__(self, function: Callable[Parameters, Result], warmup: int, limit: int) -> None:
        self._function, self._warmup, self._limit = function, warmup, limit
        self._calls: dict[Any, int] = {}  # by signature, those before the recording
        self._steps: dict[Any, list[Step]] = {}
        self._warned = False
        self.recordings = 0
        functools.update_wrapper(self, function, [n for n in functools.WRAPPER_ASSIGNMENTS if hasattr(function, n)], ())

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if is_watched():  # by recompute, another capture, viz.record and the like, which follow each operation
            return self._function(*args, **kwargs)
        tensors: list[Tensor] = []
        key = key_of((args, kwargs), tensors)
        steps = self._steps.get(key)
        if steps is not None:
            for step in steps:
                if step.fits():
                    if not step.is_stale():
                        return step.run(tensors)
                    steps.remove(step)
                    break
        elif (calls := self._calls.get(key, 0)) < self._warmup:
            if len(self._calls) < 1000:
                self._calls[key] = calls + 1
            return detached(self._function(*args, **kwargs))
        if self.recordings == self._limit:
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"[capture] {self._limit} runs of {self._name} have been recorded, for arguments of other shapes, "
                    f"dtypes or numbers, or for tensors that were replaced: others are no longer recorded, and run as "
                    f"slowly as without capture; pass numbers that change as tensors, or a larger limit",
                    stacklevel=2,
                )
            return detached(self._function(*args, **kwargs))
        step = Step(self._function, args, kwargs, tensors)
        if not step.exists:  # another thread records
            return detached(self._function(*args, **kwargs))
        self.recordings += 1
        self._steps.setdefault(key, []).append(step)
        self._calls.pop(key, None)
        return step.first()

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", None) or type(self._function).__name__

    def table(self) -> str:
        """The kernels and calls of the run that was recorded last, one in a line.

        A call is made by Python each time: the optimizer's step, or random numbers. The last column counts the elements
        that a kernel touches.
        """
        if not self.recordings:
            return f"{self._name}: nothing is recorded yet"
        rows = [step.rows() for steps in self._steps.values() for step in steps][-1]
        width = max(len(name) for name, _, _ in rows)
        lines = [f"{name:{width}}  {kind:8}  {elements or '':>10}" for name, kind, elements in rows]
        return "\n".join([f"{'operation':{width}}  {'':8}  {'elements':>10}", *lines])

    def __repr__(self) -> str:
        return f"<captured {self._name}: {self.recordings} recorded>"


def detached(tree: Any) -> Any:
    """The same result without history."""
    return mapped(lambda x: x.detach() if x.requires_grad and not x.is_leaf else x, tree)


def capture(
    function: Callable[Parameters, Result], *, warmup: int = 2, limit: int = 16
) -> Captured[Parameters, Result]:
    """A function that is recorded once and then runs without Python: its kernels, in order, in the same memory.

    Meant for whole training steps: forward pass, backward pass, and the optimizer's step. Small networks spend most of
    their time in Python; a captured step leaves that out. Results are the same bits.

    The first `warmup` calls run as usual. The next one is recorded, and later calls run the recording with the
    values of their arguments. It is made anew for arguments of other shapes, dtypes or devices, for other numbers and
    strings, and when modules change between training and evaluation.

    Parameters
    ----------
    function : callable
        Its arguments and its result are tensors, numbers, strings, other constants, and tuples, lists and dicts of
        them. Arguments do not require grad.
    warmup : int
        How many calls with a signature run before the one that is recorded.
    limit : int
        How many recordings are made. Other calls run without one, and a warning says so once.

    Returns
    -------
    Captured
        Called as the function. The tensors it returns have no history, and memory of their own.

    Raises
    ------
    TypeError
        If `function` is not callable; when called, for an argument that is a NumPy array or cannot be hashed.
    ValueError
        When called, for an argument that requires grad.
    CaptureError
        In the call that is recorded, at what a recording does not repeat: reading values, as ``item``, ``print``,
        ``numpy`` and ``if x > 0`` do, shapes that depend on values, hooks, NumPy arrays that are converted,
        arguments that are written in place, tensors on a GPU.

    Notes
    -----
    What a recording reads from outside it reads where it was: parameters, running statistics, the state of
    the optimizer, and gradients, which it adds to where the function does. Writes to them between calls are seen, by
    ``load_state_dict`` or ``copy_``. If one is replaced, by ``set_`` or another module, a new recording is made,
    provided the old tensor is no longer used elsewhere.

    These go on changing as usual: learning rates and other options of optimizers, their step numbers, schedulers,
    inside the function or outside, random numbers (dropout), running statistics, gradient clipping with its norm.
    Labels and indices are checked in each call. Everything else that Python computes in the function keeps the value it
    had in the recorded call: numbers, conditions, counters. What has to change is passed as a tensor.

    The gradients that the function leaves in ``grad`` are overwritten by the next call. A recording keeps all memory
    that the function uses, about what one call needs.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import nn
    >>> model = nn.Linear(2, 1)
    >>> optimizer = mg.optim.Adam(model.parameters(), lr=0.1)
    >>> @mg.capture
    ... def step(x, y):
    ...     optimizer.zero_grad()
    ...     loss = nn.functional.mse_loss(model(x), y)
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
