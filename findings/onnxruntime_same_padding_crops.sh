#!/usr/bin/env bash
# onnxruntime 1.31.1 and the reference evaluator of onnx 1.23.2, auto_pad="SAME_UPPER": where windows are so much smaller
# than the stride that x needs no padding, its computed amount is negative and used as it is. onnxruntime's Conv then
# silently begins later in x, where TensorFlow and XLA begin with the first element; SAME_LOWER of the same Conv does not.
# AveragePool begins later too, and MaxPool raises. The reference evaluator computes Conv as TensorFlow does, begins later
# in MaxPool and refuses AveragePool. With a dilation, Conv raises even for a stride of 1, and MaxPool leaves the dilation
# out of the padding, so that an output is missing.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnx==1.23.2 onnxruntime==1.31.1 numpy 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def run(op, length, kernel, stride, mode="SAME_UPPER", dilation=1):
    """Apply one window to 1, 2, ... in both; the convolution gives the first element of each window."""
    x, w = np.arange(1, length + 1, dtype="f")[None, None], np.zeros((1, 1, kernel), "f")
    w[..., 0] = 1
    options = {"auto_pad": mode, "strides": [stride], "kernel_shape": [kernel], "dilations": [dilation]}
    given = {"x": x, "w": w} if op == "Conv" else {"x": x}
    node = helper.make_node(op, list(given), ["y"], **options)
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, a.shape) for name, a in given.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "graph", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    runs = {
        "onnxruntime": lambda: onnxruntime.InferenceSession(
            model.SerializeToString(), quiet, providers=["CPUExecutionProvider"]).run(None, given)[0],
        "reference": lambda: ReferenceEvaluator(model).run(None, given)[0],
    }
    found = []
    for name, call in runs.items():
        try:
            found.append(call().ravel().tolist())
        except Exception as error:
            found.append(type(error).__name__)
        print(f"{op:12}{mode} length {length:2} window {kernel} stride {stride} dilation {dilation} {name:12}{found[-1]}")
    return found


assert run("Conv", 8, 1, 4) == [[2, 6], [1, 5]]
assert run("Conv", 8, 1, 4, "SAME_LOWER") == [[1, 5], [1, 5]]
assert run("Conv", 12, 2, 6) == [[2, 8], [1, 7]]
assert run("AveragePool", 8, 1, 4) == [[2, 6], "ValueError"]
assert run("AveragePool", 8, 2, 4) == [[2.5, 6.5], "ValueError"]
assert run("MaxPool", 8, 1, 4) == ["RuntimeException", [3, 7]]
assert run("MaxPool", 5, 1, 4, "SAME_LOWER") == [[1, 5], [3]]
assert run("Conv", 5, 2, 1, dilation=2) == ["InvalidArgument", [0, 1, 2, 3, 4]]
assert run("MaxPool", 5, 2, 1, dilation=2) == [[3, 4, 5, 4], [2, 3, 4, 5, 4]]
PYTHON
