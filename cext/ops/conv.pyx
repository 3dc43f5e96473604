"""Convolutions of images and of sequences, which are cross-correlations, as usual in the field."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, empty, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.shapes cimport parse_shape
from minigrad.engine.ops.arguments cimport float_operand, layer_bias, operand, optional, pair, single, small_integer
from minigrad.engine.ops.arithmetic cimport add
from minigrad.engine.ops.layout cimport dense, expand_dims, reshape_to, squeeze, sum_axes
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track


# <g, x ⋆ w> is linear in x, in w and in g. Its derivatives are dx(g, w) and dw(x, g); theirs, with cotangents v and u,
#   <v, dx(g, w)> = <g, v ⋆ w>,  <u, dw(x, g)> = <g, x ⋆ u>
# are of the same three kinds: none needs a composition, at any order.

cdef Op conv2d_op = operation("conv2d", convolve_backward,
                              "y = x ⋆ w + b, with stride s, padding p, dilation d\n"
                              "y[n, o, i, j] = b[o] + Σ_ckl w[o, c, k, l] x[n, c, i s − p + k d, j s − p + l d]",
                              "dx: each g[n, o, i, j] sends w[o, c, k, l] g to the x it was made of\n"
                              "dw: each g[n, o, i, j] sends x g to the w it was made with\n"
                              "db = Σ g over n, i, j", "w, x", "x, w, b")
cdef int convolve_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), weight = node.value(1), dbias = None, dweight
    at, shape, weight_shape = node.extra
    if node.needs(0):
        node.send(0, data_gradient(g, weight, at, shape))
    if recording():
        if node.needs(1):
            node.send(1, weight_gradient(x, g, at, weight_shape))
        if node.needs(2):
            node.send(2, sum_axes(g, [0, 2, 3], False))
        return 0
    if not node.needs(1):
        return node.send(2, sum_axes(g, [0, 2, 3], False)) if node.needs(2) else 0
    if node.needs(2):
        dbias = empty(g.code, 1, g.extent + 1, g.buffer.device)
    dweight = empty_like_shape(g, weight_shape)
    backend(g).conv2d_backward_weight(dense(x), dense(g), at, dweight, dbias)
    node.send(1, dweight)
    return node.send(2, dbias) if dbias is not None else 0


cdef Array empty_like_shape(Array x, tuple shape):
    """An array of a shape, of x's dtype and device."""
    cdef int64_t[4] extent
    return empty(x.code, parse_shape(shape, extent), extent, x.buffer.device)


cdef Array convolve(Array x, Array weight, Array bias, tuple at, tuple size):
    """x ⋆ weight + bias, with `size` rows and columns; `at` as in `Backend.conv2d`."""
    cdef Array out = empty_like_shape(x, (x.extent[0], weight.extent[0]) + size)
    if out.count:
        backend(x).conv2d(dense(x), dense(weight), None if bias is None else dense(bias), at, out)
    track(conv2d_op, out, x, weight, bias, (at, shape_of(x), shape_of(weight)))
    return out


cdef Op data_gradient_op = operation("conv2d_backward_data", data_gradient_backward,
                                     "y = dx(g, w), the gradient of x in x ⋆ w\n"
                                     "⟨y, v⟩ = ⟨g, v ⋆ w⟩ for every v",
                                     "with the gradient v of y:\ndg = v ⋆ w\ndw = dw(v, g)", "w, g", "g, w")
cdef int data_gradient_backward(Node node, Array v) except -1:
    cdef Array g = node.value(0), weight = node.value(1)
    at, size, weight_shape = node.extra
    if node.needs(0):
        node.send(0, convolve(v, weight, None, at, size))
    return node.send(1, weight_gradient(v, g, at, weight_shape)) if node.needs(1) else 0


cdef Array data_gradient(Array g, Array weight, tuple at, tuple shape):
    """dx(g, weight), of a shape."""
    cdef Array out = empty_like_shape(g, shape)
    if out.count:
        backend(g).conv2d_backward_data(dense(g), dense(weight), at, out)
    track(data_gradient_op, out, g, weight, None, (at, shape_of(g)[2:], shape_of(weight)))
    return out


cdef Op weight_gradient_op = operation("conv2d_backward_weight", weight_gradient_backward,
                                       "y = dw(x, g), the gradient of w in x ⋆ w\n"
                                       "⟨y, u⟩ = ⟨g, x ⋆ u⟩ for every u",
                                       "with the gradient u of y:\ndx = dx(g, u)\ndg = x ⋆ u", "g, x", "x, g")
cdef int weight_gradient_backward(Node node, Array u) except -1:
    cdef Array x = node.value(0), g = node.value(1)
    at, shape, size = node.extra
    if node.needs(0):
        node.send(0, data_gradient(g, u, at, shape))
    return node.send(1, convolve(x, u, None, at, size)) if node.needs(1) else 0


cdef Array weight_gradient(Array x, Array g, tuple at, tuple shape):
    """dw(x, g), of a shape."""
    cdef Array out = empty_like_shape(g, shape)
    if out.count:
        backend(g).conv2d_backward_weight(dense(x), dense(g), at, out, None)
    track(weight_gradient_op, out, x, g, None, (at, shape_of(x), shape_of(g)[2:]))
    return out


cpdef Array conv2d(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None, stride: int | tuple[int, int] = 1,
                   padding: int | tuple[int, int] | str = 0, dilation: int | tuple[int, int] = 1, groups: int = 1):
    """Two-dimensional convolution: each output is a weighted sum of a window of all channels, or of a group of them.

    ``y[n, o, i, j] = bias[o] + sum over c, k, l of weight[o, c, k, l] x[n, c, i s - p + k d, j s - p + l d]``, with
    the stride s, the zero padding p and the dilation d: a cross-correlation, as usual in the field (Dumoulin
    and Visin, 2016, https://arxiv.org/abs/1603.07285). Equivalent to PyTorch's `conv2d`.

    Parameters
    ----------
    x : Tensor, shape (N, C, H, W) or (C, H, W)
        float32 or float64.
    weight : Tensor, shape (O, C / groups, KH, KW)
    bias : Tensor, shape (O,), optional
    stride, dilation : int or pair of int
        The distances, in rows and columns, between windows and between the elements of a window; 1 or more.
    padding : int, pair of int, "valid" or "same"
        Zeros on either side. "valid" adds none; "same" as few as give ``P = ceil(H / s)``, an odd one at the end: the
        "same" of TensorFlow, Keras and Flax, ONNX's SAME_UPPER, and for a stride of 1, the only one that it takes,
        PyTorch's. With a stride of 2 and an even H, a window of 3 has a zero at the end alone, other than with ``1``.
    groups : int
        The number of groups of channels and outputs; outputs see the channels of their group only.

    Returns
    -------
    Tensor, shape (N, O, P, Q) or (O, P, Q)
        With ``P = floor((H + 2 p - d (KH - 1) - 1) / s) + 1``, and the same for Q. The result of a sample does not
        depend on the other samples, bit for bit.

    Raises
    ------
    ValueError
        If the shapes do not agree, or a window is larger than the padded x.
    TypeError
        If the tensors do not share one floating-point dtype.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> x = mg.tensor([[[1.0, 2.0, 4.0], [0.0, 3.0, 9.0]]])
    >>> F.conv2d(x, mg.tensor([[[[-1.0, 1.0]]]]))
    tensor([[[1., 2.],
             [3., 6.]]])
    """
    cdef Call _call = begin(conv2d_op)
    stride, dilation = pair("conv2d", "stride", stride, 1), pair("conv2d", "dilation", dilation, 1)
    padding = padding if isinstance(padding, str) else pair("conv2d", "padding", padding, 0)
    return check_and_convolve("conv2d", 2, x, weight, bias, stride, padding, dilation, groups)


cpdef Array conv1d(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None, stride: int | tuple[int] = 1,
                   padding: int | tuple[int] | str = 0, dilation: int | tuple[int] = 1, groups: int = 1):
    """`conv2d` of sequences: each output is a weighted sum of a window of steps of all channels, or of a group of them.

    Equivalent to PyTorch's `conv1d`.

    Parameters
    ----------
    x : Tensor, shape (N, C, T) or (C, T)
        float32 or float64.
    weight : Tensor, shape (O, C / groups, K)
    bias : Tensor, shape (O,), optional
    stride, padding, dilation, groups
        As in `conv2d`, with a number in place of each pair.

    Returns
    -------
    Tensor, shape (N, O, P) or (O, P)

    Raises
    ------
    ValueError, TypeError
        As in `conv2d`.

    Examples
    --------
    >>> mg.nn.functional.conv1d(mg.tensor([[1.0, 2.0, 4.0]]), mg.tensor([[[-1.0, 1.0]]]))
    tensor([[1., 2.]])
    """
    cdef Call _call = begin(conv2d_op)
    stride, dilation = single("conv1d", "stride", stride, 1), single("conv1d", "dilation", dilation, 1)
    padding = padding if isinstance(padding, str) else (0, single("conv1d", "padding", padding, 0))
    return check_and_convolve("conv1d", 1, x, weight, bias, (1, stride), padding, (1, dilation), groups)


cdef Array check_and_convolve(str op, int axes, object x, object weight, object bias, tuple stride, object padding,
                              tuple dilation, object groups):
    """x ⋆ weight + bias along one axis, for which another of a single row is inserted, or along two."""
    cdef int64_t parts = small_integer(op, "groups", groups, 1)
    cdef Array a = operand(op, x), w = operand(op, weight), b = optional(op, bias), y
    a, w = float_operand(op, a), float_operand(op, w)
    cdef tuple given = shape_of(a), weight_shape = shape_of(w)
    places, windows = ("H, W", "KH, KW") if axes == 2 else ("T", "K")
    if a.ndim_ != axes + 1 and a.ndim_ != axes + 2:
        raise ValueError(f"[{op}] expected x of shape (N, C, {places}) or (C, {places}), got {given}")
    if w.ndim_ != axes + 2 or min(weight_shape[1:]) < 1 or weight_shape[0] % parts:
        raise ValueError(f"[{op}] expected a weight of shape (O, C / groups, {windows}) with O divisible by {parts} "
                         f"groups, got {weight_shape}")
    cdef bint single_sample = a.ndim_ == axes + 1
    if single_sample:
        a = expand_dims(a, 0)
    if axes == 1:
        a, w = expand_dims(a, 2), expand_dims(w, 2)
    if a.extent[1] % parts or a.extent[1] // parts != w.extent[1]:      # their product may have more than 64 bits
        raise ValueError(f"[{op}] expected x of {weight_shape[1] * parts} channels for a weight {weight_shape} and "
                         f"{parts} groups, got {given}")
    b = layer_bias(op, b, a, w, w.extent[0])
    at, size = geometry(op, given, a, w, stride, padding, dilation)
    y = convolve(a, w, b, at, size)
    if axes == 1:
        y = squeeze(y, 2)
    return squeeze(y, 0) if single_sample else y


cdef tuple geometry(str op, tuple given, Array x, Array w, tuple stride, object padding, tuple dilation):
    """The `at` of `Backend.conv2d`, and the rows and columns of the result; errors show the given shape."""
    cdef list before = [0, 0], size = []
    cdef int64_t length, window, both
    cdef int i, axis
    if type(padding) is not tuple:
        if padding not in ("valid", "same"):
            raise ValueError(f'[{op}] expected "valid", "same" or integers for padding, got {padding!r}')
        zeros = None
    else:
        zeros = padding
    for i in range(2):
        length, axis = x.extent[2 + i], <int>len(given) - 2 + i
        span = dilation[i] * <object>(w.extent[2 + i] - 1) + 1      # may have more than 64 bits
        if zeros is not None:
            around = 2 * zeros[i]
        else:       # "same": windows begin at 0, s, 2 s ... of x and its zeros; the last of those below `length` fits
            around = max((length - 1) // stride[i] * stride[i] + span - length, 0) if padding == "same" else 0
        if length == 0:
            raise ValueError(f"[{op}] expected x with elements on axis {axis}, got {given}")
        if span > length + around or span > 2**61:
            raise ValueError(f"[{op}] expected a window no larger than the padded x, got one of {span} on axis {axis} "
                             f"of {given} with {around} zeros")
        window, both = span, around
        before[i] = both // 2
        size.append((length + both - window) // <int64_t>stride[i] + 1)
    return (*stride, *before, *dilation), tuple(size)


cpdef Array conv_transpose2d(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None,
                             stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
                             output_padding: int | tuple[int, int] = 0, groups: int = 1,
                             dilation: int | tuple[int, int] = 1):
    """Transposed two-dimensional convolution: each element of x adds a weighted window to all channels of the result.

    It is the gradient of `conv2d` with respect to its input, dx(g, w), computed for g = x, and enlarges an image by the
    stride (Dumoulin and Visin, 2016, https://arxiv.org/abs/1603.07285). Equivalent to PyTorch's `conv_transpose2d`.

    Parameters
    ----------
    x : Tensor, shape (N, C, H, W) or (C, H, W)
        float32 or float64.
    weight : Tensor, shape (C, O / groups, KH, KW)
    bias : Tensor, shape (O,), optional
    stride, dilation, groups
        As in `conv2d`.
    padding : int or pair of int
        How many rows and columns to leave out on either side.
    output_padding : int or pair of int
        How many rows and columns to add at the end, fewer than the stride or the dilation: inputs of several lengths
        have convolutions of the same length.

    Returns
    -------
    Tensor, shape (N, O, P, Q) or (O, P, Q)
        With ``P = (H - 1) s - 2 p + d (KH - 1) + 1 + output_padding``, and the same for Q.

    Raises
    ------
    ValueError
        If the shapes do not agree, or nothing would remain.
    TypeError
        If the tensors do not share one floating-point dtype.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.conv_transpose2d(mg.tensor([[[1.0, 2.0]]]), mg.ones((1, 1, 1, 2)), stride=(1, 2))
    tensor([[[1., 1., 2., 2.]]])
    """
    cdef str op = "conv_transpose2d"
    cdef Call _call = begin(data_gradient_op)
    cdef int64_t parts = small_integer(op, "groups", groups, 1)
    stride, dilation = pair(op, "stride", stride, 1), pair(op, "dilation", dilation, 1)
    padding, output_padding = pair(op, "padding", padding, 0), pair(op, "output_padding", output_padding, 0)
    cdef Array a = float_operand(op, operand(op, x)), w = float_operand(op, operand(op, weight)), out
    cdef Array b = optional(op, bias)
    if a.ndim_ != 3 and a.ndim_ != 4:
        raise ValueError(f"[{op}] expected x of shape (N, C, H, W) or (C, H, W), got {shape_of(a)}")
    if a.ndim_ == 3:
        a = expand_dims(a, 0)
        return squeeze(conv_transpose2d(a, w, b, stride, padding, output_padding, groups, dilation), 0)
    if w.ndim_ != 4 or w.extent[1] < 1 or w.extent[2] < 1 or w.extent[3] < 1 or w.extent[0] < 1 or w.extent[0] % parts:
        raise ValueError(f"[{op}] expected a weight of shape (C, O / groups, KH, KW) with C divisible by {parts} "
                         f"groups, got {shape_of(w)}")
    if a.extent[1] != w.extent[0]:
        raise ValueError(f"[{op}] expected x of {w.extent[0]} channels for a weight {shape_of(w)}, got {shape_of(a)}")
    shape = [a.extent[0], w.extent[1] * parts]
    for i in range(2):
        if output_padding[i] >= max(stride[i], dilation[i]):
            raise ValueError(f"[{op}] expected output_padding below the stride or the dilation, got {output_padding}, "
                             f"{stride} and {dilation}")
        length = (a.extent[2 + <int>i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (w.extent[2 + <int>i] - 1) + 1
        shape.append(length + output_padding[i])
        if length < 1 or a.extent[2 + <int>i] < 1:
            raise ValueError(f"[{op}] expected at least one row and column to remain, got {length} on axis {2 + i} "
                             f"from {shape_of(a)} with padding {padding}")
    b = layer_bias(op, b, a, w, shape[1])
    out = data_gradient(a, w, (*stride, *padding, *dilation), tuple(shape))
    return out if b is None else add(out, reshape_to(b, (shape[1], 1, 1)))
