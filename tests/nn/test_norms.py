"""Batch, group, instance, layer and RMS normalization against PyTorch, their statistics and their errors."""

import math

import numpy as np
import pytest
from checks import array, equals, near, raises, refuses, tensor
from peers import exchange_state, step_beside_torch, torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

CLOSE = {"float32": (2e-4, 2e-4), "float64": (1e-10, 1e-11)}


def random(rng, *shape, dtype="float64", requires_grad=False):
    return mg.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=requires_grad)


def some_sizes(rng, count, least=1):
    return tuple(int(n) for n in rng.integers(least, 6, count))


def choose(kind, rng):
    """Draw a class, its arguments and options, the shape of its inputs and the modes of its steps."""
    eps, affine, bias = float(rng.choice([1e-5, 1e-3, 0.1])), bool(rng.random() < 0.7), bool(rng.random() < 0.7)
    options = {"eps": eps, "affine": affine, "bias": bias}
    if kind == "group":
        groups, width = (int(n) for n in rng.integers(1, 5, 2))
        shape = (int(rng.integers(1, 6)), groups * width, *some_sizes(rng, rng.integers(0, 4), 2))
        if shape[0] * width * math.prod(shape[2:]) == 1:
            shape = (2, *shape[1:])  # PyTorch wants more than one value, though not per group
        return "GroupNorm", (groups, groups * width), options, shape, (True,)
    if kind in ("layer", "rms"):
        normalized = some_sizes(rng, rng.integers(1, 4))
        argument = normalized[0] if len(normalized) == 1 and bias else list(normalized)
        if kind == "layer":
            options = {"eps": eps, "elementwise_affine": affine, "bias": bias}
            return "LayerNorm", (argument,), options, (*some_sizes(rng, rng.integers(0, 3), 0), *normalized), (True,)
        options = {"eps": [None, 1e-6, 0.1][rng.integers(3)], "elementwise_affine": affine}
        return "RMSNorm", (argument,), options, (*some_sizes(rng, rng.integers(0, 3)), *normalized), (True,)
    options["momentum"] = [0.1, None, 0.7, 1.0, 0.0][rng.integers(5 if kind == "batch" else 4)]
    options["track_running_stats"] = bool(rng.random() < 0.7)
    axes, channels = (int(n) for n in rng.integers(1, (3, 9)))
    if kind == "instance":
        batch = [int(rng.integers(1, 6))] if rng.random() < 0.7 else []
        shape = (*batch, channels, *some_sizes(rng, axes, 2))
        return f"InstanceNorm{axes}d", (channels,), options, shape, (True, True, False, True, False)
    sizes = some_sizes(rng, 2 if axes == 2 else rng.integers(0, 2))
    batch = int(rng.integers(3 if math.prod(sizes) < 3 else 1, 9))
    return f"BatchNorm{axes}d", (channels,), options, (batch, channels, *sizes), (True, True, True, False, True, False)


@pytest.mark.parametrize("seed", range(100))
@pytest.mark.parametrize("kind", ["batch", "group", "instance", "layer", "rms"])
def test_as_in_pytorch(kind, seed, device):
    """Steps in training and evaluation match PyTorch's module, from a state loaded in both directions."""
    rng = np.random.default_rng(seed)
    name, arguments, options, shape, modes = choose(kind, rng)
    dtype = "float32" if seed % 4 == 0 else "float64"
    ours = getattr(nn, name)(*arguments, **options, dtype=dtype).to(device)
    theirs = getattr(torch.nn, name)(*arguments, **options, dtype=getattr(torch, dtype))
    assert repr(ours) == repr(theirs).replace("elementwise_affine=False, bias=False", "elementwise_affine=False")
    exchange_state(ours, theirs, rng)
    for training in modes:
        ours.train(training)
        theirs.train(training)
        x = 1 + 2 * rng.standard_normal(shape)
        step_beside_torch(ours, theirs, x.astype(dtype), rng, *CLOSE[dtype], device)
    ours.reset_parameters()
    theirs.reset_parameters()
    for value, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        equals(value, other.numpy())


# ── PyTorch's semantics ──


@pytest.mark.parametrize(
    "op, shape", [("batch", (7, 4)), ("batch", (3, 4, 5)), ("batch", (2, 4, 3, 2)), ("instance", (3, 4, 5))]
)
@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("tracked", [True, False])
def test_functional_as_in_pytorch(op, shape, of_input, tracked, device, rng):
    ours, theirs = (getattr(module, f"{op}_norm") for module in (F, torch.nn.functional))
    x, weight, bias = (rng.standard_normal(s) for s in (shape, 4, 4))
    if not tracked and not of_input:
        for norm, ones, error in ((ours, tensor(x, device), ValueError), (theirs, torch.tensor(x), RuntimeError)):
            raises(error, "running_mean", norm, ones, None, None, None, None, False)
        return
    values = [x, *((rng.standard_normal(4), rng.uniform(0.5, 2, 4)) if tracked else (None, None)), weight, bias]
    given = [None if v is None else tensor(v, device) for v in values]
    expected = [None if v is None else torch.tensor(v) for v in values]
    pairs = [(ours(*given, of_input, 0.3, 1e-2), theirs(*expected, of_input, 0.3, 1e-2))]
    pairs += zip(given[1:3], expected[1:3], strict=True)
    for a, b in pairs[: 3 if tracked else 1]:
        near(a, b.numpy(), rtol=1e-12, atol=1e-13)


# ── what they have in common ──


def test_default_eps_of_rms_norm():
    """The machine epsilon of the dtype: at a mean square of that size, y is 1/√2."""
    for dtype, eps in (("float32", 2.0**-23), ("float64", 2.0**-52)):
        tiny = np.full((1, 4), math.sqrt(eps), dtype)
        y = nn.RMSNorm(4, dtype=dtype)(mg.tensor(tiny)).detach().numpy()
        np.testing.assert_allclose(y, np.full((1, 4), 1 / math.sqrt(2)), rtol=1e-5)


@pytest.mark.parametrize("build", [
    lambda: nn.InstanceNorm1d(3, track_running_stats=True, momentum=None), lambda: nn.BatchNorm1d(3, momentum=0.0), lambda: nn.BatchNorm1d(3, momentum=0),
    lambda: nn.InstanceNorm1d(3, track_running_stats=True, momentum=0.0),
])  # fmt: skip
def test_statistics_without_momentum_stay_whatever_comes(build, rng):
    layer = build()
    for value in (1.0, math.nan, math.inf):
        layer(random(rng, 4, 3, 5, dtype="float32") * value)
    assert (layer.running_mean.tolist(), layer.running_var.tolist()) == ([0.0] * 3, [1.0] * 3)


def test_running_statistics_of_what_overflows(device, rng):
    """Only its channel becomes the bias and its running variance infinite, so evaluation also gives the bias there."""
    x = random(rng, 8, 3, 5, dtype="float32")
    x[:, 1] *= 1e20
    x = x.to(device)
    for layer in (nn.BatchNorm1d(3), nn.InstanceNorm1d(3, affine=True, track_running_stats=True)):
        nn.init.normal_(layer.bias)
        layer.to(device)
        y = array(layer(x))
        assert (y[:, 1] == array(layer.bias)[1]).all()
        assert np.isinf(array(layer.running_var)).tolist() == [False, True, False]
        assert (array(layer.eval()(x))[:, 1] == array(layer.bias)[1]).all()
        assert np.isfinite(array(layer(x))).all()


# ── errors ──


@pytest.mark.parametrize("build", [
    lambda: nn.GroupNorm(0, 4), lambda: nn.GroupNorm(3, 4), lambda: nn.GroupNorm(2, 0), lambda: nn.GroupNorm(2, 4, eps=-1.0),
    lambda: nn.InstanceNorm1d(0), lambda: nn.InstanceNorm2d(3, eps=math.nan), lambda: nn.InstanceNorm1d(3, momentum=2.0),
    lambda: nn.RMSNorm(()), lambda: nn.RMSNorm((2, 0)), lambda: nn.RMSNorm(2, eps=-1e-5),
    lambda: nn.BatchNorm1d(0), lambda: nn.BatchNorm1d(3, eps=-1.0), lambda: nn.BatchNorm2d(3, eps=math.nan),
    lambda: nn.BatchNorm2d(3, momentum=1.5), lambda: nn.BatchNorm1d(3, momentum=-0.1),
    lambda: nn.RecurrentBatchNorm1d(3, 0), lambda: nn.RecurrentBatchNorm1d(0, 3), lambda: nn.LayerNorm(()), lambda: nn.LayerNorm((3, 0)),
    lambda: nn.LayerNorm(3, eps=-1.0), lambda: nn.LayerNorm(3, eps=math.nan), lambda: nn.Dropout(1.5), lambda: nn.Dropout(-0.1), lambda: nn.Dropout(math.nan),
])  # fmt: skip
def test_bad_options(build):
    raises(ValueError, r"\[((Group|Layer|RMS)Norm|Dropout|InstanceNorm.d|(Recurrent)?BatchNorm.d)\] expected", build)


@pytest.mark.parametrize("build, shape, expected", [
    (lambda: nn.GroupNorm(2, 4), (4,), r"\[GroupNorm\] expected an input of shape \(N, 4, \.\.\.\), got \(4,\)"),
    (lambda: nn.GroupNorm(2, 4), (3, 6, 2), r"\[GroupNorm\] expected an input of shape \(N, 4, \.\.\.\), got \(3, 6, 2\)"),
    (lambda: nn.InstanceNorm1d(4), (4,), r"\[InstanceNorm1d\] expected an input of shape \(4, L\) or \(N, 4, L\), got \(4,\)"),
    (lambda: nn.InstanceNorm1d(4), (3, 2, 4), r"\[InstanceNorm1d\] expected an input .*, got \(3, 2, 4\)"),
    (lambda: nn.InstanceNorm2d(4), (3, 4), r"\[InstanceNorm2d\] expected an input of shape \(4, H, W\) or \(N, 4, H, W\), got \(3, 4\)"),
    (lambda: nn.InstanceNorm2d(4), (2, 4, 1, 1), r"\[instance_norm\] expected more than one value per channel"),
    (lambda: nn.InstanceNorm1d(4), (4, 1), r"\[instance_norm\] expected more than one value per channel"),
    (lambda: nn.RMSNorm(4), (3, 5), r"\[rms_norm\]"),
])  # fmt: skip
def test_bad_inputs(build, shape, expected):
    raises(ValueError, expected, build(), mg.zeros(shape))


@pytest.mark.parametrize("build", [
    lambda: nn.BatchNorm1d(3), lambda: nn.BatchNorm2d(3), lambda: nn.InstanceNorm1d(3), lambda: nn.GroupNorm(1, 3),
    lambda: lambda x: nn.RecurrentBatchNorm1d(3, 2)(x, 0),
])  # fmt: skip
@pytest.mark.parametrize("x", [None, [[1.0, 2.0, 3.0]], "x"])
def test_no_tensor(build, x):
    raises(TypeError, rf"\[\w+\] expected a tensor, got {type(x).__name__}", build(), x)


def test_shapes_that_an_instance_norm_does_not_take():
    for shape, of_input in (((4, 3), False), ((3, 4), True)):
        match = rf"^\[instance_norm\] expected x of shape .* 3 axes or more, got \({shape[0]}, {shape[1]}\)"
        raises(ValueError, match, F.instance_norm, mg.zeros(shape), mg.zeros(3), mg.ones(3), use_input_stats=of_input)


@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("op", ["batch_norm", "instance_norm"])
def test_running_statistics_that_do_not_fit(op, of_input, device):
    """They are rejected before anything is computed, with the name of the called function, and so is a momentum."""
    x, mean, var = mg.ones((4, 3, 2), device=device), mg.zeros(3, device=device), mg.ones(3, device=device)

    def normalize(x, mean, var, momentum=0.1):
        return getattr(F, op)(x, mean, var, None, None, of_input, momentum)

    normalize(x, mean, var)
    before = mean.tolist(), var.tolist()
    tensors = r"expected running statistics that are tensors, got "
    refuses(TypeError, op, tensors + "ndarray", normalize, x, np.zeros(3, "f4"), np.ones(3, "f4"))
    refuses(TypeError, op, tensors + "list", normalize, x, mean, [1.0, 1.0, 1.0])
    refuses(TypeError, op, tensors + "float", normalize, x, 0.0, 1.0)
    for wrong in (mg.zeros(shape, device=device) for shape in (1, 2, (1, 3))):
        refuses(ValueError, op, "running statistics of shape (3,)", normalize, x, mean, wrong)
        refuses(ValueError, op, "running statistics of shape (3,)", normalize, x, wrong, var)
    dtypes = "running statistics of float32, the dtype of x, got float32 and float64"
    refuses(TypeError, op, dtypes, normalize, x, mean, var.astype("float64"))
    refuses(TypeError, op, "int64", normalize, x.astype("int64"), mean, var)
    refuses(ValueError, op, "both running_mean and running_var", normalize, x, mean, None)
    for wrong, error, expected in (
        (None, TypeError, "a number momentum, got None"), ("0.1", TypeError, "a number momentum, got '0.1'"),
        (1.5, ValueError, "momentum from 0 to 1, got 1.5"), (math.nan, ValueError, "momentum from 0 to 1, got nan"),
    ):  # fmt: skip
        if of_input:
            refuses(error, op, expected, normalize, x, mean, var, wrong)
    assert before == (mean.tolist(), var.tolist())


def test_instance_norm_in_evaluation_has_its_own_name_on_the_tape():
    x = mg.ones((2, 3, 4), requires_grad=True)
    tape = str(nn.InstanceNorm1d(3, track_running_stats=True).eval()(x).tape())
    assert "instance_norm" in tape
    assert "batch_norm" not in tape


def test_a_module_that_has_lost_one_of_its_statistics():
    for op, norm in (
        ("batch_norm", nn.BatchNorm1d(3)),
        ("instance_norm", nn.InstanceNorm1d(3, track_running_stats=True)),
    ):
        norm.running_mean = None
        refuses(ValueError, op, "both running_mean and running_var", norm.eval(), mg.ones((2, 3, 4)))
