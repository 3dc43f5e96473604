"""What a cache of keys and values returns, in branches of a sequence, with and without recording."""

import copy

import numpy as np
import pytest
from checks import array, equals, refuses, tensor

import minigrad as mg
from minigrad import nn


@pytest.mark.parametrize("lengths", [(1, 1, 1, 1, 1, 1), (3, 1, 0, 7, 2)])
def test_what_a_cache_returns_stays(lengths, device, rng):
    """Later steps and other branches do not change keys and values that were returned, nor their versions."""
    cache, layer = nn.KeyValueCache(), nn.Identity()
    whole = rng.standard_normal((2, 3, 2, sum(lengths), 4))
    branches, kept, end = [(cache, whole)], [], 0
    with mg.no_grad():
        for n in lengths:
            begin, end = end, end + n
            for branch, x in list(branches):
                found = branch.extend(layer, *(tensor(part, device) for part in x[..., begin:end, :]))
                assert len(branch) == branch.steps(layer) == end
                kept.append((found, [y.version for y in found], x[..., :end, :]))
                if end > 2 and len(branches) < 5:
                    for duplicate in (copy.copy, copy.deepcopy):
                        other = rng.standard_normal(x.shape)
                        other[..., :end, :] = x[..., :end, :]
                        branches.append((duplicate(branch), other))
    for found, versions, x in kept:
        assert [y.version for y in found] == versions
        for y, part in zip(found, x, strict=True):
            equals(y, part)


def test_a_cache_is_copied_for_the_layers_of_a_copied_model(device):
    model, cache = nn.MultiheadAttention(4, 2, batch_first=True, device=device), nn.KeyValueCache()
    x = mg.ones((1, 2, 4), device=device)
    model(x, x, x, cache=cache)
    other, copied = copy.deepcopy((model, cache))
    assert copied.steps(other) == cache.steps(model) == 2
    assert copied.steps(model) == 0


@pytest.mark.parametrize("recorded", [(), (0,), (2,), (0, 1, 2)])
def test_gradients_through_a_cache(recorded, device, rng):
    """Recorded calls have gradients, whatever the others have written."""
    cache, layer = nn.KeyValueCache(), nn.Identity()
    parts = [[tensor(rng.standard_normal((1, 2, n, 3)), device, True) for _ in range(2)] for n in (2, 1, 3)]
    for i, part in enumerate(parts):
        with mg.set_grad_enabled(i in recorded):
            k, v = cache.extend(layer, *part)
    equals(k, np.concatenate([array(part[0]) for part in parts], 2))
    seen = 2 in recorded
    assert k.requires_grad == v.requires_grad == seen
    if seen:
        g = rng.standard_normal(k.shape)
        found = mg.grad(k, [part[0] for part in parts], tensor(g, device), allow_unused=True)
        for i, d in enumerate(found):
            ends = np.cumsum([0, 2, 1, 3])
            if all(j in recorded for j in range(i, 3)):
                equals(d, g[:, :, ends[i] : ends[i + 1]])
            else:
                assert d is None or not array(d).any()


def test_steps_of_another_dtype_follow_by_promotion(device):
    cache, layer = nn.KeyValueCache(), nn.Identity()
    with mg.no_grad():
        for dtype in ("float32", "float32", "float64"):
            k, _ = cache.extend(layer, *[mg.ones((1, 1, 1, 2), dtype=dtype, device=device)] * 2)
    assert (k.dtype, k.shape) == ("float64", (1, 1, 3, 2))
    refuses(ValueError, "concat", "(1, 2, 1, 2)", cache.extend, layer, *[mg.ones((1, 2, 1, 2), device=device)] * 2)
