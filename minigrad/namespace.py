"""The names that ``import minigrad as mg`` offers under `mg`, apart from what is loaded on first use."""

# Type checkers take ``import x as x`` for a public name.
# ruff: noqa: I001

from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi

from minigrad import autograd as _autograd, cuda as cuda, nn as nn, optim as optim, random as random
from minigrad.arrays.array_api import (
    can_cast as can_cast, finfo as finfo, iinfo as iinfo, isdtype as isdtype, result_type as result_type,
)  # fmt: skip
from minigrad.arrays.creation import *  # noqa: F403
from minigrad.arrays.products import *  # noqa: F403
from minigrad.arrays.reductions import *  # noqa: F403
from minigrad.autograd import (
    CaptureError as CaptureError, Function as Function, GradientError as GradientError, capture as capture,
    detect_anomaly as detect_anomaly, enable_grad as enable_grad, gradcheck as gradcheck, hessian as hessian,
    hvp as hvp, is_grad_enabled as is_grad_enabled, jacobian as jacobian, jvp as jvp, no_grad as no_grad,
    recompute as recompute, record_source as record_source, value_and_grad as value_and_grad, vjp as vjp,
)  # fmt: skip
from minigrad.autograd.gradients import grad as grad
from minigrad.engine.devices.cpu import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from minigrad.engine.memory import dtype as _dtype
from minigrad.engine.memory.dtype import (
    DType as DType, float32 as float32, float64 as float64, get_default_dtype as get_default_dtype,
    get_float32_matmul_precision as get_float32_matmul_precision, int32 as int32, int64 as int64,
    set_default_dtype as set_default_dtype, set_float32_matmul_precision as set_float32_matmul_precision,
    uint8 as uint8,
)  # fmt: skip
from minigrad.engine.memory.pool import (
    empty_cache as empty_cache, memory_allocated as memory_allocated, memory_cached as memory_cached,
)  # fmt: skip
from minigrad.engine.ops import functions as _functions, rounding as _rounding
from minigrad.engine.ops.activation import relu as relu, sigmoid as sigmoid
from minigrad.engine.ops.arithmetic import (
    add as add, divide as divide, floor_divide as floor_divide, multiply as multiply, negative as negative,
    positive as positive, reciprocal as reciprocal, remainder as remainder, subtract as subtract,
)  # fmt: skip
from minigrad.engine.ops.functions import (
    erf as erf, exp as exp, exp2 as exp2, expm1 as expm1, hypot as hypot, log as log, log10 as log10, log1p as log1p,
    log2 as log2, logaddexp as logaddexp, power as power, rsqrt as rsqrt, sqrt as sqrt, square as square,
)  # fmt: skip
from minigrad.engine.ops.gather import (
    argsort as argsort, nonzero as nonzero, scatter_add as scatter_add, sort as sort, take as take,
    take_along_axis as take_along_axis, unique_values as unique_values,
)  # fmt: skip
from minigrad.engine.ops.join import concat as concat, pad as pad, split as split, stack as stack, unstack as unstack
from minigrad.engine.ops.layout import (
    astype as astype, broadcast_to as broadcast_to, expand_dims as expand_dims, matrix_transpose as matrix_transpose,
    moveaxis as moveaxis, permute_dims as permute_dims, ravel as ravel, reshape as reshape, squeeze as squeeze,
    sum as sum, swapaxes as swapaxes,
)  # fmt: skip
from minigrad.engine.ops.logic import (
    bitwise_and as bitwise_and, bitwise_invert as bitwise_invert, bitwise_left_shift as bitwise_left_shift,
    bitwise_or as bitwise_or, bitwise_right_shift as bitwise_right_shift, bitwise_xor as bitwise_xor, clip as clip,
    equal as equal, greater as greater, greater_equal as greater_equal, less as less, less_equal as less_equal,
    logical_and as logical_and, logical_not as logical_not, logical_or as logical_or, logical_xor as logical_xor,
    maximum as maximum, minimum as minimum, not_equal as not_equal, where as where,
)  # fmt: skip
from minigrad.engine.ops.matmul import linear as linear, matmul as matmul
from minigrad.engine.ops.norm import (
    group_norm as group_norm, instance_norm as instance_norm, layer_norm as layer_norm, rms_norm as rms_norm,
)  # fmt: skip
from minigrad.engine.ops.random import manual_seed as manual_seed
from minigrad.engine.ops.reduce import (
    all as all, any as any, argmax as argmax, argmin as argmin, cumulative_sum as cumulative_sum,
    logsumexp as logsumexp, max as max, mean as mean, min as min, prod as prod, std as std, var as var,
)  # fmt: skip
from minigrad.engine.ops.rounding import (
    ceil as ceil, copysign as copysign, floor as floor, isfinite as isfinite, isinf as isinf, isnan as isnan,
    nextafter as nextafter, round as round, sign as sign, signbit as signbit, trunc as trunc,
)  # fmt: skip
from minigrad.engine.ops.scan import linear_scan as linear_scan
from minigrad.engine.ops.slices import flip as flip
from minigrad.engine.ops.softmax import cross_entropy as cross_entropy, log_softmax as log_softmax, softmax as softmax
from minigrad.engine.ops.trigonometry import (
    acos as acos, acosh as acosh, asin as asin, asinh as asinh, atan as atan, atan2 as atan2, atanh as atanh,
    cos as cos, cosh as cosh, sin as sin, sinh as sinh, tan as tan, tanh as tanh,
)  # fmt: skip
from minigrad.engine.tensor.tensor import Tensor as Tensor
from minigrad.nn.per_sample import per_sample_grad as per_sample_grad
from minigrad.profiling import profile as profile
from minigrad.saving import (
    load as load, load_checkpoint as load_checkpoint, save as save, save_checkpoint as save_checkpoint,
)  # fmt: skip
from minigrad.tools.config import show_config as show_config

newaxis = None
_autograd.per_sample_grad = per_sample_grad  # it needs modules, which are above autograd
abs, bool, pow = _rounding.absolute, _dtype.bool_, _functions.power
