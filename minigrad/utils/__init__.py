"""PyTorch's place of data loading: `minigrad.utils.data` has the names of `minigrad.data`."""

import typing as _typing

from minigrad.engine.habits import lookup as _lookup
from minigrad.utils import data

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
