#!/usr/bin/env bash
# JAX 0.10.2 (CPU): jax.device_put of a NumPy array shares its memory if its address is a multiple of 64, and copies it
# otherwise: always for np.memmap, by chance for slices, rarely for new arrays. So a loader that fills the same buffer
# again changes the batches that it has given away, or not. jnp.asarray and jnp.array always copy.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q jax==0.10.2 numpy==2.4.6 2> /dev/null
cd "$folder"
venv/bin/python - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np


def zeros(offset):
    """Return eight float32 zeros whose address is `offset` bytes above a multiple of 64."""
    memory = np.zeros(256, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start : start + 32].view(np.float32)


for name, convert in {"device_put": jax.device_put, "asarray": jnp.asarray, "array": jnp.array}.items():
    found = {}
    for offset in (0, 4, 16, 32, 48):
        numbers = zeros(offset)
        x = convert(numbers).block_until_ready()
        numbers[:] = 1
        found[offset] = float(x[0])
    print(f"{name:11} of memory at 64 n + offset, after a write to it: {found}")
    file = np.memmap("zeros", np.float32, "w+", shape=8)
    x = convert(file).block_until_ready()
    file[:] = 1
    print(f"{'':11} of np.memmap, after a write to it: {float(x[0])}")
    assert float(x[0]) == found[0]
    assert found == dict.fromkeys(found, 0.0) | ({0: 1.0} if name == "device_put" else {})
PYTHON
