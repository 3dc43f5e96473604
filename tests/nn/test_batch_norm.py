"""The running statistics of batch normalization, and statistics for each time step; see also test_norms.py."""

import numpy as np
import pytest
from checks import array, equals, near, refuses, tensor

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F


def random(rng, device, *shape, dtype="float64", requires_grad=False):
    return mg.tensor(rng.standard_normal(shape), dtype=dtype, device=device, requires_grad=requires_grad)


# ── PyTorch's semantics ──


def test_cumulative_average(device, rng):
    """Without a momentum, the running statistics average those of all batches."""
    bn = nn.BatchNorm1d(3, momentum=None, device=device, dtype="float64")
    batches = [rng.standard_normal((n, 3)) * n for n in (5, 2, 9, 4)]
    for x in batches:
        bn(tensor(x, device))
    mean, var = np.mean([x.mean(0) for x in batches], 0), np.mean([x.var(0, ddof=1) for x in batches], 0)
    near(bn.running_mean, mean, rtol=1e-12)
    near(bn.running_var, var, rtol=1e-12)
    assert (bn.num_batches_tracked.item(), bn.num_batches_tracked.dtype) == (4, mg.int64)


def test_evaluation_changes_nothing(device, rng):
    bn = nn.BatchNorm1d(3, device=device)
    bn(random(rng, device, 8, 3, dtype="float32"))
    before = {name: x.tolist() for name, x in bn.state_dict().items()}
    x = random(rng, device, 4, 3, dtype="float32")
    y = bn.eval()(x)
    assert {name: x.tolist() for name, x in bn.state_dict().items()} == before
    for k in range(4):
        assert (
            bn(x[k : k + 1])[0].tolist() == y[k].tolist()
        )  # a single sample is enough, with several values per channel


def test_two_batches_before_one_backward(device, rng):
    """The second batch updates statistics that are not part of the first one's graph."""
    bn = nn.BatchNorm1d(3, device=device, dtype="float64")
    x, z = random(rng, device, 6, 3, requires_grad=True), random(rng, device, 6, 3)
    c = random(rng, device, 6, 3)
    y = bn(x)
    bn(z)
    y.backward(c)
    x2 = x.detach().requires_grad_()
    nn.BatchNorm1d(3, device=device, dtype="float64")(x2).backward(c)
    assert x.grad.tolist() == x2.grad.tolist()
    assert not bn.running_mean.requires_grad


# ── errors ──


@pytest.mark.parametrize("kind, shape, expected", [
    (nn.BatchNorm1d, (5,), r"\(N, 5\) or \(N, 5, L\)"), (nn.BatchNorm1d, (2, 4), r"\(N, 5\) or \(N, 5, L\)"),
    (nn.BatchNorm1d, (2, 5, 3, 3), r"\(N, 5, L\)"), (nn.BatchNorm2d, (5, 3, 3), r"\(N, 5, H, W\)"),
    (nn.BatchNorm2d, (2, 5), r"\(N, 5, H, W\)"), (nn.BatchNorm2d, (2, 3, 5, 5), r"\(N, 5, H, W\)"),
])  # fmt: skip
def test_wrong_input(kind, shape, expected, device):
    layer = kind(5, device=device)
    for training in (True, False):
        with pytest.raises(ValueError, match=rf"\[BatchNorm.d\] expected an input .*{expected}, got \({shape[0]},"):
            layer.train(training)(mg.zeros(shape, device=device))


@pytest.mark.parametrize("kind, sizes, shape", [
    (nn.BatchNorm1d, (5,), (1, 5)), (nn.BatchNorm1d, (5,), (1, 5, 1)), (nn.BatchNorm2d, (5,), (1, 5, 1, 1)),
    (nn.RecurrentBatchNorm1d, (5, 2), (1, 5)),
])  # fmt: skip
def test_one_value_per_channel(kind, sizes, shape, device):
    """It is an error in training that does not change the statistics; evaluation accepts it."""
    layer, step = kind(*sizes, device=device), (0,) * (len(sizes) - 1)
    before = {name: x.tolist() for name, x in layer.state_dict().items()}
    with pytest.raises(ValueError, match=r"\[batch_norm\] expected more than one value per channel"):
        layer(mg.zeros(shape, device=device), *step)
    assert {name: x.tolist() for name, x in layer.state_dict().items()} == before
    assert layer.eval()(mg.zeros(shape, device=device), *step).tolist() == mg.zeros(shape).tolist()


# ── statistics for each time step ──


def test_steps_are_batch_norms_of_their_own(device, rng):
    """It equals one BatchNorm1d for each step with shared weight and bias, over sequences of different lengths."""
    norm = nn.RecurrentBatchNorm1d(3, 5, device=device, dtype="float64")
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    steps = [nn.BatchNorm1d(3, device=device, dtype="float64") for _ in range(5)]
    for step in steps:
        step.weight, step.bias = norm.weight, norm.bias
    for length in (4, 2, 3):
        for time in range(length):
            x = time + (1 + time) * random(rng, device, 6, 3)
            equals(norm(x, time), array(steps[time](x)))
    assert norm.num_batches_tracked.tolist() == [3, 3, 2, 1, 0]
    for time, step in enumerate(steps):
        assert norm.running_mean[time].tolist() == step.running_mean.tolist()
        assert norm.running_var[time].tolist() == step.running_var.tolist()
    norm.eval()
    x = random(rng, device, 1, 3)
    for time in range(9):
        equals(norm(x, time), array(steps[min(time, 3)].eval()(x)))  # 3 is the last one trained


def test_the_last_row_serves_all_later_steps(device, rng):
    norm = nn.RecurrentBatchNorm1d(2, 3, gain=1.0, momentum=None, device=device)
    last = nn.BatchNorm1d(2, momentum=None, device=device)
    for time in (2, 3, 7):
        x = time * random(rng, device, 5, 2, dtype="float32")
        equals(norm(x, time), array(last(x)))
    assert norm.num_batches_tracked.tolist() == [0, 0, 3]
    x = random(rng, device, 5, 2, dtype="float32")
    equals(norm.eval()(x, 11), array(last.eval()(x)))
    equals(norm(x, 1), array(nn.BatchNorm1d(2, device=device).eval()(x)))  # no step up to there was trained


def test_recurrent_options_and_state(device):
    norm = nn.RecurrentBatchNorm1d(3, 4, device=device)
    assert {name: x.shape for name, x in norm.state_dict().items()} == {
        "weight": (3,), "bias": (3,), "running_mean": (4, 3), "running_var": (4, 3), "num_batches_tracked": (4,),
    }  # fmt: skip
    assert norm.weight.tolist() == mg.full(3, 0.1).tolist()
    norm(mg.tensor([[1.0, 2, 3], [3, 5, 9]], device=device), 1)
    other = nn.RecurrentBatchNorm1d(3, 4, device=device, gain=0.5)
    assert other.weight.tolist() == [0.5, 0.5, 0.5]
    other.load_state_dict(norm.state_dict())
    x = mg.tensor([[1.0, -2, 4]], device=device)
    assert other.eval()(x, 3).tolist() == norm.eval()(x, 3).tolist() == norm(x, 1).tolist()
    other.reset_parameters()
    assert other.weight.tolist() == [0.5, 0.5, 0.5]
    assert (other.running_mean.tolist(), other.num_batches_tracked.tolist()) == ([[0] * 3] * 4, [0] * 4)
    assert repr(norm) == "RecurrentBatchNorm1d(3, 4, eps=1e-05, momentum=0.1, affine=True, bias=True, gain=0.1)"
    refuses(ValueError, "RecurrentBatchNorm1d", "expected time >= 0, got -1", norm, x, -1)
    for time in (1.0, "1", None, mg.tensor(1.0), np.array(1.0)):
        refuses(TypeError, "RecurrentBatchNorm1d", f"an integer time, got {time!r}", norm, x, time)
    for time in (np.int64(1), mg.tensor(1), True):
        assert norm(x, time).tolist() == norm(x, 1).tolist()
    refuses(ValueError, "RecurrentBatchNorm1d", "expected an input of shape (N, 3), got (3,)", norm, x[0], 0)


def test_gradients_through_time(device, rng):
    norm = nn.RecurrentBatchNorm1d(3, 2, gain=0.7, device=device, dtype="float64")

    def run(x, w, u):
        h = mg.zeros((5, 3), dtype="float64", device=device)
        for time in range(3):
            h = mg.tanh(norm(x[time] @ w + h @ u, time))
        return h

    x, w, u = (random(rng, device, *shape, requires_grad=True) for shape in [(3, 5, 2), (2, 3), (3, 3)])
    assert mg.gradcheck(run, [x, w, u], rtol=1e-4)
    norm.eval()
    assert mg.gradcheck(run, [x, w, u], rtol=1e-4)


# ── counts ──


def test_tracking_may_be_switched_off(device, rng):
    """Then training does not change the statistics, and evaluation still uses them, as in PyTorch."""
    norm, x = nn.BatchNorm1d(4, device=device), random(rng, device, 6, 4, dtype="float32")
    norm(x)
    before = {name: value.tolist() for name, value in norm.state_dict().items()}
    norm.track_running_stats = False
    norm(x * 3 + 1)
    assert {name: value.tolist() for name, value in norm.state_dict().items()} == before
    expected = (x - norm.running_mean) / (norm.running_var + 1e-5).sqrt()
    np.testing.assert_allclose(norm.eval()(x).tolist(), expected.tolist(), rtol=1e-5, atol=1e-6)


def test_tracking_of_instances_may_be_switched_off(device, rng):
    """Then evaluation also normalizes every sample by its own statistics, as in PyTorch, and keeps the running ones."""
    norm = nn.InstanceNorm1d(4, track_running_stats=True, device=device)
    x = random(rng, device, 6, 4, 5, dtype="float32")
    norm(x)
    before = {name: value.tolist() for name, value in norm.state_dict().items()}
    norm.track_running_stats = False
    for mode in (True, False):
        assert norm.train(mode)(x * 3 + 1).tolist() == F.instance_norm(x * 3 + 1).tolist()
    assert {name: value.tolist() for name, value in norm.state_dict().items()} == before


@pytest.mark.parametrize("momentum", [0.1, None])
def test_a_batch_without_samples(momentum, device):
    """It is counted, and the statistics do not change, as in PyTorch."""
    torch = pytest.importorskip("torch")
    ours = nn.BatchNorm1d(3, momentum=momentum, device=device)
    theirs = torch.nn.BatchNorm1d(3, momentum=momentum)
    for shape in ((0, 3), (0, 3, 4), (5, 3, 0)):
        assert ours(mg.ones(shape, device=device)).shape == theirs(torch.ones(shape)).shape == shape
        assert {name: x.tolist() for name, x in ours.state_dict().items()} == {
            name: x.tolist() for name, x in theirs.state_dict().items()
        }


def test_a_step_that_saw_empty_batches_alone_has_no_statistics(device, rng):
    rnn = nn.RNN(3, 4, norm="batch", max_length=5, device=device)
    for _ in range(20):
        rnn(random(rng, device, 2, 8, 3, dtype="float32") + 5)
    x = random(rng, device, 5, 1, 3, dtype="float32")
    before = array(rnn.eval()(x)[0])
    assert rnn.train()(mg.ones((5, 0, 3), device=device))[0].shape == (5, 0, 4)
    assert rnn.bn_ih_l0.num_batches_tracked.tolist() == [20, 20, 0, 0, 0]
    equals(rnn.eval()(x)[0], before)


def test_a_batch_of_one_sample_in_training():
    rnn = nn.RNN(3, 4, norm="batch", max_length=5)
    for shape in ((5, 1, 3), (5, 3)):
        refuses(ValueError, "RNN", ["expected more than one sample in training", ", got one"], rnn, mg.ones(shape))
        assert rnn.eval()(mg.ones(shape))[0].shape == (*shape[:-1], 4)
        rnn.train()
    rnn.bn_ih_l0.eval()
    refuses(ValueError, "RNN", "expected more than one sample in training", rnn, mg.ones((5, 1, 3)))
    rnn.bn_hh_l0.eval()  # both frozen, in a network that is trained
    assert rnn(mg.ones((5, 1, 3)))[0].shape == (5, 1, 4)


def test_statistics_of_no_channels(device):
    mean, var = mg.zeros(0, device=device), mg.ones(0, device=device)
    assert F.batch_norm(mg.zeros((4, 0), device=device), mean, var, training=True).shape == (4, 0)


def test_a_batch_in_training_between_evaluation_and_its_backward(device, rng):
    """The gradient uses the statistics of the evaluation."""
    norm, x = nn.BatchNorm1d(3, device=device), random(rng, device, 5, 3, dtype="float32")
    norm(x * 2)
    leaf = tensor(array(x), device, True)
    y, scale = norm.eval()(leaf), 1 / (norm.running_var + 1e-5).sqrt()
    norm.train()(x - 4)
    g = random(rng, device, *y.shape, dtype="float32")
    y.backward(g)
    near(leaf.grad, array(g * scale), rtol=1e-6)
