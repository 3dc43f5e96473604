"""Pretrained word vectors."""

import gzip
import os
import re
import zlib
from collections.abc import Mapping
from functools import partial
from io import BufferedReader
from typing import Any, NamedTuple

import numpy as np

from minigrad.arrays.creation import asarray
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor.tensor import Tensor
from minigrad.tools.files import check_path

LINE = 1 << 20  # bytes; GloVe's lines have a few thousand
PACKED = re.compile(rb"PK\x03\x04|BZh\d1AY|\xfd7zXZ")
CONTROL = re.compile(rb"[\0-\x08\x0e-\x1f]")  # no text has these characters
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
    >>> vectors = mg.data.Vectors(mg.zeros((3, 2)), ["a", "b"])
    >>> mg.nn.Embedding.from_pretrained(vectors.matrix, padding_idx=0)
    Embedding(3, 2, padding_idx=0)
    """

    matrix: Tensor
    unknown: list[str]


def glove(path: str | os.PathLike[str], vocabulary: Mapping[str, int]) -> Vectors:
    """Load the vectors of a vocabulary from a file (Pennington et al. 2014, https://nlp.stanford.edu/projects/glove/).

    Parameters
    ----------
    path : str or os.PathLike
        A text file whose lines consist of a word and its numbers, separated by spaces, such as ``glove.6B.100d.txt``.
        A first line of two integers is a header, as word2vec, fastText and gensim write it: the number of vectors and
        their width. The file may be compressed by gzip, and it may be a pipe, whose writer is waited for.
    vocabulary : mapping of str to int
        Maps each word to its own row, such as ``Tokenizer.vocabulary``.

    Returns
    -------
    Vectors
        ``(matrix, unknown)``: one row for each number up to the largest one, with zeros for words that are not in the
        file and for rows without a word, such as the row of padding; and the missing words in the order of their rows.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        For lines of another width than the first one, a file without lines or with another number of them than its
        header says, values that are not float32 numbers, a file that is not text, and two words for one row.
    TypeError
        If `vocabulary` is not a mapping from strings to integers, or `path` is not a path.
    MemoryError
        If there are more rows than fit in memory.

    Examples
    --------
    >>> with open("vectors.txt", "w") as file:
    ...     _ = file.write("the 0.5 1\\ncat 2 3\\n")
    >>> matrix, unknown = mg.data.glove("vectors.txt", {"cat": 1, "unicorn": 2})
    >>> matrix.tolist(), unknown
    ([[0.0, 0.0], [2.0, 3.0], [0.0, 0.0]], ['unicorn'])
    """
    rows = 1 + _check(vocabulary)
    place = check_path("glove", path)
    try:
        file = open(place, "rb")  # noqa: SIM115
    except FileNotFoundError:
        raise FileNotFoundError(f"[glove] expected word vectors at {place}, got no file: unpack {SOURCE}") from None
    with file, np.errstate(over="ignore"):
        try:
            matrix, found = _read(_unpack(place, file), _Faults(place), vocabulary, rows)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"[glove] expected a complete file, got a damaged one at {place}: {error}") from error
    if matrix.size and not (np.isfinite(matrix.min()) and np.isfinite(matrix.max())):
        word = next(word for word, row in vocabulary.items() if not np.isfinite(matrix[row]).all())
        raise ValueError(f"[glove] expected numbers that fit float32 in {place}, got others for {word!r}")
    missing = sorted((int(row), word) for word, row in vocabulary.items() if not found[row])
    return Vectors(asarray(matrix), [word for _, word in missing])


def _check(vocabulary: Mapping[str, int]) -> int:
    """Return the largest row, or -1 if there is none."""
    if not isinstance(vocabulary, Mapping):
        raise TypeError(f"[glove] expected a vocabulary from words to rows, got {type(vocabulary).__name__}")
    words: dict[int, str] = {}
    for word, given in vocabulary.items():
        if not isinstance(word, str):
            raise TypeError(f"[glove] expected a vocabulary from words to rows, got the word {word!r}")
        row = integer("glove", "row", given, 0)
        if words.setdefault(row, word) != word:
            raise ValueError(f"[glove] expected a row for each word, got row {row} for {words[row]!r} and {word!r}")
    return max(words, default=-1)


def _unpack(place: str, file: BufferedReader) -> Any:
    """Return the file itself, or a file of what gzip has compressed."""
    start = file.peek(8)[:8]
    if PACKED.match(start):
        raise ValueError(f"[glove] expected a text file, got an archive at {place}: unpack it")
    return gzip.GzipFile(fileobj=file) if start[:2] == b"\x1f\x8b" else file


class _Faults:
    """Errors that say where a file is wrong and what to do."""

    def __init__(self, place: str) -> None:
        self.place, self.header = place, False

    def at(self, number: int, line: bytes, expected: str, got: object = None) -> ValueError:
        got = repr(line[:40]) if got is None else got
        advice = "" if self.header else f": unpack {SOURCE} again"
        if CONTROL.search(line):
            advice = (
                ": if this is word2vec's binary format, gensim converts it: "
                f'KeyedVectors.load_word2vec_format({self.place!r}, binary=True).save_word2vec_format("vectors.txt")'
            )
        return ValueError(f"[glove] expected {expected} in line {number} of {self.place}, got {got}{advice}")


def _read(file: Any, faults: _Faults, vocabulary: Mapping[str, int], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrix, and for each row whether the file has a vector for it."""
    found = _zeros(rows, bool)
    matrix, width, count, seen = found, 0, -1, 0
    for number, line in enumerate(iter(partial(file.readline, LINE + 1), b""), 1):
        if len(line) > LINE:
            raise faults.at(number, line, f"lines of at most {LINE:,} bytes")
        if b"\t" in line:
            raise faults.at(number, line, "a word and numbers separated by spaces")
        word, _, values = line.rstrip().partition(b" ")
        if number == 1 and word.isdigit() and re.fullmatch(b"[1-9][0-9]{,8}", values):
            faults.header, count, width = True, int(word), int(values)
            continue
        if not (word or values):
            continue
        if not values:
            raise faults.at(number, line, "a word and numbers")
        width = width or len(values.split())
        if values.count(b" ") + 1 != width:
            word, values = _split(faults, number, line, width)
        seen += 1
        if seen == 1:  # checks that the file contains vectors at all
            _parse(faults, number, np.zeros(width, np.float32), values, strict=True)
            matrix = _zeros((rows, width), np.float32)
        text = word.decode(errors="surrogateescape")
        if text in vocabulary and not found[row := vocabulary[text]]:
            _parse(faults, number, matrix[row], values)
            found[row] = True
    if not seen:
        raise faults.at(1, b"", "a word and numbers", "an empty file")
    if count not in (-1, seen):
        raise ValueError(f"[glove] expected {count} vectors, as line 1 of {faults.place} says, got {seen}")
    return matrix, found


def _zeros(shape: Any, dtype: Any) -> np.ndarray:
    try:
        return np.zeros(shape, dtype)
    except (MemoryError, ValueError, OverflowError):
        row = np.atleast_1d(np.array(shape, object))[0] - 1
        raise MemoryError(f"[glove] expected rows that fit in memory, got row {row}") from None


def _split(faults: _Faults, number: int, line: bytes, width: int) -> tuple[bytes, bytes]:
    """Split a line with more spaces: everything before the last numbers is the word, such as ". . ."."""
    word, _, values = line.rstrip().partition(b" ")
    parts = values.split()
    extra, numbers = parts[: max(0, len(parts) - width)], parts[max(0, len(parts) - width) :]
    if len(parts) < width or (extra and all(map(_is_number, extra))):
        raise faults.at(number, line, f"{width} numbers", len(parts))
    return b" ".join([word, *extra]), b" ".join(numbers)


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse(faults: _Faults, number: int, row: np.ndarray, values: bytes, strict: bool = False) -> None:
    """Write numbers to a row; infinite ones and NaN are errors if `strict`."""
    try:
        row[:] = values.split(b" ")
        wrong = b"_" in values or b"\0" in values or (strict and not np.isfinite(row).all())
    except ValueError:
        wrong = True
    if wrong:  # `float` accepts 1_000, and NumPy ignores zero bytes
        raise faults.at(number, values, "numbers")
