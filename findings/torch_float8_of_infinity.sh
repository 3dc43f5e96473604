#!/usr/bin/env bash
# PyTorch 2.13.0 (CPU): float32 beyond the largest number of a float8 type saturates in float8_e4m3fn, infinity included
# (448), but becomes infinite in float8_e5m2. ml_dtypes 0.6.0, and so JAX, gives NaN in the first and infinity in the
# second: a tensor that overflowed passes a check for finite numbers in one library and not in the other. And from
# float64, PyTorch rounds to float16 by way of float32, twice: 65519.999 becomes infinite, which is 65504 in NumPy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 ml_dtypes==0.6.0 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import torch

numbers = np.array([448, 464, 465, 1e6, np.inf, -np.inf, np.nan], np.float32)
found = {}
for name in ("float8_e4m3fn", "float8_e5m2"):
    ours = torch.from_numpy(numbers * (1 if name == "float8_e4m3fn" else 128)).to(getattr(torch, name)).float().tolist()
    others = (numbers * (1 if name == "float8_e4m3fn" else 128)).astype(getattr(ml_dtypes, name)).astype(np.float32).tolist()
    found[name] = ours, others
    print(f"{name:14} PyTorch   {ours}\n{'':14} ml_dtypes {others}")
assert str(found["float8_e4m3fn"][0]) == "[448.0, 448.0, 448.0, 448.0, 448.0, -448.0, nan]"
assert str(found["float8_e4m3fn"][1]) == "[448.0, 448.0, nan, nan, nan, nan, nan]"
assert str(found["float8_e5m2"][0]) == str(found["float8_e5m2"][1])

for number in (65519.999999, 1 + 2.0**-11 + 2.0**-40, 2.0**-25 + 2.0**-60):
    halves = torch.tensor(number, dtype=torch.float64).half().item(), float(np.float16(np.float64(number)))
    print(f"float64 {number!r} as float16: PyTorch {halves[0]}, NumPy {halves[1]}")
    assert halves[0] != halves[1]
PYTHON
