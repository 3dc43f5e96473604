"""Reductions over axes: products, moments, extrema, and running sums. (`sum` is in layout, with its adjoint.)"""
from libc.math cimport NAN
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, INT32, INT64, UINT8
from minigrad.engine.memory.listener cimport listeners
from minigrad.engine.ops.arguments cimport float_operand, many_axes, number, one_axis, operand
from minigrad.engine.ops.arithmetic cimport apply_unary, divide, multiply, subtract
from minigrad.engine.ops.functions cimport exp, square
from minigrad.engine.ops.layout cimport (
    broadcast_shape, cast, copy_array, dense, empty_reduced, permute, permute_raw, reduce_axes, reduction, reshape_to,
    sum_axes, summand,
)
from minigrad.engine.ops.logic cimport equal, note_result, where
from minigrad.engine.ops.slices cimport flip, take_window, window, zeros
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track

cdef extern from "kernels/kernels.hpp" namespace "mg":
    int ALL, ANY, ARGMAX, ARGMIN, MAX, MIN, PROD, SQRT, SUM


cdef tuple kept_shape(Array x, list axes):
    """The shape of x with the axes at length one."""
    return tuple([1 if i in axes else x.extent[<int>i] for i in range(x.ndim_)])


cdef Array spread(Array g, tuple kept, tuple shape):
    """A reduced tensor repeated over the reduced axes."""
    return broadcast_shape(reshape_to(g, kept), shape)


cdef int64_t length(Array x, list axes):
    """How many elements are reduced to one."""
    cdef int64_t n = 1
    for k in axes:
        n *= x.extent[<int>k]
    return n


# ── mean: y = sum x / n, dx = g / n ───────────────────────────────────────────────────────────────

cdef Op mean_op = operation("mean", mean_backward, "y = Σ x / n over axes", "dx = g / n, repeated over these axes")
cdef int mean_backward(Node node, Array g) except -1:
    shape, kept, inverse, _ = node.extra
    return node.send(0, spread(multiply(g, inverse), kept, shape))


cdef Array mean_axes(Array x, list axes, bint keepdims, object inverse):
    """The sum times `inverse`: 1 / n, or a scalar Array without gradient."""
    cdef Call _call = begin(mean_op)
    cdef Array out = multiply(reduce_axes(SUM, x, axes, keepdims, x.code), inverse)
    if listeners or (recording() and x.needs_grad):
        track(mean_op, out, x, None, None, (shape_of(x), kept_shape(x, axes), inverse, axes))
    return out


def mean(x: TensorLike, axis: int | Sequence[int] | None = None, *, bint keepdims=False) -> Tensor:
    """The arithmetic mean over `axis` (an int, a tuple, or None for all), of floats.

    Examples
    --------
    >>> mg.mean(mg.tensor([[1.0, 2.0], [3.0, 6.0]]), axis=1)
    tensor([1.5, 4.5])
    """
    cdef Call _call = begin(mean_op)
    cdef Array a = float_operand("mean", x)
    axes = many_axes("mean", axis, a.ndim_)
    cdef int64_t n = length(a, axes)
    return mean_axes(a, axes, keepdims, 1.0 / n if n else NAN)


cdef double inverse(double divisor) noexcept:
    """1 / (n - c); NaN if there are too few elements for a variance."""
    return 1 / divisor if divisor > 0 else NAN


cdef Array var_composition(Array x, list axes, double divisor, bint keepdims):
    cdef Array center = multiply(sum_axes(x, axes, True), 1.0 / length(x, axes))
    return multiply(sum_axes(square(subtract(x, center)), axes, keepdims), inverse(divisor))


cdef Op var_op = operation("var", var_backward, "y = Σ (x − μ)² / (n − c), with the mean μ of the n elements",
                           "dx = 2 g (x − μ) / (n − c)", "x")
cdef int var_backward(Node node, Array g) except -1:
    axes, divisor, keepdims, center = node.extra
    cdef Array x = node.value(0), deviation
    if recording():
        return composed_backward(node, lambda a: var_composition(a, axes, divisor, keepdims), [x], g)
    shape = shape_of(x)
    deviation = subtract(x, broadcast_shape(<Array>center, shape))
    return node.send(0, multiply(deviation, spread(multiply(g, 2 * inverse(divisor)), kept_shape(x, axes), shape)))


cdef Array variance(str name, object x, object axis, object correction, bint keepdims):
    cdef Call _call = begin(var_op)
    cdef double divisor = number(name, "correction", correction)
    cdef Array a = float_operand(name, x), plain
    axes = many_axes(name, axis, a.ndim_)
    divisor = length(a, axes) - divisor
    cdef Array center = empty_reduced(a, axes, True, a.code), squares = empty_reduced(a, axes, keepdims, a.code)
    plain, outer, n, inner = reduction(a, axes)
    backend(a).moments(outer, n, inner, plain, center, squares)
    cdef Array out = multiply(squares, inverse(divisor))
    track(var_op, out, a, None, None, (axes, divisor, keepdims, center))
    return out


def var(x: TensorLike, axis: int | Sequence[int] | None = None, *, correction: float = 0,
        bint keepdims=False) -> Tensor:
    """The variance over `axis`: the mean squared deviation from the mean, in two passes.

    Parameters
    ----------
    x : Tensor
        Of a floating dtype.
    axis : int, tuple of int or None
    correction : float
        0 (the default, as in NumPy) divides by n, 1 by n - 1 (as `torch.var` does).
    keepdims : bool

    Examples
    --------
    >>> mg.var(mg.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.25)
    """
    return variance("var", x, axis, correction, keepdims)


cdef Op std_op = operation("std", std_backward, "y = √v, v the variance", "dv = g / (2 y), 0 where y = 0", "y", "v")
cdef int std_backward(Node node, Array g) except -1:
    cdef Array y = node.output()
    still = equal(y, 0)
    return node.send(0, where(still, 0, divide(g, multiply(where(still, 1, y), 2))))


def std(x: TensorLike, axis: int | Sequence[int] | None = None, *, correction: float = 0,
        bint keepdims=False) -> Tensor:
    """The square root of the variance; see `var`. Its gradient is 0 where all elements are equal.

    Examples
    --------
    >>> mg.std(mg.tensor([1.0, 3.0]))
    tensor(1.)
    """
    cdef Call _call = begin(std_op)
    cdef Array v = variance("std", x, axis, correction, keepdims), out = apply_unary(SQRT, v, v.code)
    track(std_op, out, v)
    return out


cdef Op prod_op = operation("prod", prod_backward, "y = ∏ x over axes", "dxᵢ = g ∏ of the other x", "x")


# The product is the last state of the scan h_t = x_t h_{t−1} from h_0 = 1. The derivative of the scan multiplies the
# elements before each one by those after it, which is exact even if some are 0.

cdef tuple adjacent(Array x, list axes):
    """x with the axes side by side, at the end if they were not; the axes there; and the order of x's, or None."""
    if not axes or <int>axes[-1] - <int>axes[0] + 1 == len(axes):
        return x, axes, None
    order = [k for k in range(x.ndim_) if k not in axes] + axes
    return permute(x, order), list(range(x.ndim_ - len(axes), x.ndim_)), order


cdef Array prod_composition(Array x, list axes, tuple shape):
    from minigrad.engine.ops.scan import linear_scan
    x, axes, _ = adjacent(x, axes)
    _, outer, n, inner = reduction(x, axes)
    h = linear_scan(reshape_to(x, (outer, n, inner)), 0, 1, axis=1)
    return reshape_to(take_window(h, [(0, 1, outer, True), (n - 1, 1, 1, True), (0, 1, inner, True)]), shape)


cdef Array products_of_others(Array x, Array g, int64_t outer, int64_t n, int64_t inner):
    """g times the product of the others for each element along the middle axis of x[outer, n, inner]."""
    cdef Array dx = empty_as(x, x.code), h = empty_as(x, x.code), last, ones, products
    cdef int64_t side = 64
    while n % side:
        side //= 2
    if inner == 1 and side >= 8 and n >= 8 * side:      # parts of long rows side by side, then their products
        products = zeros((outer, side), x.code, x.buffer.device)
        backend(x).reduce(PROD, outer, n // side, side, x, products)
        g = products_of_others(products, g, outer, side, 1)
        return products_of_others(x, g, outer, n // side, side)
    last, ones = zeros((outer, n, inner), x.code, x.buffer.device), zeros((outer, inner), x.code, x.buffer.device)
    backend(x).fill(ones, 1)
    backend(x).linear_scan(outer, n, inner, False, x, last, ones, h)
    backend(x).copy(reshape_to(g, (outer, 1, inner)),
                    window(last, [(0, 1, outer, True), (n - 1, 1, 1, True), (0, 1, inner, True)]))
    backend(x).linear_scan_backward(outer, n, inner, False, x, h, ones, last, dx, None, None)
    return dx


cdef int prod_backward(Node node, Array g) except -1:
    axes, shape = node.extra, shape_of(g)
    cdef Array x = node.value(0), dx
    if x.count == 0:
        return node.send(0, copy_array(x))
    if recording():
        return composed_backward(node, lambda a: prod_composition(a, axes, shape), [x], g)
    x, axes, order = adjacent(x, axes)
    plain, outer, n, inner = reduction(x, axes)
    dx = reshape_to(products_of_others(plain, dense(g), outer, n, inner), shape_of(x))
    return node.send(0, dx if order is None else permute(dx, [order.index(k) for k in range(x.ndim_)]))


def prod(x: TensorLike, axis: int | Sequence[int] | None = None, *, bint keepdims=False,
         dtype: DTypeLike = None) -> Tensor:
    """The product of the elements over `axis`; the gradient is correct even where elements are 0.

    Parameters
    ----------
    x : Tensor
    axis : int, tuple of int or None
    keepdims : bool
        Keep the axes with length one.
    dtype : DType, optional
        The dtype of the computation and the result; by default int64 for bool, uint8 and int32. Not bool or uint8.

    Examples
    --------
    >>> mg.prod(mg.tensor([2.0, 3.0, 4.0]))
    tensor(24.)
    """
    cdef Call _call = begin(prod_op)
    cdef Array a = summand("prod", x, dtype)
    axes = many_axes("prod", axis, a.ndim_)
    cdef Array out = reduce_axes(PROD, a, axes, keepdims, a.code)
    track(prod_op, out, a, None, None, axes)
    return out


cdef Op max_op = operation("max", extremum_backward, "y = max x over axes",
                           "dx = g where x = y, shared equally among ties, else 0", "x y")
cdef Op min_op = operation("min", extremum_backward, "y = min x over axes",
                           "dx = g where x = y, shared equally among ties, else 0", "x y")
cdef int extremum_backward(Node node, Array g) except -1:
    axes = node.extra
    cdef Array x = node.value(0)
    kept, shape = kept_shape(x, axes), shape_of(x)
    cdef Array hit = cast(equal(x, spread(node.kept, kept, shape)), x.code)
    cdef Array count = sum_axes(hit, axes, True)
    return node.send(0, multiply(hit, broadcast_shape(divide(reshape_to(g, kept), count), shape)))


cdef Array extremum(str name, int op, object x, object axis, bint keepdims):
    cdef Call _call = begin(max_op if op == MAX else min_op)
    cdef Array a = operand(name, x)
    axes = many_axes(name, axis, a.ndim_)
    if length(a, axes) == 0:
        raise ValueError(f"[{name}] expected at least one element along the axes {tuple(axes)}, "
                         f"got shape {shape_of(a)}")
    cdef int code = INT32 if a.code == UINT8 else a.code
    cdef Array out = cast(reduce_axes(op, cast(a, code), axes, keepdims, code), a.code)
    track(max_op if op == MAX else min_op, out, a, None, None, axes)
    return out


cdef Array position(str name, int op, object x, object axis, bint keepdims):
    cdef Call _call = begin(name)
    cdef Array a = operand(name, x)
    axes = many_axes(name, axis, a.ndim_) if axis is None else [one_axis(name, axis, a.ndim_)]
    if length(a, axes) == 0:
        raise ValueError(f"[{name}] expected at least one element along the axis, got shape {shape_of(a)}")
    return note_result(name, reduce_axes(op, a, axes, keepdims, INT64), a, None, axes)


cdef Array decide(str name, int op, object x, object axis, bint keepdims):
    cdef Call _call = begin(name)
    cdef Array a = cast(operand(name, x), BOOL)
    axes = many_axes(name, axis, a.ndim_)
    return note_result(name, reduce_axes(op, a, axes, keepdims, BOOL), a, None, axes)


cdef Op logsumexp_op = operation("logsumexp", logsumexp_backward, "y = ln Σ eˣ over axes", "dx = g exp(x − y)", "x y")
cdef int logsumexp_backward(Node node, Array g) except -1:
    axes = node.extra
    cdef Array x = node.value(0), y = node.output()
    kept, shape = kept_shape(x, axes), shape_of(x)
    return node.send(0, multiply(spread(g, kept, shape), exp(subtract(x, spread(y, kept, shape)))))


def logsumexp(x: TensorLike, axis: int | Sequence[int] | None = None, *, bint keepdims=False) -> Tensor:
    """log of the sum of the exponentials over `axis`, without overflow.

    Examples
    --------
    >>> mg.logsumexp(mg.tensor([1000.0, 1000.0]))
    tensor(1000.6932)
    """
    cdef Call _call = begin(logsumexp_op)
    cdef Array a = float_operand("logsumexp", x), plain
    axes = many_axes("logsumexp", axis, a.ndim_)
    rest = [k for k in range(a.ndim_) if k not in axes]
    cdef int64_t n = length(a, axes)
    cdef Array out = empty_reduced(a, axes, keepdims, a.code)
    plain = dense(permute_raw(a, rest + axes))
    backend(a).logsumexp(out.count, n, plain, out)
    track(logsumexp_op, out, a, None, None, axes)
    return out


cdef Op cumulative_sum_op = operation("cumulative_sum", cumulative_sum_backward, "yᵢ = x₀ + … + xᵢ along an axis",
                                      "dxᵢ = gᵢ + … + gₙ₋₁")
cdef int cumulative_sum_backward(Node node, Array g) except -1:
    k = node.extra
    return node.send(0, flip(cumulative_sum(flip(g, k), axis=k), k))


def cumulative_sum(x: TensorLike, axis: int | None = None, *, dtype: DTypeLike = None,
                   bint include_initial=False) -> Tensor:
    """Running sums along an axis (which may be omitted in one dimension).

    Parameters
    ----------
    x : Tensor
    axis : int, optional
    dtype : DType, optional
        The dtype of the computation and the result; by default int64 for bool, uint8 and int32. Not bool or uint8.
    include_initial : bool
        Begin with a 0, so that the axis is one longer.

    Examples
    --------
    >>> mg.cumulative_sum(mg.tensor([1.0, 2.0, 3.0]))
    tensor([1., 3., 6.])
    """
    cdef Call _call = begin(cumulative_sum_op)
    cdef Array a = summand("cumulative_sum", x, dtype), plain
    if axis is None and a.ndim_ != 1:
        raise ValueError(f"[cumulative_sum] expected an axis for {a.ndim_} axes")
    cdef int k = one_axis("cumulative_sum", 0 if axis is None else axis, a.ndim_)
    cdef Array out = empty_as(a, a.code)
    plain, outer, n, inner = reduction(a, [k])
    if a.count:     # there may be any number of rows without elements
        backend(a).cumulative_sum(outer, n, inner, plain, out)
    track(cumulative_sum_op, out, a, None, None, k)
    if include_initial:
        from minigrad.engine.ops.join import concat
        return concat([zeros(kept_shape(a, [k]), a.code, a.buffer.device), out], axis=k)
    return out


# The functions of ops/wrappers.txt
include "ops/reduce.pxi"
