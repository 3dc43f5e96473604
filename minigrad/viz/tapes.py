"""Tapes that can be shown: those that exist and are whole."""

from typing import Any

from minigrad.engine.tape.inspection import entries
from minigrad.engine.tape.node import GradientError
from minigrad.engine.tensor.tensor import Tensor


def entries_of(y: Tensor, caller: str) -> list[dict[str, Any]]:
    """Return a tensor's tape, see `inspection.entries`; a GradientError in the name of `caller` if it is not whole.

    Otherwise, what remains of a tape whose beginning was freed would look like the whole tape.
    """
    rows = entries(y)
    if not rows:
        raise GradientError(
            f"[{caller}] expected a tensor that depends on something that requires grad, got one of shape {y.shape}"
        )
    freed = next((row for row in rows if row["freed"]), None)
    if freed is None:
        return rows
    if freed["op"] == "leaf":
        raise GradientError(
            f"[{caller}] expected a tape of leaves as they are, got one in which a leaf of shape {freed['shape']} "
            f"became another tensor (by set_, or by its module's to): run the forward pass again"
        )
    raise GradientError(
        f"[{caller}] expected a tape that is whole, got one that a backward pass freed from {freed['op']} on: call "
        f"{caller} before that, or pass retain_graph=True to it"
    )
