"""Text datasets: reviews in folders, names of characters, documentation."""

import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from checks import raises, refuses

from minigrad import data


@pytest.fixture
def folder(tmp_path):
    """Make an aclImdb with two reviews of each kind, and the other files in it."""
    for split in ("train", "test"):
        for kind in ("pos", "neg", "unsup"):
            place = tmp_path / "aclImdb" / split / kind
            place.mkdir(parents=True)
            for k in range(2):
                (place / f"{k}_7.txt").write_bytes(f"{split} {kind} {k} café".encode())
        (tmp_path / "aclImdb" / split / "labeledBow.feat").write_text("0:1")
    return tmp_path / "aclImdb"


@pytest.mark.parametrize("split", ["train", "test"])
def test_imdb(folder, split):
    texts, labels, classes = data.imdb(folder, split)
    assert texts == [f"{split} {kind} {k} café" for kind in ("neg", "pos") for k in range(2)]
    assert labels.tolist() == [0, 0, 1, 1]
    assert labels.dtype == np.int64
    assert classes == ["neg", "pos"]
    assert data.imdb(str(folder), split).texts == texts


def test_imdb_that_is_not_there(folder):
    match = r"\[imdb\] expected reviews at .*got none: unpack aclImdb_v1"
    with pytest.raises(FileNotFoundError, match=match) as caught:
        data.imdb(folder.parent)
    assert str(folder.parent / "train" / "neg") in str(caught.value)
    for path in (folder / "test" / "pos").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError) as caught:
        data.imdb(folder, "test")
    assert os.path.join("test", "pos") in str(caught.value)
    refuses(ValueError, "imdb", "expected the split", data.imdb, folder, "unsup")


def test_a_review_that_is_not_utf8(folder):
    wrong = folder / "train" / "pos" / "1_7.txt"
    wrong.write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(ValueError, match=r"\[imdb\] expected UTF-8 at .*position 3") as caught:
        data.imdb(folder)
    assert str(wrong) in str(caught.value)
    assert "unpack aclImdb_v1.tar.gz" in str(caught.value)


REFUSES = """
import sys
from minigrad import data
try:
    data.imdb(sys.argv[1])
except ValueError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "kind", ["pipe", "folder", "link to a pipe", "link outside", "link to nowhere", "loop", "folder outside"]
)
def test_reviews_that_are_no_files_of_the_folder(folder, kind):
    """They are rejected rather than left out, as results on another dataset would be meaningless."""
    outside, place, review = (
        folder.parent / "secret.txt", folder / "train" / "pos", folder / "train" / "pos" / "5_7.txt",
    )  # fmt: skip
    outside.write_text("secret")
    if kind == "pipe":
        os.mkfifo(review)
    elif kind == "folder":
        review.mkdir()
    elif kind == "folder outside":
        place.rename(folder.parent / "elsewhere")
        place.symlink_to(folder.parent / "elsewhere")
    else:
        os.mkfifo(folder.parent / "pipe")
        target = {"link to a pipe": folder.parent / "pipe", "link outside": "../../../secret.txt", "loop": review}
        review.symlink_to(target.get(kind, "absent"))
    expected = place if kind == "folder outside" else review
    if "pipe" in kind:  # reading it would block
        environment = {**os.environ, "PYTHONPATH": str(Path(data.__file__).parent.parent.parent)}
        done = subprocess.run(
            [sys.executable, "-c", REFUSES, str(folder)], capture_output=True, text=True, timeout=30, env=environment
        )
        message = done.stdout
    else:
        with pytest.raises(ValueError, match="imdb") as caught:
            data.imdb(folder)
        message = str(caught.value)
    assert message.startswith(f"[imdb] expected regular files inside {folder}, got {expected}")
    assert "unpack aclImdb_v1.tar.gz" in message


def test_links_inside_the_folder(folder):
    (folder / "train" / "pos" / "5_7.txt").symlink_to("../neg/0_7.txt")
    (folder.parent / "link").symlink_to(folder)
    assert data.imdb(folder.parent / "link").texts[-1] == "train neg 0 café"


@pytest.mark.parametrize("wrong, error", [
    (3, TypeError), (None, TypeError), (["x"], TypeError), ("a\0b", ValueError), ("\ud800", ValueError),
])  # fmt: skip
def test_folders_that_are_none(wrong, error):
    raises(error, r"^\[imdb\] expected a path", data.imdb, wrong)


def test_character_names():
    train, test = data.character_names(), data.character_names("test")
    assert len(test.texts) == (len(train.texts) + len(test.texts)) // 5
    everything = dict(zip(train.texts + test.texts, [*train.labels, *test.labels], strict=True))
    assert len(everything) == len(train.texts) + len(test.texts)
    assert train.classes == test.classes == sorted(train.classes)
    for name, label in everything.items():
        assert unicodedata.category(unicodedata.lookup(name)) == train.classes[label]
    formed = ("HANGUL SYLLABLE GA", "CJK UNIFIED IDEOGRAPH-4E00")
    assert not set(formed) & everything.keys()
    assert {"LATIN SMALL LETTER A", "EURO SIGN", "SPACE"} <= everything.keys()


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the figures of the docstring are Unicode 14.0's")
def test_figures_of_character_names():
    train, test = data.character_names(), data.character_names("test")
    texts = train.texts + test.texts
    assert len(texts) == 32647
    assert {len(text.split()) for text in texts} == {*range(1, 14), 15}
    assert len(train.classes) == 26


def test_the_division_of_names_follows_from_the_seed():
    first, again, other = (data.character_names("test", seed=seed) for seed in (0, 0, 1))
    assert first.texts == again.texts != other.texts
    assert set(first.texts) | set(data.character_names("train").texts) == set(other.texts) | set(
        data.character_names("train", 1).texts
    )


def test_a_repr_shows_the_beginning():
    """It shows some texts and their number, not 800,000 characters."""
    shown = repr(data.character_names())
    assert len(shown) < 500
    assert shown.startswith("Texts(texts=['")
    assert shown.endswith("...])")
    two = data.Texts(["a", "b"], np.array([1, 0]), ["x", "y"])
    assert repr(two) == "Texts(texts=['a', 'b'], labels=[1, 0], classes=['x', 'y'])"


@pytest.mark.parametrize("load", [data.character_names, data.digits])
def test_seeds_are_integers(load):
    for seed in (1.5, "x"):
        refuses(TypeError, load.__name__, f"expected an integer seed, got {seed!r}", load, seed=seed)


def test_topics():
    from pydoc_data.topics import topics

    text = data.topics()
    assert all(part.strip("\n") in text for part in topics.values())
    assert abs(len(text) - sum(map(len, topics.values()))) < 5 * len(topics)
