# Launching kernels on a GPU: `launch` checks the arguments against the kernel's declaration in its .cu file, and packs
# them as the driver takes them.

cdef enum Kind:
    INT, LONG, UNSIGNED, FLOAT, DOUBLE, BOOLEAN, EXTENT, TENSORS, ARRAY, STRIDED

cdef dict KINDS = {"int": INT, "int64": LONG, "uint64": UNSIGNED, "float": FLOAT, "double": DOUBLE, "Bool": BOOLEAN,
                   "Extent": EXTENT, "Tensors": TENSORS}
# The words of each kind in `Launch.words`; a pointer with strides is two parameters.
cdef int[10] SIZES = [1, 1, 1, 1, 1, 1, MAX_NDIM, 1 + LISTS * MOST_TENSORS_ + 2 * MOST_TENSORS_ + 1, 1, 1 + MAX_NDIM]

cdef struct Parameter:
    Kind kind
    int code        # the dtype of an array, or -1 for any
    int word        # the index of its first word

cdef struct Launch:
    KernelStart start
    void* parameters[PARAMETERS]    # the address in `words` of each
    int64_t[WORDS] words

cdef struct Held:       # buffers that the arguments point to
    int count
    Buffer* buffers[PARAMETERS + LISTS * MOST_TENSORS_]


@cython.binding(False)
@cython.embedsignature(True)
cdef class Kernel:
    """A kernel for one dtype on one GPU."""
    cdef str name
    cdef object function        # CuPy's, which keeps the module loaded
    cdef void* handle
    cdef int device
    cdef list expected
    cdef int count, passed, size    # the numbers of arguments, of parameters (two for a strided array), and of words
    cdef unsigned int allowed       # bytes of dynamic shared memory
    cdef Parameter[PARAMETERS] parameters
    cdef int[PARAMETERS] words  # the first word of each parameter

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
                    raise OverflowError(f"[{self.name}] expected {self.name_of(i)} to be a 32-bit int, got {given}")
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

    cdef str name_of(self, int i, int k=-1, int n=0):
        """The name of the parameter of argument i, or of tensor n of its list k."""
        return self.expected[i][1] if k < 0 else f"tensor {n} of list {k}"

    cdef int64_t address(self, int i, int k, int n, object given, Held* held) except? -1:
        """The address of an array that is as declared."""
        cdef Parameter* parameter = &self.parameters[i]
        if not isinstance(given, Array):
            raise TypeError(f"[{self.name}] expected {self.name_of(i, k, n)} to be an array, got "
                            f"{type(given).__name__}")
        cdef Array x = <Array>given
        if x.buffer.device != 1 + self.device:
            raise ValueError(f"[{self.name}] expected {self.name_of(i, k, n)} on cuda:{self.device}, got {x.device}")
        if parameter.code >= 0 and x.code != parameter.code:
            raise TypeError(f"[{self.name}] expected {self.name_of(i, k, n)} to be "
                            f"{dtype_of(parameter.code).name}, got {dtype_of(x.code)}")
        if not x.packed and parameter.kind != STRIDED:
            raise ValueError(f"[{self.name}] expected {self.name_of(i, k, n)} to be contiguous, "
                             f"got strides {x.strides}")
        hold(x.buffer, held)
        return <int64_t>x.data

    cdef int pack_lengths(self, int i, object given, int64_t* words) except -1:
        cdef int64_t[MAX_NDIM] lengths
        cdef int d, ndim
        if type(given) is not tuple or len(<tuple>given) > MAX_NDIM:
            raise TypeError(f"[{self.name}] expected {self.name_of(i)} to be a tuple of at most {MAX_NDIM} lengths, "
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
                    raise ValueError(f"[{self.name}] expected {sizes[n]} elements in {self.name_of(i, k, n)}, "
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
        """Count the clusters that run at the same time, or without clusters the blocks on one multiprocessor."""
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
        if is_capturing():
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


cdef inline void release(Held* held) noexcept:
    cdef int i
    for i in range(held.count):
        ACTIVE.release(held.buffers[i])


cdef void align(const int64_t* numbers, int count, int64_t fill, int64_t* words) noexcept:
    """Write the lengths or strides of all axes, the last axis at the end, after `fill` for missing ones."""
    cdef int i
    for i in range(MAX_NDIM - count):
        words[i] = fill
    for i in range(count):
        words[MAX_NDIM - count + i] = numbers[i]


cdef inline int64_t chunks_of(int64_t size, int64_t chunk) noexcept:
    return (size + chunk - 1) // chunk


def count_chunks(list tensors: list[Tensor], int64_t chunk) -> int:
    """Count the chunks of that many elements into which the tensors are cut, each on its own."""
    cdef int64_t total = 0
    for one in tensors:
        total += chunks_of((<Array?>one).count, chunk)
    return total


layouts: dict[bytes, Any] = {}      # the results of `layout_of`, by all that they depend on
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
        found = known_kernels.setdefault((file, name, dtype, device), gpus.load(file, name, dtype, device))
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
        Whether all blocks run at the same time (a cooperative grid), so that they may wait for each other.

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
        release(&held)
