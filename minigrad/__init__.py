"""minigrad: a small, fast, tape-based autograd engine."""

import typing as _typing
from math import e, inf, nan, pi

from minigrad import cuda, nn, optim, random
from minigrad._version import __version__
from minigrad.autograd import (
    CaptureError,
    Function,
    GradientError,
    capture,
    detect_anomaly,
    enable_grad,
    gradcheck,
    hessian,
    hvp,
    is_grad_enabled,
    jacobian,
    jvp,
    no_grad,
    per_sample_grad,
    recompute,
    record_source,
    value_and_grad,
    vjp,
)
from minigrad.autograd.gradients import grad
from minigrad.config import show_config
from minigrad.creation import *  # noqa: F403
from minigrad.engine import habits as _habits
from minigrad.engine.array import empty_cache, memory_allocated, memory_cached
from minigrad.engine.cpu import get_num_threads, set_num_threads
from minigrad.engine.dtype import (
    DType,
    float32,
    float64,
    get_default_dtype,
    get_float32_matmul_precision,
    int32,
    int64,
    set_default_dtype,
    set_float32_matmul_precision,
)
from minigrad.engine.dtype import bool_ as bool
from minigrad.engine.ops.activation import relu, sigmoid
from minigrad.engine.ops.arithmetic import (
    add,
    divide,
    floor_divide,
    multiply,
    negative,
    positive,
    reciprocal,
    remainder,
    subtract,
)
from minigrad.engine.ops.functions import absolute as abs
from minigrad.engine.ops.functions import (
    ceil,
    copysign,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    nextafter,
    power,
    round,
    rsqrt,
    sign,
    signbit,
    sqrt,
    square,
    trunc,
)
from minigrad.engine.ops.functions import power as pow
from minigrad.engine.ops.gather import argsort, nonzero, scatter_add, sort, take, take_along_axis, unique_values
from minigrad.engine.ops.join import concat, pad, split, stack, unstack
from minigrad.engine.ops.layout import (
    astype,
    broadcast_to,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    ravel,
    reshape,
    squeeze,
    sum,
    swapaxes,
)
from minigrad.engine.ops.logic import (
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    clip,
    equal,
    greater,
    greater_equal,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    not_equal,
    where,
)
from minigrad.engine.ops.matmul import linear, matmul
from minigrad.engine.ops.norm import group_norm, instance_norm, layer_norm, rms_norm
from minigrad.engine.ops.random import manual_seed
from minigrad.engine.ops.reduce import (
    all,
    any,
    argmax,
    argmin,
    cumulative_sum,
    logsumexp,
    max,
    mean,
    min,
    prod,
    std,
    var,
)
from minigrad.engine.ops.scan import linear_scan
from minigrad.engine.ops.softmax import cross_entropy, log_softmax, softmax
from minigrad.engine.ops.trigonometry import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    sin,
    sinh,
    tan,
    tanh,
)
from minigrad.engine.tensor import Tensor
from minigrad.products import *  # noqa: F403
from minigrad.profiling import profile  # type: ignore[no-redef]  # mypy sees a cycle of imports
from minigrad.reductions import *  # noqa: F403
from minigrad.saving import load, load_checkpoint, save, save_checkpoint
from minigrad.standard import (
    __array_api_version__,
    __array_namespace_info__,
    can_cast,
    finfo,
    iinfo,
    isdtype,
    result_type,
)

from minigrad import einops_backend as _einops_backend  # isort: skip  # it names Tensor

newaxis = None

if _typing.TYPE_CHECKING:
    from minigrad import data, distributed, learn, linalg, viz
    from minigrad.engine.dtype import float32 as float
    from minigrad.engine.dtype import float64 as double
    from minigrad.engine.dtype import int32 as int
    from minigrad.engine.dtype import int64 as long
    from minigrad.pytorch.functions import *  # noqa: F403
else:
    _missing = _habits.lookup(__name__)

    def __getattr__(name: str) -> object:
        """Load on first use: ``minigrad.data``, which reads files in threads, ``minigrad.viz``, which draws,
        ``minigrad.distributed``, ``minigrad.learn``, ``minigrad.linalg``, and PyTorch's names."""
        if name in ("data", "distributed", "learn", "linalg", "viz"):
            import importlib

            return importlib.import_module(f"minigrad.{name}")
        return _missing(name)


def __dir__() -> list[str]:
    return sorted({*globals(), "data", "distributed", "learn", "linalg", "viz"})
