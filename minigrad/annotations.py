"""The names in the annotations of compiled functions, whose modules do not import them."""

import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from minigrad.autograd.tape_table import TapeTable
from minigrad.engine.memory.dtype import DType, DTypeLike
from minigrad.engine.tape.hooks import HookHandle
from minigrad.engine.tape.node import Op
from minigrad.engine.tensor.tensor import Tensor, TensorLike

NAMES = {
    "Any": Any, "Callable": Callable, "Generator": Generator, "Iterable": Iterable, "Iterator": Iterator,
    "Literal": Literal, "Mapping": Mapping, "Self": Self, "Sequence": Sequence, "DType": DType, "DTypeLike": DTypeLike,
    "HookHandle": HookHandle, "Op": Op, "TapeTable": TapeTable, "Tensor": Tensor, "TensorLike": TensorLike,
}  # fmt: skip


def make_known() -> None:
    """Let `typing.get_type_hints` find these names in the modules that are loaded."""
    for path, module in sys.modules.items():
        if path.startswith("minigrad.engine."):
            vars(module).update({name: value for name, value in NAMES.items() if name not in vars(module)})
