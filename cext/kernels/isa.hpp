// Lets one kernel file be compiled once per instruction set.
//
// The build gives MG_ISA a name; everything that may be inlined lives in namespace mg::MG_ISA. An
// inline function outside of it would be emitted by several objects under one name, and the linker
// could keep the AVX-512 copy for a processor that has none. For the same reason kernels use no
// templates of the standard library.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels.hpp"

#ifndef MG_ISA
#define MG_ISA baseline
#endif

#define MG_INLINE inline __attribute__((always_inline))

// The files of kernels, each of which has a function that fills its part of the table.
#define MG_FILES(f)                                                                                                \
    f(elementwise) f(reduce) f(norm) f(batch_norm) f(conv) f(pooling) f(recurrent) f(softmax) f(attention) f(scan) \
        f(index) f(order) f(optimizer) f(random) f(bfloat16)
#define MG_DECLARE(file) void fill_##file(Kernels&);
#define MG_DECLARE_ISA(isa) \
    namespace mg::isa {     \
    MG_FILES(MG_DECLARE)    \
    }

MG_DECLARE_ISA(MG_ISA)

namespace mg::MG_ISA {

// An argument of type void*, which becomes the pointer that a kernel takes
template <class V>
struct Address {
    V* p;

    template <class T>
    MG_INLINE operator T*() const {
        return static_cast<T*>(p);
    }
};
MG_INLINE Address<void> typed(void* p) { return {p}; }
MG_INLINE Address<const void> typed(const void* p) { return {p}; }
template <class P>
MG_INLINE const P& typed(const P& p) {
    return p;
}

// Puts a kernel into the table, where an array of any dtype is a void*.
template <auto kernel, class R, class... P>
void put_kernel(R (*&place)(P...)) {
    place = [](P... p) { return kernel(typed(p)...); };
}
#define MG_FLOATS(name) (put_kernel<name<float>>(k.name[0]), put_kernel<name<double>>(k.name[1]))
#include "kernels/put.inc"  // MG_PUT_FILE for each file: all of its kernels but those of DTYPES

constexpr int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
MG_INLINE T* offset(T* p, int64_t n) {
    return p ? p + n : nullptr;
}
template <class T>
MG_INLINE void copy(int64_t n, const T* from, T* to) {
    __builtin_memcpy(to, from, sizeof(T) * static_cast<size_t>(n));
}
template <class T>
MG_INLINE void clear(int64_t n, T* to) {
    __builtin_memset(to, 0, sizeof(T) * static_cast<size_t>(n));
}

// Unsigned integers by size, and the type in which a T is added and multiplied: integers wrap around.
template <int bytes>
struct WordOf {
    using type = uint8_t;
};
template <>
struct WordOf<4> {
    using type = uint32_t;
};
template <>
struct WordOf<8> {
    using type = uint64_t;
};
template <class T>
using Word = typename WordOf<sizeof(T)>::type;
template <class T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, Word<T>, T>;

}  // namespace mg::MG_ISA
