"""PyTorch's place of `minigrad.data`."""

import typing

from minigrad.data import *  # noqa: F403
from minigrad.engine.tensor.pytorch_names import lookup

if not typing.TYPE_CHECKING:
    __getattr__ = lookup("minigrad.data")
