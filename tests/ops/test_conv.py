"""Convolution: the table, random configurations against PyTorch, and sizes beyond every block of the kernels."""

import numpy as np
import pytest
from checks import Suite, agree, array, close, litter, refuses, tensor
from table.windows import CONV

import minigrad as mg
from minigrad.nn import functional as F

# PyTorch warns that it copies x for such windows.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


class TestTable(Suite):
    ops = CONV


def same_zeros(shape, weight, stride, dilation):
    """Return the zeros of TensorFlow's "SAME", by the formula of its documentation, last axis first as `pad` has them."""
    zeros = []
    for length, k, s, d in zip(shape[::-1], weight[::-1], stride[::-1], dilation[::-1], strict=False):
        span = d * (k - 1) + 1
        total = max(span - (length % s or s), 0)
        zeros += [total // 2, total - total // 2]
    return zeros


def beside_torch(shape, weight, bias, dtype, rng, device, ulps, **options):
    """Return the result and the gradients of all operands for a random cotangent."""
    torch = pytest.importorskip("torch")
    operands = [rng.standard_normal(s).astype(dtype) for s in (shape, weight, *([weight[:1]] if bias else []))]
    ours = [tensor(a, device, requires_grad=True) for a in operands]
    theirs = [torch.tensor(a, requires_grad=True) for a in operands]
    litter(device)
    y, padded = F.conv2d(*ours, **options), theirs[0]
    if options.get("padding") == "same":  # PyTorch has it for a stride of 1 only
        zeros = same_zeros(shape, weight, options["stride"], options["dilation"])
        padded, options = torch.nn.functional.pad(padded, zeros), {**options, "padding": 0}
    expected = torch.nn.functional.conv2d(padded, *theirs[1:], **options)
    assert y.shape == tuple(expected.shape)
    g = rng.standard_normal(y.shape).astype(dtype)
    found = [array(a) for a in mg.grad(y, ours, tensor(g, device))]
    wanted = [a.numpy() for a in torch.autograd.grad(expected, theirs, torch.from_numpy(g))]
    for a, b in zip([array(y), *found], [expected.detach().numpy(), *wanted], strict=True):
        close(a, b, ulps, dtype, f"{shape} {weight} {options}")


@pytest.mark.parametrize("seed", range(200))
def test_random_configurations_beside_torch(seed, device):
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 1, 2, 3]))
    kernel, stride, dilation = (tuple(int(n) for n in rng.integers(1, high, 2)) for high in (6, 4, 4))
    padding = tuple(int(n) for n in rng.integers(0, 4, 2))
    if rng.random() < 0.3:
        stride, dilation, padding = (1, 1), (1, 1), (0, 0)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    size = [int(max(1, r - 2 * p) + rng.choice([0, 3, 7, 15, 31])) for r, p in zip(reach, padding, strict=True)]
    shape = (int(rng.integers(0, 4)), groups * int(rng.integers(1, 8)), *size)
    weight = (groups * int(rng.integers(1, 20)), shape[1] // groups, *kernel)
    if rng.random() < 0.3:
        padding = "same"
    dtype = "float32" if seed % 4 == 0 else "float64"
    beside_torch(
        shape[0 if seed % 7 else 1 :], weight, seed % 3 > 0, dtype, rng, device, 64,
        stride=stride, padding=padding, dilation=dilation, groups=groups,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("size", "window"), [((42, 50), (3, 3)), ((5, 302), (3, 3)), ((4, 602), (2, 3))])
def test_images_larger_than_a_stretch_of_positions(size, window, dtype, rng, device):
    beside_torch((2, 2, *size), (3, 2, *window), True, dtype, rng, device, 256)


def test_same_is_that_of_the_others(device):
    """As recorded with tf.nn.conv2d (2.15.1), keras.layers.Conv2D (3.15.1) and flax.nnx.Conv (0.12.8)."""
    x, w = (mg.arange(1.0, 31.0).reshape(1, 1, 6, 5), (2.0 ** mg.arange(9.0)).reshape(1, 1, 3, 3))
    recorded = [[4810.0, 6512.0, 3062.0], [9190.0, 11622.0, 5252.0], [1410.0, 1756.0, 786.0]]
    assert F.conv2d(x.to(device), w.to(device), stride=2, padding="same").tolist() == [[recorded]]
    rows = F.conv1d(x[0, 0].to(device).expand_dims(1), w[0].to(device)[:, :1], stride=2, padding="same")
    assert rows.shape == (6, 1, 3)
    assert rows[0].tolist() == [[10.0, 24.0, 14.0]]  # 1·2 + 2·4, 2 + 3·2 + 4·4, 4 + 5·2
    for length in range(1, 9):  # a stride above the window leaves elements out, and none before the first window
        y = F.conv1d(mg.arange(1.0, length + 1.0, device=device)[None], mg.ones((1, 1, 1), device=device), stride=4,
                     padding="same")  # fmt: skip
        assert y.tolist() == [[1.0, 5.0][: -(-length // 4)]]


@pytest.mark.parametrize("shape, weight", [
    ((2, 70, 4, 5), (3, 70, 2, 2)),         # windows of more elements than a panel has rows
    ((2, 3, 4, 5), (300, 3, 2, 2)),         # more outputs than the gradient of x takes at once
    ((1, 2, 3, 600), (5, 2, 2, 3)),         # rows longer than a block of the weights' gradient
    ((1, 2, 3, 514), (5, 2, 2, 3)),         # the same in whole vectors, with few outputs
    ((40, 2, 9, 9), (3, 2, 3, 3)),          # more samples than blocks
    ((1, 300, 3, 4), (33, 300, 2, 2)),      # few samples: their channels are split
    ((2, 6, 12, 12), (16, 6, 5, 5)), ((2, 1, 28, 28), (6, 1, 5, 5)),
])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_beside_torch(shape, weight, dtype, rng, device):
    beside_torch(shape, weight, True, dtype, rng, device, 64)


def test_a_sample_does_not_depend_on_its_batch(rng, device):
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((37, 6, 12, 12), (16, 6, 5, 5)))
    g = rng.standard_normal((37, 16, 8, 8)).astype(np.float32)

    def both(k):
        leaf = tensor(x[k], device, requires_grad=True)
        y = F.conv2d(leaf, tensor(w, device))
        return array(y), array(mg.grad(y, leaf, tensor(g[k], device)))

    for k in (slice(0, 1), slice(5, 7), slice(30, 37)):
        for alone, together in zip(both(k), both(slice(None)), strict=True):
            np.testing.assert_array_equal(alone, together[k])


@pytest.mark.parametrize("groups", [1, 2])
def test_a_width_of_one_is_computed_as_a_height_of_one(groups, rng):
    """Bit for bit, so in the same loops: the sums for the weights have another order for rows of one element."""
    x, w = rng.standard_normal((3, 4, 81)), rng.standard_normal((4, 4 // groups, 18))
    g = rng.standard_normal((3, 4, 64))  # 64 windows fill the registers of every instruction set

    def computed(axis):
        leaves = [tensor(np.expand_dims(a, axis), "cpu", requires_grad=True) for a in (x, w)]
        y = F.conv2d(*leaves, groups=groups)
        return [np.squeeze(array(a), axis) for a in (y, *mg.grad(y, leaves, tensor(np.expand_dims(g, axis), "cpu")))]

    agree(computed(3), computed(2))


def test_values_outside_a_window_have_no_influence(rng, device):
    """Infinities and NaN stay in the windows that contain them, even if vectors extend beyond these."""
    x, w = rng.standard_normal((2, 2, 5, 11)), mg.ones((3, 2, 2, 2), dtype="float64", device=device)
    expected = array(F.conv2d(tensor(x, device), w))
    x[0, :, :, -1] = np.nan
    x[1, 0, 4, 3] = np.inf
    found = array(F.conv2d(tensor(x, device), w))
    hit = np.zeros(found.shape, bool)
    hit[0, :, :, -1] = True
    hit[1, :, 3, 2:4] = True
    np.testing.assert_array_equal(~np.isfinite(found), hit)
    np.testing.assert_array_equal(found[~hit], expected[~hit])


def test_gradients_that_nobody_wants_are_not_computed(rng, device):
    """Each operand alone, with the others frozen."""
    values = [rng.standard_normal(s) for s in ((2, 2, 4, 4), (3, 2, 2, 2), (3,))]
    g = tensor(rng.standard_normal((2, 3, 3, 3)), device)
    together = [tensor(a, device, requires_grad=True) for a in values]
    expected = mg.grad(F.conv2d(*together), together, g)
    for k in range(3):
        leaves = [tensor(a, device, requires_grad=i == k) for i, a in enumerate(values)]
        (found,) = mg.grad(F.conv2d(*leaves), [leaves[k]], g)
        close(array(found), array(expected[k]), 4, "float64")


X, W = mg.ones((2, 4, 5, 6)), mg.ones((6, 4, 3, 3))


@pytest.mark.parametrize("error, numbers, call", [
    (ValueError, ["(N, C, H, W)", "(5, 6)"], lambda: F.conv2d(X[0, 0], W)),
    (ValueError, ["4 channels", "(6, 4, 3, 3)", "(2, 3, 5, 6)"], lambda: F.conv2d(X[:, :3], W)),
    (ValueError, ["8 channels", "2 groups", "(2, 4, 5, 6)"], lambda: F.conv2d(X, W, groups=2)),
    (ValueError, ["4 groups", "(6, 4, 3, 3)"], lambda: F.conv2d(X, W, groups=4)),
    (ValueError, ["(O, C / groups, KH, KW)", "(6, 4, 3)"], lambda: F.conv2d(X, W[..., 0])),
    (ValueError, ["(6,)", "(4,)"], lambda: F.conv2d(X, W, mg.ones(4))),
    (ValueError, ["one of 9 on axis 2", "(2, 4, 5, 6)", "2 zeros"], lambda: F.conv2d(X, W, dilation=4, padding=1)),
    (ValueError, ["stride >= 1", "0"], lambda: F.conv2d(X, W, stride=0)),
    (ValueError, ["a pair of integers for stride", "(1, 2, 3)"], lambda: F.conv2d(X, W, stride=(1, 2, 3))),
    (ValueError, ["padding >= 0", "-1"], lambda: F.conv2d(X, W, padding=(0, -1))),
    *((ValueError, [f"{of} < {2**31}", str(2**62)], lambda of=of: F.conv2d(X, mg.ones((6, 4, 5, 5)), **{of: 2**62}))
      for of in ("stride", "padding", "dilation")),
    (ValueError, "'full'", lambda: F.conv2d(X, W, padding="full")),
    (TypeError, ["float32", "float64"], lambda: F.conv2d(X, W.to("float64"))),
    (TypeError, "1.5", lambda: F.conv2d(X, W, dilation=1.5)),
    (TypeError, "int64", lambda: F.conv2d(X.astype("int64"), W)),
])  # fmt: skip
def test_errors(error, numbers, call):
    refuses(error, "conv2d", numbers, call)


S, K = mg.ones((2, 4, 6)), mg.ones((6, 4, 3))


@pytest.mark.parametrize("error, numbers, call", [
    (ValueError, ["(N, C, T)", "(6,)"], lambda: F.conv1d(S[0, 0], K)),
    (ValueError, ["4 channels", "(6, 4, 3)", "(2, 3, 6)"], lambda: F.conv1d(S[:, :3], K)),
    (ValueError, ["4 groups", "(6, 4, 3)"], lambda: F.conv1d(S, K, groups=4)),
    (ValueError, ["(O, C / groups, K)", "(6, 4, 3, 1)"], lambda: F.conv1d(S, K[..., None])),
    (ValueError, ["one of 9 on axis 2", "(2, 4, 6)", "2 zeros"], lambda: F.conv1d(S, K, dilation=4, padding=1)),
    (ValueError, ["one of 7 on axis 1", "(4, 6)", "0 zeros"], lambda: F.conv1d(S[0], K, dilation=3)),
    (ValueError, ["(6,)", "(4,)"], lambda: F.conv1d(S, K, mg.ones(4))),
    (ValueError, [f"stride < {2**31}", str(2**62)], lambda: F.conv1d(S, K, stride=2**62)),
    (ValueError, "'full'", lambda: F.conv1d(S, K, padding="full")),
    (TypeError, ["stride", "(1, 2)"], lambda: F.conv1d(S, K, stride=(1, 2))),
    (TypeError, ["float32", "float64"], lambda: F.conv1d(S, K.to("float64"))),
    (TypeError, "int64", lambda: F.conv1d(S.astype("int64"), K)),
])  # fmt: skip
def test_errors_of_sequences(error, numbers, call):
    refuses(error, "conv1d", numbers, call)
