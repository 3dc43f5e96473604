"""Spectral norm against both of PyTorch's implementations, and weight standardization against its equation."""

import copy
import pickle

import numpy as np
import pytest
from checks import array, equals, near, raises, refuses, tensor
from peers import step_beside_torch, torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F
from minigrad.nn import utils

deprecated = pytest.mark.filterwarnings("ignore:.*torch.nn.utils.spectral_norm.*is deprecated:FutureWarning")

LAYERS = {
    "Linear": ((5, 4), (6, 5), {}),
    "Conv2d": ((3, 4, 2), (2, 3, 5, 5), {}),
    "ConvTranspose2d": ((3, 4, 2), (2, 3, 4, 4), {}),
    "Conv2d of two iterations": ((3, 4, 2), (2, 3, 5, 5), {"n_power_iterations": 2}),
    "Linear by columns": ((5, 4), (6, 5), {"dim": 1}),
}


def pair(torch, name, device):
    """Return our layer with PyTorch's state, PyTorch's, and a shape of inputs."""
    sizes, shape, options = LAYERS[name]
    kind = name.partition(" ")[0]
    ours = utils.spectral_norm(getattr(nn, kind)(*sizes, dtype="float64").to(device), **options)
    theirs = torch.nn.utils.spectral_norm(getattr(torch.nn, kind)(*sizes, dtype=torch.float64), **options)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert ours.load_state_dict(theirs.state_dict()).missing_keys == []
    return ours, theirs, shape


# ── PyTorch's semantics ──


@deprecated
@pytest.mark.parametrize("name", LAYERS)
def test_as_in_pytorch(name, device, rng):
    """Outputs, gradients and vectors, in training, evaluation and training again, and after removal."""
    ours, theirs, shape = pair(torch, name, device)
    for training in (True, True, False, True):
        ours.train(training)
        theirs.train(training)
        step_beside_torch(ours, theirs, rng.standard_normal(shape), rng, 1e-10, 1e-11, device)
    utils.remove_spectral_norm(ours)
    torch.nn.utils.remove_spectral_norm(theirs)
    near(ours.weight, theirs.weight.detach().numpy(), rtol=1e-11)
    assert sorted(ours.state_dict()) == ["bias", "weight"]


def test_as_parametrized_in_pytorch(device, rng):
    """Its state gives the same outputs; in training it computes u before v."""
    ours = utils.spectral_norm(nn.Linear(5, 4, dtype="float64").to(device))
    theirs = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(5, 4, dtype=torch.float64))
    names = {"original": "orig", "0._u": "u", "0._v": "v"}
    state = {name.replace("parametrizations.weight.", "weight_"): v for name, v in theirs.state_dict().items()}
    ours.load_state_dict(
        {name.replace(k, v): x for name, x in state.items() for k, v in names.items() if name.endswith(k)}
        | {"bias": state["bias"]}
    )
    x = rng.standard_normal((3, 5))
    y = theirs.eval()(torch.tensor(x)).detach().numpy()
    near(ours.eval()(tensor(x, device)), y, rtol=1e-11, atol=1e-12)


# ── the equation ──


@pytest.mark.parametrize("shape, dim", [((4, 3), 0), ((3, 4), 1), ((4, 3, 2, 2), 0), ((2, 5, 3), -2)])
def test_largest_singular_value(shape, dim, device, rng):
    """σ is that of NumPy's decomposition after enough iterations; the weight then has norm 1 as a matrix."""
    module = nn.Module()
    module.kernel = nn.Parameter(tensor(rng.standard_normal(shape), device))
    w = array(module.kernel).copy()
    utils.spectral_norm(module, "kernel", 1000, dim=dim)
    matrix = np.moveaxis(w, dim, 0).reshape(shape[dim], -1)
    near(module.kernel, w / np.linalg.svd(matrix)[1][0], rtol=1e-10)


def test_gradients(device, rng):
    """dW = (g − (g · W/σ) u vᵀ) / σ (Miyato et al., section 2.3), and derivatives to order two with u and v given."""
    layer = utils.spectral_norm(nn.Linear(3, 4, bias=False, dtype="float64").to(device)).eval()
    w, u, v = (array(x).copy() for x in layer.state_dict().values())
    g, sigma = rng.standard_normal((4, 3)), u @ w @ v
    layer.weight.backward(tensor(g, device))
    expected = (g - (g * w / sigma).sum() * np.outer(u, v)) / sigma
    near(layer.weight_orig.grad, expected, rtol=1e-11, atol=1e-13)

    def run(w):
        object.__setattr__(layer, "weight_orig", w)
        return layer.weight

    assert mg.gradcheck(run, [tensor(w, device, True)], order=2)


def test_two_batches_before_one_backward(device, rng):
    """The iteration for the second batch does not change the vectors that the first one's gradient uses."""
    layer = utils.spectral_norm(nn.Linear(3, 4, dtype="float64").to(device))
    state = copy.deepcopy(layer)
    x, c = tensor(rng.standard_normal((5, 3)), device), tensor(rng.standard_normal((5, 4)), device)
    y = layer(x)
    layer(x)
    y.backward(c)
    state(x).backward(c)
    assert layer.weight_orig.grad.tolist() == state.weight_orig.grad.tolist()


@pytest.mark.parametrize("dtype, scale", [("float32", 1e-9), ("float32", 1e25), ("float32", 0.0), ("float64", 1e200)])
def test_sizes_of_weights(dtype, scale, device, rng):
    """Squares may overflow or be below ε; a weight of zeros stays zeros and learns from a finite gradient."""
    w = rng.standard_normal((4, 3))
    layer = nn.Linear(3, 4, bias=False, dtype=dtype).to(device)
    with mg.no_grad():
        layer.weight.copy_(tensor((w * scale).astype(dtype), device))
    utils.spectral_norm(layer, n_power_iterations=100)
    expected = w / np.linalg.norm(w, 2) if scale else 0 * w
    near(layer.weight, expected, rtol=1e-5, atol=1e-6)
    layer.weight.sum().backward()
    assert np.isfinite(array(layer.weight_orig.grad)).all()
    if not scale:
        assert array(layer.weight_orig.grad).all()
        with mg.no_grad():
            layer.weight_orig.copy_(tensor(w.astype(dtype), device))
        near(layer.weight, w / np.linalg.norm(w, 2), rtol=1e-5, atol=1e-6)


# ── weight standardization ──


@pytest.mark.parametrize("build, dim", [
    (lambda: nn.Linear(5, 4), 0), (lambda: nn.Conv2d(3, 4, 2, groups=1), 0), (lambda: nn.ConvTranspose2d(3, 4, 2), 1),
])  # fmt: skip
def test_weight_standardization(build, dim, device, rng):
    layer = build().to("float64").to(device)
    parameter, w = layer.weight, array(layer.weight).copy() + 100.0  # a mean that is subtracted before squaring
    with mg.no_grad():
        layer.weight += 100.0
    assert utils.weight_standardization(layer, dim=dim, eps=1e-3) is layer
    assert layer.weight_orig is parameter
    axes = tuple(k for k in range(w.ndim) if k != dim)
    expected = (w - w.mean(axes, keepdims=True)) / np.sqrt(w.var(axes, keepdims=True) + 1e-3)
    near(layer.weight, expected, rtol=1e-9, atol=1e-10)
    assert layer.weight.tolist() == F.weight_standardization(parameter, 1e-3, dim).tolist()

    def run(w):
        object.__setattr__(layer, "weight_orig", w)
        return layer.weight

    assert mg.gradcheck(run, [tensor(w - 100.0, device, True)], order=2)
    object.__setattr__(layer, "weight_orig", parameter)
    before = layer.weight.tolist()
    assert type(utils.remove_weight_standardization(layer)) is type(build())
    assert layer.weight is parameter
    assert layer.weight.tolist() == before


# ── the modules ──

KINDS = {
    "spectral_norm": ("spectrally normalized", ["bias", "weight_orig", "weight_u", "weight_v"]),
    "weight_standardization": ("standardized", ["bias", "weight_orig"]),
    "weight_norm": ("weight-normalized", ["bias", "weight_g", "weight_v"]),
}


@pytest.mark.parametrize("op", KINDS)
def test_copies_resets_and_repetition(op, device):
    kind, names = KINDS[op]
    make, remove = getattr(utils, op), getattr(utils, f"remove_{op}")
    layer = make(nn.Linear(3, 2, device=device)).eval()
    assert list(layer.state_dict()) == names
    assert repr(layer) == "Linear(in_features=3, out_features=2, bias=True)"
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.weight.tolist() == layer.weight.tolist()
        assert type(remove(other)) is nn.Linear
        raises(ValueError, rf"^\[remove_{op}\] expected a {kind} parameter, got the name 'weight'", remove, other)
    for again in KINDS:
        refuses(ValueError, again, f"not {kind} yet, got 'weight'", getattr(utils, again), layer)
        refuses(ValueError, again, f"not part of a {kind} one", getattr(utils, again), layer, layer_part(layer))
        if again != op:
            refuses(ValueError, f"remove_{again}", "got the name 'weight'", getattr(utils, f"remove_{again}"), layer)
    with pytest.raises(AttributeError, match=rf"expected an assignment to .*{layer_part(layer)}, got one to 'weight'"):
        layer.weight = nn.Parameter(mg.ones((2, 3)))
    plain = nn.Linear(3, 2)
    for module in (plain, layer):
        mg.manual_seed(7)
        module.reset_parameters()
    equals(getattr(layer, layer_part(layer)), array(plain.weight))
    assert list(layer.state_dict()) == names
    refuses(TypeError, op, "int", make, 3)
    refuses(TypeError, f"remove_{op}", "int", remove, 3)


def layer_part(layer):
    """Return the name of the parameter that took the place of the weight."""
    return next(name for name, p in layer.named_parameters() if p.shape == (2, 3))


def test_vectors_begin_anew(device):
    """After a reset they fit the new weight as closely as at first."""
    layer = utils.spectral_norm(nn.Linear(8, 6, dtype="float64").to(device)).eval()
    layer.reset_parameters()
    w, u, v = (array(layer.state_dict()[f"weight_{name}"]) for name in ("orig", "u", "v"))
    assert u @ w @ v == pytest.approx(np.linalg.norm(w, 2), rel=0.05)
    assert np.linalg.norm(u) == pytest.approx(1)


def test_folding_and_kinds_beside_each_other(device, rng):
    """A batch norm is folded into a computed weight; two parameters are computed in two ways."""
    for make in (utils.spectral_norm, utils.weight_standardization):
        layer = make(nn.Linear(3, 4, dtype="float64").to(device)).eval()
        bn = nn.BatchNorm1d(4, dtype="float64").to(device)
        x = tensor(rng.standard_normal((6, 3)), device)
        bn(layer(x))
        folded = utils.fold_batch_norm(layer, bn)
        assert type(folded) is nn.Linear
        near(folded(x), array(bn.eval()(layer(x))), rtol=1e-11, atol=1e-12)
    cell = nn.RNNCell(3, 4).to(device)
    utils.weight_norm(utils.spectral_norm(cell, "weight_hh"), "weight_ih")
    cell(mg.ones((2, 3), device=device)).sum().backward()
    assert all(p.grad is not None for p in cell.parameters())
    utils.remove_spectral_norm(cell, "weight_hh")
    assert type(cell) is not nn.RNNCell
    assert type(utils.remove_weight_norm(cell, "weight_ih")) is nn.RNNCell


def test_errors():
    layer = nn.Linear(3, 2)
    for op, options, expected in (
        ("spectral_norm", {"n_power_iterations": 0}, "n_power_iterations >= 1, got 0"),
        ("spectral_norm", {"name": "bias"}, "two axes or more, got dim=0 and shape (2,)"),
        ("spectral_norm", {"dim": 2}, "got dim=2 and shape (2, 3)"),
        ("weight_standardization", {"name": "bias"}, "more than one weight per output"),
        ("weight_standardization", {"dim": -3}, "dim=-3"),
        *((op, {"eps": -1.0}, "eps >= 0") for op in ("spectral_norm", "weight_standardization")),
        *((op, {"name": "nothing"}, "a parameter of Linear, got the name 'nothing'") for op in ("spectral_norm", "weight_standardization")),
    ):  # fmt: skip
        refuses(ValueError, op, expected, getattr(utils, op), layer, **options)
    refuses(TypeError, "weight_standardization", "dim", utils.weight_standardization, layer, dim=0.5)
    assert list(layer.state_dict()) == ["weight", "bias"]
