"""PyTorch's place of data loading, `minigrad.utils.data`, and of gradient checkpointing."""

import typing as _typing

from minigrad.engine.tensor.pytorch_names import lookup as _lookup
from minigrad.utils import checkpoint, data

if not _typing.TYPE_CHECKING:
    __getattr__ = _lookup(__name__)
