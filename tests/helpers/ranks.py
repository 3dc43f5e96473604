"""The checks of tests/distributed that run on several ranks: ``mpiexec -n 2 python ranks.py check …``.

Each check is a function of the folder for its files; the checks of one launch run one after the other.
"""

import hashlib
import os
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad import data, distributed, nn, optim
from minigrad.distributed import DataParallel
from minigrad.nn import functional as F

CHECKS = {}
SAMPLES = 11  # of a batch, which 2, 3 and 4 do not divide


def check(function):
    CHECKS[function.__name__] = function
    return function


def own(x, axis=0):
    """Return this rank's samples."""
    return x[(slice(None),) * axis + (slice(distributed.rank(), None, distributed.size()),)]


# ── models, each with arguments for a whole batch, the axes of their samples, and targets ─────────


class Lengths(nn.Module):
    """An LSTM with layer normalization over sequences of different lengths."""

    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 8, norm="layer"), nn.Linear(8, 3)

    def forward(self, x, lengths):
        return self.head(self.lstm(x, lengths=lengths)[1][0][0])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Tied(nn.Module):
    """A layer that is used twice, and whose gradient is complete only after both."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(F.relu(self.layer(F.relu(self.layer(x)))))


def mlp(norm=nn.LayerNorm):
    return nn.Sequential(
        nn.Linear(6, 16), norm(16), nn.ReLU(), nn.Linear(16, 16), norm(16), nn.ReLU(), nn.Linear(16, 3)
    )


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 4, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.Tanh(), nn.Flatten(),
        nn.Linear(24, 10), nn.LayerNorm(10), nn.Tanh(), nn.Linear(10, 3),
    )  # fmt: skip


def images_with_batch_norm():
    layers = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(256, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [mg.tensor(rng.standard_normal(shape)) for shape in shapes]


MODELS = {
    "mlp": (mlp, arrays((SAMPLES, 6)), (0,)),
    "lenet": (lenet, arrays((SAMPLES, 1, 12, 12)), (0,)),
    "lengths": (Lengths, [*arrays((7, SAMPLES, 5)), mg.tensor([7, 1, 3, 2, 7, 5, 6, 4, 1, 2, 3])], (1, 0)),
    "transformer": (Encoder, arrays((SAMPLES, 5, 8)), (0,)),
    "tied": (Tied, arrays((SAMPLES, 6)), (0,)),
    "batch_norm": (images_with_batch_norm, arrays((SAMPLES, 1, 12, 12)), (0,)),
    "batch_norm_rows": (partial(mlp, nn.BatchNorm1d), arrays((SAMPLES, 6)), (0,)),
}
TARGETS = mg.tensor(np.random.default_rng(1).integers(0, 3, SAMPLES))


def build(name, seed=0):
    mg.manual_seed(seed)
    return MODELS[name][0]().to("float64")


def loss_of(model, name, part=lambda x, axis=0: x, targets=None):
    _, inputs, axes = MODELS[name]
    outputs = model(*(part(x, axis) for x, axis in zip(inputs, axes, strict=True)))
    return F.cross_entropy(outputs, part(TARGETS if targets is None else targets)) + penalty(model)


def penalty(model):
    """A term that does not come from the outputs."""
    return 0.01 * sum((p * p).sum() for p in model.parameters() if p.ndim > 1)


def parallel(name, synchronized=False, **options):
    """Return the model, which ranks but the first begin with other numbers."""
    model = build(name, distributed.rank())
    if synchronized:
        model = nn.convert_sync_batchnorm(model)
    return DataParallel(model, batch_axis=MODELS[name][2][0], **options)


def gradients(model):
    return [p.grad.numpy().copy() for p in model.parameters()]


def distance(found, expected):
    """The largest difference, relative to the largest number of each array."""
    pairs = zip(found, expected, strict=True)
    return max(float(abs(a - b).max() / max(abs(b).max(), 1e-3)) for a, b in pairs)


def digest(arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def same_on_all(arrays):
    """Whether the arrays have the same bits on every rank."""
    text = np.frombuffer(digest(arrays)[:16].encode(), np.int64).copy()
    every = distributed.all_gather(mg.tensor(text)).numpy()
    return bool((every == every[0]).all())


def raises(error, *texts):
    return pytest.raises(error, match=".*".join(texts))


# ── the operations ────────────────────────────────────────────────────────────────────────────────


@check
def operations(folder):
    r, n = distributed.rank(), distributed.size()
    x = mg.tensor([1.0, 2.0 * r, -3.0])
    address, version = x.data_ptr(), x.version
    assert distributed.all_reduce_(x) is x
    assert x.tolist() == [n, n * (n - 1), -3.0 * n]
    assert x.data_ptr() == address
    assert (x.version > version) == (n > 1)
    for op, expected in {"mean": (n - 1) / 2, "max": n - 1, "min": 0}.items():
        assert distributed.all_reduce_(mg.tensor(float(r)), op).item() == expected, op
    for dtype in ("float32", "float64", "int32", "int64"):
        assert distributed.all_reduce_(mg.ones((2, 3), dtype=dtype)).tolist() == [[n] * 3] * 2
    empty = distributed.all_reduce_(mg.zeros((0, 3)))
    assert empty.shape == (0, 3)
    assert distributed.broadcast_(mg.tensor([r, 7]), n - 1).tolist() == [n - 1, 7]
    assert distributed.broadcast_(mg.tensor([r > 0, True])).tolist() == [False, True]
    assert distributed.all_gather(mg.full((2,), r, dtype="int64").T).tolist() == [[k, k] for k in range(n)]
    assert distributed.all_gather(mg.tensor([[r, 1], [2, r]]).T).tolist() == [[[k, 2], [1, k]] for k in range(n)]
    parts = mg.arange(float(n)).expand_dims(1) * mg.ones(2) + r
    assert distributed.reduce_scatter(parts).tolist() == [n * r + n * (n - 1) / 2] * 2
    assert distributed.reduce_scatter(parts, "max").tolist() == [r + n - 1] * 2
    assert distributed.reduce_scatter(parts, "mean").tolist() == [r + (n - 1) / 2] * 2
    assert distributed.local_rank() == r
    distributed.barrier()


@check
def differentiable(folder):
    """y = Σ x³ over the ranks; the losses Σ c y² differ between ranks by c, so dx = 3 x² · 2 y Σ c."""
    r, n = distributed.rank(), distributed.size()
    every = np.random.default_rng(5).standard_normal((n, 4))
    for op, scale in {"sum": 1, "mean": 1 / n}.items():
        x = mg.tensor(every[r], requires_grad=True)
        y = distributed.all_reduce(x**3, op)
        total = (every**3).sum(0) * scale
        np.testing.assert_allclose(y.detach().numpy(), total, rtol=1e-14)
        (g,) = mg.grad((y * y * (r + 1.0)).sum(), [x], create_graph=True)
        weights = n * (n + 1) / 2 * scale
        np.testing.assert_allclose(g.detach().numpy(), 6 * every[r] ** 2 * total * weights, rtol=1e-13)
        # of the sum of all ranks' Σ g: g contains y, to which every rank's x contributes
        (h,) = mg.grad(g.sum(), [x])
        own = 12 * every[r] * total * weights
        others = (6 * every**2 * weights).sum(0) * 3 * every[r] ** 2 * scale
        np.testing.assert_allclose(h.numpy(), own + others, rtol=1e-12)


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


@check
def whole_batch(folder):
    """The gradients are those of one process on the whole batch, and the same bits on all ranks."""
    bits = []
    for name in MODELS:
        synchronized = name.startswith("batch_norm")
        expected = build(name)
        loss_of(expected, name).backward()
        for limit in (1, 1 << 9, 1 << 20):
            model = parallel(name, synchronized, bucket_bytes=limit)
            for _ in range(2):
                model.zero_grad()
                loss_of(model, name, own).backward()
            found = gradients(model)
            far = distance(found, gradients(expected))
            assert far < 1e-12, f"{name}: {far}"
            assert same_on_all(found), name
            bits += found
        if synchronized:
            model, expected = parallel(name, synchronized), build(name)
            for batch in (model, expected):
                loss_of(batch, name, own if batch is model else lambda x, axis=0: x)
            pairs = zip(model.module.buffers(), expected.buffers(), strict=True)
            for a, b in pairs:
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-12, atol=1e-15)
    if distributed.rank() == 0:
        (folder / "bits").write_text(digest(bits))


@check
def needs_synchronization(folder):
    """Batch statistics of each rank's own samples give other gradients; layer normalization has none of this."""
    found = {}
    for name, synchronized in (("mlp", False), ("batch_norm_rows", False), ("batch_norm_rows", True)):
        expected, model = build(name), parallel(name, synchronized)
        loss_of(expected, name).backward()
        loss_of(model, name, own).backward()
        found[name, synchronized] = distance(gradients(model), gradients(expected))
    assert found["mlp", False] < 1e-12
    assert found["batch_norm_rows", True] < 1e-12
    assert (found["batch_norm_rows", False] > 0.05) == (distributed.size() > 1)


@check
def one_value(folder):
    """SyncBatchNorm refuses a single value per channel of all ranks together, on every rank."""
    layer = nn.SyncBatchNorm(2)
    with raises(ValueError, r"^\[batch_norm\] expected more than one value per channel"):
        layer(mg.ones((1 if distributed.rank() == 0 else 0, 2)))
    assert np.isfinite(layer.running_var.numpy()).all()


@check
def sent_early(folder):
    """Gradients of the last layers are on their way before those of the first are computed."""
    model = parallel("mlp", bucket_bytes=1)
    x = own(MODELS["mlp"][1][0]).requires_grad_()
    sent = []
    x.register_hook(lambda g: sent.append(model._plan.sent if distributed.size() > 1 else 8))
    F.cross_entropy(model(x), own(TARGETS)).backward()
    assert sent[0] >= 8, sent  # of ten; those of the first layer become complete together with the gradient of x


@check
def accumulation(folder):
    """`no_sync` accumulates the whole gradients of several batches of different sizes."""
    pieces = [slice(0, 4), slice(4, 9), slice(9, SAMPLES)][: 3 if distributed.size() < 3 else 2]

    def losses(model, part=lambda x: x):
        return [F.cross_entropy(model(part(X[piece])), part(TARGETS[piece])) for piece in pieces]

    X = MODELS["mlp"][1][0]
    expected, model = build("mlp"), parallel("mlp", bucket_bytes=1 << 9)
    sum(losses(expected)).backward()
    for loss in losses(expected):
        loss.backward()
    *first, last = losses(model, own)
    with model.no_sync():
        sum(first).backward()
    last.backward()
    for loss in losses(model, own):  # accumulated after each pass has been averaged
        loss.backward()
    assert distance(gradients(model), gradients(expected)) < 1e-12
    assert same_on_all(gradients(model))


@check
def several_models(folder):
    """Models may follow one another, or themselves; a model may be wrapped again, and pass gradients to its inputs."""

    def losses(first, second, x):
        return (second(first(x).tanh()) ** 2).mean(), (first(first(x).tanh()) ** 2).mean()

    x = mg.tensor(np.random.default_rng(2).standard_normal((SAMPLES, 4)))
    layers = [nn.Linear(4, 4).to("float64") for _ in range(2)]
    expected = [[g.numpy() for g in mg.grad(loss, layers[0].parameters())] for loss in losses(*layers, x)]
    for again in range(2):
        models = [DataParallel(layer, bucket_bytes=1 << 5 * again) for layer in layers]
        for k in range(2):
            for model in models:
                model.zero_grad()
            losses(*models, own(x))[k].backward()
            assert distance(gradients(models[0]), expected[k]) < 1e-12
            assert same_on_all(gradients(models[0]))
        inputs = own(x).copy().requires_grad_()
        (models[0](inputs) ** 2).mean().backward()
        (plain,) = mg.grad((layers[0](inputs) ** 2).mean(), [inputs])
        assert distance([inputs.grad.numpy()], [plain.numpy()]) < 1e-12
        del model, models
    # the wrappers are gone: a rank may use its model alone
    layers[0].zero_grad()
    if distributed.rank() == 0:
        layers[0](x).sum().backward()
        np.testing.assert_allclose(layers[0].bias.grad.numpy(), SAMPLES, rtol=1e-15)


class Repeated(mg.Function):
    """f(x), which the backward pass computes again: a pass within the pass."""

    @staticmethod
    def forward(ctx, x, f):
        ctx.x, ctx.f = x.detach(), f
        return f(x)

    @staticmethod
    def backward(ctx, g):
        x = ctx.x.copy().requires_grad_()
        with mg.enable_grad():
            y = ctx.f(x)
        y.backward(g)
        return x.grad, None


@check
def passes_within_passes(folder):
    """Gradients of an inner backward pass are averaged when the outer one has ended, or it is an error."""

    class Block(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.first, self.second, self.third = (nn.Linear(4, 4) for _ in range(3))
            self.shared = shared

        def forward(self, x):
            h = Repeated.apply(self.first(x), lambda h: self.second(h).tanh())
            return self.third(self.second(h).tanh() if self.shared else h)

    x = mg.tensor(np.random.default_rng(3).standard_normal((SAMPLES, 4)))
    for shared in (False, True):
        mg.manual_seed(1)
        block = Block(shared).to("float64")
        (block(x) ** 2).mean().backward()
        expected = gradients(block)
        block.zero_grad()
        model = DataParallel(block, bucket_bytes=1)
        if shared and distributed.size() > 1:
            with raises(
                mg.GradientError, r"\[DataParallel\]", r"the gradient of second\.(weight|bias) grew after it was sent"
            ):
                (model(own(x)) ** 2).mean().backward()
        else:
            (model(own(x)) ** 2).mean().backward()
            assert distance(gradients(model), expected) < 1e-12


@check
def unused_and_frozen(folder):
    """A parameter without a gradient on all ranks has none; parameters may be frozen between steps."""
    model = parallel("mlp")
    model.module.register_module("unused", nn.Linear(2, 2))
    x = own(MODELS["mlp"][1][0])

    def forward():
        y = x
        for layer in list(model.module.children())[:-1]:
            y = layer(y)
        return y

    model.module.forward = lambda x: forward()
    F.cross_entropy(model(x), own(TARGETS)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == [
        "module.unused.weight",
        "module.unused.bias",
    ]
    model.zero_grad()
    next(model.parameters()).requires_grad_(False)
    F.cross_entropy(model(x), own(TARGETS)).backward()
    assert next(model.parameters()).grad is None
    assert same_on_all([p.grad.numpy() for p in model.parameters() if p.grad is not None])


@check
def failed_and_repeated(folder):
    """A pass that failed on all ranks leaves nothing behind, nor does a forward pass without a backward pass."""
    expected, model = build("mlp"), parallel("mlp", bucket_bytes=1 << 9)
    loss_of(expected, "mlp").backward()
    for _ in range(3):
        loss_of(model, "mlp", own)
    handle = model.module[6].weight.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loss_of(model, "mlp", own).backward()
    handle.remove()
    model.zero_grad()
    loss_of(model, "mlp", own).backward()
    assert distance(gradients(model), gradients(expected)) < 1e-12


@check
def random_numbers(folder):
    """Each rank has dropout masks of its own, and afterwards all draw the same numbers, however many they have drawn."""
    r, n = distributed.rank(), distributed.size()
    mg.manual_seed(r)
    model = DataParallel(nn.Sequential(nn.Linear(40, 40), nn.Dropout(0.5)))
    masks = []
    for _ in range(2):
        state = mg.random.get_state()
        y = model(mg.ones((5 if r else 3, 40)))
        if n > 1:
            assert mg.random.get_state() != state
            masks += list(distributed.all_gather((y[:3] != 0).astype("float32").reshape(-1)).numpy())
    assert all(0.3 < (a != b).mean() < 0.7 for k, a in enumerate(masks) for b in masks[:k])
    assert n == 1 or same_on_all([mg.random.uniform(shape=9).numpy()])


@check
def fifty_steps(folder):
    """A run with Adam stays the same on all ranks to the last bit, and close to that of one process."""
    whole, model = build("mlp"), parallel("mlp", bucket_bytes=1 << 9)
    rng = np.random.default_rng(2)
    samples = data.ArrayDataset(mg.tensor(rng.standard_normal((46, 6))), mg.tensor(rng.integers(0, 3, 46)))
    loaders = [
        data.DataLoader(samples, 16, shuffle=True, seed=4, shard=shard)
        for shard in (None, (distributed.rank(), distributed.size()))
    ]
    optimizers = [optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (whole, model)]
    steps = 0
    while steps < 50:
        for batches in zip(*loaders, strict=True):
            for m, optimizer, (x, y) in zip((whole, model), optimizers, batches, strict=True):
                optimizer.zero_grad()
                F.cross_entropy(m(x), y).backward()
                optimizer.step()
            steps += 1
    weights = [p.numpy() for p in model.module.state_dict().values()]
    assert same_on_all(weights)
    assert distance(weights, [p.numpy() for p in whole.state_dict().values()]) < 1e-9
    if distributed.rank() == 0:
        (folder / "steps").write_text(digest(weights))


# ── checkpoints ───────────────────────────────────────────────────────────────────────────────────


def train(path, epochs, write=True):
    """Train from the checkpoint, if there is one, and note each rank's samples; save after every step."""
    rng = np.random.default_rng(3)
    x, y = mg.tensor(rng.standard_normal((22, 6))), mg.tensor(rng.integers(0, 3, 22))
    samples = data.ArrayDataset(x, y, mg.arange(22))
    mg.manual_seed(7)
    net = nn.convert_sync_batchnorm(mlp(nn.BatchNorm1d)).to("float64")
    model = DataParallel(nn.Sequential(net, nn.Dropout(0.2)))
    optimizer = optim.Adam(model.parameters(), 0.01)
    shard = distributed.rank(), distributed.size()
    loader = data.DataLoader(samples, 8, shuffle=True, seed=1, shard=shard)
    parts = {"model": model, "optimizer": optimizer, "loader": loader}
    if path.exists():
        mg.load_checkpoint(path, **parts)
    seen = []
    while loader.epoch < epochs:
        for inputs, targets, numbers in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            seen.append(numbers.tolist())
            if write:
                mg.save_checkpoint(path, **parts)
            if len(seen) == 4 and write:
                return seen, model
    return seen, model


@check
def save(folder):
    """Stop in the middle of the second epoch. Rank 0 alone writes."""
    if distributed.size() > 1 and distributed.rank() > 0:
        (folder / "run").mkdir(exist_ok=True)
    distributed.barrier()
    path = folder / "saved.safetensors"
    if distributed.rank() > 0:
        mg.save_checkpoint(folder / "by another rank", epoch=1)
        assert not (folder / "by another rank").exists()
    seen, _ = train(path, 5)
    distributed.barrier()
    assert len(seen) == 4
    assert path.exists()


@check
def resume(folder):
    """Go on from the checkpoint, on as many ranks or on others: the same samples in every batch."""
    path = folder / "saved.safetensors"
    seen, model = train(path, 3, write=False)
    n = distributed.size()
    counts = distributed.all_gather(mg.tensor([[len(numbers) for numbers in seen]]))
    width = int(counts.max())
    padded = [numbers + [-1] * (width - len(numbers)) for numbers in seen]
    every = distributed.all_gather(mg.tensor(padded)).numpy()
    batches = [sorted(int(k) for k in every[:, step].ravel() if k >= 0) for step in range(len(seen))]
    weights = [p.numpy() for p in model.state_dict().values()]
    assert same_on_all(weights)
    if distributed.rank() == 0:
        (folder / f"resumed {n}").write_text(repr((batches, digest(weights))))
        np.savez(folder / f"weights {n}.npz", *weights)


@check
def uninterrupted(folder):
    _, model = train(folder / "none", 3, write=False)
    if distributed.rank() == 0:
        weights = [p.numpy() for p in model.state_dict().values()]
        (folder / "uninterrupted").write_text(digest(weights))


# ── bad input: an error on every rank, and the run goes on ────────────────────────────────────────


@check
def refused_calls(folder):
    r, n = distributed.rank(), distributed.size()
    who = rf"rank {r} of {n}: "
    with raises(RuntimeError, r"^\[init\] ", who, "expected one call, got a second"):
        distributed.init()
    with raises(ValueError, rf"^\[all_reduce_\] {who}expected the same call on all ranks, got\n  ranks? 0(, 2)?(, 3)?: "
                r"all_reduce_ sum of float32 \(2,\) on cpu\n  rank 1: all_reduce_ sum of float32 \(3,\)"):  # fmt: skip
        distributed.all_reduce_(mg.ones(3 if r == 1 else 2))
    with raises(ValueError, r"float32 \(2,\)(.|\n)*rank 1: .* float64 \(2,\)"):
        distributed.all_gather(mg.ones(2, dtype="float64" if r == 1 else "float32"))
    with raises(ValueError, r"all_reduce_ sum(.|\n)*rank 1: all_reduce_ max"):
        distributed.all_reduce_(mg.ones(2), "max" if r == 1 else "sum")
    with raises(ValueError, r"all_reduce sum(.|\n)*rank 1: barrier"):
        distributed.barrier() if r == 1 else distributed.all_reduce(mg.ones(2))
    with raises(ValueError, r"broadcast_ from rank 0 .*(.|\n)*rank 1: broadcast_ from rank 1"):
        distributed.broadcast_(mg.ones(2), 1 if r == 1 else 0)
    # what is wrong on one rank alone is an error on all
    message = r"rank 1 of \d: expected a contiguous tensor, got strides \(4, 8\) for shape \(2, 2\)"
    with raises(ValueError, message):
        distributed.all_reduce_(mg.ones((2, 2)).T if r == 1 else mg.ones((2, 2)))
    with raises(TypeError if r == 1 else ValueError, r"rank 1 of \d: expected a tensor, got "):
        distributed.all_reduce_([1.0] if r == 1 else mg.ones(2))
    with raises(TypeError, who, "expected numbers for 'sum', got bool"):
        distributed.all_reduce_(mg.ones(2, dtype="bool"))
    with raises(TypeError, who, "expected floats for 'mean', got int64"):
        distributed.all_reduce_(mg.ones(2, dtype="int64"), "mean")
    with raises(ValueError, who, "expected op 'sum', 'mean', 'max', 'min', got 'prod'"):
        distributed.all_reduce_(mg.ones(2), "prod")
    with raises(ValueError, who, "expected op 'sum', 'mean', got 'max'"):
        distributed.all_reduce(mg.ones(2), "max")
    with raises(ValueError, who, rf"expected a root from 0 to {n - 1}, got {n}"):
        distributed.broadcast_(mg.ones(2), n)
    with raises(ValueError, who, rf"expected one part for each of {n} ranks along axis 0, got shape \(7,\)"):
        distributed.reduce_scatter(mg.ones(7))
    with raises(mg.GradientError, who, "a tensor that requires grad cannot be written in place"):
        distributed.all_reduce_(mg.ones(2, requires_grad=True))
    assert distributed.all_reduce_(mg.ones(2)).tolist() == [n, n]


class Branches(nn.Module):
    """A model of two layers, of which a rank may leave out one."""

    def __init__(self, names=("near", "far")):
        super().__init__()
        for name in names:
            setattr(self, name, nn.Linear(3, 3))
        self.leave_out = False

    def forward(self, x):
        return self.near(x) if self.leave_out else self.near(x) + self.far(x)


@check
def refused_models(folder):
    r, n = distributed.rank(), distributed.size()
    who = rf"^\[DataParallel\] rank {r} of {n}: "
    with raises(ValueError, who, r"expected the same parameters and buffers in the same order on all ranks, got, as "
                r"number 0, ranks? 0(, 2)?(, 3)?: near.weight \(3, 3\) float32 on cpu requires_grad=True; "
                r"rank 1: far.weight \(3, 3\)"):  # fmt: skip
        DataParallel(Branches(("far", "near") if r == 1 else ("near", "far")))
    with raises(ValueError, who, r"near.weight \(3, 3\) float32 .* rank 1: near.weight \(3, 3\) float64"):
        DataParallel(Branches().to("float64" if r == 1 else "float32"))
    with raises(ValueError, who, "as number 4, ", "nothing; rank 1: more.weight"):
        DataParallel(Branches(("near", "far", "more") if r == 1 else ("near", "far")))
    with raises(TypeError if r == 1 else ValueError, r"rank 1 of \d: expected a module, got "):
        DataParallel(3 if r == 1 else Branches())
    # a gradient that one rank lacks
    for limit in (1, 1 << 20):
        model = DataParallel(Branches(), bucket_bytes=limit)
        model.module.leave_out = r == 1
        with raises(mg.GradientError, who, "expected a gradient of each parameter on all ranks or on none, got none of "
                    "far.weight on rank 1; of far.bias on rank 1$"):  # fmt: skip
            model(mg.ones((2, 3))).sum().backward()
        model.module.leave_out = False
        model.zero_grad()
        model(mg.ones((2, 3))).sum().backward()  # the ranks still agree
        assert same_on_all(gradients(model))
    # parameters that are no longer the same
    if r == 1:
        model.module.far.weight.requires_grad_(False)
    with raises(ValueError, who, r"expected the same parameters in the same order on all ranks, got, as number 2, ",
                r"far.weight \(3, 3\) float32 on cpu; rank 1: far.bias"):  # fmt: skip
        model(mg.ones((2, 3))).sum().backward()
    with raises(ValueError, who, r"the same call on all ranks, got\n", r"bucket_bytes=1\n  rank 1: ", "bucket_bytes=2"):
        DataParallel(Branches(), bucket_bytes=1 << (r == 1))
    # arguments and outputs
    for error, says, options in (
        (TypeError, "expected a function or None as count, got int", {"count": 3}),
        (ValueError, "expected bucket_bytes >= 1, got 0", {"bucket_bytes": 0}),
    ):
        with raises(error if r == 1 else ValueError, rf"\[DataParallel\] .*{says}"):
            DataParallel(Branches(), **(options if r == 1 else {}))
    with raises(TypeError, who, "expected a model without a DataParallel in it"):
        DataParallel(DataParallel(Branches()))
    with raises(ValueError, who, "expected parameters that no other DataParallel has, got near.weight of one that"):
        DataParallel(model.module)
    with raises(ValueError, who, r"expected samples along axis 7, got an argument of shape \(2, 3\)"):
        DataParallel(Branches(), batch_axis=7)(mg.ones((2, 3)))
    hidden = DataParallel(Branches())
    hidden.module.forward = lambda x: {x}
    with raises(TypeError, who, "expected tensors in tuples, lists or dicts as the outputs of the model, got set"):
        hidden(mg.ones((2, 3)))
    # another forward pass than on the other ranks
    model = DataParallel(Branches())
    if r == 1:
        model(mg.ones((2, 3)))
    y = model(mg.ones((2, 3)))
    if r != 1:
        model(mg.ones((2, 3)))
    with raises(mg.GradientError, who, "expected a backward pass through the same calls of the model on all ranks"):
        y.sum().backward()
    # batches
    model = DataParallel(Branches())
    counts = ", ".join("0" if k == 1 else "2" for k in range(n))
    with raises(ValueError, who, rf"expected samples on every rank, got {counts}: use larger batches"):
        model(mg.ones((0 if r == 1 else 2, 3))).sum().backward()
    with raises(TypeError, who, "expected a tensor with samples among the arguments, got none"):
        model(3)
    with raises(mg.GradientError, who, "cannot be differentiated: expected create_graph=False"):
        DataParallel(Branches())(mg.ones((2, 3))).sum().backward(create_graph=True)
    with raises(ValueError, r"^\[DataLoader\] expected a sample of each batch for each of", "got the last batch of 1"):
        data.DataLoader(data.ArrayDataset(mg.arange(5)), 4, shard=(r, n))


# ── GPUs, emulated ────────────────────────────────────────────────────────────────────────────────


@check
def gpus(folder):
    """Operations and training on GPUs, by the calls of NCCL, equal those on the CPU."""
    r, n = distributed.rank(), distributed.size()
    device = f"cuda:{distributed.local_rank()}"
    x = mg.tensor([1.0, r], device=device)
    for op, expected in {
        "sum": [n, n * (n - 1) / 2],
        "mean": [1, (n - 1) / 2],
        "max": [1, n - 1],
        "min": [1, 0],
    }.items():
        y = distributed.all_reduce_(x.copy(), op)
        assert y.device == device
        assert y.tolist() == expected, op
    for dtype in ("float64", "int32", "int64"):
        assert distributed.all_reduce_(mg.ones(3, dtype=dtype, device=device)).tolist() == [n] * 3
    assert distributed.broadcast_(mg.tensor([r > 0, True], device=device), 0).tolist() == [False, True]
    assert distributed.all_gather(mg.tensor([r, 5], device=device)).tolist() == [[k, 5] for k in range(n)]
    parts = mg.arange(float(n), device=device).expand_dims(1) * mg.ones(2, device=device) + r
    assert distributed.reduce_scatter(parts).tolist() == [n * r + n * (n - 1) / 2] * 2
    with raises(ValueError, "on cpu(.|\n)*on cuda"):
        distributed.all_reduce_(mg.ones(2, device="cpu" if r == 0 else device))
    X, expected = MODELS["mlp"][1][0], build("mlp")
    loss_of(expected, "mlp").backward()
    model = DataParallel(build("mlp", r).to(device), bucket_bytes=1 << 9)
    outputs = model(own(X).to(device))
    (F.cross_entropy(outputs, own(TARGETS).to(device)) + penalty(model)).backward()
    found = [p.grad.to("cpu").numpy() for p in model.parameters()]
    assert distance(found, gradients(expected)) < 1e-12
    assert same_on_all(found)


@check
def without_nccl(folder):
    """The error is the same on every rank, whether a rank has a GPU's tensor or not."""
    r, n = distributed.rank(), distributed.size()
    sys.modules["cupy.cuda.nccl"] = sys.modules["cupy.cuda"].nccl = None
    with raises(RuntimeError, rf"^\[all_reduce_\] rank {r} of {n}: tensors on cuda:0 are exchanged by NCCL, but "):
        distributed.all_reduce_(mg.ones(2, device="cuda"))
    with raises(RuntimeError, rf"^\[DataParallel\] rank {r} of {n}: tensors on cuda:0 are exchanged by NCCL"):
        DataParallel(Branches().to("cuda"))
    assert distributed.all_reduce_(mg.ones(2)).tolist() == [n, n]


# ── the ends of a run ─────────────────────────────────────────────────────────────────────────────


@check
def uncaught(folder):
    if distributed.rank() == 1:
        raise ArithmeticError("of one rank")
    distributed.all_reduce_(mg.ones(2))


@check
def killed(folder):
    if distributed.rank() == 1:
        os.kill(os.getpid(), 9)
    distributed.all_reduce_(mg.ones(2))


@check
def no_backward(folder):
    """One rank goes on without its backward pass."""
    loss = loss_of(parallel("mlp"), "mlp", own)
    if distributed.rank() == 0:
        loss.backward()
    else:
        distributed.all_reduce_(mg.ones(2))


def main():
    folder, *names = sys.argv[1:]
    mg.set_num_threads(1)
    distributed.init()
    for name in names:
        CHECKS[name](Path(folder))
    sys.stdout.write(f"rank {distributed.rank()} of {distributed.size()} passed {' '.join(names)}\n")


if __name__ == "__main__":
    main()
