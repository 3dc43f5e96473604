"""Row normalization: the statistics of each row, and the affine map behind them."""
from libc.stdint cimport int64_t

from minigrad.engine.array cimport Array, check_same_device, empty, empty_as, shape_of
from minigrad.engine.backend cimport backend
from minigrad.engine.backward cimport composed_backward
from minigrad.engine.ops.arguments cimport float_operand
from minigrad.engine.ops.arithmetic cimport add, multiply, subtract
from minigrad.engine.ops.functions cimport rsqrt, square
from minigrad.engine.ops.layout cimport dense, summed
from minigrad.engine.tape cimport Node, recording, track


# layer_norm (Ba, Kiros, Hinton 2016, eq. 3, 4), over the n elements of each row:
#   μ = sum x / n,  σ² = sum (x - μ)² / n,  r = 1 / √(σ² + ε),  x̂ = (x - μ) r,  y = γ x̂ + β
#   dx = r (γ g - mean(γ g) - x̂ mean(γ g x̂)),  dγ = sum of g x̂ over rows,  dβ = sum of g over rows

cdef int64_t row_length(Array x, int axes):
    """The number of elements in the last `axes` axes."""
    cdef int64_t n = 1
    cdef int i
    for i in range(x.ndim_ - axes, x.ndim_):
        n *= x.extent[i]
    return n


cdef Array layer_norm_composition(Array x, Array weight, Array bias, int axes, double eps):
    cdef list last = list(range(x.ndim_ - axes, x.ndim_))
    cdef double n = row_length(x, axes)
    cdef Array centered = subtract(x, multiply(summed(x, last, True), 1.0 / n))
    cdef Array variance = multiply(summed(square(centered), last, True), 1.0 / n)
    cdef Array y = multiply(centered, rsqrt(add(variance, eps)))
    if weight is not None:
        y = multiply(y, weight)
    return y if bias is None else add(y, bias)


cdef int layer_norm_backward(Node node, Array g) except -1:
    mean, rstd, axes, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), bias = node.value(2), dx = None, dweight = None, dbias = None
    if recording():
        return composed_backward(node, lambda a, w, b: layer_norm_composition(a, w, b, axes, eps), [x, weight, bias], g)
    if node.needs(0):
        dx = empty_as(x, x.code)
    if node.needs(1):
        dweight = empty_as(weight, x.code)
    if node.needs(2):
        dbias = empty_as(bias, x.code)
    backend(x).layer_norm_backward((<Array>mean).count, row_length(x, axes), dense(x),
                                   None if weight is None else dense(weight), mean, rstd, dense(g), dx, dweight, dbias)
    for i, d in enumerate((dx, dweight, dbias)):
        if d is not None:
            node.send(i, <Array>d)
    return 0


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Layer normalization over the trailing axes of x.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance of each row
    (Ba, Kiros and Hinton, 2016, "Layer Normalization", eq. 3 and 4; ``eps`` stands inside the root).

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
        float32 or float64.
    normalized_shape : int or tuple of int
        The trailing shape over which statistics are taken.
    weight, bias : Tensor, shape normalized_shape, optional
        The gain γ and the shift β, one of each per element.
    eps : float
        Added to the variance, in the units of x squared; not negative.

    Returns
    -------
    Tensor
        Of x's shape. The result of a row does not depend on the other rows, bit for bit.

    Raises
    ------
    ValueError
        If the shapes do not agree.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.layer_norm(mg.tensor([1.0, 2.0, 3.0]), 3, eps=0.0)
    tensor([-1.2247449,  0.       ,  1.2247449])
    """
    cdef Array a = float_operand("layer_norm", x), out, mean, rstd
    cdef list affine = [None, None]
    cdef int64_t rows = 1
    cdef int axes, i
    shape = (normalized_shape,) if hasattr(normalized_shape, "__index__") else tuple(normalized_shape)
    axes = len(shape)
    if axes == 0 or axes > a.ndim_ or shape_of(a)[a.ndim_ - axes:] != shape:
        raise ValueError(f"[layer_norm] expected x of shape (..., {', '.join([str(n) for n in shape])}), "
                         f"got {shape_of(a)}")
    for i, (name, given) in enumerate((("weight", weight), ("bias", bias))):
        if given is None:
            continue
        affine[i] = float_operand("layer_norm", given)
        if shape_of(<Array>affine[i]) != shape:
            raise ValueError(f"[layer_norm] {name} must have shape {shape}, got {shape_of(<Array>affine[i])}")
        if (<Array>affine[i]).code != a.code:
            raise TypeError(f"[layer_norm] {name} must have the dtype {a.dtype} of x, got {(<Array>affine[i]).dtype}")
        check_same_device("layer_norm", a, <Array>affine[i])
    if not eps >= 0:
        raise ValueError(f"[layer_norm] eps must not be negative, got {eps}")
    for i in range(a.ndim_ - axes):
        rows *= a.extent[i]
    mean, rstd = empty(a.code, 1, &rows, a.buffer.device), empty(a.code, 1, &rows, a.buffer.device)
    out = empty_as(a, a.code)
    cdef Array gamma = <Array>affine[0], beta = <Array>affine[1]
    if a.count:
        backend(a).layer_norm(rows, a.count // rows, dense(a), None if gamma is None else dense(gamma),
                              None if beta is None else dense(beta), eps, out, mean, rstd)
    track(out, b"layer_norm", layer_norm_backward, 7, a, gamma, beta, (mean, rstd, axes, eps))
    return out
