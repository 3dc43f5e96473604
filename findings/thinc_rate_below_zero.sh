#!/usr/bin/env bash
# thinc 9.1.1: slanted_triangular(max_rate, num_steps), the warm-up and linear fall of ULMFiT, does not end at
# num_steps, and not at a rate of 0: it goes on falling, below 0, so that further steps climb the loss, each faster than
# the one before. warmup_linear stays at 0. And thinc.SGD clips the gradient of each parameter array to a norm of 1
# unless grad_clip=0: a gradient of 100 moves a weight as far as one of 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q thinc==9.1.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from thinc.api import SGD, slanted_triangular, warmup_linear

slanted, linear = (
    [round(float(schedule(step)), 3) for step in range(13)]
    for schedule in (slanted_triangular(1.0, 10), warmup_linear(1.0, 1, 10))
)
print("slanted_triangular", slanted, "\nwarmup_linear     ", linear)
assert min(slanted[:10]) > 0 > slanted[10] > slanted[11] > slanted[12] and linear[10:] == [0, 0, 0]


def moved(gradient, **options):
    """Return how far the weights 1 of one array move by a step with the rate 0.1."""
    weights, _ = SGD(0.1, **options)((0, "W"), np.ones(len(gradient), "f"), np.array(gradient, "f"))
    return [round(float(1 - w), 4) for w in weights]


for gradient in ([0.5], [1.0], [100.0], [3.0, 4.0]):
    print("gradient", gradient, "moves", moved(gradient), "without clipping", moved(gradient, grad_clip=0.0))
assert moved([100.0]) == moved([1.0]) == [0.1] and moved([3.0, 4.0]) == [0.06, 0.08]
assert moved([3.0, 4.0], grad_clip=0.0) == [0.3, 0.4]
PYTHON
