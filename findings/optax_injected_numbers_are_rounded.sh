#!/usr/bin/env bash
# optax 0.2.8 (JAX 0.10.2): optax.inject_hyperparams(optax.adam)(1e-3), which makes the rate a part of the state, also rounds
# b1, b2 and eps to the widest dtype among the parameters. If all are bfloat16, b2 = 0.999 becomes 1, and the first step
# is NaN; adam, adamw and nadam without the wrapper work. One float32 parameter among them, such as the scale of a norm,
# makes the steps right for all, as hyperparam_dtype=jnp.float32 does.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q optax==0.2.8 jax==0.10.2 2> /dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import optax


def steps(optimizer, *dtypes):
    parameters = [jnp.ones(2, dtype) for dtype in dtypes]
    gradients = [x / 2 for x in parameters]
    state = optimizer.init(parameters)
    found = []
    for _ in range(2):
        updates, state = optimizer.update(gradients, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
        found.append(float(updates[0][0]))
    return found, str(updates[0].dtype), str(parameters[0].dtype)


for name in ("adam", "adamw", "nadam"):
    make = getattr(optax, name)
    plain = steps(make(1e-2), "bfloat16")
    injected = steps(optax.inject_hyperparams(make)(1e-2), "bfloat16")
    mixed = steps(optax.inject_hyperparams(make)(1e-2), "bfloat16", "float32")
    wide = steps(optax.inject_hyperparams(make, hyperparam_dtype=jnp.float32)(1e-2), "bfloat16")
    print(f"{name:5} plain {plain}, injected {injected}\n      beside float32 {mixed}, hyperparam_dtype {wide}")
    assert all(abs(a + 0.01) < 0.006 for a in plain[0] + mixed[0] + wide[0])
    assert all(a != a for a in injected[0])
state = optax.inject_hyperparams(optax.adam)(1e-2).init([jnp.ones(2, "bfloat16")])
print({name: float(x) for name, x in state.hyperparams.items()})
assert float(state.hyperparams["b2"]) == 1
PYTHON
