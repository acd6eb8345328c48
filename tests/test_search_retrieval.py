"""Search: the embedded index. Measured figures: searchqa.md 2.2 and 3.1."""

import json
import math
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from envs.search import bm25
from envs.search.bm25 import K1, B, LocalBM25, tokenize
from envs.search.encyclopaedia import encyclopaedia
from envs.search.passages import Passage, passage_from, read_corpus
from envs.search.questions import read_questions
from envs.search.scores import normalise


def write(file, rows) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def mini(shared):
    """(index, questions) of the mini set."""
    folder = shared / "searchqa"
    if not folder.is_dir():
        pytest.skip(f"no search data at {folder}")
    passages = read_corpus(folder / "mini_corpus.jsonl")
    return LocalBM25.build(list(passages)), read_questions(folder / "mini_questions.jsonl")


def slow_ranking(passages: list[Passage], query: str) -> list[tuple[str, float]]:
    """Ids and scores from the formula: sum over the query's words of idf * tf / (tf + k1 (1 - b + b len / mean len)),
    idf = log(1 + (N - n + 1/2) / (n + 1/2))."""
    documents = [Counter(tokenize(f"{p.title} {p.title} {p.text}")) for p in passages]
    lengths = [document.total() for document in documents]
    scored = []
    for position, document in enumerate(documents):
        score = 0.0
        for word in tokenize(query):
            holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(documents) - holding + 0.5) / (holding + 0.5))
            saturation = K1 * (1 - B + B * lengths[position] / np.mean(lengths))
            score += idf * document[word] / (document[word] + saturation)
        if score:
            scored.append((-score, position))
    return [(passages[position].id, -score) for score, position in sorted(scored)]


def test_ranking_agrees_with_the_formula():
    passages = encyclopaedia().passages[:120]
    index = LocalBM25.build(passages)
    words = ["penned", "hails", "year year", "nobody was", "the"]
    queries = [f"{passage.title} {word}" for passage, word in zip(passages, words, strict=False)]
    assert sum(map(len, index.batch(queries, 120))) > 20
    for query, found in zip(queries, index.batch(queries, 120), strict=True):
        want = slow_ranking(passages, query)
        assert len(found) == len(want)
        assert [p.score for p in found] == pytest.approx([score for _, score in want], rel=1e-5)
        assert {p.id for p in found} == {name for name, _ in want}


def test_a_ranking_by_hand():
    index = LocalBM25.build([Passage("a", "cat", "dog"), Passage("b", "dog", "bird"), Passage("c", "fish", "")])
    (found,) = index.batch(["dog"], 3)
    idf, mean = math.log(1 + 1.5 / 2.5), 8 / 3
    score_b = idf * 2 / (2 + 0.9 * (0.6 + 0.4 * 3 / mean))
    score_a = idf * 1 / (1 + 0.9 * (0.6 + 0.4 * 3 / mean))
    assert [(p.id, p.score) for p in found] == [("b", pytest.approx(score_b)), ("a", pytest.approx(score_a))]


def test_equal_scores_come_in_corpus_order_whatever_the_batch():
    passages = [Passage(str(i), "same title", "same text") for i in range(50)]
    index = LocalBM25.build(passages)
    for topk in (1, 3, 49, 50, 99):
        (found,) = index.batch(["title"], topk)
        assert [p.id for p in found] == [str(i) for i in range(min(topk, 50))]
    queries = [f"title {'text ' * (i % 3)}" for i in range(40)]
    assert index.batch(queries, 3) == [index.batch([query], 3)[0] for query in queries]


def test_queries_that_find_nothing():
    index = LocalBM25.build([Passage("a", "cat", "dog"), Passage("b", "!!!", "...")])
    assert index.batch(["", "the of", "unknown", "!!!", "\ud800", "x" * 10**5], 3) == [[]] * 6
    assert index.batch([], 3) == []
    assert index.batch(["cat"], 0) == [[]]
    with pytest.raises(ValueError, match="no passage holds a word"):
        LocalBM25.build([Passage("b", "!!!", "...")])


def test_words_of_the_index():
    assert tokenize("The Café's 2nd ÉTÉ, naïve—co-op") == ["cafe", "s", "2nd", "ete", "naive", "co", "op"]


def test_threads_get_the_same_answers():
    index = LocalBM25.build(encyclopaedia().passages)
    queries = [passage.title for passage in encyclopaedia().passages[:200]]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: index.batch(queries, 3), range(16)))
    assert all(answer == answers[0] for answer in answers)


# ------------------------------------------------------------------------------------------ on disk


def is_mapped(array: np.ndarray) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_the_saved_index_is_memory_mapped_and_the_same(tmp_path):
    rows = [{"id": p.id, "title": p.title, "text": p.text} for p in encyclopaedia().passages[:300]]
    rows[7] = {"id": 7, "contents": f'"{rows[7]["title"]}"\n{rows[7]["text"]}'}
    corpus = tmp_path / "corpus.jsonl"
    write(corpus, rows)
    built = LocalBM25.open(corpus, tmp_path / "cache")
    again = LocalBM25.open(corpus, tmp_path / "cache")
    memory = LocalBM25.build(list(read_corpus(corpus)))
    assert is_mapped(again.weights.data) and is_mapped(again.weights.indices) and is_mapped(again.passages.offsets)
    queries = [row["title"] for row in rows if "title" in row] + ["penned year"]
    assert again.batch(queries, 5) == built.batch(queries, 5) == memory.batch(queries, 5)
    assert again.fingerprint == built.fingerprint and len(list((tmp_path / "cache").iterdir())) == 1


def test_a_changed_corpus_gets_an_index_of_its_own(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    write(corpus, [{"id": "1", "title": "cat", "text": ""}])
    first = LocalBM25.open(corpus, tmp_path / "cache")
    write(corpus, [{"id": "1", "title": "dog", "text": ""}])
    second = LocalBM25.open(corpus, tmp_path / "cache")
    assert first.fingerprint != second.fingerprint
    assert second.batch(["cat", "dog"], 1)[0] == [] and second.batch(["dog"], 1)[0][0].title == "dog"


def test_the_index_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    corpus, cache = tmp_path / "corpus.jsonl", tmp_path / "cache"
    write(corpus, [{"id": "1", "title": "cat", "text": ""}])
    with monkeypatch.context() as patch:
        patch.setattr(bm25.np, "save", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            LocalBM25.open(corpus, cache)
    assert list(cache.iterdir()) == []
    assert LocalBM25.open(corpus, cache).batch(["cat"], 1)[0][0].id == "1"


def test_the_cache_follows_xdg(tmp_path, monkeypatch):
    corpus = tmp_path / "corpus.jsonl"
    write(corpus, [{"id": "1", "title": "cat", "text": ""}])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert (tmp_path / "xdg" / "adrs" / "search" / LocalBM25.open(corpus).fingerprint).is_dir()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"id": "1", "title": "a", "text": "b"}\n{"id": "2", "title"', "line 2: not a JSON object"),
        ('{"id": "1", "title": "a", "text": "b"}\n[1]\n', "line 2: expected a JSON object, found list"),
        ('{"id": "1", "title": "a"}\n', "line 1: a passage needs `title` and `text`"),
        ('{"title": "a", "text": "b"}\n', "line 1: a passage needs an `id`"),
        ('{"id": true, "title": "a", "text": "b"}\n', "line 1: a passage needs an `id`"),
        ('\n{"id": "1", "contents": "a"}\n\n{"id": 1, "contents": "a"}\n', "line 4: id '1' was used on line 2"),
        ("\n \n", "holds no passage"),
    ],
)
def test_a_broken_corpus_is_named_by_file_and_line(tmp_path, lines, message):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(lines, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        LocalBM25.open(corpus, tmp_path / "cache")
    assert str(corpus) in str(caught.value)


def test_other_broken_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        LocalBM25.open(tmp_path / "nowhere.jsonl", tmp_path / "cache")
    (tmp_path / "latin.jsonl").write_bytes('{"id": "1", "title": "é", "text": ""}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin.jsonl, line 1: .*UTF-8"):
        read_corpus(tmp_path / "latin.jsonl")


def test_every_form_of_a_passage():
    want = Passage("7", "Title", "text\nmore")
    for record in (
        {"id": 7, "title": "Title", "text": "text\nmore"},
        {"id": "7", "contents": '"Title"\ntext\nmore'},
        {"document": {"id": "7", "contents": '"Title"\ntext\nmore'}},
        {"document": {"id": "7", "title": "Title", "text": " text\nmore "}, "score": None},
    ):
        assert passage_from(record, "here") == want
    assert passage_from({"document": {"id": "7", "contents": want.contents}, "score": 2}, "here").score == 2.0
    for broken in (7, {"document": []}, {"id": "7", "contents": 7}):
        with pytest.raises(ValueError, match=r"^here: a passage"):
            passage_from(broken, "here")


# ------------------------------------------------------------------------------------------ the mini set


def hits(mini, topk: int) -> float:
    """Share of the questions, yes and no left out, whose gold is in one of the first `topk` passages; the question is
    the query."""
    index, questions = mini
    asked = [q for q in questions if {normalise(gold) for gold in q.golds} - {"yes", "no"}]
    found = index.batch([q.text for q in asked], topk)
    hit = 0
    for question, passages in zip(asked, found, strict=True):
        texts = [f" {normalise(p.title + ' ' + p.text)} " for p in passages]
        hit += any(f" {normalise(gold)} " in text for gold in question.golds for text in texts)
    return hit / len(asked)


def test_hits_on_the_mini_set(mini):
    at_3, at_10 = hits(mini, 3), hits(mini, 10)
    print(f"hit@3 {100 * at_3:.1f}, hit@10 {100 * at_10:.1f}")
    assert at_3 == pytest.approx(0.624, abs=0.01) and at_10 == pytest.approx(0.801, abs=0.01)


def test_a_step_of_the_papers_size_takes_less_than_two_seconds(mini):
    index, questions = mini
    queries = ([q.text for q in questions] * 2)[:1280]
    begin = time.process_time()
    index.batch(queries, 3)
    seconds = time.process_time() - begin
    print(f"{len(queries)} queries in {seconds:.2f} s")
    assert seconds < 2
