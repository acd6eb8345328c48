"""WebShop: buy what is asked for, in a shop of text pages. `make_domain` gives tasks, environments and prompts.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, reward) -> [Env]          prepare, generate, mini make one

The shop is princeton-nlp's WebShop, the wrapper verl-agent's: 15 turns, two turns of history, reward 10 for a
purchase that scores 1 and 0 otherwise. Three worlds: `data` (real files, $WEBSHOP_DATA), `generated` (1,000 seeded
products of the same statistics, the default without data) and `mini` (short titles, for a policy of half a million
parameters). No Flask, Java, spaCy or torch is imported. Source: webshop.md.
"""

import hashlib
import os
from pathlib import Path

import numpy as np

from envs.base import SPLITS, Player, Task, View, parse_action
from envs.webshop.catalogue import read_raw
from envs.webshop.goals import Goal, split_goals, task_type
from envs.webshop.prompt import instruct_prompt
from envs.webshop.shop import Rules, Shop

WON = 10.0  # reward of a perfect purchase
WORLDS = ("data", "generated", "mini")
FALLBACK = 20  # characters that verl-agent sends where a response has no action tags


class WebShopEnv:
    """Plays one task at a time; see `Env` in envs/base.py. An observation is the page as verl-agent shows it, and is
    the anchor too. `info` also holds `raw`, the page as the original shows it, and after buying `parts`, the parts of
    the reward."""

    def __init__(self, catalogue, rules: Rules, think_in_prompt: bool = False):
        self.shop, self.think_in_prompt = Shop(catalogue, rules), think_in_prompt

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]:
        """(observation, info) of the search page for `options["task"]`. `seed` only draws the query <r>."""
        goal, prices = options["task"].payload
        page = self.shop.start(goal, prices, seed or 0)
        return page.quoted(), self._info()

    def step(self, response: str) -> tuple[str, float, bool, bool, dict]:
        """(observation, reward 10 or 0, done, False, info). Never raises, whatever the response."""
        action, valid = parse_action(response, FALLBACK, self.think_in_prompt)
        over = self.shop.done
        page = self.shop.act(action)
        won = self.shop.done and self.shop.reward == 1.0
        info = self._info() | {"action": action, "valid": valid, "won": won, "score": self.shop.reward}
        return page.quoted(), WON if won and not over else 0.0, self.shop.done, False, info

    def _info(self) -> dict:
        page = self.shop.page
        info = {"anchor": page.quoted(), "admissible": page.admissible(), "raw": page.raw(self.shop.goal.text)}
        return info | ({"parts": self.shop.parts} if self.shop.done else {})


class WebShop:
    """A catalogue, a split scheme and rules as a `Domain` (envs/base.py)."""

    name = "webshop"
    max_turns = 15
    history = 2
    invalid_penalty = 0.1
    stop = ("</action>",)

    def __init__(self, catalogue, rules: Rules, scheme: str, seed: int, human: bool, think_in_prompt: bool):
        self.catalogue, self.rules, self.think_in_prompt = catalogue, rules, think_in_prompt
        self.scheme, self.seed, self.human = scheme, seed, human
        self.source = catalogue.source
        self._splits: dict[str, list[Task]] | None = None

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split (see `split_goals` for the schemes), sorted by id."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r}: unknown, choose one of {', '.join(SPLITS)}")
        if self._splits is None:
            parts = split_goals(self.catalogue, self.scheme, self.seed, self.human)
            self._splits = {name: sorted((self._task(id, goal, stock) for id, goal in goals), key=lambda task: task.id)
                            for name, (stock, goals) in parts.items()}  # fmt: skip
        if not self._splits[split]:
            raise ValueError(f"{self.source}: scheme {self.scheme} leaves no task in split {split}")
        return self._splits[split]

    def _task(self, id: str, goal: Goal, stock) -> Task:
        plays = repr((self.catalogue.digest, self.rules, stock.seed, goal))
        digest = hashlib.sha256(plays.encode("utf-8", "surrogatepass")).hexdigest()
        return Task(id, task_type(goal), goal.text, goal.query, digest, (goal, stock.prices))

    def make(self) -> WebShopEnv:
        return WebShopEnv(self.catalogue, self.rules, self.think_in_prompt)

    def prompt(self, view: View, lean: bool) -> str:
        """The user message: verl-agent's, or the same parts in few words."""
        return instruct_prompt(view)

    def player(self, kind: str, rng: np.random.Generator) -> Player:
        raise NotImplementedError


def make_domain(world: str = "", data: str = "", mode: str = "fixed", scheme: str = "by_product", seed: int = 0,
                human: bool = False, think_in_prompt: bool = False) -> WebShop:  # fmt: skip
    """The domain of a world: `data`, `generated` or `mini`; by default `data` where $WEBSHOP_DATA (or `data`, a folder
    of raw files or one that `prepare` wrote) is given, else `generated`.

    mode: fixed, or parity with the original (shop.py). scheme, seed: who is held out (`split_goals`). human: goals
    that people wrote. think_in_prompt: see `parse_action`. Raises ValueError or FileNotFoundError with what to do.
    """
    folder = data or os.environ.get("WEBSHOP_DATA", "")
    world = world or ("data" if folder else "generated")
    if world not in WORLDS:
        raise ValueError(f"world {world!r}: unknown, choose one of {', '.join(WORLDS)}")
    rules = Rules(mode)
    if world == "data" and not Path(folder).is_dir():
        raise FileNotFoundError(f"WEBSHOP_DATA={folder or '(not set)'}: no such folder; see README, WebShop data")
    catalogue = read_raw(Path(folder))
    return WebShop(catalogue, rules, scheme, seed, human, think_in_prompt)
