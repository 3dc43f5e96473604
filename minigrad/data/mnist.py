"""MNIST, and datasets in the same file format such as Fashion-MNIST."""

import gzip
import math
import os
import zlib
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from minigrad.data.dataset import ArrayDataset
from minigrad.data.order import check_split

BLOCK = 1 << 20  # bytes
SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def mnist(folder: str | os.PathLike[str], split: str = "train") -> ArrayDataset:
    """Load 70,000 handwritten digits, 60,000 for training (LeCun, Cortes, Burges, http://yann.lecun.com/exdb/mnist/).

    Raises FileNotFoundError if a file is missing, and ValueError for a truncated or wrong file, images and labels that
    differ in number, and an unknown split. The images are (N, 28, 28), float32 from 0 to 1, and the labels (N,), int64.

    Parameters
    ----------
    folder : str or os.PathLike
        The folder of the files, compressed or not: ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``,
        ``t10k-images-idx3-ubyte``, ``t10k-labels-idx1-ubyte``, each with or without ``.gz``. The files of Fashion-MNIST
        have the same names.
    split : {"train", "test"}

    Examples
    --------
    >>> import struct
    >>> with open("t10k-images-idx3-ubyte", "wb") as file:
    ...     _ = file.write(struct.pack(">4I", 2051, 2, 28, 28) + bytes(2 * 28 * 28))
    >>> with open("t10k-labels-idx1-ubyte", "wb") as file:
    ...     _ = file.write(struct.pack(">2I", 2049, 2) + bytes([7, 2]))
    >>> images, labels = mg.data.mnist(".", "test")[:]
    >>> images.shape, labels.tolist()
    ((2, 28, 28), [7, 2])
    """
    check_split("mnist", split)
    prefix = "train" if split == "train" else "t10k"
    images_path = _find(folder, f"{prefix}-images-idx3-ubyte")
    labels_path = _find(folder, f"{prefix}-labels-idx1-ubyte")
    images, labels = _read(images_path, 3), _read(labels_path, 1)
    if images.shape[1:] != (28, 28):
        raise _wrong("images of 28 x 28 pixels", images_path, images.shape[1:])
    if len(images) != len(labels):
        raise _wrong(f"{len(images)} labels", labels_path, len(labels))
    if len(labels) and labels.max() > 9:
        raise _wrong("labels from 0 to 9", labels_path, labels.max())
    return ArrayDataset(images / np.float32(255), labels.astype(np.int64))


def _find(folder: str | os.PathLike[str], name: str) -> Path:
    """Return the path of the file of this name, compressed or not."""
    for path in (Path(folder, name), Path(folder, f"{name}.gz")):
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"[mnist] expected {name} or {name}.gz at {os.fspath(folder)}, got neither: download it from {SOURCE}"
    )


def _wrong(expected: str, path: Path, got: object) -> ValueError:
    return ValueError(f"[mnist] expected {expected} at {path}, got {got}: download the file again from {SOURCE}")


def _read(path: Path, ndim: int) -> np.ndarray:
    """Read an IDX file: 0, 0, 8 (for bytes), the number of axes; the length of each, big-endian; the values."""
    with path.open("rb") as file:
        packed = file.peek(2)[:2] == b"\x1f\x8b"  # gzip, whatever the name says
        try:
            return _values(gzip.GzipFile(fileobj=file) if packed else file, path, ndim)
        except (EOFError, OSError, zlib.error) as error:
            if not packed:
                raise
            raise _wrong("a whole gzip file", path, f"one with an error: {error}") from error


def _values(file: BufferedIOBase, path: Path, ndim: int) -> np.ndarray:
    magic = bytes([0, 0, 8, ndim])
    start = file.read(len(magic))
    if start != magic:
        raise _wrong(f"the first bytes {magic.hex(' ')}", path, start.hex(" ") or "an empty file")
    lengths = file.read(4 * ndim)
    if len(lengths) < 4 * ndim:
        raise _wrong(f"{ndim} lengths", path, f"the first {4 + len(lengths)} bytes of the file")
    shape = tuple(int.from_bytes(lengths[4 * k : 4 * k + 4], "big") for k in range(ndim))
    count = math.prod(shape)
    # Reading blocks keeps a header with a false size, or a file that decompresses to too much, from exhausting memory.
    values = bytearray()
    while len(values) <= count and (block := file.read(min(BLOCK, count + 1 - len(values)))):
        values += block
    if len(values) != count:
        got = len(values) if len(values) < count else f"{len(values)} or more"
        raise _wrong(f"{count} values for the shape {shape}", path, got)
    return np.frombuffer(values, np.uint8).reshape(shape)
