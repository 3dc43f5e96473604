"""The conversion: which arrays belong to which layer, and whether they fit its arguments."""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import isclose
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.arrays.foreign import as_tensor
from minigrad.convert.files import read
from minigrad.convert.rules import GATES, UNSTATED, Array, Rule, Slot
from minigrad.convert.tables import Framework
from minigrad.nn.recurrent.cell import GRUCell, LSTMCell, RNNCell
from minigrad.nn.registry import join

KINDS: dict[type, str] = {
    nn.Linear: "linear", nn.Conv1d: "conv", nn.Conv2d: "conv", nn.Embedding: "embedding", nn.LayerNorm: "layer_norm",
    nn.RMSNorm: "rms_norm", nn.GroupNorm: "group_norm", nn.BatchNorm1d: "batch_norm", nn.BatchNorm2d: "batch_norm",
    nn.InstanceNorm1d: "instance_norm", nn.InstanceNorm2d: "instance_norm", nn.RNN: "rnn", nn.LSTM: "lstm",
    nn.GRU: "gru", RNNCell: "rnn", LSTMCell: "lstm", GRUCell: "gru", nn.MultiheadAttention: "attention",
    nn.GELU: "gelu", nn.LeakyReLU: "leaky_relu", nn.Flatten: "flatten",
}  # fmt: skip
OF_TORCH = nn.ConvTranspose2d, nn.PReLU  # whose weights no other framework's rules know
CHANNELS = "out_channels", "num_features", "num_channels"
# What makes a module without a parameter, and what one with it.
WITHOUT = {"bias": "bias=False", "weight": "weight=False", "bias_hh": 'bias="input"', "bias_ih": "bias=False"}
WITH = {"bias": "bias=True", "weight": "weight=True", "bias_hh": "bias=True", "bias_ih": 'bias="input"'}

_NOTHING: Mapping[str, Any] = MappingProxyType({})
# What layers here leave to the code around them.
_AROUND: dict[str, Any] = {"go_backwards": False, "merge_mode": "concat"}
# What an argument is in a layer that lacks it.
_ABSENT: dict[str, Any] = {"reset_after": True, "interleaved": False, "activation": "tanh", **_AROUND}
_DUPLICATE = re.compile(r"(^|\.)\d+\.cell(_fw|_bw)?\.")  # Paddle's second names of recurrent weights
_IGNORED = re.compile(r"(^|\.)(rngs|rng)\.|(counter|hidden|num_batches_tracked|seed_generator_state)$")


class Conversion:
    """One conversion: the arrays of a framework for a module."""

    def __init__(
        self, name: str, framework: Framework, module: nn.Module, names: Mapping[str, str] = _NOTHING,
        arguments: Mapping[str, Any] = _NOTHING, channels: Mapping[str, int] = _NOTHING,
    ) -> None:  # fmt: skip
        self.name, self.framework, self.module = name, framework, module
        self.names, self.arguments, self.channels = names, arguments, channels
        self.stated: dict[str, dict[str, Any]] = {}  # by slot, the arguments in a file
        self.slots = list(self._find_slots())

    def convert(self, source: Any) -> dict[str, Array]:
        """Return the state_dict of the module that holds the arrays of the source."""
        found: dict[str, Array] = {}
        channels, flattened, self.used = 0, False, set[str]()
        if isinstance(source, str | PathLike):
            source, stated = read(self.name, source)
            places = [s.name for s in self.slots if s.kind == "leaky_relu" or any(r.entries for r in self._rules(s))]
            self.stated = dict(zip(places, stated, strict=False))
        given = self._group(source)
        for slot in self.slots:
            flattened = flattened or slot.kind == "flatten"
            rules = self.framework.rules.get(slot.kind, ())
            if not rules and slot.kind != "flatten":
                raise self._error(slot, f"a layer that {self.framework.version} has, got {type(slot.layer).__name__}")
            if not rules:
                continue
            arrays = given.get(slot.name, {})
            rule = next((rule for rule in rules if self._fits(rule, slot, arrays)), rules[0])
            self._check_arguments(rule, slot, arrays)
            converted = self._convert(rule, slot, arrays)
            if slot.kind == "linear" and self.framework.channels_last:
                converted["weight"] = self._unflatten(slot, converted["weight"], channels, flattened)
            found.update({join(slot.path, name): np.asarray(value, order="C") for name, value in converted.items()})
            if rule.entries:
                channels = next((getattr(slot.layer, name) for name in CHANNELS if hasattr(slot.layer, name)), 0)
                flattened = False
        return found

    def invert(self) -> dict[str, Array]:
        """Return the arrays of theirs for the module's state, by the slot's name and theirs, in the order of layers."""
        state = _arrays_of(self.module)
        found: dict[str, Array] = {}
        channels = 0
        for slot in self.slots:
            if slot.kind == "flatten":
                continue
            rules, own = self.framework.rules[slot.kind], self._own(slot)
            rule = next((rule for rule in rules if {*rule.entries} == {*own} and self._expresses(rule, slot)), None)
            if rule is None:
                rule = next((rule for rule in rules if {*own} < {*rule.entries}), rules[0])
                if {*own} - {*rule.entries}:
                    raise self._error(slot, f"{WITHOUT.get(sorted({*own} - {*rule.entries})[0])}, got a module without")
            self._check_arguments(rule, slot)
            pieces: dict[str, list[Array]] = {}
            for ours in rule.entries:
                if ours in own:
                    value = state[join(slot.path, own[ours])]
                    if slot.kind == "linear" and self.framework.channels_last and ours == "weight":
                        value = self._unflatten(slot, value, channels, True, back=True)
                    parts = rule.parts(ours, slot)
                    for part, piece in zip(parts, np.split(value, len(parts)), strict=True):
                        pieces.setdefault(part, []).append(rule.entries[ours][1].back(piece, slot))
            for part in rule.order or pieces:
                if part in pieces:
                    values = pieces[part]
                    whole = values[0] if len(values) == 1 else np.stack(values)
                    found[join(slot.name, part)] = np.asarray(whole, order="C")
            if rule.entries:
                channels = next((getattr(slot.layer, name) for name in CHANNELS if hasattr(slot.layer, name)), 0)
        return found

    def complete(self) -> dict[str, Array]:
        """Return the module's state with the biases of recurrent layers that it does without."""
        state = _arrays_of(self.module)
        for slot in self.slots:
            for rule in self._rules(slot):
                self._check_arguments(rule, slot)
            bias = join(slot.path, f"bias_ih{slot.suffix}")
            if slot.kind in GATES and bias in state:
                state.setdefault(bias.replace("bias_ih", "bias_hh"), np.zeros_like(state[bias]))
        return state

    # ── the module ──

    def _find_slots(self) -> Iterator[Slot]:
        inside: tuple[str, ...] = ()
        for path, layer in self.module.named_modules():
            if inside and path.startswith(inside):
                continue
            kind = KINDS.get(type(layer), "")
            own = [name for name in (*layer._parameters, *layer._buffers) if layer.__dict__[name] is not None]
            if own and not kind and not (self.name == "to_torch" and type(layer) in OF_TORCH):
                known = f"layers that {self.framework.version} has too"
                raise self._error(Slot(path, "", layer, ""), f"{known}, got {type(layer).__name__}")
            if kind in ("rnn", "lstm", "gru"):
                norm = getattr(layer, "norm", None)
                if norm is not None:
                    raise self._error(Slot(path, "", layer, kind), f"norm=None, got norm={norm!r}")
                for suffix in layer._all_suffixes() if hasattr(layer, "_all_suffixes") else [""]:
                    yield Slot(path, suffix, layer, kind)
            elif kind:
                yield Slot(path, "", layer, kind)
            if kind == "attention":
                inside = (*inside, f"{path}." if path else "")

    def _own(self, slot: Slot) -> dict[str, str]:
        """Return the names in the layer's state of the parameters and buffers of a slot, by their names in rules."""
        names = [name for name in slot.layer.state_dict() if name.endswith(slot.suffix)]
        if slot.suffix and not slot.suffix.endswith("_reverse"):
            names = [name for name in names if not name.endswith("_reverse")]
        return {name.removesuffix(slot.suffix): name for name in names if name != "num_batches_tracked"}

    # ── the source ──

    def _group(self, source: Any) -> dict[str, dict[str, Array]]:
        """Return the arrays of each slot, by their names."""
        if self.framework.ordered and isinstance(source, Mapping) and source:
            unnamed = [f"arr_{k}" for k in range(len(source))]  # np.savez(path, *model.get_weights()) names them so
            source = [source[name] for name in unnamed] if {*source} == {*unnamed} else source
        if isinstance(source, Sequence):
            if self.names:
                raise ValueError(f"[convert.{self.name}] expected names with arrays by path, got names with arrays in "
                                 f"the order of the layers, which the module has to have, too")  # fmt: skip
            return self._deal([_array(value) for value in source])
        if not isinstance(source, Mapping):
            kind = type(source).__name__
            raise TypeError(f"[convert.{self.name}] expected a mapping or a list of arrays, got {kind}")
        flat = dict(_flatten(source, ""))
        found: dict[str, dict[str, Array]] = {}
        taken: dict[str, str] = {}
        waiting = [slot for slot in self.slots if any(rule.entries for rule in self._rules(slot))]
        for certain in (True, False):
            for slot in list(waiting):
                prefix = self._choose(slot, flat, taken, certain)
                if prefix is not None:
                    waiting.remove(slot)
                    taken[slot.name] = prefix
                    found[slot.name] = self._read(slot, flat, prefix)
                    self.used.update(join(prefix, name) for name in found[slot.name])
        if waiting:
            raise self._error(waiting[0], f"arrays for a layer of kind {waiting[0].kind}, got {', '.join(flat)}: give "
                                          f"names={{{waiting[0].name!r}: the path of its arrays}}")  # fmt: skip
        extra = [name for name in flat.keys() - self.used if not (_IGNORED.search(name) or _DUPLICATE.search(name))]
        if extra:
            raise ValueError(f"[convert.{self.name}] expected no other arrays than those of the module's layers, got "
                             f"{', '.join(sorted(extra))}")  # fmt: skip
        return found

    def _rules(self, slot: Slot) -> tuple[Rule, ...]:
        return self.framework.rules.get(slot.kind, ())

    def _read(self, slot: Slot, flat: Mapping[str, Array], prefix: str) -> dict[str, Array]:
        """Return the arrays below a prefix that any form of a layer has."""
        parts = {part for rule in self._rules(slot) for ours in rule.entries for part in rule.parts(ours, slot)}
        return {part: flat[join(prefix, part)] for part in sorted(parts) if join(prefix, part) in flat}

    def _choose(self, slot: Slot, flat: Mapping[str, Array], taken: Mapping[str, str], certain: bool) -> str | None:
        """Return the prefix of the arrays for a slot: the one given, the slot's own name, or the one that fits."""
        shared = any(rule.shared for rule in self._rules(slot))
        place = slot.path if shared else slot.name
        if place in self.names or slot.name in self.names:
            return self.names.get(slot.name, self.names.get(place, "")).replace("/", ".")
        fitting = [prefix for prefix in self._prefixes(slot, flat) if self._complete(slot, flat, prefix)]
        if place in fitting or slot.path in fitting:
            return place if place in fitting else slot.path
        free = [prefix for prefix in fitting if prefix not in taken.values()]
        if certain or not free:
            return None
        if len(free) > 1 and not self.framework.ordered:
            raise self._error(slot, f"names={{{slot.name!r}: ...}}, as several have these shapes and are sorted by "
                                    f"name, got {' and '.join(free)}")  # fmt: skip
        return free[0]

    def _prefixes(self, slot: Slot, flat: Mapping[str, Array]) -> list[str]:
        found: dict[str, None] = {}
        leaves = [rule.parts(ours, slot)[0] for rule in self._rules(slot) for ours in list(rule.entries)[:1]]
        for name in flat:
            for leaf in leaves:
                if name == leaf or name.endswith(f".{leaf}"):
                    found[name[: -len(leaf)].rstrip(".")] = None
        return list(found)

    def _complete(self, slot: Slot, flat: Mapping[str, Array], prefix: str) -> bool:
        """Whether the arrays below a prefix have the names and shapes that the layer needs."""
        arrays, own = self._read(slot, flat, prefix), self._own(slot)
        for rule in self._rules(slot):
            try:
                if self._fits(rule, slot, arrays):
                    shapes = {ours: value.shape for ours, value in self._apply(rule, slot, arrays).items()}
                    first = next(iter(rule.entries))
                    if first in own and shapes[first] == slot.layer.state_dict()[own[first]].shape:
                        return True
            except (ValueError, IndexError, KeyError):  # arrays of another layer
                continue
        return False

    def _deal(self, values: list[Array]) -> dict[str, dict[str, Array]]:
        """Return the arrays of each slot, from a list in the order of the layers."""
        found: dict[str, dict[str, Array]] = {}
        rest, count = list(values), 0
        for slot in self.slots:
            rules = self._rules(slot)
            if rules and rules[0].entries:
                own = self._own(slot)
                entries = [ours for ours in rules[0].entries if ours in own]
                parts = dict.fromkeys(part for ours in entries for part in rules[0].parts(ours, slot))
                order = [part for part in rules[0].order if part in parts] or list(parts)
                found[slot.name] = dict(zip(order, rest, strict=False))
                rest, count = rest[len(order) :], count + len(order)
        if count != len(values):
            raise ValueError(
                f"[convert.{self.name}] expected {count} arrays for the layers of the module, got {len(values)}"
            )
        return found

    # ── one layer ──

    def _option(self, slot: Slot, name: str, default: Any) -> Any:
        usual = self.stated.get(slot.name, {}).get(name, self.arguments.get(name, default))
        return self.arguments.get(join(slot.path, name), usual)

    def _fits(self, rule: Rule, slot: Slot, arrays: Mapping[str, Array]) -> bool:
        """Whether the layer has this form; biases, and the weights of norms, may be missing."""
        optional = ("bias", "weight") if "norm" in slot.kind else ("bias",)
        needed = [ours for ours in rule.entries if not ours.split("_proj")[-1].strip("._").startswith(optional)]
        if not all(part in arrays for ours in needed for part in rule.parts(ours, slot)):
            return False
        try:
            return rule.fits(arrays, lambda name, usual: self._option(slot, name, usual))
        except KeyError:
            return True  # no bias tells the forms apart

    def _apply(self, rule: Rule, slot: Slot, arrays: Mapping[str, Array]) -> dict[str, Array]:
        found = {}
        for ours, (_, formula) in rule.entries.items():
            parts = rule.parts(ours, slot)
            if all(part in arrays for part in parts):
                found[ours] = np.concatenate([formula.to(arrays[part], slot) for part in parts])
        return found

    def _convert(self, rule: Rule, slot: Slot, arrays: Mapping[str, Array]) -> dict[str, Array]:
        own = self._own(slot)
        try:
            found = self._apply(rule, slot, arrays)
        except (ValueError, IndexError):  # axes that are not there
            shapes = ", ".join(f"{name} {value.shape}" for name, value in arrays.items())
            raise self._error(slot, f"arrays of a layer of kind {slot.kind}, got {shapes}") from None
        for ours in own:
            if ours not in found:
                raise self._error(slot, f"{WITHOUT.get(ours, ours)}, as the source has no {ours}, got a module with it")
        for ours, value in found.items():
            if ours not in own:
                raise self._error(slot, f"{WITH.get(ours, ours)}, as the source has {ours}, got a module without it")
            shape = slot.layer.state_dict()[own[ours]].shape
            if value.shape != shape:
                origin = self.stated.get(slot.name, {}).get("name")
                origin = f" of {origin!r}: the module has to have its layers in the model's order" if origin else ""
                raise self._error(slot, f"{ours} of shape {shape}, got {value.shape}{origin}")
        state = {own[ours]: value for ours, value in found.items()}
        if "num_batches_tracked" in slot.layer.state_dict():
            state["num_batches_tracked"] = np.array(0)
        return state

    def _unflatten(self, slot: Slot, weight: Array, before: int, flattened: bool, back: bool = False) -> Array:
        """Return the weight of a layer after a Flatten, for inputs that were flattened with the channels first."""
        channels, inputs = self.channels.get(slot.path, before), weight.shape[1]
        if channels < 2 or inputs % channels or inputs == channels:
            return weight
        if not flattened and slot.path not in self.channels:
            raise self._error(slot, f"channels={{{slot.path!r}: {channels}}} if its input is flattened from so many "
                                    f"channels, 1 if not, got neither this nor an nn.Flatten")  # fmt: skip
        first, second = (channels, inputs // channels) if back else (inputs // channels, channels)
        return weight.reshape(-1, first, second).swapaxes(1, 2).reshape(-1, inputs)

    def _expresses(self, rule: Rule, slot: Slot) -> bool:
        try:
            self._check_arguments(rule, slot)
        except ValueError:
            return False
        return True

    def _check_arguments(self, rule: Rule, slot: Slot, arrays: Mapping[str, Array] = _NOTHING) -> None:
        if slot.kind == "conv":
            self._check_padding(slot)
        for ours, (theirs, default, convert) in rule.arguments.items():
            default = default(arrays) if callable(default) else default
            value = default if theirs is None else self._option(slot, theirs, default)
            expected, got = convert(value), getattr(slot.layer, ours, _ABSENT.get(ours))
            if expected is UNSTATED:
                continue
            if not (expected == got or (isinstance(expected, float) and got and isclose(expected, got, rel_tol=1e-6))):
                source = "" if theirs is None else f" with {theirs}={value!r}"
                advice = "" if theirs is None else f", or give arguments={{{theirs!r}: ...}} if the source has another"
                shown = round(expected, 9) if isinstance(expected, float) else expected
                there = f"as in {self.framework.version}{source}"
                if ours in _AROUND:
                    raise self._error(slot, f"{theirs}={default!r}, got {value!r}: if the code around the layer does "
                                            f"that, give arguments={{{theirs!r}: {default!r}}}")  # fmt: skip
                raise self._error(slot, f"{ours}={shown!r}, {there}, got {got!r}: make the module with it{advice}")

    def _check_padding(self, slot: Slot) -> None:
        """Raise where a convolution of Keras pads otherwise; "same" is even padding only where the stride is 1."""
        layer, theirs = slot.layer, self._option(slot, "padding", None)
        even = tuple(d * (k - 1) / 2 for k, d in zip(layer.kernel_size, layer.dilation, strict=True))
        same = ["same", even] if {*layer.stride} == {1} or not any(even) else ["same"]
        known = {"same": same, "valid": ["valid", (0,) * len(even)]}
        if theirs in known and layer.padding not in known[theirs]:
            raise self._error(slot, f"padding={theirs!r}, as in the source, got {layer.padding!r}: make the module "
                                    f"with it, or give arguments={{'padding': None}} if it pads equally")  # fmt: skip

    def _error(self, slot: Slot, text: str) -> ValueError:
        return ValueError(f"[convert.{self.name}] {slot.name or type(slot.layer).__name__}: expected {text}")


def _array(value: Any) -> Array:
    return as_tensor(value).detach().to("cpu").numpy()


def _arrays_of(module: nn.Module) -> dict[str, Array]:
    return {name: _array(value) for name, value in module.state_dict().items()}


def _flatten(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Array]]:
    for key, value in tree.items():
        name = join(prefix, str(key).replace("/", ".").replace("[", ".").replace("]", "").lstrip("."))
        for collection in ("params.", "batch_stats."):
            name = name.removeprefix(collection)
        if isinstance(value, Mapping):
            yield from _flatten(value, name)
        else:
            yield name, _array(value)
