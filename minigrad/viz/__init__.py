"""Seeing the tape: as a page to step through."""

from minigrad.viz.explore import Page, explore
from minigrad.viz.recording import record

__all__ = ["Page", "explore", "record"]
