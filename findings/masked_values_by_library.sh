#!/usr/bin/env bash
# A masked array of NumPy 2.4.6, as netCDF4 1.7.4 reads a variable with missing values: what becomes of a hidden number
# depends on who reads the array, and nobody warns. PyTorch 2.13.0, scikit-learn 1.9.1, safetensors 0.8.0 and NumPy's own
# savez take the number below the mask, 9.97e36 where netCDF has none; onnx 1.23.2 writes the array's fill value in its
# place; in polars 2.1.0 it is null. JAX 0.10.2 refuses the array.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip --disable-pip-version-check install -q numpy==2.4.6 netCDF4==1.7.4 torch==2.13.0 scikit-learn==1.9.1 \
    safetensors==0.8.0 onnx==1.23.2 polars==2.1.0 jax==0.10.2 2> /dev/null
venv/bin/python - <<'PYTHON'
import io
import warnings

import jax
import netCDF4
import numpy as np
import onnx.numpy_helper
import polars
import safetensors.numpy
import torch
from sklearn.preprocessing import MaxAbsScaler

warnings.simplefilter("error")  # there is none
with netCDF4.Dataset("weather.nc", "w") as data:
    data.createDimension("day", 3)
    temperature = data.createVariable("temperature", "f4", ("day",))
    temperature[0:2] = 11.5, 12.5
    read = temperature[:]
assert isinstance(read, np.ma.MaskedArray) and read.mask.tolist() == [False, False, True]
read = np.ma.masked_greater(read, 12)  # hides 12.5 as well
saved = io.BytesIO()
np.savez(saved, t=read)
saved.seek(0)
found = {
    "torch.tensor": torch.tensor(read)[1:].tolist(),
    "torch.from_numpy": torch.from_numpy(read)[1:].tolist(),
    "scikit-learn, maximum": MaxAbsScaler().fit(read[:, None]).max_abs_.tolist(),
    "safetensors": safetensors.numpy.load(safetensors.numpy.save({"t": read}))["t"][1:].tolist(),
    "NumPy, savez": np.load(saved)["t"][1:].tolist(),
    "onnx": onnx.numpy_helper.to_array(onnx.numpy_helper.from_array(read))[1:].tolist(),
    "polars": polars.Series(read)[1:].to_list(),
}
try:
    jax.numpy.asarray(read)
except ValueError as error:
    found["JAX"] = str(error).partition(" directly")[0][:48]
for name, value in found.items():
    print(f"{name:24}{value}")
for name in ("torch.tensor", "torch.from_numpy", "safetensors", "NumPy, savez"):
    assert found[name][0] == 12.5 and found[name][1] > 9.9e36
assert min(*found["onnx"], *found["scikit-learn, maximum"]) > 9.9e36
assert found["polars"] == [None, None]
assert "masked arrays are not supported" in found["JAX"]
PYTHON
