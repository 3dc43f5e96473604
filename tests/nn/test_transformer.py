"""Multi-head attention and Transformer layers against PyTorch's, from the same parameters."""

import numpy as np
import pytest
from checks import array, exchange_state, refuses, tensor

import minigrad as mg
from minigrad import nn

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
    """Results, and the gradients of inputs and parameters for a random cotangent."""
    leaves = [tensor(x, device, True) for x in inputs]
    points = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = ours(*leaves, **{k: tensor(v, device) if isinstance(v, np.ndarray) else v for k, v in given.items()})
    e = theirs(*points, **{k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()})
    pairs = list(zip(y, e, strict=True)) if isinstance(y, tuple) else [(y, e)]
    pairs = [(a, b) for a, b in pairs if a is not None or b is not None]
    for a, b in pairs:
        np.testing.assert_allclose(array(a), b.detach().numpy(), **CLOSE)
    grads = [rng.standard_normal(a.shape) for a, _ in pairs]
    found = mg.grad(
        [a for a, _ in pairs], [*leaves, *ours.parameters()], [tensor(g, device) for g in grads]
    )  # fmt: skip
    exact = torch.autograd.grad(
        [b for _, b in pairs], [*points, *theirs.parameters()], [torch.tensor(g) for g in grads]
    )
    for a, b in zip(found, exact, strict=True):
        np.testing.assert_allclose(array(a), b.numpy(), **CLOSE)


@pytest.mark.parametrize("kind", ["none", "bool", "padding", "both", "float", "mixed"])
@pytest.mark.parametrize("seed", range(6))
def test_multihead_attention_as_in_pytorch(kind, seed, device):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    heads, head, batch, queries, keys = (int(n) for n in rng.integers(1, 5, 5))
    width, first = heads * head, bool(seed % 2)
    options = {"bias": seed != 2, "batch_first": first}
    if seed % 3 == 0:
        options |= {"kdim": 5, "vdim": 7}
    ours = nn.MultiheadAttention(width, heads, **options, dtype="float64").to(device)
    theirs = torch.nn.MultiheadAttention(width, heads, **options, dtype=torch.float64)
    exchange_state(torch, ours, theirs, rng)
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
        exchange_state(torch, same, other, rng)
        x = rng.standard_normal((4, 2, width))
        causal = np.triu(np.ones((4, 4), bool), 1)
        y = same(*[tensor(x, device)] * 3, is_causal=True)[0]
        e = other(*[torch.tensor(x)] * 3, attn_mask=torch.tensor(causal))[0]
        np.testing.assert_allclose(array(y), e.detach().numpy(), **CLOSE)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("bias", [True, False])
def test_layers_and_stacks_as_in_pytorch(norm_first, activation, bias, device, rng):
    torch = pytest.importorskip("torch")
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
            exchange_state(torch, a, b, rng)
            names = {k.replace("src_mask", "mask") if a is stack else k: v for k, v in given.items()}
            compare(torch, a, b, inputs, names, rng, device)


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
    np.testing.assert_allclose(array(layer(x[:, :4], is_causal=True)), array(y[:, :4]), rtol=1e-5, atol=1e-6)
    padded = tensor(np.array([[False] * 6, [False] * 4 + [True] * 2]), device)
    hidden = layer(x, src_key_padding_mask=padded, is_causal=True)
    np.testing.assert_allclose(array(hidden[:, :4]), array(y[:, :4]), rtol=1e-5, atol=1e-6)


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
    refuses(
        TypeError, op, ["attn_mask", "bool"], layer, x, x, x, attn_mask=mg.ones((3, 3), dtype="int64", device=device)
    )
    refuses(ValueError, "TransformerEncoderLayer", "tanh", nn.TransformerEncoderLayer, 4, 2, activation="tanh")
    refuses(ValueError, "TransformerDecoderLayer", ["8", "3"], nn.TransformerDecoderLayer, 8, 3)
