// Optimizer steps: one pass over all parameters of a list, and the sum of the squares of their gradients.
//
// The tensors are passed by value, as many as fit in the parameters of a kernel. Their elements are split into chunks by
// the sizes alone, and a block takes one chunk at a time. Constants are combined in double on the host.
// cext/kernels/optimizer.cpp has the same formulas, and stores the same numbers where a square overflows.

#if FLOATING

const int CHUNK = 1024, THREADS = 256;

// A thread's elements: up to four neighbours of one tensor
struct Place {
    int tensor;
    int64 first, count;
};

// f(place) for all elements of the tensors
template <class F>
__device__ void each_place(const Tensors& list, F f) {
    for (int64 chunk = blockIdx.x; chunk < list.chunk[list.count]; chunk += gridDim.x) {
        int low = 0, high = int(list.count);  // chunk[low] <= chunk < chunk[high]
        while (high - low > 1) {
            const int middle = (low + high) / 2;
            (list.chunk[middle] <= chunk ? low : high) = middle;
        }
        const int64 first = (chunk - list.chunk[low]) * CHUNK + 4 * threadIdx.x, count = list.size[low] - first;
        f({low, first, count < 4 ? count : 4});
    }
}

// Up to four elements of one of a tensor's arrays
__device__ inline void load(const Tensors& list, int array, const Place& at, Pack<4>& value) {
    const T* from = (const T*)list.array[array][at.tensor] + at.first;
    if (at.count == 4 && is_aligned(from)) {
        value = Pack<4>::load(from, true);
    } else {
        for (int k = 0; k < 4; k++) value.v[k] = k < at.count ? from[k] : T(0);
    }
}
__device__ inline void store(const Tensors& list, int array, const Place& at, const Pack<4>& value) {
    T* to = (T*)list.array[array][at.tensor] + at.first;
    if (at.count == 4 && is_aligned(to)) {
        value.store(to, true);
    } else {
        for (int k = 0; k < 4 && k < at.count; k++) to[k] = value.v[k];
    }
}

enum { P, G, S1, S2, S3, ARRAYS };  // parameters, gradients, states

// f(p, g, s1, s2, s3) on every element; absent states are read as 0 and not written
template <class F>
__device__ void update(const Tensors& list, F f) {
    each_place(list, [&](const Place& at) {
        Pack<4> value[ARRAYS] = {};
        if (at.count <= 0) return;
        for (int a = 0; a < ARRAYS; a++) {
            if (list.array[a][at.tensor]) load(list, a, at, value[a]);
        }
        for (int k = 0; k < 4; k++) f(value[P].v[k], value[G].v[k], value[S1].v[k], value[S2].v[k], value[S3].v[k]);
        for (int a = 0; a < ARRAYS; a++) {
            if (a != G && list.array[a][at.tensor]) store(list, a, at, value[a]);
        }
    });
}

// g + weight_decay p; without decay, an infinite parameter does not turn it into NaN
__device__ T decayed(T g, T p, T decay) { return decay == 0 ? g : g + decay * p; }

// The root of a stored square
__device__ T root_of(T v) { return v < 0 ? -v : sqrt(v); }

// v = keep v + fresh d^2. Where the square overflows, roots are added, and -r means r^2. A d that is not finite has the
// same result as without this.
__device__ void advance(T& v, T d, T keep, T fresh) {
    const T before = v;
    v = keep * before + fresh * (d * d);
    if (before < 0 || v == infinity<T>()) {
        const T x = sqrt(keep) * root_of(before), y = sqrt(fresh) * fabs(d);
        const T most = x > y ? x : y, ratio = (x > y ? y : x) / most, sum = most * sqrt(1 + ratio * ratio);
        if (sum < infinity<T>()) v = sum * sum < infinity<T>() ? sum * sum : -sum;
    }
}

// g += weight_decay p
// Without momentum, p -= lr g. Otherwise buffer = momentum buffer + (1 - dampening) g, or g in the first step, and
// p -= lr buffer or, with Nesterov momentum, p -= lr (g + momentum buffer).
extern "C" __global__ void sgd(Tensors list, T lr, T decay, T momentum, T fresh, Bool nesterov, Bool plain,
                               Bool first) {
    update(list, [&](T& p, T g, T& buffer, T&, T&) {
        const T d = decayed(g, p, decay);
        if (plain) {
            p -= lr * d;
        } else {
            buffer = first ? d : momentum * buffer + fresh * d;
            p -= lr * (nesterov ? d + momentum * buffer : buffer);
        }
    });
}

// g += weight_decay p; decoupled (AdamW): p = shrink p instead
// m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,  amsgrad: v' = v_max = max(v_max, v), otherwise v' = v
// p -= rate m / (root sqrt(v') + eps)
extern "C" __global__ void adam(Tensors list, T rate, T root, T eps, T beta1, T beta2, T fresh1, T fresh2, T decay,
                                T shrink, Bool amsgrad) {
    update(list, [&](T& p, T g, T& m, T& v, T& top) {
        const T d = decayed(g, p, decay);
        m = beta1 * m + fresh1 * d;
        advance(v, d, beta2, fresh2);
        if (amsgrad) top = (v > top) != (v < 0 || top < 0) || v != v || v == infinity<T>() ? v : top;  // as squares
        p = shrink * p - rate * m / (root_of(amsgrad ? top : v) * root + eps);
    });
}

// g += weight_decay p,  v = alpha v + (1 - alpha) g^2
// centered: a = alpha a + (1 - alpha) g,  r = sqrt(v - a^2) + eps, otherwise r = sqrt(v) + eps
// p -= lr buffer with momentum, buffer = momentum buffer + g/r, otherwise p -= lr g/r
extern "C" __global__ void rmsprop(Tensors list, T lr, T decay, T eps, T alpha, T fresh, T momentum, Bool heavy,
                                   Bool centered) {
    update(list, [&](T& p, T g, T& v, T& buffer, T& mean) {
        const T d = decayed(g, p, decay);
        advance(v, d, alpha, fresh);
        T deviation = root_of(v);
        if (centered) {
            mean = alpha * mean + fresh * d;
            const T variance = v < 0 ? 1 - mean / v * (mean / v) : v - mean * mean;
            deviation = sqrt(variance < 0 ? T(0) : variance) * (v < 0 ? -v : T(1));  // below 0 by rounding
        }
        T change = d / (deviation + eps);
        if (heavy) change = buffer = momentum * buffer + change;
        p -= lr * change;
    });
}

// g += weight_decay p,  s += g^2,  p -= lr g / (sqrt(s) + eps)
extern "C" __global__ void adagrad(Tensors list, T lr, T decay, T eps) {
    update(list, [&](T& p, T g, T& s, T&, T&) {
        const T d = decayed(g, p, decay);
        advance(s, d, 1, 1);
        p -= lr * d / (root_of(s) + eps);
    });
}

// total[blocks] = sums of squares of all gradients; squares are in double, so that a gradient of 1e20 does not overflow
extern "C" __global__ void square_sums(Tensors list, double* total) {
    double sum = 0;
    each_place(list, [&](const Place& at) {
        Pack<4> g;
        if (at.count <= 0) return;
        load(list, G, at, g);
        for (int k = 0; k < 4; k++) sum += double(g.v[k]) * double(g.v[k]);
    });
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) total[blockIdx.x] = sum;
}

// y[1] = the sum of x[n]
extern "C" __global__ void sum_of(int64 n, const double* x, double* y) {
    double sum = 0;
    for (int64 i = threadIdx.x; i < n; i += THREADS) sum += x[i];
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) y[0] = sum;
}

#endif
