// Emulates the functions of the CUDA driver that minigrad calls, under the driver's name, libcuda.so.1. Each of them
// calls a function of the emulated CuPy, which sets these pointers.

#include <thread>

extern "C" {
int (*launch_kernel)(void* kernel, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                     void* stream, void** arguments);
int (*get_device)(int* device);
int (*get_error_name)(int error, const char** name);

int cuLaunchKernel(void* kernel, unsigned x, unsigned y, unsigned z, unsigned width, unsigned height, unsigned depth,
                   unsigned shared, void* stream, void** arguments, void** extra) {
    if (shared || extra) return 1;
    // In another thread, as a KeyboardInterrupt is raised in Python code of the main thread: here it would be lost.
    int result = 1;
    std::thread([&] { result = launch_kernel(kernel, x, y, z, width, height, depth, stream, arguments); }).join();
    return result;
}
int cuCtxGetDevice(int* device) { return get_device(device); }
int cuGetErrorName(int error, const char** name) { return get_error_name(error, name); }

// There is no GPU for those who look for one.
int cuInit(unsigned) { return 100; }
}
