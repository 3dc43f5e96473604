#!/usr/bin/env bash
# pytorch_optimizer 4.1.0 (PyTorch 2.13.0): SRMM averages the parameters from 0 on, not from their first values, and then
# copies the average into them. So its first step multiplies all weights by 0.707, whatever the gradients and the rate
# are: with gradients of 0, or a rate of 0, a trained network is another one after one step. The further steps keep
# 0.707, and so does a schedule that begins with a warm-up.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 pytorch_optimizer==4.1.0 numpy 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from pytorch_optimizer import SRMM, AdamW, Lion


def left(make, gradient, steps):
    weights = torch.nn.Parameter(torch.ones(2))
    optimizer = make([weights])
    for _ in range(steps):
        weights.grad = torch.full((2,), gradient)
        optimizer.step()
    return round(weights[0].item(), 3)


for name, make in (("SRMM", SRMM), ("AdamW", AdamW), ("Lion", Lion)):
    for rate, gradient in ((0.01, 0.0), (0.0, 1.0)):
        found = [left(lambda parameters: make(parameters, lr=rate, **({} if name == "SRMM" else {"weight_decay": 0.0})), gradient, n) for n in (1, 2, 50)]
        print(f"{name:5} rate {rate}, gradient {gradient}: weights of 1 after 1, 2 and 50 steps {found}")
        assert found == ([0.707] * 3 if name == "SRMM" else [1.0] * 3)
PYTHON
