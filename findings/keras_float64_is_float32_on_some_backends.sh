#!/usr/bin/env bash
# Keras 3.15.1 (JAX 0.10.2, x64 enabled): after set_floatx("float64") and set_dtype_policy("float64"), ops.exp, sqrt and
# matmul of float64 are float64, but ops.tanh, sin, cos and var are float32: keras.backend.result_type("float64",
# "float64") is "float32" on every backend except TensorFlow. So SimpleRNN raises TypeError from JAX's scan, LSTM returns
# float64 numbers that are right to 7 digits only, and Dense(activation="tanh") returns float32. On the backend "numpy",
# even ops.add and Dense return float32.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q keras==3.15.1 jax==0.10.2 2> /dev/null
cat > "$folder/look.py" <<'PYTHON'
import keras
import numpy as np
from keras import layers, ops

keras.config.set_floatx("float64")
keras.config.set_dtype_policy("float64")
backend, x = keras.backend.backend(), np.full((1, 2, 3), 0.1)
found = {name: str(getattr(ops, name)(x).dtype) for name in ("exp", "tanh", "sin", "var")}
found["Dense"] = str(layers.Dense(2)(x).dtype)
found["Dense tanh"] = str(layers.Dense(2, activation="tanh")(x).dtype)
lstm = layers.LSTM(1, kernel_initializer="ones")
y = np.asarray(lstm(x[:, :1]))
gate = lambda a: 1 / (1 + np.exp(-a))
c = gate(0.3) * np.tanh(0.3)
found["LSTM"], digits = str(y.dtype), abs(y.item() - gate(0.3) * np.tanh(c))
try:
    found["SimpleRNN"] = str(layers.SimpleRNN(2)(x).dtype)
except TypeError:
    found["SimpleRNN"] = "TypeError"
print(backend, found, f"LSTM off by {digits:.0e}")
assert keras.backend.result_type("float64", "float64") == "float32"
assert found["tanh"] == found["sin"] == found["var"] == found["Dense tanh"] == "float32"
if backend == "jax":
    assert found["exp"] == found["Dense"] == found["LSTM"] == "float64" and 1e-10 < digits < 1e-6
    assert found["SimpleRNN"] == "TypeError"
else:
    assert found["exp"] == found["Dense"] == "float32"
PYTHON
for backend in jax numpy; do
    JAX_ENABLE_X64=1 KERAS_BACKEND=$backend "$folder/venv/bin/python" "$folder/look.py"
done
