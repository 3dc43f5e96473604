#!/usr/bin/env bash
# thinc 9.1.1: Dish, a dense layer with the activation of that name, takes the derivative of its activation at the input of
# the layer, not at the product W x + b to which the activation is applied. With as many inputs as outputs, all gradients
# are wrong without an error, some in their signs; with other sizes, backprop raises a ValueError about broadcasting. The
# activation itself and its derivative, ops.dish and ops.backprop_dish, are right, and so are Swish, Mish and Gelu, layers
# of the same form.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q thinc==9.1.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from thinc.api import Dish, Gelu, Mish, Swish, get_current_ops


def gradients(layer, inputs=2):
    """Return the gradient of the sum of the outputs by the input, and the same by differences."""
    model = layer(nO=2, nI=inputs)
    model.initialize()
    model.set_param("W", np.array([[-0.5, -2.0], [1.5, 2.0]], "f") if inputs == 2 else np.ones((2, inputs), "f"))
    x = np.array([[0.3, -0.8, 0.1][:inputs]], "f")
    y, backprop = model(x, is_train=True)
    found = backprop(np.ones_like(y))
    moved = [[model.predict(x + sign * row).sum() for sign in (1, -1)] for row in 0.01 * np.eye(inputs, dtype="f")]
    return found[0], [(up - down) / 0.02 for up, down in moved]


for layer in (Swish, Mish, Gelu, Dish):
    found, right = gradients(layer)
    print(f"{layer.__name__:5} gradient {np.round(found, 3)}, by differences {np.round(right, 3)}")
    assert np.allclose(found, right, atol=1e-3) == (layer is not Dish)
    assert layer is not Dish or np.abs(found - right).max() > 0.3

x, ops = np.linspace(-2, 2, 9), get_current_ops()
slopes = (ops.dish(x + 1e-5) - ops.dish(x - 1e-5)) / 2e-5
assert np.allclose(ops.backprop_dish(np.ones(9), x), slopes, atol=1e-8)
try:
    gradients(Dish, 3)
except ValueError as error:
    print("3 inputs, 2 outputs:", error)
else:
    raise AssertionError
PYTHON
