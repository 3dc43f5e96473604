"""Linear recurrences, beyond what the table of operations tests."""

import numpy as np
import pytest
from checks import array, near, refuses, tensor

import minigrad as mg

rng = np.random.default_rng(11)


def states(a, b, initial):
    """Compute every state, in float64."""
    found, state = [], initial
    for x, y in zip(a, b, strict=True):
        state = x * state + y
        found.append(state)
    return np.stack(found)


@pytest.mark.parametrize("shape", [(1000, 1), (1000, 130), (3, 1000), (65, 64), (20_000, 1), (3_001, 35)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-6), ("float64", 1e-14)])
def test_long_sequences(device, shape, dtype, tolerance):
    a, b, initial = rng.uniform(-1, 1, shape), rng.standard_normal(shape), rng.standard_normal(shape[1:])
    inputs = [tensor(x.astype(dtype), device, True) for x in (a, b, initial)]
    a, b, initial = (array(x).astype(float) for x in inputs)
    expected, g = states(a, b, initial), rng.standard_normal(shape)
    found = mg.linear_scan(*inputs)
    assert found.dtype == dtype
    later = np.concatenate([a[1:], np.zeros_like(a[:1])])
    delta = states(later[::-1], g[::-1], np.zeros(shape[1:]))[::-1]
    grads = mg.grad(found, inputs, tensor(g.astype(dtype), device))
    before = np.concatenate([initial[None], expected[:-1]])
    for x, e in zip((found, *grads), (expected, delta * before, delta, a[0] * delta[0]), strict=True):
        near(x, e, rtol=0, atol=tolerance * np.abs(e).max())


def test_a_sample_does_not_depend_on_its_batch(device):
    a, b = (tensor(rng.standard_normal((200, 37, 3)), device) for _ in range(2))
    alone = mg.linear_scan(a[:, 5], b[:, 5])
    assert array(mg.linear_scan(a, b)[:, 5]).tobytes() == array(alone).tobytes()
    rows = mg.linear_scan(a[:, :, 0].T, b[:, :, 0].T, axis=1)
    assert array(rows[5]).tobytes() == array(mg.linear_scan(a[:, 5, 0], b[:, 5, 0])).tobytes()


def test_every_layout_gives_the_same(device):
    a, b = (tensor(rng.standard_normal((6, 5, 4)), device, requires_grad=True) for _ in range(2))
    g = tensor(rng.standard_normal((6, 5, 4)), device)
    expected = mg.linear_scan(a, b)
    views = [x.permute_dims((2, 0, 1)).contiguous().permute_dims((1, 2, 0)) for x in (a, b, g)]
    found = mg.linear_scan(*views[:2])
    assert array(found).tobytes() == array(expected).tobytes()
    for x, y in zip(mg.grad(found, [a, b], views[2]), mg.grad(expected, [a, b], g), strict=True):
        assert array(x).tobytes() == array(y).tobytes()


def test_a_zero_state_survives_factors_whose_product_overflows(device):
    a, b = mg.full(600, 1e30, device=device), mg.zeros(600, device=device)
    b[-1] = 3.0
    assert mg.linear_scan(a, b)[-2:].tolist() == [0.0, 3.0]


def test_the_first_factor_is_unused_without_an_initial_state(device):
    a, b = tensor(np.array([np.nan, 2.0]), device, requires_grad=True), tensor(np.array([3.0, 1.0]), device)
    h = mg.linear_scan(a, b)
    assert h.tolist() == [3.0, 7.0]
    assert mg.grad(h, a, tensor(np.array([5.0, 4.0]), device)).tolist() == [0.0, 12.0]


def test_nan_and_infinity_reach_the_later_states(device):
    a, b = np.full(2000, 0.5), np.zeros(2000)
    b[900], a[1200] = np.inf, np.nan
    h = array(mg.linear_scan(tensor(a, device), tensor(b, device)))
    assert not h[:900].any()
    assert np.isinf(h[900:1200]).all()
    assert np.isnan(h[1200:]).all()


def test_an_infinite_factor_of_a_zero_state_is_nan(device):
    a, b = np.ones(40), np.zeros(40)
    a[5], b[9] = np.inf, 1.0
    for initial in (None, 0.0):
        h = array(mg.linear_scan(tensor(a, device), tensor(b, device), initial))
        assert not h[:5].any()
        assert np.isnan(h[5:]).all()


def test_integers_and_numbers(device):
    assert mg.linear_scan(2, mg.arange(4, device=device)).tolist() == [0.0, 1.0, 4.0, 11.0]
    assert mg.linear_scan(0.5, tensor(np.ones(2), device), mg.tensor(2, device=device)).dtype == "float64"


def test_errors(device):
    a, b = mg.ones((4, 3), device=device), mg.ones((4, 3), device=device)
    refuses(ValueError, "linear_scan", "do not broadcast", mg.linear_scan, a, b[:, :2])
    refuses(ValueError, "linear_scan", "initial to broadcast to (3,)", mg.linear_scan, a, b, mg.ones(4, device=device))
    refuses(ValueError, "linear_scan", "two numbers", mg.linear_scan, 1.0, 2.0)
    refuses(IndexError, "linear_scan", "got 2", mg.linear_scan, a, b, axis=2)
    refuses(TypeError, "linear_scan", "reverse", mg.linear_scan, a, b, reverse=1)
    refuses(TypeError, "linear_scan", "str", mg.linear_scan, a, "b")
