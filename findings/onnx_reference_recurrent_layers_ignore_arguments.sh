#!/usr/bin/env bash
# onnx 1.23.2: the reference evaluator runs LSTM and GRU as if `clip`, `activations`, `input_forget` and `sequence_lens` had
# not been given, and RNN without `clip` and `sequence_lens`, without an error or a warning: it has the arguments and never
# reads them. So the padding of a short sequence changes its last state, and an exporter that is checked against the
# reference passes whatever it writes there. onnxruntime 1.31.1 takes all of them into account.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" --disable-pip-version-check install -q onnx==1.23.2 onnxruntime==1.31.1 numpy==2.4.6 2> /dev/null
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

generator = np.random.default_rng(0)
x, lengths = generator.standard_normal((4, 2, 3)).astype("f"), np.array([2, 4], "i4")  # steps, samples, features


def last(op, given=False, **attributes):
    """Return the last state by the reference evaluator and by onnxruntime."""
    rows = 2 * {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = np.linspace(-2, 2, rows * 3).reshape(1, rows, 3).astype("f")
    bias = np.linspace(-1, 2, 2 * rows)[None].astype("f")
    constants = [numpy_helper.from_array(a, name) for a, name in ((weights, "W"), (weights[..., :2].copy(), "R"), (bias, "B"))]
    feeds = {"x": x, "lengths": lengths} if given else {"x": x}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT32 if name == "lengths" else TensorProto.FLOAT, a.shape)
        for name, a in feeds.items()
    ]
    result = helper.make_tensor_value_info("h", TensorProto.FLOAT, None)
    names = ["x", "W", "R", "B", *(["lengths"] if given else [])]
    node = helper.make_node(op, names, ["", "h"], hidden_size=2, **attributes)
    graph = helper.make_graph([node], "g", inputs, [result], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.array([runtime.run(None, feeds)[0] for runtime in (ReferenceEvaluator(model), session)])


softsign = {"RNN": ["Softsign"], "GRU": ["HardSigmoid", "Softsign"], "LSTM": ["HardSigmoid", "Softsign", "Softsign"]}
for op, activations in softsign.items():
    plain = last(op)
    assert np.allclose(*plain, atol=1e-5)
    cases = {"clip": {"clip": 0.2}, "sequence_lens": {"given": True}}
    if op != "RNN":
        cases["activations"] = {"activations": activations}
    if op == "LSTM":
        cases["input_forget"] = {"input_forget": 1}
    for name, options in cases.items():
        reference, runtime = (np.abs(a - b).max() for a, b in zip(last(op, **options), plain, strict=True))
        print(f"{op:4} {name:13} changes the last state by {reference:.3f} in the reference, {runtime:.3f} in onnxruntime")
        assert reference == 0 and runtime > 1e-3
PYTHON
