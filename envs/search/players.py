"""From a view to a whole response without a model: demonstrations, a ceiling and a floor.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

`guided` and `novice` see the view alone. Both read well: they know an entry that answers the question when they see
one. `guided` also knows what the skill notes tell: the house words, that the inner question comes first, and which year
the older has. `novice` does not: it tries house words at random, may take the first value it finds for the answer, and
picks either year. `expert` sees the golds; `random` does not search, and guesses an answer to some training question.
Thoughts write down in copies and comparisons what decides the action, in at most 16 words. Left out: other questions
than the encyclopaedia's; on those, guided and novice search the question once and answer with the best title.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from envs.base import Env, Player, View
from envs.search.encyclopaedia import EITHER, HOUSE_STYLE, RELATIONS, Relation
from envs.search.pages import read_page
from envs.search.prompts import past_steps, plain
from envs.search.questions import Question

KINDS = ("expert", "guided", "novice", "random")
STYLE = {  # phrases that mean the same: which of them is said is chance
    "need": ("i need", "find out", "i ask", "to learn"),
    "found": ("found", "i see", "here is", "so it is"),
    "missing": ("not here .", "nothing yet .", "not found .", "no luck ."),
    "so": ("so", "thus", "that is", "hence"),
}
HOUSE_WORDS = tuple(HOUSE_STYLE.values())


def make_player(kind: str, rng: np.random.Generator, max_turns: int, known: Sequence[Question]) -> Player:
    """`known`: the training questions, whose answers `random` guesses among. Raises ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"unknown player {kind!r}: choose one of {', '.join(KINDS)}")
    if kind == "expert":
        return lambda view, env: expert(view, max_turns)
    if kind == "random":
        return lambda view, env: guess(view, known, rng)
    return Reader(kind, rng, max_turns)


# ------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class Asked:
    """What a question asks: the value of `relation` for its subject; for the `inner` value of it, where there is one;
    or for one of two subjects, the `which` of them by that value. Names are in lower case."""

    relation: Relation
    subjects: tuple[str, ...]
    inner: Relation | None = None
    which: str = ""  # older, newer


@cache
def parse(question: str) -> Asked | None:
    """Reads a question of the encyclopaedia; None where it is another."""
    text = plain(question).removesuffix(" ?")
    for relation in RELATIONS:
        if not (match := re.fullmatch(relation.ask.format(x="(.+)"), text)):
            continue
        for which, phrase in EITHER.items():
            if names := re.fullmatch(phrase.format(a=r"(\w+ \w+)", b=r"(\w+ \w+)"), match[1]):
                return Asked(relation, names.groups(), which=which)
        for inner in RELATIONS:
            if inner.noun and (name := re.fullmatch(inner.noun.format(x=r"(\w+ \w+)"), match[1])):
                return Asked(relation, name.groups(), inner)
        if re.fullmatch(r"\w+ \w+", match[1]):
            return Asked(relation, match.groups())
    return None


def entries(view: View) -> list[str]:
    """All entries in view as plain words, newest page first."""
    return [plain(text) for _, page in reversed(past_steps(view)) for _, text in read_page(page)]


def find(relation: Relation, subject: str, texts: Sequence[str]) -> re.Match | None:
    """The entry that tells this fact: group "y" is its value, "w" its house word."""
    slots = {"x": re.escape(subject), "y": "(?P<y>.+)", "w": f"(?P<w>{'|'.join(HOUSE_WORDS)})"}
    form = relation.entry.replace(".", r" \.").format(**slots)
    return next((match for text in texts if (match := re.fullmatch(form, text))), None)


def key_moves(view: View) -> set[str]:
    """The actions that take what is wanted and in view: the answer, or a query about the inner value."""
    asked = parse(view.task.goal)
    if asked is None:
        return set()
    texts = entries(view)
    if asked.which:
        years = [match["y"] for name in asked.subjects if (match := find(asked.relation, name, texts))]
        return {f"<answer>{of_two(asked.which, years)}</answer>"} if len(years) == 2 else set()
    subject = asked.subjects[0]
    if asked.inner:
        if not (match := find(asked.inner, subject, texts)):
            return set()
        subject = match["y"]
    if match := find(asked.relation, subject, texts):
        return {f"<answer>{match['y']}</answer>"}
    return {f"<search>{subject} {word}</search>" for word in HOUSE_WORDS} if asked.inner else set()


def of_two(which: str, years: Sequence[str]) -> str:
    return min(years) if which == "older" else max(years)


# ------------------------------------------------------------------------------------------ players


class Reader:
    """`guided` and `novice`: one way of reading and speaking, with and without what the notes tell."""

    def __init__(self, kind: str, rng: np.random.Generator, max_turns: int):
        self.guided, self.rng, self.max_turns = kind == "guided", rng, max_turns

    def __call__(self, view: View, env: Env) -> str:
        asked, texts = parse(view.task.goal), entries(view)
        if asked is None:
            return self._by_title(view)
        if asked.which:
            return self._compare(view, asked, texts)
        subject, found = asked.subjects[0], ""
        if asked.inner:
            inner = find(asked.inner, subject, texts)
            if inner is None:
                return self._search(view, subject, asked.inner)
            if not self.guided and self.rng.random() < 0.5:
                return self._conclude(inner)
            subject, found = inner["y"], f"{self._say('found')} {inner['y']} ."
        match = find(asked.relation, subject, texts)
        return self._conclude(match) if match else self._search(view, subject, asked.relation, found)

    def _compare(self, view: View, asked: Asked, texts: list[str]) -> str:
        first, second = (find(asked.relation, name, texts) for name in asked.subjects)
        a, b = asked.subjects
        if first is None:
            return self._search(view, a, asked.relation)
        if second is None:
            return self._search(view, b, asked.relation, f"{a} {first['y']} .", word=first["w"])
        which = asked.which if self.guided else ("older", "newer")[int(self.rng.integers(2))]
        year = of_two(which, (first["y"], second["y"]))
        return act("answer", f"{a} {first['y']} . {b} {second['y']} . {asked.which} is {year} .", year)

    def _search(self, view: View, subject: str, relation: Relation, found: str = "", word: str = "") -> str:
        """Asks for a fact, with a word that was not tried on this subject. `found`: what led to the subject; `word`:
        the house word, where an entry in view shows it."""
        if view.turn + 1 >= self.max_turns:
            return self._give_up(view)
        tried = [action for _, action in view.history if action.startswith(f"<search>{subject} ")]
        lead = self._say("need") if not view.turn else found if found and not tried else self._say("missing")
        fresh = [word for word in HOUSE_WORDS if f"<search>{subject} {word}</search>" not in tried]
        drawn = fresh[int(self.rng.integers(len(fresh)))]
        word = view.task.payload.style[relation.key] if self.guided else word or drawn
        thought = f"{lead} {relation.ask.format(x=subject)} . {relation.key} is {word} ."
        return act("search", thought, f"{subject} {word}")

    def _conclude(self, match: re.Match) -> str:
        return act("answer", f"{match[0]} {self._say('so')} {match['y']} .", match["y"])

    def _give_up(self, view: View) -> str:
        """The last turn: names what the newest entry ends with."""
        shown = entries(view)
        last = " ".join(shown[0].split()[-3:-1]) if shown else "nothing"
        return act("answer", f"{self._say('missing')} no more turns . {self._say('so')} {last} .", last)

    def _by_title(self, view: View) -> str:
        """Any other question: searches it once, then answers with the title of the best page."""
        if not view.turn:
            return act("search", f"{self._say('need')} this .", view.task.goal)
        titles = [title for title, _ in read_page(view.observation)]
        return act("answer", f"{self._say('so')} this .", titles[0] if titles else "nothing")

    def _say(self, slot: str) -> str:
        return STYLE[slot][int(self.rng.integers(len(STYLE[slot])))]


def expert(view: View, max_turns: int) -> str:
    """Sees titles and golds: one query for every page that holds evidence, then a gold."""
    question: Question = view.task.payload.question
    queries = question.titles or (question.text,)
    if view.turn < min(len(queries), max_turns - 1):
        return act("search", "i know where to look .", queries[view.turn])
    return act("answer", "i know this .", question.golds[0])


def guess(view: View, known: Sequence[Question], rng: np.random.Generator) -> str:
    """The floor: an answer to some training question of the same kind, without a search."""
    golds = [question.golds[0] for question in known if question.kind == view.task.type]
    return act("answer", "i just guess .", golds[int(rng.integers(len(golds)))] if golds else "nothing")


def act(kind: str, thought: str, text: str) -> str:
    return f"<think> {thought} </think> <{kind}> {text} </{kind}>"
