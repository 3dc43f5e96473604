"""Multi-head attention and Transformer layers against PyTorch's, from the same parameters."""

import inspect

import numpy as np
import pytest
from checks import agree, array, equals, near, refuses, tensor
from peers import exchange_state, torch

import minigrad as mg
from minigrad import nn
from minigrad.nn import functional as F

CLOSE = {"rtol": 1e-9, "atol": 1e-10}


def masks(rng, kind, heads, batch, queries, keys):
    """Return the masks of a kind as arrays; every query sees the first key."""
    if kind == "none":
        return {}
    blocked = rng.random((queries, keys)) < 0.4
    blocked[:, 0] = False
    padded = np.arange(keys) >= rng.integers(1, keys + 1, (batch, 1))
    added = rng.standard_normal((batch * heads, queries, keys))
    return {
        "bool": {"attn_mask": blocked}, "padding": {"key_padding_mask": padded},
        "both": {"attn_mask": blocked, "key_padding_mask": padded}, "float": {"attn_mask": added},
        "mixed": {"attn_mask": added, "key_padding_mask": padded},
    }[kind]  # fmt: skip


def compare(torch, ours, theirs, inputs, given, rng, device):
    """Results, gradients of inputs and parameters for a random cotangent, and the derivatives of all of these."""
    leaves = [tensor(x, device, True) for x in inputs]
    points = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = ours(*leaves, **{k: tensor(v, device) if isinstance(v, np.ndarray) else v for k, v in given.items()})
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the one with second derivatives
        e = theirs(*points, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()})
    pairs = list(zip(y, e, strict=True)) if isinstance(y, tuple) else [(y, e)]
    pairs = [(a, b) for a, b in pairs if a is not None or b is not None]
    for a, b in pairs:
        near(a, b.detach().numpy(), **CLOSE)
    leaves, points = [*leaves, *ours.parameters()], [*points, *theirs.parameters()]
    grads = [rng.standard_normal(a.shape) for a, _ in pairs]
    found = mg.grad([a for a, _ in pairs], leaves, [tensor(g, device) for g in grads], create_graph=True)
    exact = torch.autograd.grad([b for _, b in pairs], points, [torch.tensor(g) for g in grads], create_graph=True)
    agree(found, exact, **CLOSE)
    grads = [rng.standard_normal(a.shape) for a in found]
    total = sum((a * tensor(g, device)).sum() for a, g in zip(found, grads, strict=True))
    second = sum((b * torch.tensor(g)).sum() for b, g in zip(exact, grads, strict=True))
    found = mg.grad(total, leaves, allow_unused=True)
    exact = torch.autograd.grad(second, points, allow_unused=True)
    for leaf, a, b in zip(leaves, found, exact, strict=True):
        zeros = np.zeros(leaf.shape)
        a, b = zeros if a is None else array(a), zeros if b is None else b.numpy()
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("kind", ["none", "bool", "padding", "both", "float", "mixed"])
@pytest.mark.parametrize("seed", range(6))
def test_multihead_attention_as_in_pytorch(kind, seed, device):
    rng = np.random.default_rng(seed)
    heads, head, batch, queries, keys = (int(n) for n in rng.integers(1, 5, 5))
    width, first = heads * head, bool(seed % 2)
    options = {"bias": seed != 2, "batch_first": first}
    if seed % 3 == 0:
        options |= {"kdim": 5, "vdim": 7}
    ours = nn.MultiheadAttention(width, heads, **options, dtype="float64").to(device)
    theirs = torch.nn.MultiheadAttention(width, heads, **options, dtype=torch.float64)
    exchange_state(ours, theirs, rng)
    sizes = (queries, width), (keys, options.get("kdim", width)), (keys, options.get("vdim", width))
    inputs = [rng.standard_normal((batch, n, m) if first else (n, batch, m)) for n, m in sizes]
    given = masks(rng, kind, heads, batch, queries, keys)
    if kind == "mixed":  # PyTorch takes both only as floats
        given["key_padding_mask"] = np.where(given["key_padding_mask"], -np.inf, 0.0)
    for needed in ({}, {"average_attn_weights": False}, {"need_weights": False}):
        compare(torch, ours, theirs, inputs, given | needed, rng, device)
    if "key_padding_mask" not in given and given.get("attn_mask", inputs[0]).ndim == 2:
        compare(torch, ours, theirs, [x[0] if first else x[:, 0] for x in inputs], given, rng, device)
    if seed == 0 and kind == "none":
        same = nn.MultiheadAttention(width, heads, dtype="float64").to(device)
        other = torch.nn.MultiheadAttention(width, heads, dtype=torch.float64)
        exchange_state(same, other, rng)
        x = rng.standard_normal((4, 2, width))
        causal = np.triu(np.ones((4, 4), bool), 1)
        y = same(*[tensor(x, device)] * 3, is_causal=True)[0]
        e = other(*[torch.tensor(x)] * 3, attn_mask=torch.tensor(causal))[0]
        near(y, e.detach().numpy(), **CLOSE)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_and_stacks_as_in_pytorch(norm_first, activation, bias, device, rng):
    options = {
        "dim_feedforward": 12, "dropout": 0.0, "activation": activation, "norm_first": norm_first, "bias": bias,
        "batch_first": norm_first,
    }  # fmt: skip
    shape, memory = ((2, 5, 6), (2, 4, 6)) if norm_first else ((5, 2, 6), (4, 2, 6))
    x, m = rng.standard_normal(shape), rng.standard_normal(memory)
    padded = np.array([[False] * 5, [False] * 3 + [True] * 2])
    causal = np.triu(np.ones((5, 5), bool), 1)
    for kind in ("Encoder", "Decoder"):
        ours = getattr(nn, f"Transformer{kind}Layer")(6, 2, **options, dtype="float64")
        theirs = getattr(torch.nn, f"Transformer{kind}Layer")(6, 2, **options, dtype=torch.float64)
        inputs, given = [x], {"src_mask": causal, "src_key_padding_mask": padded}
        if kind == "Decoder":
            inputs, given = [x, m], {"tgt_mask": causal, "tgt_key_padding_mask": padded}
        stack = getattr(nn, f"Transformer{kind}")(ours, 2, nn.LayerNorm(6, dtype="float64")).to(device)
        deep = getattr(torch.nn, f"Transformer{kind}")(theirs, 2, torch.nn.LayerNorm(6, dtype=torch.float64))
        ours.to(device)
        for a, b in ((ours, theirs), (stack, deep)):
            exchange_state(a, b, rng)
            names = {k.replace("src_mask", "mask") if a is stack else k: v for k, v in given.items()}
            compare(torch, a, b, inputs, names, rng, device)


@pytest.mark.parametrize("norm_first", [False, True])
def test_weights_of_pytorch(norm_first, device, rng):
    """The state of a whole model in float32, in both modes: the outputs are equal to 1e-6."""
    torch.manual_seed(0)
    options = {"dim_feedforward": 40, "dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    theirs = torch.nn.Transformer(16, 4, 2, 3, **options)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, **options), 2, nn.LayerNorm(16)).to(device)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 4, **options), 3, nn.LayerNorm(16)).to(device)
    for ours, state in ((encoder, theirs.encoder.state_dict()), (decoder, theirs.decoder.state_dict())):
        found = ours.load_state_dict(state)
        assert found.missing_keys == found.unexpected_keys == []
    source, target = (rng.standard_normal((3, n, 16)).astype(np.float32) for n in (9, 7))
    for mode in (True, False):
        encoder.train(mode), decoder.train(mode), theirs.train(mode)
        y = decoder(tensor(target, device), encoder(tensor(source, device)), tgt_is_causal=True)
        mask = theirs.generate_square_subsequent_mask(7)
        expected = theirs(torch.tensor(source), torch.tensor(target), tgt_mask=mask).detach().numpy()
        near(y, expected, rtol=1e-6, atol=1e-6)


LAYERS = [
    "MultiheadAttention",
    *(f"Transformer{kind}{end}" for kind in ("Encoder", "Decoder") for end in ("Layer", "")),
]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_arguments_are_those_of_pytorch(name, method):
    """In PyTorch's order and with its defaults, so that positions mean the same."""
    ours, theirs = (inspect.signature(getattr(getattr(m.nn, name), method)).parameters for m in (mg, torch))
    assert [k for k in ours if k in theirs] == list(theirs)
    assert all(p.kind is p.KEYWORD_ONLY for k, p in ours.items() if k not in theirs)
    for k in theirs:
        if k != "activation":  # a function of torch
            assert ours[k].default in (theirs[k].default, theirs[k].default or False)  # None means False


@pytest.mark.parametrize("learned, zero", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("masked", ["", "bool", "float", "causal"])
def test_keys_that_every_sequence_has_are_those_of_pytorch(learned, zero, masked, device, rng):
    options = {"add_bias_kv": learned, "add_zero_attn": zero, "batch_first": True}
    theirs = torch.nn.MultiheadAttention(6, 2, dtype=torch.float64, **options)
    ours = nn.MultiheadAttention(6, 2, dtype="float64", **options).to(device)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x, y = rng.standard_normal((3, 4, 6)), rng.standard_normal((3, 5, 6))
    padding, mask = np.zeros((3, 5), bool), None
    if masked:
        padding[1, 3:] = True
    if masked == "bool":
        mask = np.triu(np.ones((4, 5), bool), 2)
    if masked == "float":
        mask = rng.standard_normal((4, 5))
    if masked == "causal":
        y = x
        padding = padding[:, :4]
        mask = np.triu(np.ones((4, 4), bool), 1)

    def arguments(make):
        causal = {"is_causal": True} if masked == "causal" else {}
        given = None if mask is None or (make is tensor_here and masked == "causal") else make(mask)
        return {"key_padding_mask": make(padding) if masked else None, "attn_mask": given, **causal}

    def tensor_here(a):
        return tensor(a, device)

    a, b, c, d = tensor_here(x), tensor_here(y), torch.tensor(x), torch.tensor(y)
    for tensors in ((a, b), (c, d)):
        for one in tensors:
            one.requires_grad_()
    for weights in (True, False):
        found, of_keys = ours(a, b, b, need_weights=weights, **arguments(tensor_here))
        expected, of_their_keys = theirs(c, d, d, need_weights=weights, **arguments(torch.tensor))
        near(found, expected.detach().numpy(), rtol=1e-10, atol=1e-12)
        if weights:
            near(of_keys, of_their_keys.detach().numpy(), rtol=1e-10, atol=1e-12)
        g = rng.standard_normal(found.shape)
        leaves = [a, b, *ours.parameters()]
        grads = mg.grad(found, leaves, tensor_here(g))
        wanted = torch.autograd.grad(expected, [c, d, *theirs.parameters()], torch.tensor(g))
        by_name = dict(zip([n for n, _ in theirs.named_parameters()], wanted[2:], strict=True))
        named = zip(["a", "b", *(n for n, _ in ours.named_parameters())], grads, strict=True)
        for name, grad in named:
            other = {"a": wanted[0], "b": wanted[1]}.get(name, by_name.get(name))
            near(grad, other.numpy(), rtol=1e-9, atol=1e-11, err_msg=name)


def test_keys_that_every_sequence_has_follow_those_of_a_cache(rng):
    layer = nn.MultiheadAttention(6, 2, add_bias_kv=True, add_zero_attn=True, batch_first=True, dtype="float64")
    x = tensor(rng.standard_normal((2, 5, 6)))
    whole = layer(x, x, x, is_causal=True)[0]
    cache = nn.KeyValueCache()
    steps = [layer(x[:, i : i + 1], x[:, i : i + 1], x[:, i : i + 1], cache=cache)[0] for i in range(5)]
    near(mg.concat(steps, 1), array(whole), rtol=1e-12, atol=1e-12)


def test_dropout_and_causality(device, rng):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5, batch_first=True).to(device)
    x = tensor(rng.standard_normal((2, 6, 8)).astype(np.float32), device)
    mg.manual_seed(0)
    noisy = layer(x)
    assert not (noisy == layer(x)).all()
    mg.manual_seed(0)
    assert (noisy == layer(x)).all()
    layer.eval()
    y = layer(x, is_causal=True)
    near(layer(x[:, :4], is_causal=True), array(y[:, :4]), rtol=1e-5, atol=1e-6)
    padded = tensor(np.array([[False] * 6, [False] * 4 + [True] * 2]), device)
    hidden = layer(x, src_key_padding_mask=padded, is_causal=True)
    near(hidden[:, :4], array(y[:, :4]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype, close", [("float64", CLOSE), ("float32", {"rtol": 0, "atol": 2e-4})])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("length", [6, 150])
def test_causality_with_padding(length, kind, dtype, close, device, rng):
    """Padding on either side of causal sequences, where the first queries may see no key: as with one mask of both."""
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype).to(device)
    steps, ends = np.arange(length), np.array([[length], [length - 2], [0]])
    padded = (steps >= ends) | (steps < np.array([[3], [0], [0]]))
    whole = np.repeat(np.triu(np.ones((length, length), bool), 1) | padded[:, None], 2, axis=0)
    if kind == "float":
        bias = rng.standard_normal(padded.shape).astype(dtype)
        whole = np.where(whole, -np.inf, np.repeat(bias[:, None], 2, axis=0)).astype(dtype)
        padded = np.where(padded, -np.inf, bias).astype(dtype)
    x = tensor(rng.standard_normal((3, length, 8)).astype(dtype), device, True)
    leaves, found = [x, *layer.parameters()], []
    g = tensor(rng.standard_normal(x.shape).astype(dtype), device)
    for given in ({"key_padding_mask": padded, "is_causal": True}, {"attn_mask": whole}):
        masks = {k: tensor(v, device) if isinstance(v, np.ndarray) else v for k, v in given.items()}
        for more in (False, True):
            y, weights = layer(x, x, x, **masks, need_weights=more)
            found.append([array(a) for a in (y, *mg.grad(y, leaves, g, create_graph=more))])
    assert np.isfinite(array(weights)).all()
    for other in found[:-1]:
        agree(other, found[-1], **close)


PADDED = {
    "attention": (nn.MultiheadAttention, {}, lambda m, x, p: m(x, x, x, p)[0]),
    "causal": (nn.MultiheadAttention, {"qk_norm": "rms"}, lambda m, x, p: m(x, x, x, p, False, is_causal=True)[0]),
    "memory": (nn.MultiheadAttention, {"kdim": 8, "add_bias_kv": True}, lambda m, x, p: m(mg.ones_like(x), x, x, p)[0]),
    "encoder": (nn.TransformerEncoderLayer, {}, lambda m, x, p: m(m(x, None, p), None, p)),
    "first": (nn.TransformerEncoderLayer, {"norm_first": True}, lambda m, x, p: m(m(x, None, p), None, p)),
    "decoder": (nn.TransformerDecoderLayer, {}, lambda m, x, p: m(x, x, None, None, p, p, True)),
}


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", PADDED)
def test_padding_has_no_influence(kind, batch_first, device, rng):
    """NaN and infinity at padded steps: the other steps, and both derivatives of a loss of them, are those of zeros."""
    make, options, call = PADDED[kind]
    options = options if make is nn.MultiheadAttention else options | {"dim_feedforward": 12, "dropout": 0.0}
    layer = make(8, 2, batch_first=batch_first, dtype="float64", device=device, **options)
    padded = np.arange(5) >= np.array([[5], [3], [0]])
    x, g = rng.standard_normal((2, 3, 5, 8))
    of_gradients = [rng.standard_normal(p.shape) for p in layer.parameters()]
    order = (0, 1, 2) if batch_first else (1, 0, 2)
    results = []
    for bad in (0.0, np.nan, np.inf):
        given = np.where(padded[..., None], bad, x).transpose(order)
        leaves = [tensor(given, device, True), *layer.parameters()]
        y = call(layer, leaves[0], tensor(padded, device))
        hidden = tensor(padded[..., None].transpose(order) & (kind != "memory"), device)  # queries are not padded there
        y = mg.where(hidden, 0.0, y)
        first = mg.grad(y, leaves, tensor(g.transpose(order), device), create_graph=True)
        weighted = zip(first[1:], of_gradients, strict=True)
        total = sum((d * tensor(w, device)).sum() for d, w in weighted)
        results.append([array(a) for a in (y, *first, *mg.grad(total, leaves, allow_unused=True)) if a is not None])
    for found in results[1:]:
        agree(found, results[0], **CLOSE)


def test_a_mask_and_causality(device, rng):
    """Both apply, in every layer, with a cache too, and with keys that every sequence has."""
    shown = np.ones((5, 5), bool)
    shown[3, 1] = shown[4, :3] = False
    both = shown & np.tri(5, dtype=bool)
    x = tensor(rng.standard_normal((2, 5, 8)), device)
    given, whole = tensor(~shown, device), tensor(~both, device)
    for options in ({}, {"add_zero_attn": True}):
        layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype="float64", **options).to(device)
        for weights in (True, False):
            found = layer(x, x, x, None, weights, given, is_causal=True)
            exact = layer(x, x, x, None, weights, whole)
            for a, b in zip(found[: 1 + weights], exact, strict=False):
                near(a, array(b), **CLOSE)
    cache, last = nn.KeyValueCache(), x[:, 3:]
    layer(x[:, :3], x[:, :3], x[:, :3], attn_mask=given[:3, :3], is_causal=True, cache=cache)
    ends = layer(last, last, last, attn_mask=given[3:], is_causal=True, cache=cache)[0]
    near(ends, array(layer(x, x, x, attn_mask=whole)[0][:, 3:]), **CLOSE)
    encoder = nn.TransformerEncoderLayer(8, 2, 12, 0.0, batch_first=True, dtype="float64").to(device)
    decoder = nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True, dtype="float64").to(device)
    for found, exact in (
        (encoder(x, given, is_causal=True), encoder(x, whole)),
        (decoder(x, x, given, given, None, None, True, True), decoder(x, x, whole, whole)),
    ):
        near(found, array(exact), **CLOSE)


def test_memory_of_causality_with_padding(device):
    """It grows with the length: a mask of 4096 by 4096 bools alone would be 17 MB."""
    if device != "cpu":
        return  # the same holds there, but the emulation takes minutes
    layer, x = nn.TransformerEncoderLayer(4, 1, 4, 0.0, batch_first=True), mg.ones((1, 4096, 4))
    mg.empty_cache()
    before = mg.memory_allocated() + mg.memory_cached()
    layer(x, src_key_padding_mask=mg.zeros((1, 4096), dtype="bool"), is_causal=True).sum().backward()
    assert mg.memory_allocated() + mg.memory_cached() - before < 10e6


def test_refusals(device):
    op = "MultiheadAttention"
    refuses(ValueError, op, ["8", "3"], nn.MultiheadAttention, 8, 3)
    layer, x = nn.MultiheadAttention(4, 2, batch_first=True).to(device), mg.ones((2, 3, 4), device=device)
    refuses(ValueError, op, ["(2, 3, 4)", "(3, 4)"], layer, x, x[0], x)
    refuses(ValueError, op, ["axis 0", "(2, 3, 4)", "(1, 3, 4)"], layer, x, x[:1], x[:1])
    refuses(ValueError, op, ["(2, 3, 4)", "(2, 2, 4)"], layer, x, x, x[:, :2])
    mask = mg.ones((3, 2), dtype="bool", device=device)
    refuses(ValueError, op, ["(3, 3)", "(4, 3, 3)", "(3, 2)"], layer, x, x, x, attn_mask=mask)
    refuses(ValueError, op, ["(2, 3)", "(3, 2)"], layer, x, x, x, mask)
    mask = mg.ones((3, 3), dtype="int64", device=device)
    refuses(TypeError, op, ["attn_mask", "bool", "int64"], layer, x, x, x, attn_mask=mask)
    parts = "nn.functional.silu, got 'tanh'"
    refuses(ValueError, "TransformerEncoderLayer", parts, nn.TransformerEncoderLayer, 4, 2, activation="tanh")
    refuses(ValueError, "TransformerDecoderLayer", ["8", "3"], nn.TransformerDecoderLayer, 8, 3)


# ── options beyond PyTorch's ──────────────────────────────────────────────────────────────────────


OPTIONS = {
    "plain": {}, "rotary": {"rotary": 100.0}, "rms": {"norm": "rms", "qk_norm": "rms", "activation": "swiglu"},
    "layer": {"qk_norm": "layer", "norm_first": True}, "dyt": {"norm": "dyt", "qk_norm": "dyt"},
    "factory": {"norm": lambda n: nn.GroupNorm(1, n, bias=False), "qk_norm": nn.RMSNorm},
}  # fmt: skip


def rows(norm):
    """A norm of channels applied to every row of features."""

    class Rows(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm = norm(width)

        def forward(self, x):
            return self.norm(x.reshape(-1, x.shape[-1])).reshape(x.shape)

    return Rows


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_cache_continues_sequences(kind, batch_first, device, rng):
    """A sequence in parts gives the results of the whole, with padding too, and with a decoder's memory."""
    options = dict(OPTIONS[kind])
    if kind == "factory":
        options["norm"] = rows(options["norm"])
    axis = 1 if batch_first else 0
    shape = (3, 7, 8) if batch_first else (7, 3, 8)
    x, memory = tensor(rng.standard_normal(shape), device), tensor(rng.standard_normal(shape), device)
    padded = tensor(np.arange(7) < np.array([[0], [2], [1]]), device)
    for stack, layer in ((nn.TransformerEncoder, nn.TransformerEncoderLayer), (nn.TransformerDecoder, nn.TransformerDecoderLayer)):  # fmt: skip
        made = layer(8, 2, 12, batch_first=batch_first, device=device, dtype="float64", **options)
        model = stack(made, 2).eval()
        decoder = stack is nn.TransformerDecoder
        padding = "tgt_key_padding_mask" if decoder else "src_key_padding_mask"
        causal = {"tgt_is_causal" if decoder else "is_causal": True}
        for mask in (None, padded):
            cache, parts, begin = nn.KeyValueCache(), [], 0
            with mg.no_grad():
                for end in (3, 4, 7):
                    assert len(cache) == begin
                    part = x[:, begin:end] if batch_first else x[begin:end]
                    given = causal if mask is None else causal | {padding: mask[:, :end]}
                    parts.append(model(*(part, memory) if decoder else (part,), **given, cache=cache))
                    begin = end
                given = causal if mask is None else causal | {padding: mask}
                whole = model(*(x, memory) if decoder else (x,), **given)
            near(mg.concat(parts, axis=axis), array(whole), **CLOSE)


def test_qk_norm_and_rotary_positions_by_hand(device, rng):
    """Scores from the definitions: normalized heads, rotated as complex numbers a + ib by exp(i p θ)."""
    layer = nn.MultiheadAttention(8, 2, batch_first=True, dtype="float64", qk_norm="rms", rotary=50.0).to(device)
    with mg.no_grad():
        for p in layer.parameters():
            p.copy_(tensor(rng.standard_normal(p.shape), device))
    x = rng.standard_normal((2, 5, 8))
    found = layer(*[tensor(x, device)] * 3, average_attn_weights=False)
    state = {name: array(p) for name, p in layer.named_parameters()}
    q, k, v = np.split(x @ state["in_proj_weight"].T + state["in_proj_bias"], 3, -1)
    q, k, v = (y.reshape(2, 5, 2, 4).transpose(0, 2, 1, 3) for y in (q, k, v))

    def prepared(y, gain):
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * gain
        z = (y[..., :2] + 1j * y[..., 2:]) * np.exp(1j * np.arange(5)[:, None] * 50.0 ** (-np.arange(2) / 2))
        return np.concatenate([z.real, z.imag], -1)

    scores = prepared(q, state["q_norm.weight"]) @ prepared(k, state["k_norm.weight"]).swapaxes(-1, -2) / 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    y = (weights @ v).transpose(0, 2, 1, 3).reshape(2, 5, 8)
    near(found[1], weights, **CLOSE)
    near(found[0], y @ state["out_proj.weight"].T + state["out_proj.bias"], **CLOSE)


def test_positions(device, rng):
    for batch_first in (True, False):
        x = rng.standard_normal((2, 5, 6) if batch_first else (5, 2, 6))
        sines = nn.SinusoidalPositions(6, 100.0, batch_first)
        learned = nn.LearnedPositions(9, 6, batch_first, dtype="float64").to(device)
        p, i = np.arange(3, 8)[:, None], np.arange(3)
        table = np.zeros((5, 6))
        table[:, 0::2], table[:, 1::2] = np.sin(p / 100.0 ** (2 * i / 6)), np.cos(p / 100.0 ** (2 * i / 6))
        for layer, rows in ((sines, table), (learned, array(learned.weight)[3:8])):
            added = rows if batch_first else rows[:, None]
            near(layer(tensor(x, device), 3), x + added, **CLOSE)
            alone = x[0] if batch_first else x[:, 0]
            near(layer(tensor(alone, device), 3), alone + rows, **CLOSE)
    g = rng.standard_normal((5, 6))
    grad = mg.grad(learned(tensor(x[:, 0], device), 3), learned.weight, tensor(g, device))
    equals(grad, np.pad(g, ((3, 1), (0, 0))))
    assert mg.gradcheck(lambda x: F.rotary(x, 2, 10.0), [tensor(rng.standard_normal((2, 3, 4)), device, True)], order=2)


def test_norms_of_blocks(device, rng):
    """ "batch" takes the statistics of each feature over all steps of all samples."""
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, norm="batch", dtype="float64").to(device)
    y = array(layer(tensor(rng.standard_normal((5, 3, 6)), device)))
    np.testing.assert_allclose(y.mean((0, 1)), 0, atol=1e-12)
    np.testing.assert_allclose(y.var((0, 1)), 1, rtol=1e-3)
    assert isinstance(nn.TransformerDecoderLayer(6, 2, norm="rms").norm3, nn.RMSNorm)


def test_refusals_of_options(device):
    encoder, attention = nn.TransformerEncoderLayer, nn.MultiheadAttention
    parts = ["norm", "'layer', 'rms', 'dyt', 'batch'", "'group'"]
    refuses(ValueError, "TransformerEncoderLayer", parts, encoder, 4, 2, norm="group")
    refuses(TypeError, "TransformerEncoderLayer", ["norm", "module", "int"], encoder, 4, 2, norm=lambda n: n)
    refuses(ValueError, "TransformerDecoderLayer", "batch", nn.TransformerDecoderLayer, 4, 2, norm="batch")
    refuses(ValueError, "MultiheadAttention", ["qk_norm", "'batch'"], attention, 4, 2, qk_norm="batch")
    refuses(ValueError, "MultiheadAttention", ["even", "3"], attention, 6, 2, rotary=1e4)
    refuses(ValueError, "MultiheadAttention", "rotary", attention, 4, 2, rotary=0.5)
    refuses(ValueError, "rotary", "(2, 3)", F.rotary, mg.ones((2, 3), device=device))
    refuses(ValueError, "SinusoidalPositions", "5", nn.SinusoidalPositions, 5)
    parts = ["(T, N, 4)", "(2, 3, 6)"]
    refuses(ValueError, "SinusoidalPositions", parts, nn.SinusoidalPositions(4), mg.ones((2, 3, 6)))
    refuses(ValueError, "LearnedPositions", ["at most 4", "5"], nn.LearnedPositions(4, 2), mg.ones((3, 1, 2)), 2)
    layer, cache = attention(4, 2, batch_first=True).to(device), nn.KeyValueCache()
    x = mg.ones((2, 3, 4), device=device)
    layer(x, x, x, cache=cache)
    refuses(ValueError, "MultiheadAttention", ["2 sequences", "1"], layer, x[:1], x[:1], x[:1], cache=cache)
    wrong = mg.zeros((2, 3), dtype="bool", device=device)
    refuses(ValueError, "MultiheadAttention", ["(2, 6)", "(2, 3)"], layer, x, x, x, wrong, cache=cache)
    assert len(cache) == 3  # a refused call adds nothing
