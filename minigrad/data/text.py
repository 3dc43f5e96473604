"""Texts: film reviews, names of characters, the documentation of Python."""

import os
from pathlib import Path
from reprlib import Repr
from typing import NamedTuple

import numpy as np

from minigrad.data.order import check_split, division
from minigrad.saving.files import checked_path

REVIEWS = "aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/"


class Texts(NamedTuple):
    """Texts that belong to classes.

    Attributes
    ----------
    texts : list of str
        N of them.
    labels : numpy.ndarray
        (N,), int64.
    classes : list of str
        What the labels stand for.

    Examples
    --------
    >>> from minigrad import data
    >>> names = data.character_names("test")
    >>> type(names) is data.Texts, len(names.texts) == len(names.labels)
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
    """Film reviews, half of them friendly (Maas et al. 2011, https://ai.stanford.edu/~amaas/data/sentiment/).

    Parameters
    ----------
    folder : str or os.PathLike
        ``aclImdb``, as it comes out of the archive: reviews are files such as ``train/pos/0_9.txt``, or links to files
        inside of the folder.
    split : {"train", "test"}
        25,000 reviews each.

    Returns
    -------
    Texts
        Of classes "neg" and "pos", in the order of class and file name.

    Raises
    ------
    FileNotFoundError
        If there are no such folders, or one has no reviews.
    ValueError
        For a review that is not UTF-8, that is no regular file, or that a link leads out of the folder to; and for
        another split.

    Examples
    --------
    >>> import pathlib
    >>> from minigrad import data
    >>> for kind, text in (("neg", "Awful."), ("pos", "A feast.")):
    ...     path = pathlib.Path("aclImdb", "train", kind, "0_5.txt")
    ...     path.parent.mkdir(parents=True)
    ...     _ = path.write_text(text)
    >>> data.imdb("aclImdb")
    Texts(texts=['Awful.', 'A feast.'], labels=[0, 1], classes=['neg', 'pos'])
    """
    check_split("imdb", split)
    top = Path(checked_path("imdb", folder))
    root = os.path.realpath(top)
    classes = ["neg", "pos"]
    texts, labels = [], []
    for label, name in enumerate(classes):
        place = top / split / name
        paths = sorted(place.glob("*.txt"))
        if not paths:
            raise FileNotFoundError(
                f"[imdb] expected reviews at {place}{os.sep}*.txt, got none: unpack {REVIEWS} "
                "and name the folder aclImdb"
            )
        for path in (place, *paths):
            leads_out = (path is place or path.is_symlink()) and not Path(os.path.realpath(path)).is_relative_to(root)
            if leads_out or not (path is place or path.is_file()):  # a pipe would wait for its writer
                raise ValueError(
                    f"[imdb] expected regular files inside of {top}, got {path}, which is {os.path.realpath(path)}: "
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
    """The names of Unicode's characters and their general categories, such as "GREEK SMALL LETTER ALPHA", "Ll".

    Names that a rule forms are left out: Hangul syllables, and those that end in the character's number. What remains
    depends on the Unicode version that Python knows: 32,647 names of 1 to 15 words in 26 classes with Python 3.11
    (Unicode 14.0). Python itself brings them, so that nothing has to be loaded.

    Parameters
    ----------
    split : {"train", "test"}
        A fifth, chosen at random, is held out for testing.
    seed : int
        Of the division. Both splits have to be asked for with the same one.

    Returns
    -------
    Texts
        The names, words between spaces, in random order; classes are the categories in alphabetical order.

    Raises
    ------
    ValueError
        For another split.

    Examples
    --------
    >>> from minigrad import data
    >>> texts, labels, classes = data.character_names()
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
    chosen = division("character_names", len(found), split, seed).tolist()
    return Texts([found[k][0] for k in chosen], np.array([number[found[k][1]] for k in chosen], np.int64), classes)


def topics() -> str:
    """The part of Python's documentation that comes with Python, for models of language.

    English prose and code, about 465,000 characters with Python 3.11: the texts of `pydoc_data.topics` in the order of
    their titles, an empty line between them.

    Returns
    -------
    str

    Examples
    --------
    >>> from minigrad import data
    >>> text = data.topics()
    >>> len(text) > 300_000, "Truth Value Testing" in text
    (True, True)
    """
    from pydoc_data.topics import topics as texts

    return "\n\n".join(texts[title].strip("\n") for title in sorted(texts)) + "\n"
