"""Check an answer: compare it with the right one, and where it differs, with the wrong ones that were foreseen.

A stage has parts (`Part`), each a function or class that the reader writes. The `right` answer of a part comes from
minigrad, and `wrong` maps what to say about a mistake to a function that makes it. All are called with the same
arguments in float64. The first output that differs from the right one is reported, with the smallest case in which it
does. If one of the wrong functions gives the same output in every case, its message is the diagnosis.
"""

import inspect
import linecache
import signal
import textwrap
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from minigrad.arrays.creation import tensor, zeros_like
from minigrad.autograd.gradients import grad as grad_of
from minigrad.engine.tensor.tensor import Tensor

RTOL = 1e-7  # an answer in float64 that sums in another order is within 1e-12
COLUMNS = 79
GIVEN = "It was called with:"
NOT_FINITE = "It is not finite. Look for a division by zero, a logarithm of zero, or an exponential of a large number."
OFF_THE_TAPE = (
    "Nothing arrives at {}. Somewhere between {} and what you return, the computation leaves the tape: .numpy(), "
    ".item(), .detach(), mg.no_grad() and mg.tensor(...) of a tensor all do that."
)
PARTLY_OFF_THE_TAPE = (
    "The value is right, but its derivative is not: some part of what leads from {} to it has left the tape, by "
    ".detach(), .numpy(), .item(), mg.no_grad() or mg.tensor(...) of a tensor."
)


class Draw:
    """Random arguments, the same in every check. In the small cases they are integers from -9 to 9 without 0.

    Those of one array are all different if it has at most 18 elements.
    """

    def __init__(self, small: bool) -> None:
        self.small = small
        self.rng = np.random.default_rng(7)

    def __call__(self, *shape: int) -> np.ndarray:
        if not self.small:
            return self.rng.standard_normal(shape)
        size, digits = int(np.prod(shape)), np.array([i for i in range(-9, 10) if i])
        return self.rng.choice(digits, size, replace=size > len(digits)).reshape(shape).astype(float)

    def size(self, low: int, high: int) -> int:
        """Return a random size of an axis; the smallest one in the small cases."""
        return low if self.small else int(self.rng.integers(low, high + 1))


@dataclass(frozen=True)
class Part:
    """One function or class of a stage: what is right, how it is called, and which mistakes are foreseen."""

    name: str
    right: Callable[..., Any]
    cases: Callable[[Draw], Iterable[dict[str, Any]]]  # arguments by name, small cases first
    outputs: tuple[str, ...]  # what is returned, in the order in which mistakes are reported
    wrong: dict[str, list[Callable[..., Any]]]  # message -> answers with this mistake
    order: int = 0  # 0: takes and returns NumPy arrays; otherwise tensors, and the result is differentiated so often
    call: Callable[..., Any] | None = None  # calls an answer, if `answer(*arguments)` does not
    seconds: float = 10.0

    def properties(self, arguments: dict[str, Any]) -> list[str]:
        """Return the names of all that is compared: the outputs, then their derivatives."""
        found = list(self.outputs)
        for order in range(1, self.order + 1):
            again = "the derivative" if order == 1 else "the second derivative"
            wanted = [key for key, value in arguments.items() if differentiable(value)]
            found += [f"{again} with respect to {key}" for key in wanted]
        return found


def mistakes(
    solution: Callable[..., Any], edits: dict[str, dict[str, str] | list[dict[str, str]]]
) -> dict[str, list[Callable[..., Any]]]:
    """Make the answers with foreseen mistakes out of the right one: message -> the solution after some edits.

    A list has the edits of several answers with one mistake. Every occurrence of a text in the solution's file is
    replaced, and there has to be one.
    """
    path = inspect.getfile(solution)
    right = Path(path).read_text(encoding="utf-8")

    def edit(changes: dict[str, str]) -> Callable[..., Any]:
        text = right
        for old, new in changes.items():
            if old not in text:
                raise LookupError(f"{old!r} is not in {path}:\n{text}")
            text = text.replace(old, new)
        names: dict[str, Any] = {"__name__": solution.__module__}
        exec(compile(text, f"<a mistake in {solution.__name__}>", "exec"), names)
        return names[solution.__name__]

    return {
        message: [edit(changes) for changes in (several if isinstance(several, list) else [several])]
        for message, several in edits.items()
    }


class Failure(Exception):
    """A mistake, in words for the reader."""


@dataclass(frozen=True)
class Report:
    """The result of a check: true if the answer is right; its text says what is not."""

    stage: str
    passed: bool
    text: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return self.text


def run(stage: str, parts: Sequence[Part], answers: dict[str, Any], say: str = "") -> Report:
    """Check the answers by name, part after part, up to the first mistake; `say` ends the report of a mistake."""
    lines = [stage]
    for part in parts:
        if part.name not in answers:
            continue
        done, failure = examine(part, answers[part.name])
        lines += [f"  ok     {part.name}: {name}" for name in done]
        if failure:
            first, *rest = failure
            lines += [f"  wrong  {first}", "", *rest]
            return Report(stage, False, "\n".join([*lines, *(["", say] if say else [])]))
    return Report(stage, True, "\n".join([*lines, "", "Everything is right."]))


def examine(part: Part, answer: Any) -> tuple[list[str], list[str]]:
    """Return the properties that hold, and the lines that describe the first one that does not."""
    cases = [*part.cases(Draw(small=True)), *part.cases(Draw(small=False))]
    found, expected = outcomes(part, answer, cases), outcomes(part, part.right, cases)
    for result in expected:
        if isinstance(result, Exception):  # a mistake of the check itself, not of the reader
            raise result
    done: list[str] = []
    for i, name in enumerate(part.properties(cases[0])):
        bad = next((k for k in range(len(cases)) if not same(pick(found[k], i), pick(expected[k], i))), None)
        if bad is None:
            done.append(name)
            continue
        return done, describe(part, answer, i, name, bad, cases, found, expected)
    return done, []


def describe(
    part: Part, answer: Any, i: int, name: str, bad: int, cases: list[dict], found: list, expected: list
) -> list[str]:
    """Return the report of one mistake: its place, its cause as far as it is known, and the smallest case."""
    got, want = pick(found[bad], i), pick(expected[bad], i)
    if isinstance(got, NotImplementedError):
        return [f"{part.name}: still to be written", *trace_lines(got, answer)]
    if isinstance(got, Failure):
        return [part.name, *wrap(str(got)), "", GIVEN, *example(cases[bad])]
    head = f"{part.name}: {name}"
    cause = recognize(part, i, bad, cases, found, expected)
    if isinstance(got, Exception):
        head = f"{part.name}: " + ("no result" if isinstance(got, TimeoutError) else "an error")
        return [head, *([*wrap(cause), ""] if cause else []), *trace(got, answer), "", GIVEN, *example(cases[bad])]
    cause = cause or suspect(part, i, cases, found, expected)
    if cause == NOT_FINITE:
        bad = next(k for k in range(len(cases)) if is_overflow(pick(found[k], i), pick(expected[k], i)))
        got, want = pick(found[bad], i), pick(expected[bad], i)
    shapes = []
    if got is not None and shape(got) != shape(want):
        shapes = [f"The shape is {shape(got)}; it has to be {shape(want)}.", ""]
    lines = [head, *shapes, *([*wrap(cause), ""] if cause else []), "The smallest case that shows it:"]
    given = dict(cases[bad])
    arguments = sum(map(differentiable, given.values()))
    if len(part.outputs) == 1 and 0 <= i - len(part.outputs) < arguments:
        given["cotangent"] = Draw(small=True)(*np.shape(pick(expected[bad], 0)))  # derivatives() draws the same
    return [*lines, *example(given | {"expected": want, "got": got})]


# ── calling an answer ─────────────────────────────────────────────────────────────────────────────


def outcomes(part: Part, answer: Callable, cases: list[dict[str, Any]]) -> list[tuple | Exception]:
    """Return the outcome of an answer in each case. One that takes too long in a case is not asked again."""
    found: list[tuple | Exception] = []
    for case in cases:
        late = found and isinstance(found[-1], TimeoutError)
        found.append(found[-1] if late else outcome(part, answer, case))
    return found


def outcome(part: Part, answer: Callable, case: dict[str, Any]) -> tuple | Exception:
    """Return an answer's outputs for the arguments, and their derivatives; or the exception that it raised."""
    arguments = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in case.items()}
    if part.order:
        arguments = {key: to_tensor(value) for key, value in arguments.items()}
    try:
        with time_limit(part.seconds), np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = part.call(answer, *arguments.values()) if part.call else answer(*arguments.values())
        outputs = list(unpack(part, result))
        for key, value in case.items():
            if isinstance(value, np.ndarray) and not np.array_equal(np.asarray(plain(arguments[key])), value):
                raise Failure(f"It writes into its argument {key}, which is the caller's. Compute with a new array.")
        return (*map(plain, outputs), *derivatives(outputs, [*arguments.values()], part.order))
    except (Exception, SystemExit) as error:
        return replace_exit(error)


def replace_exit(error: Exception | SystemExit) -> Exception:
    """Return the error itself, or one in the place of exit(), which would end the check without a word."""
    if not isinstance(error, SystemExit):
        return error
    return RuntimeError("exit() ends Python, and the check with it: remove it").with_traceback(error.__traceback__)


def unpack(part: Part, result: Any) -> Sequence[Any]:
    """Return the outputs in a result, after a look at their number and types."""
    count = len(part.outputs)
    if result is None:
        raise Failure("It returns None: is a `return` missing?")
    if count > 1 and (not isinstance(result, (tuple, list)) or len(result) != count):
        what = f"{len(result)} values" if isinstance(result, (tuple, list)) else f"one {type(result).__name__}"
        raise Failure(f"It returns {what}; it has to return {count}: {', '.join(part.outputs)}.")
    values = result if count > 1 else [result]
    for name, value in zip(part.outputs, values, strict=True):
        is_tensor = isinstance(value, Tensor)
        if part.order and not is_tensor:
            raise Failure(f"It returns {name} of type {type(value).__name__}; it has to be a minigrad tensor.")
        if not part.order and is_tensor:
            raise Failure(f"It returns {name} as a minigrad tensor; this stage is about NumPy arrays.")
        if not part.call and not isinstance(value, (Tensor, np.ndarray, np.generic, float)):
            raise Failure(f"It returns {name} of type {type(value).__name__}; it has to be an array.")
        if not part.call and np.asarray(plain(value)).dtype != np.float64:
            raise Failure(f"It returns {name} as {np.asarray(plain(value)).dtype}; it has to be float64.")
    return values


def derivatives(outputs: list[Tensor], arguments: list[Any], order: int) -> list[np.ndarray | None]:
    """Return the outputs' gradients for random cotangents, and the gradients of these; None where nothing arrives."""
    draw, found = Draw(small=True), []
    wanted = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    for _ in range(order):
        cotangents = [tensor(draw(*y.shape)) for y in outputs]
        recorded = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if recorded:
            ys, gs = zip(*recorded, strict=True)
            grads = grad_of(ys, wanted, gs, create_graph=True, allow_unused=True)
        else:
            grads = (None,) * len(wanted)
        found += [None if grad is None else plain(grad) for grad in grads]
        outputs = [zeros_like(x) if grad is None else grad for grad, x in zip(grads, wanted, strict=True)]
    return found


def gradients(f: Callable, g: np.ndarray | tuple[np.ndarray, ...], *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Pull cotangents of f back to its arguments; from NumPy to NumPy."""
    inputs = [tensor(a, requires_grad=True) for a in arrays]
    outputs = f(*inputs)
    cotangents = [tensor(np.asarray(v)) for v in (g if isinstance(g, tuple) else (g,))]
    return tuple(
        grad.numpy() for grad in grad_of(outputs, inputs, cotangents[0] if len(cotangents) == 1 else cotangents)
    )


def differentiable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def to_tensor(value: Any) -> Any:
    return tensor(value, requires_grad=differentiable(value)) if isinstance(value, np.ndarray) else value


def plain(value: Any) -> Any:
    return value.detach().numpy().copy() if isinstance(value, Tensor) else value


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body after so many seconds, where the system can interrupt it."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no result after {seconds:g} s: does a loop never end?")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ── comparing ─────────────────────────────────────────────────────────────────────────────────────


def pick(result: tuple | Exception, i: int) -> Any:
    return result if isinstance(result, Exception) else result[i]


def agree(a: list, b: list, i: int) -> bool:
    """Return whether an output is the same in all cases."""
    return all(same(pick(x, i), pick(y, i)) for x, y in zip(a, b, strict=True))


def same(a: Any, b: Any) -> bool:
    """Return whether two outputs, or two exceptions, are equal up to rounding."""
    if isinstance(a, Exception) or isinstance(b, Exception):
        return type(a) is type(b)
    if a is None or b is None:  # no gradient is a gradient of zeros
        return not np.any(a if b is None else b) if (a is None) != (b is None) else True
    try:
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
            return bool(np.array_equal(a, b))
        finite = b[np.isfinite(b)]
        scale = float(abs(finite).max()) if finite.size else 0.0
        return a.shape == b.shape and np.allclose(a, b, rtol=RTOL, atol=RTOL * scale + 1e-13, equal_nan=True)
    except ValueError:  # sequences without a common shape
        return bool(a == b)


def is_overflow(a: Any, b: Any) -> bool:
    """Return whether an output is not finite where the right one is."""
    return not isinstance(a, Exception) and not np.isfinite(a).all() and bool(np.isfinite(b).all())


def recognize(part: Part, i: int, bad: int, cases: list[dict], found: list, expected: list) -> str | None:
    """Return the foreseen mistake with the reader's output in every case that gets right what the answer gets right.

    Of several, the one that shares most outputs. Exceptions of one type are told apart by their words, and cases with
    an exception say nothing about the outputs there.
    """
    best, most = None, 0
    count = len(part.properties(cases[0]))
    got = pick(found[bad], i)
    worded = isinstance(got, Exception) and not isinstance(got, (RecursionError, TimeoutError))
    for message, mistake in ((message, answer) for message, answers in part.wrong.items() for answer in answers):
        there = pick(outcome(part, mistake, cases[bad]), i)
        if not same(there, got) or (worded and str(there) != str(got)):
            continue
        theirs = outcomes(part, mistake, cases)
        if isinstance(got, Exception):
            theirs = [b if isinstance(b, Exception) else a for a, b in zip(theirs, found, strict=True)]
        equal = [agree(theirs, found, j) for j in range(count)]
        if all(equal[: i + 1]) and not agree(theirs, expected, i) and sum(equal) > most:
            best, most = " ".join(message.split()), sum(equal)
    return best


def suspect(part: Part, i: int, cases: list[dict], found: list, expected: list) -> str | None:
    """Look for faults of any wrong output: cut off the tape, not finite, a multiple, a transpose, another's place."""
    pairs = [(pick(a, i), pick(b, i)) for a, b in zip(found, expected, strict=True)]
    if i >= len(part.outputs):
        name = part.properties(cases[0])[i].rpartition(" ")[2]
        return OFF_THE_TAPE.format(name, name) if any(a is None for a, _ in pairs) else PARTLY_OFF_THE_TAPE.format(name)
    pairs = [(np.asarray(a), np.asarray(b)) for a, b in pairs if not isinstance(a, Exception)]
    if any(a.dtype.kind != "f" or b.dtype.kind != "f" for a, b in pairs):
        return None
    if all(a.shape == b.T.shape and same(a, b.T) for a, b in pairs):
        return "It is the transpose of the right one."
    for j, name in enumerate(part.outputs):
        if j != i and all(same(pick(a, i), pick(b, j)) for a, b in zip(found, expected, strict=True)):
            return f"It is {name}. Are the values returned in the right order?"
    if "g" in cases[0]:
        ones = outcomes(part, part.right, [case | {"g": np.ones_like(case["g"])} for case in cases])
        if agree(found, ones, i):
            return "It is right only if the cotangent g is all ones: it does not depend on g."
    if any(is_overflow(a, b) for a, b in pairs):
        return NOT_FINITE
    if all(a.shape == b.shape for a, b in pairs):
        # One number is a multiple of any other, so that it says nothing.
        factors = [float(np.sum(a * b) / np.sum(b * b)) for a, b in pairs if np.count_nonzero(b) > 1]
        if len(factors) > 1 and all(same(a, b * factors[0]) for a, b in pairs):
            if factors[0] == 0:
                return "It is zero in every case."
            if same(factors[0], -1.0):
                return "Only its sign is wrong."
            return f"It is {factors[0]:.4g} times the right one, in every case."
    return None


# ── words ─────────────────────────────────────────────────────────────────────────────────────────


def wrap(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS)


def shape(value: Any) -> tuple[int, ...]:
    try:
        return np.shape(value)
    except ValueError:
        return ()


def example(case: dict[str, Any]) -> list[str]:
    """`name = value` in lines; an array's rows are below one another."""
    width = max(8, *map(len, case))
    return [line for name, value in case.items() for line in format_value(f"    {name:{width}} = ", value)]


def format_value(start: str, value: Any) -> list[str]:
    if isinstance(value, np.ndarray):
        text = np.array2string(value, precision=5, separator=", ", threshold=60, max_line_width=COLUMNS - len(start))
    elif isinstance(value, float):
        text = f"{value:.8g}"
    else:
        text = "nothing (no gradient)" if value is None else str(value)
    first, *rest = text.splitlines() or [""]
    return [f"{start}{first}", *(f"{'':{len(start)}}{line}".rstrip() for line in rest)]


def trace(error: Exception, answer: Any) -> list[str]:
    """Return the error with the lines that led to it in the reader's file, not in minigrad or in this check."""
    message = textwrap.wrap(f"{type(error).__name__}: {error}", COLUMNS - 4)
    return [*trace_lines(error, answer), *(f"    {line}" for line in message)]


def trace_lines(error: Exception, answer: Any) -> list[str]:
    """Return the lines of the reader's file that led to an error."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file_of(answer)]
    lines: list[str] = []
    for frame in own[:1] + [b for a, b in pairwise(own) if a.lineno != b.lineno][-6:]:  # a recursion only once
        lines.append(f"    line {frame.lineno}, in {frame.name}")
        code = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
        lines += [f"        {code}"[:COLUMNS]] if code else []
    return lines


def file_of(answer: Any) -> str | None:
    """Return the file, or the cell of a notebook, in which a function or class was written."""
    if inspect.isclass(answer):
        codes = [value.__code__ for value in vars(answer).values() if inspect.isfunction(value)]
        return codes[0].co_filename if codes else None
    code = getattr(answer, "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else None
