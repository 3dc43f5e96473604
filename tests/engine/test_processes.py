"""Processes: they exit whatever their threads are doing, and the child of a fork computes like its parent."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest

import minigrad as mg

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
# From Python 3.12 on, a process with threads, such as those of the pool, is warned when it forks.
QUIET = "-Wignore:This process:DeprecationWarning"


def run(folder, program, timeout=60):
    """Run a program in a separate interpreter, from a file, which spawned processes import."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(program))
    search = os.pathsep.join([os.path.dirname(os.path.dirname(mg.__file__)), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, QUIET, path],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


# ── forks ─────────────────────────────────────────────────────────────────────────────────────────

FORK = """
import contextlib, gc, multiprocessing, os, signal, sys, threading, time
import minigrad as mg
from minigrad import data, nn, optim
from minigrad.nn import functional as F

class Samples(data.Dataset):
    def __init__(self, pause):
        self.pause = pause

    def __len__(self):
        return 12

    def __getitem__(self, k):
        time.sleep(self.pause)
        return mg.full((3,), k)

def values(x):
    return x.detach().numpy().tobytes()

def compute():
    mg.manual_seed(0)
    found = [values(mg.tensor([1.0, 2.0]) * 3)]
    x = mg.random.normal(shape=(400, 400))
    found += [values(x.exp()), values(x @ x)]
    model = nn.Sequential(nn.Linear(400, 50), nn.LayerNorm(50), nn.ReLU(), nn.Linear(50, 10))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(x), mg.arange(400) % 10).backward()
        optimizer.step()
    found += [values(p) for p in model.parameters()]
    return found + [values(batch) for batch in data.DataLoader(Samples(0), 5, prefetch=2)]

def allocated():
    gc.collect()
    return mg.memory_allocated()

def in_child():
    signal.alarm(20)            # ends a child that waits for what never comes
    before = allocated()
    assert compute() == expected, "the child computes something else"
    assert allocated() == before, f"the child keeps {allocated() - before} bytes"

# Each begins something, and returns what ends it in the parent.

def again_and_again(step):
    ended = []
    def work():
        while not ended:
            step()
    thread = threading.Thread(target=work)
    thread.start()
    def end():
        ended.append(True)
        thread.join()
    return end

def nothing():
    return lambda: None

def kernel():
    x = mg.random.normal(shape=(1_000_000,))
    return again_and_again(lambda: mg.sort(x))

def pool():
    x = mg.random.normal(shape=(4_000_000,))
    return again_and_again(lambda: mg.exp(x))

def product():
    x = mg.random.normal(shape=(1000, 1000))
    return again_and_again(lambda: x @ x)

def small():
    return again_and_again(lambda: mg.tensor([1.0, 2.0]) * 3)

def backward():
    x = mg.random.normal(shape=(300, 300)).requires_grad_()
    y = (x @ x).exp().sum()
    return again_and_again(lambda: y.backward(retain_graph=True))

def loops():
    return again_and_again(lambda: list(data.DataLoader(Samples(0), prefetch=1)))

def death():
    entered, ended = threading.Event(), []
    class Slow:
        def __del__(self):
            entered.set()
            while not ended:
                time.sleep(1e-3)
    class Keep(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slow = Slow()
            return x * 1
    thread = threading.Thread(target=lambda: Keep.apply(mg.ones(3, requires_grad=True)) and None)
    thread.start()
    assert entered.wait(10)
    def end():
        ended.append(True)
        thread.join()
    return end

def loading():
    batches = iter(data.DataLoader(Samples(5e-3), 2, prefetch=2))
    next(batches)
    return batches.close

def profiled_elsewhere():
    entered, ended = threading.Event(), threading.Event()
    def work():
        with mg.profile():
            entered.set()
            ended.wait()
    thread = threading.Thread(target=work)
    thread.start()
    entered.wait()
    def end():
        ended.set()
        thread.join()
    return end

def profiled_here():
    profile = mg.profile()
    profile.__enter__()
    return lambda: profile.__exit__(None, None, None)

def three_threads():
    mg.set_num_threads(3)
    return lambda: None

if __name__ == "__main__":
    mg.set_num_threads(2)
    expected = compute()
    end = {STATE}()
    time.sleep(0.02)
    try:
        for _ in range(2):
            child = os.fork()
            if child == 0:
                in_child()
                sys.exit()
            assert compute() == expected, "the parent computes something else"
            status = os.waitpid(child, 0)[1]
            assert status == 0, f"the child of os.fork ended with {os.waitstatus_to_exitcode(status)}"
            process = multiprocessing.get_context("fork").Process(target=in_child)
            process.start()
            process.join()
            assert process.exitcode == 0, f"the child of multiprocessing ended with {process.exitcode}"
    finally:
        end()
    assert compute() == expected, "the parent computes something else"
"""


@forks
@pytest.mark.parametrize("state", [
    "nothing", "kernel", "pool", "product", "small", "backward", "loops", "death", "loading", "profiled_elsewhere",
    "profiled_here", "three_threads",
])  # fmt: skip
def test_fork_while(state, tmp_path):
    done = run(tmp_path, FORK.replace("{STATE}", state))
    assert done.returncode == 0, done.stderr


FORK_IN_A_LOOP = """
import os, signal, sys, threading, time
import minigrad as mg
from minigrad import data

class Samples(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, k):
        if k == {SLOW} and os.getpid() == parent:
            making.set()
            go_on.wait()
        return k

def go_on_with_it():
    assert first + [int(batch) for batch in batches] == list(range(10)), "the child's batches are not whole"
    assert loader.epoch == 1

def close():
    batches.close()

def drop():
    global batches
    del batches

def keep():
    pass

parent, making, go_on = os.getpid(), threading.Event(), threading.Event()
loader = data.DataLoader(Samples(), prefetch={DEPTH})
batches = iter(loader)
first = [int(next(batches)) for _ in range({USED})]
making.wait(10)
time.sleep(0.01)
try:
    for do in (go_on_with_it, close, drop, keep):
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            do()
            sys.exit()
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"{do.__name__}: the child ended with {os.waitstatus_to_exitcode(status)}"
finally:
    go_on.set()
assert first + [int(batch) for batch in batches] == list(range(10)), "the parent's batches are not whole"
"""


@forks
@pytest.mark.parametrize("used, slow, depth", [(1, 1, 1), (1, 3, 3), (4, 5, 2), (3, 9, 50)])
def test_a_prefetching_loop_goes_on_in_the_child(used, slow, depth, tmp_path):
    """Whatever the thread had made, was making or had not started: no batch is lost or repeated."""
    program = FORK_IN_A_LOOP
    for name, value in {"USED": used, "SLOW": slow, "DEPTH": depth}.items():
        program = program.replace("{" + name + "}", str(value))
    done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr


@forks
def test_a_profile_of_a_thread_that_is_not_in_the_child_ends_there(tmp_path):
    done = run(tmp_path, """
        import os, signal, threading
        import minigrad as mg

        def work():
            global profile
            with mg.profile() as profile:
                mg.ones(3).exp()
                begun.set()
                end.wait()

        begun, end = threading.Event(), threading.Event()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        mg.profile._lock.acquire()      # as another thread does that begins one
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            noted = len(profile.events)
            mg.ones(3).exp()
            assert len(profile.events) == noted
            with mg.profile() as another:
                mg.ones(3).exp()
            assert [event.op for event in another.events] == ["fill", "exp"]
            os._exit(0)
        mg.profile._lock.release()
        status = os.waitpid(child, 0)[1]
        mg.ones(3).exp()
        end.set()
        thread.join()
        assert [event.op for event in profile.events] == ["fill", "exp"] * 2
        assert status == 0, os.waitstatus_to_exitcode(status)
    """)  # fmt: skip
    assert done.returncode == 0, done.stderr


@forks
def test_a_profile_of_the_thread_that_forks_goes_on_in_the_child(tmp_path):
    done = run(tmp_path, """
        import os
        import minigrad as mg
        with mg.profile() as profile:
            mg.ones(3).exp()
            child = os.fork()
            mg.ones(3).exp()
        mg.ones(3).exp()
        assert [event.op for event in profile.events] == ["fill", "exp"] * 2
        if child:
            assert os.waitpid(child, 0)[1] == 0
    """)  # fmt: skip
    assert done.returncode == 0, done.stderr


@forks
def test_the_child_draws_the_numbers_of_its_parent(tmp_path):
    done = run(tmp_path, """
        import os
        import minigrad as mg
        reading, writing = os.pipe()
        child = os.fork()
        mine = mg.random.normal(shape=(3,)).numpy().tobytes()
        if child == 0:
            os.write(writing, mine)
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(reading, 100) == mine
    """)  # fmt: skip
    assert done.returncode == 0, done.stderr


# ── ends ──────────────────────────────────────────────────────────────────────────────────────────

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
