"""Recurrences along an axis: linear ones, h_t = a_t h_{t−1} + b_t, and the sums over paths of a CTC loss."""
from functools import partial

from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.ops.arguments cimport is_scalar, one_axis, optional, plain_scalar, scalar
from minigrad.engine.ops.arithmetic cimport match_floats, multiply
from minigrad.engine.ops.gather cimport take_along
from minigrad.engine.ops.join cimport join_along
from minigrad.engine.ops.layout cimport broadcast_shape, cast, dense, expand_dims, reduction, sum_axes
from minigrad.engine.ops.logic cimport where
from minigrad.engine.ops.slices cimport take_window, zeros
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track

from minigrad.engine.ops.functions import exp, log
from minigrad.engine.ops.join import concat, stack, unstack


cdef Op linear_scan_op = operation(
    "linear_scan", linear_scan_backward, "h_t = a_t h_{t−1} + b_t",
    "δ_t = g_t + a_{t+1} δ_{t+1}\nda_t = δ_t h_{t−1}\ndb_t = δ_t\ndh₀ = a_1 δ_1", "a h₀ h, a, a", "a, b, h₀",
    "Blelloch (1990)", "h")
cdef int linear_scan_backward(Node node, Array g) except -1:
    cdef Array a = node.value(0), initial, h, d, da = None, db = None, first = None
    cdef int k
    cdef bint reverse
    k, reverse, start = node.extra
    initial = node.value(2) if node.needs(0) else None
    h = node.output() if node.needs(0) else None
    if recording():
        d = linear_scan(shift(a, None, k, not reverse), g, None, k, not reverse)
        if node.needs(0):
            node.send(0, multiply(d, shift(h, initial, k, reverse)))
        if node.needs(1):
            node.send(1, d)
        if node.needs(2):
            node.send(2, sum_axes(multiply(end(a, k, reverse), end(d, k, reverse)), [k], False))
        return 0
    da, db = [empty_as(g, g.code) if node.needs(i) else None for i in range(2)]
    if node.needs(2):
        first = zeros(<tuple>start, g.code, g.buffer.device)
    plain, outer, n, inner = reduction(g, [k])
    if g.count:
        backend(g).linear_scan_backward(outer, n, inner, reverse, dense(a), None if h is None else dense(h),
                                        None if initial is None else dense(initial), plain, da, db, first)
    return node.send_all((da, db, first))


cdef Array part(Array x, int k, int64_t start, int64_t count):
    """The elements of x from start on along axis k."""
    spec = [(0, 1, x.extent[<int>i], True) for i in range(x.ndim_)]
    spec[k] = (start, 1, count, True)
    return take_window(x, spec)


cdef Array end(Array x, int k, bint last):
    """The first or last elements of x along axis k, with that axis."""
    return part(x, k, x.extent[k] - 1 if last else 0, 1) if x.extent[k] else part(x, k, 0, 0)


cdef Array shift(Array x, Array entering, int k, bint back):
    """x moved by one place along axis k, forwards or back; the elements that enter are 0 if none are given."""
    cdef int64_t n = x.extent[k]
    if n == 0:
        return x
    entering = zeros(shape_of(end(x, k, False)), x.code, x.buffer.device) if entering is None \
        else expand_dims(entering, k)
    return join_along([part(x, k, 1, n - 1), entering] if back else [entering, part(x, k, 0, n - 1)], k)


def linear_scan(a: TensorLike, b: TensorLike, initial: TensorLike | None = None, axis: int = 0,
                reverse: bool = False) -> Tensor:
    """The linear recurrence ``h_t = a_t h_{t−1} + b_t`` along an axis, all steps in one operation.

    Exponential moving averages, discounted sums and linear recurrent layers such as `minigrad.nn.MinGRU` are of this
    form. A step with a = 1 and b = 0 keeps the state, as the padding of a shorter sequence has to.

    Parameters
    ----------
    a, b : Tensor, shape (..., T, ...)
        Floats; their shapes broadcast to that of the result.
    initial : Tensor, optional
        The state before the first step; broadcasts to the shape of the result without `axis`. Without it the first
        state is b_1, whatever a_1 is.
    axis : int
        The axis of the steps.
    reverse : bool
        Run from the last step to the first: ``h_t = a_t h_{t+1} + b_t``.

    Returns
    -------
    Tensor
        Every state, of the common shape of a and b.

    Raises
    ------
    ValueError
        If the shapes do not broadcast.
    TypeError
        If `reverse` is not True or False.
    IndexError
        If `axis` is out of range.

    Notes
    -----
    The gradients are a scan in the other direction: with the gradient g_t of h_t::

        δ_t = g_t + a_{t+1} δ_{t+1}
        da_t = δ_t h_{t−1}
        db_t = δ_t

    On the CPU the steps of a column run one after another, the columns in parallel. On a GPU the steps run in parallel
    too: two steps compose to another one, (a₂ a₁, a₂ b₁ + b₂), in any grouping (Blelloch 1990, "Prefix Sums and Their
    Applications"; Martin and Cundy 2018, https://arxiv.org/abs/1709.04057). There the products of successive factors
    are computed in float64, and where one overflows or vanishes, so does its effect on a state other than 0.

    Examples
    --------
    >>> mg.linear_scan(mg.tensor(0.5), mg.tensor([4.0, 0.0, 0.0, 1.0]))
    tensor([4. , 2. , 1. , 1.5])
    >>> mg.linear_scan(mg.tensor(0.5), mg.tensor([0.0, 0.0, 8.0]), reverse=True)
    tensor([2., 4., 8.])
    """
    cdef Call _call = begin(linear_scan_op)
    if not isinstance(reverse, bool):
        raise TypeError(f"[linear_scan] expected reverse True or False, got {reverse!r}")
    start = plain_scalar("linear_scan", initial) if is_scalar(initial) else optional("linear_scan", initial)
    cdef Array x, y, first = None, out, plain
    x, y = match_floats("linear_scan", a, b)
    if start is not None:
        first = <Array>start if isinstance(start, Array) else scalar(start, x.code, x.buffer.device, "linear_scan")
        check_same_device("linear_scan", x, first)
        x, y, first = [cast(one, max(x.code, first.code)) for one in (x, y, first)]
    if x.ndim_ == 0:
        raise ValueError("[linear_scan] expected an axis of steps, got two numbers")
    cdef int k = one_axis("linear_scan", axis, x.ndim_)
    shape = shape_of(x)
    shape = shape[:k] + shape[k + 1:]
    if first is not None:
        try:
            first = broadcast_shape(first, shape)
        except ValueError:
            raise ValueError(f"[linear_scan] expected initial to broadcast to {shape}, got {shape_of(first)}") from None
    out = empty_as(x, x.code)
    plain, outer, n, inner = reduction(x, [k])
    if out.count:
        backend(x).linear_scan(outer, n, inner, reverse, plain, dense(y), None if first is None else dense(first), out)
    track(linear_scan_op, out, x, y, first, (k, reverse, shape))
    return out


# ── connectionist temporal classification: the states of a target are its labels, and blanks around each ──

def together(*ways: Tensor) -> Tensor:
    """ln Σ exp, −∞ with derivatives of 0 where every way is −∞."""
    each = stack(ways)
    top = each.detach().max(axis=0)
    top = where(top == -INFINITY, 0.0, top)
    total = exp(each - top).sum(axis=0)
    none = total == 0.0
    return where(none, -INFINITY, top + log(where(none, 1.0, total)))


def paths_composition(Array skip: Tensor, Array lengths: Tensor, Array last: Tensor, Array e: Tensor) -> Tensor:
    """The loss of each sample, composed of primitive operations."""
    batch, states = skip.shape
    outside = zeros((batch, 2), e.code, e.buffer.device) - INFINITY
    a = concat([zeros((batch, 1), e.code, e.buffer.device), *[outside[:, :1]] * (states - 1)], axis=1)
    for t, step in enumerate(unstack(e)):
        padded = concat([outside, a], axis=1)
        ways = a, padded[:, 1:states + 1], padded[:, :states] + skip
        a = where(expand_dims(lengths > t, 1), step + together(*ways), a)
    padded = concat([outside[:, :1], a], axis=1)
    at = expand_dims(last, 1)
    return -together(take_along(padded, at + 1, 1), take_along(padded, at, 1)).squeeze(1)


cdef Op ctc_op = operation(
    "ctc_loss", ctc_backward,
    "e_t(s) = the log-probability of state s in step t\n"
    "α₀(0) = 0, α₀(s) = −∞ elsewhere\n"
    "α_t(s) = e_t(s) + ln(exp α_{t−1}(s) + exp α_{t−1}(s−1) + exp α_{t−1}(s−2)), the last between unequal labels only\n"
    "loss = −ln(exp α_T(S) + exp α_T(S−1)) for the last state S",
    "β_T(S) = β_T(S−1) = 0, −∞ elsewhere\n"
    "β_{t−1}(s) = ln(exp(e_t(s) + β_t(s)) + exp(e_t(s+1) + β_t(s+1)) + exp(e_t(s+2) + β_t(s+2)))\n"
    "de_t(s) = −g exp(α_t(s) + β_t(s) + loss)", "e loss", "e", "Graves et al. (2006)", "loss")
cdef int ctc_backward(Node node, Array g) except -1:
    skip, lengths, last, alpha = node.extra
    cdef Array e = node.value(0), de, beta
    cdef int64_t[3] extent
    if recording():
        return composed_backward(node, partial(paths_composition, skip, lengths, last), [e], g)
    de = empty_as(e, e.code)
    extent[0], extent[1], extent[2] = e.extent[1], 2, e.extent[2]
    beta = empty(e.code, 3, extent, e.buffer.device)
    if e.count:
        backend(e).ctc_backward(dense(e), skip, lengths, last, alpha, node.output(), dense(g), beta, de)
    return node.send(0, de)


def paths_loss(Array e: Tensor, Array skip: Tensor, Array lengths: Tensor, Array last: Tensor) -> Tensor:
    """−ln of the probability of all paths through the states of each target, as `Backend.ctc` has them.

    e [T, N, S] and skip [N, S] are float64, the others int64 [N], from 0 to T and to S − 1: they are not checked.
    """
    cdef Call _call = begin(ctc_op)
    cdef int64_t[3] extent
    extent[0], extent[1], extent[2] = e.extent[0] + 1, e.extent[1], e.extent[2]
    cdef Array alpha = empty(e.code, 3, extent, e.buffer.device), loss = empty(e.code, 1, e.extent + 1, e.buffer.device)
    skip, lengths, last = dense(skip), dense(lengths), dense(last)
    if loss.count:
        backend(e).ctc(dense(e), skip, lengths, last, alpha, loss)
    track(ctc_op, loss, e, None, None, (skip, lengths, last, alpha))
    return loss
