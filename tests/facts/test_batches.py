"""Dependence between the samples of a batch: none in layer normalization, full in batch normalization.

Ba, Kiros, Hinton 2016 (https://arxiv.org/abs/1607.06450, sections 1 to 3), Ioffe, Szegedy 2015
(https://arxiv.org/abs/1502.03167, section 3.1), Salimans, Kingma 2016 (https://arxiv.org/abs/1602.07868, section 2).
"""

import copy

import numpy as np
import pytest
from checks import array
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import nn, optim
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
    """Return 1,797 real images as vectors of 64 numbers around 0, and their labels."""
    x, y = load_digits(return_X_y=True)
    return (x - x.mean()) / x.std(), y


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


def test_batch_norm_is_noise_for_a_sample(rng):
    """BN's output depends on the rest of the batch; its deviation over random batches falls with 1/√batch. LN's is 0."""
    x, _ = digits()
    x = x @ rng.standard_normal((64, 8)) / 8
    found = {}
    for size in (4, 16, 64):
        outputs = {"BN": [], "LN": []}
        for _ in range(300):
            mates = x[rng.integers(1, len(x), size - 1)]
            batch = mg.tensor(np.concatenate([x[:1], mates]))
            outputs["BN"].append(array(F.batch_norm(batch, None, None, training=True))[0])
            outputs["LN"].append(array(F.layer_norm(batch, (8,)))[0])
        assert len({tuple(y.tolist()) for y in outputs["LN"]}) == 1
        found[size] = np.std(outputs["BN"], 0).mean()
    assert found[64] > 0.05
    slope = np.log(found[64] / found[16]) / np.log(4)
    assert -0.65 < slope < -0.35
    assert found[4] > 1.5 * found[16]


def test_full_data_statistics_are_the_limit_of_large_batches(rng):
    """Mini-batches estimate the expectation over the data (equation 2 of Ba et al.): the error falls with 1/√batch."""
    x, _ = digits()
    x = x @ rng.standard_normal((64, 8)) / 8
    whole = array(F.batch_norm(mg.tensor(x), None, None, training=True, eps=0.0))
    sizes, errors = np.array([16, 64, 256, 1024]), []
    for size in sizes:
        error = []
        for _ in range(40):
            chosen = rng.integers(0, len(x), size)
            y = array(F.batch_norm(mg.tensor(x[chosen]), None, None, training=True, eps=0.0))
            error.append(((y - whole[chosen]) ** 2).mean())
        errors.append(np.sqrt(np.mean(error)))
    assert errors[0] > 0.1
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.6 < slope < -0.4
    np.testing.assert_allclose(whole, (x - x.mean(0)) / x.std(0), rtol=1e-10, atol=1e-11)
    # the average over the batches of one epoch is what evaluation uses: its mean is that of the data
    bn = nn.BatchNorm1d(8, eps=0.0, momentum=None, dtype="float64")
    order = rng.permutation(1792).reshape(28, 64)
    for chosen in order:
        bn(mg.tensor(x[chosen]))
    np.testing.assert_allclose(array(bn.running_mean), x[order.ravel()].mean(0), rtol=0, atol=1e-13)
    np.testing.assert_allclose(array(bn.running_var), x.var(0), rtol=0.03)
    assert np.abs(array(bn.eval()(mg.tensor(x))) - whole).max() < 0.1


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


# ── one sample at a time ──


def test_online_learning(rng):
    """With batches of one, LN learns the digits; BN has no variance to divide by and raises an error."""
    x, labels = digits()
    order = rng.permutation(len(x))
    mg.manual_seed(0)

    def model(norm):
        return nn.Sequential(nn.Linear(64, 32), norm, nn.Tanh(), nn.Linear(32, 10))

    ln = model(nn.LayerNorm(32))
    optimizer, losses = optim.SGD(ln.parameters(), lr=0.05), []
    for k in order[:1200]:
        optimizer.zero_grad()
        loss = F.cross_entropy(ln(mg.tensor(x[k : k + 1], dtype="float32")), mg.tensor(labels[k : k + 1]))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[:20]) > 1.5  # log 10 is 2.3
    assert np.mean(losses[-200:]) < 0.6
    held_out = order[1200:]
    right = array(ln(mg.tensor(x[held_out], dtype="float32"))).argmax(1) == labels[held_out]
    assert right.mean() > 0.75
    bn = model(nn.BatchNorm1d(32))
    with pytest.raises(ValueError, match=r"\[batch_norm\] expected more than one value per channel"):
        bn(mg.tensor(x[:1], dtype="float32"))


# ── folding ──


@pytest.mark.parametrize("kind", ["BN", "WN", "LN"])
def test_reparametrizations(kind, rng):
    """With its statistics fixed BN is another way to write a linear layer, WN always is; LN is not (Ba et al., section 4).

    Folded layers compute the same. For LN the best affine map of the digits, by least squares, is far from its outputs.
    """
    x, _ = digits()
    x = x[:, 18:34]
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
        np.testing.assert_allclose(array(folded(mg.tensor(x))), y, rtol=0, atol=1e-12)
        assert share < 1e-20
