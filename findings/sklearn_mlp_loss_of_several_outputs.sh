#!/usr/bin/env bash
# scikit-learn 1.9.1: MLPRegressor's loss is the mean over samples and outputs, but it moves by the gradient of the mean
# over samples and the sum over outputs. With four targets, a step is four times the slope of loss_. The solver "lbfgs",
# which is given both as a function and its gradient, then fails in its line search: of 8 equal targets, each is fitted
# worse (a mean square of 0.25) than the one target is alone (0.10), and the warning, ABNORMAL, suggests to scale the
# data.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import warnings

import numpy as np
from sklearn.neural_network import MLPRegressor

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x = rng.normal(size=(30, 3))
target = x @ [1.0, 2.0, 3.0] + 0.1 * rng.normal(size=30)


def step(y, bias):
    """Return the loss at a bias of the outputs, and how far a step with the rate 0.1 moves the bias, over -0.1."""
    net = MLPRegressor(
        hidden_layer_sizes=(2,), activation="identity", solver="sgd", alpha=0.0, batch_size=30, learning_rate_init=0.1,
        momentum=0.0, shuffle=False, random_state=0,
    )
    net.partial_fit(x, y)  # makes the weights
    for weights in net.coefs_:
        weights[:] = 0.5
    net.intercepts_[0][:], net.intercepts_[1][:] = 0, bias
    net.partial_fit(x, y)
    return net.loss_, (bias - net.intercepts_[1]).sum() / 0.1


def repeated(count):
    return target if count == 1 else np.repeat(target[:, None], count, axis=1)


for count in (1, 2, 4):
    y = repeated(count)
    slope = (step(y, 1e-4)[0] - step(y, -1e-4)[0]) / 2e-4
    moved = step(y, 0.0)[1]
    print(f"{count} outputs: the slope of the loss is {slope:.4f}, a step moves by {moved:.4f} = {moved / slope:.3f} of it")
    assert abs(moved / slope - count) < 1e-6
errors = []
for count in (1, 8):
    y = repeated(count)
    net = MLPRegressor(hidden_layer_sizes=(4,), activation="tanh", solver="lbfgs", alpha=1.0, max_iter=5000, tol=1e-10,
                       random_state=0).fit(x, y)
    errors.append(((net.predict(x) - y) ** 2).mean())
    print(f"{count} outputs, lbfgs: {net.n_iter_} iterations, mean square {errors[-1]:.4f}")
assert errors[1] > 2 * errors[0]
PYTHON
