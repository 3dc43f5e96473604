"""What the recording scripts share: inputs, weights, and the file that each of them writes."""

import importlib.metadata
import json
import zlib
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "recorded"


def draw(name, *shape):
    """Return numbers that depend on the name alone: multiples of 1/64, which float32 holds and files compress."""
    normal = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(shape)
    return np.round(normal * 64) / 64


CONSTANT_ROW = 1
INPUTS = {
    "rows": draw("rows", 4, 6),
    "more_rows": draw("more rows", 4, 6),
    "one_row": draw("one row", 1, 6),
    "far_rows": 4096 + draw("far rows", 4, 64),
    "images": draw("images", 3, 6, 5, 4),  # N, H, W, C
    "indices": np.array([[1, 3, 2], [0, 0, 4]]),
    "sequences": draw("sequences", 3, 5, 4),  # N, T, C
    "lengths": np.array([5, 2, 3]),
    "words": np.array([[4, 2, 1, 3, 2], [3, 1, 0, 0, 0], [2, 2, 4, 0, 0]]),  # 0 is padding
    "logits": draw("logits", 5, 4),
    "labels": np.array([2, 0, 3, 1, 0]),
    "class_weights": np.array([1.0, 0.5, 2.0, 0.25]),
    "probabilities": np.array([0.0, 0.25, 0.5, 1.0]),
    "truth": np.array([1.0, 0.0, 1.0, 1.0]),
    # True is "may attend"; the second query of the second sequence may attend to nothing
    "mask": np.array([np.tri(5), np.tri(5) * [[1], [0], [1], [1], [1]], np.ones((5, 5))]).astype(bool),
    "start": draw("start", 6),
    "gradients": draw("gradients", 20, 6) * np.array([1, 1, 1, 1e-4, 1e-6, 0]),
    "rates": np.array([0.1] * 8 + [0.01] * 12),
}
INPUTS["rows"][CONSTANT_ROW] = 0.75
STEPS, RATE = 2, 0.125
MATRIX = 2, 3  # the shape of parameters of optimizers for matrices


def weight(path, shape):
    """Return the weights of one parameter, or a running statistic of before training."""
    values = draw(path, *shape) / 2
    return abs(values) + 0.5 if "var" in path else values


def drawn(case, name, shape):
    """Return float32 weights of a large layer, which are drawn again where they are needed instead of recorded."""
    rest = [n for n in shape if n > 1][1:]
    values = np.random.default_rng(zlib.crc32(f"{case} {name}".encode())).standard_normal(tuple(shape))
    return (values / np.sqrt(np.prod(rest) * 4)).astype(np.float32)


# The inputs of the networks that examples/trained ports.
FRAMES = draw("frames", 5, 576).astype(np.float32)
STATES = {name: draw(f"state {name}", 1, 1, 128).astype(np.float32) for name in "hc"}
BYTES = (draw("bytes", 3, 2048) * 64).astype(np.int32) % 257
SOUNDS = np.array([2, 17, 5, 40, 9])


class Recorder:
    """Collects arrays by case, and writes them to one file, with the versions of the packages."""

    def __init__(self, name, *packages):
        self.name, self.found = name, {}
        self.versions = {package: importlib.metadata.version(package) for package in packages}

    def add(self, case, **arrays):
        """Add the arrays of a case; a dict becomes one entry for each key."""
        for name, value in arrays.items():
            if isinstance(value, dict):
                self.add(f"{case}/{name}", **value)
            else:
                self.found[f"{case}/{name}"] = np.asarray(value)

    def write(self):
        """Write the file beside the tests."""
        write(self.name, self.found, self.versions)
        size = (FOLDER / f"{self.name}.npz").stat().st_size
        print(f"{self.name}: {len(self.found)} arrays, {size} bytes, {self.versions}")


def write(name, arrays, versions):
    """Write arrays side by side as the bytes of one, since each entry of an npz takes as much as 40 numbers."""
    FOLDER.mkdir(exist_ok=True)
    index = {key: [str(value.dtype), value.shape] for key, value in arrays.items()}
    data = np.frombuffer(b"".join(value.tobytes() for value in arrays.values()), np.uint8)
    np.savez_compressed(FOLDER / f"{name}.npz", index=json.dumps(index), versions=json.dumps(versions), data=data)


def flat(tree, prefix=""):
    """Return the arrays of nested dicts by their paths, joined by dots."""
    if not hasattr(tree, "items"):
        return {prefix: np.asarray(tree)}
    found = {}
    for name, value in tree.items():
        found.update(flat(value, f"{prefix}.{name}" if prefix else str(name)))
    return found


if __name__ == "__main__":
    write("inputs", INPUTS, {"numpy": np.__version__})
