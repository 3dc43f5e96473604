// Lets one kernel file be compiled once per instruction set.
//
// The build gives MG_ISA a name; everything that may be inlined lives in namespace mg::MG_ISA. An
// inline function outside of it would be emitted by several objects under one name, and the linker
// could keep the AVX-512 copy for a processor that has none. For the same reason kernels use no
// templates of the standard library.
#pragma once

#include "kernels.hpp"

#ifndef MG_ISA
#define MG_ISA baseline
#endif

#define MG_INLINE inline __attribute__((always_inline))

// Each file of this folder fills its part of the table.
#define MG_DECLARE_ISA(isa)          \
    namespace mg::isa {              \
    void fill_elementwise(Kernels&); \
    void fill_reduce(Kernels&);      \
    void fill_norm(Kernels&);        \
    void fill_batch_norm(Kernels&);  \
    void fill_conv(Kernels&);        \
    void fill_pooling(Kernels&);     \
    void fill_recurrent(Kernels&);   \
    void fill_softmax(Kernels&);     \
    void fill_attention(Kernels&);   \
    void fill_scan(Kernels&);        \
    void fill_index(Kernels&);       \
    void fill_order(Kernels&);       \
    void fill_optimizer(Kernels&);   \
    void fill_random(Kernels&);      \
    }

MG_DECLARE_ISA(MG_ISA)
