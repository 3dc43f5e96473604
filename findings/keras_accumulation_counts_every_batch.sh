#!/usr/bin/env bash
# Keras 3.15.1 (JAX 0.10.2): an optimizer with gradient_accumulation_steps=4 moves the weights as one without does by
# the mean of four gradients, and counts so: optimizer.iterations is 3 after twelve batches. But its schedule has been
# read at the batches 3, 7 and 11, so that a decay of 0.5 per step multiplies the rates by 1/8, 1/128, 1/2048 and the
# weights stop moving. With use_ema, the average also moves at each batch, towards weights that have not changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q keras==3.15.1 jax==0.10.2 2> /dev/null
KERAS_BACKEND=jax "$folder/venv/bin/python" - <<'PYTHON'
import keras
import numpy as np


def train(batches, **options):
    """Return the weight and the count after three steps with the gradient 1, each given in so many batches."""
    optimizer = keras.optimizers.SGD(**options, gradient_accumulation_steps=batches if batches > 1 else None)
    weight = keras.Variable(np.ones(1, "float32"))
    optimizer.build([weight])
    for _ in range(3 * batches):
        optimizer.apply([keras.ops.ones(1)], [weight])
    average = [float(v.value[0]) for v in optimizer.variables if v.path.endswith("_average")]
    return round(float(weight.value[0]), 6), int(np.asarray(optimizer.iterations)), *[round(v, 6) for v in average]


decay = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
found = {}
for name, options in {
    "constant": {"learning_rate": 0.1},
    "schedule": {"learning_rate": decay},
    "average": {"learning_rate": 0.1, "use_ema": True, "ema_momentum": 0.5},
}.items():
    found[name] = train(1, **options), train(4, **options)
    print(f"{name:10}", *found[name])
assert found["constant"] == ((0.7, 3), (0.7, 3))
assert found["schedule"][0] == (0.825, 3) and found["schedule"][1] == (round(1 - 0.1 * (1 / 8 + 1 / 128 + 1 / 2048), 6), 3)
assert found["average"] == ((0.7, 3, 0.775), (0.7, 3, 0.753125))
PYTHON
