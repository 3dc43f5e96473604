"""L-BFGS: PyTorch's iterates, with and without a line search, and its state in both directions."""

import numpy as np
import pytest
from checks import agree, near, tensor
from peers import torch

import minigrad as mg
from minigrad import nn, optim

OPTIONS = [
    {"lr": 1e-3},
    {"lr": 0.5, "max_iter": 1},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "history_size": 2, "max_iter": 7},
    {"line_search_fn": "strong_wolfe", "max_eval": 3},
    {"line_search_fn": "strong_wolfe", "lr": 30.0},
    {"line_search_fn": "strong_wolfe", "lr": 1e-2, "max_iter": 3},
    {"tolerance_grad": 1.0, "lr": 0.1},
    {"tolerance_change": 1e-2, "lr": 0.1},
]


def quartic(x, y):
    """A smooth function of a matrix and a vector, not convex everywhere."""
    return (x**4).sum() / 4 - (x * x).sum() + (x * y).sum() + ((y - 1) ** 2).sum() + (x[0] * x[1]).sum() ** 2


def minimized(library, options, device="cpu", steps=4, function=quartic):
    """Return the losses of every evaluation, the parameters and the optimizer after some steps."""
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape) for shape in [(3, 2), (2,)]]
    if library is mg:
        x, y = (tensor(v, device, True) for v in values)
    else:
        x, y = (torch.tensor(v, requires_grad=True) for v in values)
    optimizer = library.optim.LBFGS([x, y], **options)
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = function(x, y)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return losses, [x, y], optimizer


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_iterates_are_those_of_pytorch(options, device):
    losses, found, optimizer = minimized(mg, options, device)
    their_losses, expected, theirs = minimized(torch, options)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-9, atol=1e-9)
    (ours,), (other,) = optimizer.state_dict()["state"].values(), theirs.state_dict()["state"].values()
    assert (ours["n_iter"], ours["func_evals"]) == (other["n_iter"], other["func_evals"])
    assert len(ours.get("ro", [])) == len(other.get("ro", []))
    agree(found, expected, rtol=1e-9, atol=1e-9)


def test_rosenbrock():
    """The minimum is found in far fewer evaluations than gradient descent needs."""
    x = mg.tensor([-1.2, 1.0], dtype="float64", requires_grad=True)
    optimizer = optim.LBFGS([x], max_iter=300, tolerance_change=1e-14, line_search_fn="strong_wolfe")
    count = 0

    def closure():
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert first.item() == pytest.approx(24.2)
    np.testing.assert_allclose(x.tolist(), [1, 1], atol=1e-5)
    assert count < 150


def hard(x, y):
    """Steep and flat parts, on which cubic interpolation fails to shrink the interval at first."""
    return ((x * x + 0.01).sqrt()).sum() + ((y * 3).exp() + (-y * 5).exp()).sum() * 0.01 + (x[0] * y).sum() ** 2


@pytest.mark.parametrize("lr", [1e-3, 0.1, 1.0, 100.0])
def test_line_search_on_a_hard_function(lr):
    options = {"line_search_fn": "strong_wolfe", "lr": lr, "max_iter": 4}
    losses, found, _ = minimized(mg, options, steps=2, function=hard)
    their_losses, expected, _ = minimized(torch, options, steps=2, function=hard)
    np.testing.assert_allclose(losses, their_losses, rtol=1e-8)
    agree(found, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("source", ["minigrad", "PyTorch", "checkpoint"])
def test_state_goes_on_where_it_was(source, tmp_path):
    options = {"line_search_fn": "strong_wolfe", "max_iter": 4, "history_size": 3}
    _, values, before = minimized(torch if source == "PyTorch" else mg, options, steps=3)
    whole, _, reference = minimized(mg, options, steps=6)
    x, y = (mg.tensor(v.tolist(), dtype="float64", requires_grad=True) for v in values)
    after = optim.LBFGS([x, y], lr=0.3)
    if source == "checkpoint":
        mg.save_checkpoint(tmp_path / "run.safetensors", optimizer=before)
        mg.load_checkpoint(tmp_path / "run.safetensors", optimizer=after)
    else:
        after.load_state_dict(before.state_dict())
    losses = []

    def closure():
        after.zero_grad()
        loss = quartic(x, y)
        loss.backward()
        losses.append(loss.item())
        return loss

    for _ in range(3):
        after.step(closure)
    np.testing.assert_allclose(losses, whole[-len(losses) :], rtol=1e-9)
    numbers = [optimizer.state_dict()["state"][0] for optimizer in (after, reference)]
    assert [n["n_iter"] for n in numbers] == [numbers[0]["n_iter"]] * 2
    assert numbers[0]["n_iter"] > 6


def test_products_of_gradients_that_overflow(device):
    x = mg.tensor([1.0, 2.0], device=device, requires_grad=True)
    weight = mg.tensor([1e30, 3e30], device=device)
    optimizer = optim.LBFGS([x], max_iter=8)

    def closure():
        optimizer.zero_grad()
        loss = (weight * x * x).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    near(x, 0, atol=1e-6)


def test_a_parameter_without_gradient_stays():
    used, unused = mg.tensor([2.0], requires_grad=True), mg.tensor([[3.0]], requires_grad=True)
    optimizer = optim.LBFGS([unused, used], line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = (used**2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert abs(used.item()) < 1e-5
    assert unused.tolist() == [[3.0]]
    assert optimizer.state_dict()["state"][0]["func_evals"] < 10


def two():
    return [mg.ones(2, requires_grad=True), mg.ones(3, requires_grad=True)]


@pytest.mark.parametrize("call, error, says", [
    (lambda: optim.LBFGS(two()).step(), TypeError, "optimizer.step(closure)"),
    (lambda: optim.LBFGS(two()).step(lambda: None), TypeError, "got None: end it with return loss"),
    (lambda: optim.LBFGS(two()).step(lambda: mg.ones(2)), TypeError, "got shape (2,): end it with return loss"),
    (lambda: optim.LBFGS([{"params": [x]} for x in two()]), ValueError, "one group"),
    (lambda: optim.LBFGS(two(), lr=-1), ValueError, "lr"), (lambda: optim.LBFGS(two(), lr="fast"), TypeError, "lr"),
    (lambda: optim.LBFGS(two(), max_iter=0), ValueError, "max_iter"),
    (lambda: optim.LBFGS(two(), max_eval=1.5), TypeError, "max_eval"),
    (lambda: optim.LBFGS(two(), history_size=0), ValueError, "history_size"),
    (lambda: optim.LBFGS(two(), tolerance_grad=-1), ValueError, "tolerance_grad"),
    (lambda: optim.LBFGS(two(), line_search_fn="wolfe"), ValueError, "strong_wolfe"),
])  # fmt: skip
def test_wrong_arguments(call, error, says):
    with pytest.raises(error, match=r"^\[LBFGS\]") as raised:
        call()
    assert says in str(raised.value)


@pytest.mark.parametrize("edit, says", [
    (lambda state: state["state"].update({1: state["state"][0]}), "one state"),
    (lambda state: state["state"][0].pop("d"), "H_diag"),
    (lambda state: state["state"][0].update(momentum=1), "H_diag"),
    (lambda state: state["state"][0].update(d=mg.ones(3)), "shape"),
    (lambda state: state["state"][0].update(n_iter=-1), "n_iter"),
])  # fmt: skip
def test_a_wrong_state_is_refused(edit, says):
    _, _, optimizer = minimized(mg, {}, steps=1)
    before, state = optimizer.state_dict(), optimizer.state_dict()
    edit(state)
    with pytest.raises(ValueError, match=r"^\[LBFGS\]") as raised:
        optimizer.load_state_dict(state)
    assert says in str(raised.value)
    assert optimizer.state_dict()["state"][0].keys() == before["state"][0].keys()


def test_a_network_learns(device):
    mg.manual_seed(0)
    x = mg.linspace(-1, 1, 20, device=device).reshape(20, 1)
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
    optimizer = optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe")
    scheduler = optim.lr_scheduler.StepLR(optimizer, 5)

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), mg.sin(3 * x))
        loss.backward()
        return loss

    losses = []
    for _ in range(5):
        losses.append(optimizer.step(closure).item())
        scheduler.step()
    assert losses[-1] < 0.02 * losses[0]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)
