// Chooses, once, the table of kernels for the processor this runs on.
#include <cstdlib>
#include <cstring>

#include "isa.hpp"

// The build defines which ones exist besides the baseline: MG_HAS_AVX2, MG_HAS_AVX512.
#if MG_HAS_AVX2
MG_DECLARE_ISA(avx2)
#endif
#if MG_HAS_AVX512
MG_DECLARE_ISA(avx512)
#endif

namespace mg {
namespace {

struct Isa {
    const char* name;
    bool supported;
    void (*fill)(Kernels&);
};

#define MG_FILL_FILE(file) fill_##file(table);
#define MG_FILL(isa)             \
    [](Kernels& table) {         \
        using namespace mg::isa; \
        MG_FILES(MG_FILL_FILE)   \
    }

// The best table that the processor and the system support, or the one that MINIGRAD_ISA names.
const Kernels* choose() {
#if MG_HAS_AVX2
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
#endif
#if MG_HAS_AVX512
    const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    const Isa isas[] = {
        {"baseline", true, MG_FILL(baseline)},
#if MG_HAS_AVX2
        {"avx2", avx2, MG_FILL(avx2)},
#endif
#if MG_HAS_AVX512
        {"avx512", avx512, MG_FILL(avx512)},
#endif
    };
    const char* wanted = std::getenv("MINIGRAD_ISA");
    const Isa* best = nullptr;
    const Isa* named = nullptr;
    for (const Isa& isa : isas) {
        if (!isa.supported) continue;
        best = &isa;
        if (wanted && std::strcmp(wanted, isa.name) == 0) named = &isa;
    }
    if (named) best = named;
    static Kernels table = {};
    table.isa = best->name;
    best->fill(table);
    return &table;
}

}  // namespace

const Kernels* const kernels = choose();

}  // namespace mg
