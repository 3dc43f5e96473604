#!/usr/bin/env bash
# PyTorch 2.13.0: where a loss or a layer limits its value by a small number, the gradient goes past that limit.
# binary_cross_entropy of a probability of 1e-50 is 100, not 115, as the logarithm is clamped, but its gradient is -1e12;
# gaussian_nll_loss with a variance of 0 uses 1e-6 instead, and the 0 gets a gradient of -5e11. normalize and
# cosine_similarity give a vector of zeros gradients of 1e12 and 1e8 / length, each by an eps of its own.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F


def value_and_gradient(function, *values):
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    y = function(x)
    y.sum().backward()
    return y.tolist(), x.grad.tolist()


one = torch.ones(1, dtype=torch.float64)
loss, slope = value_and_gradient(lambda p: F.binary_cross_entropy(p, one), 1e-50)
print("binary_cross_entropy", loss, slope)
assert loss == 100.0 and abs(slope[0] / -1e12 - 1) < 1e-6
loss, slope = value_and_gradient(lambda var: F.gaussian_nll_loss(one, 0 * one, var), 0.0)
print("gaussian_nll_loss", loss, slope)
assert abs(loss - 499993.09) < 0.01 and abs(slope[0] / -5e11 - 1) < 1e-5
unit, slope = value_and_gradient(lambda x: F.normalize(x, dim=0), 0.0, 0.0)
print("normalize", unit, slope)
assert unit == [0.0, 0.0] and slope == [1e12, 1e12]
other = torch.tensor([3.0, 4.0], dtype=torch.float64)
cosine, slope = value_and_gradient(lambda x: F.cosine_similarity(x, other, dim=0), 0.0, 0.0)
print("cosine_similarity", cosine, slope)
assert cosine == 0.0 and [round(s / 1e8, 6) for s in slope] == [0.6, 0.8]
PYTHON
