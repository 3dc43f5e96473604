"""Normalizations, their references and their compositions."""

import math
from functools import partial

import numpy as np

import minigrad as mg
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train
from table.entry import Op, case


def standardized(x, axes, eps, sqrt):
    centered = x - x.mean(axes, keepdims=True)
    return centered / sqrt((centered * centered).mean(axes, keepdims=True) + eps)


def layer_norm(x, *affine, normalized_shape, eps=1e-5, weighted=True, sqrt=np.sqrt):
    """Normalize arrays, or compose the operation if `sqrt` is minigrad's, as do the functions below."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    y = standardized(x, tuple(range(-len(shape), 0)), eps, sqrt)
    for k, a in enumerate(affine):
        y = y * a if k == 0 and weighted else y + a
    return y


def rms_norm(x, *affine, normalized_shape, eps=None, sqrt=np.sqrt):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    eps = float(np.finfo(str(x.dtype)).eps) if eps is None else eps
    y = x / sqrt((x * x).mean(tuple(range(-len(shape), 0)), keepdims=True) + eps)
    return y * affine[0] if affine else y


def channels(x, *affine, weighted=True):
    """Reshape a weight and a bias per channel, either of which may be None, to broadcast against x."""
    affine = [v.reshape(tuple(v.shape) + (1,) * (x.ndim - 2)) for v in affine]
    y = x * affine[0] if affine and weighted else x
    return y + affine[-1] if len(affine) == 2 or (affine and not weighted) else y


def group_norm(x, *affine, num_groups, eps=1e-5, weighted=True, sqrt=np.sqrt):
    rows = x.reshape(x.shape[0], num_groups, math.prod(x.shape[1:]) // num_groups)
    return channels(standardized(rows, 2, eps, sqrt).reshape(x.shape), *affine, weighted=weighted)


def instance_norm(x, *affine, eps=1e-5, sqrt=np.sqrt):
    return group_norm(x, *affine, num_groups=x.shape[1], eps=eps, sqrt=sqrt)


def batch_norm(x, *affine, eps=1e-5, weighted=True, sqrt=np.sqrt):
    return channels(standardized(x, (0, *range(2, x.ndim)), eps, sqrt), *affine, weighted=weighted)


def given_batch_norm(sqrt):
    """Normalize with given statistics, in any library's arrays."""

    def batch_norm(x, mean, var, *affine, eps=1e-5, weighted=True):
        y = channels(x, -mean, weighted=False)
        y = channels(y, 1 / sqrt(var + eps))
        return channels(y, *affine, weighted=weighted)

    return batch_norm


def torch_layer_norm(torch, x, *affine, normalized_shape, eps=1e-5, weighted=True):
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    return torch.nn.functional.layer_norm(x, shape, *(affine if weighted else (None, *affine)), eps=eps)


def torch_batch_norm(torch, x, *affine, eps=1e-5, weighted=True):
    return torch.nn.functional.batch_norm(
        x, None, None, *(affine if weighted else (None, *affine)), training=True, eps=eps
    )


def dynamic_tanh(x, alpha, *affine, tanh=np.tanh):
    y = tanh(alpha * x)
    for k, a in enumerate(affine):
        y = y * a if k == 0 else y + a
    return y


def scale_norm(x, weight, eps=1e-5, sqrt=np.sqrt):
    return weight * x / sqrt((x * x).sum(-1)[..., None] + eps)


def film(x, scale, shift):
    each = tuple(scale.shape) + (1,) * (x.ndim - 2)
    return scale.reshape(each) * x + shift.reshape(each)


def adaptive_layer_norm(x, scale, shift, eps=1e-5, norm=layer_norm):
    y = norm(x, normalized_shape=x.shape[-1], eps=eps)
    each = (x.shape[0],) + (1,) * (x.ndim - 2) + (x.shape[-1],)
    return (1 + scale).reshape(each) * y + shift.reshape(each)


def filter_response_norm(x, *affine, eps=1e-6, sqrt=np.sqrt, maximum=np.maximum):
    axes = tuple(range(2, x.ndim))
    y = x / sqrt((x * x).sum(axes).reshape(tuple(x.shape[:2]) + (1,) * len(axes)) / math.prod(x.shape[2:]) + eps)
    y = channels(y, *affine[:2])
    return maximum(y, affine[2].reshape((-1,) + (1,) * len(axes))) if len(affine) == 3 else y


def tlu(x, threshold, maximum=np.maximum):
    return maximum(x, threshold.reshape((-1,) + (1,) * (x.ndim - 2)))


def deep_norm(x, branch, *affine, alpha, normalized_shape, eps=1e-5, norm=layer_norm):
    return norm(alpha * x + branch, *affine, normalized_shape=normalized_shape, eps=eps)


def weight_standardization(weight, eps=1e-5, dim=0, sqrt=np.sqrt):
    axes = tuple(k for k in range(weight.ndim) if k != dim % weight.ndim)
    mean = weight.mean(axes).reshape([-1 if k == dim % weight.ndim else 1 for k in range(weight.ndim)])
    centered = weight - mean
    return centered / sqrt((centered * centered).mean(axes).reshape(mean.shape) + eps)


NORM = [
    Op(
        "layer_norm", layer_norm, torch=torch_layer_norm, composition=partial(layer_norm, sqrt=mg.sqrt), ulps=64,
        ours=lambda x, *affine, normalized_shape, eps=1e-5, weighted=True: mg.layer_norm(
            x, normalized_shape, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((4, 6), normalized_shape=6), case((4, 6), (6,), (6,), normalized_shape=6), case((4, 6), (6,), normalized_shape=(6,)),
            case((4, 6), (6,), normalized_shape=6, weighted=False), case((6,), (6,), (6,), normalized_shape=6, eps=0.1),
            case((2, 3, 4), (3, 4), (3, 4), normalized_shape=(3, 4)), case((2, 3, 4), (4,), (4,), normalized_shape=[4], eps=0.5),
            case((0, 6), (6,), (6,), normalized_shape=6), case((3, 0), (0,), (0,), normalized_shape=0),
            case((2, 0, 4), (4,), (4,), normalized_shape=4), case((67, 5), (5,), (5,), normalized_shape=5),
            case((2, 37), (37,), (37,), normalized_shape=37),
            case((2, 1, 1, 2, 1, 1, 2, 3), (2, 3), (2, 3), normalized_shape=(2, 3)),
        ),
    ),
    Op(
        "rms_norm", rms_norm, composition=partial(rms_norm, sqrt=mg.sqrt), ulps=64,
        torch=lambda torch, x, *affine, normalized_shape, eps=None: torch.nn.functional.rms_norm(
            x, (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape, *affine, eps=eps),
        ours=lambda x, *affine, normalized_shape, eps=None: mg.rms_norm(x, normalized_shape, *affine, eps=eps),
        cases=(
            case((4, 6), normalized_shape=6), case((4, 6), (6,), normalized_shape=(6,)), case((6,), (6,), normalized_shape=6, eps=0.1),
            case((2, 3, 4), (3, 4), normalized_shape=(3, 4), eps=1e-5), case((2, 3, 4), (4,), normalized_shape=[4], eps=0.5),
            case((0, 6), (6,), normalized_shape=6), case((3, 0), (0,), normalized_shape=0, eps=1e-5),
            case((67, 5), (5,), normalized_shape=5, eps=1e-3), case((2, 37), (37,), normalized_shape=37),
        ),
    ),
    Op(
        "group_norm", group_norm, composition=partial(group_norm, sqrt=mg.sqrt), ulps=64,
        # PyTorch's backward fails with a bias but no weight (2.13)
        torch=lambda torch, x, *affine, num_groups, eps=1e-5, weighted=True: channels(torch.nn.functional.group_norm(
            x, num_groups, *(affine if weighted else ()), eps=eps), *(() if weighted else affine), weighted=False),
        ours=lambda x, *affine, num_groups, eps=1e-5, weighted=True: mg.group_norm(
            x, num_groups, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((2, 4, 1, 1, 1, 1, 2, 3), (4,), (4,), num_groups=2),
            case((4, 6), num_groups=2), case((4, 6), (6,), (6,), num_groups=1, eps=0.1), case((3, 6, 4), (6,), (6,), num_groups=2),
            case((2, 4, 3, 3), (4,), num_groups=2), case((2, 4, 3, 3), (4,), num_groups=2, weighted=False),
            case((2, 4, 3, 2, 2), (4,), (4,), num_groups=4), case((2, 2, 5, 19), (2,), (2,), num_groups=1),
            case((0, 4, 3), (4,), (4,), num_groups=2), case((66, 2, 3), (2,), (2,), num_groups=2),
        ),
    ),
    Op(
        "instance_norm", instance_norm, ulps=64,
        composition=partial(instance_norm, sqrt=mg.sqrt),
        torch=lambda torch, x, *affine, eps=1e-5: torch.nn.functional.instance_norm(x, None, None, *affine, eps=eps),
        ours=lambda x, weight=None, bias=None, eps=1e-5: mg.instance_norm(x, weight=weight, bias=bias, eps=eps),
        cases=(
            case((3, 4, 5)), case((3, 4, 5), (4,), (4,), eps=0.1), case((2, 3, 4, 3), (3,), (3,)), case((2, 3, 4, 3), (3,)),
            case((2, 2, 2, 3, 2), (2,), (2,)), case((2, 1, 71), (1,), (1,)), case((66, 1, 5), (1,), (1,)),
        ),
    ),
    Op(
        "engine.batch_norm_train", batch_norm, torch=torch_batch_norm, composition=partial(batch_norm, sqrt=mg.sqrt), ulps=64,
        ours=lambda x, *affine, eps=1e-5, weighted=True: batch_norm_train(x, *(affine if weighted else (None, *affine)), eps=eps)[0],
        # a broadcast batch has no variance, so the gradient has the size of 1 / √eps
        cases=(
            case((7, 5), eps=0.1), case((7, 5), (5,), (5,), eps=0.3), case((7, 5), (5,), eps=0.1), case((7, 5), (5,), weighted=False, eps=0.1),
            case((2, 3, 4), (3,), (3,), eps=0.1), case((3, 4, 5, 3), (4,), (4,), eps=0.1), case((2, 2, 2, 3, 2), (2,), (2,), eps=0.1),
            case((2, 1), (1,), (1,), eps=0.1), case((1, 3, 5), (3,), (3,), eps=0.1), case((67, 3), (3,), (3,), eps=0.1),
            case((2, 2, 8, 9), (2,), (2,), eps=0.1),
        ),
    ),
    Op(
        "engine.batch_norm_eval", given_batch_norm(np.sqrt), torch=lambda torch, *xs, **options: given_batch_norm(torch.sqrt)(*xs, **options),
        composition=given_batch_norm(mg.sqrt), ulps=64,
        domain=((-2, 2), (-2, 2), (0.5, 2), (-2, 2), (-2, 2)),
        ours=lambda x, mean, var, *affine, eps=1e-5, weighted=True: batch_norm_eval(
            x, mean, var, *(affine if weighted else (None, *affine)), eps=eps),
        cases=(
            case((7, 5), (5,), (5,)), case((7, 5), (5,), (5,), (5,), (5,), eps=0.1), case((7, 5), (5,), (5,), (5,)),
            case((7, 5), (5,), (5,), (5,), weighted=False), case((1, 3), (3,), (3,), (3,), (3,)), case((2, 3, 4), (3,), (3,), (3,), (3,)),
            case((3, 2, 8, 9), (2,), (2,), (2,), (2,)), case((2, 2, 2, 3, 2), (2,), (2,), (2,), (2,)),
            case((0, 3), (3,), (3,), (3,), (3,)), case((2, 3, 0), (3,), (3,), (3,), (3,)),
        ),
    ),
    Op(
        "dynamic_tanh", dynamic_tanh, ulps=64, torch=lambda torch, *xs: dynamic_tanh(*xs, tanh=torch.tanh),
        composition=lambda *xs: dynamic_tanh(*xs, tanh=mg.tanh),
        cases=(
            case((4, 6), (1,)), case((4, 6), (), (6,), (6,)), case((2, 3, 4), (1,), (3, 4), (3, 4)), case((2, 3, 4), (1,), (4,)),
            case((0, 6), (1,), (6,), (6,)), case((), ()),
        ),
    ),
    Op(
        "scale_norm", scale_norm, ulps=64, torch=lambda torch, x, g, eps=1e-5: scale_norm(x, g, eps, torch.sqrt),
        composition=lambda x, g, eps=1e-5: scale_norm(x, g, eps, mg.sqrt),
        cases=(case((4, 6), ()), case((6,), (), eps=0.1), case((2, 3, 37), ()), case((0, 6), ()), case((3, 0), ()), case((67, 5), (), eps=0.5)),
    ),
    Op(
        "film", film, torch=lambda torch, *xs: film(*xs), composition=film,
        cases=(case((4, 6), (4, 6), (4, 6)), case((2, 3, 4, 5), (2, 3), (2, 3)), case((0, 3, 2), (0, 3), (0, 3)), case((2, 3, 0), (2, 3), (2, 3))),
    ),
    Op(
        "adaptive_layer_norm", adaptive_layer_norm, ulps=64,
        composition=lambda *xs, eps=1e-5: adaptive_layer_norm(*xs, eps, partial(layer_norm, sqrt=mg.sqrt)),
        torch=lambda torch, *xs, eps=1e-5: adaptive_layer_norm(
            *xs, eps, lambda *a, **options: torch_layer_norm(torch, *a, **options)),
        cases=(
            case((4, 6), (4, 6), (4, 6)), case((2, 3, 5, 4), (2, 4), (2, 4), eps=0.1), case((0, 3, 4), (0, 4), (0, 4)),
            case((2, 0, 4), (2, 4), (2, 4)),
        ),
    ),
    Op(
        "filter_response_norm", filter_response_norm, ulps=64,
        composition=lambda *xs, eps=1e-6: filter_response_norm(*xs, eps=eps, sqrt=mg.sqrt, maximum=mg.maximum),
        torch=lambda torch, *xs, eps=1e-6: filter_response_norm(*xs, eps=eps, sqrt=torch.sqrt, maximum=torch.maximum),
        cases=(
            case((3, 4, 5)), case((2, 3, 4, 3), (3,)), case((2, 3, 4, 3), (3,), (3,), eps=0.1), case((2, 3, 4, 3), (3,), (3,), (3,)),
            case((2, 2, 2, 3, 2), (2,), (2,), (2,)), case((0, 4, 3), (4,), (4,), (4,)),
        ),
    ),
    Op(
        "tlu", tlu, torch=lambda torch, *xs: tlu(*xs, torch.maximum), composition=lambda *xs: tlu(*xs, mg.maximum),
        cases=(case((4, 6), (6,)), case((2, 3, 4), (3,)), case((2, 3, 4, 5), (3,)), case((0, 3, 2), (3,)), case((2, 0), (0,))),
    ),
    Op(
        "layer_scale", lambda x, weight: weight * x, torch=lambda torch, x, weight: weight * x, composition=lambda x, weight: weight * x,
        cases=(case((4, 6), (6,)), case((6,), (6,)), case((2, 3, 37), (37,)), case((0, 6), (6,)), case((3, 0), (0,))),
    ),
    Op(
        "deep_norm", deep_norm, ulps=64,
        ours=lambda x, branch, *affine, alpha, normalized_shape, eps=1e-5: mg.nn.functional.deep_norm(
            x, branch, alpha, normalized_shape, *affine, eps=eps),
        composition=lambda *xs, **options: deep_norm(*xs, **options, norm=partial(layer_norm, sqrt=mg.sqrt)),
        torch=lambda torch, *xs, **options: deep_norm(
            *xs, **options, norm=lambda *a, **more: torch_layer_norm(torch, *a, **more)),
        cases=(
            case((4, 6), (4, 6), alpha=1.7, normalized_shape=6), case((4, 6), (4, 6), (6,), (6,), alpha=0.0, normalized_shape=(6,)),
            case((2, 3, 4), (2, 3, 4), (3, 4), alpha=2.5, normalized_shape=[3, 4], eps=0.1),
            case((0, 6), (0, 6), (6,), (6,), alpha=1.5, normalized_shape=6),
        ),
    ),
    Op(
        "weight_standardization", weight_standardization, ulps=64,
        composition=lambda w, **options: weight_standardization(w, **options, sqrt=mg.sqrt),
        torch=lambda torch, w, **options: weight_standardization(w, **options, sqrt=torch.sqrt),
        cases=(
            case((4, 6)), case((4, 3, 2, 2)), case((5, 6), eps=0.1, dim=1), case((5, 3, 4), eps=0.1, dim=-1), case((0, 6)), case((2, 71)),
        ),
    ),
]  # fmt: skip
