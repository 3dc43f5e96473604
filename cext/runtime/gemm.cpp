// Cuts matrix products into tiles, which single-threaded OpenBLAS computes inside chunks of our own pool.
//
// OpenBLAS's AVX-512 kernels read the operands where they lie, without packing them first, while
// m n k <= 10^6, and come closest to the machine's peak there. So a product is cut into such tiles, along
// k too, except where packing pays: very large products, and a transposed B with small k. Tiles depend on
// the shape alone, never on the number of threads, and so do the bits of the result.
#include "gemm.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "platform.hpp"
#include "pool.hpp"

namespace mg {
namespace {

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };  // constants of CBLAS

template <class T>
struct Routines {
    void (*gemm)(int order, int op_a, int op_b, int m, int n, int k, T alpha, const T* a, int lda, const T* b, int ldb,
                 T beta, T* c, int ldc);
    void (*gemv)(int order, int op, int m, int n, T alpha, const T* a, int lda, const T* x, int incx, T beta, T* y,
                 int incy);
};

template <class T>
Routines<T> blas = {};

bool unpacked_kernels = false;  // this processor has kernels that do not pack
char name[96] = "not loaded";

// ---- tiles ----------------------------------------------------------------------------------------------------------

// Multiply-adds of a chunk that takes a few microseconds, many times what it costs to hand it to a thread
constexpr int64_t CHUNK = 1 << 17, VECTOR_CHUNK = 1 << 16;

struct Tile {
    int64_t m, n, k;
};

int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t multiple_of_16(int64_t x, int64_t low, int64_t high) { return std::clamp(x / 16 * 16, low, high); }

// The length of equal parts of x, none longer than `most`
int64_t part(int64_t x, int64_t most) { return multiple_of_16(ceil_divide(x, ceil_divide(x, most)) + 15, 16, most); }

Tile choose_tile(bool transpose_b, int64_t m, int64_t n, int64_t k) {
    constexpr int64_t UNPACKED = 1'000'000, LARGE = 2'000'000'000;
    if (m == 1 || n == 1) {
        const int64_t length = multiple_of_16(VECTOR_CHUNK / k, 16, VECTOR_CHUNK);
        return {std::min(m, length), std::min(n, length), k};
    }
    if (!unpacked_kernels || m * n * k > (transpose_b ? LARGE / 4 : LARGE) ||
        (transpose_b && k < std::min<int64_t>(m, 160))) {
        // Halves until there is work for all threads, but not so far that packing costs more than it gains: every
        // tile packs its operands again, so that eight tiles instead of four take a tenth longer on two cores.
        const int64_t least = unpacked_kernels ? 3'000'000 : 250'000;
        const int64_t wanted = unpacked_kernels || m * n * k > LARGE / 10 ? 8 : 4;
        Tile tile{part(m, 512), part(n, 1024), k};
        const auto enough = [&] { return ceil_divide(m, tile.m) * ceil_divide(n, tile.n) >= wanted; };
        while (tile.m * tile.n > 32 * 32 && tile.m * tile.n * k > least && !enough())
            if (tile.m < tile.n)
                tile.n = part(n, tile.n / 2);
            else
                tile.m = part(m, tile.m / 2);
        return tile;
    }
    if (transpose_b) {  // its kernel forms dot products along k: the longer the better
        const int64_t depth = std::min<int64_t>(k, 1280), rows = 32 * 32 * depth <= UNPACKED ? 32 : 16;
        return {rows, multiple_of_16(UNPACKED / (rows * depth), 16, 32 * 32 / rows), depth};
    }
    const int64_t depth = part(k, 320), rows = multiple_of_16(UNPACKED / (64 * depth), 48, 256);
    // Two or four equal tiles keep two threads busy; one or three do not.
    const int64_t count = ceil_divide(m, rows);
    const bool few = n <= 64 && m >= 64 && count <= 3 && m * n * k > 16 * CHUNK;
    return {few ? part(m, ceil_divide(m, count + count % 2)) : rows, 64, depth};
}

template <class T>
struct Product {
    bool transpose_a, transpose_b;
    int64_t m, n, k;
    const T* a;
    int64_t lda;
    const T* b;
    int64_t ldb;
    T* c;
    int64_t ldc;
    bool accumulate;
    const T* bias;

    // The tile of C whose first element is (i, j)
    void run(int64_t i, int64_t j, const Tile& tile) const {
        const int64_t rows = std::min(tile.m, m - i), columns = std::min(tile.n, n - j);
        T* to = c + i * ldc + j;
        bool add = accumulate;
        if (!add && (bias || m == 1 || n == 1 || k == 0)) {
            for (int64_t r = 0; r < rows; r++) {
                if (bias)
                    std::memcpy(to + r * ldc, bias + j, static_cast<size_t>(columns) * sizeof(T));
                else
                    std::fill_n(to + r * ldc, columns, T(0));
            }
            add = true;
        }
        for (int64_t p = 0; p < k; p += tile.k, add = true)
            multiply(int(rows), int(columns), int(std::min(tile.k, k - p)),
                     a + (transpose_a ? p * lda + i : i * lda + p), b + (transpose_b ? j * ldb + p : p * ldb + j), to,
                     T(add));
    }

    void multiply(int rows, int columns, int depth, const T* a, const T* b, T* c, T beta) const {
        const int lda = int(this->lda), ldb = int(this->ldb), ldc = int(this->ldc);
        const int op_a = transpose_a ? TRANSPOSED : PLAIN, op_b = transpose_b ? TRANSPOSED : PLAIN;
        if (n == 1)
            blas<T>.gemv(ROW_MAJOR, op_a, transpose_a ? depth : rows, transpose_a ? rows : depth, 1, a, lda, b,
                         transpose_b ? 1 : ldb, beta, c, ldc);
        else if (m == 1)
            blas<T>.gemv(ROW_MAJOR, transpose_b ? PLAIN : TRANSPOSED, transpose_b ? columns : depth,
                         transpose_b ? depth : columns, 1, b, ldb, a, transpose_a ? lda : 1, beta, c, 1);
        else
            blas<T>.gemm(ROW_MAJOR, op_a, op_b, rows, columns, depth, 1, a, lda, b, ldb, beta, c, ldc);
    }
};

template <class T>
void multiply_batch(const Product<T>& first, int64_t batch, int64_t stride_a, int64_t stride_b, int64_t stride_c) {
    const int64_t m = first.m, n = first.n, k = std::max<int64_t>(first.k, 1);
    if (m == 0 || n == 0) return;
    const Tile tile = choose_tile(first.transpose_b, m, n, k);
    const int64_t columns = ceil_divide(n, tile.n), tiles = ceil_divide(m, tile.m) * columns;
    const int64_t work = std::min(m, tile.m) * std::min(n, tile.n) * k;
    const int64_t grain = ceil_divide(m == 1 || n == 1 ? VECTOR_CHUNK : CHUNK, work);
    parallel_each(batch * tiles, grain, [&](int64_t t) {
        const int64_t item = t / tiles, i = t % tiles / columns * tile.m, j = t % columns * tile.n;
        Product<T> product = first;
        product.a += item * stride_a;
        product.b += item * stride_b;
        product.c += item * stride_c;
        product.run(i, j, tile);
    });
}

// ---- the library ----------------------------------------------------------------------------------------------------

template <class Function>
bool find(void* library, const char* symbol, Function*& function) {
    for (const char* prefix : {"scipy_", ""})
        if (void* address = find_symbol(library, (std::string(prefix) + symbol).c_str())) {
            function = reinterpret_cast<Function*>(address);
            return true;
        }
    return false;
}

// Opens the library without letting it start its own threads.
void* open_alone(const char* path) {
    constexpr const char* VARIABLE = "OPENBLAS_NUM_THREADS";
    const char* value = std::getenv(VARIABLE);
    const std::string before = value ? value : "";
    set_variable(VARIABLE, "1");
    void* library = open_library(path);
    set_variable(VARIABLE, value ? before.c_str() : nullptr);
    return library;
}

}  // namespace

bool load_blas(const char* path, char* message, int size) {
    void* library = open_alone(path);
    if (!library) {
        std::snprintf(message, size_t(size), "%s", library_error(path).c_str());
        return false;
    }
    void (*set_num_threads)(int) = nullptr;
    char* (*config)() = nullptr;
    char* (*core)() = nullptr;
    if (!find(library, "cblas_sgemm", blas<float>.gemm) || !find(library, "cblas_dgemm", blas<double>.gemm) ||
        !find(library, "cblas_sgemv", blas<float>.gemv) || !find(library, "cblas_dgemv", blas<double>.gemv) ||
        !find(library, "openblas_set_num_threads", set_num_threads) || !find(library, "openblas_get_config", config) ||
        !find(library, "openblas_get_corename", core)) {
        std::snprintf(message, size_t(size), "%s is not OpenBLAS", path);
        return false;
    }
    set_num_threads(1);
    const std::string processor = core();
    unpacked_kernels = processor == "SkylakeX" || processor == "Cooperlake" || processor == "SapphireRapids";
    char library_name[32] = "OpenBLAS", version[32] = "";
    std::sscanf(config(), "%31s %31s", library_name, version);
    std::snprintf(name, sizeof name, "%s %s %s", library_name, version, processor.c_str());
    return true;
}

const char* blas_name() { return name; }

void gemm(DType dtype, bool transpose_a, bool transpose_b, int64_t batch, int64_t m, int64_t n, int64_t k,
          const void* a, int64_t lda, int64_t stride_a, const void* b, int64_t ldb, int64_t stride_b, void* c,
          int64_t ldc, int64_t stride_c, double beta, const void* bias) {
    // A batch that shares B is one tall product if its matrices follow each other.
    if (batch > 1 && stride_b == 0 && !transpose_a && stride_a == m * lda && stride_c == m * ldc) {
        m *= batch;
        batch = 1;
    }
    const auto run = [&]<class T>(T) {
        multiply_batch<T>({transpose_a, transpose_b, m, n, k, static_cast<const T*>(a), lda, static_cast<const T*>(b),
                           ldb, static_cast<T*>(c), ldc, beta != 0, static_cast<const T*>(bias)},
                          batch, stride_a, stride_b, stride_c);
    };
    if (dtype == FLOAT32)
        run(float{});
    else
        run(double{});
}

}  // namespace mg
