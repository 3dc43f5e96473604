"""PyTorch, for test modules of which some tests compare with it; where it is missing, a test that uses it is skipped."""

import importlib

import pytest


class Missing:
    def __getattr__(self, name):
        if name.startswith("_"):  # asked by pytest, of everything in a module
            raise AttributeError(name)
        pytest.skip("could not import 'torch'")


try:
    torch = importlib.import_module("torch")
except ImportError:
    torch = Missing()
