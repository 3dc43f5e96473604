"""The invariances of each normalization to changes of weights and data: Ba, Kiros, Hinton 2016, section 5.1.

https://arxiv.org/abs/1607.06450. RMSNorm's row is ours to add, after Zhang, Sennrich 2019, section 4
(https://arxiv.org/abs/1910.07467), and so are those of the later norms. All of it is exact for ε = 0 and positive
factors only. docs/normalization/invariance.md asserts what follows for images, learning rates and the Fisher
information.
"""

import numpy as np
import pytest
from checks import array

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

N, D, H = 7, 6, 5
NORMS = {"BN": nn.BatchNorm1d, "LN": nn.LayerNorm, "RMSNorm": nn.RMSNorm, "ScaleNorm": nn.ScaleNorm}

# changes of data x (N, D) and weights w (H, D), with a positive factor and vectors of the sizes of their rows
CHANGES = {
    "all of W scaled": lambda x, w, factor, v: (x, factor * w),
    "W re-centred": lambda x, w, factor, v: (x, w + v),  # W + 1γᵀ: the same vector added to the weights of every unit
    "one row of W scaled": lambda x, w, factor, v: (x, w * np.where(np.arange(H) == 2, factor, 1.0)[:, None]),
    "data scaled": lambda x, w, factor, v: (factor * x, w),
    "data shifted": lambda x, w, factor, v: (x + v, w),  # x + δ: the same vector added to every sample
    "one sample scaled": lambda x, w, factor, v: (x * np.where(np.arange(N) == 3, factor, 1.0)[:, None], w),
}
TABLE = {
    "BN": "yes no yes yes yes no",
    "WN": "yes no yes no no no",
    "LN": "yes yes no yes no yes",
    "RMSNorm": "yes no no yes no yes",
    "ScaleNorm": "yes no no yes no yes",
    "FRN": "yes no yes yes no yes",
    "WS": "yes no yes no no no",
    "SN": "yes no no no no no",
    "AdaLN": "yes yes no yes no yes",  # for a given condition
    "DeepNorm": "no yes no yes no yes",  # for changes of a layer's inputs and its outputs
    "BatchRenorm": "no no no no no no",  # for given running statistics
    "DyT": "no no no no no no",
    "FiLM": "no no no no no no",
    "LayerScale": "no no no no no no",
}
HOMOGENEOUS = [kind for kind, row in TABLE.items() if row.startswith("yes")]  # in all of W
BY_ROW = [kind for kind, row in TABLE.items() if row.split()[2] == "yes"]
CELLS = [
    (kind, change, answer == "yes")
    for kind, row in TABLE.items()
    for change, answer in zip(CHANGES, row.split(), strict=True)
]


class Filters(nn.Module):
    """Filter response norm needs positions: those of a circular convolution; the result is at the first position."""

    def __init__(self, eps):
        super().__init__()
        self.weight, self.norm = (
            nn.Parameter(mg.zeros((H, D), dtype="float64")),
            nn.FilterResponseNorm2d(H, eps, dtype="float64"),
        )

    def forward(self, x):
        positions = mg.stack([mg.roll(x, -k, -1) for k in range(D)], 1)
        a = F.linear(positions, self.weight).moveaxis(-1, 1)
        return self.norm(a.expand_dims(-1))[:, :, 0, 0]


class Deep(nn.Module):
    """A layer and its residual connection, of which the first H inputs are the residual."""

    def __init__(self, eps):
        super().__init__()
        self.linear, self.norm = nn.Linear(D, H, bias=False, dtype="float64"), nn.DeepNorm(H, 1.5, eps, dtype="float64")

    def forward(self, x):
        return self.norm(x[:, :H], self.linear(x))


class Conditioned(nn.Module):
    """A modulation by the same condition of every sample."""

    def __init__(self, norm):
        super().__init__()
        self.linear, self.norm = nn.Linear(D, H, bias=False, dtype="float64"), norm

    def forward(self, x):
        a = self.linear(x)
        return self.norm(a, mg.ones((len(x), 1), dtype="float64", device=a.device))


def conditioned(norm, gain, shift):
    """Return the state of a modulation whose scales are close to `gain` and its shifts to `shift`."""
    halves = [gain - 1, shift] if isinstance(norm, nn.FiLM) else [shift, gain - 1]
    return {
        "0.norm.linear.weight": np.concatenate(halves)[:, None] / 2,
        "0.norm.linear.bias": np.concatenate(halves) / 2,
    }


def network(kind, w, gain, shift, device, eps=0.0):
    """tanh(norm(W x) γ + β); weight normalization has the lengths γ and the directions W/‖W‖, row by row."""
    weight_norms = {
        "WN": nn.utils.weight_norm, "SN": nn.utils.spectral_norm,
        "WS": lambda layer: nn.utils.weight_standardization(layer, eps=eps),
    }  # fmt: skip
    if kind in ("BatchRenorm", "FiLM", "LayerScale", "WS"):
        gain = gain / 3  # as W x has a standard deviation near √D in these
    linear = nn.Linear(D, H, bias=kind in weight_norms, dtype="float64")
    layers = [linear]
    if kind in weight_norms:
        weight_norms[kind](linear)
        state = {"0.weight_v": w, "0.weight_g": gain[:, None]} if kind == "WN" else {"0.weight_orig": w}
        state |= {"0.bias": shift}
        if kind == "WS":
            layers.append(nn.LayerScale(H, dtype="float64"))
            state |= {"1.weight": gain}
        if kind == "SN":
            linear.weight_u.copy_(mg.tensor(np.arange(1.0, H + 1)))  # a start that does not depend on chance
    elif kind == "FRN":
        layers, state = [Filters(eps)], {"0.weight": w, "0.norm.weight": gain, "0.norm.bias": shift}
    elif kind == "DeepNorm":
        layers, state = [Deep(eps)], {"0.linear.weight": w, "0.norm.weight": gain, "0.norm.bias": shift}
    elif kind in ("AdaLN", "FiLM"):
        norm = nn.AdaLN(H, 1, eps, dtype="float64") if kind == "AdaLN" else nn.FiLM(H, 1, dtype="float64")
        layers, state = [Conditioned(norm)], {"0.linear.weight": w} | conditioned(norm, gain, shift)
    elif kind == "ScaleNorm":
        layers, state = [linear, nn.ScaleNorm(H, eps, dtype="float64")], {"0.weight": w}
    elif kind == "LayerScale":
        layers, state = [linear, nn.LayerScale(H, dtype="float64")], {"0.weight": w, "1.weight": gain}
    else:
        norms = {
            "DyT": lambda: nn.DyT(H, dtype="float64"),
            "BatchRenorm": lambda: nn.BatchRenorm1d(H, eps, dtype="float64"),
        }
        layers.append(norms[kind]() if kind in norms else NORMS[kind](H, eps=eps, dtype="float64"))
        state = {"0.weight": w, "1.weight": gain} | ({} if kind == "RMSNorm" else {"1.bias": shift})
    model = nn.Sequential(*layers, nn.Tanh())
    with mg.no_grad():
        for name, value in state.items():
            dict(model.named_parameters())[name].copy_(mg.tensor(value))
    return model.to(device)


def problem(rng):
    """x, W, γ, β."""
    return rng.standard_normal((N, D)), rng.standard_normal((H, D)), rng.uniform(0.5, 1.5, H), rng.uniform(-0.5, 0.5, H)


def outputs(kind, x, w, gain, shift, device, eps=0.0):
    return array(network(kind, w, gain, shift, device, eps)(mg.tensor(x, device=device)))


# ── the table ──


@pytest.mark.parametrize("kind, change, invariant", CELLS)
def test_table(kind, change, invariant, device, rng):
    """Where the table says yes, no output changes, for factors of 1e-3 to 1e3; where it says no, some clearly change."""
    x, w, gain, shift = problem(rng)
    y = outputs(kind, x, w, gain, shift, device)
    assert y.std(0).min() > 0.05  # neither dead nor saturated, which would hide changes
    for factor in (1e-3, 0.3, 7.0, 1e3):
        changed = outputs(kind, *CHANGES[change](x, w, factor, rng.standard_normal(D)), gain, shift, device)
        if invariant:
            np.testing.assert_allclose(changed, y, rtol=0, atol=1e-11)
        else:
            assert np.abs(changed - y).max() > 0.1


@pytest.mark.parametrize("kind", HOMOGENEOUS)
def test_a_negative_factor_turns_the_sign(kind, device, rng):
    """The paper's λ must be positive: the norm of −λ W x is minus the norm of W x, so the outputs change."""
    x, w, gain, _ = problem(rng)
    zero = np.zeros(H)
    y = outputs(kind, x, w, gain, zero, device)
    np.testing.assert_allclose(outputs(kind, x, -3 * w, gain, zero, device), -y, rtol=0, atol=1e-12)
    assert np.abs(outputs(kind, x, -3 * w, gain, zero, device) - y).max() > 1


@pytest.mark.parametrize("kind", NORMS)
def test_exact_without_eps_only(kind, device, rng):
    """With ε, weights as small as √ε give smaller outputs: the normalized a becomes λ a / √(λ² σ² + ε).

    Weight normalization has no ε and needs none.
    """
    x, w, gain, _ = problem(rng)
    zero, errors = np.zeros(H), []
    for factor in (1e-3, 1.0, 10.0, 100.0):
        y = outputs(kind, x, factor * w, gain, zero, device, eps=1e-4)
        errors.append(np.abs(y - outputs(kind, x, w, gain, zero, device)).max())
        assert (np.abs(y) < np.abs(outputs(kind, x, w, gain, zero, device))).all()
    assert errors[0] > 0.1
    # the relative error is ε / 2λ²σ² where that is small
    assert errors[1] / errors[2] == pytest.approx(100, rel=0.01)
    assert errors[2] / errors[3] == pytest.approx(100, rel=0.01)


# ── gradients ──


@pytest.mark.parametrize("kind", HOMOGENEOUS)
@pytest.mark.parametrize("factor", [0.25, 7.0])
def test_gradients_of_scaled_weights(kind, factor, device, rng):
    """As L(λW) = L(W), dL/dx, dL/dγ and dL/dβ do not change, but dL/dW scales by 1/λ and is orthogonal to W."""
    x, w, gain, shift = problem(rng)
    c, found = mg.tensor(rng.standard_normal((N, H)), device=device), []
    for scale in (1.0, factor):
        model, leaf = network(kind, scale * w, gain, shift, device), mg.tensor(x, device=device, requires_grad=True)
        model(leaf).backward(c)
        grads = {name: array(parameter.grad) for name, parameter in model.named_parameters()}
        found.append(grads | {"x": array(leaf.grad)})
    first, second = found
    for name, g in first.items():
        of_weight = name in ("0.weight", "0.weight_v", "0.weight_orig", "0.linear.weight")
        assert np.abs(g).max() > 0.1
        np.testing.assert_allclose(second[name], g / factor if of_weight else g, rtol=1e-9, atol=1e-11)
        if of_weight:
            along, size = (g * w).sum(), np.linalg.norm(g) * np.linalg.norm(w)
            assert abs(along) < 1e-12 * size
            rows = np.abs((g * w).sum(1)).max()  # by rows for the norms that are invariant to the scale of a row
            assert rows < 1e-12 * size if kind in BY_ROW else rows > 1e-3 * size
