"""Combining samples into batches."""

from typing import NamedTuple

import numpy as np
import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad import data


class Pair(NamedTuple):
    x: object
    y: object


@pytest.mark.parametrize("samples, dtype, values", [
    ([1, 2], "int64", [1, 2]), ([1.5, 2], "float32", [1.5, 2.0]), ([True, False], "bool", [True, False]),
    ([np.float64(1764230401.0), 2.0], "float64", [1764230401.0, 2.0]), ([np.int32(3)], "int32", [3]),
    ([np.ones(2, np.float32), np.zeros(2, np.float32)], "float32", [[1.0, 1.0], [0.0, 0.0]]),
    ([np.ones((1, 1)), np.zeros((1, 1))], "float64", [[[1.0]], [[0.0]]]),
    ([mg.ones(2), mg.zeros(2)], "float32", [[1.0, 1.0], [0.0, 0.0]]),
    ([mg.ones(2), np.zeros(2, np.float32)], "float32", [[1.0, 1.0], [0.0, 0.0]]),
])  # fmt: skip
def test_numbers_and_arrays(samples, dtype, values):
    batch = data.collate(samples)
    assert batch.dtype == dtype
    assert batch.tolist() == values


def test_structures():
    x, (y, names) = data.collate([(0.5, [1, "one"]), (1.5, [2, "two"])])
    assert (x.tolist(), y.tolist(), names) == ([0.5, 1.5], [1, 2], ["one", "two"])
    batch = data.collate([{"x": 1, "y": np.ones(2)}, {"x": 2, "y": np.ones(2)}])
    assert (batch["x"].tolist(), batch["y"].shape) == ([1, 2], (2, 2))
    pair = data.collate([Pair(1, 2.0), Pair(3, 4.0)])
    assert (type(pair), pair.x.tolist(), pair.y.tolist()) == (Pair, [1, 3], [2.0, 4.0])


def test_a_batch_is_a_copy():
    x = np.ones(2)
    batch = data.collate([x])
    x[0] = 5
    assert batch.tolist() == [[1.0, 1.0]]


@pytest.mark.parametrize("samples, error, message", [
    ([], ValueError, "at least one sample"), ([np.ones(2), np.ones(3)], ValueError, r"one shape, got \(2,\) and \(3,\)"),
    ([(1, 2), (1,)], ValueError, "one length, got 2 and 1"), ([{"a": 1}, {"b": 1}], ValueError, r"keys \['a'\], got .*\['b'\]"),
    ([None, None], TypeError, "got NoneType"), (["a", 3], TypeError, "got int, str"), ([3, "a"], TypeError, "got int, str"), ([(1,), [1]], TypeError, "got list, tuple"),
    ([mg.ones(2), mg.ones(())], ValueError, r"\(2,\) and \(\)"),
])  # fmt: skip
def test_samples_that_do_not_fit(samples, error, message):
    raises(error, rf"\[collate\] expected .*{message}", data.collate, samples)


def test_samples_that_contain_themselves():
    sample = [1.0]
    sample.append(sample)
    refuses(ValueError, "collate", "expected samples with a few levels", data.collate, [sample, sample])
