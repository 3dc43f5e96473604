"""Linear recurrences: h_t = a_t h_{t−1} + b_t along an axis."""
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.memory.array cimport Array, check_same_device, empty_as, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.ops.arguments cimport is_scalar, one_axis, optional, plain_axis, plain_scalar, scalar
from minigrad.engine.ops.arithmetic cimport match_floats, multiply
from minigrad.engine.ops.join cimport join_along
from minigrad.engine.ops.layout cimport broadcast_shape, cast, dense, expand_dims, reduction, sum_axes
from minigrad.engine.ops.slices cimport take_window, zeros
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track


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
    axis = plain_axis("linear_scan", axis)
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
