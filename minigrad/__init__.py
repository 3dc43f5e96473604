"""minigrad: a small, fast, tape-based autograd engine."""

import typing as _typing
from contextlib import suppress as _suppress

from minigrad import annotations as _annotations
from minigrad._version import __version__ as __version__
from minigrad.arrays.array_api import __array_api_version__ as __array_api_version__
from minigrad.arrays.array_api import __array_namespace_info__ as __array_namespace_info__
from minigrad.engine.tensor import pytorch_names as _pytorch_names
from minigrad.interop import protocols as _protocols
from minigrad.namespace import *  # noqa: F403
from minigrad import pytorch as _pytorch  # isort: skip  # it adds to classes of the namespace

with _suppress(ImportError):  # where einops is not installed
    from minigrad.interop import einops_backend as _einops_backend

_annotations.make_known()
_ON_FIRST_USE = ("convert", "data", "distributed", "learn", "linalg", "onnx", "train", "viz")

if _typing.TYPE_CHECKING:
    from minigrad import convert as convert, data as data, distributed as distributed, linalg as linalg
    from minigrad import onnx as onnx, train as train, viz as viz
    from minigrad.pytorch.functions import *  # noqa: F403

    float, double, int, long = float32, float64, int32, int64  # noqa: F405
else:
    _missing = _pytorch_names.lookup(__name__)

    def __getattr__(name: str) -> object:
        """Load modules on first use: `data` reads files in threads, `viz` draws; then look for PyTorch's names."""
        if name in _ON_FIRST_USE:
            import importlib

            return importlib.import_module(f"minigrad.{name}")
        return _missing(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_FIRST_USE})
