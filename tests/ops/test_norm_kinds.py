"""RMS, group and instance normalization: accuracy, numbers of rows, independence of rows, errors."""

import math

import numpy as np
import pytest
from checks import array, litter, refuses, tensor
from table import norms as plain

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train


def rms(width):
    return lambda x, w, b: mg.rms_norm(x, width, w, 1e-5) + b


def exact_rms(x, w, b):
    return plain.rms_norm(x, w, normalized_shape=x.shape[-1], eps=1e-5) + b


def exact_layer(x, w, b):
    return plain.layer_norm(x, w, b, normalized_shape=x.shape[-1])


def grouped(groups):
    return lambda x, w, b: mg.group_norm(x, groups, w, b)


def exact_grouped(groups):
    return lambda x, w, b: plain.group_norm(x, w, b, num_groups=groups)


def affine(op, shape, rng, dtype="float32"):
    """Return x, weight, bias and a cotangent for a normalization, with parameters per element (rms) or channel."""
    n = shape[-1] if op == "rms" else shape[1]
    return [rng.standard_normal(s).astype(dtype) for s in (shape, (n,), (n,), shape)]


def exact_gradients(x, weight, g, groups, eps=1e-5, centered=True):
    """Return dx and dweight of the formula in float64, for rows that are groups of channels, or for plain rows."""
    n, c = x.shape[:2]
    gain = np.broadcast_to(weight.reshape((c,) + (1,) * (x.ndim - 2)), x.shape)
    rows, h = (v.reshape(n * groups, x.size // (n * groups)) for v in (x, g * gain))
    d = rows - rows.mean(1, keepdims=True) if centered else rows
    r = 1 / np.sqrt((d * d).mean(1, keepdims=True) + eps)
    hat = d * r
    dx = r * ((h - h.mean(1, keepdims=True) if centered else h) - hat * (h * hat).mean(1, keepdims=True))
    return dx.reshape(x.shape), (g * hat.reshape(x.shape)).sum((0, *range(2, x.ndim)))


def instance_norm(x, weight=None, bias=None, eps=1e-5):
    return mg.instance_norm(x, weight=weight, bias=bias, eps=eps)


KINDS = {
    "rms": (rms(24), exact_rms, (6, 24)),
    "group of elements": (grouped(3), exact_grouped(3), (6, 24)),
    "group": (grouped(2), exact_grouped(2), (5, 4, 5, 5)),
    "group of many channels": (grouped(2), exact_grouped(2), (5, 64, 8, 9)),
    "group of many short channels": (grouped(1), exact_grouped(1), (4, 600, 2)),
    "instance": (instance_norm, exact_grouped(4), (5, 4, 25)),
    "instance of long planes": (instance_norm, exact_grouped(4), (5, 4, 33, 34)),
    "layer": (lambda x, w, b: mg.layer_norm(x, 24, w, b), exact_layer, (6, 24)),
}


def run(kind, x, w, b, g, device):
    leaves = [tensor(v, device, True) for v in (x, w, b)]
    litter(device)
    y = KINDS[kind][0](*leaves)
    return [array(v).copy() for v in (y, *mg.grad(y, leaves, tensor(g, device)))]


def parameters_of(kind):
    return "rms" if kind in ("rms", "layer") else kind


# ── digits ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_formula(kind, dtype, device, rng):
    _, formula, shape = KINDS[kind]
    x, w, b, g = affine(parameters_of(kind), shape, rng, dtype)
    exact = formula(*(v.astype(np.float64) for v in (x, w, b)))
    unit = np.finfo(dtype).eps
    np.testing.assert_allclose(run(kind, x, w, b, g, device)[0], exact, rtol=0, atol=16 * unit * np.abs(exact).max())


@pytest.mark.parametrize("groups, shape", [(2, (3, 4, 6, 7)), (4, (3, 4, 500)), (1, (3, 4, 40, 40)), (2, (9, 64))])
def test_mean_of_10000_over_spread_of_1(groups, shape, device, rng):
    """float32 keeps the digits of its inputs, in the result and in every gradient."""
    x, w, b, g = affine("group", shape, rng)
    x += np.float32(1e4)
    leaves = [tensor(v, device, True) for v in (x, w, b)]
    y = mg.group_norm(leaves[0], groups, *leaves[1:])
    wide = [v.astype(np.float64) for v in (x, w, b, g)]
    exact = plain.group_norm(*wide[:3], num_groups=groups)
    np.testing.assert_allclose(array(y), exact, rtol=0, atol=2e-6 * np.abs(exact).max())
    dx, dw, db = (array(v) for v in mg.grad(y, leaves, tensor(g, device)))
    exact_dx, exact_dw = exact_gradients(wide[0], wide[1], wide[3], groups)
    np.testing.assert_allclose(dx, exact_dx, rtol=0, atol=4e-6 * np.abs(exact_dx).max())
    np.testing.assert_allclose(dw, exact_dw, rtol=0, atol=4e-6 * math.sqrt(x.size / w.size))
    np.testing.assert_allclose(db, wide[3].sum((0, *range(2, x.ndim))), rtol=0, atol=1e-6 * math.sqrt(x.size / w.size))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e15])
def test_scales_of_rms_norm(scale, device, rng):
    """A row divided by its size has size 1, and the gradient is inverse to the scale."""
    x, w, _, g = affine("rms", (9, 700), rng)
    x *= np.float32(scale)
    leaf, gain = tensor(x, device, True), tensor(w, device, True)
    y = mg.rms_norm(leaf, 700, gain, 0.0)
    dx, dw = (array(v) for v in mg.grad(y, [leaf, gain], tensor(g, device)))
    wide = [v.astype(np.float64)[:, :, None] for v in (x, g)]
    exact = plain.rms_norm(x.astype(np.float64), w, normalized_shape=700, eps=0.0)
    exact_dx = np.stack([exact_gradients(a[None], w, c[None], 1, 0.0, False)[0][0] for a, c in zip(*wide, strict=True)])
    np.testing.assert_allclose(array(y), exact, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(dx, exact_dx[..., 0], rtol=0, atol=2e-6 * np.abs(exact_dx).max())
    hat = plain.rms_norm(x.astype(np.float64), normalized_shape=700, eps=0.0)
    np.testing.assert_allclose(dw, (g * hat).sum(0), rtol=0, atol=1e-5)


def test_where_squares_overflow(device):
    """As the docstring says, the row becomes 0; its neighbour is not affected."""
    y = mg.rms_norm(tensor(np.array([[1e30, -1e30], [3.0, -3.0]], np.float32), device), 2)
    np.testing.assert_allclose(array(y), [[0, 0], [1, -1]], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eps_of_rms_norm(dtype, device):
    """It is added to the mean square; None is the machine epsilon."""
    x = np.array([[2.0, -2.0]], dtype)
    for eps in (0.0, 1.0, 12.0):
        np.testing.assert_allclose(array(mg.rms_norm(tensor(x, device), 2, eps=eps)), x / math.sqrt(4 + eps), rtol=1e-6)
    tiny = np.full((1, 4), np.sqrt(np.finfo(dtype).eps), dtype)
    np.testing.assert_allclose(array(mg.rms_norm(tensor(tiny, device), 4)), math.sqrt(0.5), rtol=1e-6)


def test_what_normalizations_do_not_see(device, rng):
    """Groups are invariant to shift and scale, the root mean square to scale alone; dx is orthogonal to x̂."""
    a, _, _, g = affine("group", (3, 4, 10), rng, "float64")
    x = tensor(a, device, True)
    for f, other, centered in (
        (lambda v: mg.group_norm(v, 2, eps=0.0), 3 * a + 7, True),
        (lambda v: mg.rms_norm(v, (4, 10), eps=0.0), 3 * a, False),
    ):
        y = f(x)
        np.testing.assert_allclose(array(y), array(f(tensor(other, device))), rtol=1e-10, atol=1e-11)
        dx = array(mg.grad(y, x, tensor(g, device)))
        np.testing.assert_allclose((dx * array(y)).sum((1, 2)), 0, atol=1e-12)
        assert (np.abs(dx.sum((1, 2))).max() < 1e-12) == centered


def test_kinds_are_one_another(device, rng):
    """Without parameters one group is layer_norm, and groups of one channel are instance_norm."""
    x = tensor(rng.standard_normal((3, 4, 5, 2)), device)
    np.testing.assert_allclose(array(mg.group_norm(x, 1)), array(mg.layer_norm(x, (4, 5, 2))), rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal(array(mg.group_norm(x, 4)), array(mg.instance_norm(x)))
    weight = tensor(rng.standard_normal(4), device)
    per_element = array(mg.layer_norm(x, (4, 5, 2), mg.broadcast_to(weight.reshape((4, 1, 1)), (4, 5, 2))))
    np.testing.assert_allclose(array(mg.group_norm(x, 1, weight)), per_element, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_group_of_single_elements_is_layer_norm(dtype, device, rng):
    """Bit for bit: then both have one weight and one bias per element."""
    x, w, b, g = affine("group", (150, 24), rng, dtype)
    found = []
    for norm in (
        lambda *leaves: mg.group_norm(leaves[0], 1, *leaves[1:]),
        lambda *leaves: mg.layer_norm(leaves[0], 24, *leaves[1:]),
    ):
        leaves = [tensor(v, device, True) for v in (x, w, b)]
        y = norm(*leaves)
        found.append([array(v) for v in (y, *mg.grad(y, leaves, tensor(g, device)))])
    for group, layer in zip(*found, strict=True):
        np.testing.assert_array_equal(group, layer)


# ── rows and widths ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65, 129, 65_537])
def test_rows(rows, device, rng):
    """None, one, and more than 65,536, with a gradient for each parameter that sums over them all."""
    for kind, shape in (("rms", (rows, 5)), ("group", (rows, 2, 3))):
        x, w, b, g = affine(kind, shape, rng)
        leaves = [tensor(v, device, True) for v in (x, w, b)]
        litter(device)
        y = rms(5)(*leaves) if kind == "rms" else mg.group_norm(leaves[0], 2, *leaves[1:])
        wide, gains, g64 = x.astype(np.float64), w.astype(np.float64), g.astype(np.float64)
        exact = exact_rms(wide, gains, b) if kind == "rms" else plain.group_norm(wide, gains, b, num_groups=2)
        np.testing.assert_allclose(array(y), exact, rtol=1e-5, atol=1e-4)
        dx, dw, db = (array(v) for v in mg.grad(y, leaves, tensor(g, device)))
        if kind == "rms":
            r = 1 / np.sqrt((wide * wide).mean(1, keepdims=True) + 1e-5)
            h = g64 * gains
            exact_dx = r * (h - wide * r * (h * wide * r).mean(1, keepdims=True))
            exact_dw = (g64 * wide * r).sum(0)
        elif rows:
            exact_dx, exact_dw = exact_gradients(wide, gains, g64, 2)
        else:
            exact_dx, exact_dw = np.zeros(shape), np.zeros(2)
        size = 1 + np.abs(exact_dx).max(initial=0)
        np.testing.assert_allclose(dx, exact_dx, rtol=0, atol=1e-4 * size)
        np.testing.assert_allclose(dw, exact_dw, rtol=0, atol=2e-5 * math.sqrt(rows + 1))
        np.testing.assert_allclose(db, g64.sum(tuple(k for k in range(x.ndim) if k != (1 if kind == "group" else -1) % x.ndim)),
                                   rtol=0, atol=2e-5 * math.sqrt(rows + 1))  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_widths(dtype, device, rng):
    unit = np.finfo(dtype).eps
    planes = [(4, inner) for inner in (1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 513, 3000)]
    for channels, inner in (*planes, (64, 72), (1200, 2)):
        x, w, b, g = affine("group", (3, channels, inner), rng, dtype)
        leaves = [tensor(v, device, True) for v in (x, w, b)]
        litter(device)
        y = mg.group_norm(leaves[0], 2, *leaves[1:], eps=1e-2)
        wide, gains, g64 = (v.astype(np.float64) for v in (x, w, g))
        exact = plain.group_norm(wide, gains, b, num_groups=2, eps=1e-2)
        np.testing.assert_allclose(array(y), exact, rtol=0, atol=16 * unit * np.abs(exact).max())
        dx, dw, _ = (array(v) for v in mg.grad(y, leaves, tensor(g, device)))
        exact_dx, exact_dw = exact_gradients(wide, gains, g64, 2, 1e-2)
        np.testing.assert_allclose(dx, exact_dx, rtol=0, atol=64 * unit * max(1, np.abs(exact_dx).max()))
        np.testing.assert_allclose(dw, exact_dw, rtol=0, atol=64 * unit * math.sqrt(3 * inner))


def test_width_one(device):
    """For a group of one value, y is the bias, exactly, and dx is 0. RMS normalization of one value gives its sign."""
    x = tensor(np.array([[3.0, -7.0]], np.float32), device, True)
    w, b = tensor(np.array([2.0, 4.0], np.float32), device, True), tensor(np.array([5.0, 6.0], np.float32), device)
    y = mg.group_norm(x, 2, w, b)
    assert y.tolist() == [[5.0, 6.0]]
    dx, dw = mg.grad(y, [x, w], tensor(np.array([[2.0, 3.0]], np.float32), device))
    assert dw.tolist() == [0.0, 0.0]
    np.testing.assert_allclose(array(dx), 0, atol=2**-24 * 16 / math.sqrt(1e-5))
    assert mg.rms_norm(tensor(np.array([[3.0], [-7.0]]), device), 1, eps=0.0).tolist() == [[1.0], [-1.0]]


def test_channels_without_elements(device):
    """Gradients of parameters are zeros."""
    x, w, b = (tensor(np.ones(s), device, True) for s in ((2, 4, 0), (4,), (4,)))
    litter(device)
    y = mg.group_norm(x, 2, w, b)
    assert y.shape == (2, 4, 0)
    for grad in mg.grad(y, [w, b], tensor(np.ones((2, 4, 0)), device)):
        assert grad.tolist() == [0.0] * 4


@pytest.mark.parametrize("value", [0.0, 0.1, -3.0, 1e4])
@pytest.mark.parametrize("create_graph", [False, True])
def test_constant_rows(value, create_graph, device, rng):
    """Padding: y is the bias, exactly, and dx = (h - mean h)/√eps is finite."""
    g, weight, bias = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4, 33), (4,), (4,)))
    x, w, b = (
        tensor(np.full((2, 4, 33), value, np.float32), device, True),
        tensor(weight, device, True),
        tensor(bias, device),
    )
    y = mg.group_norm(x, 2, w, b)
    np.testing.assert_array_equal(array(y), np.broadcast_to(bias[:, None], (2, 4, 33)))
    dx, dw = mg.grad(y, [x, w], tensor(g, device), create_graph=create_graph)
    h = (g.astype(np.float64) * weight[:, None]).reshape(2, 2, 66)
    exact = ((h - h.mean(2, keepdims=True)) / math.sqrt(1e-5)).reshape(2, 4, 33)
    np.testing.assert_allclose(array(dx), exact, rtol=1e-4, atol=2e-3)
    np.testing.assert_array_equal(array(dw), 0)


def test_rows_of_zeros_under_rms_norm(device, rng):
    """dx = γ g/√eps."""
    g = rng.standard_normal((2, 5))
    x = tensor(np.zeros((2, 5)), device, True)
    y = mg.rms_norm(x, 5, eps=1e-4)
    assert not array(y).any()
    np.testing.assert_allclose(array(mg.grad(y, x, tensor(g, device))), g * 100, rtol=1e-12)


# ── independence ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_samples_do_not_depend_on_each_other(kind, dtype, device, rng):
    """A sample has the same bits alone, at any position in any batch, and next to NaN and infinity."""
    x, w, b, g = affine(parameters_of(kind), (37, *KINDS[kind][2][1:]), rng, dtype)
    y, dx = run(kind, x, w, b, g, device)[:2]
    for rows in ([7], [36], slice(1, None), [7, 7, 7], list(range(36, -1, -1))):
        for ours, all_ in zip(run(kind, x[rows], w, b, g[rows], device), (y, dx), strict=False):
            np.testing.assert_array_equal(ours, all_[rows])
    x[5].flat[0] = np.nan
    x[6].flat[0] = np.inf
    for ours, all_ in zip(run(kind, x, w, b, g, device)[:2], (y, dx), strict=True):
        assert np.isnan(ours[5].flat[0])
        assert np.isnan(ours[6].flat[0])
        np.testing.assert_array_equal(np.delete(ours, [5, 6], 0), np.delete(all_, [5, 6], 0))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_change_nothing(kind, device, rng):
    """The split of the sums over rows depends on the shape alone."""
    x, w, b, g = affine(parameters_of(kind), (2000 if len(KINDS[kind][2]) == 2 else 300, *KINDS[kind][2][1:]), rng)
    threads, found = mg.get_num_threads(), []
    try:
        for count in (1, 2, 3):
            mg.set_num_threads(count)
            found.append(run(kind, x, w, b, g, device))
    finally:
        mg.set_num_threads(threads)
    for other in found[1:]:
        for ours, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(ours, expected)


def test_outputs_that_bypass_the_cache(device, rng):
    """Each row has the same bits as alone, for outputs of more than 16 MiB and their gradients."""
    for call, shape in (
        (lambda x, w, b: mg.layer_norm(x, 1024, w, b), (4200, 1024)),
        (lambda x, w, b: mg.layer_norm(x, 1001, w, b), (4400, 1001)),  # rows that do not fill whole registers
        (lambda x, w, b: mg.rms_norm(x, 1024, w) + b, (4200, 1024)),
        (lambda x, w, b: mg.group_norm(x, 2, w, b), (140, 4, 8192)),
    ):
        n = shape[1]
        a, g, w, b = (rng.standard_normal(s).astype(np.float32) for s in (shape, shape, n, n))
        gain, shift = tensor(w, device), tensor(b, device)
        x = tensor(a, device, True)
        y = call(x, gain, shift)
        dx = array(mg.grad(y, x, tensor(g, device)))
        assert y.nbytes > 16 << 20
        for r in (0, 1, 33, shape[0] - 1):
            row = tensor(a[r : r + 1], device, True)
            alone = call(row, gain, shift)
            np.testing.assert_array_equal(array(alone)[0], array(y)[r])
            np.testing.assert_array_equal(array(mg.grad(alone, row, tensor(g[r : r + 1], device)))[0], dx[r])
        exact = call(*(tensor(v.astype(np.float64), device) for v in (a, w, b)))
        np.testing.assert_allclose(array(y), array(exact), rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_addresses_change_nothing(dtype, device, rng):
    """Memory that is not aligned to registers, or to 16 bytes, gives the same bits."""

    def beside(values):
        """Return the values at an offset of one element from the start of the memory."""
        base = tensor(np.concatenate([np.zeros(1, dtype), values.ravel()]), device)
        return base[1:].reshape(values.shape).requires_grad_()

    for call, shape, n in (
        (lambda x, w, b: mg.layer_norm(x, 256, w, b), (9, 256), 256),
        (lambda x, w, b: mg.rms_norm(x, 1024, w) + b, (3, 1024), 1024),
        (lambda x, w, b: mg.group_norm(x, 2, w, b), (5, 4, 8, 8), 4),
        (lambda x, w, b: mg.group_norm(x, 2, w, b), (9, 64), 64),
        (lambda x, w, b: batch_norm_train(x, w, b)[0], (5, 4, 8, 8), 4),
        (lambda x, w, b: batch_norm_train(x, w, b)[0], (700, 36), 36),
    ):
        values = [rng.standard_normal(s).astype(dtype) for s in (shape, n, n)]
        g, found = rng.standard_normal(shape).astype(dtype), []
        for make in (lambda v: tensor(v, device, True), beside):
            leaves = [make(v) for v in values]
            y = call(*leaves)
            found.append([array(v).copy() for v in (y, *mg.grad(y, leaves, make(g).detach()))])
        for ours, expected in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, expected)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_arguments_of_another_kind(device):
    x = mg.ones((2, 4, 3), device=device)
    for eps in (None, "1e-5", [1e-5]):
        for op, call in (
            ("layer_norm", lambda x, eps: mg.layer_norm(x, 3, eps=eps)), ("group_norm", lambda x, eps: mg.group_norm(x, 2, eps=eps)),
            ("instance_norm", lambda x, eps: mg.instance_norm(x, eps=eps)),
            ("batch_norm", lambda x, eps: batch_norm_train(x, eps=eps)),
            ("batch_norm", lambda x, eps: batch_norm_eval(x, mg.zeros(4, device=device), mg.ones(4, device=device), eps=eps)),
            ("rms_norm", lambda x, eps: mg.rms_norm(x, 3, eps="x" if eps is None else eps)),    # which takes None
        ):  # fmt: skip
            refuses(TypeError, op, ["number eps", "x" if (op, eps) == ("rms_norm", None) else repr(eps)], call, x, eps)
    for shape in (3.0, "3", None, (4, 3.0), ("4",), {4: 3}):
        refuses(TypeError, "layer_norm", ["normalized_shape", repr(shape)], mg.layer_norm, x, shape)
        refuses(TypeError, "rms_norm", ["normalized_shape", repr(shape)], mg.rms_norm, x, shape)
    assert mg.layer_norm(x, [np.int64(4), 3], eps=np.float32(0.5)).shape == x.shape


def test_errors(device):
    x, w = mg.ones((2, 4, 3), device=device), mg.ones(4, device=device)
    refuses(ValueError, "rms_norm", ["(..., 5)", "(2, 4, 3)"], mg.rms_norm, x, 5)
    refuses(ValueError, "rms_norm", "normalized_shape of at least one axis, got ()", mg.rms_norm, x, ())
    refuses(ValueError, "rms_norm", ["weight", "(3,)", "(4,)"], mg.rms_norm, x, 3, w)
    refuses(ValueError, "rms_norm", "-1", mg.rms_norm, x, 3, None, -1.0)
    refuses(
        TypeError,
        "rms_norm",
        ["weight", "float32", "float64"],
        mg.rms_norm,
        x,
        (4, 3),
        mg.ones((4, 3), dtype="float64", device=device),
    )
    refuses(TypeError, "rms_norm", "int64", mg.rms_norm, x.astype("int64"), 3)
    refuses(ValueError, "group_norm", ["4", "3"], mg.group_norm, x, 3)
    refuses(ValueError, "group_norm", ["4", "0"], mg.group_norm, x, 0)
    refuses(TypeError, "group_norm", "2.0", mg.group_norm, x, 2.0)
    refuses(ValueError, "group_norm", "(4,)", mg.group_norm, w, 2)
    refuses(ValueError, "group_norm", ["weight", "(4,)", "(3,)"], mg.group_norm, x, 2, mg.ones(3, device=device))
    refuses(
        ValueError, "group_norm", ["bias", "(4,)", "(4, 1)"], mg.group_norm, x, 2, w, mg.ones((4, 1), device=device)
    )
    refuses(ValueError, "group_norm", "nan", mg.group_norm, x, 2, w, w, math.nan)
    refuses(TypeError, "group_norm", ["bias", "float32", "float64"], mg.group_norm, x, 2, w, w.astype("float64"))
    refuses(TypeError, "group_norm", "int64", mg.group_norm, x.astype("int64"), 2)
    refuses(ValueError, "instance_norm", ["three", "(2, 4)"], mg.instance_norm, mg.ones((2, 4), device=device))
    refuses(
        ValueError, "instance_norm", ["more than one value per channel", "(2, 4, 1)"], mg.instance_norm, x[:, :, :1]
    )
    refuses(ValueError, "instance_norm", ["weight", "(4,)", "(3,)"], instance_norm, x, mg.ones(3, device=device))
    refuses(ValueError, "instance_norm", "-1", instance_norm, x, w, w, -1.0)
