"""Effects of normalizing: examples by hand, the place of ε, moments, and what can and cannot be undone.

Batch normalization after Ioffe, Szegedy 2015 (https://arxiv.org/abs/1502.03167, algorithm 1), layer normalization after
Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450, equations 3 and 4), the others as Wu, He 2018 set them side by
side (https://arxiv.org/abs/1803.08494, section 3.1).
"""

import math

import numpy as np
import pytest
from checks import array
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def digits():
    """Return real data: the 1,797 digits with their pixels averaged in 4 × 4 blocks of four, (1797, 16)."""
    images = load_digits().data.reshape(-1, 4, 2, 4, 2)
    return images.mean((2, 4)).reshape(-1, 16)


def set_affine(norm, gain, shift):
    with mg.no_grad():
        norm.weight.copy_(mg.tensor(gain))
        norm.bias.copy_(mg.tensor(shift))
    return norm


def correlations(x):
    """Return the largest correlation between two different columns."""
    r = np.corrcoef(x.T)
    return np.abs(r - np.eye(len(r))).max()


# ── examples by hand ──


def test_batch_norm_of_four_samples_with_three_channels():
    """By hand: each channel has mean 4; the variances are 5, 4 and 24; then y = γ x̂ + β with γ = (2, 1, ½), β = (0, 1, −1)."""
    x = [[1.0, 2.0, 0.0], [3.0, 2.0, 4.0], [5.0, 6.0, 0.0], [7.0, 6.0, 12.0]]
    norm = set_affine(nn.BatchNorm1d(3, eps=0.0, momentum=1.0, dtype="float64"), [2.0, 1.0, 0.5], [0.0, 1.0, -1.0])
    y = array(norm(mg.tensor(x, dtype="float64")))
    assert norm.running_mean.tolist() == [4.0, 4.0, 4.0]
    np.testing.assert_allclose(array(norm.running_var), [20 / 3, 16 / 3, 32.0], rtol=1e-14)  # 4/3 of the biased ones
    a, b = 1 / math.sqrt(5), 1 / math.sqrt(24)
    expected = [
        [-6 * a, 0, -2 * b - 1],
        [-2 * a, 0, -1],
        [2 * a, 2, -2 * b - 1],
        [6 * a, 2, 4 * b - 1],
    ]
    np.testing.assert_allclose(y, expected, rtol=1e-14, atol=1e-15)
    rounded = [[-2.683, 0, -1.408], [-0.894, 0, -1.0], [0.894, 2, -1.408], [2.683, 2, -0.184]]
    np.testing.assert_allclose(y, rounded, atol=5e-4)


def test_layer_norm_of_a_sample_of_three():
    """By hand: (1, 2, 6) has mean 3 and variance (4 + 1 + 9)/3 = 14/3, so that x̂ = (−2, −1, 3) √(3/14)."""
    norm = set_affine(nn.LayerNorm(3, eps=0.0, dtype="float64"), [2.0, 1.0, 0.5], [0.0, 1.0, -1.0])
    root = math.sqrt(3 / 14)
    x = mg.tensor([1.0, 2.0, 6.0], dtype="float64")
    y = array(norm(x))
    np.testing.assert_allclose(y, [-4 * root, 1 - root, 1.5 * root - 1], rtol=1e-14)
    np.testing.assert_allclose(y, [-1.8516, 0.5371, -0.3056], atol=5e-5)
    np.testing.assert_allclose(array(F.layer_norm(x, (3,), eps=0.0)), [-0.9258, -0.4629, 1.3887], atol=5e-5)


# ── where ε stands ──


@pytest.mark.parametrize("sigma, misprinted", [(0.1, 7.60), (1.0, 0.997), (10.0, 0.100)])
def test_eps_stands_inside_the_root(sigma, misprinted, device, rng):
    """x / √(σ² + ε) has a standard deviation of almost 1 for every σ; the misprint x / (σ² + √ε) has those above."""
    rows = rng.standard_normal((6, 8))
    rows -= rows.mean(1, keepdims=True)
    rows *= sigma / rows.std(1, keepdims=True)
    wrong = rows / (rows.var(1, keepdims=True) + math.sqrt(1e-5))
    np.testing.assert_allclose(wrong.std(1), misprinted, rtol=2e-3)
    for norm, x in [
        (nn.LayerNorm(8), rows), (nn.BatchNorm1d(6), rows.T), (nn.GroupNorm(6, 6), rows[None]),
        (nn.InstanceNorm1d(6), rows[None]), (nn.RMSNorm(8, eps=1e-5), rows),
    ]:  # fmt: skip
        y = array(norm.to("float64").to(device)(mg.tensor(x, device=device))).reshape(x.shape)
        axis = 0 if isinstance(norm, nn.BatchNorm1d) else -1
        np.testing.assert_allclose(y.std(axis), sigma / math.sqrt(sigma**2 + 1e-5), rtol=1e-12)
        np.testing.assert_allclose(y.std(axis), 1.0, rtol=6e-4)  # ε / 2σ² at most
        assert abs(y.std(axis).mean() - misprinted) > 2e-3


# ── narrow layers ──


def test_layers_of_one_and_two_units(rng):
    """LN of a single unit is always 0; of two units it is ±1 and only keeps their order."""
    one = set_affine(nn.LayerNorm(1, dtype="float64"), [1.7], [0.0])
    assert array(one(mg.tensor(100 * rng.standard_normal((20, 1))))).tolist() == [[0.0]] * 20
    x = rng.standard_normal((20, 2))
    sign = np.sign(x[:, :1] - x[:, 1:])
    assert {-1.0, 1.0} == set(sign.ravel().tolist())
    y = array(F.layer_norm(mg.tensor(x), (2,), eps=0.0))
    np.testing.assert_allclose(y, np.concatenate([sign, -sign], 1), rtol=1e-12)
    half = np.abs(x[:, :1] - x[:, 1:]) / 2  # the deviation; with ε: ±h / √(h² + ε)
    y = array(F.layer_norm(mg.tensor(x), (2,), eps=0.01))
    np.testing.assert_allclose(np.abs(y), np.repeat(half / np.sqrt(half**2 + 0.01), 2, 1), rtol=1e-12)


# ── what can be undone ──


def test_gain_and_bias_of_batch_norm_can_restore_the_activations(rng):
    """γ = √(σ² + ε) and β = μ make batch normalization the identity (Ioffe, Szegedy 2015, section 3)."""
    x = 3 + 2 * rng.standard_normal((9, 4)) * rng.uniform(0.5, 2, 4)
    assert np.abs(array(nn.BatchNorm1d(4, dtype="float64")(mg.tensor(x))) - x).max() > 1
    norm = set_affine(nn.BatchNorm1d(4, dtype="float64"), np.sqrt(x.var(0) + 1e-5), x.mean(0))
    np.testing.assert_allclose(array(norm(mg.tensor(x))), x, rtol=1e-12)


def test_gain_and_bias_of_layer_norm_cannot(rng):
    """LN(x) = LN(2x): no γ and β make the outputs of x and 2x differ. One sample can be restored, two cannot."""
    x = 3 + 2 * rng.standard_normal((2, 5))
    for gain, shift in ((np.ones(5), np.zeros(5)), rng.standard_normal((2, 5))):
        norm = set_affine(nn.LayerNorm(5, eps=0.0, dtype="float64"), gain, shift)
        y, doubled = array(norm(mg.tensor(x))), array(norm(mg.tensor(2 * x)))
        assert y.tolist() == doubled.tolist()  # bit for bit: a factor of two rounds nothing
        assert np.abs(y[0] - y[1]).max() > 0.1
    single = set_affine(
        nn.LayerNorm(5, dtype="float64"), np.full(5, math.sqrt(x[0].var() + 1e-5)), np.full(5, x[0].mean())
    )
    np.testing.assert_allclose(array(single(mg.tensor(x[0]))), x[0], rtol=1e-12)
    assert np.abs(array(single(mg.tensor(2 * x[0]))) - 2 * x[0]).max() > 1


@pytest.mark.parametrize("kind", ["BN", "LN"])
def test_the_best_gain_and_bias(kind):
    """On real data, least squares over γ and β restore the digits from BN exactly, but not from LN."""
    x = digits()
    norm = nn.BatchNorm1d(16, affine=False) if kind == "BN" else nn.LayerNorm(16, elementwise_affine=False)
    hat = array(norm.to("float64")(mg.tensor(x)))
    left = 0.0
    for column, wanted in zip(hat.T, x.T, strict=True):
        design = np.stack([column, np.ones(len(x))], 1)
        left += ((design @ np.linalg.lstsq(design, wanted, rcond=None)[0] - wanted) ** 2).sum()
    share = left / ((x - x.mean(0)) ** 2).sum()
    assert share < 1e-20 if kind == "BN" else share > 0.02


# ── two moments and no more ──


def test_output_moments(rng):
    """Mean β and variance γ² hold for BN, per feature and in training. They do not for LN with γ and β per unit."""
    x = rng.uniform(-3, 3, 6) + 2 * rng.standard_normal((400, 6)) * rng.uniform(0.3, 3, 6)
    gain, shift = rng.uniform(0.5, 2, 6), rng.standard_normal(6)
    bn = set_affine(nn.BatchNorm1d(6, eps=0.0, dtype="float64"), gain, shift)
    y = array(bn(mg.tensor(x)))
    np.testing.assert_allclose(y.mean(0), shift, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(y.var(0), gain**2, rtol=1e-10)
    # in evaluation the moments depend on the data, not only on γ and β
    other = array(bn.eval()(mg.tensor(1 + x)))
    assert np.abs(other.mean(0) - shift).max() > 0.3
    ln = set_affine(nn.LayerNorm(6, eps=0.0, dtype="float64"), gain, shift)
    y = array(ln(mg.tensor(x)))
    assert np.abs(y.mean(0) - shift).max() > 0.1  # neither per unit over the data ...
    assert np.abs(y.var(0) / gain**2 - 1).max() > 0.3
    assert np.abs(y.mean(1) - shift.mean()).max() > 0.1  # ... nor per sample over the units
    assert y.var(1).std() > 0.1
    # with one γ and one β for all units they do, per sample
    y = array(set_affine(ln, np.full(6, 1.5), np.full(6, -0.7))(mg.tensor(x)))
    np.testing.assert_allclose(y.mean(1), -0.7, rtol=1e-10)
    np.testing.assert_allclose(y.std(1), 1.5, rtol=1e-10)


@pytest.mark.parametrize("kind", ["BN", "LN"])
def test_a_bimodal_input_stays_bimodal(kind, rng):
    """Not "the same distribution": mean and variance agree, all further standardized moments are those of the input."""
    sides = rng.choice([-1.0, 1.0], (500, 40)) + 0.05 * rng.standard_normal((500, 40))
    x = 7 + 3 * sides
    axis = 0 if kind == "BN" else 1
    norm = nn.BatchNorm1d(40) if kind == "BN" else nn.LayerNorm(40)
    y = array(norm.to("float64")(mg.tensor(x)))
    np.testing.assert_allclose(y.mean(axis), 0, atol=1e-12)
    np.testing.assert_allclose(y.std(axis), 1, rtol=1e-5)
    spread = np.expand_dims(x.std(axis), axis)
    kurtosis = (((x - np.expand_dims(x.mean(axis), axis)) / spread) ** 4).mean(axis)
    np.testing.assert_allclose((y**4).mean(axis) / y.var(axis) ** 2, kurtosis, rtol=1e-10)
    assert kurtosis.mean() < 1.5  # a normal distribution has 3
    assert (np.abs(y) < 0.25).mean() < 0.01  # and 20 % of itself between −¼ and ¼
    assert (np.abs(rng.standard_normal(y.shape)) < 0.25).mean() > 0.19


def test_standardizing_is_not_whitening():
    """ZCA whitening of the digits leaves no correlation; BN leaves every correlation as it was."""
    x = digits()
    values, vectors = np.linalg.eigh(np.cov(x.T, bias=True))
    white = (x - x.mean(0)) @ (vectors / np.sqrt(values)) @ vectors.T
    np.testing.assert_allclose(white.T @ white / len(x), np.eye(16), atol=1e-10)
    y = array(nn.BatchNorm1d(16, eps=0.0, dtype="float64")(mg.tensor(x)))
    np.testing.assert_allclose(y.std(0), 1, rtol=1e-10)
    np.testing.assert_allclose(np.corrcoef(y.T), np.corrcoef(x.T), rtol=1e-10, atol=1e-12)
    assert correlations(white) < 1e-10
    assert correlations(y) > 0.5
    ln = array(nn.LayerNorm(16, dtype="float64")(mg.tensor(x)))
    assert correlations(ln) > 0.3


# ── one framework ──

B, C, G, SPACE = 4, 6, 3, (5, 2)
STATISTICS = {  # one mean and variance for each element of these, under the axes (sample, group, channel of it, H, W)
    "BN": (1, G, C // G, 1, 1),
    "LN": (B, 1, 1, 1, 1),
    "IN": (B, G, C // G, 1, 1),
    "GN": (B, G, 1, 1, 1),
}
LAYERS = {
    "BN": lambda: nn.BatchNorm2d(C, eps=0.0, affine=False, dtype="float64"),
    "LN": lambda: nn.LayerNorm((C, *SPACE), eps=0.0, elementwise_affine=False, dtype="float64"),
    "IN": lambda: nn.InstanceNorm2d(C, eps=0.0, dtype="float64"),
    "GN": lambda: nn.GroupNorm(G, C, eps=0.0, affine=False, dtype="float64"),
}


@pytest.mark.parametrize("shape", STATISTICS)
@pytest.mark.parametrize("kind", LAYERS)
def test_statistics_of_every_shape(kind, shape, device, rng):
    """BN undoes a shift and a scale of shape (1, C, 1, 1), LN of (B, 1, 1, 1), IN of (B, C, 1, 1), GN of (B, groups, 1, 1).

    So do norms with finer statistics; all others keep them.
    """
    x = rng.standard_normal((B, G, C // G, *SPACE))
    moved = x * rng.uniform(0.2, 5, STATISTICS[shape]) + rng.standard_normal(STATISTICS[shape])
    y, other = (array(LAYERS[kind]().to(device)(mg.tensor(a.reshape(B, C, *SPACE), device=device))) for a in (x, moved))
    if all(fine >= coarse for fine, coarse in zip(STATISTICS[kind], STATISTICS[shape], strict=True)):
        np.testing.assert_allclose(other, y, rtol=0, atol=1e-11)
    else:
        assert np.abs(other - y).max() > 0.2


def test_groups_between_layer_and_instance_norm(rng):
    """GN of one group is LN and GN of C groups is IN, but for γ and β: once trained, GN(1) and LN(C, H, W) part."""
    x = mg.tensor(2 + rng.standard_normal((B, C, *SPACE)))
    ln, one = LAYERS["LN"](), nn.GroupNorm(1, C, eps=0.0, affine=False, dtype="float64")
    np.testing.assert_allclose(array(one(x)), array(ln(x)), rtol=1e-11, atol=1e-13)
    each = nn.GroupNorm(C, C, eps=0.0, affine=False, dtype="float64")
    np.testing.assert_allclose(array(each(x)), array(LAYERS["IN"]()(x)), rtol=1e-11, atol=1e-13)
    assert np.abs(array(one(x) - each(x))).max() > 0.3
    norms = nn.GroupNorm(1, C, dtype="float64"), nn.LayerNorm((C, *SPACE), dtype="float64")
    assert [norm.weight.shape for norm in norms] == [(C,), (C, *SPACE)]
    c = mg.tensor(rng.standard_normal(x.shape))
    for norm in norms:
        np.testing.assert_allclose(array(norm(x)), array(ln(x)), rtol=0, atol=1e-4)
        norm(x).backward(c)
        mg.optim.SGD(norm.parameters(), lr=0.1).step()
    assert np.abs(array(norms[0](x) - norms[1](x))).max() > 0.1
    # of LN, the gains of one channel have become different, which those of GN cannot
    assert array(norms[1].weight).reshape(C, -1).std(1).min() > 0.01
