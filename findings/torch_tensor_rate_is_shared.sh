#!/usr/bin/env bash
# PyTorch 2.13.0: with lr=torch.tensor(1.0), as compiled and captured optimizers need it, all groups of parameters hold
# that one tensor, and schedules write into it once for each group. Of two groups, ReduceLROnPlateau(factor=0.5) divides
# the rate by four, and LambdaLR, MultiplicativeLR and OneCycleLR give both the rate of the last. A second optimizer
# that is made with the same tensor follows the schedule of the first, too. With a float, each group has its own rate.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch.optim import SGD, lr_scheduler

schedules = {
    "ReduceLROnPlateau(0.5)": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=0),
    "LambdaLR(1 / (1 + t), 1)": lambda o: lr_scheduler.LambdaLR(o, [lambda t: 1 / (1 + t), lambda t: 1]),
    "MultiplicativeLR(0.5, 1)": lambda o: lr_scheduler.MultiplicativeLR(o, [lambda t: 0.5, lambda t: 1]),
    "ExponentialLR(0.5)": lambda o: lr_scheduler.ExponentialLR(o, 0.5),
}


def group():
    return {"params": [torch.zeros(1, requires_grad=True)]}


found = {}
for name, schedule in schedules.items():
    for lr in (1.0, torch.tensor(1.0)):
        optimizer = SGD([group(), group()], lr)
        scheduler = schedule(optimizer)
        rates = []
        for _ in range(3):
            optimizer.step()
            scheduler.step(*([1.0] if "Plateau" in name else []))
            rates.append(tuple(round(float(g["lr"]), 4) for g in optimizer.param_groups))
        found[name, type(lr)] = rates
        print(f"{name:25}{type(lr).__name__:7}", *rates)
assert found["ReduceLROnPlateau(0.5)", float] == [(1, 1), (0.5, 0.5), (0.25, 0.25)]
assert found["ReduceLROnPlateau(0.5)", torch.Tensor] == [(1, 1), (0.25, 0.25), (0.0625, 0.0625)]
for name in ("LambdaLR(1 / (1 + t), 1)", "MultiplicativeLR(0.5, 1)"):
    assert found[name, float][2][0] < 0.4 and found[name, float][2][1] == 1 and found[name, torch.Tensor] == [(1, 1)] * 3
assert found["ExponentialLR(0.5)", float] == found["ExponentialLR(0.5)", torch.Tensor]

lr = torch.tensor(1.0)
first, second = SGD([group()], lr), SGD([group()], lr)
lr_scheduler.ExponentialLR(first, 0.5).step()
print("another optimizer has now the rate", float(second.param_groups[0]["lr"]))
assert float(second.param_groups[0]["lr"]) == 0.5
PYTHON
