// Matrix products: OpenBLAS, single-threaded, inside chunks of our own pool.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace mg {

// Loads the library at `path` and holds it to one thread; false (and a message) if that fails.
bool load_blas(const char* path, char* message, int size);
const char* blas_name();  // "OpenBLAS 0.3.34 SkylakeX", or "not loaded"

// C[batch, m, n] = op(A)[batch, m, k] op(B)[batch, k, n] + beta C (+ bias[n] on every row, if not null)
// Row-major; lda, ldb, ldc are the leading dimensions as stored, stride_* the elements from one matrix of the
// batch to the next (0: shared). beta is 0 or 1; with a bias it is 0.
void gemm(DType dtype, bool transpose_a, bool transpose_b, int64_t batch, int64_t m, int64_t n, int64_t k,
          const void* a, int64_t lda, int64_t stride_a, const void* b, int64_t ldb, int64_t stride_b, void* c,
          int64_t ldc, int64_t stride_c, double beta, const void* bias);

}  // namespace mg
