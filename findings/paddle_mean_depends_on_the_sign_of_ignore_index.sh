#!/usr/bin/env bash
# Paddle 3.3.1 (CPU): F.cross_entropy(reduction="mean") divides by the number of labels that are not ignored if
# ignore_index >= 0, but by the number of all labels if it is negative, as its default, -100, is. With three of five
# labels ignored, the same loss is 0.852 with ignore_index=0, 3 or 255, and 0.341 with -1 or -100; PyTorch and ONNX give
# 0.852 for all of them. The gradients shrink by the same factor, so that it depends on the padding of a batch.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q paddlepaddle==3.3.1 2> /dev/null
"$folder/venv/bin/python" - 2> /dev/null <<'PYTHON'
import numpy as np
import paddle
import paddle.nn.functional as F

logits = paddle.to_tensor(np.random.default_rng(0).standard_normal((5, 4)))
labels = np.array([2, 0, 0, 1, 0])  # those that are 0 are to be ignored
alone = float(F.cross_entropy(logits[[0, 3]], paddle.to_tensor(labels[[0, 3]])))
found = {}
for index in (0, 3, 255, -1, -100):
    given = paddle.to_tensor(np.where(labels == 0, index, labels))
    found[index] = round(float(F.cross_entropy(logits, given, ignore_index=index)), 6)
print("the two rows alone", round(alone, 6), "by ignore_index", found)
assert {found[0], found[3], found[255]} == {round(alone, 6)}
assert {found[-1], found[-100]} == {round(alone * 2 / 5, 6)}
PYTHON
