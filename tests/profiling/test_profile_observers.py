"""A profile observes all threads, alongside other observers, through errors and nested passes, and cleans up."""

import contextlib
import gc
import threading
import weakref
from collections import Counter

import pytest
from checks import doubling, named
from hearers import Hearer, told_to
from threaded import in_threads

import minigrad as mg
from minigrad.engine.memory import listener


def test_one_at_a_time():
    with mg.profile() as p:
        with pytest.raises(RuntimeError, match=r"\[profile\] expected no other profile to be active"), mg.profile():
            pass
        mg.ones(2).exp()  # the outer one continues
    assert "exp" in [event.kernel for event in p.events]
    with pytest.raises(RuntimeError, match=r"\[profile\] expected a new profile"), p:
        pass
    with mg.profile():
        pass


def test_a_profile_records_nothing_itself():
    """The numbering of nodes continues as if there had been no profile."""
    x = mg.ones(2, requires_grad=True)
    x.exp()  # makes the node of the leaf too
    before = x.exp()
    with mg.profile():
        mg.ones(2).exp()
    assert x.exp().tape()[-1]["sequence"] == before.tape()[-1]["sequence"] + 1


def test_an_error_in_the_block_ends_the_profile():
    p = mg.profile()

    def failing():
        with p:
            mg.ones(2).exp()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    seen = len(p.events)
    mg.ones(2).exp()
    assert seen == len(p.events) == 2
    assert listener.last_listener() is None


def test_an_error_in_a_kernel_or_in_backward_is_survived():
    broken = doubling("Broken", lambda ctx, g: 1 / 0)
    x = mg.ones(3, requires_grad=True)
    with mg.profile() as p:
        with pytest.raises(IndexError):
            mg.take(mg.ones(3), mg.tensor([5]))
        with pytest.raises(ZeroDivisionError):
            broken.apply(x).sum().backward()
        (x.exp() * x).sum().backward()
    assert named(p, "forward")[-3:] == [("exp", "exp"), ("multiply", "mul"), ("sum", "sum")]
    assert {op for op, _ in named(p, "backward")[-3:]} == {"multiply", "exp"}


def test_a_node_that_raised_is_left_when_the_next_pass_begins():
    """A loop that catches the error starts both passes from the same place, over one tape or over two."""

    def fail_once(ctx, g):
        if not raised:
            raised.append(True)
            raise ZeroDivisionError
        return g

    once = doubling("Once", fail_once, lambda ctx, x: x.detach())
    x, y = mg.ones(3, requires_grad=True), mg.ones(3, requires_grad=True)
    one, raising, other = mg.ones(()), once.apply(y.exp()).sin().sum(), x.tanh().sum()
    first = [("sin", "cos"), ("sin", "mul")]
    for second, after in ((raising, [*first, ("exp", "mul")]), (other, [("tanh", "tanh_grad")])):
        raised = []
        y.grad = None
        with mg.profile() as p:
            for loss in (raising, second):
                with contextlib.suppress(ZeroDivisionError):
                    loss.backward(one, retain_graph=True)
        assert named(p, "backward") == first + after
        assert len(raised) == 1


def test_passes_inside_a_backward_count_for_its_node():
    """Also over a tape that is older than the node."""
    z = mg.ones(3, requires_grad=True)
    older = z.tanh().sum()
    one = mg.ones(())

    def nest(ctx, g):
        mg.grad(older, [z], one, retain_graph=True)
        return g * g

    x = mg.ones(3, requires_grad=True)
    y = doubling("Nesting", nest, lambda ctx, x: x.detach()).apply(x.exp()).sum()
    with mg.profile() as p:
        y.backward(one)
    assert named(p, "backward") == [("Nesting", "tanh_grad"), ("Nesting", "mul"), ("exp", "mul")]


def test_threads():
    """The kernels of every thread are attributed to the operations of that thread."""
    w = mg.ones((30, 30), requires_grad=True)
    barrier = threading.Barrier(3)

    def run(function):
        barrier.wait()
        for _ in range(10):
            getattr(mg, function)(w @ w).sum().backward()

    threads = [threading.Thread(target=run, args=(function,)) for function in ("tanh", "exp", "sigmoid")]
    with mg.profile() as p:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({event.thread for event in p.events}) == 3
    for function in ("tanh", "exp", "sigmoid"):
        (ident,) = {event.thread for event in p.events if event.op == function}
        forward = Counter(e.op for e in p.events if e.thread == ident and e.phase == "forward")
        assert forward == {"matmul": 10, function: 10, "sum": 10}


def test_a_thread_that_outlives_the_profile_is_left_alone():
    go, seen = threading.Event(), threading.Event()

    def run():
        mg.ones(2, requires_grad=True).exp()
        seen.set()
        go.wait()
        mg.ones(2, requires_grad=True).exp()

    thread = threading.Thread(target=run)
    with mg.profile() as p:
        thread.start()
        seen.wait()
    events = len(p.events)
    go.set()
    thread.join()
    assert len(p.events) == events


def test_a_profile_that_saw_a_thread_is_freed():
    with mg.profile() as p:
        in_threads(lambda: mg.ones(2, requires_grad=True).exp())
    assert len({event.thread for event in p.events}) == 1
    gone = weakref.ref(p)
    del p
    gc.collect()
    assert gone() is None


def test_a_profile_is_heard_by_the_listener():
    with told_to(Hearer()) as hearer, mg.profile():
        mg.ones((), requires_grad=True).exp().backward()
        mg.ones(2).sin()
    assert hearer.heard == ["exp", "exp backward", "left", "leaf backward", "left"]
