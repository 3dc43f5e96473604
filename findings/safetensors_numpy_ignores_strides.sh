#!/usr/bin/env bash
# safetensors 0.8.0: safetensors.numpy.save takes the bytes of an array from its first element on, with the array's
# shape, so that a transposed matrix is stored untransposed and every second element as the first ones. Numbers in the
# other byte order are stored right, but not if they are transposed, too. For tensors of PyTorch, the same call raises
# an error.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q safetensors==0.8.0 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from safetensors.numpy import load, save

matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
stored = lambda x: load(save({"x": x}))["x"]
for name, x, expected in (
    ("transposed", matrix.T, matrix.reshape(3, 2)),
    ("Fortran's order", np.asfortranarray(matrix), matrix.T.reshape(2, 3)),
    ("every second", np.arange(6)[::2], np.arange(3)),
    ("big-endian", matrix.astype(">f4"), matrix),
    ("big-endian, transposed", matrix.T.astype(">f4"), matrix.reshape(3, 2)),
    ("a copy", matrix.T.copy(), matrix.T),
):
    found = stored(x)
    print(f"{name:23}", x.tolist(), "->", found.tolist())
    assert found.shape == x.shape and np.array_equal(found, expected)
PYTHON
