#!/usr/bin/env bash
# PyTorch 2.13.0: after three `f(a).backward(g)` with the same g of ones, a leaf's grad is 4, not 3, and g itself has become
# 4, if f is reshape, view, unsqueeze, unflatten, .T, cat or stack: the leaf's grad is a view of g, and the second pass
# adds into it. After the first pass, `a.grad.zero_()` sets g to zeros. With flatten, squeeze, clone, pad and a sum of two
# leaves it is 3. A tensor g that is passed to backward twice, as a fixed cotangent in a loop is, changes in between.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch

FUNCTIONS = {
    "reshape": lambda a, b: a.reshape(2, 2),
    "view": lambda a, b: a.view(2, 2),
    "unsqueeze": lambda a, b: a.unsqueeze(0),
    "unflatten": lambda a, b: a.unflatten(0, (2, 2)),
    "reshape.T": lambda a, b: a.reshape(2, 2).T,
    "cat": lambda a, b: torch.cat([a, b]),
    "stack": lambda a, b: torch.stack([a, b]),
    "flatten": lambda a, b: a.flatten(),
    "squeeze": lambda a, b: a.squeeze(),
    "clone": lambda a, b: a.clone(),
    "pad": lambda a, b: torch.nn.functional.pad(a, (1, 1)),
    "a + b": lambda a, b: a + b,
}
shared = []
for name, f in FUNCTIONS.items():
    a, b = (torch.zeros(4, requires_grad=True) for _ in range(2))
    g = torch.ones_like(f(a, b))
    grads = []
    for _ in range(3):
        f(a, b).backward(g)
        grads.append(a.grad[0].item())
    print(f"{name:10} a.grad after each pass: {grads}, then g: {g.flatten()[0].item()}")
    assert grads in ([1, 2, 3], [1, 2, 4])
    if grads[2] == 4:
        shared.append(name)
        assert g.flatten()[0] == 4
        a.grad.zero_()
        assert g.flatten()[0] == 0
assert shared == ["reshape", "view", "unsqueeze", "unflatten", "reshape.T", "cat", "stack"]
PYTHON
