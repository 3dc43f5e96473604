#!/usr/bin/env bash
# optax 0.2.8 (JAX 0.10.2): rprop moves a weight by what the gradient of the step before asked for, and in its first step not
# at all. For the gradients 1, 1, 1, -1, -1, -1 with a rate of 0.1, PyTorch 2.13.0 moves it by -0.1, -0.12, -0.144, 0, 0.072,
# 0.0864, and optax by 0, -0.1, -0.12, 0, 0, 0.072: -0.144 is never done, since a change of sign takes back the step that
# waits.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q optax==0.2.8 jax==0.10.2 torch==2.13.0 numpy 2> /dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import jax.numpy as jnp
import optax
import torch

gradients = [1.0, 1.0, 1.0, -1.0, -1.0, -1.0]
optimizer, weight = optax.rprop(0.1), jnp.zeros(1)
state, found = optimizer.init(weight), []
for gradient in gradients:
    updates, state = optimizer.update(jnp.array([gradient]), state, weight)
    found.append(round(float(updates[0]), 4))
other = torch.zeros(1, requires_grad=True)
theirs, right = torch.optim.Rprop([other], 0.1), []
for gradient in gradients:
    before, other.grad = other.item(), torch.tensor([gradient])
    theirs.step()
    right.append(round(other.item() - before, 4))
print("gradients", gradients, "\noptax  ", found, "\nPyTorch", right)
assert right == [-0.1, -0.12, -0.144, 0, 0.072, 0.0864]
assert found == [0, -0.1, -0.12, 0, 0, 0.072]
PYTHON
