"""Functions of tensors that are composed of operations."""

import sys
import types
from typing import Any


class _Called(types.ModuleType):
    """A module that says what to call, where NumPy has a function of its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise TypeError("[array] is `mg.tensor(data)` here, or `mg.asarray(data)`, which shares the memory")


sys.modules[__name__].__class__ = _Called
