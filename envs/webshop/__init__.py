"""WebShop: buy what is asked for, in a shop of text pages. `make_domain` gives tasks, environments and prompts.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, reward) -> [Env]          prepare, generate, mini make one

The shop is princeton-nlp's WebShop, the wrapper verl-agent's: 15 turns, two turns of history, reward 10 for a
purchase that scores 1 and 0 otherwise. Three worlds: `data` (real files, $WEBSHOP_DATA), `generated` (1,000 seeded
products of the same statistics, the default without data) and `mini` (short titles and 10 turns, for a policy of half
a million parameters). No Flask, Java, spaCy or torch is imported. Source: webshop.md.
"""

import hashlib
import os
import sys
from pathlib import Path

import numpy as np

from envs.base import SPLITS, Player, Task, View, parse_action
from envs.webshop import generate, mini
from envs.webshop.catalogue import MemoryCatalogue, read_raw
from envs.webshop.goals import Goal, Stock, draw_stock
from envs.webshop.lean import FIXED, lean_prompt
from envs.webshop.mini import RECIPES
from envs.webshop.mini_players import SPOKEN, MiniPlayer, key_moves
from envs.webshop.players import make_player
from envs.webshop.prepare import APPROXIMATE, PreparedCatalogue
from envs.webshop.prompt import instruct_prompt
from envs.webshop.shop import Errand, Rules, Shop
from envs.webshop.splits import CANONICAL_SEED, SCHEMES, Named, split_goals, task_type

WON = 10.0  # reward of a perfect purchase
MAX_TURNS = 15
WORLDS = ("data", "generated", "mini")
FALLBACK = 20  # characters that verl-agent sends where a response has no action tags
PLAYERS = ("expert", "guided", "novice", "random")
PRACTICE = 25  # tasks played in one practice shop


class WebShopEnv:
    """Plays one task at a time; see `Env` in envs/base.py. An observation is the page as verl-agent shows it, and is
    the anchor too. `info` also holds `raw`, the page as the original shows it, and after buying `parts`, the parts of
    the reward."""

    def __init__(self, rules: Rules, max_turns: int, think_in_prompt: bool = False):
        self.shop, self.max_turns, self.think_in_prompt = Shop(rules), max_turns, think_in_prompt

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]:
        """(observation, info) of the search page for `options["task"]`. `seed` only draws the query <r>."""
        page = self.shop.start(options["task"].payload, seed or 0)
        self.turn = 0
        return page.quoted(), self._info()

    def step(self, response: str) -> tuple[str, float, bool, bool, dict]:
        """(observation, reward 10 or 0, bought, out of turns, info). Never raises, whatever the response."""
        action, valid = parse_action(response, FALLBACK, self.think_in_prompt)
        over = self.shop.done
        page = self.shop.act(action)
        self.turn += 1
        done, won = self.shop.done, self.shop.done and self.shop.reward == 1.0
        info = self._info() | {"action": action, "valid": valid, "won": won, "score": self.shop.reward}
        return page.quoted(), WON if won and not over else 0.0, done, not done and self.turn >= self.max_turns, info

    def _info(self) -> dict:
        page = self.shop.page
        info = {"anchor": page.quoted(), "admissible": page.admissible(), "raw": page.raw(self.shop.goal.text)}
        return info | ({"parts": self.shop.parts} if self.shop.done else {})


class WebShop:
    """A catalogue, a split scheme and rules as a `Domain` (envs/base.py)."""

    name = "webshop"
    history = 2
    invalid_penalty = 0.1

    def __init__(self, catalogue, rules: Rules, max_turns: int, scheme: str = "by_product", seed: int = 0,
                 human: bool = False, think_in_prompt: bool = False):  # fmt: skip
        self.catalogue, self.rules, self.max_turns, self.think_in_prompt = catalogue, rules, max_turns, think_in_prompt
        self.scheme, self.seed, self.human = scheme, seed, human
        self.source = catalogue.source
        self._parts: dict[str, tuple[Stock, Named]] | None = None
        self._tasks: dict[str, list[Task]] = {}

    def tasks(self, split: str) -> list[Task]:
        """The tasks of a split (see `split_goals` for the schemes), sorted by id. Raises ValueError where it is empty
        or unknown."""
        if split not in SPLITS:
            raise ValueError(f"split {split!r}: unknown, choose one of {', '.join(SPLITS)}")
        if self._parts is None:
            self._parts = split_goals(self.catalogue, self.scheme, self.seed, self.human)
        if split not in self._tasks:
            stock, goals = self._parts[split]
            made = [self._task(id, goal, stock, self.catalogue) for id, goal in goals]
            self._tasks[split] = sorted(made, key=lambda task: task.id)
        if not self._tasks[split]:
            raise ValueError(f"{self.source}: scheme {self.scheme} leaves no task in split {split}")
        return self._tasks[split]

    def _task(self, id: str, goal: Goal, stock: Stock, catalogue) -> Task:
        plays = repr((catalogue.digest, self.rules, stock.seed, goal))
        digest = hashlib.sha256(plays.encode("utf-8", "surrogatepass")).hexdigest()
        return Task(id, task_type(goal), goal.text, goal.query, digest, Errand(catalogue, goal, stock.prices))

    def make(self) -> WebShopEnv:
        return WebShopEnv(self.rules, self.max_turns, self.think_in_prompt)

    def prompt(self, view: View, lean: bool) -> str:
        """The user message: verl-agent's, or the same parts in few words."""
        return lean_prompt(view) if lean else instruct_prompt(view)

    def player(self, kind: str, rng: np.random.Generator) -> Player:
        """See players.py. Raises ValueError for an unknown kind."""
        if kind not in PLAYERS:
            raise ValueError(f"player {kind!r}: unknown, choose one of {', '.join(PLAYERS)}")
        return make_player(kind, rng, self.max_turns)


class MiniShop(WebShop):
    """The mini world, with what the making of a small policy needs besides."""

    def __init__(self, mode: str, max_turns: int, **held_out):
        rules = Rules(mode, page_size=mini.PAGE_SIZE, ranks=True)
        super().__init__(mini.build(), rules, max_turns, **held_out)

    def player(self, kind: str, rng: np.random.Generator) -> Player:
        if kind in ("guided", "novice"):
            return MiniPlayer(kind == "guided", rng)
        return super().player(kind, rng)

    def words(self) -> list[str]:
        """All words of lean prompts, lean skills and scripted responses in this world, sorted."""
        return sorted(mini.vocabulary() | {*FIXED.split(), *SPOKEN.split(), *RECIPES.split()})

    def practice(self, count: int, seed: int) -> list[tuple[Task, str]]:
        """Tasks in shops where the facts are drawn anew, each with the note that tells its fact: whoever plays them has
        to read."""
        rng = np.random.default_rng([seed, 0x9AC])
        made = []
        for shop in range(-(-count // PRACTICE)):
            catalogue = mini.build(int(rng.integers(mini.WORLD + 1, 2**31)))
            stock = draw_stock(catalogue, CANONICAL_SEED)
            for i in rng.choice(len(stock.goals), min(PRACTICE, count - len(made)), replace=False):
                goal = stock.goals[i]
                task = self._task(f"practice-{seed}-{shop}-{i:04d}", goal, stock, catalogue)
                made.append((task, mini.note(goal.query, catalogue.facts[goal.query])))
        return made

    def key_moves(self, view: View) -> list[str]:
        """The actions that take what is wanted, where it is in view."""
        return key_moves(view)


def make_domain(world: str = "", data: str = "", mode: str = "fixed", scheme: str = "by_product", seed: int = 0,
                human: bool = False, lean: bool = False, think_in_prompt: bool = False,
                max_turns: int | None = None) -> WebShop:  # fmt: skip
    """The domain of a world: `data`, `generated` or `mini`; by default `data` where $WEBSHOP_DATA (or `data`, a folder
    of raw files or one that `prepare` wrote) is given, else `mini` for a policy of `lean` prompts, else `generated`.

    mode: fixed, or parity with the original (shop.py). scheme, seed: who is held out (`split_goals`). human: goals that
    people wrote. think_in_prompt: see `parse_action`. Raises ValueError or FileNotFoundError with what to do.
    """
    folder = data or os.environ.get("WEBSHOP_DATA", "")
    world = world or ("data" if folder else "mini" if lean else "generated")
    if world not in WORLDS:
        raise ValueError(f"world {world!r}: unknown, choose one of {', '.join(WORLDS)}")
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r}: unknown, choose one of {', '.join(SCHEMES)}")
    held_out = {"scheme": scheme, "seed": seed, "human": bool(human), "think_in_prompt": think_in_prompt}
    if world == "mini":
        return MiniShop(mode, max_turns or mini.MAX_TURNS, **held_out)
    if world == "data" and not (folder and Path(folder).is_dir()):
        raise FileNotFoundError(f"WEBSHOP_DATA={folder or '(not set)'}: no such folder; see README, WebShop data")
    rules = Rules(mode)
    catalogue = generate.build() if world == "generated" else _open(Path(folder), mode)
    return WebShop(catalogue, rules, max_turns or MAX_TURNS, **held_out)


def _open(folder: Path, mode: str) -> PreparedCatalogue | MemoryCatalogue:
    """A prepared folder, or one of raw files, whose left out products are reported."""
    if (folder / "meta.json").exists():
        catalogue = PreparedCatalogue(folder)
        if mode == "parity" and catalogue.nouns == APPROXIMATE:
            raise ValueError(f"{folder}: its title nouns are approximate, which parity does not allow")
        return catalogue
    catalogue = read_raw(folder)
    if catalogue.report.counts:
        print("\n".join([f"{folder}:", *catalogue.report.lines()]), file=sys.stderr)
    return catalogue
