#!/usr/bin/env bash
# onnxruntime 1.31.1 with its default optimizations: a Pad with zeros before a MaxPool becomes the padding of the MaxPool,
# which counts as -inf, not as 0. So where all numbers in a window at the border are negative, the result is their maximum
# and not the 0 of the model, which onnx's reference evaluator and onnxruntime without optimizations give. After a relu it
# makes no difference, which hides it. onnxruntime 1.32.0 is right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

pads = numpy_helper.from_array(np.array([0, 0, 1, 0, 0, 1]), "pads")
nodes = [helper.make_node("Pad", ["x", "pads"], ["p"]), helper.make_node("MaxPool", ["p"], ["y"], kernel_shape=[2], strides=[2])]
make = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
graph = helper.make_graph(nodes, "g", [make("x", [1, 1, 4])], [make("y", None)], [pads])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
options = onnxruntime.SessionOptions()
options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
runtimes = {
    "reference": ReferenceEvaluator(model),
    "onnxruntime": onnxruntime.InferenceSession(model.SerializeToString()),
    "without optimizations": onnxruntime.InferenceSession(model.SerializeToString(), options),
}
for x in ([-1, -2, -3, -4], [1, 2, 3, 4]):
    found = {name: runtime.run(None, {"x": np.array([[x]], "f")})[0].ravel().tolist() for name, runtime in runtimes.items()}
    print(f"{x} with a 0 on both sides, maxima of pairs:", found)
    assert found["reference"] == found["without optimizations"] == ([0, -2, 0] if x[0] < 0 else [1, 3, 4])
    assert found["onnxruntime"] == ([-1, -2, -4] if x[0] < 0 else [1, 3, 4])
PYTHON
