"""WebShop's search: analysis and lengths by hand, scores against a slow twin and against bm25s, order of ties."""

import math
import random
from collections import Counter
from itertools import pairwise

import bm25s
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.webshop import search
from envs.webshop.search import K1, B, Index, analyse, stored_length

WORDS = [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}x" for i in range(60)]  # no stemmer changes them


def index_of(texts: list[str], ids: list[str] | None = None) -> Index:
    return Index.build(texts, ids or [f"D{i:05d}" for i in range(len(texts))])


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Women's Running SHOES, 10.5 in.", "women run shoe 10.5"),
        ("The cat’s toys and a U.S.A. flag", "cat toi u.s.a flag"),
        ("wi-fi 3,000mAh snake_case x__ __", "wi fi 3,000mah snake_cas x__"),
        ("material：polyester，cotton a:b 1:2", "material：polyest cotton a:b 1 2"),
        ("½ x² size", "x size"),
        ("日本 ひら", "日 本 ひ ら"),
        ("❤️ ok ☆ ★★ 👩‍👩 👍🏽", "❤️ ok ★ ★ 👩‍👩 👍🏽"),
        ("naïve café", "naïv café"),
        ("", ""),
    ],
)
def test_analysis_by_hand(text, want):
    assert list(analyse(text)) == want.split()


def test_long_words_are_cut():
    assert [len(token) for token in analyse("9" * 600)] == [255, 255, 90]


@pytest.mark.parametrize(("length", "want"), [(0, 0), (24, 24), (40, 40), (41, 40), (57, 56), (107, 104), (300, 280)])
def test_stored_length(length, want):
    assert stored_length(length) == want


def test_stored_lengths_never_grow():
    stored = [stored_length(length) for length in range(3000)]
    assert stored == sorted(stored) and all(0 <= i - kept < max(1, i / 8) for i, kept in enumerate(stored))


def twin_scores(texts: list[str], query: str) -> np.ndarray:
    """The equation, document by document and term by term, in double precision."""
    docs = [list(analyse(text)) for text in texts]
    filled = sum(bool(doc) for doc in docs)
    mean = sum(len(doc) for doc in docs) / filled
    scores = np.zeros(len(docs))
    for term, times in Counter(analyse(query)).items():
        df = sum(term in doc for doc in docs)
        idf = math.log(1 + (filled - df + 0.5) / (df + 0.5))
        for i, doc in enumerate(docs):
            norm = K1 * (1 - B + B * stored_length(len(doc)) / mean)
            scores[i] += times * idf * doc.count(term) / (doc.count(term) + norm)
    return scores


def random_texts(rng: random.Random, count: int, longest: int) -> list[str]:
    return [" ".join(rng.choices(WORDS, weights=range(1, 61), k=rng.randint(0, longest))) for _ in range(count)]


def assert_order(index: Index, texts: list[str], query: str, hits: int) -> None:
    """The hits are the best by the twin's scores, up to single precision."""
    scores, found = twin_scores(texts, query), index.search(query, hits)
    positive = int((scores > 0).sum())
    assert len(found) == min(hits, positive) == len(set(found))
    assert np.allclose(scores[found], np.sort(scores)[::-1][: len(found)], rtol=1e-5)
    assert all(scores[a] >= scores[b] * (1 - 1e-5) for a, b in pairwise(found))


@pytest.mark.parametrize("common", [1, 3, 10**9])
def test_scores_of_a_slow_twin(monkeypatch, common):
    """Whether a term counts as common, and is only looked up where it can matter, changes nothing."""
    monkeypatch.setattr(search, "COMMON", common)
    rng = random.Random(common)
    for _ in range(25):
        texts = random_texts(rng, 150, 90)
        index = index_of(texts)
        for hits in (1, 5, 50):
            assert_order(index, texts, " ".join(rng.choices(WORDS, k=rng.randint(1, 8))), hits)


def test_pruning_changes_no_result(monkeypatch):
    monkeypatch.setattr(search, "COMMON", 5)
    rng = random.Random(7)
    texts = random_texts(rng, 3000, 60)
    index, used = index_of(texts), []
    queries = [" ".join(rng.sample(WORDS[:12], 3) + rng.sample(WORDS[-12:], 2)) for _ in range(80)]
    pruned = [index.search(query) for query in queries]
    promising = Index._promising
    monkeypatch.setattr(Index, "_promising", lambda *given: used.append(promising(*given) is not None))
    assert [index.search(query) for query in queries] == pruned
    assert any(used)


def test_bm25s_where_lengths_are_exact():
    """bm25s has the same formula; it knows nothing of stored lengths, so documents are kept to 40 words."""
    rng = random.Random(3)
    texts = [text for text in random_texts(rng, 200, 40) if text]
    ids = [[WORDS.index(token) for token in analyse(text)] for text in texts]
    theirs = bm25s.BM25(method="lucene", k1=K1, b=B)
    theirs.index(bm25s.tokenization.Tokenized(ids=ids, vocab={word: i for i, word in enumerate(WORDS)}),
                 show_progress=False)  # fmt: skip
    index = index_of(texts)
    for _ in range(30):
        query = rng.sample(WORDS, 4)
        scores = theirs.get_scores(query)
        found = index.search(" ".join(query))
        assert np.allclose(scores[found], np.sort(scores)[::-1][: len(found)], rtol=1e-4)


def test_stored_lengths_matter():
    """Documents of 41 and of 40 words weigh alike, of 40 and of 39 do not."""
    texts = [f"apple {'pear ' * n}" for n in (38, 39, 40)] + ["plum"] * 5
    short, exact, stored = (twin_scores(texts, "apple")[i] for i in range(3))
    assert exact == stored < short
    assert index_of(texts, list("CBADEFGH")).search("apple") == [0, 2, 1]


def test_ties_go_by_id():
    texts = ["red shoe", "red shoe", "red shoe", "blue"]
    assert index_of(texts, ["Z", "M", "A", "B"]).search("shoe") == [2, 1, 0]
    assert index_of(texts, ["Z", "M", "A", "B"]).search("shoe", 2) == [2, 1]


def test_repeated_query_terms_count_again():
    texts = ["red shoe shoe", "red red shoe", "hat"]
    index = index_of(texts)
    assert index.search("shoe red red") == [1, 0] and index.search("shoe shoe red") == [0, 1]


def test_nothing_is_found_without_a_known_term():
    index = index_of(["red shoe", ""])
    assert index.search("the of and") == index.search("") == index.search("zzz") == []
    assert index_of([], []).search("red") == []


def test_a_query_is_read_up_to_its_1024th_term():
    index = index_of(["red shoe", "hat"])
    assert index.search("red " * 1024 + "hat") == [0] and index.search("red " * 1023 + "hat") == [0, 1]


def test_saved_and_loaded(tmp_path):
    rng = random.Random(5)
    texts = random_texts(rng, 300, 50)
    index = index_of(texts)
    index.save(tmp_path)
    again = Index.load(tmp_path)
    for _ in range(20):
        query = " ".join(rng.choices(WORDS, k=5))
        assert again.search(query) == index.search(query)


@settings(max_examples=100, deadline=None)
@given(st.text())
def test_any_text_is_a_query_and_a_document(text):
    index = index_of([text, "red shoe"])
    found = index.search(text)
    assert set(found) <= {0, 1} and (0 in found) == bool(list(analyse(text)))
