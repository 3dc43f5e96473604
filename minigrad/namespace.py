"""The names that ``import minigrad as mg`` offers under `mg`, apart from what is loaded on first use."""

# Type checkers take ``import x as x`` for a public name.

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from minigrad import autograd as _autograd
from minigrad import cuda as cuda
from minigrad import nn as nn
from minigrad import optim as optim
from minigrad import random as random
from minigrad.array.array_api import (
    can_cast as can_cast,
)  # fmt: skip
from minigrad.array.array_api import (
    finfo as finfo,
)
from minigrad.array.array_api import (
    iinfo as iinfo,
)
from minigrad.array.array_api import (
    isdtype as isdtype,
)
from minigrad.array.array_api import (
    result_type as result_type,
)
from minigrad.array.creation import *  # noqa: F403
from minigrad.array.products import *  # noqa: F403
from minigrad.array.reductions import *  # noqa: F403
from minigrad.autograd import (
    CaptureError as CaptureError,
)  # fmt: skip
from minigrad.autograd import (
    Function as Function,
)
from minigrad.autograd import (
    GradientError as GradientError,
)
from minigrad.autograd import (
    capture as capture,
)
from minigrad.autograd import (
    detect_anomaly as detect_anomaly,
)
from minigrad.autograd import (
    enable_grad as enable_grad,
)
from minigrad.autograd import (
    gradcheck as gradcheck,
)
from minigrad.autograd import (
    hessian as hessian,
)
from minigrad.autograd import (
    hvp as hvp,
)
from minigrad.autograd import (
    is_grad_enabled as is_grad_enabled,
)
from minigrad.autograd import (
    jacobian as jacobian,
)
from minigrad.autograd import (
    jvp as jvp,
)
from minigrad.autograd import (
    no_grad as no_grad,
)
from minigrad.autograd import (
    recompute as recompute,
)
from minigrad.autograd import (
    record_source as record_source,
)
from minigrad.autograd import (
    value_and_grad as value_and_grad,
)
from minigrad.autograd import (
    vjp as vjp,
)
from minigrad.autograd.gradients import grad as grad
from minigrad.engine.devices.cpu import get_num_threads as get_num_threads
from minigrad.engine.devices.cpu import set_num_threads as set_num_threads
from minigrad.engine.memory import dtype as _dtype
from minigrad.engine.memory.dtype import (
    DType as DType,
)  # fmt: skip
from minigrad.engine.memory.dtype import (
    float32 as float32,
)
from minigrad.engine.memory.dtype import (
    float64 as float64,
)
from minigrad.engine.memory.dtype import (
    get_default_dtype as get_default_dtype,
)
from minigrad.engine.memory.dtype import (
    get_float32_matmul_precision as get_float32_matmul_precision,
)
from minigrad.engine.memory.dtype import (
    int32 as int32,
)
from minigrad.engine.memory.dtype import (
    int64 as int64,
)
from minigrad.engine.memory.dtype import (
    set_default_dtype as set_default_dtype,
)
from minigrad.engine.memory.dtype import (
    set_float32_matmul_precision as set_float32_matmul_precision,
)
from minigrad.engine.memory.pool import (
    empty_cache as empty_cache,
)
from minigrad.engine.memory.pool import (
    memory_allocated as memory_allocated,
)
from minigrad.engine.memory.pool import (
    memory_cached as memory_cached,
)
from minigrad.engine.ops import functions as _functions
from minigrad.engine.ops import rounding as _rounding
from minigrad.engine.ops.activation import relu as relu
from minigrad.engine.ops.activation import sigmoid as sigmoid
from minigrad.engine.ops.arithmetic import (
    add as add,
)  # fmt: skip
from minigrad.engine.ops.arithmetic import (
    divide as divide,
)
from minigrad.engine.ops.arithmetic import (
    floor_divide as floor_divide,
)
from minigrad.engine.ops.arithmetic import (
    multiply as multiply,
)
from minigrad.engine.ops.arithmetic import (
    negative as negative,
)
from minigrad.engine.ops.arithmetic import (
    positive as positive,
)
from minigrad.engine.ops.arithmetic import (
    reciprocal as reciprocal,
)
from minigrad.engine.ops.arithmetic import (
    remainder as remainder,
)
from minigrad.engine.ops.arithmetic import (
    subtract as subtract,
)
from minigrad.engine.ops.functions import (
    erf as erf,
)  # fmt: skip
from minigrad.engine.ops.functions import (
    exp as exp,
)
from minigrad.engine.ops.functions import (
    exp2 as exp2,
)
from minigrad.engine.ops.functions import (
    expm1 as expm1,
)
from minigrad.engine.ops.functions import (
    hypot as hypot,
)
from minigrad.engine.ops.functions import (
    log as log,
)
from minigrad.engine.ops.functions import (
    log1p as log1p,
)
from minigrad.engine.ops.functions import (
    log2 as log2,
)
from minigrad.engine.ops.functions import (
    log10 as log10,
)
from minigrad.engine.ops.functions import (
    logaddexp as logaddexp,
)
from minigrad.engine.ops.functions import (
    power as power,
)
from minigrad.engine.ops.functions import (
    rsqrt as rsqrt,
)
from minigrad.engine.ops.functions import (
    sqrt as sqrt,
)
from minigrad.engine.ops.functions import (
    square as square,
)
from minigrad.engine.ops.gather import (
    argsort as argsort,
)  # fmt: skip
from minigrad.engine.ops.gather import (
    nonzero as nonzero,
)
from minigrad.engine.ops.gather import (
    scatter_add as scatter_add,
)
from minigrad.engine.ops.gather import (
    sort as sort,
)
from minigrad.engine.ops.gather import (
    take as take,
)
from minigrad.engine.ops.gather import (
    take_along_axis as take_along_axis,
)
from minigrad.engine.ops.gather import (
    unique_values as unique_values,
)
from minigrad.engine.ops.join import (
    concat as concat,
)  # fmt: skip
from minigrad.engine.ops.join import (
    pad as pad,
)
from minigrad.engine.ops.join import (
    split as split,
)
from minigrad.engine.ops.join import (
    stack as stack,
)
from minigrad.engine.ops.join import (
    unstack as unstack,
)
from minigrad.engine.ops.layout import (
    astype as astype,
)  # fmt: skip
from minigrad.engine.ops.layout import (
    broadcast_to as broadcast_to,
)
from minigrad.engine.ops.layout import (
    expand_dims as expand_dims,
)
from minigrad.engine.ops.layout import (
    matrix_transpose as matrix_transpose,
)
from minigrad.engine.ops.layout import (
    moveaxis as moveaxis,
)
from minigrad.engine.ops.layout import (
    permute_dims as permute_dims,
)
from minigrad.engine.ops.layout import (
    ravel as ravel,
)
from minigrad.engine.ops.layout import (
    reshape as reshape,
)
from minigrad.engine.ops.layout import (
    squeeze as squeeze,
)
from minigrad.engine.ops.layout import (
    sum as sum,
)
from minigrad.engine.ops.layout import (
    swapaxes as swapaxes,
)
from minigrad.engine.ops.logic import (
    bitwise_and as bitwise_and,
)  # fmt: skip
from minigrad.engine.ops.logic import (
    bitwise_invert as bitwise_invert,
)
from minigrad.engine.ops.logic import (
    bitwise_left_shift as bitwise_left_shift,
)
from minigrad.engine.ops.logic import (
    bitwise_or as bitwise_or,
)
from minigrad.engine.ops.logic import (
    bitwise_right_shift as bitwise_right_shift,
)
from minigrad.engine.ops.logic import (
    bitwise_xor as bitwise_xor,
)
from minigrad.engine.ops.logic import (
    clip as clip,
)
from minigrad.engine.ops.logic import (
    equal as equal,
)
from minigrad.engine.ops.logic import (
    greater as greater,
)
from minigrad.engine.ops.logic import (
    greater_equal as greater_equal,
)
from minigrad.engine.ops.logic import (
    less as less,
)
from minigrad.engine.ops.logic import (
    less_equal as less_equal,
)
from minigrad.engine.ops.logic import (
    logical_and as logical_and,
)
from minigrad.engine.ops.logic import (
    logical_not as logical_not,
)
from minigrad.engine.ops.logic import (
    logical_or as logical_or,
)
from minigrad.engine.ops.logic import (
    logical_xor as logical_xor,
)
from minigrad.engine.ops.logic import (
    maximum as maximum,
)
from minigrad.engine.ops.logic import (
    minimum as minimum,
)
from minigrad.engine.ops.logic import (
    not_equal as not_equal,
)
from minigrad.engine.ops.logic import (
    where as where,
)
from minigrad.engine.ops.matmul import linear as linear
from minigrad.engine.ops.matmul import matmul as matmul
from minigrad.engine.ops.norm import (
    group_norm as group_norm,
)  # fmt: skip
from minigrad.engine.ops.norm import (
    instance_norm as instance_norm,
)
from minigrad.engine.ops.norm import (
    layer_norm as layer_norm,
)
from minigrad.engine.ops.norm import (
    rms_norm as rms_norm,
)
from minigrad.engine.ops.random import manual_seed as manual_seed
from minigrad.engine.ops.reduce import (
    all as all,
)  # fmt: skip
from minigrad.engine.ops.reduce import (
    any as any,
)
from minigrad.engine.ops.reduce import (
    argmax as argmax,
)
from minigrad.engine.ops.reduce import (
    argmin as argmin,
)
from minigrad.engine.ops.reduce import (
    cumulative_sum as cumulative_sum,
)
from minigrad.engine.ops.reduce import (
    logsumexp as logsumexp,
)
from minigrad.engine.ops.reduce import (
    max as max,
)
from minigrad.engine.ops.reduce import (
    mean as mean,
)
from minigrad.engine.ops.reduce import (
    min as min,
)
from minigrad.engine.ops.reduce import (
    prod as prod,
)
from minigrad.engine.ops.reduce import (
    std as std,
)
from minigrad.engine.ops.reduce import (
    var as var,
)
from minigrad.engine.ops.rounding import (
    ceil as ceil,
)  # fmt: skip
from minigrad.engine.ops.rounding import (
    copysign as copysign,
)
from minigrad.engine.ops.rounding import (
    floor as floor,
)
from minigrad.engine.ops.rounding import (
    isfinite as isfinite,
)
from minigrad.engine.ops.rounding import (
    isinf as isinf,
)
from minigrad.engine.ops.rounding import (
    isnan as isnan,
)
from minigrad.engine.ops.rounding import (
    nextafter as nextafter,
)
from minigrad.engine.ops.rounding import (
    round as round,
)
from minigrad.engine.ops.rounding import (
    sign as sign,
)
from minigrad.engine.ops.rounding import (
    signbit as signbit,
)
from minigrad.engine.ops.rounding import (
    trunc as trunc,
)
from minigrad.engine.ops.scan import linear_scan as linear_scan
from minigrad.engine.ops.slices import flip as flip
from minigrad.engine.ops.softmax import cross_entropy as cross_entropy
from minigrad.engine.ops.softmax import log_softmax as log_softmax
from minigrad.engine.ops.softmax import softmax as softmax
from minigrad.engine.ops.trigonometry import (
    acos as acos,
)  # fmt: skip
from minigrad.engine.ops.trigonometry import (
    acosh as acosh,
)
from minigrad.engine.ops.trigonometry import (
    asin as asin,
)
from minigrad.engine.ops.trigonometry import (
    asinh as asinh,
)
from minigrad.engine.ops.trigonometry import (
    atan as atan,
)
from minigrad.engine.ops.trigonometry import (
    atan2 as atan2,
)
from minigrad.engine.ops.trigonometry import (
    atanh as atanh,
)
from minigrad.engine.ops.trigonometry import (
    cos as cos,
)
from minigrad.engine.ops.trigonometry import (
    cosh as cosh,
)
from minigrad.engine.ops.trigonometry import (
    sin as sin,
)
from minigrad.engine.ops.trigonometry import (
    sinh as sinh,
)
from minigrad.engine.ops.trigonometry import (
    tan as tan,
)
from minigrad.engine.ops.trigonometry import (
    tanh as tanh,
)
from minigrad.engine.tensor.tensor import Tensor as Tensor
from minigrad.nn.per_sample import per_sample_grad as per_sample_grad
from minigrad.profiling import profile as profile  # type: ignore[no-redef]  # mypy sees a cycle of imports
from minigrad.saving import (
    load as load,
)  # fmt: skip
from minigrad.saving import (
    load_checkpoint as load_checkpoint,
)
from minigrad.saving import (
    save as save,
)
from minigrad.saving import (
    save_checkpoint as save_checkpoint,
)
from minigrad.tools.config import show_config as show_config

newaxis = None
_autograd.per_sample_grad = per_sample_grad  # it needs modules, which are above autograd
abs, bool, pow = _rounding.absolute, _dtype.bool_, _functions.power
