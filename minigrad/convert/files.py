"""Weights from a file of another framework, where they can be read without it."""

import importlib
import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from os import fspath
from typing import Any
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np

from minigrad.convert.rules import Array
from minigrad.saving import load
from minigrad.tools.files import Path

# The parts of a Keras layer in the order of its weights.
PARTS = (
    "cell", "forward_layer", "backward_layer", "query_dense", "key_dense", "value_dense", "output_dense",
)  # fmt: skip


def read(name: str, path: Path) -> tuple[Any, list[dict[str, Any]]]:
    """Return the arrays of a file, and the arguments of its layers if it states them."""
    place = fspath(path)
    if name == "keras" and place.endswith(".keras") and is_zipfile(place):
        return _read_keras(place)
    if name == "keras" and place.endswith(".h5"):
        raise ValueError(f"[convert.keras] expected a file of model.save('model.keras'), got weights alone in {place}, "
                         f"which does not say the order of layers")  # fmt: skip
    if place.endswith(".npz") and is_zipfile(place):
        try:
            with np.load(place, allow_pickle=False) as file:
                return dict(file), []
        except (ValueError, BadZipFile) as error:  # objects, or cut off
            raise ValueError(f"[convert.{name}] expected arrays of numbers in {place}: {error}") from None
    with suppress(ValueError):
        return load(path), []
    return load(path, dtype="float64"), []  # floats of 16 bits, or say what the file is, and how to convert it


def _read_keras(place: str) -> tuple[list[Array], list[dict[str, Any]]]:
    try:
        h5py = importlib.import_module("h5py")
    except ImportError:
        raise ImportError(f"[convert.keras] expected the package h5py, to read {place}: pip install h5py") from None
    try:
        with ZipFile(place) as archive:
            model, content = json.loads(archive.read("config.json"))["config"], archive.read("model.weights.h5")
    except (KeyError, ValueError, BadZipFile) as error:
        raise ValueError(
            f"[convert.keras] expected a file of model.save('model.keras'), got {place}: {error}"
        ) from None
    if "layers" not in model:
        raise ValueError(f"[convert.keras] expected a Sequential or functional model in {place}, got another, of "
                         f"which a file does not say the order of layers: pass model.get_weights()")  # fmt: skip
    with h5py.File(io.BytesIO(content)) as file:
        layers = list(_layers(model, file))
    arguments = [arguments for layer, arrays in layers for arguments in _stated(layer, arrays)]
    return [array for _, arrays in layers for array in arrays], arguments


def _layers(model: Any, file: Any) -> Iterator[tuple[dict[str, Any], list[Array]]]:
    """Yield the class with its arguments, and the arrays, of each layer; a file has layers by class, numbered."""
    counts: dict[str, int] = {}
    for layer in model["layers"]:
        name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", layer["class_name"])
        name = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
        count = counts[name] = counts.get(name, -1) + 1
        part = file["layers"].get(f"{name}_{count}" if count else name, {})
        if "layers" in layer["config"]:
            yield from _layers(layer["config"], part)
        else:
            yield layer, list(_arrays(part))


def _arrays(part: Any) -> Iterator[Array]:
    own = part.get("vars", {})
    yield from (own[name][()] for name in sorted(own, key=int))
    for name in PARTS:
        if name in part:
            yield from _arrays(part[name])


def _stated(layer: dict[str, Any], arrays: list[Array]) -> list[dict[str, Any]]:
    """Return the arguments for each layer of minigrad: for both directions those of the one that is wrapped."""
    config = layer["config"]
    if "merge_mode" in config:
        backward = (config.get("backward_layer") or config["layer"])["config"]
        mode = {"merge_mode": config["merge_mode"]}
        return [{**config["layer"]["config"], **mode}, {**backward, **mode, "go_backwards": False}]
    if layer["class_name"].startswith("SeparableConv"):  # two convolutions, the second over single pixels
        return [config, {"name": config.get("name")}]
    return [config] if arrays or layer["class_name"] == "LeakyReLU" else []
