"""Word vectors from text files."""

import gzip

import pytest

import minigrad as mg
from minigrad import data, nn

LINES = "the 0.5 -1 2e-1\n, 1 2 3\nкот 4 5 6\n. . . 7 8 9\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "glove.3d.txt"
    file.write_text(LINES, encoding="utf-8")
    return file


def test_rows(path):
    matrix, unknown = data.glove(path, {"кот": 4, "unicorn": 3, "the": 1, ". . .": 2, "a": 0})
    assert matrix.dtype == mg.float32
    expected = mg.tensor([[0.0, 0.0, 0.0], [0.5, -1.0, 0.2], [7.0, 8.0, 9.0], [0.0, 0.0, 0.0], [4.0, 5.0, 6.0]])
    assert matrix.tolist() == expected.tolist()
    assert unknown == ["a", "unicorn"]
    assert data.glove(path, {}).matrix.shape == (0, 3)


def test_the_vocabulary_of_a_tokenizer(path):
    tokenizer = data.Tokenizer()
    tokenizer.fit(["the cat and the кот"])
    matrix, unknown = data.glove(str(path), tokenizer.vocabulary)
    assert unknown == ["cat", "and"]
    table = nn.Embedding.from_pretrained(matrix, padding_idx=0)
    assert table(mg.tensor(tokenizer.encode(["кот cat"]))).tolist() == [[[4.0, 5.0, 6.0], [0.0, 0.0, 0.0]]]
    assert len(matrix) == len(tokenizer)


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n", ""])
def test_ends_of_lines(path, end):
    path.write_bytes(f"the 1 2{end or chr(10)}a 3 4{end}".encode())
    assert data.glove(path, {"the": 0, "a": 1}).matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_the_first_of_two_vectors_counts(path):
    path.write_text("the 1\nthe 2\n")
    assert data.glove(path, {"the": 0}).matrix.tolist() == [[1.0]]


@pytest.mark.parametrize("content, message", [
    ("the 1 2\na 3\n", "2 numbers in line 2 .*got 1"), ("the 1 2\na 3 4 5\n", "2 numbers in line 2 .*got 3"),
    ("the 1 2\nb\n", "a word and numbers in line 2 .*got b'b"), ("", "a word and numbers in line 1 .*an empty file"), ("\n", "a word and numbers in line 1"),
    ("the 1 x\n", "numbers in line 1 .*got b'1 x'"), ("the 1 nan\n", "numbers in line 1 .*got b'1 nan'"), ("b 1 2\nthe 1  2\n", "2 numbers in line 2 .*got 3"),
    ("1000 2\nthe 1 2\n", "1 numbers in line 2 .*got 2"), (LINES[:-7], "3 numbers in line 4"),
])  # fmt: skip
def test_wrong_lines(path, content, message):
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"\[glove\] expected {message}") as caught:
        data.glove(path, {"the": 0})
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("unpack glove.6B.zip from https://nlp.stanford.edu/projects/glove/ again")


def test_wrong_files(path):
    with pytest.raises(FileNotFoundError, match=r"\[glove\] expected word vectors at .*absent, got no file: unpack glove.6B.zip"):
        data.glove(path.parent / "absent", {})
    path.write_bytes(gzip.compress(LINES.encode()))
    with pytest.raises(ValueError, match=r"\[glove\] expected"):
        data.glove(path, {"the": 0})
    with pytest.raises(ValueError, match=r"\[glove\] expected row >= 0, got -1"):
        data.glove(path, {"the": -1})
    with pytest.raises(ValueError, match=r"\[glove\] expected a row for each word, got row 1 for 'the' and 'кот'"):
        data.glove(path, {"the": 1, ",": 0, "кот": 1})
    with pytest.raises(TypeError, match=r"\[glove\] expected a vocabulary from words to rows, got list"):
        data.glove(path, ["the"])
