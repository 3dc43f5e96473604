"""Linear, Dropout and the activations against PyTorch and against their formulas."""

import numpy as np
import pytest
from checks import array, equals, raises, refuses, tensor
from peers import exchange_state, step_beside_torch, torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

DTYPES = {"float32": {"rtol": 2e-5, "atol": 1e-5}, "float64": {"rtol": 1e-11, "atol": 1e-12}}


def compare_with_torch(torch, ours, theirs, shape, dtype, device, scale=1.0, **options):
    """Compare results and gradients, from the same random parameters."""
    close, rng = DTYPES[dtype] | options, np.random.default_rng(len(shape))
    ours, theirs = ours.to(device, dtype), theirs.to(getattr(torch, dtype))
    exchange_state(ours, theirs, rng)
    x = (scale * rng.standard_normal(shape)).astype(dtype)
    step_beside_torch(ours, theirs, x, rng, close["rtol"], close["atol"], device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, arguments, renamed", [
    ("ReLU", (), ()), ("LeakyReLU", (), ()), ("LeakyReLU", (0.3,), (0.3,)), ("ELU", (), ()), ("ELU", (0.7,), (0.7,)),
    ("GELU", (), ()), ("SiLU", (), ()), ("Softplus", (), ()), ("Tanh", (), ()), ("Sigmoid", (), ()),
    ("Hardsigmoid", (), ()), ("Softmax", (), (-1,)), ("Softmax", (0,), (0,)), ("LogSoftmax", (), (-1,)),
    ("LogSoftmax", (1,), (1,)), ("GELU", ("tanh",), ("tanh",)), ("Softplus", (2.0,), (2.0,)),
    ("Softplus", (2.0, 1.5), (2.0, 1.5)), ("LogSigmoid", (), ()), ("Mish", (), ()), ("SELU", (), ()), ("Hardswish", (), ()),
    ("ReLU6", (), ()), ("Hardtanh", (), ()), ("Hardtanh", (-0.5, 1.5), (-0.5, 1.5)), ("Softsign", (), ()),
    ("GLU", (0,), (0,)), ("PReLU", (), ()), ("PReLU", (5, 0.5), (5, 0.5)),
])  # fmt: skip
def test_activation(name, arguments, renamed, dtype, device):
    close = (
        {"rtol": 1e-7} if name in ("Hardsigmoid", "Hardswish") else {}
    )  # PyTorch's derivative is the float32 nearest to 1/6
    ours, theirs = getattr(nn, name)(*arguments), getattr(torch.nn, name)(*renamed)
    compare_with_torch(torch, ours, theirs, (4, 5, 3), dtype, device, 2.0, **close)


@pytest.mark.parametrize("layer, shape", [
    (nn.Linear(4, 2), (3, 4)), (nn.Conv2d(4, 2, 1), (3, 4, 5, 5)), (nn.LayerNorm(4), (3, 4)), (nn.RMSNorm(4), (3, 4)),
    (nn.GroupNorm(2, 4), (3, 4)), (nn.InstanceNorm2d(4, affine=True), (3, 4, 5, 5)), (nn.BatchNorm1d(4), (3, 4)),
])  # fmt: skip
def test_float64_meets_float32_parameters(layer, shape):
    """The usual dtype of NumPy's arrays: the error says what to write, and that works."""
    for x in (np.ones(shape), mg.ones(shape, dtype="float64")):
        raises(TypeError, r"float64.*: use x\.astype\(\"float32\"\)", layer, x)
        assert layer(x.astype("float32")).dtype == "float32"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 5), (0, 5)])
def test_linear(shape, bias, dtype, device):
    compare_with_torch(torch, nn.Linear(5, 4, bias=bias), torch.nn.Linear(5, 4, bias=bias), shape, dtype, device)


# ── dropout ──


def test_dropout(device):
    """Only in training; what it draws is tested with F.dropout."""
    layer, x = nn.Dropout(0.5), mg.random.normal(0.0, 1.0, (20, 30), device=device)
    mg.manual_seed(5)
    y = layer(x)
    mg.manual_seed(5)
    assert y.tolist() == nn.functional.dropout(x, 0.5).tolist() != layer(x).tolist()
    assert layer.eval()(x).tolist() == x.tolist()
    assert nn.Dropout(0.0)(x).tolist() == x.tolist()
    assert nn.Dropout(1.0)(x).tolist() == np.zeros((20, 30)).tolist()


@pytest.mark.parametrize("name, shape", [("1d", (7, 9, 5)), ("1d", (63, 5)), ("2d", (7, 9, 2, 3))])
def test_dropout_of_channels(name, shape, device):
    """A channel is dropped as a whole, with the probability p, and the gradient is that of the same channels."""
    layer, x = getattr(nn, f"Dropout{name}")(0.25), mg.random.normal(3.0, 0.1, shape, device=device).requires_grad_()
    y = layer(x)
    (kept,) = mg.grad(y.sum(), [x])
    rows = array(kept).reshape(63, -1)
    assert {(n, len(set(row))) for row in rows.tolist() for n in row} == {(0, 1), (float(np.float32(4 / 3)), 1)}
    assert 0.1 < (rows[:, 0] == 0).mean() < 0.4
    equals(y, array(x) * array(kept))
    assert layer(x).tolist() != y.tolist()
    assert layer.eval()(x).tolist() == x.tolist()
    assert repr(layer) == f"Dropout{name}(p=0.25)"
    assert not isinstance(layer, nn.Dropout)


def test_dropout2d_refuses_three_axes(device):
    """PyTorch takes them for (N, C, T), so that an image alone loses rows instead of channels."""
    refuses(ValueError, "dropout2d", "dropout1d(x)", F.dropout2d, mg.ones((2, 3, 4), device=device))
    refuses(ValueError, "dropout1d", "(2, 3, 4, 5)", F.dropout1d, mg.ones((2, 3, 4, 5), device=device))


def test_gumbel_softmax_draws_categories(device):
    """The largest element is at each category with its probability; a hard sample has the gradient of the soft one."""
    p = np.array([0.5, 0.3, 0.15, 0.05])
    logits = tensor(np.log(np.broadcast_to(p[:, None], (4, 20_000))), device)
    found = array(F.gumbel_softmax(logits, 0.3, axis=0).argmax(0))
    np.testing.assert_allclose(np.bincount(found) / 20_000, p, atol=0.015)
    x, g = tensor(np.log(p), device, True), tensor(np.array([1.0, -2.0, 0.5, 3.0]), device)
    grads = []
    for hard in (False, True):
        mg.manual_seed(3)
        y = F.gumbel_softmax(x, 0.7, hard)
        grads.append(mg.grad((y * g).sum(), x).tolist())
        assert y.sum().item() == pytest.approx(1)
    assert sorted(y.tolist()) == [0, 0, 0, 1]
    assert grads[0] == grads[1] != [0, 0, 0, 0]
    mg.manual_seed(3)
    u = mg.random.uniform(2.0**-100, 1.0, (4,), dtype="float64", device=device)
    soft = mg.softmax((x - mg.log(-mg.log(u))) / 0.7)
    np.testing.assert_allclose(grads[0], array(mg.grad((soft * g).sum(), x)), rtol=1e-12)
    refuses(ValueError, "gumbel_softmax", "tau > 0", F.gumbel_softmax, x, 0.0)
    assert F.gumbel_softmax(mg.zeros((3, 1), device=device)).tolist() == [[1], [1], [1]]


# ── pooling, padding, shape ──


@pytest.mark.parametrize("name, arguments, options, shape", [
    ("MaxPool1d", (3,), {"stride": 2, "padding": 1, "dilation": 2}, (2, 3, 9)), ("MaxPool1d", ((2,),), {"ceil_mode": True}, (3, 7)),
    ("AvgPool1d", (3,), {"stride": 2, "padding": 1, "count_include_pad": False}, (2, 3, 9)), ("AvgPool1d", (2,), {}, (3, 8)),
    ("ConstantPad1d", ((1, -2), 4.5), {}, (2, 3, 9)), ("ConstantPad2d", (2, -1), {}, (2, 3, 4, 5)), ("ZeroPad1d", (3,), {}, (3, 9)),
    ("ZeroPad2d", ((1, 2, 0, -1),), {}, (2, 3, 4, 5)), ("ReflectionPad1d", ((2, 3),), {}, (2, 3, 9)),
    ("ReflectionPad2d", ((1, 0, 3, 2),), {}, (3, 4, 5)), ("ReplicationPad1d", (4,), {}, (3, 9)),
    ("ReplicationPad2d", ((0, 1, 2, 3),), {}, (2, 3, 4, 5)), ("PixelShuffle", (2,), {}, (2, 8, 3, 4)),
    ("Unflatten", (1, (2, -1)), {}, (3, 6, 2)), ("Unflatten", (-1, [2, 3]), {}, (3, 6)),
])  # fmt: skip
def test_shaping_layers_beside_torch(name, arguments, options, shape, device):
    ours, theirs = getattr(nn, name)(*arguments, **options), getattr(torch.nn, name)(*arguments, **options)
    compare_with_torch(torch, ours, theirs, shape, "float64", device)


def test_shaping_layers_refuse(device):
    x = mg.ones((1, 3, 4, 4), device=device)
    refuses(ValueError, "PixelShuffle", "upscale_factor >= 1", nn.PixelShuffle, 0)
    refuses(ValueError, "pixel_shuffle", "(..., C * 4, H, W)", nn.PixelShuffle(2), x)
    refuses(ValueError, "pixel_shuffle", "(4, 4)", nn.PixelShuffle(2), x[0, 0])
    refuses(ValueError, "ZeroPad2d", "4 of them for padding", nn.ZeroPad2d, (1, 2))
    refuses(TypeError, "ReflectionPad1d", "padding", nn.ReflectionPad1d, (1.5, 2))
    refuses(ValueError, "Unflatten", "-1", nn.Unflatten, 1, (-2, 2))
    refuses(IndexError, "Unflatten", "4", nn.Unflatten(4, (1, 1)), x)
    refuses(ValueError, "Hardtanh", "min_val < max_val", nn.Hardtanh, 1.0, 1.0)
    refuses(ValueError, "max_pool1d", "(N, C, T)", nn.MaxPool1d(2), x)
    refuses(ValueError, "avg_pool1d", "no larger than the padded x", nn.AvgPool1d(5), x[0])
    refuses(ValueError, "max_pool1d", "at most half", F.max_pool1d, x[0], 2, padding=2)
