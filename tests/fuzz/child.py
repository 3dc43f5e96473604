"""Runs programs in this process, writes every line to a journal before it runs, and judges the outcome.

python -m fuzz.child JOURNAL first count only without    programs of these seeds
python -m fuzz.child JOURNAL lines                       the program on standard input
"""

import faulthandler
import gc
import json
import linecache
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from pathlib import Path

import numpy as np

import minigrad as mg
from fuzz import faults, helpers
from fuzz.lines import called
from fuzz.steps import Steps, public

LENGTH = 40  # lines per program
MEMORY = 1 << 30  # bytes of address space beyond what the imports take
GROWTH = 1 << 29  # bytes that a process may keep
# Errors that Python would raise too. Subclasses of these are judged by their own name.
ALLOWED = (TypeError, ValueError, IndexError, OverflowError, MemoryError, RuntimeError, BufferError, KeyError, AttributeError, OSError,
           StopIteration, NotImplementedError)  # fmt: skip
NEVER = (RecursionError, UnicodeError, ZeroDivisionError)
SOURCE = Path(__file__).parents[2]  # the root of Cython's file names
OWN = (os.path.dirname(mg.__file__), faults.__file__)
KEPT = (mg.Tensor, np.ndarray, list, tuple, dict, memoryview)
PATTERNS = (0xAB, 0x54, 0x5C, 0xA3)  # the fill patterns of memory in the two runs, see __main__


class Journal:
    def __init__(self, path):
        self.folder = os.path.dirname(path)
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, **entry):
        os.write(self.file, json.dumps(entry).encode() + b"\n")


def injected(error):
    """Whether the error, or one that caused it, comes from the program itself."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if "injected" in str(error.args):
            return True
        error = error.__cause__ or error.__context__
    return False


def judge(error):
    """Return what is wrong with an exception, or None."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name != "run"]
    inside = [f for f in frames if f.filename.startswith(OWN) or f.filename.endswith((".pyx", ".pxd", ".pxi"))]
    if not inside or injected(error) or frames[-1].filename == "<program>":
        return None  # Python's own, or that of a hostile object
    last, text = inside[-1], str(error)
    # A list in itself, or in a thousand others; a string that cannot be encoded; a hostile __repr__ or __str__.
    if any(words in text for words in ("repr of an object", "surrogates not allowed", "returned non-string")):
        return None
    place = f"{type(error).__name__} {os.path.basename(last.filename)}:{last.name.rpartition('.')[2]}"
    if not isinstance(error, ALLOWED) or isinstance(error, NEVER):
        return f"undocumented {place}"
    # Errors that the interpreter raises where minigrad unpacks, compares or calls something have its own messages.
    source = last.line or linecache.getline(str(SOURCE / last.filename), last.lineno).strip()
    if (
        frames[-1] is last
        and source.startswith("raise ")
        and not text.startswith(("[", "'[", '"['))  # a KeyError quotes its text
        and not isinstance(error, AttributeError)
    ):
        return f"without operation {place}"
    return None


def arrays(value, depth=2):
    """Return the memory of the tensors in a value as arrays."""
    if isinstance(value, mg.Tensor):
        yield np.asarray(value.detach().numpy())
    elif isinstance(value, (list, tuple)) and depth:
        for part in value[:20]:
            yield from arrays(part, depth - 1)


def unwritten(array):
    """Whether an element consists of the pattern of uninitialized or freed memory."""
    words = np.ascontiguousarray(array).view(f"u{array.itemsize}")
    return any((words == int.from_bytes(bytes([byte]) * array.itemsize, "little")).any() for byte in PATTERNS)


def memory(kind):
    """Return the bytes of address space (0) or memory (1) of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[kind]) * resource.getpagesize()


def keep(value):
    return (
        isinstance(value, KEPT)
        or str(type(value).__module__).startswith(("minigrad", "fuzz"))
        or hasattr(value, "__next__")
    )


class Runner:
    def __init__(self, journal):
        self.journal, self.entered, self.circular, self.resident = journal, False, False, memory(1)
        sys.unraisablehook = self.unraisable

    def unraisable(self, args):
        """Handle an unraisable exception: one that compiled code drops, naming the function, or one of a `__del__`."""
        frames = traceback.extract_tb(args.exc_traceback)
        if isinstance(args.object, str) or not (
            injected(args.exc_value) or any(f.filename == "<program>" for f in frames)
        ):
            self.find(f"unraisable {args.exc_type.__name__}", f"{args.object!r}: {args.exc_value!r}")

    def find(self, key, text=""):
        self.journal.write(finding=key, text=text)

    def step(self, line, variables):
        """Run a line."""
        target = line.split(" = ")[0].rpartition(" ")[2]
        try:
            exec(compile(line, "<program>", "exec"), variables)
        except BaseException as error:
            outcome = type(error).__name__
            # formats the message, which may fail too
            try:
                message = str(error)
                wrong = judge(error)
                if wrong:
                    self.find(wrong, "".join(traceback.format_exception(error))[-1500:])
            except BaseException as second:
                message = repr(second)
                # Python formats an error about a file with the methods of the path that it was given
                if type(getattr(error, "filename", None)) in (str, type(None)):
                    self.find(f"no message {type(error).__name__}")
            self.journal.write(raised=outcome, message=message[:300])
            return
        self.ended(line, target, variables)

    def ended(self, line, target, variables):
        digest, value = 0, variables.get(target)
        try:
            for array in arrays(value):
                if unwritten(array):
                    self.find(f"unwritten {called(line)}", repr(array)[:300])
                digest = zlib.crc32(np.ascontiguousarray(array), digest)
        except Exception:
            digest = 0  # a tensor without memory
        self.journal.write(digest=digest)
        if target in variables and target.startswith("v") and not keep(value):
            del variables[target]

    def run(self, lines):
        """Run a program; `lines` is a function of the variables that yields one line after another."""
        self.circular = False
        gc.collect()
        before = mg.memory_allocated()
        variables = {
            **{k: v for k, v in vars(helpers).items() if not k.startswith("__")},
            "np": np,
            "mg": mg,
            "nn": mg.nn,
        }
        variables["__builtins__"] = __builtins__
        os.chdir(tempfile.mkdtemp(dir=self.journal.folder))
        mg.manual_seed(0)
        mg.set_num_threads(2)
        for line in lines(variables):
            self.journal.write(line=line)
            self.entered |= ".__enter__(" in line  # a mode may stay on
            self.circular |= re.search(r"create_graph|backward\(.*True", line) is not None  # a documented cycle
            self.step(line, variables)
            if ".grad = " in line:  # A gradient with a history makes the same cycle.
                self.circular |= any(
                    isinstance(x, mg.Tensor) and x.grad is not None and not x.grad.is_leaf for x in variables.values()
                )
        variables.clear()
        del variables
        self.journal.write(line="pass  # the end of the program: everything is dropped")
        for pause in (0, 0, 0.1, 1):  # a prefetching thread takes a moment to end
            time.sleep(pause)
            gc.collect()
            if mg.memory_allocated() == before:
                break
        if mg.memory_allocated() != before and not (self.entered or self.circular):
            self.find("leak", f"{mg.memory_allocated() - before} bytes")
        if memory(1) > self.resident + GROWTH:
            self.find("memory", f"{memory(1) - self.resident} bytes")
            self.resident = memory(1)


def program(seed, targets, only, without):
    """Yield the lines of a seed, each chosen after the previous ones have run; none contains the pattern `without`."""

    def lines(variables):
        own = set(variables)
        rng = random.Random(seed)
        pool = {}
        steps = Steps(rng, pool, targets, bool(only))
        for _ in range(LENGTH):
            pool.clear()
            pool.update((name, value) for name, value in variables.items() if name not in own)
            line = steps.next()
            while without and re.search(without, line):
                line = steps.next()
            pool.clear()
            yield line

    return lines


def main(path, *arguments):
    faulthandler.enable()
    journal = Journal(path)
    runner = Runner(journal)
    targets = public()
    gc.collect()
    gc.freeze()  # later collections skip imported objects
    warnings.simplefilter("ignore")
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):  # The sanitizer reserves more than there is.
        resource.setrlimit(resource.RLIMIT_AS, (memory(0) + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if arguments[0] == "lines":
        given = sys.stdin.read().splitlines()
        journal.write(seed=-1)
        runner.run(lambda variables: given)
    else:
        first, count, (only, without) = int(arguments[0]), int(arguments[1]), arguments[2:]
        if only:
            targets.update({f"faults.{n}": getattr(faults, n) for n in faults.__all__})
            targets = {name: value for name, value in targets.items() if re.search(only, name)}
        for seed in range(first, first + count):
            journal.write(seed=seed)
            runner.run(program(seed, targets, only, without))
            if runner.entered or not mg.is_grad_enabled():
                break  # the next programs run in another process
    journal.write(done=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
