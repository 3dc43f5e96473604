"""What a conversion refuses, and what may be given to it."""

import numpy as np
import pytest

from minigrad import convert, nn

LAYER = {"gamma": np.ones(4), "beta": np.zeros(4)}
BATCH = {**LAYER, "moving_mean": np.zeros(4), "moving_variance": np.ones(4)}
GATES = {"kernel": np.ones((4, 12)), "recurrent_kernel": np.ones((3, 12)), "bias": np.ones(12)}
RESET = {"kernel": np.ones((4, 9)), "recurrent_kernel": np.ones((3, 9)), "bias": np.ones(9)}
KERNEL = {"kernel": np.ones((4, 4)), "bias": np.ones(4)}
KERAS_BATCH = {"eps": 1e-3, "momentum": 0.01}
# (framework, arrays, module, what the error names)
CONTRADICTIONS = [
    ("keras", LAYER, lambda: nn.LayerNorm(4), r"eps=0.001, as in Keras .* with epsilon=0.001, got 1e-05"),
    ("keras", BATCH, lambda: nn.BatchNorm1d(4, eps=1e-3), r"momentum=0.01, .* with momentum=0.99, got 0.1"),
    ("keras", BATCH, lambda: nn.BatchNorm1d(4, **KERAS_BATCH), "unbiased_running_var=False"),
    ("keras", GATES, lambda: nn.LSTM(4, 3), 'bias="input", as the source has no bias_hh'),
    ("keras", RESET, lambda: nn.GRU(4, 3, bias="input"), "reset_after=False"),
    ("keras", {"kernel": np.ones((4, 4))}, lambda: nn.Linear(4, 4), "bias=False, as the source has no bias"),
    ("keras", KERNEL, lambda: nn.Linear(4, 4, bias=False), "bias=True, as the source has bias"),
    ("flax", KERNEL, lambda: nn.Sequential(nn.GELU(), nn.Linear(4, 4)), "approximate='tanh'"),
    ("haiku", {"w_i": np.ones((4, 9)), "w_h": np.ones((3, 9)), "b": np.ones(9)}, lambda: nn.GRU(4, 3, bias="input"), "convention='paper'"),
    ("mlx", {"weight": np.ones(4), "bias": np.ones(4)}, lambda: nn.GroupNorm(2, 4), "pytorch_compatible"),
    ("paddle", {"scale": np.ones(4), "bias": np.ones(4)}, lambda: nn.InstanceNorm1d(4, eps=1e-3, affine=True), "eps=1e-05"),
    ("keras", GATES, lambda: nn.LSTM(4, 3, norm="layer"), "norm=None"),
    ("keras", {**KERNEL, "other": np.ones(3)}, lambda: nn.Linear(4, 4), "no other arrays .* other"),
    ("keras", [np.ones((4, 4))], lambda: nn.Linear(4, 4), "expected 2 arrays .* got 1"),
    ("flax", {name: dict(KERNEL) for name in ("a", "b")}, lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), "names={'0': ...}"),
    ("keras", {"c": {"kernel": np.ones((3, 3, 4, 8)), "bias": np.ones(8)}, "d": {"kernel": np.ones((32, 2)), "bias": np.ones(2)}},
     lambda: nn.Sequential({"c": nn.Conv2d(4, 8, 3), "d": nn.Linear(32, 2)}), "channels={'d': 8}"),
]  # fmt: skip


@pytest.mark.parametrize("file, arrays, make, message", CONTRADICTIONS, ids=[row[3][:24] for row in CONTRADICTIONS])
def test_what_contradicts_the_source_is_named(file, arrays, make, message):
    with pytest.raises(ValueError, match=message):
        getattr(convert, file)(arrays, make())


def test_arguments_of_the_source_may_be_given():
    two = {"a": LAYER, "b": {"gamma": 2 * np.ones(4), "beta": np.ones(4)}}
    net = nn.Sequential(nn.LayerNorm(4, eps=1e-5), nn.LayerNorm(4, eps=1e-6))
    state = convert.keras(two, net, arguments={"epsilon": 1e-5, "1.epsilon": 1e-6}, names={"0": "b", "1": "a"})
    assert state["0.weight"].tolist() == [2.0] * 4
    with pytest.raises(ValueError, match="1: expected eps=1e-05"):
        convert.keras(two, net, arguments={"epsilon": 1e-5})


def test_channels_say_that_nothing_moves():
    kernel = np.arange(64.0).reshape(32, 2)
    arrays = {"c": {"kernel": np.ones((3, 3, 4, 8)), "bias": np.ones(8)}, "d": {"kernel": kernel, "bias": np.ones(2)}}
    net = nn.Sequential({"c": nn.Conv2d(4, 8, 3), "d": nn.Linear(32, 2)})
    moved = kernel.reshape(4, 8, 2).transpose(2, 1, 0).reshape(2, 32)
    assert (convert.keras(arrays, net, channels={"d": 8})["d.weight"] == moved).all()
    assert (convert.keras(arrays, net, channels={"d": 1})["d.weight"] == kernel.T).all()
