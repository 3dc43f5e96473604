"""Row normalization: the statistics of each row, and the affine map that follows."""
import operator

from libc.stdint cimport int64_t
from libc.string cimport memcmp

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport FLOAT32, FLOAT64
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.arguments cimport float_operand, integer, number, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply, subtract
from minigrad.engine.ops.functions cimport rsqrt, square
from minigrad.engine.ops.layout cimport cast, dense, elements, reshape_to, sum_axes
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track


NORMALIZED = "μ = Σ x / n\nσ² = Σ (x − μ)² / n\nr = 1 / √(σ² + ε)\nx̂ = (x − μ) r\ny = γ x̂ + β"
DX = "dx = r (γ g − mean(γ g) − x̂ mean(γ g x̂))\n"


cdef Array standard(Array x, list axes, Array near, double n, double eps):
    """x̂ over `axes`, which have n elements in all, composed of primitive operations.

    `near` has a number near the mean of each row, a constant to the derivative. x̂ does not depend on it, but
    subtracting it first keeps the digits of x if the mean is large. If it is None, x̂ is not centered.
    """
    cdef Array d = x
    if near is not None:
        d = subtract(x, near)
        d = subtract(d, multiply(sum_axes(d, axes, True), 1.0 / n))
    return multiply(d, rsqrt(add(multiply(sum_axes(square(d), axes, True), 1.0 / n), eps)))


cdef Array scale_and_shift(Array y, Array weight, Array bias):
    """y * weight + bias; either may be None."""
    if weight is not None:
        y = multiply(y, weight)
    return y if bias is None else add(y, bias)


cdef Array parameter(str op, str name, object given, Array x, int first, int last):
    """Check an optional parameter, which has the axes of x from `first` up to `last`."""
    if given is None:
        return None
    cdef Array a = float_operand(op, given)
    if a.ndim_ != last - first or memcmp(a.extent, x.extent + first, a.ndim_ * sizeof(int64_t)):
        raise ValueError(f"[{op}] {name} must have shape {shape_of(x)[first:last]}, got {shape_of(a)}")
    if a.code != x.code:
        raise TypeError(f"[{op}] {name} must have the dtype {x.dtype} of x, got {a.dtype}: "
                        f'use x.astype("{a.dtype}")')
    check_same_device(op, x, a)
    return a


cdef Array plain(Array x):
    """An optional parameter in contiguous memory, as kernels read it."""
    return None if x is None else dense(x)


cdef Array gradient_for(Node node, int i, Array x, int first, int last):
    """Allocate the gradient of input i, with the axes of x from `first` up to `last`; None if it is not needed."""
    return empty(x.code, last - first, x.extent + first, x.buffer.device) if node.needs(i) else None


cdef list all_but_channels(Array x):
    return [k for k in range(x.ndim_) if k != 1]


cdef int differentiate(Node node, object composition, list inputs, Array g, list shared) except -1:
    """Send the gradients in a recorded pass: those of `inputs` through the composition, that of the bias directly.

    The bias is the input after `inputs`. Its gradient is the sum of g over the axes that share it. The composition
    leaves it out: no derivative reads the bias, so its value may change before the backward pass.
    """
    cdef int bias = len(inputs)
    if node.needs(bias):
        node.send(bias, sum_axes(g, shared, False))
    if any([node.needs(i) for i in range(bias)]):
        return composed_backward(node, composition, inputs, g)
    return 0


cdef tuple plain_shape(str op, object normalized_shape):
    """Return normalized_shape as a tuple of ints."""
    shape = (normalized_shape,) if hasattr(normalized_shape, "__index__") else normalized_shape
    if isinstance(shape, (tuple, list)):
        try:
            return tuple([operator.index(n) for n in shape])
        except (TypeError, ValueError):
            pass
    raise TypeError(f"[{op}] expected an integer or a sequence of integers normalized_shape, got {normalized_shape!r}")


cdef int first_axis(str op, Array x, tuple shape) except -1:
    """Return the first of the trailing axes of x, which must have the normalized shape."""
    cdef int first = x.ndim_ - <int>min(len(shape), MAX_NDIM + 1), i
    cdef bint agrees = first >= 0
    if len(shape) == 0:
        raise ValueError(f"[{op}] expected a normalized_shape of at least one axis, got {shape}")
    for i in range(first, x.ndim_):
        agrees = agrees and x.extent[i] == shape[i - first]
    if not agrees:
        raise ValueError(f"[{op}] expected x of shape (..., {', '.join([str(n) for n in shape])}), got {shape_of(x)}")
    return first


def normalized_axes(str op, Array x: Tensor, normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    """normalized_shape as a tuple, which must be the shape of the last axes of x."""
    shape = plain_shape(op, normalized_shape)
    first_axis(op, x, shape)
    return shape


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────
#
# The parameters of a normalization have the axes of x from `first` up to `last`, which are divided into `groups`. A row
# consists of one group and all elements of the axes after it. LayerNorm and RMSNorm have one group that ends with the
# last axis of x; in GroupNorm and InstanceNorm the groups divide axis 1, the channels. The statistics have the shape
# x.shape[:first] + (groups,).


cdef Array normalize_rows(Op op, Array x, int first, int last, int64_t groups, bint centered, object weight,
                          object bias, object eps):
    """Normalize the rows of x, and record it as `op`."""
    cdef Array gamma = parameter(op.name, "weight", weight, x, first, last)
    cdef Array beta = parameter(op.name, "bias", bias, x, first, last)
    cdef int i
    cdef int64_t m = elements(x, first, last) // groups, inner = elements(x, last, x.ndim_)
    cdef int64_t[MAX_NDIM] extent
    for i in range(first):
        extent[i] = x.extent[i]
    extent[first] = groups
    cdef Array rstd = empty(x.code if groups == 1 and inner == 1 else FLOAT64, first + 1, extent, x.buffer.device)
    cdef Array mean = empty_as(rstd, rstd.code) if centered else None, out = empty_as(x, x.code)
    if x.count:
        backend(x).normalize(rstd.count, groups, m, inner, dense(x), plain(gamma), plain(beta), eps, out, mean, rstd)
    track(op, out, x, gamma, beta, (mean, rstd, last, eps))
    return out


cdef object composition(Array mean, Array rstd, int last, object eps):
    """A function of x and the weight that computes the operation without its bias, composed of primitive operations."""
    cdef int first = rstd.ndim_ - 1

    def run(Array x, weight):
        cdef tuple shape = shape_of(x)
        cdef list axes = list(range(first, x.ndim_))
        cdef int64_t groups = rstd.extent[first], width = elements(x, first, x.ndim_) // groups
        cdef Array y = x, near = None
        if groups > 1:
            y, axes = reshape_to(x, (rstd.count, width)), [1]
        if mean is not None:
            near = reshape_to(cast(mean, x.code), shape_of(y)[:axes[0]] + (1,) * len(axes))
        y = standard(y, axes, near, width, eps)
        if groups > 1:
            y = reshape_to(y, shape)
        if weight is not None and last < x.ndim_:
            weight = reshape_to(weight, shape[first:last] + (1,) * (x.ndim_ - last))
        return scale_and_shift(y, weight, None)
    return run


cdef int normalize_backward(Node node, Array g) except -1:
    mean, rstd_, last_, eps = node.extra
    cdef Array x = node.value(0), weight = node.value(1), rstd = rstd_, dx, dweight, dbias
    cdef int first = rstd.ndim_ - 1, last = last_
    cdef int64_t groups = rstd.extent[first]
    if recording():
        return differentiate(node, composition(mean, rstd, last, eps), [x, weight], g,
                             [*range(first), *range(last, x.ndim_)])
    dx = gradient_for(node, 0, x, 0, x.ndim_)
    dweight, dbias = gradient_for(node, 1, x, first, last), gradient_for(node, 2, x, first, last)
    backend(x).normalize_backward(rstd.count, groups, elements(x, first, last) // groups, elements(x, last, x.ndim_),
                                  dense(x), plain(weight), mean, rstd, dense(g), dx, dweight, dbias)
    return node.send_all((dx, dweight, dbias))


cdef Op layer_norm_op = operation("layer_norm", normalize_backward, "over the n elements of each row:\n" + NORMALIZED,
                                  DX + "dγ = Σ g x̂ over rows\ndβ = Σ g over rows", "x γ, x γ, x γ", "x, γ, β",
                                  "Ba, Kiros and Hinton (2016), eq. 3 and 4")


def layer_norm(x: TensorLike, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
               bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Layer normalization over the trailing axes of x.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance of each row
    (Ba, Kiros and Hinton, 2016, "Layer Normalization", eq. 3 and 4; ``eps`` is inside the root).

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
        float32 or float64. Squares of deviations are summed in this dtype: if they overflow (from 1e17 on in float32,
        1e150 in float64), the row becomes `bias`, and all gradients but the one of `bias` are 0. If the deviations
        themselves overflow, near the largest numbers, it may become NaN.
    normalized_shape : int or tuple of int
        The trailing shape over which statistics are taken.
    weight, bias : Tensor, shape normalized_shape, optional
        The scale γ and the shift β of each element.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0, a constant row becomes 0 / 0 = NaN.

    Returns
    -------
    Tensor
        A tensor of x's shape. The result of a row does not depend on the other rows, bit for bit.

    Raises
    ------
    ValueError
        If the shapes do not agree.

    Examples
    --------
    >>> mg.layer_norm(mg.tensor([1.0, 2.0, 3.0]), 3, eps=0.0)
    tensor([-1.2247449,  0.       ,  1.2247449])
    """
    cdef Call _call = begin(layer_norm_op)
    x, weight, bias = operand("layer_norm", x), optional("layer_norm", weight), optional("layer_norm", bias)
    eps, shape = number("layer_norm", "eps", eps, 0), plain_shape("layer_norm", normalized_shape)
    cdef Array a = float_operand("layer_norm", x)
    cdef int first = first_axis("layer_norm", a, shape)
    return normalize_rows(layer_norm_op, a, first, a.ndim_, 1, True, weight, bias, eps)


cdef Op rms_norm_op = operation("rms_norm", normalize_backward,
                                "over the n elements of each row:\n"
                                "r = 1 / √(Σ x² / n + ε)\n"
                                "x̂ = x r\n"
                                "y = γ x̂", "dx = r (γ g − x̂ mean(γ g x̂))\ndγ = Σ g x̂ over rows", "x γ, x γ", "x, γ",
                                "Zhang and Sennrich (2019), eq. 4")


def rms_norm(x: TensorLike, normalized_shape: int | Sequence[int], weight: Tensor | None = None,
             eps: float | None = None) -> Tensor:
    """Root mean square normalization over the trailing axes of x.

    ``y = x / sqrt(mean(x**2) + eps) * weight``: layer normalization without the mean and without a shift (Zhang and
    Sennrich, 2019, "Root Mean Square Layer Normalization", eq. 4, where no ``eps`` is added).

    Parameters
    ----------
    x : Tensor, shape (..., *normalized_shape)
        float32 or float64. Squares are summed in this dtype: if they overflow (from 1e17 on in float32, 1e150 in
        float64), the row and its gradients become 0; near the largest numbers the gradients may become NaN.
    normalized_shape : int or tuple of int
        The trailing shape over which the mean is taken.
    weight : Tensor, shape normalized_shape, optional
        The scale γ of each element.
    eps : float, optional
        Added to the mean square, in the units of x squared; not negative. None is the machine epsilon of the dtype.
        With 0, a row of zeros becomes 0 / 0 = NaN.

    Returns
    -------
    Tensor
        A tensor of x's shape. The result of a row does not depend on the other rows, bit for bit.

    Raises
    ------
    ValueError
        If the shapes do not agree.

    Examples
    --------
    >>> mg.rms_norm(mg.tensor([1.0, 7.0]), 2, eps=0.0)
    tensor([0.2, 1.4])
    """
    cdef Call _call = begin(rms_norm_op)
    x, weight, shape = operand("rms_norm", x), optional("rms_norm", weight), plain_shape("rms_norm", normalized_shape)
    eps = None if eps is None else number("rms_norm", "eps", eps, 0)
    cdef Array a = float_operand("rms_norm", x)
    cdef int first = first_axis("rms_norm", a, shape)
    if eps is None:
        eps = 2.0**-23 if a.code == FLOAT32 else 2.0**-52
    return normalize_rows(rms_norm_op, a, first, a.ndim_, 1, False, weight, None, eps)


CHANNELS = DX + "dγ, dβ = Σ g x̂, Σ g over each channel's elements"
cdef Op group_norm_op = operation("group_norm", normalize_backward,
                                  "over the n elements of each group of channels of a sample:\n" + NORMALIZED, CHANNELS,
                                  "x γ, x γ, x γ", "x, γ, β", "Wu and He (2018), eq. 1 and 7")
cdef Op instance_norm_op = operation("instance_norm", normalize_backward,
                                     "over the n elements of each channel of a sample:\n" + NORMALIZED, CHANNELS,
                                     "x γ, x γ, x γ", "x, γ, β", "Ulyanov, Vedaldi and Lempitsky (2016)")


def group_norm(x: TensorLike, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5) -> Tensor:
    """Group normalization: layer normalization of each group of channels, with a scale and a shift per channel.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance over the channels of a
    group and all their elements, for each sample (Wu and He, 2018, "Group Normalization", eq. 1 and 7).

    Parameters
    ----------
    x : Tensor, shape (N, C, *)
        float32 or float64. A group overflows as a row does in `layer_norm`.
    num_groups : int
        The number of groups, each of C/num_groups consecutive channels.
    weight, bias : Tensor, shape (C,), optional
        The scale γ and the shift β of each channel.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0, a constant row becomes 0 / 0 = NaN.

    Returns
    -------
    Tensor
        A tensor of x's shape. The result of a sample does not depend on the other samples, bit for bit.

    Raises
    ------
    ValueError
        If the number of channels is not divisible by `num_groups`, or the shapes do not agree.

    Examples
    --------
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
    return normalize_rows(group_norm_op, a, 1, 2, groups, True, weight, bias, eps)


def instance_norm(x: TensorLike, *, weight: Tensor | None = None, bias: Tensor | None = None,
                  eps: float = 1e-5) -> Tensor:
    """Instance normalization: layer normalization of each channel of each sample.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with the mean and the biased variance over the elements of
    one channel of one sample (Ulyanov, Vedaldi and Lempitsky, 2016, "Instance Normalization"): `group_norm` with as
    many groups as channels.

    Parameters
    ----------
    x : Tensor, shape (N, C, *)
        float32 or float64, with at least three axes. A channel overflows as a row does in `layer_norm`.
    weight, bias : Tensor, shape (C,), optional
        The scale γ and the shift β of each channel. They are keyword-only, because the second argument of
        `minigrad.nn.functional.instance_norm` is PyTorch's `running_mean`.
    eps : float
        Added to the variance, in the units of x squared; not negative. With 0, a constant row becomes 0 / 0 = NaN.

    Returns
    -------
    Tensor
        A tensor of x's shape.

    Raises
    ------
    ValueError
        If a channel of a sample has a single value, which would always become `bias`, or the shapes do not agree.

    Examples
    --------
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
    if elements(a, 2, a.ndim_) == 1:
        raise ValueError(f"[instance_norm] expected more than one value per channel, got shape {shape_of(a)}")
    return normalize_rows(instance_norm_op, a, 1, 2, max(a.extent[1], 1), True, weight, bias, eps)
