"""Word vectors from text files."""

import bz2
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from checks import raises, refuses

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


@pytest.mark.parametrize("lines", ["the 1 2\n\na 3  4\n\n", "the  1 2\na 3 4"])
def test_blank_lines_and_more_spaces(path, lines):
    path.write_text(lines)
    assert data.glove(path, {"the": 0, "a": 1}).matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("end", ["\n", " \n"])
def test_headers(path, end):
    """They are those of word2vec, fastText and gensim; with them, even the first word may contain spaces."""
    path.write_text(f"3 2\n. . 0.5 1{end}the 2 3{end}3 4 5{end}")
    assert data.glove(path, {". .": 0, "3": 1}).matrix.tolist() == [[0.5, 1.0], [4.0, 5.0]]
    path.write_text(f"3 2\nthe 1 2{end}a 2 3{end}")
    with pytest.raises(ValueError, match=r"^\[glove\] expected 3 vectors, as line 1 of .*3d.txt says, got 2$"):
        data.glove(path, {"the": 0})
    for lines, got in (("the 1 2", 2), ("the 1 2 3 4", 4)):
        path.write_text(f"1 3\n{lines}{end}")
        with pytest.raises(ValueError, match=rf"^\[glove\] expected 3 numbers in line 2 of .*3d.txt, got {got}$"):
            data.glove(path, {"the": 0})


@pytest.mark.parametrize("count", [2, 5, 20, 50, 200])
def test_the_binary_format_of_word2vec(path, rng, count):
    vectors = rng.standard_normal((count, 10)).astype(np.float32)
    path.write_bytes(b"%d 10\n" % count + b"".join(b"word%d " % k + row.tobytes() for k, row in enumerate(vectors)))
    match = r"^\[glove\] expected .* in line \d+ of .*: if this is word2vec's binary format"
    raises(ValueError, match, data.glove, path, {"word1": 0, "word2": 1})


@pytest.mark.parametrize("lines", ["the\t1 2\ncat\t3 4\n", "the\t1\t2\n", "1 2\nthe\t1\t2\n", "the 1 2\ncat\t3 4 5\n"])
def test_tabs(path, lines):
    path.write_text(lines)
    with pytest.raises(ValueError, match=r"^\[glove\] expected a word and numbers separated by spaces in line [12]"):
        data.glove(path, {"the": 0, "cat": 1})


def test_compressed_files(path):
    path.write_bytes(gzip.compress(LINES.encode()))
    assert data.glove(path, {"кот": 0}).matrix.tolist() == [[4.0, 5.0, 6.0]]
    for content in (path.read_bytes()[:-12], path.read_bytes()[:12] + b"x" * 40):
        path.write_bytes(content)
        refuses(ValueError, "glove", "expected a complete file, got a damaged one at", data.glove, path, {"the": 0})
    for content in (b"PK\3\4" + bytes(26), bz2.compress(LINES.encode()), lzma.compress(LINES.encode())):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"^\[glove\] expected a text file, got an archive at .*: unpack it$"):
            data.glove(path, {"the": 0})


@pytest.mark.parametrize("value", ["1e39", "nan", "-INF"])
def test_numbers_of_later_lines_that_float32_cannot_hold(path, value):
    path.write_text(f"a 1 2\nthe 1 {value}\n")
    with pytest.raises(ValueError, match=r"^\[glove\] expected numbers that fit float32 in .*, got others for 'the'$"):
        data.glove(path, {"the": 0, "a": 1})
    assert data.glove(path, {"a": 0}).matrix.tolist() == [[1, 2]]


PEAK = """
import re, sys
import minigrad as mg
from minigrad import data

def peak():
    with open("/proc/self/status") as file:
        return 1024 * int(re.search("VmHWM:\\s+([0-9]+)", file.read())[1])

data.glove(sys.argv[1] + ".small", {"a": 0})
vocabulary = {f"word{k}": k for k in range(40_000)}
before = peak()
matrix, unknown = data.glove(sys.argv[1], vocabulary)
assert matrix.shape == (40_000, 200) and matrix[39_999, 199].item() == 0.5 and unknown == []
print((peak() - before) / (matrix.size * 4))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="this system does not tell the peak of a process")
def test_memory(path):
    """Rows are written in place: little more is needed than the matrix."""
    with open(path, "w") as file:
        file.writelines(f"word{k}{' 0.5' * 200}\n" for k in range(40_000))
    (path.parent / f"{path.name}.small").write_text("a 1\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(mg.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], env=environment, check=True, capture_output=True, timeout=60
    )
    assert float(done.stdout) < 1.2


def test_the_first_of_two_vectors_counts(path):
    path.write_text("the 1\nthe 2\n")
    assert data.glove(path, {"the": 0}).matrix.tolist() == [[1.0]]


@pytest.mark.parametrize("content, message", [
    ("the 1 2\na 3\n", "2 numbers in line 2 .*got 1"), ("the 1 2\na 3 4 5\n", "2 numbers in line 2 .*got 3"),
    ("the 1 2\nb\n", "a word and numbers in line 2 .*got b'b"), ("", "a word and numbers in line 1 .*an empty file"), ("\n", "a word and numbers in line 1"),
    ("the 1 x\n", "numbers in line 1 .*got b'1 x'"), ("the 1 nan\n", "numbers in line 1 .*got b'1 nan'"), ("b 1 2\nthe 1  x\n", "numbers in line 2 .*got b'1 x'"),
    (LINES[:-7], "3 numbers in line 4"),
])  # fmt: skip
def test_wrong_lines(path, content, message):
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"\[glove\] expected {message}") as caught:
        data.glove(path, {"the": 0})
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("unpack glove.6B.zip from https://nlp.stanford.edu/projects/glove/ again")


def test_wrong_files(path):
    match = r"\[glove\] expected word vectors at .*absent, got no file: unpack glove.6B.zip"
    raises(FileNotFoundError, match, data.glove, path.parent / "absent", {})
    refuses(ValueError, "glove", "expected row >= 0, got -1", data.glove, path, {"the": -1})
    with pytest.raises(ValueError, match=r"\[glove\] expected a row for each word, got row 1 for 'the' and 'кот'"):
        data.glove(path, {"the": 1, ",": 0, "кот": 1})
    refuses(TypeError, "glove", "expected a vocabulary from words to rows, got list", data.glove, path, ["the"])


@pytest.mark.parametrize("word", [3, None, b"the", ("the",), 1.5])
def test_words_that_are_none(path, word):
    with pytest.raises(TypeError, match=r"^\[glove\] expected a vocabulary from words to rows, got the word "):
        data.glove(path, {"the": 0, word: 1})


def test_a_word_that_utf8_cannot_encode_has_no_vector(path):
    assert data.glove(path, {"the": 0, "a\ud800": 1}).unknown == ["a\ud800"]


@pytest.mark.parametrize("row", [2**40, 2**63, 2**70])
def test_rows_that_no_memory_holds(path, row):
    match = rf"^\[glove\] expected rows that fit in memory, got row {row}$"
    raises((ValueError, MemoryError), match, data.glove, path, {"the": row})


@pytest.mark.parametrize("wrong, error", [
    (None, TypeError), (3.5, TypeError), (["x"], TypeError), (object(), TypeError), ("a\0b", ValueError), ("\ud800", ValueError),
])  # fmt: skip
def test_paths_that_are_none(wrong, error):
    raises(error, r"^\[glove\] expected a path", data.glove, wrong, {})


def test_a_number_is_no_path(path):
    """open() would take it for the descriptor of an open file, and close it afterwards."""
    with open(path, "rb") as file:
        raises(TypeError, rf"^\[glove\] expected a path, got {file.fileno()}$", data.glove, file.fileno(), {})
        os.fstat(file.fileno())


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("values", [
    b"1e39 2", b"1e400 2", b"-1e999999999 2", b"inf 2", b"0x10 2", b"1_0 2", b"\0 2", b"\xff 2", "\u0661 2".encode(),
    b"1" * 1000 + b" 2",
])  # fmt: skip
def test_what_is_no_number_of_float32(path, values):
    path.write_bytes(b"the " + values + b"\n")
    refuses(ValueError, "glove", "expected numbers in line 1", data.glove, path, {"the": 0})


def test_random_bytes(path, rng):
    for _ in range(300):
        path.write_bytes(rng.integers(0, 256, rng.integers(1, 400)).astype(np.uint8).tobytes())
        refuses(ValueError, "glove", "expected", data.glove, path, {"the": 0})


def test_a_line_without_an_end(path):
    """It is not read into memory at once."""
    path.write_bytes(b"the 1\n" + b"1 " * 2**20)
    refuses(ValueError, "glove", "expected lines of at most 1,048,576 bytes in line 2 ", data.glove, path, {"the": 0})
