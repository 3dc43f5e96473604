"""Python threads, the pool's threads, processes, and instruction sets all give the same numbers."""

import gc
import os
import threading
import time

import numpy as np
import pytest
from checks import raises, refuses
from threaded import in_threads, python, same_for_all_threads

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim
from minigrad.engine.ops.optimizer import grad_norm
from minigrad.optim.adam import RULE


@pytest.fixture(autouse=True)
def _restore_threads():
    before = mg.get_num_threads()
    yield
    mg.set_num_threads(before)


# ── Python threads ────────────────────────────────────────────────────────────────────────────────


def trained(seed):
    """Return the parameters after some steps of a small network, as bytes."""
    rng = np.random.default_rng(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 10))
    for p in model.parameters():
        with mg.no_grad():
            p.copy_(rng.standard_normal(p.shape, dtype=np.float32) * 0.1)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(60):
        x, y = mg.tensor(rng.standard_normal((128, 64), dtype=np.float32)), mg.tensor(rng.integers(0, 10, 128))
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


@pytest.mark.parametrize("threads", [1, 2])
def test_two_models_trained_at_once(threads):
    mg.set_num_threads(threads)
    alone = [trained(0), trained(1)]
    assert alone[0] != alone[1]
    assert in_threads(lambda: trained(0), lambda: trained(1)) == alone


@pytest.mark.parametrize("size", [1000, 500_000])
def test_a_leaf_shared_by_threads(size):
    """Passes over different graphs that share a leaf lose no gradient, even if the addition releases the GIL."""
    x = mg.zeros(size, dtype="float64", requires_grad=True)

    def work():
        for _ in range(20):
            (x * 2).sum().backward()

    in_threads(*[work] * 4)
    np.testing.assert_array_equal(x.grad.numpy(), np.full(size, 160.0))


@pytest.mark.parametrize("n", [2, 3])
@pytest.mark.parametrize("kind", ["backward", "grad"])
def test_passes_over_the_graphs_of_each_other(kind, n):
    """Each of n threads runs a pass over its own graph, and in a hook of that one over the graph of the next thread."""
    leaves = [mg.tensor([1.0, 2.0], requires_grad=True) for _ in range(n)]
    results, everyone, inner = [], threading.Barrier(n, timeout=10), [None] * n

    def hook(k):
        if threading.current_thread().name != str(k) or inner[k] is not None:
            return
        inner[k] = "begun"
        everyone.wait()  # from here on, each is in the middle of a pass over its graph
        other = (k + 1) % n
        if kind == "grad":
            inner[k] = mg.grad(results[other], leaves[other], retain_graph=True)
        else:
            results[other].backward(retain_graph=True)
        everyone.wait()

    for k, x in enumerate(leaves):
        y = x * 2
        y.register_hook(lambda g, k=k: hook(k))
        results.append(y.exp().sum())
    in_threads(*[lambda y=y: y.backward(retain_graph=True) for y in results], names=[str(k) for k in range(n)])
    once = 2 * np.exp(2 * np.array([1.0, 2.0]))
    for k, x in enumerate(leaves):
        np.testing.assert_allclose(x.grad.numpy() / once, [2, 2] if kind == "backward" else [1, 1], rtol=1e-6)
        if kind == "grad":
            np.testing.assert_allclose(inner[k].numpy() / once, [1, 1], rtol=1e-6)


def test_a_pass_does_not_free_what_another_has_yet_to_visit():
    """The hook of one pass waits for a pass of another thread over the same graph, which does not retain it."""
    x = mg.tensor([1.0, 2.0], requires_grad=True)
    doubled = x * 2
    y = doubled.exp().sum()
    inner = threading.Thread(target=lambda: doubled.sum().backward())

    def hook(g):
        if threading.current_thread() is not inner:
            inner.start()
            inner.join(20)

    doubled.register_hook(hook)
    y.backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 + 2 * np.exp([2.0, 4.0]), rtol=1e-6)
    raises(mg.GradientError, "freed by an earlier backward", y.backward)


def test_tapes_are_freed_while_a_del_of_another_thread_runs():
    entered, go_on = threading.Event(), threading.Event()

    class Slow:
        def __del__(self):
            entered.set()
            go_on.wait(10)

    class Keep(mg.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.slow = Slow()
            return x * 1

    thread = threading.Thread(target=lambda: (Keep.apply(mg.ones(3, requires_grad=True)), None)[1])
    thread.start()
    assert entered.wait(10)
    try:
        gc.collect()  # Other tests have left garbage.
        before = mg.memory_allocated()
        x = mg.ones(1000, requires_grad=True)
        for _ in range(100):
            x = x * 2
        del x
        assert mg.memory_allocated() == before
    finally:
        go_on.set()
        thread.join()


def test_hammering_small_operations():
    def work():
        total = mg.zeros(3)
        for k in range(3000):
            total = (total + k) * 1.0
            if k % 100 == 0:
                mg.empty_cache()
        return total.tolist()

    assert in_threads(*[work] * 4) == [[sum(range(3000))] * 3] * 4


def test_long_kernels_release_the_gil():
    mg.set_num_threads(1)
    a = mg.ones((1800, 1800), dtype="float64")
    ratios = []
    for _ in range(4):  # another process may occupy the cores briefly
        done, longest, began = threading.Event(), 0.0, time.perf_counter()

        def work(done=done):
            a @ a
            done.set()

        worker = threading.Thread(target=work)
        worker.start()
        last = time.perf_counter()
        while not done.is_set():
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            time.sleep(0)
        worker.join()
        ratios.append(longest / (time.perf_counter() - began))
        if ratios[-1] < 0.5:
            return
    pytest.fail(f"the longest wait for the interpreter was {ratios} of the kernel's time")


# ── the pool's threads ────────────────────────────────────────────────────────────────────────────


def random(*shape, dtype=np.float32, seed=0):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def differentiated(f, *xs):
    xs = [x.requires_grad_() for x in xs]
    y = f(*xs)
    c = random(*y.shape, seed=9).to(y.dtype)
    return (y.detach(), *mg.grad(y, xs, c))


def adam():
    p, g = [random(1000, 70), random(3)], [random(1000, 70, seed=1), random(3, seed=2)]
    m, v = [mg.zeros_like(x) for x in p], [mg.zeros_like(x) for x in p]
    RULE(p, g, [m, v, None], 1e-2, 1e3**0.5, 1e-8, 0.9, 0.999, 0.1, 0.001, 0.0, 0.9999, False)
    return (*p, *m, *v)


def drawn(f):
    mg.manual_seed(3)
    return (f(),)


LABELS = np.random.default_rng(1).integers(0, 50, 4000)
INDEX = np.random.default_rng(2).integers(0, 700, 5000)
KERNELS = {
    "add": lambda: differentiated(mg.add, random(300, 500), random(500, seed=1)),
    "divide": lambda: differentiated(mg.divide, random(300, 500), random(300, 1, seed=1).exp()),
    "exp": lambda: differentiated(mg.exp, random(200_003)),
    "exp float64": lambda: differentiated(mg.exp, random(100_003, dtype=np.float64)),
    "gelu": lambda: differentiated(F.gelu, random(333, 500).T),
    "tanh": lambda: differentiated(mg.tanh, random(333, 500)),
    "where": lambda: (mg.where(random(333, 500) > 0, random(333, 500, seed=1), 0.0),),
    "sum": lambda: differentiated(mg.sum, random(301, 707)),
    "sum rows": lambda: differentiated(lambda x: mg.sum(x, 1), random(301, 707)),
    "sum columns": lambda: differentiated(lambda x: mg.sum(x, 0), random(301, 707)),
    "max": lambda: differentiated(lambda x: mg.max(x, 0), random(301, 707)),
    "argmax": lambda: (mg.argmax(random(301, 707), 1), mg.argmax(random(301, 707))),
    "var": lambda: differentiated(lambda x: mg.var(x, 0), random(301, 707)),
    "var all": lambda: differentiated(mg.var, random(301, 707)),
    "cumulative_sum of rows": lambda: differentiated(lambda x: mg.cumulative_sum(x, axis=1), random(301, 707)),
    "cumulative_sum": lambda: differentiated(lambda x: mg.cumulative_sum(x, axis=0), random(301, 707)),
    "matmul": lambda: differentiated(mg.matmul, random(301, 257), random(257, 333, seed=1)),
    "matmul transposed": lambda: differentiated(lambda a, b: a.T @ b.T, random(257, 301), random(333, 257, seed=1)),
    "matmul batched": lambda: differentiated(mg.matmul, random(8, 65, 33), random(8, 33, 70, seed=1)),
    "matmul large": lambda: differentiated(mg.matmul, random(700, 600), random(600, 800, seed=1)),
    "linear": lambda: differentiated(F.linear, random(128, 300), random(200, 300, seed=1), random(200, seed=2)),
    "layer_norm": lambda: differentiated(
        lambda x, w, b: F.layer_norm(x, 96, w, b), random(3001, 96), random(96, seed=1), random(96)
    ),
    "conv2d": lambda: differentiated(F.conv2d, random(33, 6, 12, 12), random(16, 6, 5, 5, seed=1), random(16, seed=2)),
    "conv2d of one sample": lambda: differentiated(
        lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=2), random(1, 64, 29, 31), random(48, 32, 3, 3, seed=1)
    ),
    "max_pool2d": lambda: differentiated(lambda x: F.max_pool2d(x, 2), random(64, 6, 25, 24)),
    "max_pool2d overlapping": lambda: differentiated(lambda x: F.max_pool2d(x, 3, 2, 1), random(64, 6, 25, 24)),
    "avg_pool2d": lambda: differentiated(lambda x: F.avg_pool2d(x, 3, 2, 1), random(64, 6, 25, 24)),
    "softmax": lambda: differentiated(F.softmax, random(3001, 50)),
    "log_softmax": lambda: differentiated(F.log_softmax, random(3001, 50)),
    "logsumexp": lambda: differentiated(lambda x: mg.logsumexp(x, 1), random(3001, 50)),
    "cross_entropy": lambda: differentiated(lambda x: F.cross_entropy(x, mg.tensor(LABELS)), random(4000, 50)),
    "take": lambda: differentiated(lambda x: mg.take(x, mg.tensor(INDEX), axis=0), random(700, 40)),
    "sort": lambda: differentiated(mg.sort, random(500, 300)),
    "adam": adam,
    "grad_norm": lambda: (grad_norm([random(1000, 333), random(77)]),),
    "uniform": lambda: drawn(lambda: mg.random.uniform(shape=(200_001,))),
    "normal": lambda: drawn(lambda: mg.random.normal(shape=(200_001,))),
    "normal float64": lambda: drawn(lambda: mg.random.normal(shape=(100_001,), dtype="float64")),
    "randint": lambda: drawn(lambda: mg.random.randint(0, 1000, (200_001,))),
    "dropout": lambda: drawn(lambda: F.dropout(random(200_001), 0.3, True)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_same_bits_for_any_number_of_threads(name):
    same_for_all_threads(KERNELS[name])


def test_set_num_threads():
    mg.set_num_threads(3)
    assert mg.get_num_threads() == 3
    for bad in (0, -1, 1025, 10**6, 2**31, 2**32 + 1, 2**40, 10**30, -(10**30)):
        raises(ValueError, rf"^\[set_num_threads\] expected 1 to 1,024, got {bad}$", mg.set_num_threads, bad)
    for bad in (True, False, 1.5, 1.0, "4", b"4", None, [4], np.array([4, 4]), np.bool_(True), 1j):
        refuses(TypeError, "set_num_threads", "expected an integer, got ", mg.set_num_threads, bad)
    assert mg.get_num_threads() == 3
    for good in (np.int64(1), 1024, 2):
        mg.set_num_threads(good)
        assert mg.get_num_threads() == good


THREADS = "import minigrad as mg; print(mg.get_num_threads())"


@pytest.mark.parametrize("environment, expected", [
    ({"OMP_NUM_THREADS": "3"}, 3), ({"MINIGRAD_NUM_THREADS": "5"}, 5),
    ({"MINIGRAD_NUM_THREADS": "2", "OMP_NUM_THREADS": "7"}, 2), ({"MINIGRAD_NUM_THREADS": "x"}, None),
    ({"MINIGRAD_NUM_THREADS": "0", "OMP_NUM_THREADS": "4"}, 4), ({"MINIGRAD_NUM_THREADS": str(10**30)}, 1024),
    ({}, None),
], ids=str)  # fmt: skip
def test_threads_of_the_environment(environment, expected):
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert int(python(THREADS, **environment)) == (expected or cores)


ONE_CORE = """
import os
import minigrad as mg
mg.set_num_threads(2)
x = mg.random.normal(shape=(512, 512))
mg.exp(x)
core = min(os.sched_getaffinity(0))
threads = [int(name) for name in os.listdir("/proc/self/task")]
for thread in threads:
    os.sched_setaffinity(thread, {core})
for _ in range(300):        # a worker is woken on the core of its caller: there is no other
    mg.exp(x)
print(len(threads) > 1, all(os.sched_getaffinity(thread) == {core} for thread in threads))
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system does not tell the threads of a process")
def test_workers_stay_on_the_cores_they_are_given():
    assert python(ONE_CORE) == "True True"


CROWDED = """
import os, signal, subprocess, sys, time
cores = sorted(os.sched_getaffinity(0))[:2]
os.sched_setaffinity(0, cores)
import minigrad as mg

def work():
    mg.manual_seed(0)
    x = mg.random.normal(shape=(500, 500)).requires_grad_()
    (mg.layer_norm(x @ x, 500).exp()).sum().backward()
    return x.grad.numpy().tobytes()

def started():
    return len(os.listdir("/proc/self/task")) - others

mg.set_num_threads(2)
others, deadline = 0, time.monotonic() + 60
others = started()
before = work()
spin = f"import os\\nwhile os.getppid() == {os.getpid()}: pass"
spinning = [subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for _ in cores]
try:
    while started() < 4 and time.monotonic() < deadline:
        assert work() == before
    print(started())              # workers for one place
    for threads in (3, 1, 4, 2):
        mg.set_num_threads(threads)
        for _ in range(5):
            assert work() == before, f"{threads} threads computed something else"
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(work() != before)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
finally:
    for process in spinning:
        process.kill()
time.sleep(0.6)                   # nobody spins any more: one worker again, the others leave when they are woken
for _ in range(20):
    assert work() == before
print("same")
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system does not tell the threads of a process")
def test_workers_take_turns_beside_threads_that_spin():
    assert python(CROWDED).split() == ["4", "same"]


FORK = """
import os, sys
import minigrad as mg
mg.set_num_threads(2)
def work():
    mg.manual_seed(0)
    x = mg.random.normal(shape=(500, 500)).requires_grad_()
    (mg.layer_norm(x @ x, 500).exp()).sum().backward()
    return x.grad.numpy().tobytes()
before = work()
for _ in range(3):
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if work() == before else 5)
        ok = os.waitpid(grandchild, 0)[1] == 0 and work() == before
        os._exit(0 if ok else 3)
    assert work() == before
    assert os.waitpid(child, 0)[1] == 0, "the child computed something else"
print("same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fork():
    assert python(FORK) == "same"


FORK_DURING_A_PASS = """
import os, signal, threading
import minigrad as mg
x = mg.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
doubled = x * 2
tail = doubled.exp().sum()
y = tail + (x * x).sum()        # made last, visited first: x holds a part of its gradient when the hook is called
inside, go_on, parent = threading.Event(), threading.Event(), os.getpid()
def hook(g):
    if os.getpid() == parent:
        inside.set()
        go_on.wait()
doubled.register_hook(hook)
other = threading.Thread(target=y.backward, kwargs={"retain_graph": True})
other.start()
inside.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)        # kills a child that waits for the thread it does not have
    found = mg.grad(y, x, retain_graph=True).tolist()
    y.backward()
    os._exit(0 if found == x.grad.tolist() == (2 * (2 * x).exp() + 2 * x).tolist() else 3)
status = os.waitpid(child, 0)[1]
go_on.set()
other.join()
print(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_during_the_pass_of_another_thread():
    assert python(FORK_DURING_A_PASS) == "0"


FORK_DURING_AN_ADDITION = """
import os, signal, threading
import minigrad as mg
x, stop = mg.zeros(2_000_000, requires_grad=True), threading.Event()
def work():
    while not stop.is_set():
        x.backward(mg.ones_like(x))
other = threading.Thread(target=work)
other.start()
children = []
for _ in range(20):         # the other thread adds to x.grad most of the time
    children.append(os.fork())
    if children[-1] == 0:
        signal.alarm(20)    # kills a child that waits for the thread it does not have
        x.backward(mg.ones_like(x))
        os._exit(0)
stop.set()
other.join()
print({os.waitpid(child, 0)[1] for child in children})
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_while_another_thread_adds_to_a_gradient():
    assert python(FORK_DURING_AN_ADDITION) == "{0}"
