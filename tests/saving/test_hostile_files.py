"""Paths and files that cannot be read or written: absent, damaged, hostile, cut while they are read."""

import contextlib
import json
import os
import struct
import time

import pytest
import safetensors
from checks import raises, refuses
from hypothesis import given
from hypothesis import strategies as st

import minigrad as mg
from minigrad.saving import serialization


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def test_sizes_of_halves_are_checked(path):
    path.write_bytes(header({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 3]}}, b"\0" * 3))
    raises(ValueError, "the header describes 'x' as", mg.load, path, dtype="float32")


def test_bytes_that_are_no_bool(path):
    path.write_bytes(header({"x": {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}}, bytes([0, 1, 2, 255])))
    loaded = mg.load(path)["x"]
    assert loaded.tolist() == [False, True, True, True]
    assert loaded.astype("int64").sum().item() == 3


def test_absent_places(tmp_path):
    raises(FileNotFoundError, "absent", mg.load, tmp_path / "absent")
    with pytest.raises(FileNotFoundError) as caught:
        mg.save({"x": mg.ones(1)}, tmp_path / "absent" / "x")
    assert str(caught.value) == f"[Errno 2] No such file or directory: '{tmp_path / 'absent' / 'x'}'"
    raises(OSError, "irectory", mg.load, tmp_path)
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
        refuses(TypeError, "save", message, mg.save, obj, path)
    for metadata in ({"epoch": 7}, {7: "epoch"}, ["epoch"], "epoch"):
        refuses(TypeError, "save", "expected metadata of str to str", mg.save, {"x": x}, path, metadata=metadata)
    assert not path.exists()


def test_a_number_is_no_path(path):
    """open() would take a number for an open file, and close it afterwards."""
    with open(path, "wb+") as file:
        for call in (mg.load, lambda number: mg.save({"x": mg.ones(1)}, number)):
            raises(TypeError, rf"^\[(load|save)\] expected a path, got {file.fileno()}$", call, file.fileno())
        file.write(b"still open")


def test_metadata_that_is_null(path):
    path.write_bytes(
        header({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "__metadata__": None}, b"\0" * 4)
    )
    assert mg.load(path, metadata=True)[1] == {}
    refuses(ValueError, "load_checkpoint", "expected the format", mg.load_checkpoint, path)


def test_a_file_cut_anywhere(path):
    mg.save({"x": mg.ones((2, 3)), "y": mg.zeros(1, dtype="int64")}, path, metadata={"a": "b"})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"\[load\] .*model.safetensors") as caught:
            mg.load(path)
        assert str(path) in str(caught.value)
    path.write_bytes(whole + b"\0")
    raises(ValueError, r"\[load\]", mg.load, path)


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
    refuses(ValueError, "load", "model.safetensors", mg.load, path, metadata=True)


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
        raises(ValueError, r"\[load\]", mg.load, path)
        return
    if any(dtype in serialization.INTEGERS for dtype, _, _ in expected.values()):
        assert mg.load(path).keys() == expected.keys()
        return
    if any(dtype not in ("F32", "F64", "I32", "I64", "BOOL") for dtype, _, _ in expected.values()):
        raises(ValueError, "expected float32", mg.load, path)
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
                    b"", b"0", b"1", b"9", b"-", b".", b"e", b" ", b"{", b"}", b"[", b"]", b",", b'"', b":", b"\xff",
                    b"null", b"a", b"\0",
                ]
            )
        )  # fmt: skip
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
    refuses(ValueError, "load", ["model.safetensors", "a name occurs twice"], mg.load, path)


def test_headers_that_others_would_refuse(path, monkeypatch):
    mg.save({"x": mg.ones(1)}, path)
    monkeypatch.setattr(serialization, "HEADER_LIMIT", 1000)
    for names in ({"x" * 1000: mg.ones(1)}, {"\ud800": mg.ones(1)}):
        match = r"^\[save\] expected names and metadata (of at most 1,000 bytes|that UTF-8 can encode)"
        raises(ValueError, match, mg.save, names, path)
    with pytest.raises(ValueError, match=r"^\[save\] expected names and metadata that UTF-8 can encode, got .*ud800"):
        mg.save({}, path, metadata={"a": "b\ud800"})
    assert mg.load(path)["x"].tolist() == [1.0]
    mg.save({"x": mg.ones(900)}, path, metadata={"a": "b" * 900})
    monkeypatch.setattr(serialization, "HEADER_LIMIT", 900)
    refuses(ValueError, "load", ["model.safetensors", "a header of"], mg.load, path)


def test_a_file_that_is_cut_while_it_is_read(path, monkeypatch):
    """A process that had mapped the file would be killed."""
    mg.save({"x": mg.ones(100_000), "y": mg.ones(3)}, path)
    read = serialization._entries

    def cut(file):
        entries = read(file)
        os.truncate(path, 200_000)
        return entries

    monkeypatch.setattr(serialization, "_entries", cut)
    refuses(ValueError, "load", ["model.safetensors: 'x'", "ends after"], mg.load, path)


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
    refuses(ValueError, "load", ["model.safetensors", "the header describes 'x' as"], mg.load, path)
    assert time.perf_counter() - start < 1


def test_too_many_axes(path):
    path.write_bytes(header({"x": {"dtype": "F32", "shape": [1] * 70, "data_offsets": [0, 4]}}, b"\0" * 4))
    raises(ValueError, r"model\.safetensors.*x", mg.load, path)
