"""Saving and loading: round trips, PyTorch's files, atomicity, bad files."""

import contextlib
import json
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import array, tensor
from safetensors import numpy as safetensors_numpy

import minigrad as mg
from minigrad import nn

DTYPES = ["float32", "float64", "int32", "int64", "bool"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def sample(dtype, shape=(3, 4)):
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) * 10).astype(dtype)


def test_the_order_of_the_file(path, device):
    """The same each time, whatever the library's own."""
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


def test_string_paths_and_names(tmp_path):
    mg.save({"a.b/c": mg.ones(1), "": mg.zeros(1)}, str(tmp_path / "x"))
    assert set(mg.load(str(tmp_path / "x"))) == {"a.b/c", ""}


def test_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mg.save({"x": mg.ones(1)}, "here.safetensors")
    assert mg.load("here.safetensors")["x"].tolist() == [1.0]
    assert os.listdir(tmp_path) == ["here.safetensors"]


def test_torch_reads_ours_and_we_read_torchs(path, device):
    torch = pytest.importorskip("torch")
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


# ── atomicity ──

def test_overwriting(path):
    mg.save({"x": mg.ones(3)}, path)
    mg.save({"y": mg.zeros(2)}, path)
    assert list(mg.load(path)) == ["y"]
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_no_other(path, monkeypatch, function):
    mg.save({"x": mg.ones(3)}, path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(OSError, match="No space left"):
        mg.save({"x": mg.zeros(3)}, path)
    assert os.listdir(path.parent) == [path.name]
    assert mg.load(path)["x"].tolist() == [1.0, 1.0, 1.0]


def test_data_are_on_disk_before_the_name_is(path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(os, "replace", lambda a, b: (calls.append("replace"), replace(a, b)))
    mg.save({"x": mg.ones(3)}, path)
    assert calls == ["fsync", "replace"]


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions and links")
def test_permissions_and_links(tmp_path):
    real, link = tmp_path / "folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    old = os.umask(0o022)
    try:
        mg.save({"x": mg.ones(3)}, real)
    finally:
        os.umask(old)
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    link.symlink_to(real)
    mg.save({"x": mg.zeros(3)}, link)
    assert link.is_symlink()
    assert mg.load(real)["x"].tolist() == [0.0, 0.0, 0.0]


# ── errors ──

def test_absent_places(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        mg.load(tmp_path / "absent")
    with pytest.raises(FileNotFoundError) as caught:
        mg.save({"x": mg.ones(1)}, tmp_path / "absent" / "x")
    assert str(caught.value) == f"[Errno 2] No such file or directory: '{tmp_path / 'absent' / 'x'}'"
    with pytest.raises(OSError, match="irectory"):
        mg.load(tmp_path)
    with pytest.raises(OSError, match="irectory") as caught:
        mg.save({"x": mg.ones(1)}, tmp_path)
    assert caught.value.filename == str(tmp_path)
    assert os.listdir(tmp_path) == []


def test_save_errors(path):
    x = mg.ones(1)
    for obj, message in (
        ([x], "expected a Module or a dict"), (x, "expected a Module or a dict"), ({3: x}, "name of type str"),
        ({"x": np.ones(1)}, "a Tensor for 'x', got ndarray"), ({"x": None}, "got NoneType"),
        ({"__metadata__": x}, "name"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"\[save\].*{message}"):
            mg.save(obj, path)
    for metadata in ({"epoch": 7}, {7: "epoch"}, ["epoch"], "epoch"):
        with pytest.raises(TypeError, match=r"\[save\] expected metadata of str to str"):
            mg.save({"x": x}, path, metadata=metadata)
    assert not path.exists()


def test_a_number_is_no_path(path):
    """To open() it would be a file that is open already, which is closed afterwards."""
    with open(path, "wb+") as file:
        for call in (mg.load, lambda number: mg.save({"x": mg.ones(1)}, number)):
            with pytest.raises(TypeError, match=rf"^\[(load|save)\] expected a path, got {file.fileno()}$"):
                call(file.fileno())
        file.write(b"still open")


def test_metadata_that_is_null(path):
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": None}, b"\0" * 4))
    assert mg.load(path, metadata=True)[1] == {}
    with pytest.raises(ValueError, match=r"^\[load_checkpoint\] .*expected the format"):
        mg.load_checkpoint(path)


def test_a_file_cut_anywhere(path):
    mg.save({"x": mg.ones((2, 3)), "y": mg.zeros(1, dtype="int64")}, path, metadata={"a": "b"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors") as caught:
            mg.load(path)
        assert str(path) in str(caught.value)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match=r"\[load\]"):
        mg.load(path)


def header(entries, data=b""):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("content", [
    b"", b"\0" * 8, b"\xff" * 64, struct.pack("<Q", 2**63) + b"{}", struct.pack("<Q", 10**9) + b"{}", header(b"[]"),
    header(b"not json"), header(b'{"x":'), header(b"\xff\xfe{}"), header({"x": 3}), header({"x": {}}),
    header({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4000]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [2**62, 4], "data_offsets": [0, 0]}}),
    header({"x": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 4]}}, b"\0" * 4),
    header({"x": {"dtype": "PWN", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
            "y": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"\0" * 4),
    header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": {"a": 3}}, b"\0" * 4),
    b"\x80\x04\x95pickle", b"PK\x03\x04" + b"\0" * 60,
])  # fmt: skip
def test_hostile_files(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors"):
        mg.load(path, metadata=True)


def test_shapes_of_nothing_that_do_not_fit(path):
    """Zero elements, but axes longer than memory: an error or an empty tensor, no crash."""
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}))
    with contextlib.suppress(ValueError, MemoryError):
        assert mg.load(path)["x"].size == 0


def test_too_many_axes(path):
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}}, b"\0" * 4))
    with pytest.raises(ValueError, match=r"model\.safetensors.*x"):
        mg.load(path)


@pytest.mark.parametrize("dtype, size", [
    ("F16", 2), ("BF16", 2), ("U8", 1), ("I8", 1), ("I16", 2), ("F8_E4M3", 1), ("U64", 8),
])  # fmt: skip
def test_dtypes_that_we_do_not_have(path, dtype, size):
    path.write_bytes(header({"some": {"dtype": dtype, "shape": [1], "data_offsets": [0, size]}}, b"\0" * size))
    with pytest.raises(ValueError, match=rf"\[load\] .*model.safetensors: expected float32.*got some \({dtype}\)"):
        mg.load(path)


def test_bytes_that_are_no_bool(path):
    path.write_bytes(header({"x": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}, bytes([0, 1, 2, 255])))
    loaded = mg.load(path)["x"]
    assert loaded.tolist() == [False, True, True, True]
    assert loaded.astype("int64").sum().item() == 3


def test_safetensors_is_imported_only_when_needed():
    code = "import sys, minigrad; sys.exit('safetensors' in sys.modules)"
    folder = Path(mg.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0
