"""Matrix products, and the affine map of a layer."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty, shape_of, view
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, INT64, is_float, itemsize
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.arguments cimport float_operand, layer_bias, operand, optional
from minigrad.engine.ops.layout cimport (
    broadcast_shape, cast, dense, elements, expand_dims, matrix_transpose, permute_raw, reshape_to, squeeze, sum_axes,
)
from minigrad.engine.ops.slices cimport take_window
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track

from math import prod

cdef enum:
    TERMS = 1 << 20


# ── product of matrices: Y = A B, dA = G Bᵀ, dB = Aᵀ G ────────────────────────────────────────────

cdef bint readable(Array x):
    """Whether BLAS can read the last two axes as they are: one stride is the item size, the other spans a row."""
    cdef int64_t size = itemsize(x.code), rows = x.step[x.ndim_ - 2], columns = x.step[x.ndim_ - 1]
    cdef int64_t m = x.extent[x.ndim_ - 2], n = x.extent[x.ndim_ - 1]
    return (columns == size and rows >= n * size and rows > 0) or (rows == size and columns >= m * size and columns > 0)


cdef Array exchange_last_axes(Array x):
    """The view of x with its last two axes exchanged; not recorded."""
    cdef list order = list(range(x.ndim_ - 2)) + [x.ndim_ - 1, x.ndim_ - 2]
    return permute_raw(x, order)


cdef Array product(Array a, Array b, Array bias):
    """a @ b (+ bias on each row) for two or three axes; not recorded."""
    cdef int last = a.ndim_ - 1
    cdef int64_t[3] extent
    cdef Array out
    if not readable(a):
        a = dense(a)
    if not readable(b):
        b = dense(b)
    extent[0], extent[last - 1], extent[last] = a.extent[0], a.extent[last - 1], b.extent[last]
    out = empty(a.code, a.ndim_, extent, a.buffer.device)
    if out.count:
        backend(a).gemm(a, b, out, 0.0, bias)
    return out


cdef Op matmul_op = operation("matmul", product_backward, "Y = A B", "dA = G Bᵀ\ndB = Aᵀ G", "B, A", "A, B",
                              "", "Y")
cdef int product_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1)
    if recording():
        if node.needs(0):
            node.send(0, product_of(g, matrix_transpose(b)))
        if node.needs(1):
            node.send(1, product_of(matrix_transpose(a), g))
        return 0
    if node.needs(0):
        send_product(node, 0, g, exchange_last_axes(b))
    return send_product(node, 1, exchange_last_axes(a), g) if node.needs(1) else 0


cdef int send_product(Node node, int i, Array a, Array b) except -1:
    """Send a @ b to input i: for a weight that several products share, BLAS accumulates their sum."""
    cdef Array total = node.gathered(i)
    if total is None or not readable(a) or not readable(b) or total.ndim_ != a.ndim_:
        return node.give(i, product(a, b, None))
    if total.count:
        backend(a).gemm(a, b, total, 1.0, None)
    return 0


cdef Array product_of(Array a, Array b):
    """a @ b for two or three axes."""
    cdef Array out = product(a, b, None)
    track(matmul_op, out, a, b)
    return out


cpdef Array matmul(x: TensorLike, y: TensorLike):
    """The matrix product, NumPy's ``@``: one-dimensional operands are vectors, leading axes are batches and broadcast.

    Parameters
    ----------
    x : Tensor, shape (..., m, k) or (k,)
    y : Tensor, shape (..., k, n) or (k,)

    Returns
    -------
    Tensor, shape (..., m, n)

    Raises
    ------
    ValueError
        If the inner sizes do not agree or the batches do not broadcast.

    Examples
    --------
    >>> mg.matmul(mg.tensor([[1.0, 2.0], [3.0, 4.0]]), mg.tensor([1.0, 10.0]))
    tensor([21., 43.])
    """
    cdef Call _call = begin(matmul_op)
    cdef Array a = operand("matmul", x), b = operand("matmul", y), out
    cdef int code = max(a.code, b.code)
    check_same_device("matmul", a, b)
    if a.ndim_ == 0 or b.ndim_ == 0:
        raise ValueError(f"[matmul] expected at least one axis, got {shape_of(a)} @ {shape_of(b)}")
    if a.extent[a.ndim_ - 1] != b.extent[max(b.ndim_ - 2, 0)]:
        raise ValueError(f"[matmul] expected inner sizes to agree, got {shape_of(a)} @ {shape_of(b)}")
    if not is_float(code):
        return integer_product(a, b)
    a, b = cast(a, code), cast(b, code)
    if a.ndim_ == 2 and b.ndim_ == 2:
        return product_of(a, b)
    if a.ndim_ == 1:
        return squeeze(matmul(expand_dims(a, 0), b), -2 if b.ndim_ > 1 else 0)
    if b.ndim_ == 1:
        return squeeze(matmul(a, expand_dims(b, 1)), -1)
    if b.ndim_ == 2:        # one matrix for all batches: one product
        rows = reshape_to(a, (elements(a, 0, a.ndim_ - 1), a.extent[a.ndim_ - 1]))
        return reshape_to(product_of(rows, b), shape_of(a)[:-1] + (b.extent[1],))
    batch = batch_shape(a, b)
    a, b = in_batches(a, batch), in_batches(b, batch)
    out = product_of(a, b)
    return reshape_to(out, batch + (out.extent[1], out.extent[2]))


cdef tuple batch_shape(Array a, Array b):
    """The common shape of all axes but the last two."""
    cdef list shape = []
    first, second = shape_of(a)[:-2][::-1], shape_of(b)[:-2][::-1]
    for i in range(max(len(first), len(second))):
        m = first[i] if i < len(first) else 1
        n = second[i] if i < len(second) else 1
        if m != n and m != 1 and n != 1:
            raise ValueError(f"[matmul] the batches of {shape_of(a)} @ {shape_of(b)} do not broadcast together")
        shape.append(n if m == 1 else m)
    return tuple(shape[::-1])


cdef Array in_batches(Array x, tuple batch):
    """x broadcast to a batch of matrices, with one batch axis."""
    cdef int64_t m = x.extent[x.ndim_ - 2], n = x.extent[x.ndim_ - 1], count = 1
    for k in batch:
        count *= <int64_t>k
    return reshape_to(broadcast_shape(x, batch + (m, n)), (count, m, n))


cdef Array terms_of(Array x, int64_t first, int64_t last):
    """x[..., first:last, :]."""
    cdef list spec = [(0, 1, x.extent[k], True) for k in range(x.ndim_)]
    spec[x.ndim_ - 2] = first, 1, last - first, True
    return take_window(x, spec)


cdef Array integer_product(Array a, Array b):
    """BLAS has no integers: multiply and sum. For bools, whether any term is true. No gradient."""
    from minigrad.engine.ops.arithmetic import add, multiply
    if a.ndim_ == 1:
        return squeeze(integer_product(expand_dims(a, 0), b), -2 if b.ndim_ > 1 else 0)
    if b.ndim_ == 1:
        return squeeze(integer_product(a, expand_dims(b, 1)), -1)
    cdef int code = max(a.code, b.code), wide = INT64 if code == BOOL else code
    cdef int64_t inner = a.extent[a.ndim_ - 1], first
    cdef Array left = expand_dims(cast(a, wide), -1), right = expand_dims(cast(b, wide), -3), terms, total = None
    # process as many terms of each sum at a time as keep the products small, or no larger than the result
    size = prod((*batch_shape(a, b), a.extent[a.ndim_ - 2], b.extent[b.ndim_ - 1]))
    block = max(1, TERMS // max(size, 1))
    for first in range(0, max(inner, 1), block):
        last = min(first + block, inner)
        terms = multiply(terms_of(left, first, last), terms_of(right, first, last))
        terms = sum_axes(terms, [terms.ndim_ - 2], False)
        total = terms if total is None else add(total, terms)
    return cast(total, code)


cdef Op linear_op = operation("linear", linear_backward, "Y = X Wᵀ + b", "dX = G W\ndW = Gᵀ X\ndb = Σ G over rows",
                              "W, X", "X, W, b", "", "Y")
cdef int linear_backward(Node node, Array g) except -1:
    cdef Array x = node.value(0), weight = node.value(1), rows
    if node.needs(2):
        node.send(2, sum_axes(g, list(range(g.ndim_ - 1)), False))
    if recording():
        if node.needs(1):
            count = elements(g, 0, g.ndim_ - 1)
            rows = reshape_to(g, (count, g.extent[g.ndim_ - 1]))
            node.send(1, product_of(matrix_transpose(rows), reshape_to(x, (count, x.extent[x.ndim_ - 1]))))
        if node.needs(0):
            node.send(0, matmul(g, weight))
        return 0
    rows = as_rows(dense(g))
    if node.needs(1):
        send_product(node, 1, exchange_last_axes(rows), as_rows(dense(x)))
    if node.needs(0):
        node.give(0, with_shape(product(rows, weight, None), g))
    return 0


cdef Array as_rows(Array x):
    """The contiguous x as a matrix of its last axis; not recorded."""
    cdef int64_t[2] extent, step
    if x.ndim_ == 2:
        return x
    extent[0], extent[1] = elements(x, 0, x.ndim_ - 1), x.extent[x.ndim_ - 1]
    step[0], step[1] = extent[1] * itemsize(x.code), itemsize(x.code)
    return view(x, 2, extent, step, x.data)


cdef Array with_shape(Array y, Array x):
    """The contiguous matrix y with the leading axes of x; not recorded."""
    cdef int64_t[MAX_NDIM] extent, step
    cdef int64_t count = itemsize(y.code)
    cdef int i
    if x.ndim_ == 2:
        return y
    for i in range(x.ndim_ - 1, -1, -1):
        extent[i] = y.extent[1] if i == x.ndim_ - 1 else x.extent[i]
        step[i] = count
        count *= extent[i]
    return view(y, x.ndim_, extent, step, y.data)


cpdef Array linear(x: TensorLike, weight: Tensor, bias: Tensor | None = None):
    """x weightᵀ + bias on the last axis: a fully connected layer in one product.

    Parameters
    ----------
    x : Tensor, shape (..., n)
    weight : Tensor, shape (m, n)
    bias : Tensor, shape (m,), optional

    Returns
    -------
    Tensor, shape (..., m)

    Raises
    ------
    ValueError
        If the sizes do not agree.
    TypeError
        If the tensors do not share one floating-point dtype.

    Examples
    --------
    >>> mg.linear(mg.tensor([1.0, 2.0]), mg.tensor([[3.0, 4.0]]), mg.tensor([0.5]))
    tensor([11.5])
    """
    cdef Call _call = begin(linear_op)
    cdef Array a = operand("linear", x), w = operand("linear", weight), b = optional("linear", bias), rows
    a, w = float_operand("linear", a), float_operand("linear", w)
    if w.ndim_ != 2 or a.ndim_ < 1 or a.extent[a.ndim_ - 1] != w.extent[1]:
        raise ValueError(f"[linear] expected x of shape (..., n) and weight of shape (m, n), got {shape_of(a)} and "
                         f"{shape_of(w)}")
    b = layer_bias("linear", b, a, w, w.extent[0])
    rows = as_rows(dense(a))
    cdef Array out = with_shape(product(rows, exchange_last_axes(w), None if b is None else dense(b)), a)
    track(linear_op, out, a, w, b)
    return out
