#!/usr/bin/env bash
# onnxruntime 1.31.1: ReduceMax and ReduceMin return NaN only if it comes first among the reduced elements, and so depend
# on their order; Max and Min of two inputs, and onnx's reference evaluator, return NaN in both cases.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxruntime==1.31.1 onnx==1.23.2 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator


def run(op, *inputs):
    names = [f"x{k}" for k in range(len(inputs))]
    make = helper.make_tensor_value_info
    given = [make(name, TensorProto.FLOAT, x.shape) for name, x in zip(names, inputs, strict=True)]
    graph = helper.make_graph([helper.make_node(op, names, ["y"])], "g", given, [make("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    feeds = dict(zip(names, inputs, strict=True))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [float(np.ravel(found[0])[0]) for found in (session.run(None, feeds), ReferenceEvaluator(model).run(None, feeds))]


nan = np.float32("nan")
for op, rest in (("ReduceMax", 2.0), ("ReduceMin", 1.0)):
    first, second = (run(op, np.array(x, np.float32)) for x in ([nan, 1, 2], [1, nan, 2]))
    print(f"{op}: NaN first: {first[0]}, NaN second: {second[0]}; reference: {first[1]}, {second[1]}")
    assert np.isnan([*first, second[1]]).all()
    assert second[0] == rest
for op in ("Max", "Min"):
    found = [run(op, *np.array(x, np.float32).reshape(2, 1)) for x in ([nan, 1], [1, nan])]
    print(f"{op} of two inputs: {found}")
    assert np.isnan(found).all()
PYTHON
