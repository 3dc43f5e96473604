#!/usr/bin/env bash
# PyTorch 2.13.0: nn.CrossMapLRN2d and nn.LocalResponseNorm take the same arguments for the same equation, and give other
# numbers. The sum of squares over a window that moves along the channels drops each channel that it leaves but the first:
# with channels 10, 1, 1, 1, 1, 1 and windows of 3, the square 100 stays in all of them. The gradient leaves that channel
# out again, and so is not the derivative of the values.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch

options = {"size": 3, "alpha": 3.0, "beta": 1.0, "k": 0.0}
x = torch.tensor([10.0, 1, 1, 1, 1, 1], dtype=torch.float64).reshape(1, 6, 1, 1).requires_grad_()


def divisors(layer):
    """With beta = 1, k = 0 and alpha = size, the sums of the squares in the windows."""
    return [round(n, 6) for n in (x / layer(x)).flatten().tolist()]


found = {name: divisors(getattr(torch.nn, name)(**options)) for name in ("LocalResponseNorm", "CrossMapLRN2d")}
for name, sums in found.items():
    print(f"{name:18}{sums}")
assert found["LocalResponseNorm"] == [101, 102, 3, 3, 3, 2]
assert found["CrossMapLRN2d"] == [101, 102, 103, 103, 103, 102]

layer, step = torch.nn.CrossMapLRN2d(**options), 1e-6
(slope,) = torch.autograd.grad(layer(x)[0, 3, 0, 0], x)
with torch.no_grad():
    moved = torch.zeros_like(x)
    moved[0, 0] = step
    numeric = ((layer(x + moved) - layer(x - moved))[0, 3, 0, 0] / (2 * step)).item()
print("d y[3] / d x[0]: gradient", slope.flatten().tolist()[0], "difference quotient", round(numeric, 6))
assert slope.flatten().tolist()[0] == 0 and abs(numeric + 20 / 103**2) < 1e-6
PYTHON
