#!/usr/bin/env bash
# optax 0.2.8 (JAX 0.10.2): softmax_cross_entropy_with_integer_labels takes the labels -1 and -100, with which others mark
# what is to be ignored, in two ways: -1 is the last class, without a word, and -100 gives a loss of NaN, whose gradient
# is finite: it is the softmax, which pushes every logit of the row down. So a step trains on the ignored rows in either
# case, and only a loss that is printed tells it, in the second.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q optax==0.2.8 jax==0.10.2 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import jax
import jax.numpy as jnp
import optax

logits = jnp.arange(12.0).reshape(3, 4) / 10
loss = lambda label: optax.softmax_cross_entropy_with_integer_labels(logits, jnp.full(3, label))
found = {label: loss(label).tolist() for label in (3, -1, -4, -5, -100, 4)}
for label, values in found.items():
    print(f"{label:5}", [round(value, 4) for value in values])
gradient = lambda label: jax.grad(lambda x: optax.softmax_cross_entropy_with_integer_labels(x, jnp.array([label])).sum())(logits[:1])
print("gradients", gradient(-1).round(3).tolist(), gradient(-100).round(3).tolist())
assert jnp.array_equal(gradient(-100), jax.nn.softmax(logits[:1]))
assert found[-1] == found[3]
assert all(str(values) == "[nan, nan, nan]" for label, values in found.items() if label in (-5, -100, 4))
PYTHON
