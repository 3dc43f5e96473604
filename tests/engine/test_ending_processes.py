"""Processes that end while loops are open and threads compute."""

import os
import signal
import textwrap

import pytest
from programs import forks, run

OPEN_LOOP = """
import multiprocessing, os, signal, sys, threading
import minigrad as mg
from minigrad import data

class Samples(data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, k):
        return x @ x

x = mg.ones((500, 500))
local = threading.local()

def begin():
    batches = iter(data.DataLoader(Samples(), prefetch=50))
    next(batches)
    return batches
"""

HELD = {
    "global": "batches = begin()",
    "cycle": "batches = [begin()]\nbatches.append(batches)\ndel batches",
    "thread-local": "local.batches = begin()",
    "another thread": "thread = threading.Thread(target=lambda: globals().update(batches=begin()))\n"
                      "thread.start()\nthread.join()",
    "several": "batches = [begin() for _ in range(3)]",
    "loop": "for _ in data.DataLoader(Samples(), prefetch=50):\n    END",
}  # fmt: skip
ENDS = {
    "end": ("pass", 0, ""),
    "exit": ("sys.exit(3)", 3, ""),
    "error": ("1 / 0", 1, "ZeroDivisionError"),
    # A job that a shell runs in the background ignores the signal.
    "interrupt": (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\nos.kill(os.getpid(), signal.SIGINT)",
        -signal.SIGINT,
        "KeyboardInterrupt",
    ),
    "_exit": ("os._exit(4)", 4, ""),
}


@pytest.mark.parametrize("held, end", [
    *[("global", end) for end in ENDS], *[(held, "end") for held in HELD if held not in ("global", "loop")],
    *[("loop", end) for end in ENDS if end != "end"],
])  # fmt: skip
def test_a_process_ends_with_a_prefetching_loop_open(held, end, tmp_path):
    last, code, error = ENDS[end]
    begun = HELD[held]
    program = OPEN_LOOP + (begun.replace("END", last) if held == "loop" else f"{begun}\n{last}\n")
    done = run(tmp_path, program)
    assert done.returncode == code, done.stderr
    assert error in done.stderr
    assert bool(done.stderr) == bool(error), done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_ends_with_a_prefetching_loop_open(method, tmp_path):
    if method == "fork" and not hasattr(os, "fork"):
        pytest.skip("this system does not fork")
    done = run(tmp_path, OPEN_LOOP + textwrap.dedent("""
        def work():
            globals().update(batches=begin())

        if __name__ == "__main__":
            process = multiprocessing.get_context("METHOD").Process(target=work)
            process.start()
            process.join()
            assert process.exitcode == 0, process.exitcode
    """).replace("METHOD", method))  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_end_waits_for_the_batch_that_is_being_made(tmp_path):
    done = run(tmp_path, """
        import time
        from minigrad import data

        class Samples(data.Dataset):
            def __len__(self):
                return 10

            def __getitem__(self, k):
                time.sleep(0.1)
                print(k, flush=True)
                return k

        batches = iter(data.DataLoader(Samples(), prefetch=5))
        next(batches)
    """)  # fmt: skip
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["0", "1"], "")


@pytest.mark.parametrize("blocks", ["time.sleep(3600)", "lock.acquire()"])
def test_nothing_waits_for_ever_for_a_sample_that_blocks(blocks, tmp_path):
    """Leaving a loop, collecting it as garbage, and exiting the process neither block nor wait twice."""
    done = run(tmp_path, """
        import threading, time
        from minigrad import data
        from minigrad.data import loader

        class Samples(data.Dataset):
            def __len__(self):
                return 10

            def __getitem__(self, k):
                if k == 1:
                    BLOCKS
                return k

        lock = threading.Lock()
        lock.acquire()
        class Maker(loader.Maker):
            def join(self, timeout=None):
                print("waits")
                super().join(timeout)

        loader.Maker, loader.PATIENCE = Maker, 0.1
        closed, dropped, kept = (iter(data.DataLoader(Samples(), prefetch=5)) for _ in range(3))
        for batches in (closed, dropped, kept):
            next(batches)
        del batches
        closed.close()
        print("closed")
        del dropped
        print("dropped")
    """.replace("BLOCKS", blocks), timeout=20)  # fmt: skip
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, "waits closed waits dropped waits".split(), "")


# Twenty forked children are faster than twenty interpreters, and exit in the same way.
DAEMON = """
import os, signal, sys, threading, time
import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F

mg.set_num_threads(2)
x = mg.random.normal(shape=(300, 300))
index = mg.arange(300) % 7

def elementwise():
    return lambda: (x * 2).exp()

def matmul():
    return lambda: x @ x

def backward():
    w = x.copy().requires_grad_()
    return lambda: (w @ w).exp().sum().backward()

def optimizer():
    model = nn.Linear(300, 300)
    F.cross_entropy(model(x), index).backward()
    return optim.Adam(model.parameters()).step

def indexing():
    return lambda: (x[index], x[:, index])

def loader():
    return lambda: list(data.DataLoader(data.ArrayDataset(x), 100, prefetch=2))

make = {STEP}
for k in range(20):
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        step = make()
        def work():
            while True:
                step()
        threading.Thread(target=work, daemon=True).start()
        time.sleep(1e-3 * k)
        sys.exit()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"child {k} ended with {os.waitstatus_to_exitcode(status)}"
"""


@forks
@pytest.mark.parametrize("step", ["elementwise", "matmul", "backward", "optimizer", "indexing", "loader"])
def test_a_process_ends_while_a_daemon_thread_computes(step, tmp_path):
    done = run(tmp_path, DAEMON.replace("{STEP}", step))
    assert (done.returncode, done.stderr) == (0, "")
