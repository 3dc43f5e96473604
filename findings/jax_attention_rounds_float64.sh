#!/usr/bin/env bash
# JAX 0.10.2 with x64: jax.nn.dot_product_attention of float64 returns float64 but computes the weights in float32, 7e-8
# off, and fails jax.test_util.check_grads. Flax 0.12.8 (nnx) calls it only if dropout_rate is 0: with dropout_rate=0.1 and
# deterministic=True, the same numbers are right to 1e-16. So whether a float64 nnx.MultiHeadAttention is exact, and
# passes a gradient check, depends on a dropout that is switched off. Flax's linen always computes in float64.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q flax==0.12.8 jax==0.10.2 2> /dev/null
JAX_ENABLE_X64=1 "$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jax.test_util import check_grads

q = np.random.default_rng(0).standard_normal((1, 5, 2, 3))
scores = np.einsum("bqhd,bkhd->bhqk", q, q) / np.sqrt(3)
weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
right = np.einsum("bhqk,bkhd->bqhd", weights, q)
functions = {
    "jax": lambda q: jax.nn.dot_product_attention(q, q, q),
    "nnx, dropout 0": lambda q: nnx.dot_product_attention(q, q, q, dropout_rate=0.0, deterministic=True),
    "nnx, dropout 0.1": lambda q: nnx.dot_product_attention(q, q, q, dropout_rate=0.1, deterministic=True),
    "linen": lambda q: linen.dot_product_attention(q, q, q, deterministic=True),
}
exact = []
for name, function in functions.items():
    y = function(jnp.asarray(q))
    try:
        check_grads(function, (jnp.asarray(q),), order=1, modes=["rev"])
        checked = "passes"
    except AssertionError:
        checked = "fails"
    print(f"{name:17} {y.dtype}, off by {abs(y - right).max():.0e}, check_grads {checked}")
    assert y.dtype == "float64"
    exact.append((bool(abs(y - right).max() < 1e-14), checked))
assert exact == [(False, "fails"), (False, "fails"), (True, "passes"), (True, "passes")]
PYTHON
