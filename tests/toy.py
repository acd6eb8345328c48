"""A domain of a few words for the tests of the core: say the word that the task names."""

import numpy as np

from envs.base import Env, Task, View, parse_action

NOUNS = ["red", "green", "blue"]
WORDS = ["<think>", "</think>", "<action>", "</action>", "say", "task", "turn", "secret", *NOUNS, *"0123456789"]


class ToyEnv:
    def __init__(self, max_turns: int):
        self.max_turns = max_turns

    def reset(self, *, seed=None, options):
        self.task, self.turn = options["task"], 0
        return f"turn {self.turn}", self._info()

    def _info(self, action: str = "", valid: bool = True, won: bool = False) -> dict:
        admissible = tuple(f"say {noun}" for noun in NOUNS)
        return {"anchor": f"turn {self.turn}", "admissible": admissible, "action": action, "valid": valid,
                "won": won, "score": float(won)}  # fmt: skip

    def step(self, response: str):
        action, valid = parse_action(response)
        self.turn += 1
        won = self.task.topic in response.split()
        return f"turn {self.turn}", 10.0 * won, won, self.turn >= self.max_turns, self._info(action, valid, won)


class Toy:
    name, source, history, invalid_penalty = "toy", "toy", 2, 0.1

    def __init__(self, max_turns: int = 3):
        self.max_turns = max_turns

    def tasks(self, split: str) -> list[Task]:
        rows = [(i, NOUNS[i % 3]) for i in range(12)]
        return [Task(f"{split}/{i:02d}", f"say_{noun}", f"say {noun}", noun, f"{split}{i}") for i, noun in rows]

    def make(self) -> Env:
        return ToyEnv(self.max_turns)

    def prompt(self, view: View, lean: bool) -> str:
        past = " ".join(f"{observation} {action}" for observation, action in view.history)
        return f"task {view.task.goal} {past} {view.observation}"

    def player(self, kind: str, rng: np.random.Generator):
        def act(view: View, env: Env) -> str:
            word = view.task.topic if kind in ("expert", "guided") else str(rng.choice(NOUNS))
            return f"<think> </think> <action> say {word} </action>"

        return act
