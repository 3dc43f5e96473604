"""Record onnxruntime. Needs Python 3.12 and ``pip install onnx==1.23.2 onnxruntime==1.31.1``."""

import numpy as np
import onnxruntime
from common import INPUTS, Recorder, draw, weight
from onnx import TensorProto, helper

recorder = Recorder("onnx", "onnx", "onnxruntime")
first = np.moveaxis(INPUTS["images"], -1, 1).copy()
rows, sequences = INPUTS["rows"], np.moveaxis(INPUTS["sequences"], 1, 0).copy()  # time first
KINDS = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


def record(name, operation, x, weights=None, outputs=1, rest=(), **attributes):
    """Run one node whose inputs are x, the weights in their order, and the rest."""
    values = {"X": x, **{k: weight(f"{name}.{k}", shape) for k, shape in (weights or {}).items()}, **dict(rest)}
    values = {k: v.astype("float32") if v.dtype == "float64" else v for k, v in values.items()}
    order = [k if not k.startswith("none") else "" for k in values]
    values = {k: v for k, v in values.items() if not k.startswith("none")}
    found = [f"Y{k}" for k in range(outputs)]
    node = helper.make_node(operation, order, found, **attributes)
    graph = helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info(k, KINDS[str(v.dtype)], v.shape) for k, v in values.items()],
        [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in found],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    y = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, values)
    recorder.add(name, weights={k: v for k, v in values.items() if k in (weights or {})}, **dict(zip("yabc", y)))


none = np.zeros(0)
lengths = INPUTS["lengths"].astype("int32")
record("linear", "Gemm", rows, {"B": (6, 3), "C": (3,)})
record("linear_transposed", "Gemm", rows, {"B": (3, 6), "C": (3,)}, transB=1)
record("product", "MatMul", rows, {"B": (6, 3)})
record("conv", "Conv", first, {"W": (3, 4, 3, 3), "B": (3,)})
record("conv_stride", "Conv", first, {"W": (3, 4, 3, 3), "B": (3,)}, strides=[2, 2], auto_pad="SAME_UPPER")
record("layer_norm", "LayerNormalization", rows, {"Scale": (6,), "B": (6,)})
record("group_norm", "GroupNormalization", first, {"scale": (4,), "bias": (4,)}, num_groups=2)
record("instance_norm", "InstanceNormalization", first, {"scale": (4,), "B": (4,)})
four = dict.fromkeys(("scale", "B", "input_mean", "input_var"), (4,))
record("batch_norm", "BatchNormalization", first, four)
record("batch_norm_training", "BatchNormalization", first, four, 3, training_mode=1)
for name, operation, gates in (("rnn", "RNN", 1), ("lstm", "LSTM", 4), ("gru", "GRU", 3)):
    for case, directions in ((name, 1), (f"{name}_both", 2)):
        parts = {"W": (directions, 3 * gates, 4), "R": (directions, 3 * gates, 3), "B": (directions, 6 * gates)}
        options = {"direction": "bidirectional"} if directions == 2 else {}
        if name == "gru":
            options["linear_before_reset"] = 1
        record(case, operation, sequences, parts, 2, [("lengths", lengths)], hidden_size=3, **options)
parts = {"W": (1, 9, 4), "R": (1, 9, 3), "B": (1, 18)}
record("gru_reset_before", "GRU", sequences, parts, 2, [("lengths", lengths)], hidden_size=3)
empty = [("lengths", np.array([5, 0, 3], "int32")), ("state", draw("state", 1, 3, 3))]
record("empty", "GRU", sequences, parts, 2, empty, hidden_size=3, linear_before_reset=1)
far = INPUTS["far_rows"]
record("layer_norm_far", "LayerNormalization", far, {}, 1, [("scale", np.ones(64))], epsilon=1e-5)
record(
    "instance_norm_far",
    "InstanceNormalization",
    far[:, :, None].swapaxes(1, 2),
    {},
    1,
    [("scale", np.ones(1)), ("B", np.zeros(1))],
)
record(
    "group_norm_far",
    "GroupNormalization",
    far[:, :, None],
    {},
    1,
    [("scale", np.ones(64)), ("bias", np.zeros(64))],
    num_groups=1,
)
for name in ("Gelu", "LeakyRelu", "HardSigmoid", "Elu", "HardSwish", "Softplus", "Mish", "Celu", "Selu"):
    record(name, name, rows)
logits, labels, k = INPUTS["logits"], INPUTS["labels"], INPUTS["class_weights"]
loss = lambda name, **options: record(
    name,
    "SoftmaxCrossEntropyLoss",
    logits,
    {},
    1,
    [("labels", options.pop("labels", labels)), *options.pop("more", ())],
    **options,
)
loss("loss_plain")
loss("loss_weighted", more=[("weights", k)])
loss("loss_ignored", labels=np.array([2, 0, -100, 1, -100]), ignore_index=-100)
recorder.write()
