"""Record MindSpore on the CPU, in float32. Needs Python 3.11 and ``pip install mindspore==2.10.0 "numpy<2"``."""

import mindspore as ms
import numpy as np
from common import INPUTS, RATE, STEPS, Recorder, draw, weight
from mindspore import nn

recorder = Recorder("mindspore", "mindspore")
first = np.moveaxis(INPUTS["images"], -1, 1).copy()


def tensor(x):
    return ms.Tensor(x.astype("float32") if x.dtype == "float64" else x.astype("int32"))


rows, sequences = tensor(INPUTS["rows"]), tensor(INPUTS["sequences"])


def weights(net):
    return {name: value.asnumpy().copy() for name, value in net.parameters_dict().items()}


def record(name, x, net, call=lambda net, x: net(x)):
    for path, value in net.parameters_dict().items():
        value.set_data(tensor(weight(path, value.shape)))
    before = weights(net)
    y = call(net.set_train(False), x)
    cotangent = draw(f"{name} cotangent", *y.shape)
    net.set_train()
    step = ms.value_and_grad(lambda: (call(net, x) * tensor(cotangent)).sum(), None, net.trainable_params())
    for _ in range(STEPS):
        _, gradients = step()
        for p, g in zip(net.trainable_params(), gradients):
            p.set_data(p - RATE * g)
    recorder.add(name, weights=before, y=y.asnumpy(), cotangent=cotangent, after=weights(net))


def attempt(name, *rest):
    try:
        record(name, *rest)
    except Exception as error:
        print(name, type(error).__name__, str(error).strip().splitlines()[0][:100])


out = lambda net, x: net(x)[0]
attempt("linear", rows, nn.Dense(6, 3))
attempt(
    "conv",
    tensor(first),
    nn.SequentialCell(nn.Conv2d(4, 3, 3, pad_mode="valid", has_bias=True), nn.ReLU(), nn.Flatten(), nn.Dense(36, 2)),
)
attempt("conv_stride", tensor(first), nn.Conv2d(4, 3, 3, stride=2))
attempt("embedding", tensor(INPUTS["indices"]), nn.Embedding(5, 3))
attempt("layer_norm", rows, nn.LayerNorm((6,)))
attempt("group_norm", tensor(first), nn.GroupNorm(2, 4))
attempt("batch_norm", tensor(first), nn.BatchNorm2d(4))
attempt("gelu", rows, nn.SequentialCell(nn.GELU(), nn.Dense(6, 2)))
attempt("leaky_relu", rows, nn.SequentialCell(nn.LeakyReLU(), nn.Dense(6, 2)))
attempt("rnn", sequences, nn.RNN(4, 3, batch_first=True), out)
attempt("lstm", sequences, nn.LSTM(4, 3, batch_first=True), out)
attempt("gru", sequences, nn.GRU(4, 3, batch_first=True), out)
attempt("lstm_both", sequences, nn.LSTM(4, 3, bidirectional=True, batch_first=True), out)
rates = INPUTS["rates"].tolist()
for name, make in {
    "sgd": lambda p: nn.SGD(p, rates),
    "momentum": lambda p: nn.Momentum(p, rates, 0.9),
    "adam": lambda p: nn.Adam(p, rates),
    "adamw": lambda p: nn.AdamWeightDecay(p, rates),
    "rmsprop": lambda p: nn.RMSProp(p, rates),
    "adagrad": lambda p: nn.Adagrad(p, learning_rate=rates),
}.items():
    p = ms.Parameter(tensor(INPUTS["start"]), name="p")
    optimizer, values = make([p]), []
    for gradient in INPUTS["gradients"]:
        optimizer((tensor(gradient),))
        values.append(p.asnumpy().copy())
    recorder.add("optimizers", **{name: np.array(values)[[0, 1, 7, 8, 19]]})
recorder.write()
