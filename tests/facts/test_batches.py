"""Dependence between the samples of a batch: none in layer normalization, full in batch normalization.

Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450, sections 1 to 3), Ioffe, Szegedy 2015
(https://arxiv.org/abs/1502.03167, section 3.1), Salimans, Kingma 2016 (https://arxiv.org/abs/1602.07868, section 2).
docs/normalization/batches.md measures, and asserts, how the noise of BN falls with the size of the batch, and that LN
learns from single samples.
"""

import copy

import numpy as np
import pytest
from checks import array, near
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

C, L = 4, 6


class Applied(nn.Module):
    """A norm of more inputs or of another layout, as a function of x (N, C, L)."""

    def __init__(self, norm, call):
        super().__init__()
        self.norm, self.call = norm, call

    def forward(self, x):
        return self.call(self.norm, x)


ALONE = {  # normalizations of samples (C, L), each independently
    "LN": lambda dtype: nn.LayerNorm((C, L), dtype=dtype),
    "RMSNorm": lambda dtype: nn.RMSNorm((C, L), dtype=dtype),
    "GN": lambda dtype: nn.GroupNorm(2, C, dtype=dtype),
    "IN": lambda dtype: nn.InstanceNorm1d(C, affine=True, dtype=dtype),
    "ScaleNorm": lambda dtype: nn.ScaleNorm(L, dtype=dtype),
    "DyT": lambda dtype: nn.DyT((C, L), dtype=dtype),
    "LayerScale": lambda dtype: nn.LayerScale(L, dtype=dtype),
    "DeepNorm": lambda dtype: Applied(nn.DeepNorm(L, 1.5, dtype=dtype), lambda norm, x: norm(x, x * x)),
    "FRN": lambda dtype: Applied(
        nn.Sequential(nn.FilterResponseNorm2d(C, dtype=dtype), nn.TLU(C, dtype=dtype)),
        lambda norm, x: norm(x.expand_dims(-1)).squeeze(-1),
    ),
    # the product that makes scale and shift is left out: it sums in another order for another number of samples
    "AdaLN": lambda dtype: Applied(None, lambda _, x: F.adaptive_layer_norm(x, x[:, 0], x[:, 1])),
    "FiLM": lambda dtype: Applied(None, lambda _, x: F.film(x, x[:, :, 0], x[:, :, 1])),
}
ALL = ALONE | {"BN": lambda dtype: nn.BatchNorm1d(C, dtype=dtype)}


def digits():
    """Return 1,797 real images as vectors of 64 numbers around 0."""
    x = load_digits().data
    return (x - x.mean()) / x.std()


def random_affine(norm, rng):
    with mg.no_grad():
        for parameter in norm.parameters():
            parameter.copy_(mg.tensor(rng.uniform(0.5, 2, parameter.shape), dtype=parameter.dtype))
    return norm


# ── independence ──


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ALL)
def test_a_sample_in_any_batch(kind, dtype, device, rng):
    """Outputs and gradients are bitwise equal alone and at any position in batches of every size, except BN in training."""
    norm = random_affine(ALL[kind](dtype), rng).to(device)
    x, c = (rng.standard_normal((17, C, L)).astype(dtype) for _ in range(2))

    def run(chosen):
        leaf = mg.tensor(x[chosen], device=device, requires_grad=True)
        y = norm(leaf)
        y.backward(mg.tensor(c[chosen], device=device))
        return array(y), array(leaf.grad)

    whole = run(np.arange(17))
    for size in (1, 2, 3, 8, 16):
        chosen = rng.permutation(17)[:size]
        for part, expected in zip(run(chosen), whole, strict=True):
            if kind != "BN":
                assert part.tolist() == expected[chosen].tolist()
            else:
                assert np.abs(part - expected[chosen]).max() > 0.02


@pytest.mark.parametrize("kind", ALL)
def test_training_is_evaluation(kind, device, rng):
    """The same bits in both modes, without buffers; BN has three buffers and two modes."""
    norm = random_affine(ALL[kind]("float32"), rng).to(device)
    x = mg.tensor(1 + rng.standard_normal((5, C, L)), dtype="float32", device=device)
    y, buffers = array(norm.train()(x)), dict(norm.named_buffers())
    if kind == "BN":
        assert sorted(buffers) == ["num_batches_tracked", "running_mean", "running_var"]
        assert np.abs(array(norm.eval()(x)) - y).max() > 0.1
    else:
        assert buffers == {}
        assert list(norm.state_dict()) == [name for name, _ in norm.named_parameters()]
        assert array(norm.eval()(x)).tolist() == y.tolist()


# ── gradients of parts ──


class Network(nn.Module):
    """Linear over the last axis, norm, tanh, mean over the positions, Linear to 10 classes."""

    def __init__(self, norm):
        super().__init__()
        self.mix, self.norm = nn.Linear(5, C, dtype="float64"), norm
        self.head = nn.Linear(C, 10, dtype="float64")

    def forward(self, x):
        return self.head(mg.tanh(self.norm(self.mix(x).moveaxis(-1, 1))).mean(-1))


@pytest.mark.parametrize("way", ["accumulated", "sharded"])
@pytest.mark.parametrize("kind", ALL)
def test_gradients_of_parts_of_a_batch(kind, way, rng):
    """Gradients accumulated over parts, or averaged over copies of the model, equal the whole batch's gradient.

    Exact for all that normalize samples by themselves, wrong for BN, whose statistics are then those of the parts.
    """
    mg.manual_seed(0)
    model = Network(random_affine(ALL[kind]("float64"), rng))
    x, labels = mg.tensor(rng.standard_normal((12, L, 5))), mg.tensor(rng.integers(0, 10, 12))
    cuts = [slice(0, 5), slice(5, 8), slice(8, 12)]  # of different sizes, so that means have to be weighted

    def loss(model, part):
        return F.cross_entropy(model(x[part]), labels[part])

    parts = copy.deepcopy(model)
    loss(model, slice(None)).backward()
    expected = {name: array(parameter.grad) for name, parameter in model.named_parameters()}
    total = dict.fromkeys(expected, 0.0)
    if way == "accumulated":
        for cut in cuts:
            (loss(parts, cut) * ((cut.stop - cut.start) / 12)).backward()
        total = {name: array(parameter.grad) for name, parameter in parts.named_parameters()}
    else:
        for cut in cuts:
            shard = copy.deepcopy(parts)
            loss(shard, cut).backward()
            for name, parameter in shard.named_parameters():
                total[name] = total[name] + array(parameter.grad) * ((cut.stop - cut.start) / 12)
    errors = {
        name: np.linalg.norm(total[name] - g) / np.linalg.norm(g) for name, g in expected.items() if name != "mix.bias"
    }
    assert min(np.linalg.norm(g) for name, g in expected.items() if name != "mix.bias") > 1e-3
    if kind == "BN":
        assert errors["mix.weight"] > 0.05
    else:
        assert max(errors.values()) < 1e-12


# ── folding ──


@pytest.mark.parametrize("kind", ["BN", "WN", "LN"])
def test_reparametrizations(kind, rng):
    """With its statistics fixed BN is another way to write a linear layer, WN always is; LN is not (Ba et al., section 4).

    Folded layers compute the same. For LN the best affine map of the digits, by least squares, is far from its outputs.
    """
    x = digits()[:, 18:34]
    mg.manual_seed(0)
    linear = nn.Linear(16, 8, dtype="float64")
    if kind == "BN":
        bn = random_affine(nn.BatchNorm1d(8, dtype="float64"), rng)
        for chosen in rng.permutation(len(x))[:1600].reshape(16, 100):
            bn(linear(mg.tensor(x[chosen])))
        bn.eval()
        y = array(bn(linear(mg.tensor(x))))
        folded = nn.utils.fold_batch_norm(linear, bn)
        assert np.abs(array(folded.weight) - array(linear.weight)).max() > 0.1
    elif kind == "WN":
        nn.utils.weight_norm(linear)
        with mg.no_grad():
            linear.weight_g.copy_(mg.tensor(rng.uniform(1, 3, (8, 1))))
        y = array(linear(mg.tensor(x)))
        folded = nn.utils.remove_weight_norm(linear)
        assert sorted(folded.state_dict()) == ["bias", "weight"]
    else:
        y = array(random_affine(nn.LayerNorm(8, dtype="float64"), rng)(linear(mg.tensor(x))))
    design = np.concatenate([x, np.ones((len(x), 1))], 1)
    left = design @ np.linalg.lstsq(design, y, rcond=None)[0] - y
    share = (left**2).sum() / ((y - y.mean(0)) ** 2).sum()
    if kind == "LN":
        assert share > 0.02
    else:
        near(folded(mg.tensor(x)), y, rtol=0, atol=1e-12)
        assert share < 1e-20
