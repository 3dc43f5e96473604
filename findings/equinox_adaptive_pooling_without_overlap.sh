#!/usr/bin/env bash
# Equinox 0.13.8 (JAX 0.10.2): AdaptiveAvgPool1d and AdaptiveMaxPool1d, and so those of 2 and 3 axes, cut an axis into pieces
# that do not overlap, the first ones longer by one. PyTorch 2.13.0's pooling of the same names has windows from
# floor(i n / m) to ceil((i + 1) n / m), which overlap. Where m does not divide n, the numbers differ: the means of 0, 1, 2
# by two windows are 0.5 and 2 in the one, 0.5 and 1.5 in the other. So a ported network is right with one size of images
# only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q equinox==0.13.8 jax==0.10.2 torch==2.13.0 numpy==2.4.6 2> /dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import equinox
import jax.numpy as jnp
import numpy as np
import torch

differ = []
for n in range(1, 10):
    for m in range(1, n + 1):
        x = np.arange(n, dtype="f")[None] ** 2
        pieces = np.array_split(x[0], m)
        for equinox_pool, torch_pool, reduce in (
            (equinox.nn.AdaptiveAvgPool1d, torch.nn.AdaptiveAvgPool1d, np.mean),
            (equinox.nn.AdaptiveMaxPool1d, torch.nn.AdaptiveMaxPool1d, np.max),
        ):
            ours, theirs = np.asarray(equinox_pool(m)(jnp.asarray(x))), torch_pool(m)(torch.tensor(x)).numpy()
            assert np.allclose(ours, [reduce(piece) for piece in pieces])
            windows = [x[0, i * n // m : -(-(i + 1) * n // m)] for i in range(m)]
            assert np.allclose(theirs, [reduce(window) for window in windows])
            assert n % m or np.allclose(ours, theirs)
            if reduce is np.mean and not np.allclose(ours, theirs):
                differ.append((n, m))
print("means differ for (n, m) =", *differ)
assert differ == [(n, m) for n in range(1, 10) for m in range(2, n) if n % m]
x = np.arange(3, dtype="f")[None]
print("0, 1, 2 by 2:", equinox.nn.AdaptiveAvgPool1d(2)(jnp.asarray(x)), torch.nn.AdaptiveAvgPool1d(2)(torch.tensor(x)))
PYTHON
