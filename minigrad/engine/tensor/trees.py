"""Tensors within tuples, lists and dicts."""

from collections.abc import Callable
from typing import Any

from minigrad.engine.tensor.tensor import Tensor


def map_leaves(f: Callable[[Any], Any], tree: Any) -> Any:
    """Return the same structure of tuples, lists and dicts, with f(x) in place of everything else."""
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(f, part) for part in tree))
    if isinstance(tree, tuple | list):
        return type(tree)(map_leaves(f, part) for part in tree)
    if isinstance(tree, dict):
        return type(tree)((key, map_leaves(f, part)) for key, part in tree.items())
    return f(tree)


def map_tensors(f: Callable[[Tensor], Any], tree: Any) -> Any:
    """Return the same structure of tuples, lists and dicts, with each tensor x replaced by f(x)."""
    return map_leaves(lambda x: f(x) if isinstance(x, Tensor) else x, tree)


def leaves(tree: Any) -> list[Any]:
    """Return the contents of a structure of tuples, lists and dicts in order: tensors and all else."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, tuple | list) else [tree]
