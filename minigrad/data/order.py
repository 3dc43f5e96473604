"""Random orders that depend on a seed alone."""

import numpy as np

from minigrad.engine.ops.arguments import integer


def draw_order(count: int, seed: int, epoch: int = 0) -> np.ndarray:
    """Return the numbers from 0 to count − 1 (int64) in an order that depends on the seed and the epoch alone.

    The order sorts the output of Philox (Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405), as NumPy
    guarantees that this stream never changes, but gives no such guarantee for its permutations.
    """
    keys = np.random.Philox(key=np.array([seed % 2**64, epoch], np.uint64)).random_raw(count)
    return np.argsort(keys, kind="stable").astype(np.int64, copy=False)


def split_indices(name: str, count: int, split: str, seed: int) -> np.ndarray:
    """Return which of `count` samples belong to a split: a fifth, chosen by the seed, belongs to "test"."""
    order = draw_order(count, integer(name, "seed", seed))
    return order[: count // 5] if split == "test" else order[count // 5 :]


def check_split(name: str, split: str) -> None:
    if split not in ("train", "test"):
        raise ValueError(f"[{name}] expected the split 'train' or 'test', got {split!r}")
