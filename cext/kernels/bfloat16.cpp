// Products of float32 matrices whose factors are rounded to bfloat16; sums are float32.
//
// AVX512_BF16 multiplies pairs of neighbours along k and adds both products to a float32 sum, twice as many operations
// as a float32 instruction does. So two rounded factors lie in one word: a row of a panel holds a pair of rows of B.
// Elements of the product are sums over k in ascending order, whatever block of rows or columns they are computed in.
#include "../runtime/pool.hpp"
#include "panels.hpp"

namespace mg::MG_ISA {
#if MG_ROUNDS
namespace {

#define MG_BFLOAT16 __attribute__((target("avx512bf16")))

constexpr int64_t WIDTH = PANEL<float>, WORDS = LANES<float>;
constexpr int64_t DEPTH = 256;            // words of a row of A that are rounded at once: with 32 columns of B, 48 KB
constexpr int64_t ROWS = 64, GROUP = 16;  // rows of A that are rounded at once, in groups
constexpr int64_t COLUMNS = 256;          // columns of B whose panels a thread holds

// What a thread has rounded: allocated when the thread first needs it, and freed when the thread ends
struct Scratch {
    alignas(REGISTER) uint32_t words[ROWS * DEPTH];
    alignas(REGISTER) float panels[COLUMNS * DEPTH];

    static Scratch& get() {
        struct Owner {
            Scratch* memory = nullptr;
            ~Owner() { delete memory; }
        };
        static thread_local Owner owner;
        if (!owner.memory) owner.memory = new Scratch;
        return *owner.memory;
    }
};

MG_INLINE __mmask16 first_lanes(int64_t count) {
    return __mmask16(count < WORDS ? (1u << maximum(count, 0)) - 1 : ~0u);
}

// Two registers rounded, one after the other
MG_BFLOAT16 MG_INLINE __m512i rounded(__m512 first, __m512 second) {
    return (__m512i)_mm512_cvtne2ps_pbh(second, first);
}

// words[pairs, width] = the pairs of rows of x[k, n], rounded, where rows lie `step` apart; the next `width` columns
// are written `apart` words later
template <int64_t width>
MG_BFLOAT16 void round_rows(int64_t k, int64_t n, const float* x, int64_t step, uint32_t* words, int64_t apart) {
    alignas(64) constexpr auto ALTERNATE = [] {
        struct {
            uint16_t of[32];
        } order{};
        for (int i = 0; i < 32; i++) order.of[i] = uint16_t(i / 2 + i % 2 * 16);
        return order;
    }();
    const __m512i order = _mm512_load_si512(&ALTERNATE);
    for (int64_t p = 0; p < k; p += 2, x += 2 * step, words += width) {
        const __m512 none = _mm512_setzero_ps();
        for (int64_t i = 0; i < n; i += width) {
            uint32_t* const to = words + i / width * apart;
            for (int64_t j = 0; j < width; j += WORDS) {
                const __mmask16 lanes = first_lanes(n - i - j);
                const __m512 first = _mm512_mask_loadu_ps(none, lanes, x + i + j);
                const __m512 second = p + 1 < k ? _mm512_mask_loadu_ps(none, lanes, x + step + i + j) : none;
                _mm512_storeu_si512(to + j, _mm512_permutexvar_epi16(order, rounded(first, second)));
            }
        }
    }
}

// The pairs of neighbours of one row, from element p on: 32 elements, or what is left of k
MG_BFLOAT16 MG_INLINE __m512i round_row(int64_t k, const float* x, int64_t p) {
    const __m512 none = _mm512_setzero_ps();
    return rounded(_mm512_mask_loadu_ps(none, first_lanes(k - p), x + p),
                   _mm512_mask_loadu_ps(none, first_lanes(k - p - WORDS), x + p + WORDS));
}

// words[pairs, WIDTH] = the pairs of the rows of x[n, k], turned
MG_BFLOAT16 void round_turned(int64_t k, int64_t n, const float* x, int64_t step, uint32_t* words) {
    for (int64_t j = 0; j < WIDTH; j += WORDS) {
        for (int64_t p = 0; p < k; p += 2 * WORDS) {
            Vector<float> square[WORDS];
#pragma GCC unroll 16
            for (int64_t i = 0; i < WORDS; i++)
                square[i] = j + i < n ? (Vector<float>)round_row(k, x + (j + i) * step, p) : Vector<float>{};
            transpose<float>(square);
            const int64_t rows = minimum(WORDS, ceil_divide(k - p, 2));
            for (int64_t i = 0; i < rows; i++) _mm512_storeu_si512(words + (p / 2 + i) * WIDTH + j, (__m512i)square[i]);
        }
    }
}

// c[R, columns] = start + a b with words of a, whose rows are `row` and whose pairs are `pair` words apart; V registers
// hold the columns
template <int R, int V, int64_t row, int64_t pair>
MG_BFLOAT16 void multiply_words(int64_t pairs, const uint32_t* a, const uint32_t* b, int64_t columns, const float* bias,
                                bool accumulated, float* c, int64_t ldc) {
    __m512 sum[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) sum[r][v] = _mm512_setzero_ps();
    }
    for (int64_t p = 0; p < pairs; p++) {
        __m512bh right[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; v++) right[v] = (__m512bh)_mm512_loadu_si512(b + p * WIDTH + v * WORDS);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const __m512bh factor = (__m512bh)_mm512_set1_epi32(int32_t(a[r * row + p * pair]));
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) sum[r][v] = _mm512_dpbf16_ps(sum[r][v], factor, right[v]);
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < V; v++) {
        const __mmask16 lanes = first_lanes(columns - v * WORDS);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            float* const to = c + r * ldc + v * WORDS;
            if (bias) sum[r][v] += _mm512_maskz_loadu_ps(lanes, bias + v * WORDS);
            if (accumulated) sum[r][v] += _mm512_maskz_loadu_ps(lanes, to);
            _mm512_mask_storeu_ps(to, lanes, sum[r][v]);
        }
    }
}

// The same for up to 8 rows, as many as there are
template <int64_t row, int64_t pair>
MG_INLINE void multiply_rows(int64_t rows, int64_t pairs, const uint32_t* a, const uint32_t* b, int64_t columns,
                             const float* bias, bool accumulated, float* c, int64_t ldc) {
    const auto multiply = [&]<int V, int... R>(std::integer_sequence<int, R...>) MG_INLINED {
        static_cast<void>(
            ((rows <= R + 1 &&
              (multiply_words<R + 1, V, row, pair>(pairs, a, b, columns, bias, accumulated, c, ldc), true)) ||
             ...));
    };
    constexpr std::make_integer_sequence<int, 8> heights;
    if (columns <= WORDS)
        multiply.template operator()<1>(heights);
    else
        multiply.template operator()<2>(heights);
}

}  // namespace

void round_panel(int64_t k, int64_t n, const float* b, int64_t row_step, int64_t column_step, int64_t first,
                 float* panel) {
    uint32_t* const words = reinterpret_cast<uint32_t*>(panel);
    if (column_step == 1)
        round_rows<WIDTH>(k, minimum(n - first, WIDTH), b + first, row_step, words, 0);
    else
        round_turned(k, n - first, b + first * column_step, column_step, words);
}

MG_BFLOAT16 void multiply_rounded(bool transposed, int64_t rows, int64_t k, int64_t n, const float* a, int64_t lda,
                                  const float* panels, int64_t step, const float* bias, bool accumulated, float* c,
                                  int64_t ldc) {
    uint32_t* const words = Scratch::get().words;
    const int64_t all = ceil_divide(k, 2);
    for (int64_t p = 0; p < all || p == 0; p += DEPTH) {
        const int64_t depth = minimum(2 * DEPTH, k - 2 * p), pairs = ceil_divide(depth, 2);
        const bool add = accumulated || p > 0;
        for (int64_t i = 0; i < rows; i += ROWS) {
            const int64_t height = minimum(ROWS, rows - i);
            if (transposed) {
                round_rows<GROUP>(depth, height, a + 2 * p * lda + i, lda, words, GROUP * DEPTH);
            } else {
                for (int64_t r = 0; r < height; r++) {
                    for (int64_t q = 0; q < depth; q += 2 * WORDS)
                        _mm512_store_si512(words + r * DEPTH + q / 2, round_row(depth, a + (i + r) * lda + 2 * p, q));
                }
            }
            for (int64_t j = 0; j < n; j += WIDTH) {
                const uint32_t* const panel = reinterpret_cast<const uint32_t*>(panels + j / WIDTH * step) + p * WIDTH;
                const float* const start = add || !bias ? nullptr : bias + j;
                for (int64_t r = 0; r < height; r += 8) {
                    float* const to = c + (i + r) * ldc + j;
                    if (transposed)
                        multiply_rows<1, GROUP>(minimum(8, height - r), pairs,
                                                words + r / GROUP * GROUP * DEPTH + r % GROUP, panel, n - j, start, add,
                                                to, ldc);
                    else
                        multiply_rows<DEPTH, 1>(minimum(8, height - r), pairs, words + r * DEPTH, panel, n - j, start,
                                                add, to, ldc);
                }
            }
        }
    }
}

MG_KERNEL(rounded_product)
void rounded_product(const RoundedProduct& p) {
    // A chunk takes some microseconds, and its panels stay in the cache of a core
    constexpr int64_t WANTED = 16;
    const auto part = [](int64_t x, int64_t most) {
        return minimum(x, ceil_divide(ceil_divide(x, ceil_divide(x, most)), WIDTH) * WIDTH);
    };
    const int64_t least = minimum(maximum(p.batch * p.m * p.n * p.k / 8, 1 << 20), 1 << 24);
    int64_t rows = part(p.m, 512), columns = part(p.n, COLUMNS);
    const auto few = [&] { return p.batch * ceil_divide(p.m, rows) * ceil_divide(p.n, columns) < WANTED; };
    while (few() && rows * columns * p.k > least && maximum(rows, columns) > 64) {
        if (columns > rows)
            columns = part(p.n, columns / 2);
        else
            rows = part(p.m, rows / 2);
    }
    const int64_t across = ceil_divide(p.n, columns), chunks = ceil_divide(p.m, rows) * across;
    parallel_each(p.batch * chunks, 1 + (1 << 19) / (rows * columns * maximum(p.k, 1)), [&](int64_t item) {
        const int64_t i = item % chunks / across * rows, j = item % across * columns;
        const int64_t height = minimum(rows, p.m - i), width = minimum(columns, p.n - j);
        const float* const a = p.a + item / chunks * p.stride_a + (p.transpose_a ? i : i * p.lda);
        const float* const b = p.b + item / chunks * p.stride_b + (p.transpose_b ? j * p.ldb : j);
        float* const c = p.c + item / chunks * p.stride_c + i * p.ldc + j;
        float* const panels = Scratch::get().panels;
        for (int64_t k = 0; k < p.k || k == 0; k += 2 * DEPTH) {
            const int64_t depth = minimum(2 * DEPTH, p.k - k);
            const int64_t step = ceil_divide(depth, 2) * WIDTH;
            if (p.transpose_b) {
                for (int64_t s = 0; s < width; s += WIDTH)
                    round_panel(depth, width, b + k, 1, p.ldb, s, panels + s / WIDTH * step);
            } else {
                round_rows<WIDTH>(depth, width, b + k * p.ldb, p.ldb, reinterpret_cast<uint32_t*>(panels), step);
            }
            multiply_rounded(p.transpose_a, height, depth, width, a + (p.transpose_a ? k * p.lda : k), p.lda, panels,
                             step, k == 0 ? offset(p.bias, j) : nullptr, p.accumulate || k > 0, c, p.ldc);
        }
    });
}
#endif

void fill_bfloat16([[maybe_unused]] Kernels& k) {
#if MG_ROUNDS
    if (__builtin_cpu_supports("avx512bf16")) {
        MG_PUT_BFLOAT16
    }
#endif
}

}  // namespace mg::MG_ISA
