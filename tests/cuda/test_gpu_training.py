"""Whole models on a GPU train as on the CPU, without waiting for the host."""

import numpy as np
import pytest
from checks import agree

import minigrad as mg
from minigrad import nn, optim
from minigrad.cuda import backend
from minigrad.nn import functional as F


class LastStep(nn.Module):
    """The output of an LSTM at the last step, as class scores."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8, norm="layer")
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.lstm(x)[0][-1])


def mlp():
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3))


def lenet():
    # Without a bias before the norm: its gradient would be pure rounding error, from which Adam makes full steps.
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 3)
    )


def averaging():
    """Running statistics that average all batches; their number is read on the GPU."""
    return nn.Sequential(nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16, momentum=None), nn.Tanh(), nn.Linear(16, 3))


MODELS = {
    "mlp": (mlp, (9, 6)), "averaging": (averaging, (9, 6)), "lstm": (LastStep, (4, 9, 5)),
    "lenet": (lenet, (9, 1, 8, 8)),
}  # fmt: skip
OPTIMIZERS = {
    "adam": lambda parameters: optim.Adam(parameters, 0.01),
    "sgd": lambda parameters: optim.SGD(parameters, 0.1, momentum=0.9),
}


def trained(device, build, shape, optimizer, rng, steps=5):
    """Return the losses of some steps and the parameters afterwards; every call starts from the same state."""
    mg.manual_seed(0)
    model = build().to(device)
    descent = OPTIMIZERS[optimizer](model.parameters())
    x = mg.tensor(rng.standard_normal(shape).astype("float32"), device=device)
    y = mg.tensor(rng.integers(0, 3, 9), device=device)
    losses = []
    for _ in range(steps):
        descent.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        descent.step()
        losses.append(loss.detach())
    return losses, model


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_as_on_the_cpu(name, optimizer):
    found = {}
    for device in ("cpu", "cuda:0"):
        losses, model = trained(device, *MODELS[name], optimizer, np.random.default_rng(0))
        found[device] = [x.to("cpu").numpy() for x in (*losses, *(p.detach() for p in model.parameters()))]
    agree(found["cuda:0"], found["cpu"], rtol=2e-4, atol=2e-5)
    assert found["cpu"][4] < found["cpu"][0]


@pytest.mark.parametrize("name", MODELS)
def test_a_step_copies_nothing_to_the_host(name, monkeypatch):
    build, shape = MODELS[name]
    trained("cuda:0", build, shape, "adam", np.random.default_rng(0), 1)
    moved, transfer = [], backend.transfer
    monkeypatch.setattr(backend, "transfer", lambda x, index: (moved.append((x.device, index)), transfer(x, index))[1])
    losses, _ = trained("cuda:0", build, shape, "adam", np.random.default_rng(0), 3)
    assert not [source for source, index in moved if index == 0]
    assert len(moved) < 40  # transfers of the model and the data themselves
    assert losses[0].item() > 0
    assert moved[-1] == ("cuda:0", 0)


def test_the_same_seed_gives_the_same_bits():
    runs = [trained("cuda:0", *MODELS["lenet"], "adam", np.random.default_rng(1))[0] for _ in range(2)]
    assert [x.item() for x in runs[0]] == [x.item() for x in runs[1]]
