"""Group, instance and RMS normalization against PyTorch and against each other."""

import math

import numpy as np
import pytest
from checks import array, exchange_state, refuses, step_beside_torch, tensor

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

CLOSE = {"float32": (2e-4, 2e-4), "float64": (1e-10, 1e-11)}


def random(rng, *shape, dtype="float64", requires_grad=False):
    return mg.tensor(rng.standard_normal(shape), dtype=dtype, requires_grad=requires_grad)


def some_sizes(rng, count, least=1):
    return tuple(int(n) for n in rng.integers(least, 6, count))


def compare(torch, name, arguments, options, shape, seed, device, modes=(True,)):
    """Steps in training and evaluation match PyTorch's module of the same name, from a state loaded in both directions."""
    rng = np.random.default_rng(1000 + seed)
    dtype = "float32" if seed % 4 == 0 else "float64"
    ours = getattr(nn, name)(*arguments, **options, dtype=dtype).to(device)
    theirs = getattr(torch.nn, name)(*arguments, **options, dtype=getattr(torch, dtype))
    assert repr(ours) == repr(theirs)
    exchange_state(torch, ours, theirs, rng)
    for training in modes:
        ours.train(training)
        theirs.train(training)
        x = 1 + 2 * rng.standard_normal(shape)
        step_beside_torch(torch, ours, theirs, x.astype(dtype), rng, *CLOSE[dtype], device)


# ── PyTorch's semantics ──


@pytest.mark.parametrize("seed", range(100))
def test_group_norm_as_in_pytorch(seed, device):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    groups, width = (int(n) for n in rng.integers(1, 5, 2))
    options = {
        "eps": float(rng.choice([1e-5, 1e-3, 0.1])), "affine": bool(rng.random() < 0.7),
        "bias": bool(rng.random() < 0.7),
    }  # fmt: skip
    shape = (int(rng.integers(1, 6)), groups * width, *some_sizes(rng, rng.integers(0, 4), 2))
    if shape[0] * width * math.prod(shape[2:]) == 1:
        shape = (2, *shape[1:])  # PyTorch wants more than one value, though not per group
    compare(torch, "GroupNorm", (groups, groups * width), options, shape, seed, device)


@pytest.mark.parametrize("seed", range(100))
def test_instance_norm_as_in_pytorch(seed, device):
    """With and without a batch axis, affine maps and running statistics, in training and evaluation."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    axes, channels = (int(n) for n in rng.integers(1, (3, 7)))
    options = {
        "eps": float(rng.choice([1e-5, 1e-3, 0.1])), "momentum": [0.1, None, 0.7, 1.0][rng.integers(4)],
        "affine": bool(rng.random() < 0.5), "track_running_stats": bool(rng.random() < 0.5),
        "bias": bool(rng.random() < 0.7),
    }  # fmt: skip
    batch = [int(rng.integers(1, 6))] if rng.random() < 0.7 else []
    shape = (*batch, channels, *some_sizes(rng, axes, 2))
    compare(torch, f"InstanceNorm{axes}d", (channels,), options, shape, seed, device, (True, True, False, True, False))


@pytest.mark.parametrize("seed", range(100))
def test_rms_norm_as_in_pytorch(seed, device):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    normalized = some_sizes(rng, rng.integers(1, 4))
    options = {"eps": [None, 1e-6, 0.1][rng.integers(3)], "elementwise_affine": bool(rng.random() < 0.7)}
    argument = normalized[0] if len(normalized) == 1 and rng.random() < 0.5 else list(normalized)
    compare(torch, "RMSNorm", (argument,), options, (*some_sizes(rng, rng.integers(0, 3)), *normalized), seed, device)


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("use_input_stats", [True, False])
def test_functional_instance_norm_as_in_pytorch(tracked, use_input_stats, device, rng):
    torch = pytest.importorskip("torch")
    x, weight, bias = (rng.standard_normal(s) for s in ((3, 4, 5), 4, 4))
    statistics = [rng.standard_normal(4), rng.uniform(0.5, 2, 4)] if tracked else [None, None]
    ours = [None if s is None else tensor(s, device) for s in statistics]
    theirs = [None if s is None else torch.tensor(s) for s in statistics]
    if not tracked and not use_input_stats:
        with pytest.raises(ValueError, match=r"\[instance_norm\] expected running_mean and running_var"):
            F.instance_norm(mg.tensor(x), use_input_stats=False)
        return
    y = F.instance_norm(
        tensor(x, device), *ours, tensor(weight, device), tensor(bias, device), use_input_stats, 0.3, 1e-2
    )
    expected = torch.nn.functional.instance_norm(
        torch.tensor(x), *theirs, torch.tensor(weight), torch.tensor(bias), use_input_stats, 0.3, 1e-2
    )
    for a, b in zip([y, *ours], [expected, *theirs], strict=True):
        if b is not None:
            np.testing.assert_allclose(array(a), b.numpy(), rtol=1e-12, atol=1e-13)


# ── gradients ──


@pytest.mark.parametrize("build, shape", [
    (lambda: nn.GroupNorm(2, 4), (3, 4)), (lambda: nn.GroupNorm(2, 4), (2, 4, 3)), (lambda: nn.GroupNorm(4, 4), (2, 4, 2, 2)),
    (lambda: nn.InstanceNorm1d(3), (2, 3, 4)), (lambda: nn.InstanceNorm1d(3, affine=True), (3, 4)),
    (lambda: nn.InstanceNorm2d(2, affine=True), (2, 2, 2, 3)), (lambda: nn.InstanceNorm2d(2, track_running_stats=True), (2, 2, 3)),
    (lambda: nn.RMSNorm(5), (3, 5)), (lambda: nn.RMSNorm((2, 3), eps=0.1), (2, 2, 3)),
])  # fmt: skip
def test_gradients(build, shape, rng):
    layer = build().to("float64")
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *parameters):
        for name, parameter in zip(names, parameters, strict=True):
            object.__setattr__(layer, name, parameter)
        return layer(x)

    inputs = [random(rng, *s, requires_grad=True) for s in (shape, *(p.shape for p in layer.parameters()))]
    assert mg.gradcheck(run, inputs, rtol=1e-5)


# ── what they have in common ──


def test_one_group_is_layer_norm_and_a_group_for_each_channel_instance_norm(rng):
    """Without weight and bias. Once trained they differ: GroupNorm's are per channel, LayerNorm's per element."""
    x = random(rng, 3, 4, 2, 5)
    one, layer = nn.GroupNorm(1, 4, dtype="float64"), nn.LayerNorm((4, 2, 5), dtype="float64")
    np.testing.assert_allclose(one(x).detach().numpy(), layer(x).detach().numpy(), rtol=1e-12, atol=1e-13)
    each, instance = nn.GroupNorm(4, 4, affine=False, dtype="float64"), nn.InstanceNorm2d(4, dtype="float64")
    np.testing.assert_allclose(each(x).numpy(), instance(x).numpy(), rtol=1e-12, atol=1e-13)
    assert (one.weight.shape, layer.weight.shape) == ((4,), (4, 2, 5))
    c = random(rng, *x.shape)
    for norm in (one, layer):
        norm(x).backward(c)
        mg.optim.SGD(norm.parameters(), lr=0.1).step()
    assert np.abs((one(x) - layer(x)).detach().numpy()).max() > 0.1


@pytest.mark.parametrize("build, grouped, axes, statistics", [
    (lambda: nn.BatchNorm2d(6), (5, 6, 3, 4), (0, 2, 3), (1, 6, 1, 1)), (lambda: nn.LayerNorm((6, 3, 4)), (5, 6, 3, 4), (1, 2, 3), (5, 1, 1, 1)),
    (lambda: nn.InstanceNorm2d(6), (5, 6, 3, 4), (2, 3), (5, 6, 1, 1)), (lambda: nn.GroupNorm(2, 6), (5, 2, 3, 3, 4), (2, 3, 4), (5, 2, 1, 1, 1)),
])  # fmt: skip
def test_one_framework(build, grouped, axes, statistics, device, rng):
    """The same formula, with statistics over different axes."""
    x = 3 + 2 * rng.standard_normal((5, 6, 3, 4))
    rows = x.reshape(grouped)
    mean, var = rows.mean(axes, keepdims=True), rows.var(axes, keepdims=True)
    assert mean.shape == var.shape == statistics
    expected = ((rows - mean) / np.sqrt(var + 1e-5)).reshape(x.shape)
    y = array(build().to("float64").to(device)(tensor(x, device)))
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind, sizes", [(nn.GroupNorm, (2, 4)), (nn.InstanceNorm2d, (4,)), (nn.RMSNorm, ((4, 3, 3),))])
def test_samples_do_not_meet(kind, sizes, device, rng):
    """The same bits alone and in a batch, in training and in evaluation."""
    norm, x = kind(*sizes).to(device), random(rng, 6, 4, 3, 3, dtype="float32").to(device)
    y = norm(x)
    assert [norm(x[k : k + 1])[0].tolist() for k in range(6)] == y.tolist() == norm.eval()(x).tolist()


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
])  # fmt: skip
def test_bad_options(build):
    with pytest.raises(ValueError, match=r"\[(GroupNorm|InstanceNorm.d|RMSNorm)\] expected"):
        build()


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
    with pytest.raises(ValueError, match=expected):
        build()(mg.zeros(shape))


def test_functional_errors():
    x, mean, var = mg.tensor(np.arange(24.0).reshape(2, 3, 4)), mg.zeros(3), mg.ones(3)
    with pytest.raises(ValueError, match=r"\[instance_norm\] expected both running_mean and running_var"):
        F.instance_norm(x, mean)
    with pytest.raises(ValueError, match=r"\[instance_norm\] expected running statistics of shape \(3,\)"):
        F.instance_norm(x, mean, mg.ones(1))
    with pytest.raises(ValueError, match=r"^\[instance_norm\] expected x of shape .* 3 axes or more, got \(4, 3\)"):
        F.instance_norm(mg.zeros((4, 3)), mean, var, use_input_stats=False)
    with pytest.raises(ValueError, match=r"^\[instance_norm\] expected x of shape .* 3 axes or more, got \(3, 4\)"):
        F.instance_norm(mg.zeros((3, 4)), mean, var)
    with pytest.raises(TypeError, match=r"^\[batch_norm\] expected running statistics that are tensors, got float"):
        F.batch_norm(mg.ones(3), 0.0, 1.0)
    assert (mean.tolist(), var.tolist()) == ([0, 0, 0], [1, 1, 1])


@pytest.mark.parametrize("of_input", [True, False])
@pytest.mark.parametrize("op", ["batch_norm", "instance_norm"])
def test_running_statistics_that_do_not_fit(op, of_input, device):
    """It is rejected before anything is computed, with the name of the called function."""
    x, mean, var = mg.ones((4, 3, 2), device=device), mg.zeros(3, device=device), mg.ones(3, device=device)

    def normalize(x, mean, var):
        if op == "batch_norm":
            return F.batch_norm(x, mean, var, training=of_input)
        return F.instance_norm(x, mean, var, use_input_stats=of_input)

    normalize(x, mean, var)
    before = mean.tolist(), var.tolist()
    tensors = r"expected running statistics that are tensors, got "
    refuses(TypeError, op, tensors + "ndarray", normalize, x, np.zeros(3, "f4"), np.ones(3, "f4"))
    refuses(TypeError, op, tensors + "list", normalize, x, mean, [1.0, 1.0, 1.0])
    refuses(ValueError, op, ["(3,)", "(2,)"], normalize, x, mean, var[:2])
    refuses(TypeError, op, ["float32", "float64"], normalize, x, mean, var.astype("float64"))
    refuses(TypeError, op, "int64", normalize, x.astype("int64"), mean, var)
    refuses(ValueError, op, "both running_mean and running_var", normalize, x, mean, None)
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
