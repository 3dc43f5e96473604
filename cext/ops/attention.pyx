"""Attention: for each query, the mean of the values, weighted by how well their keys match the query."""
from libc.stdint cimport int64_t

from math import inf, prod, sqrt

import numpy as np

from minigrad.engine.array cimport MAX_NDIM, Array, alias, check_same_device, empty, empty_as, shape_of
from minigrad.engine.backend cimport backend
from minigrad.engine.backward cimport composed_backward
from minigrad.engine.calls cimport Call, begin, refuse_in_capture
from minigrad.engine.dtype cimport BOOL, is_float
from minigrad.engine.interop cimport from_object
from minigrad.engine.ops.arguments cimport float_operand, number, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply
from minigrad.engine.ops.layout cimport broadcast_shape, cast, dense, matrix_transpose, reshape_to, sliced, zeros
from minigrad.engine.ops.logic cimport not_equal, where
from minigrad.engine.ops.matmul cimport matmul
from minigrad.engine.ops.random cimport reserve
from minigrad.engine.recording cimport repeat
from minigrad.engine.tape cimport Node, Op, operation, recording, track
from minigrad.engine.ops.reduce import max as maximum_of
from minigrad.engine.ops.softmax import softmax

NAME = "scaled_dot_product_attention"


cdef Op attention_op = operation(
    "scaled_dot_product_attention", attention_backward, "S = scale Q Kᵀ + mask\nP = softmax of each row of S\nY = P V",
    "dV = Pᵀ G\ndS = P (G Vᵀ − Σ G Y over each row)\ndQ = scale dS K\ndK = scale dSᵀ Q", "Q K V Y, Q K V Y, Q K V",
    "Q, K, V", "Vaswani et al., 2017", "Y")


cdef int attention_backward(Node node, Array g) except -1:
    cdef Array q = node.value(0), k = node.value(1), v = node.value(2), y = node.kept
    statistics, mask, scale, causal, dropout, drawn = node.extra
    if recording():
        return composed_backward(
            node, lambda q, k, v: composition(q, k, v, mask, scale, causal, dropout, drawn), [q, k, v], g)
    if g.count == 0 or k.extent[2] == 0:
        dq, dk, dv = [zeros(shape_of(<Array>x), g.code, g.buffer.device) if node.needs(i) else None
                      for i, x in enumerate((q, k, v))]
    else:
        dq, dk, dv = [empty_as(<Array>x, g.code) if node.needs(i) else None for i, x in enumerate((q, k, v))]
        arguments = (dense(q), dense(k), dense(v), mask, g if y is None else y, statistics, dense(g), dq, dk, dv)
        run_with_drawn((<object>backend(g)).attention_backward, scale, causal, dropout, drawn, arguments)
    for i, d in enumerate((dq, dk, dv)):
        if d is not None:
            node.send(i, <Array>d)
    return 0


def _with_drawn(primitive: Callable[..., None], scale: float, causal: bool, dropout: float, drawn: list[int],
                arguments: tuple[Any, ...]) -> None:
    """Call a primitive with the random numbers that the forward pass has drawn."""
    seed, offset = drawn
    primitive(scale, causal, dropout, seed, offset, *arguments)


cdef int run_with_drawn(object primitive, double scale, bint causal, double dropout, list drawn,
                        tuple arguments) except -1:
    """`_with_drawn`; with dropout, every run of a recorded step calls it again."""
    call = (primitive, scale, causal, dropout, drawn, arguments)
    if dropout:
        repeat(_with_drawn, call)
    else:
        _with_drawn(*call)
    return 0


cdef Array composition(Array q, Array k, Array v, Array mask, double scale, bint causal, double dropout, list drawn):
    """The result, composed of primitive operations, for [N, H, ..]: with the whole matrix of weights."""
    batch, heads, queries, width = shape_of(q)
    _, sources, keys, values = shape_of(v)
    cdef int64_t group = heads // sources if sources else 1
    cdef Array s, p, seen, ones, factors, kept
    s = matmul(reshape_to(q, (batch, sources, group, queries, width)),
               matrix_transpose(reshape_to(k, (batch, sources, 1, keys, width))))
    s = multiply(reshape_to(s, (batch, heads, queries, keys)), scale)
    if mask is not None:
        s = where(mask, s, -inf) if mask.code == BOOL else add(s, mask)
    if causal:
        s = where(from_object(np.tri(queries, keys, dtype=bool), BOOL, q.buffer.device, False), s, -inf)
    if keys:
        seen = not_equal(maximum_of(alias(s), -1, keepdims=True), -inf)      # the softmax of no key is 0
        p = where(seen, softmax(where(seen, s, 0)), 0)
    else:
        p = s
    if dropout:
        ones = from_object(np.ones((batch * heads * queries, (keys + 3) // 4 * 4)), q.code, q.buffer.device, False)
        factors, kept = empty_as(ones, q.code), empty_as(ones, BOOL)
        if ones.count:
            refuse_in_capture("attention with dropout where the matrix of weights is needed")
            seed, offset = drawn
            backend(q).dropout(seed, offset, dropout, ones, factors, kept)
        factors = sliced(factors, [(0, 1, ones.extent[0], True), (0, 1, keys, True)])
        p = multiply(p, reshape_to(factors, shape_of(p)))
    p = reshape_to(p, (batch, sources, group, queries, keys))
    return reshape_to(matmul(p, reshape_to(v, (batch, sources, 1, keys, values))), (batch, heads, queries, values))


cdef tuple checked_heads(Array q, Array k, Array v, bint grouped):
    """The leading axes of the result and of k and v, which are those of q, or with fewer heads if they are grouped."""
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


cdef Array checked_mask(Array mask, Array q, tuple shape):
    """A mask of the shape of the weights as [N, H, L, S]; a row of it is contiguous, or one element for all keys."""
    if mask.code != BOOL and not is_float(mask.code):
        raise TypeError(f"[{NAME}] expected attn_mask of bool or floats, got {mask.dtype}")
    check_same_device(NAME, q, mask)
    if mask.code != BOOL:
        mask = cast(mask, q.code)
    try:
        if not mask.needs_grad:
            mask = dense(mask)      # not recorded
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
        Broadcasts to (..., L, S): of bool, true where a query sees a key; or floats, which are added to the weights
        before softmax. The result of a query that sees no key is 0. A mask that requires grad gets its gradient, at the
        price of storing the matrix of weights.
    dropout_p : float
        The probability that a weight is set to 0, while the others are divided by ``1 - dropout_p``. There is no
        `training` argument: pass 0 in evaluation.
    is_causal : bool
        Query i sees the keys 0 to i only. Excludes `attn_mask`.
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
        If shapes do not agree, if `attn_mask` and `is_causal` are both given, or if `dropout_p` is not in [0, 1].

    References
    ----------
    A. Vaswani et al., 2017, "Attention is all you need", https://arxiv.org/abs/1706.03762. The computation by blocks:
    T. Dao et al., 2022, "FlashAttention", https://arxiv.org/abs/2205.14135.

    Examples
    --------
    >>> import minigrad as mg
    >>> q = k = mg.tensor([[0.0], [10.0]])
    >>> mg.nn.functional.scaled_dot_product_attention(q, k, mg.tensor([[1.0], [3.0]])).tolist()
    [[2.0], [3.0]]
    """
    if attn_mask is not None and is_causal:
        raise ValueError(f"[{NAME}] expected attn_mask or is_causal, got both: add the causal part to attn_mask")
    return attend(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def attend(query: TensorLike, key: TensorLike, value: TensorLike, attn_mask: TensorLike | None, dropout_p: float,
           is_causal: bool, scale: float | None = None, enable_gqa: bool = False) -> Tensor:
    """`scaled_dot_product_attention`, where a query sees the keys that both `attn_mask` and `is_causal` allow."""
    cdef Call _call = begin(attention_op)
    dropout_p = number(NAME, "dropout_p", dropout_p, 0, 1)
    if scale is not None:
        scale = number(NAME, "scale", scale)
    attn_mask = optional(NAME, attn_mask)
    cdef Array q = float_operand(NAME, query), k = float_operand(NAME, key), v = float_operand(NAME, value)
    cdef Array mask = None if attn_mask is None else operand(NAME, attn_mask), y, statistics
    cdef bint causal = is_causal, grouped = enable_gqa
    lead, sources = checked_heads(q, k, v, grouped)
    shape = lead + (q.extent[q.ndim_ - 2], v.extent[v.ndim_ - 1])
    cdef int64_t queries = q.extent[q.ndim_ - 2], keys = k.extent[k.ndim_ - 2], width = q.extent[q.ndim_ - 1]
    cdef int64_t[4] extent
    if len(shape) > MAX_NDIM:
        raise ValueError(f"[{NAME}] expected at most {MAX_NDIM} axes, got {len(shape)}")
    if scale is None:
        scale = 1 / sqrt(width) if width else 1.0
    if mask is not None:
        mask = checked_mask(mask, q, lead + (queries, keys))
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
            arguments = (dense(q), dense(k), dense(v), mask, y, statistics)
            run_with_drawn((<object>backend(q)).attention, scale, causal, dropout_p, drawn, arguments)
        else:
            backend(q).fill(y, 0)
        track(attention_op, y, q, k, v, (statistics, mask, scale, causal, dropout_p, drawn))
    return y if len(lead) == 2 else reshape_to(y, shape)


cdef Array as_four(Array x, tuple lead):
    """x with the leading axes given, as [N, H, ..]."""
    cdef tuple last = shape_of(x)[-2:]
    if len(lead) == 2 and shape_of(x) == lead + last:
        return x
    return reshape_to(broadcast_shape(x, lead + last), four(lead) + last)
