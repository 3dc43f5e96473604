"""The CTC loss: against all alignments, PyTorch and its composition; what has no influence; limits; errors."""

import itertools
import math

import numpy as np
import pytest
from checks import agree, array, equals, near, refuses, tensor
from peers import torch

import minigrad as mg
from minigrad import nn
from minigrad.engine.ops.scan import paths_composition, paths_loss
from minigrad.nn import functional as F


def log_probabilities(rng, *shape):
    x = 2 * rng.standard_normal(shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def by_definition(x, target, blank):
    """Sum over all sequences of classes that become the target; for x of (T, C)."""
    total = -math.inf
    for path in itertools.product(range(x.shape[1]), repeat=len(x)):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        if [c for c in merged if c != blank] == list(target):
            total = np.logaddexp(total, sum(x[t, c] for t, c in enumerate(path)))
    return -total


TARGETS = [[], [1], [1, 1], [1, 2], [2, 1, 2], [1, 1, 1], [3, 3, 1]]


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_the_loss_is_its_definition(steps, blank, rng, device):
    """Repeated labels, no labels, no steps, and targets that do not fit, in one batch."""
    targets = [[(c + blank) % 4 for c in target] for target in TARGETS]
    x = log_probabilities(rng, steps, len(targets), 4)
    padded = np.array([[*target, *[-7] * (3 - len(target))] for target in targets])
    lengths = [len(target) for target in targets]
    expected = [by_definition(x[:, n], target, blank) for n, target in enumerate(targets)]
    flat = np.array([c for target in targets for c in target])
    for given in (padded, flat):
        loss = F.ctc_loss(tensor(x, device), tensor(given, device), [steps] * len(targets), lengths, blank, "none")
        np.testing.assert_allclose(loss.tolist(), expected, rtol=1e-12, atol=1e-12)


def random_case(seed, dtype="float64"):
    rng = np.random.default_rng(seed)
    steps, batch, classes, most = (int(rng.integers(low, high)) for low, high in ((1, 40), (1, 9), (2, 9), (0, 9)))
    blank = int(rng.integers(classes))
    logits = (3 * rng.standard_normal((steps, batch, classes))).astype(dtype)
    labels = rng.integers(0, classes - 1, (batch, most))
    counts = rng.integers(0, most + 1, batch)
    return rng, logits, labels + (labels >= blank), rng.integers(1, steps + 1, batch), counts, blank


@pytest.mark.parametrize("seed", range(60))
def test_beside_torch(seed, device):
    """The loss, and its gradient through log_softmax, in every reduction; infinite losses where targets do not fit."""
    rng, logits, labels, ends, counts, blank = random_case(seed)
    reduction, zero = ("none", "mean", "sum")[seed % 3], seed % 2 == 0
    given = labels if seed % 5 else np.concatenate([labels[n, :k] for n, k in enumerate(counts)])
    ours, theirs = tensor(logits, device, True), torch.tensor(logits, requires_grad=True)
    loss = F.ctc_loss(mg.log_softmax(ours), tensor(given, device), tensor(ends, device), counts.tolist(), blank,
                      reduction, zero)  # fmt: skip
    expected = torch.nn.functional.ctc_loss(
        theirs.log_softmax(-1), torch.tensor(given), torch.tensor(ends), torch.tensor(counts), blank, reduction, zero
    )
    near(loss, expected.detach().numpy(), rtol=1e-11, atol=1e-12)
    g = rng.standard_normal(loss.shape)
    found = array(mg.grad(loss, [ours], tensor(g, device))[0])
    wanted = torch.autograd.grad(expected, theirs, torch.tensor(g))[0].numpy()
    fits = ~np.isnan(wanted).any((0, 2))  # where they do not, PyTorch's gradient is NaN
    np.testing.assert_allclose(found[:, fits], wanted[:, fits], rtol=1e-9, atol=1e-12)
    assert (found[:, ~fits] == 0).all()


def test_the_gradient_is_the_derivative_where_torchs_assumes_log_softmax(device):
    x = np.array([[[-1.0, -0.5]], [[-0.25, -2.0]]])  # they do not add up to 1
    ours, theirs = tensor(x, device, True), torch.tensor(x, requires_grad=True)
    arguments = [1], [2], [1]
    (found,) = mg.grad(F.ctc_loss(ours, mg.tensor([[1]], device=device), *arguments[1:]), [ours])
    torch.nn.functional.ctc_loss(theirs, torch.tensor([[1]]), *map(torch.tensor, arguments[1:])).backward()
    a, b, c = np.exp([-0.5 - 2.0, -0.5 - 0.25, -1.0 - 2.0]) / np.exp([-2.5, -0.75, -3.0]).sum()  # 11, 1-, -1
    np.testing.assert_allclose(found.tolist(), [[[-c, -a - b]], [[-b, -a - c]]], rtol=1e-12)
    np.testing.assert_allclose(theirs.grad.numpy() - np.exp(x), found.tolist(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_all_paths_are_their_composition(seed, device):
    """The loss and its gradient, and what create_graph=True differentiates; losses that are infinite are among them."""
    _, logits, labels, ends, counts, _ = random_case(seed)
    steps, batch, states = logits.shape[0], logits.shape[1], 2 * labels.shape[1] + 1
    rng = np.random.default_rng(seed)
    e, g = rng.standard_normal((steps, batch, states)), rng.standard_normal(batch)
    skip = np.where(rng.random((batch, states)) < 0.5, 0, -np.inf)
    rest = [tensor(a, device) for a in (skip, ends, 2 * counts)]
    found = []
    for of, order in ((paths_loss, 1), (paths_loss, 2), (lambda e, *rest: paths_composition(*rest, e), 1)):
        leaf = tensor(e, device, True)
        loss = of(leaf, *rest)
        found.append([array(loss), array(mg.grad(loss, [leaf], tensor(g, device), create_graph=order == 2)[0])])
    for other in found[1:]:
        agree(found[0], other, rtol=1e-10, atol=1e-13)


def test_derivatives_to_order_two(rng, device):
    x = tensor(log_probabilities(rng, 4, 4, 3), device, True)
    targets = tensor(np.array([[1, 1], [2, 1], [2, 0], [0, 0]]), device)

    def losses(x):
        return F.ctc_loss(x, targets, [4, 3, 2, 4], [2, 2, 1, 0], reduction="none")

    assert mg.gradcheck(losses, [x], order=2)
    assert mg.gradcheck(lambda x: F.ctc_loss(x, targets, [4, 2, 2, 1], [2, 2, 1, 0], zero_infinity=True), [x], order=2)


def test_what_is_beyond_the_lengths_has_no_influence(device, rng):
    """NaN and labels out of range, for values and gradients to the second order; a sample does not see its batch."""
    x = log_probabilities(rng, 6, 3, 4)
    targets, ends, counts = np.array([[1, 2, 3], [3, 3, 1], [1, 1, 1]]), [6, 3, 0], [3, 1, 0]
    broken, labels = x.copy(), targets.copy()
    for n in range(3):
        broken[ends[n] :, n], labels[n, counts[n] :] = np.nan, -9
    found = []
    for values, given in ((x, targets), (broken, labels)):
        leaf = tensor(values, device, True)
        loss = F.ctc_loss(leaf, tensor(given, device), ends, counts, reduction="none")
        (first,) = mg.grad(loss.sum(), [leaf], create_graph=True)
        (second,) = mg.grad((first * first).sum(), [leaf], retain_graph=True)
        found.append([array(a) for a in (loss, mg.grad(loss.sum(), [leaf])[0], first, second)])
    agree(*found)
    assert all((a[3:, 1] == 0).all() for a in found[1][1:])
    alone = F.ctc_loss(tensor(x[:, :1], device), tensor(targets[:1], device), [6], [3], reduction="none")
    equals(alone, found[0][0][:1])
    single = F.ctc_loss(tensor(x[:, 0], device), tensor(targets[0], device), 6, mg.tensor(3), reduction="none")
    assert single.shape == ()
    assert single.item() == alone.item()


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_targets_that_do_not_fit(zero_infinity, device):
    """Repeated labels need a blank between them; a class of probability 0 is on no path. The gradients are 0, not NaN."""
    x = np.log([[[0.5, 0.5, 0.0]] * 4] * 2, where=np.array([True, True, False]), out=np.full((2, 4, 3), -np.inf))
    leaf = tensor(x, device, True)
    targets = mg.tensor([[1, 1], [1, 2], [1, 0], [2, 0]], device=device)
    loss = F.ctc_loss(leaf, targets, [2, 2, 0, 1], [2, 2, 1, 1], reduction="none", zero_infinity=zero_infinity)
    assert loss.tolist() == [0.0 if zero_infinity else math.inf] * 4
    for twice in (False, True):
        (g,) = mg.grad(loss, [leaf], mg.ones(4, dtype="float64", device=device), retain_graph=True, create_graph=twice)
        assert (array(g) == 0).all()
    fits = F.ctc_loss(leaf[:, :1], mg.tensor([[1]], device=device), [2], [1])
    assert math.isclose(fits.item(), -math.log(0.75))
    np.testing.assert_allclose(array(mg.grad(fits, [leaf])[0])[:, 0], [[-1 / 3, -2 / 3, 0]] * 2)  # PyTorch: NaN for 0


def test_long_sequences_in_float32(device):
    """The sums over paths run in float64: only the rounding of the input remains."""
    rng = np.random.default_rng(3)
    x = log_probabilities(rng, 2000, 2, 30).astype("float32")
    targets = rng.integers(1, 30, (2, 300))
    found = []
    for dtype in ("float32", "float64"):
        leaf = tensor(x.astype(dtype), device, True)
        loss = F.ctc_loss(leaf, tensor(targets, device), [2000, 1500], [300, 280], reduction="none")
        found.append([array(loss), array(mg.grad(loss.sum(), [leaf])[0])])
    for a, b, tolerance in zip(*found, (1e-7, 1e-6), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=1e-9)


def test_empty_batches_and_no_steps(device):
    nothing = mg.zeros((3, 0, 4), device=device, requires_grad=True)
    loss = F.ctc_loss(nothing, mg.zeros((0, 2), dtype="int64", device=device), [], [], reduction="sum")
    assert loss.item() == 0
    assert mg.grad(loss, [nothing])[0].shape == (3, 0, 4)
    assert F.ctc_loss(nothing, mg.zeros((0,), dtype="int64", device=device), [], [], reduction="none").shape == (0,)


def test_a_captured_step_takes_other_targets(device, rng):
    x = tensor(log_probabilities(rng, 5, 2, 4), device, True)

    def step(targets, counts):
        loss = F.ctc_loss(x, targets, [5, 4], counts)
        return loss, mg.grad(loss, [x])[0]

    captured = mg.capture(step, warmup=0)
    for targets, counts in (([[1, 2], [3, 3]], [2, 2]), ([[2, 2], [1, 1]], [1, 2]), ([[3, 1], [2, 3]], [0, 1])):
        given = mg.tensor(targets, device=device), mg.tensor(counts, device=device)
        agree(captured(*given), step(*given))


def test_a_recurrent_network_learns_to_spell():
    """Which label a step has is not said; the greedy path spells the target after training."""
    mg.manual_seed(0)
    rng = np.random.default_rng(0)
    targets = rng.integers(1, 4, (8, 3))
    x = np.zeros((12, 8, 4), "float32")
    for n, target in enumerate(targets):
        for k, label in enumerate(target):
            x[4 * k + int(rng.integers(3)), n, label] = 1
    gru, head = nn.GRU(4, 24, bidirectional=True), nn.Linear(48, 4)
    optimizer, loss = mg.optim.Adam([*gru.parameters(), *head.parameters()], lr=0.02), nn.CTCLoss()
    for _ in range(150):
        optimizer.zero_grad()
        y = mg.log_softmax(head(gru(mg.tensor(x))[0]))
        value = loss(y, mg.tensor(targets), [12] * 8, [3] * 8)
        value.backward()
        optimizer.step()
    assert value.item() < 0.05
    for path, target in zip(y.argmax(axis=-1).T.tolist(), targets.tolist(), strict=True):
        assert [c for i, c in enumerate(path) if c and (i == 0 or c != path[i - 1])] == target


def test_texts():
    assert repr(nn.CTCLoss()) == "CTCLoss()"
    assert repr(nn.CTCLoss(2, "sum", True)) == "CTCLoss(blank=2, reduction='sum', zero_infinity=True)"


X, LABELS = mg.zeros((5, 2, 4)), mg.tensor([[1, 2], [3, 3]])


@pytest.mark.parametrize("error, words, call", [
    (TypeError, "a tensor", lambda: F.ctc_loss([[1.0]], LABELS, [5, 5], [2, 2])),
    (TypeError, "int64", lambda: F.ctc_loss(X.astype("int64"), LABELS, [5, 5], [2, 2])),
    (TypeError, ["integer targets", "float32"], lambda: F.ctc_loss(X, LABELS.astype("float32"), [5, 5], [2, 2])),
    (ValueError, ["(T, N, C)", "(5, 2, 4, 1)"], lambda: F.ctc_loss(X[..., None], LABELS, [5, 5], [2, 2])),
    (ValueError, ["(N, S)", "(1, 2)"], lambda: F.ctc_loss(X, LABELS[:1], [5, 5], [2, 2])),
    (ValueError, ["a blank below 4", "got 4"], lambda: F.ctc_loss(X, LABELS, [5, 5], [2, 2], 4)),
    (ValueError, "blank >= 0", lambda: nn.CTCLoss(-1)),
    (ValueError, ["lengths from 0 to 5", "got 6"], lambda: F.ctc_loss(X, LABELS, [6, 5], [2, 2])),
    (ValueError, ["lengths from 0 to 2", "got 3"], lambda: F.ctc_loss(X, LABELS, [5, 5], [2, 3])),
    (ValueError, ["2 lengths", "(3,)"], lambda: F.ctc_loss(X, LABELS, [5, 5, 5], [2, 2])),
    (ValueError, ["3 labels", "targets (4,)"], lambda: F.ctc_loss(X, LABELS.reshape(4), [5, 5], [2, 1])),
    (ValueError, ["without the blank 3"], lambda: F.ctc_loss(X, LABELS, [5, 5], [2, 2], 3)),
    (IndexError, ["targets from 0 to 3", "got 4"], lambda: F.ctc_loss(X, LABELS + 1, [5, 5], [2, 2])),
    (IndexError, ["targets from 0 to 3", "got -1"], lambda: F.ctc_loss(X, mg.tensor([[1, -1], [2, 3]]), [5, 5], [2, 2])),
    (ValueError, "'sums'", lambda: F.ctc_loss(X, LABELS, [5, 5], [2, 2], 0, "sums")),
])  # fmt: skip
def test_errors(error, words, call):
    refuses(error, "CTCLoss" if words == "blank >= 0" else "ctc_loss", words, call)
