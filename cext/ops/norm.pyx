"""Row normalization: the statistics of each row, and the affine map behind them."""
import operator

from libc.stdint cimport int64_t

from minigrad.engine.array cimport MAX_NDIM, Array, check_same_device, empty, empty_as, shape_of
from minigrad.engine.backend cimport backend
from minigrad.engine.backward cimport composed_backward
from minigrad.engine.calls cimport Call, begin
from minigrad.engine.dtype cimport FLOAT32, FLOAT64
from minigrad.engine.ops.arguments cimport float_operand, integer, number, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply, subtract
from minigrad.engine.ops.functions cimport rsqrt, square
from minigrad.engine.ops.layout cimport cast, dense, reshape_to, summed
from minigrad.engine.tape cimport Node, Op, operation, recording, track


NORMALIZED = "μ = Σ x / n\nσ² = Σ (x − μ)² / n\nr = 1 / √(σ² + ε)\nx̂ = (x − μ) r\ny = γ x̂ + β"


cdef int64_t row_length(Array x, int axes):
    """The number of elements in the last `axes` axes."""
    cdef int64_t n = 1
    cdef int i
    for i in range(x.ndim_ - axes, x.ndim_):
        n *= x.extent[i]
    return n


cdef Array standard(Array x, list axes, Array near, double n, double eps):
    """x̂ over some axes of n elements together, of primitive operations.

    `near` is a number near the mean of each, a constant to the derivative: x̂ does not depend on it, but the digits of
    a mean that is large do. None: x̂ is not centered.
    """
    cdef Array d = x
    if near is not None:
        d = subtract(x, near)
        d = subtract(d, multiply(summed(d, axes, True), 1.0 / n))
    return multiply(d, rsqrt(add(multiply(summed(square(d), axes, True), 1.0 / n), eps)))


cdef Array scaled(Array y, Array weight, Array bias):
    """y weight + bias, where there are any."""
    if weight is not None:
        y = multiply(y, weight)
    return y if bias is None else add(y, bias)


cdef Array parameter(str op, str name, object given, tuple shape, Array x):
    """A parameter of an operation on x, checked; None if there is none."""
    if given is None:
        return None
    cdef Array a = float_operand(op, given)
    if shape_of(a) != shape:
        raise ValueError(f"[{op}] {name} must have shape {shape}, got {shape_of(a)}")
    if a.code != x.code:
        raise TypeError(f"[{op}] {name} must have the dtype {x.dtype} of x, got {a.dtype}")
    check_same_device(op, x, a)
    return a


cdef Array plain(Array x):
    """What kernels read of an optional parameter."""
    return None if x is None else dense(x)


cdef Array room(Node node, int i, Array x, int first, int axes):
    """Room for the gradient of input i, of the shape of some axes of x, or None where nobody wants it."""
    return empty(x.code, axes, x.extent + first, x.buffer.device) if node.needs(i) else None


cdef int send_all(Node node, tuple gradients) except -1:
    for i, d in enumerate(gradients):
        if d is not None:
            node.send(i, <Array>d)
    return 0


cdef list all_but_channels(Array x):
    return [k for k in range(x.ndim_) if k != 1]


cdef int differentiate(Node node, object composition, list inputs, Array g, list shared) except -1:
    """The recorded derivative: that of the composition of all inputs but the last, the bias, and the sum of g over the
    axes that share a bias. No derivative reads its value, which may change before the backward pass."""
    cdef int bias = len(inputs)
    if node.needs(bias):
        node.send(bias, summed(g, shared, False))
    if any([node.needs(i) for i in range(bias)]):
        return composed_backward(node, composition, inputs, g)
    return 0


cdef tuple plain_shape(str op, object normalized_shape):
    """normalized_shape as a tuple of ints."""
    shape = (normalized_shape,) if hasattr(normalized_shape, "__index__") else normalized_shape
    if isinstance(shape, (tuple, list)):
        try:
            return tuple([operator.index(n) for n in shape])
        except (TypeError, ValueError):
            pass
    raise TypeError(f"[{op}] expected an integer or a sequence of integers normalized_shape, got {normalized_shape!r}")


cdef tuple trailing_shape(str op, Array x, tuple shape):
    """The same, checked against the end of x's shape."""
    cdef int axes = <int>min(len(shape), MAX_NDIM + 1)
    if axes == 0:
        raise ValueError(f"[{op}] expected a normalized_shape of at least one axis, got {shape}")
    if axes > x.ndim_ or shape_of(x)[x.ndim_ - axes:] != shape:
        raise ValueError(f"[{op}] expected x of shape (..., {', '.join([str(n) for n in shape])}), got {shape_of(x)}")
    return shape


cdef int64_t rows_before(Array x, int axes):
    """The number of rows that the last `axes` axes are."""
    cdef int64_t n = 1
    cdef int i
    for i in range(x.ndim_ - axes):
        n *= x.extent[i]
    return n


cdef Op layer_norm_op = operation("layer_norm", layer_norm_backward, "over the n elements of each row:\n" + NORMALIZED,
                                  "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\n"
                                  "dγ = Σ g x̂ over rows\n"
                                  "dβ = Σ g over rows", "x γ, x γ, x γ", "x, γ, β",
                                  "Ba, Kiros and Hinton (2016), eq. 3 and 4")


cdef int layer_norm_backward(Node node, Array g) except -1:
    mean, rstd, axes, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), dx, dweight, dbias
    cdef int first = x.ndim_ - <int>axes
    if recording():
        last, near = list(range(first, x.ndim_)), reshape_to(mean, shape_of(x)[:first] + (1,) * axes)
        return differentiate(node, lambda a, w: scaled(standard(a, last, near, row_length(a, axes), eps), w, None),
                             [x, weight], g, list(range(first)))
    dx, dweight, dbias = room(node, 0, x, 0, x.ndim_), room(node, 1, x, first, axes), room(node, 2, x, first, axes)
    backend(x).layer_norm_backward((<Array>mean).count, row_length(x, axes), dense(x), plain(weight), mean, rstd,
                                   dense(g), dx, dweight, dbias)
    return send_all(node, (dx, dweight, dbias))


def layer_norm(x, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Layer normalization over the trailing axes of x.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance of each row
    (Ba, Kiros and Hinton, 2016, "Layer Normalization", eq. 3 and 4; ``eps`` stands inside the root).

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
        float32 or float64. Squares of deviations are summed in this dtype: where they overflow
        (from 1e17 on in float32, 1e150 in float64), the row becomes `bias`, with gradients of 0 but for `bias`.
        Where the deviations themselves overflow, near the largest numbers, it may become NaN.
    normalized_shape : int or tuple of int
        The trailing shape over which statistics are taken.
    weight, bias : Tensor, shape normalized_shape, optional
        The gain γ and the shift β, one of each per element.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0 a constant row is 0 / 0: NaN.

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
    cdef Call _call = begin(layer_norm_op)
    x, weight, bias = operand("layer_norm", x), optional("layer_norm", weight), optional("layer_norm", bias)
    eps, shape = number("layer_norm", "eps", eps, 0), plain_shape("layer_norm", normalized_shape)
    cdef Array a = float_operand("layer_norm", x), out, mean, rstd, gamma, beta
    shape = trailing_shape("layer_norm", a, shape)
    cdef int axes = len(shape)
    cdef int64_t rows = rows_before(a, axes)
    gamma, beta = parameter("layer_norm", "weight", weight, shape, a), parameter("layer_norm", "bias", bias, shape, a)
    mean, rstd = empty(a.code, 1, &rows, a.buffer.device), empty(a.code, 1, &rows, a.buffer.device)
    out = empty_as(a, a.code)
    if a.count:
        backend(a).layer_norm(rows, a.count // rows, dense(a), plain(gamma), plain(beta), eps, out, mean, rstd)
    track(layer_norm_op, out, a, gamma, beta, (mean, rstd, axes, eps))
    return out


cdef Op rms_norm_op = operation("rms_norm", rms_norm_backward,
                                "over the n elements of each row:\n"
                                "r = 1 / √(Σ x² / n + ε)\n"
                                "x̂ = x r\n"
                                "y = γ x̂", "dx = r (γ g − x̂ mean(γ g x̂))\ndγ = Σ g x̂ over rows", "x γ, x γ", "x, γ",
                                "Zhang and Sennrich (2019), eq. 4")


cdef int rms_norm_backward(Node node, Array g) except -1:
    rstd, axes, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), dx, dweight
    if recording():
        last = list(range(x.ndim_ - <int>axes, x.ndim_))
        return composed_backward(
            node, lambda a, w: scaled(standard(a, last, None, row_length(a, axes), eps), w, None), [x, weight], g)
    dx, dweight = room(node, 0, x, 0, x.ndim_), room(node, 1, x, x.ndim_ - <int>axes, axes)
    backend(x).rms_norm_backward((<Array>rstd).count, row_length(x, axes), dense(x), plain(weight), rstd, dense(g),
                                 dx, dweight)
    return send_all(node, (dx, dweight))


def rms_norm(x, normalized_shape, weight=None, eps=None):
    """Division by the root mean square over the trailing axes of x.

    ``y = x / sqrt(mean(x**2) + eps) * weight``: layer normalization without the mean and without a shift (Zhang and
    Sennrich, 2019, "Root Mean Square Layer Normalization", eq. 4, where no ``eps`` is added).

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
        float32 or float64. Squares are summed in this dtype: where they overflow (in float32 from 1e17 on, in float64
        from 1e150 on), the row becomes 0, with gradients of 0; near the largest numbers these may become NaN.
    normalized_shape : int or tuple of int
        The trailing shape over which the mean is taken.
    weight : Tensor, shape normalized_shape, optional
        The gain γ, one per element.
    eps : float, optional
        Added to the mean square, in the units of x squared; not negative. None is the machine epsilon of the dtype.
        With 0 a row of zeros is 0 / 0: NaN.

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
    >>> mg.rms_norm(mg.tensor([1.0, 7.0]), 2, eps=0.0)
    tensor([0.2, 1.4])
    """
    cdef Call _call = begin(rms_norm_op)
    x, weight, shape = operand("rms_norm", x), optional("rms_norm", weight), plain_shape("rms_norm", normalized_shape)
    eps = None if eps is None else number("rms_norm", "eps", eps, 0)
    cdef Array a = float_operand("rms_norm", x), out, rstd, gamma
    shape = trailing_shape("rms_norm", a, shape)
    cdef int axes = len(shape)
    cdef int64_t rows = rows_before(a, axes)
    gamma = parameter("rms_norm", "weight", weight, shape, a)
    if eps is None:
        eps = 2.0**-23 if a.code == FLOAT32 else 2.0**-52
    rstd = empty(a.code, 1, &rows, a.buffer.device)
    out = empty_as(a, a.code)
    if a.count:
        backend(a).rms_norm(rows, a.count // rows, dense(a), plain(gamma), eps, out, rstd)
    track(rms_norm_op, out, a, gamma, None, (rstd, axes, eps))
    return out


cdef Array group_norm_composition(Array x, Array weight, Array mean, int64_t groups, double eps):
    cdef int64_t width = row_length(x, x.ndim_ - 1) // groups
    cdef tuple shape = shape_of(x), channels = (shape[1],) + (1,) * (x.ndim_ - 2)
    cdef Array near = reshape_to(cast(mean, x.code), (shape[0], groups, 1))
    cdef Array y = standard(reshape_to(x, (shape[0], groups, width)), [2], near, width, eps)
    return scaled(reshape_to(y, shape), None if weight is None else reshape_to(weight, channels), None)


cdef Op group_norm_op = operation("group_norm", group_norm_backward,
                                  "over the n elements of each group of channels of a sample:\n" + NORMALIZED,
                                  "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\n"
                                  "dγ, dβ = Σ g x̂, Σ g over each channel's elements", "x γ, x γ, x γ", "x, γ, β",
                                  "Wu and He (2018), eq. 1 and 7")
cdef Op instance_norm_op = operation("instance_norm", group_norm_backward,
                                     "over the n elements of each channel of a sample:\n" + NORMALIZED,
                                     "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\n"
                                     "dγ, dβ = Σ g x̂, Σ g over each channel's elements", "x γ, x γ, x γ", "x, γ, β",
                                     "Ulyanov, Vedaldi and Lempitsky (2016)")


cdef int group_norm_backward(Node node, Array g) except -1:
    mean, rstd, groups, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), dx, dweight, dbias
    if recording():
        return differentiate(node, lambda a, w: group_norm_composition(a, w, mean, groups, eps), [x, weight], g,
                             all_but_channels(x))
    dx, dweight, dbias = room(node, 0, x, 0, x.ndim_), room(node, 1, x, 1, 1), room(node, 2, x, 1, 1)
    backend(x).group_norm_backward((<Array>mean).count, groups, x.extent[1] // <int64_t>groups,
                                   row_length(x, x.ndim_ - 2), dense(x), plain(weight), mean, rstd, dense(g), dx,
                                   dweight, dbias)
    return send_all(node, (dx, dweight, dbias))


cdef Array grouped(Op record, Array a, int64_t groups, object weight, object bias, double eps):
    """Both operations: the groups of a's channels, which are axis 1."""
    cdef Array out, mean, rstd, gamma, beta
    cdef int64_t rows = a.extent[0] * groups
    shape = (a.extent[1],)
    gamma, beta = parameter(record.name, "weight", weight, shape, a), parameter(record.name, "bias", bias, shape, a)
    mean, rstd = empty(FLOAT64, 1, &rows, a.buffer.device), empty(FLOAT64, 1, &rows, a.buffer.device)
    out = empty_as(a, a.code)
    if a.count:
        backend(a).group_norm(rows, groups, a.extent[1] // groups, row_length(a, a.ndim_ - 2), dense(a), plain(gamma),
                              plain(beta), eps, out, mean, rstd)
    track(record, out, a, gamma, beta, (mean, rstd, groups, eps))
    return out


def group_norm(x, num_groups, weight=None, bias=None, eps=1e-5):
    """Group normalization: layer normalization of each group of channels, with a gain and a shift per channel.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance over the channels of a
    group and all their elements, for each sample (Wu and He, 2018, "Group Normalization", eq. 1 and 7).

    Parameters
    ----------
    x : Tensor, shape (N, C, *)
        float32 or float64. Squares of deviations are summed in this dtype: where they overflow
        (from 1e17 on in float32, 1e150 in float64), the group becomes `bias`, with gradients of 0 but for `bias`.
        Where the deviations themselves overflow, near the largest numbers, it may become NaN.
    num_groups : int
        How many groups of C/num_groups successive channels there are.
    weight, bias : Tensor, shape (C,), optional
        The gain γ and the shift β, one of each per channel.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0 a constant row is 0 / 0: NaN.

    Returns
    -------
    Tensor
        Of x's shape. The result of a sample does not depend on the other samples, bit for bit.

    Raises
    ------
    ValueError
        If the channels do not divide into that many groups, or shapes do not agree.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.group_norm(mg.tensor([[1.0, 3.0, 5.0, 9.0]]), 2, eps=0.0)
    tensor([[-1.,  1., -1.,  1.]])
    """
    cdef Call _call = begin(group_norm_op)
    cdef int64_t groups = integer("group_norm", "num_groups", num_groups)
    x, weight, bias = operand("group_norm", x), optional("group_norm", weight), optional("group_norm", bias)
    eps = number("group_norm", "eps", eps, 0)
    cdef Array a = float_operand("group_norm", x)
    if a.ndim_ < 2:
        raise ValueError(f"[group_norm] expected x of shape (N, C, ...), got {shape_of(a)}")
    if groups < 1 or a.extent[1] % groups:
        raise ValueError(f"[group_norm] expected a number of groups that divides the {a.extent[1]} channels, "
                         f"got {groups}")
    return grouped(group_norm_op, a, groups, weight, bias, eps)


def instance_norm(x, *, weight=None, bias=None, eps=1e-5):
    """Instance normalization: every channel of every sample by itself.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance over the elements of
    one channel of one sample (Ulyanov, Vedaldi and Lempitsky, 2016, "Instance Normalization"): `group_norm` with as
    many groups as channels.

    Parameters
    ----------
    x : Tensor, shape (N, C, *)
        float32 or float64, of three axes or more. Squares of deviations are summed in this dtype: where they
        overflow (from 1e17 on in float32, 1e150 in float64), the channel of that sample becomes `bias`, with
        gradients of 0 but for `bias`. Where the deviations themselves overflow, near the largest numbers, it may
        become NaN.
    weight, bias : Tensor, shape (C,), optional
        The gain γ and the shift β, one of each per channel. They are keyword-only, as the second argument of
        `minigrad.nn.functional.instance_norm` is PyTorch's `running_mean`.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0 a constant row is 0 / 0: NaN.

    Returns
    -------
    Tensor
        Of x's shape.

    Raises
    ------
    ValueError
        If a channel of a sample is a single value, of which nothing would be left, or shapes do not agree.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.instance_norm(mg.tensor([[[1.0, 3.0], [5.0, 9.0]]]), eps=0.0)
    tensor([[[-1.,  1.],
             [-1.,  1.]]])
    """
    cdef Call _call = begin(instance_norm_op)
    x, weight, bias = operand("instance_norm", x), optional("instance_norm", weight), optional("instance_norm", bias)
    eps = number("instance_norm", "eps", eps, 0)
    cdef Array a = float_operand("instance_norm", x)
    if a.ndim_ < 3:
        raise ValueError(f"[instance_norm] expected x of shape (N, C, ...) with three axes or more, got {shape_of(a)}")
    if row_length(a, a.ndim_ - 2) == 1:
        raise ValueError(f"[instance_norm] expected more than one value per channel, got shape {shape_of(a)}")
    return grouped(instance_norm_op, a, max(a.extent[1], 1), weight, bias, eps)
