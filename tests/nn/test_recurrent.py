"""RNN, LSTM, GRU and their cells: PyTorch without a norm, the papers' equations in NumPy with one."""

import copy
import pickle

import numpy as np
import pytest
from checks import array, tensor

import minigrad as mg
from minigrad import nn
from minigrad.nn.recurrence import GateNorm

T, N, D, H = 6, 3, 4, 5
KINDS = ("RNN", "LSTM", "GRU")


def normals(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def grown(module, seed=0):
    """The module in float64 with larger, random parameters."""
    module.to("float64")
    for number, parameter in enumerate(module.parameters()):
        with mg.no_grad():
            parameter.copy_(mg.tensor(normals((seed, number), parameter.shape)[0]))
    return module


def as_tuple(states):
    return states if isinstance(states, tuple) else (states,)


def called_with(module, parameters, *args, **options):
    """What the module computes with other parameters, in the order of its own."""
    modules, names = dict(module.named_modules()), [name.rpartition(".") for name, _ in module.named_parameters()]
    owners = [(vars(modules[path]), name) for path, _, name in names]
    own = [owner[name] for owner, name in owners]
    try:
        for (owner, name), value in zip(owners, parameters, strict=True):
            owner[name] = value
        return module(*args, **options)
    finally:
        for (owner, name), value in zip(owners, own, strict=True):
            owner[name] = value


# ── without a norm: PyTorch ───────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("seed", range(30))
def test_layers_are_pytorchs(seed, device):
    """Random sizes, layers, directions, layouts, states and lengths: outputs, states and every gradient."""
    compare_layers(pytest.importorskip("torch"), seed, device)


@pytest.mark.parametrize("seed", range(30, 300))
def test_more_layers_are_pytorchs(seed):
    """More of the same, on one device."""
    compare_layers(pytest.importorskip("torch"), seed, "cpu")


def compare_layers(torch, seed, device):
    rng = np.random.default_rng(seed)
    kind, yes = KINDS[seed % 3], lambda: bool(rng.integers(2))
    steps, batch, inputs, hidden = rng.integers(1, (7, 12, 9, 20)).tolist()
    options = {"num_layers": int(rng.integers(1, 4)), "bias": yes(), "batch_first": yes(), "bidirectional": yes()}
    if kind == "RNN":
        options["nonlinearity"] = ["tanh", "relu"][rng.integers(2)]
    ours = getattr(nn, kind)(inputs, hidden, **options, dtype="float64").to(device)
    theirs = getattr(torch.nn, kind)(inputs, hidden, **options).double()
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: tuple(value.shape) for name, value in theirs.state_dict().items()
    }
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())

    batched, first = rng.random() < 0.8, options["batch_first"]
    lengths = rng.integers(1, steps + 1, batch) if batched and yes() else None
    shape = ((batch, steps, inputs) if first else (steps, batch, inputs)) if batched else (steps, inputs)
    count = options["num_layers"] * (2 if options["bidirectional"] else 1)
    state = (count, batch, hidden) if batched else (count, hidden)
    x = rng.standard_normal(shape)
    xs = tensor(x, device, True), torch.tensor(x, requires_grad=True)
    starts = [rng.standard_normal(state) for _ in range(2 if kind == "LSTM" else 1)] if yes() else []
    starts = [[tensor(v, device, True) for v in starts], [torch.tensor(v, requires_grad=True) for v in starts]]
    given = [(tuple(start) if kind == "LSTM" else start[0]) if start else None for start in starts]

    y, ends = ours(xs[0], given[0], lengths=None if lengths is None else tensor(lengths, device))
    if lengths is None:
        y_theirs, ends_theirs = theirs(xs[1], given[1])
    else:
        packed = torch.nn.utils.rnn.pack_padded_sequence(xs[1], torch.tensor(lengths), first, enforce_sorted=False)
        y_theirs, ends_theirs = theirs(packed, given[1])
        y_theirs, _ = torch.nn.utils.rnn.pad_packed_sequence(y_theirs, first, total_length=steps)
    outs = list(zip((y, *as_tuple(ends)), (y_theirs, *as_tuple(ends_theirs)), strict=True))
    grads = [rng.standard_normal(a.shape) for a, _ in outs]
    sum((a * tensor(g, device)).sum() for (a, _), g in zip(outs, grads, strict=True)).backward()
    sum((b * torch.tensor(g)).sum() for (_, b), g in zip(outs, grads, strict=True)).backward()
    pairs = [*outs, (xs[0].grad, xs[1].grad)]
    pairs += [(a.grad, b.grad) for a, b in zip(*starts, strict=True)]
    pairs += [(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True)]
    for number, (a, b) in enumerate(pairs):
        np.testing.assert_allclose(array(a), b.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=f"{number} of {options}")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_pytorchs(kind, bias):
    torch = pytest.importorskip("torch")
    ours = getattr(nn, kind + "Cell")(D, H, bias=bias, dtype="float64")
    theirs = getattr(torch.nn, kind + "Cell")(D, H, bias=bias).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x, h, c = normals(0, (N, D), (N, H), (N, H))
    state = (h, c) if kind == "LSTM" else h
    for arguments in ((x, state), (x,), (x[0], tuple(s[0] for s in state) if kind == "LSTM" else h[0]), (x[0],)):
        def made(make, arguments=arguments):
            return [tuple(map(make, a)) if isinstance(a, tuple) else make(a) for a in arguments]

        for a, b in zip(as_tuple(ours(*made(mg.tensor))), as_tuple(theirs(*made(torch.from_numpy))), strict=True):
            np.testing.assert_allclose(a.tolist(), b.tolist(), rtol=1e-10)


def test_dropout_is_between_layers_and_in_training_alone():
    x = mg.tensor(normals(1, (T, N, D))[0], dtype="float32")
    one, two = nn.GRU(D, 400, dropout=0.5), nn.GRU(D, 400, num_layers=2, dropout=0.5)
    np.testing.assert_array_equal(one(x)[0].tolist(), one.eval()(x)[0].tolist())
    seen = []
    recorded, two._layer = two._layer, lambda x, *rest: seen.append(x) or recorded(x, *rest)
    two(x)
    two.eval()(x)
    dropped, plain = (seen[i].detach().numpy() for i in (1, 3))
    assert 0.4 < (dropped == 0).mean() < 0.6
    np.testing.assert_allclose(dropped[dropped != 0], 2 * plain[dropped != 0], rtol=1e-6)


# ── with a norm: the equations ────────────────────────────────────────────────────────────────────

def norm(a, gain, shift):
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5) * gain + shift


def sigmoid(a):
    return 1 / (1 + np.exp(-a))


def rnn_step(p, x, h, c):
    a = x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T + p["bias_hh"]
    return np.tanh(norm(a, p["ln.weight"], p["ln.bias"])), None


def lstm_step(p, x, h, c):
    a = (norm(x @ p["weight_ih"].T, p["ln_ih.weight"], p["ln_ih.bias"])
         + norm(h @ p["weight_hh"].T, p["ln_hh.weight"], p["ln_hh.bias"]) + p["bias_ih"])  # fmt: skip
    i, f, g, o = np.split(a, 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(norm(c, p["ln_c.weight"], p["ln_c.bias"])), c


def tensorflow_lstm_step(p, x, h, c):
    """Every gate of the sum by itself, the cell carried on normalized, Keras's hard sigmoid."""
    a = np.split(x @ p["weight_ih"].T + p["bias_ih"] + h @ p["weight_hh"].T, 4, -1)
    gains, shifts = np.split(p["ln.weight"], 4), np.split(p["ln.bias"], 4)
    i, f, g, o = (norm(*parts) for parts in zip(a, gains, shifts, strict=True))
    i, f, o = (np.clip(0.2 * a + 0.5, 0, 1) for a in (i, f, o))
    c = norm(f * c + i * np.tanh(g), p["ln_c.weight"], p["ln_c.bias"])
    return o * np.tanh(c), c


def gru_step(p, x, h, c, swapped=False):
    n, parts = h.shape[-1], []
    for weight, side, value in ((p["weight_ih"], "ln_ih", x), (p["weight_hh"], "ln_hh", h)):
        a, gain, shift = value @ weight.T, p[side + ".weight"], p[side + ".bias"]
        parts.append((norm(a[..., : 2 * n], gain[: 2 * n], shift[: 2 * n]), norm(a[..., 2 * n :], gain[2 * n :], shift[2 * n :])))
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
    "GRU": ("GRU", {}, gru_step),
    "GRU with PyTorch's z": ("GRU", {"convention": "torch"}, lambda *args: gru_step(*args, swapped=True)),
}  # fmt: skip


@pytest.mark.parametrize("lengths", [None, [6, 0, 3]])
@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_normalized_layers_are_the_equations(kind, options, step, lengths, device):
    layer = grown(getattr(nn, kind)(D, H, norm="layer", **options)).to(device)
    p = {name.replace("_l0", ""): array(value) for name, value in layer.state_dict().items()}
    x, h, c = normals(1, (T, N, D), (N, H), (N, H))
    states = tuple(tensor(v[None], device) for v in (h, c)) if kind == "LSTM" else tensor(h[None], device)
    y, ends = layer(tensor(x, device), states, lengths=None if lengths is None else mg.tensor(lengths, device=device))
    expected = np.zeros((T, N, H))
    for t in range(T):
        next_h, next_c = step(p, x[t], h, c)
        alive = np.array([t < length for length in lengths or [T] * N])[:, None]
        expected[t] = np.where(alive, next_h, 0)
        h, c = np.where(alive, next_h, h), np.where(alive, c if next_c is None else next_c, c)
    np.testing.assert_allclose(y.tolist(), expected, rtol=1e-10, atol=1e-12)
    for end, last in zip(as_tuple(ends), (h, c), strict=False):
        np.testing.assert_allclose(end[0].tolist(), last, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_a_cell_repeated_is_the_layer(kind, options, step):
    layer, cell = (grown(getattr(nn, name)(D, H, norm="layer", **options)) for name in (kind, kind + "Cell"))
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in layer.state_dict().items()})
    x, state = mg.tensor(normals(1, (T, N, D))[0]), None
    for t in range(T):
        state = cell(x[t], state)
    for a, b in zip(as_tuple(layer(x)[1]), as_tuple(state), strict=True):
        np.testing.assert_allclose(a[0].tolist(), b.tolist(), rtol=1e-12)


@pytest.mark.parametrize("lengths", [None, [3, 1]])
@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_gradients_through_time_to_order_two(kind, options, step, lengths):
    """In the input, the first states and all parameters; two layers, both directions."""
    layer = grown(getattr(nn, kind)(2, 2, num_layers=2, bidirectional=True, norm="layer", **options))
    count = 2 if kind == "LSTM" else 1
    x, *states = (mg.tensor(a, requires_grad=True) for a in normals(2, (3, 2, 2), *[(4, 2, 2)] * count))

    def f(x, *given):
        first = given[:2] if kind == "LSTM" else given[0]
        y, ends = called_with(layer, given[count:], x, first, lengths=lengths)
        return (y, *as_tuple(ends))

    assert mg.gradcheck(f, [x, *states, *layer.parameters()], order=2)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_states_and_padding_give_finite_gradients(kind, device):
    """W x + W h + b of zeros is a row without variance."""
    layer = getattr(nn, kind)(D, H, num_layers=2, norm="layer", bias=False).to(device)
    x = mg.zeros((T, N, D), device=device, requires_grad=True)
    y, _ = layer(x, lengths=mg.tensor([T, 2, 0], device=device))
    y.backward(mg.tensor(normals(3, y.shape)[0], dtype=mg.float32, device=device))
    assert all(np.isfinite(array(parameter.grad)).all() for parameter in layer.parameters())
    assert np.isfinite(array(x.grad)).all()


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", [(2, 6, 4), (0, 6, 1), (0, 0, 0)])
def test_padding_of_any_kind_has_no_influence(kind, norm, ends, device):
    """NaN in the padding reaches neither outputs nor gradients, not even those of the first weights."""
    layer = getattr(nn, kind)(D, H, num_layers=2, bidirectional=True, norm=norm).to(device)
    x = normals(4, (T, N, D))[0].astype("float32")
    lengths, found = mg.tensor(ends, device=device), []
    for value in (0.0, np.nan, np.inf, -1e30):
        for n, end in enumerate(ends):
            x[end:, n] = value
        inputs = tensor(x, device, True)
        y, states = layer(inputs, lengths=lengths)
        g = mg.tensor(normals(5, y.shape)[0], dtype="float32", device=device)
        layer.zero_grad()
        y.backward(g)
        found.append([y, *as_tuple(states), inputs.grad, *(parameter.grad for parameter in layer.parameters())])
    assert all(np.isfinite(array(a)).all() for a in found[0])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(array(a), array(b))


def test_longer_sequences_than_any_in_training():
    layer = grown(nn.LSTM(D, H, norm="layer"))
    x = mg.tensor(normals(6, (2 * T, N, D))[0])
    np.testing.assert_array_equal(layer(x)[0][:T].tolist(), layer(x[:T])[0].tolist())


# ── batch normalization within the RNN ────────────────────────────────────────────────────────────

def test_batch_normalized_rnn_is_the_equation():
    rnn = grown(nn.RNN(D, H, norm="batch", max_length=T))
    x = normals(7, (T, 8, D))[0]
    p = {name: value.numpy().copy() for name, value in rnn.state_dict().items()}
    h, states, means = np.zeros((8, H)), [], []
    for t in range(T):
        shares = x[t] @ p["weight_ih_l0"].T, h @ p["weight_hh_l0"].T
        means.append(shares[1].mean(0))
        total = p["bias_ih_l0"].copy()
        for share, side in zip(shares, ("bn_ih_l0", "bn_hh_l0"), strict=True):
            total = total + (share - share.mean(0)) / np.sqrt(share.var(0) + 1e-5) * p[side + ".weight"]
        h = np.tanh(total)
        states.append(h)
    y, h_n = rnn(mg.tensor(x))
    np.testing.assert_allclose(y.tolist(), states, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(h_n[0].tolist(), h, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(rnn.bn_hh_l0.running_mean.tolist(), 0.1 * np.stack(means), rtol=1e-9, atol=1e-11)

    rnn.eval()  # beyond the steps of training, with the last statistics
    assert rnn(mg.tensor(normals(8, (2 * T, 2, D))[0]))[0].shape == (2 * T, 2, H)


def test_gradients_of_the_batch_normalized_rnn():
    rnn = grown(nn.RNN(2, 2, norm="batch", max_length=2))
    x = mg.tensor(normals(9, (3, 4, 2))[0], requires_grad=True)
    assert mg.gradcheck(lambda x, *given: called_with(rnn, given, x)[0], [x, *rnn.parameters()], order=2)


# ── modules ───────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("kind", KINDS)
def test_initialization(kind):
    layer = getattr(nn, kind)(20, 100, norm="layer")
    for parameter in layer.parameters(recurse=False):
        assert 0.08 < np.abs(parameter.detach().numpy()).max() <= 0.1
    norms = dict(layer.named_children())
    assert set(norms) == {"RNN": {"ln_l0"}, "LSTM": {"ln_ih_l0", "ln_hh_l0", "ln_c_l0"}, "GRU": {"ln_ih_l0", "ln_hh_l0"}}[kind]
    for child in norms.values():
        nn.init.zeros_(child.weight)
    nn.init.zeros_(layer.weight_hh_l0)
    layer.reset_parameters()
    assert np.abs(layer.weight_hh_l0.detach().numpy()).max() > 0.08
    for child in norms.values():
        assert set(child.weight.tolist()) == {1.0}
        assert set(child.bias.tolist()) == {0.0}


@pytest.mark.parametrize("bias", [True, "input"])
def test_forget_bias(bias):
    layer = nn.LSTM(3, 4, num_layers=2, bias=bias, forget_bias=1.5)
    for suffix in ("_l0", "_l1"):
        b = getattr(layer, "bias_ih" + suffix) + (getattr(layer, "bias_hh" + suffix) if bias is True else 0.0)
        assert b[4:8].tolist() == [1.5] * 4
        assert 1.5 not in b[:4].tolist() + b[8:].tolist()


@pytest.mark.parametrize("options", [{}, {"norm": "layer"}, {"norm": "layer", "norm_each_gate": True}])
def test_forget_bias_opens_the_forget_gate(options):
    """Without anything else that moves it, the cell keeps σ(forget_bias) of itself."""
    for cell in (nn.LSTMCell(D, H, forget_bias=2.0, **options), nn.LSTM(D, H, forget_bias=2.0, **options)):
        for name, parameter in cell.named_parameters():
            if name.startswith("weight"):
                nn.init.zeros_(parameter)
        c = mg.ones((N, H) if isinstance(cell, nn.LSTMCell) else (1, N, H))
        steps = mg.zeros((N, D) if isinstance(cell, nn.LSTMCell) else (1, N, D))
        state = cell(steps, (mg.zeros(c.shape), c))
        kept = (state if isinstance(cell, nn.LSTMCell) else state[1])[1]
        # beside it the input gate lets in what the random biases make of i and g: at most 1/2 + their bound
        assert abs(kept.mean().item() - 1 / (1 + np.exp(-2.0))) < 0.3
        gates = nn.LSTMCell(D, H, forget_bias=-50.0, **options)
        for name, parameter in gates.named_parameters():
            if name.startswith("weight"):
                nn.init.zeros_(parameter)
        big = mg.ones((N, H)) * 1e3
        assert abs(gates(mg.zeros((N, D)), (mg.zeros((N, H)), big))[1]).max().item() < 1


def test_eps_and_a_new_beginning_reach_every_norm():
    x = mg.tensor(normals(3, (T, N, D))[0], dtype="float32")
    for kind in KINDS:
        mg.manual_seed(0)
        small = getattr(nn, kind)(D, H, norm="layer")
        large = getattr(nn, kind)(D, H, norm="layer", eps=10.0)
        large.load_state_dict(small.state_dict())
        assert abs(small(x)[0] - large(x)[0]).max().item() > 0.1
        assert {child.eps for child in large.children()} == {10.0}
    rnn = nn.RNN(D, H, norm="batch", max_length=T)
    nn.init.constant_(rnn.bn_hh_l0.weight, 7.0)
    rnn(x)
    rnn.reset_parameters()
    assert set(rnn.bn_hh_l0.weight.detach().numpy().round(6)) == {np.float32(0.1)}
    assert rnn.bn_hh_l0.num_batches_tracked.tolist() == [0] * T


@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_what_is_changed_in_a_norm_takes_effect(kind, options, step):
    """eps of each norm by itself, in the layer and in the cell, forwards and backwards; gains and shifts taken away."""
    layer, cell = (grown(getattr(nn, name)(D, H, norm="layer", **options)) for name in (kind, kind + "Cell"))
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in layer.state_dict().items()})
    x, h, c = (mg.tensor(a) for a in normals(3, (1, N, D), (1, N, H), (1, N, H)))
    hx, h_cell = ((h, c), (h[0], c[0])) if kind == "LSTM" else (h, h[0])

    def outputs():
        y = layer(x, hx)[0]
        g = mg.tensor(normals(5, y.shape)[0])
        fast, recorded = (mg.grad(y, [layer.weight_hh_l0, layer.weight_ih_l0], g, retain_graph=True, create_graph=twice)
                          for twice in (False, True))  # fmt: skip
        for a, b in zip(fast, recorded, strict=True):
            np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-11)
        np.testing.assert_allclose(y[0].tolist(), as_tuple(cell(x[0], h_cell))[0].tolist(), rtol=1e-11)
        return [y.detach().numpy(), fast[1].numpy()]

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
    setattr(layer, name, nn.RMSNorm(H))
    with pytest.raises(TypeError, match=rf"\[{kind}\] expected {name} to be layer normalization, got RMSNorm"):
        layer(x)


@pytest.mark.parametrize("kind, options, step", VARIANTS.values(), ids=VARIANTS)
def test_a_norm_in_the_place_of_another_has_its_groups(kind, options, step):
    """LayerNorm serves where one group is normalized; what normalizes other groups is refused, not ignored."""
    x = mg.tensor(normals(3, (T, N, D))[0])
    for name, child in getattr(nn, kind)(D, H, norm="layer", **options).named_children():
        layer = grown(getattr(nn, kind)(D, H, norm="layer", **options))
        before, columns = layer(x)[0], child.weight.shape[0]
        sizes = child.sizes if isinstance(child, GateNorm) else child.normalized_shape
        state, whole = getattr(layer, name).state_dict(), nn.LayerNorm(columns, dtype="float64")
        whole.load_state_dict(state)
        setattr(layer, name, whole)
        if len(sizes) == 1:
            assert layer(x)[0].tolist() == before.tolist()
        else:
            with pytest.raises(ValueError, match=rf"^\[{kind}\] expected {name} to normalize groups of .* columns, got Layer"):
                layer(x)
        setattr(layer, name, nn.LayerNorm(columns + 1, elementwise_affine=False))
        with pytest.raises(ValueError, match=rf"^\[{kind}\] expected {name} to normalize .*{columns + 1}"):
            layer(x)


@pytest.mark.parametrize("kind", KINDS)
def test_states_by_pytorchs_keyword(kind):
    layer, cell = grown(getattr(nn, kind)(D, H)), grown(getattr(nn, kind + "Cell")(D, H))
    x, h, c = (mg.tensor(a) for a in normals(6, (T, N, D), (N, H), (N, H)))
    first = (h, c) if kind == "LSTM" else h
    lifted = (h[None], c[None]) if kind == "LSTM" else h[None]
    for a, b in ((layer(x, lifted)[0], layer(x, hx=lifted)[0]),
                 (as_tuple(cell(x[0], first))[0], as_tuple(cell(x[0], hx=first))[0])):  # fmt: skip
        np.testing.assert_array_equal(a.tolist(), b.tolist())
    assert abs(layer(x, hx=lifted)[0] - layer(x)[0]).max().item() > 0.1
    y, _ = layer(x, lifted, [2, 6, 0])
    assert (y[2:, 0] == 0).all().item()


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_the_input_is_not_kept(kind, norm):
    """It can be made anew where create_graph=True needs it; with a norm the tape holds as much for its gradient."""
    layer, x = getattr(nn, kind)(8, 64, norm=norm), mg.zeros((40, 16, 8), requires_grad=True)
    states = 41 * 16 * 64 * 4
    columns = 40 * 16 * layer.weight_hh_l0.shape[0] * 4
    before = mg.memory_allocated()
    y = layer(x)[0]
    kept = mg.memory_allocated() - before
    rows = {("RNN", None): 0, ("RNN", "layer"): 1, ("LSTM", None): 1, ("LSTM", "layer"): 3, ("GRU", None): 2,
            ("GRU", "layer"): 3}[kind, norm]  # fmt: skip
    assert kept < states * (2 if kind == "LSTM" else 1) + (rows + 0.5) * columns
    with mg.no_grad():
        layer.weight_ih_l0 *= 2.0
    with pytest.raises(mg.GradientError, match=rf"\[{kind.lower()}\] a tensor saved for backward was written in place"):
        mg.grad(y.sum(), [layer.weight_hh_l0])


def test_weight_normalized_recurrence():
    """The products see g v/‖v‖, and the gradients go to g and v."""
    layer = nn.GRU(D, H, norm="layer", dtype="float64")
    expected = layer(x := mg.tensor(normals(4, (T, N, D))[0]))[0]
    nn.utils.weight_norm(layer, "weight_hh_l0")
    y = layer(x)[0]
    np.testing.assert_allclose(y.tolist(), expected.tolist(), rtol=1e-10)
    y.backward(mg.tensor(normals(5, y.shape)[0]))
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
    "batch both ways": lambda: nn.RNN(D, H, 2, bidirectional=True, norm="batch", max_length=T, dtype="float64"),
}


@pytest.mark.parametrize("build", TRAINED.values(), ids=TRAINED)
def test_training_saved_in_its_midst(build):
    """The loss falls; a new layer with the state of the first one computes and trains on as this one does."""
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


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_of_normalized_weights(kind, norm):
    layer = grown(weight_normed(getattr(nn, kind)(2, 2, norm=norm, dtype="float64")))
    x = mg.tensor(normals(11, (2, 3, 2))[0], requires_grad=True)
    assert mg.gradcheck(lambda x, *given: called_with(layer, given, x)[0], [x, *layer.parameters()], order=2)


def test_parameters_of_the_imdb_model():
    """Keras counts one bias: 4 (100 + 128 + 1) 128 beside the table and the last layer."""
    model = nn.Sequential(nn.Embedding(10000, 100), nn.LSTM(100, 128, bias="input"), nn.Linear(128, 1))
    assert sum(parameter.size for parameter in model.parameters()) == 1_117_377


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles_compute_the_same(kind):
    layer, x = getattr(nn, kind)(D, H, norm="layer"), mg.tensor(normals(0, (T, N, D))[0], dtype="float32")
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other(x)[0].tolist(), layer(x)[0].tolist())
    cell = layer._loop("_l0")[0]
    assert repr(pickle.loads(pickle.dumps(cell)).__reduce__()) == repr(cell.__reduce__())


def test_representations():
    assert repr(nn.GRU(3, 4, norm="layer", convention="torch")).splitlines()[1] == "  3, 4, norm='layer', convention='torch'"
    assert "max_length=7" in repr(nn.RNN(3, 4, norm="batch", max_length=7))
    assert repr(nn.GRU(3, 4, 2, batch_first=True, convention="paper")) == (
        "GRU(3, 4, num_layers=2, batch_first=True, convention='paper')"
    )
    assert repr(nn.RNNCell(3, 4, nonlinearity="relu", bias=False)) == "RNNCell(3, 4, nonlinearity='relu', bias=False)"
    assert repr(nn.LSTM(3, 4, norm="layer", forget_bias=1.0)).splitlines()[1] == "  3, 4, norm='layer', forget_bias=1.0"


def test_one_step_and_empty_batch():
    rnn = nn.RNN(D, H)
    assert rnn(mg.zeros((1, N, D)))[0].shape == (1, N, H)
    assert rnn(mg.zeros((T, 0, D)))[0].shape == (T, 0, H)
    assert nn.LSTM(D, H)(mg.zeros((T, 0, D)), lengths=[])[1][1].shape == (1, 0, H)


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────

@pytest.mark.parametrize("build", [
    lambda: nn.RNN(0, 3), lambda: nn.LSTM(3, 0), lambda: nn.RNN(3, 3, nonlinearity="gelu"),
    lambda: nn.RNN(3, 3, norm="batch"), lambda: nn.RNN(3, 3, max_length=4), lambda: nn.RNNCell(3, 3, norm="batch"),
    lambda: nn.GRU(3, 3, norm="batch"), lambda: nn.RNNCell(-1, 3), lambda: nn.LSTM(3, 3, 0),
    lambda: nn.GRU(3, 3, dropout=1.5), lambda: nn.LSTM(3, 3, gate_activation="tanh"), lambda: nn.LSTM(3, 3, carry_norm=True),
    lambda: nn.LSTM(3, 3, bias=False, forget_bias=1.0), lambda: nn.GRU(3, 3, convention="keras"), lambda: nn.GRU(3, 3, bias="hidden"),
])  # fmt: skip
def test_bad_options(build):
    with pytest.raises(ValueError, match=r"\[(RNN|LSTM|GRU)(Cell)?\] expected"):
        build()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("x, h", [
    ((T, N, D + 1), None), ((T, N, 1, D), None), ((D,), None), ((0, N, D), None), ((T, N, D), (N, H)),
    ((T, N, D), (1, N + 1, H)), ((T, D), (1, N, H)),
])  # fmt: skip
def test_bad_shapes(kind, x, h):
    state = None if h is None else mg.zeros(h)
    with pytest.raises(ValueError, match=rf"\[{kind}\] expected"):
        getattr(nn, kind)(D, H)(mg.zeros(x), (state, state) if kind == "LSTM" and h else state)


@pytest.mark.parametrize("lengths, message", [
    ([T + 1, 1, 1], f"from 0 to {T}, got"), ([-1, 1, 1], f"from 0 to {T}, got"), ([1, 1], "3 integer lengths"),
    ([1.0, 2.0, 3.0], "3 integer lengths, got float"), (4, "3 integer lengths"), ([True, False, True], "3 integer lengths"),
    ([[1, 2, 3]], "3 integer lengths"),
])  # fmt: skip
def test_bad_lengths(lengths, message):
    with pytest.raises(ValueError, match=rf"\[GRU\] expected .*{message}"):
        nn.GRU(D, H)(mg.zeros((T, N, D)), lengths=lengths)
    with pytest.raises(ValueError, match=r"\[GRU\] expected a batch"):
        nn.GRU(D, H)(mg.zeros((T, D)), lengths=[3])
    with pytest.raises(ValueError, match=r"\[RNN\] expected no lengths with norm='batch'"):
        nn.RNN(D, H, norm="batch", max_length=T)(mg.zeros((T, N, D)), lengths=[1, 2, 3])


def test_bad_states_and_shapes_of_cells():
    for x, h in (((N, D + 1), None), ((T, N, D), None), ((N, D), (H,)), ((N, D), (N, D))):
        with pytest.raises(ValueError, match=r"\[RNNCell\] expected"):
            nn.RNNCell(D, H)(mg.zeros(x), None if h is None else mg.zeros(h))
    with pytest.raises(ValueError, match=r"\[LSTMCell\] expected a state of shape \(3, 5\), got \(3, 4\)"):
        nn.LSTMCell(D, H)(mg.zeros((N, D)), (mg.zeros((N, H)), mg.zeros((N, D))))
    for state in (mg.zeros((1, N, H)), (mg.zeros((1, N, H)),), (), 3, mg.zeros(())):
        with pytest.raises(TypeError, match=r"\[LSTM\] expected a pair \(h, c\) of states, got"):
            nn.LSTM(D, H)(mg.zeros((T, N, D)), state)
        with pytest.raises(TypeError, match=r"\[LSTMCell\] expected a pair \(h, c\) of states, got"):
            nn.LSTMCell(D, H)(mg.zeros((N, D)), state)
    for kind in ("RNN", "GRU"):
        with pytest.raises(TypeError, match=rf"\[{kind}\] expected a state that is a Tensor, got tuple"):
            getattr(nn, kind)(D, H)(mg.zeros((T, N, D)), (mg.zeros((1, N, H)),))


@pytest.mark.parametrize("kind", [*KINDS, *(kind + "Cell" for kind in KINDS)])
def test_bad_dtypes(kind):
    module, shape = getattr(nn, kind)(D, H), (N, D) if kind.endswith("Cell") else (T, N, D)
    for dtype in ("int64", "float64"):
        with pytest.raises(TypeError, match=rf"\[{kind}\] expected an input of float32 as the weights, got {dtype}"):
            module(mg.zeros(shape, dtype=dtype))
    with pytest.raises(TypeError, match=rf"\[{kind}\] expected a Tensor, got ndarray"):
        module(np.zeros(shape, dtype="float32"))
    state = mg.zeros((N, H) if kind.endswith("Cell") else (1, N, H), dtype="float64")
    with pytest.raises(TypeError, match=rf"\[{kind}\] expected a state of the dtype float32 of x, got float64"):
        module(mg.zeros(shape), (state, state) if "LSTM" in kind else state)
