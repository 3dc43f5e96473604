"""Trained networks as ONNX models, which other runtimes execute: export, and weights read back."""

import importlib
from collections.abc import Mapping
from typing import Any

from minigrad.nn.module import Module
from minigrad.tools.files import Path

__all__ = ["export", "load"]


def export(
    module: Module, example: Any, path: Path, dynamic: Mapping[str, Mapping[int, str]] | None = None, *, opset: int = 20
) -> None:
    """Write what a module computes in evaluation mode as an ONNX model.

    The module runs three times, with the example and with other values and lengths of the free axes, and the operations
    of these runs become the graph. Each is written as its ONNX operator or composed of several. Recurrent layers with a
    norm or with ``lengths`` become a Scan, so that the number of steps may be free.

    Parameters
    ----------
    module : Module
        Its mode is restored afterwards.
    example : Tensor, tuple or dict
        The arguments of a call: one, a tuple of positional ones, or a dict of named ones. Tensors and NumPy arrays are
        the inputs of the graph, named as the parameters of ``forward``; those in a tuple or list argument have numbers
        after its name. All else is fixed.
    path : str or PathLike
        The file to write.
    dynamic : dict, optional
        The free axes of each input: ``{"x": {0: "T", 1: "N"}, "lengths": {0: "N"}}``. Axes of one name have one length.
        All other lengths are those of the example.
    opset : {20, 23}
        The version of the operators; the model's IR version is 10 or 11. 23 has Attention and RMSNormalization, which
        20 composes.

    Raises
    ------
    ValueError
        For an operation that has no form in ONNX, a Python loop over a free axis, elements read by Python code and a
        write to a tensor, with the place in the source; for `dynamic` that does not fit the example.
    TypeError
        If `module` is not a Module, or the example has no tensor.
    ImportError
        If the package ``onnx`` is not installed.

    Examples
    --------
    >>> import minigrad as mg
    >>> layer = mg.nn.LSTM(3, 5, norm="layer")
    >>> example = {"x": mg.zeros((7, 2, 3)), "lengths": mg.tensor([7, 4])}
    >>> mg.onnx.export(layer, example, "lstm.onnx", {"x": {0: "T", 1: "N"}, "lengths": {0: "N"}})  # doctest: +SKIP
    """
    _needs_onnx("exporting").export(module, example, path, dynamic, opset)


def load(path: Path, module: Module) -> Module:
    """Load the weights of an ONNX model into a module of the same layers.

    The layers with weights (linear, convolutional, LSTM, GRU and RNN, layer, batch and instance normalization) are
    assigned in order: the nodes of the graph to the submodules of that kind. Gates are brought into the order of
    `minigrad.nn`.

    Parameters
    ----------
    path : str or PathLike
    module : Module
        Receives the weights.

    Returns
    -------
    Module
        The module itself.

    Raises
    ------
    ValueError
        If the model has other layers than the module, if a shape differs, or if a layer of the model computes something
        else than the module's, such as a GRU with the reset gate before the product.
    ImportError
        If the package ``onnx`` is not installed.

    Examples
    --------
    >>> import minigrad as mg
    >>> mg.onnx.load("lstm.onnx", mg.nn.LSTM(3, 5))  # doctest: +SKIP
    LSTM(3, 5)
    """
    return _needs_onnx("loading").load(path, module)


def _needs_onnx(name: str) -> Any:
    try:
        importlib.import_module("onnx")
    except ImportError:
        raise ImportError("[onnx] expected the package onnx, which is not installed: pip install onnx") from None
    return importlib.import_module(f"minigrad.onnx.{name}")
