#!/usr/bin/env bash
# Keras 3.15.1 (JAX 0.10.2): a .weights.h5 file of a subclassed model keeps a layer under the name of its attribute if that
# comes before "layers" in the alphabet, and otherwise as "layers/dense_1", by class and order of assignment. So of two
# classes with the same attributes, assigned in different orders, one loads the other's file rightly if they are called a
# and b; if they are p and q, the weights of the two are exchanged without an error, although the layers have the names
# "p" and "q", too. With one name of each kind (down, up), loading fails.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q keras==3.15.1 jax==0.10.2 2> /dev/null
cat > "$folder/look.py" <<'PYTHON'
import h5py
import keras
import numpy as np
from keras import layers


def model(order, first, second):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            for name in order:
                setattr(self, name, layers.Dense(2, name=name))

        def call(self, x):
            return getattr(self, second)(getattr(self, first)(x))

    net = Own()
    net(np.ones((1, 2)))
    return net


def exchanged(first, second):
    one, other = model([first, second], first, second), model([second, first], first, second)
    one.save_weights("w.weights.h5")
    with h5py.File("w.weights.h5") as file:
        stored = sorted({*file} - {"vars", "layers"}), sorted(file.get("layers", []))
    try:
        other.load_weights("w.weights.h5")
    except ValueError as error:
        return stored, "ValueError"
    same, crossed = (
        all(np.array_equal(getattr(one, a).kernel, getattr(other, b).kernel) for a, b in pairs)
        for pairs in ([(first, first), (second, second)], [(first, second), (second, first)])
    )
    return stored, "right" if same else "exchanged" if crossed else "other"


found = {names: exchanged(*names) for names in (("a", "b"), ("p", "q"), ("down", "up"))}
for names, what in found.items():
    print(*names, *what)
assert found["a", "b"] == ((["a", "b"], []), "right")
assert found["p", "q"] == (([], ["dense", "dense_1"]), "exchanged")
assert found["down", "up"] == ((["down"], ["dense_1"]), "ValueError")
PYTHON
cd "$folder" && KERAS_BACKEND=jax venv/bin/python look.py
