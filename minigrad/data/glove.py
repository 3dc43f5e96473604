"""Word vectors that were trained elsewhere."""

import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from minigrad.creation import asarray
from minigrad.engine.ops.arguments import integer
from minigrad.engine.tensor import Tensor
from minigrad.saving.files import checked_path

LINE = 1 << 20  # bytes; lines of GloVe have a few thousand
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
        Lines of a word and its numbers, such as ``glove.6B.100d.txt``. A pipe is read as well, and waited for.
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
        For lines of another width than the first one, a file without lines, what is no number of float32, and two words
        for a row.
    TypeError
        For a vocabulary that is no mapping from texts to integers, and what is no path.
    MemoryError
        If there are more rows than memory can hold.

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
            elif number == 1:  # whether these are vectors at all
                _numbers(place, number, values)
    if not width:
        raise _wrong("a word and numbers", place, 1, "an empty file")
    largest = max(words, default=-1)
    try:
        matrix = np.zeros((largest + 1, width), np.float32)
    except (MemoryError, ValueError):
        raise MemoryError(f"[glove] expected rows that memory can hold, got row {largest}") from None
    for encoded, vector in found.items():
        matrix[rows[encoded]] = vector
    return Vectors(asarray(matrix), [words[row] for row in sorted(words) if _encoded(words[row]) not in found])


def _encoded(word: str) -> bytes:
    return word.encode(errors="surrogatepass")  # no line of a file in UTF-8 begins with a word that needs it


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
        with np.errstate(over="ignore"):
            vector = np.array([float(part) for part in values.split(b" ")], np.float32)
    except ValueError:
        vector = np.array([np.nan])
    if not np.isfinite(vector).all() or b"_" in values:  # Python alone writes 1_000
        raise _wrong("numbers", place, line, repr(values[:40]))
    return vector
