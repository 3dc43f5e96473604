// What attention.cu and attention_tensor.cu share

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

    // A scaled product, masked by the element at m; -inf if that hides the key.
    __device__ T masked(T x, const char* m) const {
        if (mask_kind == 1) return *(const Bool*)m ? x : -infinity<T>();
        return mask_kind == 2 ? x + *(const T*)m : x;
    }
    // The score of query i and key j of head n: scaled and masked; -inf where the query does not see the key, or where
    // i or j is past the end.
    __device__ T score(T product, int64 n, int64 i, int64 j) const {
        if (i >= queries || j >= keys || (causal && j > i)) return -infinity<T>();
        const int64 h = n % heads;
        return masked(product * scale, (const char*)mask + (n / heads * mask_step[0] + h * mask_step[1] +
                                                            i * mask_step[2] + j * mask_step[3]));
    }
    // For the weights of query i and the keys j to j + 3: 1 / (1 - dropout) for those that remain, else 0
    __device__ void survive(int64 n, int64 i, int64 j, T (&factor)[4]) const {
        const uint64 row = uint64(n * queries + i) * uint64((keys + 3) / 4);
        const Words bits = philox(seed, offset + row + uint64(j / 4), 0);
        for (int c = 0; c < 4; c++) factor[c] = unit(bits.word[c]) >= float(dropout) ? T(1 / (1 - dropout)) : T(0);
    }
};

// The attention that the parameters of a kernel describe
#define GIVEN                                                                                                          \
    {queries, keys, heads, group, width, value_width, scale, causal != 0, dropout, seed, offset, mask, mask_kind,      \
     {mask_step.n[4], mask_step.n[5], mask_step.n[6], mask_step.n[7]}}
