"""Measure the processor's part of a training step on a GPU, in microseconds; no GPU is needed.

The driver, CuPy and cuBLAS are replaced by functions that return immediately. What is left is minigrad's own time: on a
GPU, that of the driver and of cuBLAS is added, and a step takes as long as the slower of the processor and the GPU.
"""

import argparse
import ctypes
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import workloads

DRIVER = """
extern "C" {
long launches, products;
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**) {
    return ++launches == 0;
}
int cuLaunchKernelEx(void*, void*, void**, void**) { return ++launches == 0; }
int cuFuncSetAttribute(void*, int, int) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* count, void*, int, unsigned long) { return *count = 1, 0; }
int cuOccupancyMaxActiveClusters(int* count, void*, void*) { return *count = 1, 0; }
int cuCtxGetDevice(int* device) { return *device = 0; }
int cuGetErrorName(int, const char**) { return 1; }
long get_stream_ptr(int) { return 0; }
int cublasCreate_v2(void** handle) { return *handle = &launches, 0; }
int cublasSetStream_v2(void*, void*) { return 0; }
int cublasSetWorkspace_v2(void*, void*, unsigned long) { return 0; }
int cublasSetMathMode(void*, int) { return 0; }
int cublasSgemmStridedBatched() { return ++products == 0; }
int cublasDgemmStridedBatched() { return ++products == 0; }
int cublasGemmStridedBatchedEx() { return ++products == 0; }
}
"""


def build_driver():
    """Compile and load a driver and a cuBLAS that do nothing; return both."""
    libraries = []
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "driver.cpp")
        source.write_text(DRIVER)
        for name in ("libcuda.so.1", "libcublas.so.12"):
            made = Path(folder, name)
            subprocess.run(["g++", "-shared", "-fPIC", f"-Wl,-soname,{name}", source, "-o", made], check=True)
            libraries.append(ctypes.CDLL(str(made)))
    return libraries


class Stub:
    """An object of CuPy: a context, a stream, a module, a function or a graph."""

    ptr = 0
    compute_capability = "90"

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, *_):
        pass

    def get_function(self, name):
        return self

    def load(self, image):
        pass

    def end_capture(self):
        return Stub()

    synchronize = record = begin_capture = launch = __call__


class Block:
    """Memory, at an address that nobody reads."""

    def __init__(self, address):
        self.ptr = address


def install(driver):
    """Make `cupy` a module over that driver."""
    addresses = itertools.count(1 << 40, 1 << 30)
    pinned = ctypes.create_string_buffer(1 << 25)
    stream = Stub()
    cuda = types.ModuleType("cupy.cuda")
    cuda.Device, cuda.Event, cuda.Stream, cuda.get_current_stream = Stub, Stub, Stub, lambda device_id=-1: stream
    cuda.alloc = lambda size: Block(next(addresses))
    cuda.alloc_pinned_memory = lambda size: Block(ctypes.addressof(pinned))
    cuda.memory = types.SimpleNamespace(OutOfMemoryError=MemoryError)
    cuda.runtime = types.SimpleNamespace(
        runtimeGetVersion=lambda: 12000, getDeviceCount=lambda: 1,
        getDeviceProperties=lambda index: {"totalGlobalMem": 1 << 36},
        deviceGetAttribute=lambda attribute, index: {16: 132, 97: 227 << 10}[attribute],
        setDevice=lambda index: None, deviceSynchronize=lambda: None, memcpyAsync=lambda *_: None,
    )  # fmt: skip
    cupy = types.ModuleType("cupy")
    cupy.cuda, cupy.__version__ = cuda, "a stub"
    cuda.function = types.SimpleNamespace(Module=Stub)
    cuda.compiler = types.SimpleNamespace(compile_using_nvrtc=lambda code, options: (b"", {}))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p] * 3
    streams = types.ModuleType("cupy_backends.cuda.stream")
    address = ctypes.cast(driver.get_stream_ptr, ctypes.c_void_p).value
    install.name = ctypes.create_string_buffer(b"intptr_t (int)")  # the capsule does not copy it
    streams.__pyx_capi__ = {"get_stream_ptr": make(address, ctypes.addressof(install.name), None)}
    cublas = types.ModuleType("cupy_backends.cuda.libs.cublas")
    libs, backends = types.ModuleType("cupy_backends.cuda.libs"), types.ModuleType("cupy_backends")
    libs.cublas, libs.nvrtc = cublas, types.SimpleNamespace(getVersion=lambda: (0, 0))
    os.environ["MINIGRAD_CACHE_DIR"] = os.devnull  # nothing is compiled, so nothing is kept
    for module in (cupy, cuda, streams, cublas, libs, backends, types.ModuleType("cupy_backends.cuda")):
        sys.modules[module.__name__] = module
    sys.modules["cupy.cuda.runtime"] = cuda.runtime


def median(function, rounds=9, least=0.05):
    """Return the median time of a call in microseconds."""
    function()
    once = time.perf_counter()
    function()
    calls = max(1, int(least / (time.perf_counter() - once)))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["mlp256_b128", "ln_fwd_b128"], help="workloads of workloads.py")
    args = parser.parse_args()
    driver, blas = build_driver()
    install(driver)
    launches, products = ctypes.c_long.in_dll(driver, "launches"), ctypes.c_long.in_dll(blas, "products")

    import minigrad as mg
    from minigrad import cuda

    allocate, allocations = cuda.allocate, []
    for name in args.names:
        work = workloads.parse(name, "cuda")
        step, captured = workloads.minigrad_step(work, 1), workloads.captured_step(work, 1)
        cuda.Gpus.allocate = staticmethod(allocate)
        for _ in range(3):
            captured()
        took, took_captured = median(step), median(captured)
        cuda.Gpus.allocate = staticmethod(lambda *given: (allocations.append(1), allocate(*given))[1])
        before = launches.value, products.value, len(allocations)
        step()
        after = launches.value, products.value, len(allocations)
        counts = [b - a for a, b in zip(before, after, strict=True)]
        print(f"{name:16} {took:8.1f}  {counts[0]} launches, {counts[1]} products, {counts[2]} allocations")
        print(f"  captured       {took_captured:8.1f}")
    cuda.Gpus.allocate = staticmethod(allocate)
    from minigrad.cuda.backend import CUDA
    from minigrad.cuda.launch import launch
    from minigrad.optim.adam import RULE

    gpu = CUDA(0)
    numbers = 1e-2, 31.6, 1e-8, 0.9, 0.999, 0.1, 0.001, 0.0, 1.0, False  # as in the first step of Adam
    x, y, z = (mg.empty((256, 256), device="cuda") for _ in range(3))
    size = x.size
    unary = 0, False, size, size, 1, 3, (size,), (7,)
    parameters, grads, *moments = [[mg.empty((256, 256), device="cuda") for _ in range(10)] for _ in range(4)]
    for name, call in {
        "launch": lambda: launch("elementwise.cu", "unary", "float32", 0, size, *unary, x, y),
        "allocation": lambda: allocate(1 << 18, 0),
        "product": lambda: gpu.gemm(x, y, z, 0.0, None),
        "Adam, 10 tensors": lambda: gpu.optimize(RULE, parameters, grads, [*moments, None], numbers),
    }.items():
        print(f"{name:16} {median(call):8.2f}")


if __name__ == "__main__":
    main()
