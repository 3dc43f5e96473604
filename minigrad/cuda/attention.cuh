// The parts that attention.cu and attention_tensor.cu share

struct Attention {
    int64 queries, keys;
    int heads, group, width, value_width;
    T scale;
    bool causal;
    double dropout;
    uint64 seed, offset;
    const void* mask;
    int mask_kind;  // 0: none, 1: bool, 2: numbers
    int64 mask_step[4];
    int64 rows;  // from the keys and values of a head to those of the next

    // A scaled product, masked by the element at m; -inf if that hides the key.
    __device__ T masked(T x, const char* m) const {
        if (mask_kind == 1) return *(const Bool*)m ? x : -infinity<T>();
        if (mask_kind == 2) return *(const T*)m == -infinity<T>() ? -infinity<T>() : x + *(const T*)m;
        return x;
    }
    __device__ const char* mask_at(int64 n, int64 i, int64 j) const {
        const int64 h = n % heads;
        return (const char*)mask + (n / heads * mask_step[0] + h * mask_step[1] + i * mask_step[2] + j * mask_step[3]);
    }
    __device__ bool hides() const { return causal || mask_kind; }
    __device__ bool sees(int64 n, int64 i, int64 j) const {
        return (!causal || j <= i) && (!mask_kind || masked(T(0), mask_at(n, i, j)) != -infinity<T>());
    }
    // The score of query i and key j of head n: scaled and masked; -inf where the query does not see the key, or where
    // i or j is past the end.
    __device__ T score(T product, int64 n, int64 i, int64 j) const {
        if (i >= queries || j >= keys || (causal && j > i)) return -infinity<T>();
        return masked(product * scale, mask_at(n, i, j));
    }
    // For the weights of query i and the keys j to j + 3: 1 / (1 - dropout) for those that remain, else 0
    __device__ void survive(int64 n, int64 i, int64 j, T (&factor)[4]) const {
        const uint64 row = uint64(n * queries + i) * uint64((keys + 3) / 4);
        const Words bits = philox(seed, offset + row + uint64(j / 4), 0);
        for (int c = 0; c < 4; c++) factor[c] = unit(bits.word[c]) >= float(dropout) ? T(1 / (1 - dropout)) : T(0);
    }
};

// The first parameters of all kernels, and the attention that they describe
#define ATTENTION_PARAMETERS                                                                                       \
    int64 jobs, int64 queries, int64 keys, int heads, int group, int width, int value_width, T scale, Bool causal, \
    double dropout, uint64 seed, uint64 offset, const T* q, const T* k, Stride k_step, const T* v, Stride v_step, int64 rows, \
    const void* mask, Stride mask_step, int mask_kind
#define GIVEN                                                                                                     \
    {queries, keys, heads, group, width, value_width, scale, causal != 0, dropout, seed, offset, mask, mask_kind, \
     {mask_step.n[4], mask_step.n[5], mask_step.n[6], mask_step.n[7]}, rows}

// ---- what is hidden -------------------------------------------------------------------------------------------------
//
// Hidden keys must not affect a query, but a weight 0 times NaN or infinity is NaN. So where something is hidden, each
// warp looks at the rows of a result that it has computed, and computes rows that are not finite again, over the
// pairs that see each other. Its lanes share the columns of a row.

__device__ inline T warp_sum(T x) {
    for (int distance = 16; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
    return x;
}

__device__ inline T dot(const T* x, const T* y, int n) {
    T sum = 0;
    for (int c = threadIdx.x % 32; c < n; c += 32) sum += x[c] * y[c];
    return warp_sum(sum);
}

// The columns from `first` to `end` of a row of a result
struct Row {
    T* out;
    int first, end;

    template <class F>
    __device__ void each(F f) const {
        for (int c = first + threadIdx.x % 32; c < end; c += 32) f(c);
    }
    // Whether these are not finite; then they are set to 0.
    __device__ bool lost() const {
        T sum = 0;
        each([&](int c) { sum += out[c] * 0; });
        if (warp_sum(sum) == 0) return false;
        each([&](int c) { out[c] = 0; });
        return true;
    }
    __device__ void add(T weight, const T* x) const {
        each([&](int c) { out[c] += weight * x[c]; });
    }
};

struct Pairs {
    const Attention a;
    const T *q, *k, *v, *statistics, *g, *delta;

    __device__ const T* query(int64 n, int64 i) const { return q + (n * a.queries + i) * a.width; }
    __device__ const T* key(int64 n, int64 j) const { return k + (n / a.group * a.rows + j) * a.width; }
    __device__ const T* value(int64 n, int64 j) const { return v + (n / a.group * a.rows + j) * a.value_width; }
    __device__ const T* given(int64 n, int64 i) const { return g + (n * a.queries + i) * a.value_width; }
    __device__ T score(int64 n, int64 i, int64 j) const {
        return a.score(dot(query(n, i), key(n, j), a.width), n, i, j);
    }
    __device__ T weight(int64 n, int64 i, int64 j) const {
        const T* const of_row = statistics + 2 * (n * a.queries + i);
        return exp(score(n, i, j) - of_row[0]) * of_row[1];
    }
    __device__ T factor(int64 n, int64 i, int64 j) const {
        T f[4] = {1, 1, 1, 1};
        if (a.dropout > 0) a.survive(n, i, j - j % 4, f);
        return j % 4 < 2 ? (j % 2 ? f[1] : f[0]) : (j % 2 ? f[3] : f[2]);
    }
    __device__ T slope(int64 n, int64 i, int64 j) const {  // ds
        const T dp = dot(given(n, i), value(n, j), a.value_width);
        return weight(n, i, j) * (dp * factor(n, i, j) - delta[n * a.queries + i]) * a.scale;
    }
};

// Each of these is for `count` rows from `row` on, and the columns from `first` to `end`.
__device__ __noinline__ void mend(const Pairs& pairs, int64 n, int64 row, int count, int first, int end, T* y) {
    const Attention& a = pairs.a;
    __syncwarp();
    for (int64 i = row; i < row + count && i < a.queries; i++) {
        const Row to = {y + (n * a.queries + i) * a.value_width, first, end};
        if (!to.lost()) continue;
        T top = -infinity<T>(), total = 0;
        for (int64 j = 0; j < a.keys; j++) {
            const T s = a.sees(n, i, j) ? pairs.score(n, i, j) : -infinity<T>();
            if (s > top) top = s;
        }
        if (top == -infinity<T>()) top = 0;
        for (int64 j = 0; j < a.keys; j++) {
            if (!a.sees(n, i, j)) continue;
            const T e = exp(pairs.score(n, i, j) - top);
            total += e;
            to.add(e * pairs.factor(n, i, j), pairs.value(n, j));
        }
        to.each([&](int c) { to.out[c] *= total == 0 ? T(0) : 1 / total; });
    }
}

__device__ __noinline__ void mend_query(const Pairs& pairs, int64 n, int64 row, int count, int first, int end, T* dq) {
    const Attention& a = pairs.a;
    __syncwarp();
    for (int64 i = row; i < row + count && i < a.queries; i++) {
        const Row to = {dq + (n * a.queries + i) * a.width, first, end};
        if (!to.lost()) continue;
        for (int64 j = 0; j < a.keys; j++) {
            if (a.sees(n, i, j)) to.add(pairs.slope(n, i, j), pairs.key(n, j));
        }
    }
}

// dk if `of_key`, else dv
__device__ __noinline__ void mend_key(const Pairs& pairs, int64 source, int64 row, int count, int first, int end,
                                      T* to_all, bool of_key) {
    const Attention& a = pairs.a;
    __syncwarp();
    for (int64 j = row; j < row + count && j < a.keys; j++) {
        const Row to = {to_all + (source * a.keys + j) * (of_key ? a.width : a.value_width), first, end};
        if (!to.lost()) continue;
        for (int64 at = 0; at < a.group * a.queries; at++) {
            const int64 n = source * a.group + at / a.queries, i = at % a.queries;
            if (!a.sees(n, i, j)) continue;
            if (of_key)
                to.add(pairs.slope(n, i, j), pairs.query(n, i));
            else
                to.add(pairs.weight(n, i, j) * pairs.factor(n, i, j), pairs.given(n, i));
        }
    }
}
