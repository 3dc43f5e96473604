#!/usr/bin/env bash
# thinc 9.1.1: the loss that CategoricalCrossentropy returns is no cross entropy, but the sum of the squares of its gradient,
# guess minus truth. By default the gradient is divided by the number of rows, and so the squares by the square of that
# number: the same rows given twice have half the loss. A right label with the probability 1e-30 costs 2, not 69, and
# label smoothing makes the loss of that guess smaller. SequenceCategoricalCrossentropy likewise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q thinc==9.1.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
from thinc.api import CategoricalCrossentropy, SequenceCategoricalCrossentropy

guesses, labels = np.array([[0.1, 0.9], [0.5, 0.5], [0.8, 0.2]], "f"), np.array([0, 0, 1])
right = -np.log(guesses[[0, 1, 2], labels])
for name, options in (("default", {}), ("normalize=False", {"normalize": False}), ("smoothing", {"label_smoothing": 0.1})):
    gradient, loss = CategoricalCrossentropy(**options)(guesses, labels)
    twice = CategoricalCrossentropy(**options).get_loss(np.tile(guesses, (2, 1)), np.tile(labels, 2))
    print(f"{name:15} loss {loss:.4f}, of the rows twice {twice:.4f}, sum of the squares of the gradient {(gradient**2).sum():.4f}")
    assert np.isclose(loss, (gradient**2).sum())
    assert np.isclose(twice, 2 * loss if name == "normalize=False" else loss / 2)
print(f"cross entropy: sum {right.sum():.4f}, mean {right.mean():.4f}")
assert abs(right.mean() - CategoricalCrossentropy().get_loss(guesses, labels)) > 0.5
certain = CategoricalCrossentropy().get_loss(np.array([[1e-30, 1]], "f"), np.array([0]))
smooth = CategoricalCrossentropy(label_smoothing=0.1).get_loss(np.array([[1e-30, 1]], "f"), np.array([0]))
print("right label at 1e-30:", float(certain), "with smoothing", round(float(smooth), 4), "; cross entropy", round(float(-np.log(1e-30)), 1))
assert certain == 2 and smooth < certain
sequence = SequenceCategoricalCrossentropy(normalize=False).get_loss([guesses], [labels])
assert np.isclose(sequence, CategoricalCrossentropy(normalize=False).get_loss(guesses, labels))
PYTHON
