"""The emulation detects typical mistakes in kernels: each of these deliberate ones is found."""

import os
import subprocess
import sys

import cupy
import numpy as np
import pytest
from checks import raises
from sequences import use_block_group

import minigrad as mg
from minigrad import nn
from minigrad.cuda import launch, modules, recurrent
from minigrad.engine.ops.batch_norm import batch_norm_train

pytestmark = pytest.mark.skipif(
    cupy.__version__ != "emulated", reason="a real GPU is tested: it does not look for mistakes"
)


@pytest.fixture
def broken(monkeypatch, forget):
    """Replace part of the text of a module, or of its beginning, for the duration of a test."""
    original = launch.source

    def breaks(file, right, wrong, count=-1):
        code, kernels = original(file)
        assert right in code
        monkeypatch.setattr(launch, "source", lambda name: (code.replace(right, wrong, count), kernels)
                            if name == file else original(name))  # fmt: skip
        forget()

    return breaks


def run(body, x, blocks, **launch_options):
    """Run a kernel of blocks of 64 threads on an array of float32, and return what it holds then."""
    code = f'extern "C" __global__ void k(float* x) {{ const int t = threadIdx.x, b = blockIdx.x; {body} }}'
    kernel = modules.load(code, launch.options("float32"), 0).get_function("k")
    there = mg.tensor(np.asarray(x, "float32"), device="cuda")
    kernel((blocks,), (64,), (there.data_ptr(),), **launch_options)
    return there.to("cpu").numpy()


def ours(shape, rng):
    values = rng.standard_normal(shape).astype("float32")
    return mg.tensor(values, device="cuda"), values


def wrong_sums(rng, rounds=20):
    """Count how many of some sums over 1000 numbers are wrong."""
    wrong = 0
    for _ in range(rounds):
        x, values = ours((4, 1000), rng)
        got = mg.sum(x, axis=1).to("cpu").numpy()
        wrong += not np.allclose(got, values.sum(1, dtype="float64"), rtol=1e-4, atol=1e-4)
    return wrong


def test_the_kernels_are_right(rng):
    assert wrong_sums(rng) == 0


def test_threads_take_turns():
    """Runs in a separate process, which two threads with one set of fibers would crash."""
    script = """
import threading, numpy as np, minigrad as mg
x = mg.tensor(np.arange(40000, dtype="float32"), device="cuda")
wrong = []
def work():
    for _ in range(60):
        if not np.array_equal((x + x).to("cpu").numpy(), np.arange(0, 80000, 2)):
            wrong.append(1)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_missing_barrier_shows(broken, rng):
    broken("reduce.cu", "        for (int distance = deep / 2; distance > 0; distance /= 2) {\n            __syncthreads();",
           "        for (int distance = deep / 2; distance > 0; distance /= 2) {")  # fmt: skip
    assert wrong_sums(rng) > 0


@pytest.mark.parametrize("before, error", [
    ("states[threadIdx.x] = mine;", "threads of a block wait at different barriers"),  # they wait at the next one
    ("return states", "threads wait at a barrier or a shuffle that the others never reach"),
])  # fmt: skip
def test_a_barrier_that_some_threads_skip_is_an_error(broken, rng, before, error):
    barrier = f"__syncthreads();\n        {before}"
    broken("reduce.cu", barrier, f"if (threadIdx.x > 3) {barrier}")
    raises(RuntimeError, f"reduce_tiles: {error}", wrong_sums, rng, 1)


@pytest.mark.parametrize("body", [
    "if (t < 32) { __syncthreads(); } else { __syncthreads(); }",
    # once in a function that is called twice
    "auto wait = [](float* y) __attribute__((noinline)) { y[1] = 0; __syncthreads(); y[2] = 0; };"
    "if (t < 32) { wait(x); } else { wait(x + 3); }",
])  # fmt: skip
def test_threads_that_wait_at_different_barriers_are_an_error(body):
    raises(RuntimeError, "k: threads of a block wait at different barriers", run, body, np.zeros(9), 1)


@pytest.mark.parametrize("body", [
    "if (t % 2) { x[t] = __shfl_xor_sync(~0u, x[t], 2); } else { x[t] = __shfl_xor_sync(~0u, x[t], 2); }",
    "x[t] = __shfl_sync(t % 2 ? ~0u : 0xfffffffdu, x[t], 0);",
])  # fmt: skip
def test_lanes_that_wait_at_different_shuffles_are_an_error(body):
    with pytest.raises(RuntimeError, match="k: lanes of a warp wait at different shuffles, or with different masks"):
        run(body, np.zeros(64), 1)


def test_lanes_may_exchange_in_groups():
    got = run("if (t & 8) { x[t] = __shfl_xor_sync(0xff00ff00u, x[t], 1); } else { x[t] += 100; }", np.arange(64), 1)
    t = np.arange(64)
    np.testing.assert_array_equal(got, np.where(t & 8, t ^ 1, t + 100))


# ── blocks ──


def test_blocks_have_their_own_shared_memory():
    body = """
        __shared__ float s[64];
        for (int k = 0; k < 9; k++) {
            __syncthreads();
            s[t] = k > 0 ? s[t] + b : b;
            __syncthreads();
        }
        x[b * 64 + t] = s[63 - t];
    """
    np.testing.assert_array_equal(run(body, np.zeros(64 * 100), 100), np.repeat(9 * np.arange(100), 64))


def test_a_block_that_reads_what_another_writes_shows():
    """One after the other, in order, all blocks would find what the first one wrote."""
    got = run("if (b == 0) x[100] = 1; x[b] = x[100];", np.zeros(101), 100)
    assert 0 < got[:100].sum() < 100


def test_blocks_run_at_the_same_time():
    """A block whose threads have to wait finds that others have gone on."""
    body = "const float before = x[200]; __syncthreads(); if (t == 0) { x[b] = x[200] - before; x[200] = b + 1; }"
    assert np.count_nonzero(run(body, np.zeros(201), 200)[:200]) > 10


def test_sums_without_atomic_operations_show(broken, preempted, rng):
    """Blocks that add to the same elements lose sums."""
    index = mg.tensor(rng.integers(0, 3, 4000), device="cuda")
    x = mg.zeros((3, 1), device="cuda", requires_grad=True)

    def wrong():
        (g,) = mg.grad(mg.take(x, index, axis=0).sum(), [x])
        return g.to("cpu").numpy().ravel().tolist() != np.bincount(index.to("cpu").numpy()).tolist()

    assert not wrong()
    broken("index.cu", "if (k > 0 && at.at(o, sorted[k - 1], i) == place) continue;",
           "x[(o * n + place) * inner + i] += v[(o * m + sorted[k]) * inner + i]; continue;")  # fmt: skip
    assert any(wrong() for _ in range(10))


# ── clusters and grids ──

IN_PAIRS = """
    float& mine = *(float*)dynamic_shared();
    if (t == 0) mine = b;
    wait_for_cluster();
    if (t < 2) x[2 * b + t] = in_block(mine, t);
    wait_for_cluster();
"""
PAIRS = {"shared_mem": 16, "cluster": 2}
ON_GRID = """
    if (t == 0) x[b] = b;
    wait_for_grid((int*)x + 16, 1);
    if (t == 0) x[8 + b] = x[(b + 3) % 8];
"""
NEIGHBORS = [*range(8), *((b + 3) % 8 for b in range(8))]
NEVER_REACHED = "k: threads wait at a barrier of a cluster or a grid that others never reach"


def test_blocks_of_a_cluster_use_the_memory_of_each_other():
    for _ in range(10):
        got = run(IN_PAIRS, np.zeros(80), 40, **PAIRS)
        np.testing.assert_array_equal(got, np.repeat(np.arange(40).reshape(20, 2), 2, axis=0).ravel())


def test_blocks_of_a_cooperative_grid_wait_for_each_other():
    for _ in range(10):
        np.testing.assert_array_equal(run(ON_GRID, np.zeros(17), 8, cooperative=True)[:16], NEIGHBORS)


def first_error(body, *arguments, **options):
    """Return the error of a kernel that is not right in every order of threads, or what it computes."""
    for _ in range(50):
        try:
            got = run(body, *arguments, **options)
        except RuntimeError as error:
            return str(error)
    return got


@pytest.mark.parametrize(
    "missing, error", [(0, "of a cluster, which may not have begun"), (1, "of a cluster, which has ended")]
)
def test_a_missing_barrier_of_a_cluster_is_an_error(missing, error):
    parts = IN_PAIRS.split("wait_for_cluster();")
    parts[missing : missing + 2] = [parts[missing] + parts[missing + 1]]
    assert error in first_error("wait_for_cluster();".join(parts), np.zeros(80), 40, **PAIRS)


def test_a_missing_barrier_between_writing_and_reading_shows():
    """All blocks have begun, and end together."""
    body = "wait_for_cluster();" + IN_PAIRS.replace("wait_for_cluster();", "", 1)
    assert any(np.isnan(run(body, np.zeros(80), 40, **PAIRS)).any() for _ in range(20))


def test_a_missing_barrier_of_a_grid_shows():
    body = ON_GRID.replace("wait_for_grid((int*)x + 16, 1);", "")
    assert any(run(body, np.zeros(17), 8, cooperative=True)[:16].tolist() != NEIGHBORS for _ in range(20))


@pytest.mark.parametrize("body, options", [(IN_PAIRS, PAIRS), (ON_GRID, {"cooperative": True})])
def test_a_barrier_that_some_blocks_skip_is_an_error(body, options):
    for skips in (f"if (b == 3) return; {body}", f"{body} if (b != 3) {{ {body} }}"):
        raises(RuntimeError, NEVER_REACHED, run, skips, np.zeros(80), 8, **options)
    with pytest.raises(RuntimeError, match=f"{NEVER_REACHED}|threads of a block wait at different barriers"):
        run(f"if (t < 40) {{ {body} }} else {{ __syncthreads(); }}", np.zeros(80), 8, **options)


@pytest.mark.parametrize("wait, options", [
    ("wait_for_cluster()", PAIRS), ("wait_for_grid((int*)x, 1)", {"cooperative": True}),
])  # fmt: skip
def test_blocks_that_wait_at_different_barriers_are_an_error(wait, options):
    with pytest.raises(RuntimeError, match="k: threads of a cluster or a grid wait at different barriers"):
        run(f"if (b == 3) {{ {wait}; }} else {{ {wait}; }}", np.zeros(9), 8, **options)


def test_a_barrier_without_its_launch_attribute_is_an_error():
    with pytest.raises(RuntimeError, match="k: a barrier for a cluster in a launch without clusters"):
        run(IN_PAIRS, np.zeros(80), 40, shared_mem=16)
    raises(RuntimeError, "k: a barrier for the grid in a launch that is not cooperative", run, ON_GRID, np.zeros(17), 8)


def test_a_counter_of_a_grid_that_does_not_begin_with_zero_is_an_error():
    with pytest.raises(RuntimeError, match="k: a barrier for the grid whose counter did not begin with 0"):
        run(ON_GRID, np.ones(17), 8, cooperative=True)


@pytest.mark.parametrize("options, error", [
    ({"cooperative": True}, "a cooperative grid of 40 blocks, which cannot run at the same time"),
    ({"cluster": 16}, "40 blocks in clusters of 16"), ({"cluster": 3}, "40 blocks in clusters of 3"),
    ({"shared_mem": 50_000}, "50000 bytes of dynamic shared memory, more than the 49152 allowed"),
])  # fmt: skip
def test_launches_that_a_gpu_refuses(options, error):
    raises(RuntimeError, f"k: {error}", run, "x[t] = 0;", np.zeros(64), 40, **options)


@pytest.mark.parametrize("of, error", [
    ("in_block(mine, 2)", "shared memory of block 2 of a cluster, which has fewer"),
    ("in_block((&mine)[4], t)", "an address outside the dynamic shared memory of a block of the cluster"),
    ("in_block((&mine)[-1], t)", "an address outside the dynamic shared memory of a block of the cluster"),
    ("in_block(x[0], t)", "an address outside the dynamic shared memory of a block of the cluster"),
])  # fmt: skip
def test_addresses_outside_the_memory_of_another_block_are_errors(of, error):
    raises(RuntimeError, f"k: {error}", run, IN_PAIRS.replace("in_block(mine, t)", of), np.zeros(80), 40, **PAIRS)


def test_a_write_outside_dynamic_shared_memory_is_an_error():
    for place in (-1, 4):
        with pytest.raises(RuntimeError, match="k: wrote outside the dynamic shared memory"):
            run(f"((float*)dynamic_shared())[{place}] = 0;", np.zeros(1), 3, shared_mem=16)


# ── addresses ──


def test_addresses_that_are_not_aligned_are_errors(broken, rng):
    x, _ = ours(1025, rng)
    aligned, shifted = x[:1024].reshape(4, 256), x[1:].reshape(4, 256)
    np.testing.assert_allclose(mg.layer_norm(shifted, 256).sum().item(), 0, atol=1e-3)
    broken("norm.cu", "return (uint64)p % 16 == 0;", "return true;")
    mg.layer_norm(aligned, 256)
    raises(RuntimeError, "norm_held: an address that is not a multiple of 16 bytes", mg.layer_norm, shifted, 256)


@pytest.mark.parametrize("kind, size", [("float2", 8), ("float4", 16), ("double2", 16), ("double", 8)])
def test_vectors_are_aligned(kind, size):
    body = f"if (t == 0) *({kind}*)x = *({kind}*)(x + b * {size // 8});"
    run(body, np.zeros(16), 1)
    raises(RuntimeError, f"k: an address that is not a multiple of {size} bytes", run, body, np.zeros(16), 2)


# ── other mistakes ──


@pytest.mark.parametrize("size", [64, 1000])
def test_an_index_that_is_off_by_one_is_an_error(broken, rng, size):
    broken("elementwise.cu", "count * threads < left", "count * threads <= left")
    x, _ = ours(size, rng)
    raises(RuntimeError, r"unary: wrote outside an array of \d+ bytes", mg.exp, x)


def test_an_element_that_is_left_out_shows(broken, rng):
    broken("elementwise.cu", "count * threads < left", "count * threads + !packed < left")
    x, values = ours(101, rng)
    got = mg.exp(x).to("cpu").numpy()
    assert np.isnan(got[-1])
    np.testing.assert_allclose(got[:-1], np.exp(values[:-1]), rtol=1e-6)


@pytest.mark.parametrize("mask", ["0xffffu", "1u << threadIdx.x % 32"])
def test_a_wrong_mask_of_a_shuffle_is_an_error(broken, rng, mask):
    broken("norm.cu", "__shfl_xor_sync(~0u", f"__shfl_xor_sync({mask}")
    x, _ = ours((4, 256), rng)
    raises(RuntimeError, r"norm_held: a lane .* shuffle", mg.layer_norm, x, 256)


def test_a_wrong_lane_shows(broken, rng):
    broken("norm.cu", "sum[k], distance)", "sum[k], 1)")
    x, values = ours((4, 256), rng)
    d = values - values.mean(1, keepdims=True)
    expected = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5)
    assert np.abs(mg.layer_norm(x, 256).to("cpu").numpy() - expected).max() > 0.1


def variances(rng, rounds=20):
    """Compute the variances of 40 columns several times; one starts far from its mean and needs a second pass."""
    x = rng.standard_normal((1600, 40)).astype("float32")
    x[:4, 7] += 3e4
    return [batch_norm_train(mg.tensor(x, device="cuda"))[2].to("cpu").numpy() for _ in range(rounds)], x


def test_a_missing_barrier_of_a_vote_shows(broken, rng):
    right, x = variances(rng)
    np.testing.assert_allclose(right[0], x.astype("float64").var(0), rtol=1e-6)
    assert all(np.array_equal(one, right[0]) for one in right)
    broken("batch_norm.cu", "found = 0;\n    __syncthreads();", "found = 0;")
    wrong, _ = variances(np.random.default_rng(0), 200)  # about one in ten thread orders shows it
    assert not all(np.array_equal(one, wrong[0]) for one in wrong)


def test_a_vote_that_is_read_too_early_is_an_error(broken, rng):
    broken("batch_norm.cu", "found = 1;\n    __syncthreads();", "found = 1;")
    raises(RuntimeError, "batch_norm: threads wait at a barrier or a shuffle that the others never", variances, rng)


def test_shared_memory_that_nobody_wrote_shows(broken, rng):
    broken(
        "reduce.cu", "        states[threadIdx.x] = mine;", "        if (threadIdx.x % 2) states[threadIdx.x] = mine;"
    )
    assert wrong_sums(rng, 1) == 1


def test_shared_memory_of_templates_is_nan():
    body = "auto f = [](auto y, int t) { __shared__ float s[64]; s[t] += y; return s[63 - t]; }; x[t] = f(1.0f, t);"
    assert np.isnan(run(body, np.zeros(64), 3)).all()


@pytest.mark.parametrize("wrong", ["", "__launch_bounds__(256) "])
def test_a_block_without_registers_for_it_is_an_error(broken, rng, wrong):
    broken("softmax.cu", "__launch_bounds__(512, 1) ", wrong)
    x, _ = ours((2, 9000), rng)
    match = r"softmax_long: a block of \(512, 1, 1\) threads, more than the launch bounds of 256"
    raises(RuntimeError, match, mg.softmax, x)


def test_memory_that_nobody_wrote_is_nan():
    assert np.isnan(mg.empty((3, 5), device="cuda").to("cpu").numpy()).all()


def test_memory_outlives_an_interrupted_release():
    """Otherwise the table of allocations would have the next kernel check, and write, memory that others use."""
    freed = cupy.cuda.Memory(16, 0)
    address, lost = freed.ptr, []

    def interrupt(frame, event, argument):
        if frame.f_code is cupy.cuda.Memory.__del__.__code__:
            raise KeyboardInterrupt

    hook, sys.unraisablehook = sys.unraisablehook, lambda error: lost.append(error.exc_type)
    tracing = sys.gettrace()
    sys.settrace(interrupt)
    try:
        del freed
    finally:
        sys.settrace(tracing)
        sys.unraisablehook = hook
    assert lost == [KeyboardInterrupt]
    _, block = cupy.cuda.owners[address]
    assert cupy.cuda.FENCE in block
    mg.zeros(3, device="cuda:0").exp()


# ── block groups in a real kernel ──


def layers_are_wrong(rounds=12):
    """Whether one of some recurrent layers raises or differs from those of the CPU."""
    found = {}
    for device in ("cpu", "cuda:0"):
        mg.manual_seed(0)
        layer = nn.LSTM(3, 12, norm="layer", dtype="float64").to(device)
        x = mg.tensor(np.random.default_rng(0).standard_normal((5, 4, 3)), device=device)
        for _ in range(1 if device == "cpu" else rounds):
            try:
                y = layer(x)[0]
                results = y, *mg.grad((y * y).sum(), list(layer.parameters()))
            except RuntimeError:
                return True
            results = [one.detach().to("cpu").numpy() for one in results]
            expected = found.setdefault("cpu", results)
            if not all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in zip(results, expected, strict=True)):
                return True
    return False


BARRIERS = {
    # The first two: the blocks of a cluster must not use each other's memory before them.
    "of the beginning": "        group.wait();\n        for (int64 t = begin",
    "of the beginning, backward": "        group.wait();\n        for (int64 t = end",
    "of a norm": "                group.wait();\n            }\n            SAMPLES(s, count, group) {\n                if (!r.alive",
    "of c": "            if (r.norm_cell) {\n                group.wait();",
    "of h": "            group.wait();\n            SAMPLES(s, count, group) keep_rows",
    "of c, backward": "            if (r.norm_cell) group.wait();",
    "of a norm, backward": "                }\n                group.wait();\n                SAMPLES",
    "of dz": "            group.wait();\n            SAMPLES(s, count, group) keep_gradients",
}
CASES = [(group, barrier) for group in ("cluster", "grid") for barrier in BARRIERS
         if group == "cluster" or "beginning" not in barrier]  # fmt: skip


@pytest.mark.parametrize("group, barrier", CASES)
def test_a_missing_barrier_of_a_block_group_shows(group, barrier, broken, monkeypatch):
    use_block_group(monkeypatch, f"cuda:0 {group}")
    assert not layers_are_wrong()
    right = BARRIERS[barrier]
    broken("recurrent.cu", right, right.replace("group.wait();", "__syncthreads();"))
    assert layers_are_wrong()


@pytest.mark.parametrize("group, attribute", [("cluster", "cluster"), ("grid", "cooperative")])
def test_a_block_group_without_its_launch_attribute_is_an_error(group, attribute, monkeypatch):
    use_block_group(monkeypatch, f"cuda:0 {group}")
    start = recurrent.launch
    monkeypatch.setattr(recurrent, "launch", lambda *args, **options: start(*args, **{**options, attribute: 0}))
    with pytest.raises(RuntimeError, match=r"recurrent: a barrier for .* in a launch"):
        nn.LSTM(3, 12, device="cuda:0")(mg.zeros((2, 1, 3), device="cuda:0"))
