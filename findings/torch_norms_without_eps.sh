#!/usr/bin/env bash
# PyTorch 2.13.0: with eps=0 and a constant row, layer_norm and group_norm give NaN, as 0 / 0 is, but instance_norm gives
# 0, with gradients of 0; and batch_norm, of which instance_norm is a reshaped call, refuses eps=0 in training.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch
import torch.nn.functional as F

x = torch.ones(1, 1, 2, requires_grad=True)
found = {}
for name, norm in {
    "layer_norm": lambda: F.layer_norm(x, (2,), eps=0.0),
    "group_norm": lambda: F.group_norm(x, 1, eps=0.0),
    "instance_norm": lambda: F.instance_norm(x, eps=0.0),
    "batch_norm": lambda: F.batch_norm(x, None, None, training=True, eps=0.0),
}.items():
    x.grad = None
    try:
        y = norm()
        y.sum().backward()
        found[name] = str((y.flatten().tolist(), x.grad.flatten().tolist()))
    except ValueError as error:
        found[name] = str(error)
    print(f"{name:14}{found[name]}")
nothing = "([nan, nan], [nan, nan])"
assert found["layer_norm"] == found["group_norm"] == nothing
assert found["instance_norm"] == "([0.0, 0.0], [0.0, 0.0])"
assert found["batch_norm"] == "batch_norm eps must be positive during training, but got 0.0"
PYTHON
