"""no_grad, enable_grad, inference_mode and detect_anomaly: blocks, decorators, threads and tasks."""

import asyncio
import threading

import numpy as np
import pytest
from checks import array, raises, refuses, tensor
from points import point

import minigrad as mg


def test_no_grad_and_enable_grad(device):
    x = point(device, 1)
    with mg.no_grad():
        assert not mg.is_grad_enabled()
        assert not (x * 2).requires_grad
        with mg.enable_grad():
            assert (x * 2).requires_grad
        assert not mg.is_grad_enabled()
    assert mg.is_grad_enabled()


def test_modes_end_with_an_exception_and_can_be_entered_again():
    mode = mg.no_grad()

    def nested():
        with mode:
            with mode:
                pass
            assert not mg.is_grad_enabled()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        nested()
    assert mg.is_grad_enabled()


def test_modes_as_decorators():
    @mg.no_grad()
    def f(n):
        """Count down."""
        assert not mg.is_grad_enabled()
        return g(n)

    @mg.enable_grad()
    def g(n):
        assert mg.is_grad_enabled()
        return f(n - 1) if n else 7

    assert f(3) == 7
    assert mg.is_grad_enabled()
    assert f.__name__ == "f"
    assert f.__doc__ == "Count down."


def test_modes_hold_in_the_steps_of_a_generator():
    @mg.no_grad()
    def generator(n):
        """Count up."""
        try:
            while n:
                assert not mg.is_grad_enabled()
                try:
                    n = (yield n) or n - 1
                except KeyError:
                    yield "caught" if not mg.is_grad_enabled() else "outside"
            return "end"
        finally:
            left.append(mg.is_grad_enabled())

    left = []
    assert generator.__doc__ == "Count up."
    for k, n in zip((3, 2, 1), generator(3), strict=True):
        assert k == n
        assert mg.is_grad_enabled()
    steps = generator(1)
    assert (next(steps), steps.send(5), steps.throw(KeyError()), mg.is_grad_enabled()) == (1, 5, "caught", True)
    steps.close()
    assert mg.is_grad_enabled()
    with pytest.raises(ZeroDivisionError):
        generator(1).throw(ZeroDivisionError)
    steps = generator(1)
    next(steps)
    with pytest.raises(ZeroDivisionError):
        steps.throw(ZeroDivisionError)
    steps = generator(1)
    next(steps)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == "end"
    assert left == [False] * 4
    assert mg.is_grad_enabled()


def test_modes_refuse_what_they_cannot_decorate():
    async def coroutine():
        pass

    async def asynchronous():
        yield

    for what in (coroutine, asynchronous, 3, int):
        refuses(TypeError, "no_grad", repr(what), mg.no_grad(), what)
    refuses(TypeError, "no_grad", "@no_grad()", mg.no_grad, coroutine)  # @no_grad without parentheses


def test_modes_belong_to_the_thread():
    mode, seen, inside = mg.no_grad(), [], threading.Barrier(4)

    def work(k):
        for _ in range(50):
            with mode:
                inside.wait()
                ok = not mg.is_grad_enabled()
            seen.append(ok and mg.is_grad_enabled())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    with mg.no_grad():
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert seen == [True] * 200


def test_a_mode_reaches_all_tasks_of_its_thread():
    async def waits():
        with mg.no_grad():
            await asyncio.sleep(0)

    async def main():
        task = asyncio.create_task(waits())
        await asyncio.sleep(0)
        inside = mg.is_grad_enabled()
        await task
        return inside, mg.is_grad_enabled()

    assert asyncio.run(main()) == (False, True)


def test_blocks_left_in_another_order_than_entered(device):
    """As generators do: a mode holds until its block is left, and the original mode returns with the last block."""

    def inside(mode):
        with mode:
            yield mg.is_grad_enabled()

    with mg.enable_grad():
        first, second = inside(mg.no_grad()), inside(mg.enable_grad())
        assert (next(first), next(second)) == (False, True)
        first.close()
        assert mg.is_grad_enabled()
        second.close()  # saw the mode that `first` had set
        assert mg.is_grad_enabled()
        first = inside(mg.no_grad())
        next(first)
        with mg.no_grad():
            first.close()
            assert not mg.is_grad_enabled()
        assert mg.is_grad_enabled()
        first = inside(mg.no_grad())
        next(first)
        with mg.detect_anomaly(), mg.enable_grad():
            del first
            assert mg.is_grad_enabled()
            with pytest.raises(mg.GradientError):
                mg.zeros(1, device=device, requires_grad=True).sqrt().backward()
        assert mg.is_grad_enabled()
    assert mg.is_grad_enabled()
    refuses(RuntimeError, "enable_grad", "not entered", mg.enable_grad().__exit__, None, None, None)
    assert mg.is_grad_enabled()


def test_detect_anomaly(device):
    x = tensor([0.0, 1.0], device, True)
    with mg.detect_anomaly():
        y = x.sqrt()
        raises(mg.GradientError, r"^\[sqrt\].*NaN or infinity.*\(2,\).*test_modes\.py:\d+", y.sum().backward)
        (x * 2).sum().backward()
    x.sqrt().sum().backward()
    assert np.isinf(array(x.grad)[0])
