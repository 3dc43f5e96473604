# cython: allow_none_for_extension_args=True
"""The CPU backend: every primitive is a kernel of the table, started through `launch`."""
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_AsUTF8
from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset, strcmp

import operator
import os

from minigrad.engine.devices.backend cimport register
from minigrad.engine.memory.array cimport Array, empty, view
from minigrad.engine.memory.calls cimport ACTIVE
from minigrad.engine.memory.dtype cimport bfloat16_allowed, FLOAT32, FLOAT64, INT32, INT64, UINT8, itemsize
from minigrad.engine.memory.refusals cimport undefined
from minigrad.engine.devices.blas import find

# ── elementwise ───────────────────────────────────────────────────────────────────────────────────

cdef int elementwise(str primitive, Loop loop, int operands, Array a, Array b, Array c, Array out) except -1:
    """Run a loop over `operands` arrays, the last of them `out`, of one shape."""
    if loop == NULL:
        raise undefined(primitive, a.dtype)
    cdef Flat flat
    cdef Strided strided
    cdef bint dense = out.packed and a.packed
    if operands == 2:
        if dense:
            flat.operands, flat.count = 2, out.count
            flat.data[0], flat.data[1] = a.data, out.data
            flat.step[0], flat.step[1] = itemsize(a.code), itemsize(out.code)
            launch(out.count, run_flat, loop, flat)
            return 0
    elif operands == 3:
        if dense and b.packed:
            flat.operands, flat.count = 3, out.count
            flat.data[0], flat.data[1], flat.data[2] = a.data, b.data, out.data
            flat.step[0], flat.step[1], flat.step[2] = itemsize(a.code), itemsize(b.code), itemsize(out.code)
            launch(out.count, run_flat, loop, flat)
            return 0
    describe(&strided, operands, out)
    fill_operand(&strided, 0, a)
    if operands > 2:
        fill_operand(&strided, 1, b)
    if operands > 3:
        fill_operand(&strided, 2, c)
    launch(out.count, run, loop, strided)
    return 0


def is_defined(str primitive, int op, int code) -> bool:
    """bool: whether "unary", "binary" or "reduce" has this operation for a dtype; all devices have the same ones."""
    cdef int ops = UNARY_OPS if primitive == "unary" else BINARY_OPS if primitive == "binary" else REDUCE_OPS
    if not (0 <= op < ops and 0 <= code < DTYPES):
        raise IndexError(f"[{primitive}] expected op below {ops} and code below {DTYPES}, got {op}, {code}")
    if primitive == "unary":
        return kernels.unary[op][code] != NULL
    if primitive == "binary":
        return kernels.binary[op][code] != NULL
    return kernels.reduce[op][code] != NULL


cdef inline void describe(Strided* s, int operands, Array out) noexcept:
    """The shape of all operands, and the last of them."""
    cdef int d
    s.ndim, s.operands, s.count = out.ndim_, operands, out.count
    for d in range(out.ndim_):
        s.extent[d] = out.extent[d]
    fill_operand(s, operands - 1, out)


cdef inline uint64_t element_of(int code, value) except? 1:
    """A number as one element in memory."""
    cdef uint64_t element = 0
    cdef char* start = <char*>&element
    if code == FLOAT32:
        (<float*>start)[0] = value
    elif code == FLOAT64:
        (<double*>start)[0] = value
    elif code == INT64:
        (<int64_t*>start)[0] = value
    elif code == INT32:
        (<int32_t*>start)[0] = value
    elif code == UINT8:
        (<uint8_t*>start)[0] = value
    else:
        start[0] = bool(value)
    return element


cdef inline void fill_operand(Strided* s, int k, Array x) noexcept:
    cdef int d
    s.data[k] = x.data
    s.size[k] = itemsize(x.code)
    for d in range(x.ndim_):
        s.step[k][d] = x.step[d]


cdef inline void repeat_operand(Strided* s, int k) noexcept:
    """Let all elements be the one that operand k begins with."""
    cdef int d
    for d in range(s.ndim):
        s.step[k][d] = 0


# The class CPU: its methods are the primitives, in the files of primitives/.
include "cpu.pxi"


cdef extern from *:
    """
    // `launch` needs a function, not an overload set, and no reference parameters
    static constexpr auto gemm_of = [](int dtype, bool ta, bool tb, int64_t batch, int64_t m, int64_t n, int64_t k,
                                       const void* a, int64_t lda, int64_t sa, const void* b, int64_t ldb, int64_t sb,
                                       void* c, int64_t ldc, int64_t sc, double beta, const void* bias,
                                       bool rounded) {
        if (rounded)
            return mg::kernels->rounded_product(
                {ta, tb, beta != 0, batch, m, n, k, static_cast<const float*>(a), lda, sa, static_cast<const float*>(b),
                 ldb, sb, static_cast<float*>(c), ldc, sc, static_cast<const float*>(bias)});
        mg::gemm(static_cast<mg::DType>(dtype), ta, tb, batch, m, n, k, a, lda, sa, b, ldb, sb, c, ldc, sc, beta, bias);
    };
    """
    cppclass Callable:
        pass
    Callable gemm_of
    ctypedef bint bint_ "bool"


cdef inline bint rounds(bint allowed, int code, int64_t size=16) noexcept:
    """Whether a product rounds its factors to bfloat16; where its smallest size is below 16, that is not faster."""
    return allowed and code == FLOAT32 and size >= 16 and has_bfloat16


cdef inline char* pointer(Array x) noexcept:
    return <char*>NULL if x is None else x.data


cdef Conv2d convolution(Array x, Array w, tuple at, Array y):
    """The sizes of y = x correlated with w, where x already includes the borders."""
    cdef Conv2d c
    c.batch, c.groups, c.channels = x.extent[0], x.extent[1] // w.extent[1], w.extent[1]
    c.height, c.width, c.kernel_h, c.kernel_w = x.extent[2], x.extent[3], w.extent[2], w.extent[3]
    c.outputs, c.rows, c.columns = w.extent[0] // c.groups, y.extent[2], y.extent[3]
    c.stride_h, c.stride_w, _, _, c.dilation_h, c.dilation_w = at
    # Windows at equal distances from the first to the last are one row, which is computed faster than many short ones.
    if c.columns == 1:
        c.stride_w = c.stride_h * c.width
    if c.columns * c.stride_w == c.stride_h * c.width:
        c.rows, c.columns = 1, c.rows * c.columns
    return c


cdef Array inside(Array padded, Array x, tuple at):
    """The part of a bordered array that holds x."""
    return view(padded, 4, x.extent, padded.step,
                padded.data + <int64_t>at[2] * padded.step[2] + <int64_t>at[3] * padded.step[3])


cdef Array add_border(CPU cpu, Array x, Array w, tuple at, Array y, bint filled):
    """x if windows do not reach beyond it, else an array with borders; if `filled`, it contains x and zeros."""
    stride_h, stride_w, top, left, dilation_h, dilation_w = at
    cdef int64_t[4] extent
    cdef Array padded
    extent[0], extent[1] = x.extent[0], x.extent[1]
    extent[2] = max(<int64_t>top + x.extent[2],
                    (y.extent[2] - 1) * <int64_t>stride_h + (w.extent[2] - 1) * <int64_t>dilation_h + 1)
    extent[3] = max(<int64_t>left + x.extent[3],
                    (y.extent[3] - 1) * <int64_t>stride_w + (w.extent[3] - 1) * <int64_t>dilation_w + 1)
    if extent[2] == x.extent[2] and extent[3] == x.extent[3]:
        return x
    padded = empty(x.code, 4, extent, 0)
    if filled:
        cpu.fill(padded, 0)
        cpu.copy(x, inside(padded, x, at))
    return padded


cdef Pool2d pooling(Array x, tuple at, Array y):
    cdef Pool2d p
    p.height, p.width = x.extent[x.ndim_ - 2], x.extent[x.ndim_ - 1]
    p.rows, p.columns = y.extent[y.ndim_ - 2], y.extent[y.ndim_ - 1]
    p.planes = y.count // (p.rows * p.columns)
    p.kernel_h, p.kernel_w, p.stride_h, p.stride_w, p.pad_h, p.pad_w, p.dilation_h, p.dilation_w = at
    return p


cdef Recurrence recurrence(cell, dict arrays):
    """The cell and its arrays as the kernels take them."""
    cdef Recurrence r
    cdef Array h = <Array>arrays["h"], w = <Array>arrays["w"], z = <Array>arrays["z"]
    cdef int64_t end = 0, i
    memset(&r, 0, sizeof(Recurrence))
    r.cell, r.norm = cell.codes
    r.rounded = rounds(bfloat16_allowed, w.code)
    r.norm_cell, r.centered, r.swap = cell.norm_cell, cell.centered, cell.swap
    r.slope, r.eps, r.eps_c = cell.slope, cell.eps, cell.eps_c
    r.steps, r.batch, r.hidden, r.gates = h.extent[0] - 1, h.extent[1], h.extent[2], w.extent[0] // h.extent[2]
    r.segments = len(cell.sizes)
    for i in range(r.segments):
        end += cell.sizes[i]
        r.ends[i] = end
    # If the weights fit a core's cache along with the rows, small blocks keep the most cores busy; otherwise
    # the weights come from further away, and larger blocks share each read of them.
    r.block = 8 if w.count * itemsize(w.code) <= 1 << 19 or r.batch < 32 else 16 if r.batch < 128 else 32
    r.keep = z.extent[0] == r.steps
    r.lengths = <int64_t*>pointer(arrays.get("lengths"))
    r.x, r.w, r.bias = pointer(arrays.get("x")), w.data, pointer(arrays.get("bias"))
    r.gamma, r.beta = pointer(arrays.get("gamma")), pointer(arrays.get("beta"))
    r.gamma_c, r.beta_c = pointer(arrays.get("gamma_c")), pointer(arrays.get("beta_c"))
    r.h, r.c = h.data, pointer(arrays.get("c"))
    r.h_last, r.c_last = pointer(arrays.get("h_last")), pointer(arrays.get("c_last"))
    r.z, r.act = z.data, pointer(arrays["act"])
    r.stats, r.stats_c = pointer(arrays.get("stats")), pointer(arrays.get("stats_c"))
    r.raw_c = pointer(arrays.get("raw_c"))
    r.gy, r.dh, r.dc = pointer(arrays.get("gy")), pointer(arrays.get("dh")), pointer(arrays.get("dc"))
    r.dx, r.dz = pointer(arrays.get("dx")), pointer(arrays.get("dz"))
    r.dgamma, r.dbeta = pointer(arrays.get("dgamma")), pointer(arrays.get("dbeta"))
    r.dgamma_c, r.dbeta_c = pointer(arrays.get("dgamma_c")), pointer(arrays.get("dbeta_c"))
    return r


cdef int64_t round_up(int64_t columns):
    """Columns in whole panels, for any panel width that an instruction set uses."""
    return (columns + 31) // 32 * 32


cdef Array recurrent_scratch(Recurrence* r, int code):
    """Allocate the scratch buffer for the panels and for the rows that a block works on."""
    cdef int64_t blocks = (r.batch + r.block - 1) // r.block
    cdef int64_t size = r.panels + blocks * (2 * r.gates + 4) * r.hidden
    cdef Array scratch = empty(code, 1, &size, 0)
    r.scratch = scratch.data
    return scratch


cdef Attention attention_of(str precision, double scale, bint causal, double dropout, uint64_t seed, uint64_t offset,
                            Array q, Array k, Array v, Array mask, Array y, Array statistics):
    """The options and arrays as the kernels take them."""
    cdef Attention a
    cdef int i
    memset(&a, 0, sizeof(Attention))
    a.batch, a.heads, a.queries, a.width = q.extent[0], q.extent[1], q.extent[2], q.extent[3]
    a.group = a.heads // k.extent[1]
    a.rounded = rounds(precision == "medium", q.code, a.queries)
    a.keys, a.value_width = k.extent[2], v.extent[3]
    a.scale, a.causal, a.dropout, a.seed, a.offset = scale, causal, dropout, seed, offset
    a.q, a.k, a.v, a.y, a.statistics = q.data, k.data, v.data, y.data, statistics.data
    a.rows = v.step[1 if v.extent[1] > 1 else 0] // (a.value_width * itemsize(v.code))
    if mask is not None:
        for i in range(4):
            a.mask_step[i] = mask.step[i] // itemsize(mask.code)
        if mask.code == q.code:
            a.numbers = mask.data
        else:
            a.bools = mask.data
    return a


cdef int check_labels(str error, int64_t width, int64_t ignore, Array labels, Array weight, Array out,
                      Array inverse) except -1:
    """Copy class labels to out, and check them there, where nobody else can write; see `class_labels`."""
    cdef int64_t* t = <int64_t*>out.data
    cdef double total = 0
    cdef int64_t i
    if out.count:
        memcpy(t, labels.data, out.count * sizeof(int64_t))
    for i in range(out.count):
        if t[i] != ignore:
            if t[i] < 0 or t[i] >= width:
                raise IndexError(f"{error} from 0 to {width - 1}, got {t[i]} in row {i}")
            total += 1 if weight is None else (<float*>weight.data)[t[i]] if weight.code == FLOAT32 \
                else (<double*>weight.data)[t[i]]
    if inverse is not None:
        total = 1 / total if total else NAN
        if inverse.code == FLOAT32:
            (<float*>inverse.data)[0] = total
        else:
            (<double*>inverse.data)[0] = total
    return 0


cdef int check_index(str op, int axis, int64_t n, Array index, Array out) except -1:
    """Copy indices to out, and check them there; see `checked_index`."""
    cdef int64_t* i = <int64_t*>out.data
    cdef int64_t k
    if out.count:
        memcpy(i, index.data, out.count * sizeof(int64_t))
    for k in range(out.count):
        if i[k] < -n or i[k] >= n:
            raise IndexError(f"[{op}] index {i[k]} is out of range for axis {axis} of length {n}")
        if i[k] < 0:
            i[k] += n
    return 0


cdef int64_t slots_for(int64_t items):
    """The number of tasks, each with its own scratch buffer, that process the items: enough to balance the load."""
    return min(max(items, 1), 8 * threads())


cdef const Rule* rule_of(str name) except NULL:
    """The update rule of that name."""
    cdef const Rule* rule = kernels.rules
    while rule.name != NULL:
        if strcmp(rule.name, PyUnicode_AsUTF8(name)) == 0:
            return rule
        rule += 1
    raise ValueError(f"[optimize] expected an update rule of optimizer.cpp, got {name}")


def states_of_rule(str name) -> int:
    """How many lists of states an update rule always uses; it may be given up to three."""
    return rule_of(name).states


cdef class TensorList:
    """The addresses and sizes of lists of arrays, as the optimizer kernels take them."""
    cdef Tensors list
    cdef int64_t total
    cdef void** columns

    def __cinit__(self, list lists):
        cdef list first = lists[0]
        cdef int64_t n = len(first), i
        self.columns = <void**>PyMem_Malloc(6 * n * sizeof(void*))
        cdef int64_t* sizes = <int64_t*>(self.columns + 5 * n)
        for i in range(n):
            sizes[i] = (<Array>first[i]).count
            self.total += sizes[i]
        self.list.count, self.list.sizes = n, sizes
        lists = lists + [None] * (5 - len(lists))
        self.list.p = self.column(0, n, lists[0])
        self.list.g = <const void**>self.column(1, n, lists[1])
        self.list.s1, self.list.s2 = self.column(2, n, lists[2]), self.column(3, n, lists[3])
        self.list.s3 = self.column(4, n, lists[4])

    cdef void** column(self, int k, int64_t n, list xs):
        cdef void** start = self.columns + k * n
        cdef int64_t i
        if xs is None:
            return NULL
        for i in range(n):
            start[i] = (<Array>xs[i]).data
        return start

    def __dealloc__(self):
        PyMem_Free(self.columns)


# ── the machine ───────────────────────────────────────────────────────────────────────

cdef bint blas_loaded = False


cdef int load() except -1:
    """Load the library for matrix products."""
    global blas_loaded
    cdef char[512] message
    path = os.fsencode(find())
    if blas_loaded:     # by another thread that ran meanwhile; from here on no other thread runs
        return 0
    if not path:
        raise ImportError("[matmul] the package scipy-openblas32 was not found: pip install scipy-openblas32")
    if not load_blas(path, message, sizeof(message)):
        raise ImportError(f"[matmul] {message.decode()}")
    blas_loaded = True
    return 0


def has_bfloat16_products() -> bool:
    """bool: whether `set_float32_matmul_precision("medium")` makes products faster here."""
    return has_bfloat16


def isa() -> str:
    """str: the instruction set of the kernels in use: "baseline", "avx2" or "avx512"."""
    return kernels.isa.decode()


def blas() -> str:
    """str: name, version and kernel family of the BLAS in use."""
    if not blas_loaded:
        load()
    return blas_name().decode()


def get_num_threads() -> int:
    """int: how many threads a kernel may use, the calling one included.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.get_num_threads() >= 1
    True
    """
    return threads()


def set_num_threads(count: int) -> None:
    """Let kernels use up to `count` threads, the calling one included.

    The default is ``MINIGRAD_NUM_THREADS``, ``OMP_NUM_THREADS`` (at most 1024), or the number of cores this
    process may run on.

    Parameters
    ----------
    count : int
        1 to 1024.

    Raises
    ------
    TypeError
        If `count` is not an integer. A bool does not count as one.
    ValueError
        If it is less than 1 or more than 1024.

    Examples
    --------
    >>> import minigrad as mg
    >>> before = mg.get_num_threads()
    >>> mg.set_num_threads(1)
    >>> mg.get_num_threads()
    1
    >>> mg.set_num_threads(before)
    """
    try:
        if isinstance(count, bool):
            raise TypeError
        number = operator.index(count)
    except TypeError:
        raise TypeError(f"[set_num_threads] expected an integer, got {count!r}") from None
    if not 1 <= number <= MAX_THREADS:
        raise ValueError(f"[set_num_threads] expected 1 to {MAX_THREADS:,}, got {number}")
    set_threads(number)


point_to(ACTIVE)
register(0, CPU())
