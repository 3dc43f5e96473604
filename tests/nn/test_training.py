"""Whole training runs of typical networks match PyTorch's step by step, from the same weights."""

import numpy as np
import pytest
from checks import array, tensor

import minigrad as mg
from minigrad import nn, optim

STEPS = 100
FEW = 4  # on the emulated GPU, a step takes a third of a second
OPTIMIZERS = {
    "Adam": {"lr": 1e-3}, "AdamW": {"lr": 1e-3, "weight_decay": 0.1}, "RMSprop": {"lr": 1e-3, "momentum": 0.5},
    "SGD": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4},
}  # fmt: skip


def mlp(nn):
    return nn.Sequential(
        nn.Linear(784, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 256), nn.LayerNorm(256), nn.ReLU(), nn.Linear(256, 10),
    )  # fmt: skip


def composed(nn):
    """h = tanh(LN(W_hh h + W_xh x + b)), of the operations of either library."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.RNN(28, 64), nn.Linear(64, 10)
            self.rnn.ln_l0 = nn.LayerNorm(64)

        def forward(self, x):
            p, h = self.rnn, x.new_zeros((x.shape[1], 64))
            for step in x:
                a = step @ p.weight_ih_l0.T + p.bias_ih_l0 + h @ p.weight_hh_l0.T + p.bias_hh_l0
                h = p.ln_l0(a).tanh()
            return self.head(h)

    return Network()


def fused(nn_):
    """The same as one layer; PyTorch has none."""
    if nn_ is not nn:
        return composed(nn_)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.RNN(28, 64, norm="layer"), nn.Linear(64, 10)

        def forward(self, x):
            return self.head(self.rnn(x)[1][0])

    return Network()


NETWORKS = {mlp: (32, 784), composed: (14, 32, 28), fused: (14, 32, 28)}


def batches(shape, dtype, steps):
    """Make ten batches with a learnable structure, which are repeated."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((10, shape[0] if len(shape) == 3 else 1, shape[-1]))
    for labels in np.tile(rng.integers(0, 10, (10, shape[-2])), (-(-steps // 10), 1))[:steps]:
        x = 0.3 * centers[labels].swapaxes(0, 1) + rng.standard_normal((centers.shape[1], *shape[-2:]))
        yield x.reshape(shape).astype(dtype), labels


def train(nn, optim, make, model, name, shape, dtype, steps):
    """Return the losses and the norms of the gradients, before they are clipped."""
    optimizer, losses, norms = getattr(optim, name)(model.parameters(), **OPTIMIZERS[name]), [], []
    for x, y in batches(shape, dtype, steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(make(x)), make(y))
        loss.backward()
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def train_ours(network, state, name, dtype, device):
    model, steps = network(nn).to(dtype).to(device), STEPS if device == "cpu" else FEW
    model.load_state_dict({k: v.astype(dtype) for k, v in state.items()})
    found = train(nn, optim, lambda a: tensor(a, device), model, name, NETWORKS[network], dtype, steps)
    assert {v.device for v in model.state_dict().values()} == {device}
    return found, {k: array(v) for k, v in model.state_dict().items()}


def initial(network):
    return {k: v.detach().numpy().copy() for k, v in network(nn).state_dict().items()}


@pytest.fixture
def torch():
    """PyTorch on one thread: its pool and ours would wait for each other's cores."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch
    torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-4), ("float64", 1e-9)])
@pytest.mark.parametrize("network, name", [
    *((mlp, name) for name in OPTIMIZERS), (composed, "Adam"), (fused, "SGD"), (fused, "Adam"), (fused, "AdamW"),
])  # fmt: skip
def test_every_loss_is_pytorchs(torch, network, name, dtype, tolerance, device):
    mg.manual_seed(0)
    state = initial(network)
    (ours, our_norms), our_weights = train_ours(network, state, name, dtype, device)
    theirs = network(torch.nn).to(getattr(torch, dtype))
    theirs.load_state_dict({k: torch.tensor(v.astype(dtype)) for k, v in state.items()})
    expected, norms = train(torch.nn, torch.optim, torch.tensor, theirs, name, NETWORKS[network], dtype, len(ours))
    if device == "cpu":
        assert np.mean(expected[-10:]) < 0.7 * np.mean(expected[:10])  # it learns
    np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(our_norms, norms, rtol=1e-2 if dtype == "float32" else 1e-7)
    if dtype == "float64":
        for k, weight in theirs.state_dict().items():
            np.testing.assert_allclose(our_weights[k], weight.numpy(), rtol=0, atol=1e-7, err_msg=k)


@pytest.mark.parametrize("network", NETWORKS)
def test_same_seed_same_bits(network, device):
    runs = []
    for seed in (0, 0, 1):
        mg.manual_seed(seed)
        found, weights = train_ours(network, initial(network), "Adam", "float32", device)
        runs.append((found, {k: w.tobytes() for k, w in weights.items()}))
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[2][0]
