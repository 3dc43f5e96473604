"""Pretrained word vectors."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from minigrad.creation import asarray
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor import Tensor
from minigrad.saving.files import checked_path

LINE = 1 << 20  # bytes; GloVe's lines have a few thousand
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
    """Load the vectors of a vocabulary from a file (Pennington et al. 2014, https://nlp.stanford.edu/projects/glove/).

    Parameters
    ----------
    path : str or os.PathLike
        A file whose lines consist of a word and its numbers, such as ``glove.6B.100d.txt``. It may be a
        pipe, whose writer is waited for.
    vocabulary : mapping of str to int
        Maps each word to its own row, such as ``Tokenizer.vocabulary``.

    Returns
    -------
    Vectors
        ``(matrix, unknown)``: one row for each number up to the largest one, with zeros for words that are not in the
        file and for rows without a word, such as that of padding; and the missing words in the order of their rows.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        For lines of another width than the first one, a file without lines, values that are not float32 numbers, and
        two words for one row.
    TypeError
        If `vocabulary` is not a mapping from strings to integers, or `path` is not a path.
    MemoryError
        If there are more rows than fit in memory.

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
    rows: dict[bytes, int] = {}
    words: dict[int, str] = {}
    for text, given in vocabulary.items():
        if not isinstance(text, str):
            raise TypeError(f"[glove] expected a vocabulary from words to rows, got the word {text!r}")
        rows[_encoded(text)] = row = integer("glove", "row", given, 0)
        if words.setdefault(row, text) != text:
            raise ValueError(f"[glove] expected a row for each word, got row {row} for {words[row]!r} and {text!r}")
    place = checked_path("glove", path)
    try:
        file = open(place, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise FileNotFoundError(f"[glove] expected word vectors at {place}, got no file: unpack {SOURCE}") from None
    found: dict[bytes, np.ndarray] = {}
    width = 0
    with file:
        for number, line in enumerate(iter(lambda: file.readline(LINE + 1), b""), 1):
            if len(line) > LINE:
                raise _wrong(f"lines of at most {LINE:,} bytes", place, number, repr(line[:40]))
            word, _, values = line.rstrip().partition(b" ")
            if not values:
                raise _wrong("a word and numbers", place, number, repr(line[:40]))
            width = width or values.count(b" ") + 1
            if values.count(b" ") + 1 != width:
                word, values = _long_word(place, number, word, values, width)
            if word in rows and word not in found:
                found[word] = _numbers(place, number, values)
            elif number == 1:  # checks that the file contains vectors at all
                _numbers(place, number, values)
    if not width:
        raise _wrong("a word and numbers", place, 1, "an empty file")
    largest = max(words, default=-1)
    try:
        matrix = np.zeros((largest + 1, width), np.float32)
    except (MemoryError, ValueError):
        raise MemoryError(f"[glove] expected rows that fit in memory, got row {largest}") from None
    for encoded, vector in found.items():
        matrix[rows[encoded]] = vector
    return Vectors(asarray(matrix), [words[row] for row in sorted(words) if _encoded(words[row]) not in found])


def _encoded(word: str) -> bytes:
    return word.encode(errors="surrogatepass")  # words with surrogates never match, as no UTF-8 file contains them


def _wrong(expected: str, place: str, line: int, got: object) -> ValueError:
    return ValueError(f"[glove] expected {expected} in line {line} of {place}, got {got}: unpack {SOURCE} again")


def _long_word(place: str, line: int, word: bytes, values: bytes, width: int) -> tuple[bytes, bytes]:
    """Split a line whose word contains spaces, such as ". . .": everything before the last numbers is the word."""
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
        with np.errstate(over="ignore"):
            vector = np.array([float(part) for part in values.split(b" ")], np.float32)
    except ValueError:
        vector = np.array([np.nan])
    if not np.isfinite(vector).all() or b"_" in values:  # `float` accepts 1_000
        raise _wrong("numbers", place, line, repr(values[:40]))
    return vector
