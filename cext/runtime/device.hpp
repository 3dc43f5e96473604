// Kernels and matrix products of a GPU: how they are started, and captured to be started again.
//
// The functions of the CUDA driver and of cuBLAS are called by their addresses, so that this compiles without CUDA. The
// kernels of a captured step are started once more on a stream that CUDA captures, and so become a CUDA Graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "kernel_list.hpp"

namespace mg {

// CUlaunchAttribute and CUlaunchConfig
struct LaunchAttribute {
    int id;
    union alignas(8) {
        char pad[64];
        unsigned cluster[3];
        int cooperative;
    };
};
struct LaunchConfiguration {
    unsigned grid[3], block[3], shared;
    void* stream;
    LaunchAttribute* attributes;
    unsigned count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfiguration) == 56);

struct Driver {
    int (*launch_kernel)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                         void* stream, void** parameters, void** extra);
    int (*launch_kernel_ex)(const LaunchConfiguration*, void* function, void** parameters, void** extra);
    int (*set_attribute)(void* function, int attribute, int value);
    int (*count_blocks)(int* count, void* function, int block, size_t shared);
    int (*count_clusters)(int* count, void* function, const LaunchConfiguration*);
    int (*get_device)(int* device);
    int (*get_error_name)(int error, const char** name);
};
inline Driver driver;

struct Blas {
    int (*create)(void** handle);
    int (*set_stream)(void* handle, void* stream);
    int (*set_workspace)(void* handle, void* workspace, size_t bytes);
    int (*set_math_mode)(void* handle, int mode);
    // Batched products in float32 and in float64. The function for single matrices divides long sums among blocks: it
    // took longer on an H200, and its bits may depend on the workspace, which differs between a step and its replay.
    void* products[2];
    void* typed_product;  // batched, too, with the types of all operands and of the arithmetic
};
inline Blas blas;

// The stream on which this thread starts captured kernels again, and the first errors of the driver and of cuBLAS.
struct Target {
    void *stream, *handle, *workspace;
    size_t bytes;
    int driver_error, blas_error;
};
inline thread_local Target target;

// The blocks of a launch, and what they have in common.
struct Blocks {
    unsigned grid, block;
    unsigned shared;   // bytes of dynamic shared memory of each
    unsigned cluster;  // blocks of a cluster; 0 without clusters
    int cooperative;   // whether all run at the same time
};

// A kernel with its arguments.
struct KernelStart {
    void* function;
    Blocks blocks;
    void** parameters;  // the address of each

    int on(void* stream) const {
        const Blocks& b = blocks;
        if (!b.cluster && !b.cooperative)
            return driver.launch_kernel(function, b.grid, 1, 1, b.block, 1, 1, b.shared, stream, parameters, nullptr);
        LaunchAttribute one = attribute();
        const LaunchConfiguration launch = {{b.grid, 1, 1}, {b.block, 1, 1}, b.shared, stream, &one, 1};
        return driver.launch_kernel_ex(&launch, function, parameters, nullptr);
    }

    // How many clusters run at the same time, or how many blocks on one multiprocessor.
    int count_resident(int* count) const {
        if (!blocks.cluster) return driver.count_blocks(count, function, static_cast<int>(blocks.block), blocks.shared);
        LaunchAttribute one = attribute();
        const LaunchConfiguration launch = {
            {blocks.cluster, 1, 1}, {blocks.block, 1, 1}, blocks.shared, nullptr, &one, 1};
        return driver.count_clusters(count, function, &launch);
    }

  private:
    LaunchAttribute attribute() const {
        LaunchAttribute one = {};
        if (blocks.cluster) {
            one.id = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            one.cluster[0] = blocks.cluster;
            one.cluster[1] = one.cluster[2] = 1;
        } else {
            one.id = 2;  // CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            one.cooperative = 1;
        }
        return one;
    }
};

// Adds a kernel whose parameters are at these places among `count` words.
inline void capture_kernel(KernelList& list, int device, int64_t work, const KernelStart& start, int parameters,
                           const int* places, const int64_t* words, size_t count) {
    const size_t before = sizeof(KernelStart) + static_cast<size_t>(parameters) * sizeof(void*);
    char* room = static_cast<char*>(list.allocate(before + count * sizeof *words));
    auto* addresses = reinterpret_cast<void**>(room + sizeof(KernelStart));
    auto* copies = reinterpret_cast<int64_t*>(room + before);
    std::memcpy(copies, words, count * sizeof *words);
    for (int i = 0; i < parameters; i++) addresses[i] = copies + places[i];
    for (size_t i = 0; i < count; i++) list.note(words[i]);
    const auto run = [](const void* closure) {
        const int error = static_cast<const KernelStart*>(closure)->on(target.stream);
        if (target.driver_error == 0) target.driver_error = error;
    };
    list.append(device, work, run, new (room) KernelStart{start.function, start.blocks, addresses});
}

// out = a b + beta out for batches of column-major matrices, as cuBLAS takes them.
struct Product {
    int is_double, mode;  // 0; 3: TF32; or BFLOAT16
    int transposed_a, transposed_b;
    int m, n, k, batch;
    int leading_a, leading_b, leading_out;
    int64_t a, b, out;  // addresses
    int64_t stride_a, stride_b, stride_out;
    double beta;

    // Uses the given workspace, or without one the workspace that cuBLAS keeps for the stream. Threads share a handle.
    int run(void* handle, void* stream, void* workspace = nullptr, size_t bytes = 0) const {
        static std::mutex mutex;
        std::lock_guard lock(mutex);
        int error = blas.set_stream(handle, stream);
        if (error == 0 && workspace) error = blas.set_workspace(handle, workspace, bytes);
        if (mode == BFLOAT16) return error ? error : call_rounded(handle);
        if (error == 0) error = blas.set_math_mode(handle, mode);
        return error ? error : is_double ? call<double>(handle) : call<float>(handle);
    }

  private:
    enum { FLOAT32_DATA = 0, BFLOAT16 = 75, DEFAULT_ALGORITHM = -1 };  // CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_16BF

    int call_rounded(void* handle) const {
        using Function =
            int (*)(void*, int, int, int, int, int, const void*, const void*, int, int, long long, const void*, int,
                    int, long long, const void*, void*, int, int, long long, int, int, int);
        const float one = 1, other = static_cast<float>(beta);
        return reinterpret_cast<Function>(blas.typed_product)(
            handle, transposed_a, transposed_b, m, n, k, &one, reinterpret_cast<const void*>(a), FLOAT32_DATA,
            leading_a, stride_a, reinterpret_cast<const void*>(b), FLOAT32_DATA, leading_b, stride_b, &other,
            reinterpret_cast<void*>(out), FLOAT32_DATA, leading_out, stride_out, batch, BFLOAT16, DEFAULT_ALGORITHM);
    }

    template <class T>
    int call(void* handle) const {
        using Function = int (*)(void*, int, int, int, int, int, const T*, const T*, int, long long, const T*, int,
                                 long long, const T*, T*, int, long long, int);
        const T one = 1, other = static_cast<T>(beta);
        return reinterpret_cast<Function>(blas.products[is_double])(
            handle, transposed_a, transposed_b, m, n, k, &one, reinterpret_cast<const T*>(a), leading_a, stride_a,
            reinterpret_cast<const T*>(b), leading_b, stride_b, &other, reinterpret_cast<T*>(out), leading_out,
            stride_out, batch);
    }
};

inline void capture_product(KernelList& list, int device, const Product& product) {
    for (const int64_t address : {product.a, product.b, product.out}) list.note(address);
    const auto run = [](const void* closure) {
        Target& to = target;
        const int error = static_cast<const Product*>(closure)->run(to.handle, to.stream, to.workspace, to.bytes);
        if (to.blas_error == 0) to.blas_error = error;
    };
    const int64_t work = int64_t{product.batch} * product.m * product.n;
    list.append(device, work, run, new (list.allocate(sizeof product)) Product(product));
    list.with_products.insert(device);
}

}  // namespace mg
