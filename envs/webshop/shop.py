"""From actions to pages and a reward: one visit to the shop, the original's state machine.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> [shop] (pages, reward) -> Env          prepare, generate, mini make one

Two modes. `parity` keeps every quirk of the original. `fixed`, the default, mends five: options are compared by value
(reward.py), search needs the search page, the queries <r>, <c>, <q> that read hidden fields are plain words, a name
ends at the first bracket (so that a value holding brackets can be clicked), and goals are winnable. In both, a query
that kills the original's process (<a>, more than 1,024 terms) does not. Source: webshop.md 1.5.
"""

import random
from dataclasses import dataclass
from typing import Any

from envs.webshop import pages
from envs.webshop.goals import Goal
from envs.webshop.pages import BACK, BUY, NEXT, PREV, SUB_PAGES, Page
from envs.webshop.reward import MODES, reward
from envs.webshop.search import HITS


@dataclass(frozen=True, slots=True)
class Errand:
    """What a task plays: its goal, in which catalogue, at which prices (by position, dollars)."""

    catalogue: Any
    goal: Goal
    prices: list[float]


@dataclass(frozen=True)
class Rules:
    """How a shop behaves: its mode, and the form of its result pages (see `results_page`)."""

    mode: str = "fixed"
    page_size: int = 10
    ranks: bool = False

    def __post_init__(self):
        if self.mode not in MODES:
            raise ValueError(f"mode {self.mode!r}: unknown, choose one of {', '.join(MODES)}")


def parse(action: str, mode: str) -> tuple[str, str]:
    """ "name[argument]" -> (name, argument), else ("", ""). The argument ends at the last bracket of the first line."""
    line = action.split("\n", 1)[0]
    end = line.rfind("]")
    start = line.rfind("[", 1, max(0, end - 1)) if mode == "parity" else line.find("[", 1, max(0, end - 1))
    return (line[:start], line[start + 1 : end].lower()) if start > 0 else ("", "")


class Shop:
    """One visit: `start` with an errand, then `act` until `done`."""

    def __init__(self, rules: Rules):
        self.rules = rules

    def start(self, errand: Errand, seed: int = 0) -> Page:
        """Enters the shop at its search page. `seed` draws the products of <r> alone."""
        self.catalogue, self.goal, self.prices = errand.catalogue, errand.goal, errand.prices
        self.random = random.Random(seed)
        self.done, self.reward, self.parts = False, 0.0, {}
        return self._search_page()

    def act(self, action: str) -> Page:
        """The page after an action, whatever its text; one that means nothing here, or comes after the end, changes
        nothing. `reward` (0..1), its `parts` and `done` are set by buying."""
        name, argument = parse(action, self.rules.mode)
        if self.done or not argument:
            return self.page
        if name == "search" and (self.rules.mode == "parity" or self.page.kind == "search"):
            self.query, self.number, self.found = argument, 1, self._find(argument)
            self._leave_item()
            self.page = self._results_page()
        elif name == "click" and argument in self.page.clicks and argument != "search":
            self.page = self._click(self.page.clicks[argument])
        return self.page

    def _click(self, target: str | int | tuple[str, str]) -> Page:
        if isinstance(target, int):
            self._leave_item()
            self.item = target
            return pages.item_page(self.catalogue[target])
        if isinstance(target, tuple):
            option, value = target
            self.chosen[option] = value
            return self.page
        if target == BACK:
            return self._search_page()
        if target == BUY:
            return self._buy()
        if target in SUB_PAGES:
            return pages.sub_page(self.catalogue[self.item], target)
        if self.page.kind == "sub":  # "< prev" on a page of an item leads to the item
            return pages.item_page(self.catalogue[self.item])
        if self.page.kind == "results":
            self.number += {NEXT: 1, PREV: -1}[target]
        self._leave_item()
        return self._results_page()

    def _search_page(self) -> Page:
        self.query, self.number, self.found = "", 1, []
        self._leave_item()
        self.page = pages.SEARCH_PAGE
        return self.page

    def _leave_item(self) -> None:
        self.item, self.chosen = None, {}

    def _results_page(self) -> Page:
        if self.rules.mode == "parity" and self.query.split(" ")[0] == "<r>":
            self.found = self._find(self.query)  # the original draws again on every page
        size = self.rules.page_size
        shown = self.found[(self.number - 1) * size : self.number * size]
        return pages.results_page(
            [(position, self.catalogue[position]) for position in shown], self.number, len(self.found), self.rules.ranks
        )

    def _find(self, query: str) -> list[int]:
        """Positions of the products that a query finds, best first."""
        head, *rest = query.split(" ")
        if self.rules.mode == "fixed" or head not in ("<r>", "<a>", "<c>", "<q>"):
            return self.catalogue.index.search(query)
        everything = range(len(self.catalogue))
        if head == "<r>":
            return self.random.sample(everything, min(HITS, len(everything)))
        if head == "<c>" and rest:
            return [i for i in everything if self.catalogue[i].category == rest[0].strip()]
        if head == "<q>":
            return [i for i in everything if self.catalogue[i].query == " ".join(rest).strip()]
        return []  # <a>, and <c> without a category, end the original with an exception

    def _buy(self) -> Page:
        product = self.catalogue[self.item]
        self.reward, self.parts = reward(product, self.goal, self.prices[self.item], self.chosen, self.rules.mode)
        self.done = True
        return pages.done_page(product, self.chosen, self.reward)
