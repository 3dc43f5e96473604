"""What a conversion refuses, and what may be given to it."""

import json
import pickle
import sys
import types
import zipfile

import numpy as np
import pytest
from checks import tensor

import minigrad as mg
from minigrad import convert, nn

LAYER = {"gamma": np.ones(4), "beta": np.zeros(4)}
BATCH = {**LAYER, "moving_mean": np.zeros(4), "moving_variance": np.ones(4)}
GATES = {"kernel": np.ones((4, 12)), "recurrent_kernel": np.ones((3, 12)), "bias": np.ones(12)}
RESET = {"kernel": np.ones((4, 9)), "recurrent_kernel": np.ones((3, 9)), "bias": np.ones(9)}
KERNEL = {"kernel": np.ones((4, 4)), "bias": np.ones(4)}
KERAS_BATCH = {"eps": 1e-3, "momentum": 0.01}


def heads(out):
    """Attention of two heads, of width 2."""
    into = {"kernel": np.ones((4, 2, 2)), "bias": np.ones((2, 2))}
    return {"query": into, "key": into, "value": into, out: {"kernel": np.ones((2, 2, 4)), "bias": np.ones(4)}}


# (framework, arrays, module, what the error names)
CONTRADICTIONS = [
    ("keras", heads("attention_output"), lambda: nn.MultiheadAttention(4, 4), "num_heads=2, as in Keras .*, got 4"),
    ("flax", heads("out"), lambda: nn.MultiheadAttention(4, 1), "num_heads=2, as in Flax .*, got 1"),
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


def test_modules_and_arrays_may_be_on_a_gpu(device):
    """The result is for load_state_dict, or for another framework, in the memory of the CPU."""
    net = nn.LSTM(4, 3, bias="input").to(device)
    weights = [tensor(np.ones(shape), device) for shape in ((4, 12), (3, 12), (12,))]
    net.load_state_dict(convert.keras(weights, net))
    assert [a.tolist() for a in convert.to_keras(net)] == [a.tolist() for a in weights]
    assert convert.to_torch(net)["bias_hh_l0"].tolist() == [0.0] * 12


class Tree(dict):
    """What h5py makes of a file, from nested dicts."""

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


def layer(kind, *arrays, **config):
    return {"class_name": kind, "config": config}, {"vars": {str(k): a for k, a in enumerate(arrays)}}


@pytest.fixture
def keras_file(tmp_path, monkeypatch, rng):
    """A function that writes a .keras file of layers, as Keras 3.15.1 does, which a stand-in for h5py reads."""

    def write(*layers):
        path, content = tmp_path / "m.keras", {}
        for model, part in layers:
            same = sum(name.rstrip("_0123456789") == SNAKE[model["class_name"]] for name in content)
            content[SNAKE[model["class_name"]] + (f"_{same}" if same else "")] = part
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("metadata.json", "{}")
            file.writestr("config.json", json.dumps({"config": {"layers": [model for model, _ in layers]}}))
            file.writestr("model.weights.h5", b"")
        monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace(File=lambda file: Tree(layers=content)))
        return path

    return write


SNAKE = {
    "Dense": "dense", "LayerNormalization": "layer_normalization", "LeakyReLU": "leaky_re_lu", "Dropout": "dropout",
    "Bidirectional": "bidirectional", "LSTM": "lstm", "ReLU": "re_lu",
    "Conv2D": "conv2d", "SeparableConv2D": "separable_conv2d", "DepthwiseConv2D": "depthwise_conv2d", "GroupNormalization": "group_normalization",
}  # fmt: skip


def test_a_keras_file_says_its_order_and_its_arguments(keras_file, rng):
    one, two = rng.standard_normal((2, 4, 4))
    path = keras_file(
        layer("Dense", one, np.zeros(4), activation="linear"),
        layer("LayerNormalization", np.ones(4), np.zeros(4), epsilon=1e-5), layer("LeakyReLU", negative_slope=0.1),
        layer("Dropout"), layer("Dense", two, np.zeros(4)),
    )  # fmt: skip

    def net(eps=1e-5, slope=0.1):
        return nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=eps), nn.LeakyReLU(slope), nn.Linear(4, 4))

    state = convert.keras(path, net())
    assert (state["0.weight"] == one.T).all()
    assert (state["3.weight"] == two.T).all()
    with pytest.raises(ValueError, match=r"1: expected eps=1e-05, as in Keras .* with epsilon=1e-05, got 0.001"):
        convert.keras(path, net(eps=1e-3))
    with pytest.raises(ValueError, match=r"2: expected negative_slope=0.1"):
        convert.keras(path, net(slope=0.3))


def test_each_layer_of_a_keras_file_has_its_own_arguments(keras_file):
    """Also where a module of minigrad is several layers, and beside layers without weights."""
    arrays = [np.ones(shape) for shape in ((4, 16), (4, 16), (16,))]
    path = keras_file(layer("LSTM", *arrays, activation="relu"), layer("LSTM", *arrays, activation="tanh"))
    with pytest.raises(ValueError, match="l0: expected activation='relu'"):
        convert.keras(path, nn.LSTM(4, 4, 2, bias="input"))
    path = keras_file(
        layer("ReLU", negative_slope=0.0, max_value=None),
        layer("LayerNormalization", np.ones(4), np.zeros(4), epsilon=1e-5),
    )
    convert.keras(path, nn.Sequential(nn.ReLU(), nn.LayerNorm(4, eps=1e-5)))
    with pytest.raises(ValueError, match="1: expected eps=1e-05"):
        convert.keras(path, nn.Sequential(nn.ReLU(), nn.LayerNorm(4, eps=1e-3)))


def test_a_keras_file_contradicts_what_arrays_do_not_say(keras_file):
    window = layer("Conv2D", np.ones((3, 3, 1, 4)), np.ones(4), strides=[2, 2], dilation_rate=[1, 1])
    groups = layer("GroupNormalization", np.ones(4), np.zeros(4), groups=2, epsilon=1e-3)
    path = keras_file(window, groups)
    convert.keras(path, nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.GroupNorm(2, 4, eps=1e-3)))
    for net, error in ((nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4, eps=1e-3)), r"0: expected stride=\(2, 2\)"),
                       (nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.GroupNorm(4, 4, eps=1e-3)), "1: expected num_groups=2")):  # fmt: skip
        with pytest.raises(ValueError, match=error):
            convert.keras(path, net)
    arrays = [np.ones(shape) for shape in ((4, 12), (3, 12), (12,))]
    lstm = {"layer": {"config": {}}, "backward_layer": {"config": {"go_backwards": True}}}
    cells = {name: {"cell": layer("LSTM", *arrays)[1]} for name in ("forward_layer", "backward_layer")}
    for kinds, net, argument, usual in (
        ((layer("Bidirectional", merge_mode="sum", **lstm)[0], cells), nn.LSTM(4, 3, bias="input", bidirectional=True), "merge_mode", "concat"),
        (layer("LSTM", *arrays, go_backwards=True), nn.LSTM(4, 3, bias="input"), "go_backwards", False),
    ):  # fmt: skip
        path = keras_file(kinds)
        with pytest.raises(ValueError, match=f"expected {argument}={usual!r}, got .*: if the code around the layer"):
            convert.keras(path, net)
        convert.keras(path, net, arguments={argument: usual})


@pytest.mark.parametrize("padding, stride, same, others", [
    ("same", 1, ("same", 1), (0, "valid", 2)), ("valid", 1, (0, "valid"), (1, "same")), ("same", 2, ("same",), (0, 1)),
])  # fmt: skip
def test_padding_in_a_keras_file(keras_file, padding, stride, same, others):
    path = keras_file(layer("Conv2D", np.ones((3, 3, 1, 4)), np.ones(4), strides=[stride] * 2, padding=padding))
    for value in same:
        convert.keras(path, nn.Conv2d(1, 4, 3, stride, value))
    for value in others:
        with pytest.raises(ValueError, match=f"padding='{padding}', as in the source, got "):
            convert.keras(path, nn.Conv2d(1, 4, 3, stride, value))
        convert.keras(path, nn.Conv2d(1, 4, 3, stride, value), arguments={"padding": None})


def test_convolutions_of_each_channel(keras_file, rng):
    """Keras stores (height, width, in, multiplier) for them, and two layers of minigrad as one SeparableConv2D."""
    depth, point = rng.standard_normal((3, 2, 4, 2)), rng.standard_normal((1, 1, 8, 5))
    options = {"strides": [2, 2], "dilation_rate": [1, 1], "padding": "valid"}
    separable = layer("SeparableConv2D", depth, point, np.ones(5), name="thin", **options)
    alone = layer("DepthwiseConv2D", depth, np.ones(8), **options)
    path = keras_file(separable, alone)
    net = nn.Sequential(
        nn.Conv2d(4, 8, (3, 2), 2, groups=4, bias=False), nn.Conv2d(8, 5, 1), nn.Conv2d(4, 8, (3, 2), 2, groups=4)
    )
    state = convert.keras(path, net)
    kernels = np.moveaxis(depth, (2, 3), (0, 1)).reshape(8, 1, 3, 2)  # a row for each channel and multiplier
    assert all((state[name] == kernels).all() for name in ("0.weight", "2.weight"))
    assert (state["1.weight"][:, :, 0, 0] == point[0, 0].T).all()
    net.load_state_dict({name: mg.tensor(value) for name, value in state.items()})
    grouped = convert.to_keras(net[2], arguments={"strides": [2, 2], "dilation_rate": [1, 1], "padding": None})[0]
    assert (grouped.shape, grouped.dtype) == ((3, 2, 1, 8), "float32")
    assert (grouped.reshape(depth.shape) == depth.astype("float32")).all()
    with pytest.raises(ValueError, match=r"0: expected stride=\(2, 2\)"):
        convert.keras(path, nn.Sequential(nn.Conv2d(4, 8, (3, 2), groups=4, bias=False), *net[1:]))
    with pytest.raises(ValueError, match=r"got \(2, 4, 3, 2\) of 'thin': .* in the model's order"):
        convert.keras(path, nn.Sequential(nn.Conv2d(8, 5, 1, 2, bias=False), net[1], net[2]))


def test_a_list_of_arrays_has_no_names():
    with pytest.raises(ValueError, match="names with arrays by path, got names with arrays in the order of the layers"):
        convert.keras([np.ones((4, 4)), np.ones(4)], nn.Linear(4, 4), names={"": "dense"})


def test_both_directions_of_a_keras_file(keras_file, rng):
    parts = [[rng.standard_normal(shape) for shape in ((4, 12), (3, 12), (12,))] for _ in range(2)]
    cells = {
        f"{name}_layer": {"cell": layer("LSTM", *arrays)[1]}
        for name, arrays in zip(("forward", "backward"), parts, strict=True)
    }
    net = nn.LSTM(4, 3, bias="input", bidirectional=True)
    for config, error in (({}, None), ({"activation": "relu"}, "activation='relu'"),
                          ({"recurrent_activation": "hard_sigmoid"}, "another hard_sigmoid")):  # fmt: skip
        one = {"layer": {"config": {}}, "backward_layer": {"config": config}}
        model = layer("Bidirectional", merge_mode="concat", **(one if config else {"layer": {"config": config}}))[0]
        path = keras_file((model, cells))
        if error is None:
            expected = convert.keras([*parts[0], *parts[1]], net)
            assert all((convert.keras(path, net)[name] == a).all() for name, a in expected.items())
        else:
            with pytest.raises(ValueError, match=error):
                convert.keras(path, net)


def test_other_files(tmp_path, keras_file, monkeypatch):
    arrays = {"0.weight": np.eye(4)[:2].T, "0.bias": np.ones(2)}
    net = nn.Sequential(nn.Linear(4, 2))
    np.savez(tmp_path / "w.npz", **arrays)
    mg.save(arrays, tmp_path / "w.safetensors")
    for path in (tmp_path / "w.npz", str(tmp_path / "w.safetensors")):
        assert (convert.paddle(path, net)["0.weight"] == arrays["0.weight"].T).all()
    half = {name: a.astype("float16", order="C") for name, a in arrays.items()}
    pytest.importorskip("safetensors.numpy").save_file(half, tmp_path / "h.safetensors")
    assert (convert.paddle(tmp_path / "h.safetensors", net)["0.weight"] == arrays["0.weight"].T).all()
    (tmp_path / "w.pdparams").write_bytes(pickle.dumps(arrays))
    with pytest.raises(ValueError, match=r"a pickle, which is not read(.|\n)*paddle.load"):
        convert.paddle(tmp_path / "w.pdparams", net)
    with pytest.raises(ValueError, match="weights alone"):
        convert.keras(tmp_path / "model.weights.h5", net)
    path = keras_file()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"expected the package h5py, to read .*: pip install h5py"):
        convert.keras(path, net)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("config.json", '{"config": {}}')
        file.writestr("model.weights.h5", b"")
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace())
    with pytest.raises(ValueError, match="expected a Sequential or functional model"):
        convert.keras(path, net)


@pytest.mark.parametrize("content", [{"a": "b"}, {"config.json": "{}"}, {"config.json": "{"}])
def test_other_archives_are_named(content, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", types.SimpleNamespace())
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as file:
        for part, text in content.items():
            file.writestr(part, text)
    with pytest.raises(ValueError, match=r"expected a file of model.save\('model.keras'\), got .*m.keras: "):
        convert.keras(tmp_path / "m.keras", nn.Linear(4, 2))
    (tmp_path / "t.npz").write_bytes(b"text")
    with pytest.raises(ValueError, match=r"t\.npz is a text file"):
        convert.paddle(tmp_path / "t.npz", nn.Linear(4, 2))
    np.savez(tmp_path / "o.npz", weight=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"\[convert.paddle\] expected arrays of numbers in .*o.npz"):
        convert.paddle(tmp_path / "o.npz", nn.Linear(4, 2))


def test_weights_leave_for_torch(rng):
    torch = pytest.importorskip("torch")
    x = rng.standard_normal((5, 2, 3)).astype("float32")
    for name in ("LSTM", "GRU", "RNN"):
        net = getattr(nn, name)(3, 4, 2, bias="input", bidirectional=True)
        other = getattr(torch.nn, name)(3, 4, 2, bidirectional=True)
        other.load_state_dict({key: torch.tensor(a) for key, a in convert.to_torch(net).items()})
        assert abs(net(mg.tensor(x))[0].detach().numpy() - other(torch.tensor(x))[0].detach().numpy()).max() < 1e-6
    net, other = (one.Sequential(one.ConvTranspose2d(2, 3, 3), one.PReLU(3)) for one in (nn, torch.nn))
    other.load_state_dict({key: torch.tensor(a) for key, a in convert.to_torch(net).items()})
    for make, error in [
        (lambda: nn.MinGRU(3, 4), "layers that PyTorch .* has too, got MinGRU"),
        (lambda: nn.GRU(3, 4, reset_after=False), "expected reset_after=True, as in PyTorch"),
        (lambda: nn.LSTM(3, 4, gate_activation="hard_sigmoid"), "gate_activation='sigmoid'"),
        (lambda: nn.LSTM(3, 4, norm="layer"), "norm=None"),
        (lambda: nn.Sequential(nn.BatchNorm1d(3, unbiased_running_var=False)), "unbiased_running_var=True"),
    ]:
        with pytest.raises(ValueError, match=error):
            convert.to_torch(make())


def test_an_npz_file_of_a_list_has_its_order(tmp_path):
    rng = np.random.default_rng(0)
    net = nn.Sequential(*(nn.Linear(3, 3) for _ in range(6)))  # arr_10 comes after arr_9
    weights = [rng.standard_normal(shape) for _ in range(6) for shape in ((3, 3), (3,))]
    np.savez(tmp_path / "weights.npz", *weights)
    expected = convert.keras(weights, net)
    with np.load(tmp_path / "weights.npz") as file:
        for source in (tmp_path / "weights.npz", file):
            found = convert.keras(source, net)
            assert {*found} == {*expected}
            assert all((found[name] == value).all() for name, value in expected.items())


def test_arrays_in_another_order_are_refused():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    weights = [np.ones((3, 3, 1, 2)), np.zeros(2), np.ones((8, 2)), np.zeros(2)]
    with pytest.raises(
        ValueError, match=r"0: expected arrays of a layer of kind conv, got kernel \(2,\), bias \(8, 2\)"
    ):
        convert.keras(weights[::-1], net)
