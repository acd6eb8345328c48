"""A domain of a few words for the tests of the core: say the word that the task names. And whole runs on it."""

import json
import signal

import numpy as np
import torch
from safetensors.torch import load_file

import envs
import train
from envs.base import Env, Task, View, parse_action
from policy import Policy
from settings import parse
from warmstart import new_policy

NOUNS = ["red", "green", "blue"]
WORDS = ["<think>", "</think>", "<action>", "</action>", "say", "task", "turn", "secret", *NOUNS, *"0123456789"]

CANARY = {noun: f"{noun} secret {k} secret {k} secret" for k, noun in enumerate(NOUNS)}  # the skill of each task type


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


def toy_policy() -> Policy:
    """40 thousand random weights over the domain's words."""
    torch.manual_seed(0)
    policy = new_policy(WORDS, width=32, layers=2)
    for parameter in policy.model.parameters():  # sharper than initial weights, so that tokens differ in log-prob
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return policy


def launcher(folder, policy: Policy, patch, make=Toy):
    """A function that runs train.py on the toy domain with some flags and returns the run's folder."""
    skills = folder / "skills"
    skills.mkdir()
    mapping = {"skill_files": {noun: f"{noun}.md" for noun in NOUNS}, "topics": {noun: f"say {noun}" for noun in NOUNS},
               "task_to_skill": {f"say_{noun}": noun for noun in NOUNS}}  # fmt: skip
    (skills / "skill_mapping.json").write_text(json.dumps(mapping))
    for noun, song in CANARY.items():
        (skills / f"{noun}.md").write_text(song)
    policy.model.save_pretrained(folder / "model")
    policy.tokenizer.save_pretrained(folder / "model")
    patch.setattr(envs, "load", lambda name, lean, think_in_prompt: make())
    patch.setattr(train, "skill_folder", lambda env, lean: skills)
    patch.setattr(signal, "signal", lambda *args: None)  # the test runner keeps its own handlers

    def run(*flags: str):
        own = ["--model", str(folder / "model"), "--results", str(folder / "results"), "--threads", "1"]
        small = ["--groups", "3", "--group_size", "3", "--eval_tasks", "6", "--max_response", "8", "--lr", "0.01"]
        s = parse([*own, *small, "--run", "r", *flags])
        train.train(s)
        return folder / "results" / s.run

    return run


def lines(file) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def weights(folder, step: int) -> dict:
    return load_file(folder / f"checkpoint-{step}" / "model.safetensors")
