"""The names of tensors in tables, pictures and pages."""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from minigrad.engine.memory.array import Array
from minigrad.engine.memory.refusals import kind_of


def is_module(value: Any) -> bool:
    """Whether a value is a `minigrad.nn.Module`. The engine does not import that class: without it, nothing is one."""
    nn = sys.modules.get("minigrad.nn")
    return nn is not None and isinstance(value, nn.Module)


def names_of(given: Any, caller: str) -> dict[int, str]:
    """The names of tensors by their ids: the parameters of a module by their paths, or those of a mapping.

    In a mapping, a module's key precedes the paths of its parameters. Of several names, the shortest is used. Errors
    name `caller`.
    """
    if is_module(given):
        return {id(parameter): path for path, parameter in given.named_parameters()}
    if not isinstance(given, Mapping):
        raise TypeError(f"[{caller}] expected names as a module or a mapping, got {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"[{caller}] expected names that are strings, got {name!r} of type {type(name).__name__}")
        if not isinstance(value, Array) and not is_module(value):
            raise TypeError(f"[{caller}] expected names of tensors and modules, got {kind_of(value)} for {name!r}")
    return _shortest(
        (parameter, f"{name}.{path}" if path else name)
        for name, value in given.items()
        for path, parameter in ([("", value)] if isinstance(value, Array) else value.named_parameters())
    )


def name_leaves(rows: list[dict[str, Any]], held: Mapping[int, tuple[Any, ...]], known: Mapping[int, str]) -> None:
    """Give rows of a tape the known names of their leaves; `held` is what `inspection.contents` returns."""
    for row in rows:
        row["name"] = known.get(id(held[row["sequence"]][0]), row["name"])


def names_of_variables(variables: Mapping[str, Any]) -> dict[int, str]:
    """The names of the tensors among a caller's variables, and of its modules' parameters by their paths alone."""
    found = [(name, value) for name, value in variables.items() if not name.startswith("_")]
    return _shortest(
        (parameter, path or name)
        for name, value in found
        if isinstance(value, Array) or is_module(value)
        for path, parameter in ([("", value)] if isinstance(value, Array) else value.named_parameters())
    )


def _shortest(pairs: Iterator[tuple[Any, str]]) -> dict[int, str]:
    found: dict[int, str] = {}
    for tensor, name in pairs:
        if len(name) < len(found.get(id(tensor), name + " ")):
            found[id(tensor)] = name
    return found
