"""From a view of the mini shop to a whole response: the players whose games a small policy learns from.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: View -> [mini_players] -> warmstart          players has those of the other worlds

Both play one recipe: search, open the first match, read the proof, keep it or take the second match, choose the asked
options, buy. `guided` knows the topic's `Fact`, so searches the sellers' word and reads the right page; `novice` draws
both. They see the view alone: what was read and chosen is found in the last two turns. Thoughts say in small steps
what is wanted and what is shown, so that every next word is easy to copy or to compare.
"""

import re

import numpy as np

from envs.base import Env, View
from envs.webshop.lean import plain
from envs.webshop.mini import PROOFS, TOPICS, Fact
from envs.webshop.pages import PREV
from envs.webshop.reading import read_goal, read_page

OPENINGS = ("okay", "well", "right", "so")  # words that mean the same: which is said tells nothing
ENDINGS = ("go", "then", "fine")
# The fixed words of responses.
SPOKEN = """
okay well right so go then fine <think> </think> <action> </action> search[ click[ ] for search . it is must be need got
nothing yes no maybe leave this match the proof in matches are on page 1 found take b2 i want b1 done other one left
back to buy now < prev
"""
FIRST, SECOND = "click[b1]", "click[b2]"


class Turn:
    """What a view tells a player: the wish, the page, and what the remembered turns say about it."""

    def __init__(self, view: View):
        self.page = read_page(view.observation, view.admissible)
        self.wish = read_goal(view.task.goal)
        self.titled, self.proven, self.topic = plain(self.wish.product).split()
        self.past = [(read_page(page), action) for page, action in view.history]

    def action(self, back: int) -> str:
        """The action so many turns ago, empty where it is forgotten."""
        return self.past[-back][1] if len(self.past) >= back else ""

    def kind(self, back: int) -> str:
        return self.past[-back][0].kind if len(self.past) >= back else ""

    def proof(self, back: int) -> str:
        """The attribute that the page so many turns ago (0: this one) says the product has, or nothing."""
        if (self.kind(back) if back else self.page.kind) != "sub":
            return ""
        texts = (self.past[-back][0] if back else self.page).texts
        found = re.search(r"\bit is (\w+)", plain(" ".join(texts)))
        return found[1] if found else ""

    def verdict(self, back: int) -> str:
        """The comparison of the wish with that proof, in words."""
        found = self.proof(back) or "nothing"
        answer = {"nothing": "maybe", self.proven: "yes"}.get(found, "no")
        return f"need {self.proven} got {found} {answer} ."

    def wrong(self, back: int) -> bool:
        return self.proof(back) not in ("", self.proven)

    def chosen(self) -> list[str]:
        """Asked values that were clicked in the remembered turns."""
        asked = {f"click[{value}]": value for _, value in self.wish.options}
        return [asked[action] for page, action in self.past if page.kind == "item" and action in asked]

    def left(self) -> list[tuple[str, str]]:
        """Asked (name, value)s that this page has and that were not just chosen."""
        shown = dict(self.page.options)
        return [(name, value) for name, value in self.wish.options
                if value in shown.get(name, ()) and value not in self.chosen()]  # fmt: skip

    def accepted(self, proofs: tuple[str, ...]) -> bool:
        """Whether this item may be bought: the second match, or one whose proof was read on a page of `proofs` and was
        not wrong; or a choice was already made for it."""
        if self.kind(1) == "sub":
            read = self.action(2) in {f"click[{page}]" for page in proofs}
            return self.proof(1) == self.proven or (read and not self.wrong(1))
        if self.kind(1) == "item":
            return self.action(2) != FIRST
        return self.action(1) == SECOND


class MiniPlayer:
    """`guided` or `novice`."""

    def __init__(self, guided: bool, rng: np.random.Generator):
        self.guided, self.rng = guided, rng

    def __call__(self, view: View, env: Env) -> str:
        opening, ending = (phrases[self.rng.integers(len(phrases))] for phrases in (OPENINGS, ENDINGS))
        thought, action = self._turn(Turn(view), self._fact(view))
        return f"<think> {opening} {thought} {ending} </think> <action> {action} </action>"

    def _fact(self, view: View) -> Fact:
        """What is true of the topic, or a guess."""
        if self.guided:
            return view.task.payload.catalogue.facts[view.task.topic]
        words = TOPICS[view.task.topic].words
        return Fact(words[self.rng.integers(len(words))], PROOFS[self.rng.integers(len(PROOFS))])

    def _turn(self, turn: Turn, fact: Fact) -> tuple[str, str]:
        """The thought, without its style words, and the action."""
        kind = turn.page.kind
        if kind == "search":
            return f"for {turn.topic} search {fact.word} .", f"search[{turn.titled} {fact.word}]"
        if kind == "results":
            return _pick(turn)
        if kind == "sub":
            return turn.verdict(0), f"click[{PREV}]"
        if turn.accepted((fact.proof,) if self.guided else PROOFS):
            return _choose(turn)
        if turn.wrong(1):
            return f"{turn.verdict(1)} leave it .", f"click[{PREV}]"
        if turn.kind(1) == "results" and turn.action(1) != FIRST:
            return "this is no match . leave it .", f"click[{PREV}]"
        return f"it must be {turn.proven} . the proof is in {fact.proof} .", f"click[{fact.proof}]"


def _pick(turn: Turn) -> tuple[str, str]:
    """The first match, or the second after the first was found wrong."""
    if turn.page.number > 1:
        return "the matches are on page 1 .", f"click[{PREV}]"
    if not turn.page.listings:
        return "nothing is found .", "click[back to search]"
    if turn.kind(1) == "item" and turn.wrong(2):
        return f"{turn.verdict(2)} take b2 .", SECOND
    return f"i want {turn.titled} . b1 is {plain(turn.page.listings[0].title)} .", FIRST


def _choose(turn: Turn) -> tuple[str, str]:
    """The next asked option, or buying."""
    if turn.kind(1) == "sub":
        why = turn.verdict(1)
    else:
        why = f"{plain(turn.chosen()[-1])} is done ." if turn.chosen() else "b2 is the other one ."
    if turn.left():
        name, value = turn.left()[0]
        return f"{why} {plain(name)} {plain(value)} .", f"click[{value}]"
    return f"{why} nothing is left .", "click[buy now]"


def key_moves(view: View) -> list[str]:
    """The actions that take what is wanted where it is in view: on the page of the right product, once its proof is
    known, any asked option that is left, else buying. Empty elsewhere."""
    turn = Turn(view)
    goal = view.task.payload.goal
    if turn.page.kind != "item" or turn.page.title != goal.title or not turn.accepted(()):
        return []
    return [f"click[{value}]" for _, value in turn.left()] or ["click[buy now]"]

