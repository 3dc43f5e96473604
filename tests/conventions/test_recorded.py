"""What other frameworks computed, recorded by the scripts in `record`, beside minigrad with their weights."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import convert, nn, optim
from minigrad.nn import functional as F

FOLDER = Path(__file__).parent / "recorded"


def read(path):
    """Return the arrays of a file by name, as `record/common.py` writes them."""
    with np.load(path) as file:
        index, data, start, found = json.loads(str(file["index"])), file["data"], 0, {}
    for name, (dtype, shape) in index.items():
        size = np.dtype(dtype).itemsize * math.prod(shape)
        found[name] = data[start : start + size].view(dtype).reshape(shape)
        start += size
    return found


INPUTS = read(FOLDER / "inputs.npz")
RATE, STEPS = 0.125, 2
FILES = {path.stem: read(path) for path in sorted(FOLDER.glob("*.npz")) if path.stem != "inputs"}
FIRST = np.moveaxis(INPUTS["images"], -1, 1)
LENGTHS = INPUTS["lengths"].tolist()


def recorded(file, case):
    """Return what was recorded of a case: arrays by name, the weights before and after by theirs."""
    found = {"weights": {}, "after": {}}
    for name in FILES[file]:
        if name.startswith(f"{case}/"):
            key, _, path = name.removeprefix(f"{case}/").partition("/")
            value = FILES[file][name]
            if path:
                found[key][path.replace("|", "/").replace(":", "/")] = value
            else:
                found[key] = value
    return found


def first(x):
    return x.moveaxis(-1, 1)


def last(y):
    return y.moveaxis(1, -1)


def images(net, x):
    return last(net(first(x)))


def steps(net, x):
    return net(x)[0]


def time_first(net, x):
    return net(x.permute_dims((1, 0, 2)))[0]


def masked(net, x):
    return net(x, lengths=LENGTHS)[0]


def attend(net, x):
    return net(x, x, x, need_weights=False)[0]


def same(net, x):
    """Pad as "same" with a stride of 2 does: of 6 rows at the end only, of 5 columns on both sides."""
    return net(F.pad(x if x.shape[1] == 4 else first(x), (1, 1, 0, 1)))


def same_last(net, x):
    return last(same(net, x))


def conv_net():
    return nn.Sequential(nn.Conv2d(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2))


def after_first(net, x):
    return net(first(x))


NARROW = {"momentum": 0.01, "unbiased_running_var": False}
SEQUENCE = {"batch_first": True}
# (file, case, input, the module with the arguments that give it, how it is called, arguments of the source)
ROWS = [
    ("keras", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("keras", "conv", "images", conv_net, after_first),
    *(
        (file, layer, "images", lambda: nn.Conv2d(4, 3, 3, stride=2), same_last)
        for file, layer in (("keras", "conv_stride"), ("flax", "nnx/conv_stride"), ("haiku", "conv_stride"))
    ),
    ("paddle", "conv_stride", "first", lambda: nn.Conv2d(4, 3, 3, stride=2), same),
    ("mindspore", "conv_stride", "first", lambda: nn.Conv2d(4, 3, 3, stride=2, bias=False), same),
    ("keras", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("keras", "layer_norm", "rows", lambda: nn.LayerNorm(6, eps=1e-3), None),
    ("keras", "rms_norm", "rows", lambda: nn.RMSNorm(6, eps=1e-6), None),
    ("keras", "group_norm", "images", lambda: nn.GroupNorm(2, 4, eps=1e-3), images),
    ("keras", "instance_norm", "images", lambda: nn.InstanceNorm2d(4, eps=1e-3, affine=True), images),
    ("keras", "batch_norm", "images", lambda: nn.BatchNorm2d(4, eps=1e-3, **NARROW), images),
    ("keras", "rnn", "sequences", lambda: nn.RNN(4, 3, bias="input", **SEQUENCE), steps),
    ("keras", "lstm", "sequences", lambda: nn.LSTM(4, 3, bias="input", **SEQUENCE), steps),
    ("keras", "gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("keras", "lstm_both", "sequences", lambda: nn.LSTM(4, 3, bias="input", bidirectional=True, **SEQUENCE), steps),
    ("keras", "gru_stack", "sequences", lambda: nn.GRU(4, 3, 2, bidirectional=True, **SEQUENCE), steps),
    ("keras", "leaky_relu", "rows", lambda: nn.Sequential(nn.LeakyReLU(0.3), nn.Linear(6, 2)), None),
    ("keras", "gelu", "rows", lambda: nn.Sequential(nn.GELU(), nn.Linear(6, 2)), None),
    *(
        (
            ("flax", f"{api}/{case}", name, make, call)
            for api in ("nnx", "linen")
            for case, name, make, call in [
                ("linear", "rows", lambda: nn.Linear(6, 3), None),
                ("embedding", "indices", lambda: nn.Embedding(5, 3), None),
                ("layer_norm", "rows", lambda: nn.LayerNorm(6, eps=1e-6), None),
                ("rms_norm", "rows", lambda: nn.RMSNorm(6, eps=1e-6), None),
                ("group_norm", "images", lambda: nn.GroupNorm(2, 4, eps=1e-6), images),
                ("instance_norm", "images", lambda: nn.InstanceNorm2d(4, eps=1e-6, affine=True), images),
                ("batch_norm", "images", lambda: nn.BatchNorm2d(4, **NARROW), images),
                ("lstm", "sequences", lambda: nn.LSTM(4, 3, bias="input", **SEQUENCE), steps),
                ("lstm_fused", "sequences", lambda: nn.LSTM(4, 3, bias="input", **SEQUENCE), steps),
                ("rnn", "sequences", lambda: nn.RNN(4, 3, bias="input", **SEQUENCE), steps),
                ("attention", "sequences", lambda: nn.MultiheadAttention(4, 2, **SEQUENCE), attend),
            ]
        )
    ),
    (
        "flax",
        "nnx/conv",
        "images",
        lambda: Named(conv=nn.Conv2d(4, 3, 3), relu=nn.ReLU(), flat=nn.Flatten(), fc=nn.Linear(36, 2)),
        after_first,
    ),
    ("flax", "nnx/gru", "sequences", lambda: nn.GRU(4, 3, bias="input", **SEQUENCE), steps),
    ("flax", "linen/gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("paddle", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("paddle", "conv", "first", conv_net, None),
    ("paddle", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("paddle", "layer_norm", "rows", lambda: nn.LayerNorm(6), None),
    ("paddle", "group_norm", "first", lambda: nn.GroupNorm(2, 4), None),
    ("paddle", "instance_norm", "first", lambda: nn.InstanceNorm2d(4, affine=True), None),
    ("paddle", "batch_norm", "first", lambda: nn.BatchNorm2d(4, momentum=0.1, unbiased_running_var=False), None),
    ("paddle", "rnn", "sequences", lambda: nn.RNN(4, 3, **SEQUENCE), steps),
    ("paddle", "lstm", "sequences", lambda: nn.LSTM(4, 3, **SEQUENCE), steps),
    ("paddle", "gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("paddle", "lstm_both", "sequences", lambda: nn.LSTM(4, 3, bidirectional=True, **SEQUENCE), steps),
    ("paddle", "gru_stack", "sequences", lambda: nn.GRU(4, 3, 2, bidirectional=True, **SEQUENCE), steps),
    ("paddle", "masked_both", "sequences", lambda: nn.GRU(4, 3, bidirectional=True, **SEQUENCE), masked),
    ("paddle", "attention", "sequences", lambda: nn.MultiheadAttention(4, 2, **SEQUENCE), attend),
    ("mindspore", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("mindspore", "conv", "first", conv_net, None),
    ("mindspore", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("mindspore", "layer_norm", "rows", lambda: nn.LayerNorm(6, eps=1e-7), None),
    ("mindspore", "group_norm", "first", lambda: nn.GroupNorm(2, 4), None),
    ("mindspore", "batch_norm", "first", lambda: nn.BatchNorm2d(4), None),
    ("mindspore", "gelu", "rows", lambda: nn.Sequential(nn.GELU(approximate="tanh"), nn.Linear(6, 2)), None),
    ("mindspore", "leaky_relu", "rows", lambda: nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(6, 2)), None),
    ("mindspore", "rnn", "sequences", lambda: nn.RNN(4, 3, **SEQUENCE), steps),
    ("mindspore", "lstm", "sequences", lambda: nn.LSTM(4, 3, **SEQUENCE), steps),
    ("mindspore", "gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("mindspore", "lstm_both", "sequences", lambda: nn.LSTM(4, 3, bidirectional=True, **SEQUENCE), steps),
    ("mlx", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("mlx", "conv", "images", conv_net, after_first),
    ("mlx", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("mlx", "layer_norm", "rows", lambda: nn.LayerNorm(6), None),
    ("mlx", "rms_norm", "rows", lambda: nn.RMSNorm(6, eps=1e-5), None),
    ("mlx", "group_norm", "images", lambda: nn.GroupNorm(2, 4), images, {"pytorch_compatible": True}),
    ("mlx", "instance_norm", "images", lambda: nn.InstanceNorm2d(4, affine=True), images),
    ("mlx", "batch_norm", "images", lambda: nn.BatchNorm2d(4), images),
    ("mlx", "rnn", "sequences", lambda: nn.RNN(4, 3, bias="input", **SEQUENCE), steps),
    ("mlx", "lstm", "sequences", lambda: nn.LSTM(4, 3, bias="input", **SEQUENCE), steps),
    ("mlx", "gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("mlx", "attention", "sequences", lambda: nn.MultiheadAttention(4, 2, bias=False, **SEQUENCE), attend),
    ("mlx", "attention_bias", "sequences", lambda: nn.MultiheadAttention(4, 2, **SEQUENCE), attend),
    ("haiku", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("haiku", "conv", "images", conv_net, after_first),
    ("haiku", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("haiku", "layer_norm", "rows", lambda: nn.LayerNorm(6), None),
    ("haiku", "rms_norm", "rows", lambda: nn.RMSNorm(6, eps=1e-5), None),
    ("haiku", "group_norm", "images", lambda: nn.GroupNorm(2, 4), images),
    ("haiku", "instance_norm", "images", lambda: nn.InstanceNorm2d(4, affine=True), images),
    ("haiku", "rnn", "sequences", lambda: nn.RNN(4, 3, nonlinearity="relu"), time_first),
    ("haiku", "lstm", "sequences", lambda: nn.LSTM(4, 3, bias="input"), time_first),
    ("haiku", "attention", "sequences", lambda: nn.MultiheadAttention(4, 2, **SEQUENCE), attend),
    ("equinox", "linear", "rows", lambda: nn.Linear(6, 3), None),
    ("equinox", "conv", "first", conv_net, None),
    ("equinox", "embedding", "indices", lambda: nn.Embedding(5, 3), None),
    ("equinox", "layer_norm", "rows", lambda: nn.LayerNorm(6), None),
    ("equinox", "rms_norm", "rows", lambda: nn.RMSNorm(6, eps=1e-5), None),
    ("equinox", "group_norm", "first", lambda: nn.GroupNorm(2, 4), None),
    ("equinox", "lstm", "sequences", lambda: nn.LSTM(4, 3, bias="input", **SEQUENCE), steps),
    ("equinox", "gru", "sequences", lambda: nn.GRU(4, 3, **SEQUENCE), steps),
    ("equinox", "attention", "sequences", lambda: nn.MultiheadAttention(4, 2, bias=False, **SEQUENCE), attend),
    ("equinox", "attention_bias", "sequences", lambda: nn.MultiheadAttention(4, 2, **SEQUENCE), attend),
]


class Named(nn.Sequential):
    """A Sequential whose layers have names."""

    def __init__(self, **layers):
        super().__init__(layers)


# The parameters whose gradients have to be left out: the others have no such biases, and these two sums have one each.
ONE_BIAS = {("flax", "linen/gru"), ("mlx", "gru"), ("equinox", "gru")}
# Where they compute in float32, or hold the momentum in it, although the network is float64.
FLOAT32 = {
    *(("keras", f"{kind}_norm") for kind in ("layer", "rms", "group", "instance", "batch")), ("paddle", "batch_norm"),
    ("flax", "nnx/batch_norm"), ("flax", "linen/batch_norm"), ("flax", "nnx/attention"),
}  # fmt: skip
# Values above 1 in float32; MindSpore's recurrent cells are further from float64 than those of others.
ROUNDED = {
    ("flax", "nnx/attention"): 5e-6, ("mlx", "group_norm"): 2e-6, ("mindspore", "rnn"): 1e-5,
    ("mindspore", "gru"): 2e-5,
}  # fmt: skip


def tolerance(file, layer):
    if file in ("mlx", "onnx", "mindspore") or (file, layer) in FLOAT32:
        return ROUNDED.get((file, layer), 1e-6)
    return 1e-12


def loaded(file, layer, make, arguments):
    """Return a module with the recorded weights, and what was recorded."""
    net, found = make().to("float64"), recorded(file, layer)
    net.load_state_dict(getattr(convert, file)(found["weights"], net, arguments=arguments or {}))
    return net, found


def difference(x, y):
    return abs(x.detach().numpy() - y).max()


@pytest.mark.parametrize(
    "file, layer, name, make, call, arguments",
    [(*row, None)[:6] for row in ROWS],
    ids=[f"{row[0]}-{row[1]}" for row in ROWS],
)
def test_outputs_and_training_agree(file, layer, name, make, call, arguments):
    net, found = loaded(file, layer, make, arguments)
    x, call = mg.tensor(FIRST if name == "first" else INPUTS[name]), call or (lambda net, x: net(x))
    if (file, layer) in ONE_BIAS:
        net.bias_hh_l0.register_hook(lambda g: mg.concat([mg.zeros(6, dtype="float64"), g[6:]]))
    assert difference(call(net.eval(), x), found["y"]) < tolerance(file, layer)
    for _ in range(STEPS):
        net.train().zero_grad()
        (call(net, x) * mg.tensor(found["cotangent"])).sum().backward()
        with mg.no_grad():
            for p in net.parameters():
                p.copy_(p - RATE * p.grad)
    after = getattr(convert, file)(found["after"], net, arguments=arguments or {})
    for path, value in net.state_dict().items():
        if not path.endswith("num_batches_tracked"):
            assert difference(value, after[path]) < tolerance(file, layer), path


def both(net, x):
    return net(x, lengths=LENGTHS)[0]


ONNX = [
    ("linear", lambda: nn.Linear(6, 3), "rows", None, {}),
    ("linear_transposed", lambda: nn.Linear(6, 3), "rows", None, {"transB": 1}),
    ("product", lambda: nn.Linear(6, 3, bias=False), "rows", None, {}),
    ("conv", lambda: nn.Conv2d(4, 3, 3), "first", None, {}),
    ("conv_stride", lambda: nn.Conv2d(4, 3, 3, stride=2), "first", same, {}),
    ("layer_norm", lambda: nn.LayerNorm(6), "rows", None, {}),
    ("group_norm", lambda: nn.GroupNorm(2, 4), "first", None, {}),
    ("instance_norm", lambda: nn.InstanceNorm2d(4, affine=True), "first", None, {}),
    ("batch_norm", lambda: nn.BatchNorm2d(4, momentum=0.1, unbiased_running_var=False), "first", None, {}),
    *((f"{name}{'_both' * two}", lambda make=make, two=two: make(4, 3, bidirectional=two, batch_first=True), "sequences", both, {"linear_before_reset": 1})
      for name, make in (("rnn", nn.RNN), ("lstm", nn.LSTM), ("gru", nn.GRU)) for two in (False, True)),
]  # fmt: skip


@pytest.mark.parametrize("layer, make, name, call, arguments", ONNX, ids=[row[0] for row in ONNX])
def test_onnxruntime(layer, make, name, call, arguments):
    net, found = loaded("onnx", layer, make, arguments)
    y = (call or (lambda net, x: net(x)))(net.eval(), mg.tensor(FIRST if name == "first" else INPUTS[name]))
    expected = found["y"]
    if name == "sequences":  # (T, directions, N, H)
        expected = expected.transpose(2, 0, 1, 3).reshape(3, 5, -1)
    assert difference(y, expected) < 1e-5


def test_the_running_statistics_of_onnxruntime():
    net, found = loaded(
        "onnx", "batch_norm_training", lambda: nn.BatchNorm2d(4, momentum=0.1, unbiased_running_var=False), {}
    )
    assert difference(net(mg.tensor(FIRST)), found["y"]) < 1e-5
    assert difference(net.running_mean, found["a"]) < 1e-6
    assert difference(net.running_var, found["b"]) < 1e-6


def test_a_sample_of_no_steps_ends_in_zero_in_onnxruntime():
    """Here, as in PyTorch, it ends in its initial state."""
    net, found = loaded("onnx", "empty", lambda: nn.GRU(4, 3, batch_first=True), {"linear_before_reset": 1})
    state = np.round(np.arange(9.0).reshape(1, 3, 3)) / 8
    h = net(mg.tensor(INPUTS["sequences"]), mg.tensor(state), lengths=[5, 0, 3])[1].detach().numpy()
    assert (h[0, 1] == state[0, 1]).all()
    assert not found["a"][0, 1].any()
    assert found["a"][0, 0].all()


def test_a_mask_of_keras_is_lengths():
    """Keras repeats the last output at padded steps, and gives 0 there in both directions."""
    words, made = mg.tensor(INPUTS["words"]), {"bias": "input", "batch_first": True}
    lengths = (INPUTS["words"] > 0).sum(1).tolist()
    run = lambda net: net.rnn(net.words(words), lengths=lengths)  # noqa: E731
    net, found = loaded("keras", "masked_last", lambda: Named(words=nn.Embedding(5, 4), rnn=nn.LSTM(4, 3, **made)), {})
    assert difference(run(net)[1][0][0], found["y"]) < 1e-12
    net, found = loaded("keras", "masked_steps", lambda: Named(words=nn.Embedding(5, 4), rnn=nn.LSTM(4, 3, **made)), {})
    y = run(net)[0].detach().numpy()
    for row, length in enumerate(lengths):
        assert abs(y[row, :length] - found["y"][row, :length]).max() < 1e-12
        assert (found["y"][row, length:] == found["y"][row, length - 1]).all()
        assert not y[row, length:].any()
    gru = {"bidirectional": True, "batch_first": True}
    net, found = loaded("keras", "masked_both", lambda: Named(words=nn.Embedding(5, 4), rnn=nn.GRU(4, 3, **gru)), {})
    assert difference(run(net)[0], found["y"]) < 1e-12


# What a query that may attend to nothing gets: in minigrad nothing but the bias, in others the mean of all values, or NaN.
MASKED = [
    ("keras", "attention", "y", True, "mean"), ("flax", "nnx/attention_masked", "y", True, "mean"),
    ("mlx", "attention_masked", "y", False, "nan"), ("haiku", "attention_masked", "y", True, "mean"),
    ("equinox", "attention_masked", "y", False, "mean"),
]  # fmt: skip


@pytest.mark.parametrize("file, layer, key, bias, alone", MASKED, ids=[row[0] for row in MASKED])
def test_attention_masks_are_inverted(file, layer, key, bias, alone):
    net, found = loaded(file, layer, lambda: nn.MultiheadAttention(4, 2, bias=bias, batch_first=True), {})
    x, mask = mg.tensor(INPUTS["sequences"]), INPUTS["mask"]
    y = net(x, x, x, attn_mask=mg.tensor(np.repeat(~mask, 2, axis=0)), need_weights=False)[0].detach().numpy()
    empty = ~mask.any(-1)
    assert empty.sum() == 1
    assert abs(y - found[key])[~empty].max() < 1e-5
    nobody = net.out_proj.bias.detach().numpy() if bias else np.zeros(4)
    assert abs(y[empty] - nobody).max() < 1e-12
    values = x.detach().numpy() @ net.in_proj_weight.detach().numpy()[8:].T
    values = values + (net.in_proj_bias.detach().numpy()[8:] if bias else 0.0)
    mean = values.mean(1) @ net.out_proj.weight.detach().numpy().T + nobody
    theirs = found[key][empty]
    assert np.isnan(theirs).all() if alone == "nan" else abs(theirs - mean[empty.any(1)]).max() < 1e-5


@pytest.mark.parametrize(
    "layer, make",
    [(row[1], row[3]) for row in ROWS if row[0] == "keras"],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_weights_return_to_keras(layer, make):
    net, found = loaded("keras", layer, make, {})
    back = convert.to_keras(net)
    assert len(back) == len(found["weights"])
    for ours, theirs in zip(back, found["weights"].values(), strict=True):
        assert (ours == theirs).all()
    again = convert.keras(back, net)
    for path, value in net.state_dict().items():
        assert (again[path] == value.numpy()).all(), path


# The largest error of float32 rows of mean 4096 whose values are at most 2.7.
FAR = [
    ("flax", "far/float32_fast_True", True), ("flax", "far/float32_fast_False", False), ("mlx", "far/layer", False),
    *((file, f"{kind}_norm_far_float32/y", file == "keras_numpy" or (file == "keras_torch" and kind != "layer"))
      for file in ("keras", "keras_numpy", "keras_torch") for kind in ("layer", "group", "batch")),
    ("paddle", "far/layer", False), ("onnx", "layer_norm_far/y", False), ("onnx", "group_norm_far/y", True),
]  # fmt: skip


@pytest.mark.parametrize("file, name, wrong", FAR, ids=[f"{row[0]}-{row[1]}" for row in FAR])
def test_float32_norms_far_from_zero(file, name, wrong):
    """Where the variance is E[x²] − E[x]², it is wrong in every digit: in Flax by default, and in Keras on NumPy."""
    x = INPUTS["far_rows"]
    centered = x - x.mean(-1, keepdims=True)
    right = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    ours = nn.LayerNorm(64)(mg.tensor(x.astype("float32")))
    assert difference(ours, right) < 1e-3
    off = abs(FILES[file][name].reshape(4, 64) - right).max()
    assert (off > 1) == wrong


def weighted_by_rows(logits, labels):
    return (
        F.cross_entropy(logits, labels, reduction="none") * mg.tensor(INPUTS["class_weights"][INPUTS["labels"]])
    ).mean()


LOGITS, LABELS = mg.tensor(INPUTS["logits"]), mg.tensor(INPUTS["labels"])
WEIGHTS, IGNORED = mg.tensor(INPUTS["class_weights"]), mg.tensor(np.array([2, 0, -100, 1, -100]))
ONE_HOT = mg.tensor(np.eye(4)[INPUTS["labels"]])
TARGET = F.softmax(LOGITS.flip(axis=0), -1)
SURE, TRUTH = mg.tensor(INPUTS["probabilities"]), mg.tensor(INPUTS["truth"])
EVERYONE = ("keras", "flax", "paddle", "mlx")
# What each recorded loss is here.
LOSSES = [
    *((file, "losses/plain", lambda: F.cross_entropy(LOGITS, LABELS)) for file in EVERYONE),
    *((file, "losses/smooth", lambda: F.cross_entropy(LOGITS, LABELS, label_smoothing=0.1)) for file in EVERYONE),
    *((file, "losses/weighted", lambda: weighted_by_rows(LOGITS, LABELS)) for file in ("keras", "mlx")),
    *((file, name, lambda: F.cross_entropy(LOGITS, LABELS, weight=WEIGHTS)) for file, name in (
        ("keras", "losses/weighted_mean"), ("flax", "losses/weighted"), ("paddle", "losses/weighted"), ("onnx", "loss_weighted/y"))),
    ("onnx", "loss_ignored/y", lambda: F.cross_entropy(LOGITS, IGNORED)),
    ("paddle", "losses/ignored", lambda: F.cross_entropy(LOGITS, IGNORED, reduction="sum") / 5),
    ("keras", "losses/ignored", lambda: F.cross_entropy(LOGITS, LABELS, ignore_index=0)),
    *((file, "losses/huber", lambda: F.huber_loss(LOGITS, 3 * ONE_HOT)) for file in ("keras", "flax", "mlx")),
    *((file, "losses/smooth_l1", lambda: F.smooth_l1_loss(LOGITS, 3 * ONE_HOT)) for file in ("paddle", "mlx")),
    ("flax", "losses/square", lambda: F.mse_loss(LOGITS, ONE_HOT) / 2),
    ("keras", "losses/mean_square", lambda: F.mse_loss(LOGITS, ONE_HOT)),
    *((file, "losses/divergence", lambda: F.kl_div(F.log_softmax(LOGITS, -1), TARGET, reduction="batchmean")) for file in ("keras", "flax", "mlx")),
    ("paddle", "losses/divergence", lambda: F.kl_div(F.log_softmax(LOGITS, -1), TARGET, reduction="mean")),
    *((file, "losses/binary", lambda: F.binary_cross_entropy(SURE, TRUTH)) for file in ("paddle", "mlx")),
    ("keras", "losses/binary", lambda: F.binary_cross_entropy(SURE.clip(1e-7, 1 - 1e-7), TRUTH)),
]  # fmt: skip


@pytest.mark.parametrize("file, name, loss", LOSSES, ids=[f"{row[0]}-{row[1]}" for row in LOSSES])
def test_losses(file, name, loss):
    assert abs(loss().item() - FILES[file][name]) < (1e-5 if file in ("mlx", "onnx") else 1e-6)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.dense = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 4)

    def forward(self, x):
        return self.dense(self.lstm(x)[1][0][-1])


def flax_mlp():
    return Named(
        first=nn.Linear(6, 8), norm=nn.LayerNorm(8, eps=1e-6), gelu=nn.GELU(approximate="tanh"), last=nn.Linear(8, 4)
    )


def keras_mlp():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, eps=1e-3), nn.ReLU(), nn.Linear(8, 4))


TUTORIALS = [
    ("flax", flax_mlp, lambda p: optim.AdamW(p, lr=0.05, weight_decay=1e-4), "rows", 1e-8),
    ("keras", keras_mlp, lambda p: optim.SGD(p, lr=0.05, momentum=0.9), "rows", 1e-5),
    ("paddle", Classifier, lambda p: optim.Adam(p, lr=0.05), "sequences", 1e-8),
]


@pytest.mark.parametrize("file, make, rule, name, bound", TUTORIALS, ids=[row[0] for row in TUTORIALS])
def test_a_ported_tutorial_has_the_same_curve(file, make, rule, name, bound):
    net, found = loaded(file, "tutorial", make, {})
    optimizer, x = rule(net.parameters()), mg.tensor(INPUTS[name])
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), LABELS[: len(x)])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert abs(np.array(losses) - found["losses"]).max() < bound
    assert losses[-1] < losses[0] / 2
