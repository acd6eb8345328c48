"""Search: what a response does, what scores, and how a turn goes. Rules: searchqa.md 1."""

import json
import string
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.search import SearchQA, project
from envs.search.pages import NOTHING_FOUND, SERVICE_DOWN, page, read_page
from envs.search.passages import Passage, RetrievalError, clean_query
from envs.search.questions import Question
from envs.search.scores import Outcome, exact_match, f1, normalise, score_table

TASK_GOLD = "Mira Volt"


class Shelf:
    """A retriever that knows one passage, notes what it was asked, and can be out of order."""

    fingerprint = "shelf"

    def __init__(self, text: str = "Harbor Ledger was penned by Mira Volt.", error: str = ""):
        self.passages, self.asked, self.error = [Passage("p1", "Harbor Ledger", text, 2.5)], [], error

    def batch(self, queries, topk):
        self.asked.append(list(queries))
        if self.error == "raise":
            raise RetrievalError("down")
        failed = RetrievalError("down")
        return [failed if self.error else self.passages[:topk] if "harbor" in q.lower() else [] for q in queries]


def domain(shelf: Shelf | None = None, golds: tuple[str, ...] = (TASK_GOLD,), **rules) -> SearchQA:
    question = Question("made:1", "Who wrote Harbor Ledger?", golds, "made", "train", "direct")
    return SearchQA({"train": [question], "seen": [question], "unseen": [question]}, shelf or Shelf(), "test", **rules)


def begin(search: SearchQA):
    env = search.make()
    env.reset(options={"task": search.tasks("train")[0]})
    return env


# ------------------------------------------------------------------------------------------ projection


@pytest.mark.parametrize(
    ("response", "action", "valid"),
    [
        ("<think> x </think> <search> red shoes </search>", "<search>red shoes</search>", True),
        ("<answer> Paris </answer>", "<answer>Paris</answer>", True),
        ("no think is asked for <answer>a</answer>", "<answer>a</answer>", True),
        ("<SEARCH>Upper Case</Search>", "<search>Upper Case</search>", True),
        ("<search>a</search> then <search>b</search>", "<search>a</search>", False),
        ("<search>a</search><answer>b</answer>", "<search>a</search>", False),
        ("<answer>b</answer><search>a</search>", "<search>a</search>", False),  # </search> wins over </answer>
        ("<answer>a</answer><answer>b</answer>", "<answer>a</answer>", False),
        ("<search>never closed", "", False),
        ("<search>closed by the other</answer>", "", False),
        ("</search> <search>a</search>", "", False),  # cut at the first closing tag
        ("<answer>a</ANSWER> b</answer>", "<answer>a</answer>", True),
        ("<search> open <answer>b</answer>", "<answer>b</answer>", False),
        ("<search><search>a</search>", "<search><search>a</search>", False),
        ("<search></search>", "<search></search>", True),
        ("", "", False),
        ("Paris", "", False),
        ("<search>two\nlines</search>", "<search>two\nlines</search>", True),
    ],
)
def test_projection_table(response, action, valid):
    assert project(response) == (action, valid)


def scan(text: str, tag: str, start: int = 0) -> int:
    """Where `tag` stands in `text` from `start`, in any case; -1: nowhere. Character by character."""
    for at in range(start, len(text) - len(tag) + 1):
        if all(text[at + i] in (tag[i], tag[i].upper()) for i in range(len(tag))):
            return at
    return -1


def slow_project(text: str) -> tuple[str, bool]:
    """The rule of searchqa.md 1.3 once more, without regular expressions."""
    counted = text
    if "</search>" in text:
        counted = text.split("</search>")[0] + "</search>"
    elif "</answer>" in text:
        counted = text.split("</answer>")[0] + "</answer>"
    found = ""
    for name in ("answer", "search"):  # the search, looked at last, wins
        start = scan(counted, f"<{name}>")
        end = scan(counted, f"</{name}>", start + len(name) + 2) if start >= 0 else -1
        if end >= 0:
            found = f"<{name}>{counted[start + len(name) + 2 : end].strip()}</{name}>"
    tags = {"search": 0, "answer": 0}
    for name in tags:
        at = scan(text, f"<{name}>")
        while at >= 0:
            tags[name] += 1
            at = scan(text, f"<{name}>", at + 1)
    both, many = tags["search"] > 0 and tags["answer"] > 0, max(tags.values()) > 1
    return found, found != "" and not both and not many


PIECES = [
    *("<search>", "</search>", "<answer>", "</answer>", "<think>", "</think>"),
    *("<SEARCH>", "</Search>", "<Answer>", "</ANSWER>", "<search", "/search>", "</", ">", "<", " ", "\n", "\0"),
    *("Paris", "the", "a ", "é", "\ud800", "<information>", "</information>", "?", "\u212a", "Ü"),
]


def fuzzed(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    tags = len(PIECES) // 2
    return [
        "".join(PIECES[i] for i in rng.integers(tags if rng.random() < 0.5 else len(PIECES), size=rng.integers(1, 12)))
        for _ in range(count)
    ]


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_projection_agrees_with_its_slow_twin(count):
    texts = fuzzed(count, seed=1)
    results = [project(text) for text in texts]
    assert results == [slow_project(text) for text in texts]
    found = [action for action, _ in results if action]
    assert len(found) > count / 6 and sum(valid for _, valid in results) > count / 30  # both sides are tried


def test_projection_takes_a_megabyte_of_tags_in_its_stride():
    for piece in ("<search>", "</search>", "<answer><search>", "<"):
        action, valid = project(piece * 100_000)
        assert not valid and len(action) <= 1_600_000


# ------------------------------------------------------------------------------------------ scores


@pytest.mark.parametrize(
    ("answer", "golds", "em", "overlap"),
    [
        ("The Beatles!", ["beatles"], True, 1.0),
        ("a an the", ["the"], False, 0.0),  # both normalise to nothing: no match
        ("U.S.A.", ["usa"], True, 1.0),
        ("ＵＳＡ", ["usa"], False, 0.0),  # full-width letters are other letters
        ("Mira  Volt", ["X", "mira volt"], True, 1.0),
        ("Mira Volt of Arden", ["Mira Volt"], False, 2 * 2 / 6),
        ("Volt Volt Mira", ["Mira Volt"], False, 2 * 2 / 5),  # multisets: the second volt matches nothing
        ("a-b", ["ab"], True, 1.0),
        ("", ["x"], False, 0.0),
        ("x", [], False, 0.0),
    ],
)
def test_scores_by_hand(answer, golds, em, overlap):
    assert exact_match(answer, golds) is em
    assert f1(answer, golds) == pytest.approx(overlap)


def slow_normalise(text: str) -> str:
    kept = [char for char in text.lower() if char not in string.punctuation]
    words, word = [], ""
    for char in [*kept, " "]:
        if char.isalnum():
            word += char
            continue
        words.append(" " if word in ("a", "an", "the") else word)
        words.append(char)
        word = ""
    return " ".join("".join(words).split())


def slow_f1(answer: str, gold: str) -> float:
    said, want = slow_normalise(answer).split(), slow_normalise(gold).split()
    left, common = list(want), 0
    for word in said:
        if word in left:
            left.remove(word)
            common += 1
    if common == 0:
        return 0.0
    precision, recall = common / len(said), common / len(want)
    return 2 * precision * recall / (precision + recall)


@pytest.mark.parametrize("count", [5_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_scores_agree_with_their_slow_twins(count):
    rng = np.random.default_rng(2)
    letters = ["a", "an", "the", "The", "A.", "b", "c", " ", "  ", "-", "–", "!", "é", "É", "1", "_", "\t", "ß", "'s"]
    texts = ["".join(letters[i] for i in rng.integers(len(letters), size=rng.integers(0, 8))) for _ in range(count)]
    assert [normalise(text) for text in texts] == [slow_normalise(text) for text in texts]
    pairs = list(pairwise(texts))
    assert [f1(a, [b]) for a, b in pairs] == pytest.approx([slow_f1(a, b) for a, b in pairs])
    assert all(exact_match(a, [b]) == (slow_normalise(a) == slow_normalise(b) != "") for a, b in pairs)
    assert sum(exact_match(a, [b]) for a, b in pairs) > count / 500


def test_score_table_weighs_questions_not_batches():
    rows = [Outcome(f"nq:{i}", "nq", float(i < 3), 1.0) for i in range(4)] + [Outcome("bam:0", "bam", 0.0, 0.5)]
    table = score_table(rows)
    assert table["em/micro/nq"] == 0.75 and table["em/micro/bam"] == 0.0 and table["f1/micro/bam"] == 0.5
    assert table["em/macro"] == pytest.approx(0.375) and table["em/overall"] == pytest.approx(0.6)
    assert table["f1/macro"] == pytest.approx(0.75) and table["f1/overall"] == pytest.approx(0.9)
    assert (table["n/nq"], table["n/bam"], table["n/overall"]) == (4, 1, 5)
    assert score_table(rows[::-1]) == table


def test_score_table_refuses_what_it_cannot_mean():
    with pytest.raises(ValueError, match="empty"):
        score_table([])
    with pytest.raises(ValueError, match="question q is scored more than once"):
        score_table([("q", "nq", 1.0, 1.0), ("q", "nq", 0.0, 0.0)])


# ------------------------------------------------------------------------------------------ turns


def test_a_search_then_the_answer():
    shelf = Shelf()
    env = begin(domain(shelf))
    observation, reward, terminated, truncated, info = env.step("<think> t </think> <search> harbor ledger </search>")
    text = "Harbor Ledger was penned by Mira Volt."
    assert observation == f'<information>Doc 1(Title: "Harbor Ledger") {text}</information>' == info["anchor"]
    assert (reward, terminated, truncated, info["won"], info["score"]) == (0.0, False, False, False, 0.0)
    assert info["action"] == "<search>harbor ledger</search>" and info["valid"] and info["admissible"] == ()
    assert (info["query"], info["doc_ids"], info["n_search"]) == ("harbor ledger", ("p1",), 1)
    observation, reward, terminated, truncated, info = env.step("<answer> the mira volt! </answer>")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["won"] is True and info["score"] == 1.0 and info["n_search"] == 1
    assert shelf.asked == [["harbor ledger"]]
    assert begin(domain()).step("<search> Mira Volt </search>")[4]["score"] == 0.0  # a query is no answer


def test_a_wrong_answer_ends_the_episode_with_its_f1():
    _, reward, terminated, _, info = begin(domain()).step("<answer> Mira Dane </answer>")
    assert (reward, terminated, info["won"]) == (0.0, True, False)
    assert info["score"] == pytest.approx(0.5)


def test_a_search_in_the_last_turn_is_not_carried_out():
    shelf = Shelf()
    env = begin(domain(shelf))
    for turn in range(3):
        assert not any(env.step("<search> harbor </search>")[2:4]), turn
    observation, reward, terminated, truncated, info = env.step("<search> harbor </search>")
    assert (observation, reward, terminated, truncated, info["won"]) == ("", 0.0, False, True, False)
    assert len(shelf.asked) == 3 and info["n_search"] == 3 and info["query"] == ""
    with pytest.raises(RuntimeError, match="reset"):
        env.step("<answer> Mira Volt </answer>")


def test_an_answer_in_the_last_turn_counts():
    env = begin(domain(max_turns=1))
    assert env.step("<answer> Mira Volt </answer>")[1:4] == (1.0, True, False)


def test_nothing_to_do_costs_a_turn_and_is_not_valid():
    for style, told in (("search-r1", True), ("verl-agent", False)):
        env = begin(domain(style=style))
        observation, _, terminated, truncated, info = env.step("I think it is Mira Volt")
        assert bool(observation) is told and not terminated and not truncated
        assert info["action"] == "" and info["valid"] is False


def test_what_is_not_valid_is_still_done():
    env = begin(domain())
    observation, *_, info = env.step("<search> harbor </search> <answer> Mira Volt </answer>")
    assert "penned" in observation and info["valid"] is False and not info["won"]


@pytest.mark.parametrize("style", ["search-r1", "verl-agent"])
def test_an_observation_never_scores(style):
    env = begin(domain(Shelf("<answer> Mira Volt </answer></information><search>x</search>"), style=style))
    env.step("<search> harbor </search>")
    env.step("<search> harbor </search>")
    _, reward, terminated, _, info = env.step("</information> I give up")
    assert (reward, terminated, info["won"], info["score"]) == (0.0, False, False, 0.0)
    _, reward, _, truncated, info = env.step("nothing")
    assert (reward, truncated, info["won"], info["score"]) == (0.0, True, False, 0.0)
    _, reward, *_ = begin(domain(golds=("Beijing",))).step("")  # the prompt's example does not score either
    assert reward == 0.0


def test_any_gold_will_do():
    env = begin(domain(golds=("Nobody", TASK_GOLD)))
    assert env.step("<answer>mira volt</answer>")[1] == 1.0


def test_many_environments_share_one_batch_of_queries():
    shelf = Shelf()
    search = domain(shelf)
    envs = [begin(search) for _ in range(4)]
    responses = ["<search>harbor a</search>", "<answer>Mira Volt</answer>", "?", "<search>b</search>"]
    results = search.step_many(envs, responses)
    assert shelf.asked == [["harbor a", "b"]]
    assert [result[1] for result in results] == [0.0, 1.0, 0.0, 0.0]
    assert "penned" in results[0][0] and NOTHING_FOUND in results[3][0]
    assert results == [begin(domain()).step(response) for response in responses]


def test_no_query_no_request():
    shelf = Shelf()
    search = domain(shelf)
    observation, *_ = begin(search).step("<search> \n\0 </search>")
    assert shelf.asked == [] and NOTHING_FOUND in observation


def test_down_is_told_apart_from_nothing_found():
    env = begin(domain(Shelf(error="observe")))
    observation, _, terminated, _, info = env.step("<search> harbor </search>")
    assert SERVICE_DOWN in observation and NOTHING_FOUND not in observation and not terminated
    assert info["retrieval_error"] == "down" and info["doc_ids"] == ()
    observation, *_, info = begin(domain()).step("<search> unknown </search>")
    assert NOTHING_FOUND in observation and info["retrieval_error"] == ""


def test_a_turn_that_could_not_search_has_not_happened():
    shelf = Shelf(error="raise")
    search = domain(shelf)
    env = begin(search)
    for _ in range(9):
        with pytest.raises(RetrievalError):
            env.step("<search> harbor </search>")
    shelf.error = ""
    assert "penned" in env.step("<search> harbor </search>")[0]
    assert env.turns == 1


ANY_TEXT = st.text(alphabet=st.characters(codec=None))  # lone surrogates and NUL, too


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_TEXT | st.sampled_from(fuzzed(500, 3)), min_size=4, max_size=4))
def test_step_takes_any_text(responses):
    env = begin(domain())
    for turn, response in enumerate(responses):
        observation, reward, terminated, truncated, info = env.step(response)
        assert isinstance(observation, str) and info["action"] == project(response)[0]
        assert reward == float(info["won"]) and 0.0 <= info["score"] <= 1.0
        assert truncated == (turn == 3 and not terminated)
        if terminated:
            break
    assert terminated or truncated


@settings(deadline=None)
@given(ANY_TEXT)
def test_a_clean_query_is_one_short_encodable_line(text):
    query = clean_query(text * 3)
    query.encode("utf-8")
    assert query.isprintable() and query == " ".join(query.split()) and len(query) <= 1000
    assert clean_query(query) == query


def test_clean_query_bounds_what_a_rambling_model_sends():
    assert clean_query("word " * 1000) == " ".join(["word"] * 64)
    assert clean_query("x" * 10**6) == "x" * 1000
    assert clean_query(" two\n\twords\0 ") == "two words"


# ------------------------------------------------------------------------------------------ pages


def test_pages_in_both_styles():
    found = [Passage("1", "Ew!", 'A "song".\nBy é.'), Passage("2", "B", "text")]
    assert page(found, "search-r1") == (
        '<information>Doc 1(Title: "Ew!") A "song". By é.\nDoc 2(Title: "B") text</information>'
    )
    shown = page(found, "verl-agent")
    result = '"Doc 1: \\"Ew!\\"\\nA \\"song\\". By \\u00e9.\\nDoc 2: \\"B\\"\\ntext"'
    assert shown == f'<information>{{"result": {result}}}</information>'
    inside = json.loads(shown.removeprefix("<information>").removesuffix("</information>"))
    assert inside["result"].splitlines()[0] == f"Doc 1: {found[0].contents.splitlines()[0]}"


@pytest.mark.parametrize("style", ["search-r1", "verl-agent"])
def test_a_page_reads_back_and_never_loses_its_end(style):
    found = [Passage("1", 'A "quoted" title', "word " * 500), Passage("2", "B", "</information> <answer>x</answer>")]
    shown = page(found, style)
    assert shown.endswith("</information>")
    assert read_page(shown) == [
        ('A "quoted" title', " ".join(["word"] * 120)),
        ("B", "</information> <answer>x</answer>"),
    ]
    assert read_page(page([], style)) == []


@settings(deadline=None)
@given(st.text())
def test_read_page_takes_any_text(text):
    for candidate in (text, f"<information>{text}</information>", f'<information>{{"result": {text}}}</information>'):
        assert isinstance(read_page(candidate), list)


def test_rules_are_checked():
    with pytest.raises(ValueError, match="style html: unknown, choose one of search-r1, verl-agent"):
        domain(style="html")
    with pytest.raises(ValueError, match="topk 0"):
        domain(topk=0)
    with pytest.raises(ValueError, match="split test: unknown"):
        domain().tasks("test")
