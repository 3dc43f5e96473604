"""Tokenizer: words as numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minigrad.engine.ops.arguments import integer

FILTERS = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n'


class Tokenizer:
    """Numbers words by how often they occur, as Keras's Tokenizer does.

    The most frequent word gets 1; of equally frequent words, the one seen first comes first; 0 is reserved for padding.
    Text is converted to lower case, the characters of `filters` become spaces, and words are separated by spaces.
    Raises ValueError for `num_words` below 1, and an empty `split`.

    Parameters
    ----------
    num_words : int, optional
        Use only numbers below this, for the most frequent ``num_words - 1`` words. `encode` leaves out other words, or
        replaces them by `oov_token`.
    filters : str
        Characters that are not part of words.
    lower : bool
        Whether to convert text to lower case.
    split : str
        The separator of words.
    oov_token : str, optional
        The replacement for words outside the vocabulary; it gets the number 1.
    char_level : bool
        Whether to number characters instead of words; nothing is filtered then.

    Attributes
    ----------
    counts : Counter
        The number of occurrences of each word, in the order of first appearance.
    words : list of str
        All words by number; the first has number 1.

    Examples
    --------
    >>> tokenizer = mg.data.Tokenizer()
    >>> tokenizer.fit(["The cat sat.", "The dog!"])
    >>> tokenizer.vocabulary
    {'the': 1, 'cat': 2, 'sat': 3, 'dog': 4}
    >>> tokenizer.encode(["The dog sat", "A bird"])
    [[1, 4, 3], []]
    >>> tokenizer.decode([[1, 4, 3]])
    ['the dog sat']
    """

    def __init__(
        self, num_words: int | None = None, filters: str = FILTERS, lower: bool = True, split: str = " ",
        oov_token: str | None = None, char_level: bool = False,
    ) -> None:  # fmt: skip
        self.num_words = None if num_words is None else integer("Tokenizer", "num_words", num_words, 1)
        if not split:
            raise ValueError("[Tokenizer] expected a split of at least one character, got ''")
        self.filters, self.lower, self.split = filters, bool(lower), split
        self.oov_token, self.char_level = oov_token, bool(char_level)
        self.counts: Counter[str] = Counter()
        self.words: list[str] = []
        self._blanks = str.maketrans(dict.fromkeys(filters, split))
        self._numbers: dict[str, int] = {}

    def fit(self, texts: Iterable[str | Sequence[str]]) -> None:
        """Count the words of texts, or of lists of words, and number all words seen so far."""
        for text in _several(texts):
            self.counts.update(self._split(text))
        self._number()

    def _number(self) -> None:
        words = [word for word, _ in self.counts.most_common() if word != self.oov_token]
        self.words = words if self.oov_token is None else [self.oov_token, *words]
        self._numbers = {word: k for k, word in enumerate(self.words[: len(self) - 1], 1)}

    def __len__(self) -> int:
        """Return how many numbers are in use, including 0 for padding: the rows that an `nn.Embedding` needs."""
        return min(len(self.words) + 1, self.num_words or len(self.words) + 1)

    @property
    def vocabulary(self) -> dict[str, int]:
        """dict: maps the words in use to their numbers."""
        return dict(self._numbers)

    def encode(self, texts: Iterable[str | Sequence[str]]) -> list[list[int]]:
        """Return the numbers of the words of each text.

        Raises TypeError for a single string instead of several texts, and ValueError before `fit`.
        """
        if not self.words:
            raise ValueError("[Tokenizer] expected a vocabulary, got none: call fit first")
        unknown = self._numbers.get(self.oov_token, 0) if self.oov_token is not None else 0
        numbers = ([self._numbers.get(word, unknown) for word in self._split(text)] for text in _several(texts))
        return [[k for k in row if k] for row in numbers]

    def decode(self, sequences: Iterable[Iterable[Any]]) -> list[str]:
        """Return the words of each sequence of numbers as text, skipping the zeros of padding.

        Raises ValueError for numbers without a word.

        Parameters
        ----------
        sequences : iterable
            Lists of numbers, or an array or tensor of integers (N, T).
        """
        texts = []
        for sequence in sequences.tolist() if hasattr(sequences, "tolist") else sequences:
            numbers = [integer("Tokenizer", "number", k) for k in sequence]
            for k in numbers:
                if not 0 <= k < len(self):
                    raise ValueError(f"[Tokenizer] expected numbers from 0 to {len(self) - 1}, got {k}")
            texts.append(("" if self.char_level else self.split).join(self.words[k - 1] for k in numbers if k))
        return texts

    def _split(self, text: str | Sequence[str]) -> list[str]:
        if not isinstance(text, str | Sequence):
            raise TypeError(f"[Tokenizer] expected texts, or lists of words, got {text!r}")
        if isinstance(text, str):
            text = text.lower() if self.lower else text
            return list(text) if self.char_level else [x for x in text.translate(self._blanks).split(self.split) if x]
        return [word.lower() for word in text] if self.lower else list(text)

    def state_dict(self) -> dict[str, Any]:
        """Return the words and their counts, so that a checkpoint can store them."""
        return {"counts": dict(self.counts)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load the words of another Tokenizer. Raises ValueError for an invalid state; nothing is loaded then."""
        counts = state_dict.get("counts") if isinstance(state_dict, Mapping) else None
        kinds = {(type(word), type(count)) for word, count in counts.items()} if isinstance(counts, Mapping) else {None}
        if kinds - {(str, int)}:
            raise ValueError(f"[Tokenizer] expected a state with the counts of words, got {state_dict!r}")
        self.counts = Counter(counts)
        self._number()


def _several(texts: Iterable[Any]) -> Iterable[Any]:
    if isinstance(texts, str):
        raise TypeError(f"[Tokenizer] expected a list of texts, got a single string, {texts[:40]!r}")
    return texts
