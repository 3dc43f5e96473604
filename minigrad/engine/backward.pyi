from collections.abc import Callable
from typing import Any

from minigrad.engine.tensor import Tensor

def differentiate(
    roots: list[Tensor],
    grads: list[Tensor | None],
    targets: list[Tensor] | None,
    retain_graph: bool,
    create_graph: bool,
    op: str = "backward",
) -> list[Any]: ...
def record_function(
    name: str,
    inputs: list[Tensor],
    outputs: list[Tensor],
    function: Callable[[Any, list[Tensor | None]], list[Tensor | None]] | None,
    saved: tuple[Tensor, ...],
) -> None: ...
def attach(saved: Tensor, node: Any, output: int) -> Tensor: ...
