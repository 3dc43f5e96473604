"""Loading a state into a module: which value belongs to which parameter or buffer, and whether all of them fit."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from minigrad.arrays.foreign import as_tensor
from minigrad.engine.memory.dtype import DType
from minigrad.engine.memory.overlap import is_broadcast, memory_span
from minigrad.engine.memory.refusals import kind_of
from minigrad.engine.tensor.tensor import Tensor
from minigrad.nn.registry import Registry, join


class IncompatibleKeys(NamedTuple):
    """The keys that `Module.load_state_dict` could not match."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_state(
    module: Registry, own: Mapping[str, Tensor], state_dict: Mapping[str, Any], strict: bool
) -> IncompatibleKeys:
    """Copy values into `own`, the state of a module, all or nothing; see `Module.load_state_dict`."""
    kind = type(module).__name__
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"[{kind}] expected a state_dict, a mapping of names to tensors, got {kind_of(state_dict)}")
    given = _translate_names(module, state_dict)
    values = {name: _convert(name, value) for name, value in given.items() if name in own}
    missing = _find_missing(module, own, values)
    unexpected = [str(name) for name in given if name not in own]
    reshaped = [
        f"{name}, expected {own[name].shape}, got {value.shape}{_hint_at_transpose(own[name].shape, value.shape)}"
        for name, value in values.items()
        if value.shape != own[name].shape
    ]
    retyped = [
        f"{name}, expected {own[name].dtype}, got {value.dtype}"
        for name, value in values.items()
        if value.dtype.kind == "f" and own[name].dtype.kind != "f"
    ]
    unfit = [
        f"{name}, expected {own[name].dtype}, got {value.dtype} that it cannot hold"
        for name, value in values.items()
        if value.dtype.kind != "f" and not _can_hold(own[name].dtype, value)
    ]
    broadcast = [
        f"{name} of shape {own[name].shape}, whose elements share memory" for name in values if is_broadcast(own[name])
    ]
    faults = {"other shape": reshaped, "other dtype": retyped, "other values": unfit, "broadcast": broadcast}
    if strict:
        faults = {"missing": missing, "unexpected": unexpected, **faults}
    if any(faults.values()):
        lines = [f"\n  {fault}: {'; '.join(names)}" for fault, names in faults.items() if names]
        hint = _hint_at_prefix(own, given) if strict and missing else ""
        raise ValueError(f"[{kind}] this state_dict does not fit:{''.join(lines)}{hint}")
    for name in _find_sharing(values, [own[name] for name in values]):
        values[name] = values[name].copy()
    for name, value in values.items():
        own[name].copy_(value.to(own[name].device))
    return IncompatibleKeys(missing, unexpected)


def _translate_names(module: Registry, state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The state with the module's names in the place of PyTorch's, where these differ."""
    ours = {
        join(place, other): join(place, name)
        for place, part in module._places("")
        for other, name in part._other_names().items()
    }
    return {
        ours[name] if name in ours and ours[name] not in state_dict else name: value
        for name, value in state_dict.items()
    }


def _find_missing(module: Registry, own: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> list[str]:
    """The names without a value, except for shared tensors with a value under another name, and optional counters."""
    members = dict(module._state(""))
    filled = {id(members[name]) for name in values if name in members}
    optional = {join(place, name) for place, part in module._places("") for name in part._optional}
    return [
        name for name in own if not (name in values or name in optional or id(members.get(name)) in filled)
    ]  # fmt: skip


def _convert(name: str, value: Any) -> Tensor:
    try:
        return as_tensor(value)
    except (TypeError, ValueError, BufferError) as error:
        raise TypeError(f"[load_state_dict] {name}: {error}") from error


def _hint_at_prefix(own: Mapping[str, Tensor], given: Mapping[str, Any]) -> str:
    """Say how to load a state that is a part of the one given, all of whose names begin with that of the part."""
    first = next(iter(own))
    prefixes = [name[: -len(first)] for name in given if isinstance(name, str) and name.endswith(f".{first}")]
    prefix = next((prefix for prefix in prefixes if all(prefix + name in given for name in own)), "")
    if not prefix:
        return ""
    part = f"{{k[{len(prefix)}:]: x for k, x in state.items() if k.startswith({prefix!r})}}"
    checkpoint = f", or mg.load_checkpoint(path, {prefix[:-1]}=model)" if "." not in prefix[:-1] else ""
    return f"\n  its names begin with {prefix!r}: load {part}{checkpoint}"


def _hint_at_transpose(expected: tuple[int, ...], found: tuple[int, ...]) -> str:
    """Say how to transpose a kernel of another library, whose inputs and outputs are its last two axes."""
    if len(expected) < 2 or found != (*expected[2:], expected[1], expected[0]):
        return ""
    last = len(expected) - 1
    axes = (last, last - 1, *range(last - 1))
    return f": transposed, {'.T' if last == 1 else f'.transpose{axes}'} fits"


def _can_hold(dtype: DType, value: Tensor) -> bool:
    """Whether a dtype can hold all of these integers or bools."""
    return dtype.kind == "f" or dtype == value.dtype or bool((value.to(dtype).to(value.dtype) == value).all())


def _find_sharing(values: Mapping[str, Tensor], targets: Sequence[Tensor]) -> list[str]:
    """Return the names of the values whose memory span overlaps the span of any target."""
    spans = [memory_span(target) for target in targets if target.size]
    firsts, lasts = sorted(first for first, _ in spans), sorted(last for _, last in spans)
    found = []
    for name, value in values.items():
        if value.size:
            first, last = memory_span(value)
            if bisect_left(firsts, last) > bisect_right(lasts, first):  # more begin before its end than end before it
                found.append(name)
    return found
