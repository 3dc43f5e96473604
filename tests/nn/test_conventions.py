"""Each row of the table in docs/reference/conventions.md: our layers against formulas for Keras's and Flax's layers."""

import math

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

SHAPE = (6, 3, 5, 64)  # N, H, W, C: what Keras and Flax normalize
CHANNELS_FIRST = (nn.BatchNorm1d, nn.BatchNorm2d, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)


def standard(x, axes, eps, centered=True):
    """Return x̂ with the biased variance, or with the mean square."""
    mean = x.mean(axes, keepdims=True) if centered else 0.0
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axes, keepdims=True) + eps)


def grouped(x, groups, eps):
    """Return x̂ over groups of consecutive channels, the last axis, and all axes but the first."""
    parts = x.reshape(*x.shape[:-1], groups, -1)
    return standard(parts, tuple(k for k in range(1, parts.ndim) if k != parts.ndim - 2), eps).reshape(x.shape)


BATCH = {"momentum": 0.01, "unbiased_running_var": False}
# framework, layer: (ours, their x̂ of channels-last values)
LAYERS = {
    "keras BatchNormalization": (lambda **o: nn.BatchNorm2d(64, eps=1e-3, **BATCH, **o), lambda x: standard(x, (0, 1, 2), 1e-3)),
    "keras BatchNormalization of features": (lambda **o: nn.BatchNorm1d(64, eps=1e-3, **BATCH, **o), lambda x: standard(x, 0, 1e-3)),
    "keras LayerNormalization": (lambda **o: nn.LayerNorm(64, eps=1e-3, **o), lambda x: standard(x, -1, 1e-3)),
    "keras LayerNormalization(axis=[1, 2, 3])": (
        lambda **o: nn.LayerNorm(SHAPE[1:], eps=1e-3, **o), lambda x: standard(x, (1, 2, 3), 1e-3)),
    "keras GroupNormalization": (lambda **o: nn.GroupNorm(32, 64, eps=1e-3, **o), lambda x: grouped(x, 32, 1e-3)),
    "keras GroupNormalization(groups=-1)": (
        lambda **o: nn.InstanceNorm2d(64, eps=1e-3, **{"affine": True, **o}), lambda x: standard(x, (1, 2), 1e-3)),
    "keras RMSNormalization": (lambda **o: nn.RMSNorm(64, eps=1e-6, **o), lambda x: standard(x, -1, 1e-6, False)),
    "flax BatchNorm": (lambda **o: nn.BatchNorm2d(64, **BATCH, **o), lambda x: standard(x, (0, 1, 2), 1e-5)),
    "flax LayerNorm": (lambda **o: nn.LayerNorm(64, eps=1e-6, **o), lambda x: standard(x, -1, 1e-6)),
    "flax GroupNorm": (lambda **o: nn.GroupNorm(32, 64, eps=1e-6, **o), lambda x: grouped(x, 32, 1e-6)),
    "flax InstanceNorm": (
        lambda **o: nn.InstanceNorm2d(64, eps=1e-6, **{"affine": True, **o}), lambda x: standard(x, (1, 2), 1e-6)),
    "flax InstanceNorm of one axis": (
        lambda **o: nn.InstanceNorm1d(64, eps=1e-6, **{"affine": True, **o}), lambda x: standard(x, 1, 1e-6)),
    "flax RMSNorm": (lambda **o: nn.RMSNorm(64, eps=1e-6, **o), lambda x: standard(x, -1, 1e-6, False)),
}  # fmt: skip


def values(name, rng):
    """Make values whose variance is close to every ε, so that a wrong one shows."""
    shape = SHAPE[::3] if "features" in name else SHAPE[1:] if "one axis" in name else SHAPE
    return 0.5 + 0.01 * rng.standard_normal(shape)


def apply(layer, x):
    """Apply the layer to channels-last values."""
    t = mg.tensor(x)
    if isinstance(layer, CHANNELS_FIRST):
        return layer(t.moveaxis(-1, 1)).moveaxis(1, -1).detach().numpy()
    return layer(t).detach().numpy()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("shift", [True, False])
def test_formulas(name, gain, shift, rng):
    """With both, without a bias (center=False, use_bias=False), without a weight (scale=False, use_scale=False)."""
    build, hat = LAYERS[name]
    layer = build(**{"elementwise_affine": gain} if "RMS" in name else {"weight": gain, "bias": shift}).to("float64")
    names = ["weight"] * gain + ["bias"] * (shift and "RMS" not in name)
    assert [parameter for parameter, _ in layer.named_parameters()] == names
    x = values(name, rng)
    np.testing.assert_allclose(apply(layer, x), hat(x), rtol=1e-9, atol=1e-9)  # initialized to ones and zeros
    affine = {"weight": 1.0, "bias": 0.0, **{n: rng.standard_normal(p.shape) for n, p in layer.named_parameters()}}
    with mg.no_grad():
        for parameter in names:
            getattr(layer, parameter).copy_(mg.tensor(affine[parameter]))
    np.testing.assert_allclose(apply(layer, x), hat(x) * affine["weight"] + affine["bias"], rtol=1e-9, atol=1e-9)
    assert ("weight=False" in repr(layer)) == (not gain and "RMS" not in name)
    layer.reset_parameters()
    np.testing.assert_allclose(apply(layer, x), hat(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LAYERS if "RMS" not in name])
def test_neither_gain_nor_shift(name, rng):
    build, hat = LAYERS[name]
    layer = build(**{"elementwise_affine" if "Layer" in name else "affine": False}).to("float64")
    assert not list(layer.parameters())
    x = values(name, rng)
    np.testing.assert_allclose(apply(layer, x), hat(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in LAYERS if "Batch" in name])
def test_running_statistics(name, rng):
    """r ← 0.99 r + 0.01 s with the biased variance; evaluation normalizes with them and the layer's own ε."""
    eps = 1e-3 if "keras" in name else 1e-5
    layer = LAYERS[name][0]().to("float64")
    mean, var = np.zeros(64), np.ones(64)
    for _ in range(4):
        x = 2 + 3 * values(name, rng)
        apply(layer, x)
        axes = tuple(range(x.ndim - 1))
        mean, var = 0.99 * mean + 0.01 * x.mean(axes), 0.99 * var + 0.01 * x.var(axes)
    np.testing.assert_allclose(layer.running_mean.numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(layer.running_var.numpy(), var, rtol=1e-12)
    np.testing.assert_allclose(apply(layer.eval(), x), (x - mean) / np.sqrt(var + eps), rtol=1e-11)
    with mg.no_grad():
        layer.running_var.fill_(eps)  # as small as ε, so that another ε shows
    np.testing.assert_allclose(apply(layer, x), (x - mean) / math.sqrt(2 * eps), rtol=1e-11)


def test_defaults_are_those_of_pytorch():
    """The first column, with a variance of the size of ε."""
    torch = pytest.importorskip("torch")
    x = 2 + 1e-3 * np.random.default_rng(0).standard_normal((4, 6, 5, 3))
    for name, arguments in (
        ("BatchNorm2d", (6,)), ("LayerNorm", (3,)), ("GroupNorm", (2, 6)), ("InstanceNorm2d", (6,)), ("RMSNorm", (3,)),
    ):  # fmt: skip
        ours, theirs = getattr(nn, name)(*arguments).to("float64"), getattr(torch.nn, name)(*arguments).double()
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for training in (True, False):
            y = ours.train(training)(mg.tensor(x)).detach().numpy()
            expected = theirs.train(training)(torch.from_numpy(x)).detach().numpy()
            np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-10)


def test_shift_without_gain_learns(rng):
    """Its gradient is the sum of the cotangent, and that of x is the one without a weight; also in an RNN's batch norm."""
    x, g = rng.standard_normal((8, 5)), rng.standard_normal((8, 5))
    for layer, steps in (
        (nn.LayerNorm(5, weight=False), ()), (nn.BatchNorm1d(5, weight=False), ()), (nn.GroupNorm(5, 5, weight=False), ()),
        (nn.RecurrentBatchNorm1d(5, 3, weight=False), (1,)),
    ):  # fmt: skip
        layer = layer.to("float64")
        assert repr(layer).count("weight=False") == 1
        found = []
        for _ in range(2):
            leaf = mg.tensor(x, requires_grad=True)
            y = layer(leaf, *steps)
            y.backward(mg.tensor(g))
            found.append(leaf.grad.numpy())
            if layer.bias is not None:
                np.testing.assert_allclose(layer.bias.grad.numpy(), g.sum(0), rtol=1e-12)
                layer.bias = None
        np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("make, level", [(nn.BatchNorm1d, 0.99), (nn.BatchNorm2d, 0.9), (nn.InstanceNorm1d, 0.99)])
def test_a_momentum_of_keras_is_noticed(make, level):
    with pytest.warns(UserWarning, match=rf"\[{make.__name__}\] momentum={level} .* is {round(1 - level, 6)} here"):
        make(3, momentum=level)


@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.5, 1.0, None])
def test_other_momenta_say_nothing(momentum, recwarn):
    nn.BatchNorm1d(3, momentum=momentum)
    assert not recwarn.list
