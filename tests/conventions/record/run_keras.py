"""Record Keras. Needs Python 3.12 and ``pip install keras==3.15.1 jax==0.12.0.1``; run it once with each
KERAS_BACKEND of "jax", "numpy" and "torch" (torch==2.13.0), of which "jax" records everything, in float64.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")
BACKEND = os.environ["KERAS_BACKEND"]

import keras
import numpy as np
from common import INPUTS, MATRIX, RATE, STEPS, Recorder, draw, weight
from keras import layers, ops

if BACKEND == "jax":
    import jax

    jax.config.update("jax_enable_x64", True)
    keras.config.set_floatx("float64")
    keras.config.set_dtype_policy("float64")
packages = {"jax": ["jax"], "numpy": ["numpy"], "torch": ["torch"]}[BACKEND]
recorder = Recorder("keras" if BACKEND == "jax" else f"keras_{BACKEND}", "keras", *packages)
rows, far, images, sequences, words = (INPUTS[k] for k in ("rows", "far_rows", "images", "sequences", "words"))


@keras.saving.register_keras_serializable()
def tanh(x):
    """Return tanh in float64: of float64, Keras's own is float32 on JAX."""
    return jax.numpy.tanh(x)


def fill(net):
    net.set_weights([weight(f"{k}.{w.path}", w.shape) for k, w in enumerate(net.weights)])


def weights(net):
    return {w.path: value for w, value in zip(net.weights, net.get_weights())}


def train(name, x, *parts):
    """Record the weights before, the outputs, and the weights after two steps of gradient descent."""
    net = keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype if x.dtype.kind == "f" else "int32"), *parts])
    fill(net)
    before, y = weights(net), net(x, training=False)
    cotangent = draw(f"{name} cotangent", *y.shape)
    net.compile(keras.optimizers.SGD(RATE), lambda truth, found: ops.sum(truth * found), run_eagerly=True)
    for _ in range(STEPS):
        net.train_on_batch(x, cotangent)
    recorder.add(name, weights=before, y=y, cotangent=cotangent, after=weights(net))


def trained():
    train("linear", rows, layers.Dense(3))
    train("conv", images, layers.Conv2D(3, 3), layers.ReLU(), layers.Flatten(), layers.Dense(2))
    train("conv_stride", images, layers.Conv2D(3, 3, strides=2, padding="same"))
    train("embedding", INPUTS["indices"], layers.Embedding(5, 3))
    train("layer_norm", rows, layers.LayerNormalization())
    train("rms_norm", rows, layers.RMSNormalization())
    train("group_norm", images, layers.GroupNormalization(2))
    train("instance_norm", images, layers.GroupNormalization(-1))
    train("batch_norm", images, layers.BatchNormalization())
    train("one_value", INPUTS["one_row"], layers.BatchNormalization())
    train("rnn", sequences, layers.SimpleRNN(3, tanh, return_sequences=True))
    train("lstm", sequences, layers.LSTM(3, tanh, return_sequences=True))
    train("gru", sequences, layers.GRU(3, tanh, return_sequences=True))
    train("gru_reset_before", sequences, layers.GRU(3, tanh, return_sequences=True, reset_after=False))
    train("lstm_both", sequences, layers.Bidirectional(layers.LSTM(3, tanh, return_sequences=True)))
    train("gru_stack", sequences, *(layers.Bidirectional(layers.GRU(3, tanh, return_sequences=True)) for _ in range(2)))
    train("leaky_relu", rows, layers.LeakyReLU(), layers.Dense(2))
    train("gelu", rows, layers.Activation("gelu"), layers.Dense(2))
    train("hard_sigmoid", rows, layers.Activation("hard_sigmoid"), layers.Dense(2))


def masked():
    for name, last, sequence in (
        ("masked_last", layers.LSTM(3, tanh), False),
        ("masked_steps", layers.LSTM(3, tanh, return_sequences=True), True),
        ("masked_both", layers.Bidirectional(layers.GRU(3, tanh, return_sequences=True)), True),
    ):
        net = keras.Sequential([keras.Input((None,), dtype="int32"), layers.Embedding(5, 4, mask_zero=True), last])
        fill(net)
        recorder.add(name, weights=weights(net), y=net(words))
    x, mask = sequences, INPUTS["mask"]
    layer = layers.MultiHeadAttention(2, 2)
    layer(x, x)
    layer.set_weights([weight(f"attention.{w.path}", w.shape) for w in layer.weights])
    recorder.add("attention", weights=weights(layer), y=layer(x, x, attention_mask=mask), plain=layer(x, x))


def tutorial():
    """Train a perceptron with layer normalization as a tutorial does."""
    keras.utils.clear_session()  # names, and so the weights, do not depend on the models before
    net = keras.Sequential([
        keras.Input((6,)), layers.Dense(8), layers.LayerNormalization(), layers.ReLU(), layers.Dense(4),
    ])  # fmt: skip
    fill(net)
    before = weights(net)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(keras.optimizers.SGD(0.05, momentum=0.9), entropy, run_eagerly=True)
    found = [net.train_on_batch(rows, INPUTS["labels"][:4]) for _ in range(20)]
    recorder.add("tutorial", weights=before, losses=np.array(found, "float64"))


def losses():
    logits, labels, k = INPUTS["logits"], INPUTS["labels"], INPUTS["class_weights"]
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    one_hot = np.eye(4)[labels]
    smooth = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1)
    ignoring = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
    weighted_mean = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    p, t = INPUTS["probabilities"], INPUTS["truth"]
    recorder.add(
        "losses",
        plain=entropy(labels, logits),
        weighted=entropy(labels, logits, sample_weight=k[labels]),
        weighted_mean=weighted_mean(labels, logits, sample_weight=k[labels]),
        smooth=smooth(one_hot, logits),
        ignored=ignoring(labels, logits),
        binary=keras.losses.BinaryCrossentropy()(t, p),
        huber=keras.losses.Huber()(one_hot * 3, logits),
        mean_square=keras.losses.MeanSquaredError()(one_hot, logits),
        divergence=keras.losses.KLDivergence()(ops.softmax(logits[::-1]), ops.softmax(logits)),
    )


def optimizers():
    o = keras.optimizers
    for name, optimizer in {
        "sgd": o.SGD(),
        "momentum": o.SGD(momentum=0.9),
        "nesterov": o.SGD(momentum=0.9, nesterov=True),
        "sgd_decay": o.SGD(weight_decay=0.1),
        "adam": o.Adam(),
        "adam_decay": o.Adam(weight_decay=0.1),
        "adamw": o.AdamW(),
        "rmsprop": o.RMSprop(),
        "rmsprop_momentum": o.RMSprop(momentum=0.9),
        "adagrad": o.Adagrad(),
        "adagrad_far": o.Adagrad(initial_accumulator_value=0.0),
        "momentum_decay": o.SGD(momentum=0.9, weight_decay=0.1),
        "adam_amsgrad": o.Adam(amsgrad=True, weight_decay=0.1),
        "nadam": o.Nadam(),
        "rmsprop_centered": o.RMSprop(momentum=0.9, centered=True, weight_decay=0.1),
        "adadelta": o.Adadelta(),
        "lion": o.Lion(),
        "matrix_muon": o.Muon(),
        "matrix_muon_plain": o.Muon(nesterov=False),
        "matrix_adafactor": o.Adafactor(),
    }.items():
        shape = MATRIX if name.startswith("matrix") else (6,)
        p = keras.Variable(INPUTS["start"].reshape(shape))
        values = []
        for gradient, rate in zip(INPUTS["gradients"], INPUTS["rates"]):
            optimizer.learning_rate = rate
            optimizer.apply([ops.convert_to_tensor(gradient.reshape(shape))], [p])
            values.append(np.asarray(p))
        recorder.add("optimizers", **{name: np.array(values)[[0, 1, 7, 8, 19]]})


if BACKEND == "jax":
    trained(), masked(), losses(), optimizers(), tutorial()
plain = {"center": False, "scale": False, "epsilon": 1e-5, "dtype": "float32"}
for name, layer in {
    "layer_norm_far_float32": layers.LayerNormalization(**plain),
    "group_norm_far_float32": layers.GroupNormalization(1, **plain),
    "batch_norm_far_float32": layers.BatchNormalization(**plain),
}.items():
    x = far.T if name.startswith("batch") else far  # all three normalize its rows
    y = ops.convert_to_numpy(layer(ops.convert_to_tensor(x.astype("float32")), training=True))
    recorder.add(name, y=y.T if name.startswith("batch") else y)
recorder.write()
