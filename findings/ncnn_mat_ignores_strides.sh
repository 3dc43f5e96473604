#!/usr/bin/env bash
# ncnn 1.0.20261020 (Python): ncnn.Mat(array) reads the memory of a NumPy array in order, whatever its strides are, and
# raises nothing. An image with its channels moved to the front by transpose(2, 0, 1), as networks want it, so becomes
# another image of the same shape; with .copy() it is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q ncnn==1.0.20261020 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import ncnn
import numpy as np

image = np.arange(2 * 2 * 3, dtype=np.float32).reshape(2, 2, 3)  # height, width, channels
planes = image.transpose(2, 0, 1)
read = np.array(ncnn.Mat(planes))
print("channels first", planes.tolist())
print("ncnn reads    ", read.tolist())
assert read.shape == planes.shape and np.array_equal(read, image.reshape(3, 2, 2))
assert np.array_equal(np.array(ncnn.Mat(planes.copy())), planes)
PYTHON
