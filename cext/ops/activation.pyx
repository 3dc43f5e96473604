"""Activations, and dropout."""

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL
from minigrad.engine.ops.arguments cimport float_operand, number, one_axis, scalar
from minigrad.engine.ops.arithmetic cimport add, apply_unary, divide, multiply, negative, subtract
from minigrad.engine.ops.functions cimport erf, exp, fused, sloped, square, with_parameter
from minigrad.engine.ops.layout cimport cast, dense, reshape_to
from minigrad.engine.ops.logic cimport greater, greater_equal, less_equal, maximum, minimum, where
from minigrad.engine.ops.random cimport draw
from minigrad.engine.ops.trigonometry cimport tanh
from minigrad.engine.tape.node cimport Node, Op, operation
from minigrad.engine.tape.record cimport track
from minigrad.engine.ops import join

from math import pi, sqrt

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ELU, ELU_SLOPE, GELU, GELU_GRAD, GELU_TANH, GELU_TANH_GRAD, LEAKY_RELU, LEAKY_RELU_SLOPE, RELU, RELU_GRAD
    int SIGMOID, SIGMOID_GRAD, SILU, SILU_GRAD, SOFTPLUS, SOFTPLUS_GRAD


cdef Op relu_op = fused(RELU_GRAD, operation("relu", relu_backward, "y = max(x, 0)", "dx = g where x > 0, else 0", "y"))
cdef int relu_backward(Node node, Array g) except -1:
    # y > 0 exactly where x > 0: y is saved, as the next operation often saves it too
    return node.send(0, where(less_equal(node.kept, 0), 0, g))


cpdef Array relu(x: TensorLike):
    """max(x, 0). Its gradient at 0 is 0.

    Examples
    --------
    >>> mg.nn.functional.relu(mg.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    cdef Call _call = begin(relu_op)
    cdef Array a = float_operand("relu", x), out = apply_unary(RELU, a, a.code)
    track(relu_op, out, a)
    return out


cdef Op sigmoid_op = fused(SIGMOID_GRAD, operation("sigmoid", sigmoid_backward, "y = σ(x) = 1 / (1 + e⁻ˣ)",
                                                   "dx = g y (1 − y)", "y"))
cdef int sigmoid_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    return node.send(0, multiply(g, multiply(y, subtract(1, y))))


cpdef Array sigmoid(x: TensorLike):
    """1 / (1 + exp(-x)), without overflow.

    Examples
    --------
    >>> mg.nn.functional.sigmoid(mg.tensor([0.0]))
    tensor([0.5])
    """
    cdef Call _call = begin(sigmoid_op)
    cdef Array a = float_operand("sigmoid", x), out = apply_unary(SIGMOID, a, a.code)
    track(sigmoid_op, out, a)
    return out


cdef Op silu_op = fused(SILU_GRAD, operation("silu", silu_backward, "y = x σ(x)", "dx = g σ(x) (1 + x σ(−x))", "x"))
cdef int silu_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0)
    slope = multiply(sigmoid(x), add(multiply(x, sigmoid(negative(x))), 1))
    return node.send(0, multiply(g, slope))


cpdef Array silu(x: TensorLike):
    """x sigmoid(x) (Elfwing et al., 2018), also called swish.

    Examples
    --------
    >>> mg.nn.functional.silu(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.7310586])
    """
    cdef Call _call = begin(silu_op)
    cdef Array a = float_operand("silu", x), out = apply_unary(SILU, a, a.code)
    track(silu_op, out, a)
    return out


cdef Op gelu_op = fused(GELU_GRAD, operation(
    "gelu", gelu_backward, "y = x Φ(x)", "dx = g (Φ(x) + x φ(x)), with the standard normal Φ and its density φ", "x"))
cdef int gelu_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), phi, density
    phi = multiply(add(erf(multiply(x, 1 / sqrt(2))), 1), 0.5)
    density = multiply(exp(multiply(square(x), -0.5)), 1 / sqrt(2 * pi))
    return node.send(0, multiply(g, add(phi, multiply(x, density))))


cpdef Array gelu(x: TensorLike, approximate: str = "none"):
    """x Φ(x) with the standard normal distribution Φ (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    x : Tensor
        float32 or float64.
    approximate : {"none", "tanh"}
        "none" computes Φ exactly, "tanh" as (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        For another `approximate`.

    Examples
    --------
    >>> mg.nn.functional.gelu(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.8413447])
    >>> mg.nn.functional.gelu(mg.tensor([0.0, 1.0]), approximate="tanh")
    tensor([0.      , 0.841192])
    """
    cdef Call _call = begin(gelu_op)
    cdef Array a = float_operand("gelu", x), out
    cdef bint exact = approximate == "none"
    if not exact and approximate != "tanh":
        raise ValueError(f"[gelu] expected approximate 'none' or 'tanh', got {approximate!r}")
    out = apply_unary(GELU if exact else GELU_TANH, a, a.code)
    track(gelu_op if exact else gelu_tanh_op, out, a)
    return out


cdef Op gelu_tanh_op = fused(GELU_TANH_GRAD, operation(
    "gelu_tanh", gelu_tanh_backward, "y = x (1 + tanh z) / 2 = x σ(2z) with z = √(2/π) (x + 0.044715 x³)",
    "dx = g σ(2z) (1 + 2 x σ(−2z) z′)", "x"))
cdef int gelu_tanh_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), u = maximum(minimum(x, 30), -30)      # beyond ±30, σ is 0 or 1
    twice = multiply(multiply(u, add(multiply(square(u), 0.044715), 1)), 2 * sqrt(2 / pi))
    slope = multiply(add(multiply(square(u), 3 * 0.044715), 1), 2 * sqrt(2 / pi))
    within = multiply(multiply(x, sigmoid(negative(twice))), slope)
    return node.send(0, multiply(g, multiply(sigmoid(twice), add(within, 1))))


cdef Op softplus_op = fused(SOFTPLUS_GRAD, operation(
    "softplus", softplus_backward, "y = ln (1 + eˣ)", "dx = g σ(x)", "x"))
cdef int softplus_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, sigmoid(node.value(0))))


cpdef Array softplus(x: TensorLike, beta: float = 1.0, threshold: float | None = None):
    """log(1 + exp(β x)) / β, without overflow.

    Parameters
    ----------
    x : Tensor
        float32 or float64.
    beta : float
        β, not 0.
    threshold : float, optional
        The result is x where β x exceeds it. By default the formula holds everywhere; PyTorch's default is 20, where
        the two differ by 2e-9 / β.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If β is 0.

    Examples
    --------
    >>> mg.nn.functional.softplus(mg.tensor([0.0, 1.0]))
    tensor([0.6931472, 1.3132617])
    >>> mg.nn.functional.softplus(mg.tensor([0.0, 1.0]), beta=2)
    tensor([0.3465736, 1.063464 ])
    """
    cdef Call _call = begin(softplus_op)
    beta = number("softplus", "beta", beta)
    threshold = None if threshold is None else number("softplus", "threshold", threshold)
    cdef Array a = float_operand("softplus", x), out
    if beta == 0:
        raise ValueError("[softplus] expected a beta other than 0, got 0")
    if beta != 1 or threshold is not None:
        scaled = multiply(a, beta)
        out = divide(softplus(scaled), beta)
        return out if threshold is None else where(greater(scaled, threshold), a, out)
    out = apply_unary(SOFTPLUS, a, a.code)
    track(softplus_op, out, a)
    return out


def logsigmoid(x: TensorLike) -> Tensor:
    """log σ(x) = −log(1 + exp(−x)), without overflow.

    Examples
    --------
    >>> mg.nn.functional.logsigmoid(mg.tensor([-1000.0, 0.0])).tolist()
    [-1000.0, -0.6931471824645996]
    """
    cdef Call _call = begin("logsigmoid")
    return negative(softplus(negative(float_operand("logsigmoid", x))))


def mish(x: TensorLike) -> Tensor:
    """x tanh(softplus(x)) (Misra, 2019, https://arxiv.org/abs/1908.08681).

    Examples
    --------
    >>> mg.nn.functional.mish(mg.tensor([0.0, 1.0]))
    tensor([0.       , 0.8650984])
    """
    cdef Call _call = begin("mish")
    cdef Array a = float_operand("mish", x)
    return multiply(a, tanh(softplus(a)))


cdef Op leaky_relu_op = sloped(LEAKY_RELU_SLOPE, operation("leaky_relu", leaky_relu_backward,
                                                           "y = x where x > 0, else s x",
                                                           "dx = g where x > 0, else g s", "x"))
cdef int leaky_relu_backward(Node node, Array g) except -1:
    return node.send(0, multiply(g, where(greater(node.value(0), 0), scalar(1, g.code, g.buffer.device), node.extra)))


def leaky_relu(x: TensorLike, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, negative_slope * x elsewhere.

    Examples
    --------
    >>> mg.nn.functional.leaky_relu(mg.tensor([-2.0, 3.0]), 0.1)
    tensor([-0.2,  3. ])
    """
    negative_slope = number("leaky_relu", "negative_slope", negative_slope)
    return with_parameter(leaky_relu_op, LEAKY_RELU, float_operand("leaky_relu", x), negative_slope)


def prelu(x: TensorLike, weight: TensorLike) -> Tensor:
    """x where x > 0, weight * x elsewhere (He et al., 2015, https://arxiv.org/abs/1502.01852).

    Parameters
    ----------
    x : Tensor
        ``(N, C, ...)``, float32 or float64; any shape for a single weight.
    weight : Tensor
        One number, or ``(C,)``; of the dtype of x.

    Returns
    -------
    Tensor

    Raises
    ------
    ValueError
        If the weight has another shape.
    TypeError
        If the dtypes differ.

    Examples
    --------
    >>> mg.nn.functional.prelu(mg.tensor([[-2.0, -2.0, 3.0]]), mg.tensor([0.5, 0.25, 0.0]))
    tensor([[-1. , -0.5,  3. ]])
    """
    cdef Call _call = begin("prelu")
    cdef Array a = float_operand("prelu", x), w = float_operand("prelu", weight)
    if a.code != w.code:
        raise TypeError(f"[prelu] expected one dtype, got x {a.dtype}, weight {w.dtype}: use x.astype(\"{w.dtype}\")")
    if w.ndim_ > 1 or w.count != 1 and (a.ndim_ < 2 or w.count != a.extent[1]):
        raise ValueError(f"[prelu] expected a weight of one number or one for each channel of x {shape_of(a)}, "
                         f"got shape {shape_of(w)}")
    w = reshape_to(w, () if w.count == 1 else (w.count,) + (1,) * (a.ndim_ - 2))
    return multiply(a, where(greater(a, 0), scalar(1, a.code, a.buffer.device), w))


cdef Op elu_op = sloped(ELU_SLOPE, operation("elu", elu_backward, "y = x where x > 0, else α (eˣ − 1)",
                                             "dx = g where x > 0, else g α eˣ", "x"))
cdef int elu_backward(Node node, Array g) except -1:
    x = node.value(0)
    positive = greater(x, 0)
    slope = multiply(exp(where(positive, 0, x)), node.extra)
    return node.send(0, multiply(g, where(positive, 1, slope)))


def elu(x: TensorLike, alpha: float = 1.0) -> Tensor:
    """x where x > 0, alpha (exp(x) - 1) elsewhere (Clevert et al., 2016).

    Examples
    --------
    >>> mg.nn.functional.elu(mg.tensor([-1.0, 3.0]))
    tensor([-0.63212055,  3.        ])
    """
    alpha = number("elu", "alpha", alpha)
    return with_parameter(elu_op, ELU, float_operand("elu", x), alpha)


def selu(x: TensorLike) -> Tensor:
    """λ elu(x, α) with λ = 1.0507… and α = 1.6732… (Klambauer et al., 2017, https://arxiv.org/abs/1706.02515).

    With these numbers, layers of normal weights keep mean 0 and variance 1.

    Examples
    --------
    >>> mg.nn.functional.selu(mg.tensor([-1.0, 1.0]))
    tensor([-1.1113307,  1.050701 ])
    """
    cdef Call _call = begin("selu")
    return multiply(elu(float_operand("selu", x), 1.6732632423543772), 1.0507009873554805)


def hardsigmoid(x: TensorLike) -> Tensor:
    """x / 6 + 1/2, clipped to [0, 1], as in PyTorch; Keras's hard_sigmoid has the slope 1/5 (see the documentation).

    Examples
    --------
    >>> mg.nn.functional.hardsigmoid(mg.tensor([-4.0, 0.0, 1.5]))
    tensor([0.  , 0.5 , 0.75])
    """
    cdef Call _call = begin("hardsigmoid")
    cdef Array a = float_operand("hardsigmoid", x)
    inner = where(less_equal(a, -3), -3, a)     # NaN passes through both comparisons
    return add(multiply(where(greater_equal(inner, 3), 3, inner), 1 / 6.0), 0.5)


def hardswish(x: TensorLike) -> Tensor:
    """x hardsigmoid(x), a piecewise approximation of `silu` (Howard et al., 2019, https://arxiv.org/abs/1905.02244).

    Examples
    --------
    >>> mg.nn.functional.hardswish(mg.tensor([-4.0, 1.5, 4.0]))
    tensor([-0.   ,  1.125,  4.   ])
    """
    cdef Call _call = begin("hardswish")
    cdef Array a = float_operand("hardswish", x)
    return multiply(a, hardsigmoid(a))


def glu(x: TensorLike, axis: int = -1) -> Tensor:
    """a σ(b), where a and b are the halves of x along an axis (Dauphin et al., 2017, https://arxiv.org/abs/1612.08083).

    Of its variants (Shazeer, 2020, https://arxiv.org/abs/2002.05202), SwiGLU is ``silu(a) * b`` and GEGLU
    ``gelu(a) * b``.

    Parameters
    ----------
    x : Tensor
        float32 or float64, of an even length along the axis.
    axis : int

    Returns
    -------
    Tensor
        Half as long along the axis.

    Raises
    ------
    ValueError
        If the length is odd.

    Examples
    --------
    >>> mg.nn.functional.glu(mg.tensor([1.0, 2.0, 0.0, 1000.0]))
    tensor([0.5, 2. ])
    """
    cdef Call _call = begin("glu")
    cdef Array a = float_operand("glu", x)
    cdef int k = one_axis("glu", axis, a.ndim_)
    if a.extent[k] % 2:
        raise ValueError(f"[glu] expected an even length along axis {axis}, got shape {shape_of(a)}")
    left, right = join.split(a, 2, k)
    return multiply(left, sigmoid(right))


cdef Op dropout_op = operation("dropout", dropout_backward,
                               "y = x k / (1 − p), with k = 1 of probability 1 − p, else 0",
                               "dx = g k / (1 − p), with the same k")
cdef int dropout_backward(Node node, Array g) except -1:
    keep, scale = node.extra
    return node.send(0, multiply(g, multiply(cast(<Array>keep, g.code), scale)))


def dropout(x: TensorLike, p: float = 0.5, bint training=True) -> Tensor:
    """x with each element set to 0 with probability p and the others divided by 1 - p; x itself if not training.

    The choice comes from the counter-based generator that `minigrad.manual_seed` seeds.

    Raises
    ------
    ValueError
        If p is not in [0, 1].

    Examples
    --------
    >>> y = mg.nn.functional.dropout(mg.ones(1000), p=0.5)
    >>> sorted(set(y.tolist()))
    [0.0, 2.0]
    """
    cdef Call _call = begin(dropout_op)
    p = number("dropout", "p", p, 0, 1)
    cdef Array a = float_operand("dropout", x), plain, out, keep
    if not training or p == 0:
        return a
    if p == 1:
        return multiply(a, 0)
    plain = dense(a)
    out, keep = empty_as(plain, a.code), empty_as(plain, BOOL)
    if a.count:
        draw((<object>backend(a)).dropout, a.count, (p, plain, out, keep))
    track(dropout_op, out, a, None, None, (keep, 1 / (1 - p)))
    return out
