"""Multi-head attention, and the keys and values that it keeps while a sequence is generated."""

from collections.abc import Callable, Mapping
from typing import Any

from minigrad.arrays.creation import empty, eye, ones, tril, zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.attention import scaled_dot_product_attention, weigh
from minigrad.engine.ops.join import append, concat, split
from minigrad.engine.ops.logic import logical_and, logical_not, logical_or, where
from minigrad.engine.ops.rounding import isfinite
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn import init
from minigrad.nn.layers.linear import Linear
from minigrad.nn.layers.position import rotary as rotate
from minigrad.nn.module import Module
from minigrad.nn.norm.row_norms import DyT, LayerNorm, RMSNorm
from minigrad.nn.parameter import Parameter

NAME = "MultiheadAttention"
Norm = str | Callable[[int], Module]
NORMS: Mapping[str, Callable[..., Module]] = {  # by (width, ε, bias, device, dtype)
    "layer": lambda width, eps, bias, device, dtype: LayerNorm(width, eps, bias=bias, device=device, dtype=dtype),
    "rms": lambda width, eps, bias, device, dtype: RMSNorm(width, eps, device=device, dtype=dtype),
    "dyt": lambda width, eps, bias, device, dtype: DyT(width, device=device, dtype=dtype),
}


def make_norm(
    name: str, argument: str, norm: Norm, norms: Mapping[str, Callable[..., Module]], width: int, eps: float,
    bias: bool, device: str | None, dtype: DTypeLike,
) -> Module:  # fmt: skip
    """Return the normalization that a layer's argument names or makes."""
    if isinstance(norm, str) and norm in norms:
        return norms[norm](width, eps, bias, device, dtype)
    if isinstance(norm, str) or not callable(norm):
        raise ValueError(
            f"[{name}] expected {argument} {', '.join(map(repr, norms))} or a function of the width, got {norm!r}"
        )
    made = norm(width)
    if not isinstance(made, Module):
        raise TypeError(f"[{name}] expected a function that returns a module for {argument}, got {kind_of(made)}")
    return made.to(device=device, dtype=dtype)


class KeyValueCache:
    """The keys and values of the steps so far, so that each further step of a sequence is computed only once.

    Passed to every call that continues the same sequences, under ``no_grad``: each attention layer adds the keys and
    values of the call's steps to its own, and its queries see all of them. The results equal those of one call with
    the whole sequence, to rounding. ``len(cache)`` is the number of steps so far. Sequences that branch continue in a
    ``copy.copy`` of the cache each.

    Examples
    --------
    >>> layer = mg.nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> x, cache = mg.random.normal(shape=(1, 5, 8)), mg.nn.KeyValueCache()
    >>> with mg.no_grad():
    ...     steps = [layer(x[:, t : t + 1], is_causal=True, cache=cache) for t in range(5)]
    ...     whole = layer(x, is_causal=True)
    >>> len(cache), bool(mg.abs(mg.concat(steps, axis=1) - whole).max() < 1e-5)
    (5, True)
    """

    def __init__(self) -> None:
        # A layer's keys and its values are each kept as all steps so far, and the memory that begins with them.
        self._kept: dict[Module, list[tuple[Tensor, Tensor]]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "KeyValueCache":
        """Return a cache for a branch: it shares the steps so far, and has memory of its own for later ones."""
        copied = KeyValueCache()
        for layer, kept in self._kept.items():
            copied._kept[memo.get(id(layer), layer)] = [(x, x) for x, _ in kept]
        return copied

    def __copy__(self) -> "KeyValueCache":
        return self.__deepcopy__({})

    def __len__(self) -> int:
        return max(map(self.steps, self._kept), default=0)

    def steps(self, layer: Module) -> int:
        """Return the number of steps that a layer has added."""
        return self._kept[layer][0][0].shape[2] if layer in self._kept else 0

    def extend(self, layer: Module, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the keys and values ``(N, h, steps, width)`` of a layer, and return all of them."""
        kept = self._kept.get(layer)
        if kept is None:
            kept = [(keys, keys), (values, values)]
        else:
            sequences = kept[0][0].shape[0]
            if sequences != keys.shape[0]:
                raise ValueError(f"[{NAME}] expected {sequences} sequences, as in the cache, got {keys.shape[0]}")
            kept = [append(*kept[0], keys), append(*kept[1], values)]
        self._kept[layer] = kept
        return kept[0][0], kept[1][0]


class MultiheadAttention(Module):
    """Attention in several subspaces at once: concat(head₁, …, head_h) W_Oᵀ + b_O.

    Head i is the scaled dot-product attention of its share of the projections Q W_Qᵀ + b_Q, K W_Kᵀ + b_K and
    V W_Vᵀ + b_V (Vaswani et al. 2017, arXiv:1706.03762). Raises ValueError for sizes below 1, heads that do not divide
    E, a `dropout` outside [0, 1], an unknown `qk_norm`, and a `rotary` below 1 or with heads of odd width.

    Parameters
    ----------
    embed_dim : int
        E, the width of queries and results.
    num_heads : int
        h, which divides E.
    dropout : float
        The probability that an attention weight is set to 0 in training.
    bias : bool
        Whether the projections have biases.
    add_bias_kv : bool
        Whether a learned key and value, which every query sees, follow the keys and values of every sequence.
    add_zero_attn : bool
        Whether a key and a value of zeros do.
    kdim, vdim : int, optional
        The widths of keys and values, by default E.
    batch_first : bool
        Whether inputs and outputs are ``(N, length, width)`` instead of ``(length, N, width)``.
    device, dtype
        As in `Linear`.
    qk_norm : {"layer", "rms", "dyt"} or callable, optional
        Normalizes queries and keys in every head, which bounds the scores (Dehghani et al. 2023, arXiv:2302.05442):
        `LayerNorm`, `RMSNorm`, `DyT`, or a function of E/h that returns a module.
    rotary : float, optional
        Whether queries and keys are rotated by their positions: the base of `functional.rotary`, 10,000 in its paper.

    Attributes
    ----------
    in_proj_weight : Parameter or None
        ``(3 E, E)``: W_Q, W_K and W_V, if all have this width; Glorot uniform. Otherwise `q_proj_weight`,
        `k_proj_weight` and `v_proj_weight` take its place.
    in_proj_bias : Parameter or None
        ``(3 E,)``, zeros.
    bias_k, bias_v : Parameter or None
        ``(1, 1, E)``: the key and the value of `add_bias_kv`; Glorot normal.
    out_proj : Linear
        W_O and b_O; the bias is initialized to zeros.
    q_norm, k_norm : Module
        With `qk_norm` only.

    Examples
    --------
    >>> layer, x = mg.nn.MultiheadAttention(8, 2, batch_first=True), mg.zeros((5, 10, 8))
    >>> y, weights = layer(x, x, x)
    >>> y.shape, weights.shape
    ((5, 10, 8), (5, 10, 10))
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None
    q_norm: Module
    k_norm: Module
    _shown = "embed_dim={embed_dim}, num_heads={num_heads}"

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: str | None = None, dtype: DTypeLike = None, *, qk_norm: Norm | None = None, rotary: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed_dim = embed_dim = integer(NAME, "embed_dim", embed_dim, 1)
        self.num_heads = integer(NAME, "num_heads", num_heads, 1)
        self.kdim = embed_dim if kdim is None else integer(NAME, "kdim", kdim, 1)
        self.vdim = embed_dim if vdim is None else integer(NAME, "vdim", vdim, 1)
        if embed_dim % self.num_heads:
            raise ValueError(f"[{NAME}] expected num_heads that divides embed_dim {embed_dim}, got {num_heads}")
        self.head_dim = embed_dim // self.num_heads
        self.dropout = number(NAME, "dropout", dropout, 0, 1)
        self.batch_first, self.add_zero_attn = batch_first, add_zero_attn
        self.rotary = None if rotary is None else number(NAME, "rotary", rotary, 1)
        if rotary is not None and self.head_dim % 2:
            raise ValueError(f"[{NAME}] expected heads of even width for rotary positions, got {self.head_dim}")
        self.qk_norm = qk_norm is not None
        if qk_norm is not None:
            for key in ("q_norm", "k_norm"):
                setattr(self, key, make_norm(NAME, "qk_norm", qk_norm, NORMS, self.head_dim, 1e-5, bias, device, dtype))
        same = self.kdim == self.vdim == embed_dim
        for name, rows, columns, wanted in (
            ("q_proj_weight", embed_dim, embed_dim, not same),
            ("k_proj_weight", embed_dim, self.kdim, not same),
            ("v_proj_weight", embed_dim, self.vdim, not same),
            ("in_proj_weight", 3 * embed_dim, embed_dim, same),
        ):
            weight = Parameter(empty((rows, columns), dtype=dtype, device=device)) if wanted else None
            self.register_parameter(name, weight)
        in_bias = Parameter(empty((3 * embed_dim,), dtype=dtype, device=device)) if bias else None
        self.register_parameter("in_proj_bias", in_bias)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device, dtype)
        for name in ("bias_k", "bias_v"):
            more = Parameter(empty((1, 1, embed_dim), dtype=dtype, device=device)) if add_bias_kv else None
            self.register_parameter(name, more)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, and set the biases of projections to zero."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        for more in (self.bias_k, self.bias_v):
            if more is not None:
                init.xavier_normal_(more)
        self.out_proj.reset_parameters()
        for b in (self.in_proj_bias, self.out_proj.bias):
            if b is not None:
                init.zeros_(b)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None, average_attn_weights: bool = True,
        is_causal: bool = False, *, cache: KeyValueCache | None = None,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Return the result and the attention weights.

        Raises ValueError for shapes that do not agree, and TypeError for masks that are neither bool nor floats.

        Parameters
        ----------
        query, key, value : Tensor
            ``(L, N, E)``, ``(S, N, kdim)`` and ``(S, N, vdim)``, or with `batch_first` ``(N, L, E)`` and so on; without
            a batch ``(L, E)`` and so on.
        key_padding_mask : Tensor, optional
            ``(N, S)``, or ``(S,)`` without a batch: true for keys that no query sees; or floats, which are added to the
            scores. What is not finite where it is true counts as 0, in `key` and `value`, and in `query` if that is
            `key`: it has no influence on any other position, nor on any gradient.
        need_weights : bool
            False saves the memory of the weights, and time; the second result is then None.
        attn_mask : Tensor, optional
            ``(L, S)`` or ``(N h, L, S)``: true where a query does not see a key (in contrast to
            `scaled_dot_product_attention`, as in PyTorch); or floats, which are added to the scores. A float of
            ``-inf`` hides a key too. The result of a query that sees no key is b_O.
        average_attn_weights : bool
            Whether the weights are ``(N, L, S)``, their mean over the heads, instead of ``(N, h, L, S)``. The keys of
            `add_bias_kv` and `add_zero_attn` come last, and S counts them here.
        is_causal : bool
            Query i sees the keys up to i only; with an `attn_mask`, only the ones that it shows.
        cache : KeyValueCache, optional
            What earlier calls have computed of the same sequences: this call continues them, S is the number of all
            steps, and query i has the position ``S - L + i``.
        """
        for x in (query, key, value):
            if not isinstance(x, Tensor):
                raise TypeError(f"[{NAME}] expected a tensor, got {kind_of(x)}")
        batched = query.ndim == 3
        if query.ndim not in (2, 3) or key.ndim != query.ndim or value.ndim != query.ndim:
            raise ValueError(
                f"[{NAME}] expected query, key and value of two axes, or three with a batch, got {query.shape}, "
                f"{key.shape} and {value.shape}"
            )
        axis = 0 if self.batch_first or not batched else 1
        if batched and not query.shape[axis] == key.shape[axis] == value.shape[axis]:
            raise ValueError(
                f"[{NAME}] expected one batch size along axis {axis}, got query {query.shape}, key {key.shape} "
                f"and value {value.shape}"
            )
        if key.shape[-2 if axis == 0 else 0] != value.shape[-2 if axis == 0 else 0]:
            raise ValueError(f"[{NAME}] expected as many keys as values, got {key.shape} and {value.shape}")
        earlier = 0 if cache is None else cache.steps(self)
        query, key, value = remove_padding((query, key, value), key_padding_mask, axis, earlier)
        q, k, v = (self._split_heads(x, axis, batched) for x in self._project(query, key, value))
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary is not None:
            q, k = rotate(q, earlier, self.rotary), rotate(k, earlier, self.rotary)
        more = (self.bias_k is not None) + self.add_zero_attn
        mask, causal = combine_masks(attn_mask, key_padding_mask, q, earlier + k.shape[2], is_causal, earlier, more)
        if cache is not None:
            k, v = cache.extend(self, k, v)
        if more:
            k, v = self._append_more(k, self.bias_k), self._append_more(v, self.bias_v)
        dropout = self.dropout if self.training else 0.0
        weights = None
        if need_weights:  # the result for values that pick out one key each
            each = eye(k.shape[2], dtype=k.dtype, device=k.device)
            weights = scaled_dot_product_attention(q, k, each, mask, dropout, causal)
            y = weigh(weights, v, mask, causal)
            weights = weights.mean(1) if average_attn_weights else weights
            weights = weights if batched else weights[0]
        else:
            y = scaled_dot_product_attention(q, k, v, mask, dropout, causal)
        y = y.moveaxis(1, 2)
        y = self.out_proj(y.reshape(*y.shape[:2], self.embed_dim))
        return (y[0] if not batched else y if axis == 0 else y.moveaxis(0, 1)), weights

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        """Return the projections of query, key and value."""
        bias = self.in_proj_bias
        if self.in_proj_weight is not None:
            if query is key and key is value:
                return split(F.linear(query, self.in_proj_weight, bias), 3, axis=-1)
            weights = split(self.in_proj_weight, 3)
        else:
            weights = [w for w in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if w is not None]
        biases = [None] * 3 if bias is None else split(bias, 3)
        return [F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]

    def _split_heads(self, x: Tensor, axis: int, batched: bool) -> Tensor:
        """Return a projection as ``(N, h, length, E/h)``."""
        x = x if batched else x[None]
        heads = x.reshape(*x.shape[:2], self.num_heads, self.head_dim)
        return heads.permute_dims((0, 2, 1, 3) if axis == 0 else (1, 2, 0, 3))

    def _append_more(self, x: Tensor, learned: Parameter | None) -> Tensor:
        """Return keys or values followed by those that every sequence has."""
        shape = x.shape[0], self.num_heads, 1, self.head_dim
        parts = [x] if learned is None else [x, learned.reshape(1, *shape[1:]).broadcast_to(shape)]
        if self.add_zero_attn:
            parts.append(zeros(shape, dtype=x.dtype, device=x.device))
        return concat(parts, 2)


def remove_padding(
    inputs: tuple[Tensor, Tensor, Tensor], padding: Tensor | None, axis: int, earlier: int = 0
) -> tuple[Tensor, ...]:
    """Return query, key and value with 0 in place of NaN and infinity where a mask of bools hides a key.

    Their product with a gradient of 0 would be NaN. A query that is the key is padded at the same places.
    """
    shape = inputs[1].shape[:-1] if axis == 0 else inputs[1].shape[1::-1]
    if not isinstance(padding, Tensor) or padding.dtype != "bool" or padding.ndim not in (1, 2):
        return inputs
    hidden = padding[..., earlier:]
    if hidden.shape not in (shape, shape[1:], (1, *shape)):
        return inputs  # `combine_masks` refuses them
    seen = logical_not(hidden).reshape(shape)
    seen = (seen if axis == 0 else seen.mT)[..., None]
    cleaned = {id(x): where(logical_or(seen, isfinite(x)), x, 0.0) for x in inputs[1:]}
    return tuple(cleaned.get(id(x), x) for x in inputs)


def combine_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, q: Tensor, keys: int, causal: bool, before: int,
    more: int = 0,
) -> tuple[Tensor | None, bool]:  # fmt: skip
    """Return the mask, in which true means seen, and whether query i sees the keys up to i only.

    If `causal` is given, it sees those up to `before` + i. Every query sees the `more` keys that follow.
    """
    batch, heads, queries, _ = q.shape
    masks = []
    for name, mask, shapes, shape in (
        ("attn_mask", attn_mask, [(queries, keys), (batch * heads, queries, keys)], (-1, heads, queries, keys)),
        ("key_padding_mask", key_padding_mask, [(batch, keys)] + [(keys,)] * (batch == 1), (batch, 1, 1, keys)),
    ):
        if mask is None:
            continue
        if not isinstance(mask, Tensor) or mask.dtype.kind not in "bf":
            got = mask.dtype if isinstance(mask, Tensor) else kind_of(mask)
            raise TypeError(f"[{NAME}] expected {name} to be a tensor of bool or floats, got {got}")
        if mask.shape not in shapes:
            raise ValueError(f"[{NAME}] expected {name} of shape {' or '.join(map(str, shapes))}, got {mask.shape}")
        mask = mask if mask.shape == (queries, keys) and name == "attn_mask" else mask.reshape(shape)
        masks.append(logical_not(mask) if mask.dtype == "bool" else mask)
    if causal and (before or more):
        masks.append(tril(ones((queries, keys), dtype="bool", device=q.device), before))
        causal = False
    if not masks:
        return None, causal
    shown = [mask for mask in masks if mask.dtype == "bool"]
    added = [mask for mask in masks if mask.dtype != "bool"]
    found = added[0] + added[1] if len(added) == 2 else added[0] if added else shown.pop()
    for mask in shown:
        found = logical_and(found, mask) if found.dtype == "bool" else where(mask, found.astype(q.dtype), float("-inf"))
    if more:
        seen = (ones if found.dtype == "bool" else zeros)((*found.shape[:-1], more), dtype=found.dtype, device=q.device)
        found = concat([found, seen], -1)
    return found, causal
