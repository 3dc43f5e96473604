"""Text datasets: movie reviews, names of Unicode characters, and Python's documentation."""

import os
from pathlib import Path
from reprlib import Repr
from typing import NamedTuple

import numpy as np

from minigrad.data.order import check_split, split_indices
from minigrad.tools.files import check_path

REVIEWS = "aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/"


class Texts(NamedTuple):
    """Texts with class labels.

    Attributes
    ----------
    texts : list of str
        N texts.
    labels : numpy.ndarray
        (N,), int64.
    classes : list of str
        The names of the classes; labels are their indices.

    Examples
    --------
    >>> names = mg.data.character_names("test")
    >>> type(names) is mg.data.Texts, len(names.texts) == len(names.labels)
    (True, True)
    """

    texts: list[str]
    labels: np.ndarray
    classes: list[str]

    def __repr__(self) -> str:
        short = Repr()
        short.maxlist, short.maxstring = 3, 60
        labels = np.array2string(self.labels, separator=", ", threshold=6)
        return f"Texts(texts={short.repr(self.texts)}, labels={labels}, classes={short.repr(self.classes)})"


def imdb(folder: str | os.PathLike[str], split: str = "train") -> Texts:
    """Load movie reviews, half of them positive (Maas et al. 2011, https://ai.stanford.edu/~amaas/data/sentiment/).

    Raises FileNotFoundError if a folder is missing or has no reviews, and ValueError for a review that is not UTF-8, is
    not a regular file, or is a link to outside the folder; and for an unknown split. The classes are "neg" and "pos";
    reviews are ordered by class and file name.

    Parameters
    ----------
    folder : str or os.PathLike
        The unpacked folder ``aclImdb``: reviews are files such as ``train/pos/0_9.txt``, or links to files inside the
        folder.
    split : {"train", "test"}
        25,000 reviews each.

    Examples
    --------
    >>> import pathlib
    >>> for kind, text in (("neg", "Awful."), ("pos", "A feast.")):
    ...     path = pathlib.Path("aclImdb", "train", kind, "0_5.txt")
    ...     path.parent.mkdir(parents=True)
    ...     _ = path.write_text(text)
    >>> mg.data.imdb("aclImdb")
    Texts(texts=['Awful.', 'A feast.'], labels=[0, 1], classes=['neg', 'pos'])
    """
    check_split("imdb", split)
    top = Path(check_path("imdb", folder))
    root = os.path.realpath(top)
    classes = ["neg", "pos"]
    texts, labels = [], []
    for label, name in enumerate(classes):
        place = top / split / name
        paths = sorted(place.glob("*.txt"))
        if not paths:
            raise FileNotFoundError(
                f"[imdb] expected reviews at {place}{os.sep}*.txt, got none: unpack {REVIEWS} "
                "and pass its folder aclImdb"
            )
        for path in (place, *paths):
            leads_out = (path is place or path.is_symlink()) and not Path(os.path.realpath(path)).is_relative_to(root)
            if leads_out or not (path is place or path.is_file()):  # a pipe would wait for its writer
                raise ValueError(
                    f"[imdb] expected regular files inside {top}, got {path}, which is {os.path.realpath(path)}: "
                    f"unpack {REVIEWS} again"
                )
        for path in paths:
            try:
                texts.append(path.read_bytes().decode())
            except UnicodeDecodeError as error:
                raise ValueError(f"[imdb] expected UTF-8 at {path}, got {error}: unpack {REVIEWS} again") from error
        labels += [label] * len(paths)
    return Texts(texts, np.array(labels, np.int64), classes)


def character_names(split: str = "train", seed: int = 0) -> Texts:
    """Return the names of Unicode characters and their general categories, such as "GREEK SMALL LETTER ALPHA", "Ll".

    Names that follow a rule are left out: Hangul syllables, and names that end in the character's code point. The rest
    depends on Python's Unicode version: with Python 3.11 (Unicode 14.0), 32,647 names of 1 to 15 words in 26 classes.
    They are part of Python, so nothing has to be downloaded. Raises ValueError for an unknown split. The names are in
    random order, with words separated by spaces; the classes are the categories in alphabetical order.

    Parameters
    ----------
    split : {"train", "test"}
        A fifth, chosen at random, is held out for testing.
    seed : int
        The seed of the split. Use the same one for both splits.

    Examples
    --------
    >>> texts, labels, classes = mg.data.character_names()
    >>> k = texts.index("GREEK SMALL LETTER MU")
    >>> classes[labels[k]]
    'Ll'
    """
    import sys
    import unicodedata

    check_split("character_names", split)
    found = []
    for code in range(sys.maxunicode + 1):
        name = unicodedata.name(chr(code), "")
        if name and not name.startswith("HANGUL SYLLABLE ") and not name.endswith(f"-{code:04X}"):
            found.append((name, unicodedata.category(chr(code))))
    classes = sorted({category for _, category in found})
    number = {category: k for k, category in enumerate(classes)}
    chosen = split_indices("character_names", len(found), split, seed).tolist()
    return Texts([found[k][0] for k in chosen], np.array([number[found[k][1]] for k in chosen], np.int64), classes)


def topics() -> str:
    """Return the part of Python's documentation that is included in Python, for language models.

    It is English prose and code, about 465,000 characters with Python 3.11: the texts of `pydoc_data.topics` in the
    order of their titles, separated by empty lines.

    Examples
    --------
    >>> text = mg.data.topics()
    >>> len(text) > 300_000, "Truth Value Testing" in text
    (True, True)
    """
    from pydoc_data.topics import topics as texts

    return "\n\n".join(texts[title].strip("\n") for title in sorted(texts)) + "\n"
