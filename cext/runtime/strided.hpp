// Elementwise work over arrays with any strides: an n-dimensional walk around one-dimensional loops.
#pragma once

#include <cstdint>

#include "types.hpp"

namespace mg {

constexpr int MAX_NDIM = 8;
constexpr int MAX_OPERANDS = 4;

struct Strided {
    int ndim, operands;  // axes left after merging; inputs and the output
    int64_t count;       // elements
    int64_t extent[MAX_NDIM];
    int64_t step[MAX_OPERANDS][MAX_NDIM];  // bytes
    int64_t size[MAX_OPERANDS];            // bytes of an element
    char* data[MAX_OPERANDS];
};

// Merges axes that all operands cross with one stride, drops axes of length one, and orders the rest by the
// output's strides, so that the innermost loop is as dense as possible; if it is very short, the next loop becomes the
// innermost.
void simplify(Strided& s);

// Runs the loop over all elements, split over the pool.
void run(Loop loop, Strided s);

// The same for a loop with one input, the same value for all elements: `bytes` of it, at most eight.
void run_filling(Loop loop, Strided s, uint64_t value);

// The same for clip, whose limits are the second and third operand.
void run_limited(Loop loop, Strided s, uint64_t low, uint64_t high);

// The same where every operand is contiguous (step[k] bytes from element to element, 0: one value for all).
struct Flat {
    int operands;
    int64_t count;
    int64_t step[MAX_OPERANDS];
    char* data[MAX_OPERANDS];
};
void run_flat(Loop loop, Flat f);

}  // namespace mg
