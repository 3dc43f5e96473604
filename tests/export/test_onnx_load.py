"""Weights of ONNX models are read back: minigrad's own, PyTorch's, and nodes made by hand."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.engine.tensor.trees import leaves

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(3)

MODULES = {
    "an MLP": (lambda: nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 2, bias=False)), (4, 3)),
    "a square Linear of sequences": (lambda: nn.Linear(3, 3), (4, 2, 3)),
    "a CNN": (lambda: nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.InstanceNorm2d(3, affine=True), nn.ConvTranspose2d(3, 4, 2)), (4, 1, 6, 6)),
    "Conv1d": (lambda: nn.Conv1d(3, 4, 3), (4, 3, 6)),
    "BatchNorm1d without affine": (lambda: nn.BatchNorm1d(3, affine=False), (4, 3)),
    **{f"{kind}, bias={bias!r}": (lambda kind=kind, bias=bias: getattr(nn, kind)(3, 5, 2, bias=bias, bidirectional=True), (4, 2, 3))
       for kind in ("RNN", "LSTM", "GRU") for bias in (True, False, "input")},
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_round_trip(name, tmp_path, rng):
    make, shape = MODULES[name]
    first, second = make(), make()
    x = mg.tensor(rng.normal(size=shape).astype(np.float32))
    first(x)  # running statistics
    mg.onnx.export(first, x, tmp_path / "m.onnx")
    assert mg.onnx.load(tmp_path / "m.onnx", second) is second
    for a, b in zip(leaves(first.eval()(x)), leaves(second.eval()(x)), strict=True):
        assert a.tolist() == b.tolist()


def recurrent(path, op, rng, bias=True, **attributes):
    """Write a model of one node, and return its weights: W, R and B with gates in the order of ONNX."""
    gates, names = {"LSTM": 4, "GRU": 3, "RNN": 1}[op], ["W", "R", "B"] if bias else ["W", "R"]
    shapes = [(1, 5 * gates, 3), (1, 5 * gates, 5), (1, 10 * gates)]
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in zip(names, shapes, strict=False)}
    node = onnx.helper.make_node(op, ["x", *names], ["y", "h"], hidden_size=5, **attributes)
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node], "g", [make("x", 1, ["T", "N", 3])], [make("y", 1, None), make("h", 1, None)],
        [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()],
    )  # fmt: skip
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    "op, attributes, module",
    [
        ("LSTM", {}, nn.LSTM(3, 5)),
        ("LSTM", {}, nn.LSTM(3, 5, bias="input")),
        ("GRU", {"linear_before_reset": 1}, nn.GRU(3, 5)),
        ("GRU", {}, nn.GRU(3, 5, reset_after=False)),
        ("GRU", {}, nn.GRU(3, 5, reset_after=False, bias="input")),
        ("RNN", {}, nn.RNN(3, 5)),
        ("RNN", {"activations": ["Relu"]}, nn.RNN(3, 5, nonlinearity="relu", bias="input")),
    ],
)
def test_recurrent_node(op, attributes, module, bias, tmp_path, rng):
    """As onnxruntime computes the node, whose gates come in another order."""
    path = str(tmp_path / "m.onnx")
    recurrent(path, op, rng, bias, **attributes)
    x = rng.normal(size=(4, 2, 3)).astype(np.float32)
    y, h = runtime.InferenceSession(path).run(None, {"x": x})
    output, last = mg.onnx.load(path, module)(mg.tensor(x))
    np.testing.assert_allclose(output.detach().numpy(), y[:, 0], rtol=0, atol=3e-6)
    last = last[0] if isinstance(last, tuple) else last
    np.testing.assert_allclose(last.detach().numpy(), h, rtol=0, atol=3e-6)


def test_a_model_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5)
    )
    ours = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)).eval()
    network(torch.randn(8, 1, 6, 6))
    x = torch.randn(3, 1, 6, 6)
    with pytest.warns(DeprecationWarning, match="TorchScript"):
        torch.onnx.export(network.eval(), (x,), tmp_path / "m.onnx", dynamo=False, do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE)  # fmt: skip
    y = mg.onnx.load(tmp_path / "m.onnx", ours)(mg.tensor(x.numpy())).detach().numpy()
    np.testing.assert_allclose(y, network(x).detach().numpy(), rtol=0, atol=1e-6)


MODEL = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.LSTM(5, 4))
MISFITS = {
    "expected 1 layers of kind 'linear' as in the model, got 0 ()": lambda: nn.LSTM(3, 5),
    "expected 0.weight of shape (6, 3), got (5, 3) in the model": lambda: nn.Sequential(nn.Linear(3, 6), nn.LayerNorm(6), nn.LSTM(6, 4)),
    "expected 1 with eps=1e-05 as in the model, got 0.001": lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5, eps=1e-3), nn.LSTM(5, 4)),
    "expected 0 with bias, which the model has, got none": lambda: nn.Sequential(nn.Linear(3, 5, bias=False), nn.LayerNorm(5), nn.LSTM(5, 4)),
    "expected recurrent layers without a norm, got 2 with norm='layer'": lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.LSTM(5, 4, norm="layer")),
    "expected 2 with the gates of ONNX, got LSTM(5, 4, gate_activation='hard_sigmoid')": lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.LSTM(5, 4, gate_activation="hard_sigmoid")),
}  # fmt: skip


@pytest.mark.parametrize("says", MISFITS)
def test_a_module_that_does_not_fit_is_refused(says, tmp_path):
    """The module keeps its weights."""
    mg.onnx.export(MODEL, mg.ones((4, 2, 3)), tmp_path / "m.onnx")
    module = MISFITS[says]()
    before = {name: x.tolist() for name, x in module.state_dict().items()}
    with pytest.raises(ValueError, match=r"\[onnx.load\]") as caught:
        mg.onnx.load(tmp_path / "m.onnx", module)
    assert str(caught.value) == f"[onnx.load] {says}"
    assert {name: x.tolist() for name, x in module.state_dict().items()} == before


@pytest.mark.parametrize("after", [True, False])
def test_a_gru_has_to_reset_where_the_model_does(after, tmp_path, rng):
    recurrent(str(tmp_path / "m.onnx"), "GRU", rng, linear_before_reset=int(after))
    with pytest.raises(ValueError, match=rf"expected GRU with reset_after={after} as in the model, got {not after}"):
        mg.onnx.load(tmp_path / "m.onnx", nn.GRU(3, 5, reset_after=not after))


@pytest.mark.parametrize(
    "op, attributes, odd",
    [
        ("LSTM", {"clip": 3.0}, "clip"),
        ("LSTM", {"input_forget": 1}, "input_forget"),
        ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "activations=['HardSigmoid', 'Tanh', 'Tanh']"),
    ],
)
def test_nodes_that_minigrad_does_not_compute_are_refused(op, attributes, odd, tmp_path, rng):
    recurrent(str(tmp_path / "m.onnx"), op, rng, **attributes)
    with pytest.raises(ValueError, match=r"\[onnx.load\]") as caught:
        mg.onnx.load(tmp_path / "m.onnx", getattr(nn, op)(3, 5))
    assert str(caught.value) == f"[onnx.load] expected the {op} of minigrad.nn, got {odd} in ''"


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        mg.onnx.load(tmp_path / "none.onnx", nn.Linear(3, 5))
