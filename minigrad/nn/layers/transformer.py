"""The layers of Transformers, and stacks of them (Vaswani et al. 2017, arXiv:1706.03762)."""

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

from minigrad.arrays.creation import full, triu
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.join import split
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.container import ModuleList
from minigrad.nn.init import xavier_uniform_
from minigrad.nn.layers.attention import NORMS, KeyValueCache, MultiheadAttention, Norm, make_norm, remove_padding
from minigrad.nn.layers.dropout import Dropout
from minigrad.nn.layers.linear import Linear
from minigrad.nn.module import Module
from minigrad.nn.norm.batch_norm import BatchNorm1d
from minigrad.nn.norm.row_norms import LayerNorm, check_tensor

Activation = str | Callable[[Tensor], Tensor]


class _BatchNorm(BatchNorm1d):
    """Batch normalization of the features of ``(T, N, E)`` or ``(N, T, E)``: all steps of all samples are the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.reshape(-1, x.shape[-1])).reshape(x.shape)


def _swiglu(x: Tensor) -> Tensor:
    """silu(a) b, of the halves a and b of the features (Shazeer 2020, arXiv:2002.05202)."""
    a, b = split(x, 2, axis=-1)
    return F.silu(a) * b


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "swiglu": _swiglu}
BLOCK_NORMS = {
    **NORMS,
    "batch": lambda width, eps, bias, device, dtype: _BatchNorm(width, eps, bias=bias, device=device, dtype=dtype),
}


class _Layer(Module):
    """Base class of encoder and decoder layers: the residual branches, each with its dropout and its normalization.

    A branch f computes ``norm(x + dropout(f(x)))`` or, with `norm_first`, ``x + dropout(f(norm(x)))``.
    """

    self_attn: MultiheadAttention
    attentions: tuple[str, ...] = ("self_attn",)

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: Activation = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: str | None = None, dtype: DTypeLike = None, *,
        norm: Norm = "layer", qk_norm: Norm | None = None, rotary: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        name, attentions = type(self).__name__, self.attentions
        if not callable(activation) and activation not in ACTIVATIONS:
            raise ValueError(
                f"[{name}] expected activation {', '.join(map(repr, ACTIVATIONS))} or a function, such as "
                f"nn.functional.silu, got {activation!r}"
            )
        if norm == "batch" and len(attentions) > 1:
            raise ValueError(
                f"[{name}] expected a norm of single steps, got 'batch', whose statistics contain the steps that the "
                f"decoder is to predict"
            )
        d_model, nhead = integer(name, "d_model", d_model, 1), integer(name, "nhead", nhead, 1)
        dim_feedforward = integer(name, "dim_feedforward", dim_feedforward, 1)
        dropout = number(name, "dropout", dropout, 0, 1)
        layer_norm_eps = number(name, "layer_norm_eps", layer_norm_eps, 0)
        rotary = None if rotary is None else number(name, "rotary", rotary, 1)
        if d_model % nhead:
            raise ValueError(f"[{name}] expected nhead that divides d_model {d_model}, got {nhead}")
        branches = range(1, len(attentions) + 2)
        norms = [
            make_norm(name, "norm", norm, BLOCK_NORMS, d_model, layer_norm_eps, bias, device, dtype) for _ in branches
        ]
        for attention in attentions:
            setattr(self, attention, MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, device=device, dtype=dtype, qk_norm=qk_norm,
                rotary=rotary if attention == "self_attn" else None,
            ))  # fmt: skip
        widths = 2 if activation == "swiglu" else 1
        self.linear1 = Linear(d_model, widths * dim_feedforward, bias, device, dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, device, dtype)
        self.norm_first, self.batch_first = norm_first, batch_first
        for i in branches:
            setattr(self, f"norm{i}", norms[i - 1])
        for i in branches:
            setattr(self, f"dropout{i}", Dropout(dropout))
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def _branch(self, i: int, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        norm, dropout = getattr(self, f"norm{i}"), getattr(self, f"dropout{i}")
        if self.norm_first:
            return x + dropout(function(norm(x)))
        return norm(x + dropout(function(x)))

    def _without_padding(self, x: Tensor, padding: Tensor | None, cache: KeyValueCache | None) -> Tensor:
        check_tensor(type(self).__name__, x)
        axis = 0 if self.batch_first or x.ndim == 2 else 1
        earlier = 0 if cache is None else cache.steps(self.self_attn)
        return remove_padding((x, x, x), padding, axis, earlier)[0]

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention, then a network of two linear layers; each is added to its input and normalized.

    Parameters
    ----------
    d_model : int
        E, the width of inputs and outputs.
    nhead : int
        The number of heads, which divides E.
    dim_feedforward : int
        The width between the two linear layers.
    dropout : float
        The dropout probability: of the attention weights, between the linear layers, and after each branch.
    activation : {"relu", "gelu", "swiglu"} or callable
        "swiglu" computes silu(a) * b of two projections a and b (Shazeer 2020, arXiv:2002.05202), both rows of
        `linear1`.
    layer_norm_eps : float
        ε of the normalizations that have one.
    batch_first : bool
        Whether inputs and outputs are ``(N, T, E)`` instead of ``(T, N, E)``.
    norm_first : bool
        False: ``x = norm(x + f(x))``, as in the paper. True: ``x = x + f(norm(x))``, which trains without a warm-up of
        the learning rate (Xiong et al. 2020, arXiv:2002.04745).
    bias : bool
        Whether linear layers and normalizations have biases.
    device, dtype
        As in `Linear`.
    norm : {"layer", "rms", "dyt", "batch"} or callable
        The normalization of the branches; or a function of E that returns a module. "batch" takes the statistics over
        all steps of all samples, so that a step sees later ones, padding included.
    qk_norm, rotary : optional
        See `MultiheadAttention`.

    Examples
    --------
    >>> layer = mg.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> layer(mg.zeros((5, 10, 8)), is_causal=True).shape
    (5, 10, 8)
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False, *, cache: KeyValueCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Map ``(T, N, E)`` to the same shape; the masks and the cache are those of `MultiheadAttention`.

        Where `src_key_padding_mask` is a true bool, NaN and infinity count as 0: padding has no influence on the other
        steps, nor on any gradient of a loss of those. The result has rows for padding too, as computed from what is
        there.
        """

        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal, cache=cache)[0]

        src = self._without_padding(src, src_key_padding_mask, cache)
        return self._branch(2, self._branch(1, src, attend), self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's result, then a network of two linear layers.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As for `TransformerEncoderLayer`.
    norm, qk_norm, rotary
        As for `TransformerEncoderLayer`, without "batch"; the positions are those of the self-attention.

    Examples
    --------
    >>> layer = mg.nn.TransformerDecoderLayer(8, 2, batch_first=True)
    >>> layer(mg.zeros((5, 10, 8)), mg.zeros((5, 7, 8)), tgt_is_causal=True).shape
    (5, 10, 8)
    """

    multihead_attn: MultiheadAttention
    attentions = ("self_attn", "multihead_attn")

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False, *, cache: KeyValueCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Map `tgt` ``(T, N, E)`` to the same shape, given `memory` ``(S, N, E)``; the cache is of `tgt`.

        Padding is treated as by `TransformerEncoderLayer`.
        """

        def attend(x: Tensor) -> Tensor:
            padding = tgt_key_padding_mask
            return self.self_attn(x, x, x, padding, False, tgt_mask, is_causal=tgt_is_causal, cache=cache)[0]

        def look_up(x: Tensor) -> Tensor:
            return self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )[0]

        tgt = self._without_padding(tgt, tgt_key_padding_mask, cache)
        return self._branch(3, self._branch(2, self._branch(1, tgt, attend), look_up), self._feed_forward)


class _Stack(Module):
    """Copies of a layer, and the normalization of their result."""

    layers: ModuleList
    norm: Module | None

    def __init__(self, layer: Module, num_layers: int, norm: Module | None) -> None:
        super().__init__()
        self.num_layers = integer(type(self).__name__, "num_layers", num_layers, 0)
        self.layers = ModuleList([deepcopy(layer) for _ in range(self.num_layers)])
        self.norm = norm


class TransformerEncoder(_Stack):
    """A stack of copies of an encoder layer.

    Parameters
    ----------
    encoder_layer : Module
        Copied `num_layers` times: all copies begin with the same parameters, as in PyTorch.
    num_layers : int
    norm : Module, optional
        Applied to the result; needed after layers with `norm_first`.
    enable_nested_tensor, mask_check : bool
        PyTorch's; without effect.

    Examples
    --------
    >>> layer = mg.nn.TransformerEncoderLayer(8, 2, norm_first=True, batch_first=True)
    >>> mg.nn.TransformerEncoder(layer, 3, mg.nn.LayerNorm(8))(mg.zeros((5, 10, 8))).shape
    (5, 10, 8)
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False, *, cache: KeyValueCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Map ``(T, N, E)`` to the same shape; all layers get the same masks and the same cache."""
        options = {} if cache is None else {"cache": cache}  # a user's layer need not have one
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal, **options)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """A stack of copies of a decoder layer. Parameters are as in `TransformerEncoder`.

    Examples
    --------
    >>> layer = mg.nn.TransformerDecoderLayer(8, 2, batch_first=True)
    >>> mg.nn.TransformerDecoder(layer, 3)(mg.zeros((5, 10, 8)), mg.zeros((5, 7, 8))).shape
    (5, 10, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False, *, cache: KeyValueCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Map `tgt` ``(T, N, E)`` to the same shape, given `memory` ``(S, N, E)``; the cache is of `tgt`."""
        options = {} if cache is None else {"cache": cache}  # a user's layer need not have one
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, tgt_is_causal,
                memory_is_causal, **options,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of the source and a decoder that reads its result, each with a final LayerNorm.

    Parameters
    ----------
    d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device, dtype
        As for `TransformerEncoderLayer`. Weights of two axes or more are from `init.xavier_uniform_`.
    num_encoder_layers, num_decoder_layers : int
    custom_encoder, custom_decoder : Module, optional
        In place of `TransformerEncoder` and `TransformerDecoder`, called with the same arguments.

    Examples
    --------
    >>> model = mg.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    >>> model(mg.zeros((5, 7, 8)), mg.zeros((5, 10, 8)), tgt_is_causal=True).shape
    (5, 10, 8)
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: Activation = "relu",
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: str | None = None,
        dtype: DTypeLike = None,
    ) -> None:  # fmt: skip
        super().__init__()
        num_encoder_layers = integer("Transformer", "num_encoder_layers", num_encoder_layers, 0)
        num_decoder_layers = integer("Transformer", "num_decoder_layers", num_decoder_layers, 0)
        options: Any = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias, device,
            dtype,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*options), num_encoder_layers, norm())
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*options), num_decoder_layers, norm())
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        for weight in self.parameters():
            if weight.ndim > 1:
                xavier_uniform_(weight)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        """Map `src` ``(S, N, E)`` and `tgt` ``(T, N, E)`` to ``(T, N, E)``; the masks are those of the layers."""
        memory = self.encoder(src, src_mask, src_key_padding_mask, bool(src_is_causal))
        return self.decoder(
            tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask, bool(tgt_is_causal),
            memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: str | None = None, dtype: DTypeLike = None) -> Tensor:
        """Return the causal mask ``(sz, sz)``: −inf above the diagonal, 0 elsewhere.

        Examples
        --------
        >>> mg.nn.Transformer.generate_square_subsequent_mask(2)
        tensor([[  0., -inf],
                [  0.,   0.]])
        """
        return triu(full((sz, sz), -math.inf, dtype=dtype, device=device), 1)
