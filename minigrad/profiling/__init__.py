"""Profiling: which kernels a block of code runs, how long they take and how much work they do.

`profile` is the context manager, and an `Event` its record of one kernel.
"""

from typing import TYPE_CHECKING

from minigrad.profiling.profile import profile

if TYPE_CHECKING:
    from minigrad.profiling.work import Event

__all__ = ["Event", "profile"]


def __getattr__(name: str) -> object:
    """Load `Event`, and the tables of work in its module, when first used."""
    if name == "Event":
        from minigrad.profiling.work import Event

        return Event
    raise AttributeError(f"module 'minigrad.profiling' has no attribute {name!r}")
