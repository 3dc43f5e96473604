"""Record Flax (nnx and linen) and optax, in float64. Needs Python 3.12 and
``pip install flax==0.12.12 optax==0.2.8 jax==0.12.0.1``.
"""

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import optax
from common import INPUTS, RATE, STEPS, Recorder, draw, flat, weight
from flax import linen, nnx

recorder = Recorder("flax", "flax", "optax", "jax")
rows, far, images, sequences = (INPUTS[k] for k in ("rows", "far_rows", "images", "sequences"))
wide = {"dtype": jnp.float64, "param_dtype": jnp.float64}
made = {**wide, "rngs": nnx.Rngs(0)}


def drawn(tree):
    """Return a tree of the same paths and shapes with drawn weights."""
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: weight(jax.tree_util.keystr(path), leaf.shape).astype(leaf.dtype), tree
    )


def descend(loss, parameters, state):
    """Return the parameters and the state after some steps of gradient descent."""
    for _ in range(STEPS):
        gradients, state = jax.grad(loss, has_aux=True)(parameters, state)
        parameters = jax.tree.map(lambda p, g: p - RATE * g, parameters, gradients)
    return parameters, state


def record_nnx(name, x, module, call=lambda module, x: module(x)):
    parameters = drawn(nnx.to_pure_dict(nnx.state(module, nnx.Param)))
    state = drawn(nnx.to_pure_dict(nnx.state(module, nnx.BatchStat)))

    before = {path: value.copy() for path, value in flat(merged(parameters, state)).items()}

    def run(parameters, state, train):
        net = nnx.clone(module)
        nnx.update(net, nnx.restore_int_paths(parameters))
        nnx.update(net, nnx.restore_int_paths(state))
        net.train() if train else net.eval()
        y = call(net, x)
        return y, nnx.to_pure_dict(nnx.state(net, nnx.BatchStat))

    y, _ = run(parameters, state, False)
    cotangent = draw(f"{name} cotangent", *y.shape)

    def loss(parameters, state):
        y, state = run(parameters, state, True)
        return (y * cotangent).sum(), state

    after, state_after = descend(loss, parameters, state)
    recorder.add(
        f"nnx/{name}",
        weights=before,
        y=y,
        cotangent=cotangent,
        after=flat(merged(after, state_after)),
    )


def record_linen(name, x, module, **options):
    variables = module.init(jax.random.key(0), x, **options)
    parameters = drawn(variables["params"])
    state = drawn({k: v for k, v in variables.items() if k != "params"})

    def run(parameters, state, train):
        if not state:
            return module.apply({"params": parameters}, x, **options), {}
        if not train:
            return module.apply({"params": parameters, **state}, x, use_running_average=True), state
        return module.apply({"params": parameters, **state}, x, use_running_average=False, mutable=[*state])

    y, _ = run(parameters, state, False)
    cotangent = draw(f"{name} cotangent", *y.shape)

    def loss(parameters, state):
        y, state = run(parameters, state, True)
        return (y * cotangent).sum(), dict(state)

    after, state_after = descend(loss, parameters, state)
    recorder.add(
        f"linen/{name}",
        weights=flat({"params": parameters, **state}),
        y=y,
        cotangent=cotangent,
        after=flat({"params": after, **state_after}),
    )


def merged(*trees):
    """Return one nested dict of several."""
    found = {}
    for tree in trees:
        for name, value in tree.items():
            found[name] = merged(found[name], value) if name in found and hasattr(value, "items") else value
    return found


class ConvNet(nnx.Module):
    def __init__(self):
        self.conv = nnx.Conv(4, 3, (3, 3), padding="VALID", **made)
        self.fc = nnx.Linear(36, 2, **made)

    def __call__(self, x):
        return self.fc(nnx.relu(self.conv(x)).reshape(len(x), -1))


def layers():
    record_nnx("linear", rows, nnx.Linear(6, 3, **made))
    record_nnx("conv", images, ConvNet())
    record_nnx("conv_stride", images, nnx.Conv(4, 3, (3, 3), strides=2, **made))
    record_nnx("embedding", INPUTS["indices"], nnx.Embed(5, 3, **made))
    for name, net, other, x in (
        ("layer_norm", nnx.LayerNorm(6, **made), linen.LayerNorm(**wide), rows),
        ("rms_norm", nnx.RMSNorm(6, **made), linen.RMSNorm(**wide), rows),
        ("group_norm", nnx.GroupNorm(4, 2, **made), linen.GroupNorm(2, **wide), images),
        ("instance_norm", nnx.InstanceNorm(4, **made), linen.InstanceNorm(**wide), images),
        ("batch_norm", nnx.BatchNorm(4, **made), None, images),
        ("one_value", nnx.BatchNorm(6, **made), None, INPUTS["one_row"]),
    ):
        record_nnx(name, x, net)
        if other is not None:
            record_linen(name, x, other)
    record_linen("batch_norm", images, linen.BatchNorm(**wide), use_running_average=False)
    record_linen("linear", rows, linen.Dense(3, **wide))
    record_linen("embedding", INPUTS["indices"], linen.Embed(5, 3, **wide))
    narrow = {"use_scale": False, "use_bias": False, "epsilon": 1e-5}
    for fast in (True, False):
        layer = nnx.LayerNorm(64, rngs=nnx.Rngs(0), use_fast_variance=fast, **narrow)
        recorder.add("far", **{f"float32_fast_{fast}": layer(jnp.asarray(far, jnp.float32))})


def recurrent():
    run = lambda cell: nnx.RNN(cell)
    for name, cell in (
        ("rnn", nnx.SimpleCell(4, 3, **made)),
        ("lstm", nnx.LSTMCell(4, 3, **made)),
        ("lstm_fused", nnx.OptimizedLSTMCell(4, 3, **made)),
        ("gru", nnx.GRUCell(4, 3, **made)),
    ):
        record_nnx(name, sequences, run(cell))
    lengths = jnp.asarray(INPUTS["lengths"])
    both = nnx.Bidirectional(run(nnx.GRUCell(4, 3, **made)), run(nnx.GRUCell(4, 3, **made)))
    record_nnx("masked_both", sequences, both, lambda net, x: net(x, seq_lengths=lengths))
    record_nnx("masked_steps", sequences, run(nnx.GRUCell(4, 3, **made)), lambda net, x: net(x, seq_lengths=lengths))
    for name, cell in (
        ("rnn", linen.SimpleCell(3, **wide)),
        ("lstm", linen.LSTMCell(3, **wide)),
        ("lstm_fused", linen.OptimizedLSTMCell(3, **wide)),
        ("gru", linen.GRUCell(3, **wide)),
        ("mgu", linen.MGUCell(3, **wide)),
    ):
        record_linen(name, sequences, linen.RNN(cell))


def attention():
    net = nnx.MultiHeadAttention(2, 4, decode=False, **made)
    record_nnx("attention", sequences, net)
    mask = jnp.asarray(INPUTS["mask"])[:, None]
    record_nnx("attention_masked", sequences, net, lambda net, x: net(x, mask=mask))
    record_linen("attention", sequences, linen.MultiHeadDotProductAttention(2, **wide))


def losses():
    logits, labels, k = INPUTS["logits"], INPUTS["labels"], INPUTS["class_weights"]
    one_hot = np.eye(4)[labels]
    plain = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    smooth = optax.softmax_cross_entropy(logits, optax.smooth_labels(one_hot, 0.1))
    recorder.add(
        "losses",
        plain=plain.mean(),
        smooth=smooth.mean(),
        weighted=jnp.average(plain, weights=k[labels]),
        negative=optax.softmax_cross_entropy_with_integer_labels(logits, np.array([2, 0, 3, 1, -1])),
        negative_where=optax.softmax_cross_entropy_with_integer_labels(logits, np.array([2, 0, 3, 1, -100])),
        huber=optax.huber_loss(logits, one_hot * 3).mean(),
        square=optax.l2_loss(logits, one_hot).mean(),
        squared_error=optax.squared_error(logits, one_hot).mean(),
        divergence=optax.kl_divergence(jax.nn.log_softmax(logits), jax.nn.softmax(logits[::-1])).mean(),
        binary=optax.sigmoid_binary_cross_entropy(logits, one_hot).mean(),
    )
    recorder.add(
        "activations",
        **{
            name: getattr(jax.nn, name)(jnp.asarray(rows))
            for name in ("gelu", "leaky_relu", "hard_sigmoid", "elu", "silu", "softplus", "hard_swish")
        },
    )


def optimizers():
    schedule = lambda count: jnp.asarray(INPUTS["rates"])[count]
    for name, rule in {
        "sgd": optax.sgd(schedule),
        "momentum": optax.sgd(schedule, momentum=0.9),
        "nesterov": optax.sgd(schedule, momentum=0.9, nesterov=True),
        "adam": optax.adam(schedule),
        "adamw": optax.adamw(schedule),
        "rmsprop": optax.rmsprop(schedule),
        "rmsprop_momentum": optax.rmsprop(schedule, momentum=0.9),
        "adagrad": optax.adagrad(schedule),
        "lion": optax.lion(schedule),
        "lamb": optax.lamb(schedule),
        "nadam": optax.nadam(schedule),
        "rmsprop_centered": optax.rmsprop(schedule, momentum=0.9, centered=True),
        "adadelta": optax.adadelta(schedule),
    }.items():
        p = jnp.asarray(INPUTS["start"])
        state, values = rule.init(p), []
        for gradient in INPUTS["gradients"]:
            step, state = rule.update(jnp.asarray(gradient), state, p)
            p = optax.apply_updates(p, step)
            values.append(np.asarray(p))
        recorder.add("optimizers", **{name: np.array(values)[[0, 1, 7, 8, 19]]})
    clipped, _ = optax.clip_by_global_norm(1.0).update(jnp.array([3.0, 4.0]), None)
    recorder.add("optimizers", clip=clipped)


def tutorial():
    """Train a perceptron with layer normalization as a tutorial does."""

    class Mlp(nnx.Module):
        def __init__(self):
            self.first, self.norm = nnx.Linear(6, 8, **made), nnx.LayerNorm(8, **made)
            self.last = nnx.Linear(8, 4, **made)

        def __call__(self, x):
            return self.last(nnx.gelu(self.norm(self.first(x))))

    model, found = Mlp(), []
    nnx.update(model, drawn(nnx.to_pure_dict(nnx.state(model, nnx.Param))))
    weights = {path: value.copy() for path, value in flat(nnx.to_pure_dict(nnx.state(model, nnx.Param))).items()}
    optimizer = nnx.Optimizer(model, optax.adamw(0.05), wrt=nnx.Param)

    def loss_function(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(rows), INPUTS["labels"][:4]).mean()

    for _ in range(20):
        loss, gradients = nnx.value_and_grad(loss_function)(model)
        optimizer.update(model, gradients)
        found.append(loss)
    recorder.add("tutorial", weights=weights, losses=np.array(found))


layers(), recurrent(), attention(), losses(), optimizers(), tutorial()
recorder.write()
