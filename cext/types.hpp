// The base layer: data types, and the signatures of the kernels that the runtime launches.
#pragma once

#include <cstdint>

namespace mg {

enum DType { BOOL, UINT8, INT32, INT64, FLOAT32, FLOAT64, DTYPES };
constexpr int FLOATS = 2;

// One-dimensional inner loop over n elements. data = {inputs..., output}, strides in bytes (may be
// 0 or negative); the output may be one of the inputs, element for element.
using Loop = void (*)(int64_t n, char* const* data, const int64_t* strides);

// The middle axis of x[outer, n, inner] reduced to y[outer, inner].
using Reduction = void (*)(int64_t outer, int64_t n, int64_t inner, const void* x, void* y);

// n tensors of sizes[i] elements: parameters p, gradients g, up to three state arrays.
struct Tensors {
    int64_t count;
    const int64_t* sizes;
    void* const* p;
    const void* const* g;
    void* const* s1;
    void* const* s2;
    void* const* s3;
};

}  // namespace mg
