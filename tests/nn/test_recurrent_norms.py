"""Norms within recurrent layers: the papers' equations in NumPy, and norms of the weights."""

import sys

import numpy as np
import pytest
from checks import agree, array, refuses, tensor
from sequences import KINDS, D, H, N, T, as_tuple, called_with, grown, normals

import minigrad as mg
from minigrad import nn
from minigrad.nn.recurrent.recurrence import GateNorm

# ── with a norm: the equations ────────────────────────────────────────────────────────────────────


def layer_norm(a, gain, shift):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * gain + shift


def rms_norm(a, gain, shift):
    return a / np.sqrt((a**2).mean(-1, keepdims=True) + 1e-5) * gain + shift


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def rnn_step(p, norm, x, h, c):
    a = x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T + p["bias_hh"]
    return np.tanh(norm(a, p["ln.weight"], p["ln.bias"])), None


def lstm_step(p, norm, x, h, c):
    a = (norm(x @ p["weight_ih"].T, p["ln_ih.weight"], p["ln_ih.bias"])
         + norm(h @ p["weight_hh"].T, p["ln_hh.weight"], p["ln_hh.bias"]) + p["bias_ih"])  # fmt: skip
    i, f, g, o = np.split(a, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(norm(c, p.get("ln_c.weight"), p.get("ln_c.bias"))), c


def tensorflow_lstm_step(p, norm, x, h, c):
    """Each gate of the sum normalized separately, the normalized cell carried on, Keras's hard sigmoid."""
    a = np.split(x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T, 4, -1)
    gains, shifts = np.split(p["ln.weight"], 4), np.split(p["ln.bias"], 4)
    i, f, g, o = (norm(*parts) for parts in zip(a, gains, shifts, strict=True))
    i, f, o = (np.clip(0.2 * a + 0.5, 0, 1) for a in (i, f, o))
    c = norm(f * c + i * np.tanh(g), p["ln_c.weight"], p["ln_c.bias"])
    return o * np.tanh(c), c


def summed_lstm_step(p, norm, x, h, c):
    """Each gate of the sum normalized separately, c not normalized: keras-layernorm-rnn."""
    a = np.split(x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T, 4, -1)
    gains, shifts = np.split(p["ln.weight"], 4), np.split(p["ln.bias"], 4)
    i, f, g, o = (norm(*parts) for parts in zip(a, gains, shifts, strict=True))
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def plain_cell_lstm_step(p, norm, x, h, c):
    return lstm_step(p, lambda a, gain, shift: a if gain is None else norm(a, gain, shift), x, h, c)


def reset_before_step(p, norm, x, h, c):
    """The reset gate multiplies the state before its product; PyTorch's z."""
    n = h.shape[-1]
    w_ih, w_hh = p["weight_ih"], p["weight_hh"]

    def part(side, a, rows):
        return norm(a, p[f"ln_{side}.weight"][rows], p[f"ln_{side}.bias"][rows])

    gates, last = slice(2 * n), slice(2 * n, None)
    r, z = np.split(sigmoid(part("ih", x @ w_ih[gates].T, gates) + part("hh", h @ w_hh[gates].T, gates)), 2, -1)
    candidate = np.tanh(part("ih", x @ w_ih[last].T, last) + part("hh", (r * h) @ w_hh[last].T, last))
    return z * h + (1 - z) * candidate, None


def gru_step(p, norm, x, h, c, swapped=False):
    n, parts = h.shape[-1], []
    for weight, side, value in ((p["weight_ih"], "ln_ih", x), (p["weight_hh"], "ln_hh", h)):
        a, gain, shift = value @ weight.T, p[side + ".weight"], p[side + ".bias"]
        parts.append(
            (norm(a[..., : 2 * n], gain[: 2 * n], shift[: 2 * n]), norm(a[..., 2 * n :], gain[2 * n :], shift[2 * n :]))
        )
    (gates_x, candidate_x), (gates_h, candidate_h) = parts
    r, z = np.split(sigmoid(gates_x + gates_h), 2, -1)
    candidate = np.tanh(candidate_x + r * candidate_h)
    return (z * h + (1 - z) * candidate if swapped else (1 - z) * h + z * candidate), None


VARIANTS = {
    "RNN": ("RNN", {}, rnn_step),
    "LSTM": ("LSTM", {}, lstm_step),
    "LSTM of TensorFlow": (
        "LSTM", {"norm_each_gate": True, "carry_norm": True, "gate_activation": "hard_sigmoid"}, tensorflow_lstm_step,
    ),
    "LSTM without a norm of c": ("LSTM", {"norm_cell": False}, plain_cell_lstm_step),
    "LSTM of keras-layernorm-rnn": ("LSTM", {"norm_each_gate": True, "norm_cell": False}, summed_lstm_step),
    "GRU": ("GRU", {}, gru_step),
    "GRU that resets before": ("GRU", {"reset_after": False, "convention": "torch"}, reset_before_step),
    "GRU with PyTorch's z": ("GRU", {"convention": "torch"}, lambda *args: gru_step(*args, swapped=True)),
}  # fmt: skip


@pytest.mark.parametrize("lengths", [None, [6, 0, 3]])
@pytest.mark.parametrize("name, norm", [("layer", layer_norm), ("rms", rms_norm)])
@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_normalized_layers_are_the_equations(kind, options, step, name, norm, lengths, place):
    layer = grown(getattr(nn, kind)(D, H, norm=name, **options)).to(place)
    p = {key.replace("_l0", "").replace("rms", "ln"): array(value) for key, value in layer.state_dict().items()}
    x, h, c = normals(1, (T, N, D), (N, H), (N, H))
    states = tuple(tensor(v[None], place) for v in (h, c)) if kind == "LSTM" else tensor(h[None], place)
    y, ends = layer(tensor(x, place), states, lengths=None if lengths is None else mg.tensor(lengths, device=place))
    expected = np.zeros((T, N, H))
    for t in range(T):
        next_h, next_c = step(p, norm, x[t], h, c)
        alive = np.array([t < length for length in lengths or [T] * N])[:, None]
        expected[t] = np.where(alive, next_h, 0)
        h, c = np.where(alive, next_h, h), np.where(alive, c if next_c is None else next_c, c)
    np.testing.assert_allclose(y.tolist(), expected, rtol=1e-10, atol=1e-12)
    for end, last in zip(as_tuple(ends), (h, c), strict=False):
        np.testing.assert_allclose(end[0].tolist(), last, rtol=1e-10, atol=1e-12)


# keras-layernorm-rnn 0.2.1 (LayernormLSTM1, tensorflow 2.15.1, float64), by its recurrent_activation
KERAS_LAYERNORM_RNN = {
    "hard_sigmoid": [[[0.166236687202, 0.341582108008], [-0.36500114852, -0.054743111745]],
                     [[0.269192500386, 0.064813528416], [-0.043107248727, -0.057070433021]],
                     [[0.14733903532, 0.145135002924], [-0.078860794245, 0.282207048788]],
                     [[0.099672553829, -0.105407682615], [0.080320698948, 0.03983647244]]],
    "sigmoid": [[[0.164623246417, 0.324052760933], [-0.375888066109, -0.044971786635]],
                [[0.278461084453, 0.058875966546], [-0.041538828347, -0.046657439591]],
                [[0.147759736017, 0.131253382924], [-0.076174187122, 0.273556643051]],
                [[0.09427601885, -0.112347201436], [0.083065445833, 0.039316467366]]],
}  # fmt: skip


@pytest.mark.parametrize("activation", KERAS_LAYERNORM_RNN)
def test_the_lstm_of_keras_layernorm_rnn_is_theirs(activation, device):
    """Its bias, after the norms, is their β."""
    shapes = enumerate([(4, 2, 3), (1, 2, 2), (8, 3), (8, 2), (8,), (8,), (1, 2, 2)], 1)
    x, h, kernel, recurrent, bias, gamma, c = (
        np.sin(start + 1.7 * np.arange(np.prod(shape))).reshape(shape) for start, shape in shapes
    )
    layer = nn.LSTM(3, 2, bias=False, norm="layer", norm_each_gate=True, norm_cell=False, gate_activation=activation)
    layer.to("float64").load_state_dict(
        {"weight_ih_l0": kernel, "weight_hh_l0": recurrent, "ln_l0.weight": 1 + gamma / 2, "ln_l0.bias": bias}
    )
    y = layer.to(device)(tensor(x, device), (tensor(h, device), tensor(c, device)))[0]
    np.testing.assert_allclose(y.tolist(), KERAS_LAYERNORM_RNN[activation], rtol=0, atol=2e-12)


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_a_cell_repeated_is_the_layer(kind, options, step, norm, device):
    layer, cell = (grown(getattr(nn, name)(D, H, norm=norm, **options)).to(device) for name in (kind, kind + "Cell"))
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in layer.state_dict().items()})
    x, state = tensor(normals(1, (T, N, D))[0], device), None
    for t in range(T):
        state = cell(x[t], state)
    for a, b in zip(as_tuple(layer(x)[1]), as_tuple(state), strict=True):
        np.testing.assert_allclose(a[0].tolist(), b.tolist(), rtol=1e-12)


@pytest.mark.parametrize("lengths", [None, [3, 1]])
@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_gradients_through_time_to_order_two(kind, options, step, lengths):
    """With respect to the input, the first states and all parameters; two layers, both directions."""
    layer = grown(getattr(nn, kind)(2, 2, num_layers=2, bidirectional=True, norm="layer", **options))
    count = 2 if kind == "LSTM" else 1
    x, *states = (mg.tensor(a, requires_grad=True) for a in normals(2, (3, 2, 2), *[(4, 2, 2)] * count))

    def f(x, *given):
        first = given[:2] if kind == "LSTM" else given[0]
        y, ends = called_with(layer, given[count:], x, first, lengths=lengths)
        return (y, *as_tuple(ends))

    assert mg.gradcheck(f, [x, *states, *layer.parameters()], order=2)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_states_and_padding_give_finite_gradients(kind, place):
    """W x + W h + b of zeros is a row without variance."""
    layer = getattr(nn, kind)(D, H, num_layers=2, norm="layer", bias=False).to(place)
    x = mg.zeros((T, N, D), device=place, requires_grad=True)
    y, _ = layer(x, lengths=mg.tensor([T, 2, 0], device=place))
    y.backward(mg.tensor(normals(3, y.shape)[0], dtype=mg.float32, device=place))
    assert all(np.isfinite(array(parameter.grad)).all() for parameter in layer.parameters())
    assert np.isfinite(array(x.grad)).all()


def test_longer_sequences_than_any_in_training(place):
    layer = grown(nn.LSTM(D, H, norm="layer")).to(place)
    x = tensor(normals(6, (2 * T, N, D))[0], place)
    long, short = array(layer(x)[0][:T]), array(layer(x[:T])[0])
    if place == "cpu" or sys.modules["cupy"].__version__ == "emulated":
        np.testing.assert_array_equal(long, short)
    else:  # the input's projection is a product of another size, which cuBLAS may sum in another order
        np.testing.assert_allclose(long, short, rtol=1e-12)


# ── batch normalization: the equations of a step, from the normalized parts of the input and of the state ─────────


def rnn_batch_step(a, u, h, c, norm_c):
    return np.tanh(a + u), None


def lstm_batch_step(a, u, h, c, norm_c):
    i, f, g, o = np.split(a + u, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(norm_c(c)), c


def gru_batch_step(a, u, h, c, norm_c):
    (a_r, a_z, a_n), (u_r, u_z, u_n) = np.split(a, 3, -1), np.split(u, 3, -1)
    z = sigmoid(a_z + u_z)
    return (1 - z) * np.tanh(a_n + sigmoid(a_r + u_r) * u_n) + z * h, None


BATCH_STEPS = {"RNN": rnn_batch_step, "LSTM": lstm_batch_step, "GRU": gru_batch_step}


@pytest.mark.parametrize("kind", KINDS)
def test_batch_normalized_layers_are_the_equations(kind, device):
    layer = grown(getattr(nn, kind)(D, H, norm="batch", max_length=T)).to(device)
    x, h, c = *normals(7, (T, 8, D)), np.zeros((8, H)), np.zeros((8, H))
    p = {name: array(value).copy() for name, value in layer.state_dict().items()}
    outputs, means = [], []

    def norm(a, name):
        return (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5) * p[f"{name}_l0.weight"]

    for t in range(T):
        share = h @ p["weight_hh_l0"].T
        means.append(share.mean(0))
        a = norm(x[t] @ p["weight_ih_l0"].T, "bn_ih") + p["bias_ih_l0"]
        h, c = BATCH_STEPS[kind](a, norm(share, "bn_hh"), h, c, lambda c: norm(c, "bn_c") + p["bn_c_l0.bias"])
        outputs.append(h)
    y, ends = layer(tensor(x, device))
    np.testing.assert_allclose(y.tolist(), outputs, rtol=1e-9, atol=1e-11)
    for end, last in zip(as_tuple(ends), (h, c), strict=False):
        np.testing.assert_allclose(end[0].tolist(), last, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.bn_hh_l0.running_mean.tolist(), 0.1 * np.stack(means), rtol=1e-9, atol=1e-11)

    layer.eval()  # beyond the steps of training, using the last statistics
    assert layer(tensor(normals(8, (2 * T, 2, D))[0], device))[0].shape == (2 * T, 2, H)


def test_batch_normalized_variants_are_the_equations(device):
    """A GRU that resets before its product: the statistics are those of both products, and each batch counts once."""
    layer = grown(nn.GRU(D, H, norm="batch", max_length=T, reset_after=False)).to(device)
    (x,), h, means = normals(7, (T, 8, D)), np.zeros((8, H)), []
    p = {name: array(value).copy() for name, value in layer.state_dict().items()}

    def norm(a, name, rows=slice(None)):
        return (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5) * p[f"{name}_l0.weight"][rows]

    for t in range(T):
        w, gates, last = p["weight_hh_l0"], slice(2 * H), slice(2 * H, None)
        a_r, a_z, a_n = np.split(norm(x[t] @ p["weight_ih_l0"].T, "bn_ih") + p["bias_ih_l0"], 3, -1)
        u_r, u_z = np.split(norm(h @ w[gates].T, "bn_hh", gates), 2, -1)
        r, z = sigmoid(a_r + u_r), sigmoid(a_z + u_z)
        means.append([*(h @ w[gates].T).mean(0), *((r * h) @ w[last].T).mean(0)])
        h = (1 - z) * np.tanh(a_n + norm((r * h) @ w[last].T, "bn_hh", last)) + z * h
    np.testing.assert_allclose(layer(tensor(x, device))[1][0].tolist(), h, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(layer.bn_hh_l0.running_mean.tolist(), 0.1 * np.array(means), rtol=1e-9, atol=1e-11)
    assert layer.bn_hh_l0.num_batches_tracked.tolist() == [1] * T
    layer.eval()
    bn = layer.bn_hh_l0
    whole = tensor(normals(8, (2, 3 * H))[0], device)
    parts = [bn._columns(whole[:, : 2 * H], 1), bn._columns(whole[:, 2 * H :], 1, 2 * H)]
    np.testing.assert_allclose(mg.concat(parts, axis=1).tolist(), bn(whole, 1).tolist(), rtol=1e-14)


def test_batch_normalized_lstm_without_a_norm_of_c(device):
    layer = grown(nn.LSTM(D, H, norm="batch", max_length=T, norm_cell=False)).to(device)
    assert [name for name, _ in layer.named_children()] == ["bn_ih_l0", "bn_hh_l0"]
    (_, (h, c)) = layer(tensor(normals(7, (1, 8, D))[0], device))
    assert (abs(h) <= abs(mg.tanh(c))).all().item()  # h = σ(o) tanh(c)
    whole = grown(nn.LSTM(D, H, norm="batch", max_length=T)).to(device)
    whole.load_state_dict(layer.state_dict(), strict=False)
    np.testing.assert_array_equal(whole(tensor(normals(7, (1, 8, D))[0], device))[1][1].tolist(), c.tolist())


@pytest.mark.parametrize("kind, options", [*((kind, {}) for kind in KINDS), ("GRU", {"reset_after": False}),
                                           ("LSTM", {"norm_cell": False})])  # fmt: skip
def test_gradients_of_the_batch_normalized_layers(kind, options, device):
    layer = grown(getattr(nn, kind)(2, 2, norm="batch", max_length=2, **options)).to(device)
    x = tensor(normals(9, (3, 4, 2))[0], device, True)
    assert mg.gradcheck(lambda x, *given: called_with(layer, given, x)[0], [x, *layer.parameters()], order=2)


# ── norms changed and replaced ────────────────────────────────────────────────────────────────────


def test_eps_and_a_new_beginning_reach_every_norm(device):
    x = mg.tensor(normals(3, (T, N, D))[0], dtype="float32", device=device)
    for kind in KINDS:
        mg.manual_seed(0)
        small = getattr(nn, kind)(D, H, norm="layer", device=device)
        large = getattr(nn, kind)(D, H, norm="layer", eps=10.0, device=device)
        large.load_state_dict(small.state_dict())
        assert abs(small(x)[0] - large(x)[0]).max().item() > 0.1
        assert {child.eps for child in large.children()} == {10.0}
    rnn = nn.RNN(D, H, norm="batch", max_length=T, device=device)
    nn.init.constant_(rnn.bn_hh_l0.weight, 7.0)
    rnn(x)
    rnn.reset_parameters()
    assert set(array(rnn.bn_hh_l0.weight).round(6)) == {np.float32(0.1)}
    assert rnn.bn_hh_l0.num_batches_tracked.tolist() == [0] * T


@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_what_is_changed_in_a_norm_takes_effect(kind, options, step, place):
    """Each norm's eps is used in the layer and the cell, forward and backward; weights and biases may be removed."""
    layer, cell = (grown(getattr(nn, name)(D, H, norm="layer", **options)).to(place) for name in (kind, kind + "Cell"))
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in layer.state_dict().items()})
    x, h, c = (tensor(a, place) for a in normals(3, (1, N, D), (1, N, H), (1, N, H)))
    hx, h_cell = ((h, c), (h[0], c[0])) if kind == "LSTM" else (h, h[0])

    def outputs():
        y = layer(x, hx)[0]
        g = tensor(normals(5, y.shape)[0], place)
        fast, recorded = (mg.grad(y, [layer.weight_hh_l0, layer.weight_ih_l0], g, retain_graph=True, create_graph=twice)
                          for twice in (False, True))  # fmt: skip
        agree(fast, recorded, rtol=1e-8, atol=1e-11)
        np.testing.assert_allclose(y[0].tolist(), as_tuple(cell(x[0], h_cell))[0].tolist(), rtol=1e-11)
        return [array(y), array(fast[1])]

    for name, child in layer.named_children():
        before = outputs()
        child.eps = getattr(cell, name.replace("_l0", "")).eps = 3.0
        for a, b in zip(before, outputs(), strict=True):
            assert np.abs(a - b).max() > 1e-4, name
    for name, child in layer.named_children():
        child.weight = child.bias = None
        other = getattr(cell, name.replace("_l0", ""))
        other.weight = other.bias = None
    outputs()
    with pytest.raises(AttributeError, match="eps"):
        layer.eps = 1.0
    setattr(layer, name, nn.RMSNorm(H, device=place))
    refuses(TypeError, kind, f"expected {name} to be a layer normalization, got RMSNorm", layer, x)

    class Doubled(type(other)):
        def forward(self, x):
            return 2 * super().forward(x)

    other.__class__ = Doubled
    setattr(layer, name, other)
    refuses(TypeError, kind, f"expected {name} not to override forward, got a Doubled that does", layer, x)


@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_a_norm_in_the_place_of_another_has_its_groups(kind, options, step, device):
    """LayerNorm can normalize a single group; a norm with other groups is rejected, not ignored, as is another kind."""
    x = tensor(normals(3, (T, N, D))[0], device)
    for name, child in getattr(nn, kind)(D, H, norm="layer", **options).named_children():
        layer = grown(getattr(nn, kind)(D, H, norm="layer", **options)).to(device)
        before, columns = layer(x)[0], child.weight.shape[0]
        sizes = child.sizes if isinstance(child, GateNorm) else child.normalized_shape
        state, whole = getattr(layer, name).state_dict(), nn.LayerNorm(columns, device=device, dtype="float64")
        whole.load_state_dict(state)
        setattr(layer, name, whole)
        if len(sizes) == 1:
            assert layer(x)[0].tolist() == before.tolist()
        else:
            refuses(ValueError, kind, [f"expected {name} to normalize groups of", "columns, got Layer"], layer, x)
        setattr(layer, name, nn.LayerNorm(columns + 1, elementwise_affine=False))
        refuses(ValueError, kind, [f"expected {name} to normalize", str(columns + 1)], layer, x)
        setattr(layer, name, GateNorm(sizes, centered=False))
        refuses(TypeError, kind, f"expected {name} to be a layer normalization, got GateNorm", layer, x)
        layer = grown(getattr(nn, kind)(D, H, norm="rms", **options)).to(device)
        name = name.replace("ln", "rms")
        setattr(layer, name, GateNorm(sizes))
        refuses(TypeError, kind, f"expected {name} to be a GateNorm with centered=False", layer, x)


# ── norms of the weights ──────────────────────────────────────────────────────────────────────────


def test_weight_normalized_recurrence(device):
    """The products use g v/‖v‖, and the gradients go to g and v."""
    layer = nn.GRU(D, H, norm="layer", device=device, dtype="float64")
    expected = layer(x := tensor(normals(4, (T, N, D))[0], device))[0]
    nn.utils.weight_norm(layer, "weight_hh_l0")
    y = layer(x)[0]
    np.testing.assert_allclose(y.tolist(), expected.tolist(), rtol=1e-10)
    y.backward(tensor(normals(5, y.shape)[0], device))
    assert abs(layer.weight_hh_l0_g.grad).max().item() > 0
    assert abs((layer.weight_hh_l0_v.grad * layer.weight_hh_l0_v).sum(axis=1)).max().item() < 1e-12


def weight_normed(layer):
    for name in [name for name in layer._parameters if name.startswith("weight")]:
        nn.utils.weight_norm(layer, name)
    return layer


TRAINED = {
    "weights of an RNN": lambda: weight_normed(nn.RNN(D, H, dtype="float64")),
    "weights of an LN-LSTM": lambda: weight_normed(nn.LSTM(D, H, 2, bidirectional=True, norm="layer", dtype="float64")),
    "weights of a GRU": lambda: weight_normed(nn.GRU(D, H, dtype="float64")),
    "batch": lambda: nn.RNN(D, H, norm="batch", max_length=T - 2, dtype="float64"),
    "batch in an LSTM": lambda: nn.LSTM(D, H, norm="batch", max_length=T - 2, dtype="float64"),
    "batch in a GRU": lambda: nn.GRU(D, H, norm="batch", max_length=T, dtype="float64"),
    "batch in a GRU that resets before": lambda: nn.GRU(
        D, H, norm="batch", max_length=T - 2, reset_after=False, dtype="float64"
    ),
    "batch both ways": lambda: nn.RNN(D, H, 2, bidirectional=True, norm="batch", max_length=T, dtype="float64"),
}


@pytest.mark.parametrize("build", TRAINED.values(), ids=TRAINED)
def test_training_saved_in_its_midst(build):
    """The loss falls; a new layer with the state of the first one computes and trains in the same way."""
    mg.manual_seed(2)  # 40 steps are few for a BN-LSTM, whose weights of the norms begin at 0.1
    x, wanted = normals(10, (T, 8, D), (8, H))

    def train(layer, steps):
        optimizer, losses = mg.optim.SGD(layer.parameters(), lr=0.2), []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = ((sum(as_tuple(layer(mg.tensor(x))[1])[0]) - mg.tensor(wanted)) ** 2).mean()
            loss.backward()
            assert all(abs(parameter.grad).max().item() > 0 for parameter in layer.parameters())
            optimizer.step()
            losses.append(loss.item())
        return losses

    first, second = build(), build()
    losses = train(first, 40)
    assert losses[-1] < 0.7 * losses[0]
    keys = second.load_state_dict({name: value.numpy().copy() for name, value in first.state_dict().items()})
    assert (keys.missing_keys, keys.unexpected_keys) == ([], [])
    for mode in (True, False):
        outputs = [layer.train(mode)(mg.tensor(x))[0].tolist() for layer in (first, second)]
        np.testing.assert_array_equal(*outputs)
    assert train(first.train(), 5) == train(second.train(), 5)
    np.testing.assert_array_equal(*[layer.eval()(mg.tensor(x))[0].tolist() for layer in (first, second)])


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_normalized_weights(kind, device):
    check_second_derivatives(kind, None, device)


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_normalized_weights_under_a_norm(kind):
    """On one device: each takes a quarter of a minute on the emulated one."""
    check_second_derivatives(kind, "layer", "cpu")


def check_second_derivatives(kind, norm, device):
    layer = grown(weight_normed(getattr(nn, kind)(2, 2, norm=norm, dtype="float64"))).to(device)
    x = tensor(normals(11, (2, 3, 2))[0], device, True)
    assert mg.gradcheck(lambda x, *given: called_with(layer, given, x)[0], [x, *layer.parameters()], order=2)
