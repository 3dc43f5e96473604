"""Normalization as a smaller learning rate, and the metric of normalized models (Ba, Kiros, Hinton 2016, section 5.2).

https://arxiv.org/abs/1607.06450. The metric is the Fisher information of a softmax over H normalized units, by
gradients of every sample and class on the one hand, in closed form on the other.
"""

import math

import numpy as np
import pytest
from checks import array, tensor

import minigrad as mg
from minigrad import nn, optim
from minigrad.nn import functional as F

N, D, H = 6, 3, 4


def normalized(kind, x, w, g, b):
    """Return g (a − μ)/σ + b of a = x Wᵀ, with the mean and deviation of the kind of normalization."""
    a = F.linear(x, w)
    if kind == "BN":
        return F.batch_norm(a, None, None, g, b, training=True, eps=0.0)
    if kind == "LN":
        return F.layer_norm(a, (a.shape[-1],), g, b, eps=0.0)
    if kind == "WN":
        return a * (g / mg.sqrt((w * w).sum(-1))) + b
    return a * g + b


def problem(rng, inputs=D, units=H):
    """Return x, W, g, b."""
    shapes = (N, inputs), (units, inputs), (units,), (units,)
    x, w, g, b = (rng.standard_normal(shape) for shape in shapes)
    return x, w, 1 + 0.3 * g, b


# ── the implicit learning rate ──


def angle_of_a_step(kind, x, w, g, b, labels, rate, device):
    """Return the angle, in radians, by which a step of gradient descent turns W as one vector."""
    weight = nn.Parameter(tensor(w, device))
    x, g, b = (tensor(value, device) for value in (x, g, b))
    F.cross_entropy(normalized(kind, x, weight, g, b), labels).backward()
    optim.SGD([weight], lr=rate).step()
    after = array(weight)
    cosine = (w * after).sum() / (np.linalg.norm(w) * np.linalg.norm(after))
    aside = after - w * (after * w).sum() / (w * w).sum()
    return math.atan2(np.linalg.norm(aside) / np.linalg.norm(after), cosine)


@pytest.mark.parametrize("kind", ["BN", "LN", "WN"])
def test_the_angle_of_a_step_falls_with_the_square_of_the_weights(kind, device, rng):
    """tan α = lr ‖dL/dW‖ / ‖W‖, where the gradient is orthogonal to W and inverse to its length: α ∝ 1/‖W‖²."""
    x, w, g, b = problem(rng)
    labels = tensor(rng.integers(0, H, N), device)
    first = angle_of_a_step(kind, x, w, g, b, labels, 0.1, device)
    assert first > 1e-3
    for factor in (0.5, 3.0, 10.0):
        angle = angle_of_a_step(kind, x, factor * w, g, b, labels, 0.1, device)
        assert math.tan(angle) * factor**2 == pytest.approx(math.tan(first), rel=1e-6)
        # growing weights only reduce the learning rate
        same = angle_of_a_step(kind, x, factor * w, g, b, labels, 0.1 * factor**2, device)
        assert same == pytest.approx(first, rel=1e-9)


def test_without_a_norm_the_angle_is_not_inverse_to_the_square(device, rng):
    """The control: the gradient of a plain softmax is not inverse to the length of its weights."""
    x, w, g, b = problem(rng)
    labels = tensor(rng.integers(0, H, N), device)
    first, large = (angle_of_a_step("plain", x, factor * w, g, b, labels, 0.1, device) for factor in (1.0, 3.0))
    assert abs(math.tan(large) * 9 / math.tan(first) - 1) > 0.2


@pytest.mark.parametrize("kind", ["BN", "LN", "WN"])
def test_weights_only_grow_under_gradient_descent(kind, device, rng):
    """A gradient orthogonal to W: ‖W‖² grows by lr² ‖dL/dW‖² with each step, and so learning slows down by itself."""
    x, w, g, b = problem(rng)
    labels, weight = tensor(rng.integers(0, H, N), device), nn.Parameter(tensor(w, device))
    x, g, b = (tensor(value, device) for value in (x, g, b))
    optimizer = optim.SGD([weight], lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        F.cross_entropy(normalized(kind, x, weight, g, b), labels).backward()
        before, gradient = (array(weight) ** 2).sum(), (array(weight.grad) ** 2).sum()
        optimizer.step()
        assert gradient > 1e-6
        assert (array(weight) ** 2).sum() == pytest.approx(before + 0.25 * gradient, rel=1e-12)


# ── the Fisher information ──


def fisher(kind, x, w, g, b, device):
    """E over samples and over y ~ softmax of ∇ log p(y|x) ∇ log p(y|x)ᵀ, unit by unit in (w_i, b_i, g_i)."""
    weight, gain, shift = (tensor(value, device, requires_grad=True) for value in (w, g, b))
    logs = F.log_softmax(normalized(kind, tensor(x, device), weight, gain, shift), -1)
    total = 0.0
    for n in range(len(x)):
        for y in range(len(w)):
            grads = mg.grad(logs[n, y], [weight, gain, shift], retain_graph=True)
            dw, dg, db = (array(grad) for grad in grads)
            flat = np.concatenate([dw, db[:, None], dg[:, None]], 1).reshape(-1)
            total = total + math.exp(logs[n, y].item()) * np.outer(flat, flat)
    return total / len(x)


def closed_form(x, w, g, b, sigma, hat, shares):
    """E[ Σ_kl Cov(y_k, y_l | x) u_k u_lᵀ ], where u_k are the derivatives of the k-th summed input.

    ``shares[k, i]`` is ∂(a_k − μ)/∂w_i − (a_k − μ)/σ ∂σ/∂w_i, (H, H, N, D): that of the paper is χ_i for k = i.
    """
    units, inputs = w.shape
    z = hat * g + b
    p = np.exp(z - z.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    total = 0.0
    for n in range(len(x)):
        u = np.zeros((units, units, inputs + 2))
        for k in range(units):
            u[k, :, :inputs] = g[k] / sigma[n, k] * shares[k, :, n]
            u[k, k, inputs], u[k, k, inputs + 1] = 1.0, hat[n, k]
        u = u.reshape(units, -1)
        total = total + u.T @ (np.diag(p[n]) - np.outer(p[n], p[n])) @ u
    return total / len(x)


def own_shares(chi):
    """Return the shares of units that depend on their own weights only: χ (H, N, D) on the diagonal."""
    shares = np.zeros((len(chi), *chi.shape))
    for i, own in enumerate(chi):
        shares[i, i] = own
    return shares


def paper_form(kind, x, w, g, b):
    """The paper's F_ij = E[ Cov(y_i, y_j | x) u_i u_jᵀ ], u_i = (g_i χ_i / σ_i, 1, (a_i − μ_i)/σ_i).

    χ_i = x − ∂μ_i/∂w_i − (a_i − μ_i)/σ_i · ∂σ_i/∂w_i.
    """
    a = x @ w.T
    if kind == "plain":
        return closed_form(x, w, g, b, np.ones_like(a), a, own_shares(np.broadcast_to(x, (len(w), *x.shape))))
    if kind == "WN":
        sigma = np.broadcast_to(np.linalg.norm(w, axis=1), a.shape)
        hat = a / sigma
        slope = w / sigma[0][:, None]  # ∂σ_i/∂w_i, and ∂μ/∂w = 0
        chi = np.stack([x - hat[:, [i]] * slope[i] for i in range(len(w))])
    elif kind == "BN":
        sigma = np.broadcast_to(a.std(0), a.shape)
        hat = (a - a.mean(0)) / sigma
        chi = np.stack([x - x.mean(0) - hat[:, [i]] * (hat[:, [i]] * x).mean(0) for i in range(len(w))])
    else:
        sigma = np.broadcast_to(a.std(1, keepdims=True), a.shape)
        hat = (a - a.mean(1, keepdims=True)) / sigma
        chi = np.stack([x * (1 - 1 / len(w) - hat[:, [i]] ** 2 / len(w)) for i in range(len(w))])
    return closed_form(x, w, g, b, sigma, hat, own_shares(chi))


def layer_norm_form(x, w, g, b):
    """The same for layer normalization with all its terms: w_i moves the mean and deviation of every unit k."""
    a = x @ w.T
    units, sigma = len(w), np.broadcast_to(a.std(1, keepdims=True), a.shape)
    hat = (a - a.mean(1, keepdims=True)) / sigma
    shares = np.stack([
        np.stack([x * ((k == i) - 1 / units - hat[:, [k]] * hat[:, [i]] / units) for i in range(units)])
        for k in range(units)
    ])  # fmt: skip
    return closed_form(x, w, g, b, sigma, hat, shares)


@pytest.mark.parametrize("kind", ["plain", "BN", "WN"])
def test_fisher_information_is_the_papers(kind, device, rng):
    """Gradients agree with the formula, for units whose statistics depend on their own weights alone."""
    arguments = problem(rng)
    expected = paper_form(kind, *arguments)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(fisher(kind, *arguments, device), expected, rtol=1e-9, atol=1e-12)


def test_fisher_information_of_layer_norm(device, rng):
    """Exact with the cross terms. The paper's block, which leaves out that units share μ and σ, is another matrix."""
    arguments = problem(rng)
    found = fisher("LN", *arguments, device)
    np.testing.assert_allclose(found, layer_norm_form(*arguments), rtol=1e-9, atol=1e-12)
    paper = paper_form("LN", *arguments)
    assert np.linalg.norm(found - paper) > 0.1 * np.linalg.norm(found)
    tail = np.arange(H * (D + 2)) % (D + 2) >= D  # gains and biases have no cross terms: those blocks agree
    np.testing.assert_allclose(found[np.ix_(tail, tail)], paper[np.ix_(tail, tail)], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["BN", "LN", "WN"])
def test_the_metric_shrinks_with_the_weights_and_is_flat_along_them(kind, device, rng):
    """g² / (σ_i σ_j): weights twice as long have a quarter of the metric; b's and g's stay. A plain model's does not."""
    x, w, g, b = problem(rng)
    found, doubled = (fisher(kind, x, factor * w, g, b, device) for factor in (1, 2))
    size = np.where(np.arange(H * (D + 2)) % (D + 2) < D, 0.5, 1.0)
    np.testing.assert_allclose(doubled, found * np.outer(size, size), rtol=1e-9, atol=1e-12)
    along = np.concatenate([w, np.zeros((H, 2))], 1).reshape(-1)
    assert along @ found @ along < 1e-12 * np.linalg.norm(found) * (along @ along)
    plain = fisher("plain", x, w, g, b, device)
    assert along @ plain @ along > 1e-2 * np.linalg.norm(plain) * (along @ along)
