"""recompute in several threads, and in the child of a fork."""

import faulthandler
import os
import threading
import time
from functools import partial

import numpy as np
import pytest
from checks import array, leaf
from threaded import in_threads

import minigrad as mg
from minigrad import nn


def test_random_numbers_of_other_threads():
    """Each thread's second run repeats its own numbers, whatever others draw meanwhile."""
    done = threading.Event()

    def draw():
        while not done.is_set():
            mg.random.uniform(shape=7)

    def work():
        for _ in range(50):
            x = mg.ones(1000, requires_grad=True)
            y = mg.recompute(nn.Dropout(0.5))(x)
            y.sum().backward()
            assert y.tolist() == x.grad.tolist()

    other = threading.Thread(target=draw)
    other.start()
    try:
        in_threads(work, work, work)
    finally:
        done.set()
        other.join()


def test_backward_in_another_thread(rng):
    x = leaf(*rng.standard_normal(3))
    in_threads(mg.recompute(lambda x: mg.recompute(mg.exp)(x) * x)(x).sum().backward)
    np.testing.assert_allclose(array(x.grad), np.exp(array(x)) * (1 + array(x)))


def test_two_threads_whose_second_runs_write_to_one_buffer():
    n = mg.zeros((), dtype="float64")

    def f(x):
        n.__iadd__(1)
        time.sleep(0.01)
        return x * n.copy()

    xs = [leaf(1.0), leaf(1.0)]
    results = [mg.recompute(f)(x) for x in xs]
    in_threads(*[y.backward for y in results])
    assert [x.grad.item() for x in xs] == [1, 2]
    assert n.item() == 2


def test_passes_of_two_threads(rng):
    for _ in range(20):
        a, b = leaf(*rng.standard_normal(3)), leaf(*rng.standard_normal(3))
        results = mg.recompute(lambda a, b: (mg.exp(a), mg.exp(b)))(a, b)
        in_threads(*[partial((y * 2).sum().backward, retain_graph=True) for y in results])
        for x in (a, b):
            np.testing.assert_allclose(array(x.grad), 2 * np.exp(array(x)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_fork_during_a_second_run():
    """The child ends the other thread's second run, and runs the function itself."""
    x, n = leaf(1.0, 2.0), mg.zeros(2, dtype="float64")
    calls, inside, done = [], threading.Event(), threading.Event()

    def f(x):
        calls.append(1)
        n.__iadd__(1)
        y = mg.exp(x) * (n * 1)
        if len(calls) == 2:
            inside.set()
            done.wait(20)
        return y

    y = mg.recompute(f)(x)
    n.copy_(mg.full(2, 5.0))
    thread = threading.Thread(target=lambda: mg.grad((y * 2).sum(), x, retain_graph=True))
    thread.start()
    inside.wait(10)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            faulthandler.dump_traceback_later(10, exit=True)
            before, g = n.tolist(), mg.grad(y.sum(), x)
            code = 0 if before == n.tolist() == [5, 5] and np.allclose(array(g), np.exp([1, 2])) else 2
        finally:
            os._exit(code)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
