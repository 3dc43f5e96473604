"""Checkpoints: everything an interrupted training run needs to continue to the same bits, in one safetensors file.

The `state_dict` of a part is a tree of dicts, lists, tuples, plain values and tensors. Tensors are stored as tensors,
named by their path in the tree; the tree itself is JSON in the metadata, where a tensor is {"$tensor": name}, a tuple
{"$tuple": [...]} and a dict that JSON would change {"$dict": [[key, value], ...]}.
"""

import copy
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from minigrad.arrays.foreign import as_tensor, is_array
from minigrad.engine.ops.random import get_state, set_state
from minigrad.engine.tensor.tensor import Tensor
from minigrad.saving.serialization import load, save
from minigrad.tools.files import Path

FORMAT = "minigrad checkpoint 1"


def save_checkpoint(path: Path, /, **parts: Any) -> None:
    """Write the state of a training run to one file, all or nothing.

    In a distributed run, rank 0 writes, and the other ranks go on without waiting for it.

    The state of `minigrad.random` is saved along with the parts, but other generators are not. The file is replaced
    as by `save`: whenever the process ends, killed or not, a complete checkpoint exists, the old one or the new one,
    with the permissions of the old one.

    Parameters
    ----------
    path : str or os.PathLike
    **parts
        Under any names: objects with `state_dict` and `load_state_dict` (modules, optimizers, schedules, a
        `DataLoader`, a `Tokenizer`, …), and values: None, bools, numbers, strings, tensors, arrays as for `save`, and
        lists, tuples and dicts of these.

    Raises
    ------
    TypeError
        For any other object; the message says where it is.
    ValueError
        For lists and dicts that contain themselves, integers of thousands of digits, and whatever `save` refuses.
    OSError
        If the file cannot be written, or no new file can be created in its folder. Nothing is left behind in that case.

    Examples
    --------
    Save between steps, when model, optimizer and loader agree. When restarted, this continues where it was interrupted:

    >>> import os
    >>> mg.manual_seed(0)
    >>> model = mg.nn.Sequential(mg.nn.Linear(1, 8), mg.nn.Dropout(0.1), mg.nn.Linear(8, 1))
    >>> optimizer = mg.optim.Adam(model.parameters())
    >>> x = mg.linspace(-1, 1, 12).reshape(12, 1)
    >>> loader = mg.data.DataLoader(mg.data.ArrayDataset(x, x * x), batch_size=4, shuffle=True)
    >>> parts = {"model": model, "optimizer": optimizer, "loader": loader}
    >>> losses = []
    >>> if os.path.exists("latest.safetensors"):
    ...     losses = mg.load_checkpoint("latest.safetensors", **parts)["losses"]
    >>> while loader.epoch < 3:
    ...     for inputs, targets in loader:
    ...         optimizer.zero_grad()
    ...         loss = mg.nn.functional.mse_loss(model(inputs), targets)
    ...         loss.backward()
    ...         optimizer.step()
    ...         losses.append(loss.item())
    ...         mg.save_checkpoint("latest.safetensors", **parts, losses=losses)
    >>> len(losses)
    9
    """
    tensors: dict[str, Tensor] = {}
    states = {name: part.state_dict() if _has_state(part) else part for name, part in parts.items()}
    try:
        tree = {name: _encode(name, state, tensors) for name, state in states.items()}
        content = json.dumps({"parts": tree, "random": get_state()})
    except (RecursionError, ValueError) as error:  # lists that contain themselves, integers of thousands of digits
        raise ValueError(f"[save_checkpoint] expected values that JSON can hold, got others: {error}") from error
    distributed = sys.modules.get("minigrad.distributed")  # the ranks of a run have imported it
    if distributed is None or distributed.rank() == 0:
        save(tensors, path, metadata={"format": FORMAT, "state": content})


def load_checkpoint(path: Path, /, **parts: Any) -> dict[str, Any]:
    """Restore the state that `save_checkpoint` saved, of objects and of `minigrad.random`, all or nothing.

    Parameters
    ----------
    path : str or os.PathLike
    **parts
        Objects with `state_dict` and `load_state_dict`, by the names under which they were saved, and constructed as
        they were then.

    Returns
    -------
    dict
        Everything saved under other names: the values, and the states of parts for which no object was given.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    TypeError
        For parts without `state_dict` and `load_state_dict`.
    ValueError
        For a file that is truncated, is not a checkpoint or lacks a part, and for a state that a part refuses, such as
        one of other shapes. After any error, all parts and the random numbers are as before the call.

    Examples
    --------
    >>> model = mg.nn.Linear(2, 1)
    >>> mg.save_checkpoint("model.safetensors", model=model, epoch=3, best=0.5)
    >>> mg.load_checkpoint("model.safetensors", model=model)
    {'epoch': 3, 'best': 0.5}
    >>> mg.load_checkpoint("model.safetensors", model=mg.nn.Linear(3, 1))
    Traceback (most recent call last):
        ...
    ValueError: [load_checkpoint] model.safetensors: model: [Linear] this state_dict does not fit:
      other shape: weight, expected (1, 3), got (1, 2)
    """
    for name, part in parts.items():
        if not _has_state(part):
            raise TypeError(
                f"[load_checkpoint] expected objects with state_dict and load_state_dict, got {type(part).__name__} "
                f"for {name!r}"
            )
    states, random = _read(path)
    absent = [name for name in parts if name not in states]
    if absent:
        raise ValueError(f"[load_checkpoint] {os.fspath(path)}: expected {', '.join(absent)}, got {', '.join(states)}")
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    random_before = get_state()
    name = "random"
    try:
        set_state(random)
        for name, part in parts.items():
            part.load_state_dict(states[name])
    except BaseException as error:
        for done, state in before.items():
            parts[done].load_state_dict(state)
        set_state(random_before)
        if not isinstance(error, Exception):
            raise
        raise ValueError(f"[load_checkpoint] {os.fspath(path)}: {name}: {error}") from error
    return {name: state for name, state in states.items() if name not in parts}


def _has_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict") and not isinstance(part, type)


def _encode(place: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the value as JSON can represent it; its tensors are added to `tensors`, named by their place."""
    if is_array(value) and not isinstance(value, np.generic):
        try:
            value = as_tensor(value)
        except (TypeError, ValueError, BufferError) as error:
            raise TypeError(f"[save_checkpoint] {place}: {error}") from error
        while place in tensors:  # the key "a.b" and the keys "a", "b" give the same place
            place += "'"
        tensors[place] = value
        return {"$tensor": place}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _encode(place, value.item(), tensors)
    if isinstance(value, list | tuple):
        items = [_encode(f"{place}.{k}", item, tensors) for k, item in enumerate(value)]
        return items if isinstance(value, list) else {"$tuple": items}
    if isinstance(value, Mapping):
        pairs = [(key, _encode(f"{place}.{key}", item, tensors)) for key, item in value.items()]
        if all(isinstance(key, str) and key[:1] != "$" for key, _ in pairs):
            return dict(pairs)
        return {"$dict": [[_encode(place, key, tensors), item] for key, item in pairs]}
    raise TypeError(
        f"[save_checkpoint] expected numbers, strings, tensors, and lists, tuples and dicts of these, got "
        f"{type(value).__name__} at {place}"
    )


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    if "$tensor" in value:
        return tensors[value["$tensor"]]
    if "$tuple" in value:
        return tuple(_decode(value["$tuple"], tensors))
    if "$dict" in value:
        return {_decode(key, tensors): _decode(item, tensors) for key, item in value["$dict"]}
    return {key: _decode(item, tensors) for key, item in value.items()}


def _read(path: Path) -> tuple[dict[str, Any], Any]:
    """Return the parts and the state of the random numbers."""
    tensors, metadata = load(path, metadata=True)
    place = f"[load_checkpoint] {os.fspath(path)}"
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{place}: expected the format {FORMAT!r}, got {metadata.get('format')!r}: try load")
    try:
        content = json.loads(metadata["state"])
        parts = {name: _decode(part, tensors) for name, part in content["parts"].items()}
        return parts, content["random"]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ValueError(f"{place}: expected a checkpoint, got a damaged one: {error!r}") from error
