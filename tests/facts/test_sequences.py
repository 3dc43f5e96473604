"""Normalization within recurrent networks: over the units of a step, or over the batch with statistics for each step.

Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450, section 3.1) and Cooijmans et al. 2016
(https://arxiv.org/abs/1603.09025, section 3). docs/normalization/recurrent.md asserts that the gradients of γ and β are
sums over the steps.
"""

import numpy as np
import pytest
from checks import array, near

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

T, D, H = 6, 5, 8
LAYERS = {"RNN": nn.RNN, "LSTM": nn.LSTM, "GRU": nn.GRU}


def grown(layer, rng, scale=0.7):
    """Return the layer with random parameters, and weights of norms around 1."""
    with mg.no_grad():
        for name, parameter in layer.named_parameters():
            values = scale * rng.standard_normal(parameter.shape)
            gain = name.split(".")[-1] == "weight"
            parameter.copy_(mg.tensor(1 + 0.3 * values if gain else values, dtype=parameter.dtype))
    return layer


# ── layer normalization ──


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_among_any_mates(kind, dtype, device, rng):
    """The rest of the batch, even NaN, does not change a bit of a sequence's outputs and gradients."""
    layer = grown(LAYERS[kind](D, 48, norm="layer", dtype=dtype), rng).to(device)
    x, mates, c = rng.standard_normal((T, 17, D)), rng.standard_normal((T, 17, D)), rng.standard_normal((T, 17, 48))
    mates[:, 3] = np.nan

    def run(values):
        leaf = mg.tensor(values, dtype=dtype, device=device, requires_grad=True)
        y = layer(leaf)[0]
        y.backward(mg.tensor(c, dtype=dtype, device=device))
        return array(y), array(leaf.grad)

    whole = run(x)
    assert whole[0].std(1).mean() > 0.05
    for k in (0, 5, 16):
        among = mates.copy()
        among[:, k] = x[:, k]
        for part, expected in zip(run(among), whole, strict=True):
            np.testing.assert_array_equal(part[:, k], expected[:, k])
            assert not np.array_equal(part[:, k - 1], expected[:, k - 1])


@pytest.mark.parametrize("kind", LAYERS)
def test_a_sequence_in_any_batch(kind, rng):
    """Alone or at any position in batches of every size, results agree within the rounding of the matrix products.

    The bits depend on the number of rows: OpenBLAS, like other libraries, sums the rows that remain after its blocks in
    another order or with fused operations.
    """
    layer = grown(LAYERS[kind](D, 48, norm="layer", dtype="float64"), rng)
    x = rng.standard_normal((T, 33, D))
    whole = array(layer(mg.tensor(x))[0])
    for size in (1, 2, 3, 7, 16, 32):
        chosen = rng.permutation(33)[:size]
        y = array(layer(mg.tensor(np.ascontiguousarray(x[:, chosen])))[0])
        np.testing.assert_allclose(y, whole[:, chosen], rtol=0, atol=1e-11, err_msg=f"batch of {size}")


def test_batch_norm_ties_sequences_together(rng):
    """In contrast, in training every output depends on the rest of the batch."""
    rnn = grown(nn.RNN(D, H, norm="batch", max_length=T, dtype="float64"), rng)
    x, mates = rng.standard_normal((T, 17, D)), rng.standard_normal((T, 17, D))
    mates[:, 5] = x[:, 5]
    y, among = array(rnn(mg.tensor(x))[0])[:, 5], array(rnn(mg.tensor(mates))[0])[:, 5]
    assert np.abs(y - among).max(1).min() > 0.05


@pytest.mark.parametrize("kind", LAYERS)
def test_training_is_evaluation_through_time(kind, device, rng):
    """Both modes give the same bits, and nothing is kept for each step."""
    layer = grown(LAYERS[kind](D, H, norm="layer"), rng).to(device)
    x = mg.tensor(rng.standard_normal((T, 3, D)), dtype="float32", device=device)
    assert array(layer.train()(x)[0]).tolist() == array(layer.eval()(x)[0]).tolist()
    assert list(layer.buffers()) == []


@pytest.mark.parametrize("kind", LAYERS)
def test_sequences_twice_as_long_as_in_training(kind, rng):
    """A layer trained at length T runs at 2T: unchanged up to T, and equally stable after it."""
    layer = grown(LAYERS[kind](D, H, norm="layer", dtype="float64"), rng)
    optimizer, target = mg.optim.SGD(layer.parameters(), lr=0.05), mg.tensor(rng.standard_normal((4, H)))
    short = mg.tensor(rng.standard_normal((T, 4, D)))
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.mse_loss(layer(short)[0][-1], target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    x = rng.standard_normal((2 * T, 4, D))
    y = array(layer(mg.tensor(x))[0])
    near(layer(mg.tensor(x[:T]))[0], y[:T], rtol=0, atol=1e-11)
    size = np.sqrt((y**2).mean((1, 2)))
    assert 0.5 < size[T:].mean() / size[1:T].mean() < 2
    assert np.abs(y[T:] - y[:T]).max() > 0.1


# ── batch normalization ──


def standardized(a, mean, var, gain):
    return (a - mean) / np.sqrt(var + 1e-5) * gain


def test_batch_norm_has_statistics_of_each_step(rng):
    """All steps share a weight, but have their own statistics, as an initial state of zeros differs from later ones."""
    rnn = grown(nn.RNN(D, H, norm="batch", max_length=T, dtype="float64"), rng)
    x = rng.standard_normal((T, 50, D)) * np.linspace(0.5, 3, T)[:, None, None]
    y = array(rnn(mg.tensor(x))[0])
    p = {name: array(value) for name, value in rnn.state_dict().items()}
    assert p["bn_hh_l0.weight"].shape == (H,)
    assert p["bn_hh_l0.running_var"].shape == (T, H)
    h = np.zeros((50, H))
    for t in range(T):
        shares = {"ih": x[t] @ p["weight_ih_l0"].T, "hh": h @ p["weight_hh_l0"].T}
        a = p["bias_ih_l0"]
        for name, share in shares.items():
            mean, var = share.mean(0), share.var(0)
            np.testing.assert_allclose(p[f"bn_{name}_l0.running_mean"][t], 0.1 * mean, rtol=1e-10, atol=1e-13)
            np.testing.assert_allclose(p[f"bn_{name}_l0.running_var"][t], 0.9 + 0.1 * var * 50 / 49, rtol=1e-10)
            a = a + standardized(share, mean, var, p[f"bn_{name}_l0.weight"])
        h = np.tanh(a)
        np.testing.assert_allclose(y[t], h, rtol=1e-9, atol=1e-11)
    spread = p["bn_ih_l0.running_var"].mean(1)
    assert spread[-1] > 1.5 * spread[0]
    assert p["bn_hh_l0.running_var"][0].tolist() == [0.9] * H  # h₀ = 0 has no variance


def test_batch_norm_beyond_the_longest_sequence_of_training(rng):
    """It runs at 2T: later steps use the statistics of step T, and those of earlier steps would change the result."""
    rnn = grown(nn.RNN(D, H, norm="batch", max_length=T, dtype="float64"), rng)
    scale = np.linspace(0.5, 3, T)[:, None, None]
    for _ in range(30):
        rnn(mg.tensor(rng.standard_normal((T, 50, D)) * scale))
    rnn.eval()
    p = {name: array(value) for name, value in rnn.state_dict().items()}
    x = rng.standard_normal((2 * T, 3, D))

    def reference(last):
        h, states = np.zeros((3, H)), []
        for t in range(2 * T):
            step, a = min(t, last), p["bias_ih_l0"]
            for name, share in (("ih", x[t] @ p["weight_ih_l0"].T), ("hh", h @ p["weight_hh_l0"].T)):
                norm = f"bn_{name}_l0."
                mean, var = p[norm + "running_mean"][step], p[norm + "running_var"][step]
                a = a + standardized(share, mean, var, p[norm + "weight"])
            h = np.tanh(a)
            states.append(h)
        return np.stack(states)

    y = array(rnn(mg.tensor(x))[0])
    np.testing.assert_allclose(y, reference(T - 1), rtol=1e-9, atol=1e-11)
    assert np.abs(y - reference(T - 3))[T:].max() > 0.05
    for k in range(3):  # and in evaluation the samples of a batch are independent
        np.testing.assert_allclose(array(rnn(mg.tensor(x[:, k : k + 1]))[0])[:, 0], y[:, k], rtol=1e-12, atol=1e-14)
