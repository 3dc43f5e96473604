#!/usr/bin/env bash
# tinygrad 0.14.0: the gradient of elu, selu and celu is NaN from 89 on, where the value is x and the slope 1: the branch for
# negative numbers is computed for all, and its exp overflows. softplus, silu and mish are right there. And
# sparse_categorical_crossentropy divides by all labels if ignore_index is -1, its default, which also means "none", but by
# those that are not ignored if it is another number, as nll_loss always does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q tinygrad==0.14.0 2> /dev/null
DEV=PYTHON CACHEDB="$folder/cache.db" "$folder/venv/bin/python" -W ignore - <<'PYTHON'
from tinygrad import Tensor


def run(name, x):
    """Return the activation of a number and its gradient."""
    x = Tensor([x])
    y = getattr(x, name)()
    y.sum().backward()
    return y.item(), x.grad.item()


for name in ("elu", "selu", "celu", "softplus", "silu", "mish"):
    found = {x: run(name, x) for x in (-100.0, 50.0, 88.0, 89.0, 1000.0)}
    print(f"{name:8}", {x: (round(y, 2), round(slope, 2)) for x, (y, slope) in found.items()})
    for x, (y, slope) in found.items():
        assert y == y and (slope != slope) == (x >= 89 and name in ("elu", "selu", "celu"))

logits = Tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
for ignored in (-1, -100, 1):
    labels = Tensor([0, ignored, ignored])
    loss = logits.sparse_categorical_crossentropy(labels, ignore_index=ignored).item()
    other = logits.log_softmax().nll_loss(labels, ignore_index=ignored).item()
    print(f"ignore_index={ignored}: sparse_categorical_crossentropy {loss:.4f}, nll_loss of the same {other:.4f}")
    assert abs(other - 0.1269) < 1e-4 and abs(loss - (other / 3 if ignored == -1 else other)) < 1e-5
PYTHON
