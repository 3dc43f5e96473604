#!/usr/bin/env bash
# A NumPy array of big-endian numbers, as files in the formats IDX (MNIST), FITS and netCDF give them, has a type of its
# own, ">f4". onnxruntime 1.31.1 takes it for "f4" and its bytes as they are: an input of 1 becomes 4.6e-41, without an
# error. OpenVINO 2026.4.1 computes with the right numbers if a model is called with the array, with wrong ones if
# openvino.Tensor is made of it first, and refuses it as a constant. onnx 1.23.2 refuses to store it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 openvino==2026.4.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper

value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", value[:1], value[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
session = onnxruntime.InferenceSession(model.SerializeToString())
core = openvino.Core()
compiled = core.compile_model(core.read_model(model.SerializeToString()), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

numbers = np.arange(1, 4, dtype=">f4")
misread = numbers.view("<f4")
found = {
    "onnxruntime": session.run(None, {"x": numbers})[0],
    "onnxruntime, OrtValue": onnxruntime.OrtValue.ortvalue_from_numpy(numbers).numpy(),
    "OpenVINO": compiled([numbers])[0],
    "OpenVINO, Tensor": openvino.Tensor(numbers).data,
}
for name, y in found.items():
    print(f"{name:22}", y)
assert np.array_equal(found["OpenVINO"], numbers)
assert all(np.array_equal(y, misread) for name, y in found.items() if name != "OpenVINO")
for refused in (lambda: onnx.numpy_helper.from_array(numbers), lambda: openvino.opset8.constant(numbers)):
    try:
        refused()
    except (ValueError, openvino.exceptions.OVTypeError) as error:
        print(type(error).__name__, error)
    else:
        raise AssertionError
PYTHON
