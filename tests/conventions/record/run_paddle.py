"""Record Paddle, in float64. Needs Python 3.11 and ``pip install paddlepaddle==3.3.1``."""

import numpy as np
import paddle
import paddle.nn.functional as F
from common import INPUTS, RATE, STEPS, Recorder, draw, weight
from paddle import nn

paddle.set_default_dtype("float64")
recorder = Recorder("paddle", "paddlepaddle")
first = np.moveaxis(INPUTS["images"], -1, 1).copy()
rows, sequences, tensor = INPUTS["rows"], INPUTS["sequences"], paddle.to_tensor


def weights(net):
    return {name: value.numpy().copy() for name, value in net.state_dict().items()}


def fill(net):
    drawn = {}
    for name, value in net.state_dict().items():
        kept = next((k for k, v in drawn.items() if v[0] is value), None)
        drawn[name] = (value, weight(name, tuple(value.shape)) if kept is None else drawn[kept][1])
    net.set_state_dict({name: tensor(array) for name, (_, array) in drawn.items()})


def record(name, x, net, call=lambda net, x: net(x)):
    fill(net)
    before = weights(net)
    net.eval()
    y = call(net, tensor(x))
    cotangent = draw(f"{name} cotangent", *y.shape)
    net.train()
    for _ in range(STEPS):
        net.clear_gradients()
        # InstanceNorm has no backward pass without the gradient of its input.
        given = tensor(x, stop_gradient=x.dtype.kind != "f")
        (call(net, given) * tensor(cotangent)).sum().backward()
        with paddle.no_grad():
            for p in net.parameters():
                if p.grad is not None:  # the running statistics are among the parameters
                    p.set_value(p - RATE * p.grad)
    recorder.add(name, weights=before, y=y.numpy(), cotangent=cotangent, after=weights(net))


def layers():
    record("linear", rows, nn.Linear(6, 3))
    record("conv", first, nn.Sequential(nn.Conv2D(4, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 2)))
    record("conv_stride", first, nn.Conv2D(4, 3, 3, stride=2, padding="SAME"))
    record("embedding", INPUTS["indices"], nn.Embedding(5, 3))
    record("layer_norm", rows, nn.LayerNorm(6))
    record("group_norm", first, nn.GroupNorm(2, 4))
    record("instance_norm", first, nn.InstanceNorm2D(4))
    record("batch_norm", first, nn.BatchNorm2D(4))
    record("one_value", INPUTS["one_row"], nn.BatchNorm1D(6))
    for name, x in (("layer", INPUTS["far_rows"]), ("group", INPUTS["far_rows"]), ("batch", INPUTS["far_rows"])):
        x = tensor(x.astype("float32"))
        layer = {
            "layer": lambda x: F.layer_norm(x, 64, epsilon=1e-5),
            "group": lambda x: nn.GroupNorm(2, 64).to(dtype="float32")(x[:, :, None, None]),
            "batch": lambda x: F.batch_norm(
                x, paddle.zeros([64], "float32"), paddle.ones([64], "float32"), training=True
            ),
        }[name]
        recorder.add("far", **{name: layer(x).numpy()})


def recurrent():
    out = lambda net, x: net(x)[0]
    lengths = tensor(INPUTS["lengths"])
    with_lengths = lambda net, x: net(x, sequence_length=lengths)[0]
    record("rnn", sequences, nn.SimpleRNN(4, 3), out)
    record("lstm", sequences, nn.LSTM(4, 3), out)
    record("gru", sequences, nn.GRU(4, 3), out)
    record("lstm_both", sequences, nn.LSTM(4, 3, direction="bidirect"), out)
    record("gru_stack", sequences, nn.GRU(4, 3, num_layers=2, direction="bidirect"), out)
    record("masked_both", sequences, nn.GRU(4, 3, direction="bidirect"), with_lengths)


def attention():
    net = nn.MultiHeadAttention(4, 2)
    record("attention", sequences, net)
    mask = tensor(INPUTS["mask"])[:, None]
    net.eval()
    recorder.add("attention_masked", y=net(tensor(sequences), attn_mask=mask).numpy())


def losses():
    logits, labels, k = tensor(INPUTS["logits"]), tensor(INPUTS["labels"]), tensor(INPUTS["class_weights"])
    ignored = tensor(np.array([2, 0, -100, 1, -100]))
    p, t = tensor(INPUTS["probabilities"]), tensor(INPUTS["truth"])
    one_hot = F.one_hot(labels, 4).astype("float64")
    recorder.add(
        "losses",
        plain=F.cross_entropy(logits, labels),
        weighted=F.cross_entropy(logits, labels, weight=k),
        ignored=F.cross_entropy(logits, ignored),
        smooth=F.cross_entropy(logits, labels, label_smoothing=0.1),
        binary=F.binary_cross_entropy(p, t),
        smooth_soft=F.cross_entropy(logits, F.label_smooth(one_hot, epsilon=0.1), soft_label=True),
        smooth_l1=F.smooth_l1_loss(logits, one_hot * 3),
        divergence=F.kl_div(F.log_softmax(logits), F.softmax(logits.flip(0))),
    )
    recorder.add(
        "activations",
        **{
            name: getattr(F, name)(tensor(rows)).numpy()
            for name in ("gelu", "leaky_relu", "hardsigmoid", "elu", "silu", "softplus", "hardswish", "celu", "mish")
        },
    )


def optimizers():
    o = paddle.optimizer
    for name, make in {
        "sgd": lambda p: o.SGD(0.1, p),
        "momentum": lambda p: o.Momentum(0.1, parameters=p),
        "nesterov": lambda p: o.Momentum(0.1, parameters=p, use_nesterov=True),
        "adam": lambda p: o.Adam(0.1, parameters=p),
        "adam_decay": lambda p: o.Adam(0.1, parameters=p, weight_decay=0.1),
        "adamw": lambda p: o.AdamW(0.1, parameters=p),
        "rmsprop": lambda p: o.RMSProp(0.1, parameters=p),
        "rmsprop_momentum": lambda p: o.RMSProp(0.1, momentum=0.9, parameters=p),
        "adagrad": lambda p: o.Adagrad(0.1, parameters=p),
        "adamax": lambda p: o.Adamax(0.1, parameters=p),
        "adadelta": lambda p: o.Adadelta(0.1, parameters=p),
        "nadam": lambda p: o.NAdam(0.1, parameters=p),
        "clipped": lambda p: o.SGD(0.1, p, grad_clip=nn.ClipGradByGlobalNorm(1.0)),
    }.items():
        p = paddle.create_parameter([6], "float64")
        p.set_value(tensor(INPUTS["start"]))
        optimizer, values = make([p]), []
        for gradient, rate in zip(INPUTS["gradients"], INPUTS["rates"]):
            optimizer.set_lr(rate)
            p.clear_gradient()
            (p * tensor(gradient)).sum().backward()
            optimizer.step()
            values.append(p.numpy().copy())
        recorder.add("optimizers", **{name: np.array(values)[[0, 1, 7, 8, 19]]})


def tutorial():
    """Train an LSTM as a tutorial does."""

    class Classifier(nn.Layer):
        def __init__(self):
            super().__init__()
            self.lstm, self.dense = nn.LSTM(4, 6), nn.Linear(6, 4)

        def forward(self, x):
            return self.dense(self.lstm(x)[1][0][-1])

    net, found = Classifier(), []
    fill(net)
    before = weights(net)
    optimizer = paddle.optimizer.Adam(0.05, parameters=net.parameters())
    for _ in range(20):
        loss = F.cross_entropy(net(tensor(sequences)), tensor(INPUTS["labels"][:3]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        found.append(float(loss))
    recorder.add("tutorial", weights=before, losses=np.array(found))


layers(), recurrent(), attention(), losses(), optimizers(), tutorial()
recorder.write()
