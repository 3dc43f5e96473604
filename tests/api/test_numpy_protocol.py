"""NumPy's functions on tensors: minigrad's result with its gradient, NumPy's, or an error; never a lost gradient."""

import itertools
import re
import warnings
from functools import reduce

import numpy as np
import pytest
from checks import agree, array, as_list, cotangents, near, raises, tensor

import minigrad as mg
from minigrad.interop import numpy_protocol

# a, b (3, 4), x (2, 3, 4), m (3, 3) and v (4,) are floats, p (3, 4) numbers from 0.1 to 0.9 and s one of them; i are
# integers from 0 to 2, k indices of rows, and q is a mask.
EXPRESSIONS = """
    np.add(a, b)                        np.subtract(2, a)                   np.multiply(a, v)
    np.divide(a, p)                     np.true_divide(1, p)                np.floor_divide(a, p)
    np.remainder(a, p)                  np.mod(a, 0.7)                      np.negative(a)
    np.positive(a)                      np.reciprocal(p)                    np.power(p, a)
    np.maximum(a, 0)                    np.minimum(a, b)                    np.arctan2(a, p)
    np.exp(a)                           np.exp2(a)                          np.expm1(a)
    np.log(p)                           np.log1p(p)                         np.log2(p)
    np.log10(p)                         np.sqrt(p)                          np.square(a)
    np.sin(a)                           np.cos(a)                           np.tan(p)
    np.arcsin(p)                        np.arccos(p)                        np.arctan(a)
    np.sinh(a)                          np.cosh(a)                          np.tanh(a)
    np.arcsinh(a)                       np.arccosh(p + 1)                   np.arctanh(p)
    np.abs(a)                           np.absolute(i)                      np.sign(a)
    np.floor(a)                         np.ceil(a)                          np.rint(a)
    np.matmul(a, v)                     np.matmul(x, b.T)                   np.vecdot(a, v)
    np.vecdot(a, b, axis=0)             np.isnan(a)                         np.isinf(a)
    np.isfinite(a)                      np.equal(a, b)                      np.not_equal(a, b)
    np.less(a, 0)                       np.less_equal(a, b)                 np.greater(a, v)
    np.greater_equal(0, a)              np.logical_and(q, a > 0)            np.logical_or(q, a)
    np.logical_xor(q, q)                np.logical_not(q)                   np.bitwise_and(i, 1)
    np.bitwise_or(i, 4)                 np.bitwise_xor(q, q)                np.invert(q)
    np.add.reduce(a)                    np.add.reduce(a, axis=None)         np.add.reduce(x, axis=(0, 2), keepdims=True)
    np.multiply.reduce(p, axis=1)       np.maximum.reduce(a)                np.minimum.reduce(a, axis=-1)
    np.logical_and.reduce(q)            np.logical_or.reduce(q, axis=1)     np.multiply.outer(v, a)
    np.subtract.outer(v, 2)             np.arctan2.outer(v, p)              np.divide.outer(np.ones(2), p)
    np.sum(a)                           np.sum(a, 0)                        np.sum(x, axis=(0, 2), keepdims=True)
    np.sum(a, axis=1, dtype=None, out=None)                                 np.sum(i)
    np.sum(a, dtype="float32")          np.mean(a)                          np.mean(a, axis=1, keepdims=True)
    np.prod(p, axis=0)                  np.std(a)                           np.std(a, axis=0, ddof=1)
    np.std(a, axis=1, correction=1)     np.var(a, ddof=1, keepdims=True)    np.var(a, 0)
    np.max(a)                           np.max(a, axis=1)                   np.min(a, axis=0, keepdims=True)
    np.amax(a, 1)                       np.amin(a)                          np.argmax(a)
    np.argmax(a, axis=1)                np.argmin(a, axis=0, keepdims=True)
    np.any(q)                           np.any(a, axis=0)                   np.all(q, axis=1, keepdims=True)
    np.cumsum(a)                        np.cumsum(a, axis=1)                np.cumulative_sum(v)
    np.cumulative_sum(a, axis=0, include_initial=True)                      np.sort(a)
    np.sort(a, axis=0)                  np.argsort(a)                       np.argsort(a, axis=0, stable=True)
    np.reshape(a, (4, 3))               np.reshape(a, -1)                   np.reshape(a, (2, 6), order="C")
    np.ravel(a)                         np.copy(a)                          np.transpose(x)
    np.transpose(x, (2, 0, 1))          np.permute_dims(x, (1, 0, 2))       np.matrix_transpose(x)
    np.swapaxes(x, 0, -1)               np.moveaxis(x, 0, -1)               np.moveaxis(x, [0, 1], [1, 0])
    np.expand_dims(a, (0, 2))           np.squeeze(a[None], axis=0)         np.broadcast_to(v, (3, 4))
    np.flip(a)                          np.flip(a, axis=(0, 1))             np.roll(a, 1)
    np.roll(a, (1, 2), axis=(0, 1))     np.tile(a, (2, 1))                  np.repeat(a, 2, 0)
    np.repeat(a, [1, 0, 2], axis=0)     np.repeat(a, 2)                     np.pad(a, 1)
    np.pad(a, (1, 2))                   np.pad(a, 1, mode="edge")
    np.pad(a, ((1, 0), (0, 2)), constant_values=3.0)                        np.tril(a)
    np.triu(a, k=1)                     np.concatenate([a, b])              np.concatenate((a, p), axis=1)
    np.concatenate([a, np.ones((1, 4))])                                    np.concatenate([a, v], axis=None)
    np.stack([a, b])                    np.stack([a, b], axis=-1)           np.hstack([a, b])
    np.hstack([v, s])                   np.vstack([a, v])                   np.vstack((v, np.ones(4)))
    np.split(a, [1], axis=1)            np.split(a, 3)                      np.unstack(a, axis=1)
    np.meshgrid(v, a[0])                np.where(a > 0)
    np.meshgrid(v, a[0], indexing="ij")                                     np.nonzero(q)
    np.where(q, a, b)                   np.where(q, 0.0, a)                 np.clip(a, max=0.5)
    np.take(a, k, axis=0)               np.take(a, k)                       np.take(a, 1)
    np.take_along_axis(a, i, axis=1)    np.clip(a, -0.5, 0.5)               np.clip(a, a_min=0, a_max=None)
    np.clip(a, b - 1, b + 1)            np.round(a)                         np.around(a)
    np.astype(a, np.float32)            np.sort(v)
    np.dot(a, v)                        np.dot(v, v)                        np.dot(x, x[0].T)
    np.dot(x, np.transpose(x, (0, 2, 1)))                                   np.dot(s, a)
    np.inner(a, b)                      np.inner(x, v)                      np.inner(s, a)
    np.vdot(a, b)                       np.outer(v, v)                      np.outer(a, v)
    np.tensordot(x, a)                  np.tensordot(a, v, 1)               np.tensordot(x, a, axes=([1, 2], [0, 1]))
    np.einsum("ij,kj->ik", a, b)        np.einsum("ii", m)                  np.einsum("ij,j", a, v)
    np.linalg.norm(a)                   np.linalg.norm(a, axis=1)           np.linalg.norm(v, 1)
    np.linalg.norm(v, ord=np.inf)       np.linalg.norm(p, 3, axis=0, keepdims=True)
    np.linalg.norm(x, axis=(1, 2))      np.linalg.matmul(a, b.T)            np.linalg.outer(v, v)
    np.linalg.vecdot(a, b)              np.linalg.tensordot(x, a, axes=2)   np.linalg.matrix_transpose(a)
    np.zeros_like(a)                    np.ones_like(i)                     np.full_like(a, 3)
    np.zeros_like(a, dtype="int64")     np.empty_like(a).shape == (3, 4)    np.shape(a) == (3, 4)
    np.ndim(a) == 2                     np.size(a) == 12 and np.size(a, 1) == 4
    np.isrealobj(a) and not np.iscomplexobj(a)                              np.copyto(a * 1, b) is None
    np.copysign(a, b)                   np.hypot(a, b)                      np.logaddexp(a, b)
    np.trunc(a)                         np.signbit(a)                       np.nan_to_num(a)
    np.left_shift(i, 2)                 np.right_shift(i, 1)                np.count_nonzero(q)
    np.count_nonzero(a, axis=1)         np.cumulative_prod(v)               np.cumulative_prod(p, axis=0)
    np.diff(a)                          np.diff(a, 2, axis=0)               np.diff(v, prepend=0.5)
    np.median(a)                        np.median(a, axis=1)                np.quantile(a, 0.3, axis=1)
    np.diag(v)                          np.diag(m, k=1)                     np.diagonal(m)
    np.diagonal(x, 1, 0, 2)             np.linalg.diagonal(x)               np.trace(x)
    np.linalg.trace(x, offset=1)        np.kron(a, m)                       np.linalg.cross(m, m[0])
    np.searchsorted(np.sort(v), a[0])   np.broadcast_arrays(a, v)           np.linalg.vector_norm(a, axis=1)
    np.linalg.matrix_norm(x)            np.linalg.matrix_power(m, 3)
    np.linalg.inv(m)                    np.linalg.cholesky(m @ m.T)          np.linalg.solve(m, a)
    np.ones((3, 4)) * a                 np.float64(2) * a                   np.float64(2) / p
    np.ones((3, 1)) - a                 np.ones(4) ** a                     np.ones((2, 3)) @ a
    np.ones(4) < a                      np.float64(0) == a                  np.bool_(True) & q
    np.ones(4) // p                     np.float64(5) % p                   np.float64(0.5) < p
"""


def expressions():
    lines = EXPRESSIONS.strip().split("\n")
    return [e.strip() for line in lines for e in re.split(r"\s{3,}", line.strip())]


def space(make):
    """Return the names that the expressions use."""
    rng = np.random.default_rng(0)
    made = {
        "a": rng.standard_normal((3, 4)), "b": rng.standard_normal((3, 4)), "x": rng.standard_normal((2, 3, 4)),
        "m": rng.standard_normal((3, 3)), "v": rng.standard_normal(4), "p": rng.uniform(0.1, 0.9, (3, 4)),
        "s": np.asarray(rng.uniform(0.1, 0.9)), "i": rng.integers(0, 3, (3, 4)), "k": np.array([2, 0]),
        "q": rng.random((3, 4)) < 0.5,
    }  # fmt: skip
    return {name: make(value) for name, value in made.items()}


def floats(values):
    return [y for y in values if isinstance(y, mg.Tensor) and y.dtype.kind == "f"]


@pytest.mark.parametrize("expression", expressions())
def test_values_and_gradients(expression, device, rng):
    """Values are NumPy's, gradients those of central differences, on a GPU the CPU's; nothing leaves the device."""

    def evaluate(names):
        return as_list(eval(expression, {"np": np, **names}))

    def made(where):
        return space(lambda value: tensor(value, where, value.dtype.kind == "f"))

    if "np.ones" in expression:
        device = "cpu"  # arrays are not sent to GPUs
    names = made(device)
    ours, theirs = evaluate(names), evaluate(space(np.asarray))
    for y, e in zip(ours, theirs, strict=True):
        if isinstance(e, bool):
            assert y is e
            continue
        assert isinstance(y, mg.Tensor)
        assert (y.device, y.shape, y.dtype) == (device, np.shape(e), str(e.dtype))
        near(y, e, rtol=1e-6 if e.dtype == np.float32 else 1e-12, atol=1e-13)
    ys = floats(ours)
    if not ys or "_like" in expression:
        assert not any(y.requires_grad for y in ys)
        return
    assert all(y.requires_grad for y in ys)
    used = [name for name in "abxmvps" if re.search(rf"\b{name}\b", expression)]

    def function(*points):
        return floats(evaluate({**made(points[0].device), **dict(zip(used, points, strict=True))}))

    if device == "cpu" and "float32" not in expression:
        assert mg.gradcheck(function, [names[name] for name in used], rtol=1e-6, atol=1e-7, order=1)
    else:
        grads, found = cotangents(ys, rng), []
        for where in (device, "cpu"):
            points = [made(where)[name] for name in used]
            found.append(mg.grad(function(*points), points, [tensor(g, where) for g in grads], allow_unused=True))
        agree(*found, rtol=1e-12, atol=1e-13)


def test_every_name_of_the_table_is_tested():
    named = {reduce(getattr, path.split("."), np) for path in re.findall(r"np\.((?:linalg\.)?\w+)", EXPRESSIONS)}
    assert numpy_protocol.OURS.keys() - named == set()


# ── every function of NumPy ───────────────────────────────────────────────────────────────────────

CONVERSIONS = "array asarray asanyarray ascontiguousarray asfortranarray asarray_chkfinite asmatrix vectorize require"


def functions():
    """The public functions of NumPy, its linear algebra and its Fourier transforms that ask their arguments, the ufuncs,
    and the functions that make arrays."""
    found = {}
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft), ("emath.", np.emath)):
        for name in dir(module):
            value = getattr(module, name)
            if isinstance(value, np.ufunc | type(np.sum)) or (module is np and name in CONVERSIONS.split()):
                found[prefix + name] = value
    return found


CALLS = [
    lambda f, x, y: f(x), lambda f, x, y: f(x, y), lambda f, x, y: f(y, x), lambda f, x, y: f(x, 1),
    lambda f, x, y: f(1, x), lambda f, x, y: f(x, 1, 2), lambda f, x, y: f(x, x, x), lambda f, x, y: f(x, y, x),
    lambda f, x, y: f(y, x, y), lambda f, x, y: f([x, x]), lambda f, x, y: f([x, y], 1), lambda f, x, y: f([[x, x]]),
    lambda f, x, y: f((x,), (x,)), lambda f, x, y: f(y > 0, x), lambda f, x, y: f(y > 0, x, y),
    lambda f, x, y: f([y > 0], [x]), lambda f, x, y: f(x, [y > 0], [1]), lambda f, x, y: f(np.sum, 0, x),
    lambda f, x, y: f(np.sum, x, [0]), lambda f, x, y: f(x, y.astype(int), 0), lambda f, x, y: f(x, y.astype(int), x),
    lambda f, x, y: f(y.astype(int), x), lambda f, x, y: f(x, y.astype(int), y, 0), lambda f, x, y: f("ij,jk", x, x),
    lambda f, x, y: f("file", x), lambda f, x, y: f(x, np.float64), lambda f, x, y: f(x, out=y.copy()),
    lambda f, x, y: f(y, y, out=x), lambda f, x, y: f(y, y, where=x), lambda f, x, y: f(2, like=x),
    lambda f, x, y: f(lambda k: k, x.shape, like=x), lambda f, x, y: f(x.shape, 1.0, like=x),
    lambda f, x, y: f(y, weights=x),
]  # fmt: skip
# NumPy's results of these are strings, bools, integers or types, which have no gradient.
WITHOUT_GRADIENT = {"shape", "ndim", "size", "isrealobj", "iscomplexobj", *numpy_protocol.CONSTANT.split()}


def parts(value):
    """The parts of a result."""
    return [p for v in value for p in parts(v)] if isinstance(value, list | tuple) else [value]


@pytest.mark.parametrize("name", functions())
def test_no_function_loses_a_gradient(name, monkeypatch, tmp_path):
    """Whatever the arguments, what depends on x is a tensor with the history, or has no gradient; else an error says
    what to do."""
    monkeypatch.chdir(tmp_path)
    warnings.simplefilter("ignore")
    function = np.vectorize(np.abs) if name == "vectorize" else functions()[name]
    base = np.array([[0.5, -0.25, 0.75], [0.25, 1.0, 0.125], [0.75, 0.5, 0.25]])
    said = 0
    for y, call in itertools.product((base, base[0], base.reshape(-1)), CALLS):
        x = tensor(y, requires_grad=True) * 1
        try:
            found = parts(call(function, x, y.copy()))
        except (TypeError, mg.GradientError) as error:
            said += any(
                words in str(error) for words in ("np.asarray(", "x.detach().numpy()", "expected an array to write")
            )
            continue
        except (ValueError, IndexError, AttributeError, OSError):
            continue
        said += 1
        try:
            values = [parts(call(function, v.copy(), y.copy())) for v in (y, y[::-1] * 0.5 + 0.125)]
            constant = [np.array_equal(*pair) for pair in zip(*values, strict=True)]
        except (TypeError, ValueError, IndexError):  # minigrad's function takes what NumPy's does not
            constant = [False] * len(found)
        for value, independent in zip(found, constant, strict=True):
            if isinstance(value, mg.Tensor):
                assert value.requires_grad or value.dtype.kind != "f" or independent or name == "empty_like"
            elif isinstance(value, np.ndarray | np.generic):
                assert name in WITHOUT_GRADIENT or independent
    assert said, "no call says anything about tensors"


# ── operators, ufuncs and their arguments ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%", "**", "@", "<", "<=", ">", ">=", "==", "!="])
def test_an_operator_means_the_same_in_both_orders(operator):
    """With an array on the left, NumPy calls its ufunc; with a tensor on the left, minigrad's method runs."""
    for dtypes in itertools.product(("float32", "float64", "int64"), repeat=2):
        a, b = (np.array([[1, 2], [3, 4]], dtype) for dtype in dtypes)
        names = {"a": a, "x": mg.tensor(a), "y": mg.tensor(b)}
        mixed, pure = eval(f"a {operator} y", names), eval(f"x {operator} y", names)
        assert type(mixed) is mg.Tensor
        assert mixed.dtype == pure.dtype
        np.testing.assert_array_equal(mixed.numpy(), pure.numpy())


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.float32(0.1), np.int64(3)])
def test_scalars_of_numpy_do_not_decide_the_dtype(scalar, device):
    x = tensor(np.array([0.1, 3.0], np.float32), device, True)
    for y, mirrored in [
        (scalar * x, x * scalar), (scalar + x, x + scalar), (np.maximum(scalar, x), mg.maximum(scalar, x)),
    ]:  # fmt: skip
        assert (y.dtype, y.device, y.requires_grad) == ("float32", device, True)
        assert y.tolist() == mirrored.tolist()
    assert (scalar == x).tolist() == (x == scalar).tolist()
    assert (scalar <= x).tolist() == (x >= scalar).tolist()
    (g,) = mg.grad((scalar * x * x).sum(), [x])
    near(g, 2 * np.float32(scalar) * array(x), rtol=1e-6)


@pytest.mark.parametrize("bad", [np.ones(2, np.int8), np.ones(2, complex), np.array(["a", "b"]), np.ones(2, object)])
def test_an_array_that_is_no_operand(bad):
    for requires_grad in (False, True):
        x = mg.ones(2, requires_grad=requires_grad)
        with pytest.raises(TypeError, match=r"^\[multiply\] expected"):
            bad * x
    with pytest.raises(ValueError, match=r"^\[add\] the shapes"):
        np.ones(3) + x
    with pytest.raises(ValueError, match=r"^\[equal\] the shapes"):
        np.ones(3) == x  # noqa: B015


def test_results_in_arrays():
    """An array takes a result that has no gradient, as with `+=`."""
    x, r = mg.tensor([1.0, 2.0]), mg.tensor([1.0, 2.0], requires_grad=True)
    out = np.zeros(2)
    total = out
    total += x
    assert total is out
    assert out.tolist() == [1, 2]
    assert np.add(x, 1, out=out) is out
    assert out.tolist() == [2, 3]
    assert np.sum(mg.stack([x, x]), axis=0, out=out) is out
    assert out.tolist() == [2, 4]
    for call in (lambda: np.add(r, 1, out=out), lambda: np.sum(r, out=np.zeros(())), lambda: np.copyto(out, r)):
        raises(TypeError, r"np\.asarray\(x\.detach\(\)\)", call)
    with pytest.raises(TypeError, match=r"^\[add\].*np\.asarray\(x\.detach\(\)\)"):
        out += r
    assert out.tolist() == [2, 4]


def test_results_in_tensors(device):
    """A tensor takes any result, with its history; its version shows the write."""
    r = tensor(np.array([1.0, 2.0], np.float32), device, True)
    for write in (lambda y: np.multiply(r, 3, out=y), lambda y: np.cumsum(r, out=y), lambda y: np.copyto(y, r)):
        y = mg.zeros(2, device=device)
        version = y.version
        assert write(y) in (None, y)
        assert y.version > version
        assert y.requires_grad
    (g,) = mg.grad(np.exp(r, out=mg.zeros(2, device=device)).sum(), [r])
    near(g, np.exp([1, 2]), rtol=1e-6)
    np.ones((2, 2)).sum(axis=0, out=(y := mg.zeros(2)))
    assert y.tolist() == [2, 2]
    raises(TypeError, "int64", np.add, r, 0.5, out=mg.zeros(2, dtype="int64", device=device))
    with pytest.raises(mg.GradientError):
        np.add(r, 1, out=r)


@pytest.mark.parametrize("call", [
    lambda x: np.percentile(x, 50, axis=0, out=mg.zeros(2)), lambda x: np.cbrt(x, out=x),
    lambda x: np.add.at(x, [0], 1), lambda x: np.fill_diagonal(x, 0), lambda x: np.put(x, [0], 1),
    lambda x: np.place(x, x > 0, [1]), lambda x: np.putmask(x, x > 0, 1),
    lambda x: np.put_along_axis(x, mg.tensor([[0], [0]]), 1, 1), lambda x: np.copyto(x, 1, where=x > 0),
    lambda x: np.modf(x, out=(x, x)),
])  # fmt: skip
def test_numpy_does_not_write_to_tensors(call):
    """The tape would not see it."""
    for requires_grad in (False, True):
        x = mg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=requires_grad)
        raises(TypeError, r"^\[\w+\] expected an array to write to|unexpected keyword", call, x)
        assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("call, expected", [
    (lambda x: np.sum(x, where=x > 1), 5.0), (lambda x: np.sum(x, initial=2.0), 8.0),
    (lambda x: np.round(x / 3, 1), [0.3, 0.7, 1.0]), (lambda x: np.sort(x, axis=None), [1, 2, 3]),
    (lambda x: np.reshape(x, (3, 1), "F"), [[1], [2], [3]]),
    (lambda x: np.pad(x, 3, mode="reflect"), [2, 3, 2, 1, 2, 3, 2, 1, 2]),
    (lambda x: np.add(x, 1, where=x > 5, out=np.zeros(3)), [0, 0, 0]),
    (lambda x: np.sqrt(x * x, dtype=np.float64), [1, 2, 3]),
    (lambda x: np.add(x, 1, casting="no", dtype=np.float32), [2, 3, 4]), (lambda x: np.add.accumulate(x), [1, 3, 6]),
    (lambda x: np.subtract.reduce(x), -4), (lambda x: np.cbrt(x**3), [1, 2, 3]),
    (lambda x: np.linalg.norm(x[None], 2), 14**0.5), (lambda x: np.percentile(x, 50), 2),
    (lambda x: np.linalg.det(mg.outer(x, x) + mg.eye(3)), 15), (lambda x: np.fft.rfft(x)[0].real, 6),
    (lambda x: np.interp(1.5, x, x), 1.5), (lambda x: np.atleast_2d(x), [[1, 2, 3]]),
    (lambda x: divmod(np.full(3, 7.0), x)[0], [7, 3, 2]),
    (lambda x: np.frompyfunc(lambda v: v + 1, 1, 1)(x), [2, 3, 4]),
])  # fmt: skip
def test_what_numpy_computes(call, expected):
    """Functions that minigrad lacks and arguments that it does not take: NumPy's result, if no gradient is lost."""
    found = call(mg.tensor([1.0, 2.0, 3.0]))
    assert isinstance(found, np.ndarray | np.generic)
    np.testing.assert_allclose(found.astype(float), expected, rtol=1e-6)
    raises(TypeError, r"np\.asarray\(x\.detach\(\)\)", call, mg.tensor([1.0, 2.0, 3.0], requires_grad=True))


def test_integers_where_minigrad_takes_floats():
    x = mg.tensor([1, 2, 4])
    assert np.mean(x) == pytest.approx(7 / 3)
    assert np.mean(x > 1) == pytest.approx(2 / 3)
    assert np.std(x, ddof=1) == pytest.approx(np.std([1, 2, 4], ddof=1))
    assert np.argmax(x).item() == 2
    assert ["a", "b", "c"][np.argmax(x)] == "c"


def test_results_without_a_gradient():
    """Comparisons, indices and texts take the values of any tensor."""
    r = mg.tensor([3.0, 1.0], requires_grad=True)
    assert np.allclose(r, [3, 1])
    assert np.array_equal(r, np.array([3, 1]))
    assert np.isclose(r, 3).tolist() == [True, False]
    assert np.count_nonzero(r) == 2
    assert np.searchsorted([0, 2], r).tolist() == [2, 1]
    assert np.array_str(r) == "[3. 1.]"
    assert np.result_type(r, np.float64) == np.float64
    assert np.isscalar(r) is False
    for call in (np.asarray, np.array, lambda x: np.testing.assert_allclose(x, [3, 1]), np.random.default_rng(0).normal,
                 lambda x: np.save("file", x)):  # fmt: skip
        raises(TypeError, r"detach\(\)", call, r)
    with mg.no_grad():
        assert np.asarray(np.sin(r)).shape == (2,)
        assert np.median(r * 1) == 2
