// Sphinx scores a page by its best word, so that many pages tie. Here the words of the query in a result's title count
// too, and count most if the title has few others. (html_search_scorer in conf.py)
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score([docname, title, anchor, description, score]) {
    const words = (text) => text.toLowerCase().match(/[^\W_]+/g) || [];
    const query = words(new URLSearchParams(location.search).get("q") || "");
    const own = words(title);
    // The beginnings of words count as well: "norm" for "normalization".
    const begins = (word, other) => other.startsWith(word) && (word === other || word.length > 2);
    const same = (word) => own.some((other) => begins(word, other) || begins(other, word));
    const found = query.filter(same).length;
    // A short word inside of another one is there by chance: "eps" in "steps".
    if (!found) return anchor && query.every((word) => word.length < 4) ? score - 15 : score;
    return score + 20 * (found / query.length) ** 2 + 10 * (found / Math.max(own.length, query.length));
  },
};

// Sphinx keeps a word of three letters in its index as it is if its stem is shorter, but looks for the stem: "eps".
const Snowball = window.Stemmer;
window.Stemmer = function () {
  const inner = new Snowball();
  this.stemWord = (word) => {
    const stem = inner.stemWord(word);
    return stem.length < 3 ? word : stem;
  };
};
