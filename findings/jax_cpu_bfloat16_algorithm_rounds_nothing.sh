#!/usr/bin/env bash
# JAX 0.10.2 on the CPU: an explicit dot algorithm is refused where it is not supported (TF32_TF32_F32, F16_F16_F32,
# BF16_BF16_BF16 raise), and F16_F16_F16 rounds float32 factors to float16. BF16_BF16_F32 is accepted too, yet rounds
# nothing: the product has float32's error of 2e-7, not the 2e-3 of factors in bfloat16. So a program that is run on the
# CPU to see what bfloat16 products do to a training says that they do no harm.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q jax==0.10.2 2> /dev/null
JAX_PLATFORMS=cpu "$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)
a, b = (rng.standard_normal((64, 64)).astype(np.float32) for _ in range(2))
exact, size = a.astype(float) @ b, np.abs(a).astype(float) @ np.abs(b)


def error(product):
    return float((np.abs(np.asarray(product, float) - exact) / size).max())


found = {}
for name in ("F32_F32_F32", "BF16_BF16_F32", "F16_F16_F16", "TF32_TF32_F32", "BF16_BF16_BF16"):
    try:
        found[name] = error(jax.jit(lambda a, b, name=name: jax.lax.dot(a, b, precision=name))(a, b))
    except ValueError:
        found[name] = None
    print(f"{name:15}", "refused" if found[name] is None else f"error {found[name]:.0e}")
rounded = error(np.asarray(jnp.asarray(a, jnp.bfloat16), float) @ np.asarray(jnp.asarray(b, jnp.bfloat16), float))
print(f"factors rounded to bfloat16 before: error {rounded:.0e}")
assert found["TF32_TF32_F32"] is None
assert found["BF16_BF16_BF16"] is None
assert found["F16_F16_F16"] > 1e-5
assert found["F32_F32_F32"] < 1e-6
assert found["BF16_BF16_F32"] < 1e-6 < 1e-3 < rounded
PYTHON
