"""From texts to an index, from a query to the 50 products that Lucene would show, in its order.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> [search], goals -> shop (pages, reward) -> Env          prepare, generate, mini make one

The original searches with Lucene's BM25 (k1 .9, b .4) after Anserini's English analyser. Three things decide the
order of near ties and are kept here: every document length is stored in one byte, scores are single precision, and
equal scores go by product id. bm25s does none of the three (its top ten agree on 63 % of queries), so the postings are
plain numpy arrays, which may be memory-mapped; the tests use bm25s as a twin. Source: webshop.md 4.
"""

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
from nltk.stem.porter import PorterStemmer

Array = np.ndarray

K1, B = 0.9, 0.4
HITS = 50  # at most so many products are found
COMMON = 50  # a term in more than a 50th of the documents is only looked up where it can matter
SLACK = 1 + 1e-6  # for the rounding of sums
MAX_TERMS = 1024  # Lucene dies of more; here the rest of the query is not read

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Unicode's word rule as Lucene has it, in one expression: letters and digits run together; a dot or an apostrophe holds
# letters or digits together, a colon letters, a comma digits; ideographs, hiragana and emoji are words of their own.
# Superscripts and fractions count as letters for Python, not for Unicode's rule.
_NO_WORD = "²³¹¼-¾⁰-₟⅐-⅟①-⓿❶-➓"
_ALONE = "\u3005\u3007\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_EMOJI = (
    "[©®‼⁉™ℹ↔-↙↩↪⌚⌛⌨⎈⏏⏩-⏳⏸-⏺Ⓜ▪▫▶◀◻-◾☀-★☇-☒☔-⚅⚐-✅✈-✒✔✖✝✡✨✳✴❄❇❌❎❓-❕❗❣-❧➕-➗➡➰➿⤴⤵⬅-⬇⬛⬜⭐⭕〰〽㊗㊙"
    "\U0001f000-\U0001f0ff\U0001f10d-\U0001f1e5\U0001f201-\U0001faff\U0001fc00-\U0001fffd]"
)
_JOINED = "\u0300-\u036f\u00ad\u200c-\u200f\u20d0-\u20ff\ufe00-\ufe0f"  # marks that belong to the character before
_CHAR = rf"[^\W{_NO_WORD}{_ALONE}]"
_LETTER = rf"[^\W\d_{_NO_WORD}{_ALONE}]"
_TOKEN = re.compile(
    rf"[{_ALONE}]"
    rf"|{_EMOJI}[\U0001f3fb-\U0001f3ff]?[{_JOINED}]*(?:(?<=\u200d){_EMOJI}[{_JOINED}]*)*"
    rf"|[\U0001f1e6-\U0001f1ff]{{2}}"
    rf"|{_CHAR}(?:{_CHAR}|[{_JOINED}]|(?<={_LETTER})[.:'‘’·‧：．＇](?={_LETTER})"
    rf"|(?<=\d)[.,;'‘’⁄，；．＇](?=\d)){{0,254}}"  # a longer word is cut into pieces
)
_POSSESSIVE = re.compile(r"['’＇]s$", re.IGNORECASE)
_stemmer = PorterStemmer(PorterStemmer.MARTIN_EXTENSIONS)


@lru_cache(maxsize=100_000)
def _stem(token: str) -> str:
    return _stemmer.stem(token, to_lowercase=False)


def analyse(text: str) -> Iterator[str]:
    """The index terms of a text, in order: tokens without possessive, lower-cased, without stop words, stemmed."""
    for match in _TOKEN.finditer(text):
        token = _POSSESSIVE.sub("", match.group()).lower()
        if token not in STOP_WORDS and token.strip("_"):
            yield _stem(token)


def stored_length(length: int) -> int:
    """The length that is left of `length` after one byte: exact up to 40, then four significant bits above 24.

    41 -> 40, 57 -> 56, 107 -> 104, 300 -> 280.
    """
    excess = length - 24
    shift = max(0, excess.bit_length() - 4) if excess > 0 else 0
    return 24 + (excess >> shift << shift)


class Index:
    """Postings in three arrays: term t has documents `docs[start[t]:start[t+1]]`, ascending, with their `impact`s,
    the score that one occurrence in a query gives (float32). `terms` maps a term to its number; `peak` [terms] is
    the highest impact of each; `rank` [documents] is each document's place in the alphabetical order of ids."""

    FILES = ("start", "docs", "impact", "peak", "rank")

    def __init__(self, terms: dict[str, int], *, start: Array, docs: Array, impact: Array, peak: Array, rank: Array):
        self.terms, self.start, self.docs, self.impact, self.peak, self.rank = terms, start, docs, impact, peak, rank
        self._scores = np.zeros(len(rank))

    @classmethod
    def build(cls, texts: Iterable[str], ids: list[str]) -> "Index":
        """An index over texts; document i is the i-th text, its id the i-th of `ids`."""
        terms: dict[str, int] = {}
        rows, term_ids, freqs, lengths = (array("i") for _ in range(4))
        for row, text in enumerate(texts):
            counts = Counter(analyse(text))
            lengths.append(counts.total())
            for token, freq in counts.items():
                rows.append(row)
                term_ids.append(terms.setdefault(token, len(terms)))
                freqs.append(freq)
        term_ids, rows = np.asarray(term_ids, np.int32), np.asarray(rows, np.int32)
        order = np.argsort(term_ids, kind="stable")
        df = np.bincount(term_ids, minlength=len(terms))
        start = np.concatenate([[0], np.cumsum(df)]).astype(np.int64)
        impact = _impact(np.asarray(freqs, np.float32)[order], rows[order], np.repeat(df, df), np.asarray(lengths))
        rank = np.empty(len(ids), np.int32)
        rank[np.argsort(np.asarray(ids), kind="stable")] = np.arange(len(ids), dtype=np.int32)
        peak = np.maximum.reduceat(impact, start[:-1]) if len(terms) else np.zeros(0, np.float32)
        return cls(terms, start=start, docs=rows[order], impact=impact, peak=peak, rank=rank)

    def search(self, query: str, hits: int = HITS) -> list[int]:
        """Positions of the best documents, best first: sum of impacts over the query's terms (a repeated term counts
        again), documents without any of them left out, equal scores by id."""
        counts = Counter(islice(analyse(query), MAX_TERMS))
        known = [(self.terms[term], count) for term, count in counts.items() if term in self.terms]
        spans = [(slice(self.start[term], self.start[term + 1]), term, count) for term, count in known]
        spans.sort(key=lambda span: span[0].stop - span[0].start)  # rare terms first
        scores = self._scores
        scores.fill(0.0)
        peaks = [float(self.peak[term]) * count for _, term, count in spans]
        left = sum(peaks)  # the most that is still to come
        found = None  # all documents, or the only ones that can still be among the best
        for (span, _, count), peak in zip(spans, peaks, strict=True):
            if found is None and span.stop - span.start > len(scores) // COMMON and 2 * left < sum(peaks):
                found = self._promising(hits, left)
            if found is None:
                scores[self.docs[span]] += self.impact[span] * np.float32(count)
            else:
                docs = self.docs[span]
                place = np.minimum(np.searchsorted(docs, found), len(docs) - 1)
                here = docs[place] == found
                scores[found[here]] += self.impact[span][place[here]] * np.float32(count)
            left -= peak
        return self._best(np.flatnonzero(scores > 0) if found is None else found, hits)

    def _promising(self, hits: int, left: float) -> Array | None:
        """Documents that can reach the best `hits` if each gained `left` at most; None where any document can."""
        found = np.flatnonzero(self._scores > 0)
        if len(found) <= hits:
            return None
        values = self._scores[found]
        least = np.partition(values, len(values) - hits)[len(values) - hits]
        return found[values + left * SLACK >= least] if least > left * SLACK else None

    def _best(self, found: Array, hits: int) -> list[int]:
        """The `hits` of these documents with the highest scores, descending, equal ones ascending by id."""
        values = self._scores[found].astype(np.float32)
        if len(found) > hits:
            best = values >= np.partition(values, len(values) - hits)[len(values) - hits]
            found, values = found[best], values[best]
        return found[np.lexsort((self.rank[found], -values))][:hits].tolist()

    def save(self, folder: Path) -> None:
        """Writes terms.json and one .npy a posting array."""
        (folder / "terms.json").write_text(json.dumps(list(self.terms), ensure_ascii=False), encoding="utf-8")
        for name in self.FILES:
            np.save(folder / f"{name}.npy", getattr(self, name))

    @classmethod
    def load(cls, folder: Path) -> "Index":
        """The saved index, memory-mapped: processes that read it share one copy."""
        try:
            terms = {term: i for i, term in enumerate(json.loads((folder / "terms.json").read_text(encoding="utf-8")))}
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{folder / 'terms.json'}: broken ({error}); run prepare again") from error
        arrays = {name: open_array(folder / f"{name}.npy").view(Array) for name in cls.FILES}
        start = arrays["start"]
        if len(start) != len(terms) + 1 or not len(arrays["docs"]) == len(arrays["impact"]) == start[-1]:
            raise ValueError(f"{folder}: the index's files do not fit together; run prepare again")
        return cls(terms, **arrays)


def open_array(file: Path) -> np.ndarray:
    """A saved array, memory-mapped. Raises ValueError naming a file that holds none."""
    try:
        return np.load(file, mmap_mode="r")
    except FileNotFoundError:
        raise
    except Exception as error:  # numpy lets errors of its header's parser through
        raise ValueError(f"{file}: broken ({str(error)[:200]}); run prepare again") from error


def _impact(freq: np.ndarray, row: np.ndarray, df: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """idf (1 - 1 / (1 + f / (k1 (1 - b + b L / avg L)))), one a posting, in Lucene's single-precision order of
    operations; idf = ln(1 + (N - df + 1/2) / (df + 1/2)), N the documents that hold any term."""
    filled = max(1, int((lengths > 0).sum()))
    idf = np.log(1 + (filled - df + 0.5) / (df + 0.5)).astype(np.float32)
    mean = np.float32(lengths.sum() / filled)
    stored = np.asarray([stored_length(int(length)) for length in lengths], np.float32)
    one, k1, b = np.float32(1), np.float32(K1), np.float32(B)
    inverse = one / (k1 * ((one - b) + b * stored / mean))
    return idf - idf / (one + freq * inverse[row])
