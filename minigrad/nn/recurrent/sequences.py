"""The base of recurrent layers: stacks of layers in one or both directions, over sequences of any lengths."""

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

from minigrad.arrays.creation import arange, zeros
from minigrad.engine.memory.dtype import DTypeLike
from minigrad.engine.memory.listener import note_composed
from minigrad.engine.ops.arguments import integer, number
from minigrad.engine.ops.join import concat, split, stack, unstack
from minigrad.engine.ops.logic import where
from minigrad.engine.ops.recurrent import GATES, Cell, gate, projected, recurrent
from minigrad.engine.ops.recurrent import Lengths as CheckedLengths
from minigrad.engine.ops.slices import flip
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn import functional as F
from minigrad.nn.norm.batch_norm import RecurrentBatchNorm1d
from minigrad.nn.recurrent.recurrence import Recurrent

Lengths: TypeAlias = Tensor | Sequence[int]


class Sequences(Recurrent):
    """Base class of stacked layers in one or both directions."""

    max_length: int | None = None

    def _set_max_length(self, max_length: int | None) -> None:
        self.max_length = None if max_length is None else integer(self.name, "max_length", max_length, 1)
        if (max_length is not None) != (self.norm == "batch"):
            raise ValueError(f"[{self.name}] expected max_length only with norm='batch', which requires it, "
                             f"got {max_length} and norm={self.norm!r}")  # fmt: skip

    def _finish(
        self, num_layers: int, batch_first: bool, dropout: float, bidirectional: bool,
        device: str | None, dtype: DTypeLike,
    ) -> None:  # fmt: skip
        self.num_layers = num_layers = integer(self.name, "num_layers", num_layers, 1)
        self.dropout = number(self.name, "dropout", dropout, 0, 1)
        if self.dropout and num_layers == 1:
            warnings.warn(
                f"[{self.name}] dropout={self.dropout} has no effect with one layer: it drops elements between layers",
                stacklevel=3,
            )
        self.batch_first = self._flag("batch_first", batch_first)
        self.bidirectional = self._flag("bidirectional", bidirectional)
        for layer in range(num_layers):
            width = self.input_size if layer == 0 else self.hidden_size * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                self._add_layer(suffix, width, device, dtype)
        self.reset_parameters()

    def _add_layer(self, suffix: str, input_size: int, device: str | None, dtype: DTypeLike) -> None:
        super()._add_layer(suffix, input_size, device, dtype)
        for name, (features, bias) in self._batch_norms().items():
            assert self.max_length is not None
            norm = RecurrentBatchNorm1d(features, self.max_length, self.eps, bias=bias, device=device, dtype=dtype)
            self.register_module(name + suffix, norm)

    def _batch_norms(self) -> dict[str, tuple[int, bool]]:
        """Return the features of each batch norm of one layer in one direction, and whether it has a bias."""
        if self.norm != "batch":
            return {}
        columns = GATES[self.kind] * self.hidden_size
        norms = {"bn_ih": (columns, False), "bn_hh": (columns, False)}
        return {**norms, "bn_c": (self.hidden_size, True)} if self.kind == "lstm" and self.norm_cell else norms

    def _all_suffixes(self) -> list[str]:
        return [suffix for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _suffixes(self, layer: int) -> list[str]:
        """Return the suffixes of the parameters' names in one layer, one for each direction."""
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def _run(self, x: Tensor, states: list[Tensor | None], lengths: Lengths | None) -> tuple[Tensor, list[Tensor]]:
        """Return the outputs of the last layer and the last h (for an LSTM, also c) of every layer and direction."""
        if lengths is not None and self.norm == "batch":
            raise ValueError(f"[{self.name}] expected no lengths with norm='batch', which has no statistics for them")
        self._check_input(x)
        given, size = x.shape, self.input_size
        batched = len(given) == 3
        if len(given) not in (2, 3) or given[-1] != size:
            axes = "N, T" if self.batch_first else "T, N"
            raise ValueError(f"[{self.name}] expected an input of shape ({axes}, {size}) or (T, {size}), got {given}")
        if not batched:
            x = x.expand_dims(1)
        elif self.batch_first:
            x = x.permute_dims((1, 0, 2))
        steps, batch, _ = x.shape
        if steps == 0:
            raise ValueError(f"[{self.name}] expected at least one step, got an input of shape {given}")
        checked = None
        if lengths is not None:
            if not batched:
                raise ValueError(f"[{self.name}] expected a batch with lengths, got an input of shape {given}")
            checked = CheckedLengths(lengths, steps, batch, self.name, x.device)
            alive = (arange(steps, device=x.device).expand_dims(1) < checked.values).expand_dims(2)
            x = where(alive, x, 0.0)  # padding must not affect the gradients of the weights
        one, count = (batch, self.hidden_size), self.num_layers * (2 if self.bidirectional else 1)
        starts = []  # the initial h and, for an LSTM, the initial c, of each layer and direction
        for state in states:
            if state is None:
                starts.append([zeros(one, dtype=x.dtype, device=x.device)] * count)
                continue
            self._check_state(state, (count, *one) if batched else (count, self.hidden_size), x)
            starts.append([state.reshape(one)] if count == 1 else list(unstack(state.reshape((count, *one)))))

        firsts, ends = zip(*starts, strict=True), []
        for layer in range(self.num_layers):
            outputs = []
            for suffix in self._suffixes(layer):
                backwards = suffix.endswith("_reverse")
                found = self._layer(_reverse(x, checked) if backwards else x, next(firsts), suffix, checked)
                outputs.append(_reverse(found[0], checked) if backwards else found[0])
                ends.append(found[1:])
            x = outputs[0] if len(outputs) == 1 else concat(outputs, axis=-1)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        if count == 1:
            finals = [end.reshape((1, *one)) for end in ends[0]]
        else:
            finals = [stack(list(end)) for end in zip(*ends, strict=True)]
        if not batched:
            return x.squeeze(1), [final.squeeze(1) for final in finals]
        return (x.permute_dims((1, 0, 2)) if self.batch_first else x), finals

    def _layer(
        self, x: Tensor, first: tuple[Tensor, ...], suffix: str, lengths: CheckedLengths | None
    ) -> tuple[Tensor, ...]:
        """Run one layer in one direction; return the outputs ``(T, N, H)`` and the last states."""
        if self.norm == "batch":
            return self._normalize_by_batch(x, first, suffix)
        h, c = first if self.kind == "lstm" else (first[0], None)
        cell, loop = self._loop(suffix)
        source = self._source(suffix, x)
        return recurrent(cell, projected(cell, *source), h, c, *loop, lengths, source)

    def _normalize_by_batch(self, x: Tensor, first: tuple[Tensor, ...], suffix: str) -> tuple[Tensor, ...]:
        """As `_layer`, composed step by step."""
        norms = {name: getattr(self, name + suffix) for name in self._batch_norms()}
        if x.shape[1] == 1 and any(norm.training for norm in norms.values()):
            raise ValueError(f"[{self.name}] expected more than one sample in training with norm='batch', got one")
        weight_ih, weight, bias = (getattr(self, name + suffix) for name in ("weight_ih", "weight_hh", "bias_ih"))
        cell, states, outputs = self._loop(suffix)[0], first, []
        for time, share in enumerate(unstack(F.linear(x, weight_ih))):
            a = norms["bn_ih"](share, time)
            states = self._batch_step(cell, a if bias is None else a + bias, weight, states, norms, time)
            outputs.append(states[0])
        found = (stack(outputs), *states)
        note_composed("recurrent_batch_norm", found, [x, *first, weight_ih, weight, bias], (cell, norms))
        return found

    def _batch_step(
        self, cell: Cell, x: Tensor, weight: Tensor, states: tuple[Tensor, ...], norms: dict[str, Any], time: int
    ) -> tuple[Tensor, ...]:
        """Return the next states, from the normalized contribution of the input."""
        if not cell.reset_after:
            x_r, x_z, x_n = split(x, 3, axis=-1)
            first, last = split(weight, [2 * self.hidden_size])
            u_r, u_z = split(norms["bn_hh"]._columns(F.linear(states[0], first), time, 0), 2, axis=-1)
            r = gate(cell, x_r + u_r)
            u_n = norms["bn_hh"]._columns(F.linear(r * states[0], last), time, 2 * self.hidden_size)
        else:
            u = norms["bn_hh"](F.linear(states[0], weight), time)
            if self.kind == "rnn":
                return ((F.tanh if self.nonlinearity == "tanh" else F.relu)(x + u),)
            if self.kind == "lstm":
                i, f, g, o = split(x + u, 4, axis=-1)
                c = gate(cell, f) * states[1] + gate(cell, i) * F.tanh(g)
                return gate(cell, o) * F.tanh(norms["bn_c"](c, time) if self.norm_cell else c), c
            (x_r, x_z, x_n), (u_r, u_z, u_n) = split(x, 3, axis=-1), split(u, 3, axis=-1)
            u_n = gate(cell, x_r + u_r) * u_n
        z, n = gate(cell, x_z + u_z), F.tanh(x_n + u_n)
        return (((1.0 - z) * states[0] + z * n if cell.swap else (1.0 - z) * n + z * states[0]),)


def _reverse(x: Tensor, lengths: CheckedLengths | None) -> Tensor:
    """Reverse x ``(T, N, ...)`` in time, each sample up to its length."""
    if lengths is None:
        return flip(x, 0)
    time = arange(x.shape[0], device=x.device).expand_dims(1)
    ends = lengths.values
    return x[where(time < ends, ends - 1 - time, time), arange(x.shape[1], device=x.device)]
