"""Processes: they exit whatever their threads are doing, and the child of a fork computes like its parent."""

import pytest
from programs import forks, run

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
