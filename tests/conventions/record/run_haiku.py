"""Record haiku and equinox, in float64. Needs Python 3.12 and
``pip install dm-haiku==0.0.17 equinox==0.13.8 jax==0.12.0.1``.
"""

import jax

jax.config.update("jax_enable_x64", True)

import equinox as eqx
import haiku as hk
import jax.numpy as jnp
import numpy as np
from common import INPUTS, RATE, STEPS, Recorder, draw, weight

rows, images, sequences = (jnp.asarray(INPUTS[k]) for k in ("rows", "images", "sequences"))
later, first = jnp.swapaxes(sequences, 0, 1), jnp.moveaxis(images, -1, 1)
haiku, equinox = Recorder("haiku", "dm-haiku", "jax"), Recorder("equinox", "equinox", "jax")
key = jax.random.key(0)


def record_haiku(name, function, x):
    net = hk.transform_with_state(function)
    with_mode = lambda train: lambda p, s: net.apply(p, s, key, x, train)
    p, s = net.init(key, x, True)
    draw_all = lambda tree: {
        k: {n: jnp.asarray(weight(f"{k}.{n}", v.shape)) for n, v in inner.items()} for k, inner in tree.items()
    }
    p = draw_all(p)
    before = {k: dict(v) for k, v in p.items()}
    y, _ = with_mode(False)(p, s)
    cotangent = draw(f"{name} cotangent", *y.shape)
    state = s
    for _ in range(STEPS):

        def loss(p, state):
            y, state = with_mode(True)(p, state)
            return (y * cotangent).sum(), state

        gradients, state = jax.grad(loss, has_aux=True)(p, state)
        p = jax.tree.map(lambda p, g: p - RATE * g, p, gradients)
    both = lambda p, s: {
        f"{k}:{n}".replace("/", "|"): v for tree in (p, s) for k, inner in tree.items() for n, v in inner.items()
    }
    haiku.add(name, weights=both(before, s), y=y, cotangent=cotangent, after=both(p, state))


def unrolled(make):
    def function(x, train):
        core = make()
        return hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))[0]

    return function


def conv(x, train):
    x = jax.nn.relu(hk.Conv2D(3, 3, padding="VALID")(x))
    return hk.Linear(2)(hk.Flatten()(x))


record_haiku("linear", lambda x, train: hk.Linear(3)(x), rows)
record_haiku("conv", conv, images)
record_haiku("conv_stride", lambda x, train: hk.Conv2D(3, 3, 2)(x), images)
record_haiku("embedding", lambda x, train: hk.Embed(5, 3)(x), INPUTS["indices"])
record_haiku("layer_norm", lambda x, train: hk.LayerNorm(-1, True, True)(x), rows)
record_haiku("rms_norm", lambda x, train: hk.RMSNorm(-1)(x), rows)
record_haiku("group_norm", lambda x, train: hk.GroupNorm(2)(x), images)
record_haiku("instance_norm", lambda x, train: hk.InstanceNorm(True, True)(x), images)
record_haiku("batch_norm", lambda x, train: hk.BatchNorm(True, True, 0.9)(x, train, test_local_stats=False), images)
record_haiku("rnn", unrolled(lambda: hk.VanillaRNN(3)), later)
record_haiku("lstm", unrolled(lambda: hk.LSTM(3)), later)
record_haiku("gru", unrolled(lambda: hk.GRU(3)), later)
attend = lambda mask: (
    lambda x, train: hk.MultiHeadAttention(2, 2, w_init=hk.initializers.Constant(1.0), model_size=4)(x, x, x, mask)
)
record_haiku("attention", attend(None), sequences)
record_haiku("attention_masked", attend(jnp.asarray(INPUTS["mask"])[:, None]), sequences)


def record_equinox(name, make, call, x):
    net = make()
    net = jax.tree_util.tree_map_with_path(
        lambda path, v: jnp.asarray(weight(jax.tree_util.keystr(path), v.shape)) if eqx.is_inexact_array(v) else v, net
    )
    named = lambda net: {
        jax.tree_util.keystr(k).lstrip("."): np.asarray(v)
        for k, v in jax.tree_util.tree_leaves_with_path(net)
        if eqx.is_inexact_array(v)
    }
    before, y = named(net), call(net, x)
    cotangent = draw(f"{name} cotangent", *y.shape)
    for _ in range(STEPS):
        gradients = eqx.filter_grad(lambda net: (call(net, x) * cotangent).sum())(net)
        net = eqx.apply_updates(net, jax.tree.map(lambda g: -RATE * g, gradients))
    equinox.add(name, weights=before, y=y, cotangent=cotangent, after=named(net))


def scanned(cell, xs):
    start = jnp.zeros(cell.hidden_size)
    start = (start, start) if isinstance(cell, eqx.nn.LSTMCell) else start

    def step(state, x):
        state = cell(x, state)
        return state, state[0] if isinstance(state, tuple) else state

    return jax.vmap(lambda x: jax.lax.scan(step, start, x)[1])(xs)


each = lambda net, x: jax.vmap(net)(x)
n = eqx.nn
record_equinox("linear", lambda: n.Linear(6, 3, key=key), each, rows)
record_equinox(
    "conv",
    lambda: n.Sequential(
        [n.Conv2d(4, 3, 3, key=key), n.Lambda(jax.nn.relu), n.Lambda(jnp.ravel), n.Linear(36, 2, key=key)]
    ),
    each,
    first,
)
record_equinox(
    "embedding",
    lambda: n.Embedding(5, 3, key=key),
    lambda net, x: jax.vmap(jax.vmap(net))(x),
    jnp.asarray(INPUTS["indices"]),
)
record_equinox("layer_norm", lambda: n.LayerNorm(6), each, rows)
record_equinox("rms_norm", lambda: n.RMSNorm(6, use_bias=False), each, rows)
record_equinox("group_norm", lambda: n.GroupNorm(2, 4), each, first)
record_equinox("lstm", lambda: n.LSTMCell(4, 3, key=key), scanned, sequences)
record_equinox("gru", lambda: n.GRUCell(4, 3, key=key), scanned, sequences)
record_equinox(
    "attention",
    lambda: n.MultiheadAttention(2, 4, key=key),
    lambda net, x: jax.vmap(lambda q: net(q, q, q))(x),
    sequences,
)
record_equinox(
    "attention_bias",
    lambda: n.MultiheadAttention(
        2, 4, use_query_bias=True, use_key_bias=True, use_value_bias=True, use_output_bias=True, key=key
    ),
    lambda net, x: jax.vmap(lambda q: net(q, q, q))(x),
    sequences,
)
masked = lambda net, x: jax.vmap(lambda q, m: net(q, q, q, m))(x, jnp.asarray(INPUTS["mask"]))
record_equinox("attention_masked", lambda: n.MultiheadAttention(2, 4, key=key), masked, sequences)
for mode in ("ema", "batch"):
    layer, state = n.make_with_state(n.BatchNorm)(4, "batch", mode=mode)
    y, state = jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(first, state)
    again, state = jax.vmap(layer, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(first * 2, state)
    evaluated, _ = jax.vmap(n.inference_mode(layer), axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
        first, state
    )
    equinox.add(f"batch_norm_{mode}", y=y, again=again, evaluated=evaluated)
haiku.write(), equinox.write()
