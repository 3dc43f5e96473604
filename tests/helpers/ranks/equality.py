"""Checks that several ranks compute what one process does."""

import numpy as np
import pytest
from helpers.ranks.models import (
    MODELS,
    SAMPLES,
    TARGETS,
    build,
    digest,
    distance,
    gradients,
    loss_of,
    mlp,
    own,
    parallel,
    raises,
    same_on_all,
)

import minigrad as mg
from minigrad import data, distributed, nn, optim
from minigrad.distributed import DataParallel
from minigrad.nn import functional as F

# ── the operations ────────────────────────────────────────────────────────────────────────────────


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
        # the gradient of the sum of all ranks' Σ g: g contains y, to which every rank's x contributes
        (h,) = mg.grad(g.sum(), [x])
        own = 12 * every[r] * total * weights
        others = (6 * every**2 * weights).sum(0) * 3 * every[r] ** 2 * scale
        np.testing.assert_allclose(h.numpy(), own + others, rtol=1e-12)


# ── gradients ─────────────────────────────────────────────────────────────────────────────────────


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


def one_value(folder):
    """SyncBatchNorm refuses a single value per channel of all ranks together, on every rank."""
    layer = nn.SyncBatchNorm(2)
    with raises(ValueError, r"^\[batch_norm\] expected more than one value per channel"):
        layer(mg.ones((1 if distributed.rank() == 0 else 0, 2)))
    assert np.isfinite(layer.running_var.numpy()).all()


def sent_early(folder):
    """Gradients of the last layers are on their way before those of the first are computed."""
    model = parallel("mlp", bucket_bytes=1)
    x = own(MODELS["mlp"][1][0]).requires_grad_()
    sent = []
    x.register_hook(lambda g: sent.append(model._plan.sent if distributed.size() > 1 else 8))
    F.cross_entropy(model(x), own(TARGETS)).backward()
    assert sent[0] >= 8, sent  # ten in all; the first layer's become complete together with the gradient of x


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


def failed_and_repeated(folder):
    """A pass that failed on all ranks leaves nothing, nor does a forward pass without a backward pass."""
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


def uninterrupted(folder):
    _, model = train(folder / "none", 3, write=False)
    if distributed.rank() == 0:
        weights = [p.numpy() for p in model.state_dict().values()]
        (folder / "uninterrupted").write_text(digest(weights))
