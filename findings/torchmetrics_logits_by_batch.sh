#!/usr/bin/env bash
# torchmetrics 1.9.0 (PyTorch 2.13.0): binary metrics take logits or probabilities, and decide which for each batch: if
# all its numbers are in [0, 1], they are probabilities. A batch of logits that happen to be there is misread, with the
# limit 0.5 in place of 0, without a warning. So the accuracy of one network on the same samples is 1 or 0.5 by how they
# are batched, and calibration errors of classes change likewise; a network that is unsure, as in its first epochs, is
# misread most often.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q torch==2.13.0 torchmetrics==1.9.0 numpy 2> /dev/null
"$folder/venv/bin/python" -W error - <<'PYTHON'
import torch
from torchmetrics.classification import BinaryAccuracy, MulticlassCalibrationError

logits, labels = torch.tensor([0.3, -3.0, 0.4, 2.0]), torch.tensor([1, 0, 1, 1])
scores, classes = torch.tensor([[0.3, 0.7], [2.0, -1.0], [0.9, 0.1], [0.0, 3.0]]), torch.tensor([1, 0, 0, 1])


def result(metric, x, y, batches):
    for batch in batches:
        metric.update(x[batch], y[batch])
    return metric.compute().item()


for name, metric, x, y in (
    ("BinaryAccuracy", BinaryAccuracy, logits, labels),
    ("MulticlassCalibrationError", lambda: MulticlassCalibrationError(2), scores, classes),
):
    one, mixed, sorted_ = (result(metric(), x, y, batches) for batches in ([[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0, 2], [1, 3]]))
    print(f"{name:27} one batch {one:.4f}, two batches {mixed:.4f}, the same in another order {sorted_:.4f}")
    assert abs(one - mixed) < 1e-6 and abs(one - sorted_) > 0.05
assert result(BinaryAccuracy(), logits, labels, [[0, 2], [1, 3]]) == 0.5
PYTHON
