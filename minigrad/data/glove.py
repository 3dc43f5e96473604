"""Word vectors that were trained elsewhere."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from minigrad.creation import asarray
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor import Tensor

SOURCE = "glove.6B.zip from https://nlp.stanford.edu/projects/glove/"


class Vectors(NamedTuple):
    """Vectors for the words of a vocabulary.

    Attributes
    ----------
    matrix : Tensor
        (rows, width), float32.
    unknown : list of str
        The words that have no vector.

    Examples
    --------
    >>> import minigrad as mg
    >>> from minigrad import data, nn
    >>> vectors = data.Vectors(mg.zeros((3, 2)), ["a", "b"])
    >>> nn.Embedding.from_pretrained(vectors.matrix, padding_idx=0)
    Embedding(3, 2, padding_idx=0)
    """

    matrix: Tensor
    unknown: list[str]


def glove(path: str | os.PathLike[str], vocabulary: Mapping[str, int]) -> Vectors:
    """The vectors of a vocabulary out of a text file (Pennington et al. 2014, https://nlp.stanford.edu/projects/glove/).

    Parameters
    ----------
    path : str or os.PathLike
        Lines of a word and its numbers, such as ``glove.6B.100d.txt``.
    vocabulary : mapping of str to int
        From word to row, such as ``Tokenizer.vocabulary``; no two words to one row.

    Returns
    -------
    Vectors
        ``(matrix, unknown)``: the largest row number plus one rows, zeros for words that the file does not have and
        for rows that no word has, such as that of padding; and these words in the order of their rows.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        For lines of another width than the first one, a file without lines, what is no number, and two words for a row.
    TypeError
        For a vocabulary that is no mapping to integers.

    Examples
    --------
    >>> from minigrad import data
    >>> with open("vectors.txt", "w") as file:
    ...     _ = file.write("the 0.5 1\\ncat 2 3\\n")
    >>> matrix, unknown = data.glove("vectors.txt", {"cat": 1, "unicorn": 2})
    >>> matrix.tolist(), unknown
    ([[0.0, 0.0], [2.0, 3.0], [0.0, 0.0]], ['unicorn'])
    """
    if not isinstance(vocabulary, Mapping):
        raise TypeError(f"[glove] expected a vocabulary from words to rows, got {type(vocabulary).__name__}")
    rows = {word.encode(): integer("glove", "row", row, 0) for word, row in vocabulary.items()}
    words = {row: word for word, row in rows.items()}
    for word, row in rows.items():
        if words[row] != word:
            both = f"{word.decode()!r} and {words[row].decode()!r}"
            raise ValueError(f"[glove] expected a row for each word, got row {row} for {both}")
    try:
        file = open(path, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise FileNotFoundError(
            f"[glove] expected word vectors at {os.fspath(path)}, got no file: unpack {SOURCE}"
        ) from None
    place = os.fspath(path)
    found: dict[bytes, np.ndarray] = {}
    width = 0
    with file:
        for number, line in enumerate(file, 1):
            word, _, values = line.rstrip().partition(b" ")
            if not values:
                raise _wrong("a word and numbers", place, number, repr(line[:40]))
            width = width or values.count(b" ") + 1
            if values.count(b" ") + 1 != width:
                word, values = _long_word(place, number, word, values, width)
            if word in rows and word not in found:
                found[word] = _numbers(place, number, values)
    if not width:
        raise _wrong("a word and numbers", place, 1, "an empty file")
    matrix = np.zeros((max(rows.values(), default=-1) + 1, width), np.float32)
    for word, vector in found.items():
        matrix[rows[word]] = vector
    return Vectors(asarray(matrix), [word.decode() for word in sorted(rows, key=rows.__getitem__) if word not in found])


def _wrong(expected: str, place: str, line: int, got: object) -> ValueError:
    return ValueError(f"[glove] expected {expected} in line {line} of {place}, got {got}: unpack {SOURCE} again")


def _long_word(place: str, line: int, word: bytes, values: bytes, width: int) -> tuple[bytes, bytes]:
    """Some files have words with spaces in them, such as ". . .": what stands before the last numbers is the word."""
    parts = values.split(b" ")
    extra, numbers = parts[: max(0, len(parts) - width)], parts[max(0, len(parts) - width) :]
    if not extra or all(map(_is_number, extra)):
        raise _wrong(f"{width} numbers", place, line, len(parts))
    return b" ".join([word, *extra]), b" ".join(numbers)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(place: str, line: int, values: bytes) -> np.ndarray:
    try:
        vector = np.array([float(part) for part in values.split(b" ")], np.float32)
    except ValueError:
        vector = np.array([np.nan])
    if not np.isfinite(vector).all():
        raise _wrong("numbers", place, line, repr(values[:40]))
    return vector
