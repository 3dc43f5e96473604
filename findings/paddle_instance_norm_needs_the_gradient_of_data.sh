#!/usr/bin/env bash
# Paddle 3.3.1 (CPU): a network that begins with InstanceNorm2D cannot be trained. backward() raises "(InvalidArgument)
# The X@GRAD in InstanceNormGradInferMeta can't be nullptr", since the input, data, needs no gradient. With BatchNorm2D,
# GroupNorm or LayerNorm in its place it works, and so it does if the data are given stop_gradient=False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q paddlepaddle==3.3.1 2> /dev/null
"$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import paddle
from paddle import nn

found = {}
for norm in (nn.BatchNorm2D(3), nn.GroupNorm(1, 3), nn.LayerNorm([3, 4, 4]), nn.InstanceNorm2D(3)):
    for stop in (True, False):
        x = paddle.rand([2, 3, 4, 4])
        x.stop_gradient = stop
        net = nn.Sequential(norm, nn.Conv2D(3, 2, 1))
        try:
            net(x).sum().backward()
            what = "works"
        except ValueError as error:
            what = str(error).strip().splitlines()[0]
        found[type(norm).__name__, stop] = what
        print(f"{type(norm).__name__:15} stop_gradient={stop!s:6} {what}", flush=True)
assert "X@GRAD in InstanceNormGradInferMeta can't be nullptr" in found.pop(("InstanceNorm2D", True))
assert set(found.values()) == {"works"}
PYTHON
