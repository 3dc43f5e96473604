"""Attention."""

import numpy as np

import minigrad as mg
from table.entry import Op, case, softmax

RNG = np.random.default_rng(0)
INF = np.inf


def weights(s, mask, causal):
    """Return softmax(s), masked; 0 for a row that is masked out."""
    if mask is not None:
        s = np.where(mask, s, -INF) if mask.dtype == bool else s + mask
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -INF)
    seen = (s > -INF).any(-1, keepdims=True)
    return softmax(np.where(seen, s, 0)) * seen


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """The definition."""
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    scale = 1 / max(q.shape[-1], 1) ** 0.5 if scale is None else scale
    return weights(scale * (q @ np.swapaxes(k, -1, -2)), attn_mask, is_causal) @ v


def compose_attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    if enable_gqa:
        groups, heads, lead = k.shape[-3], q.shape[-3], k.shape[:-3]
        spread = [i * groups // heads for i in range(heads)]
        k, v = (mg.take(x, spread, axis=len(lead)) for x in (k, v))
    scale = 1 / max(q.shape[-1], 1) ** 0.5 if scale is None else scale
    s = mg.matmul(q, mg.matrix_transpose(k)) * scale
    if attn_mask is not None:
        s = mg.where(attn_mask, s, -INF) if attn_mask.dtype == "bool" else s + attn_mask
    if is_causal:
        s = mg.where(mg.tensor(np.tri(*s.shape[-2:], dtype=bool), device=s.device), s, -INF)
    seen = mg.any(s.detach() > -INF, axis=-1, keepdims=True)
    e = mg.exp(mg.where(seen, s, 0)) * seen.astype(s.dtype)
    total = mg.sum(e, -1, keepdims=True)
    return mg.matmul(e / mg.where(seen, total, 1), v)


def bools(*shape):
    mask = RNG.random(shape) < 0.6
    mask[..., 0, :] = False  # a query that sees no key
    return mask


def torch_attention(t, q, k, v, attn_mask=None, is_causal=False, **options):
    if attn_mask is not None and is_causal:  # PyTorch takes one of them
        attn_mask, is_causal = attn_mask & t.ones_like(attn_mask).tril(), False
    options |= {"attn_mask": attn_mask, "is_causal": is_causal}
    return t.nan_to_num(t.nn.functional.scaled_dot_product_attention(q, k, v, **options))


def rotary(x, start=0, base=10_000.0):
    half = x.shape[-1] // 2
    turns = np.exp(1j * np.arange(start, start + x.shape[-2])[:, None] * base ** (-np.arange(half) / half))
    z = (x[..., :half] + 1j * x[..., half:]) * turns
    return np.concatenate([z.real, z.imag], -1)


def torch_rotary(t, x, start=0, base=10_000.0):
    half = x.shape[-1] // 2
    phi = t.arange(start, start + x.shape[-2], dtype=x.dtype)[:, None] * base ** (-t.arange(half, dtype=x.dtype) / half)
    z = t.complex(x[..., :half], x[..., half:]) * t.polar(t.ones_like(phi), phi)
    return t.cat([z.real, z.imag], -1)


HEADS = (1, 2, 5, 3), (1, 2, 4, 3), (1, 2, 4, 2)  # query, key and value

ATTENTION = [
    Op(
        "scaled_dot_product_attention", attention, torch=torch_attention, composition=compose_attention, ulps=64,
        cases=(
            case((3, 2), (4, 2), (4, 5)), case((2, 3, 2), (2, 1, 2), (2, 1, 1), is_causal=True), case(*HEADS),
            case(*HEADS, is_causal=True), case(*HEADS, scale=-0.7), case(*HEADS, attn_mask=bools(5, 4)),
            case(*HEADS, attn_mask=bools(1, 1, 1, 4)), case(*HEADS, attn_mask=bools(5, 4), is_causal=True), case(*HEADS, attn_mask=RNG.standard_normal((2, 5, 4))),
            case(*HEADS, attn_mask=RNG.standard_normal((1, 1, 5, 1))),
            case((2, 4, 3, 2), (2, 2, 3, 2), (2, 2, 3, 2), enable_gqa=True, is_causal=True),
            case((2, 1, 3, 2), (2, 3, 2), (1, 3, 4)), case((2, 1, 2, 3, 2), (2, 1, 1, 2, 2), (2, 1, 1, 2, 3)),
            case((2, 0, 3), (2, 4, 3), (2, 4, 2)), case((2, 3, 3), (2, 0, 3), (2, 0, 2)), case((0, 3, 3), (0, 4, 3), (0, 4, 2)),
            case((1, 0, 3, 2), (1, 2, 4, 2), (1, 2, 4, 1), enable_gqa=True), case((3, 0), (4, 0), (4, 2)), case((3, 2), (4, 2), (4, 0)),
        ),
    ),
    Op(
        "rotary", rotary, torch=torch_rotary, ulps=64,
        cases=(case((3, 4)), case((2, 3, 6), start=3, base=10.0), case((2, 0, 4)), case((3, 0)), case((0, 2, 2), start=1)),
    ),
]  # fmt: skip
