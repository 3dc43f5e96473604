"""Saving and loading: round trips, PyTorch's files, atomicity, bad files."""

import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from checks import array, raises, refuses, tensor
from peers import torch
from safetensors import numpy as safetensors_numpy

import minigrad as mg
from minigrad import nn, optim
from minigrad.saving import serialization
from minigrad.tools import files

DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def sample(dtype, shape=(3, 4)):
    rng = np.random.default_rng(0)
    return np.asarray(rng.standard_normal(shape) * 10).astype(dtype)


def test_the_order_of_the_file(path, device):
    """The same each time, whatever the library's own settings."""
    names = [f"layers.{k}.weight" for k in range(20)]
    mg.save({name: mg.ones(1, device=device) for name in reversed(names)}, path)
    assert [*mg.load(path)] == [*mg.load(path, metadata=True)[0]] == sorted(names)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 4), (), (0,), (2, 0, 3), (1,)])
def test_round_trip(path, dtype, shape, device):
    values = sample(dtype, shape)
    mg.save({"x": tensor(values, device)}, path)
    loaded = mg.load(path)["x"]
    assert loaded.device == "cpu"
    assert loaded.dtype == dtype
    assert loaded.shape == shape
    assert loaded.tolist() == loaded.to(device).tolist() == values.tolist()
    assert not loaded.requires_grad
    assert safetensors_numpy.load_file(path)["x"].tolist() == values.tolist()


def test_views_and_gradients(path, device):
    x = tensor(sample("float32"), device, requires_grad=True)
    mg.save({"T": x.T, "steps": x.detach()[::2, ::-1], "computed": x * 2, "leaf": x}, path)
    loaded = mg.load(path)
    values = sample("float32")
    for name, expected in {"T": values.T, "steps": values[::2, ::-1], "computed": values * 2, "leaf": values}.items():
        assert loaded[name].tolist() == expected.tolist()
        assert loaded[name].is_contiguous()


def test_special_values(path, device):
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    mg.save({"x": tensor(values, device)}, path)
    loaded = mg.load(path)["x"]
    assert loaded.numpy().tobytes() == array(loaded.to(device)).tobytes() == values.tobytes()


def test_module(path, device):
    a, b = (nn.RNN(3, 4, norm="layer").to(device) for _ in range(2))
    mg.save(a, path)
    assert mg.load(path).keys() == a.state_dict().keys()
    b.load_state_dict(mg.load(path))
    assert {x.device for x in b.state_dict().values()} == {device}
    x = mg.random.normal(0.0, 1.0, (5, 2, 3), device=device)
    assert a(x)[0].tolist() == b(x)[0].tolist()


def test_loaded_tensors_are_independent_of_the_file(path):
    mg.save({"x": mg.ones(3)}, path)
    loaded = mg.load(path)
    loaded["x"].zero_()
    assert mg.load(path)["x"].tolist() == [1.0, 1.0, 1.0]


def test_metadata(path):
    mg.save({"x": mg.ones(3)}, path, metadata={"epoch": "7", "ключ": "值"})
    tensors, metadata = mg.load(path, metadata=True)
    assert metadata == {"epoch": "7", "ключ": "值"}
    assert list(tensors) == ["x"]
    mg.save({}, path)
    assert mg.load(path, metadata=True) == ({}, {})


def test_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mg.save({"x": mg.ones(1)}, "here.safetensors")
    assert mg.load("here.safetensors")["x"].tolist() == [1.0]
    assert os.listdir(tmp_path) == ["here.safetensors"]


def test_torch_reads_ours_and_we_read_torchs(path, device):
    safetensors_torch = pytest.importorskip("safetensors.torch")
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)).to(device)
    mg.save(model, path)
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    theirs.load_state_dict(safetensors_torch.load_file(path))
    assert theirs[0].weight.tolist() == model[0].weight.tolist()
    theirs, ours = torch.nn.Linear(3, 4), nn.Linear(3, 4, device=device)
    safetensors_torch.save_file(theirs.state_dict(), path)
    ours.load_state_dict(mg.load(path))
    assert ours.weight.device == device
    assert ours.weight.tolist() == theirs.weight.tolist()


def test_files_are_those_of_the_library(path, device):
    """Byte for byte: the order of the tensors, the offsets, the header and its padding."""
    rng = np.random.default_rng(0)
    values = {}
    for k, shape in enumerate([(3, 4), (), (0,), (2, 0, 3), (5,)]):
        for dtype in DTYPES:
            values[f"{rng.integers(10)}.{dtype[::-1]}.{k}"] = sample(dtype, shape)
    values |= {"": sample("float32"), "ключ \U0001f600": sample("bool"), '"\\\n\x00\x1f\x7f\u2028/': sample("int32")}
    for metadata in (None, {}, {"a": "b"}, {"ключ": '"\\\n\x00\x1f\x7f\u2028/'}):
        mg.save({name: tensor(value, device) for name, value in values.items()}, path, metadata)
        assert path.read_bytes() == safetensors_numpy.save(values, metadata or None)
    mg.save({}, path)
    assert path.read_bytes() == safetensors_numpy.save({})


# ── memory ──

PEAK = """
import re, sys
import minigrad as mg

def peak():
    with open("/proc/self/status") as file:
        return 1024 * int(re.search("VmHWM:\\\\s+([0-9]+)", file.read())[1])

path, size = sys.argv[1], 50_000_000
x = {"a": mg.ones(size // 8), "b": mg.ones(size // 8 - 1), "c": mg.ones(1, dtype="bool")}
small = path + ".small"
mg.save({"x": mg.ones(1)}, small)
mg.load(small)
before = peak()
mg.save(x, path)
print((peak() - before) / size)
del x
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not tell the peak of a process")
def test_memory(path):
    """For a file of 50 MB, saving takes almost no memory, and loading as much as the tensors, also converted ones."""
    load = "import minigrad as mg\nbefore = peak()\ny = mg.load(path)\nprint((peak() - before) / size)"
    convert = load.replace("(path)", "(path, dtype='float64')")
    code = PEAK.replace("\\\\", "\\")
    environment = {**os.environ, "PYTHONPATH": str(Path(mg.__file__).parent.parent)}
    found = []
    for part in (code, code.partition("x = {")[0] + load, code.partition("x = {")[0] + convert):
        done = subprocess.run(
            [sys.executable, "-c", part, str(path)], env=environment, check=True, capture_output=True, timeout=60
        )
        found.append(float(done.stdout))
    assert found[0] < 0.2
    assert found[1] < 1.2
    assert found[2] < 2.2


# ── atomicity ──


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(path, monkeypatch, function, windows):
    if windows:  # where an open file cannot be replaced
        monkeypatch.setattr(serialization, "write", files._replace_by_path)
    mg.save({"x": mg.ones(3)}, path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    raises(OSError, "No space left", mg.save, {"x": mg.zeros(3)}, path)
    assert os.listdir(path.parent) == [path.name]
    assert mg.load(path)["x"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", ["model.npz", "x.npy"])
def test_names_of_numpys_files_are_refused(tmp_path, name):
    """As NumPy could not read what is written."""
    raises(ValueError, r"got '.*\.np[yz]': np.savez\(path, ", mg.save, {"x": mg.ones(3)}, tmp_path / name)
    assert not os.listdir(tmp_path)


def test_data_are_on_disk_before_the_name_is(path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    mg.save({"x": mg.ones(3)}, path)
    assert calls == ["fsync", "replace", "fsync"]  # the first one is the file's, the last one the folder's


# ── pipes ──


def test_a_pipe_is_read(path, tmp_path):
    mg.save({"x": mg.arange(100_000), "y": mg.ones(2)}, path, metadata={"a": "b"})
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    opened = threading.Event()

    def send(content):
        with open(pipe, "wb") as file:
            file.write(content)
            file.flush()
            opened.wait(30)  # the other end need not wait until this one is closed

    for content, complete in ((path.read_bytes(), True), (path.read_bytes()[:-1], False)):
        opened.clear() if complete else opened.set()
        writer = threading.Thread(target=send, args=(content,), daemon=True)
        writer.start()
        if complete:
            tensors, metadata = mg.load(pipe, metadata=True)
            assert tensors["x"].tolist() == list(range(100_000))
            assert (tensors["y"].tolist(), metadata) == ([1.0, 1.0], {"a": "b"})
        else:
            refuses(ValueError, "load", "pipe", mg.load, pipe)
        opened.set()
        writer.join(30)
        assert not writer.is_alive()


@pytest.mark.parametrize("name", ["/dev/null", "/dev/zero", "/dev/urandom"])
def test_devices_end_or_are_refused(name):
    refuses(ValueError, "load", f"{name} is not a complete safetensors file", mg.load, name)


# ── dtypes that are converted ──

WIDE = [0.0, -0.0, 1.0, -1.5, 65504.0, 6e-8, np.inf, -np.inf, np.nan, 0.1, 3e38, 1e-40]


@pytest.mark.parametrize("dtype", ["float32", "float64", mg.float64, float])
def test_floats_are_converted(path, monkeypatch, dtype):
    """Every number is exact or, from float64 to float32, rounded; other dtypes are as stored."""
    safetensors_torch = pytest.importorskip("safetensors.torch")
    monkeypatch.setattr(serialization, "CHUNK", 5)
    kinds = {"half": torch.float16, "brain": torch.bfloat16, "single": torch.float32, "double": torch.float64}
    theirs = {name: torch.tensor(WIDE, dtype=torch.float64).to(kind).reshape(3, 4) for name, kind in kinds.items()}
    theirs |= {
        "whole": torch.arange(3),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros((0, 3), dtype=torch.float16),
    }
    safetensors_torch.save_file(theirs, path)
    raises(ValueError, r"got bfloat16 for 'brain' and 2 more: pass dtype=\"float32\" to convert", mg.load, path)
    loaded = mg.load(path, dtype=dtype)
    kind = mg.zeros(1, dtype=dtype).dtype
    assert {name: x.dtype for name, x in loaded.items()} == {
        **dict.fromkeys(theirs, kind), "whole": mg.int64, "flags": mg.bool
    }  # fmt: skip
    for name, x in loaded.items():
        expected = theirs[name].to(getattr(torch, x.dtype.name)).numpy()
        assert x.shape == expected.shape
        np.testing.assert_array_equal(x.numpy(), expected)
        np.testing.assert_array_equal(np.signbit(x.numpy()), np.signbit(expected))
    assert mg.load(path, metadata=True, dtype=dtype)[1] == {}
    path.write_bytes(path.read_bytes()[:-1])
    raises(ValueError, "not a complete safetensors file", mg.load, path, dtype=dtype)


@pytest.mark.parametrize("dtype", ["int64", "float16", int, {"a": "b"}, 3])
def test_only_to_floats(path, dtype):
    mg.save({"x": mg.ones(1)}, path)
    refuses(TypeError, "load", "expected float32 or float64 as the dtype, got ", mg.load, path, dtype=dtype)


# ── other libraries ──


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_pickle_is_recognized_and_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(torch.arange(3.0), "it's.pt")
    torch.save(torch.arange(3.0), "old.pt", _use_new_zipfile_serialization=False)
    with open("evil.pkl", "wb") as file:
        pickle.dump(Malicious(), file)
    for name in ("it's.pt", "old.pt", "evil.pkl"):
        refuses(ValueError, "load", ["is a pickle", "which is not read"], mg.load, name)
        assert not os.path.exists("ran")


def test_arrays_of_other_libraries(path):
    a = np.arange(6.0).reshape(2, 3)
    mg.save(
        {
            "array": a.T, "big": a.astype(">f4"), "whole": np.arange(3), "theirs": torch.tensor([True, False]),
            "ours": mg.ones(1),
        },
        path,
    )  # fmt: skip
    loaded = mg.load(path)
    assert {name: x.dtype.name for name, x in loaded.items()} == {
        "array": "float64", "big": "float32", "whole": "int64", "theirs": "bool", "ours": "float32"
    }  # fmt: skip
    assert loaded["array"].tolist() == a.T.tolist()
    assert loaded["big"].tolist() == a.tolist()
    for wrong in (np.array(["a"]), np.ones(2, np.complex64), torch.ones(2, dtype=torch.complex64)):
        refuses(TypeError, "save", "'x': ", mg.save, {"x": wrong}, path)


def test_the_state_of_an_optimizer_is_for_checkpoints(path):
    model = nn.Linear(2, 1)
    optimizer = optim.Adam(model.parameters())
    refuses(TypeError, "save", "got Adam: save_checkpoint(path, name=...) saves its state", mg.save, optimizer, path)
    for state in (optimizer.state_dict(), {"model": model.state_dict()}, {"epoch": 3}):
        match = r"^\[save\] expected a Tensor or an array for .*: save_checkpoint also saves"
        raises(TypeError, match, mg.save, state, path)
    assert not path.exists()


def test_safetensors_is_imported_only_when_needed():
    code = "import sys, minigrad; sys.exit('safetensors' in sys.modules)"
    folder = Path(mg.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0


def test_a_tensor_without_memory_is_refused(tmp_path):
    raises(TypeError, "'x'", mg.save, {"x": mg.Tensor.__new__(mg.Tensor)}, tmp_path / "file")
    assert not list(tmp_path.iterdir())
