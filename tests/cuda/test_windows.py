"""Convolution and pooling on a GPU for the numbers of blocks and tiles that small tests never reach."""

import numpy as np
import pytest
from checks import agree, refuses

import minigrad as mg
from minigrad.cuda import launch, windows
from minigrad.nn import functional as F


@pytest.fixture(autouse=True)
def restored():
    yield
    mg.set_float32_matmul_precision("highest")


NARROW, WIDE = 1 << 30, 1  # multiprocessors for which tiles are narrow; and wide, where there are rows enough


def convolved(values, g, device, **options):
    """Return the result of conv2d and all gradients."""
    leaves = [mg.tensor(a, device=device, requires_grad=True) for a in values]
    y = F.conv2d(*leaves, **options)
    found = [y, *mg.grad(y, leaves, mg.tensor(g, device=device))]
    return [a.detach().to("cpu").numpy() for a in found]


@pytest.mark.parametrize("dtype, precision, tolerance", [
    ("float32", "highest", 1e-4), ("float32", "high", 1e-4), ("float64", "highest", 1e-12),
])  # fmt: skip
@pytest.mark.parametrize("shape, weight, options", [
    ((3, 18, 9, 10), (70, 18, 3, 3), {"padding": 1}),
    ((2, 40, 11, 9), (36, 20, 3, 2), {"stride": (2, 3), "padding": (1, 0), "dilation": (1, 2), "groups": 2}),
])  # fmt: skip
def test_tiles_change_no_bit(shape, weight, options, dtype, precision, tolerance, monkeypatch, rng):
    """Results and gradients are the same for every tile and number of blocks, and equal the CPU's."""
    drawn = "float16" if precision == "high" else dtype  # numbers that TF32 holds
    values = [rng.standard_normal(s).astype(drawn).astype(dtype) for s in (shape, weight, weight[:1])]
    with mg.no_grad():
        size = F.conv2d(*map(mg.tensor, values), **options).shape
    g = rng.standard_normal(size).astype(drawn).astype(dtype)
    mg.set_float32_matmul_precision(precision)
    expected = convolved(values, g, "cpu", **options)
    found = []
    for processors, most in ((NARROW, launch.MOST_BLOCKS), (WIDE, launch.MOST_BLOCKS), (WIDE, 2)):
        monkeypatch.setattr(windows, "MULTIPROCESSORS", processors)
        monkeypatch.setattr(windows, "MOST_BLOCKS", most)
        found.append(convolved(values, g, "cuda", **options))
        for ours, other in zip(found[-1], expected, strict=True):
            np.testing.assert_allclose(ours, other, rtol=tolerance, atol=tolerance * np.abs(other).max())
    for others in found[1:]:
        agree(found[0][:2], others[:2])


def test_which_tiles_there_are():
    """LeNet has narrow tiles, 64 channels on 56 x 56 wide ones; a small batch of these gets narrow ones, to have more."""
    assert windows.tiling(16, 64 * 8 * 8, 1) == ("narrow", 64)
    assert windows.tiling(64, 32 * 56 * 56, 1) == ("wide", 784)
    assert windows.tiling(64, 56 * 56, 1) == ("narrow", 196)


def test_sums_of_float32_are_not_long():
    """However many positions there are, one thread sums at most 4096 of them, and no piece is empty."""
    for positions in (0, 1, 127, 128, 10**5, 10**7):
        pieces = windows.cut(positions, "narrow", 6, 26, 1)
        assert -(-positions // pieces) <= 4096
        assert pieces == 1 or positions // pieces >= 128
    assert windows.cut(10**6, "wide", 64, 577, 1) == 245


def test_pooling_goes_on_beyond_the_grid(monkeypatch, rng):
    monkeypatch.setattr(launch, "MOST_BLOCKS", 1)
    x, g = rng.standard_normal((3, 5, 20, 24)), rng.standard_normal((3, 5, 10, 12))
    h = rng.standard_normal((3, 5, 1, 2))
    for pool, given in (
        (lambda a: F.max_pool2d(a, 3, 2, 1), g),
        (lambda a: F.avg_pool2d(a, 3, 2, 1), g),
        (lambda a: F.adaptive_avg_pool2d(a, (1, 2)), h),
    ):
        both = []
        for device in ("cpu", "cuda"):
            leaf = mg.tensor(x, device=device, requires_grad=True)
            y = pool(leaf)
            (dx,) = mg.grad(y, [leaf], mg.tensor(given, device=device))
            both.append([a.detach().to("cpu").numpy() for a in (y, dx)])
        agree(both[1], both[0], rtol=1e-12, atol=1e-13)


def test_axes_that_are_too_long_are_refused(monkeypatch):
    monkeypatch.setattr(windows, "LONGEST", 8)
    x, w = mg.ones((1, 1, 3, 8), device="cuda"), mg.ones((1, 1, 2, 2), device="cuda")
    refuses(ValueError, "conv2d", ["expected axes of less than 8", "got shape (1, 1, 3, 8)"], F.conv2d, x, w)


def test_tables_of_windows_are_sent_once(monkeypatch):
    """The second step of an average pooling does not wait for a transfer."""
    import cupy

    x = mg.ones((1, 2, 9, 13), device="cuda")
    F.avg_pool2d(x, (3, 5))
    monkeypatch.setattr(cupy.cuda.runtime, "memcpyAsync", None)
    assert F.avg_pool2d(x, (3, 5)).shape == (1, 2, 3, 2)
