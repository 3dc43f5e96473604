"""Exported models give in onnxruntime what the module gives, also for other lengths of the free axes."""

import inspect

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn
from minigrad.engine.tensor.trees import leaves, map_tensors
from minigrad.nn import functional as F

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
runtime.set_default_logger_severity(3)

SEQUENCES = {"x": {0: "T", 1: "N"}}
WITH_LENGTHS = {**SEQUENCES, "lengths": {0: "N"}}
ROWS = {0: "N"}
IMAGES = {0: "N", 2: "H", 3: "W"}


@pytest.fixture(autouse=True)
def seed():
    """Weights are the same in every run: some make LN-LSTMs that double the errors of their steps."""
    mg.manual_seed(0)


class Call(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y=None):
        return self.function(x) if y is None else self.function(x, y)


def floats(*shape):
    return lambda rng: mg.tensor(rng.normal(0.2, 1.0, shape).astype(np.float32))


def below(high, *shape):
    return lambda rng: mg.tensor(rng.integers(0, high, shape))


def given(*values):
    return lambda rng: mg.tensor(np.array(values))


def drawn(tree, rng):
    """The arguments of a call, with a tensor in place of each function."""
    if isinstance(tree, dict):
        return {name: drawn(part, rng) for name, part in tree.items()}
    if isinstance(tree, tuple):
        return tuple(drawn(part, rng) for part in tree)
    return tree(rng) if callable(tree) else tree


def results(module, arguments):
    args, kwargs = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    with mg.no_grad():
        return [x.numpy() for x in leaves(module(*args, **kwargs)) if x is not None]


def agrees(module, example, dynamic, other, path, rng, opset=20):
    """Export with the example, then compare with float64 for the example and for the other arguments.

    The runtime may be some times as far from float64 as minigrad's own float32 is.
    """
    for p in module.parameters():
        p.data = p.detach() + mg.tensor(rng.normal(0, 0.1, p.shape).astype(np.float32))
    example, other = ((tree,) if callable(tree) else tree for tree in (example, other))
    first = drawn(example, rng)
    module.train()
    mg.onnx.export(module, first, path, dynamic, opset=opset)
    assert module.training
    onnx.checker.check_model(str(path), full_check=True)
    session = runtime.InferenceSession(str(path))
    module.eval()
    calls = [first] if other is None else [first, drawn(other, rng)]
    plain = [results(module, arguments) for arguments in calls]
    module.double()
    for arguments, singles in zip(calls, plain, strict=True):
        tensors = [x for x in leaves(arguments) if isinstance(x, mg.Tensor)]
        found = session.run(None, {x.name: t.numpy() for x, t in zip(session.get_inputs(), tensors, strict=True)})
        doubles = results(module, map_tensors(lambda x: x.double() if x.dtype.kind == "f" else x, arguments))
        for y, single, exact in zip(found, singles, doubles, strict=True):
            assert (y.shape, y.dtype) == (single.shape, single.dtype)
            if y.dtype.kind != "f":
                np.testing.assert_array_equal(y, single)
                continue
            scale = 1e-6 * max(1.0, np.abs(exact).max(initial=0))
            assert np.abs(y - exact).max(initial=0) <= 8 * np.abs(single - exact).max(initial=0) + scale
    return onnx.load(str(path))


def operators(graph):
    """Count every operator of a graph and of the bodies in it."""
    found = {}
    for node in graph.node:
        found[node.op_type] = found.get(node.op_type, 0) + 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                for name, n in operators(attribute.g).items():
                    found[name] = found.get(name, 0) + n
    return found


# ── layers ────────────────────────────────────────────────────────────────────────────────────────

ENCODER = {"batch_first": True, "norm_first": True}
LAYERS = [  # the module, the example, its free axes, and other arguments
    ("an MLP", lambda: nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU("tanh"), nn.Dropout(0.5), nn.Linear(8, 2)), floats(4, 3), {"x": ROWS}, floats(9, 3)),
    ("Linear of sequences", lambda: nn.Linear(3, 5), floats(4, 2, 3), {"x": {0: "N", 1: "T"}}, floats(6, 7, 3)),
    ("a CNN", lambda: nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, stride=2, groups=2), nn.GroupNorm(2, 6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)), floats(2, 1, 12, 12), {"x": IMAGES}, floats(3, 1, 17, 20)),
    ("LeNet's head", lambda: nn.Sequential(nn.Conv2d(1, 4, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(64, 3)), floats(2, 1, 12, 12), {"x": ROWS}, floats(5, 1, 12, 12)),
    ("Conv1d", lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), floats(2, 3, 12), {"x": {0: "N", 2: "T"}}, floats(3, 3, 15)),
    ("Conv1d, same", lambda: nn.Conv1d(3, 4, 4, padding="same", dilation=2), floats(2, 3, 12), {"x": {0: "N", 2: "T"}}, floats(3, 3, 15)),
    ("Conv2d of one image", lambda: nn.Conv2d(3, 4, (1, 3), stride=(2, 1)), floats(3, 7, 8), {"x": {1: "H"}}, floats(3, 10, 8)),
    ("ConvTranspose2d", lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), floats(2, 4, 6, 7), {"x": IMAGES}, floats(3, 4, 9, 5)),
    ("MaxPool2d, ceil", lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True), floats(2, 3, 8, 8), {"x": ROWS}, floats(4, 3, 8, 8)),
    ("AvgPool2d, padded", lambda: nn.AvgPool2d(3, 2, 1), floats(3, 8, 8), {}, None),
    ("AvgPool2d, no padding counted", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), floats(2, 3, 9, 8), {"x": IMAGES}, floats(4, 3, 8, 11)),
    ("AvgPool2d, ceil", lambda: nn.AvgPool2d(3, 2, ceil_mode=True), floats(2, 3, 8, 8), {"x": ROWS}, floats(4, 3, 8, 8)),
    ("AvgPool2d, a divisor", lambda: nn.AvgPool2d(2, divisor_override=3), floats(2, 3, 8, 8), {"x": ROWS}, floats(4, 3, 8, 8)),
    ("AdaptiveAvgPool2d", lambda: nn.AdaptiveAvgPool2d((3, 5)), floats(2, 3, 8, 8), {"x": ROWS}, floats(4, 3, 8, 8)),
    ("MaxPool1d", lambda: nn.MaxPool1d(2), floats(2, 3, 8), {"x": ROWS}, floats(4, 3, 8)),
    ("AvgPool1d", lambda: nn.AvgPool1d(2), floats(2, 3, 8), {"x": ROWS}, floats(4, 3, 8)),
    ("Conv2d, strided same", lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), floats(2, 3, 8, 8), {"x": ROWS}, floats(4, 3, 8, 8)),
    ("PixelShuffle", lambda: nn.PixelShuffle(2), floats(2, 4, 3, 3), {"x": ROWS}, floats(5, 4, 3, 3)),
    ("Unflatten", lambda: nn.Unflatten(1, (2, 2)), floats(2, 4, 3), {"x": ROWS}, floats(5, 4, 3)),
    *((f"{pad.__name__}, {width}", (lambda pad=pad: pad(1)), floats(2, 3, 5), {"x": ROWS}, floats(4, 3, 5)) for width, pad in enumerate((nn.ZeroPad1d, nn.ReflectionPad1d, nn.ReplicationPad1d))),
    *((f"{pad.__name__}, {width}", (lambda pad=pad: pad(1)), floats(2, 3, 5, 5), {"x": ROWS}, floats(4, 3, 5, 5)) for width, pad in enumerate((nn.ZeroPad2d, nn.ReflectionPad2d, nn.ReplicationPad2d))),
    ("ConstantPad", lambda: nn.Sequential(nn.ConstantPad1d(1, 2.0), nn.ConstantPad1d((0, 2), -1.0)), floats(2, 3, 5), {"x": ROWS}, floats(4, 3, 5)),
    ("ConstantPad2d", lambda: nn.ConstantPad2d(1, 2.0), floats(2, 3, 5, 5), {"x": ROWS}, floats(4, 3, 5, 5)),
    ("Dropout1d", lambda: nn.Sequential(nn.Dropout1d()), floats(2, 3, 5), {}, None),
    ("Dropout2d", lambda: nn.Sequential(nn.Dropout2d()), floats(2, 3, 5, 5), {}, None),
    ("Transformer", lambda: nn.Transformer(8, 2, 1, 1, 16), {"src": floats(5, 2, 8), "tgt": floats(4, 2, 8)}, {"src": {0: "S", 1: "N"}, "tgt": {0: "T", 1: "N"}}, {"src": floats(3, 4, 8), "tgt": floats(6, 4, 8)}),
    ("means", lambda: Call(lambda x: x - x.mean(-1, keepdims=True) + x.mean()), floats(4, 3), {}, None),
    ("Upsample", lambda: nn.Upsample(scale_factor=2), floats(2, 3, 4, 4), {"x": ROWS}, floats(3, 3, 4, 4)),
    ("Upsample, bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), floats(2, 3, 4, 4), {"x": ROWS}, floats(3, 3, 4, 4)),
    ("BatchNorm1d", lambda: nn.BatchNorm1d(3), floats(4, 3), {"x": ROWS}, floats(6, 3)),
    ("BatchNorm1d, no affine", lambda: nn.BatchNorm1d(3, affine=False), floats(4, 3, 5), {"x": {0: "N", 2: "T"}}, floats(6, 3, 2)),
    ("BatchRenorm2d", lambda: nn.BatchRenorm2d(3), floats(4, 3, 5, 5), {"x": IMAGES}, floats(6, 3, 2, 2)),
    ("SyncBatchNorm", lambda: nn.SyncBatchNorm(3), floats(4, 3), {"x": ROWS}, floats(6, 3)),
    ("RecurrentBatchNorm1d", lambda: nn.RecurrentBatchNorm1d(3, 5), (floats(4, 3), 2), {"x": ROWS}, (floats(6, 3), 2)),
    ("InstanceNorm1d", lambda: nn.InstanceNorm1d(3), floats(4, 3, 5), {"x": {0: "N", 2: "T"}}, floats(6, 3, 9)),
    ("InstanceNorm2d, tracked", lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True), floats(4, 3, 5, 5), {"x": ROWS}, floats(6, 3, 5, 5)),
    ("LayerNorm of two axes", lambda: nn.LayerNorm((3, 5)), floats(4, 3, 5), {"x": ROWS}, floats(6, 3, 5)),
    ("LayerNorm, a bias alone", lambda: nn.LayerNorm(5, elementwise_affine=False), floats(4, 5), {"x": ROWS}, floats(6, 5)),
    ("RMSNorm", lambda: nn.RMSNorm(5), floats(4, 3, 5), {"x": {0: "N", 1: "T"}}, floats(6, 2, 5)),
    ("ScaleNorm", lambda: nn.ScaleNorm(5), floats(3, 5), {"x": ROWS}, floats(4, 5)),
    ("DyT", lambda: nn.DyT(5), floats(3, 5), {"x": ROWS}, floats(4, 5)),
    ("DeepNorm", lambda: nn.DeepNorm(5, 1.5), (floats(3, 5), floats(3, 5)), {}, None),
    ("LayerScale", lambda: nn.LayerScale(5), floats(3, 5), {"x": ROWS}, floats(4, 5)),
    ("FilterResponseNorm2d, TLU", lambda: nn.Sequential(nn.FilterResponseNorm2d(3), nn.TLU(3)), floats(2, 3, 4, 4), {"x": ROWS}, floats(3, 3, 4, 4)),
    ("AdaLN", lambda: nn.AdaLN(4, 3), (floats(2, 5, 4), floats(2, 3)), {}, None),
    ("FiLM", lambda: nn.FiLM(3, 4), (floats(2, 3, 5, 5), floats(2, 4)), {}, None),
    ("weight_norm", lambda: nn.utils.weight_norm(nn.Linear(3, 4)), floats(2, 3), {"x": ROWS}, floats(5, 3)),
    ("spectral_norm", lambda: nn.utils.spectral_norm(nn.Conv2d(3, 4, 3)), floats(2, 3, 5, 5), {"x": ROWS}, floats(3, 3, 5, 5)),
    ("Embedding", lambda: nn.Embedding(10, 4), below(10, 3, 5), {"indices": {0: "N", 1: "T"}}, below(10, 4, 7)),
    ("LearnedPositions", lambda: nn.LearnedPositions(40, 4), floats(5, 2, 4), {"x": {0: "T"}}, floats(9, 2, 4)),
    ("SinusoidalPositions", lambda: nn.SinusoidalPositions(4, batch_first=True), floats(2, 5, 4), {"x": {1: "T"}}, floats(2, 100, 4)),
    ("CosineSimilarity", lambda: nn.CosineSimilarity(), (floats(3, 5), floats(3, 5)), {}, None),
    ("a Transformer", lambda: nn.Sequential(nn.Embedding(20, 8), nn.SinusoidalPositions(8, batch_first=True), nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, **ENCODER), 2), nn.Linear(8, 20)), below(20, 2, 5), {"x": {0: "N", 1: "T"}}, below(20, 3, 8)),
    ("TransformerDecoderLayer", lambda: nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), {"tgt": floats(3, 6, 8), "memory": floats(3, 5, 8), "tgt_is_causal": True}, {"tgt": {0: "N", 1: "T"}, "memory": {0: "N", 1: "S"}}, {"tgt": floats(2, 9, 8), "memory": floats(2, 4, 8), "tgt_is_causal": True}),
]  # fmt: skip
ACTIVATIONS = [
    nn.ELU, nn.GELU, nn.GLU, nn.Hardsigmoid, nn.Hardswish, nn.Hardtanh, nn.ReLU6, nn.Softsign, nn.LeakyReLU, nn.LogSigmoid, nn.LogSoftmax, nn.Mish,
    nn.PReLU, nn.ReLU, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softmax, nn.Softplus, nn.Tanh,
]  # fmt: skip
LAYERS += [(kind.__name__, kind, floats(4, 6), {"x": ROWS}, floats(7, 6)) for kind in ACTIVATIONS]


@pytest.mark.parametrize("row", LAYERS, ids=lambda row: row[0])
def test_layer(row, tmp_path, rng):
    _, make, example, dynamic, other = row
    module = make()
    name = next(iter(inspect.signature(module.forward).parameters))
    dynamic = {name if key in ("x", "indices") else key: axes for key, axes in dynamic.items()}
    agrees(module, example, dynamic, other, tmp_path / "m.onnx", rng)


def test_every_layer_is_in_the_table():
    """The rows above and the tests below name every module that computes in evaluation."""
    elsewhere = set("BatchRenorm1d Identity Module ModuleDict ModuleList ParameterList TransformerDecoder".split())
    modules = {name for name, kind in vars(nn).items() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    layers = {name for name in modules if not name.endswith("Loss")} - elsewhere
    rows = inspect.getsource(inspect.getmodule(test_layer))
    assert not [name for name in layers if f"nn.{name}" not in rows and f'"{name}"' not in rows]


# ── recurrent layers ──────────────────────────────────────────────────────────────────────────────

KINDS = {
    "RNN": [{}, {"nonlinearity": "relu"}, {"norm": "layer"}, {"norm": "rms"}],
    "LSTM": [
        {}, {"bias": "input"}, {"norm": "layer"}, {"norm": "rms"}, {"norm": "layer", "norm_each_gate": True, "carry_norm": True},
        {"norm": "layer", "norm_cell": False}, {"gate_activation": "hard_sigmoid"},
    ],
    "GRU": [
        {}, {"bias": False}, {"norm": "layer"}, {"norm": "rms"}, {"convention": "paper"}, {"reset_after": False},
        {"reset_after": False, "norm": "rms"}, {"reset_after": False, "convention": "paper", "bias": "input"},
    ],
    "MinGRU": [{}, {"norm": "layer"}],
    "MinLSTM": [{}, {"norm": "rms"}],
}  # fmt: skip
RECURRENT = [(kind, options) for kind, several in KINDS.items() for options in several]


@pytest.mark.parametrize("kind, options", RECURRENT)
@pytest.mark.parametrize("lengths", [False, True])
def test_recurrent_layer(kind, options, lengths, tmp_path, rng):
    module = getattr(nn, kind)(3, 5, num_layers=2, bidirectional=True, **options)
    example, other, dynamic = {"x": floats(4, 2, 3)}, {"x": floats(7, 5, 3)}, SEQUENCES
    if lengths:
        dynamic = WITH_LENGTHS
        example, other = {**example, "lengths": given(4, 2)}, {**other, "lengths": given(7, 0, 3, 1, 6)}
    model = agrees(module, example, dynamic, other, tmp_path / "m.onnx", rng)
    plain = not lengths and set(options) <= {"bias", "nonlinearity", "reset_after"} and kind in ("RNN", "LSTM", "GRU")
    assert operators(model.graph).get("Scan", 0) == (0 if plain else 4)
    assert operators(model.graph).get(kind, 0) == (4 if plain else 0)


@pytest.mark.parametrize(
    "kind, options",
    [("RNN", {}), ("LSTM", {}), ("LSTM", {"norm_cell": False}), ("GRU", {}), ("GRU", {"reset_after": False})],
)
def test_recurrent_batch_norm(kind, options, tmp_path, rng):
    """The steps after the last trained one, the fourth, use its statistics."""
    module = getattr(nn, kind)(3, 5, norm="batch", max_length=6, **options)
    for _ in range(3):
        module(drawn(floats(4, 8, 3), rng))
    agrees(module, floats(3, 2, 3), {"x": {0: "T", 1: "N"}}, floats(9, 5, 3), tmp_path / "m.onnx", rng)


@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("norm", [None, "layer"])
def test_cell(kind, norm, tmp_path, rng):
    module = getattr(nn, kind)(3, 5, norm=norm)
    agrees(module, floats(2, 3), {"x": ROWS}, floats(6, 3), tmp_path / "m.onnx", rng)


def test_states_are_inputs(tmp_path, rng):
    module = nn.LSTM(3, 5, batch_first=True, norm="layer")
    dynamic = {"x": {0: "N", 1: "T"}, "hx_0": {1: "N"}, "hx_1": {1: "N"}}
    example, other = ((floats(n, t, 3), (floats(1, n, 5), floats(1, n, 5))) for n, t in ((2, 4), (3, 6)))
    model = agrees(module, example, dynamic, other, tmp_path / "m.onnx", rng)
    assert [x.name for x in model.graph.input] == ["x", "hx_0", "hx_1"]
    assert [x.name for x in model.graph.output] == ["output_0", "output_1", "output_2"]


@pytest.mark.parametrize("steps, lengths", [(3, [2]), (1, [1, 1]), (1, [1])])
@pytest.mark.parametrize("options", [{}, {"norm": "layer"}, {"reset_after": False, "bidirectional": True}])
def test_an_example_may_have_one_step_or_sample(options, steps, lengths, tmp_path, rng):
    """There, arrays broadcast that do not at other lengths."""
    module, path = nn.GRU(3, 4, **options), tmp_path / "m.onnx"
    example = {"x": mg.zeros((steps, len(lengths), 3)), "lengths": mg.tensor(lengths)}
    mg.onnx.export(module, example, path, WITH_LENGTHS)
    x, ends = rng.standard_normal((5, 2, 3)).astype(np.float32), np.array([5, 2])
    found = runtime.InferenceSession(path).run(None, {"x": x, "lengths": ends})
    for result, expected in zip(found, module(mg.tensor(x), lengths=ends), strict=True):
        np.testing.assert_allclose(result, expected.detach().numpy(), atol=1e-5)


def test_padding_has_no_influence(tmp_path, rng):
    """What is beyond a sample's length may be NaN."""
    module = nn.LSTM(3, 5, norm="layer").eval()
    path = tmp_path / "m.onnx"
    x = rng.normal(size=(4, 2, 3)).astype(np.float32)
    mg.onnx.export(module, {"x": mg.tensor(x), "lengths": mg.tensor([4, 2])}, path, WITH_LENGTHS)
    session = runtime.InferenceSession(str(path))
    lengths = np.array([4, 2])
    before = session.run(None, {"x": x, "lengths": lengths})
    x[2:, 1] = np.nan
    after = session.run(None, {"x": x, "lengths": lengths})
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


# ── attention ─────────────────────────────────────────────────────────────────────────────────────


def hidden(n, t, *lengths):
    return given(*(np.arange(t) >= length for length in lengths))


@pytest.mark.parametrize("opset", [20, 23])
@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"is_causal": True}])
def test_attention(opset, options, tmp_path, rng):
    """With a mask of the padding, a query that sees no key, and both ways of writing attention."""
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    names = ["query", "key", "value", "key_padding_mask"]
    example = {**dict.fromkeys(names[:3], floats(3, 6, 8)), names[3]: hidden(3, 6, 6, 3, 0), **options}
    other = {**dict.fromkeys(names[:3], floats(4, 9, 8)), names[3]: hidden(4, 9, 9, 0, 1, 5), **options}
    dynamic = {name: {0: "N", 1: "T"} for name in names}
    model = agrees(module, example, dynamic, other, tmp_path / "m.onnx", rng, opset)
    assert operators(model.graph).get("Attention", 0) == (opset == 23)


@pytest.mark.parametrize("opset", [20, 23])
def test_grouped_attention_with_added_mask(opset, tmp_path, rng):
    def attend(x, y):
        return F.scaled_dot_product_attention(x, x[:, :2], x[:, :2], y, enable_gqa=True)

    def added(*shape):
        return lambda rng: mg.tensor(
            np.where(rng.random(shape) < 0.5, -np.inf, rng.normal(size=shape)).astype(np.float32)
        )

    example, other = (floats(2, 4, 5, 3), added(2, 1, 5, 5)), (floats(3, 4, 7, 3), added(3, 1, 7, 7))
    dynamic = {"x": {0: "N", 2: "T"}, "y": {0: "N", 2: "T", 3: "T"}}
    agrees(Call(attend), example, dynamic, other, tmp_path / "m.onnx", rng, opset)


def test_opset_23_has_a_node_for_rms_norm(tmp_path, rng):
    counts = [
        operators(agrees(nn.RMSNorm(5), floats(4, 5), {"x": ROWS}, None, tmp_path / "m.onnx", rng, opset).graph)
        for opset in (20, 23)
    ]
    assert "RMSNormalization" not in counts[0]
    assert counts[1] == {"RMSNormalization": 1}


# ── free forwards ─────────────────────────────────────────────────────────────────────────────────

FUNCTIONS = {
    "a mean over the free axis": lambda x: x.mean(0),
    "variances": lambda x: x.var(0) + x.std(1).sum(),
    "an unbiased variance": lambda x: x.var(1, correction=1),
    "sums": lambda x: x.sum() + x.sum(0, keepdims=True) + x.sum((0, 1)),
    "extrema": lambda x: (x.max(1), x.min(0, keepdims=True), x.prod(1)),
    "positions of extrema": lambda x: (x.argmax(1), x.argmin(0), x.argmax(), x.argmax(1, keepdims=True)),
    "sorted": lambda x: mg.sort(x, 1, descending=True),
    "running sums": lambda x: mg.cumulative_sum(x, axis=0),
    "logsumexp": lambda x: mg.logsumexp(1e3 * x, axis=0) + mg.logsumexp(x, axis=1, keepdims=True),
    "softmax over the free axis": lambda x: mg.softmax(x, 0) + mg.log_softmax(x, 1),
    "reversed": lambda x: mg.flip(x, 0) + x[::-1, ::-1],
    "elements": lambda x: (x[-1], x[0, 1], x[1:-1], x[::2], x[:, None, 1], x[-2:], x[3::-1]),
    "at integers": lambda x: x[mg.tensor([1, 0, -1])],
    "joined": lambda x: mg.concat([mg.zeros((1, 3)), mg.stack([x, 2 * x], 1).reshape(-1, 3)], 0),
    "pieces": lambda x: (*mg.split(x, 3, axis=1), *mg.split(x, [1], axis=1), *mg.unstack(x, 1)),
    "shapes": lambda x: (x.reshape(-1), x.T, x[None].squeeze(0), x.reshape(3, -1), mg.moveaxis(x[:, :, None], 0, 2)),
    "repeated": lambda x: (x.broadcast_to((2, *x.shape)), mg.repeat(x, 2, axis=0), mg.tile(x, (2, 1))),
    "products": lambda x: (x @ x.T, mg.einsum("ij,kj->ik", x, x), x[0] @ x[1], mg.outer(x[0], x[1])),
    "choices": lambda x: mg.where(x > 0, x, -x) + mg.clip(x, -0.5, 0.5) + mg.maximum(x, 0.1) + mg.minimum(x, x * x),
    "powers": lambda x: mg.abs(x) ** 1.7 + x**2 + mg.abs(x) ** 0.5 + (2 + mg.abs(x)) ** -1 + mg.abs(x) ** x,
    "divisions": lambda x: (x % 0.7, x // 0.7, (10 * x).astype("int64") // 3, (10 * x).astype("int64") % 3),
    "the length as a number": lambda x: x / x.shape[0] + x * x.shape[0] + x.sum(0) / (x.shape[0] - 1),
    "made from the length": lambda x: mg.tril(x @ x.T) + mg.eye(x.shape[0]) + mg.arange(x.shape[0]) * mg.ones(x.shape[0]),
    "logic": lambda x: ((x > 0).any(1), (x < 0.5).all(0), (x != x) | ~(x >= 0) & (x == x), mg.isfinite(x), mg.isinf(x)),
    "padded": lambda x: (mg.pad(x, ((1, 2), (0, 1)), value=3.0), mg.pad(x, 1, "reflect"), mg.pad(x, 1, "edge")),
    "one-hot": lambda x: F.one_hot(x.argmax(1), 3),
    "exponentials": lambda x: mg.log1p(x * x) + mg.expm1(x) + mg.exp2(x) + mg.logaddexp(x, 2 * x) + mg.log2(1 + x * x),
    "more functions": lambda x: mg.hypot(x, x) + mg.log10(1 + x * x) + mg.erf(x) + mg.rsqrt(1 + x * x) + mg.trunc(3 * x),
    "trigonometry": lambda x: mg.sin(x) + mg.atan(x) + mg.cosh(x) + mg.asinh(x) + mg.tan(0.3 * x) + mg.acos(mg.tanh(x)),
    "normalized": lambda x: F.normalize(x) + F.cosine_similarity(x, 2 * x + 1)[:, None],
    "a reversed scan": lambda x: mg.linear_scan(mg.sigmoid(x), x, axis=0, reverse=True),
    "a scan along the second axis": lambda x: mg.linear_scan(mg.sigmoid(x), x, x[:, 0], axis=1),
    "rotated": lambda x: F.rotary(mg.concat([x, x], 1)),
    "an input": lambda x: (x, x),
    "a constant": lambda x: (x + 1, mg.ones(3)),
}  # fmt: skip


def test_zeros_before_a_max_pool_stay_zeros(tmp_path, rng):
    """onnxruntime until 1.31 makes them padding of the MaxPool, which is −∞, unless its indices are asked for."""
    module = Call(lambda x: F.max_pool2d(F.pad(-mg.abs(x), (1, 1, 1, 1)), 2))
    model = agrees(module, floats(2, 3, 4, 4), {"x": ROWS}, floats(4, 3, 4, 4), tmp_path / "m.onnx", rng)
    assert [len(node.output) for node in model.graph.node if node.op_type == "MaxPool"] == [2]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name, tmp_path, rng):
    agrees(Call(FUNCTIONS[name]), floats(4, 3), {"x": ROWS}, floats(7, 3), tmp_path / "m.onnx", rng)


def test_a_function_without_free_axes_may_read_its_shape(tmp_path, rng):
    def loop(x):
        total = mg.zeros(3)
        for row in x:
            total = mg.tanh(total + row)
        return total

    agrees(Call(loop), floats(4, 3), {}, None, tmp_path / "m.onnx", rng)


def test_the_model_says_what_it_is(tmp_path):
    mg.onnx.export(nn.Linear(3, 2), np.zeros((4, 3), np.float32), tmp_path / "m.onnx", {"x": {0: "N"}})
    model = onnx.load(str(tmp_path / "m.onnx"))
    assert (model.ir_version, model.opset_import[0].version) == (10, 20)
    assert (model.producer_name, model.producer_version) == ("minigrad", mg.__version__)
    assert sorted(x.name for x in model.graph.initializer) == ["bias", "weight"]
    shapes = [
        [d.dim_param or d.dim_value for d in x.type.tensor_type.shape.dim]
        for x in (*model.graph.input, *model.graph.output)
    ]
    assert shapes == [["N", 3], ["N", 2]]


def test_the_mode_of_every_part_is_restored(tmp_path):
    module = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5).eval(), nn.BatchNorm1d(2))
    before = [part.training for part in module.modules()]
    mg.onnx.export(module, mg.ones((4, 3)), tmp_path / "m.onnx")
    assert [part.training for part in module.modules()] == before
    assert module[2].num_batches_tracked.item() == 0


# ── errors ────────────────────────────────────────────────────────────────────────────────────────

X = mg.ones((4, 3))


def in_place(x):
    y = 2 * x
    y += 1
    return y


UNSUPPORTED = {
    "an operation that has a form in ONNX, got atan2": lambda x: mg.atan2(x, x),
    "an operation that has a form in ONNX, got nonzero": lambda x: x[x > 0],
    "an operation that has a form in ONNX, got dropout": lambda x: F.dropout(x, 0.5, True),
    "statistics of training, got those of the batch in batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "tensors alone, got elements read": lambda x: x * float(x.sum()),
    "elements read at": lambda x: x if x.sum() > 0 else -x,
    "writes to no tensor in evaluation": in_place,
    "the same operations for all values and all lengths": lambda x: sum(row for row in x),
    "through recorded operations alone, got numbers": lambda x: x + mg.tensor(np.cos(np.arange(x.shape[0])))[:, None],
    "pieces of the same lengths": lambda x: mg.split(x, [x.shape[0] - 1])[0],
    "tensors as results, got float": lambda x: 1.0,
}  # fmt: skip


@pytest.mark.parametrize("says", UNSUPPORTED)
def test_what_cannot_be_exported_is_named(says, tmp_path):
    path = tmp_path / "m.onnx"
    with pytest.raises((TypeError, ValueError), match=r"\[onnx.export\] expected ") as caught:
        mg.onnx.export(Call(UNSUPPORTED[says]), X, path, {"x": {0: "N"}})
    assert says in str(caught.value)
    assert "N = 4, 7, 12" in caught.value.__notes__[-1]
    if "got float" not in says:
        assert "test_onnx_export.py:" in str(caught.value)
    assert not path.exists()


def test_wrong_arguments(tmp_path):
    path, layer = tmp_path / "m.onnx", nn.Linear(3, 2)
    wrong = [
        (TypeError, "expected a Module, got builtin_function_or_method", (len, X, path)),
        (TypeError, "expected a tensor among the example's arguments, got none", (layer, (), path)),
        (TypeError, "expected dynamic as in {'x': {0: 'N'}}, got True", (layer, X, path, True)),
        (TypeError, "expected dynamic as in {'x': {0: 'N'}}, got {'x': [0]}", (layer, X, path, {"x": [0]})),
        (ValueError, "expected dynamic to name inputs (x), got 'y'", (layer, X, path, {"y": {0: "N"}})),
        (ValueError, "expected dynamic to name axes from 0 to 1 of x", (layer, X, path, {"x": {2: "N"}})),
        (ValueError, "expected dynamic to name axes from 0 to 1 of x", (layer, X, path, {"x": {0: 3}})),
        (ValueError, "expected an example with elements, got x of shape (0, 3)", (layer, mg.ones((0, 3)), path, {"x": {0: "N"}})),
        (ValueError, "expected axes named 'N' of one length, got 4 in x and 3 in x", (layer, X, path, {"x": {0: "N", 1: "N"}})),
        (TypeError, "expected a path, got 3", (layer, X, 3)),
    ]  # fmt: skip
    for error, says, arguments in wrong:
        with pytest.raises(error) as caught:
            mg.onnx.export(*arguments)
        assert str(caught.value).startswith(f"[onnx.export] {says}")
    with pytest.raises(ValueError, match=r"\[onnx.export\] expected opset 20 or 23, got 19"):
        mg.onnx.export(layer, X, path, opset=19)
    assert not path.exists()
