"""From a view to a whole response without a model: the ceiling, the floor, and two shoppers between them.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: View -> [players] -> evaluate (the lines printed beside every result)

`expert` sees the hidden state and wins every goal that can be won. `random` takes any admissible action. `guided` shops
as the skills advise: it searches for product, attributes and options without the small talk, trusts the order of the
hits but for prices above the cap, leaves a product that lacks an asked option, chooses every option and then buys.
`novice` searches the whole instruction, takes the first hit, chooses one option and buys. These two see the view
alone. Left out: those of the mini shop (mini_players.py).
"""

import re

import numpy as np

from envs.base import Env, View
from envs.webshop.lean import plain
from envs.webshop.pages import BACK, BUY, NEXT, PREV
from envs.webshop.reading import Listing, Sight, Wish, read_goal, read_page

PATIENCE = 4  # turns before the end in which a shopper takes what it has


def say(thought: str, action: str) -> str:
    """A whole response."""
    return f"<think> {thought} </think> <action> {action} </action>"


def make_player(kind: str, rng: np.random.Generator, max_turns: int) -> "Expert | Random | Shopper":
    """`expert`, `guided`, `novice` or `random`."""
    if kind == "expert":
        return Expert()
    return Random(rng) if kind == "random" else Shopper(kind == "guided", max_turns)


class Expert:
    """Searches with the target's own words, opens it, chooses the asked options, buys."""

    def __call__(self, view: View, env: Env) -> str:
        shop = env.shop
        goal, page = shop.goal, shop.page
        if page.kind == "search":
            return say("i know what i want", f"search[{self._query(shop)}]")
        if page.kind == "results":
            places = [word for word, target in page.clicks.items() if target == goal.position]
            further = NEXT if goal.position in shop.found[shop.number * shop.rules.page_size :] else BACK
            return say("it is here" if places else "it must be elsewhere", f"click[{(places or [further])[0]}]")
        if page.kind == "sub" or shop.item != goal.position:
            return say("this is not it", f"click[{PREV}]")
        wanted = goal.options.values() if isinstance(goal.options, dict) else goal.options
        left = [value for value in wanted if value in page.clicks and value not in shop.chosen.values()]
        return say("it must be as asked", f"click[{left[0] if left else BUY}]")

    @staticmethod
    def _query(shop) -> str:
        """Of a few queries the one that ranks the target best."""
        product = shop.catalogue[shop.goal.position]
        queries = [plain(text) for text in (product.title, shop.goal.text, product.search_text()[:2000])]
        queries = [query for query in queries if query] or ["anything"]

        def rank(query: str) -> int:
            found = shop.catalogue.index.search(query)
            return found.index(shop.goal.position) if shop.goal.position in found else len(found)

        return min(queries, key=rank)


class Random:
    """Any admissible action; a query is a few neighbouring words of the task."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def __call__(self, view: View, env: Env) -> str:
        action = view.admissible[self.rng.integers(len(view.admissible))]
        if action.startswith("search["):
            words = plain(view.task.goal).split()
            start = int(self.rng.integers(len(words)))
            action = f"search[{' '.join(words[start : start + 1 + int(self.rng.integers(4))])}]"
        return say("i try this", action)


class Shopper:
    """`guided`, or `novice`."""

    def __init__(self, guided: bool, max_turns: int):
        self.guided, self.max_turns = guided, max_turns

    def __call__(self, view: View, env: Env) -> str:
        page, wish = read_page(view.observation, view.admissible), read_goal(view.task.goal)
        last = view.history[-1][1] if view.history else ""
        if page.kind == "search":
            options = " ".join(value for _, value in wish.options)
            query = f"{wish.product} {options}" if self.guided else view.task.goal
            return say("i look for it", f"search[{plain(query)}]")
        if page.kind == "results":
            return self._pick(page, wish, view)
        if page.kind == "sub":
            return say("back to the product", f"click[{PREV}]")
        return self._item(page, wish, last, hurry=view.turn >= self.max_turns - PATIENCE)

    def _pick(self, page: Sight, wish: Wish, view: View) -> str:
        """The best listing, or the next best after one that was just left."""
        if not page.listings:
            return say("nothing is here", f"click[{BACK}]")
        ranked = sorted(page.listings, key=lambda one: _dear(one, wish)) if self.guided else list(page.listings)
        names = [f"click[{one.id}]" for one in ranked]
        left = [names.index(action) for _, action in view.history if action in names]
        place = left[-1] + 1 if left else 0
        return say("this fits best", names[place] if place < len(names) else f"click[{NEXT}]")

    def _item(self, page: Sight, wish: Wish, last: str, hurry: bool) -> str:
        """The asked options in their order, each once; then buying."""
        shown = dict(page.options)
        asked = [value for name, value in wish.options if value in shown.get(name, ())]
        if self.guided and len(asked) < len(wish.options) and not hurry:
            return say("it lacks an option", f"click[{PREV}]")
        asked = asked if self.guided else asked[:1]
        actions = [*(f"click[{value}]" for value in asked), f"click[{BUY}]"]
        done = actions.index(last) + 1 if last in actions else 0
        return say("it must be as asked", actions[done])


def _dear(listing: Listing, wish: Wish) -> bool:
    """Whether the (lowest) price is above the cap; the order of the search decides between all others."""
    price = re.match(r"\$(\d+(?:\.\d+)?)", listing.price)
    return bool(price) and wish.cap is not None and float(price[1]) > wish.cap
