"""Files and arrays of other libraries: what the errors advise works, and no tensor makes a file unreadable."""

import bz2
import gzip
import json
import pathlib
import pickle
import zipfile

import joblib
import numpy as np
import pytest
import safetensors
from checks import raises, refuses
from peers import torch
from safetensors.numpy import save_file

import minigrad as mg
from minigrad import nn

STATE = {"w": np.arange(6.0).reshape(2, 3), "n": np.array(4), "half": np.ones(2, np.float16)}


def advice(path):
    """Return the code in the message about a file."""
    with pytest.raises(ValueError, match=r"^\[load\] ") as caught:
        mg.load(path)
    return [line.strip() for line in str(caught.value).split("\n    ")[1:]]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def follow(path, **names):
    exec("\n".join(advice(path)), {"mg": mg, "np": np, **names})
    return {name: x.tolist() for name, x in mg.load("model.safetensors").items()}


LISTS = {name: x.tolist() for name, x in STATE.items()}


def test_files_of_numpy_joblib_and_pickle():
    np.savez("it's.npz", **STATE)
    np.savez_compressed("small.npz", **STATE)
    joblib.dump(STATE, "state.joblib")
    joblib.dump(STATE, "small.joblib", compress=3)
    joblib.dump(STATE, "state.sav")
    with open("state.pkl", "wb") as file:
        pickle.dump(STATE, file)
    for name in ("it's.npz", "small.npz", "state.joblib", "small.joblib", "state.sav", "state.pkl"):
        assert follow(name, joblib=joblib, pickle=pickle) == LISTS
        pathlib.Path("model.safetensors").unlink()
    np.save("x.npy", STATE["half"])
    assert follow("x.npy") == {"x": LISTS["half"]}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_files_of_torch():
    """Also of float16, bfloat16, uint8 and parameters; and checkpoints with numbers, by the second line."""
    state = {
        "w": torch.nn.Parameter(torch.ones(2, 3)), "half": torch.ones(2).half(), "brain": torch.ones(2).bfloat16(),
        "small": torch.full((2,), 200, dtype=torch.uint8), "n": torch.tensor(4),
    }  # fmt: skip
    for options in ({}, {"_use_new_zipfile_serialization": False}):
        torch.save(state, "it's.pt", **options)
        weights, _ = advice("it's.pt")
        exec(weights, {"mg": mg, "torch": torch})
        assert {name: x.tolist() for name, x in mg.load("model.safetensors").items()} == {
            name: x.tolist() for name, x in state.items()
        }
        torch.save({"epoch": 3, "model": state, "lr": 0.5, "names": ["a"]}, "all.pt", **options)
        _, everything = advice("all.pt")
        exec(everything, {"mg": mg, "torch": torch})
        loaded = mg.load_checkpoint("model.safetensors")
        assert (loaded["epoch"], loaded["lr"], loaded["names"]) == (3, 0.5, ["a"])
        assert loaded["model"]["brain"].tolist() == [1, 1]
    theirs = torch.nn.Linear(2, 3)
    torch.jit.save(torch.jit.script(theirs), "script.pt")
    assert follow("script.pt", torch=torch) == {name: x.tolist() for name, x in theirs.state_dict().items()}


def test_an_index_of_several_files():
    mg.save({"a": mg.ones(1)}, "one.safetensors")
    mg.save({"b": mg.zeros(1)}, "two.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    pathlib.Path("model.safetensors.index.json").write_text(json.dumps(index, indent=1))
    names = {"mg": mg, "json": json, "pathlib": pathlib}
    exec("\n".join(advice("model.safetensors.index.json")), names)
    assert {name: x.tolist() for name, x in names["tensors"].items()} == {"a": [1.0], "b": [0.0]}


def zipped(name):
    with zipfile.ZipFile("archive", "w") as file:
        file.writestr(name, "x")
    return pathlib.Path("archive").read_bytes()


@pytest.mark.parametrize("name, content, message", [
    ("x.h5", b"\x89HDF\r\n\x1a\n" + bytes(20), "an HDF5 file. With h5py"), ("x.gguf", b"GGUF\3\0\0\0", "a GGUF file. With gguf"),
    ("x.onnx", b"\x08\x0e\x12\x07pytorch:=\n\x10", "an ONNX model. With onnx"), ("x.ckpt", b"\n\x2f\n\x06weight\x12", "no safetensors file. If MindSpore"),
    ("x.pdparams", pickle.dumps(STATE), r"a pickle, .*\n    mg.save\(paddle.load"), ("x.keras", lambda: zipped("metadata.json"), "an archive, as Keras"),
    ("x.zip", lambda: zipped("x.txt"), "a zip archive: unpack"), ("x.gz", gzip.compress(b"x", mtime=0), "a compressed file: unpack"), ("x.bz2", bz2.compress(b"x"), "a compressed file: unpack"),
    ("x.csv", "a,б\n1,2\n".encode(), "a text file"), ("x.safetensors", b"<!DOCTYPE html><html>", "a web page"),
    ("x.safetensors", b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS"),
    ("x.bin", bytes(range(128, 200)), "not a complete safetensors file: it does not begin with the length of a header"),
])  # fmt: skip
def test_other_files_are_named(name, content, message):
    pathlib.Path(name).write_bytes(content() if callable(content) else content)
    raises(ValueError, rf"^\[load\] {name} is {message}", mg.load, name)


# ── dtypes ──


def test_other_integers_are_read_in_wider_dtypes(monkeypatch):
    monkeypatch.setattr("minigrad.saving.serialization.CHUNK", 2)
    limits = {name: np.iinfo(name) for name in ("uint8", "int8", "uint16", "int16", "uint32")}
    arrays = {name: np.array([limit.min, 1, limit.max], name) for name, limit in limits.items()}
    arrays |= {"uint64": np.array([0, 2**63 - 1], np.uint64), "x": np.ones((2, 1))}
    save_file(arrays, "a")
    for loaded in (mg.load("a"), mg.load("a", dtype="float64")):
        assert {name: x.tolist() for name, x in loaded.items()} == {name: x.tolist() for name, x in arrays.items()}
        kinds = {name: "int64" if name in ("uint32", "uint64") else "int32" for name in arrays} | {"uint8": "uint8"}
        assert {name: x.dtype.name for name, x in loaded.items()} == {**kinds, "x": "float64"}
    mg.save(arrays, "b")
    assert {name: x.tolist() for name, x in mg.load("b").items()} == {name: x.tolist() for name, x in arrays.items()}
    save_file({"x": np.array([2**63], np.uint64)}, "a")
    refuses(ValueError, "load", ["a: 'x'", ": expected integers below 2**63, got 9223372036854775808"], mg.load, "a")
    with pytest.raises(TypeError, match=r"^\[save\] 'x': .* got values from 9223372036854775808"):
        mg.save({"x": np.array([2**63], np.uint64)}, "b")


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16"])
def test_small_floats(kind):
    """Each of them, from a file, from `save`, and into a parameter."""
    from safetensors.torch import save_file

    dtype = getattr(torch, kind)
    bits = torch.arange(256, dtype=torch.uint8) if dtype.itemsize == 1 else torch.arange(-(2**15), 2**15).short()
    values = bits.view(dtype)
    save_file({"x": values, "y": torch.ones(1)}, "a")
    raises(ValueError, rf'got {kind} for \'x\': pass dtype="float32" to convert', mg.load, "a")
    mg.save({"x": values}, "b")
    layer = nn.Module()
    layer.register_parameter("x", nn.Parameter(mg.zeros(len(values))))
    layer.load_state_dict({"x": values})
    for x in (mg.load("a", dtype="float32")["x"], mg.load("b")["x"], layer.x.detach()):
        np.testing.assert_array_equal(x.numpy(), values.float().numpy())
        np.testing.assert_array_equal(np.signbit(x.numpy()), np.signbit(values.float().numpy()))


def test_a_dtype_that_cannot_be_read():
    """The library reads the other tensors of the file, as the message says."""
    save_file({"x": np.ones(2, np.complex64), "y": np.ones(3), "z": np.ones(2, np.complex64)}, "it's")
    for options in ({}, {"dtype": "float32"}):
        with pytest.raises(ValueError, match=r"expected float32.* got C64 for 'x' and 1 more: ") as caught:
            mg.load("it's", **options)
    found = str(caught.value).partition("1 more: ")[2].partition(" reads")
    names = {"safetensors": safetensors, "name": "y"}
    assert eval(found[0], names).tolist() == [1, 1, 1]


def test_arrays_that_are_saved():
    """Numbers of NumPy, other libraries' arrays without DLPack, and arrays in checkpoints."""

    class Stored:
        dtype = np.dtype("float32")

        def __array__(self, dtype=None, copy=None):
            return np.ones(3, np.float32)

    mg.save({"number": np.float32(2), "stored": Stored(), "big": np.ones(2, ">f2")}, "a")
    assert {name: x.tolist() for name, x in mg.load("a").items()} == {"number": 2, "stored": [1] * 3, "big": [1, 1]}
    mg.save_checkpoint("a", x={"y": np.ones(2, np.uint8)}, number=np.float64(0.5))
    loaded = mg.load_checkpoint("a")
    assert (loaded["x"]["y"].tolist(), loaded["number"]) == ([1, 1], 0.5)
    refuses(TypeError, "save_checkpoint", ["x.0:", "got ndarray of <U1"], mg.save_checkpoint, "a", x=[np.array("a")])
