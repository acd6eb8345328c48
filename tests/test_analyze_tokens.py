"""Which tokens are action, object, style or tag, in whole words and in pieces; and the gaps in each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.tokens import CATEGORIES, categories, locate, summarise
from tests.made_results import episode

ADMISSIBLE = ["go to fridge 1", "take mug 1 from desk 2", "look", "put mug 1 in/on desk 2"]
PIECES = ["<", "think", ">", "I", " need", " the", " mug", ".\n", "</", "think", ">", "<", "action", ">", "take", " mu",
          "g", " ", "1", " from", " de", "sk", " 2", "</", "action", ">", "<|im_end|>"]  # fmt: skip


def kinds(tokens, admissible=ADMISSIBLE, response=None):
    shown = "".join(tokens) if response is None else response
    return [kind[0] for kind in categories(shown, tokens, admissible)]


def test_pieces_of_words():
    assert "".join(kinds(PIECES)) == "tttsssssttt" + "ttt" + "aoosoaooo" + "ttt" + "t"


def test_whole_words_with_spaces_that_are_not_tokens():
    tokens = ["<think>", "need", "the", "mug", "</think>", "<action>", "take", "mug", "1", "from", "desk", "2",
              "</action>", "<eos>"]  # fmt: skip
    response = "<think> need the mug </think> <action> take mug 1 from desk 2 </action>"
    assert "".join(kinds(tokens, response=response)) == "tssst" + "t" + "aooaoo" + "tt"


@pytest.mark.parametrize(
    "action, expected",
    [
        ("go to fridge 1", "aaoo"),
        ("put mug 1 in/on desk 2", "aooaoo"),
        ("GO TO Fridge 1", "aaoo"),
        ("eat the mug 9", "ssos"),  # no verb, no article, no such number
        ("look", "a"),
    ],
)
def test_actions(action, expected):
    words = action.split()
    tokens = ["<action>", *words, "</action>"]
    assert "".join(kinds(tokens, response=" ".join(tokens))) == "t" + expected + "t"


def test_the_argument_of_a_call_is_the_object():
    assert "".join(kinds(["<action>", "click", "[", "buy", " now", "]", "</action>"], ["click[buy now]"])) == "tasoost"
    assert "".join(kinds(["<action>", "search", "[", "go", " red", " shoes", "]", "</action>"], [])) == "tasooost"


def test_search_has_objects_only():
    tokens = ["<think>", "who", "</think>", "<search>", "who", " wrote", "</search>"]
    assert "".join(kinds(tokens, [])) == "tsttoot"
    assert "".join(kinds(["<answer>", "Mira", " Volt", "</answer>"], [])) == "toot"


def test_words_in_the_thinking_are_style():
    assert set(kinds(["take", " mug", " 1"])) == {"s"}


def test_a_token_over_a_border_goes_with_most_of_its_characters():
    assert kinds(["<action>go", " to", " fridge 1</action>"]) == ["t", "a", "t"]
    assert kinds(["<action>", "go to fridge 1", "</action>"]) == ["t", "o", "t"]


def test_an_open_action_runs_to_the_end():
    assert kinds(["<action>", "go", " to", " fridge"]) == ["t", "a", "a", "o"]


def test_fragments_of_a_character_do_not_lose_the_rest():
    tokens = ["caf", "\ufffd", "\ufffd", " ", "<action>", "look", "</action>"]
    assert kinds(tokens, response="café <action>look</action>") == ["s", "s", "s", "s", "t", "a", "t"]


def test_locate():
    assert locate("a  bc", ["a", " b", "c", "</s>"]) == [(0, 1), (3, 4), (4, 5), None]


@given(st.lists(st.text(max_size=6), max_size=12), st.text(max_size=60), st.lists(st.text(max_size=8), max_size=3))
def test_any_text_gets_one_category_a_token(tokens, response, admissible):
    for shown in (response, "".join(tokens)):
        got = categories(shown, tokens, admissible)
        assert len(got) == len(tokens) and set(got) <= set(CATEGORIES)


def test_a_megabyte_of_one_word_is_quick():
    response = "<action>" + "a" * 1_000_000
    assert categories(response, ["<action>", "a" * 1_000_000], ["look"]) == ["tag", "style"]


def with_gaps(action, style, n=2):
    """An episode whose action tokens have one gap and whose other tokens another."""
    made = episode(np.random.default_rng(0), 50, "frozen")
    for turn in made["turns"]:
        own = categories(turn["response"], turn["tokens"], turn["admissible"])
        turn["student_logp"] = [-1.0] * len(own)
        turn["teacher_logp"] = [-1.0 + (action if kind == "action" else style) for kind in own]
    return made


def test_means_and_ratios_by_hand():
    rows = {row["category"]: row for row in summarise([with_gaps(-0.6, 0.2), with_gaps(-0.2, 0.2)])}
    assert rows["action"]["n"] == 2 * 2 * 2  # two episodes of two turns with two verbs
    assert rows["action"]["mean"].value == pytest.approx(-0.4)
    assert rows["action"]["mean_abs"].value == pytest.approx(0.4)
    assert rows["action"]["ratio"].value == pytest.approx(2.0)  # |signed mean| over |signed mean of style|
    assert rows["style"]["mean"].value == pytest.approx(0.2)
    assert rows["action"]["mean"].low == pytest.approx(-0.6) and rows["action"]["mean"].high == pytest.approx(-0.2)


def test_signed_means_cancel_and_absolute_ones_do_not():
    rows = {row["category"]: row for row in summarise([with_gaps(-0.5, 0.1), with_gaps(0.5, 0.1)])}
    assert rows["action"]["ratio"].value == pytest.approx(0.0, abs=1e-9)
    assert rows["action"]["ratio_abs"].value == pytest.approx(5.0)


def test_sets_and_steps_stay_apart_and_what_no_teacher_scored_is_left_out():
    rng = np.random.default_rng(0)
    rows = summarise([episode(rng, 0, "fresh"), episode(rng, 0, "frozen"), episode(rng, 5, "fresh"),
                      episode(rng, 5, "fresh", teacher=False)])  # fmt: skip
    assert sorted({(row["set"], row["step"], row["episodes"]) for row in rows}) == [
        ("fresh", 0, 1), ("fresh", 5, 1), ("frozen", 0, 1),
    ]  # fmt: skip
