#!/usr/bin/env bash
# PyTorch 2.13.0: CyclicLR.load_state_dict removes an entry from the dictionary that it is given, so that the same state
# can be loaded once only: the second time, it raises KeyError: '_scale_fn_custom'. This also holds inside SequentialLR
# and ChainedScheduler, which hand on the dictionary; the other schedules leave theirs as it is.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch.optim import SGD, lr_scheduler

optimizer = SGD([torch.zeros(1, requires_grad=True)], 1.0, momentum=0.9)
cyclic, step = (lambda: lr_scheduler.CyclicLR(optimizer, 0.1, 1.0)), (lambda: lr_scheduler.StepLR(optimizer, 2))
found = {}
for name, make in {
    "CyclicLR": cyclic,
    "SequentialLR of CyclicLR": lambda: lr_scheduler.SequentialLR(optimizer, [cyclic(), step()], [2]),
    "ChainedScheduler of CyclicLR": lambda: lr_scheduler.ChainedScheduler([cyclic(), step()]),
    "StepLR": step,
    "LambdaLR": lambda: lr_scheduler.LambdaLR(optimizer, lambda t: 0.5),
    "OneCycleLR": lambda: lr_scheduler.OneCycleLR(optimizer, 1.0, 9),
    "SequentialLR of StepLR": lambda: lr_scheduler.SequentialLR(optimizer, [step(), step()], [2]),
}.items():
    state = make().state_dict()
    make().load_state_dict(state)
    try:
        make().load_state_dict(state)
        found[name] = "loaded twice"
    except KeyError as error:
        found[name] = f"KeyError: {error}"
    print(f"{name:29}", found[name])
assert {name for name, result in found.items() if result == "KeyError: '_scale_fn_custom'"} == set(list(found)[:3])
assert set(list(found.values())[3:]) == {"loaded twice"}
PYTHON
