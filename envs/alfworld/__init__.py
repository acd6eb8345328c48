"""ALFWorld: household tasks as text. Tasks, environments, prompts and scripted players under one `Domain`.

    [envs/alfworld] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train

engine.py plays a game, games.py reads real ones, rooms.py makes some up, prompts.py writes what the policy reads,
sight.py and players.py are the scripted players, textworld.py is ALFWorld's own engine where it is installed.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from envs.alfworld import games, rooms
from envs.alfworld.engine import Game, Play
from envs.alfworld.players import Expert, Searcher, make_player
from envs.alfworld.prompts import full_prompt, lean_prompt
from envs.alfworld.sight import read_goal, read_view, wanted
from envs.alfworld.words import words
from envs.base import SPLITS, Task, View, parse_action

WIN = 10.0  # reward of the turn that wins
REAL_TURNS = 50
BACKENDS = ("native", "textworld")
FOLDERS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"}  # our splits in ALFWorld's words


def start_native(task: Task) -> Play:
    return Play(task.payload if isinstance(task.payload, Game) else task.payload.game())


class AlfworldEnv:
    """Plays one game at a time, as envs/base.py asks. A response of the wrong form is played all the same; `valid`
    tells. `play` is the hidden state, for the expert only; `start` makes it and so chooses the engine."""

    def __init__(self, max_turns: int, start: Callable[[Task], Play] = start_native, think_in_prompt: bool = False):
        self.max_turns, self.think_in_prompt = max_turns, think_in_prompt
        self._start = start

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]:
        """Starts `options["task"]`. Games are deterministic: `seed` is ignored. Raises ValueError naming the file
        where a real game is corrupt."""
        self.play = self._start(options["task"])
        self.turn = 0
        return self.play.observation, self._info()

    def step(self, response: str) -> tuple[str, float, bool, bool, dict]:
        """Plays the action in a response. Returns observation, reward (10 on a win, else 0), won, out of turns,
        info."""
        action, valid = parse_action(response, think_in_prompt=self.think_in_prompt)
        self.turn += 1
        observation, _, won = self.play.step(action)
        truncated = not won and self.turn >= self.max_turns
        info = self._info() | {"action": action, "valid": valid, "won": won, "score": float(won)}
        return observation, WIN * won, won, truncated, info

    def _info(self) -> dict:
        return {"anchor": self.play.observation, "admissible": self.play.admissible}


class AlfworldDomain:
    """See envs/base.py `Domain`. Raises FileNotFoundError where `data` is missing or a split of it is empty."""

    name = "alfworld"
    history = 2
    invalid_penalty = 0.1

    def __init__(self, data: str | Path | None, max_turns: int | None = None, backend: str = "native",
                 think_in_prompt: bool = False):  # fmt: skip
        if backend not in BACKENDS:
            raise ValueError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
        self.backend, self.think_in_prompt = backend, think_in_prompt
        self.source = str(data) if data else "generated"
        self.max_turns = max_turns or (REAL_TURNS if data else rooms.MAX_TURNS)
        self._real = games.find(data) if data else None

    def tasks(self, split: str) -> list[Task]:
        """train, seen or unseen, sorted by id. Raises ValueError for another split, FileNotFoundError for an empty
        one."""
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
        if self._real is None:
            return rooms.generate(split)
        entries = self._real.get(FOLDERS[split], [])
        if not entries:
            raise FileNotFoundError(f"{self.source} has no games in the split {FOLDERS[split]!r}")
        return [
            Task(f"{split}/{entry.task}/{entry.trial}", entry.type, entry.goal, entry.topic, entry.digest, entry)
            for entry in entries
        ]

    def make(self) -> AlfworldEnv:
        if self.backend == "native":
            return AlfworldEnv(self.max_turns, think_in_prompt=self.think_in_prompt)
        from envs.alfworld.textworld import Worker  # an extra; everything else works without

        return AlfworldEnv(self.max_turns, Worker().start, self.think_in_prompt)

    def prompt(self, view: View, lean: bool) -> str:
        return lean_prompt(view) if lean else full_prompt(view)

    def practice(self, count: int, seed: int) -> list[tuple[Task, str]]:
        """Generated tasks whose facts are drawn anew, each with the skill note that tells them (warmstart.py)."""
        return rooms.practice(count, seed)

    def key_moves(self, view: View) -> list[str]:
        """The actions that take what the task wants, while it is in view and no such thing is held."""
        return [f"take {thing} from {place}" for thing, place in wanted(read_goal(view.task.goal), read_view(view))]

    def words(self) -> list[str]:
        """The vocabulary of lean prompts, scripted responses and lean skills, sorted."""
        return words()

    def player(self, kind: str, rng: np.random.Generator) -> Expert | Searcher:
        return make_player(kind, rng)


def make_domain(
    data: str | Path | None = None,
    max_turns: int | None = None,
    backend: str = "native",
    lean: bool = False,
    think_in_prompt: bool = False,
) -> AlfworldDomain:
    """Real games from `data` or, if it is not given, from the folder in $ALFWORLD_DATA; generated ones without.
    `backend` textworld plays real games through ALFWorld's own engine. `think_in_prompt`: see `parse_action`; `lean`
    makes no difference here, every policy plays the same games."""
    return AlfworldDomain(data or os.environ.get("ALFWORLD_DATA") or None, max_turns, backend, think_in_prompt)
