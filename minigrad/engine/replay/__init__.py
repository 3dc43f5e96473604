"""Computations that run again: captured steps and recomputation (sources in cext/replay/)."""
