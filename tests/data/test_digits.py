"""Scikit-learn's images of digits."""

import builtins

import numpy as np
import pytest
from checks import refuses
from sklearn.datasets import load_digits

import minigrad as mg
from minigrad import data
from minigrad.data.digits import interpolation


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
