"""Every kernel runs in every dtype it supports, and gives the same results as the CPU."""

from types import SimpleNamespace

import cupy
import numpy as np
import pytest
from kernels import EVERY

import minigrad as mg
from minigrad import nn, optim
from minigrad.cuda import launch
from minigrad.nn import functional as F


class Draw:
    """Makes random tensors of one dtype on one device, the same on every device."""

    def __init__(self, dtype, device):
        self.dtype, self.device, self.rng = dtype, device, np.random.default_rng(7)

    def __call__(self, *shape, dtype=None, requires_grad=False):
        values = 3 * self.rng.standard_normal(shape)
        values = (abs(values) if self.dtype == "uint8" else values).astype(dtype or self.dtype)
        return mg.tensor(values, device=self.device, requires_grad=requires_grad)

    def leaf(self, *shape):
        return self(*shape, requires_grad=True)

    def index(self, n, *shape):
        return mg.tensor(self.rng.integers(0, n, shape), device=self.device)

    def gradients(self, y, *leaves):
        """Return y and its gradients for a random cotangent."""
        return y, *mg.grad(y, leaves, self(*y.shape))


# The functions below take a Draw and return everything they compute.


def elements(draw):
    x, y = draw(5, 7), draw(7)
    negated = mg.bitwise_invert(x) if draw.dtype == "bool" else x if draw.dtype == "uint8" else -x
    return (negated, x == y, mg.where(x > y, x, y), draw(9, 40).T.contiguous(), x.to("int64"),
            mg.full((3,), 1, dtype=draw.dtype, device=draw.device))  # fmt: skip


def limited(draw):
    return mg.clip(draw(9, 41), -0.5, 0.7), mg.clip(draw(9, 40).T, max=0.2)


def reductions(draw):
    return mg.any(draw(6, 9), axis=1), mg.all(draw(40_000)), mg.max(draw(3, 30_000), axis=1)


def running_sums(draw):
    return mg.cumulative_sum(draw(3, 50), axis=1, dtype=draw.dtype)


def linear_scans(draw):
    """Use columns that are neighbours and columns that are rows, whole and in pieces."""
    found = []
    for shape, axis in (((150, 3), 0), ((300, 3), 0), ((2, 2_500), 1), ((2, 9_000), 1)):
        a, b, initial = draw.leaf(*shape), draw.leaf(*shape), draw.leaf(shape[1 - axis])
        found += draw.gradients(mg.linear_scan(mg.tanh(a), b, initial, axis), a, b, initial)
    return found


def alignments(draw):
    """Compute a CTC loss with more states than a block has threads, and an infinite one."""
    x = draw.leaf(9, 2, 4)
    long, labels = draw.leaf(160, 1, 4), draw.index(3, 1, 150)
    return (*draw.gradients(F.ctc_loss(mg.log_softmax(x), draw.index(3, 2, 3) + 1, [9, 2], [2, 3], reduction="none"), x),
            *draw.gradients(F.ctc_loss(mg.log_softmax(long), labels, [160], [150], 3), long))  # fmt: skip


def order(draw):
    return mg.argsort(draw(3, 40)), mg.argsort(draw(2_500))


def places(draw):
    x, index = draw(6, 4), draw.index(6, 5)
    taken = x[index], mg.take_along_axis(x, draw.index(6, 3, 4), axis=0)
    x[index] = draw(5, 4)
    return *taken, x


def indexed_sums(draw):
    x = draw.leaf(6, 4)
    return (*draw.gradients(mg.take(x, draw.index(6, 5), axis=0), x), *draw.gradients(x[draw.index(6, 90)], x),
            *draw.gradients(mg.take_along_axis(x, draw.index(6, 90, 4), axis=0), x))  # fmt: skip


def random_numbers(draw):
    mg.manual_seed(3)
    of = {"shape": (50,), "device": draw.device}
    kept = F.dropout(draw(9, 9), 0.4)
    return mg.random.uniform(**of, dtype=draw.dtype), mg.random.normal(**of, dtype=draw.dtype), kept


def random_integers(draw):
    mg.manual_seed(3)
    return mg.random.randint(0, 9, (50,), device=draw.device)


def moments(draw):
    return mg.var(draw(6, 50), axis=1), mg.std(draw(60, 5), axis=0)


def softmaxes(draw):
    """Use rows that are held in registers, and rows that are too long for that."""
    found = []
    for width in (9, 9_004):
        x, labels, weight = draw.leaf(5, width), draw.index(width, 5), mg.exp(draw(width) / 9).detach()
        found += draw.gradients(mg.softmax(x, axis=1), x)
        found += draw.gradients(mg.log_softmax(x, axis=1), x)
        found += mg.logsumexp(x, axis=1), *draw.gradients(F.cross_entropy(x, labels, weight=weight), x)
    return found


def attentions(draw):
    """Use values of every width for which there are kernels on tensor cores, and of a larger one."""
    found = []
    for width in (30, 60, 66, 130):
        q, k, v = draw.leaf(2, 70, 5), draw.leaf(2, 3, 5), draw.leaf(2, 3, width)
        found += draw.gradients(F.scaled_dot_product_attention(q, k, v, draw(70, 3)), q, k, v)
    return found


def row_norms(draw):
    """Use rows that a team holds in registers, in packs and one by one, and rows that are too long for that."""
    found = []
    for width in (36, 37, 9_004):
        x, w, b = draw.leaf(3, width), draw.leaf(width), draw.leaf(width)
        found += draw.gradients(mg.layer_norm(x, width, w, b), x, w, b)
        found += draw.gradients(mg.rms_norm(x, width, w), x, w)
    return found


def group_norms(draw):
    found = []
    for inner, groups in ((10, 2), (11, 4), (9_004, 2)):
        x, w, b = draw.leaf(2, 4, inner), draw.leaf(4), draw.leaf(4)
        found += draw.gradients(mg.group_norm(x, groups, w, b), x, w, b)
    return found


def batch_norms(draw):
    """Use statistics of a batch, whole, in pieces and in packs of many columns, and given statistics."""
    found = []
    for rows, n in ((30, 3), (3_000, 3), (3_000, 384)):
        x, w, b = draw.leaf(rows, n), draw.leaf(n), draw.leaf(n)
        found += draw.gradients(F.batch_norm(x, None, None, w, b, training=True), x, w, b)
        found += draw.gradients(F.batch_norm(x, draw(n), draw(n) ** 2, w, b), x, w, b)
    return found


def convolutions(draw):
    """Use few results, for narrow tiles, and just enough for wide ones: 132 tiles of 64 rows by 128 columns."""
    found = []
    for channels, size, window in ((2, 8, 3), (17, 130, 1)):
        x, b = draw.leaf(1, channels, size, size), draw.leaf(channels)
        w = draw.leaf(channels, channels, window, window)
        found += draw.gradients(F.conv2d(x, w, b), x, w, b)
    return found


def rounded_convolutions(draw):
    """Multiply numbers that TF32 holds."""
    draw.rng = SimpleNamespace(standard_normal=lambda shape, rng=draw.rng: rng.integers(-5, 6, shape))
    mg.set_float32_matmul_precision("high")
    found = convolutions(draw)
    mg.set_float32_matmul_precision("highest")
    return found


def poolings(draw):
    x = draw.leaf(2, 3, 8, 8)
    return *draw.gradients(F.max_pool2d(x, 2), x), *draw.gradients(F.avg_pool2d(x, 2), x)


def recurrences(draw):
    mg.manual_seed(5)
    layer, x = nn.LSTM(3, 5, norm="layer").to(draw.device).to(draw.dtype), draw.leaf(4, 2, 3)
    return draw.gradients(layer(x)[0], x, *layer.parameters())


def optimizers(draw):
    classes = [
        one for one in vars(optim).values() if isinstance(one, type) and one not in (optim.Optimizer, optim.LBFGS)
    ]
    found = []
    for optimizer in classes:
        p = draw.leaf(8, 5)
        p.grad = draw(8, 5)
        found.append(optim.clip_grad_norm_([p], 1.0))
        optimizer([p], lr=0.1).step()
        found.append(p)
    return found


FOR_ALL = elements, reductions, order, places
FOR_FLOATS = (
    *FOR_ALL, limited, running_sums, indexed_sums, random_numbers, moments, softmaxes, attentions, linear_scans, alignments,
    row_norms, group_norms, batch_norms, convolutions, rounded_convolutions, poolings, recurrences, optimizers,
)  # fmt: skip
WORK = {
    "bool": FOR_ALL, "uint8": FOR_ALL, "int32": (*FOR_ALL, running_sums), "int64": (*FOR_ALL, running_sums, random_integers),
    "float32": FOR_FLOATS, "float64": FOR_FLOATS,
}  # fmt: skip
TOLERANCE = {"float32": 2e-4, "float64": 1e-10}


def values(results):
    """Convert one or several results to NumPy arrays."""
    several = results if isinstance(results, (tuple, list)) else [results]
    return [one.detach().to("cpu").numpy() if isinstance(one, mg.Tensor) else np.asarray(one) for one in several]


def compare(dtype):
    """Compare what a GPU computes in a dtype with what the CPU does."""
    for work in WORK[dtype]:
        expected, got = (values(work(Draw(dtype, device))) for device in ("cpu", "cuda:0"))
        for k, (e, g) in enumerate(zip(expected, got, strict=True)):
            where = f"result {k} of {work.__name__} in {dtype}"
            assert (e.shape, e.dtype) == (g.shape, g.dtype), where
            tolerance = TOLERANCE.get(dtype, 0)
            scale = np.abs(e[np.isfinite(e)]).max(initial=0) if tolerance else 0
            np.testing.assert_allclose(g, e, rtol=tolerance, atol=tolerance * scale, err_msg=where)


def test_every_kernel_runs_and_agrees_with_the_cpu(monkeypatch):
    started, load = set(), launch.load

    def recorded(file, name, dtype, device):
        started.add((file, name, dtype))
        return load(file, name, dtype, device)

    monkeypatch.setattr(launch, "load", recorded)
    launch.kernels.clear()
    for dtype in WORK:
        compare(dtype)
    assert started == EVERY


@pytest.mark.skipif(cupy.__version__ != "emulated", reason="a real GPU is tested: it has its own order")
def test_every_kernel_while_threads_take_turns(preempted):
    for dtype in ("int32", "float32", "float32"):
        compare(dtype)
