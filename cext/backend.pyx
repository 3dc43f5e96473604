# cython: allow_none_for_extension_args=True
"""The interface between operations and devices: the primitives that each device implements once.

An operation allocates its results, normalizes its shapes, and asks `backend(x)` to compute; it never asks which
device that is. The CPU's methods are C calls (`cpu.pyx`); another device may implement them in Python.

Arrays are written through the last arguments. "Contiguous" below means row-major without gaps; the primitives that
take any strides say so. ``outer, n, inner`` are the lengths before, at and after the axis that a primitive works on.
"""
from enum import IntEnum

cimport cython
from cpython.object cimport PyObject

from minigrad.engine.array cimport device_name

cdef extern from *:
    """
    // The rows of functions.inc as text
    struct Function {
        bool binary;
        int number;
        const char *name, *types, *result, *expression;
    };
    static const Function functions[] = {
    #define UNARY(name, types, result, loop, ...) {false, mg::name, #name, #types, #result, #__VA_ARGS__},
    #define UNARY_ALSO UNARY
    #define BINARY(name, types, result, loop, ...) {true, mg::name, #name, #types, #result, #__VA_ARGS__},
    #define BINARY_ALSO BINARY
    #include "kernels/functions.inc"
    };
    static const int function_count = sizeof functions / sizeof *functions;
    """
    struct Function:
        bint binary
        int number
        const char* name
        const char* types
        const char* result
        const char* expression
    const Function* functions
    int function_count


cdef list texts(bint binary):
    return [(functions[i].name.decode(), functions[i].number, functions[i].types.decode(), functions[i].result.decode(),
             functions[i].expression.decode()) for i in range(function_count) if functions[i].binary == binary]


# (name, number, types, type of the result, expression) of the element-wise functions; see kernels/functions.inc
FUNCTIONS: dict[str, list[tuple[str, int, str, str, str]]] = {"unary": texts(False), "binary": texts(True)}
Unary: type[IntEnum] = IntEnum("Unary", {row[0]: row[1] for row in FUNCTIONS["unary"]}, module=__name__)
Binary: type[IntEnum] = IntEnum("Binary", {row[0]: row[1] for row in FUNCTIONS["binary"]}, module=__name__)

cdef enum:
    DEVICES = 64

cdef PyObject* registered[DEVICES]


cdef Backend backend(Array x):
    """The backend of x's device."""
    cdef PyObject* found = registered[x.buffer.device]
    if found == NULL:
        raise RuntimeError(f"[device] no backend for {device_name(x.buffer.device)}")
    return <Backend>found


cdef dict instances = {}    # device -> its backend
cdef dict serving = {}      # device -> that backend, or the interceptor around it
cdef object interceptor = None


cdef Backend chosen(int device, Backend instance, object function):
    """The backend that serves a device: its own, or the one that function(device, instance) returns."""
    return <Backend?>(instance if function is None else function(device, instance))


cdef int serve(int device, Backend found) except -1:
    registered[device] = <PyObject*>found
    serving[device] = found
    return 0


cpdef void register(int device, Backend instance) except *:
    """Register `instance` as the backend of a device: 0 for the CPU, 1 + i for cuda:i."""
    if not 0 <= device < DEVICES:
        raise ValueError(f"[register] expected a device from 0 to {DEVICES - 1}, got {device}")
    cdef Backend found = chosen(device, instance, interceptor)
    instances[device] = instance
    serve(device, found)


def intercept(function: Callable[[int, Backend], Backend] | None) -> None:
    """Replace the backend of every device by function(device, instance), until called with None.

    Devices that are registered later are included.
    """
    global interceptor
    found = {device: chosen(device, instance, function) for device, instance in instances.items()}
    interceptor = function
    for device in found:
        serve(device, found[device])


def is_intercepted() -> bool:
    """Whether primitives are replaced, as they are by a profile."""
    return interceptor is not None


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Backend:
    """The primitives; every method here is abstract."""

    cpdef unary(self, int op, Array x, Array out):
        """out = op(x), elementwise, any strides."""
        raise NotImplementedError

    cpdef binary(self, int op, Array a, Array b, Array out):
        """out = op(a, b), elementwise, equal shapes, any strides; out may be a or b."""
        raise NotImplementedError

    cpdef where(self, Array condition, Array a, Array b, Array out):
        """out = a where condition (bool) else b, any strides."""
        raise NotImplementedError

    cpdef clip(self, double low: float, double high: float, Array x, Array out):
        """out = min(max(x, low), high) of floats, any strides; NaN stays NaN."""
        raise NotImplementedError

    cpdef copy(self, Array x, Array out):
        """out = x, any strides, converted to out's dtype; overlapping only element for element."""
        raise NotImplementedError

    cpdef fill(self, Array out, value: float):
        """out = value (a Python number) everywhere, any strides."""
        raise NotImplementedError

    cpdef reduce(self, int op, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        """out[outer, inner] = op over the middle axis of x[outer, n, inner], contiguous."""
        raise NotImplementedError

    cpdef moments(self, int64_t outer, int64_t n, int64_t inner, Array x, Array mean, Array m2):
        """The mean and the sum of squared deviations from it over the middle axis, contiguous."""
        raise NotImplementedError

    cpdef cumulative_sum(self, int64_t outer, int64_t n, int64_t inner, Array x, Array out):
        """Running sums along the middle axis, contiguous."""
        raise NotImplementedError

    cpdef linear_scan(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array b,
                      Array initial: Tensor | None, Array h):
        """h_t = a_t h_{t-1} + b_t along the middle axis, contiguous; h_0 = initial[outer, inner] or h_1 = b_1."""
        raise NotImplementedError

    cpdef linear_scan_backward(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a,
                               Array h: Tensor | None, Array initial: Tensor | None, Array g, Array da: Tensor | None,
                               Array db: Tensor | None, Array dinitial: Tensor | None):
        """Its gradients, of which each may be None; da reads h and initial."""
        raise NotImplementedError

    cpdef gemm(self, Array a, Array b, Array out, double beta, Array bias: Tensor | None):
        """out = a @ b + beta out (+ bias on each row; bias may be None) for 2-d or 3-d (batched) floats.

        out is contiguous; in the last two axes of a and b one stride is the item size.
        """
        raise NotImplementedError

    cpdef normalize(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma: Tensor | None,
                    Array beta: Tensor | None, double eps, Array y, Array mean: Tensor | None, Array rstd):
        """y = (x - mean) rstd gamma + beta on the rows of x[rows, m, inner]; gamma and beta may be None.

        Row r belongs to group r % groups; gamma and beta are [groups, m]. rstd is 1/sqrt(variance + eps) of a row. If
        mean is None, nothing is subtracted; then groups and inner must be 1 and beta None. mean[rows] and rstd[rows]
        have x's dtype if groups and inner are 1, otherwise they are float64.
        """
        raise NotImplementedError

    cpdef normalize_backward(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x,
                             Array gamma: Tensor | None, Array mean: Tensor | None, Array rstd, Array g,
                             Array dx: Tensor | None, Array dgamma: Tensor | None, Array dbeta: Tensor | None):
        """The gradients of normalize for the cotangent g; dx, dgamma and dbeta may each be None."""
        raise NotImplementedError

    cpdef batch_norm(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma: Tensor | None,
                     Array beta: Tensor | None, double eps, Array y, Array mean, Array var, Array statistics):
        """y = (x - mean) rstd gamma + beta on the channels of x[outer, channels, inner]; gamma, beta may be None.

        var is biased; statistics[2, channels] (float64) gets mean and rstd.
        """
        raise NotImplementedError

    cpdef batch_norm_eval(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma: Tensor | None,
                          Array beta: Tensor | None, Array mean, Array var, double eps, Array y, Array statistics):
        """The same with mean and var given."""
        raise NotImplementedError

    cpdef batch_norm_backward(self, int64_t outer, int64_t channels, int64_t inner, bint given, Array x,
                              Array gamma: Tensor | None, Array statistics, Array g, Array dx: Tensor | None,
                              Array dgamma: Tensor | None, Array dbeta: Tensor | None):
        """The gradients of batch_norm, or of batch_norm_eval where the statistics were `given`.

        dx, dgamma, dbeta may each be None.
        """
        raise NotImplementedError

    cpdef conv2d(self, Array x, Array w, Array bias: Tensor | None, tuple at: tuple[int, ...], Array y):
        """y[N, O, P, Q] = x[N, C, H, W] correlated with w[O, C / groups, KH, KW], + bias[O] or None; contiguous.

        at = (stride_h, stride_w, top, left, dilation_h, dilation_w): window (p, q) begins at row p stride_h - top,
        column q stride_w - left of x, which is padded with as many zeros as y needs.
        """
        raise NotImplementedError

    cpdef conv2d_backward_data(self, Array g, Array w, tuple at: tuple[int, ...], Array dx):
        """dx[N, C, H, W] of conv2d for the cotangent g[N, O, P, Q]; contiguous."""
        raise NotImplementedError

    cpdef conv2d_backward_weight(self, Array x, Array g, tuple at: tuple[int, ...], Array dw,
                                 Array dbias: Tensor | None):
        """dw[O, C / groups, KH, KW] and dbias[O] of conv2d for the cotangent g; dbias may be None. Contiguous."""
        raise NotImplementedError

    cpdef max_pool2d(self, Array x, tuple at: tuple[int, ...], Array y: Tensor | None, Array index: Tensor | None):
        """y[..., P, Q] = the largest elements of windows in x[..., H, W], index (int64) their places in H x W.

        at = (kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w); no window is empty. y or
        index may be None. NaN is larger than all numbers; of equal elements the first counts, of NaNs the last.
        """
        raise NotImplementedError

    cpdef max_pool2d_backward(self, Array x, Array g, tuple at: tuple[int, ...], Array dx):
        """dx of max_pool2d for the cotangent g[..., P, Q], contiguous."""
        raise NotImplementedError

    cpdef average_pool2d(self, Array x, Array rows, Array columns, double divisor, Array y):
        """y[..., P, Q] = sums of windows in x[..., H, W] over the divisor, or if it is 0 over their own lengths.

        Window (p, q) covers the rows from rows[p, 0] up to rows[p, 1], with rows[p, 2] as their length, and the columns
        given by columns[q] in the same way. Both are int64; all arrays are contiguous.
        """
        raise NotImplementedError

    cpdef average_pool2d_backward(self, Array g, Array rows, Array columns, double divisor, Array dx):
        """dx of average_pool2d for the cotangent g[..., P, Q]."""
        raise NotImplementedError

    cpdef recurrent(self, cell: Cell, dict arrays: dict[str, Any]):
        """All steps of a recurrent layer, a Cell of ops/recurrent; arrays as in `Recurrence` of kernels.hpp."""
        raise NotImplementedError

    cpdef recurrent_backward(self, cell: Cell, dict arrays: dict[str, Any]):
        """dx, dz, dgamma ... from gy; dh and dc of the last states become those of the first."""
        raise NotImplementedError

    cpdef softmax(self, int64_t rows, int64_t width, bint log, Array x, Array y):
        """y = softmax of each row of x, or its logarithm."""
        raise NotImplementedError

    cpdef softmax_backward(self, int64_t rows, int64_t width, bint log, Array y, Array g, Array dx):
        """The gradient of softmax from its result y and the cotangent g."""
        raise NotImplementedError

    cpdef logsumexp(self, int64_t rows, int64_t width, Array x, Array y):
        """y[rows] = log of the sum of the exponentials of each row of x."""
        raise NotImplementedError

    cpdef cross_entropy(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore,
                        Array weight: Tensor | None, double smoothing, Array loss, Array lse):
        """loss[rows] and lse[rows] of logits z against int64 labels; kernels.hpp has the formula."""
        raise NotImplementedError

    cpdef cross_entropy_backward(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore,
                                 Array weight: Tensor | None, double smoothing, Array lse, Array g, Array dz):
        """dz for the cotangent g[rows] (or one g for all rows)."""
        raise NotImplementedError

    cpdef attention(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q, Array k,
                    Array v, Array mask: Tensor | None, Array y, Array statistics):
        """y[N, H, L, V], not empty, and statistics[N, H, L, 2] of contiguous q[N, H, L, E], k[N, H/group, S, E] and
        v[N, H/group, S, V], where S is not 0.

        kernels.hpp has the formula. The mask[N, H, L, S], of bool or of q's dtype, may have any strides.
        """
        raise NotImplementedError

    cpdef attention_backward(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q,
                             Array k, Array v, Array mask: Tensor | None, Array y, Array statistics, Array g,
                             Array dq: Tensor | None, Array dk: Tensor | None, Array dv: Tensor | None):
        """dq, dk and dv, each of which may be None, for the contiguous cotangent g[N, H, L, V]."""
        raise NotImplementedError

    cpdef class_labels(self, str error, int64_t width, int64_t ignore, Array labels, Array weight: Tensor | None,
                       Array out, Array inverse: Tensor | None):
        """out = int64 labels, each from 0 to width - 1, or the one to `ignore`.

        inverse (0-d float, or None) = 1 / the number of rows that count, or 1 / the sum of their classes' weights (of
        inverse's dtype, or None); NaN if none counts. A label out of range is an IndexError that begins with `error`:
        immediately on the CPU; on another device by the next transfer to the CPU, and until then `out` holds some class
        in its place.
        """
        raise NotImplementedError

    cpdef checked_index(self, str op, int axis, int64_t n, Array index, Array out):
        """out = int64 indices from 0 to n - 1, of which negative ones count from the end.

        An index out of range is an IndexError of `op`, raised at the same time as that of `class_labels`.
        """
        raise NotImplementedError

    cpdef take(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array out):
        """out[outer, j, inner] = x[outer, index[j], inner]; here and below indices are from 0 to n - 1."""
        raise NotImplementedError

    cpdef put(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
        """x[outer, index[j], inner] = v[outer, j, inner]; the last of equal indices wins."""
        raise NotImplementedError

    cpdef add_at(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v):
        """x[outer, index[j], inner] += v[outer, j, inner], in the order of j; floats."""
        raise NotImplementedError

    cpdef take_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array out):
        """out[o, j, i] = x[o, index[o, j, i], i]."""
        raise NotImplementedError

    cpdef add_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array v):
        """x[o, index[o, j, i], i] += v[o, j, i], in the order of j; floats."""
        raise NotImplementedError

    cpdef argsort(self, Array x, bint descending, Array out):
        """out (int64) = the stable order of the last axis of x; NaN comes last."""
        raise NotImplementedError

    cpdef ranked(self, int64_t rows, int64_t n, Array x, Array ranks, Array out):
        """out[row, j] (int64) = where the element of rank ranks[j] is in x[row]; where NaN is, if there is one."""
        raise NotImplementedError

    cpdef nonzero(self, Array x):  # -> tuple[Tensor, ...]
        """A tuple of int64 tensors: the positions of the elements that are not zero, row-major."""
        raise NotImplementedError

    cpdef unique(self, Array x):  # -> Tensor
        """The sorted distinct elements."""
        raise NotImplementedError

    cpdef uniform(self, uint64_t seed, uint64_t offset, double low, double high, Array out):
        """out ~ U[low, high) from the counter-based generator."""
        raise NotImplementedError

    cpdef normal(self, uint64_t seed, uint64_t offset, double mean, double std, Array out):
        """out ~ N(mean, std squared)."""
        raise NotImplementedError

    cpdef integers(self, uint64_t seed, uint64_t offset, int64_t low, int64_t high, Array out):
        """out (int64) uniform in [low, high)."""
        raise NotImplementedError

    cpdef dropout(self, uint64_t seed, uint64_t offset, double p, Array x, Array y, Array keep):
        """keep (bool) with probability 1 - p; y = x keep / (1 - p)."""
        raise NotImplementedError

    cpdef optimize(self, rule: Rule, list p: list[Tensor], list g: list[Tensor],
                   list states: list[list[Tensor] | None], tuple numbers: tuple[float, ...]):
        """One step of an optimizer, a Rule of ops/optimizer, on all tensors of the lists; state lists may be None."""
        raise NotImplementedError

    cpdef double sum_of_squares(self, list g: list[Tensor]) except *:
        """The sum of the squares of all elements of all tensors."""
        raise NotImplementedError
