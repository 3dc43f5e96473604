"""Kernels, products and graphs on a GPU, by calls of the driver and of cuBLAS.

CuPy compiles and loads the kernels; `minigrad.cuda` is written in Python on top of both. The driver's functions are
called by their addresses, so that this module is built without CUDA.
"""
cimport cython
from cpython.long cimport PyLong_AsLongLong, PyLong_AsUnsignedLongLongMask
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t, intptr_t

import ctypes

from minigrad.engine.memory.array cimport Array, Buffer, shape_of
from minigrad.engine.memory.calls cimport ACTIVE, ActiveCalls, KernelList, belongs_here, is_capturing, source_line
from minigrad.engine.memory.dtype cimport bfloat16_allowed, FLOAT32, code_of, dtype_of, itemsize, tf32_allowed
from minigrad.engine.memory.pool cimport gpus
from minigrad.engine.memory.shapes cimport MAX_NDIM
from minigrad.engine.memory.calls import CaptureError

cdef extern from "runtime/active_calls.hpp" namespace "mg":
    void point_to(ActiveCalls* state)

cdef extern from "runtime/device.hpp" namespace "mg" nogil:
    ctypedef int (*LaunchKernel "decltype(mg::Driver::launch_kernel)")(void*)
    ctypedef int (*LaunchKernelEx "decltype(mg::Driver::launch_kernel_ex)")(void*)
    ctypedef int (*SetAttribute "decltype(mg::Driver::set_attribute)")(void*, int, int)
    ctypedef int (*CountBlocks "decltype(mg::Driver::count_blocks)")(int*)
    ctypedef int (*CountClusters "decltype(mg::Driver::count_clusters)")(int*)
    ctypedef int (*GetDevice "decltype(mg::Driver::get_device)")(int*)
    ctypedef int (*GetErrorName "decltype(mg::Driver::get_error_name)")(int, const char**)
    ctypedef int (*Create "decltype(mg::Blas::create)")(void**)
    ctypedef int (*SetStream "decltype(mg::Blas::set_stream)")(void*, void*)
    ctypedef int (*SetWorkspace "decltype(mg::Blas::set_workspace)")(void*, void*, size_t)
    ctypedef int (*SetMathMode "decltype(mg::Blas::set_math_mode)")(void*, int)
    cppclass Driver:
        LaunchKernel launch_kernel
        LaunchKernelEx launch_kernel_ex
        SetAttribute set_attribute
        CountBlocks count_blocks
        CountClusters count_clusters
        GetDevice get_device
        GetErrorName get_error_name
    cppclass Blas:
        Create create
        SetStream set_stream
        SetWorkspace set_workspace
        SetMathMode set_math_mode
        void* products[2]
        void* typed_product
    cppclass Target:
        void* stream
        void* handle
        void* workspace
        size_t bytes
        int driver_error, blas_error
    cppclass Blocks:
        unsigned int grid, block, shared, cluster
        int cooperative
    cppclass KernelStart:
        void* function
        Blocks blocks
        void** parameters
        int on(void* stream)
        int count_resident(int* count)
    cppclass Product:
        int is_double, mode, transposed_a, transposed_b, m, n, k, batch, leading_a, leading_b, leading_out
        int64_t a, b, out, stride_a, stride_b, stride_out
        double beta
        int run(void* handle, void* stream)
    Driver driver
    Blas blas
    Target target
    void capture_kernel "mg::capture_kernel"(KernelList&, int device, int64_t work, const KernelStart&, int parameters,
                                             const int* places, const int64_t* words, size_t count)
    void capture_product "mg::capture_product"(KernelList&, int device, const Product&)

cdef enum:
    WARP_ = 32
    BLOCK_ = 256
    MOST_TENSORS_ = 64
    PARAMETERS = 64         # the most parameters of a kernel
    WORDS = 512             # the most words of eight bytes: the parameters of a kernel are limited to 4096 bytes
    LISTS = 5
    OPERANDS = 4            # the most arrays of an element-wise kernel, with the result
    MOST_LAYOUTS = 1 << 12
    ALLOWED = 48 << 10      # bytes of dynamic shared memory that the driver allows unasked
    MOST_SHARED = 8         # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

point_to(ACTIVE)

WARP: int = WARP_
BLOCK: int = BLOCK_                 # the default number of threads of a block
MOST_TENSORS: int = MOST_TENSORS_   # the most tensors of a list
MOST_BLOCKS: int = 1 << 16          # the most blocks of a grid; kernels loop over any further work
cdef int64_t most_blocks = MOST_BLOCKS


# ── the driver ────────────────────────────────────────────────────────────────────────────────────

ctypedef intptr_t (*GetStream)(int device) except *

cdef GetStream get_stream = NULL


cdef size_t address(object function):
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def connect(cuda_driver: Any, cublas: Any, cuda: Any, stream: Any) -> None:
    """Set the functions that this module calls.

    Parameters
    ----------
    cuda_driver, cublas : ctypes.CDLL
        The CUDA driver, and cuBLAS.
    cuda : module
        `cupy.cuda`.
    stream : capsule or None
        CuPy's C function for the address of a GPU's current stream; its Python function, which makes an object, if
        there is none.
    """
    global get_stream, cupy_cuda
    driver.launch_kernel = <LaunchKernel>address(cuda_driver.cuLaunchKernel)
    driver.set_attribute = <SetAttribute>address(cuda_driver.cuFuncSetAttribute)
    driver.count_blocks = <CountBlocks>address(cuda_driver.cuOccupancyMaxActiveBlocksPerMultiprocessor)
    # since CUDA 11.8
    driver.launch_kernel_ex = <LaunchKernelEx>address(getattr(cuda_driver, "cuLaunchKernelEx", None))
    driver.count_clusters = <CountClusters>address(getattr(cuda_driver, "cuOccupancyMaxActiveClusters", None))
    driver.get_device = <GetDevice>address(cuda_driver.cuCtxGetDevice)
    driver.get_error_name = <GetErrorName>address(cuda_driver.cuGetErrorName)
    blas.create = <Create>address(cublas.cublasCreate_v2)
    blas.set_stream = <SetStream>address(cublas.cublasSetStream_v2)
    blas.set_workspace = <SetWorkspace>address(cublas.cublasSetWorkspace_v2)
    blas.set_math_mode = <SetMathMode>address(cublas.cublasSetMathMode)
    blas.products[0] = <void*>address(cublas.cublasSgemmStridedBatched)
    blas.products[1] = <void*>address(cublas.cublasDgemmStridedBatched)
    blas.typed_product = <void*>address(cublas.cublasGemmStridedBatchedEx)
    get_stream = NULL
    if stream is not None and PyCapsule_IsValid(stream, "intptr_t (int)"):
        get_stream = <GetStream>PyCapsule_GetPointer(stream, "intptr_t (int)")
    cupy_cuda = cuda


cdef intptr_t current_stream(int device) except *:
    """The address of CuPy's current stream of a GPU in this thread."""
    return get_stream(device) if get_stream != NULL else cupy_cuda.get_current_stream(device).ptr


cdef bint is_current(int device) noexcept:
    """Whether calls of the driver concern this GPU: a thread has no GPU before it has called CUDA."""
    cdef int current = -1
    return driver.get_device != NULL and driver.get_device(&current) == 0 and current == device


@cython.final
@cython.binding(False)
cdef class Current:
    """``with Current(device)``: the driver's calls concern this GPU, also in a thread that has not called CUDA yet."""
    def __cinit__(self, int device):
        self.device = device

    def __enter__(self) -> None:
        if is_current(self.device):
            return
        if cupy_cuda is None:       # before `connect`
            raise RuntimeError(f"[cuda] expected cuda:{self.device} to be in use, but no tensor has been on a GPU yet")
        self.entered = cupy_cuda.Device(self.device)
        self.entered.__enter__()
        try:
            cupy_cuda.runtime.setDevice(self.device)    # makes its context current
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(self, *error: object) -> None:
        if self.entered is not None:
            self.entered.__exit__(*error)


cdef int check_stream(int device, intptr_t stream) except -1:
    """Raise CaptureError if a step that this thread captures uses another stream of a GPU than before."""
    if ACTIVE.kernel_list == NULL or not belongs_here(ACTIVE.kernel_list[0]):
        return 0
    if ACTIVE.kernel_list.keep_stream(1 + device, <void*>stream) != <void*>stream:
        raise CaptureError(f"[capture] expected a step that uses one stream of cuda:{device}, got a second one, at "
                           f"{source_line()}")
    return 0


include "cuda_launch.pxi"


# ── products ──────────────────────────────────────────────────────────────────────────────────────

cdef enum:
    TF32_MODE = 3           # CUBLAS_TF32_TENSOR_OP_MATH
    BFLOAT16_MODE = 75      # CUBLAS_COMPUTE_32F_FAST_16BF

cdef dict handles = {}      # cuBLAS's, by GPU


cdef void* handle_of(int device) except NULL:
    cdef void* handle = NULL
    cdef int error
    found = handles.get(device)
    if found is None:
        with Current(device):
            with nogil:
                error = blas.create(&handle)
        if error != 0:
            raise RuntimeError(f"[matmul] cuBLAS cannot be used on cuda:{device}: status {error}")
        found = handles.setdefault(device, <size_t>handle)
    return <void*><size_t>found


cdef struct Operand:
    int transposed      # CUBLAS_OP_N or CUBLAS_OP_T
    int64_t leading, stride


cdef Operand operand(Array x, int64_t rows, int64_t columns) noexcept:
    """How cuBLAS reads a matrix or a batch of them."""
    cdef int64_t width = itemsize(x.code)
    cdef int64_t row = x.step[x.ndim_ - 2] // width, column = x.step[x.ndim_ - 1] // width
    cdef int64_t stride = x.step[0] // width if x.ndim_ == 3 else 0
    # A stride along an axis of length one has no meaning.
    if column == 1 and (row >= columns or rows == 1):
        return Operand(0, max(row, columns) if rows > 1 else columns, stride)
    if row == 1 or rows == 1:
        return Operand(1, max(column, rows) if columns > 1 else rows, stride)
    return Operand(0, max(row, columns), stride)


def multiply(int device, Array a, Array b, Array out, double beta, bint can_round) -> bool:
    """out = a b + beta out by cuBLAS, for matrices or batches of them; False if that is beta out, and not done.

    `can_round`: whether tensor cores may multiply float32 numbers, rounded as `set_float32_matmul_precision` allows.
    """
    cdef int64_t m = out.extent[out.ndim_ - 2], n = out.extent[out.ndim_ - 1], k = a.extent[a.ndim_ - 1]
    cdef int64_t batch = out.extent[0] if out.ndim_ == 3 else 1
    cdef Operand left = operand(a, m, k), right = operand(b, k, n)
    cdef Product product
    cdef Held held
    cdef int error
    if out.count == 0:
        return True
    if max(m, n, k, left.leading, right.leading, batch) >= <int64_t>1 << 31:
        raise OverflowError(
            f"[matmul] expected sizes and strides below 2^31, the limit of cuBLAS, got {batch} products of {m} x {k} "
            f"with stride {left.leading} and {k} x {n} with stride {right.leading}"
        )
    if k == 0:
        return False
    # cuBLAS is column-major: out.T = b.T a.T
    product.is_double, product.beta, product.batch = out.code != FLOAT32, beta, <int>batch
    if can_round and tf32_allowed and not product.is_double:
        product.mode = BFLOAT16_MODE if bfloat16_allowed else TF32_MODE
    else:
        product.mode = 0
    product.m, product.n, product.k = <int>n, <int>m, <int>k
    product.transposed_a, product.leading_a, product.stride_a = right.transposed, <int>right.leading, right.stride
    product.transposed_b, product.leading_b, product.stride_b = left.transposed, <int>left.leading, left.stride
    product.leading_out, product.stride_out = <int>n, m * n
    product.a, product.b, product.out = <int64_t>b.data, <int64_t>a.data, <int64_t>out.data
    cdef void* handle = handle_of(device)
    cdef void* stream = <void*>current_stream(device)
    held.count = 0
    hold(a.buffer, &held)
    hold(b.buffer, &held)
    hold(out.buffer, &held)
    try:
        check_stream(device, <intptr_t>stream)
        if is_current(device):
            with nogil:
                error = product.run(handle, stream)
        else:
            with Current(device):
                with nogil:
                    error = product.run(handle, stream)
        if error != 0:
            raise RuntimeError(f"[matmul] cuBLAS did not start {batch} products of {m} x {k} and {k} x {n} on "
                               f"cuda:{device}: status {error}")
        if is_capturing():
            capture_product(ACTIVE.kernel_list[0], 1 + device, product)
    finally:
        release(&held)
    return True


# ── graphs ────────────────────────────────────────────────────────────────────────────────────────

@cython.final
@cython.binding(False)
cdef class Graph:
    """The kernels that a captured step starts on a GPU between two calls, which the driver starts by one call."""

    cdef int start(self) except -1:
        """Start it on CuPy's current stream."""
        if is_current(self.device):
            self.graph.launch()
        else:
            with Current(self.device):
                self.graph.launch()
        return 0


cdef Graph graph_of(KernelList* recording, size_t first, size_t end, int device, tuple workspace):
    """A graph of captured kernels; their products use a workspace, (CuPy's block, bytes) or None."""
    cdef Graph made = Graph.__new__(Graph)
    made.device = device
    with Current(device):
        stream = cupy_cuda.Stream(non_blocking=True)
        target.stream, target.driver_error, target.blas_error = <void*><size_t>stream.ptr, 0, 0
        if workspace is not None:
            target.handle = handle_of(device)
            target.workspace, target.bytes = <void*><size_t>workspace[0].ptr, workspace[1]
        with stream:
            stream.begin_capture()
            try:
                with nogil:
                    recording.run(first, end)
            finally:
                made.graph = stream.end_capture()
    if target.driver_error:
        raise RuntimeError(f"[capture] CUDA did not record a kernel on cuda:{device}: {cause_of(target.driver_error)}")
    if target.blas_error:
        raise RuntimeError(f"[capture] cuBLAS did not record a product on cuda:{device}: status {target.blas_error}")
    return made


@cython.final
@cython.binding(False)
cdef class Order:
    """Lets replays of a captured step follow one another, although their streams differ: they use the same memory."""

    def __cinit__(self, int device, size_t used):
        self.device, self.last = device, current_stream(device)
        if self.last != <intptr_t>used:
            raise CaptureError(f"[capture] expected a step on the current stream of cuda:{device}, got one that "
                               f"changes the stream: change it around the call")
        self.home = self.stream = cupy_cuda.get_current_stream(device)

    cdef int follow(self) except -1:
        """Let the current stream wait for the last replay, if that was on another one."""
        cdef intptr_t now = current_stream(self.device)
        if now != self.last or now == PER_THREAD:
            stream = cupy_cuda.get_current_stream(self.device)
            with Current(self.device):
                stream.wait_event(self.stream.record() if self.reached is None else self.reached)
            self.last, self.stream = now, stream
        return 0

    cdef int leave(self) except -1:
        """Note the end of a replay on the default stream of this thread: other threads have another one."""
        self.reached = None
        if self.last == PER_THREAD:
            with Current(self.device):
                self.reached = self.stream.record()
        return 0

    def __del__(self) -> None:
        """Let the stream that allocated the memory wait for the last replay: it may use the memory again."""
        if self.reached is not None:
            self.reached.synchronize()
        elif self.stream is not self.home:
            with Current(self.device):
                self.home.wait_event(self.stream.record())
