"""Attention: for each query, the mean of the values, weighted by how well their keys match the query."""
from libc.stdint cimport int64_t

from math import inf, nan, prod, sqrt

import numpy as np

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.kernel_list cimport repeat
from minigrad.engine.memory.array cimport Array, alias, check_same_device, empty, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin, is_capturing, refuse_in_capture
from minigrad.engine.memory.dtype cimport BOOL, is_float, itemsize, matmul_precision
from minigrad.engine.memory.interop cimport from_object
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.ops.arguments cimport float_operand, number, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply
from minigrad.engine.ops.layout cimport broadcast_shape, cast, dense, matrix_transpose, reshape_to
from minigrad.engine.ops.logic cimport equal, logical_and, logical_not, not_equal, note_result, where
from minigrad.engine.ops.matmul cimport matmul
from minigrad.engine.ops.random cimport reserve
from minigrad.engine.ops.rounding cimport isfinite
from minigrad.engine.ops.slices cimport take_window, zeros
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording, set_recording
from minigrad.engine.tape.record cimport track
from minigrad.engine.ops.reduce import all as all_of, max as maximum_of
from minigrad.engine.ops.softmax import softmax

NAME = "scaled_dot_product_attention"


cdef Op attention_op = operation(
    "scaled_dot_product_attention", attention_backward, "S = scale Q Kᵀ + mask\nP = softmax of each row of S\nY = P V",
    "dV = Pᵀ G\ndS = P (G Vᵀ − Σ G Y over each row)\ndQ = scale dS K\ndK = scale dSᵀ Q", "Q K V Y, Q K V Y, Q K V",
    "Q, K, V", "Vaswani et al., 2017", "Y")
cdef int attention_backward(Node node, Array g) except -1:
    cdef Array q = node.value(0), k = node.value(1), v = node.value(2), y = node.kept
    statistics, mask, precision, scale, causal, dropout, drawn = node.extra
    if recording():
        return composed_backward(
            node, lambda q, k, v: composition(q, k, v, mask, scale, causal, dropout, drawn), [q, k, v], g)
    if g.count == 0 or k.extent[2] == 0:
        dq, dk, dv = [zeros(shape_of(<Array>x), g.code, g.buffer.device) if node.needs(i) else None
                      for i, x in enumerate((q, k, v))]
    else:
        dq, dk, dv = [empty_as(<Array>x, g.code) if node.needs(i) else None for i, x in enumerate((q, k, v))]
        arguments = (dense(q), *even_heads(k, v), mask, g if y is None else y, statistics, dense(g), dq, dk, dv)
        run_with_drawn((<object>backend(g)).attention_backward, precision, scale, causal, dropout, drawn, arguments)
    return node.send_all((dq, dk, dv))


def _with_drawn(primitive: Callable[..., None], precision: str, scale: float, causal: bool, dropout: float,
                drawn: list[int], arguments: tuple[Any, ...]) -> None:
    """Call a primitive with the random numbers that the forward pass has drawn."""
    seed, offset = drawn
    primitive(precision, scale, causal, dropout, seed, offset, *arguments)


cdef int run_with_drawn(object primitive, str precision, double scale, bint causal, double dropout, list drawn,
                        tuple arguments) except -1:
    """`_with_drawn`; with dropout, every run of a recorded step calls it again."""
    call = (primitive, precision, scale, causal, dropout, drawn, arguments)
    if dropout:
        repeat(_with_drawn, call)
    else:
        _with_drawn(*call)
    return 0


cdef Array composition(Array q, Array k, Array v, Array mask, double scale, bint causal, double dropout, list drawn):
    """The result, composed of primitive operations, for [N, H, ..]: with the whole matrix of weights."""
    batch, heads, queries, _ = shape_of(q)
    cdef int64_t keys = k.extent[2]
    cdef Array s, p, visible, ones, factors, kept, seen = seen_pairs(mask, causal, q, keys)
    k, v = of_each_head(k, heads), of_each_head(v, heads)
    s = matmul(q, matrix_transpose(k)) if seen is None else seen_scores(q, k, seen)
    s = multiply(s, scale)
    if mask is not None and mask.code != BOOL:
        s = add(s, mask)
    if seen is not None:
        s = where(seen, s, -inf)
    if keys:
        visible = not_equal(maximum_of(alias(s), -1, keepdims=True), -inf)      # the softmax of no key is 0
        p = softmax(where(visible, s, 0))
        p = where(visible if seen is None else logical_and(visible, seen), p, 0)
    else:
        p = s
    if dropout:
        ones = from_object(np.ones((batch * heads * queries, (keys + 3) // 4 * 4)), q.code, q.buffer.device, False)
        factors, kept = empty_as(ones, q.code), empty_as(ones, BOOL)
        if ones.count:
            refuse_in_capture("attention with dropout where the matrix of weights is needed")
            seed, offset = drawn
            backend(q).dropout(seed, offset, dropout, ones, factors, kept)
        factors = take_window(factors, [(0, 1, ones.extent[0], True), (0, 1, keys, True)])
        p = multiply(p, reshape_to(factors, shape_of(p)))
    return matmul(p, v) if seen is None else seen_product(p, v, seen)


# ── products over the pairs that see each other, each the derivative of the other ─────────────────

cdef Op seen_product_op = operation(
    "seen_product", seen_product_backward, "Y = A B, without the terms of pairs that a mask hides",
    "dA = G Bᵀ, where seen\ndB = Aᵀ G, without the terms of hidden pairs", "B, A", "A, B", "", "Y")
cdef Op seen_scores_op = operation(
    "seen_scores", seen_scores_backward, "S = A Bᵀ, or 0 where a mask hides the pair",
    "dA = G B, without the terms of hidden pairs\ndB = Gᵀ A, likewise", "B, A", "A, B", "", "S")
cdef int seen_product_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1), seen = node.extra
    if node.needs(0):
        node.send(0, seen_scores(g, b, seen))
    return node.send(1, seen_product(matrix_transpose(a), g, matrix_transpose(seen))) if node.needs(1) else 0


cdef int seen_scores_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), b = node.value(1), seen = node.extra
    if node.needs(0):
        node.send(0, seen_product(g, b, seen))
    return node.send(1, seen_product(matrix_transpose(g), a, matrix_transpose(seen))) if node.needs(1) else 0


cdef Array seen_product(Array a, Array b, Array seen):
    """a @ b, in which a hidden pair has no part: in a plain product, 0 times NaN is NaN.

    Rows of b that are not finite are left out; an element that sees such a number becomes NaN.
    """
    cdef Array out, finite
    cdef bint before = set_recording(False)
    try:
        finite, out = isfinite(b), where(seen, a, 0)
        if not is_capturing() and all_of(finite).item():
            out = matmul(out, b)
        else:
            count = matmul(cast(broadcast_shape(seen, shape_of(a)), a.code), cast(logical_not(finite), a.code))
            out = where(equal(count, 0), matmul(out, where(finite, b, 0)), nan)
    finally:
        set_recording(before)
    track(seen_product_op, out, a, b, None, seen)
    return out


cdef Array seen_scores(Array a, Array b, Array seen):
    """a @ b.mT, with 0 for hidden pairs."""
    cdef Array out
    cdef bint before = set_recording(False)
    try:
        out = where(seen, matmul(a, matrix_transpose(b)), 0)
    finally:
        set_recording(before)
    track(seen_scores_op, out, a, b, None, seen)
    return out


cdef Array seen_pairs(Array mask, bint causal, Array q, int64_t keys):
    """Which keys each query sees, as bools that broadcast to (..., L, S); None if all do."""
    cdef Array seen = None
    if mask is not None:
        seen = mask if mask.code == BOOL else not_equal(mask, -inf)
    if causal:
        tri = from_object(np.tri(q.extent[q.ndim_ - 2], keys, dtype=bool), BOOL, q.buffer.device, False)
        seen = tri if seen is None else logical_and(seen, tri)
    return seen


def weigh(weights: Tensor, value: Tensor, attn_mask: Tensor | None, is_causal: bool) -> Tensor:
    """``weights @ value``, for weights that `scaled_dot_product_attention` has computed with these masks."""
    cdef Call _call = begin(seen_product_op)
    cdef Array seen = seen_pairs(attn_mask, is_causal, weights, (<Array>value).extent[(<Array>value).ndim_ - 2])
    return matmul(weights, value) if seen is None else seen_product(weights, value, seen)


cdef Array of_each_head(Array x, int64_t heads):
    """Keys or values [N, G, ..] repeated for the heads that share them."""
    batch, sources, length, width = shape_of(x)
    if sources == heads:
        return x
    x = broadcast_shape(reshape_to(x, (batch, sources, 1, length, width)),
                        (batch, sources, heads // sources, length, width))
    return reshape_to(x, (batch, heads, length, width))


cdef int64_t head_rows(Array x) noexcept:
    """Return how many rows lie between starts of heads of x[N, G, S, E]; -1 if that varies or a head is strided."""
    cdef int64_t width = itemsize(x.code), row = x.extent[3] * width, step = x.step[1 if x.extent[1] > 1 else 0]
    if x.packed:
        return x.extent[2]
    if ((x.extent[3] > 1 and x.step[3] != width) or (x.extent[2] > 1 and x.step[2] != row) or step % row or
            (x.extent[0] > 1 and x.extent[1] > 1 and x.step[0] != x.extent[1] * x.step[1])):
        return -1
    return step // row


cdef tuple even_heads(Array k, Array v):
    """Return keys and values [N, G, ..] in a layout that the kernels take, copied where necessary."""
    cdef int64_t rows = head_rows(k)
    return (k, v) if rows >= 0 and rows == head_rows(v) else (dense(k), dense(v))


# ── the operation ─────────────────────────────────────────────────────────────────────────────────

cdef tuple check_heads(Array q, Array k, Array v, bint grouped):
    """The leading axes of the result, and of k and v, which have fewer heads if they are grouped."""
    for name, x in (("query", q), ("key", k), ("value", v)):
        if (<Array>x).ndim_ < 2 + grouped:
            axes = "(..., heads, length, width)" if grouped else "(..., length, width)"
            raise ValueError(f"[{NAME}] expected {name} of shape {axes}, got {shape_of(<Array>x)}")
        if (<Array>x).code != q.code:
            raise TypeError(f"[{NAME}] expected query, key and value of one dtype, got {q.dtype}, {k.dtype} and "
                            f"{v.dtype}")
        check_same_device(NAME, q, <Array>x)
    if q.extent[q.ndim_ - 1] != k.extent[k.ndim_ - 1] or k.extent[k.ndim_ - 2] != v.extent[v.ndim_ - 2]:
        raise ValueError(f"[{NAME}] expected query (..., L, E), key (..., S, E) and value (..., S, V), got "
                         f"{shape_of(q)}, {shape_of(k)} and {shape_of(v)}")
    shapes = [shape_of(<Array>x)[:-2 - grouped] for x in (q, k, v)]
    try:
        lead = np.broadcast_shapes(*shapes)
    except ValueError:
        hint = "" if grouped else "; for fewer heads of key and value: enable_gqa=True"
        raise ValueError(f"[{NAME}] the leading axes of query {shape_of(q)}, key {shape_of(k)} and value "
                         f"{shape_of(v)} do not broadcast{hint}") from None
    if not grouped:
        return lead, lead
    heads, sources = q.extent[q.ndim_ - 3], k.extent[k.ndim_ - 3]
    if v.extent[v.ndim_ - 3] != sources or (heads % sources if sources else heads):
        raise ValueError(f"[{NAME}] expected heads of query that are a multiple of the heads of key and value, got "
                         f"{heads}, {sources} and {v.extent[v.ndim_ - 3]}")
    return lead + (heads,), lead + (sources,)


cdef tuple four(tuple lead):
    """Leading axes as (N, H)."""
    return (1,) * (2 - len(lead)) + lead if len(lead) <= 2 else (prod(lead[:-1]), lead[-1])


cdef Array check_mask(Array mask, Array q, tuple shape):
    """A mask of the shape of the weights as [N, H, L, S]; a row of it is contiguous, or one element for all keys."""
    if mask.code != BOOL and not is_float(mask.code):
        raise TypeError(f"[{NAME}] expected attn_mask of bool or floats, got {mask.dtype}")
    check_same_device(NAME, q, mask)
    if mask.code != BOOL:
        mask = cast(mask, q.code)
    try:
        if not mask.needs_grad:
            mask = note_result("copy", dense(mask), mask)       # not recorded
        mask = broadcast_shape(mask, shape if len(shape) > 4 else (1,) * (4 - len(shape)) + shape)
    except ValueError:
        raise ValueError(f"[{NAME}] expected attn_mask that broadcasts to {shape}, got {shape_of(mask)}") from None
    return mask if mask.ndim_ == 4 else reshape_to(mask, four(shape[:-2]) + shape[-2:])


def scaled_dot_product_attention(query: TensorLike, key: TensorLike, value: TensorLike,
                                 attn_mask: TensorLike | None = None, dropout_p: float = 0.0, is_causal: bool = False,
                                 *, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """The attention of queries to keys and values: ``softmax(scale * query @ key.mT + attn_mask) @ value``.

    The matrix of weights, L by S, is never stored: memory grows with L + S.

    Parameters
    ----------
    query : Tensor, shape (..., L, E)
    key : Tensor, shape (..., S, E)
    value : Tensor, shape (..., S, V)
        Usually (N, heads, length, width). The leading axes broadcast.
    attn_mask : Tensor, optional
        Broadcasts to (..., L, S): of bool, true where a query sees a key; or floats, which are added to the scores
        before softmax, and of which ``-inf`` hides a key as false does. The result of a query that sees no key is 0. A
        mask that requires grad gets its gradient, at the price of storing the matrix of weights.
    dropout_p : float
        The probability that a weight is set to 0, while the others are divided by ``1 - dropout_p``. There is no
        `training` argument: pass 0 in evaluation.
    is_causal : bool
        Query i sees the keys 0 to i only; with an `attn_mask`, the keys among them that it shows.
    scale : float, optional
        ``1 / sqrt(E)`` by default.
    enable_gqa : bool
        Grouped-query attention: query (..., H, L, E) has a multiple of the heads of key and value (..., G, S, E), and
        H / G neighbouring heads of the query share one of theirs.

    Returns
    -------
    Tensor, shape (..., L, V)

    Raises
    ------
    TypeError
        If an argument is not of a floating dtype, or query, key and value differ in dtype.
    ValueError
        If shapes do not agree, or if `dropout_p` is not in [0, 1].

    Notes
    -----
    What a mask hides has no influence, NaN and infinity included: a hidden key or value on no result and no gradient of
    the query, nor the query and its cotangent on the gradients of that key and value. A NaN that is seen does show.

    References
    ----------
    A. Vaswani et al., 2017, "Attention is all you need", https://arxiv.org/abs/1706.03762. The computation by blocks:
    T. Dao et al., 2022, "FlashAttention", https://arxiv.org/abs/2205.14135.

    Examples
    --------
    >>> q = k = mg.tensor([[0.0], [10.0]])
    >>> mg.nn.functional.scaled_dot_product_attention(q, k, mg.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """
    cdef Call _call = begin(attention_op)
    dropout_p = number(NAME, "dropout_p", dropout_p, 0, 1)
    if scale is not None:
        scale = number(NAME, "scale", scale)
    attn_mask = optional(NAME, attn_mask)
    cdef Array q = float_operand(NAME, query), k = float_operand(NAME, key), v = float_operand(NAME, value)
    cdef Array mask = None if attn_mask is None else operand(NAME, attn_mask), y, statistics
    cdef bint causal = is_causal, grouped = enable_gqa
    lead, sources = check_heads(q, k, v, grouped)
    shape = lead + (q.extent[q.ndim_ - 2], v.extent[v.ndim_ - 1])
    cdef int64_t queries = q.extent[q.ndim_ - 2], keys = k.extent[k.ndim_ - 2], width = q.extent[q.ndim_ - 1]
    cdef int64_t[4] extent
    if len(shape) > MAX_NDIM:
        raise ValueError(f"[{NAME}] expected at most {MAX_NDIM} axes, got {len(shape)}")
    if scale is None:
        scale = 1 / sqrt(width) if width else 1.0
    if mask is not None:
        mask = check_mask(mask, q, lead + (queries, keys))
    q = as_four(q, lead)
    k = as_four(k, sources)
    v = as_four(v, sources)
    if dropout_p == 1:
        v, dropout_p = multiply(v, 0), 0.0
    drawn = reserve(q.extent[0] * q.extent[1] * queries * ((keys + 3) // 4)) if dropout_p else [0, 0]
    if mask is not None and mask.needs_grad and recording():
        y = composition(q, k, v, mask, scale, causal, dropout_p, drawn)
    else:
        extent[0], extent[1], extent[2], extent[3] = q.extent[0], q.extent[1], queries, v.extent[3]
        y = empty(q.code, 4, extent, q.buffer.device)
        extent[3] = 2
        statistics = empty(q.code, 4, extent, q.buffer.device)
        if y.count and keys:
            arguments = (dense(q), *even_heads(k, v), mask, y, statistics)
            run_with_drawn((<object>backend(q)).attention, matmul_precision, scale, causal, dropout_p, drawn,
                           arguments)
        else:
            backend(q).fill(y, 0)
        track(attention_op, y, q, k, v, (statistics, mask, matmul_precision, scale, causal, dropout_p, drawn))
    return y if len(lead) == 2 else reshape_to(y, shape)


cdef Array as_four(Array x, tuple lead):
    """x with the leading axes given, as [N, H, ..]."""
    cdef tuple last = shape_of(x)[-2:]
    if len(lead) == 2 and shape_of(x) == lead + last:
        return x
    return reshape_to(broadcast_shape(x, lead + last), four(lead) + last)
