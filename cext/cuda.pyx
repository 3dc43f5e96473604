"""What runs for every kernel and product on a GPU: checks and packs arguments, and calls the driver.

CuPy compiles and loads the kernels; `minigrad.cuda` is written in Python over both. The driver's
functions are called by their addresses, so that this module is built without CUDA.
"""
cimport cython
from cpython.long cimport PyLong_AsLongLong, PyLong_AsUnsignedLongLongMask
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport int64_t, intptr_t

import ctypes

from minigrad.engine.array cimport MAX_NDIM, Array, Buffer, shape_of
from minigrad.engine.calls cimport ACTIVE, ActiveCalls, KernelList, belongs_here, is_recorded, source_line
from minigrad.engine.calls import CaptureError
from minigrad.engine.dtype cimport FLOAT32, code_of, dtype_of, itemsize, tf32_allowed

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
    PARAMETERS = 64         # the most of a kernel
    WORDS = 512             # of eight bytes: the parameters of a kernel are limited to 4096 bytes
    LISTS = 5
    OPERANDS = 4            # of an element-wise kernel, with the result
    MOST_LAYOUTS = 1 << 12
    ALLOWED = 48 << 10      # bytes of dynamic shared memory that the driver allows unasked
    MOST_SHARED = 8         # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

point_to(ACTIVE)

WARP: int = WARP_
BLOCK: int = BLOCK_                 # the default number of threads of a block
MOST_TENSORS: int = MOST_TENSORS_   # of a list
MOST_BLOCKS: int = 1 << 16          # of a grid; kernels loop over any further work
cdef int64_t most_blocks = MOST_BLOCKS


# ── the driver ────────────────────────────────────────────────────────────────────────────────────

ctypedef intptr_t (*GetStream)(int device) except *

cdef GetStream get_stream = NULL


cdef size_t address(object function):
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def connect(cuda_driver: Any, cublas: Any, cuda: Any, stream: Any) -> None:
    """Set what this module calls.

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
    """Raise CaptureError if a step that this thread records uses another stream of a GPU than before."""
    if ACTIVE.kernel_list == NULL or not belongs_here(ACTIVE.kernel_list[0]):
        return 0
    if ACTIVE.kernel_list.keep_stream(1 + device, <void*>stream) != <void*>stream:
        raise CaptureError(f"[capture] expected a step that uses one stream of cuda:{device}, got a second one, at "
                           f"{source_line()}")
    return 0


# ── kernels ───────────────────────────────────────────────────────────────────────────────────────

cdef enum Kind:
    INT, LONG, UNSIGNED, FLOAT, DOUBLE, BOOLEAN, EXTENT, TENSORS, ARRAY, STRIDED

cdef dict KINDS = {"int": INT, "int64": LONG, "uint64": UNSIGNED, "float": FLOAT, "double": DOUBLE, "Bool": BOOLEAN,
                   "Extent": EXTENT, "Tensors": TENSORS}
# What a parameter takes of `Launch.words`; a pointer with strides is two parameters.
cdef int[10] SIZES = [1, 1, 1, 1, 1, 1, MAX_NDIM, 1 + LISTS * MOST_TENSORS_ + 2 * MOST_TENSORS_ + 1, 1, 1 + MAX_NDIM]

cdef struct Parameter:
    Kind kind
    int code        # the dtype of an array, or -1 for any
    int word        # its first

cdef struct Launch:
    KernelStart start
    void* parameters[PARAMETERS]    # the address in `words` of each
    int64_t[WORDS] words

cdef struct Held:       # buffers that the arguments point to
    int count
    Buffer* buffers[PARAMETERS + LISTS * MOST_TENSORS_]


@cython.binding(False)
@cython.embedsignature(True)
@cython.embedsignature.format("clinic")
cdef class Kernel:
    """A kernel for one dtype on one GPU."""
    cdef str name
    cdef object function        # CuPy's, which keeps the module loaded
    cdef void* handle
    cdef int device
    cdef list expected
    cdef int count, passed, size    # of arguments, of parameters: a strided array is two, and of words
    cdef unsigned int allowed       # bytes of dynamic shared memory
    cdef Parameter[PARAMETERS] parameters
    cdef int[PARAMETERS] words  # the first of each parameter

    def __cinit__(self, str name, function: Any, int device,
                  list expected: list[tuple[str, str, str | None, bool]]):
        """A kernel that CuPy has loaded; the kind, name, dtype and whether it may be strided of each argument."""
        cdef Parameter* parameter
        cdef int word = 0
        if sum([1 + strided for _, _, _, strided in expected]) > PARAMETERS:
            raise TypeError(f"[{name}] expected at most {PARAMETERS} parameters, got {expected}")
        self.name, self.function, self.device, self.expected = name, function, device, expected
        self.handle, self.allowed = <void*><size_t>function.ptr, ALLOWED
        for kind, _, dtype, strided in expected:
            parameter = &self.parameters[self.count]
            self.count += 1
            parameter.kind = STRIDED if strided else ARRAY if kind.endswith("*") else KINDS[kind]
            parameter.code = -1 if dtype is None else code_of(dtype)
            parameter.word = self.words[self.passed] = word
            self.passed += 1
            if strided:
                self.words[self.passed] = word + 1
                self.passed += 1
            word += SIZES[<int>parameter.kind]
        self.size = word
        if word > WORDS:
            raise TypeError(f"[{name}] expected at most {8 * WORDS} bytes of parameters, got {8 * word}")

    cdef int pack(self, tuple arguments, Launch* launch, Held* held) except -1:
        """Check the arguments and write them to `launch`; hold the memory of arrays, which other threads may drop."""
        cdef Parameter* parameter
        cdef int64_t* words
        cdef int i
        if len(arguments) != self.count:
            raise TypeError(f"[{self.name}] expected the arguments of {self.expected}, got {len(arguments)}")
        for i in range(self.count):
            parameter, given = &self.parameters[i], arguments[i]
            words = &launch.words[parameter.word]
            if parameter.kind == ARRAY or parameter.kind == STRIDED:
                if given is None:
                    words[0] = 0
                    continue
                words[0] = self.address(i, -1, 0, given, held)
                if parameter.kind == STRIDED:
                    align((<Array>given).step, (<Array>given).ndim_, 0, words + 1)
            elif parameter.kind == LONG:
                words[0] = PyLong_AsLongLong(given)
            elif parameter.kind == INT:
                words[0] = PyLong_AsLongLong(given)
                if words[0] != <int>words[0]:
                    raise OverflowError(f"[{self.name}] expected {self.described(i)} to be a 32-bit int, got {given}")
            elif parameter.kind == BOOLEAN:
                words[0] = bool(given)
            elif parameter.kind == FLOAT:
                (<float*>words)[0] = <float><double>given
            elif parameter.kind == DOUBLE:
                (<double*>words)[0] = given
            elif parameter.kind == UNSIGNED:
                words[0] = <int64_t>PyLong_AsUnsignedLongLongMask(given)
            elif parameter.kind == EXTENT:
                self.pack_lengths(i, given, words)
            else:
                self.pack_tensors(i, given, words, held)
        for i in range(self.passed):
            launch.parameters[i] = &launch.words[self.words[i]]
        launch.start.function, launch.start.parameters = self.handle, launch.parameters
        return 0

    cdef str described(self, int i, int k=-1, int n=0):
        """The name of the parameter of argument i, or of tensor n of its list k."""
        return self.expected[i][1] if k < 0 else f"tensor {n} of list {k}"

    cdef int64_t address(self, int i, int k, int n, object given, Held* held) except? -1:
        """The address of an array that is as declared."""
        cdef Parameter* parameter = &self.parameters[i]
        if not isinstance(given, Array):
            raise TypeError(f"[{self.name}] expected {self.described(i, k, n)} to be an array, got "
                            f"{type(given).__name__}")
        cdef Array x = <Array>given
        if x.buffer.device != 1 + self.device:
            raise ValueError(f"[{self.name}] expected {self.described(i, k, n)} on cuda:{self.device}, got {x.device}")
        if parameter.code >= 0 and x.code != parameter.code:
            raise TypeError(f"[{self.name}] expected {self.described(i, k, n)} to be "
                            f"{dtype_of(parameter.code).name}, got {dtype_of(x.code)}")
        if not x.packed and parameter.kind != STRIDED:
            raise ValueError(f"[{self.name}] expected {self.described(i, k, n)} to be contiguous, "
                             f"got strides {x.strides}")
        hold(x.buffer, held)
        return <int64_t>x.data

    cdef int pack_lengths(self, int i, object given, int64_t* words) except -1:
        cdef int64_t[MAX_NDIM] lengths
        cdef int d, ndim
        if type(given) is not tuple or len(<tuple>given) > MAX_NDIM:
            raise TypeError(f"[{self.name}] expected {self.described(i)} to be a tuple of at most {MAX_NDIM} lengths, "
                            f"got {given!r}")
        ndim = <int>len(<tuple>given)
        for d in range(ndim):
            lengths[d] = PyLong_AsLongLong((<tuple>given)[d])
        align(lengths, ndim, 1, words)
        return 0

    cdef int pack_tensors(self, int i, object given, int64_t* words, Held* held) except -1:
        """Write `Tensors` of common.cuh: the count, the addresses of each list, the sizes, where their chunks begin."""
        cdef int64_t* sizes = words + 1 + LISTS * MOST_TENSORS_
        cdef int64_t* chunks = sizes + MOST_TENSORS_
        cdef int64_t chunk
        cdef int k, n, count
        cdef list arrays
        lists, chunk = given
        count = <int>len(lists[0])
        if count > MOST_TENSORS_:
            raise ValueError(f"[{self.name}] expected at most {MOST_TENSORS_} tensors, got {count}")
        words[0], chunks[0] = count, 0
        for k in range(LISTS):
            arrays = lists[k]
            if arrays is not None and len(arrays) != count:
                raise ValueError(f"[{self.name}] expected {count} tensors in list {k}, got {len(arrays)}")
            for n in range(count):
                words[1 + k * MOST_TENSORS_ + n] = 0
                if arrays is None:
                    continue
                one = arrays[n]
                words[1 + k * MOST_TENSORS_ + n] = self.address(i, k, n, one, held)
                if k == 0:
                    sizes[n] = (<Array>one).count
                    chunks[n + 1] = chunks[n] + chunks_of(sizes[n], chunk)
                elif (<Array>one).count != sizes[n]:
                    raise ValueError(f"[{self.name}] expected {sizes[n]} elements in {self.described(i, k, n)}, "
                                     f"got {(<Array>one).count}")
        return 0

    cdef int allow(self, unsigned int shared) except -1:
        """Let blocks have that much dynamic shared memory."""
        cdef int error
        if shared <= self.allowed:
            return 0
        with Current(self.device):
            if shared <= self.allowed:  # another thread was faster
                return 0
            error = driver.set_attribute(self.handle, MOST_SHARED, <int>shared)
            if error != 0:
                raise RuntimeError(f"[{self.name}] CUDA does not allow {shared} bytes of shared memory on "
                                   f"cuda:{self.device}: {cause_of(error)}")
            self.allowed = shared
        return 0

    def count_resident(self, int64_t block, int64_t shared, int64_t cluster=0) -> int:
        """How many clusters run at the same time, or without clusters how many blocks on one multiprocessor."""
        cdef KernelStart start
        cdef int error, count = 0
        if driver.launch_kernel_ex == NULL or driver.count_clusters == NULL:
            return 0
        self.allow(<unsigned int>shared)
        start.function = self.handle
        start.blocks.block, start.blocks.shared = <unsigned int>block, <unsigned int>shared
        start.blocks.cluster = <unsigned int>cluster
        with Current(self.device):
            error = start.count_resident(&count)
        return count if error == 0 else 0

    cdef int start(self, Launch* launch, int64_t threads) except -1:
        cdef intptr_t stream = current_stream(self.device)
        cdef int error
        check_stream(self.device, stream)
        self.allow(launch.start.blocks.shared)
        if is_current(self.device):
            error = begin(&launch.start, stream)
        else:
            with Current(self.device):
                error = begin(&launch.start, stream)
        if error != 0:
            raise RuntimeError(f"[{self.name}] CUDA did not start {launch.start.blocks.grid} blocks of "
                               f"{launch.start.blocks.block} threads on cuda:{self.device}: {cause_of(error)}")
        if is_recorded():
            capture_kernel(ACTIVE.kernel_list[0], 1 + self.device, threads, launch.start, self.passed, self.words,
                          launch.words, self.size)
        return 0


cdef str cause_of(int error):
    """The driver's name of an error."""
    cdef const char* why = NULL
    driver.get_error_name(error, &why)
    return f"error {error}" if why == NULL else why.decode()


cdef int begin(KernelStart* start, intptr_t stream) noexcept:
    with nogil:     # the driver waits if a thousand kernels are queued
        return start.on(<void*>stream)


cdef inline void hold(Buffer* buffer, Held* held) noexcept:
    buffer.references += 1
    held.buffers[held.count] = buffer
    held.count += 1


cdef inline void let_go(Held* held) noexcept:
    cdef int i
    for i in range(held.count):
        ACTIVE.release(held.buffers[i])


cdef void align(const int64_t* numbers, int count, int64_t fill, int64_t* words) noexcept:
    """Write the lengths or strides of all axes, of which the last comes last."""
    cdef int i
    for i in range(MAX_NDIM - count):
        words[i] = fill
    for i in range(count):
        words[MAX_NDIM - count + i] = numbers[i]


cdef inline int64_t chunks_of(int64_t size, int64_t chunk) noexcept:
    return (size + chunk - 1) // chunk


def count_chunks(list tensors: list[Tensor], int64_t chunk) -> int:
    """How many chunks of that many elements the tensors have, each its own."""
    cdef int64_t total = 0
    for one in tensors:
        total += chunks_of((<Array?>one).count, chunk)
    return total


layouts: dict[bytes, Any] = {}      # what `layout_of` has computed, by what it depends on
cdef dict known_layouts = layouts


def layout_of(object compute: Callable[..., Any], Array out, tuple rest: tuple[Any, ...]) -> Any:
    """`compute` of the shape, and of the size of an element and the strides of each array; called once for each.

    The arrays are `out` and those among `rest`, of its shape. If all are dense, they are described as arrays of one
    axis, with the strides of their last one.
    """
    cdef list arrays = [out]
    cdef bint dense = out.packed and out.ndim_ > 0 and out.extent[out.ndim_ - 1] > 1
    cdef int64_t[(2 + MAX_NDIM) * (1 + OPERANDS)] words
    cdef int64_t size
    cdef int n
    cdef Array x
    for one in rest:
        if isinstance(one, Array):
            x = <Array>one
            arrays.append(x)
            dense = dense and x.packed and x.count == out.count
    if len(arrays) > OPERANDS:
        raise ValueError(f"expected at most {OPERANDS} arrays, got {len(arrays)}")
    n = put(words, 1, &out.count) if dense else put(words, out.ndim_, out.extent)
    for x in arrays:
        size = words[n] = itemsize(x.code)
        n += 1
        n += put(words + n, 1, &size) if dense else put(words + n, x.ndim_, x.step)
    cdef bytes key = (<char*>words)[:n * <int>sizeof(int64_t)]
    found = known_layouts.get(key)
    if found is not None:
        return found
    sizes = tuple([itemsize((<Array>one).code) for one in arrays])
    if dense:
        found = compute((out.count,), sizes, tuple([(size,) for size in sizes]))
    else:
        found = compute(shape_of(out), sizes, tuple([one.strides for one in arrays]))
    if len(known_layouts) >= MOST_LAYOUTS:
        known_layouts.clear()
    known_layouts[key] = found
    return found


cdef inline int put(int64_t* words, int count, const int64_t* numbers) noexcept:
    """Write numbers and how many they are; return the number of words."""
    cdef int i
    words[0] = count
    for i in range(count):
        words[1 + i] = numbers[i]
    return 1 + count


def power_of_two(int64_t n, int64_t least=1) -> int:
    """The smallest power of two that is at least n, and at least `least`, which is one."""
    while least < n:
        least *= 2
    return least


kernels: dict[tuple[str, str, str, int], Kernel] = {}   # by file, name, dtype and device
cdef dict known_kernels = kernels


cdef Kernel kernel_of(str file, str name, str dtype, object device):
    found = known_kernels.get((file, name, dtype, device))
    if found is None:
        from minigrad.cuda.launch import load

        found = known_kernels.setdefault((file, name, dtype, device), load(file, name, dtype, device))
    return found


def kernel(str file, str name, str dtype, object device: int) -> Kernel:
    """The kernel of that name in a ``.cu`` file."""
    return kernel_of(file, name, dtype, device)


def launch(str file, str name, str dtype, object device: int, int64_t threads, *arguments: Any, int64_t block=0,
           int64_t blocks=0, int64_t shared=0, int64_t cluster=0, bint cooperative=False) -> None:
    """Launch a kernel on CuPy's current stream.

    Parameters
    ----------
    file, name : str
        The ``.cu`` file and the kernel in it.
    dtype : str
        T.
    device : int
        The number of the GPU.
    threads : int
        The number of threads that have work; with 0, nothing is launched.
    *arguments
        One for each parameter in order, except ``Stride``.
    block : int
        The number of threads per block; by default, BLOCK.
    blocks : int
        The number of blocks; by default, it follows from `threads`.
    shared : int
        The bytes of dynamic shared memory of a block.
    cluster : int
        The number of blocks of a cluster, which share their memory; 0 without clusters.
    cooperative : bool
        Whether all blocks run at the same time, so that they may wait for each other.

    Raises
    ------
    TypeError, ValueError
        For an argument that does not match the kernel's declaration.
    RuntimeError
        If CUDA does not start the kernel.
    """
    cdef Launch launch
    cdef Held held
    if threads == 0:
        return
    cdef Kernel kernel = kernel_of(file, name, dtype, device)
    cdef int64_t width = min(block or BLOCK_, (threads + WARP_ - 1) // WARP_ * WARP_)
    launch.start.blocks.block = <unsigned int>width
    launch.start.blocks.grid = <unsigned int>(blocks or min((threads + width - 1) // width, most_blocks))
    launch.start.blocks.shared, launch.start.blocks.cluster = <unsigned int>shared, <unsigned int>cluster
    launch.start.blocks.cooperative = cooperative
    held.count = 0
    try:
        kernel.pack(arguments, &launch, &held)
        kernel.start(&launch, threads)
    finally:
        let_go(&held)


# ── products ──────────────────────────────────────────────────────────────────────────────────────

cdef enum:
    TF32_MODE = 3           # CUBLAS_TF32_TENSOR_OP_MATH

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


def multiply(int device, Array a, Array b, Array out, double beta) -> bool:
    """out = a b + beta out by cuBLAS, for matrices or batches of them; False if that is beta out, and not done."""
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
    product.mode = TF32_MODE if tf32_allowed and not product.is_double else 0
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
        if is_recorded():
            capture_product(ACTIVE.kernel_list[0], 1 + device, product)
    finally:
        let_go(&held)
    return True


# ── graphs ────────────────────────────────────────────────────────────────────────────────────────

@cython.final
@cython.auto_pickle(False)
@cython.binding(False)
cdef class Graph:
    """What a recording starts on a GPU between two calls, which the driver starts by one."""

    cdef int start(self) except -1:
        """Start it on CuPy's current stream."""
        if is_current(self.device):
            self.graph.launch()
        else:
            with Current(self.device):
                self.graph.launch()
        return 0


cdef Graph graph_of(KernelList* recording, size_t first, size_t end, int device, tuple workspace):
    """A graph of what was recorded; its products use a workspace, (CuPy's block, bytes) or None."""
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
@cython.auto_pickle(False)
@cython.binding(False)
cdef class Order:
    """Lets the runs of a recording follow one another, although their streams differ: they use the same memory."""

    def __cinit__(self, int device, size_t used):
        self.device, self.last = device, current_stream(device)
        if self.last != <intptr_t>used:
            raise CaptureError(f"[capture] expected a step on the current stream of cuda:{device}, got one that "
                               f"changes the stream: change it around the call")
        self.home = self.stream = cupy_cuda.get_current_stream(device)

    cdef int follow(self) except -1:
        """Let the current stream wait for the last run, if that was on another one."""
        cdef intptr_t now = current_stream(self.device)
        if now != self.last or now == PER_THREAD:
            stream = cupy_cuda.get_current_stream(self.device)
            with Current(self.device):
                stream.wait_event(self.stream.record() if self.reached is None else self.reached)
            self.last, self.stream = now, stream
        return 0

    cdef int leave(self) except -1:
        """Note the end of a run on the default stream of this thread: other threads have another one."""
        self.reached = None
        if self.last == PER_THREAD:
            with Current(self.device):
                self.reached = self.stream.record()
        return 0

    def __del__(self) -> None:
        """Let the stream that allocated the memory wait for the last run: it may use the memory again."""
        if self.reached is not None:
            self.reached.synchronize()
        elif self.stream is not self.home:
            with Current(self.device):
                self.home.wait_event(self.stream.record())
