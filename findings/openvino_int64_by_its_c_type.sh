#!/usr/bin/env bash
# OpenVINO 2026.4.1 accepts NumPy's int64 arrays, but of the two C types that NumPy has for 64 bits only the one with the
# name long: "Unsupported data type: int64" for long long, whose dtype is equal, prints the same, and is what a memoryview
# of format "q" (ctypes, struct, the buffer protocol) becomes. onnxruntime 1.31.1 accepts both.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q openvino==2026.4.1 onnxruntime==1.31.1 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - "$folder/model.onnx" <<'PYTHON'
import array
import sys

import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper

info = [helper.make_tensor_value_info(name, TensorProto.INT64, [3]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", info[:1], info[1:])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), sys.argv[1])
compiled = openvino.Core().compile_model(sys.argv[1], "CPU")
session = onnxruntime.InferenceSession(sys.argv[1])

plain = np.array([-1, 2, -3])
other = np.asarray(array.array("q", [-1, 2, -3]))
assert plain.dtype == other.dtype == np.int64
print("dtypes:", repr(plain.dtype), plain.dtype.char, repr(other.dtype), other.dtype.char)
assert compiled([plain])[0].tolist() == [1, 2, 3]
for x in (plain, other):
    assert session.run(None, {"x": x})[0].tolist() == [1, 2, 3]
try:
    compiled([other])
except RuntimeError as error:
    print(str(error).strip().splitlines()[-1])
    assert "Unsupported data type: int64" in str(error)
else:
    sys.exit("OpenVINO accepts long long")
PYTHON
