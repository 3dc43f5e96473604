"""The sets of numbers that share a mean and a variance in BN, LN, IN and GN, and the place of ε.

Wu, He 2018 set the four side by side (https://arxiv.org/abs/1803.08494, section 3.1). docs/normalization/limits.md
shows what normalizing loses, and asserts it.
"""

import math

import numpy as np
import pytest
from checks import array

import minigrad as mg
from minigrad import nn


@pytest.mark.parametrize("sigma, misprinted", [(0.1, 7.60), (1.0, 0.997), (10.0, 0.100)])
def test_eps_is_added_inside_the_root(sigma, misprinted, device, rng):
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
    changed = x * rng.uniform(0.2, 5, STATISTICS[shape]) + rng.standard_normal(STATISTICS[shape])
    y, other = (
        array(LAYERS[kind]().to(device)(mg.tensor(a.reshape(B, C, *SPACE), device=device))) for a in (x, changed)
    )
    if all(fine >= coarse for fine, coarse in zip(STATISTICS[kind], STATISTICS[shape], strict=True)):
        np.testing.assert_allclose(other, y, rtol=0, atol=1e-11)
    else:
        assert np.abs(other - y).max() > 0.2
