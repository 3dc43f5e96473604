"""Linear, LayerNorm, Dropout and the activations against PyTorch and against their formulas."""

import math

import numpy as np
import pytest
from checks import array, exchange_state, refuses, step_beside_torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

DTYPES = {"float32": {"rtol": 2e-5, "atol": 1e-5}, "float64": {"rtol": 1e-11, "atol": 1e-12}}


def compare_with_torch(torch, ours, theirs, shape, dtype, device, scale=1.0, **options):
    """Compare results and gradients, from the same random parameters."""
    close, rng = DTYPES[dtype] | options, np.random.default_rng(len(shape))
    ours, theirs = ours.to(device, dtype), theirs.to(getattr(torch, dtype))
    exchange_state(torch, ours, theirs, rng)
    x = (scale * rng.standard_normal(shape)).astype(dtype)
    step_beside_torch(torch, ours, theirs, x, rng, close["rtol"], close["atol"], device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, arguments, renamed", [
    ("ReLU", (), ()), ("LeakyReLU", (), ()), ("LeakyReLU", (0.3,), (0.3,)), ("ELU", (), ()), ("ELU", (0.7,), (0.7,)),
    ("GELU", (), ()), ("SiLU", (), ()), ("Softplus", (), ()), ("Tanh", (), ()), ("Sigmoid", (), ()),
    ("Hardsigmoid", (), ()), ("Softmax", (), (-1,)), ("Softmax", (0,), (0,)), ("LogSoftmax", (), (-1,)),
    ("LogSoftmax", (1,), (1,)), ("GELU", ("tanh",), ("tanh",)), ("Softplus", (2.0,), (2.0,)),
    ("Softplus", (2.0, 1.5), (2.0, 1.5)), ("LogSigmoid", (), ()), ("Mish", (), ()), ("SELU", (), ()), ("Hardswish", (), ()),
    ("GLU", (0,), (0,)), ("PReLU", (), ()), ("PReLU", (5, 0.5), (5, 0.5)),
])  # fmt: skip
def test_activation(name, arguments, renamed, dtype, device):
    torch = pytest.importorskip("torch")
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
        with pytest.raises(TypeError, match=r"float64.*: use x\.astype\(\"float32\"\)"):
            layer(x)
        assert layer(x.astype("float32")).dtype == "float32"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5,), (7, 5), (2, 3, 5), (0, 5)])
def test_linear(shape, bias, dtype, device):
    torch = pytest.importorskip("torch")
    compare_with_torch(torch, nn.Linear(5, 4, bias=bias), torch.nn.Linear(5, 4, bias=bias), shape, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normalized, options, shape", [
    (6, {}, (6,)), (6, {}, (5, 6)), (6, {"eps": 1e-2}, (2, 3, 6)), ((3, 6), {}, (4, 3, 6)), ((2, 3, 6), {}, (2, 3, 6)),
    (6, {"elementwise_affine": False}, (5, 6)), (6, {"bias": False}, (5, 6)), ([6], {}, (5, 6)), (6, {}, (0, 6)),
])  # fmt: skip
def test_layer_norm(normalized, options, shape, dtype, device):
    torch = pytest.importorskip("torch")
    ours, theirs = nn.LayerNorm(normalized, **options), torch.nn.LayerNorm(normalized, **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    compare_with_torch(torch, ours, theirs, shape, dtype, device)


def test_linear_initialization(device):
    mg.manual_seed(0)
    layer = nn.Linear(400, 300, device=device)
    assert layer.weight.shape == (300, 400)
    for parameter in layer.parameters():
        assert parameter.device == device
        values = array(parameter)
        assert np.abs(values).max() <= 1 / 20
        assert values.std() == pytest.approx(1 / 20 / math.sqrt(3), rel=0.1)
        assert abs(values.mean()) < 0.005
    assert nn.Linear(2, 2, bias=False, device=device).bias is None
    assert nn.Linear(2, 2, device=device, dtype="float64").weight.dtype == mg.float64


def test_same_seed_same_weights(device):
    mg.manual_seed(3)
    a = nn.Linear(7, 7, device=device).weight.tolist()
    b = nn.Linear(7, 7, device=device).weight.tolist()
    mg.manual_seed(3)
    assert nn.Linear(7, 7, device=device).weight.tolist() == a
    assert a != b


def test_layer_norm_defaults_and_reset(device):
    layer = nn.LayerNorm((2, 3), device=device)
    assert layer.weight.tolist() == np.ones((2, 3)).tolist()
    assert layer.bias.tolist() == np.zeros((2, 3)).tolist()
    assert list(layer.buffers()) == []
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    layer.reset_parameters()
    assert layer.weight.tolist() == np.ones((2, 3)).tolist()
    assert layer.bias.tolist() == np.zeros((2, 3)).tolist()


@pytest.mark.parametrize("build", [
    lambda: nn.Linear(0, 3), lambda: nn.Linear(3, -1), lambda: nn.LayerNorm(()), lambda: nn.LayerNorm((3, 0)),
    lambda: nn.LayerNorm(3, eps=-1.0), lambda: nn.LayerNorm(3, eps=math.nan), lambda: nn.Dropout(1.5),
    lambda: nn.Dropout(-0.1), lambda: nn.Dropout(math.nan),
])  # fmt: skip
def test_bad_options(build):
    with pytest.raises(ValueError, match=r"\[(Linear|LayerNorm|Dropout)\] expected"):
        build()


def test_bad_inputs(device):
    refuses(ValueError, "linear", "(2, 4)", nn.Linear(3, 2, device=device), mg.zeros((2, 4), device=device))
    with pytest.raises(ValueError, match=r"\[layer_norm\]"):
        nn.LayerNorm(3, device=device)(mg.zeros((2, 4), device=device))
    with pytest.raises(TypeError):
        nn.Linear(3, 2, device=device)(mg.zeros((2, 3), dtype=mg.int64, device=device))


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


# ── functional ──


def test_functional_names():
    for name in F.__all__:
        assert callable(getattr(F, name)), name
