"""Run several threads at once, and fresh interpreters."""

import os
import subprocess
import sys
import threading

from checks import agree

import minigrad as mg


def in_threads(*functions, names=None):
    """Run all at once, in threads of these names; exceptions are raised."""
    results, errors, start = [None] * len(functions), [], threading.Barrier(len(functions))

    def work(k):
        try:
            start.wait()
            results[k] = functions[k]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,), name=names and names[k]) for k in range(len(functions))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if errors:
        raise errors[0]
    return results


def python(code, **environment):
    """Return the output of a fresh interpreter."""
    folder = os.path.dirname(os.path.dirname(mg.__file__))
    path = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
    names = ("OMP_NUM_THREADS", "MINIGRAD_NUM_THREADS", "MINIGRAD_ISA")
    inherited = {k: v for k, v in os.environ.items() if k not in names}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, "PYTHONPATH": path, **environment}, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def same_for_all_threads(call):
    """`call()` returns arrays or tensors with the same bits for every number of the pool's threads."""
    before = mg.get_num_threads()
    try:
        found = [mg.set_num_threads(count) or call() for count in (1, 2, 3, 2)]
    finally:
        mg.set_num_threads(before)
    for other in found[1:]:
        agree(found[0], other)
