"""The kernels of batch normalization read several columns at once if there are many: it changes no bit."""

import numpy as np
import pytest
from checks import agree

import minigrad as mg
from minigrad.cuda import norms
from minigrad.engine.ops.batch_norm import batch_norm_eval, batch_norm_train


def results(values, offset):
    """Return y, the statistics and the gradients, with memory that begins at an offset."""
    x, w, b, g = (
        mg.tensor(np.concatenate([np.zeros(offset, v.dtype), v.ravel()]), device="cuda:0")[offset:].reshape(v.shape)
        for v in values
    )
    leaves = [one.requires_grad_() for one in (x, w, b)]
    y, mean, var = batch_norm_train(*leaves)
    given = batch_norm_eval(leaves[0], b.detach(), mg.exp(w.detach()), *leaves[1:])
    found = y, mean, var, *mg.grad(y, leaves, g), given, *mg.grad(given, leaves, g)
    return [one.detach().to("cpu").numpy() for one in found]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(600, 128), (513, 132), (2_100, 20), (530, 12, 7), (700, 64, 4)])
def test_packs_change_nothing(shape, dtype, rng, monkeypatch, request):
    request.addfinalizer(norms.ChannelTile.cache_clear)  # the other tests need the real number of multiprocessors
    columns = shape[1]
    values = [rng.standard_normal(s).astype(dtype) for s in (shape, columns, columns, shape)]
    values[0][:, 3] += 1000  # far from the mean of its first elements
    values[0][:4, 3] = -9
    found, launched = {}, []
    original = norms.launch

    def launch(file, kernel, *arguments, **options):
        launched.append(kernel)
        return original(file, kernel, *arguments, **options)

    monkeypatch.setattr(norms, "launch", launch)
    for multiprocessors in (0, 1 << 30):
        monkeypatch.setattr(norms, "MULTIPROCESSORS", multiprocessors)
        norms.ChannelTile.cache_clear()
        for offset in (0, 1):
            launched.clear()
            found[multiprocessors, offset] = results(values, offset)
            packed = {"batch_norm_packs", "batch_norm_packs_backward"} & set(launched)
            assert len(packed) == (2 if multiprocessors == 0 else 0)
    first, *others = found.values()
    for other in others:
        agree(other, first)
