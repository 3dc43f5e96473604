"""Threads that use the engine's shared state: the pool, OpenBLAS, random numbers, memory, the tape.

`make tsan` runs these on a build that reports every unordered pair of accesses; on any other build they check the
values. The threads of a test only read shared data, or hold a lock for it: callers must order concurrent writes into one
tensor themselves.
"""

import ctypes
import queue
import sys
import threading
import time

import numpy as np
import pytest
from threaded import in_threads, python

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim

LONG = (300, 400)  # enough elements for a kernel to release the GIL


@pytest.fixture(autouse=True)
def _restore_the_number_of_threads():
    before = mg.get_num_threads()
    yield
    mg.set_num_threads(before)


@pytest.fixture(autouse=True)
def _switch_often():
    """Let Python's threads take turns every ten microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def normal(*shape, seed=0, dtype=np.float32):
    return mg.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype))


def bits(*tensors):
    return [x.numpy().tobytes() for x in tensors]


# ── the pool ──────────────────────────────────────────────────────────────────────────────────────


def network(x, w):
    """Run products, norms of rows and columns, elementwise kernels and a loss, forward and backward."""
    w = w.detach().requires_grad_()
    y = mg.layer_norm(x @ w, w.shape[1])
    y = F.batch_norm(F.gelu(y), None, None, training=True)
    F.cross_entropy(y, mg.arange(x.shape[0]) % w.shape[1]).backward()
    return bits(y.detach(), w.grad)


def images(x, w):
    y = F.max_pool2d(F.conv2d(x, w, padding=1), 2)
    return bits(y, y.sum((0, 2, 3)), mg.sort(y, 3), y.cumulative_sum(axis=3))


def recurrent(x, rnn):
    with mg.no_grad():
        return bits(rnn(x)[0])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_that_want_the_pool_at_once(threads):
    """One thread gets the pool, the others compute alone, with the same bits."""
    mg.set_num_threads(threads)
    x, w = normal(300, 250), normal(250, 270, seed=1)
    pictures, filters = normal(16, 4, 24, 24), normal(8, 4, 3, 3, seed=1)
    sequence, rnn = normal(20, 16, 32), nn.LSTM(32, 32)
    calls = [lambda: network(x, w), lambda: images(pictures, filters), lambda: recurrent(sequence, rnn)]
    alone = [call() for call in calls]

    def work(first):
        for k in range(9):
            which = (first + k) % len(calls)
            assert calls[which]() == alone[which]

    in_threads(*[lambda k=k: work(k) for k in range(3)])


def test_the_number_of_threads_changes_while_others_compute():
    x, w = normal(300, 250), normal(250, 270, seed=1)
    expected, done = network(x, w), threading.Event()

    def change():
        for k in range(10**9):
            mg.set_num_threads(1 + k % 4)
            assert mg.get_num_threads() == 1 + k % 4
            time.sleep(1e-4)
            if done.is_set():
                return

    def work():
        try:
            for _ in range(15):
                assert network(x, w) == expected
        finally:
            done.set()

    in_threads(change, work, work)


def test_workers_that_fall_asleep_and_wake():
    """After these pauses, a worker still spins, has just gone to sleep, or sleeps."""
    mg.set_num_threads(3)
    x = normal(*LONG)
    expected = bits(x.exp())
    for pause in (0, 2e-5, 2e-4, 3e-4, 1e-3) * 12:
        time.sleep(pause)
        assert bits(x.exp()) == expected


FIRST_USE = """
import threading
import minigrad as mg
start = threading.Barrier(4, timeout=60)
results = []
def work(function):
    start.wait()
    results.append(function())
kinds = [lambda: mg.get_num_threads(), lambda: (mg.ones((300, 300)) @ mg.ones((300, 300))).sum().item(),
         lambda: mg.random.uniform(shape=(300, 300)).max().item(), lambda: mg.ones((300, 300)).exp().sum().item()]
threads = [threading.Thread(target=work, args=(kind,)) for kind in kinds]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(results))
"""


def test_threads_that_use_everything_first():
    assert python(FIRST_USE, MINIGRAD_NUM_THREADS="3") == "4"


# ── OpenBLAS ──────────────────────────────────────────────────────────────────────────────────────

LOADED_ONCE = """
import importlib.util, itertools, threading
import minigrad as mg
real, arrivals = importlib.util.find_spec, itertools.count()
both, loaded = threading.Barrier(2, timeout=60), threading.Event()
def find_spec(name):
    '''Both threads find that the library is to be loaded; the second has nothing left to load.'''
    mine = next(arrivals)
    both.wait()
    if mine == 0:
        return real(name)
    loaded.wait(60)
    return None
importlib.util.find_spec = find_spec
x, results = mg.ones((300, 300)), []
def work():
    results.append((x @ x).sum().item())
    loaded.set()
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(results)
"""


def test_two_threads_that_multiply_first_load_openblas_once():
    """If it were loaded again, it would change during the product that the first thread computes."""
    assert python(LOADED_ONCE) == str([300.0**3] * 2)


# ── random numbers ────────────────────────────────────────────────────────────────────────────────


def test_no_number_is_drawn_twice():
    n, rounds = 80_000, 6
    mg.manual_seed(5)
    expected = mg.random.uniform(shape=(3 * rounds * n,), dtype="float64").numpy()
    mg.manual_seed(5)

    def work():
        return [mg.random.uniform(shape=(n,), dtype="float64").numpy() for _ in range(rounds)]

    drawn = np.concatenate([numbers for found in in_threads(*[work] * 3) for numbers in found])
    np.testing.assert_array_equal(np.sort(drawn), np.sort(expected))


# ── memory ────────────────────────────────────────────────────────────────────────────────────────


def test_memory_that_one_thread_gives_back_and_another_takes():
    """Blocks pass from the kernels of one thread to those of another through the free lists or the system."""
    expected = [float(k) for k in range(40)]
    full = queue.SimpleQueue()

    def make():
        for k in range(40):
            full.put(mg.full(LONG, float(k)) * 1.0)
        full.put(None)

    def use():
        found = []
        while (x := full.get()) is not None:
            found.append((x + 0.0).max().item())
            del x
        return found

    def clear():
        for _ in range(40):
            mg.empty_cache()
            time.sleep(1e-4)

    in_use = mg.memory_allocated()
    assert in_threads(make, use, clear)[1] == expected
    assert mg.memory_allocated() == in_use


class Managed(ctypes.Structure):
    """The part of DLPack's DLManagedTensor that is needed to release it."""

    _fields_ = [
        ("tensor", ctypes.c_char * 48),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
    ]


def test_exports_given_back_without_the_gil():
    """Another library's threads release memory while ours allocates."""
    pointer, rename = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    rename.argtypes = [ctypes.py_object, ctypes.c_char_p]
    used = b"used_dltensor"  # the capsule keeps its address
    in_use = mg.memory_allocated()

    def work():
        for k in range(60):
            x = mg.full(LONG, float(k))
            capsule = x.__dlpack__()
            address = pointer(capsule, b"dltensor")
            rename(capsule, used)
            assert (x * 2).max().item() == 2 * k
            del x
            Managed.from_address(address).deleter(address)  # ctypes releases the GIL for it

    in_threads(*[work] * 3)
    assert mg.memory_allocated() == in_use


# ── the tape ──────────────────────────────────────────────────────────────────────────────────────


def test_graphs_that_die_in_another_thread():
    """When one thread frees a graph, nodes of others are freed too, and wait in the same list."""
    made = queue.SimpleQueue()
    w = normal(*LONG).requires_grad_()
    in_use = mg.memory_allocated()

    def make():
        for _ in range(25):
            y = w * 2.0
            for _ in range(4):
                y = y.tanh()
            made.put(y.sum())
            small = w[0, :3]
            for _ in range(50):
                small = small + 1.0
        made.put(None)

    def take():
        while (y := made.get()) is not None:
            del y

    in_threads(make, make, take, take)
    assert mg.memory_allocated() == in_use


def test_passes_over_one_graph_in_several_threads():
    x = normal(*LONG, dtype=np.float64).requires_grad_()
    y = (x * x).exp().sum()
    once = mg.grad(y, x, retain_graph=True)

    def work():
        for _ in range(5):
            g = mg.grad(y, x, retain_graph=True)
            assert bits(g) == bits(once)
            y.backward(retain_graph=True)

    in_threads(*[work] * 3)
    np.testing.assert_allclose(x.grad.numpy(), 15 * once.numpy(), rtol=1e-13)


# ── training ──────────────────────────────────────────────────────────────────────────────────────


def test_a_layer_whose_running_statistics_two_threads_update():
    """Each holds a lock for the layer; the rest of its pass runs concurrently with the other."""
    layer, alone, lock, x = nn.BatchNorm1d(LONG[1]), nn.BatchNorm1d(LONG[1]), threading.Lock(), normal(*LONG)
    for _ in range(20):
        alone(x)

    def work():
        for _ in range(10):
            with lock:
                y = layer(x)
            mg.grad(y.tanh().sum(), list(layer.parameters()))

    in_threads(work, work)
    assert layer.num_batches_tracked.item() == 20
    assert bits(layer.running_mean, layer.running_var) == bits(alone.running_mean, alone.running_var)


def test_a_model_evaluated_while_its_copy_is_trained():
    model = nn.Sequential(nn.Linear(200, 300), nn.LayerNorm(300), nn.ReLU(), nn.Dropout(0.1), nn.Linear(300, 10))
    frozen = nn.Sequential(nn.Linear(200, 300), nn.LayerNorm(300), nn.ReLU(), nn.Dropout(0.1), nn.Linear(300, 10))
    frozen.load_state_dict(model.state_dict())
    frozen.eval()
    x, labels = normal(256, 200), mg.arange(256) % 10
    expected = bits(frozen(x).detach())
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    def train():
        first = last = None
        for _ in range(15):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            first, last = first if first is not None else loss.item(), loss.item()
        assert last < first

    def evaluate():
        for _ in range(15):
            with mg.no_grad():
                assert bits(frozen(x)) == expected

    in_threads(train, evaluate, evaluate)
