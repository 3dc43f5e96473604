"""Protocols by which other libraries ask a tensor to do their work; what answers is loaded on first use."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.engine.tensor.tensor import Extension


class Protocols:
    """Methods that every tensor inherits."""

    def __array_ufunc__(self: Any, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        from minigrad.interop.numpy_protocol import call_ufunc

        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self: Any, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any], options: dict[str, Any]
    ) -> Any:
        from minigrad.interop.numpy_protocol import call_function

        return call_function(function, types, args, options)

    def __array_namespace__(self: Any, *, api_version: str | None = None) -> Any:
        """The module ``minigrad``, as the Python array API standard asks."""
        from minigrad.arrays.array_api import namespace

        return namespace(api_version)


for _name in ("__array_ufunc__", "__array_function__", "__array_namespace__"):
    setattr(Extension, _name, vars(Protocols)[_name])
