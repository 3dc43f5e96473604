#!/usr/bin/env bash
# PyTorch 2.13.0: with z = torch.zeros(4, 3), v = z[0] and a t that requires grad, `v[:] += t` and `v[...] += t` raise "a
# leaf Variable that requires grad is being used in an in-place operation". The same write works as `v += t`, as
# `v[0:2] += t`, as `v[:] = v + t`, and on the base, as `z[:] += t`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import torch

found = {}
for statement in ("v[:] += t", "v[...] += t", "v += t", "v[0:2] += t", "v[:] = v + t", "z[:] += t"):
    z = torch.zeros(4, 3)
    names = {"z": z, "v": z[0], "t": torch.ones(2, requires_grad=True).sum()}
    try:
        exec(statement, names)
        found[statement] = "works"
    except RuntimeError as error:
        found[statement] = str(error)
    print(f"{statement:14}", found[statement])
refused = [statement for statement, what in found.items() if "leaf Variable" in what]
assert refused == ["v[:] += t", "v[...] += t"]
assert all(what == "works" for statement, what in found.items() if statement not in refused)
PYTHON
