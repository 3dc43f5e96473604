"""The choice of the precision of float32 products."""

import os
import subprocess
import sys

import numpy as np
import pytest
from checks import agree, raises

import minigrad as mg
from minigrad.engine.devices import cpu
from minigrad.nn import functional as F

ROUNDS = cpu.has_bfloat16_products()


@pytest.fixture(autouse=True)
def restored():
    assert mg.get_float32_matmul_precision() == "highest"
    yield
    mg.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("name", ["highest", "high", "medium"])
def test_what_is_chosen_is_returned(name):
    mg.set_float32_matmul_precision(name)
    assert mg.get_float32_matmul_precision() == name


@pytest.mark.parametrize("name", ["low", "HIGH", "", None, 1, np.ones(2)])
def test_other_values_are_refused(name):
    mg.set_float32_matmul_precision("high")
    match = r"^\[set_float32_matmul_precision\] expected 'highest', 'high' or 'medium', got"
    raises(ValueError, match, mg.set_float32_matmul_precision, name)
    assert mg.get_float32_matmul_precision() == "high"


def bfloat16(x):
    """Return the numbers with seven bits of fraction, ties rounded to even, in float64."""
    bits = np.ascontiguousarray(x).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + (bits >> 16 & 1) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def factors(rng, *shape):
    """Return a tensor whose last two axes lie in memory in the other order for every second call, and its numbers."""
    factors.turned = not factors.turned
    numbers = rng.standard_normal(shape).astype(np.float32)
    x = mg.tensor(np.ascontiguousarray(np.swapaxes(numbers, -1, -2))).mT if factors.turned else mg.tensor(numbers)
    return x, numbers


factors.turned = False


def check(found, a, b, start=0):
    """The product is that of the rounded factors, up to the rounding of every sum over k; elsewhere, of a and b."""
    a, b = (bfloat16(x) if ROUNDS else x.astype(np.float64) for x in (a, b))
    bound = (a.shape[-1] + 4) * 2**-24 * (np.abs(a) @ np.abs(b) + np.abs(start))
    assert (np.abs(found.numpy() - (a @ b + start)) <= bound).all()


SIZES = [(16, 16, 16), (17, 33, 31), (130, 48, 513), (64, 300, 1100), (40, 1000, 784), (700, 20, 20)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_products(sizes, first, second, rng):
    m, n, k = sizes
    mg.set_float32_matmul_precision("medium")
    factors.turned = not first
    x, a = factors(rng, m, k)
    factors.turned = not second
    y, b = factors(rng, k, n)
    check(x @ y, a, b)


def test_small_products_are_not_rounded(rng):
    mg.set_float32_matmul_precision("medium")
    for m, n, k in [(15, 40, 40), (40, 15, 40), (40, 40, 15), (1, 300, 300)]:
        (x, a), (y, b) = factors(rng, m, k), factors(rng, k, n)
        np.testing.assert_allclose((x @ y).numpy(), a.astype("float64") @ b, rtol=0, atol=1e-6 * k)


@pytest.mark.parametrize("batch", [3, 40])
def test_batches_biases_and_sums(batch, rng):
    mg.set_float32_matmul_precision("medium")
    (x, a), (y, b), (z, c) = factors(rng, batch, 20, 50), factors(rng, batch, 50, 30), factors(rng, 30, 50)
    check(x @ y, a, b)
    check(x @ z.mT, a, c.T)
    bias = rng.standard_normal(30).astype(np.float32)
    check(F.linear(x, z, mg.tensor(bias)), a, c.T, bias)
    weight = z.detach().clone().requires_grad_()
    g = rng.standard_normal((batch * 20, 30)).astype(np.float32)
    for _ in range(2):  # the second product is added to the first one's result
        F.linear(x.reshape(-1, 50), weight).backward(mg.tensor(g))
    flat = a.reshape(-1, 50)
    check(weight.grad / 2, g.T, flat)
    shared = z.detach().clone().requires_grad_()
    (F.linear(x.reshape(-1, 50), shared) + F.linear(x.reshape(-1, 50), shared)).backward(mg.tensor(g))
    check(shared.grad / 2, g.T, flat)


def test_bits_depend_on_no_thread_and_no_other_row(rng):
    mg.set_float32_matmul_precision("medium")
    x, y = (mg.tensor(rng.standard_normal(s).astype(np.float32)) for s in ((300, 700), (700, 200)))
    before, results = mg.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            mg.set_num_threads(threads)
            results.append(x @ y)
    finally:
        mg.set_num_threads(before)
    agree(results[:1], results[1:2])
    agree(results[:1], results[2:])
    if ROUNDS:
        agree([x[57:100] @ y, x @ y[:, 40:75]], [results[0][57:100], results[0][:, 40:75]])


def test_special_numbers(rng):
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    a[0, 0], a[1, 1], a[2, 2], a[3] = np.nan, np.inf, -np.inf, 0
    b[:, 5] = 0
    plain = mg.tensor(a) @ mg.tensor(b)
    mg.set_float32_matmul_precision("medium")
    found = mg.tensor(a) @ mg.tensor(b)
    for test in (mg.isnan, mg.isinf, lambda x: x > 0):
        agree([test(found)[[0, 1, 2, 3]]], [test(plain)[[0, 1, 2, 3]]])
    agree([found[3]], [plain[3]])
    assert bool(mg.isfinite(mg.full((16, 16), 3.4e38) @ mg.eye(16)).all()) != ROUNDS  # bfloat16 ends at 3.39e38


def test_a_captured_step_is_recorded_again(rng):
    (x, a), (y, b) = factors(rng, 40, 50), factors(rng, 50, 30)
    product = mg.capture(lambda x, y: x @ y, warmup=0)
    results = []
    for precision in ("highest", "medium") * 2:
        mg.set_float32_matmul_precision(precision)
        results.append(product(x, y).clone())
    agree(results[:2], results[2:])
    check(results[1], a, b)
    np.testing.assert_allclose(results[0].numpy(), a.astype("float64") @ b, rtol=0, atol=1e-5)


LAYERS = {
    "lstm": lambda: mg.nn.LSTM(24, 40, norm="layer"), "gru": lambda: mg.nn.GRU(24, 40), "rnn": lambda: mg.nn.RNN(24, 40),
    "lstm, one step": lambda: mg.nn.LSTM(24, 40),
    "attention": lambda: mg.nn.TransformerEncoderLayer(24, 2, 64, dropout=0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_gradients_are_close(name, rng):
    mg.manual_seed(0)
    layer = LAYERS[name]()
    x = rng.standard_normal((1 if "one step" in name else 6, 33, 24)).astype(np.float32)
    results = {}
    for precision in ("highest", "high", "medium"):
        mg.set_float32_matmul_precision(precision)
        leaf = mg.tensor(x, requires_grad=True)
        y = layer(leaf)
        y = y[0] if isinstance(y, tuple) else y
        g = mg.tensor(np.random.default_rng(1).standard_normal(y.shape).astype(np.float32))
        results[precision] = [y.detach(), *mg.grad(y, [leaf, *layer.parameters()], g)]
    agree(results["highest"], results["high"])  # TF32 is for GPUs
    for exact, found in zip(results["highest"], results["medium"], strict=True):
        assert mg.linalg.vector_norm(found - exact).item() <= 0.1 * mg.linalg.vector_norm(exact).item()
    error = mg.abs(results["medium"][0] - results["highest"][0]).max().item()
    assert error > 1e-4 if ROUNDS else error == 0


@pytest.mark.parametrize(
    "sizes", [(5, 40, 24, 30), (16, 40, 24, 30), (33, 33, 32, 32), (130, 300, 16, 5), (200, 129, 70, 64)]
)
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "groups"])
def test_attention(kind, sizes, rng):
    queries, keys, width, value_width = sizes
    heads = 2 if kind == "groups" else 4
    shapes = (
        (3, 4, queries, width),
        (3, heads, keys, width),
        (3, heads, keys, value_width),
        (3, 4, queries, value_width),
    )
    arrays = [rng.standard_normal(shape) for shape in shapes]
    options = {"causal": {"is_causal": True}, "groups": {"enable_gqa": True},
               "mask": {"attn_mask": mg.tensor(rng.random((queries, keys)) < 0.7)}}.get(kind, {})  # fmt: skip

    def attend(arrays, dtype):
        *leaves, g = (mg.tensor(a.astype(dtype), requires_grad=i < 3) for i, a in enumerate(arrays))
        y = F.scaled_dot_product_attention(*leaves, **options)
        return [y.detach(), *mg.grad(y, leaves, g)]

    exact = attend(arrays, "float64")
    mg.set_float32_matmul_precision("medium")
    found = attend(arrays, "float32")
    for one, other in zip(found, exact, strict=True):
        error = mg.linalg.vector_norm(one - other).item() / mg.linalg.vector_norm(other).item()
        assert error < 0.01
        assert error > 1e-4 if ROUNDS and queries >= 16 else error < 1e-5
    alone = attend([a[1:2] for a in arrays], "float32")
    agree(alone, [x[1:2] for x in found])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_backward_pass_of_attention_rounds_as_its_forward_pass(device, rng):
    q, k, v, g = (mg.tensor((rng.standard_normal((1, 1, 20, 16)) * scale).astype("float32"), device=device)
                  for scale in (40, 40, 1, 1))  # fmt: skip
    results = {}
    for forward, backward in [("highest",) * 2, ("highest", "medium"), ("medium",) * 2, ("medium", "highest")]:
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        mg.set_float32_matmul_precision(forward)
        y = F.scaled_dot_product_attention(*leaves)
        mg.set_float32_matmul_precision(backward)
        results[forward, backward] = mg.grad(y, leaves, g)
    agree(results["highest", "highest"], results["highest", "medium"])
    agree(results["medium", "medium"], results["medium", "highest"])


def test_a_query_that_sees_one_key_has_no_gradient(rng):
    mg.set_float32_matmul_precision("medium")
    shapes = (2, 3, 70, 33), (2, 3, 1, 33), (2, 3, 1, 40), (2, 3, 70, 40)
    *leaves, g = (mg.tensor(rng.standard_normal(s).astype("float32"), requires_grad=True) for s in shapes)
    dq, dk, _ = mg.grad(F.scaled_dot_product_attention(*leaves), leaves, g.detach())
    assert max(mg.abs(dq).max().item(), mg.abs(dk).max().item()) < 1e-4


def test_nothing_changes_in_float64_and_in_convolutions(rng):
    x, w = (mg.tensor(rng.standard_normal((2, 3, 33, 33))) for _ in range(2))
    results = []
    for name in ("highest", "medium"):
        mg.set_float32_matmul_precision(name)
        results.append([x @ w, F.scaled_dot_product_attention(x, w, w),
                        F.conv2d(x.astype("float32"), w[..., :3, :3].astype("float32"))])  # fmt: skip
    agree(*results)


def test_other_kernels_do_not_round():
    code = """
import minigrad as mg
mg.show_config()
x = mg.full((32, 32), 1 + 2**-10)
mg.set_float32_matmul_precision("medium")
print(abs((x @ x)[0, 0].item() - 32 * (1 + 2**-10) ** 2) < 1e-4)
"""
    run = subprocess.run([sys.executable, "-c", code], env=os.environ | {"MINIGRAD_ISA": "avx2"}, capture_output=True,
                         text=True, check=True)  # fmt: skip
    assert "medium    float32 (no AVX512_BF16)" in run.stdout
    assert run.stdout.endswith("True\n")
