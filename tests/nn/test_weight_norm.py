"""Weight normalization against both of PyTorch's implementations, and folding layers."""

import copy

import numpy as np
import pytest
from checks import array, equals, near, raises, refuses
from peers import exchange_state, step_beside_torch, torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import utils

deprecated = pytest.mark.filterwarnings("ignore:.*torch.nn.utils.weight_norm.*is deprecated:FutureWarning")


def random(rng, device, *shape, requires_grad=False):
    return mg.tensor(rng.standard_normal(shape), device=device, requires_grad=requires_grad)


def formula(g, v, axes):
    return g * v / np.sqrt((v**2).sum(axes, keepdims=True))


# ── PyTorch's semantics ──


@deprecated
@pytest.mark.parametrize("seed", range(60))
def test_as_in_pytorch(seed, device):
    rng = np.random.default_rng(seed)
    inputs, outputs, batch = (int(n) for n in rng.integers(1, 8, 3))
    dim, bias = [0, 1, None][seed % 3], bool(rng.random() < 0.7)
    dtype = "float32" if seed % 4 == 0 else "float64"
    rtol, atol = {"float32": (1e-4, 1e-4), "float64": (1e-11, 1e-12)}[dtype]
    ours = nn.Linear(inputs, outputs, bias=bias, dtype=dtype).to(device)
    theirs = torch.nn.Linear(inputs, outputs, bias=bias, dtype=getattr(torch, dtype))
    ours.load_state_dict(theirs.state_dict())
    before = ours.weight.tolist()
    assert utils.weight_norm(ours, dim=dim) is ours
    torch.nn.utils.weight_norm(theirs, dim=dim)
    for name, tensor in theirs.state_dict().items():
        near(ours.state_dict()[name], tensor.numpy(), rtol=1e-6, err_msg=name)
    np.testing.assert_allclose(ours.weight.tolist(), before, rtol=1e-6)
    exchange_state(ours, theirs, rng)
    for _ in range(2):
        x = rng.standard_normal((batch, inputs)).astype(dtype)
        step_beside_torch(ours, theirs, x, rng, rtol, atol, device)


@deprecated
def test_several_parameters_of_a_cell(device):
    rng = np.random.default_rng(0)
    ours, theirs = nn.RNNCell(3, 4, device=device, dtype="float64"), torch.nn.RNNCell(3, 4, dtype=torch.float64)
    for name, dim in (("weight_ih", 0), ("weight_hh", None)):
        utils.weight_norm(ours, name, dim)
        torch.nn.utils.weight_norm(theirs, name, dim)
    exchange_state(ours, theirs, rng)
    step_beside_torch(ours, theirs, rng.standard_normal((5, 3)), rng, 1e-11, 1e-12, device)
    utils.remove_weight_norm(ours, "weight_ih")
    torch.nn.utils.remove_weight_norm(theirs, "weight_ih")
    step_beside_torch(ours, theirs, rng.standard_normal((5, 3)), rng, 1e-11, 1e-12, device)


@deprecated
def test_state_of_the_parametrized_form(device):
    """It loads our names, but saves others, in the order length, direction."""
    ours = utils.weight_norm(nn.Linear(3, 4, device=device))
    theirs = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(3, 4))
    theirs.load_state_dict({name: torch.from_numpy(array(value)) for name, value in ours.state_dict().items()})
    np.testing.assert_allclose(theirs.weight.detach().numpy(), array(ours.weight), rtol=1e-5, atol=1e-7)
    other = utils.weight_norm(nn.Linear(3, 4, device=device))
    renamed = {"parametrizations.weight.original0": "weight_g", "parametrizations.weight.original1": "weight_v"}
    other.load_state_dict({renamed.get(name, name): value for name, value in theirs.state_dict().items()})
    assert other.weight.tolist() == ours.weight.tolist()


# ── gradients ──


@pytest.mark.parametrize("shape, dim, axes", [
    ((4, 3), 0, (1,)), ((4, 3), -1, (0,)), ((4, 3), None, (0, 1)), ((2, 3, 2, 2), 0, (1, 2, 3)), ((2, 3, 2), 1, (0, 2)), ((4,), 0, ()),
    ((4,), None, (0,)),
])  # fmt: skip
def test_formula_and_gradients(shape, dim, axes, device, rng):
    module = nn.Module()
    module.kernel = nn.Parameter(random(rng, device, *shape))
    utils.weight_norm(module, "kernel", dim)
    assert module.kernel_g.shape == (() if dim is None else tuple(1 if k in axes else n for k, n in enumerate(shape)))
    g, v = (random(rng, device, *s, requires_grad=True) for s in (module.kernel_g.shape, shape))
    expected = formula(array(g), array(v), axes)

    def run(g, v):
        object.__setattr__(module, "kernel_g", g)
        object.__setattr__(module, "kernel_v", v)
        return module.kernel

    near(run(g, v), expected, rtol=1e-13)
    assert mg.gradcheck(run, [g, v], order=3, rtol=1e-5)


def test_a_row_of_zeros(device, rng):
    """Its weight is zero and its gradients are finite, to any order; other rows are not affected."""
    layer = nn.Linear(3, 4, bias=False, device=device, dtype="float64")
    with mg.no_grad():
        layer.weight[1] = 0.0
    before = layer.weight.tolist()
    utils.weight_norm(layer)
    np.testing.assert_allclose(layer.weight.tolist(), before, rtol=1e-14)
    nn.init.ones_(layer.weight_g)
    x, c = random(rng, device, 5, 3), random(rng, device, 5, 4)
    assert layer(x)[:, 1].tolist() == [0.0] * 5
    gradients = mg.grad(layer(x), [layer.weight_g, layer.weight_v], c, create_graph=True)
    assert gradients[0][1].tolist() == [0.0]
    np.testing.assert_allclose(gradients[1][1].tolist(), (c.T @ x)[1].tolist(), rtol=1e-13)
    cotangents = [random(rng, device, *g.shape) for g in gradients]
    second = mg.grad([g * g for g in gradients], [layer.weight_g, layer.weight_v], cotangents)
    assert all(np.isfinite(array(s)).all() for s in second)


@pytest.mark.parametrize("dim", [0, 1, -1, None])
@pytest.mark.parametrize("dtype, scale", [
    ("float32", 1e-25), ("float32", 1e-37), ("float32", 1e25), ("float32", 3e37), ("float64", 1e-200), ("float64", 1e200),
])  # fmt: skip
def test_squares_that_vanish_or_overflow(dim, dtype, scale, device, rng):
    """w, dg and dv are scaled from those at size 1, next to a slice of that size."""
    small = rng.standard_normal((4, 4))
    factors = np.full((4, 4), scale)
    if dim is not None:
        factors[1 if dim == 0 else slice(None), 1 if dim != 0 else slice(None)] = 1.0
    layer = nn.Linear(4, 4, bias=False, device=device, dtype=dtype)
    with mg.no_grad():
        layer.weight.copy_(mg.tensor(small * factors, device=device))
    before = array(layer.weight).copy()
    utils.weight_norm(layer, dim=dim)
    rtol = 1e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(layer.weight.tolist(), before, rtol=rtol)
    axes = {0: (1,), 1: (0,), -1: (0,), None: (0, 1)}[dim]
    lengths = np.sqrt((small**2).sum(axes, keepdims=True))
    size = factors.max() if dim is None else factors[:1] if dim != 0 else factors[:, :1]
    np.testing.assert_allclose(array(layer.weight_g).reshape(lengths.shape), lengths * size, rtol=rtol)
    nn.init.ones_(layer.weight_g)
    c = rng.standard_normal((4, 4))
    cotangent = mg.tensor(c, device=device, dtype=dtype)
    dg, dv = (array(d) for d in mg.grad(layer.weight, [layer.weight_g, layer.weight_v], cotangent))
    unit = small / lengths
    exact_dg = (c * unit).sum(axes, keepdims=True)
    exact_dv = (c - unit * exact_dg) / lengths
    np.testing.assert_allclose(dg.reshape(lengths.shape), exact_dg, rtol=10 * rtol, atol=10 * rtol)
    np.testing.assert_allclose(dv * factors, exact_dv, rtol=0, atol=10 * rtol * np.abs(exact_dv).max())


@pytest.mark.parametrize("shape, dim", [((3, 0), 0), ((0, 3), 0), ((3, 0), None), ((0,), 0), ((3,), -1)])
def test_slices_without_elements(shape, dim, device):
    """Norms of empty slices are 0, and removal restores the parameter."""
    module = nn.Module()
    module.kernel = nn.Parameter(-2 * mg.ones(shape, device=device))
    utils.weight_norm(module, "kernel", dim)
    assert array(module.kernel_g).max(initial=0) == (2.0 if shape == (3,) else 0.0)
    assert module.kernel.tolist() == (-2 * mg.ones(shape)).tolist()
    assert utils.remove_weight_norm(module, "kernel").kernel.shape == shape


def test_not_a_number_stays_in_its_slice(device):
    layer = utils.weight_norm(nn.Linear(3, 4, bias=False, device=device))
    before = array(layer.weight).copy()
    with mg.no_grad():
        layer.weight_v[2, 1] = float("nan")
    after = array(layer.weight)
    assert np.isnan(after[2]).all()
    np.testing.assert_array_equal(np.delete(after, 2, 0), np.delete(before, 2, 0))


@pytest.mark.parametrize("dim", [0, 1, -1, None])
def test_removal_gives_an_equal_model(dim, device, rng):
    """Outputs keep their bits, gradients are those of an ordinary parameter, and the state is as before weight_norm."""
    layer, x, c = nn.Linear(5, 5, device=device), *(random(rng, device, 4, 5).to("float32") for _ in range(2))
    before = array(layer.weight).copy()
    utils.weight_norm(layer, dim=dim)
    np.testing.assert_allclose(layer.weight.tolist(), before, rtol=1e-6)
    with mg.no_grad():
        layer.weight_g *= 1.7
    y, weight = array(layer(x)), array(layer.weight)
    utils.remove_weight_norm(layer)
    equals(layer(x), y)
    equals(layer.weight, weight)
    layer(x).backward(c)
    near(layer.weight.grad, array(c).T @ array(x), rtol=1e-5, atol=1e-6)
    assert type(layer) is nn.Linear
    assert sorted(layer.state_dict()) == ["bias", "weight"]


# ── the module ──


def test_classes_with_their_own_attributes_and_subclasses():
    """A class's own __getattr__ still works; its __init_subclass__ is not called."""
    heard = []

    class Plugin(nn.Linear):
        def __init_subclass__(cls, key, **arguments):
            super().__init_subclass__(**arguments)
            heard.append(key)

        def __getattr__(self, name):
            if name == "answer":
                return 42
            raise AttributeError(f"no {name} here")

    class Child(Plugin, key="child"):
        pass

    layer = Child(3, 2)
    utils.weight_norm(layer)
    assert heard == ["child"]
    assert layer.answer == 42
    assert layer.weight.shape == (2, 3)
    with pytest.raises(AttributeError, match="no question here"):
        layer.question  # noqa: B018
    other = copy.deepcopy(layer)
    assert (other.answer, other.weight.tolist()) == (42, layer.weight.tolist())
    utils.remove_weight_norm(layer)
    assert (type(layer), layer.answer) == (Child, 42)

    class Grandchild(type(other), key="grandchild"):  # a subclass that a user writes
        pass

    assert heard == ["child", "grandchild"]
    assert Grandchild(3, 2).weight.shape == (2, 3)


def test_weight_is_computed_when_it_is_asked_for(device):
    layer = utils.weight_norm(nn.Linear(2, 1, bias=False, device=device, dtype="float64"))
    layer.load_state_dict({"weight_g": [[10.0]], "weight_v": [[3.0, 4.0]]})
    np.testing.assert_allclose(layer.weight.tolist(), [[6.0, 8.0]], rtol=1e-14)
    with mg.no_grad():
        layer.weight_g *= 2.0
    np.testing.assert_allclose(layer.weight.tolist(), [[12.0, 16.0]], rtol=1e-14)
    assert layer.weight.requires_grad  # a penalty on it gives both parameters a gradient
    layer.weight.sum().backward()
    np.testing.assert_allclose(layer.weight_g.grad.tolist(), [[1.4]], rtol=1e-14)
    assert isinstance(layer, nn.Linear)
    assert repr(layer) == "Linear(in_features=2, out_features=1, bias=False)"
    match = r"\[Linear\] expected an assignment to weight_g or weight_v, got one to 'weight'"
    with pytest.raises(AttributeError, match=match):
        layer.weight = nn.Parameter(mg.ones((1, 2), device=device))
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'wait'"):
        layer.wait  # noqa: B018


def test_removal_and_repetition(device):
    layer = nn.Linear(3, 2, device=device)
    parameter, bias = layer.weight, layer.bias
    utils.weight_norm(layer)
    assert layer.weight_v is parameter
    utils.weight_norm(layer, "bias", None)
    nn.init.constant_(layer.weight_g, 2.0)
    layer(mg.ones((1, 3), device=device)).sum().backward()
    weight = layer.weight.tolist()
    assert utils.remove_weight_norm(layer) is layer
    assert type(layer) is not nn.Linear  # the bias is still computed
    utils.remove_weight_norm(layer, "bias")
    assert type(layer) is nn.Linear
    assert (layer.weight is parameter, layer.bias is bias, parameter.grad) == (True, True, None)
    assert layer.weight.tolist() == weight
    match = r"\[remove_weight_norm\] expected a weight-normalized parameter, got the name 'weight'"
    raises(ValueError, match, utils.remove_weight_norm, layer)


@pytest.mark.parametrize("build", [
    lambda: nn.Linear(6, 4), lambda: nn.Conv2d(3, 4, 3), lambda: nn.LSTM(6, 4, norm="layer", forget_bias=1.0),
    lambda: nn.GRU(6, 4, 2, bidirectional=True),
])  # fmt: skip
def test_parameters_begin_anew_as_those_of_the_plain_module(build, device):
    """It draws the same values; g is their norm."""
    plain, normed = build().to(device), build().to(device)
    for name in [name for name, _ in normed.named_parameters(recurse=False)]:
        utils.weight_norm(normed, name, None if "bias" in name else 0)
    before = dict(normed.named_parameters())
    for module in (plain, normed):
        mg.manual_seed(7)
        module.reset_parameters()
    assert list(normed.named_parameters()) == list(before.items())
    for name, parameter in plain.named_parameters():
        owner, _, name = name.rpartition(".")
        found = getattr(dict(normed.named_modules())[owner], name)
        near(found, array(parameter), rtol=1e-6)


def test_errors():
    layer = utils.weight_norm(nn.Linear(3, 2, bias=False))
    for name in ("bias", "training", "nothing"):
        with pytest.raises(ValueError, match=rf"\[weight_norm\] expected a parameter of Linear, got the name '{name}'"):
            utils.weight_norm(layer, name)
    for dim in (2, -3):
        match = rf"\[weight_norm\] expected an axis of weight of shape \(2, 3\), got dim={dim}"
        raises(ValueError, match, utils.weight_norm, nn.Linear(3, 2), dim=dim)
    parts = "not part of a weight-normalized one, got 'weight_g'"
    refuses(ValueError, "weight_norm", parts, utils.weight_norm, layer, "weight_g")
    assert [name for name, _ in layer.named_parameters()] == ["weight_g", "weight_v"]
    for dim in (0.5, "0", [0]):
        refuses(TypeError, "weight_norm", "expected an integer dim, got ", utils.weight_norm, nn.Linear(3, 2), dim=dim)


def test_frozen_parameters_stay_frozen():
    layer = nn.Linear(3, 2).requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in utils.weight_norm(layer).parameters())
    assert not utils.remove_weight_norm(layer).weight.requires_grad
    for half in ("weight_g", "weight_v"):  # the other one is trained, so the weight requires grad
        layer = utils.weight_norm(nn.Linear(3, 2))
        getattr(layer, half).requires_grad = False
        assert utils.remove_weight_norm(layer).weight.requires_grad


# ── folding ──


def trained(norm, rng):
    """Give a norm statistics, weight and bias as after training."""
    for name, tensor in norm.state_dict().items():
        if tensor.dtype == "float64":
            values = rng.uniform(0.5, 2, tensor.shape) * (1 if "var" in name else -1)
            tensor.copy_(mg.tensor(values, device=tensor.device))
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("build, shape", [
    (lambda bias: nn.Linear(4, 3, bias=bias), (6, 4)), (lambda bias: utils.weight_norm(nn.Linear(4, 3, bias=bias)), (6, 4)),
    (lambda bias: nn.Conv2d(2, 3, (2, 3), bias=bias), (5, 2, 4, 6)),
], ids=["Linear", "weight-normed", "Conv2d"])  # fmt: skip
def test_batch_norm_folds_into_the_layer_before(build, shape, bias, affine, device, rng):
    layer = build(bias).to(device, "float64")
    norm = nn.BatchNorm1d if len(shape) == 2 else nn.BatchNorm2d
    bn = trained(norm(3, affine=affine, device=device, dtype="float64"), rng)
    state = {name: x.tolist() for name, x in layer.state_dict().items()}
    x = random(rng, device, *shape)
    layer(x).sum().backward()
    folded = utils.fold_batch_norm(layer, bn)
    assert bn.training
    expected = array(bn.eval()(layer(x)))
    near(folded(x), expected, rtol=1e-12, atol=1e-12)
    assert {name: x.tolist() for name, x in layer.state_dict().items()} == state
    assert sorted(folded.state_dict()) == ["bias", "weight"]
    assert all(parameter.requires_grad and parameter.grad is None for parameter in folded.parameters())
    assert all(isinstance(parameter, nn.Parameter) for parameter in (folded.weight, folded.bias))


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"weight": False}, {"affine": False}, {"momentum": None}])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["linear", "convolution", "weight and bias normed"])
def test_folding_in_float32(kind, options, training, device, rng):
    """Outputs agree to 1e-6 of their size, for statistics from 1e-4 to 1e4 and in both modes of the norm."""
    layer = (nn.Conv2d(2, 3, 2) if kind == "convolution" else nn.Linear(4, 3)).to(device)
    if kind == "weight and bias normed":
        utils.weight_norm(utils.weight_norm(layer), "bias", None)
    bn = (nn.BatchNorm2d if kind == "convolution" else nn.BatchNorm1d)(3, **options, device=device)
    with mg.no_grad():
        bn.running_mean.copy_(mg.tensor(rng.standard_normal(3) * [1e-4, 1, 30], dtype="float32", device=device))
        bn.running_var.copy_(mg.tensor([1e-4, 1.3, 1e4], dtype="float32", device=device))
        for parameter in bn.parameters():
            nn.init.normal_(parameter)
    bn.train(training)
    x = random(rng, device, *((7, 2, 4, 5) if kind == "convolution" else (7, 4))).to("float32")
    before = {name: value.tolist() for name, value in bn.state_dict().items()}
    folded = utils.fold_batch_norm(layer, bn)
    assert {name: value.tolist() for name, value in bn.state_dict().items()} == before
    assert all((parameter.dtype, parameter.device) == (mg.float32, device) for parameter in folded.parameters())
    assert sorted(folded.state_dict()) == ["bias", "weight"]
    expected = array(bn.eval()(layer(x)))
    axes = tuple(k for k in range(expected.ndim) if k != 1)
    size = 1 + np.abs(expected).max(axes, keepdims=True)
    assert (np.abs(array(folded(x)) - expected) / size).max() < 1e-6


def test_folding_after_tracking_was_switched_off(device, rng):
    """Evaluation uses the existing statistics, and so does the folded layer."""
    layer = nn.Linear(4, 3, device=device, dtype="float64")
    bn = trained(nn.BatchNorm1d(3, device=device, dtype="float64"), rng)
    bn.track_running_stats = False
    x = random(rng, device, 5, 4)
    folded = utils.fold_batch_norm(layer, bn)
    near(folded(x), array(bn.eval()(layer(x))), rtol=1e-12, atol=1e-12)


def test_fold_errors():
    for bn, layer in ((nn.BatchNorm2d(3), nn.Linear(4, 3)), (nn.BatchNorm1d(3), nn.Conv2d(4, 3, 2))):
        name, other = type(bn).__name__, "BatchNorm1d" if isinstance(bn, nn.BatchNorm2d) else "BatchNorm2d"
        with pytest.raises(TypeError, match=rf"\[fold_batch_norm\] expected a {other} after .* got {name}"):
            utils.fold_batch_norm(layer, bn)
    refuses(TypeError, "fold_batch_norm", "int", utils.fold_batch_norm, 3, nn.BatchNorm1d(3))
    for norm in (nn.LayerNorm(3), nn.InstanceNorm1d(3), nn.GroupNorm(1, 3), nn.RecurrentBatchNorm1d(3, 2)):
        found = f"a BatchNorm1d or BatchNorm2d, got {type(norm).__name__}"
        refuses(TypeError, "fold_batch_norm", found, utils.fold_batch_norm, nn.Linear(4, 3), norm)
    with pytest.raises(TypeError, match=r"expected one dtype, got Linear of float32 and a norm of float64"):
        utils.fold_batch_norm(nn.Linear(4, 3), nn.BatchNorm1d(3, dtype="float64"))
    with pytest.raises(ValueError, match=r"\[fold_batch_norm\] expected running statistics, got BatchNorm1d\("):
        utils.fold_batch_norm(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False))
    with pytest.raises(ValueError, match=r"\[fold_batch_norm\] expected 3 channels, the outputs of Linear, got 4"):
        utils.fold_batch_norm(nn.Linear(4, 3), nn.BatchNorm1d(4))
    for layer in (nn.ReLU(), nn.LayerNorm(3), nn.LayerNorm((3, 4)), nn.RNNCell(4, 3)):
        with pytest.raises(TypeError, match=r"\[fold_batch_norm\] expected a layer with weight and bias"):
            utils.fold_batch_norm(layer, nn.BatchNorm1d(3))


@pytest.mark.parametrize("which", [0, 1])
def test_fold_refuses_hooks(which):
    """A hook of the layer would run after the norm, and one of the norm would be lost."""
    pair = nn.Linear(4, 3), nn.BatchNorm1d(3)
    handle = pair[which].register_forward_hook(lambda module, args, y: 10 * y)
    refuses(TypeError, "fold_batch_norm", "expected a layer and a norm without hooks", utils.fold_batch_norm, *pair)
    handle.remove()
    utils.fold_batch_norm(*pair)
