"""Tokenizer and padding of sequences, with Keras's numbering and defaults."""

import json
import math

import numpy as np
import pytest
from checks import raises, refuses

import minigrad as mg
from minigrad import data, nn

TEXTS = ["The cat, the CAT and a dog.", "A dog?\tA dog!\nthe end"]


def fitted(**options):
    tokenizer = data.Tokenizer(**options)
    tokenizer.fit(TEXTS)
    return tokenizer


# ── words ──


def test_numbers_by_frequency_then_by_first_appearance():
    """Counts: the, a, dog 3 times each, cat twice, and, end once."""
    tokenizer = fitted()
    assert tokenizer.vocabulary == {"the": 1, "a": 2, "dog": 3, "cat": 4, "and": 5, "end": 6}
    assert tokenizer.counts["cat"] == 2
    assert len(tokenizer) == 7
    assert tokenizer.encode(TEXTS) == [[1, 4, 1, 4, 5, 2, 3], [2, 3, 2, 3, 1, 6]]
    assert tokenizer.encode(["a bird", ""]) == [[2], []]


def test_a_cap_on_the_numbers():
    """As in Keras, num_words = 3 keeps the numbers 1 and 2."""
    tokenizer = fitted(num_words=3)
    assert tokenizer.vocabulary == {"the": 1, "a": 2}
    assert len(tokenizer) == 3
    assert tokenizer.encode(["the dog and a cat"]) == [[1, 2]]
    assert len(fitted(num_words=100)) == 7
    assert fitted(num_words=1).encode(TEXTS) == [[], []]


def test_a_word_for_unknown_ones():
    tokenizer = fitted(num_words=4, oov_token="<unknown>")
    assert tokenizer.vocabulary == {"<unknown>": 1, "the": 2, "a": 3}
    assert tokenizer.encode(["the dog and a bird"]) == [[2, 1, 1, 3, 1]]
    assert tokenizer.decode([[2, 1, 3]]) == ["the <unknown> a"]
    assert _vocabulary(["some <unknown> word"], filters="", oov_token="<unknown>") == {
        "<unknown>": 1, "some": 2, "word": 3,
    }  # fmt: skip


def test_filters_case_and_split():
    assert fitted(lower=False).vocabulary == {
        "dog": 1, "the": 2, "A": 3, "The": 4, "cat": 5, "CAT": 6, "and": 7, "a": 8, "end": 9,
    }  # fmt: skip
    assert set(fitted(filters="").vocabulary) == {
        "the", "cat,", "cat", "and", "a", "dog.", "dog?\ta", "dog!\nthe", "end",
    }  # fmt: skip
    assert "don't" in _vocabulary(["don't"])
    assert set(_vocabulary(["a-b;c d"], split=";")) == {"a", "b", "c d"}
    every = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'
    assert _vocabulary([f"x{every}y"]) == {"x": 1, "y": 2}


def _vocabulary(texts, **options):
    tokenizer = data.Tokenizer(**options)
    tokenizer.fit(texts)
    return tokenizer.vocabulary


def test_lists_of_words_are_not_filtered():
    assert _vocabulary([["New York", "A-B"], ["a-b"]]) == {"a-b": 1, "new york": 2}


def test_characters():
    tokenizer = data.Tokenizer(char_level=True, lower=False)
    tokenizer.fit(["Hello, ll!"])
    assert tokenizer.vocabulary["l"] == 1
    assert set(tokenizer.vocabulary) == set("Hello, !")
    assert tokenizer.decode(tokenizer.encode(["Hello, Hell!"])) == ["Hello, Hell!"]


def test_fitting_again_goes_on_counting():
    tokenizer = fitted()
    tokenizer.fit(["cat cat"])
    assert tokenizer.vocabulary["cat"] == 1
    assert tokenizer.counts["cat"] == 4


def test_decoding():
    tokenizer = fitted()
    assert tokenizer.decode(tokenizer.encode(TEXTS)) == ["the cat the cat and a dog", "a dog a dog the end"]
    padded = data.pad_sequences(tokenizer.encode(TEXTS), 9)
    for sequences in (padded, padded.numpy()):
        assert tokenizer.decode(sequences) == ["the cat the cat and a dog", "a dog a dog the end"]
    for k in (7, -1):
        refuses(ValueError, "Tokenizer", f"expected numbers from 0 to 6, got {k}", tokenizer.decode, [[1, k]])


def test_state():
    tokenizer, other = fitted(num_words=5), data.Tokenizer(num_words=5)
    state = json.loads(json.dumps(tokenizer.state_dict()))
    other.load_state_dict(state)
    assert other.vocabulary == tokenizer.vocabulary
    assert other.encode(TEXTS) == tokenizer.encode(TEXTS)
    for wrong in (None, {}, {"counts": [1]}, {"counts": {"a": "b"}}, {"counts": {1: 2}}):
        refuses(ValueError, "Tokenizer", "expected a state with the counts", other.load_state_dict, wrong)
    assert other.vocabulary == tokenizer.vocabulary


def test_errors_of_the_tokenizer():
    refuses(ValueError, "Tokenizer", "expected num_words >= 1, got 0", data.Tokenizer, 0)
    refuses(ValueError, "Tokenizer", "expected a split", data.Tokenizer, split="")
    refuses(ValueError, "Tokenizer", ["expected a vocabulary", "fit"], data.Tokenizer().encode, ["a"])
    for method in (data.Tokenizer().fit, fitted().encode):
        refuses(TypeError, "Tokenizer", "expected texts, or lists of words, got 3", method, [3])
        refuses(TypeError, "Tokenizer", "expected a list of texts, got a single string, 'a text'", method, "a text")


# ── padding ──


@pytest.mark.parametrize("options, expected", [
    ({}, [[0, 0, 1], [2, 3, 4], [0, 0, 0]]), ({"padding": "post"}, [[1, 0, 0], [2, 3, 4], [0, 0, 0]]),
    ({"maxlen": 2}, [[0, 1], [3, 4], [0, 0]]), ({"maxlen": 2, "truncating": "post"}, [[0, 1], [2, 3], [0, 0]]),
    ({"maxlen": 2, "padding": "post"}, [[1, 0], [3, 4], [0, 0]]), ({"maxlen": 4, "value": -1}, [[-1, -1, -1, 1], [-1, 2, 3, 4], [-1] * 4]),
    ({"maxlen": 0}, [[], [], []]),
])  # fmt: skip
def test_pad_sequences(options, expected):
    for sequences in ([[1], [2, 3, 4], []], [np.array([1]), (2, 3, 4), mg.zeros(0, dtype="int64")]):
        found = data.pad_sequences(sequences, **options)
        assert found.tolist() == expected
        assert found.dtype == mg.int64


def test_dtypes_and_vectors():
    assert data.pad_sequences([[0.5], []]).dtype == mg.float32
    assert data.pad_sequences([[1], []], dtype="float64").dtype == mg.float64
    assert data.pad_sequences([np.ones(2, np.float64)]).dtype == mg.float64
    found = data.pad_sequences([np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)], padding="post", value=7)
    assert found.tolist() == [[[1.0] * 3] * 2, [[0.0] * 3, [7.0] * 3]]
    assert data.pad_sequences([]).shape == (0, 0)
    assert data.pad_sequences([[1, 2], [0.5]]).dtype == mg.float32
    assert data.pad_sequences([[1, 2], [3]], dtype="float32", value=0.5).tolist() == [[1, 2], [0.5, 3]]


@pytest.mark.parametrize("arguments, error, message", [
    (([[1]], None, None, "left"), ValueError, "padding 'pre' or 'post', got 'left'"), (([[1]], None, None, "pre", "right"), ValueError, "truncating"),
    (("text",), TypeError, "a list of sequences, got a str"), ((["a", "b"],), TypeError, "sequences of numbers, got 'a'"), (([1, 2],), TypeError, "got 1"),
    (([[[1, 2]], [[1, 2, 3]]],), ValueError, r"same shape, got \(2,\) and \(3,\)"), (([[1]], -1), ValueError, "maxlen >= 0, got -1"),
    (([["a"]],), TypeError, "sequences of numbers"),
    (([[1, 2], [3]], None, None, "pre", "pre", 0.5), ValueError, "a value .* of int64 .* got 0.5"),
    (([[1, 2], [3]], None, None, "pre", "pre", math.nan), ValueError, "a value .* got nan"),
    (([[1, 2], [3]], None, None, "pre", "pre", 2**63), ValueError, f"a value .* of int64 .* got {2**63}"),
    (([[True], []], None, None, "pre", "pre", 2), ValueError, "a value .* of bool .* got 2"),
    (([[1, 2], [3]], None, None, "pre", "pre", None), TypeError, "a number value, got None"),
])  # fmt: skip
def test_errors_of_padding(arguments, error, message):
    raises(error, rf"\[pad_sequences\] expected .*{message}", data.pad_sequences, *arguments)


# ── padded batches ──


def test_collate_padded():
    samples = [(np.ones((2, 3), np.float32), 4, "x"), (np.ones((1, 3), np.float32), 5, "y")]
    sequences, lengths, labels, names = data.collate_padded(samples, value=-1)
    assert sequences.tolist() == [[[1.0] * 3] * 2, [[1.0] * 3, [-1.0] * 3]]
    assert (lengths.tolist(), labels.tolist(), names) == ([2, 1], [4, 5], ["x", "y"])
    sequences, lengths = data.collate_padded([[1], [2, 3]])
    assert (sequences.tolist(), lengths.tolist()) == ([[1, 0], [2, 3]], [1, 2])
    refuses(ValueError, "collate_padded", "expected at least one", data.collate_padded, [])


def test_padded_batches_serve_recurrent_layers():
    """The other sequences of a batch do not affect the result of a sequence."""
    tokenizer = fitted()
    samples = list(zip(tokenizer.encode([*TEXTS, "a dog"]), [0, 1, 2], strict=True))
    table, lstm = nn.Embedding(len(tokenizer), 4), nn.LSTM(4, 3, norm="layer", batch_first=True)
    ((words, lengths, labels),) = data.DataLoader(samples, 3, collate=data.collate_padded)
    _, (h, _) = lstm(table(words), lengths=lengths)
    for k, (alone, label) in enumerate(samples):
        _, (single, _) = lstm(table(mg.tensor([alone])))
        np.testing.assert_allclose(h[0, k].tolist(), single[0, 0].tolist(), atol=1e-6)
        assert labels[k].item() == label
