"""Whatever a model writes: the parser, the three environments and the prompt take it, win nothing by accident, and
read no tag that the model did not write. Hypothesis builds the texts; `-m slow` builds 200,000 of them."""

import re
import time
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import envs
from envs.base import View, parse_action
from envs.search.scores import normalise
from rollout import Episode, stream
from tests.toy import toy_policy

TAGS = ["<think>", "</think>", "<action>", "</action>", "<search>", "</search>", "<answer>", "</answer>"]
CONTROL = ["<|im_end|>", "<|im_start|>system\n", "<|end|>", "<|user|>", "<|assistant|>", "<|endoftext|>", "</s>"]
ODD = ["\0", "\ud800", "\udfff", "\u202e", "\u200f", "\ufeff", "İ", "ſ", "好", "\x1b[2J", "\r", "\u2028", "%s{0}"]
BROKEN = ["<action", "action>", "< action>", "</ action>", "<ACTION>", "</Action>", "<action/>", "&lt;action&gt;"]


def texts(*bait: str) -> st.SearchStrategy[str]:
    """Tags unclosed, nested, repeated and reversed, among control tokens, odd characters and what would win."""
    known = [*TAGS, *TAGS, *CONTROL, *ODD, *BROKEN, *bait, *bait, *bait, " ", "\n"]
    piece = st.sampled_from(known) | st.characters(codec=None)
    return st.lists(piece, max_size=10).map("".join)


# ------------------------------------------------------------------------- one step before the end of an episode


@cache
def script(name: str) -> tuple:
    """(domain, task, the expert's responses) of a small world: all but the last lead to where one action wins."""
    domain = envs.load(name, lean=True)
    task = domain.tasks("seen")[3]
    episode, responses = Episode(domain, task), []
    player = domain.player("expert", stream(0, 0, task, 0))
    while not episode.over:
        responses.append(player(episode.view(), episode.env))
        episode.advance(episode.env.step(responses[-1]))
    assert episode.ended == "won"
    return domain, task, responses


def last_turn(name: str) -> tuple[Episode, str]:
    """An episode that the last response wins, and the action in it."""
    domain, task, responses = script(name)
    episode = Episode(domain, task)
    for response in responses[:-1]:
        episode.advance(episode.env.step(response))
    return episode, parse_action(responses[-1])[0]


def taken(text: str, fallback: int = 30) -> str:
    """What is done: a slow twin of `parse_action`."""
    pair = re.search(r"<action>(.*?)</action>", text.lower(), re.DOTALL)
    return (pair[1] if pair else text.lower()[-fallback:]).strip()


def formed(text: str) -> bool:
    lower, want = text.lower(), TAGS[:4]
    places = [lower.find(tag) for tag in want]
    once = all(lower.count(tag) == 1 for tag in want)
    return once and places == sorted(places) and not any("一" <= char <= "鿿" for char in text)


def check_parser(text: str) -> None:
    assert parse_action(text) == (taken(text), formed(text))
    action, valid = parse_action(text, think_in_prompt=True)
    assert action == taken(text) and (valid or not formed(text))


def check_game(name: str, text: str, action: str, wins: bool) -> None:
    episode, _ = last_turn(name)
    observation, reward, terminated, _, info = episode.env.step(text)
    assert isinstance(observation, str) and isinstance(info["admissible"], tuple)
    assert (info["action"], info["valid"]) == (action, formed(text))
    assert info["won"] == wins == (reward > 0)
    assert terminated or not info["won"]


def check_alfworld(text: str) -> None:
    action = taken(text)
    check_game("alfworld", text, action, " ".join(action.split()) == last_turn("alfworld")[1])


def check_webshop(text: str) -> None:
    """The shop, as the original, reads an action up to the last bracket of its first line and leaves the rest."""
    action = taken(text, fallback=20)
    check_game("webshop", text, action, bool(re.match(r"click\[buy now\][^]\n]*(\n|$)", action)))


def check_search(text: str) -> None:
    domain, task, _ = script("search")
    episode = Episode(domain, task)
    _, reward, terminated, _, info = episode.env.step(text)
    golds = task.payload.question.golds
    said = [normalise(part) for part in re.findall(r"(?is)<answer>(?=(.*?)</answer>)", text)]
    assert not info["won"] or any(normalise(gold) in said for gold in golds)
    assert info["won"] == (reward > 0) and (terminated or not info["won"])


@cache
def prompts() -> tuple:
    policy = toy_policy()
    return policy, set(policy.tokenizer.all_special_ids) - {policy.tokenizer.unk_token_id}


def check_prompt(text: str) -> None:
    """A page or a skill brings no control token into a prompt: its roles are those of the template."""
    policy, control = prompts()
    roles = [token for token in policy.encode("x", system="x") if token in control]
    assert [token for token in policy.encode(text, system=text) if token in control] == roles


def winning(name: str) -> list[str]:
    action = last_turn(name)[1]
    return [action, f"<action>{action}</action>", f"<think>so</think><action>{action}</action>"]


@cache
def checks() -> dict:
    golds = script("search")[1].payload.question.golds
    answers = [*golds, *(f"<answer>{gold}</answer>" for gold in golds), "<search>who</search>"]
    return {
        "parser": (check_parser, texts("go to desk 1")),
        "alfworld": (check_alfworld, texts(*winning("alfworld"))),
        "webshop": (check_webshop, texts(*winning("webshop"))),
        "search": (check_search, texts(*answers)),
        "prompt": (check_prompt, texts("say red")),
    }


NAMES = ["parser", "alfworld", "webshop", "search", "prompt"]


def fuzz(name: str, count: int, repeat: bool) -> None:
    check, strategy = checks()[name]
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settings(max_examples=count, deadline=None, derandomize=repeat, database=None, suppress_health_check=slow)(
        given(strategy)(check)
    )()


@pytest.mark.parametrize("name", NAMES)
def test_hostile_text(name):
    fuzz(name, 200, repeat=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_much_hostile_text(name):
    fuzz(name, 40_000, repeat=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_fuzz_is_not_blind(name):
    """What should win does, so that the checks above see both sides."""
    check, _ = checks()[name]
    for text in winning(name) if name in ("alfworld", "webshop") else ["<answer>x</answer>"]:
        check(text)
    if name in ("alfworld", "webshop"):
        assert last_turn(name)[0].env.step(winning(name)[-1])[4]["won"]


@pytest.mark.parametrize("unit", ["<action>", "</action><action>", "<think>", "<answer></search>", "<|end|>", "\ud800"])
def test_a_megabyte(unit):
    text, begun = unit * (10**6 // len(unit)), time.process_time()
    policy, _ = prompts()
    policy.neutral(text)
    for name in ("alfworld", "webshop", "search"):
        _, reward, _, _, info = last_turn(name)[0].env.step(text)
        assert not info["won"] and reward == 0
    assert time.process_time() - begun < 10


# -------------------------------------------------------------------------------- what an observation may hold


@pytest.mark.parametrize("name", ["alfworld", "webshop", "search"])
def test_no_tag_of_an_observation_is_the_models(name):
    """Every text that the policy sees holds a winning response; one that says nothing wins nothing all the same."""
    domain, task, _ = script(name)
    golds = task.payload.question.golds if name == "search" else ()
    bait = f"<answer>{golds[0]}</answer>" if golds else winning(name)[-1]
    episode = Episode(domain, task) if golds else last_turn(name)[0]
    view = episode.view()
    seen = View(replace(task, goal=bait), 1, ((bait, bait),), f"{view.observation}\n{bait}", (*view.admissible, bait))
    for lean in (True, False):
        assert bait.casefold() in domain.prompt(seen, lean).casefold() or lean
    for text in ("", "hm", "</think></action></answer>", "<think>", "<action>", "<answer>", "<|im_end|>"):
        again = Episode(domain, task) if golds else last_turn(name)[0]
        assert not again.env.step(text)[4]["won"]
