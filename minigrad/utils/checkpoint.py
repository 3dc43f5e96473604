"""PyTorch's place of gradient checkpointing, which is `minigrad.recompute` here: its names say so."""

import typing

from minigrad.engine.tensor.pytorch_names import lookup

if not typing.TYPE_CHECKING:

    def __getattr__(name: str) -> typing.Any:
        try:
            return lookup(__name__)(name)
        except AttributeError as error:
            if name.startswith("_"):
                raise
            raise ImportError(str(error), name=__name__) from None  # ``from ... import`` shows this message
