// Connectionist temporal classification: sums over the paths through the states of a target, in logarithms of float64.
// A block takes a sample through all steps, with a barrier after each; its threads divide the states. cext/kernels/scan.cpp
// has the same equations.

#if FLOATING && !SINGLE

// ln(e^a + e^b + e^c), the probability of three ways together; NaN if one of them is
__device__ inline double together(double a, double b, double c) {
    const double two = b > a ? b : a, top = c > two ? c : two;
    return top > -infinity<double>() ? top + log(exp(a - top) + exp(b - top) + exp(c - top)) : a + b + c;
}

extern "C" __global__ void ctc(int64 steps, int64 batch, int64 states, const double* e, const double* skip,
                               const int64* lengths, const int64* last, double* alpha, double* loss) {
    const double none = -infinity<double>();
    const int64 row = batch * states;
    for (int64 n = blockIdx.x; n < batch; n += gridDim.x) {
        double* a = alpha + n * states;
        const double *step = e + n * states, *third = skip + n * states;
        for (int64 s = threadIdx.x; s < states; s += blockDim.x) a[s] = s ? none : 0;
        __syncthreads();
        for (int64 t = 0; t < lengths[n]; t++, a += row, step += row) {
            for (int64 s = threadIdx.x; s < states; s += blockDim.x)
                a[row + s] = step[s] + together(a[s], s > 0 ? a[s - 1] : none, s > 1 ? a[s - 2] + third[s] : none);
            __syncthreads();
        }
        if (threadIdx.x == 0) loss[n] = 0 - together(a[last[n]], last[n] ? a[last[n] - 1] : none, none);
    }
}

// beta is scratch: [batch, 2, states].
extern "C" __global__ void ctc_backward(int64 steps, int64 batch, int64 states, const double* e, const double* skip,
                                        const int64* lengths, const int64* last, const double* alpha,
                                        const double* loss, const double* g, double* beta, double* de) {
    const double none = -infinity<double>();
    const int64 row = batch * states;
    for (int64 n = blockIdx.x; n < batch; n += gridDim.x) {
        double *b = beta + 2 * n * states, *ahead = b + states;
        const double* third = skip + n * states;
        for (int64 s = threadIdx.x; s < states; s += blockDim.x) b[s] = s == last[n] || s == last[n] - 1 ? 0 : none;
        for (int64 t = steps - 1; t >= 0; t--) {
            const int64 at = t * row + n * states;
            const bool over = t >= lengths[n] || loss[n] == -none;
            for (int64 s = threadIdx.x; s < states; s += blockDim.x) {
                de[at + s] = over ? 0 : -g[n] * exp(alpha[at + row + s] + b[s] + loss[n]);
                ahead[s] = e[at + s] + b[s];
            }
            if (over) continue;
            __syncthreads();
            for (int64 s = threadIdx.x; s < states; s += blockDim.x)
                b[s] = together(ahead[s], s + 1 < states ? ahead[s + 1] : none,
                                s + 2 < states ? ahead[s + 2] + third[s + 2] : none);
            __syncthreads();
        }
    }
}

#endif
