"""A bias is only added: no derivative reads it, so it may change before the backward pass, as in PyTorch."""

import numpy as np
import pytest
from checks import agree, array, near, raises, tensor

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train

MEAN, VAR = np.array([0.5, -1.0, 2.0, 0.0]), np.array([1.0, 0.5, 2.0, 3.0])

# name: (shape of x, of the weight, of the bias; the operation, of an optional weight and bias; the sum that is db)
OPS = {
    "linear": ((5, 3), (4, 3), (4,), mg.linear, 0),
    "linear of a vector": ((3,), (4, 3), (4,), mg.linear, ()),
    "linear of three axes": ((2, 5, 3), (4, 3), (4,), mg.linear, (0, 1)),
    "layer_norm": ((5, 4), (4,), (4,), lambda x, w, b: mg.layer_norm(x, 4, w, b), 0),
    "layer_norm of a row": ((4,), (4,), (4,), lambda x, w, b: mg.layer_norm(x, 4, w, b), ()),
    "layer_norm of two axes": ((2, 3, 5, 4), (5, 4), (5, 4), lambda x, w, b: mg.layer_norm(x, (5, 4), w, b), (0, 1)),
    "group_norm": ((3, 4, 5), (4,), (4,), lambda x, w, b: mg.group_norm(x, 2, w, b), (0, 2)),
    "group_norm of elements": ((3, 4), (4,), (4,), lambda x, w, b: mg.group_norm(x, 2, w, b), 0),
    "instance_norm": ((3, 4, 2, 3), (4,), (4,), lambda x, w, b: mg.instance_norm(x, weight=w, bias=b), (0, 2, 3)),
    "batch_norm": ((5, 4, 3), (4,), (4,), lambda x, w, b: batch_norm_train(x, w, b)[0], (0, 2)),
    "batch_norm in evaluation": (
        (5, 4, 3), (4,), (4,),
        lambda x, w, b: batch_norm_eval(x, tensor(MEAN, x.device), tensor(VAR, x.device), w, b), (0, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("wanted", ["xwb", "xb", "wb", "xw", "b"])
def test_a_bias_may_change_before_backward(name, create_graph, wanted, device, rng):
    """The gradients are those without the change, for every choice of inputs that require grad."""
    x_shape, w_shape, b_shape, op, axes = OPS[name]
    values = [rng.standard_normal(s) for s in (x_shape, w_shape, b_shape)]
    found = []
    for change in (False, True):
        x, w, b = (tensor(v, device, k in wanted) for v, k in zip(values, "xwb", strict=True))
        y = op(x, w, b)
        if change:
            with mg.no_grad():
                b *= 3.0
                b += 1.0
        else:
            g = rng.standard_normal(y.shape)
        leaves = [v for v in (x, w, b) if v.requires_grad]
        found.append([array(d) for d in mg.grad(y, leaves, tensor(g, device), create_graph=create_graph)])
    agree(*found)
    if "b" in wanted:
        np.testing.assert_allclose(found[1][-1], g.sum(axes), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", [name for name in OPS if not name.startswith("linear")])
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("wanted", ["xb", "b"])
def test_a_bias_without_a_weight(name, create_graph, wanted, device, rng):
    """Its gradient gets its shape from x, and only that of x passes through the normalization."""
    x_shape, _, b_shape, op, axes = OPS[name]
    x, b = (tensor(rng.standard_normal(s), device, k in wanted) for s, k in ((x_shape, "x"), (b_shape, "b")))
    y = op(x, None, b)
    g = rng.standard_normal(y.shape)
    with mg.no_grad():
        b -= 2.0
    leaves = [v for v in (x, b) if v.requires_grad]
    grads = mg.grad(y, leaves, tensor(g, device), create_graph=create_graph)
    assert grads[-1].shape == b_shape
    near(grads[-1], g.sum(axes), rtol=1e-13, atol=1e-13)
    if "x" in wanted:
        alone = mg.grad(op(x, None, None), x, tensor(g, device))
        near(grads[0], array(alone), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", OPS)
def test_a_weight_may_not_change(name, device, rng):
    """dx reads it: changing it in between is an error, not a wrong gradient."""
    x_shape, w_shape, b_shape, op, _ = OPS[name]
    x, w, b = (tensor(rng.standard_normal(s), device, True) for s in (x_shape, w_shape, b_shape))
    y = op(x, w, b)
    with mg.no_grad():
        w *= 2.0
    raises(mg.GradientError, "in place", mg.grad, y, x, tensor(rng.standard_normal(y.shape), device))


def test_linear_saves_what_the_wanted_gradients_read(device, rng):
    """dX = G W, dW = Gᵀ X: without a gradient of x the weight may change, without one of the weight x may."""
    x, w, g = (rng.standard_normal(s) for s in ((5, 3), (4, 3), (5, 4)))
    for wanted, saved in (("x", w.nbytes), ("w", x.nbytes), ("xw", w.nbytes + x.nbytes)):
        leaf, weight = tensor(x, device, "x" in wanted), tensor(w, device, "w" in wanted)
        y = mg.linear(leaf, weight)
        assert y.tape().saved_bytes == saved
        if wanted != "xw":
            with mg.no_grad():
                (weight if wanted == "w" else leaf).zero_()
            grad = mg.grad(y, leaf if wanted == "x" else weight, tensor(g, device))
            near(grad, g @ w if wanted == "x" else g.T @ x, rtol=1e-13, atol=1e-13)
