from libc.stdint cimport int64_t, uint64_t

from minigrad.engine.array cimport Array

cdef extern from "kernels/kernels.hpp" namespace "mg" nogil:
    cpdef enum Reduce "mg::Reduce":
        SUM, PROD, MAX, MIN, ANY, ALL, ARGMAX, ARGMIN

cdef class Backend:
    cpdef unary(self, int op, Array x, Array out)
    cpdef binary(self, int op, Array a, Array b, Array out)
    cpdef where(self, Array condition, Array a, Array b, Array out)
    cpdef clip(self, double low, double high, Array x, Array out)
    cpdef copy(self, Array x, Array out)
    cpdef fill(self, Array out, value)
    cpdef reduce(self, int op, int64_t outer, int64_t n, int64_t inner, Array x, Array out)
    cpdef moments(self, int64_t outer, int64_t n, int64_t inner, Array x, Array mean, Array m2)
    cpdef cumulative_sum(self, int64_t outer, int64_t n, int64_t inner, Array x, Array out)
    cpdef linear_scan(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array b, Array initial,
                      Array h)
    cpdef linear_scan_backward(self, int64_t outer, int64_t n, int64_t inner, bint reverse, Array a, Array h,
                               Array initial, Array g, Array da, Array db, Array dinitial)
    cpdef gemm(self, Array a, Array b, Array out, double beta, Array bias)
    cpdef normalize(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma, Array beta,
                    double eps, Array y, Array mean, Array rstd)
    cpdef normalize_backward(self, int64_t rows, int64_t groups, int64_t m, int64_t inner, Array x, Array gamma,
                             Array mean, Array rstd, Array g, Array dx, Array dgamma, Array dbeta)
    cpdef batch_norm(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma, Array beta, double eps,
                     Array y, Array mean, Array var, Array statistics)
    cpdef batch_norm_eval(self, int64_t outer, int64_t channels, int64_t inner, Array x, Array gamma, Array beta,
                          Array mean, Array var, double eps, Array y, Array statistics)
    cpdef batch_norm_backward(self, int64_t outer, int64_t channels, int64_t inner, bint given, Array x, Array gamma,
                              Array statistics, Array g, Array dx, Array dgamma, Array dbeta)
    cpdef conv2d(self, Array x, Array w, Array bias, tuple at, Array y)
    cpdef conv2d_backward_data(self, Array g, Array w, tuple at, Array dx)
    cpdef conv2d_backward_weight(self, Array x, Array g, tuple at, Array dw, Array dbias)
    cpdef max_pool2d(self, Array x, tuple at, Array y, Array index)
    cpdef max_pool2d_backward(self, Array x, Array g, tuple at, Array dx)
    cpdef average_pool2d(self, Array x, Array rows, Array columns, double divisor, Array y)
    cpdef average_pool2d_backward(self, Array g, Array rows, Array columns, double divisor, Array dx)
    cpdef recurrent(self, cell, dict arrays)
    cpdef recurrent_backward(self, cell, dict arrays)
    cpdef softmax(self, int64_t rows, int64_t width, bint log, Array x, Array y)
    cpdef softmax_backward(self, int64_t rows, int64_t width, bint log, Array y, Array g, Array dx)
    cpdef logsumexp(self, int64_t rows, int64_t width, Array x, Array y)
    cpdef cross_entropy(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore, Array weight,
                        double smoothing, Array loss, Array lse)
    cpdef cross_entropy_backward(self, int64_t rows, int64_t width, Array z, Array labels, int64_t ignore, Array weight,
                                 double smoothing, Array lse, Array g, Array dz)
    cpdef attention(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q, Array k,
                    Array v, Array mask, Array y, Array statistics)
    cpdef attention_backward(self, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset, Array q,
                             Array k, Array v, Array mask, Array y, Array statistics, Array g, Array dq,
                             Array dk, Array dv)
    cpdef class_labels(self, str error, int64_t width, int64_t ignore, Array labels, Array weight, Array out,
                       Array inverse)
    cpdef checked_index(self, str op, int axis, int64_t n, Array index, Array out)
    cpdef take(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array out)
    cpdef put(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v)
    cpdef add_at(self, int64_t outer, int64_t n, int64_t inner, Array x, Array index, Array v)
    cpdef take_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array out)
    cpdef add_along(self, int64_t outer, int64_t n, int64_t inner, Array x, int64_t m, Array index, Array v)
    cpdef argsort(self, Array x, bint descending, Array out)
    cpdef ranked(self, int64_t rows, int64_t n, Array x, Array ranks, Array out)
    cpdef nonzero(self, Array x)
    cpdef unique(self, Array x)
    cpdef uniform(self, uint64_t seed, uint64_t offset, double low, double high, Array out)
    cpdef normal(self, uint64_t seed, uint64_t offset, double mean, double std, Array out)
    cpdef integers(self, uint64_t seed, uint64_t offset, int64_t low, int64_t high, Array out)
    cpdef dropout(self, uint64_t seed, uint64_t offset, double p, Array x, Array y, Array keep)
    cpdef optimize(self, rule, list p, list g, list states, tuple numbers)
    cpdef double sum_of_squares(self, list g) except *

cdef Backend backend(Array x)
cpdef void register(int device, Backend instance)
