"""Kernels divide their work by sizes and layouts: cases on both sides of each boundary have the same bits."""

import itertools

import numpy as np
import pytest
from checks import agree

import minigrad as mg
from minigrad.cuda import elementwise, norms
from minigrad.engine.devices.cuda import layouts
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

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


def on_both_devices(f, *arrays):
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
        on_both_devices(f, x)
    on_both_devices(mg.add, x, y)
    on_both_devices(lambda a, b: mg.where(a > b, a, b), x, y)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_columns_and_windows(shape, rng):
    x = rng.standard_normal(shape).astype("float32")
    row, column = x[:1].copy(), x[:, :1].copy()
    for b in (row, column):
        for f in (mg.add, lambda a, b: b - a, lambda a, b: mg.where(b > 0, a, b), lambda a, b: mg.where(a > b, b, 0.0)):
            on_both_devices(f, x, b)
    for f in (
        lambda a: a[1:, 1:] * 2, lambda a: a[:, ::-1] + a, lambda a: a[:, 4:] * a[:, :-4], lambda a: a.T + a.T,
        lambda a: mg.broadcast_to(a[:, None], (shape[0], 3, shape[1])).copy(), lambda a: a[::-1].copy(),
    ):  # fmt: skip
        on_both_devices(f, x)


@pytest.mark.parametrize("dtype", ["bool", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_copies(shape, dtype, rng):
    x = (3 * rng.standard_normal(shape)).astype(dtype)
    for f in (lambda a: a.T.contiguous(), lambda a: a[1:, 1:].T.contiguous(), lambda a: a[::2].T.contiguous()):
        on_both_devices(f, x)


def test_every_order_of_axes(rng):
    x = rng.standard_normal((3, 10, 2, 33)).astype("float32")
    for order in itertools.permutations(range(4)):
        on_both_devices(lambda a, order=order: mg.permute_dims(a, order).contiguous(), x)
        on_both_devices(lambda a, order=order: mg.permute_dims(a, order).to("float64"), x)


def test_an_operand_is_the_output(rng):
    def doubled(a):
        a += 1
        a[:, 1:] *= 2
        a.T[:] = a.T + a[:1].T
        return a

    on_both_devices(doubled, rng.standard_normal((9, 12)).astype("float32"))


# ── reductions split long columns into pieces ────────────────────────────────────────────────────────


# Rows have two pieces from 8,192 elements on, and columns of a tile of 32 from 256 on; the threads of a row are a warp
# up to 2,048 elements.
COLUMNS = (
    (1, 8_191), (1, 8_192), (1, 8_193), (5, 2_048), (5, 2_049), (3, 20_001), (20_001, 1), (255, 32), (256, 32),
    (257, 33), (2_050, 3),
)  # fmt: skip


@pytest.mark.parametrize("shape", COLUMNS)
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces(shape, axis, rng):
    values = rng.standard_normal(shape).astype("float32")
    values[tuple(n - 1 for n in shape)] = 9
    x = mg.tensor(values, device="cuda:0")
    for name in ("sum", "max", "min", "argmax", "argmin", "var"):
        expected = getattr(np, name)(values.astype("float64"), axis=axis)
        got = getattr(mg, name)(x, axis=axis).to("cpu").numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4, err_msg=name)
    for name in ("any", "all"):
        np.testing.assert_array_equal(getattr(mg, name)(x > 3, axis=axis).to("cpu").numpy(),
                                      getattr(np, name)(values > 3, axis=axis))  # fmt: skip


# ── batch norms read several columns at once ─────────────────────────────────────────────────────────


def results(values, offset):
    """Return y, the statistics and the gradients, with memory that begins at an offset."""
    x, w, b, g = (
        mg.tensor(np.concatenate([np.zeros(offset, v.dtype), v.ravel()]), device="cuda:0")[offset:].reshape(v.shape)
        for v in values
    )
    leaves = [one.requires_grad_() for one in (x, w, b)]
    y, mean, var = batch_norm_train(*leaves)
    given = batch_norm_eval(leaves[0], b.detach(), mg.exp(w.detach()), *leaves[1:])
    found = y, mean, var, *mg.grad(y, leaves, g), given, *mg.grad(given, leaves, g)
    return [one.detach().to("cpu").numpy() for one in found]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(600, 128), (513, 132), (2_100, 20), (530, 12, 7), (700, 64, 4)])
def test_packs_change_nothing(shape, dtype, rng, monkeypatch, request):
    request.addfinalizer(norms.ChannelTile.cache_clear)  # the other tests need the real number of multiprocessors
    columns = shape[1]
    values = [rng.standard_normal(s).astype(dtype) for s in (shape, columns, columns, shape)]
    values[0][:, 3] += 1000  # far from the mean of its first elements
    values[0][:4, 3] = -9
    found, launched = {}, []
    original = norms.launch

    def launch(file, kernel, *arguments, **options):
        launched.append(kernel)
        return original(file, kernel, *arguments, **options)

    monkeypatch.setattr(norms, "launch", launch)
    for multiprocessors in (0, 1 << 30):
        monkeypatch.setattr(norms, "MULTIPROCESSORS", multiprocessors)
        norms.ChannelTile.cache_clear()
        for offset in (0, 1):
            launched.clear()
            found[multiprocessors, offset] = results(values, offset)
            packed = {"batch_norm_packs", "batch_norm_packs_backward"} & set(launched)
            assert len(packed) == (2 if multiprocessors == 0 else 0)
    first, *others = found.values()
    for other in others:
        agree(other, first)
