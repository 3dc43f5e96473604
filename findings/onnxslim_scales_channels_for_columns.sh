#!/usr/bin/env bash
# onnxslim 0.1.98 changes what a model computes: a Mul after a Conv by a vector, which scales the columns of an image, is
# folded into the weights as if it scaled the channels, if an image has as many columns as channels; onnxruntime's own
# optimizations leave it alone. And two RandomUniformLike nodes of one input become one, so that two noises are the same
# numbers, as they do in onnxoptimizer 0.4.2 (eliminate_common_subexpression).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnxslim==0.1.98 onnxoptimizer==0.4.2 onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxoptimizer
import onnxruntime
import onnxslim
from onnx import ModelProto, TensorProto, helper, numpy_helper


def make(nodes, shape, **constants):
    info = lambda name, shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    given = [numpy_helper.from_array(a, name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", [info("x", shape)], [info("y", None)], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


slim = lambda model: onnxslim.slim(ModelProto.FromString(model.SerializeToString()))
optimize = lambda model: onnxoptimizer.optimize(model, ["eliminate_common_subexpression"])

nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Mul", ["c", "v"], ["y"])]
model = make(nodes, [1, 1, 1, 2], w=np.ones((2, 1, 1, 1), "f"), v=np.array([1, 10], "f"))
before, after = (run(m, np.ones((1, 1, 1, 2), "f")).reshape(2, 2).tolist() for m in (model, slim(model)))
print("channels x columns, times [1, 10]:", before, "after onnxslim:", after)
assert before == [[1, 10], [1, 10]] and after == [[1, 1], [10, 10]]

nodes = [helper.make_node("RandomUniformLike", ["x"], [name]) for name in ("a", "b")] + [helper.make_node("Sub", ["a", "b"], ["y"])]
model = make(nodes, [1000])
for name, changed in (("as it is", model), ("onnxslim", slim(model)), ("onnxoptimizer", optimize(model))):
    difference = np.abs(run(changed, np.ones(1000, "f"))).mean()
    print(f"mean difference of two noises, {name}: {difference:.3f}")
    assert (difference == 0) == (changed is not model)
PYTHON
