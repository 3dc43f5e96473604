"""Matrix products: the table, every size and layout, batches, integers, empty operands, and the affine layer."""

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from checks import LAYOUTS, Suite, array, equals, litter, near, refuses, tensor
from hypothesis import given
from hypothesis import strategies as st
from table import MATMUL

import minigrad as mg


class TestTable(Suite):
    ops = MATMUL


def product_close(ours, a, b, dtype):
    """Compare within the random rounding error of k terms; a missing term is detected."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    bound = np.finfo(dtype).eps * (1 + a.shape[-1] ** 0.5) * (np.abs(a) @ np.abs(b))
    assert np.all(np.abs(ours - a @ b) <= bound)


# ── sizes and layouts ─────────────────────────────────────────────────────────────────────────────

SIDES = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 64, 65, 100, 129]
LARGE = [
    (8, 784, 256), (128, 784, 10), (32, 128, 512), (257, 300, 129), (1, 1000, 1000), (1000, 1000, 1), (1000, 1, 1000),
    (700, 130, 700),
]  # fmt: skip
WAYS = {
    "plain": lambda m, n: ((m, n), lambda x: x),
    "transposed": lambda m, n: ((n, m), lambda x: x.T),
    "columns": lambda m, n: ((m, n + 5), lambda x: x[:, 2:-3]),
    "transposed columns": lambda m, n: ((n, m + 5), lambda x: x[:, 2:-3].T),
    "every other row": lambda m, n: ((2 * m, n), lambda x: x[::2]),
    "every other column": lambda m, n: ((m, 2 * n), lambda x: x[:, ::2]),
    "upside down": lambda m, n: ((m, n), lambda x: x[::-1]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("left", WAYS)
@pytest.mark.parametrize("right", WAYS)
def test_sizes(left, right, dtype, device, rng):
    """Some of all sizes, for each pair of layouts."""
    for _ in range(8):
        m, k, n = rng.choice(SIDES, 3).tolist()
        shape_a, view_a = WAYS[left](m, k)
        shape_b, view_b = WAYS[right](k, n)
        a, b = rng.standard_normal(shape_a).astype(dtype), rng.standard_normal(shape_b).astype(dtype)
        litter(device)
        product_close(array(view_a(tensor(a, device)) @ view_b(tensor(b, device))), view_a(a), view_b(b), dtype)


@pytest.mark.parametrize("shape", LARGE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_large_sizes(shape, dtype, device, rng):
    """Products that are split among threads, and their gradients."""
    m, k, n = shape
    a, b, g = (rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n), (m, n)))
    x, y = tensor(a, device, True), tensor(b, device, True)
    z = x @ y
    product_close(array(z), a, b, dtype)
    z.backward(tensor(g, device))
    product_close(array(x.grad), g, b.T, dtype)
    product_close(array(y.grad), a.T, g, dtype)


def test_the_same_bits_every_time(device, rng):
    a, b = (tensor(rng.standard_normal((300, 300)).astype(np.float32), device) for _ in range(2))
    expected = array(a @ b)
    for _ in range(5):
        equals(a @ b, expected)


@given(
    hnp.mutually_broadcastable_shapes(signature="(m,k),(k,n)->(m,n)", max_dims=3, max_side=4, min_side=0),
    st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS)), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_batches(device, shapes, left, right, seed):
    """Any broadcastable batches, in any layout: results and gradients agree with NumPy."""
    rng = np.random.default_rng(seed)
    litter(device)
    leaves, arrays, operands = [], [], []
    for shape, name in zip(shapes.input_shapes, (left, right), strict=True):
        memory, view = LAYOUTS[name]
        base = rng.standard_normal(memory(shape))
        leaves.append(tensor(base, device, True))
        arrays.append(view(base, shape))
        operands.append(view(leaves[-1], shape))
    (x, y), (a, b) = operands, arrays
    z = x @ y
    near(z, a @ b, rtol=0, atol=1e-13)
    g = rng.standard_normal(z.shape)
    dx, dy = mg.grad(z, operands, tensor(g, device))
    for ours, full, operand in ((dx, g @ np.swapaxes(b, -1, -2), a), (dy, np.swapaxes(a, -1, -2) @ g, b)):
        lead = full.ndim - operand.ndim
        axes = tuple(i for i in range(full.ndim) if i < lead or operand.shape[i - lead] == 1 != full.shape[i])
        near(ours, full.sum(axes).reshape(operand.shape), rtol=0, atol=1e-12)


# ── values ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", ["int32", "int64", "bool"])
def test_integers(dtype, device, rng):
    """Exact beyond float64's digits; overflow wraps; bool is or of and."""
    for shapes in (
        ((3, 4), (4, 5)), ((2, 3, 4), (4,)), ((4,), (4,)), ((4,), (2, 4, 3)), ((3, 0), (0, 2)),
        ((2, 1, 3, 4), (3, 4, 2)),
    ):  # fmt: skip
        a, b = (rng.integers(-(2**40), 2**40, s).astype(dtype) for s in shapes)
        z = tensor(a, device) @ tensor(b, device)
        assert z.dtype == dtype
        with np.errstate(all="ignore"):
            equals(z, a @ b)


def test_nothing_to_add_up_is_zero(device):
    """Products over an axis of length 0 are 0, whatever the result's memory contained; with a bias, the bias."""
    for dtype in ("float32", "float64"):
        for _ in range(3):
            litter(device)
            zeros = mg.zeros((3, 0), dtype=dtype, device=device) @ mg.zeros((0, 4), dtype=dtype, device=device)
            assert zeros.tolist() == [[0.0] * 4] * 3
            w = mg.zeros((2, 0), dtype=dtype, device=device, requires_grad=True)
            b = mg.ones(2, dtype=dtype, device=device)
            y = mg.linear(mg.zeros((3, 0), dtype=dtype, device=device), w, b)
            assert y.tolist() == [[1.0] * 2] * 3
        w = mg.ones((5, 4), dtype=dtype, device=device, requires_grad=True)
        litter(device)
        y = mg.linear(mg.zeros((0, 4), dtype=dtype, device=device), w)
        assert mg.grad(y, w, mg.zeros((0, 5), dtype=dtype, device=device)).tolist() == [[0.0] * 4] * 5


@pytest.mark.parametrize("n", [1, 8, 40])
def test_nan_and_infinity_are_not_lost(n, device):
    """0 times infinity is NaN in a product too."""
    a = np.zeros((n, n), np.float32)
    b = np.zeros((n, n), np.float32)
    b[0, 0] = np.inf
    with np.errstate(all="ignore"):
        equals(tensor(a, device) @ tensor(b, device), a @ b)
    b[0, 0] = np.nan
    assert np.isnan(array(tensor(a, device) @ tensor(b, device))[:, 0]).all()


def test_mixed_dtypes(device):
    x, y = mg.ones((2, 2), dtype="float32", device=device), mg.ones((2, 2), dtype="float64", device=device)
    n = mg.ones((2, 2), dtype="int64", device=device)
    assert (x @ y).dtype == "float64"
    assert (n @ x).dtype == "float32"
    assert (n @ (n > 0)).dtype == "int64"
    ones, column = np.ones((2, 2), np.float32), [[1.0], [2.0]]
    if device == "cpu":
        assert (ones @ x).tolist() == [[2.0] * 2] * 2
        assert (x @ column).tolist() == [[3.0]] * 2
    else:  # anything that is not a tensor is on the CPU
        for call in (lambda: ones @ x, lambda: x @ column):
            refuses(ValueError, "matmul", [device, "cpu"], call)


def test_one_tensor_on_both_sides(device, rng):
    a = rng.standard_normal((4, 4))
    x, g = tensor(a, device, True), rng.standard_normal((4, 4))
    near(mg.grad(x @ x, x, tensor(g, device)), g @ a.T + a.T @ g, rtol=1e-12, atol=1e-13)
    near(mg.grad(x.T @ x, x, tensor(g, device)), a @ (g + g.T), rtol=1e-12, atol=1e-13)


# ── linear ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shape", [(8, 784, 256), (128, 256, 10), (1, 3, 1), (3, 1, 2), (33, 17, 65)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("biased", [True, False])
def test_linear(shape, dtype, biased, device, rng):
    """Results and gradients against the formula, for a contiguous, a transposed or a broadcast gradient."""
    rows, width, out = shape
    a, w, b = (rng.standard_normal(s).astype(dtype) for s in ((rows, width), (out, width), (out,)))
    leaves = [tensor(v, device, True) for v in ((a, w, b) if biased else (a, w))]
    y = mg.linear(*leaves)
    product_close(array(y) - (b.astype(np.float64) if biased else 0), a, w.T, dtype)
    g = rng.standard_normal((rows, out)).astype(dtype)
    for grad, cotangent in (
        (tensor(g, device), g), (tensor(np.asfortranarray(g.T), device).T, g), (mg.broadcast_to(tensor(g[:1, :1], device), g.shape), g[:1, :1] + 0 * g)
    ):  # fmt: skip
        dx, dw, *db = mg.grad(y, leaves, grad, retain_graph=True)
        product_close(array(dx), cotangent, w, dtype)
        product_close(array(dw), cotangent.T, a, dtype)
        if biased:
            tolerance = 8 * np.finfo(dtype).eps * rows
            near(db[0], cotangent.sum(0, dtype=np.float64), rtol=tolerance, atol=tolerance)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────


def test_errors(device):
    def ones(*shape, dtype="float32"):
        return mg.ones(shape, dtype=dtype, device=device)

    x, y, v = ones(32, 128), ones(64, 10), ones(3)
    refuses(ValueError, "matmul", ["(3,)", "(64, 10)"], mg.matmul, v, y)
    refuses(ValueError, "matmul", ["(32, 128)", "(3,)"], mg.matmul, x, v)
    refuses(ValueError, "matmul", "()", mg.matmul, x, v[0])
    refuses(ValueError, "matmul", "()" if device == "cpu" else [device, "cpu"], mg.matmul, x, 2.0)
    refuses(ValueError, "matmul", ["(2, 3, 4)", "(3, 4, 5)"], mg.matmul, ones(2, 3, 4), ones(3, 4, 5))
    refuses(ValueError, "matmul", ["(2, 3)", "(4, 5)"], mg.matmul, ones(2, 3, dtype="int64"), ones(4, 5, dtype="int64"))
    refuses(ValueError, "linear", ["(32, 128)", "(64, 10)"], mg.linear, x, y)
    refuses(ValueError, "linear", ["(10,)", "(64,)"], mg.linear, ones(2, 10), y, ones(10))
    refuses(ValueError, "linear", "()", mg.linear, v[0], y)
    refuses(TypeError, "linear", ["float32", "float64"], mg.linear, x, ones(10, 128, dtype="float64"))
    refuses(TypeError, "linear", "int64", mg.linear, ones(2, 10, dtype="int64"), y)
