"""The data types of tensors, and how NumPy, Python and strings name them."""
cimport cython
import numpy as np


@cython.binding(False)
@cython.embedsignature(True)
cdef class DType:
    """A data type: ``minigrad.float32`` (the default), ``float64``, ``int32``, ``int64``, ``uint8`` or ``bool``.

    uint8 is for data such as the pixels of images, in a quarter of the memory of float32: it is stored, indexed,
    compared and converted, and refuses arithmetic with its own kind, whose results would wrap at 256. Other operands
    convert it: ``x / 255`` is float32.

    Equal to its name and to NumPy's data type of that name. As in NumPy and PyTorch, Python's ``float`` stands for
    float64, ``int`` for int64 and ``bool`` for bool.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.zeros(3).dtype
    minigrad.float32
    >>> mg.float64.itemsize, mg.float64 == "float64", mg.float64 == float
    (8, True, True)
    """

    def __cinit__(self, str name, int itemsize, str kind, int code):
        if TABLE is not None:
            raise TypeError(f"[dtype] expected one of minigrad's data types, got a new one: {name!r}")
        self.name, self.itemsize, self.kind, self.code = name, itemsize, kind, code
        self.numpy_dtype = np.dtype(name)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's data type; lets NumPy accept this object wherever it takes a data type."""
        return self.numpy_dtype

    def __repr__(self) -> str:
        return "minigrad." + self.name

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return code_of(other) == self.code
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_floating_point(self) -> bool:
        """PyTorch's name for ``dtype.kind == "f"``."""
        return self.kind == "f"

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name


bool_: DType = DType("bool", 1, "b", BOOL)
uint8: DType = DType("uint8", 1, "u", UINT8)
int32: DType = DType("int32", 4, "i", INT32)
int64: DType = DType("int64", 8, "i", INT64)
float32: DType = DType("float32", 4, "f", FLOAT32)
float64: DType = DType("float64", 8, "f", FLOAT64)

EXPECTED = "float32, float64, int32, int64, uint8 or bool"

DTypeLike: TypeAlias = DType | str | type | np.dtype | None

cdef tuple TABLE = (bool_, uint8, int32, int64, float32, float64)
CODES = {bool: BOOL, int: INT64, float: FLOAT64}
for entry in TABLE:
    CODES[entry.name] = (<DType>entry).code


default_float = FLOAT32


def get_default_dtype() -> DType:
    """The data type of floats for which none is given: float32, unless `set_default_dtype` chose float64.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.get_default_dtype()
    minigrad.float32
    """
    return dtype_of(default_float)


def set_default_dtype(d: DTypeLike) -> None:
    """Choose the data type of floats for which none is given: float32 or float64.

    It is the dtype of new parameters, of tensors made from Python floats or by functions such as `zeros`, `randn` and
    `linspace`, and of results where an operation converts integers to floats. Tensors that exist, arrays of NumPy and
    data sets keep theirs. The choice holds for the whole process, so make it once, at the start.

    Parameters
    ----------
    d : DType

    Raises
    ------
    TypeError
        If `d` is not a floating dtype.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.set_default_dtype("float64")
    >>> (mg.ones(2) / 3).dtype
    minigrad.float64
    >>> mg.set_default_dtype("float32")
    """
    global default_float
    cdef int code = code_of(d, "set_default_dtype")
    if not is_float(code):
        raise TypeError(f"[set_default_dtype] expected float32 or float64, got {dtype_of(code)}")
    default_float = code


cdef str matmul_precision = "highest"
tf32_allowed = False
bfloat16_allowed = False


def get_float32_matmul_precision() -> str:
    """The precision of products of float32: ``"highest"``, unless `set_float32_matmul_precision` chose another.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.get_float32_matmul_precision()
    'highest'
    """
    return matmul_precision


def set_float32_matmul_precision(precision: str) -> None:
    """Choose how precisely matrix products, recurrent layers, attention and convolutions of float32 are computed.

    Where factors may be rounded, processors multiply several times as fast; sums and everything else remain float32.
    The relative error of a product, about 1e-7, grows to 1e-3 with TF32, which has the range of float32 and 10 bits
    of fraction instead of 23, and to 8e-3 with bfloat16, which has 7. A product that is not finite where the exact one
    is, or the other way round, comes from factors above 3.39e38, which are rounded to infinity. On the CPU, bfloat16
    also reads subnormal factors as zero. The choice holds for the whole process, and changes nothing in float64.
    (PyTorch computes ``"medium"`` like ``"highest"`` on CPUs, and has another setting for convolutions.)

    Parameters
    ----------
    precision : str
        ``"highest"``, the default: float32. ``"high"``: TF32 on GPUs of compute capability 8.0 and above. ``"medium"``:
        there, bfloat16 in matrix products and TF32 in the others; on CPUs with AVX512_BF16, bfloat16 too, but for
        convolutions, and where it is not faster: products of fewer than 16 rows, columns or terms, and attention of
        fewer than 16 queries. `show_config` says whether this CPU has it. A backward pass of attention rounds as its
        forward pass did.

    Raises
    ------
    ValueError
        If `precision` is none of these.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.set_float32_matmul_precision("high")
    >>> mg.get_float32_matmul_precision()
    'high'
    >>> mg.set_float32_matmul_precision("highest")
    """
    global matmul_precision, tf32_allowed, bfloat16_allowed
    if not isinstance(precision, str) or precision not in ("highest", "high", "medium"):
        raise ValueError(f"[set_float32_matmul_precision] expected 'highest', 'high' or 'medium', got {precision!r}")
    matmul_precision = str(precision)
    tf32_allowed, bfloat16_allowed = matmul_precision != "highest", matmul_precision == "medium"


cdef DType dtype_of(int code):
    return <DType>TABLE[code]


cdef int code_of(object dtype, str op="dtype") except -1:
    """The code of a dtype; the error names `op`."""
    if type(dtype) is DType:
        return (<DType>dtype).code
    try:
        found = CODES.get(dtype) if isinstance(dtype, (str, type)) else None
        if found is None and dtype is not None:     # NumPy would read None as float64
            found = CODES.get(np.dtype(dtype).name)
    except Exception:       # NumPy reads many things as a dtype, and raises errors of many types for the rest
        found = None
    if found is None:
        raise TypeError(f"[{op}] expected {EXPECTED}, got {dtype!r}")
    return found
