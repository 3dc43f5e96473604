"""Record MLX on the CPU, in float32. Needs Python 3.12 and ``pip install mlx[cpu]==0.32.4 numpy``."""

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from common import INPUTS, RATE, STEPS, Recorder, draw, weight
from mlx.utils import tree_flatten, tree_unflatten

mx.set_default_device(mx.cpu)
recorder = Recorder("mlx", "mlx")


def tensor(x):
    return mx.array(x.astype("float32") if x.dtype == "float64" else x)


rows, images, sequences, far = (tensor(INPUTS[k]) for k in ("rows", "images", "sequences", "far_rows"))


def weights(net):
    return {name: np.array(value) for name, value in tree_flatten(net.parameters())}


def record(name, x, net, call=lambda net, x: net(x)):
    net.update(tree_unflatten([(k, tensor(weight(k, v.shape))) for k, v in tree_flatten(net.parameters())]))
    before = weights(net)
    net.eval()
    y = call(net, x)
    cotangent = draw(f"{name} cotangent", *y.shape)
    net.train()
    step = nn.value_and_grad(net, lambda net: (call(net, x) * tensor(cotangent)).sum())
    optimizer = optim.SGD(RATE)
    for _ in range(STEPS):
        _, gradients = step(net)
        optimizer.update(net, gradients)
    recorder.add(name, weights=before, y=y, cotangent=cotangent, after=weights(net))


record("linear", rows, nn.Linear(6, 3))
net = nn.Sequential(nn.Conv2d(4, 3, 3), nn.ReLU(), lambda x: x.flatten(1), nn.Linear(36, 2))
record("conv", images, net)
record("embedding", tensor(INPUTS["indices"]), nn.Embedding(5, 3))
record("layer_norm", rows, nn.LayerNorm(6))
record("rms_norm", rows, nn.RMSNorm(6))
record("group_norm", images, nn.GroupNorm(2, 4, pytorch_compatible=True))
record("group_norm_interleaved", images, nn.GroupNorm(2, 4))
record("instance_norm", images, nn.InstanceNorm(4, affine=True))
record("batch_norm", images, nn.BatchNorm(4))
for name, layer in (
    ("layer", nn.LayerNorm(64, affine=False)),
    ("group", nn.GroupNorm(2, 64, affine=False)),
    ("batch", nn.BatchNorm(64, affine=False)),
):
    recorder.add("far", **{name: layer(far)})
record("rnn", sequences, nn.RNN(4, 3))
record("lstm", sequences, nn.LSTM(4, 3), lambda net, x: net(x)[0])
record("gru", sequences, nn.GRU(4, 3))
record("attention", sequences, nn.MultiHeadAttention(4, 2), lambda net, x: net(x, x, x))
record("attention_bias", sequences, nn.MultiHeadAttention(4, 2, bias=True), lambda net, x: net(x, x, x))
allowed = mx.where(tensor(INPUTS["mask"])[:, None], 0.0, -mx.inf)
record("attention_masked", sequences, nn.MultiHeadAttention(4, 2), lambda net, x: net(x, x, x, allowed))
logits, labels, k = tensor(INPUTS["logits"]), tensor(INPUTS["labels"]), tensor(INPUTS["class_weights"])
loss = nn.losses
one_hot = tensor(np.eye(4)[INPUTS["labels"]])
recorder.add(
    "losses",
    plain=loss.cross_entropy(logits, labels, reduction="mean"),
    weighted=loss.cross_entropy(logits, labels, weights=k[labels], reduction="mean"),
    smooth=loss.cross_entropy(logits, labels, label_smoothing=0.1, reduction="mean"),
    huber=loss.huber_loss(logits, one_hot * 3, reduction="mean"),
    divergence=loss.kl_div_loss(nn.log_softmax(logits), nn.log_softmax(logits[::-1]), reduction="mean"),
    smooth_l1=loss.smooth_l1_loss(logits, one_hot * 3, reduction="mean"),
    binary=loss.binary_cross_entropy(tensor(INPUTS["probabilities"]), tensor(INPUTS["truth"]), with_logits=False),
)
recorder.add(
    "activations",
    **{
        name: getattr(nn, name)(rows)
        for name in ("gelu", "leaky_relu", "elu", "silu", "softplus", "hardswish", "celu", "mish")
    },
)
for name, make in {
    "sgd": lambda: optim.SGD(0.1),
    "momentum": lambda: optim.SGD(0.1, momentum=0.9),
    "nesterov": lambda: optim.SGD(0.1, momentum=0.9, nesterov=True),
    "sgd_decay": lambda: optim.SGD(0.1, weight_decay=0.1),
    "dampening": lambda: optim.SGD(0.1, momentum=0.9, dampening=0.5),
    "adam": lambda: optim.Adam(0.1),
    "adam_corrected": lambda: optim.Adam(0.1, bias_correction=True),
    "adamw": lambda: optim.AdamW(0.1),
    "adamw_corrected": lambda: optim.AdamW(0.1, bias_correction=True),
    "rmsprop": lambda: optim.RMSprop(0.1),
    "adagrad": lambda: optim.Adagrad(0.1),
    "lion": lambda: optim.Lion(0.1),
    "adamax": lambda: optim.Adamax(0.1),
    "adadelta": lambda: optim.AdaDelta(0.1),
}.items():
    optimizer, p, values = make(), {"p": tensor(INPUTS["start"])}, []
    for gradient, rate in zip(INPUTS["gradients"], INPUTS["rates"]):
        optimizer.learning_rate = rate
        p = optimizer.apply_gradients({"p": tensor(gradient)}, p)
        values.append(np.array(p["p"]))
    recorder.add("optimizers", **{name: np.array(values)[[0, 1, 7, 8, 19]]})
recorder.write()
