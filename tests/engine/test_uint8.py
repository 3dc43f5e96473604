"""uint8, which is stored, indexed, compared and converted, against NumPy."""

import operator

import numpy as np
import pytest
from checks import array, refuses, tensor

import minigrad as mg
from minigrad import data, nn
from minigrad.nn import functional as F

A = np.array([[0, 1, 2, 127], [128, 200, 254, 255]], np.uint8)
B = np.array([[0, 2, 1, 128], [127, 200, 255, 254]], np.uint8)
VIEWS = {"contiguous": lambda a: a, "transposed": lambda a: a.T, "steps": lambda a: a[:, ::-2], "row": lambda a: a[1]}
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]
ADVICE = "not defined for uint8: convert it first, as x.astype('float32') does"


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons(name, view, device):
    compare, a, b = getattr(operator, name), VIEWS[view](A), VIEWS[view](B)
    x = VIEWS[view](tensor(A, device))
    np.testing.assert_array_equal(array(compare(x, VIEWS[view](tensor(B, device)))), compare(a, b))
    for number in (200, 0, 255, 256, 300, 2**40, -1, True, 199.5, np.uint8(200), np.int8(-1), np.int64(2**40)):
        np.testing.assert_array_equal(array(compare(x, number)), compare(a, number))
        np.testing.assert_array_equal(array(compare(number, x)), compare(number, a))
    for dtype in ("bool", "int32", "int64", "float32", "float64"):
        np.testing.assert_array_equal(array(compare(x, tensor(b.astype(dtype), device))), compare(a, b.astype(dtype)))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_conversions(dtype, view, device):
    """Also of many elements, where loops are vectors."""
    for a in (A, np.arange(2 * 999, dtype=np.uint8).reshape(2, 999)):
        x, expected = VIEWS[view](tensor(a, device)), VIEWS[view](a).astype(dtype)
        y = x.astype(dtype)
        assert y.dtype == dtype
        np.testing.assert_array_equal(array(y), expected)
        np.testing.assert_array_equal(array(y.astype("uint8")), expected.astype("uint8"))
        out = mg.zeros(y.shape, dtype=dtype, device=device)
        np.testing.assert_array_equal(array(out.copy_(x) if dtype != "bool" else y), expected)


@pytest.mark.parametrize("source", ["int32", "int64", "float32", "float64"])
@pytest.mark.parametrize("size", [9, 300])
def test_numbers_that_uint8_cannot_hold(source, size, device):
    """Integers keep their lower bits; floats are rounded toward zero and clamped, and NaN becomes 0."""
    a = np.array([-1, 255, 256, -256, 2**31 - 1, -(2**31), 0, 1000, 7])
    expected = a.astype(np.uint8)
    if source.startswith("f"):
        a = np.array([-1, 255.9, 256, -0.9, 1e30, -np.inf, np.inf, np.nan, 7.9])
        expected = [0, 255, 255, 0, 255, 0, 255, 0, 7]
    x = tensor(np.resize(a, size).astype(source), device)
    np.testing.assert_array_equal(array(x.astype("uint8")), np.resize(expected, size))


def test_data_are_checked(device):
    for values in ([256], [-1], [1.5, 256.0], np.array([300]), [float("nan")], [-1.0]):
        refuses(
            ValueError, "tensor", ["expected numbers that fit uint8", "got values from"], mg.tensor, values, "uint8"
        )
    assert mg.tensor([255.9, -0.9], "uint8", device=device).tolist() == [255, 0]
    assert mg.tensor([2**31 - 1], "int32").item() == 2**31 - 1
    refuses(ValueError, "tensor", "fit int64", mg.tensor, [2.0**63], "int64")
    refuses(OverflowError, "full", ["256", "uint8"], mg.full, 2, 256, dtype="uint8", device=device)


def test_results_of_other_dtypes(device):
    """What meets a number or a tensor of a higher dtype takes that dtype; division is of floats."""
    x = tensor(A, device)
    np.testing.assert_array_equal(array(x / 255), A / np.float32(255))
    np.testing.assert_array_equal(array(x.astype("float64") / (x + 1.0)), A / (A + np.float32(1)).astype("float64"))
    for other in (1.5, np.ones(4, "int32"), np.full(4, 2.5, "float32"), np.full(4, 2.5)):
        for f in (operator.add, operator.sub, operator.mul):
            expected = f(A.astype("float32") if isinstance(other, float) else A, other)
            if getattr(other, "dtype", None) == "float32":
                expected = f(A.astype("float32"), other)
            result = f(x, tensor(other, device) if isinstance(other, np.ndarray) else other)
            assert result.dtype == str(expected.dtype)
            np.testing.assert_array_equal(array(result), expected)
    w = mg.ones(4, device=device, requires_grad=True)
    (w * x).sum().backward()
    np.testing.assert_array_equal(array(w.grad), A.sum(0))


ARITHMETIC = {
    **{name: lambda x, f=f: f(x, x) for name, f in {
        "add": mg.add, "subtract": mg.subtract, "multiply": mg.multiply, "floor_divide": mg.floor_divide,
        "remainder": mg.remainder, "power": mg.power, "bitwise_and": mg.bitwise_and,
        "bitwise_left_shift": mg.bitwise_left_shift,
    }.items()},
    **{f.__name__: f for f in (mg.negative, mg.sign, mg.square, mg.bitwise_invert)},
    "abs": mg.abs, "sum": lambda x: mg.sum(x, dtype="uint8"), "cumulative_sum": lambda x: mg.cumulative_sum(x, 0, dtype="uint8"),
    "+=": lambda x: x.__iadd__(x), "*=": lambda x: x.__imul__(2),
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_is_refused(name, device):
    refuses(TypeError, name, ADVICE, ARITHMETIC[name], tensor(A, device))


def test_arithmetic_with_numbers_and_bools_is_refused(device):
    x = tensor(A, device)
    for other in (1, True, mg.ones(4, dtype="bool", device=device)):
        refuses(TypeError, "add", ADVICE, mg.add, x, other)
        refuses(TypeError, "multiply", ADVICE, mg.multiply, other, x)
    for number in (-1, 256):
        refuses(OverflowError, "add", f"{number} does not fit uint8", mg.add, x, number)


def test_reductions(device, rng):
    """Sums and products are int64; extrema keep the dtype; moments are of floats."""
    a = rng.integers(0, 256, (5, 300), np.uint8)
    x = tensor(a, device)
    for axis in (None, 0, 1):
        for name in ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all"):
            result = getattr(mg, name)(x, axis)
            assert result.dtype == {"s": "int64", "p": "int64", "m": "uint8"}.get(name[0], result.dtype)
            np.testing.assert_array_equal(array(result).astype("uint64"), getattr(np, name)(a, axis).astype("uint64"))
    for name in ("cumulative_sum", "cumulative_prod"):
        f = np.cumsum if name.endswith("sum") else np.cumprod
        np.testing.assert_array_equal(array(getattr(mg, name)(x[:, :5], axis=1)), f(a[:, :5], 1, dtype="int64"))
    for name in ("mean", "var", "logsumexp"):
        refuses(TypeError, name, "uint8", getattr(mg, name), x)
    np.testing.assert_array_equal(array(mg.unique_values(x)), np.unique(a))
    np.testing.assert_array_equal(array(mg.count_nonzero(x, 0)), np.count_nonzero(a, 0))


def test_values_that_move(device, rng):
    """Indexing, and what joins, selects, pads, repeats and writes elements, in a quarter of the memory of float32."""
    a = rng.integers(0, 256, (6, 7, 5), np.uint8)
    x, index = tensor(a, device), rng.integers(0, 6, (4,))
    assert x.nbytes == a.size
    for f in (
        lambda m, t: t[1], lambda m, t: t[..., ::-2], lambda m, t: t[t > 100], lambda m, t: t[index],
        lambda m, t: m.take(t, tensor(index, device) if m is mg else index, axis=0), lambda m, t: m.concat([t, t], axis=1),
        lambda m, t: m.stack([t, t]), lambda m, t: m.flip(t, axis=0), lambda m, t: m.roll(t, 2, axis=1),
        lambda m, t: m.where(t > 100, t, m.flip(t, axis=0)), lambda m, t: m.where(t > 100, 7, t),
        lambda m, t: m.tile(t, (2, 1, 1)), lambda m, t: m.repeat(t, 2, axis=1), lambda m, t: m.sort(t, axis=1),
        lambda m, t: m.argsort(t, axis=1, stable=True), lambda m, t: m.maximum(t, m.flip(t, axis=0)),
        lambda m, t: m.minimum(t, 100), lambda m, t: m.clip(t, 10, 100), lambda m, t: m.pad(t, ((1, 0), (0, 2), (0, 0))),
        lambda m, t: m.take_along_axis(t, m.argsort(t, axis=2, stable=True), axis=2), lambda m, t: t.reshape(42, 5).T,
        lambda m, t: m.broadcast_to(t, (2, 6, 7, 5)), lambda m, t: m.logical_not(t), lambda m, t: m.logical_and(t, t > 9),
    ):  # fmt: skip
        result, expected = f(mg, x), f(np, a)
        assert result.dtype == str(expected.dtype)
        np.testing.assert_array_equal(array(result), expected)
    for write in (
        lambda t: t.__setitem__(0, 255), lambda t: t.__setitem__((slice(None), 1), t[:, 2]),
        lambda t: t.__setitem__(t > 200, 3), lambda t: t.__setitem__(index, t[0]), lambda t: t.fill_(9) if t is x else t.fill(9),
    ):  # fmt: skip
        write(x)
        write(a)
        np.testing.assert_array_equal(array(x), a)
    assert repr(mg.tensor([1, 255], "uint8")) == "tensor([  1, 255], dtype=uint8)"
    assert (x[0, 0, 0].item(), int(x[0, 0, 0]), range(10)[x[0, 0, 0]]) == (9, 9, 9)
    refuses(OverflowError, "setitem", "256", x.__setitem__, 0, 256)
    refuses(TypeError, "tensor", "uint8", mg.tensor, A, requires_grad=True)


def test_a_tensor_between_brackets_says_what_it_is(device):
    """As PyTorch reads it as a mask and NumPy as indices."""
    x, i = mg.arange(3, device=device), tensor(np.array([1, 0, 1], np.uint8), device)
    refuses(IndexError, "index", ["int32 or int64 or a mask of bool, got uint8", "i.astype('int64')"], x.__getitem__, i)
    assert mg.take(x, i).tolist() == [1, 0, 1]
    assert x[i.astype("bool")].tolist() == [0, 2]


def test_labels(device):
    z, labels = mg.arange(12, dtype="float32", device=device).reshape(4, 3), np.array([2, 0, 1, 2], np.uint8)
    y, wide = tensor(labels, device), tensor(labels.astype("int64"), device)
    for f in (
        lambda y: F.cross_entropy(z, y), lambda y: F.cross_entropy(z, y, ignore_index=2, label_smoothing=0.1),
        lambda y: F.nll_loss(z, y), lambda y: F.one_hot(y), lambda y: F.embedding(y, z),
        lambda y: mg.take_along_axis(z, y.reshape(4, 1), 1), lambda y: mg.gather(z, 1, y.reshape(4, 1)),
        lambda y: mg.scatter_add(z, 0, mg.broadcast_to(y.reshape(4, 1), (4, 3)), z),
    ):  # fmt: skip
        np.testing.assert_array_equal(array(f(y)), array(f(wide)))
    for layer in (nn.Linear(3, 2, device=device), nn.Conv1d(2, 2, 1, device=device)):
        with pytest.raises(TypeError, match=r"got uint8: use x\.astype"):
            layer(tensor(A[:, :3], device))


def test_data_sets_of_images(device, rng):
    images, labels = rng.integers(0, 256, (7, 1, 4, 4), np.uint8), rng.integers(0, 3, 7, np.uint8)
    for dataset in (data.ArrayDataset(images, labels), data.TensorDataset(mg.tensor(images, device=device), tensor(labels, device)),
                    list(zip(images, labels, strict=True))):  # fmt: skip
        batches = list(data.DataLoader(dataset, 3))
        assert all(x.dtype == "uint8" for x, _ in batches)
        np.testing.assert_array_equal(np.concatenate([array(x) for x, _ in batches]), images)
        np.testing.assert_array_equal(np.concatenate([array(y) for _, y in batches]), labels)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)).to(device)
    loss = F.cross_entropy(model(tensor(images, device) / 255), tensor(labels, device))
    loss.backward()
    assert np.isfinite(loss.item())


def test_checkpoints_and_state(tmp_path, device):
    module = nn.Module()
    module.register_buffer("pixels", tensor(A, device))
    mg.save_checkpoint(tmp_path / "a", model=module.state_dict(), raw=A)
    loaded = mg.load_checkpoint(tmp_path / "a")
    for x in (loaded["model"]["pixels"], loaded["raw"]):
        assert x.dtype == "uint8"
        np.testing.assert_array_equal(array(x), A)
    module.pixels.fill_(0)
    module.load_state_dict(loaded["model"])
    np.testing.assert_array_equal(array(module.pixels), A)
    refuses(ValueError, "Module", "that it cannot hold", module.load_state_dict, {"pixels": mg.full((2, 4), 256)})


def test_a_captured_step_converts(device):
    step = mg.capture(lambda x: (x / 255).sum(1))
    for a in (A, B, A):
        np.testing.assert_allclose(array(step(tensor(a, device))), (a / np.float32(255)).sum(1), rtol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_onnx_models_take_bytes(tmp_path, rng):
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x):
            return self.linear(x / 255)

    model, x = Scaled(), mg.tensor(A)
    mg.onnx.export(model, (x,), tmp_path / "m.onnx")
    found = onnx.load(tmp_path / "m.onnx")
    assert found.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    (y,) = reference.ReferenceEvaluator(found).run(None, {found.graph.input[0].name: A})
    np.testing.assert_allclose(y, array(model(x)), rtol=1e-5, atol=1e-6)
