"""Convolutional and pooling layers: PyTorch's keys, shapes and numbers; a LeNet that learns as PyTorch's does."""

import numpy as np
import pytest
from checks import refuses
from peers import exchange_state, step_beside_torch, torch

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

LAYERS = [
    ("Conv2d", (4, 6, 3), {}, (2, 4, 7, 8)),
    ("Conv2d", (4, 6, (3, 2)), {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 3), "groups": 2}, (2, 4, 7, 8)),
    ("Conv2d", (4, 4, 4), {"padding": "same", "bias": False}, (4, 7, 8)),
    ("Conv2d", (4, 2, 2), {"padding": "valid"}, (0, 4, 3, 3)),
    ("MaxPool2d", (2,), {}, (2, 3, 7, 8)),
    ("MaxPool2d", (3, 2), {"padding": 1, "ceil_mode": True}, (3, 7, 8)),
    ("MaxPool2d", ((2, 3),), {"stride": (1, 2), "dilation": (2, 1)}, (2, 3, 7, 8)),
    ("AvgPool2d", (2,), {}, (2, 3, 7, 8)),
    ("AvgPool2d", (3, 2), {"padding": 1, "ceil_mode": True, "count_include_pad": False}, (2, 3, 7, 8)),
    ("AvgPool2d", ((2, 3),), {"divisor_override": 4}, (3, 7, 8)),
    ("AdaptiveAvgPool2d", (3,), {}, (2, 3, 7, 8)),
    ("AdaptiveAvgPool2d", ((None, 2),), {}, (3, 7, 8)),
    ("Flatten", (), {}, (2, 3, 4, 5)),
    ("Flatten", (0, 1), {}, (2, 3, 4, 5)),
    ("Flatten", (), {"start_dim": -3, "end_dim": -2}, (2, 3, 4, 5)),
    ("Flatten", (0,), {}, ()),
    ("Flatten", (), {}, (0, 3, 4)),
    ("Identity", (), {}, (2, 3)),
]


# PyTorch warns that it copies x for such windows.
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("dtype, tolerance", [("float32", 2e-5), ("float64", 1e-12)])
@pytest.mark.parametrize("name, arguments, options, shape", LAYERS)
def test_layers_beside_torch(name, arguments, options, shape, dtype, tolerance, device, rng):
    ours, theirs = getattr(nn, name)(*arguments, **options), getattr(torch.nn, name)(*arguments, **options)
    ours.to(dtype).to(device)
    theirs.to(getattr(torch, dtype))
    exchange_state(ours, theirs, rng)
    x = np.asarray(rng.standard_normal(shape), dtype)
    step_beside_torch(ours, theirs, x, rng, tolerance, tolerance, device)


def test_layers_take_the_same_padding_with_a_stride():
    layer = nn.Conv2d(1, 1, 3, stride=2, padding="same", bias=False)
    assert repr(layer) == "Conv2d(1, 1, kernel_size=(3, 3), stride=(2, 2), padding='same', bias=False)"
    assert layer(mg.ones((1, 7, 8))).shape == (1, 4, 4)
    assert nn.Conv1d(1, 1, 3, stride=3, padding="same")(mg.ones((1, 7))).shape == (1, 3)


def test_texts():
    assert repr(nn.Conv2d(1, 6, 5)) == "Conv2d(1, 6, kernel_size=(5, 5), stride=(1, 1))"
    assert repr(nn.Conv2d(4, 6, 3, 2, "valid", 2, 2, False)) == (
        "Conv2d(4, 6, kernel_size=(3, 3), stride=(2, 2), padding='valid', dilation=(2, 2), groups=2, bias=False)"
    )
    assert repr(nn.MaxPool2d(2)) == (
        "MaxPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False)"
    )
    assert repr(nn.AvgPool2d(2)) == "AvgPool2d(kernel_size=(2, 2), stride=(2, 2), padding=(0, 0))"
    assert repr(nn.AdaptiveAvgPool2d((None, 2))) == "AdaptiveAvgPool2d(output_size=(None, 2))"
    assert repr(nn.Flatten()) == "Flatten(start_dim=1, end_dim=-1)"
    assert repr(nn.Identity(54, bias=False)) == "Identity()"


def test_flatten_is_a_view_and_identity_the_input():
    x = mg.zeros((2, 3, 4))
    assert nn.Flatten()(x).data_ptr() == x.data_ptr()
    assert nn.Identity()(x) is x


@pytest.mark.parametrize("op, error, numbers, call", [
    ("Conv2d", ValueError, "in_channels >= 1", lambda: nn.Conv2d(0, 1, 1)),
    ("Conv2d", ValueError, ["4", "3", "2"], lambda: nn.Conv2d(4, 3, 1, groups=2)),
    ("Conv2d", ValueError, "kernel_size >= 1", lambda: nn.Conv2d(1, 1, (3, 0))),
    ("Conv2d", ValueError, "'full'", lambda: nn.Conv2d(1, 1, 1, padding="full")),
    ("Conv2d", TypeError, "2.5", lambda: nn.Conv2d(1, 1, 2.5)),
    ("MaxPool2d", ValueError, "stride >= 1", lambda: nn.MaxPool2d(2, 0)),
    ("AvgPool2d", ValueError, "(1, 2, 3)", lambda: nn.AvgPool2d((1, 2, 3))),
    ("AvgPool2d", ValueError, "divisor_override", lambda: nn.AvgPool2d(2, divisor_override=0)),
    ("AdaptiveAvgPool2d", ValueError, "0", lambda: nn.AdaptiveAvgPool2d(0)),
    ("AdaptiveAvgPool2d", ValueError, "(1,)", lambda: nn.AdaptiveAvgPool2d((1,))),
    ("Flatten", IndexError, ["-2", "1", "2 axes", "2"], lambda: nn.Flatten(2)(mg.zeros((3, 4)))),
    ("Flatten", ValueError, ["2", "1", "3 axes"], lambda: nn.Flatten(-1, 1)(mg.zeros((3, 4, 5)))),
    ("Flatten", TypeError, "0.5", lambda: nn.Flatten(0.5)),
])  # fmt: skip
def test_errors(op, error, numbers, call):
    refuses(error, op, numbers, call)


def test_a_lenet_learns_as_pytorchs_does(device, rng):

    def build(nn):
        return nn.Sequential(
            nn.Conv2d(1, 6, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(256, 120), nn.Tanh(), nn.LayerNorm(120), nn.Linear(120, 84), nn.Tanh(), nn.LayerNorm(84), nn.Linear(84, 10),
        )  # fmt: skip

    ours, theirs = build(nn).to("float64").to(device), build(torch.nn).double()
    exchange_state(ours, theirs, rng)
    x, labels = rng.standard_normal((8, 1, 28, 28)), rng.integers(0, 10, 8)
    steps = optim.Adam(ours.parameters(), 1e-3), torch.optim.Adam(theirs.parameters(), 1e-3)
    for _ in range(4):
        losses = (
            F.cross_entropy(ours(mg.tensor(x, device=device)), mg.tensor(labels, device=device)),
            torch.nn.functional.cross_entropy(theirs(torch.from_numpy(x)), torch.from_numpy(labels)),
        )
        np.testing.assert_allclose(losses[0].item(), losses[1].item(), rtol=1e-9)
        for loss, optimizer in zip(losses, steps, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


@pytest.mark.parametrize("shape", [(2, 8, 9, 3), (8, 9, 3)])
def test_channels_on_the_last_axis_are_noted(shape):
    layer = nn.Conv2d(3, 4, 3)
    with pytest.raises(ValueError, match="expected x of 3 channels") as error:
        layer(mg.ones(shape))
    assert any("x.moveaxis(-1, -3)" in note for note in error.value.__notes__)
    assert layer(mg.ones(shape).moveaxis(-1, -3)).shape[-3:] == (4, 6, 7)
    with pytest.raises(ValueError, match="expected x of 3 channels") as error:
        layer(mg.ones((2, 5, 8, 9)))
    assert not any("moveaxis" in note for note in error.value.__notes__)
