"""Initializations: distributions, shapes, errors, and PyTorch's gains."""

import math

import numpy as np
import pytest
from checks import array as values
from checks import raises, refuses

import minigrad as mg
from minigrad import nn
from minigrad.nn import init


@pytest.fixture(autouse=True)
def _seed():
    mg.manual_seed(0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_and_normal(dtype, device):
    x = mg.empty((100, 200), dtype=dtype, requires_grad=True, device=device)
    assert init.uniform_(x, -2, 3) is x
    assert (values(x).min(), values(x).max()) == pytest.approx((-2, 3), abs=0.01)
    assert values(x).mean() == pytest.approx(0.5, abs=0.05)
    init.normal_(x, 1.0, 2.0)
    assert (values(x).mean(), values(x).std()) == pytest.approx((1.0, 2.0), abs=0.05)
    assert x.requires_grad
    assert x.is_leaf
    assert x.dtype == dtype
    assert x.device == device


def test_constants(device):
    x = mg.empty((2, 3), requires_grad=True, device=device)
    assert init.zeros_(x) is x
    assert x.tolist() == np.zeros((2, 3)).tolist()
    assert init.ones_(x).tolist() == np.ones((2, 3)).tolist()
    assert init.constant_(x, 2.5).tolist() == np.full((2, 3), 2.5).tolist()
    assert init.eye_(x).tolist() == np.eye(2, 3).tolist()


@pytest.mark.parametrize("shape, fan_in, fan_out", [((300, 200), 200, 300), ((60, 50, 3, 2), 300, 360)])
def test_variances(shape, fan_in, fan_out, device):
    x = mg.empty(shape, device=device)
    for fill, std in (
        (lambda: init.xavier_uniform_(x), math.sqrt(2 / (fan_in + fan_out))),
        (lambda: init.xavier_normal_(x, gain=3.0), 3 * math.sqrt(2 / (fan_in + fan_out))),
        (lambda: init.kaiming_uniform_(x, a=math.sqrt(5)), 1 / math.sqrt(3 * fan_in)),
        (lambda: init.kaiming_normal_(x, nonlinearity="relu"), math.sqrt(2 / fan_in)),
        (lambda: init.kaiming_uniform_(x, mode="fan_out", nonlinearity="tanh"), 5 / 3 / math.sqrt(fan_out)),
        (lambda: init.kaiming_normal_(x, mode="fan_out", nonlinearity="linear"), 1 / math.sqrt(fan_out)),
    ):  # fmt: skip
        assert fill() is x
        assert values(x).std() == pytest.approx(std, rel=0.03)
        assert abs(values(x).mean()) < 0.05 * std


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 3, 0)], ids=str)
def test_nothing_to_fill(shape, device):
    x, state = mg.empty(shape, device=device, requires_grad=True), mg.random.get_state()
    for fill in (
        init.xavier_uniform_, init.xavier_normal_, init.kaiming_uniform_, init.kaiming_normal_, init.orthogonal_,
    ):  # fmt: skip
        assert fill(x) is x
    for mode in ("fan_in", "fan_out"):
        assert init.kaiming_uniform_(x, mode=mode) is init.kaiming_normal_(x, mode=mode) is x
    assert x.shape == shape
    assert mg.random.get_state() == state
    refuses(ValueError, "kaiming_normal_", "expected mode", init.kaiming_normal_, x, mode="fan")


@pytest.mark.parametrize("layer, shape, fan_in", [
    (lambda **o: nn.Linear(400, 300, **o), (300, 400), 400),
    (lambda **o: nn.Conv2d(8, 256, (3, 5), groups=2, **o), (256, 4, 3, 5), 60),
])  # fmt: skip
def test_layers_draw_their_weights_as_pytorchs(layer, shape, fan_in, device):
    made, bound = layer(device=device), 1 / math.sqrt(fan_in)
    for parameter, expected in ((made.weight, shape), (made.bias, shape[:1])):
        assert (parameter.shape, parameter.device) == (expected, device)
        assert np.abs(values(parameter)).max() <= bound
        assert values(parameter).std() == pytest.approx(bound / math.sqrt(3), rel=0.1)
        assert abs(values(parameter).mean()) < 0.1 * bound
    assert layer(bias=False, device=device).bias is None
    assert layer(device=device, dtype="float64").weight.dtype == "float64"


def test_uniform_bounds(device):
    x = init.kaiming_uniform_(mg.empty((300, 200), device=device))
    assert np.abs(values(x)).max() == pytest.approx(math.sqrt(6 / 200), rel=0.01)
    assert np.abs(values(x)).max() <= math.sqrt(6 / 200)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mean, std, a, b", [
    (0, 1, -2, 2), (1, 0.5, -2, 2), (0, 1, 0.5, 9), (0, 10, -1, 1), (3, 1, 5, 5.5),
])  # fmt: skip
def test_trunc_normal(mean, std, a, b, dtype, device):
    stats = pytest.importorskip("scipy.stats")
    x = values(init.trunc_normal_(mg.empty(20000, dtype=dtype, device=device), mean, std, a, b)).astype(np.float64)
    assert x.min() >= a
    assert x.max() <= b
    exact = stats.truncnorm((a - mean) / std, (b - mean) / std, mean, std)
    assert stats.kstest(x, exact.cdf).pvalue > 1e-3


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4), (4, 3, 2), (2, 3, 4)])
def test_orthogonal(shape, device):
    q = values(init.orthogonal_(mg.empty(shape, dtype="float64", device=device), gain=2.0)).reshape(shape[0], -1)
    small = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


def test_orthogonal_has_no_preferred_sign(device):
    signs = [values(init.orthogonal_(mg.empty((1, 2), device=device)))[0, 0] > 0 for _ in range(60)]
    assert 10 < sum(signs) < 50


def test_seed_decides(device):
    for name in ("uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_"):
        found = []
        for seed in (1, 1, 2):
            mg.manual_seed(seed)
            found.append(getattr(init, name)(mg.empty((3, 4), device=device)).tolist())
        assert found[0] == found[1] != found[2]


def test_gains_are_pytorchs():
    torch = pytest.importorskip("torch")
    for name in ("linear", "conv2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"):
        assert init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert init.calculate_gain("leaky_relu", 0.3) == torch.nn.init.calculate_gain("leaky_relu", 0.3)


@pytest.mark.parametrize("fill", [
    lambda: init.uniform_(mg.empty(2), 1.0, 0.0), lambda: init.uniform_(mg.empty(2), math.nan, 0.0),
    lambda: init.normal_(mg.empty(2), 0.0, -1.0), lambda: init.trunc_normal_(mg.empty(2), 0.0, 0.0),
    lambda: init.trunc_normal_(mg.empty(2), a=1.0, b=1.0), lambda: init.eye_(mg.empty(2)),
    lambda: init.xavier_uniform_(mg.empty(2)), lambda: init.xavier_normal_(mg.empty(2)),
    lambda: init.kaiming_uniform_(mg.empty(2)), lambda: init.kaiming_normal_(mg.empty((2, 2)), mode="fan"),
    lambda: init.kaiming_normal_(mg.empty((2, 2)), nonlinearity="step"), lambda: init.orthogonal_(mg.empty(2)),
    lambda: init.calculate_gain("step"),
])  # fmt: skip
def test_errors(fill):
    raises(ValueError, r"\[\w+\] expected", fill)
