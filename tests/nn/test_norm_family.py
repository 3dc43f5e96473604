"""The norms that are composed of others, and batch renormalization: modules against their papers' equations.

The functions without a state are in the table of operations.
"""

import math

import numpy as np
import pytest
from checks import agree, array, near, raises, refuses, tensor

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

N, C, D = 5, 6, 3


def silu(z):
    return z / (1 + np.exp(-z))


def layer_norm(x, eps=1e-5):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps)


def along(v, x):
    return v.reshape(v.shape + (1,) * (x.ndim - 2))


def film(x, z, p):
    both = z @ p["linear.weight"].T + p["linear.bias"]
    return along(1 + both[:, :C], x) * x + along(both[:, C:], x)


def ada_ln(x, z, p):
    both = (silu(z) @ p["linear.weight"].T + p["linear.bias"])[:, None]
    return (1 + both[..., C:]) * layer_norm(x) + both[..., :C]


def frn(x, p):
    weight, bias = (p[name].reshape(-1, 1, 1) for name in ("weight", "bias"))
    return x / np.sqrt((x**2).mean((2, 3), keepdims=True) + 1e-6) * weight + bias


# name: (module, its arguments, shapes of its inputs, the equation of these and of its parameters)
FAMILY = {
    "DyT": (nn.DyT, (C,), [(N, 2, C)], lambda x, p: np.tanh(p["alpha"] * x) * p["weight"] + p["bias"]),
    "DyT of two axes": (nn.DyT, ((2, C), 0.8), [(N, 2, C)], lambda x, p: np.tanh(p["alpha"] * x) * p["weight"] + p["bias"]),
    "ScaleNorm": (nn.ScaleNorm, (C,), [(N, 2, C)],
                  lambda x, p: p["weight"] * x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-5)),
    "LayerScale": (nn.LayerScale, (C, 0.1), [(N, 2, C)], lambda x, p: p["weight"] * x),
    "DeepNorm": (nn.DeepNorm, (C, 1.7), [(N, 2, C)] * 2, lambda x, f, p: layer_norm(1.7 * x + f) * p["weight"] + p["bias"]),
    "FiLM": (nn.FiLM, (C, D), [(N, C, 2, 3), (N, D)], film),
    "FiLM of features": (nn.FiLM, (C, D), [(N, C), (N, D)], film),
    "AdaLN": (nn.AdaLN, (C, D), [(N, 2, C), (N, D)], ada_ln),
    "FilterResponseNorm2d": (nn.FilterResponseNorm2d, (C,), [(N, C, 2, 3)], frn),
    "TLU": (nn.TLU, (C,), [(N, C, 2, 3)], lambda x, p: np.maximum(x, p["threshold"].reshape(-1, 1, 1))),
    "TLU of features": (nn.TLU, (C,), [(N, C)], lambda x, p: np.maximum(x, p["threshold"])),
}  # fmt: skip


def randomized(module, rng):
    """Draw all parameters from a range that keeps α and scales away from 0."""
    with mg.no_grad():
        for parameter in module.parameters():
            parameter.copy_(mg.tensor(rng.uniform(0.5, 1.5, parameter.shape), dtype=parameter.dtype))
    return module


# ── equations ──


@pytest.mark.parametrize("name", FAMILY)
def test_equations_and_gradients(name, device, rng):
    """Outputs in both dtypes, gradients to order two of inputs and parameters, state, repr, and other modes."""
    kind, arguments, shapes, equation = FAMILY[name]
    module = randomized(kind(*arguments, dtype="float64"), rng)
    inputs = [rng.standard_normal(shape) for shape in shapes]
    expected = equation(*inputs, {k: v.numpy() for k, v in module.state_dict().items()})
    module = module.to(device)
    y = module(*(tensor(x, device) for x in inputs))
    near(y, expected, rtol=1e-12, atol=1e-13)
    assert module.eval()(*(tensor(x, device) for x in inputs)).tolist() == y.tolist()
    other = kind(*arguments).to(device)
    assert other.load_state_dict(module.state_dict()).missing_keys == []
    assert repr(other) == repr(module)
    single = other(*(tensor(x.astype("float32"), device) for x in inputs))
    assert single.dtype == mg.float32
    near(single, expected, rtol=2e-5, atol=2e-5)
    parameters = dict(module.named_parameters())

    def run(*leaves):
        for (path, _), leaf in zip(parameters.items(), leaves[len(inputs) :], strict=True):
            owner, _, own = path.rpartition(".")
            object.__setattr__(dict(module.named_modules())[owner], own, leaf)
        return module(*leaves[: len(inputs)])

    leaves = [tensor(x, device, True) for x in inputs] + [
        p.detach().copy().requires_grad_() for p in parameters.values()
    ]
    assert mg.gradcheck(run, leaves, order=2)


@pytest.mark.parametrize("name", FAMILY)
def test_parameters_begin_anew(name, rng):
    kind, arguments, *_ = FAMILY[name]
    mg.manual_seed(3)
    module = kind(*arguments)
    first = {k: v.tolist() for k, v in module.state_dict().items()}
    randomized(module, rng)
    assert {k: v.tolist() for k, v in module.state_dict().items()} != first
    mg.manual_seed(3)
    module.reset_parameters()
    assert {k: v.tolist() for k, v in module.state_dict().items()} == first


def test_initial_values(rng):
    """ScaleNorm begins as RMSNorm, AdaLN as LayerNorm, TLU as ReLU, and LayerScale small."""
    x, z = mg.tensor(rng.standard_normal((N, C)), dtype="float32"), mg.ones((N, D))
    near(nn.ScaleNorm(C, 0.0)(x), array(F.rms_norm(x, C, eps=0.0)), rtol=1e-6)
    assert nn.AdaLN(C, D)(x, z).tolist() == F.layer_norm(x, C).tolist()
    assert nn.TLU(C)(x).tolist() == F.relu(x).tolist()
    near(nn.LayerScale(C)(x), 1e-5 * array(x), rtol=1e-6)
    assert nn.DyT(C).alpha.tolist() == [0.5]


@pytest.mark.parametrize("name", ["AdaLN", "DeepNorm"])
def test_rows_with_a_large_mean(name, device, rng):
    """In float32 they lose no more digits than the input has: the row is exact, and 1e4 times its deviation away."""
    kind, arguments, *_ = FAMILY[name]
    x = (1e4 + rng.integers(-8, 9, (N, C)) / 8).astype("float32")
    module = kind(*arguments).to(device)
    other = np.zeros((N, D) if name == "AdaLN" else (N, C), "float32")
    if name == "DeepNorm":
        module.alpha = 1.0
    y = array(module(tensor(x, device), tensor(other, device)))
    np.testing.assert_allclose(y, layer_norm(x.astype("float64")), rtol=1e-5, atol=1e-5)


# ── batch renormalization ──


def renorm_equation(x, mean, var, p, r_max, d_max, eps=1e-5):
    """Return y of algorithm 1, and the batch's mean and unbiased variance."""
    axes = tuple(k for k in range(x.ndim) if k != 1)
    each = (1, -1) + (1,) * (x.ndim - 2)
    batch_mean, batch_sigma, sigma = x.mean(axes), np.sqrt(x.var(axes) + eps), np.sqrt(var + eps)
    r, d = np.clip(batch_sigma / sigma, 1 / r_max, r_max), np.clip((batch_mean - mean) / sigma, -d_max, d_max)
    hat = (x - batch_mean.reshape(each)) / batch_sigma.reshape(each) * r.reshape(each) + d.reshape(each)
    return hat * p["weight"].reshape(each) + p["bias"].reshape(each), r, d, batch_mean, x.var(axes, ddof=1)


def renorm(shape, rng, device, **options):
    """Return a layer with random parameters and statistics, some near those of a batch and some far away."""
    bn = (nn.BatchRenorm2d if len(shape) == 4 else nn.BatchRenorm1d)(shape[1], dtype="float64", **options)
    randomized(bn, rng)
    bn.running_mean.copy_(mg.tensor(np.resize([0.1, -9.0, 9.0, 0.0], shape[1])))
    bn.running_var.copy_(mg.tensor(np.resize([1.1, 0.9, 30.0, 0.02], shape[1])))
    return bn.to(device)


@pytest.mark.parametrize("shape", [(8, 4), (3, 4, 5), (2, 4, 3, 2)])
def test_batch_renorm(shape, device, rng):
    """Outputs and statistics over three steps; in evaluation it is batch norm, also after its state is exchanged."""
    bn = renorm(shape, rng, device, r_max=2.0, d_max=1.5, momentum=0.2)
    p = {name: array(v).copy() for name, v in bn.named_parameters()}
    mean, var = array(bn.running_mean).copy(), array(bn.running_var).copy()
    for step in range(3):
        x = rng.standard_normal(shape)
        expected, r, d, batch_mean, batch_var = renorm_equation(x, mean, var, p, 2.0, 1.5)
        if step == 0:  # both limits of both, and neither
            assert {r.min(), r.max()} == {0.5, 2.0}
            assert {d.min(), d.max()} == {-1.5, 1.5}
            assert 0.5 < r[0] < 2
            assert abs(d[0]) < 1.5
        near(bn(tensor(x, device)), expected, rtol=1e-11, atol=1e-12)
        mean, var = 0.8 * mean + 0.2 * batch_mean, 0.8 * var + 0.2 * batch_var
        near(bn.running_mean, mean, rtol=1e-12)
        near(bn.running_var, var, rtol=1e-12)
    assert bn.num_batches_tracked.item() == 3
    plain = type(bn).__mro__[2](4, dtype="float64").to(device)
    assert plain.load_state_dict(bn.state_dict()).missing_keys == []
    assert bn.eval()(tensor(x, device)).tolist() == plain.eval()(tensor(x, device)).tolist()


@pytest.mark.parametrize("shape", [(8, 4), (2, 4, 3, 2)])
def test_batch_renorm_between_its_limits(shape, device, rng):
    """With r = 1 and d = 0 it is batch norm; without limits, training gives the outputs of evaluation."""
    x, c = rng.standard_normal(shape), rng.standard_normal(shape)
    bn = renorm(shape, rng, device, r_max=1.0, d_max=0.0, momentum=None)
    plain = type(bn).__mro__[2](4, dtype="float64", momentum=None).to(device)
    plain.load_state_dict(bn.state_dict())
    found = []
    for layer in (bn, plain):
        leaf = tensor(x, device, True)
        y = layer(leaf)
        y.backward(tensor(c, device))
        found.append([y, leaf.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var])
    agree(*found, rtol=1e-11, atol=1e-12)
    bn = renorm(shape, rng, device, r_max=math.inf, d_max=math.inf, momentum=0.0)
    training = bn(tensor(x, device))
    near(training, array(bn.eval()(tensor(x, device))), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("r_max, d_max", [(3.0, 5.0), (1.1, 0.2)])
def test_gradients_of_batch_renorm(r_max, d_max, device, rng):
    """r and d are constants to the gradient, which is that of batch norm with γ r in place of γ, to order two."""
    x, w, b = (tensor(rng.standard_normal(s), device, True) for s in ((7, 4), (4,), (4,)))
    mean, var = (tensor(v, device) for v in (rng.standard_normal(4), rng.uniform(0.2, 3, 4)))
    arguments = {"training": True, "momentum": 0.0, "eps": 0.1}
    c = tensor(rng.standard_normal((7, 4)), device)
    _, r, d, *_ = renorm_equation(
        array(x), array(mean), array(var), {"weight": array(w), "bias": array(b)}, r_max, d_max, 0.1
    )
    r, d = tensor(r, device), tensor(d, device)

    def ours(x, w, b):
        return F.batch_renorm(x, mean, var, w, b, r_max=r_max, d_max=d_max, **arguments)

    def theirs(x, w, b):
        return F.batch_norm(x, mean, var, w * r, w * d + b, **arguments)

    found = []
    for function in (ours, theirs):
        first = mg.grad(function(x, w, b), [x, w, b], c, create_graph=True)
        second = mg.grad(sum((g * g).sum() for g in first), [x, w])
        found.append([*first, *second])
    agree(*found, rtol=1e-10, atol=1e-11)


def test_gradients_of_batch_renorm_where_all_is_clipped(device, rng):
    """There r and d are constants, not only to the gradient but also to differences of the output."""
    leaves = [tensor(rng.standard_normal(s), device, True) for s in ((7, 4), (4,), (4,))]
    mean, var = tensor(np.full(4, 50.0), device), tensor(np.full(4, 100.0), device)

    def run(x, w, b):
        return F.batch_renorm(x, mean, var, w, b, True, 0.0, 0.1, r_max=1.1, d_max=0.2)

    assert mg.gradcheck(run, leaves, order=2)


# ── DeepNorm's initialization ──


def test_deep_norm_constants():
    """The table of the paper's figure 2, for N = 6 and M = 3."""
    assert nn.init.deep_norm_constants(6) == pytest.approx((12**0.25, 48**-0.25))
    assert nn.init.deep_norm_constants(0, 3, "decoder") == pytest.approx((6**0.25, 24**-0.25))
    assert nn.init.deep_norm_constants(6, 3) == pytest.approx((0.81 * 3888 ** (1 / 16), 0.87 * 3888 ** (-1 / 16)))
    assert nn.init.deep_norm_constants(6, 3, "decoder") == pytest.approx((9**0.25, 36**-0.25))
    refuses(ValueError, "deep_norm_constants", "the encoder of 0 and 3 layers", nn.init.deep_norm_constants, 0, 3)
    refuses(ValueError, "deep_norm_constants", "'both'", nn.init.deep_norm_constants, 1, 1, "both")
    refuses(ValueError, "deep_norm_constants", "num_encoder_layers >= 0, got -1", nn.init.deep_norm_constants, -1)


@pytest.mark.parametrize("kdim", [None, 32])
def test_deep_norm_initialization(kdim):
    """Variances are those of Glorot's rule for each projection, times β² but for queries and keys."""
    mg.manual_seed(0)
    attention = nn.MultiheadAttention(64, 4, kdim=kdim)
    layer = nn.Sequential(attention, nn.LayerNorm(64), nn.Linear(64, 256), nn.Embedding(5, 64))
    rows = layer[3].weight.tolist()
    assert nn.init.deep_norm_(layer, 0.1) is layer
    if kdim is None:
        q, k, v = np.split(attention.in_proj_weight.detach().numpy(), 3)
    else:
        q, k, v = (getattr(attention, f"{name}_proj_weight").detach().numpy() for name in "qkv")
    weights = {
        "q": (q, 1), "k": (k, 1), "v": (v, 0.1), "out": (array(attention.out_proj.weight), 0.1),
        "linear": (array(layer[2].weight), 0.1),
    }  # fmt: skip
    for name, (w, gain) in weights.items():
        assert w.std() == pytest.approx(gain * math.sqrt(2 / sum(w.shape)), rel=0.05), name
    for bias in (attention.in_proj_bias, attention.out_proj.bias, layer[2].bias):
        assert not array(bias).any()
    assert layer[3].weight.tolist() == rows
    assert layer[1].weight.tolist() == [1.0] * 64
    block = nn.Sequential(nn.Linear(2, 2))  # it has the name of a width, but no weight
    block.in_features, block.bias = 2, True
    assert not array(nn.init.deep_norm_(block, 0.0)[0].weight).any()
    refuses(TypeError, "deep_norm_", "Tensor", nn.init.deep_norm_, mg.ones((2, 2)), 0.5)
    refuses(ValueError, "deep_norm_", "beta >= 0, got -1", nn.init.deep_norm_, nn.Linear(2, 2), -1.0)


# ── errors ──


@pytest.mark.parametrize("build, expected", [
    (lambda: nn.DeepNorm(4, -1.0), "alpha >= 0, got -1"), (lambda: nn.ScaleNorm(4, -1.0), "eps >= 0"),
    (lambda: nn.AdaLN(4, 3, -1.0), "eps >= 0"), (lambda: nn.FilterResponseNorm2d(4, -1.0), "eps >= 0"),
    (lambda: nn.BatchRenorm1d(4, r_max=0.5), "r_max >= 1, got 0.5"), (lambda: nn.BatchRenorm2d(4, d_max=-0.5), "d_max >= 0, got -0.5"),
    (lambda: nn.BatchRenorm1d(4, momentum=2.0), "momentum"), (lambda: nn.DyT(()), "at least one axis"),
    (lambda: nn.DeepNorm((), 1.0), "at least one axis"),
])  # fmt: skip
def test_bad_options(build, expected):
    raises(ValueError, rf"^\[\w+\] expected .*{expected}", build)


X, WIDE = mg.ones((3, 4)), mg.ones((3, 4), dtype="float64")


@pytest.mark.parametrize("call, error, expected", [
    (lambda: nn.DyT(4)(mg.ones((3, 5))), ValueError, r"\[dynamic_tanh\] expected weight of shape \(5,\) for x of shape \(3, 5\), got \(4,\)"),
    (lambda: nn.DyT(4)(WIDE), TypeError, r"\[dynamic_tanh\] expected alpha of float64, the dtype of x, got float32: use x\.astype"),
    (lambda: F.dynamic_tanh(X, mg.ones(2)), ValueError, r"\[dynamic_tanh\] expected alpha of shape \(1,\) for x of shape \(3, 4\), got \(2,\)"),
    (lambda: F.dynamic_tanh(X, "half"), TypeError, r"\[dynamic_tanh\] expected numbers, got str"),
    (lambda: F.dynamic_tanh(mg.ones(3, dtype="int64"), mg.ones(1)), TypeError, r"\[dynamic_tanh\] expected floating-point elements, got int64"),
    (lambda: nn.ScaleNorm(4)(mg.ones((3, 5))), ValueError, r"\[ScaleNorm\] expected an input of shape \(\.\.\., 4\), got \(3, 5\)"),
    (lambda: nn.ScaleNorm(4)(WIDE), TypeError, r"\[scale_norm\] expected weight of float64"),
    (lambda: nn.ScaleNorm(4)(mg.ones(())), ValueError, r"\[ScaleNorm\] expected an input"),
    (lambda: F.scale_norm(X, mg.ones(4)), ValueError, r"\[scale_norm\] expected weight of shape \(\) for x of shape \(3, 4\), got \(4,\)"),
    (lambda: F.scale_norm(X, mg.ones(()), -1.0), ValueError, r"\[scale_norm\] expected eps >= 0"),
    (lambda: nn.LayerScale(4)(mg.ones((3, 5))), ValueError, r"\[layer_scale\] expected weight of shape \(5,\) for x of shape \(3, 5\), got \(4,\)"),
    (lambda: nn.LayerScale(4)(WIDE), TypeError, r"\[layer_scale\] expected weight of float64"),
    (lambda: nn.DeepNorm(4, 2.0)(X, mg.ones(4)), ValueError, r"\[deep_norm\] expected branch of shape \(3, 4\) for x of shape \(3, 4\), got \(4,\)"),
    (lambda: nn.DeepNorm(4, 2.0)(X, WIDE), TypeError, r"\[deep_norm\] expected branch of float32, the dtype of x, got float64"),
    (lambda: nn.DeepNorm(4, 2.0)(X, 1.0), ValueError, r"\[deep_norm\] expected branch of shape \(3, 4\) for x of shape \(3, 4\), got \(\)"),
    (lambda: nn.DeepNorm(4, 2.0)(mg.ones((3, 5)), mg.ones((3, 5))), ValueError, r"\[deep_norm\] expected x of shape \(\.\.\., 4\), got \(3, 5\)"),
    (lambda: F.deep_norm(X, X, 2.0, (3, 4), mg.ones(4)), ValueError, r"\[deep_norm\] expected weight of shape \(3, 4\) for x of shape \(3, 4\), got \(4,\)"),
    (lambda: F.deep_norm(X, None, 2.0, 4), TypeError, r"\[deep_norm\] expected a tensor branch, got None"),
    (lambda: nn.FiLM(4, 2)(X, mg.ones((2, 2))), ValueError, r"\[FiLM\] expected a condition of shape \(3, 2\), got \(2, 2\)"),
    (lambda: nn.FiLM(4, 2)(X, mg.ones((3, 4))), ValueError, r"\[FiLM\] expected a condition of shape \(3, 2\), got \(3, 4\)"),
    (lambda: nn.FiLM(4, 2)(mg.ones((3, 5)), mg.ones((3, 2))), ValueError, r"\[FiLM\] expected an input of shape \(N, 4, \.\.\.\), got \(3, 5\)"),
    (lambda: nn.FiLM(4, 2)(WIDE, mg.ones((3, 2))), TypeError, r"\[film\] expected scale of float64"),
    (lambda: nn.FiLM(4, 2)(X, [1.0, 2.0]), TypeError, r"\[FiLM\] expected a tensor condition, got list"),
    (lambda: F.film(X, mg.ones((1, 4)), X), ValueError, r"\[film\] expected scale of shape \(3, 4\) for x of shape \(3, 4\), got \(1, 4\)"),
    (lambda: F.film(mg.ones(4), X, X), ValueError, r"\[film\] expected x of shape \(N, C, \.\.\.\), got \(4,\)"),
    (lambda: nn.AdaLN(4, 2)(X, mg.ones((1, 2))), ValueError, r"\[AdaLN\] expected a condition of shape \(3, 2\), got \(1, 2\)"),
    (lambda: nn.AdaLN(4, 2)(mg.ones((3, 4, 5)), mg.ones((3, 2))), ValueError, r"\[AdaLN\] expected an input of shape \(N, \.\.\., 4\)"),
    (lambda: F.adaptive_layer_norm(X, X, mg.ones(4)), ValueError, r"\[adaptive_layer_norm\] expected shift of shape \(3, 4\) for x of shape \(3, 4\), got \(4,\)"),
    (lambda: nn.FilterResponseNorm2d(4)(mg.ones((3, 4, 5))), ValueError, r"\[FilterResponseNorm2d\] expected an input of shape \(N, 4, H, W\), got"),
    (lambda: F.filter_response_norm(X), ValueError, r"\[filter_response_norm\] expected x of shape \(N, C, \.\.\.\) with 3 axes or more"),
    (lambda: F.filter_response_norm(mg.ones((2, 3, 4)), threshold=mg.ones(1)), ValueError, r"expected threshold of shape \(3,\) for x of shape \(2, 3, 4\), got \(1,\)"),
    (lambda: nn.TLU(4)(mg.ones((3, 5))), ValueError, r"\[tlu\] expected threshold of shape \(5,\) for x of shape \(3, 5\), got \(4,\)"),
    (lambda: nn.TLU(4)(WIDE), TypeError, r"\[tlu\] expected threshold of float64"),
    (lambda: nn.BatchRenorm1d(4)(mg.ones((1, 4))), ValueError, r"\[batch_renorm\] expected more than one value per channel"),
    (lambda: nn.BatchRenorm1d(4)(WIDE), TypeError, r"\[batch_renorm\] expected running statistics of float64"),
    (lambda: nn.BatchRenorm2d(4)(X), ValueError, r"\[BatchRenorm2d\] expected an input of shape \(N, 4, H, W\), got \(3, 4\)"),
    (lambda: F.batch_renorm(X, mg.zeros(4), mg.ones(4), mg.ones(1), training=True), ValueError, r"\[batch_renorm\] expected weight of shape \(4,\)"),
    (lambda: F.batch_renorm(X, None, None, training=True), ValueError, r"\[batch_renorm\] expected running_mean and running_var, got None"),
    (lambda: F.batch_renorm(X, mg.zeros(4), mg.ones(4), training=True, r_max=0.9), ValueError, r"\[batch_renorm\] expected r_max >= 1"),
    (lambda: F.weight_standardization(mg.ones((3, 1))), ValueError, r"\[weight_standardization\] expected more than one weight per output"),
    (lambda: F.weight_standardization(X, dim=2), ValueError, r"\[weight_standardization\] expected an axis of a weight of shape \(3, 4\), got dim=2"),
])  # fmt: skip
def test_bad_inputs(call, error, expected):
    raises(error, expected, call)
