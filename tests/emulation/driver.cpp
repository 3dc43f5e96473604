// Emulates the functions of the CUDA driver that minigrad calls, under the driver's name, libcuda.so.1. Each of them
// calls a function of the emulated CuPy, which sets these pointers.

#include <cstddef>
#include <thread>

namespace {
// As the driver declares them
struct Attribute {
    int id;
    union alignas(8) {
        char pad[64];
        unsigned cluster[3];
        int cooperative;
    };
};
struct Configuration {
    unsigned grid[3], block[3], shared;
    void* stream;
    const Attribute* attributes;
    unsigned count;
};
enum { COOPERATIVE = 2, CLUSTER_DIMENSION = 4 };
}  // namespace

extern "C" {
int (*launch_kernel)(void* kernel, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                     unsigned shared, unsigned cluster, int cooperative, void* stream, void** arguments);
int (*allow_shared)(void* kernel, int size);
int (*count_resident)(int* count, void* kernel, unsigned threads, size_t shared, unsigned cluster);
int (*get_device)(int* device);
int (*get_error_name)(int error, const char** name);

int cuLaunchKernelEx(const Configuration* launch, void* kernel, void** arguments, void** extra) {
    unsigned cluster = 0;
    int cooperative = 0;
    for (unsigned i = 0; i < launch->count; i++) {
        const Attribute& one = launch->attributes[i];
        if (one.id == CLUSTER_DIMENSION && one.cluster[1] == 1 && one.cluster[2] == 1)
            cluster = one.cluster[0];
        else if (one.id == COOPERATIVE)
            cooperative = one.cooperative;
        else
            return 1;
    }
    if (extra) return 1;
    // In another thread, as a KeyboardInterrupt is raised in Python code of the main thread: here it would be lost.
    int result = 1;
    const auto [x, y, z] = launch->grid;
    const auto [width, height, depth] = launch->block;
    std::thread([&, x = x, y = y, z = z, width = width, height = height, depth = depth] {
        result = launch_kernel(kernel, x, y, z, width, height, depth, launch->shared, cluster, cooperative,
                               launch->stream, arguments);
    }).join();
    return result;
}
int cuLaunchKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                   unsigned shared, void* stream, void** arguments, void** extra) {
    const Configuration one{{x, y, z}, {width, height, depth}, shared, stream, nullptr, 0};
    return cuLaunchKernelEx(&one, kernel, arguments, extra);
}
int cuFuncSetAttribute(void* kernel, int attribute, int value) {
    return attribute == 8 ? allow_shared(kernel, value) : 1;  // the most bytes of dynamic shared memory
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void* kernel, int threads, size_t shared) {
    return count_resident(count, kernel, unsigned(threads), shared, 0);
}
int cuOccupancyMaxActiveClusters(int* count, void* kernel, const Configuration* launch) {
    if (launch->count != 1 || launch->attributes->id != CLUSTER_DIMENSION) return 1;
    return count_resident(count, kernel, launch->block[0], launch->shared, launch->attributes->cluster[0]);
}
int cuCtxGetDevice(int* device) { return get_device(device); }
int cuGetErrorName(int error, const char** name) { return get_error_name(error, name); }

// There is no GPU for those who look for one.
int cuInit(unsigned) { return 100; }
}
