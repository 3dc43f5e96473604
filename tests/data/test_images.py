"""MNIST's files, compressed and not, and scikit-learn's images of digits; files that are wrong are rejected."""

import builtins
import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from checks import raises, refuses
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import data
from minigrad.data.digits import interpolation


def idx(values, *, magic=None):
    """Make an IDX file of bytes."""
    return struct.pack(f">{1 + values.ndim}I", magic or 2048 + values.ndim, *values.shape) + values.tobytes()


@pytest.fixture
def digits(rng):
    return rng.integers(0, 256, (5, 28, 28), np.uint8), rng.integers(0, 10, 5).astype(np.uint8)


@pytest.fixture
def folder(tmp_path, digits):
    images, labels = digits
    for prefix in ("train", "t10k"):
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels))
    return tmp_path


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("packed", ["plain", "gz", "gz without its name"])
def test_reading(folder, digits, split, packed):
    if packed != "plain":
        for path in list(folder.iterdir()):
            content = gzip.compress(path.read_bytes())
            path.unlink()
            path.with_name(path.name + ".gz" * (packed == "gz")).write_bytes(content)
    images, labels = data.mnist(folder, split)[:]
    assert images.dtype == mg.float32
    assert labels.dtype == mg.int64
    np.testing.assert_array_equal(images.numpy(), (digits[0] / 255).astype(np.float32))
    assert labels.tolist() == digits[1].tolist()


def test_unpacked_by_the_browser(folder, digits):
    """Read a file whose name ends in .gz, but which is not compressed."""
    path = folder / "train-images-idx3-ubyte"
    path.rename(folder / "train-images-idx3-ubyte.gz")
    assert data.mnist(str(folder))[0][1].item() == digits[1][0]


def test_absent(folder, tmp_path):
    match = r"\[mnist\] expected train-images-idx3-ubyte or train-images-idx3-ubyte.gz at .*download it from https:"
    with pytest.raises(FileNotFoundError, match=match) as caught:
        data.mnist(tmp_path / "absent")
    assert str(tmp_path / "absent") in str(caught.value)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    raises(FileNotFoundError, "t10k-labels-idx1-ubyte or", data.mnist, folder, "test")
    refuses(ValueError, "mnist", "expected the split 'train' or 'test', got 'dev'", data.mnist, folder, "dev")


def refused(folder, name, content, message):
    path = folder / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"\[mnist\] expected {message}") as caught:
        data.mnist(folder)
    assert str(path) in str(caught.value)
    assert "download the file again from https:" in str(caught.value)
    path.unlink()


def test_cut_anywhere(folder, digits):
    """No truncated file is accepted, whether compressed or not."""
    (folder / "train-labels-idx1-ubyte").unlink()
    whole = idx(digits[1])
    for length in range(len(whole)):
        refused(folder, "train-labels-idx1-ubyte", whole[:length], "")
    packed = gzip.compress(whole)
    for length in range(len(packed)):
        refused(folder, "train-labels-idx1-ubyte.gz", packed[:length], "")


@pytest.mark.parametrize("shape", [(5, 28, 28), (2**31, 28, 28)])
def test_memory(folder, shape):
    """Neither the decompressed size nor the size in the header is allocated: this file decompresses to 512 MB."""
    header, zeros = struct.pack(">4I", 2051, *shape), gzip.compress(bytes(1 << 24))
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(gzip.compress(header) + (zeros * 32 if shape[0] == 5 else b""))
    tracemalloc.start()
    match = rf"\[mnist\] expected {shape[0] * 784} values .*got {'3921' if shape[0] == 5 else 0}"
    raises(ValueError, match, data.mnist, folder)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 23


def test_wrong_files(folder, digits):
    images, labels = digits
    name = "train-images-idx3-ubyte"
    half = gzip.compress(idx(images))
    refused(folder, name, half[: len(half) // 2], "a whole gzip file")
    refused(folder, name, b"\x1f\x8b" + bytes(40), "a whole gzip file")
    broken = bytearray(half)
    broken[len(half) // 2] ^= 255
    refused(folder, name, bytes(broken), "a whole gzip file")
    refused(folder, name, idx(labels), "the first bytes 00 00 08 03 .*got 00 00 08 01")
    refused(folder, name, b"<!DOCTYPE html>", "the first bytes .*got 3c 21 44 4f")
    refused(folder, name, idx(images, magic=0x0D03), "the first bytes")
    refused(folder, name, idx(images)[:-1], r"3920 values for the shape \(5, 28, 28\) .*got 3919")
    refused(folder, name, idx(images) + b"\0", "3920 values .*got 3921")
    refused(folder, name, struct.pack(">4I", 2051, *[2**32 - 1] * 3), f"{(2**32 - 1) ** 3} values .*got 0")
    refused(folder, name, idx(images)[:10], "3 lengths at .*got the first 10 bytes")
    refused(folder, name, idx(images[:, :27]), r"images of 28 x 28 pixels at .*got \(27, 28\)")
    (folder / name).write_bytes(idx(images))
    refused(folder, "train-labels-idx1-ubyte", idx(labels[:4]), "5 labels at .*got 4")
    refused(folder, "train-labels-idx1-ubyte", idx(labels + np.uint8(10)), "labels from 0 to 9 at .*got 1")


# ── scikit-learn's digits ────────────────────────────────────────────────────────────────────────────


def test_digits_are_scikit_learns():
    parts = {split: data.digits(split)[:] for split in ("train", "test")}
    assert [len(y) for _, y in parts.values()] == [1438, 359]
    x = np.concatenate([x.numpy() for x, _ in parts.values()])
    y = np.concatenate([y.numpy() for _, y in parts.values()])
    assert (x.dtype, y.dtype, x.shape) == (np.float32, np.int64, (1797, 8, 8))
    theirs = load_digits()
    ours = sorted((image.tobytes(), label) for image, label in zip(x, y, strict=True))
    expected = (theirs.images / 16).astype(np.float32)
    assert ours == sorted((image.tobytes(), label) for image, label in zip(expected, theirs.target, strict=True))


def test_the_division_follows_from_the_seed():
    (x, _), (again, _), (other, _) = data.digits("test")[:], data.digits("test")[:], data.digits("test", seed=1)[:]
    assert x.tolist() == again.tolist() != other.tolist()
    mg.manual_seed(5)
    assert data.digits("test")[:][0].tolist() == x.tolist()
    assert np.bincount(data.digits("test")[:][1].numpy()).min() > 20  # every digit is there


def test_enlarging():
    (small, labels), (large, same) = data.digits("test")[:], data.digits("test", size=28)[:]
    assert large.shape == (359, 28, 28)
    assert large.dtype == mg.float32
    assert labels.tolist() == same.tolist()
    assert 0 <= large.min().item() <= large.max().item() <= 1
    torch = pytest.importorskip("torch")
    theirs = torch.nn.functional.interpolate(torch.tensor(small.numpy())[:, None], (28, 28), mode="bilinear")
    np.testing.assert_allclose(large.numpy(), theirs[:, 0].numpy(), atol=1e-6)


def test_interpolation():
    weights = interpolation(8, 28)
    np.testing.assert_allclose(weights.sum(1), 1)
    places = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    np.testing.assert_allclose(weights @ np.arange(8), places)
    np.testing.assert_array_equal(interpolation(8, 8), np.eye(8))


def test_arguments_of_digits():
    refuses(ValueError, "digits", "expected the split 'train' or 'test', got 'valid'", data.digits, "valid")
    refuses(ValueError, "digits", "expected size 8 or 28, got 16", data.digits, size=16)


def test_without_scikit_learn(monkeypatch):
    importing = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return importing(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    refuses(ImportError, "digits", ["expected scikit-learn", "pip install scikit-learn"], data.digits)
