"""Visualization: the tape as a picture and as a page, training as curves."""

from minigrad.viz.curves import STYLE, curves
from minigrad.viz.explore import Page, explore
from minigrad.viz.graph import Graph, graph
from minigrad.viz.recording import record

__all__ = ["Graph", "Page", "curves", "explore", "graph", "record"]
