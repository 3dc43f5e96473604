"""Tensors on a GPU: transfers in both directions, and errors."""

import subprocess
import sys

import numpy as np
import pytest
from checks import Exporter, raises, refuses

import minigrad as mg
from minigrad import nn
from minigrad.cuda import backend

ROOT = [sys.executable, "-c"]


def run(program):
    """Run a program in a separate process without CuPy, and return its output."""
    hide = "import sys; sys.modules['cupy'] = None\n"
    done = subprocess.run([*ROOT, hide + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ── without CuPy ──────────────────────────────────────────────────────────────────────────────────


def test_import_neither_imports_nor_compiles_anything():
    program = "import sys, minigrad; print([n for n in sys.modules if 'cupy' in n or n.startswith('minigrad.cuda.')])"
    done = subprocess.run([*ROOT, program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_cupy_there_is_no_gpu():
    assert run("import minigrad as mg; print(mg.cuda.is_available(), mg.cuda.device_count())") == "False 0"


@pytest.mark.parametrize("program", [
    "mg.zeros(2, device='cuda')", "mg.zeros(2).to('cuda:1')", "mg.nn.Linear(1, 1).to('cuda')", "mg.cuda.synchronize()",
    "mg.random.normal(shape=(2,), device='cuda')",
])  # fmt: skip
def test_without_cupy_the_error_says_what_to_install(program):
    message = run(f"""
import minigrad as mg
try:
    {program}
except RuntimeError as error:
    print(error)
""")
    assert "pip install 'cupy-cuda12x[ctk]' or 'cupy-cuda13x[ctk]'" in message
    assert "needs CuPy and a GPU" in message


# ── there and back ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (4, 5, 6)])
def test_values_survive(rng, dtype, shape):
    values = (rng.standard_normal(shape) * 9).astype(dtype)
    there = mg.tensor(values).to("cuda")
    assert (there.device, there.dtype, there.shape) == ("cuda:0", dtype, shape)
    np.testing.assert_array_equal(there.to("cpu").numpy(), values)
    np.testing.assert_array_equal(there.to("cuda:0").tolist(), values.tolist())


def test_a_view_survives(rng):
    values = rng.standard_normal((4, 6))
    np.testing.assert_array_equal(mg.tensor(values).T[1:4:2].to("cuda").to("cpu").numpy(), values.T[1:4:2])
    np.testing.assert_array_equal(mg.tensor(values).to("cuda").T[1:4:2].to("cpu").numpy(), values.T[1:4:2])


def test_the_gradient_comes_back(rng):
    x = mg.tensor(rng.standard_normal(5), requires_grad=True)
    g = rng.standard_normal(5)
    (x.to("cuda") * 3).backward(mg.tensor(g, device="cuda"))
    assert x.grad.device == "cpu"
    np.testing.assert_allclose(x.grad.numpy(), 3 * g)


def test_a_module_moves():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("cuda")
    assert {x.device for x in [*model.parameters(), *model.buffers()]} == {"cuda:0"}
    assert {x.device for x in model.to("cpu").state_dict().values()} == {"cpu"}


@pytest.mark.parametrize("make", [mg.tensor, lambda x: mg.tensor(Exporter(x)), lambda x: mg.tensor(x.T).T])
def test_a_copy_on_the_device_does_not_come_by_the_host(make, rng, monkeypatch):
    from minigrad.cuda import backend

    values = rng.standard_normal((3, 4))
    x, moved, transfer = mg.tensor(values, device="cuda"), [], backend.transfer
    monkeypatch.setattr(backend, "transfer", lambda x, index: (moved.append(index), transfer(x, index))[1])
    y = make(x)
    assert (moved, y.device) == ([1], "cuda:0")
    x.fill_(0)
    np.testing.assert_array_equal(y.to("cpu").numpy(), values)


def test_numpy_sees_the_cpu_only():
    match = r"^\[numpy\] expected a tensor on the CPU, got one on cuda:0: use x.to\('cpu'\)"
    raises(TypeError, match, mg.zeros(2, device="cuda").numpy)


def test_functions_of_numpy_stay_on_the_device():
    x = mg.ones((2, 2), device="cuda")
    assert np.shape(x) == (2, 2)
    assert np.sum(np.zeros_like(x) + np.float64(3)).device == "cuda:0"
    for call in (np.ptp, np.cbrt, lambda x: np.array_equal(x, x), lambda x: np.sum(x, where=np.ones((2, 2), bool))):
        raises(TypeError, r"cuda:0.*np\.asarray\(x\.detach\(\)\.to\('cpu'\)\)", call, x)


def test_dlpack_says_where():
    assert mg.zeros(2, device="cuda").__dlpack_device__() == (2, 0)
    with pytest.raises(BufferError, match=r"expected the device .* on cuda:0, got \(1, 0\): move the tensor with x.to"):
        mg.zeros(2, device="cuda").__dlpack__(dl_device=(1, 0))


def test_what_is_imported_is_ready_for_the_current_stream(monkeypatch):
    import cupy

    from minigrad.cuda import backend

    theirs = Exporter(mg.arange(4.0, device="cuda"))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        ours = mg.from_dlpack(theirs)
        assert theirs.stream == stream.ptr
    assert ours.data_ptr() == theirs.x.data_ptr()
    monkeypatch.setattr(backend, "registered", set())
    mg.from_dlpack(theirs)
    assert theirs.stream == 1
    assert backend.registered == {0}  # so that the first operation may write into it


def test_an_operand_is_copied_on_the_device(monkeypatch):
    """Its owner may overwrite it before the backward pass."""
    from minigrad.cuda import backend

    base = mg.arange(6.0, device="cuda").reshape(2, 3)
    w = mg.ones((3, 2), device="cuda", requires_grad=True)
    moved, transfer = [], backend.transfer
    monkeypatch.setattr(backend, "transfer", lambda x, index: (moved.append(index), transfer(x, index))[1])
    product = mg.multiply(w, Exporter(base.T))
    base[...] = 0
    product.sum().backward()
    assert moved == [1]
    assert w.grad.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_what_is_exported_is_waited_for(monkeypatch):
    """The stream that will use it waits, if it is not the current one."""
    import cupy

    waiting, wait = [], cupy.cuda.runtime.streamWaitEvent
    x, other = mg.arange(4.0, device="cuda"), cupy.cuda.Stream(non_blocking=True)
    monkeypatch.setattr(
        cupy.cuda.runtime, "streamWaitEvent", lambda stream, event: (waiting.append(stream), wait(stream, event))
    )
    for stream in (None, 1, -1):
        x.__dlpack__(stream=stream)
    assert waiting == []
    x.__dlpack__(stream=other.ptr)
    with other:
        x.__dlpack__(stream=other.ptr)
        x.__dlpack__(stream=1)
    assert waiting == [other.ptr, 1]
    for wrong in (0, -2, True, other):
        refuses(BufferError, "dlpack", f"got {wrong!r}", lambda stream=wrong: x.__dlpack__(stream=stream))
    refuses(BufferError, "dlpack", "expected stream None", lambda: mg.ones(2).__dlpack__(stream=1))


def test_the_cuda_array_interface():
    """CuPy and other libraries read a tensor's address, shape, strides and stream."""
    x = mg.arange(6, dtype="float64", device="cuda").reshape(2, 3).T
    assert x.__cuda_array_interface__ == {
        "shape": (3, 2), "typestr": "<f8", "data": (x.data_ptr(), False), "strides": (8, 24), "version": 3, "stream": 1,
    }  # fmt: skip
    assert not hasattr(mg.ones(2), "__cuda_array_interface__")
    wanted = mg.ones(2, device="cuda", requires_grad=True)
    refuses(BufferError, "cuda_array_interface", "x.detach()", lambda: wanted.__cuda_array_interface__)


# ── several GPUs ──────────────────────────────────────────────────────────────────────────────────

SEVERAL = pytest.mark.skipif(mg.cuda.device_count() < 2, reason="there is one GPU")


@SEVERAL
def test_a_second_gpu_computes_as_the_first(rng):
    values, labels = rng.standard_normal((9, 6)).astype("float32"), rng.integers(0, 3, 9)
    found = []
    for device in ("cuda:0", "cuda:1"):
        mg.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 3)).to(device)
        descent = mg.optim.Adam(model.parameters(), 0.01)
        for _ in range(3):
            loss = nn.functional.cross_entropy(
                model(mg.tensor(values, device=device)), mg.tensor(labels, device=device)
            )
            descent.zero_grad()
            loss.backward()
            descent.step()
        assert {x.device for x in (loss, *model.parameters())} == {device}
        found.append([loss.item(), *(p.detach().to("cpu").tolist() for p in model.parameters())])
    assert found[0] == found[1]


@SEVERAL
def test_from_gpu_to_gpu(rng):
    values, g = rng.standard_normal((2, 4, 5))
    x = mg.tensor(values, device="cuda:1", requires_grad=True)
    y = x.T.to("cuda:0")
    np.testing.assert_array_equal(y.detach().to("cpu").numpy(), values.T)
    (y * 3).backward(mg.tensor(g.T, device="cuda:0"))
    assert x.grad.device == "cuda:1"
    np.testing.assert_allclose(x.grad.to("cpu").numpy(), 3 * g)
    with pytest.raises(ValueError, match=r"^\[add\] .*cuda:1 and cuda:0"):
        x + y.T


@SEVERAL
def test_streams_of_two_gpus_wait_for_each_other():
    """Copies wait for their source, and later reuse of the memory waits for the copy."""
    import cupy

    x = mg.arange(4.0, device="cuda:1")
    waited = []

    class Noting(cupy.cuda.Stream):
        def wait_event(self, event):
            waited.append(self.ptr)
            super().wait_event(event)

    with cupy.cuda.Device(1):
        source = Noting(non_blocking=True)
    target = Noting(non_blocking=True)
    mg.cuda.synchronize(1)
    with cupy.cuda.Device(1), source, cupy.cuda.Device(0), target:
        np.testing.assert_array_equal(x.to("cuda:0").to("cpu").numpy(), [0, 1, 2, 3])
    assert waited == [target.ptr, source.ptr]


# ── what cannot be ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("call", [
    lambda a, b: a + b, lambda a, b: mg.where(a > 0, a, b), lambda a, b: a @ b, lambda a, b: mg.concat([a, b]),
    lambda a, b: mg.layer_norm(a, 2, b[0]),
])  # fmt: skip
def test_tensors_on_different_devices(call):
    a, b = mg.ones((2, 2), device="cuda"), mg.ones((2, 2))
    raises(ValueError, r"^\[\w+\] .*cuda:0 and cpu", call, a, b)
    np.testing.assert_array_equal(a.to("cpu").numpy(), 1)


@pytest.mark.parametrize("home, there", [("cpu", "cuda:0"), ("cuda:0", "cpu")])
def test_running_statistics_elsewhere(home, there):
    x, mean, var = mg.ones((4, 3, 2), device=home), mg.zeros(3, device=there), mg.ones(3, device=there)
    places = [f"running statistics on {home}", f"got {there} and {there}"]
    for of_input in (True, False):
        refuses(ValueError, "batch_norm", places, nn.functional.batch_norm, x, mean, var, training=of_input)
        refuses(
            ValueError, "instance_norm", places, nn.functional.instance_norm, x, mean, var, use_input_stats=of_input
        )
    layer, norm = nn.Linear(2, 3, device=home), nn.BatchNorm1d(3, device=there)
    refuses(
        ValueError, "fold_batch_norm", f"Linear on {home} and a norm on {there}", nn.utils.fold_batch_norm, layer, norm
    )


@pytest.mark.parametrize("home, there", [("cpu", "cuda:0"), pytest.param("cuda:0", "cuda:1", marks=SEVERAL)])
def test_indices_of_another_gpu(home, there):
    """Indices on the CPU work everywhere, those on a GPU only there."""
    x, i, mask = mg.ones((4, 4), device=home), mg.tensor([1, 2], device=there), mg.ones(4, dtype="bool", device=there)
    places = ["on the CPU, " if home == "cpu" else f"on {home} or on the CPU, ", f"on {there}"]
    refuses(ValueError, "index", places, lambda x, i: x[i], x, i)
    refuses(ValueError, "index", places, lambda x, i: x[i], x, mask)
    refuses(ValueError, "index", places, lambda x, i: x[i], x, mask[0])
    refuses(ValueError, "setitem", places, lambda x, i: x.__setitem__(i, 1.0), x, i)
    refuses(ValueError, "take", places, lambda x, i: mg.take(x, i, axis=0), x, i)
    refuses(ValueError, "take_along_axis", places, lambda x, i: mg.take_along_axis(x, i[:, None], 0), x, i)
    refuses(ValueError, "embedding", places, nn.functional.embedding, i, x)
    on_cpu = i.to("cpu")
    for got in (x[on_cpu], mg.take(x, on_cpu, axis=0), nn.functional.embedding(on_cpu, x, padding_idx=0)):
        assert (got.device, got.shape) == (home, (2, 4))


def test_a_device_that_does_not_exist():
    absent = f"cuda:{mg.cuda.device_count()}"
    model = nn.Linear(1, 1)
    for call in (lambda: mg.zeros(2, device=absent), lambda: mg.zeros(2).to(absent), lambda: model.to(absent)):
        refuses(RuntimeError, "device", [absent, f"from cuda:0 to cuda:{mg.cuda.device_count() - 1}"], call)
    refuses(RuntimeError, "synchronize", absent, lambda: mg.cuda.synchronize(mg.cuda.device_count()))


@pytest.mark.parametrize("wish", ["gpu", "CUDA", "cpu:0", 0])
def test_what_is_no_device(wish):
    devices = '"cpu", "cuda" or "cuda:N"'
    refuses(TypeError, "to", [repr(wish), devices], mg.ones(2).to, wish)
    refuses(TypeError, "Linear.to", [repr(wish), devices], nn.Linear(1, 1).to, wish)


def test_devices_and_dtypes_by_name():
    x = mg.ones(2).to(device="cuda", dtype="float64")
    assert (x.device, x.dtype) == ("cuda:0", "float64")
    model = nn.BatchNorm1d(2).to("cuda", dtype="float64")
    assert {(p.device, p.dtype) for p in model.parameters()} == {("cuda:0", mg.float64)}
    assert model.num_batches_tracked.dtype == "int64"
    assert mg.ones(2).to("cpu", "int32", device="cuda", dtype="float64").device == "cuda:0"
    before = nn.Linear(1, 1)
    refuses(TypeError, "Linear.to", "'int32'", before.to, "cuda", "int32")
    refuses(TypeError, "Linear.to", "'cuda'", lambda: before.to(dtype="cuda"))
    refuses(TypeError, "Linear.to", "tensor", before.to, mg.ones(1))
    refuses(TypeError, "to", "'cuda'", lambda: mg.ones(2).to(dtype="cuda"))
    refuses(RuntimeError, "device", "cuda:9", before.to, "float64", "cuda:9")
    refuses(RuntimeError, "device", "cuda:9", nn.ReLU().to, "cuda:9")
    assert {(p.device, p.dtype) for p in before.parameters()} == {("cpu", mg.float32)}


def test_a_gpu_is_waited_for_by_number_and_by_name():
    for device in (0, "cuda", "cuda:0"):
        mg.cuda.synchronize(device)
    refuses(ValueError, "synchronize", "'cpu'", mg.cuda.synchronize, "cpu")
    refuses(ValueError, "synchronize", "-1", mg.cuda.synchronize, -1)
    refuses(TypeError, "synchronize", "1.5", mg.cuda.synchronize, 1.5)


def test_lengths_come_from_any_device_and_those_of_the_cpu_wait_for_nothing(monkeypatch):
    lstm, x = nn.LSTM(3, 4, norm="layer", device="cuda"), mg.ones((5, 2, 3), device="cuda")
    expected = lstm(x, lengths=mg.tensor([5, 2], device="cuda"))[0].detach().to("cpu").numpy()
    moved, transfer = [], backend.transfer
    monkeypatch.setattr(backend, "transfer", lambda x, index: (moved.append(index), transfer(x, index))[1])
    got = [lstm(x, lengths=lengths)[0] for lengths in ([5, 2], mg.tensor([5, 2]))]
    assert 0 not in moved
    lstm(x, lengths=mg.tensor([5, 2], device="cuda"))
    assert moved.count(0) == 1
    for one in got:
        np.testing.assert_array_equal(one.detach().to("cpu").numpy(), expected)


def test_an_error_that_nobody_waited_for_is_told_at_the_end():
    program = f"""
import sys
sys.path[:0] = {[folder for folder in sys.path if folder.endswith("emulation")]}
import minigrad as mg
mg.nn.Embedding(10, 3, device="cuda")(mg.tensor([12], device="cuda"))
"""
    done = subprocess.run([*ROOT, program], capture_output=True, text=True, check=True)
    assert (
        "IndexError: [embedding] expected indices from 0 to 9, got 12 (in an earlier operation on cuda:0" in done.stderr
    )


def test_memory_that_is_not_there():
    before = mg.ones(3, device="cuda")
    with pytest.raises(MemoryError, match=r"^\[allocate\] no memory for \d+ bytes on cuda:0"):
        mg.empty(1 << 50, dtype="bool", device="cuda")
    np.testing.assert_array_equal((before + mg.ones(3, device="cuda")).to("cpu").numpy(), 2)


@pytest.mark.parametrize(
    "batch, m, k, n", [(1, 1 << 31, 3, 2), (1, 2, 1 << 31, 3), (1, 2, 3, 1 << 31), (1 << 31, 1, 2, 3)]
)
def test_a_product_larger_than_cublas_counts(batch, m, k, n):
    from minigrad.cuda.backend import CUDA

    a, b, out = (
        mg.zeros((1, 1, 1), device="cuda:0").broadcast_to((batch, *shape)) for shape in ((m, k), (k, n), (m, n))
    )
    match = rf"matmul.*below 2\^31.*got {batch} products of {m} x {k} with .* and {k} x {n} with "
    raises(OverflowError, match, CUDA(0).gemm, a, b, out, 0.0, None)


def test_in_place_writes_are_seen():
    x = mg.ones(3, device="cuda", requires_grad=True)
    y = x * x
    with mg.no_grad():
        x += 1
    refuses(mg.GradientError, "multiply", "", lambda: y.sum().backward())
