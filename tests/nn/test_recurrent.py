"""RNN and RNNCell: PyTorch without a norm, the equation in NumPy with one."""

import numpy as np
import pytest

import minigrad as mg
from minigrad import nn

T, N, D, H = 6, 3, 4, 5


def normals(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def grown(rnn):
    """The module in float64 with larger, random parameters."""
    rnn.to("float64")
    for number, parameter in enumerate(rnn.parameters()):
        with mg.no_grad():
            parameter.copy_(mg.tensor(normals(number, parameter.shape)[0]))
    return rnn


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("batched", [True, False])
def test_rnn_is_pytorchs(bias, nonlinearity, batch_first, with_state, batched):
    torch = pytest.importorskip("torch")
    options = {"nonlinearity": nonlinearity, "bias": bias, "batch_first": batch_first}
    ours, theirs = nn.RNN(D, H, **options).to("float64"), torch.nn.RNN(D, H, **options).double()
    assert {name: value.shape for name, value in ours.state_dict().items()} == {
        name: tuple(value.shape) for name, value in theirs.state_dict().items()
    }
    ours.load_state_dict(theirs.state_dict())
    shape, state = (((N, T, D) if batch_first else (T, N, D)), (1, N, H)) if batched else ((T, D), (1, H))
    x, h, g, g_last = normals(0, shape, state, (*shape[:-1], H), state)
    xs = mg.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    hs = (mg.tensor(h, requires_grad=True), torch.tensor(h, requires_grad=True)) if with_state else (None, None)
    (out, last), (out_theirs, last_theirs) = ours(xs[0], hs[0]), theirs(xs[1], hs[1])
    assert out.shape == tuple(out_theirs.shape)
    assert last.shape == tuple(last_theirs.shape)
    ((out * mg.tensor(g)).sum() + (last * mg.tensor(g_last)).sum()).backward()
    ((out_theirs * torch.from_numpy(g)).sum() + (last_theirs * torch.from_numpy(g_last)).sum()).backward()
    close = {"rtol": 1e-10, "atol": 1e-11}
    np.testing.assert_allclose(out.tolist(), out_theirs.tolist(), **close)
    np.testing.assert_allclose(last.tolist(), last_theirs.tolist(), **close)
    np.testing.assert_allclose(xs[0].grad.tolist(), xs[1].grad.tolist(), **close)
    if with_state:
        np.testing.assert_allclose(hs[0].grad.tolist(), hs[1].grad.tolist(), **close)
    for (name, a), (_, b) in zip(ours.named_parameters(), theirs.named_parameters(), strict=True):
        np.testing.assert_allclose(a.grad.tolist(), b.grad.tolist(), err_msg=name, **close)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_cell_is_pytorchs(bias, nonlinearity):
    torch = pytest.importorskip("torch")
    ours = nn.RNNCell(D, H, bias=bias, nonlinearity=nonlinearity).to("float64")
    theirs = torch.nn.RNNCell(D, H, bias=bias, nonlinearity=nonlinearity).double()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    x, h = normals(0, (N, D), (N, H))
    for arguments in ((x, h), (x,), (x[0], h[0]), (x[0],)):
        np.testing.assert_allclose(
            ours(*map(mg.tensor, arguments)).tolist(), theirs(*map(torch.from_numpy, arguments)).tolist(), rtol=1e-10
        )


def layer_norm_rnn(x, h, p, f):
    """h = f(LN(W_ih x + W_hh h + b)), row by row in NumPy."""
    states = []
    for x_t in x:
        a = x_t @ p["weight_ih_l0"].T + h @ p["weight_hh_l0"].T + p["bias_ih_l0"] + p["bias_hh_l0"]
        a = (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)
        h = f(a * p["ln_l0.weight"] + p["ln_l0.bias"])
        states.append(h)
    return np.stack(states), h


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_layer_norm_rnn_is_the_equation(nonlinearity):
    rnn = grown(nn.RNN(D, H, nonlinearity=nonlinearity, norm="layer"))
    assert [name for name, _ in rnn.named_parameters()] == [
        "weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "ln_l0.weight", "ln_l0.bias",
    ]  # fmt: skip
    x, h = normals(1, (T, N, D), (N, H))
    f = np.tanh if nonlinearity == "tanh" else lambda a: np.maximum(a, 0)
    p = {name: value.numpy() for name, value in rnn.state_dict().items()}
    expected, last = layer_norm_rnn(x, h, p, f)
    out, h_n = rnn(mg.tensor(x), mg.tensor(h[None]))
    np.testing.assert_allclose(out.tolist(), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(h_n.tolist(), last[None], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", [None, "layer"])
def test_cell_repeated_is_the_rnn(norm):
    rnn, cell = grown(nn.RNN(D, H, norm=norm)), nn.RNNCell(D, H, norm=norm).to("float64")
    cell.load_state_dict({name.replace("_l0", ""): value for name, value in rnn.state_dict().items()})
    x = mg.tensor(normals(1, (T, N, D))[0])
    h = None
    for step in range(T):
        h = cell(x[step], h)
    np.testing.assert_allclose(rnn(x)[1][0].tolist(), h.tolist(), rtol=1e-12)


def test_gradients_through_time():
    """Order 2, in everything the recurrence depends on."""
    rnn = nn.RNN(2, 3, norm="layer", dtype="float64")
    names = [name for name, _ in rnn.named_parameters()]

    def f(x, h, *values):
        copy = nn.RNN(2, 3, norm="layer", dtype="float64")
        for name, value in zip(names, values, strict=True):
            module = copy.ln_l0 if "." in name else copy
            module.__dict__[name.split(".")[-1]] = value
        return copy(x, h)[0]

    inputs = normals(2, (4, 2, 2), (1, 2, 3), *(parameter.shape for parameter in rnn.parameters()))
    assert mg.gradcheck(f, [mg.tensor(value, requires_grad=True) for value in inputs], order=2)


def test_zero_states_give_finite_gradients():
    """W x + W h + b of zeros is a row without variance."""
    rnn = nn.RNN(D, H, norm="layer", bias=False)
    x = mg.zeros((T, N, D), requires_grad=True)
    out, _ = rnn(x)
    out.backward(mg.tensor(normals(3, out.shape)[0], dtype=mg.float32))
    assert all(np.isfinite(parameter.grad.numpy()).all() for parameter in rnn.parameters())
    assert np.isfinite(x.grad.numpy()).all()


def test_initialization():
    rnn = nn.RNN(20, 100, norm="layer")
    for parameter in rnn.parameters(recurse=False):
        assert 0.08 < np.abs(parameter.detach().numpy()).max() <= 0.1
    assert rnn.ln_l0.weight.tolist() == [1.0] * 100
    assert rnn.ln_l0.bias.tolist() == [0.0] * 100
    nn.init.zeros_(rnn.weight_hh_l0)
    nn.init.zeros_(rnn.ln_l0.weight)
    rnn.reset_parameters()
    assert np.abs(rnn.weight_hh_l0.detach().numpy()).max() > 0.08
    assert rnn.ln_l0.weight.tolist() == [1.0] * 100


def test_one_step_and_empty_batch():
    rnn = nn.RNN(D, H)
    assert rnn(mg.zeros((1, N, D)))[0].shape == (1, N, H)
    assert rnn(mg.zeros((T, 0, D)))[0].shape == (T, 0, H)


@pytest.mark.parametrize("build", [
    lambda: nn.RNN(0, 3), lambda: nn.RNN(3, 0), lambda: nn.RNN(3, 3, nonlinearity="gelu"),
    lambda: nn.RNN(3, 3, norm="batch"), lambda: nn.RNNCell(3, 3, norm="x"), lambda: nn.RNNCell(-1, 3),
])  # fmt: skip
def test_bad_options(build):
    with pytest.raises(ValueError, match=r"\[RNN(Cell)?\] expected"):
        build()


@pytest.mark.parametrize("x, h", [
    ((T, N, D + 1), None), ((T, N, 1, D), None), ((D,), None), ((0, N, D), None), ((T, N, D), (N, H)),
    ((T, N, D), (1, N + 1, H)), ((T, D), (1, N, H)),
])  # fmt: skip
def test_bad_shapes(x, h):
    with pytest.raises(ValueError, match=r"\[RNN\] expected"):
        nn.RNN(D, H)(mg.zeros(x), None if h is None else mg.zeros(h))


def test_bad_shapes_of_a_cell():
    for x, h in (((N, D + 1), None), ((T, N, D), None), ((N, D), (H,)), ((N, D), (N, D))):
        with pytest.raises(ValueError, match=r"\[RNNCell\] expected"):
            nn.RNNCell(D, H)(mg.zeros(x), None if h is None else mg.zeros(h))
