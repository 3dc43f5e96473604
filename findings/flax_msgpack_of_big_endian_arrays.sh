#!/usr/bin/env bash
# Flax 0.12.8 (JAX 0.10.2): flax.serialization writes the bytes of a NumPy array and the name of its type, which does
# not say their order. An array of big-endian numbers, as files in the formats IDX (MNIST), FITS and netCDF give them,
# comes back as others, without an error: 1 as 4.6e-41. JAX itself refuses such arrays, and orbax and safetensors keep
# the numbers.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q flax==0.12.8 jax==0.10.2 safetensors==0.8.0 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import safetensors.numpy
from flax import serialization

for kind in (">f4", ">i8"):
    numbers = np.arange(1, 4, dtype=kind)
    (safe,) = safetensors.numpy.load(safetensors.numpy.save({"a": numbers})).values()
    (read,) = serialization.msgpack_restore(serialization.msgpack_serialize({"a": numbers})).values()
    (into,) = serialization.from_bytes({"a": np.zeros(3, kind)}, serialization.to_bytes({"a": numbers})).values()
    print(kind, "safetensors", safe, "msgpack_restore", read, "from_bytes", into)
    assert np.array_equal(safe, numbers) and np.array_equal(read, into)
    assert np.array_equal(read, numbers.view(numbers.dtype.newbyteorder("<")))
PYTHON
