#!/usr/bin/env bash
# PyTorch 2.13.0: in torch.optim.Adafactor with the default eps=(None, 1e-3), "None" means the eps of the dtype of the first
# parameter in the group, not of each parameter's own: a float64 parameter moves otherwise behind a float32 one than alone,
# and a float32 one otherwise behind a float64 one. With foreach=True it does not.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch


def step(dtypes, **options):
    parameters = [torch.ones(2, 2, dtype=dtype, requires_grad=True) for dtype in dtypes]
    for parameter in parameters:
        parameter.grad = torch.tensor([[1e-3, 1e-5], [1e-6, 1e-8]], dtype=parameter.dtype)
    torch.optim.Adafactor(parameters, lr=0.1, **options).step()
    return round(parameters[-1][1, 1].item(), 4)


single, double = torch.float32, torch.float64
found = {}
for name, dtypes in {
    "float64 alone": [double], "float64 after float32": [single, double],
    "float32 alone": [single], "float32 after float64": [double, single],
}.items():
    found[name] = step(dtypes), step(dtypes, foreach=True)
    print(f"{name:22} default {found[name][0]}, foreach {found[name][1]}")
assert torch.__version__.startswith("2.13.0")
assert found["float64 alone"] == (0.9, 0.9)
assert found["float32 alone"] == (0.9916, 0.9916)
assert found["float64 after float32"] == (0.9916, 0.9)
assert found["float32 after float64"] == (0.9, 0.9916)
PYTHON
