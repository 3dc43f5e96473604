"""Whole training runs against PyTorch's from the same weights, and their use of memory."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

STEPS = 100


def mlp(nn):
    return nn.Sequential(
        nn.Linear(64, 48), nn.LayerNorm(48), nn.ReLU(),
        nn.Linear(48, 48), nn.LayerNorm(48), nn.ReLU(),
        nn.Linear(48, 10),
    )  # fmt: skip


class OurRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(8, 32, norm="layer")
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.rnn(x)[1][0])


def their_rnn(torch):
    class TheirRNN(torch.nn.Module):
        """The same recurrence in PyTorch's operations, with our names."""

        def __init__(self):
            super().__init__()
            self.rnn = torch.nn.RNN(8, 32)
            self.rnn.ln_l0 = torch.nn.LayerNorm(32)
            self.head = torch.nn.Linear(32, 10)

        def forward(self, x):
            p, h = self.rnn, x.new_zeros(x.shape[1], 32)
            for step in x:
                a = step @ p.weight_ih_l0.T + p.bias_ih_l0 + h @ p.weight_hh_l0.T + p.bias_hh_l0
                h = torch.tanh(p.ln_l0(a))
            return self.head(h)

    return TheirRNN()


@pytest.mark.parametrize("network", ["mlp", "rnn"])
@pytest.mark.parametrize("name, options", [
    ("SGD", {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}), ("Adam", {"lr": 1e-3}),
    ("AdamW", {"lr": 1e-3, "weight_decay": 0.1}),
])  # fmt: skip
def test_losses_of_100_steps_are_pytorchs(network, name, options):
    torch = pytest.importorskip("torch")
    mg.manual_seed(0)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    ours, theirs = (mlp(nn), mlp(torch.nn)) if network == "mlp" else (OurRNN(), their_rnn(torch))
    ours.load_state_dict(theirs.state_dict())
    a = getattr(optim, name)(ours.parameters(), **options)
    b = getattr(torch.optim, name)(theirs.parameters(), **options)
    shape = (32, 64) if network == "mlp" else (8, 32, 8)
    losses = []
    for _ in range(STEPS):
        x, labels = rng.standard_normal(shape, dtype=np.float32), rng.integers(0, 10, 32)
        a.zero_grad()
        b.zero_grad()
        loss = F.cross_entropy(ours(mg.tensor(x)), mg.tensor(labels))
        expected = torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(labels))
        loss.backward()
        expected.backward()
        norm = torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0).item()
        assert optim.clip_grad_norm_(ours.parameters(), 1.0) == pytest.approx(norm, rel=1e-2)
        a.step()
        b.step()
        losses.append((loss.item(), expected.item()))
    found, wanted = np.array(losses).T
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_memory_is_flat():
    """Repeating the same step uses no more memory than the first ones."""
    model = mlp(nn)
    optimizer = optim.Adam(model.parameters())
    x, labels = mg.random.normal(0.0, 1.0, (16, 64)), mg.random.randint(0, 10, (16,))
    held = []
    for _ in range(300):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
        held.append(mg.memory_allocated())
    assert max(held[3:]) == held[3]
