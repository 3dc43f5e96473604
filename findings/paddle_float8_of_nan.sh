#!/usr/bin/env bash
# Paddle 3.3.1 (CPU): astype("float8_e4m3fn") of float32, whose largest number is 448, gives NaN between 464 and 480,
# but 448 for all that is larger, infinity, and NaN itself. So a NaN in weights or activations becomes a plausible
# number, and a plausible number NaN. In float8_e5m2, NaN stays NaN, and infinity becomes the largest number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q paddlepaddle==3.3.1 numpy==2.4.6 setuptools 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import paddle

numbers = [448.0, 464.0, 465.0, 479.0, 480.0, 1e6, np.inf, np.nan]
found = {kind: paddle.to_tensor(numbers).astype(kind).astype("float32").tolist() for kind in ("float8_e4m3fn", "float8_e5m2")}
print("float32      ", numbers)
for kind, values in found.items():
    print(f"{kind:13}", values)
assert str(found["float8_e4m3fn"]) == "[448.0, 448.0, nan, nan, 448.0, 448.0, 448.0, 448.0]"
assert str(found["float8_e5m2"][-3:]) == "[57344.0, 57344.0, nan]"
PYTHON
