#!/usr/bin/env bash
# optax 0.2.8 (JAX 0.10.2): adafactor(learning_rate, weight_decay_rate=0.01) takes a hundredth off each weight at each step,
# whatever the rate is: the decay is added after the rate has been multiplied in. With a schedule that ends at 0 the
# weights go on falling, by half in 69 steps. adamw, lamb, lion and others of optax multiply their weight_decay by the
# rate, as the Adafactor of PyTorch and of Keras does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q optax==0.2.8 jax==0.10.2 2> /dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import jax.numpy as jnp
import optax


def left(make, rate, steps=69):
    """Return what is left of a weight of 1 after steps with a gradient of 0."""
    optimizer, weights = make(rate), jnp.ones(1)
    state = optimizer.init(weights)
    for _ in range(steps):
        updates, state = optimizer.update(jnp.zeros(1), state, weights)
        weights = optax.apply_updates(weights, updates)
    return float(weights[0])


makes = {"adafactor": lambda rate: optax.adafactor(rate, weight_decay_rate=0.01)}
for name in ("adamw", "nadamw", "adamaxw", "lion", "lamb", "adan"):
    makes[name] = lambda rate, name=name: getattr(optax, name)(rate, weight_decay=0.01)
for name, make in makes.items():
    found = [round(left(make, rate), 4) for rate in (1e-2, 1e-4, lambda count: 0.0 * count)]
    print(f"{name:9} left of 1 after 69 steps with the rates 0.01, 0.0001, 0: {found}")
    assert found == [0.4998] * 3 if name == "adafactor" else found[2] == 1 and found[1] > 0.98
PYTHON
