"""Whole training runs of typical networks match PyTorch's step by step, from the same weights."""

import numpy as np
import pytest
from checks import array, tensor

import minigrad as mg
import minigrad.nn.functional as F
from minigrad import nn, optim

STEPS = 100
FEW = 4  # on the emulated GPU, a step takes a third of a second
OPTIMIZERS = {
    "Adam": {"lr": 1e-3},
    "SGD": {"lr": 0.05, "momentum": 0.9},
    "RMSprop": {"lr": 1e-3, "momentum": 0.5},
}


def mlp(nn):
    return nn.Sequential(
        nn.Linear(784, 256), nn.LayerNorm(256), nn.ReLU(),
        nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU(),
        nn.Linear(256, 10),
    )  # fmt: skip


def recurrent(nn, tanh, zeros):
    """h = tanh(LN(W_hh h + W_xh x + b)), composed of layers."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.hidden = nn.Linear(28, 64), nn.Linear(64, 64, bias=False)
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

        def forward(self, x):
            h = zeros(x)
            for t in range(14):
                h = tanh(self.norm(self.hidden(h) + self.input(x[:, t])))
            return self.head(h)

    return Network()


def batches(shape, dtype, steps):
    """Make ten batches with a learnable structure, which are repeated."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((10, *shape[1:]))
    for labels in np.tile(rng.integers(0, 10, (10, shape[0])), (-(-steps // 10), 1))[:steps]:
        yield (0.3 * centers[labels] + rng.standard_normal(shape)).astype(dtype), labels


def our_losses(network, name, state, shape, dtype, steps, device):
    model = network.ours().to(device)
    if dtype == "float64":
        model.to(dtype)
    model.load_state_dict({k: mg.tensor(v.astype(dtype)) for k, v in state.items()})
    optimizer = getattr(optim, name)(model.parameters(), **OPTIMIZERS[name])
    losses = []
    for x, y in batches(shape, dtype, steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tensor(x, device)), tensor(y, device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert {v.device for v in model.state_dict().values()} == {device}
    return losses, {k: array(v) for k, v in model.state_dict().items()}


def their_losses(torch, network, name, state, shape, dtype, steps):
    model = network.theirs(torch).to(getattr(torch, dtype))
    model.load_state_dict({k: torch.tensor(v.astype(dtype)) for k, v in state.items()})
    optimizer = getattr(torch.optim, name)(model.parameters(), **OPTIMIZERS[name])
    losses = []
    for x, y in batches(shape, dtype, steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, {k: v.detach().numpy() for k, v in model.state_dict().items()}


class MLP:
    shape = (32, 784)

    @staticmethod
    def ours():
        return mlp(nn)

    @staticmethod
    def theirs(torch):
        return mlp(torch.nn)


class RNN:
    shape = (32, 14, 28)

    @staticmethod
    def ours():
        return recurrent(nn, mg.tanh, lambda x: mg.zeros((x.shape[0], 64), dtype=x.dtype, device=x.device))

    @staticmethod
    def theirs(torch):
        return recurrent(torch.nn, torch.tanh, lambda x: x.new_zeros(x.shape[0], 64))


@pytest.fixture
def torch():
    """PyTorch on one thread: its pool and ours would wait for each other's cores."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-9)])
@pytest.mark.parametrize(
    "network, name",
    [(MLP, "Adam"), (MLP, "SGD"), (MLP, "RMSprop"), (RNN, "Adam")],
    ids=lambda v: getattr(v, "__name__", v),
)
def test_every_loss_is_pytorchs(torch, network, name, dtype, tolerance, device):
    steps = STEPS if device == "cpu" else FEW
    mg.manual_seed(0)
    state = {k: v.detach().numpy().copy() for k, v in network.ours().state_dict().items()}
    ours, our_weights = our_losses(network, name, state, network.shape, dtype, steps, device)
    theirs, their_weights = their_losses(torch, network, name, state, network.shape, dtype, steps)
    assert len(ours) == steps
    if steps > FEW:
        assert np.mean(theirs[-10:]) < 0.7 * np.mean(theirs[:10])  # it learns
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    if dtype == "float64":
        for k, expected in their_weights.items():
            np.testing.assert_allclose(our_weights[k], expected, rtol=0, atol=1e-7, err_msg=k)


@pytest.mark.parametrize("network", [MLP, RNN])
def test_same_seed_same_bits(network, device):
    runs = []
    for seed in (0, 0, 1):
        mg.manual_seed(seed)
        state = {k: v.detach().numpy().copy() for k, v in network.ours().state_dict().items()}
        steps = STEPS if device == "cpu" else FEW
        losses, weights = our_losses(network, "Adam", state, network.shape, "float32", steps, device)
        runs.append((losses, {k: w.tobytes() for k, w in weights.items()}))
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]
