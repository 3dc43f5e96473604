"""Recurrent layers on the page of a tape: their states, their gradients, and the equation of the variant in use."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from pages import content, first_numbers, inside, numbers, shown, values

import minigrad as mg
from minigrad import nn, viz
from minigrad.engine.ops.recurrent import projected


@pytest.mark.parametrize("kind, outputs", [("lstm", 3), ("gru", 2), ("rnn_tanh", 2)])
def test_recurrent_layers(kind, outputs):
    mg.manual_seed(0)
    layer = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN}[kind](3, 4, norm="layer")
    with viz.record():
        y, _ = layer(mg.random.normal(0, 1, (5, 2, 3)))
        loss = (y * y).sum()
    page = shown(viz.explore(loss, names=layer))
    entry = page[kind.partition("_")[0]]
    assert len(entry["outs"]) == outputs
    assert entry["outs"][0]["shape"] == [5, 2, 4]
    assert entry["grads"][1] is None
    np.testing.assert_allclose(
        values(page["weight_hh_l0"]["grads"][0])[:8], first_numbers(mg.grad(loss, layer.weight_hh_l0)), rtol=1e-6
    )


def test_a_step_of_a_composed_lstm():
    mg.manual_seed(0)
    cell = nn.LSTMCell(3, 4, norm="layer")
    with viz.record():
        h, c = cell(mg.random.normal(0, 1, (2, 3)), (mg.zeros((2, 4)), mg.zeros((2, 4))))
        loss = (h * h).sum() + c.sum()
    found = content(viz.explore(loss, names=cell))
    assert all(entry["outs"] and entry["grads"] for entry in found["entries"])


# ── the equation of the variant in use ────────────────────────────────────────────────────────────

LAYERS = {
    "rnn": lambda: nn.RNN(3, 4),
    "relu": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "LN-RNN": lambda: nn.RNN(3, 4, norm="layer"),
    "lstm": lambda: nn.LSTM(3, 4),
    "LN-LSTM": lambda: nn.LSTM(3, 4, norm="layer"),
    "each gate": lambda: nn.LSTM(3, 4, norm="layer", norm_each_gate=True),
    "carried": lambda: nn.LSTM(3, 4, norm="layer", carry_norm=True, gate_activation="hard_sigmoid"),
    "gru": lambda: nn.GRU(3, 4, gate_activation="hardsigmoid"),
    "gru, paper": lambda: nn.GRU(3, 4, convention="paper"),
    "LN-GRU": lambda: nn.GRU(3, 4, norm="layer"),
    "RMS-RNN": lambda: nn.RNN(3, 4, norm="rms"),
    "RMS-LSTM": lambda: nn.LSTM(3, 4, norm="rms"),
    "RMS-GRU": lambda: nn.GRU(3, 4, norm="rms"),
    "LN-GRU, torch": lambda: nn.GRU(3, 4, norm="layer", convention="torch"),
}
explore = importlib.import_module("minigrad.viz.explore")  # the module: viz.explore is the function
SOURCES = Path(mg.__file__).parent.parent / "cext"
FACTORS = re.compile(r"(?<=[\w)]) (?=[\w(])")


def normalized(a, sizes, gamma, beta, eps, centered=True):
    parts = np.split(a, np.cumsum(sizes)[:-1])
    parts = [part - part.mean() * centered for part in parts]
    return np.concatenate([part / np.sqrt((part**2).mean() + eps) for part in parts]) * gamma + beta


def step(text, cell, names):
    """Compute h and c after one step from the displayed lines, in which a space between factors is a product."""
    gate = f"σ(a) = {cell.slope:.4g} a + 0.5, clipped to [0, 1]"
    assert (gate in text.splitlines()) == (cell.slope > 0)
    scope = {
        "tanh": np.tanh, "max": np.maximum, "split": np.split, **names,
        "σ": lambda a: np.clip(cell.slope * a + 0.5, 0, 1) if cell.slope else 1 / (1 + np.exp(-a)),
        "LN": lambda a: normalized(a, cell.sizes, names["γ"], names["β"], cell.eps),
        "LN_c": lambda a: normalized(a, (a.size,), names["γ_c"], names["β_c"], cell.eps_c),
        "RMS": lambda a: normalized(a, cell.sizes, names["γ"], names["β"], cell.eps, False),
        "RMS_c": lambda a: normalized(a, (a.size,), names["γ_c"], names["β_c"], cell.eps_c, False),
    }  # fmt: skip
    for line in text.splitlines():
        left, _, right = line.partition(" = ")
        right = right.replace("h_{t−1}", "h").replace("c_{t−1}", "c").replace("−", "-").replace("W_hh h", "W_hh @ h")
        if left.startswith("("):
            exec(f"{left} = split({right.split(' parts of ')[1]}, {left.count(',') + 1})", scope)
        elif left in ("a_t", "h_t", "c_t", "r", "z", "n"):
            exec(f"{left} = {FACTORS.sub(' * ', right)}", scope)
    return scope["h_t"], scope.get("c_t")


@pytest.mark.parametrize("name", LAYERS)
def test_the_equation_computes_what_the_layer_computes(name, rng):
    """Evaluate every displayed line as it is, for two steps from given states."""
    layer = LAYERS[name]().to("float64")
    for parameter in layer.parameters():
        parameter.detach()[...] = rng.normal(0, 1, parameter.shape)
    kind = type(layer).__name__.lower()
    x = rng.normal(size=(2, 1, 3))
    h, c = rng.normal(size=(1, 1, 4)), rng.normal(size=(1, 1, 4))
    state = (mg.tensor(h), mg.tensor(c)) if kind == "lstm" else mg.tensor(h)
    y, last = layer(mg.tensor(x), state)
    page = viz.explore(y.sum())
    found = content(page)
    (entry,) = [entry for entry in found["entries"] if entry["op"] == kind]
    equation = found["equations"][entry["equation"]]
    cell, (weight, bias, *affine) = layer._loop("_l0")
    names = dict(
        zip(("γ", "β", "γ_c", "β_c"), (None if p is None else p.detach().numpy() for p in affine), strict=True)
    )
    names |= {
        "W_hh": weight.detach().numpy(),
        "b": None if bias is None else bias.detach().numpy(),
        "h": h[0, 0],
        "c": c[0, 0],
    }
    shares = projected(cell, *layer._source("_l0", mg.tensor(x))).detach().numpy()
    for t in range(2):
        names["x_t"] = shares[t, 0]
        names["h"], names["c"] = step(equation["forward"], cell, names)
        np.testing.assert_allclose(names["h"], y.detach().numpy()[t, 0], rtol=1e-10, err_msg=equation["forward"])
    if kind == "lstm":
        np.testing.assert_allclose(names["c"], last[1].detach().numpy()[0, 0], rtol=1e-10)
    there = {"x", "h₀", "W_hh"} | ({"c₀"} if kind == "lstm" else set()) | ({"b"} if bias is not None else set())
    there |= {key for key, p in zip(("γ", "β", "γ_c", "β_c"), affine, strict=True) if p is not None}
    assert {given for given in equation["inputs"] if given} == there
    if SOURCES.is_dir():  # an installed package has none
        assert any("recurrent_backward(cell, arrays)" in line for line in equation["excerpt"]["lines"])


@pytest.mark.parametrize("convention, used, other", [("torch", "(1 − z) n + z h_{t−1}", "(1 − z) h_{t−1} + z n"),
                                                     ("paper", "(1 − z) h_{t−1} + z n", "(1 − z) n + z h_{t−1}")])  # fmt: skip
def test_a_gru_shows_its_convention_and_names_the_other(convention, used, other):
    """It also shows the path of the old state's gradient around the product."""
    y, _ = nn.GRU(3, 4, norm="layer", convention=convention)(mg.ones((2, 1, 3)))
    found = content(viz.explore(y.sum()))
    (equation,) = [equation for equation in found["equations"] if "h_T" in equation["outputs"]]
    lines = equation["forward"].splitlines()
    assert f"h_t = {used}" in lines
    (said,) = [line for line in lines if "convention" in line]
    assert f"'{convention}'" in said
    assert said.endswith(other)
    assert (
        f"dh_{{t−1}} = da_t W_hh + {'z' if convention == 'torch' else '(1 − z)'} dh_t"
        in equation["backward"].splitlines()
    )


def test_the_first_states_of_an_lstm_are_shown():
    """They need no gradient; the page shows them as read by backward."""
    layer, h, c = nn.LSTM(3, 4, norm="layer"), mg.full((1, 1, 4), 2.0), mg.full((1, 1, 4), 5.0)
    y, _ = layer(mg.ones((2, 1, 3)), (h, c))
    page = viz.explore(y.sum())
    entry = shown(page)["lstm"]
    assert [entry["read"][k]["numbers"] for k in (1, 2)] == [[[2.0] * 4], [[5.0] * 4]]
    (equation,) = [equation for equation in content(page)["equations"] if "c_T" in equation["outputs"]]
    assert equation["inputs"][1:3] == ["h₀", "c₀"]
    assert "h₀, c₀: the states before" in equation["forward"]


@pytest.mark.parametrize("layer, line", [(nn.GRU, "after a sample's end y_t = 0, and h_t = h_{t−1}"),
                                         (nn.LSTM, "after a sample's end y_t = 0, and h_t = h_{t−1}, c_t = c_{t−1}")])  # fmt: skip
def test_lengths_are_told_where_there_are_some(layer, line):
    for lengths in (None, [2, 1]):
        y, _ = layer(3, 4)(mg.ones((2, 2, 3)), lengths=lengths)
        (equation,) = [e for e in content(viz.explore(y.sum()))["equations"] if "h_T" in e["outputs"]]
        assert (line in equation["forward"].splitlines()) == (lengths is not None)


# ── inside a layer: its time steps ────────────────────────────────────────────────────────────────

T, N = 4, 3


def layer_and_inputs(name, rng):
    layer = LAYERS[name]().to("float64")
    for parameter in layer.parameters():
        parameter.detach()[...] = rng.normal(0, 1, parameter.shape)
    x = mg.tensor(rng.normal(size=(T, N, 3)), requires_grad=True)
    states = [mg.tensor(rng.normal(size=(1, N, 4)), requires_grad=True) for _ in range(1 + isinstance(layer, nn.LSTM))]
    return layer, x, states


def run(layer, x, states, lengths):
    """Return the outputs and the last states, as a list."""
    y, last = layer(x, tuple(states) if len(states) == 2 else states[0], lengths=lengths)
    return y, list(last) if len(states) == 2 else [last]


def close(shown, expected):
    """Compare to the 8 digits of a page."""
    np.testing.assert_allclose(numbers(shown).ravel(), np.ravel(expected), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("lengths", [None, [4, 2, 1]])
@pytest.mark.parametrize("name", LAYERS)
def test_the_time_steps_of_a_layer_are_those_of_the_fused_operation(name, lengths, rng):
    """The states of each step are those of a shorter sequence, their gradients those of the rest of the sequence."""
    layer, x, states = layer_and_inputs(name, rng)
    ends = [T] * N if lengths is None else lengths
    dy, *dlast = (mg.tensor(rng.normal(size=shape)) for shape in [(T, N, 4), *[(1, N, 4)] * len(states)])

    def weighted(y, last, first):
        pairs = zip([y, *last], [dy[first:], *dlast], strict=True)
        return sum((out * by).sum() for out, by in pairs)

    loss = weighted(*run(layer, x, states, lengths), 0)
    inputs, steps = inside(viz.explore(loss, names=layer))
    assert ("c₀" in inputs) == (len(states) == 2)
    for symbol, state in zip(("h₀", "c₀"), states, strict=False):
        close(inputs[symbol][1], mg.grad(loss, state, retain_graph=True))
    gradient = first_numbers(mg.grad(loss, layer.weight_hh_l0))
    np.testing.assert_allclose(values(inputs["W_hh"][1])[:8], gradient, rtol=1e-7, atol=1e-7)
    assert len(steps) == T
    for t, step in enumerate(steps, 1):
        _, last = run(layer, x[:t], states, None if lengths is None else [min(n, t) for n in ends])
        for symbol, state in zip(("h_t", "c_t"), last, strict=False):
            close(step[symbol][0], state.detach())
        if t == T:
            continue
        last = [state.detach().requires_grad_() for state in last]
        rest = run(layer, x[t:], last, None if lengths is None else [max(n - t, 0) for n in ends])
        output = mg.tensor([[float(t <= n)] for n in ends], dtype="float64") * last[0][0]  # 0 after a sample's end
        close(step["h_t"][1], mg.grad((output * dy[t - 1]).sum() + weighted(*rest, t), last[0]))


def test_every_step_has_the_same_operations(rng):
    """Those that keep the state of a sample after its end are a part of its step."""
    layer, x, states = layer_and_inputs("LN-LSTM", rng)
    y, _ = run(layer, x, states, [4, 2, 1])
    entries = content(viz.explore(y.sum(), names=layer))["entries"]
    numbers_of_steps = [k for k, entry in enumerate(entries) if "made" in entry]
    ops = [[entry["op"] for entry in entries if entry["parent"] == k] for k in numbers_of_steps]
    assert len(ops) == T
    assert all(names == ops[0] for names in ops)
    assert ops[0][-1] == "where"


@pytest.mark.parametrize("name", ["LN-LSTM", "gru, paper"])
def test_gates_have_the_names_of_the_equation(name, rng):
    """The gates that are shown, put into the equation, make the state that is shown."""
    layer, x, states = layer_and_inputs(name, rng)
    y, _ = run(layer, x, states, None)
    _, steps = inside(viz.explore(y.sum(), names=layer))
    for step in steps:
        at = {symbol: numbers(value) for symbol, (value, _) in step.items() if symbol != "x_t"}
        if name == "LN-LSTM":
            np.testing.assert_allclose(
                at["c_t"], at["σ(f)"] * at["c_{t−1}"] + at["σ(i)"] * at["tanh(g)"], rtol=1e-6, atol=1e-6
            )
        else:
            np.testing.assert_allclose(
                at["h_t"], (1 - at["z"]) * at["h_{t−1}"] + at["z"] * at["n"], rtol=1e-6, atol=1e-6
            )


def test_the_gradients_of_gates_make_that_of_their_input(rng):
    """x_t is added to what each gate is a function of: its gradient is theirs times that function's derivative."""
    layer, x, states = layer_and_inputs("LN-LSTM", rng)
    y, _ = run(layer, x, states, None)
    _, steps = inside(viz.explore((y * y).sum(), names=layer))
    (i, di), (f, df), (g, dg), (o, do) = (
        tuple(numbers(part)[0] for part in steps[1][symbol]) for symbol in ("σ(i)", "σ(f)", "tanh(g)", "σ(o)")
    )
    expected = np.concatenate([di * i * (1 - i), df * f * (1 - f), dg * (1 - g * g), do * o * (1 - o)])
    np.testing.assert_allclose(values(steps[1]["x_t"][1])[:8], expected[:8], rtol=1e-5, atol=1e-7)


def test_exploring_a_layer_leaves_no_trace(rng):
    """Nothing is added to an open recording or to a grad, also under no_grad; long and large layers stay readable."""
    layer, x, states = layer_and_inputs("LN-LSTM", rng)
    with viz.record() as recording:
        y, _ = run(layer, x, states, None)
        loss = y.sum()
        known = set(recording.values)
        with mg.no_grad():
            page = viz.explore(loss, names=layer)
        assert set(recording.values) == known
    assert len(inside(page)[1]) == T
    assert layer.weight_hh_l0.grad is None
    long, _ = layer(mg.ones((explore.LONG + 1, 1, 3), dtype="float64"))
    found = content(viz.explore(long.sum(), names=layer))
    assert sum("made" in entry for entry in found["entries"]) == explore.LONG + 1
    assert all(entry["leaf"] or "made" in entry for entry in found["entries"] if entry["parent"] is not None)


def test_a_very_large_layer_says_that_it_is_not_opened(monkeypatch, rng):
    monkeypatch.setattr(explore, "LARGE", 10)
    layer, x, states = layer_and_inputs("rnn", rng)
    found = content(viz.explore(run(layer, x, states, None)[0].sum(), names=layer))
    assert [entry["note"] for entry in found["entries"] if "note" in entry] == [
        "its time steps are not shown: its input takes more than 10 bytes"
    ]
    assert all(entry["parent"] is None for entry in found["entries"])
