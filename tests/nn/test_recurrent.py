"""RNN, LSTM, GRU and their cells without a norm against PyTorch; padding; modules."""

import copy
import pickle

import numpy as np
import pytest
from checks import agree, array, near, tensor
from peers import torch
from sequences import KINDS, D, H, N, T, as_tuple, called_with, grown, normals

import minigrad as mg
from minigrad import nn

# ── the reset gate before the product ─────────────────────────────────────────────────────────────

# The states h_1 ... h_4 of recorded runs on the values of `waves`, by what was run: the options here, the states
RECORDED = {
    "onnx 1.23.2, the reference evaluator in float64; onnxruntime 1.31.1 in float32": ({}, [
        [[0.582573511773, 0.432198864426], [-0.710626451815, 0.473576556138]],
        [[0.794083948132, 0.703614973936], [0.03725446505, 0.951000329899]],
        [[-0.019294739914, 0.937200961986], [-0.063673751445, 0.414044113322]],
        [[-0.094593607504, 0.28036256908], [0.293096139687, 0.725221726482]]]),
    "keras 3.15.1, reset_after=False, to 1e-7": ({"bias": "input"}, [
        [[0.5750289, -0.1764088], [-0.7349141, 0.0293996]], [[0.7134708, 0.0885616], [-0.0219844, 0.7667674]],
        [[-0.0780089, 0.709325], [-0.114667, -0.1830971]], [[-0.1636967, 0.0088016], [0.1918627, 0.1126286]]]),
    "dm-haiku 0.0.17, hk.GRU": ({"bias": "input", "convention": "paper"}, [
        [[-0.658708474825, -0.154154941981], [-0.418375605498, 0.325454328208]],
        [[0.284729886121, 0.25443478468], [0.080773735817, 0.45904412284]],
        [[-0.460324460115, 0.357991273884], [-0.875546044193, 0.323293847482]],
        [[-0.796883759883, 0.043526867419], [0.364458876696, 0.380888566879]]]),
}  # fmt: skip


def waves(place, **options):
    """Return a GRU of 3 inputs and 2 units, four steps of two samples, and the first states."""
    made = []
    for start, shape in enumerate([(4, 2, 3), (2, 2), (6, 3), (6, 2), (6,), (6,)], 1):
        made.append(np.sin(start + 1.7 * np.arange(np.prod(shape))).reshape(shape))
    layer = nn.GRU(3, 2, reset_after=False, dtype="float64", **options)
    layer.load_state_dict(dict(zip(layer.state_dict(), made[2:], strict=False)))
    return layer.to(place), tensor(made[0], place, True), tensor(made[1][None], place, True)


@pytest.mark.parametrize("name", RECORDED)
def test_a_gru_that_resets_before_is_theirs(name, device):
    options, states = RECORDED[name]
    layer, x, h = waves(device, **options)
    np.testing.assert_allclose(layer(x, h)[0].tolist(), states, rtol=0, atol=2e-7 if "keras" in name else 2e-12)


def reset_before(p, suffix, x, h, alive=None):
    """Run one layer and direction in plain operations of NumPy or PyTorch arrays of the same library as `p`."""
    torch, outputs = pytest.importorskip("torch"), []
    n = h.shape[-1]
    w, b = p[f"weight_hh{suffix}"], p[f"bias_hh{suffix}"]
    for t in range(len(x)):
        a = x[t] @ p[f"weight_ih{suffix}"].T + p[f"bias_ih{suffix}"]
        r, z = torch.sigmoid(a[:, : 2 * n] + h @ w[: 2 * n].T + b[: 2 * n]).chunk(2, -1)
        new = (1 - z) * torch.tanh(a[:, 2 * n :] + (r * h) @ w[2 * n :].T + b[2 * n :]) + z * h
        h = torch.where(alive[t], new, h)
        outputs.append(torch.where(alive[t], new, 0.0))
    return torch.stack(outputs), h


@pytest.mark.parametrize("lengths", [None, [6, 0, 3]])
def test_stacked_and_both_ways(lengths, place):
    """Outputs and all gradients against PyTorch's operations; NaN beyond the ends has no influence."""
    layer = grown(nn.GRU(D, H, 2, bidirectional=True, reset_after=False)).to(place)
    p = {name: torch.tensor(array(value), requires_grad=True) for name, value in layer.named_parameters()}
    x, h, gy, gh = normals(3, (T, N, D), (4, N, H), (T, N, 2 * H), (4, N, H))
    ends = [T] * N if lengths is None else lengths
    alive = torch.arange(T)[:, None, None] < torch.tensor(ends)[None, :, None]
    backwards = torch.tensor([[e - 1 - t if t < e else t for e in ends] for t in range(T)])[:, :, None]
    theirs, first = torch.tensor(x, requires_grad=True), torch.tensor(h, requires_grad=True)
    y, last = theirs, []
    for k in range(2):
        one, end = reset_before(p, f"_l{k}", y, first[2 * k], alive)
        reverse = torch.take_along_dim(y, backwards, 0)
        other, other_end = reset_before(p, f"_l{k}_reverse", reverse, first[2 * k + 1], alive)
        y, last = torch.cat([one, torch.take_along_dim(other, backwards, 0)], -1), [*last, end, other_end]
    expected = [y, torch.stack(last)]
    expected += torch.autograd.grad(expected, [theirs, first, *p.values()], [torch.tensor(gy), torch.tensor(gh)])
    x[~np.broadcast_to(alive.numpy(), x.shape)] = np.nan
    ours, start = tensor(x, place, True), tensor(h, place, True)
    found = layer(ours, start, lengths=None if lengths is None else tensor(np.array(lengths), place))
    found = [*found, *mg.grad(found, [ours, start, *layer.parameters()], [tensor(gy, place), tensor(gh, place)])]
    agree(found, expected, rtol=1e-9, atol=1e-11)


def test_derivatives_of_a_gru_that_resets_before(device):
    layer, x, h = waves(device)
    assert mg.gradcheck(lambda x, h, *given: called_with(layer, given, x, h, lengths=[4, 2]),
                        [x, h, *layer.parameters()], order=2)  # fmt: skip


def test_options_are_kept_by_states_copies_and_pickles(device):
    """The option changes no name and no shape, so a state fits either form: the options belong to the program."""
    layer, x, h = waves(device)
    plain = nn.GRU(3, 2, dtype="float64", device=device)
    plain.load_state_dict(layer.state_dict())
    assert abs(plain(x, h)[0] - layer(x, h)[0]).max().item() > 0.1
    cell = nn.GRUCell(3, 2, reset_after=False, dtype="float64", device=device)
    cell.load_state_dict({name[:-3]: value for name, value in layer.state_dict().items()})
    np.testing.assert_allclose(cell(x[0], h[0]).tolist(), layer(x, h)[0][0].tolist(), rtol=1e-13)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert repr(other) == repr(layer) == "GRU(3, 2, reset_after=False)"
        np.testing.assert_array_equal(other(x, h)[0].tolist(), layer(x, h)[0].tolist())
    grads = mg.per_sample_grad(lambda y, _: y.sum(), lambda_of(layer), x.transpose(1, 0, 2), mg.zeros(2, device=device))
    total = mg.grad(layer(x)[0].sum(), list(layer.parameters()))
    for each, whole in zip(grads.values(), total, strict=True):
        np.testing.assert_allclose(each.sum(0).tolist(), whole.tolist(), rtol=1e-11, atol=1e-13)


def lambda_of(layer):
    """Return a module that runs the layer over (N, T, D) and returns its outputs."""

    class Outputs(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x.transpose(1, 0, 2))[0]

    return Outputs()


# ── without a norm: PyTorch ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(30))
def test_layers_are_pytorchs(seed, place):
    """Outputs, states and gradients for random sizes, layers, directions, layouts, states and lengths."""
    compare_layers(pytest.importorskip("torch"), seed, place)


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
        near(a, b.detach().numpy(), rtol=1e-9, atol=1e-11, err_msg=f"{number} of {options}")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_pytorchs(kind, bias, device):
    ours = getattr(nn, kind + "Cell")(D, H, bias=bias, device=device, dtype="float64")
    theirs = getattr(torch.nn, kind + "Cell")(D, H, bias=bias).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x, h, c = normals(0, (N, D), (N, H), (N, H))
    state = (h, c) if kind == "LSTM" else h
    for arguments in ((x, state), (x,), (x[0], tuple(s[0] for s in state) if kind == "LSTM" else h[0]), (x[0],)):

        def made(make, arguments=arguments):
            return [tuple(map(make, a)) if isinstance(a, tuple) else make(a) for a in arguments]

        found = as_tuple(ours(*made(lambda a: tensor(a, device))))
        agree(found, as_tuple(theirs(*made(torch.from_numpy))), rtol=1e-10)


def test_dropout_is_between_layers_and_in_training_alone(device):
    x = mg.tensor(normals(1, (T, N, D))[0], dtype="float32", device=device)
    one, two = (nn.GRU(D, 400, num_layers=layers, dropout=0.5, device=device) for layers in (1, 2))
    np.testing.assert_array_equal(one(x)[0].tolist(), one.eval()(x)[0].tolist())
    seen = []
    recorded, two._layer = two._layer, lambda x, *rest: seen.append(x) or recorded(x, *rest)
    two(x)
    two.eval()(x)
    dropped, plain = (array(seen[i]) for i in (1, 3))
    assert 0.4 < (dropped == 0).mean() < 0.6
    np.testing.assert_allclose(dropped[dropped != 0], 2 * plain[dropped != 0], rtol=1e-6)


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", [(2, 6, 4), (0, 6, 1), (0, 0, 0)])
def test_padding_of_any_kind_has_no_influence(kind, norm, ends, place):
    """NaN in the padding reaches neither outputs nor gradients, not even those of the first weights."""
    layer = getattr(nn, kind)(D, H, num_layers=2, bidirectional=True, norm=norm).to(place)
    x = normals(4, (T, N, D))[0].astype("float32")
    lengths, found = mg.tensor(ends, device=place), []
    for value in (0.0, np.nan, np.inf, -1e30):
        for n, end in enumerate(ends):
            x[end:, n] = value
        inputs = tensor(x, place, True)
        y, states = layer(inputs, lengths=lengths)
        g = mg.tensor(normals(5, y.shape)[0], dtype="float32", device=place)
        layer.zero_grad()
        y.backward(g)
        found.append([y, *as_tuple(states), inputs.grad, *(parameter.grad for parameter in layer.parameters())])
    assert all(np.isfinite(array(a)).all() for a in found[0])
    for other in found[1:]:
        agree(found[0], other)


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_state_of_a_sample_without_steps_is_its_last_alone(kind, norm, place):
    """Even NaN reaches no gradient of the weights."""
    first_states_of_no_influence(kind, norm, (0.0, np.nan, np.inf), False, place)


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_it_reaches_no_second_derivative_either(kind, norm, device):
    """A composition, the same for all block groups."""
    first_states_of_no_influence(kind, norm, (0.0, np.nan), True, device)


def first_states_of_no_influence(kind, norm, values, create_graph, device):
    """Check what a layer computes with each of the values in the first state of a sample without steps."""
    layer = grown(getattr(nn, kind)(D, H, norm=norm)).to(device)
    x, g = normals(4, (T, N, D), (T, N, H))
    found = []
    for value in values:
        first = normals(6, (1, N, H))[0]
        first[:, 1] = value
        states = tuple(tensor(first, device, True) for _ in range(1 + (kind == "LSTM")))
        y, last = layer(tensor(x, device), states if kind == "LSTM" else states[0], lengths=[T, 0, 3])
        for state in as_tuple(last):
            np.testing.assert_array_equal(array(state)[:, 1], first[:, 1])
        leaves = [*layer.parameters(), *states]
        grads = mg.grad(y, leaves, tensor(g, device), create_graph=create_graph)
        found.append([y, *grads])
        if create_graph:
            found[-1] += mg.grad(sum((v * v).sum() for v in grads), leaves)
    assert all(np.isfinite(array(a)).all() for a in found[0])
    for other in found[1:]:
        agree(found[0], other)


def test_one_of_the_biases_is_missing(device):
    x = tensor(normals(4, (T, N, D))[0], device)
    layer = grown(nn.LSTM(D, H)).to(device)
    with mg.no_grad():
        layer.bias_hh_l0.zero_()
    expected, bias = layer(x)[0].tolist(), layer.bias_ih_l0
    layer.bias_hh_l0 = None
    assert layer(x)[0].tolist() == expected
    layer.bias_ih_l0, layer.bias_hh_l0 = None, bias
    assert layer(x)[0].tolist() == expected


# ── modules ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_initialization(kind, device):
    layer = getattr(nn, kind)(20, 100, norm="layer", device=device)
    for parameter in layer.parameters(recurse=False):
        assert 0.08 < np.abs(array(parameter)).max() <= 0.1
    norms = dict(layer.named_children())
    assert (
        set(norms)
        == {"RNN": {"ln_l0"}, "LSTM": {"ln_ih_l0", "ln_hh_l0", "ln_c_l0"}, "GRU": {"ln_ih_l0", "ln_hh_l0"}}[kind]
    )
    for child in norms.values():
        nn.init.zeros_(child.weight)
    nn.init.zeros_(layer.weight_hh_l0)
    layer.reset_parameters()
    assert np.abs(array(layer.weight_hh_l0)).max() > 0.08
    for child in norms.values():
        assert set(child.weight.tolist()) == {1.0}
        assert set(child.bias.tolist()) == {0.0}


@pytest.mark.parametrize("bias", [True, "input"])
def test_forget_bias(bias, device):
    layer = nn.LSTM(3, 4, num_layers=2, bias=bias, forget_bias=1.5, device=device)
    for suffix in ("_l0", "_l1"):
        b = getattr(layer, "bias_ih" + suffix) + (getattr(layer, "bias_hh" + suffix) if bias is True else 0.0)
        assert b[4:8].tolist() == [1.5] * 4
        assert 1.5 not in b[:4].tolist() + b[8:].tolist()


@pytest.mark.parametrize("options", [{}, {"norm": "layer"}, {"norm": "layer", "norm_each_gate": True}])
def test_forget_bias_opens_the_forget_gate(options, device):
    """Without other inputs, the cell keeps a share of σ(forget_bias)."""
    options = options | {"device": device}
    for cell in (nn.LSTMCell(D, H, forget_bias=2.0, **options), nn.LSTM(D, H, forget_bias=2.0, **options)):
        for name, parameter in cell.named_parameters():
            if name.startswith("weight"):
                nn.init.zeros_(parameter)
        c = mg.ones((N, H) if isinstance(cell, nn.LSTMCell) else (1, N, H), device=device)
        steps = mg.zeros((N, D) if isinstance(cell, nn.LSTMCell) else (1, N, D), device=device)
        state = cell(steps, (mg.zeros_like(c), c))
        kept = (state if isinstance(cell, nn.LSTMCell) else state[1])[1]
        # besides, the input gate adds at most 1/2 + their bound from the random biases of i and g
        assert abs(kept.mean().item() - 1 / (1 + np.exp(-2.0))) < 0.3
        gates = nn.LSTMCell(D, H, forget_bias=-50.0, **options)
        for name, parameter in gates.named_parameters():
            if name.startswith("weight"):
                nn.init.zeros_(parameter)
        big = mg.ones((N, H), device=device) * 1e3
        assert abs(gates(mg.zeros((N, D), device=device), (mg.zeros_like(big), big))[1]).max().item() < 1


@pytest.mark.parametrize("kind", KINDS)
def test_states_by_pytorchs_keyword(kind, device):
    layer, cell = (grown(getattr(nn, name)(D, H)).to(device) for name in (kind, kind + "Cell"))
    x, h, c = (tensor(a, device) for a in normals(6, (T, N, D), (N, H), (N, H)))
    first = (h, c) if kind == "LSTM" else h
    lifted = (h[None], c[None]) if kind == "LSTM" else h[None]
    for a, b in ((layer(x, lifted)[0], layer(x, hx=lifted)[0]),
                 (as_tuple(cell(x[0], first))[0], as_tuple(cell(x[0], hx=first))[0])):  # fmt: skip
        np.testing.assert_array_equal(a.tolist(), b.tolist())
    assert abs(layer(x, hx=lifted)[0] - layer(x)[0]).max().item() > 0.1
    y, _ = layer(x, lifted, [2, 6, 0])
    assert (y[2:, 0] == 0).all().item()


def test_one_of_the_states_of_an_lstm(device):
    layer, cell = grown(nn.LSTM(D, H)).to(device), grown(nn.LSTMCell(D, H)).to(device)
    x, h = (tensor(a, device) for a in normals(7, (T, N, D), (1, N, H)))
    zero = mg.zeros_like(h)
    for given, whole in (((h, None), (h, zero)), ((None, h), (zero, h))):
        assert layer(x, given)[0].tolist() == layer(x, whole)[0].tolist()
        one, other = (tuple(None if state is None else state[0] for state in states) for states in (given, whole))
        assert cell(x[0], one)[0].tolist() == cell(x[0], other)[0].tolist()


@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_share_of_the_input_is_not_kept(kind, norm):
    """It can be recomputed if create_graph=True needs it; with a norm, the tape keeps as much for its gradient."""
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


@pytest.mark.parametrize("kind", KINDS)
def test_copies_and_pickles_compute_the_same(kind, device):
    layer = getattr(nn, kind)(D, H, norm="layer", device=device)
    x = mg.tensor(normals(0, (T, N, D))[0], dtype="float32", device=device)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        np.testing.assert_array_equal(other(x)[0].tolist(), layer(x)[0].tolist())
    cell = layer._loop("_l0")[0]
    assert repr(pickle.loads(pickle.dumps(cell)).__reduce__()) == repr(cell.__reduce__())


def test_representations():
    assert (
        repr(nn.GRU(3, 4, norm="layer", convention="torch")).splitlines()[1]
        == "  3, 4, norm='layer', convention='torch'"
    )
    assert repr(nn.GRUCell(3, 4, reset_after=False)) == "GRUCell(3, 4, reset_after=False)"
    assert repr(nn.LSTM(3, 4, norm="rms", norm_cell=False)).splitlines()[1] == "  3, 4, norm='rms', norm_cell=False"
    assert "max_length=7" in repr(nn.RNN(3, 4, norm="batch", max_length=7))
    assert repr(nn.GRU(3, 4, 2, batch_first=True, convention="paper")) == (
        "GRU(3, 4, num_layers=2, batch_first=True, convention='paper')"
    )
    assert repr(nn.RNNCell(3, 4, nonlinearity="relu", bias=False)) == "RNNCell(3, 4, nonlinearity='relu', bias=False)"
    assert repr(nn.LSTM(3, 4, norm="layer", forget_bias=1.0)).splitlines()[1] == "  3, 4, norm='layer', forget_bias=1.0"


def test_one_step_and_empty_batch(place):
    rnn, lstm = nn.RNN(D, H, device=place), nn.LSTM(D, H, device=place)
    assert rnn(mg.zeros((1, N, D), device=place))[0].shape == (1, N, H)
    assert rnn(mg.zeros((T, 0, D), device=place))[0].shape == (T, 0, H)
    assert lstm(mg.zeros((T, 0, D), device=place), lengths=[])[1][1].shape == (1, 0, H)
