"""What einops asks of a library about its tensors, registered as soon as both are imported, in either order.

Importing this module does not import einops: if that comes later, a finder at the front of ``sys.meta_path`` sees it.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_backend: type | None = None


class _Finder(importlib.abc.MetaPathFinder):
    """Find einops as all other finders do, once, and register the backend after it has run."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "einops":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)
        else:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Load einops as its own loader does, then register the backend."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self.loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        register()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def register() -> None:
    """Define the backend, which einops finds among the subclasses of its own: these are known by weak references."""
    global _backend
    from einops._backends import AbstractBackend

    import minigrad as mg

    class Backend(AbstractBackend):
        framework_name = "minigrad"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, mg.Tensor)

        def from_numpy(self, x: Any) -> mg.Tensor:
            return mg.asarray(x)

        def to_numpy(self, x: mg.Tensor) -> Any:
            return x.detach().to("cpu").numpy()

        def arange(self, start: int, stop: int) -> mg.Tensor:
            return mg.arange(start, stop)

        def stack_on_zeroth_dimension(self, tensors: Sequence[mg.Tensor]) -> mg.Tensor:
            return mg.stack(tensors)

        def add_axis(self, x: mg.Tensor, new_position: int) -> mg.Tensor:
            return mg.expand_dims(x, new_position)

        def tile(self, x: mg.Tensor, repeats: Sequence[int]) -> mg.Tensor:
            return mg.tile(x, tuple(repeats))

        def concat(self, tensors: Sequence[mg.Tensor], axis: int) -> mg.Tensor:
            return mg.concat(tensors, axis)

        def is_float_type(self, x: mg.Tensor) -> bool:
            return x.dtype.kind == "f"

        def einsum(self, pattern: str, *x: mg.Tensor) -> mg.Tensor:
            return mg.einsum(pattern, *x)

    _backend = Backend


if "einops" in sys.modules:
    register()
else:
    sys.meta_path.insert(0, _Finder())
