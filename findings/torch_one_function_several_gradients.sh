#!/usr/bin/env bash
# PyTorch 2.13.0: names for one function have other gradients where its branches meet. max(0, x) at 0 has the gradient 0
# (relu, threshold), 1 (clamp, fmax) or 0.5 (maximum). min(max(x, 0), 6) at 0 and 6 has 0 (relu6, hardtanh) or 1 (clamp).
# Of three equal numbers, median() gives each a third of the gradient, median(0) all to the second, mode() to the third,
# sort() to the first. At the origin, hypot has the gradient NaN, the norm of the same two numbers 0; and a leading -inf
# gets NaN from logcumsumexp, 0 from logsumexp.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import math

import torch
import torch.nn.functional as F


def gradient(function, *values):
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    function(x).sum().backward()
    return x.grad.tolist()


zero = torch.zeros((), dtype=torch.float64)
found = {
    "relu": gradient(F.relu, 0.0),
    "threshold": gradient(lambda x: F.threshold(x, 0, 0), 0.0),
    "clamp": gradient(lambda x: x.clamp(min=0), 0.0),
    "fmax": gradient(lambda x: torch.fmax(x, zero), 0.0),
    "maximum": gradient(lambda x: torch.maximum(x, zero), 0.0),
    "relu6": gradient(F.relu6, 0.0, 6.0),
    "hardtanh": gradient(lambda x: F.hardtanh(x, 0, 6), 0.0, 6.0),
    "clamp to 6": gradient(lambda x: x.clamp(0, 6), 0.0, 6.0),
    "median()": [round(g, 3) for g in gradient(torch.median, 1.0, 1.0, 1.0)],
    "median(0)": gradient(lambda x: x.median(0).values, 1.0, 1.0, 1.0),
    "mode()": gradient(lambda x: x.mode().values, 1.0, 1.0, 1.0),
    "sort()": gradient(lambda x: x.sort().values[:1], 1.0, 1.0, 1.0),
    "hypot": str(gradient(lambda x: torch.hypot(x[0], x[1]), 0.0, 0.0)),
    "norm": gradient(torch.linalg.vector_norm, 0.0, 0.0),
    "logcumsumexp": str(gradient(lambda x: torch.logcumsumexp(x, 0)[1], -math.inf, 0.0)),
    "logsumexp": gradient(lambda x: torch.logsumexp(x, 0), -math.inf, 0.0),
}
for name, gradients in found.items():
    print(f"{name:14}{gradients}")
assert found == {
    "relu": [0.0], "threshold": [0.0], "clamp": [1.0], "fmax": [1.0], "maximum": [0.5], "relu6": [0.0, 0.0],
    "hardtanh": [0.0, 0.0], "clamp to 6": [1.0, 1.0], "median()": [0.333, 0.333, 0.333], "median(0)": [0.0, 1.0, 0.0],
    "mode()": [0.0, 0.0, 1.0], "sort()": [1.0, 0.0, 0.0], "hypot": "[nan, nan]", "norm": [0.0, 0.0],
    "logcumsumexp": "[nan, 1.0]", "logsumexp": [0.0, 1.0],
}
PYTHON
