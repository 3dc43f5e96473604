#!/usr/bin/env bash
# onnxruntime 1.31.1, CPU: Unique of float32 takes NaN for equal to whatever number it meets, so that numbers disappear. Of
# [NaN, 1, 2] nothing is left but NaN, counted three times, and with the inverse indices [0, 0, 0] the input comes back as
# NaN only. Of [1, NaN, 2] NaN is left out and counted as a 1. NumPy and onnx's reference evaluator keep all three.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

outputs = ["values", "indices", "inverse", "counts"]
make = helper.make_tensor_value_info
results = [make(name, TensorProto.INT64 if name != "values" else TensorProto.FLOAT, None) for name in outputs]
graph = helper.make_graph([helper.make_node("Unique", ["x"], outputs)], "g", [make("x", TensorProto.FLOAT, [3])], results)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
session, reference, nan = onnxruntime.InferenceSession(model.SerializeToString()), ReferenceEvaluator(model), np.nan
for x, values, counts in (([nan, 1, 2], [nan], [3]), ([1, nan, 2], [1, 2], [2, 1]), ([2, 1, nan], [1, 2], [1, 2])):
    feeds = {"x": np.array(x, "f")}
    found, _, inverse, number = session.run(None, feeds)
    kept = reference.run(None, feeds)[0]
    print(f"{x}: {found.tolist()}, counts {number.tolist()}, inverse gives {found[inverse].tolist()}; reference {kept.tolist()}")
    assert np.array_equal(kept, np.unique(feeds["x"]), equal_nan=True)
    assert np.array_equal(found, np.array(values, "f"), equal_nan=True)
    assert sorted(number.tolist()) == sorted(counts)
PYTHON
