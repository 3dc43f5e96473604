#!/usr/bin/env bash
# PyTorch 2.13.0: a SequentialLR that is the first schedule of another SequentialLR loses a step at its milestone. Alone,
# LinearLR for 5 steps and then StepLR gives 0.0867 in the fifth step and 0.1 in the next three; inside another sequence,
# whose own milestone is far away, it gives 0.1 in the fifth step already, and drops to 0.01 one step early.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR, StepLR

warnings.simplefilter("ignore")


def rates(around):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    schedule = around(optimizer, SequentialLR(optimizer, [LinearLR(optimizer), StepLR(optimizer, 3)], [5]))
    found = []
    for _ in range(8):
        found.append(round(optimizer.param_groups[0]["lr"], 4))
        optimizer.step()
        schedule.step()
    return found


alone = rates(lambda optimizer, inner: inner)
inside = rates(lambda optimizer, inner: SequentialLR(optimizer, [inner, CosineAnnealingLR(optimizer, 9)], [12]))
print("alone", alone, "inside", inside, sep="\n")
assert alone == [0.0333, 0.0467, 0.06, 0.0733, 0.0867, 0.1, 0.1, 0.1]
assert inside == [0.0333, 0.0467, 0.06, 0.0733, 0.1, 0.1, 0.1, 0.01]
PYTHON
