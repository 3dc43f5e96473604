"""Pooling in one and two dimensions: the largest element, or the mean, of windows."""
from libc.stdint cimport int64_t, intptr_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.cuda cimport PER_THREAD, current_stream
from minigrad.engine.memory.array cimport Array, empty, empty_as, keep_values, shape_of, transferred
from minigrad.engine.memory.calls cimport Call, begin, is_capturing
from minigrad.engine.memory.dtype cimport INT64
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.arguments cimport float_operand, number, operand, pair, single
from minigrad.engine.ops.gather cimport take_along
from minigrad.engine.ops.layout cimport dense, expand_dims, reshape_to, squeeze
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track


cdef Array images(str op, int axes, object x):
    """Checked images; sequences as images of one row."""
    cdef Array a = float_operand(op, x)
    cdef int i
    places, parts = ("H, W", "channels, rows and columns") if axes == 2 else ("T", "channels and steps")
    if a.ndim_ != axes + 1 and a.ndim_ != axes + 2:
        raise ValueError(f"[{op}] expected x of shape (N, C, {places}) or (C, {places}), got {shape_of(a)}")
    for i in range(a.ndim_ - axes - 1, a.ndim_):
        if a.extent[i] == 0:
            raise ValueError(f"[{op}] expected {parts}, got x of shape {shape_of(a)}")
    return a if axes == 2 else expand_dims(a, -2)


cdef Array empty_planes(Array x, int64_t rows, int64_t columns, int code):
    """An uninitialized result with the leading axes of x."""
    cdef int64_t[MAX_NDIM] extent
    cdef int i
    for i in range(x.ndim_ - 2):
        extent[i] = x.extent[i]
    extent[x.ndim_ - 2], extent[x.ndim_ - 1] = rows, columns
    return empty(code, x.ndim_, extent, x.buffer.device)


cdef int64_t windows(str op, int64_t length, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                     bint ceil_mode) except -1:
    """How many windows an axis has: in ceil_mode the last may reach past the end, but not begin after it."""
    cdef int64_t reach = dilation * (kernel - 1) + 1, rest = length + 2 * pad - reach
    if pad > reach // 2:
        raise ValueError(f"[{op}] expected a padding of at most half a window, got {pad} for a window of {reach}")
    if rest < 0 and not (ceil_mode and rest + stride > 0):
        raise ValueError(f"[{op}] expected a window no larger than the padded x, got one of {reach} on an axis of "
                         f"{length} with {2 * pad} more")
    cdef int64_t n = rest // stride + 1 if rest >= 0 else 1
    if ceil_mode and rest > 0 and rest % stride and n * stride < length + pad:
        n += 1
    return n


cdef Array max_pool_composition(Array x, Array index):
    cdef int64_t plane = x.extent[x.ndim_ - 2] * x.extent[x.ndim_ - 1]
    cdef int64_t count = index.extent[index.ndim_ - 2] * index.extent[index.ndim_ - 1]
    cdef int64_t planes = index.count // count
    cdef Array y = take_along(reshape_to(x, (planes, plane)), reshape_to(index, (planes, count)), 1)
    return reshape_to(y, shape_of(index))


cdef Op max_pool2d_op = operation("max_pool2d", max_pool2d_backward, "y = the largest x of each window",
                                  "dx = g at the place of that x, 0 elsewhere", "x")
cdef int max_pool2d_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), index, dx
    if recording():
        index = empty_as(g, INT64)
        backend(x).max_pool2d(dense(x), node.extra, None, index)
        return composed_backward(node, lambda a: max_pool_composition(a, index), [x], g)
    dx = empty_as(x, x.code)
    backend(x).max_pool2d_backward(dense(x), dense(g), node.extra, dx)
    return node.send(0, dx)


def max_pool2d(x: TensorLike, kernel_size: int | tuple[int, int], stride: int | tuple[int, int] | None = None,
               padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, bint ceil_mode=False,
               bint return_indices=False) -> Any:
    """The largest element of each window of each channel.

    ``y[n, c, i, j] = max over k, l of x[n, c, i s - p + k d, j s - p + l d]``, over the elements of the window that lie
    in x. The gradient goes to that element; of equal ones to the first in row-major order. A NaN in a window is its
    maximum. Equivalent to PyTorch's `max_pool2d`.

    Parameters
    ----------
    x : Tensor, shape (N, C, H, W) or (C, H, W)
        float32 or float64.
    kernel_size : int or pair of int
        Rows and columns of a window.
    stride : int or pair of int, optional
        The distance between windows; by default `kernel_size`.
    padding : int or pair of int
        How far windows reach past the borders, at most half a window.
    dilation : int or pair of int
        The distance between the elements of a window.
    ceil_mode : bool
        Whether an incomplete last window counts.
    return_indices : bool
        Whether to return also where the largest elements are.

    Returns
    -------
    y : Tensor, shape (N, C, P, Q) or (C, P, Q)
        With ``P = floor((H + 2 p - d (kernel_size - 1) - 1) / s) + 1``, and the same for Q; ceil instead of floor with
        `ceil_mode`.
    index : Tensor, of the shape of y
        int64, with `return_indices`: the places ``row * W + column`` of the elements in x.

    Raises
    ------
    ValueError
        If a window is larger than the padded x (in `ceil_mode` by a stride or more), if the padding exceeds half a
        window, or if a window contains no element of x.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.max_pool2d(mg.tensor([[[1.0, 2.0, 7.0, 0.0], [4.0, 3.0, 0.0, 0.0]]]), 2)
    tensor([[[4., 7.]]])
    >>> F.max_pool2d(mg.tensor([[[1.0, 2.0, 7.0, 0.0], [4.0, 3.0, 0.0, 0.0]]]), 2, return_indices=True)[1]
    tensor([[[4, 2]]])
    """
    size = pair("max_pool2d", "kernel_size", kernel_size, 1)
    step = size if stride is None else pair("max_pool2d", "stride", stride, 1)
    pad, apart = pair("max_pool2d", "padding", padding, 0), pair("max_pool2d", "dilation", dilation, 1)
    return largest("max_pool2d", 2, x, (*size, *step, *pad, *apart), ceil_mode, return_indices)


def max_pool1d(x: TensorLike, kernel_size: int | tuple[int], stride: int | tuple[int] | None = None,
               padding: int | tuple[int] = 0, dilation: int | tuple[int] = 1, bint ceil_mode=False,
               bint return_indices=False) -> Any:
    """`max_pool2d` of sequences: the largest of the steps in each window of each channel.

    Parameters
    ----------
    x : Tensor, shape (N, C, T) or (C, T)
        float32 or float64.
    kernel_size, stride, padding, dilation, ceil_mode, return_indices
        As in `max_pool2d`, with a number in place of each pair.

    Returns
    -------
    y : Tensor, shape (N, C, P) or (C, P)
    index : Tensor, of the shape of y
        int64, with `return_indices`: the steps of x that hold the elements.

    Raises
    ------
    ValueError
        As in `max_pool2d`.

    Examples
    --------
    >>> mg.nn.functional.max_pool1d(mg.tensor([[1.0, 4.0, 2.0, 3.0]]), 2)
    tensor([[4., 3.]])
    """
    size = single("max_pool1d", "kernel_size", kernel_size, 1)
    step = size if stride is None else single("max_pool1d", "stride", stride, 1)
    pad, apart = single("max_pool1d", "padding", padding, 0), single("max_pool1d", "dilation", dilation, 1)
    return largest("max_pool1d", 1, x, (1, size, 1, step, 0, pad, 1, apart), ceil_mode, return_indices)


cdef object largest(str op, int axes, object x, tuple at, bint ceil_mode, bint return_indices):
    """The largest elements, and where they are; `at` are the rows and columns of kernel, stride, padding, dilation."""
    cdef Call _call = begin(max_pool2d_op)
    cdef Array a = images(op, axes, operand(op, x)), out, index = None
    cdef int64_t[2] size
    cdef int i
    for i in range(2):
        length = a.extent[a.ndim_ - 2 + i]
        size[i] = windows(op, length, at[i], at[2 + i], at[4 + i], at[6 + i], ceil_mode)
        refuse_empty(op, size[i], length, at[2 + i], at[4 + i], at[6 + i])
    out = empty_planes(a, size[0], size[1], a.code)
    if return_indices:
        index = empty_as(out, INT64)
    if out.count:
        backend(a).max_pool2d(dense(a), at, out, index)
    track(max_pool2d_op, out, a, None, None, at)
    if axes == 1:
        out, index = squeeze(out, -2), None if index is None else squeeze(index, -2)
    return (out, index) if return_indices else out


cdef int refuse_empty(str op, int64_t count, int64_t length, int64_t stride, int64_t pad, int64_t dilation) except -1:
    """Refuse windows that step from before x to after it, and so contain no element of x."""
    cdef int64_t i, start
    for i in range(count):
        start = i * stride - pad
        if start >= 0:
            break
        start += (-start + dilation - 1) // dilation * dilation
        if start >= length:
            raise ValueError(f"[{op}] expected an element of x in every window, got none in window {i} of an "
                             f"axis of {length} with padding {pad} and dilation {dilation}")
    return 0


cdef Op avg_pool2d_op = operation("avg_pool2d", average_backward, "y = the mean of x over each window",
                                  "dx = Σ over the windows around x of g / their size")
cdef int average_backward(Node node, Array g) except -1:
    rows, columns, divisor, shape = node.extra
    return node.send(0, spread(g, rows, columns, divisor, shape[-2], shape[-1]))


cdef Array average(Array x, Array rows, Array columns, double divisor):
    cdef Call _call = begin(avg_pool2d_op)
    cdef Array out = empty_planes(x, rows.extent[0], columns.extent[0], x.code)
    if out.count:
        backend(x).average_pool2d(dense(x), rows, columns, divisor, out)
    track(avg_pool2d_op, out, x, None, None, (rows, columns, divisor, shape_of(x)))
    return out


cdef Op avg_pool2d_backward_op = operation("avg_pool2d_backward", spread_backward,
                                           "y = Σ over the windows around a place of x / their size",
                                           "dx = the mean of g over each window")
cdef int spread_backward(Node node, Array g) except -1:
    rows, columns, divisor = node.extra
    return node.send(0, average(g, rows, columns, divisor))


cdef Array spread(Array g, Array rows, Array columns, double divisor, int64_t height, int64_t width):
    cdef Array out = empty_planes(g, height, width, g.code)
    if out.count:
        backend(g).average_pool2d_backward(dense(g), rows, columns, divisor, out)
    track(avg_pool2d_backward_op, out, g, None, None, (rows, columns, divisor))
    return out


# The tables that `on_device` has sent to GPUs: to send one again would wait for the GPU in every step.
cdef dict sent = {}
cdef int SENT = 64


cdef Array moving(int64_t n, int64_t length, int64_t kernel, int64_t stride, int64_t pad, bint padded, int device):
    """[n, 3] int64: begin, end and length of the windows that move over an axis."""
    cdef int64_t[2] extent = [n, 3]
    cdef Array out = empty(INT64, 2, extent, 0)
    keep_values(out)
    cdef int64_t* to = <int64_t*>out.data
    cdef int64_t start = -pad, end, _
    for _ in range(n):
        end = min(start + kernel, length + pad)
        to[0], to[1] = max(start, 0), min(end, length)
        to[2] = end - start if padded else to[1] - to[0]
        start += stride
        to += 3
    return on_device(out, device)


cdef Array even(int64_t n, int64_t length, int device):
    """The same for n windows that cover an axis evenly: from floor(i length / n) to ceil((i + 1) length / n)."""
    cdef int64_t[2] extent = [n, 3]
    cdef Array out = empty(INT64, 2, extent, 0)
    keep_values(out)
    cdef int64_t* to = <int64_t*>out.data
    cdef int64_t whole = length // n, rest = length % n, i       # i length may overflow, i rest does not: n < 2**31
    for i in range(n):
        to[0] = i * whole + i * rest // n
        to[1] = (i + 1) * whole + ((i + 1) * rest + n - 1) // n
        to[2] = to[1] - to[0]
        to += 3
    return on_device(out, device)


cdef Array on_device(Array table, int device):
    if device == 0:
        return table
    cdef intptr_t stream = current_stream(device - 1)
    cdef tuple key = (device, stream, <bytes>table.data[:table.count * sizeof(int64_t)])
    found = None if stream == PER_THREAD else sent.get(key)
    if found is None:
        found = transferred(table, device)
        if stream == PER_THREAD or is_capturing():   # it is of this thread, or of this recording, alone
            return found
        if len(sent) == SENT:
            sent.clear()
        sent[key] = found
    return found


cpdef Array avg_pool2d(x: TensorLike, kernel_size: int | tuple[int, int], stride: int | tuple[int, int] | None = None,
                       padding: int | tuple[int, int] = 0, bint ceil_mode=False, bint count_include_pad=True,
                       divisor_override: int | None = None):
    """The mean of each window of each channel.

    ``y[n, c, i, j] = sum over k, l of x[n, c, i s - p + k, j s - p + l] / m``, over the elements of the window that lie
    in x, with m the number of elements of the window, padding included or not. Equivalent to PyTorch's `avg_pool2d`.

    Parameters
    ----------
    x : Tensor, shape (N, C, H, W) or (C, H, W)
        float32 or float64; sums are float64.
    kernel_size, stride, padding
        As in `max_pool2d`.
    ceil_mode : bool
        Whether an incomplete last window counts; its part beyond the padding never counts in m.
    count_include_pad : bool
        Whether the padding counts in m.
    divisor_override : int, optional
        The value of m for all windows.

    Returns
    -------
    Tensor, shape (N, C, P, Q) or (C, P, Q)
        With P and Q as in `max_pool2d`.

    Raises
    ------
    ValueError
        If a window is larger than the padded x (in `ceil_mode` by a stride or more), if the padding exceeds half a
        window, or if the divisor is 0.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.avg_pool2d(mg.tensor([[[1.0, 2.0, 7.0, 0.0], [4.0, 5.0, 0.0, 0.0]]]), 2)
    tensor([[[3.  , 1.75]]])
    """
    cdef tuple size = pair("avg_pool2d", "kernel_size", kernel_size, 1)
    cdef tuple step = size if stride is None else pair("avg_pool2d", "stride", stride, 1)
    cdef tuple pad = pair("avg_pool2d", "padding", padding, 0)
    if divisor_override is not None:
        divisor_override = number("avg_pool2d", "divisor_override", divisor_override)
        if divisor_override == 0:
            raise ValueError("[avg_pool2d] expected a divisor_override other than 0, got 0")
    return means("avg_pool2d", 2, x, size, step, pad, ceil_mode, count_include_pad, divisor_override)


cpdef Array avg_pool1d(x: TensorLike, kernel_size: int | tuple[int], stride: int | tuple[int] | None = None,
                       padding: int | tuple[int] = 0, bint ceil_mode=False, bint count_include_pad=True):
    """`avg_pool2d` of sequences (N, C, T) or (C, T): the mean of the steps in each window of each channel.

    The other arguments are those of `avg_pool2d`, with a number in place of each pair.

    Examples
    --------
    >>> mg.nn.functional.avg_pool1d(mg.tensor([[1.0, 4.0, 2.0, 3.0]]), 2)
    tensor([[2.5, 2.5]])
    """
    size = single("avg_pool1d", "kernel_size", kernel_size, 1)
    step = size if stride is None else single("avg_pool1d", "stride", stride, 1)
    pad = single("avg_pool1d", "padding", padding, 0)
    return means("avg_pool1d", 1, x, (1, size), (1, step), (0, pad), ceil_mode, count_include_pad, None)


cdef Array means(str op, int axes, object x, tuple kernel, tuple stride, tuple pad, bint ceil_mode, bint padded,
                 object divisor):
    cdef Call _call = begin(avg_pool2d_op)
    cdef Array a = images(op, axes, operand(op, x)), out
    cdef list found = []
    cdef int i
    for i in range(2):
        length = a.extent[a.ndim_ - 2 + i]
        n = windows(op, length, kernel[i], stride[i], pad[i], 1, ceil_mode)
        found.append(moving(n, length, kernel[i], stride[i], pad[i], padded, a.buffer.device))
    out = average(a, found[0], found[1], 0 if divisor is None else divisor)
    return out if axes == 2 else squeeze(out, -2)


cpdef Array adaptive_avg_pool2d(x: TensorLike,
                                output_size: int | tuple[int | None, int | None] | list[int | None] | None):
    """The means of a given number of windows that cover each channel evenly.

    Window i of P along an axis of H elements holds those from ``floor(i H / P)`` up to ``ceil((i + 1) H / P)``.
    Equivalent to PyTorch's `adaptive_avg_pool2d`; with ``output_size=1``, it is the global mean of each channel.

    Parameters
    ----------
    x : Tensor, shape (N, C, H, W) or (C, H, W)
        float32 or float64; sums are float64.
    output_size : int or pair of (int or None)
        P and Q; None keeps the size of x.

    Returns
    -------
    Tensor, shape (N, C, P, Q) or (C, P, Q)

    Raises
    ------
    ValueError
        If a size is less than 1, or 2**31 or more.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.adaptive_avg_pool2d(mg.tensor([[[1.0, 2.0, 6.0]]]), (1, 2))
    tensor([[[1.5, 4. ]]])
    """
    cdef Call _call = begin("adaptive_avg_pool2d")
    cdef Array a = operand("adaptive_avg_pool2d", x)
    cdef list found = []
    cdef int i
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    sizes = pair("adaptive_avg_pool2d", "output_size", tuple([1 if n is None else n for n in given]), 1)
    a = images("adaptive_avg_pool2d", 2, a)
    for i in range(2):
        length = a.extent[a.ndim_ - 2 + i]
        n = length if given[i] is None else sizes[i]
        found.append(even(n, length, a.buffer.device))
    return average(a, found[0], found[1], 0)
