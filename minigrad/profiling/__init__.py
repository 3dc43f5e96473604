"""Profiling: which kernels a block runs, how long they take and how much work they do.

`profile` is the block, `Event` is what it notes of each kernel, and `Observer` is how a block listens to the tape.
"""

from typing import TYPE_CHECKING

from minigrad.profiling.observer import Observer
from minigrad.profiling.profile import profile

if TYPE_CHECKING:
    from minigrad.profiling.work import Event

__all__ = ["Event", "Observer", "profile"]


def __getattr__(name: str) -> object:
    """`Event` and the tables of work beside it load with the first profile."""
    if name == "Event":
        from minigrad.profiling.work import Event

        return Event
    raise AttributeError(f"module 'minigrad.profiling' has no attribute {name!r}")
