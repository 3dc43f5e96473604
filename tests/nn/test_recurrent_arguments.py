"""Invalid arguments of RNN, LSTM, GRU and their cells."""

import numpy as np
import pytest
from checks import raises, refuses
from sequences import KINDS, D, H, N, T

import minigrad as mg
from minigrad import nn


@pytest.mark.parametrize("build", [
    lambda: nn.RNN(0, 3), lambda: nn.LSTM(3, 0), lambda: nn.RNN(3, 3, nonlinearity="gelu"),
    lambda: nn.RNN(3, 3, norm="batch"), lambda: nn.RNN(3, 3, max_length=4), lambda: nn.RNNCell(3, 3, norm="batch"),
    lambda: nn.GRU(3, 3, norm="batch"), lambda: nn.RNNCell(-1, 3), lambda: nn.LSTM(3, 3, 0),
    lambda: nn.GRU(3, 3, dropout=1.5), lambda: nn.LSTM(3, 3, gate_activation="tanh"), lambda: nn.LSTM(3, 3, carry_norm=True),
    lambda: nn.LSTM(3, 3, norm="batch", max_length=4, norm_each_gate=True), lambda: nn.LSTMCell(3, 3, norm="batch"),
    lambda: nn.LSTM(3, 3, norm_cell=False), lambda: nn.LSTMCell(3, 3, norm="rms", norm_cell=False, carry_norm=True),
    lambda: nn.LSTM(3, 3, max_length=4), lambda: nn.LSTM(3, 3, bias=False, forget_bias=1.0), lambda: nn.GRU(3, 3, convention="keras"), lambda: nn.GRU(3, 3, bias="hidden"),
])  # fmt: skip
def test_bad_options(build):
    raises(ValueError, r"\[(RNN|LSTM|GRU)(Cell)?\] expected", build)


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_dropout_without_a_second_layer(kind):
    with pytest.warns(UserWarning, match=rf"\[{kind.__name__}\] dropout=0.5 has no effect with one layer") as found:
        kind(3, 3, dropout=0.5)
    assert found[0].filename == __file__


@pytest.mark.parametrize("build", [
    lambda: nn.RNN(3, 3, bidirectional="no"), lambda: nn.GRU(3, 3, batch_first=0), lambda: nn.RNNCell(3, 3, bias=1),
    lambda: nn.LSTM(3, 3, norm="layer", norm_each_gate=1), lambda: nn.LSTMCell(3, 3, norm="layer", carry_norm="no"),
    lambda: nn.GRU(3, 3, reset_after=0), lambda: nn.LSTM(3, 3, norm="layer", norm_cell=1),
])  # fmt: skip
def test_flags_that_are_none(build):
    raises(TypeError, r"^\[(RNN|LSTM|GRU)(Cell)?\] expected \w+ True(,| or) False", build)


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
    ([T + 1, 1, 1], f"lengths from 0 to {T}, got {T + 1}"), ([-1, 1, 1], f"lengths from 0 to {T}, got -1"),
    ([1, 1], r"3 lengths, got int64 of shape \(2,\)"), (4, r"3 lengths, got int64 of shape \(\)"),
    ([[1, 2, 3]], r"3 lengths, got int64 of shape \(1, 3\)"),
])  # fmt: skip
def test_bad_lengths(lengths, message):
    raises(ValueError, rf"^\[GRU\] expected {message}", nn.GRU(D, H), mg.zeros((T, N, D)), lengths=lengths)


@pytest.mark.parametrize("lengths, got", [
    ("abc", "'abc'"), ([None, 1, 2], r"\[None, 1, 2\]"), (np.array([1, 2, 3], dtype="uint16"), ".*dtype=uint16"),
    ([[1, 2], [3]], r"\[\[1, 2\], \[3\]\]"),
    ([2**70, 1, 1], r"\[1180591620717411303424, 1, 1\]"), ([1.0, 2.0, 3.0], "float32"), ([True, False, True], "bool"),
])  # fmt: skip
def test_lengths_that_are_no_integers(lengths, got):
    with pytest.raises(TypeError, match=rf"^\[GRU\] expected lengths of int32 or int64, got {got}"):
        nn.GRU(D, H)(mg.zeros((T, N, D)), lengths=lengths)


def test_lengths_where_there_are_none():
    refuses(ValueError, "GRU", "expected a batch", nn.GRU(D, H), mg.zeros((T, D)), lengths=[3])
    with pytest.raises(ValueError, match=r"\[RNN\] expected no lengths with norm='batch'"):
        nn.RNN(D, H, norm="batch", max_length=T)(mg.zeros((T, N, D)), lengths=[1, 2, 3])


def test_bad_states_and_shapes_of_cells():
    for x, h in (((N, D + 1), None), ((T, N, D), None), ((N, D), (H,)), ((N, D), (N, D))):
        refuses(ValueError, "RNNCell", "expected", nn.RNNCell(D, H), mg.zeros(x), None if h is None else mg.zeros(h))
    with pytest.raises(ValueError, match=r"\[LSTMCell\] expected a state of shape \(3, 5\), got \(3, 4\)"):
        nn.LSTMCell(D, H)(mg.zeros((N, D)), (mg.zeros((N, H)), mg.zeros((N, D))))
    for state in (mg.zeros((1, N, H)), (mg.zeros((1, N, H)),), (), 3, mg.zeros(())):
        refuses(TypeError, "LSTM", "expected a pair (h, c) of states, got", nn.LSTM(D, H), mg.zeros((T, N, D)), state)
        with pytest.raises(TypeError, match=r"\[LSTMCell\] expected a pair \(h, c\) of states, got"):
            nn.LSTMCell(D, H)(mg.zeros((N, D)), state)
    for kind in ("RNN", "GRU"):
        with pytest.raises(TypeError, match=rf"\[{kind}\] expected the state to be a Tensor, got tuple"):
            getattr(nn, kind)(D, H)(mg.zeros((T, N, D)), (mg.zeros((1, N, H)),))


@pytest.mark.parametrize("kind", [*KINDS, *(kind + "Cell" for kind in KINDS)])
def test_bad_dtypes(kind):
    module, shape = getattr(nn, kind)(D, H), (N, D) if kind.endswith("Cell") else (T, N, D)
    for dtype in ("int64", "float64"):
        match = rf'\[{kind}\] expected an input of float32 like the weights, got {dtype}: use x.astype\("float32"\)'
        raises(TypeError, match, module, mg.zeros(shape, dtype=dtype))
    refuses(TypeError, kind, "expected a Tensor, got ndarray", module, np.zeros(shape, dtype="float32"))
    theirs = type("Tensor", (), {"__module__": "torch.parts"})()
    refuses(TypeError, kind, "expected a Tensor, got torch.Tensor", module, theirs)
    state = mg.zeros((N, H) if kind.endswith("Cell") else (1, N, H), dtype="float64")
    with pytest.raises(TypeError, match=rf"\[{kind}\] expected a state of float32, the dtype of x, got float64"):
        module(mg.zeros(shape), (state, state) if "LSTM" in kind else state)


def test_a_layer_without_parameters():
    layer = nn.RNN(3, 4)
    for name, _ in list(layer.named_parameters()):
        delattr(layer, name)
    refuses(AttributeError, "RNN", "expected parameters, but all of them were deleted", layer, mg.ones((2, 1, 3)))
