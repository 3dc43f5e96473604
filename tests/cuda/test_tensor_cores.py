"""Products on tensor cores: the function itself, and attention and convolutions in the precision that was chosen."""

import cupy
import numpy as np
import pytest

import minigrad as mg
from minigrad.cuda import attention, launch, modules
from minigrad.nn import functional as F

PRODUCT = """
extern "C" __global__ void product(float* x, Bool fast) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const float *a = x, *b = x + 16 * 8;
    const float mine[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
    const float theirs[2] = {b[t * 8 + g], b[(t + 4) * 8 + g]};
    float* const c = x + 16 * 8 + 8 * 8;
    float sum[4];
    for (int k = 0; k < 4; k++) sum[k] = c[(g + k / 2 * 8) * 8 + 2 * t + k % 2];
    if (fast)
        multiply_add(Factor<false, 4>(mine), Factor<false, 2>(theirs), sum);
    else
        multiply_add(Factor<true, 4>(mine), Factor<true, 2>(theirs), sum);
    for (int k = 0; k < 4; k++) c[(g + k / 2 * 8) * 8 + 2 * t + k % 2] = sum[k];
}
"""
SETTINGS = ("highest", "high")
# the least and the largest relative error of a product
LIMITS = ("highest", 0, 2**-20), ("high", 2**-16, 2**-9), ("medium", 2**-13, 2**-6)
EMULATED = cupy.__version__ == "emulated"


@pytest.fixture(autouse=True)
def restored():
    yield
    mg.set_float32_matmul_precision("highest")


needs_tf32 = pytest.mark.skipif(not attention.has_tf32(0), reason="this GPU has no TF32")


def tf32(x):
    """Return float32 numbers with ten bits of fraction, ties rounded away from zero."""
    return ((x.view("uint32") + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view("float32")


@needs_tf32
@pytest.mark.parametrize("setting", SETTINGS)
def test_product(setting, rng):
    a, b, c = (rng.standard_normal(shape).astype("float32") for shape in ((16, 8), (8, 8), (16, 8)))
    a[0, :4] = 1 + 2**-11, -1 - 2**-11, 1 + 2**-11 - 2**-20, 2**-140  # two ties, just below one, a subnormal
    there = mg.tensor(np.concatenate([a.ravel(), b.ravel(), c.ravel()]), device="cuda")
    code = launch.functions("float32") + launch.source("random.cu")[0] + PRODUCT
    kernel = modules.load(code, launch.options("float32"), 0).get_function("product")
    kernel((1,), (32,), (there.data_ptr(), np.bool_(setting == "high")))
    found = there.to("cpu").numpy()[16 * 8 + 8 * 8 :].reshape(16, 8)
    x, y = (tf32(a), tf32(b)) if setting == "high" else (a, b)
    scale = np.abs(x) @ np.abs(y) + np.abs(c)
    # Tensor cores cut sums off at a little more than 24 bits of the largest term.
    assert (np.abs(found - (x.astype("float64") @ y + c)) <= 2**-20 * scale).all()
    assert setting == "highest" or not (np.abs(found - (a.astype("float64") @ b + c)) <= 2**-15 * scale).all()


def attend(arrays, dtype="float32", **options):
    """Return the result and its gradients for the last of the arrays."""
    *leaves, g = (mg.tensor(a.astype(dtype), device="cuda", requires_grad=i < 3) for i, a in enumerate(arrays))
    y = F.scaled_dot_product_attention(*leaves, **options)
    return [x.detach().to("cpu").numpy() for x in (y, *mg.grad(y, leaves, g))]


@needs_tf32
@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("centered", [True, False])
def test_precision(width, centered, rng, monkeypatch):
    """In full precision the errors are about those of sums in float32; with TF32 they are those of ten bits."""
    draw = rng.standard_normal if centered else rng.random
    arrays = [draw((2, 150, width)).astype("float32") for _ in range(4)]
    exact = attend(arrays, "float64", is_causal=True)
    results = []
    for setting in SETTINGS:
        mg.set_float32_matmul_precision(setting)
        results.append(attend(arrays, is_causal=True))
    monkeypatch.setattr(attention, "has_tf32", lambda device: False)
    results.append(attend(arrays, is_causal=True))
    for e, *found in zip(exact, *results, strict=True):
        full, fast, plain = (np.abs(f - e) for f in found)
        assert (full**2).mean() <= 1.5 * (plain**2).mean()
        assert full.max() <= 2 * plain.max()
        assert 10 * full.max() < fast.max() < 0.05 * np.abs(e).max()


@needs_tf32
@pytest.mark.parametrize("widths", [(5, 30), (40, 64), (66, 33), (128, 128), (32, 32)])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "numbers", "dropout", "groups", "misaligned"])
def test_agrees_with_the_other_kernels(kind, widths, rng, monkeypatch):
    width, value_width = widths
    shapes = (2, 4, 70, width), (2, 2 if kind == "groups" else 4, 150, width)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in
              (*shapes, (*shapes[1][:3], value_width), (2, 4, 70, value_width))]  # fmt: skip
    options = {"causal": {"is_causal": True}, "dropout": {"dropout_p": 0.3, "is_causal": True},
               "groups": {"enable_gqa": True}}.get(kind, {})  # fmt: skip
    if kind in ("mask", "numbers"):
        mask = rng.random((2, 1, 70, 150)) < 0.5 if kind == "mask" else rng.standard_normal((4, 1, 150))
        if kind == "mask":
            mask[:, :, 3] = False
        options["attn_mask"] = mg.tensor(mask, device="cuda")
    make = mg.tensor
    if kind == "misaligned":
        monkeypatch.setattr(
            mg, "tensor", lambda x, **o: make(np.append(0, x).astype("float32"), **o)[1:].reshape(x.shape)
        )

    def run(on_tensor_cores):
        monkeypatch.setattr(attention, "has_tf32", lambda device: on_tensor_cores)
        mg.manual_seed(3)
        return attend(arrays, **options)

    for found, expected in zip(run(True), run(False), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@needs_tf32
@pytest.mark.parametrize("setting", SETTINGS)
def test_each_sample_is_computed_as_if_it_were_alone(setting, rng):
    mg.set_float32_matmul_precision(setting)
    arrays = [rng.standard_normal((3, 2, 70, 33)).astype("float32") for _ in range(4)]
    together = attend(arrays, is_causal=True)
    for i in range(3):
        for one, all_ in zip(attend([a[i : i + 1] for a in arrays], is_causal=True), together, strict=True):
            np.testing.assert_array_equal(one[0], all_[i])


@needs_tf32
def test_only_the_gradients_that_are_needed(rng):
    arrays = [rng.standard_normal((1, 2, 70, 20)).astype("float32") for _ in range(4)]
    expected = attend(arrays)[1:]
    for k in range(3):
        leaves = [mg.tensor(a, device="cuda", requires_grad=i == k) for i, a in enumerate(arrays[:3])]
        (found,) = mg.grad(F.scaled_dot_product_attention(*leaves), [leaves[k]], mg.tensor(arrays[3], device="cuda"))
        np.testing.assert_array_equal(found.to("cpu").numpy(), expected[k])


@needs_tf32
@pytest.mark.parametrize("outputs", [3, 70])
def test_convolutions_are_rounded_where_that_is_allowed(outputs, rng):
    shapes = (4, 5, 32, 32), (outputs, 5, 3, 3), (4, outputs, 30, 30)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    results = {}
    for dtype, setting in (("float64", "highest"), ("float32", "highest"), ("float32", "high")):
        mg.set_float32_matmul_precision(setting)
        x, w, g = (mg.tensor(a.astype(dtype), device="cuda", requires_grad=i < 2) for i, a in enumerate(arrays))
        y = F.conv2d(x, w)
        results[dtype, setting] = [a.detach().to("cpu").numpy() for a in (y, *mg.grad(y, [x, w], g))]
    for exact, full, fast in zip(*results.values(), strict=True):
        scale = np.abs(exact).max()
        assert np.abs(full - exact).max() < 3e-6 * scale
        assert 1e-5 * scale < np.abs(fast - exact).max() < 5e-3 * scale


@needs_tf32
@pytest.mark.parametrize("batch", [(), (3,)])
def test_matrix_products_are_rounded_where_that_is_allowed(batch, rng):
    a, b = (rng.standard_normal((*batch, 40, 50)).astype("float32") for _ in range(2))
    exact = a.astype("float64") @ np.swapaxes(b, -1, -2)
    scale = np.abs(a).astype("float64") @ np.swapaxes(np.abs(b), -1, -2)
    x, y = mg.tensor(a, device="cuda"), mg.tensor(b, device="cuda")
    product = mg.capture(lambda x, y: x @ y.mT, warmup=0)
    for setting, least, most in LIMITS * 2:
        mg.set_float32_matmul_precision(setting)
        for found in (x @ y.mT, product(x, y), product(x, y)):
            error = (np.abs(found.to("cpu").numpy() - exact) / scale).max()
            assert error <= most
            assert error >= least or not EMULATED  # cuBLAS may choose a kernel without tensor cores
    assert product.recordings == len(LIMITS)
    in_double = mg.tensor(a, dtype="float64", device="cuda") @ mg.tensor(b, dtype="float64", device="cuda").mT
    np.testing.assert_allclose(in_double.to("cpu").numpy(), exact, rtol=1e-12, atol=1e-12)
