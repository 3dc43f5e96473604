"""NumPy's functions on tensors: ``np.sin(x)`` is `minigrad.sin`, recorded; what has no counterpart here gets arrays.

Nothing of this file is loaded before NumPy is given a tensor. NumPy calls `call_ufunc` for its ufuncs and for operators
with an array on the left, `call_function` for its other functions (https://numpy.org/neps/nep-0013-ufunc-overrides.html
and nep-0018-array-function-protocol.html).

A function of `OURS` is minigrad's. All others, and those calls that minigrad's function refuses, get
``np.asarray(x)`` for each tensor x, which is a TypeError if that would lose a gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from minigrad import linalg
from minigrad import namespace as mg
from minigrad.engine.tensor.tensor import Tensor
from minigrad.pytorch.methods import TensorNames

# ── minigrad's functions where NumPy's arguments or meanings differ ───────────────────────────────


def _row_major(name: str, order: str) -> None:
    if order not in ("C", "K", "A"):
        raise TypeError(f"[{name}] expected order 'C', got {order!r}")


def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Tensor:
    _row_major("reshape", order)
    return mg.reshape(a, shape, copy)


def ravel(a: Tensor, order: str = "C") -> Tensor:
    _row_major("ravel", order)
    return a.reshape(-1)


def copy(a: Tensor, order: str = "K", subok: bool = False) -> Tensor:
    _row_major("copy", order)
    return a.copy()


def take(a: Any, indices: Any, axis: int | None = None) -> Tensor:
    """`minigrad.take`, without an axis of all elements in a row."""
    return mg.take(mg.reshape(a, -1) if axis is None else a, indices, 0 if axis is None else axis)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    return mg.repeat(a, repeats, axis=axis)


def pad(array: Tensor, pad_width: Any, mode: str = "constant", *, constant_values: float = 0) -> Tensor:
    """`minigrad.pad`, with one value and borders no longer than what they are made of."""
    if np.ndim(constant_values):
        raise TypeError(f"[pad] expected one value, got {constant_values!r}")
    if np.shape(pad_width) == (2,):
        pad_width = [tuple(pad_width)] * array.ndim
    try:
        return mg.pad(array, pad_width, mode, value=constant_values)
    except ValueError as error:  # other modes, and borders longer than an axis: NumPy computes them
        raise TypeError(str(error)) from error


def where(condition: Any, *values: Any) -> Any:
    """`minigrad.where`, or `minigrad.nonzero` of a condition alone."""
    return mg.where(condition, *values) if values else mg.nonzero(condition)


def clip(a: Any, a_min: Any = None, a_max: Any = None, **options: Any) -> Tensor:
    return mg.clip(a, **{"min": a_min, "max": a_max, **options})


def std(a: Any, axis: Any = None, *, ddof: float = 0, **options: Any) -> Tensor:
    """`minigrad.std`, with ddof for correction."""
    return mg.std(a, axis, **{"correction": ddof, **options})


def var(a: Any, axis: Any = None, *, ddof: float = 0, **options: Any) -> Tensor:
    """`minigrad.var`, with ddof for correction."""
    return mg.var(a, axis, **{"correction": ddof, **options})


def cumsum(a: Any, axis: int | None = None) -> Tensor:
    """`minigrad.cumulative_sum`, without an axis of all elements in a row."""
    return mg.cumulative_sum(mg.reshape(a, -1) if axis is None else a, 0 if axis is None else axis)


def outer(a: Any, b: Any) -> Tensor:
    """`minigrad.outer` of all elements in a row."""
    return mg.outer(mg.reshape(a, -1), mg.reshape(b, -1))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    return mg.tensordot(a, b, axes=axes)


def dot(a: Any, b: Any) -> Tensor:
    """Return ``a @ b`` for at most two axes; else the sum over the last axis of a and the last but one of b."""
    a, b = mg.asarray(a), mg.asarray(b)
    if a.ndim == 0 or b.ndim == 0:
        return mg.multiply(a, b)
    return mg.matmul(a, b) if b.ndim < 3 else mg.tensordot(a, b, axes=((-1,), (-2,)))


def inner(a: Any, b: Any) -> Tensor:
    """`minigrad.tensordot` over the last axes."""
    a, b = mg.asarray(a), mg.asarray(b)
    return mg.multiply(a, b) if a.ndim == 0 or b.ndim == 0 else mg.tensordot(a, b, axes=((-1,), (-1,)))


def vdot(a: Any, b: Any) -> Tensor:
    """`minigrad.vecdot` of all elements in a row."""
    return mg.vecdot(mg.reshape(a, -1), mg.reshape(b, -1))


def norm(x: Tensor, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Return the norm of vectors, and the Frobenius norm of matrices."""
    if ord is not None and not (isinstance(ord, int | float) and (isinstance(axis, int) or x.ndim == 1)):
        raise TypeError(f"[norm] expected a norm of vectors, got ord={ord!r} and axis={axis!r} of shape {x.shape}")
    return TensorNames.norm(x, 2 if ord is None else ord, axis, keepdims)


def hstack(tup: Sequence[Any]) -> Tensor:
    """`minigrad.concat` along axis 1, of vectors along axis 0."""
    parts = [x if x.ndim else x.reshape(1) for x in map(mg.asarray, tup)]
    return mg.concat(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tup: Sequence[Any]) -> Tensor:
    """`minigrad.concat` along axis 0, in which a vector is a row."""
    return mg.concat([x if x.ndim > 1 else x.reshape((1, -1)) for x in map(mg.asarray, tup)], 0)


def meshgrid(*xi: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    return tuple(mg.meshgrid(*xi, indexing=indexing))


def copyto(dst: Any, src: Any) -> None:
    if not isinstance(dst, Tensor):
        raise TypeError(f"[copyto] expected a tensor, got {type(dst).__name__}")
    dst.copy_(src)


def size(a: Any, axis: int | None = None) -> int:
    """Return the number of elements, or the length of an axis."""
    found: int = a.size if axis is None else a.shape[axis]
    return found


# ── the table ─────────────────────────────────────────────────────────────────────────────────────

# Functions of minigrad under other names, and those above.
DIFFERING: dict[str, Callable[..., Any]] = {
    "rint": mg.round, "amax": mg.max, "amin": mg.min, "around": mg.round, "swapaxes": TensorNames.swapaxes,
    "reshape": reshape, "ravel": ravel, "transpose": mg.transpose, "copy": copy, "take": take, "repeat": repeat,
    "pad": pad, "where": where, "clip": clip, "std": std, "var": var, "cumsum": cumsum, "outer": outer,
    "tensordot": tensordot, "dot": dot,
    "inner": inner, "vdot": vdot, "linalg.norm": norm, "hstack": hstack, "vstack": vstack, "meshgrid": meshgrid,
    "copyto": copyto, "size": size, "shape": lambda a: a.shape, "ndim": lambda a: a.ndim,
    "iscomplexobj": lambda x: False, "isrealobj": lambda x: True,
}  # fmt: skip
# Functions of NumPy that mean something else here, whose tensors are numbers here, or whose results have no history.
UNRELATED = set(
    """
    arange asarray can_cast empty eye full linspace load nextafter ones result_type save unique_all unique_counts
    unique_inverse unique_values zeros
""".split()
)
# Reductions that are methods of ufuncs in NumPy, such as `np.add.reduce`.
REDUCTIONS: dict[np.ufunc, Callable[..., Any]] = {
    np.add: mg.sum, np.multiply: mg.prod, np.maximum: mg.max, np.minimum: mg.min, np.logical_and: mg.all,
    np.logical_or: mg.any,
}  # fmt: skip
COMPARISONS = {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
# NumPy's own functions whose results have no gradient: they get the values of any tensor on the CPU.
CONSTANT = """
    allclose argpartition argwhere array2string array_equal array_equiv array_repr array_str can_cast common_type
    count_nonzero digitize flatnonzero isclose iscomplex isin isneginf isposinf isreal lexsort linalg.matrix_rank
    may_share_memory min_scalar_type nanargmax nanargmin result_type searchsorted shares_memory signbit
"""
# NumPy's functions that write to their first argument.
WRITING = "copyto fill_diagonal place put put_along_axis putmask"


def _find(name: str) -> Any:
    """Find a function of NumPy; None if this version has none of that name."""
    space, _, last = name.rpartition(".")
    return getattr(np.linalg if space else np, last, None)


def _table() -> dict[Any, Callable[..., Any]]:
    """Pair NumPy's functions with minigrad's of the same name, and with `DIFFERING`."""
    own = {name: value for name, value in vars(mg).items() if name not in UNRELATED}
    own |= {f"linalg.{name}": getattr(linalg, name) for name in linalg.__all__}
    pairs = [*own.items(), *DIFFERING.items()]  # np.permute_dims is np.transpose
    named = [(_find(name), ours) for name, ours in pairs if callable(ours)]
    # np.ufunc, and the class of the functions that ask their arguments
    return {theirs: ours for theirs, ours in named if isinstance(theirs, np.ufunc | type(np.sum))}


OURS = _table()
_CONSTANT = {_find(name) for name in CONSTANT.split()}
_WRITING = {_find(name) for name in WRITING.split()}


# ── the protocols ─────────────────────────────────────────────────────────────────────────────────


def call_ufunc(ufunc: np.ufunc, method: str, inputs: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return the result of a ufunc or of one of its methods; NotImplemented if an operand has a protocol of its own."""
    ours = OURS.get(ufunc)
    for x in (*inputs, *options.get("out", ()), options.get("where")):
        kind = type(x)
        if kind is np.ndarray or isinstance(x, Tensor):
            continue
        if getattr(kind, "__array_ufunc__", _UFUNC) is not _UFUNC:
            return NotImplemented
        if _is_masked(kind):
            ours = None
    if ufunc in COMPARISONS:  # NumPy's scalars come as arrays (), which would decide about dtype and device
        inputs = [x[()] if isinstance(x, np.ndarray) and not x.ndim else x for x in inputs]
    if method == "__call__":
        return ours(*inputs) if ours is not None and not options else _call(ufunc, ours, inputs, options)
    if method == "reduce" and ours is not None:
        ours, options = REDUCTIONS.get(ufunc), {"axis": 0, **options}
    elif method == "outer" and ours is not None:
        x, y = inputs
        if np.ndim(x) and np.ndim(y):
            x = mg.reshape(x, np.shape(x) + (1,) * np.ndim(y))
        return call_ufunc(ufunc, "__call__", (x, y), options)
    else:
        ours = None
    return _call(getattr(ufunc, method), ours, inputs, options)


def call_function(
    function: Callable[..., Any], types: Sequence[type], args: Sequence[Any], options: dict[str, Any]
) -> Any:
    """Return the result of a function; NotImplemented if an argument has a protocol of its own."""
    others = [kind for kind in types if not issubclass(kind, Tensor)]
    if any(getattr(kind, "__array_function__", _FUNCTION) is not _FUNCTION for kind in others):
        return NotImplemented
    return _call(function, None if any(map(_is_masked, others)) else OURS.get(function), args, options)


_UFUNC, _FUNCTION = np.ndarray.__array_ufunc__, np.ndarray.__array_function__


def _is_masked(kind: type) -> bool:
    """Return whether arrays of this class have a mask, which a tensor cannot keep."""
    return issubclass(kind, np.ndarray) and hasattr(kind, "mask")


def _call(
    theirs: Callable[..., Any], ours: Callable[..., Any] | None, args: Sequence[Any], options: dict[str, Any]
) -> Any:
    """Call minigrad's function, or NumPy's with arrays if there is none or it refuses the arguments."""
    # None is the default of every parameter but the axis, and True is the default of where.
    options = {
        key: x
        for key, x in options.items()
        if x is not np._NoValue and (x is not None or key == "axis") and not (x is True and key == "where")
    }
    out = options.get("out")
    if isinstance(out, tuple) and len(out) == 1:
        out = out[0]
    refusal = None
    if ours is not None and (out is None or isinstance(out, Tensor)):
        try:
            result = ours(*args, **{key: x for key, x in options.items() if key != "out"})
            return result if out is None else out.copy_(result)
        except TypeError as error:
            if out is not None:
                raise
            refusal = error
    return _on_arrays(theirs, args, options, refusal)


def _on_arrays(
    theirs: Callable[..., Any], args: Sequence[Any], options: dict[str, Any], refusal: TypeError | None
) -> Any:
    """Return the result of NumPy's function with an array for each tensor."""
    name = theirs.__name__
    found: list[Tensor] = []

    def replace(x: Any) -> Any:
        if isinstance(x, list | tuple):
            return type(x)(map(replace, x)) if type(x) in (list, tuple) else x
        if not isinstance(x, Tensor):
            return x
        found.append(x)
        if x.device != "cpu":
            _refuse(name, f"a tensor on {x.device}", "x.detach().to('cpu')", refusal)
        if x.requires_grad and theirs not in _CONSTANT:
            _refuse(name, "a tensor that requires grad, whose gradient would be lost", "x.detach()", refusal)
        return np.asarray(x.detach())

    written = [options.get("out"), args[0] if args and (theirs in _WRITING or name == "at") else None]
    if any(isinstance(x, Tensor) for y in written for x in (y if isinstance(y, tuple) else [y])):
        raise TypeError(f"[{name}] expected an array to write to, got a tensor: x.copy_(...) and x[...] = ... write")
    args, options = replace(tuple(args)), {key: replace(x) for key, x in options.items()}
    return theirs(*args, **options) if found else NotImplemented  # np.zeros(2, like=x)


def _refuse(name: str, got: str, values: str, refusal: TypeError | None) -> NoReturn:
    said = "" if refusal is None else f" ({refusal})"
    raise TypeError(f"[{name}] expected arrays, got {got}: for NumPy's result, use np.asarray({values}){said}")
