#!/usr/bin/env bash
# onnxruntime 1.31.1, CPU, float32: Sigmoid is accurate absolutely, not relatively: at -12 it is off by 0.6 % of its value,
# at -16 by 47 %, and from -18 down it is exactly 0, so that its logarithm is -inf. Softplus and Softmax, which hold the
# same numbers (log sigmoid(x) = -softplus(-x); sigmoid(x) = softmax([x, 0])[0]), are right to 1e-6 of theirs.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper


def run(op, x):
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0].astype(float)


x = np.array([-4, -8, -12, -16, -18, -30], np.float32)
exact = 1 / (1 + np.exp(-x.astype(float)))
sigmoid, softplus = run("Sigmoid", x), run("Softplus", -x)
softmax = run("Softmax", np.stack([x, np.zeros_like(x)], 1))[:, 0]
for row in zip(x, sigmoid, softmax, exact, strict=True):
    print("x = {:4.0f}: Sigmoid {:.4e}, Softmax {:.4e}, exact {:.4e}".format(*row))
off = abs(sigmoid / exact - 1)
assert abs(sigmoid - exact).max() < 1e-7
assert 0.004 < off[2] < 0.008
assert 0.4 < off[3] < 0.6
assert (sigmoid[4:] == 0).all()
assert abs(softmax / exact - 1).max() < 1e-6
assert abs(-softplus / np.log(exact) - 1).max() < 1e-6
PYTHON
