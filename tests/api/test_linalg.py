"""minigrad.linalg against numpy.linalg: shapes, orders, gradients where a norm is 0, systems, and what is not there."""

import numpy as np
import pytest
from checks import agree, array, equals, near, raises, refuses, tensor

import minigrad as mg

INF = float("inf")


def test_names_are_those_of_the_other_functions():
    for name in ("matmul", "matrix_transpose", "outer", "tensordot", "vecdot"):
        assert getattr(mg.linalg, name) is getattr(mg, name)
    assert dir(mg.linalg) == mg.linalg.__all__
    raises(AttributeError, r"\[svd\] is not available: `np.linalg.svd\(x.numpy\(\)\)`", getattr, mg.linalg, "svd")
    assert not hasattr(mg.linalg, "nothing_of_this_name")


@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (3,)), ((4, 1, 3), (2, 3)), ((0, 3), (3,))])
def test_cross(shapes, device, rng):
    a, b = (rng.standard_normal(shape) for shape in shapes)
    near(mg.linalg.cross(tensor(a, device), tensor(b, device)), np.cross(a, b), rtol=1e-14)
    first, second = tensor(a, device, True), tensor(b, device, True)
    assert mg.gradcheck(mg.linalg.cross, [first, second], order=2)


def test_cross_along_another_axis(device):
    a, b = np.arange(6).reshape(3, 2), np.arange(6)[::-1].reshape(3, 2)
    ours = mg.linalg.cross(tensor(a, device), tensor(b, device), axis=0)
    equals(ours, np.cross(a, b, axis=0))
    refuses(ValueError, "cross", "(3, 2)", mg.linalg.cross, tensor(a, device), tensor(b, device))
    refuses(IndexError, "cross", "2", mg.linalg.cross, tensor(a, device), tensor(b, device), axis=2)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 8])
def test_matrix_power(n, device, rng):
    a = rng.integers(-3, 4, (2, 3, 3))
    equals(mg.linalg.matrix_power(tensor(a, device), n), np.linalg.matrix_power(a, n))
    x = tensor(rng.standard_normal((3, 3)), device, True)
    assert mg.gradcheck(lambda x: mg.linalg.matrix_power(x, n) + 0 * x, x, order=2)
    refuses(ValueError, "matrix_power", "-1", mg.linalg.matrix_power, x.detach(), -1)
    refuses(ValueError, "matrix_power", "(2, 3)", mg.linalg.matrix_power, mg.ones((2, 3), device=device), 2)


def test_diagonal_and_trace_take_the_last_axes(device, rng):
    a = rng.standard_normal((2, 3, 4))
    for offset in (-2, 0, 1, 7):
        x = tensor(a, device)
        equals(mg.linalg.diagonal(x, offset=offset), np.linalg.diagonal(a, offset=offset))
        near(mg.linalg.trace(x, offset=offset), np.linalg.trace(a, offset=offset), rtol=1e-14, atol=1e-15)
    assert mg.linalg.trace(mg.ones((2, 2), dtype="int32", device=device)).dtype == "int64"
    assert mg.trace(mg.ones((2, 2), device=device), dtype="float64").dtype == "float64"


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("ord", [2, 1, 0, 3, 0.5, -1, -2, INF, -INF])
def test_vector_norms(ord, keepdims, device, rng):
    a = rng.standard_normal((2, 3, 4)) + 0.1
    for axis in (None, 0, -1, (0, 2)):
        x = tensor(a, device, True)
        ours = mg.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)
        near(ours, np.linalg.vector_norm(a, axis=axis, keepdims=keepdims, ord=ord), rtol=1e-13)
        if ord not in (0, INF, -INF):
            assert mg.gradcheck(lambda x, axis=axis: mg.linalg.vector_norm(x, axis=axis, ord=ord), x, order=2)
    still = tensor(np.zeros(3), device, True)
    norm = mg.linalg.vector_norm(still, ord=ord)
    assert norm.item() == 0
    if ord in (2, 1, 3):
        assert mg.grad(norm, still).tolist() == [0, 0, 0]


@pytest.mark.parametrize("ord", ["fro", None, 1, -1, INF, -INF])
def test_matrix_norms(ord, device, rng):
    a = rng.standard_normal((2, 3, 4))
    for keepdims in (False, True):
        ours = mg.linalg.matrix_norm(tensor(a, device), keepdims=keepdims, ord=ord)
        near(ours, np.linalg.matrix_norm(a, keepdims=keepdims, ord=ord or "fro"), rtol=1e-13)
    assert mg.gradcheck(lambda x: mg.linalg.matrix_norm(x, ord=ord), tensor(a, device, True), order=2)


def test_norm_is_numpys(device, rng):
    a = rng.standard_normal((3, 4))
    for ord, axis in [
        (None, None), (None, 1), ("fro", None), (1, None), (INF, 0), (2, (1,)), (1, (1, 0)), (INF, (0, 1)),
        (None, (0, 1)),
    ]:  # fmt: skip
        for keepdims in (False, True):
            ours = mg.linalg.norm(tensor(a, device), ord, axis, keepdims)
            near(ours, np.linalg.norm(a, ord, axis, keepdims), rtol=1e-13, err_msg=f"{ord} {axis}")
    assert mg.linalg.norm(tensor(np.array([3, 4]), device)).dtype == "float32"
    refuses(ValueError, "matrix_norm", "nuc", mg.linalg.norm, mg.eye(2, device=device), "nuc")
    refuses(ValueError, "matrix_norm", "2", mg.linalg.norm, mg.eye(2, device=device), 2)
    refuses(ValueError, "norm", "(2, 1, 1)", mg.linalg.norm, mg.ones((2, 1, 1), device=device), 1)
    refuses(TypeError, "vector_norm", "fro", mg.linalg.norm, mg.ones(2, device=device), "fro")


# ── systems of equations ──


def near_identity(rng, *shape):
    return rng.standard_normal(shape) / 2 + 2 * np.eye(shape[-1])


@pytest.mark.parametrize("first, second", [
    ((3, 3), (3, 2)), ((3, 3), (3,)), ((2, 3, 3), (3, 1)), ((2, 3, 3), (3,)), ((3, 3), (4, 3, 2)), ((2, 1, 2, 2), (3, 2, 4)), ((1, 1), (1,)),
    ((0, 0), (0, 3)), ((0, 2, 2), (2, 1)), ((2, 2), (2, 0)),
])  # fmt: skip
def test_solve(first, second, device, rng):
    a, b = near_identity(rng, *first), rng.standard_normal(second)
    x, y = tensor(a, device, True), tensor(b, device, True)
    ours = mg.linalg.solve(x, y)
    assert ours.device == x.device
    near(ours, np.linalg.solve(a, b), rtol=1e-12, atol=1e-14)
    assert mg.gradcheck(mg.linalg.solve, [x, y], order=2)
    assert mg.gradcheck(lambda y: mg.linalg.solve(x.detach(), y), y, order=2)


@pytest.mark.parametrize("shape", [(3, 3), (2, 3, 3), (1, 1), (0, 0), (0, 2, 2)])
def test_inverse_and_cholesky(shape, device, rng):
    a = near_identity(rng, *shape)
    x, identity = tensor(a, device, True), np.eye(shape[-1])
    near(mg.linalg.inv(x), np.linalg.inv(a), rtol=1e-12, atol=1e-14)
    assert mg.gradcheck(mg.linalg.inv, x, order=3)
    positive = a @ a.swapaxes(-1, -2) + identity
    for upper in (False, True):
        ours = mg.linalg.cholesky(tensor(positive, device), upper=upper)
        near(ours, np.linalg.cholesky(positive, upper=upper), rtol=1e-12, atol=1e-14)

        def factor(x, upper=upper):
            return mg.linalg.cholesky(x @ x.mT + tensor(identity, device), upper=upper)

        assert mg.gradcheck(factor, x, order=3)


def test_gradients_of_systems_are_pytorchs(device, rng):
    """The gradient of cholesky is that of a symmetric matrix, though only its lower triangle is read."""
    torch = pytest.importorskip("torch")
    a, b = near_identity(rng, 4, 3, 3), rng.standard_normal((4, 3, 2))
    positive = a @ a.swapaxes(-1, -2)
    for name, operands in {"solve": [a, b], "inv": [a], "cholesky": [positive]}.items():
        ours = [tensor(x, device, True) for x in operands]
        theirs = [torch.tensor(x, requires_grad=True) for x in operands]
        y, expected = getattr(mg.linalg, name)(*ours), getattr(torch.linalg, name)(*theirs)
        g = rng.standard_normal(y.shape)
        y.backward(tensor(g, device))
        expected.backward(torch.tensor(g))
        for x, z in zip(ours, theirs, strict=True):
            near(x.grad, z.grad.numpy(), rtol=1e-11, atol=1e-12)
    lower = mg.linalg.cholesky(tensor(np.tril(positive), device))
    equals(lower, array(mg.linalg.cholesky(tensor(positive, device))))


def test_systems_in_captured_steps_and_through_numpy(device, rng):
    a, b = near_identity(rng, 3, 3), tensor(rng.standard_normal(3), device)

    def step(values):
        x = values.detach().requires_grad_()
        y = mg.linalg.solve(x, b).sum() + mg.linalg.cholesky(x @ x.mT).sum()
        return y.detach(), mg.grad(y, x)

    captured = mg.capture(step, warmup=0)
    for scale in (1.0, 1.5, 2.5):
        values = tensor(scale * a, device)
        agree(captured(values), step(values))
    assert captured.recordings == 1
    x = tensor(a, device, True)
    assert mg.grad(np.linalg.inv(x).sum(), x).tolist() == mg.grad(mg.linalg.inv(x).sum(), x).tolist()


def test_systems_refuse(device):
    eye, batch = mg.eye(3, device=device), mg.eye(3, device=device).broadcast_to((3, 3, 3))
    for function in (mg.linalg.inv, mg.linalg.cholesky, lambda x: mg.linalg.solve(x, eye)):
        raises(np.linalg.LinAlgError, r"^\[\w+\] expected (positive definite )?matrices", function, 0 * eye)
    refuses(ValueError, "inv", "(3, 2)", mg.linalg.inv, mg.ones((3, 2), device=device))
    refuses(ValueError, "cholesky", "(3,)", mg.linalg.cholesky, mg.ones(3, device=device))
    refuses(ValueError, "solve", "3 rows, got shape (2,)", mg.linalg.solve, eye, mg.ones(2, device=device))
    refuses(ValueError, "solve", "got shape ()", mg.linalg.solve, eye, mg.tensor(1.0, device=device))
    refuses(ValueError, "solve", "x2[..., None]", mg.linalg.solve, batch, eye)  # PyTorch: vectors, NumPy: a matrix
    assert mg.linalg.solve(batch, eye[None]).shape == (3, 3, 3)
    assert mg.linalg.solve(batch, eye[..., None]).shape == (3, 3, 1)
    assert mg.linalg.inv(mg.tensor([[2, 0], [0, 4]], device=device)).dtype == "float32"
    assert mg.linalg.solve(eye, mg.ones(3, dtype="float64", device=device)).dtype == "float64"
