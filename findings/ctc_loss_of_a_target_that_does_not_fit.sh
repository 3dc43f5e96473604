#!/usr/bin/env bash
# The CTC loss of two steps for the target 1 1, which needs three: its probability is 0, the loss infinite. optax 0.2.8
# gives about 100,000 and a gradient that is not 0, so it trains on such samples; tf.nn.ctc_loss (TensorFlow 2.15.1) about
# 709 if the labels are dense and inf if they are sparse, with that same finite gradient in both; Paddle 3.3.1 gives 0 and
# a gradient of 0, so that the sample looks perfect. tf.nn.ctc_loss refuses a target without labels if it is sparse only.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/given.py" <<'PYTHON'
import numpy as np

logits = np.random.default_rng(0).standard_normal((2, 1, 3)).astype("float32")  # steps, samples, classes
labels = np.array([[1, 1]], dtype="int32")
two = np.array([2], dtype="int32")


def seen(name, loss, gradient):
    loss, gradient = float(np.asarray(loss).reshape(())), float(np.abs(np.asarray(gradient)).max())
    print(f"{name:24}loss {loss:12.4f}, largest gradient {gradient:.4f}")
    return loss, gradient
PYTHON
try() {
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/pip" --disable-pip-version-check install -q "${@:2}" 2> /dev/null
    PYTHONPATH="$folder" TF_CPP_MIN_LOG_LEVEL=3 "$folder/$1/bin/python" - 2> "$folder/errors" || { cat "$folder/errors"; exit 1; }
}
try optax optax==0.2.8 jax==0.10.2 jaxlib==0.10.2 <<'PYTHON'
import jax
import numpy as np
import optax
from given import labels, logits, seen

none = np.zeros((1, 2))
loss, gradient = jax.value_and_grad(lambda x: optax.ctc_loss(x, none, labels, none).sum())(logits.swapaxes(0, 1))
loss, gradient = seen("optax", loss, gradient)
assert 99_990 < loss < 100_010 and gradient > 0.1
PYTHON
try tensorflow tensorflow-cpu==2.15.1 "numpy<2" <<'PYTHON'
import tensorflow as tf
from given import labels, logits, seen, two

sparse = tf.SparseTensor([[0, 0], [0, 1]], labels[0], [1, 2])
found = []
for name, given, lengths in (("dense", labels, two), ("sparse", sparse, None)):
    x = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = tf.nn.ctc_loss(given, x, lengths, two, blank_index=0)
    found.append(seen(f"tf.nn.ctc_loss, {name}", loss, tf.convert_to_tensor(tape.gradient(loss, x))))
assert 700 < found[0][0] < 720 and found[1][0] == float("inf")
assert found[0][1] > 0.1 and abs(found[0][1] - found[1][1]) < 1e-6
none = tf.nn.ctc_loss(labels, logits, two * 0, two, blank_index=0).numpy()
try:
    tf.nn.ctc_loss(tf.sparse.from_dense([[0, 0]]), logits, None, two, blank_index=0)
    raise SystemExit("a sparse target without labels is accepted")
except tf.errors.InvalidArgumentError as error:
    print("no labels: dense", none, "sparse", str(error).split("} ")[-1])
PYTHON
try paddle paddlepaddle==3.3.1 <<'PYTHON'
import paddle
from given import labels, logits, seen, two

x = paddle.to_tensor(logits, stop_gradient=False)
lengths = paddle.to_tensor(two.astype("int64"))
loss = paddle.nn.functional.ctc_loss(x, paddle.to_tensor(labels), lengths, lengths, reduction="sum")
loss.backward()
assert seen("paddle", loss.numpy(), x.grad.numpy()) == (0, 0)
PYTHON
