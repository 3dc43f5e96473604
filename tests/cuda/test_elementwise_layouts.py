"""Elementwise kernels read packs of 16 bytes where the layout allows it: cases on both sides of each boundary."""

import itertools

import numpy as np
import pytest

import minigrad as mg
from minigrad.cuda import elementwise
from minigrad.engine.devices.cuda import layouts

# Packs of float32 have four elements; 1 to 5 elements, a block, and a remainder
SIZES = (0, 1, 3, 4, 5, 64, 1023, 2049)
SHAPES = ((1, 8), (8, 1), (5, 8), (5, 7), (33, 40), (64, 32))


@pytest.fixture(autouse=True, params=[elementwise.FEW_PLACES, 4])
def few(request, monkeypatch):
    """Let a thread work on one pack or element, or on several although there are few."""
    monkeypatch.setattr(elementwise, "FEW_PLACES", request.param)
    layouts.clear()
    yield
    layouts.clear()


def agree(f, *arrays):
    """Check that a function of tensors has the same value on both devices."""
    expected = f(*(mg.tensor(x) for x in arrays))
    got = f(*(mg.tensor(x, device="cuda:0") for x in arrays))
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    np.testing.assert_allclose(got.to("cpu").numpy(), expected.numpy(), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("n", SIZES)
def test_one_axis(n, rng):
    x, y = rng.standard_normal((2, n)).astype("float32")
    for f in (
        mg.exp, lambda a: a + 2.5, lambda a: 2.5 - a, lambda a: mg.exp(a[1:]), lambda a: a[1:] + a[:-1], lambda a: a[::-2],
        lambda a: a > 0, lambda a: a.to("float64"), lambda a: a.to("bool"), lambda a: (a > 0).to("float64"),
        lambda a: (a[1:] > 0).to("float32"), lambda a: (a > 0)[1:].to("bool").copy(), lambda a: mg.where(a > 0, a, 1.0),
    ):  # fmt: skip
        agree(f, x)
    agree(mg.add, x, y)
    agree(lambda a, b: mg.where(a > b, a, b), x, y)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_columns_and_windows(shape, rng):
    x = rng.standard_normal(shape).astype("float32")
    row, column = x[:1].copy(), x[:, :1].copy()
    for b in (row, column):
        for f in (mg.add, lambda a, b: b - a, lambda a, b: mg.where(b > 0, a, b), lambda a, b: mg.where(a > b, b, 0.0)):
            agree(f, x, b)
    for f in (
        lambda a: a[1:, 1:] * 2, lambda a: a[:, ::-1] + a, lambda a: a[:, 4:] * a[:, :-4], lambda a: a.T + a.T,
        lambda a: mg.broadcast_to(a[:, None], (shape[0], 3, shape[1])).copy(), lambda a: a[::-1].copy(),
    ):  # fmt: skip
        agree(f, x)


@pytest.mark.parametrize("dtype", ["bool", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_copies(shape, dtype, rng):
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    for f in (lambda a: a.T.contiguous(), lambda a: a[1:, 1:].T.contiguous(), lambda a: a[::2].T.contiguous()):
        agree(f, x)


def test_every_order_of_axes(rng):
    x = rng.standard_normal((3, 10, 2, 33)).astype("float32")
    for order in itertools.permutations(range(4)):
        agree(lambda a, order=order: mg.permute_dims(a, order).contiguous(), x)
        agree(lambda a, order=order: mg.permute_dims(a, order).to("float64"), x)


def test_an_operand_is_the_output(rng):
    def doubled(a):
        a += 1
        a[:, 1:] *= 2
        a.T[:] = a.T + a[:1].T
        return a

    agree(doubled, rng.standard_normal((9, 12)).astype("float32"))
