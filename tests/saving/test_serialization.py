"""Saving and loading: round trips, PyTorch's files, atomicity, bad files."""

import contextlib
import json
import os
import pickle
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors
from checks import array, tensor
from hypothesis import given
from hypothesis import strategies as st
from safetensors import numpy as safetensors_numpy

import minigrad as mg
from minigrad import nn, optim
from minigrad.saving import serialization

DTYPES = ["float32", "float64", "int32", "int64", "bool"]


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
    assert calls == ["fsync", "replace", "fsync"]  # of the file, and of the folder


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
            with pytest.raises(ValueError, match=r"\[load\] .*pipe"):
                mg.load(pipe)
        opened.set()
        writer.join(30)
        assert not writer.is_alive()


@pytest.mark.parametrize("name", ["/dev/null", "/dev/zero", "/dev/urandom"])
def test_devices_end_or_are_refused(name):
    with pytest.raises(ValueError, match=rf"\[load\] {name} is not a complete safetensors file"):
        mg.load(name)


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
        ({"x": [1.0]}, "an array for 'x', got list"), ({"x": None}, "got NoneType"),
        ({"__metadata__": x}, "name"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"\[save\].*{message}"):
            mg.save(obj, path)
    for metadata in ({"epoch": 7}, {7: "epoch"}, ["epoch"], "epoch"):
        with pytest.raises(TypeError, match=r"\[save\] expected metadata of str to str"):
            mg.save({"x": x}, path, metadata=metadata)
    assert not path.exists()


def test_a_number_is_no_path(path):
    """open() would take a number for an open file, and close it afterwards."""
    with open(path, "wb+") as file:
        for call in (mg.load, lambda number: mg.save({"x": mg.ones(1)}, number)):
            with pytest.raises(TypeError, match=rf"^\[(load|save)\] expected a path, got {file.fileno()}$"):
                call(file.fileno())
        file.write(b"still open")


def test_metadata_that_is_null(path):
    path.write_bytes(
        header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": None}, b"\0" * 4)
    )
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


VALID = header({
    "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, "b": {"dtype": "BOOL", "shape": [], "data_offsets": [8, 9]},
    "c": {"dtype": "I64", "shape": [0, 3], "data_offsets": [9, 9]}, "__metadata__": {"k": "v"},
}, bytes(9))  # fmt: skip


def agrees(path, content):
    """We accept the files that the library accepts, and read the same content."""
    path.write_bytes(content)
    try:
        expected = {
            name: (entry["dtype"], entry["shape"], bytes(entry["data"]))
            for name, entry in safetensors.deserialize(content)
        }
    except (safetensors.SafetensorError, UnicodeError):
        with pytest.raises(ValueError, match=r"\[load\]"):
            mg.load(path)
        return
    if any(dtype in serialization.INTEGERS for dtype, _, _ in expected.values()):
        assert mg.load(path).keys() == expected.keys()
        return
    if any(dtype not in ("F32", "F64", "I32", "I64", "BOOL") for dtype, _, _ in expected.values()):
        with pytest.raises(ValueError, match="expected float32"):
            mg.load(path)
        return
    found = mg.load(path)
    assert {name: (list(x.shape), x.numpy().tobytes()) for name, x in found.items()} == {
        name: (shape, bytes(map(bool, data)) if dtype == "BOOL" else data)
        for name, (dtype, shape, data) in expected.items()
    }


@given(st.data())
def test_what_the_library_refuses_is_refused(tmp_path_factory, data):
    """A file with bytes of its header changed, removed or inserted."""
    content = bytearray(VALID)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(8, len(VALID) - 10))
        piece = data.draw(
            st.sampled_from(
                [
                    b"",
                    b"0",
                    b"1",
                    b"9",
                    b"-",
                    b".",
                    b"e",
                    b" ",
                    b"{",
                    b"}",
                    b"[",
                    b"]",
                    b",",
                    b'"',
                    b":",
                    b"\xff",
                    b"null",
                    b"a",
                    b"\0",
                ]
            )
        )
        content[position : position + data.draw(st.integers(0, 2))] = piece
    content[:8] = struct.pack("<Q", len(content) - 8 - 9)
    agrees(tmp_path_factory.getbasetemp() / "changed.safetensors", bytes(content))


@pytest.mark.parametrize("entries", [
    {"x": {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]}}, {"x": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
    {"x": {"dtype": "F32", "shape": "1", "data_offsets": [0, 4]}}, {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 4]}},
    {"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 3}}, {"x": {"dtype": 3, "shape": [1], "data_offsets": [0, 4]}},
    {"x": {"dtype": "f32", "shape": [1], "data_offsets": [0, 4]}}, {"x": {"dtype": "F32", "shape": [2**64], "data_offsets": [0, 4]}},
    {"x": {"dtype": "F32", "shape": [2**62, 4, 1], "data_offsets": [0, 4]}}, {"x": None}, {"x": []}, {"__metadata__": []}, {"__metadata__": 0},
    {"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}, "y": {"dtype": "BOOL", "shape": [2], "data_offsets": [1, 3]}, "z": {"dtype": "BOOL", "shape": [1], "data_offsets": [3, 4]}},
    {"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}, "y": {"dtype": "BOOL", "shape": [1], "data_offsets": [3, 4]}},
    {"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [2, 4]}}, {"x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}},
    {"y": {"dtype": "BOOL", "shape": [2], "data_offsets": [2, 4]}, "x": {"dtype": "BOOL", "shape": [2], "data_offsets": [0, 2]}},
    b'{"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', b'{"\\ud800":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    b'{"x":{"dtype":"F32","shape":[' + b"1" * 10_000 + b'],"data_offsets":[0,4]}}', b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"a":NaN}}',
    '{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.encode("utf-16"),
], ids=str)  # fmt: skip
def test_headers_like_the_library(path, entries):
    agrees(path, header(entries, bytes(range(4))))


def test_a_name_that_occurs_twice(path):
    """The format forbids it; the library reads one of the two."""
    entry = '"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    path.write_bytes(header(f"{{{entry},{entry}}}".encode(), b"\0" * 4))
    with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors .*a name occurs twice"):
        mg.load(path)


def test_headers_that_others_would_refuse(path, monkeypatch):
    mg.save({"x": mg.ones(1)}, path)
    monkeypatch.setattr(serialization, "HEADER_LIMIT", 1000)
    for names in ({"x" * 1000: mg.ones(1)}, {"\ud800": mg.ones(1)}):
        with pytest.raises(
            ValueError, match=r"^\[save\] expected names and metadata (of at most 1,000 bytes|that UTF-8 can encode)"
        ):
            mg.save(names, path)
    with pytest.raises(ValueError, match=r"^\[save\] expected names and metadata that UTF-8 can encode, got .*ud800"):
        mg.save({}, path, metadata={"a": "b\ud800"})
    assert mg.load(path)["x"].tolist() == [1.0]
    mg.save({"x": mg.ones(900)}, path, metadata={"a": "b" * 900})
    monkeypatch.setattr(serialization, "HEADER_LIMIT", 900)
    with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors .*a header of"):
        mg.load(path)


def test_a_file_that_is_cut_while_it_is_read(path, monkeypatch):
    """A process that had mapped the file would be killed."""
    mg.save({"x": mg.ones(100_000), "y": mg.ones(3)}, path)
    read = serialization._entries

    def cut(file):
        entries = read(file)
        os.truncate(path, 200_000)
        return entries

    monkeypatch.setattr(serialization, "_entries", cut)
    with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors: 'x' .*ends after"):
        mg.load(path)


def test_shapes_of_nothing_that_do_not_fit(path):
    """Zero elements, but axes longer than memory: an error or an empty tensor, no crash."""
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [0, 2**62], "data_offsets": [0, 0]}}))
    with contextlib.suppress(ValueError, MemoryError):
        assert mg.load(path)["x"].size == 0


def test_a_shape_whose_product_is_astronomic(path):
    """It is refused immediately: numbers of a million digits are slow to multiply."""
    entry = {"dtype": "F32", "shape": [2**64 - 1] * 50_000, "data_offsets": [0, 4]}
    path.write_bytes(header({"x": entry}, b"\0" * 4))
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors .*the header describes 'x' as"):
        mg.load(path)
    assert time.perf_counter() - start < 1


def test_too_many_axes(path):
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}}, b"\0" * 4))
    with pytest.raises(ValueError, match=r"model\.safetensors.*x"):
        mg.load(path)


# ── dtypes that are converted ──

WIDE = [0.0, -0.0, 1.0, -1.5, 65504.0, 6e-8, np.inf, -np.inf, np.nan, 0.1, 3e38, 1e-40]


@pytest.mark.parametrize("dtype", ["float32", "float64", mg.float64, float])
def test_floats_are_converted(path, monkeypatch, dtype):
    """Every number is exact or, from float64 to float32, rounded; other dtypes are as stored."""
    torch = pytest.importorskip("torch")
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
    with pytest.raises(ValueError, match=r"got bfloat16 for 'brain' and 2 more: pass dtype=\"float32\" to convert"):
        mg.load(path)
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
    with pytest.raises(ValueError, match="not a complete safetensors file"):
        mg.load(path, dtype=dtype)


@pytest.mark.parametrize("dtype", ["int64", "float16", int, {"a": "b"}, 3])
def test_only_to_floats(path, dtype):
    mg.save({"x": mg.ones(1)}, path)
    with pytest.raises(TypeError, match=r"^\[load\] expected float32 or float64 as the dtype, got "):
        mg.load(path, dtype=dtype)


def test_sizes_of_halves_are_checked(path):
    path.write_bytes(header({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 3]}}, b"\0" * 3))
    with pytest.raises(ValueError, match="the header describes 'x' as"):
        mg.load(path, dtype="float32")


# ── other libraries ──


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_a_pickle_is_recognized_and_not_read(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.save(torch.arange(3.0), "it's.pt")
    torch.save(torch.arange(3.0), "old.pt", _use_new_zipfile_serialization=False)
    with open("evil.pkl", "wb") as file:
        pickle.dump(Malicious(), file)
    for name in ("it's.pt", "old.pt", "evil.pkl"):
        with pytest.raises(ValueError, match=r"^\[load\] .* is a pickle.* which is not read"):
            mg.load(name)
        assert not os.path.exists("ran")


def test_arrays_of_other_libraries(path):
    torch = pytest.importorskip("torch")
    a = np.arange(6.0).reshape(2, 3)
    mg.save(
        {
            "array": a.T,
            "big": a.astype(">f4"),
            "whole": np.arange(3),
            "theirs": torch.tensor([True, False]),
            "ours": mg.ones(1),
        },
        path,
    )
    loaded = mg.load(path)
    assert {name: x.dtype.name for name, x in loaded.items()} == {
        "array": "float64", "big": "float32", "whole": "int64", "theirs": "bool", "ours": "float32"
    }  # fmt: skip
    assert loaded["array"].tolist() == a.T.tolist()
    assert loaded["big"].tolist() == a.tolist()
    for wrong in (np.array(["a"]), np.ones(2, np.complex64), torch.ones(2, dtype=torch.complex64)):
        with pytest.raises(TypeError, match=r"^\[save\] 'x': "):
            mg.save({"x": wrong}, path)


def test_the_state_of_an_optimizer_is_for_checkpoints(path):
    model = nn.Linear(2, 1)
    optimizer = optim.Adam(model.parameters())
    with pytest.raises(TypeError, match=r"^\[save\] .* got Adam: save_checkpoint\(path, name=...\) saves its state"):
        mg.save(optimizer, path)
    for state in (optimizer.state_dict(), {"model": model.state_dict()}, {"epoch": 3}):
        with pytest.raises(
            TypeError, match=r"^\[save\] expected a Tensor or an array for .*: save_checkpoint also saves"
        ):
            mg.save(state, path)
    assert not path.exists()


def test_bytes_that_are_no_bool(path):
    path.write_bytes(header({"x": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}, bytes([0, 1, 2, 255])))
    loaded = mg.load(path)["x"]
    assert loaded.tolist() == [False, True, True, True]
    assert loaded.astype("int64").sum().item() == 3


def test_safetensors_is_imported_only_when_needed():
    code = "import sys, minigrad; sys.exit('safetensors' in sys.modules)"
    folder = Path(mg.__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, check=False).returncode == 0


def test_a_tensor_without_memory_is_refused(tmp_path):
    with pytest.raises(TypeError, match="'x'"):
        mg.save({"x": mg.Tensor.__new__(mg.Tensor)}, tmp_path / "file")
    assert not list(tmp_path.iterdir())
