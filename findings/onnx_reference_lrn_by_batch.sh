#!/usr/bin/env bash
# onnx 1.23.2, the reference evaluator: LRN normalizes as many channels as there are samples in the batch, and leaves the
# others as they are but for the constant `bias`. So one image comes out otherwise alone than in a batch. LpNormalization
# with p=1 divides by the sum of the numbers, not of their absolute values, and so by little or by a negative number.
# NegativeLogLikelihoodLoss with reduction="mean" divides by the number of labels that count, but by that of all if
# ignore_index is -1. onnxruntime 1.31.1 computes all three as the operators are defined.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator


def run(op, *inputs, **attributes):
    """Return what the reference evaluator and what onnxruntime compute."""
    names = [f"x{k}" for k in range(len(inputs))]
    make = lambda name, x: helper.make_tensor_value_info(name, numpy_helper.from_array(x).data_type, x.shape)
    result = helper.make_tensor_value_info("y", 1, None)
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", list(map(make, names, inputs)), [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = dict(zip(names, inputs, strict=True))
    return [runtime.run(None, feeds)[0] for runtime in (ReferenceEvaluator(model), session)]


image = np.full((1, 4, 1, 1), 2, "f")
options = {"size": 1, "alpha": 3.0, "beta": 1.0, "bias": 1.0}  # x / (1 + 3 x²), of each channel by itself
for images in (1, 2, 4):
    reference, runtime = (y[0].ravel() for y in run("LRN", np.repeat(image, images, 0), **options))
    print(f"LRN, first of {images} images:", reference.round(3), "onnxruntime:", runtime.round(3))
    assert np.allclose(runtime, 2 / 13)
    assert np.allclose(reference, [2 / 13 if channel < images else 2 for channel in range(4)])

reference, runtime = run("LpNormalization", np.array([[1, -2, 3], [1, 1, -3]], "f"), axis=1, p=1)
print("LpNormalization, p=1:", reference.round(3).tolist(), "onnxruntime:", runtime.round(3).tolist())
assert np.allclose(reference, [[0.5, -1, 1.5], [-1, -1, 3]])
assert np.allclose(runtime, [[1 / 6, -2 / 6, 3 / 6], [1 / 5, 1 / 5, -3 / 5]])

for ignored in (-100, -1, 0):
    labels = np.array([1, ignored, 2, ignored])
    reference, runtime = map(float, run("NegativeLogLikelihoodLoss", np.full((4, 3), -1, "f"), labels, ignore_index=ignored))
    print("ignore_index", ignored, "reference", reference, "onnxruntime", runtime)
    assert (reference, runtime) == (0.5 if ignored == -1 else 1.0, 1.0)
PYTHON
