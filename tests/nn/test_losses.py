"""Losses against PyTorch: both forms, every reduction, extreme values, bad labels."""

import math

import numpy as np
import pytest
from checks import array, equals, near, raises, refuses, tensor, waited
from peers import torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

REDUCTIONS = ["mean", "sum", "none"]
RNG = np.random.default_rng(7)


def check(ours, theirs, torch, x, *rest, device, close=1e-10):
    """Compare the losses and gradients of two functions, with a random cotangent if the loss is not a scalar."""
    a = tensor(x, device, True)
    b = torch.tensor(x, requires_grad=True)
    loss = ours(a, *(tensor(value, device) for value in rest))
    expected = theirs(b, *(torch.tensor(value) for value in rest))
    assert loss.shape == tuple(expected.shape)
    np.testing.assert_allclose(loss.tolist(), expected.tolist(), rtol=close, atol=close)
    g = np.random.default_rng(1).standard_normal(loss.shape).astype(x.dtype)
    loss.backward(tensor(g, device))
    expected.backward(torch.tensor(g))
    near(a.grad, b.grad.numpy(), rtol=close, atol=close)


def test_reprs_show_what_differs_from_the_defaults():
    for loss in (
        nn.CrossEntropyLoss, nn.NLLLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss,
    ):  # fmt: skip
        assert repr(loss()) == f"{loss.__name__}()"
        assert repr(loss(reduction="sum")) == f"{loss.__name__}(reduction='sum')"
    assert repr(nn.CrossEntropyLoss(mg.ones(3), -1, label_smoothing=0.1)) == (
        "CrossEntropyLoss(weight=True, ignore_index=-1, label_smoothing=0.1)"
    )
    assert repr(nn.BCEWithLogitsLoss(pos_weight=mg.ones(3))) == "BCEWithLogitsLoss(pos_weight=True)"
    assert repr(nn.SmoothL1Loss(beta=0.5)) == "SmoothL1Loss(beta=0.5)"

    class Scaled(nn.MSELoss):
        def __init__(self, scale, array=None):
            super().__init__("none")
            self.array = array

    assert repr(Scaled(2)) == "Scaled()"
    assert repr(Scaled(2, np.ones(2))) == "Scaled(array=array([1., 1.]))"


# The loss of each element, from a prediction p and a target q.
FORMULAS = {
    "MSELoss": lambda p, q: (p - q) ** 2,
    "L1Loss": lambda p, q: abs(p - q),
    "SmoothL1Loss": lambda p, q: (p - q) ** 2 / 2,  # for differences below one
    "HuberLoss": lambda p, q: (p - q) ** 2 / 2,
    "BCELoss": lambda p, q: -q * np.log(p) - (1 - q) * np.log(1 - p),
    "BCEWithLogitsLoss": lambda p, q: np.log1p(np.exp(p)) - q * p,
    "KLDivLoss": lambda p, q: q * (np.log(q) - p),
    "CrossEntropyLoss": lambda p, q: -(q * (p - np.log(np.exp(p).sum(1, keepdims=True)))).sum(1),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_losses_follow_the_formula(name, device, rng):
    p, q = rng.uniform(0.1, 0.9, (2, 4, 3))
    found = getattr(nn, name)(reduction="none")(tensor(p, device), tensor(q, device))
    near(found, FORMULAS[name](p, q), rtol=1e-12)


SHAPES = [(5,), (4, 5), (4, 5, 3), (2, 5, 3, 2), (3, 1, 2), (0, 5), (2, 5, 0)]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_classes_along_axis_one(shape, weighted, smoothing, reduction, device):
    """Labels, labels to be ignored, and probabilities, over further axes: PyTorch's losses and gradients."""
    rng = np.random.default_rng(len(shape))
    classes, rows = shape[min(1, len(shape) - 1)], shape[:1] + shape[2:] if len(shape) > 1 else ()
    w = rng.random(classes) + 0.1 if weighted else None
    weights = (None, None) if w is None else (tensor(w, device), torch.tensor(w))
    z, labels, q = rng.standard_normal(shape), np.asarray(rng.integers(0, classes, rows)), rng.random(shape)
    options = {"reduction": reduction, "label_smoothing": smoothing}

    def both(name, **options):
        return [getattr(module, name)(w, **options) for module, w in zip((nn, torch.nn), weights, strict=True)]

    for ignore in (-100, 0):
        check(*both("CrossEntropyLoss", ignore_index=ignore, **options), torch, z, labels, device=device)
        if smoothing == 0:
            check(*both("NLLLoss", ignore_index=ignore, reduction=reduction), torch, z, labels, device=device)
    mine, yours = both("CrossEntropyLoss", **options)
    check(mine, yours, torch, z, q, device=device)
    # The probabilities get a gradient, too.
    check(lambda q, z: mine(z, q), lambda q, z: yours(z, q), torch, q, z, device=device)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_derivatives_of_cross_entropy_over_further_axes(smoothing, device):
    rng = np.random.default_rng(0)
    z, q = (tensor(rng.random((2, 3, 2)), device, True) for _ in range(2))
    w, labels = tensor(rng.random(3), device), tensor(rng.integers(0, 3, (2, 2)), device)
    options = {"weight": w, "reduction": "none", "label_smoothing": smoothing}
    assert mg.gradcheck(lambda z: F.cross_entropy(z, labels, **options), [z], order=3)
    assert mg.gradcheck(lambda z, q: F.cross_entropy(z, q, **options), [z, q], order=2)
    assert mg.gradcheck(lambda z: F.nll_loss(F.log_softmax(z, 1), labels, w, 0), [z], order=3)


def test_probabilities_as_targets_refuse():
    z, q = mg.zeros((2, 3)), mg.full((2, 3), 1 / 3)
    match = r"\[cross_entropy\] expected labels with ignore_index, got probabilities and 1"
    raises(ValueError, match, F.cross_entropy, z, q, ignore_index=1)
    refuses(TypeError, "cross_entropy", "(2, 3), got float32 of shape (3, 2)", F.cross_entropy, z, q.T)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nll_of_log_softmax_is_cross_entropy(reduction):
    x, labels = mg.tensor(RNG.standard_normal((6, 4))), mg.tensor(RNG.integers(0, 4, 6))
    np.testing.assert_allclose(
        F.nll_loss(F.log_softmax(x), labels, reduction=reduction).tolist(),
        F.cross_entropy(x, labels, reduction=reduction).tolist(), rtol=1e-12,
    )  # fmt: skip


KINDS = {
    "list": lambda values: values,
    "NumPy": np.asarray,
    "int32": lambda values: mg.tensor(values, dtype="int32"),
    "tensor": mg.tensor,
}


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_labels_and_weights(name, kind):
    """Both losses accept the same labels and weights; the logits alone determine the dtype and get a gradient."""
    loss = getattr(F, name)
    z = mg.tensor(RNG.standard_normal((3, 4)), dtype="float32", requires_grad=True)
    plain, w = [3, -100, 0], RNG.random(4)
    expected = loss(z, mg.tensor(plain), mg.tensor(w, dtype="float32"))
    (dz,) = mg.grad(expected, [z])
    weight = w.tolist() if kind == "list" else w if kind == "NumPy" else mg.tensor(w)
    found = loss(z, KINDS[kind](plain), weight)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-6)
    np.testing.assert_allclose(mg.grad(found, [z])[0].numpy(), dz.numpy(), rtol=1e-6)
    assert loss(z.detach(), KINDS[kind](plain), weight).requires_grad is False
    assert loss(z.detach().to("float64"), KINDS[kind](plain), mg.tensor(w, dtype="float32")).dtype == "float64"


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_weights_of_classes_that_require_grad_are_refused(name, device):
    """As in PyTorch: they would get none."""
    z, weight = (mg.ones(s, device=device, requires_grad=True) for s in ((2, 3), 3))
    loss, labels = getattr(F, name), mg.tensor([0, 2], device=device)
    refuses(mg.GradientError, name, "expected a weight that does not require grad", loss, z, labels, weight)
    assert loss(z, labels, weight.detach()).requires_grad
    with mg.no_grad():
        assert loss(z, labels, weight).item() == loss(z, labels).item()


def test_probabilities_that_are_none():
    q = mg.tensor([[0.5, 0.5], [math.nan, 1.0]])
    refuses(ValueError, "cross_entropy", "expected probabilities, got NaN", F.cross_entropy, mg.zeros((2, 2)), q)


def test_ignored_rows_do_not_spread_infinities(device):
    x = mg.tensor([[-math.inf, 0.0], [-1.0, -2.0]], requires_grad=True, device=device)
    loss = F.nll_loss(x, mg.tensor([-100, 1], device=device))
    loss.backward()
    assert loss.item() == 2.0
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, -1.0]]


def test_nothing_but_ignored_rows():
    """0 / 0, as in PyTorch."""
    assert math.isnan(F.nll_loss(mg.zeros((2, 3)), mg.tensor([-100, -100])).item())
    assert F.nll_loss(mg.zeros((2, 3)), mg.tensor([-100, -100]), reduction="sum").item() == 0.0


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name, options", [
    ("MSELoss", {}), ("L1Loss", {}), ("SmoothL1Loss", {}), ("SmoothL1Loss", {"beta": 0.3}),
    ("SmoothL1Loss", {"beta": 0.0}),
])  # fmt: skip
def test_numbers(name, options, reduction, device):
    x, y = RNG.standard_normal((6, 4)), RNG.standard_normal((6, 4))
    y[0] = x[0]
    ours, theirs = (getattr(module, name)(reduction=reduction, **options) for module in (nn, torch.nn))
    check(ours, theirs, torch, x, y, device=device)
    check(lambda y, x: ours(x, y), lambda y, x: theirs(x, y), torch, y, x, device=device)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weighted", [False, True])
def test_probabilities(reduction, weighted, device):
    p, y, w = RNG.random((6, 4)), RNG.random((6, 4)), RNG.random((6, 4)) if weighted else None
    z = 5 * RNG.standard_normal((6, 4))
    z[0] = 0
    y[1], y[2] = 0, 1
    q = RNG.random(4) if weighted else None

    def options(module):
        weight = None if not weighted else tensor(w, device) if module is nn else torch.tensor(w)
        return {"reduction": reduction, "weight": weight}

    ours, theirs = (module.BCELoss(**options(module)) for module in (nn, torch.nn))
    check(ours, theirs, torch, p, y, device=device)
    ours = nn.BCEWithLogitsLoss(**options(nn), pos_weight=tensor(q, device) if weighted else None)
    theirs = torch.nn.BCEWithLogitsLoss(**options(torch.nn), pos_weight=torch.tensor(q) if weighted else None)
    check(ours, theirs, torch, z, y, device=device)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_logits_of_any_size_stay_finite(dtype, weighted):
    z = mg.tensor([100.0, -100.0, 1000.0, -1000.0, 0.0], dtype=dtype, requires_grad=True)
    y = mg.tensor([0.0, 1.0, 1.0, 0.0, 1.0], dtype=dtype)
    q = mg.ones(5, dtype=dtype) if weighted else None
    loss = F.binary_cross_entropy_with_logits(z, y, pos_weight=q, reduction="none")
    np.testing.assert_allclose(loss.tolist(), [100.0, 100.0, 0.0, 0.0, math.log(2)], rtol=1e-6)
    loss.sum().backward()
    np.testing.assert_allclose(z.grad.tolist(), [1.0, -1.0, 0.0, 0.0, -0.5], atol=1e-6)


@pytest.mark.parametrize("dtype, close", [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_near_zero_keep_their_digits(dtype, close, weighted, device):
    """There, log(1 + e^-|z|) is e^-|z|, which is lost when added to |z|."""
    z = mg.tensor([30.0, 50.0, 80.0, -30.0, -50.0, -80.0], dtype=dtype, device=device)
    y = mg.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=dtype, device=device)
    q = mg.full(6, 3.0, dtype=dtype, device=device) if weighted else None
    loss = F.binary_cross_entropy_with_logits(z, y, pos_weight=q, reduction="none")
    expected = np.log1p(np.exp(-np.abs(array(z).astype("float64")))) * ([3, 3, 3, 1, 1, 1] if weighted else 1)
    near(loss, expected, rtol=close)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_probabilities_of_zero_and_one_stay_finite(dtype):
    values = [0.0, 0.0, 1.0, 1.0, 1e-30]
    p, y = mg.tensor(values, dtype=dtype, requires_grad=True), mg.tensor([0.0, 1.0, 0.0, 1.0, 1.0], dtype=dtype)
    loss = F.binary_cross_entropy(p, y, reduction="none")
    expected = torch.nn.functional.binary_cross_entropy(
        torch.tensor(values, dtype=getattr(torch, dtype)), torch.tensor(y.tolist(), dtype=getattr(torch, dtype)),
        reduction="none",
    )  # fmt: skip
    np.testing.assert_allclose(loss.tolist(), expected.tolist(), rtol=1e-6)
    loss.sum().backward()
    assert np.isfinite(p.grad.numpy()).all()


def test_second_derivatives():
    y = mg.tensor(RNG.random((2, 3)))
    labels = mg.tensor([0, 2])
    x = mg.tensor(RNG.random((2, 3)) * 0.8 + 0.1, requires_grad=True)
    for f in (
        lambda x: F.binary_cross_entropy(x, y), lambda x: F.binary_cross_entropy_with_logits(x, y),
        lambda x: F.mse_loss(x, y, "none"), lambda x: F.smooth_l1_loss(x, y, "none", 0.05),
        lambda x: F.nll_loss(F.log_softmax(x), labels),
    ):  # fmt: skip
        assert mg.gradcheck(f, [x], order=2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name, options", [
    ("mse_loss", {}), ("l1_loss", {}), ("smooth_l1_loss", {}), ("smooth_l1_loss", {"beta": 0.3}),
    ("smooth_l1_loss", {"beta": 2.0}), ("smooth_l1_loss", {"beta": 1e-46}), ("smooth_l1_loss", {"beta": 0.0}),
    ("binary_cross_entropy_with_logits", {}),
    ("binary_cross_entropy_with_logits", {"pos_weight": 3.0}),
])  # fmt: skip
def test_derivatives_at_infinity(name, options, dtype, device):
    """Derivatives of all three orders equal PyTorch's, also at ties: no contribution of an unused branch, no 0 · ∞.

    The first one is computed by a fused kernel if it is not recorded.
    """
    x = [math.inf, -math.inf, 1e30, -1e30, 2.0, 0.2, -0.2, 0.0]
    for target in (0.0, 1.0, 0.4) if name.startswith("binary") else (0.0,):
        for swapped in (False, True):
            if swapped and name.startswith("binary"):  # labels lie between 0 and 1
                continue
            found = []
            for functions, make, differentiate in (
                (F, lambda v: mg.tensor(v, dtype=dtype, device=device), mg.grad),
                (torch.nn.functional, lambda v: torch.tensor(v, dtype=getattr(torch, dtype)),
                 lambda y, x, **how: torch.autograd.grad(y, x, **how)[0]),
            ):  # fmt: skip
                a, b = make(x).requires_grad_(), make([target] * len(x))
                given = {k: make(v) if k == "pos_weight" else v for k, v in options.items()}
                y = getattr(functions, name)(*((b, a) if swapped else (a, b)), reduction="none", **given)
                orders = [np.array(differentiate(y.sum(), a, retain_graph=True).tolist())]
                for _ in range(3):
                    y = differentiate(y.sum(), a, create_graph=True)
                    orders.append(np.array((y + 0).tolist()))
                    if not y.requires_grad:  # a line has no second derivative
                        break
                found.append(orders)
            for ours, theirs in zip(*found, strict=False):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_has_no_weight_costs_nothing_at_infinity(dtype, device):
    """0 · ∞ = 0, where PyTorch 2.13's loss is NaN; the gradients are σ(z) − y, −y and softmax z − q."""
    make = lambda x: mg.tensor(x, dtype=dtype, device=device, requires_grad=True)  # noqa: E731
    z, y, inf = [-math.inf, math.inf, math.inf, -math.inf], [0.0, 1.0, 0.0, 1.0], math.inf
    q = mg.tensor([0.0, 0.75, 0.25], dtype=dtype, device=device)
    bce = F.binary_cross_entropy_with_logits
    for loss, inputs, expected, slopes in (
        (lambda z, y: bce(z, y, reduction="none"), (z, y), [0, 0, inf, inf], [0, 0, 1, -1]),
        (lambda z, y: bce(z, y, reduction="none", pos_weight=q[1]), (z, y), [0, 0, inf, inf], [0, 0, 1, -0.75]),
        (lambda x, y: F.kl_div(x, y, "none"), ([-inf, -inf, 0.0], [0.0, 0.5, 0.0]), [0, inf, 0], [0, -0.5, 0]),
        (lambda x, y: F.kl_div(x, y, "none", True), ([-inf, -inf, -1.0], [-inf, 0.0, -inf]), [0, inf, 0], [0, -1, 0]),
        (lambda z, q: F.cross_entropy(z, q, reduction="none"), ([[-inf, 0.0, 0.0]], [[0.0, 0.75, 0.25]]),
         [math.log(2)], [[0, -0.25, 0.25]]),
    ):  # fmt: skip
        a, b = map(make, inputs)
        found = loss(a, b)
        np.testing.assert_allclose(np.array(found.tolist()), expected, rtol=1e-6)
        for create_graph in (False, True):
            da, db = mg.grad(found.sum(), (a, b), create_graph=create_graph, retain_graph=True)
            np.testing.assert_allclose(np.array(da.tolist()), slopes, atol=1e-7)
            assert not np.isnan(db.tolist()).any()


# ── one_hot ──


def test_one_hot(device):
    labels = RNG.integers(0, 5, (3, 4))
    for classes in (-1, 5, 8):
        ours = F.one_hot(tensor(labels, device), classes)
        assert ours.dtype == mg.int64
        assert ours.tolist() == torch.nn.functional.one_hot(torch.from_numpy(labels), classes).tolist()
    assert F.one_hot(mg.tensor(2, dtype=mg.int32)).tolist() == [0, 0, 1]
    assert F.one_hot(mg.zeros((0,), dtype=mg.int64), 3).shape == (0, 3)


def test_one_hot_errors():
    refuses(IndexError, "one_hot", "expected labels from 0 to 1, got 2", F.one_hot, mg.tensor([0, 2]), 2)
    refuses(IndexError, "one_hot", "got -1", F.one_hot, mg.tensor([-1, 2]))
    refuses(TypeError, "one_hot", "expected integer labels, got float32", F.one_hot, mg.tensor([0.0, 1.0]))
    raises(ValueError, "at least one class", F.one_hot, mg.zeros((0,), dtype=mg.int64))
    for classes in (2**62, 2**63, 2**70):
        refuses(MemoryError, "arange", str(classes), F.one_hot, mg.tensor([0, 2]), classes)


# ── errors ──


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_bad_class_labels(name, device):
    loss = getattr(F, name)
    x = mg.zeros((3, 4), device=device)
    for wrong in (4, -1, 2**40):
        refuses(IndexError, name, f"{wrong}", waited(loss), x, mg.tensor([0, wrong, 1], device=device))
    x = x.to("cpu")
    for labels in (mg.tensor([0.0, math.nan, 1.0]), mg.tensor([True, False, True])):
        refuses(TypeError, name, str(labels.dtype), loss, x, labels)
    for shape in ((2,), (3, 1), (3, 4), ()):
        raises(ValueError, rf"\[{name}\]", loss, x, mg.zeros(shape, dtype=mg.int64))
    raises(TypeError, rf"\[{name}\]", loss, mg.zeros((3, 4), dtype=mg.int64), mg.tensor([0, 1, 2]))


@pytest.mark.parametrize("name", ["binary_cross_entropy", "binary_cross_entropy_with_logits"])
def test_bad_binary_labels(name):
    loss = getattr(F, name)
    x = mg.full(3, 0.5)
    for wrong in (math.nan, -0.1, 1.5, math.inf):
        refuses(ValueError, name, "expected labels from 0 to 1", loss, x, mg.tensor([0.0, wrong, 1.0]))
    refuses(
        ValueError,
        name,
        "expected two tensors of the same shape, got (3,) and (3, 1): `target.reshape((3,))`",
        loss,
        x,
        mg.zeros((3, 1)),
    )
    refuses(TypeError, name, "expected floats, got int64", loss, x, mg.tensor([0, 1, 1]))
    assert loss(mg.zeros(0), mg.zeros(0), reduction="sum").item() == 0.0


def test_bad_probabilities():
    for wrong in (math.nan, -0.1, 1.5):
        p, y = mg.tensor([0.5, wrong]), mg.tensor([0.0, 1.0])
        refuses(ValueError, "binary_cross_entropy", "expected probabilities from 0 to 1", F.binary_cross_entropy, p, y)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss"])
def test_bad_numbers(name):
    loss = getattr(F, name)
    shapes = "expected two tensors of the same shape, got (3, 1) and (3,)"
    refuses(ValueError, name, shapes, loss, mg.zeros((3, 1)), mg.zeros(3))
    refuses(TypeError, name, "expected floats, got int64", loss, mg.zeros(3), mg.tensor([0, 1, 2]))
    reductions = "expected reduction 'mean', 'sum' or 'none', got 'avg'"
    refuses(ValueError, name, reductions, loss, mg.zeros(3), mg.zeros(3), reduction="avg")
    assert math.isnan(loss(mg.zeros(2), mg.tensor([0.0, math.nan])).item())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("delta", [1e-46, 2.0, 3e38, math.inf])
def test_huber_loss_of_any_delta(delta, dtype):
    x, zeros = [1.0, -3.0, 0.0, 5.0], [0.0] * 4
    expected = torch.nn.functional.huber_loss(
        torch.tensor(x, dtype=torch.float64), torch.tensor(zeros, dtype=torch.float64), "none", delta
    )
    found = F.huber_loss(mg.tensor(x, dtype=dtype), mg.tensor(zeros, dtype=dtype), "none", delta)
    np.testing.assert_allclose(found.tolist(), expected, rtol=1e-6, atol=1e-30)


def test_bad_options():
    for build in (
        lambda: nn.MSELoss(reduction="avg"), lambda: nn.SmoothL1Loss(beta=-1.0),
        lambda: nn.CrossEntropyLoss(label_smoothing=2.0),
    ):  # fmt: skip
        raises(ValueError, "Loss", build)


def test_weights_move_with_the_module():
    loss = nn.CrossEntropyLoss(weight=mg.ones(3)).to("float64")
    assert loss.weight.dtype == mg.float64
    assert loss(mg.zeros((2, 3), dtype="float64"), mg.tensor([0, 1])).dtype == mg.float64


@pytest.mark.parametrize("garbage", [np.nan, np.inf])
def test_values_of_an_ignored_row_count_nothing_in_any_order(garbage, device):
    z = np.random.default_rng(0).standard_normal((3, 4))
    found = []
    for value in (0.0, garbage):
        z[1, 2] = value
        x = tensor(z, device, True)
        loss = F.cross_entropy(x, mg.tensor([2, -100, 0], device=device), reduction="sum")
        (first,) = mg.grad(loss, [x], create_graph=True)
        found.append([loss, first, *mg.grad((first**2).sum(), [x], retain_graph=True), *mg.grad(loss, [x])])
    for a, b in zip(*found, strict=True):
        assert np.isfinite(array(b)).all()
        equals(a, array(b))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_losses_of_three_tensors(reduction, device):
    """The modules, whose functions are in the table; a variance below eps gets PyTorch's gradient, that of eps."""
    a, b, c = (np.random.default_rng(seed).standard_normal((5, 3)) for seed in range(3))
    for options in ({}, {"margin": 0.4, "p": 3.0, "swap": True, "eps": 1e-3}):
        both = [module.TripletMarginLoss(**options, reduction=reduction) for module in (nn, torch.nn)]
        check(*both, torch, a, b, c, device=device)
    v = np.abs(c)
    v[:2, 0] = 0.0, 1e-3
    for options in ({}, {"full": True, "eps": 0.2}):
        mine, yours = (module.GaussianNLLLoss(**options, reduction=reduction) for module in (nn, torch.nn))
        check(mine, yours, torch, a, b, v, device=device)
        check(lambda v, a, b, f=mine: f(a, b, v), lambda v, a, b, f=yours: f(a, b, v), torch, v, a, b, device=device)
    x, y = (tensor(value, device) for value in (a, b))
    same, named = mine(x, y, 0.5), mine(input=x, target=y, var=mg.full_like(x, 0.5))
    assert same.tolist() == named.tolist()


def test_losses_of_three_tensors_refuse(device):
    x, wide = mg.zeros((4, 3), device=device), mg.zeros((2, 4, 3), device=device)
    refuses(ValueError, "gaussian_nll_loss", "(3,)", F.gaussian_nll_loss, x, x, mg.ones(3, device=device))
    refuses(ValueError, "gaussian_nll_loss", "(1, 1)", F.gaussian_nll_loss, x, x, mg.ones((1, 1), device=device))
    refuses(
        TypeError, "gaussian_nll_loss", "int64", F.gaussian_nll_loss, x, x, mg.ones(4, dtype="int64", device=device)
    )
    refuses(ValueError, "gaussian_nll_loss", "from -1 to -1", F.gaussian_nll_loss, x.to("cpu"), x.to("cpu"), -1.0)
    refuses(ValueError, "triplet_margin_loss", "(2, 4, 3)", F.triplet_margin_loss, wide, wide, wide)
    refuses(ValueError, "triplet_margin_loss", "(4, 3) and (3,)", F.triplet_margin_loss, x, x, x[0])
    refuses(ValueError, "TripletMarginLoss", "margin > 0", nn.TripletMarginLoss, 0.0)
    assert repr(nn.TripletMarginLoss(swap=True)) == "TripletMarginLoss(swap=True)"
    assert repr(nn.GaussianNLLLoss(full=True)) == "GaussianNLLLoss(full=True)"
