"""Softmax, its logarithm, and the classification losses of logits and of log-probabilities."""
from libc.float cimport DBL_MAX, FLT_MAX
from libc.math cimport INFINITY, NAN, isnan
from libc.stdint cimport int64_t

from minigrad.engine.devices.backend cimport backend
from minigrad.engine.devices.kernel_list cimport repeat
from minigrad.engine.memory.array cimport Array, alias, check_same_device, empty, empty_as, same_shape, shape_of
from minigrad.engine.memory.calls cimport Call, begin
from minigrad.engine.memory.dtype cimport BOOL, FLOAT32, INT64, is_float
from minigrad.engine.ops.arguments cimport float_operand, integer, number, one_axis, operand, optional
from minigrad.engine.ops.arithmetic cimport add, multiply, negative, subtract
from minigrad.engine.ops.functions cimport exp
from minigrad.engine.ops.gather cimport beside, take_rows, take_along
from minigrad.engine.ops.layout cimport (
    broadcast_shape, cast, dense, expand_dims, permute, permute_raw, reshape_to, squeeze, sum_axes,
)
from minigrad.engine.ops.logic cimport equal, logical_and, not_equal, where
from minigrad.engine.ops.reduce cimport mean_axes
from minigrad.engine.ops.slices cimport take_window
from minigrad.engine.tape.backward cimport composed_backward
from minigrad.engine.tape.node cimport Node, Op, operation, recording
from minigrad.engine.tape.record cimport track
from minigrad.engine.ops.reduce import logsumexp
from minigrad.engine.tape.node import GradientError


cdef Op softmax_op = operation("softmax", softmax_backward, "yᵢ = exp xᵢ / Σ exp x along an axis", "dx = y (g − Σ g y)",
                               "y")
cdef int softmax_backward(Node node, Array g) except -1:
    axis = node.extra
    cdef Array y = node.output()
    if not recording():
        return node.send(0, rows_backward(False, y, g, axis))
    return node.send(0, multiply(y, subtract(g, sum_axes(multiply(g, y), [axis], True))))


cdef Op log_softmax_op = operation("log_softmax", log_softmax_backward, "y = x − ln Σ exp x along an axis",
                                   "dx = g − exp(y) Σ g", "y")
cdef int log_softmax_backward(Node node, Array g) except -1:
    axis = node.extra
    cdef Array y = node.output()
    if not recording():
        return node.send(0, rows_backward(True, y, g, axis))
    return node.send(0, subtract(g, multiply(exp(y), sum_axes(g, [axis], True))))


cdef Array rows_last(Array x, int axis):
    """x with an axis brought to the end, contiguous; not recorded."""
    if axis == x.ndim_ - 1:
        return dense(x)
    return dense(permute_raw(x, [k for k in range(x.ndim_) if k != axis] + [axis]))


cdef Array rows_back(Array y, int axis):
    """The inverse of `rows_last`, as a view."""
    if axis == y.ndim_ - 1:
        return y
    cdef list order = list(range(y.ndim_ - 1))
    order.insert(axis, y.ndim_ - 1)
    return permute_raw(y, order)


cdef Array rows_backward(bint log, Array y, Array g, int axis):
    cdef int64_t width = y.extent[axis]
    cdef Array plain = rows_last(y, axis), cotangent = rows_last(g, axis)
    cdef Array dx = empty_as(plain, y.code)
    if y.count:
        backend(y).softmax_backward(y.count // width, width, log, plain, cotangent, dx)
    return rows_back(dx, axis)


cdef Array rows_forward(str name, bint log, object x, object axis):
    cdef Call _call = begin(log_softmax_op if log else softmax_op)
    cdef Array a = float_operand(name, x), plain, out
    cdef int k = one_axis(name, axis, a.ndim_)
    plain = rows_last(a, k)
    out = empty_as(plain, a.code)
    if a.count:
        backend(a).softmax(a.count // a.extent[k], a.extent[k], log, plain, out)
    out = rows_back(out, k)
    track(log_softmax_op if log else softmax_op, out, a, None, None, k)
    return out


def _check_probabilities(Array labels: Tensor) -> None:
    if isnan(labels.min().item()):
        raise ValueError("[cross_entropy] expected probabilities, got NaN among them")


# ── cross_entropy (the formula with weights and smoothing is in primitives/softmax.pxi) ───────────────────
#   loss = logsumexp z - z_t,  dz = g (softmax z - onehot t)

cdef Array cross_entropy_composition(Array z, Array labels, Array weight, int64_t ignore, double smoothing):
    """The loss of each row, composed of primitive operations."""
    cdef Array kept = cast(equal(labels, ignore), BOOL), safe = where(kept, 0, labels)
    z = where(expand_dims(kept, 1), 0, z)       # no derivative sees the values of an ignored row
    cdef Array excess = subtract(logsumexp(z, axis=1, keepdims=True), z)
    cdef Array of_label = squeeze(take_along(excess, expand_dims(safe, 1), 1), 1), loss
    if weight is not None:
        excess = multiply(excess, weight)
        weight_rows = broadcast_shape(reshape_to(weight, (1, weight.count)), shape_of(z))
        of_label = multiply(of_label, squeeze(take_along(weight_rows, expand_dims(safe, 1), 1), 1))
    loss = of_label
    if smoothing:
        loss = add(multiply(of_label, 1 - smoothing), multiply(sum_axes(excess, [1], False), smoothing / z.extent[1]))
    return where(kept, 0, loss)


cdef Op cross_entropy_op = operation("cross_entropy", cross_entropy_backward,
                                     "loss = w_t (ln Σ exp z − z_t) for the label t of each row, without smoothing",
                                     "dz = g w_t (softmax z − onehot t)", "z", "z", "", "loss")
cdef int cross_entropy_backward(Node node, Array g) except -1:
    labels, lse, weight, ignore, smoothing = node.extra
    cdef Array z = node.value(0), dz
    if recording():
        return composed_backward(
            node, lambda a: cross_entropy_composition(a, labels, weight, ignore, smoothing), [z], g)
    dz = empty_as(z, z.code)
    if z.count:
        # The gradient of a mean or a sum is one number for all rows: no need to write it out.
        g = dense(g if g.count == 0 or g.step[0] else first_of(g))
        backend(z).cross_entropy_backward(z.extent[0], z.extent[1], dense(z), labels, ignore, weight, smoothing, lse, g,
                                          dz)
    return node.send(0, dz)


cdef Array first_of(Array g):
    return take_window(g, [(0, 1, 1, True)])


def cross_entropy(input: TensorLike, target: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
                  reduction: str = "mean", label_smoothing: float = 0.0) -> Tensor:
    """The cross-entropy of logits against class labels, ``logsumexp(z) - z[label]``, or against probabilities.

    Parameters
    ----------
    input : Tensor, shape (N, C, ...) or (C,)
        Logits z, with the classes along axis 1 (PyTorch's layout).
    target : Tensor
        Integer labels from 0 to C - 1, of shape (N, ...) or (): one for each row of logits. Or floats q of the shape of
        the logits, the probabilities of the classes: then a row's loss is ``-sum(q log softmax(z))``, whatever the sum
        of q, and q gets a gradient too.
    weight : Tensor, shape (C,), optional
        A weight w for each class. Gets no gradient.
    ignore_index : int
        Rows with this label do not count.
    reduction : {"mean", "sum", "none"}
        The mean divides by the sum of w[label] over the rows that count; for probabilities by the number of rows.
    label_smoothing : float
        The share, from 0 to 1, of the target that is spread evenly over all classes
        (Szegedy et al., 2016, "Rethinking the Inception Architecture").

    Returns
    -------
    Tensor
        A scalar, or one loss for each row, of shape (N, ...) or (), for "none".

    Raises
    ------
    TypeError
        If `target` is neither integer labels nor probabilities of the shape of the logits.
    IndexError
        If a label is not in [0, C - 1]; on a GPU, at the next transfer to the CPU or `mg.cuda.synchronize`.
    ValueError
        If the shapes do not agree, if an option is out of range, if `ignore_index` is given with probabilities, or if
        these are NaN (checked on the CPU only, since a check on a GPU would have to wait).
    GradientError
        If `weight` requires grad.

    Examples
    --------
    >>> mg.cross_entropy(mg.tensor([[0.0, 0.0]]), mg.tensor([1]))
    tensor(0.6931472)
    """
    cdef Call _call = begin(cross_entropy_op)
    cdef int64_t rows, width, ignore = integer("cross_entropy", "ignore_index", ignore_index)
    label_smoothing = number("cross_entropy", "label_smoothing", label_smoothing, 0, 1)
    weight = optional("cross_entropy", weight)
    cdef Array z = operand("cross_entropy", input), labels = operand("cross_entropy", target), w, loss, lse
    z = float_operand("cross_entropy", z)
    labels = beside(z, target, labels)
    cdef int axis = 1 if z.ndim_ > 1 else 0     # the classes are along this axis
    given = is_float(labels.code) and same_shape(labels, z) and z.ndim_ > 0
    shape = shape_of(z)[:axis] + shape_of(z)[axis + 1:]
    if given:
        check_options("cross_entropy", z, labels, reduction)
        if ignore >= 0:
            raise ValueError(f"[cross_entropy] expected labels with ignore_index, got probabilities and {ignore}")
        if labels.count and labels.buffer.device == 0:
            repeat(_check_probabilities, (alias(labels),))
    else:
        check_class_labels("cross_entropy", True, z, labels, axis, reduction)
    w = class_weight("cross_entropy", weight, z, axis)
    width = z.extent[axis]
    rows = labels.count if not given else z.count // width if width else 0
    # move the classes to the end, and merge all other axes into one of rows
    z = class_rows(z, axis, rows, width)
    if given:
        loss = probable(z, class_rows(cast(labels, z.code), axis, rows, width), w, label_smoothing)
        return reduce_losses(loss, reduction, 1.0 / rows if rows else NAN, shape)
    labels, inverse = row_labels("cross_entropy", labels, width, ignore, w, z.code, reduction)
    loss, lse = empty(z.code, 1, &rows, z.buffer.device), empty(z.code, 1, &rows, z.buffer.device)
    if rows:
        backend(z).cross_entropy(rows, width, dense(z), labels, ignore, w, label_smoothing, loss, lse)
    track(cross_entropy_op, loss, z, None, None, (labels, lse, w, ignore, label_smoothing))
    return reduce_losses(loss, reduction, inverse, shape)


cdef Array class_rows(Array x, int axis, int64_t rows, int64_t width):
    """x as [rows, width], with the classes last; x itself if it already is."""
    if x.ndim_ == 2 and axis == 1:
        return x
    return reshape_to(permute(x, [k for k in range(x.ndim_) if k != axis] + [axis]), (rows, width))


cdef Array probable(Array z, Array q, Array weight, double smoothing):
    """The loss of each row against probabilities: -sum w ((1 - s) q + s/width) log softmax z."""
    if smoothing:
        q = add(multiply(q, 1 - smoothing), smoothing / z.extent[1])
    if weight is not None:
        q = multiply(q, weight)
    # A class of probability 0 costs nothing, also where its logit is -inf: there, 0 * -inf would be NaN.
    cdef Array logs = log_softmax(z), free = logical_and(equal(q, 0), equal(logs, -INFINITY))
    cdef double most = FLT_MAX if z.code == FLOAT32 else DBL_MAX
    return negative(sum_axes(multiply(q, where(free, -most, logs)), [1], False))


cdef Array reduce_losses(Array loss, str reduction, object inverse, tuple shape):
    """The losses of the rows, reduced; `inverse` is the factor that turns their sum into a mean."""
    if reduction == "none":
        return loss if len(shape) == 1 else reshape_to(loss, shape)
    return sum_axes(loss, [0], False) if reduction == "sum" else mean_axes(loss, [0], False, inverse)


cdef int check_options(str op, Array z, Array target, object reduction) except -1:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"[{op}] expected reduction 'mean', 'sum' or 'none', got {reduction!r}")
    return check_same_device(op, z, target)


cdef int check_class_labels(str op, bint probabilities, Array z, Array labels, int axis, object reduction) except -1:
    """Check integer labels, one for each row of z; with `probabilities`, errors mention that those are accepted too."""
    if labels.code == BOOL or is_float(labels.code):
        instead = f", or probabilities of shape {shape_of(z)}" if probabilities else ""
        raise TypeError(f"[{op}] expected integer labels{instead}, got {labels.dtype} of shape {shape_of(labels)}")
    if z.ndim_ == 0 or shape_of(labels) != shape_of(z)[:axis] + shape_of(z)[axis + 1:]:
        raise ValueError(f"[{op}] expected classes along axis 1, (N, C, ...), and labels (N, ...), got {shape_of(z)} "
                         f"and {shape_of(labels)}")
    if labels.count and not z.extent[axis]:
        raise ValueError(f"[{op}] expected at least one class, got shape {shape_of(z)}")
    return check_options(op, z, labels, reduction)


cdef Array class_weight(str op, object weight, Array z, int axis):
    """A weight for each class, of z's dtype and without gradient; None if there is none."""
    if weight is None:
        return None
    cdef Array w = float_operand(op, weight)
    if w.ndim_ != 1 or w.extent[0] != z.extent[axis]:
        raise ValueError(f"[{op}] expected weight of shape ({z.extent[axis]},), got {shape_of(w)}")
    if w.needs_grad and recording():
        raise GradientError(f"[{op}] expected a weight that does not require grad, as it gets none: weight.detach()")
    check_same_device(op, z, w)
    return alias(dense(cast(w, z.code)))


cdef tuple row_labels(str op, Array labels, int64_t width, int64_t ignore, Array weight, int code, str reduction):
    """(the labels in a row, each a class or the one to ignore; the factor that turns the sum of losses into a mean)."""
    cdef Array flat = reshape_to(dense(cast(labels, INT64)), (labels.count,)), inverse = None
    cdef Array out = empty_as(flat, INT64)
    if reduction == "mean":
        inverse = empty(code, 0, NULL, flat.buffer.device)
    backend(flat).class_labels(f"[{op}] expected labels", width, ignore, flat, weight, out, inverse)
    return out, inverse


# ── nll_loss, of primitive operations: loss = -w_t x_t ────────────────────────────────────────────

def nll_loss(log_probs: TensorLike, labels: TensorLike, weight: TensorLike | None = None, ignore_index: int = -100,
             reduction: str = "mean") -> Tensor:
    """The negative log-likelihood of class labels, ``-w[label] log_probs[label]``.

    Applied to `log_softmax`, it equals `cross_entropy` with labels.

    Parameters
    ----------
    log_probs : Tensor, shape (N, C, ...) or (C,)
        Log-probabilities, such as `log_softmax` returns, with the classes along axis 1 (PyTorch's layout).
    labels : Tensor, shape (N, ...) or ()
        Integers from 0 to C - 1, the true class of each row.
    weight, ignore_index, reduction
        As in `cross_entropy`; the mean is NaN if no row counts.

    Returns
    -------
    Tensor
        A scalar, or one loss for each row, of shape (N, ...) or (), for "none".

    Raises
    ------
    TypeError, IndexError, ValueError, GradientError
        As in `cross_entropy`.

    Examples
    --------
    >>> import minigrad.nn.functional as F
    >>> F.nll_loss(mg.tensor([[-1.0, -2.0], [-3.0, -4.0]]), mg.tensor([0, 1]), reduction="none")
    tensor([1., 4.])
    """
    cdef Call _call = begin("nll_loss")
    cdef int64_t ignore = integer("nll_loss", "ignore_index", ignore_index)
    weight = optional("nll_loss", weight)
    cdef Array x = operand("nll_loss", log_probs), target = operand("nll_loss", labels), w, flat, kept, safe, loss
    x = float_operand("nll_loss", x)
    target = beside(x, labels, target)
    cdef int axis = 1 if x.ndim_ > 1 else 0
    shape = shape_of(x)[:axis] + shape_of(x)[axis + 1:]
    check_class_labels("nll_loss", False, x, target, axis, reduction)
    w = class_weight("nll_loss", weight, x, axis)
    flat, inverse = row_labels("nll_loss", target, x.extent[axis], ignore, w, x.code, reduction)
    kept = cast(not_equal(flat, ignore), BOOL)
    safe = where(kept, flat, 0)
    x = class_rows(x, axis, flat.count, x.extent[axis])
    loss = negative(squeeze(take_along(x, expand_dims(safe, 1), 1), 1))
    if w is not None:
        loss = multiply(loss, take_rows(w, 0, safe))
    loss = where(kept, loss, 0)     # no derivative sees the values of an ignored row
    return reduce_losses(loss, reduction, inverse, shape)


# The functions of ops/wrappers.txt
include "ops/softmax.pxi"
