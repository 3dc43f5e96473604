"""PyTorch's place of gradient checkpointing, which is `minigrad.recompute` here: its names say so."""

import typing

from minigrad.engine.habits import lookup

if not typing.TYPE_CHECKING:
    __getattr__ = lookup(__name__)
