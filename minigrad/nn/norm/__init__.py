"""Normalization: layers, functions and compositions."""
