"""Recurrent layers by a block, a cluster and a grid; the block group that a GPU uses, and its memory."""

import itertools
from types import SimpleNamespace

import cupy
import numpy as np
import pytest
from sequences import BLOCK_GROUPS, use_block_group

import minigrad as mg
from minigrad import nn
from minigrad.cuda import recurrent as module
from minigrad.cuda.recurrent import ALONE, CLUSTER, GRID, BlockGroup, Plan
from minigrad.engine.ops.recurrent import GATES, Cell, composition, recurrent

DEVICE = "cuda:0"
EMULATED = cupy.__version__ == "emulated"
VARIANTS = [(kind, norm) for kind in ("rnn_tanh", "rnn_relu", "lstm") for norm in (None, "state", "sum")]
VARIANTS += [("gru", None), ("gru", "state")]


@pytest.fixture(params=BLOCK_GROUPS)
def group(request, monkeypatch):
    use_block_group(monkeypatch, request.param)


def random_cell(rng, hidden):
    """Return a cell of any kind and variant, with segments that may begin and end within a gate."""
    kind, norm = VARIANTS[rng.integers(len(VARIANTS))]
    columns, cuts = GATES[kind.partition("_")[0]] * hidden, []
    if kind == "gru":
        columns -= hidden
    if columns > 3:
        cuts = sorted(rng.choice(np.arange(1, columns), rng.integers(3), replace=False).tolist())
    sizes = [b - a for a, b in itertools.pairwise([0, *cuts, columns])] + [hidden] * (kind == "gru")
    norm_cell = kind == "lstm" and bool(rng.integers(2))
    return Cell(
        kind, norm, tuple(sizes) if norm else (), norm_cell=norm_cell, carry_norm=norm_cell and bool(rng.integers(2)),
        swap=kind == "gru" and bool(rng.integers(2)), slope=0.2 * rng.integers(2), centered=bool(rng.integers(2)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_any_layer_is_its_composition(seed, group):
    """Outputs and all gradients in float64; sizes that neither blocks nor packs divide, one step and one sample."""
    compare(seed)


@pytest.mark.skipif(not EMULATED, reason="a real GPU is tested: it has its own order")
@pytest.mark.parametrize("seed", [3, 7, 9, 14])
def test_threads_may_take_turns_between_accesses_to_memory(seed, group, preempted):
    compare(seed)


def compare(seed):
    """Compare what a GPU computes for a random layer with the composition on the CPU."""
    rng = np.random.default_rng(seed)
    hidden, batch, steps = (int(rng.choice(of)) for of in ((1, 3, 8, 21, 50, 70), (1, 2, 5, 37), (1, 4)))
    cell, yes = random_cell(rng, hidden), lambda: bool(rng.integers(4))
    columns, state = GATES[cell.op] * hidden, (batch, hidden)
    wide = (columns,)
    shapes = [(steps, batch, columns), state, state if cell.kind == "lstm" else None, (columns, hidden),
              wide if yes() else None, *[wide if cell.norm and yes() else None for _ in range(2)],
              *[(hidden,) if cell.norm_cell and yes() else None for _ in range(2)]]  # fmt: skip
    values = [None if shape is None else rng.standard_normal(shape) / (1 + (len(shape) > 1)) for shape in shapes]
    lengths = rng.integers(0, steps + 1, batch) if yes() else None
    found = []
    for device in ("cpu", DEVICE):
        leaves = [None if v is None else mg.tensor(v, requires_grad=True, device=device) for v in values]
        ends = None if lengths is None else mg.tensor(lengths, device=device)
        outs = composition(cell, ends, *leaves) if device == "cpu" else recurrent(cell, *leaves, lengths=ends)
        draw = np.random.default_rng(seed)
        cotangents = [mg.tensor(draw.standard_normal(y.shape), device=device) for y in outs]
        grads = mg.grad(list(outs), [leaf for leaf in leaves if leaf is not None], cotangents)
        with mg.no_grad():  # nothing is kept for a backward pass
            again = outs if device == "cpu" else recurrent(cell, *leaves, lengths=ends)
        found.append([one.detach().to("cpu").numpy() for one in (*outs, *grads, *again)])
    for k, (expected, got) in enumerate(zip(*found, strict=True)):
        np.testing.assert_allclose(
            got, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max(), err_msg=f"{k}: {cell}"
        )


@pytest.mark.parametrize("group", [name for name in BLOCK_GROUPS if BLOCK_GROUPS[name]], indirect=True)
def test_a_block_group_takes_its_samples_in_several_turns(group, monkeypatch):
    """As it does if the batch has more samples than the groups that may be started take at once."""
    monkeypatch.setattr(module, "MOST_BLOCKS", 8)
    monkeypatch.setattr(module, "SAMPLES", (3, 2, 5))
    monkeypatch.setattr(module, "plan_of", module.plan_of.__wrapped__)  # without its cache
    compare_lstm("float64", 9, 59, 1e-11)


@pytest.mark.parametrize("hidden", [96, 256] if EMULATED else [96, 256, 512, 1024])
def test_the_block_group_that_is_chosen(hidden):
    """Sizes that people train; nothing is set for the test."""
    capability, chosen = int(cupy.cuda.Device(0).compute_capability), module.choose_group(0, "float32", 4, hidden)
    if capability == 90:
        assert chosen.kind == (CLUSTER if hidden <= 256 else GRID)
    compare_lstm("float32", hidden, 6, 5e-5)


def test_in_float32(group):
    """A layer of some size, whose sums many threads share."""
    compare_lstm("float32", 80, 6, 2e-5)


@pytest.mark.skipif(not EMULATED, reason="a real GPU is tested: it may have other memory")
def test_a_grid_multiplies_by_some_rows_at_a_time(monkeypatch):
    use_block_group(monkeypatch, "cuda:0 grid")
    plan = module.plan_of(0, "float64", module.choose_group(), 4, 110, True, False, 9)
    assert plan.fits
    assert plan.chunk < plan.rows
    compare_lstm("float64", 110, 9, 1e-11)


def compare_lstm(dtype, hidden, batch, tolerance):
    """Compare an LSTM and its gradients with the CPU."""
    found = []
    for device, of in (("cpu", "float64"), (DEVICE, dtype)):
        mg.manual_seed(0)
        layer, rng = nn.LSTM(5, hidden, norm="layer", dtype="float64").to(of).to(device), np.random.default_rng(0)
        x, gy = (mg.tensor(rng.standard_normal((3, batch, n)).astype(of), device=device) for n in (5, hidden))
        y = layer(x)[0]
        found.append([one.detach().to("cpu").numpy() for one in (y, *mg.grad(y, list(layer.parameters()), gy))])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize("group", [name for name in BLOCK_GROUPS if BLOCK_GROUPS[name]], indirect=True)
@pytest.mark.parametrize("kind, norm, hidden", [("lstm", "state", 17), ("gru", None, 40), ("rnn_tanh", "sum", 70)])
def test_a_sample_has_the_same_bits_in_any_batch_and_number_of_steps(kind, norm, hidden, group):
    columns, steps, batch, n = GATES[kind.partition("_")[0]] * hidden, 3, 45, 31
    sizes = () if norm is None else (columns - hidden, hidden) if kind == "gru" else (columns,)
    cell = Cell(kind, norm, sizes, norm_cell=kind == "lstm")
    rng = np.random.default_rng(3)
    weight = mg.tensor(rng.standard_normal((columns, hidden)).astype("float32") / 4, device=DEVICE)
    x, gy = (rng.standard_normal((steps, batch, width)).astype("float32") for width in (columns, hidden))

    def run(samples, steps):
        share = mg.tensor(x[:steps, samples], device=DEVICE, requires_grad=True)
        first = mg.zeros((share.shape[1], hidden), device=DEVICE, requires_grad=True)
        y = recurrent(cell, share, first, first if kind == "lstm" else None, weight)[0]
        grads = mg.grad(y, [share, first], mg.tensor(gy[:steps, samples], device=DEVICE))
        return [one.detach().to("cpu").numpy() for one in (y, *grads)]

    for steps_too in (steps, 1):
        whole = run(slice(None), steps_too)
        for size in (1, 3, 12):
            part = run(slice(n, n + size), steps_too)
            for a, b in zip(whole, part, strict=True):
                np.testing.assert_array_equal(a[..., n : n + 1, :], b[..., :1, :])
    np.testing.assert_array_equal(run(slice(None), steps)[0][:1], run(slice(None), 1)[0])


def test_captured_steps_are_the_same(group):
    """A graph starts clusters and cooperative grids as the captured step did."""
    rng = np.random.default_rng(4)
    batches = [mg.tensor(rng.standard_normal((5, 9, 3)).astype("float32"), device=DEVICE) for _ in range(4)]
    found = []
    for capture in (lambda step, **_: step, mg.capture):
        mg.manual_seed(0)
        model = nn.LSTM(3, 12, norm="layer").to(DEVICE)
        optimizer = mg.optim.SGD(model.parameters(), 0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = (model(x)[0] ** 2).sum()
            loss.backward()
            optimizer.step()
            return loss

        step = capture(step, warmup=0)
        found.append([step(x).item() for x in batches])
    assert step.recordings == 1
    assert found[0] == found[1]


# ── the choice of a block group, and its plan ─────────────────────────────────────────────────────

# compute capability, multiprocessors, KiB of shared memory that a block may have
GPUS = {"H200": (90, 132, 227), "A100": (80, 108, 163), "T4": (75, 40, 64)}
SIZES = (1, 20, 32, 64, 100, 128, 200, 256, 300, 512, 700, 1024, 1500, 2048)


@pytest.fixture
def on_gpu(monkeypatch):
    """Return a function that lets `choose_group` choose for a GPU of some name, which runs all that fits its memory."""

    def be(name):
        capability, multiprocessors, shared = GPUS[name]
        attributes = {module.MULTIPROCESSORS: multiprocessors, module.MOST_SHARED: shared << 10}
        monkeypatch.setattr(cupy.cuda, "Device", lambda _: SimpleNamespace(compute_capability=str(capability)))
        monkeypatch.setattr(cupy.cuda.runtime, "deviceGetAttribute", lambda attribute, _: attributes[attribute])
        count = SimpleNamespace(
            count_resident=lambda block, shared, cluster: multiprocessors // cluster if cluster else 1
        )
        monkeypatch.setattr(module, "kernel", lambda *_: count)
        forget()
        return shared << 10

    def forget():
        for one in (module.limits, module.choose_group, module.count_groups, module.plan_of):
            one.cache_clear()

    yield be
    forget()


@pytest.mark.parametrize("name, gates, expected", [
    ("H200", 4, {32: (ALONE,), 64: (ALONE,), 100: (CLUSTER, 4), 128: (CLUSTER, 4), 256: (CLUSTER, 8), 300: (CLUSTER, 8),
                 512: (GRID, 128), 1024: (GRID, 128), 1056: (GRID, 132), 1057: None}),
    ("H200", 1, {128: (ALONE,), 256: (CLUSTER, 4), 512: (CLUSTER, 8), 2048: (GRID, 128)}),
    ("A100", 3, {64: (ALONE,), 256: (ALONE, 1, False), 512: (GRID, 103), 800: (GRID, 100), 1024: None}),
    ("T4", 4, {32: (ALONE,), 128: (ALONE, 1, False), 512: None}),
])  # fmt: skip
def test_the_choose_group_some_weights(name, gates, expected, on_gpu):
    on_gpu(name)
    for hidden, wanted in expected.items():
        assert module.choose_group(0, "float32", gates, hidden) == (wanted and BlockGroup(*wanted)), hidden


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GPUS)
def test_plans_fit_and_the_order_of_summation_does_not_depend_on_the_batch(name, dtype, on_gpu):
    shared = on_gpu(name)
    for gates, hidden, backward in itertools.product((1, 3, 4), SIZES, (False, True)):
        group = module.choose_group(0, dtype, gates, hidden)
        if group is None:
            continue
        units = -(-hidden // group.size)
        assert units * group.size >= hidden > units * (group.size - 1) or group.kind == CLUSTER
        order = set()
        for batch in (1, 3, 32, 128, 1000, 10_000):
            plan = module.plan_of(0, dtype, group, gates, hidden, backward, False, batch)
            assert plan.fits
            assert plan.bytes + module.RESERVED <= shared
            assert plan.chunk == plan.rows or plan.chunk % plan.deep == 0
            order.add((plan.block, plan.wide, plan.deep, plan.lanes, plan.units))
        assert len(order) == 1


def test_without_cooperative_launches_there_is_no_grid(on_gpu, monkeypatch):
    """Nor is there one if the driver cannot start it."""
    on_gpu("H200")
    monkeypatch.setattr(module, "kernel", lambda *_: SimpleNamespace(count_resident=lambda *_: 0))
    assert module.choose_group(0, "float32", 4, 256) == BlockGroup(ALONE, 1, False)
    assert module.choose_group(0, "float32", 4, 1024) is None


def test_a_plan_that_does_not_fit():
    plan = Plan(BlockGroup(CLUSTER, 8), 4, 400, "float32", False, False)
    plan.divide(1, 16, 227 << 10)
    assert not plan.fits
