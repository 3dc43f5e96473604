#!/usr/bin/env bash
# onnxruntime 1.31.1 (CPU), Cast from float32 to float8 with saturate=0: numbers beyond the largest one become NaN in
# FLOAT8E4M3FN, whose largest is 448, but those between 480 and 496 become 448. In FLOAT8E5M2 they become infinite, but
# those between 61440, halfway from the largest, and 65536 become NaN. The reference evaluator of onnx 1.23.2 and
# ml_dtypes 0.6.0, which agree in all of them, give NaN and infinity without exception.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 ml_dtypes==0.6.0 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import ml_dtypes
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

for to, kind, numbers in (
    (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, [448, 464, 465, 479, 481, 495, 497, 511, 513, 1e6, np.inf]),
    (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, [57344, 61439, 61441, 65535, 65536, 1e6, np.inf]),
):
    nodes = [helper.make_node("Cast", ["x"], ["m"], to=to, saturate=0), helper.make_node("Cast", ["m"], ["y"], to=1)]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    x = np.array(numbers, np.float32)
    (found,) = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    (reference,) = ReferenceEvaluator(model).run(None, {"x": x})
    expected = x.astype(kind).astype(np.float32)
    print(kind.__name__, numbers, f"onnxruntime {found.tolist()}", f"expected {expected.tolist()}", sep="\n  ")
    assert np.array_equal(reference, expected, equal_nan=True)
    differs = x[~((found == expected) | (np.isnan(found) & np.isnan(expected)))].tolist()
    assert differs == ([481, 495] if kind is ml_dtypes.float8_e4m3fn else [61441, 65535])
PYTHON
