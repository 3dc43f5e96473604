#!/usr/bin/env bash
# OpenVINO 2026.4.1, CPU, float32 asked for: Relu and Clip (with constant limits) turn NaN into 0, and Max returns its
# second input if the first is NaN but NaN if the second is: a network that diverged gives finite results. onnxruntime
# 1.31.1 returns NaN for all.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q openvino==2026.4.1 onnxruntime==1.31.1 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - "$folder/model.onnx" <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

CASES = {
    "Relu": ([np.nan],),
    "Clip": ([np.nan], 0.0, 1.0),
    "Max, NaN first": ([np.nan], [2.0]),
    "Max, NaN second": ([2.0], [np.nan]),
}
found = {}
for name, inputs in CASES.items():
    arrays = [np.array(x, np.float32) for x in inputs]
    names = [f"x{k}" for k in range(len(arrays))]
    make = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(name.partition(",")[0], names, ["y"])], "g",
        [make(n, TensorProto.FLOAT, [1]) for n, x in zip(names, arrays) if x.ndim], [make("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(x, n) for n, x in zip(names, arrays) if not x.ndim],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), sys.argv[1])
    plain = onnxruntime.InferenceSession(sys.argv[1]).run(None, {n: x for n, x in zip(names, arrays) if x.ndim})[0][0]
    compiled = openvino.Core().compile_model(sys.argv[1], "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found[name] = float(compiled([x for x in arrays if x.ndim])[0][0])
    print(f"{name:16} onnxruntime {plain}, OpenVINO {found[name]}")
    assert np.isnan(plain)
assert [found[name] for name in CASES][:3] == [0.0, 0.0, 2.0]
assert np.isnan(found["Max, NaN second"])
PYTHON
