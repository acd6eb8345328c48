"""What every environment gives: tasks in frozen panels, episodes of text, prompts, scripted players.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

A `Domain` (ALFWorld, WebShop, search) owns tasks and prompts; `Domain.make()` gives an `Env` that plays one
task at a time, in Gymnasium's five-tuple. The model's text reaches the game only through a projection such as
`parse_action`. Left out: anything privileged. No skill text is known to this folder.
"""

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

SPLITS = ("train", "seen", "unseen")  # seen: new tasks in rooms, shops, sets known from training; unseen: new ones


@dataclass(frozen=True)
class Task:
    """One task, played as often as wished. `digest` names its content, so that a changed game changes the panel."""

    id: str  # unique in its domain; panels are sorted by it
    type: str  # task type: keys the skill provider and the per-type success
    goal: str  # what the policy is told to do
    topic: str = ""  # what the task is about (an object type, a product category); may key a skill note
    digest: str = ""  # sha256 of everything that decides how the task plays
    payload: Any = field(default=None, compare=False, repr=False)  # what the domain's Env plays


@dataclass(frozen=True)
class View:
    """What the policy may know at one turn: a window on the episode, never its hidden state."""

    task: Task
    turn: int  # actions already taken
    history: tuple[tuple[str, str], ...]  # the last (observation, action) pairs, oldest first
    observation: str
    admissible: tuple[str, ...]


class Env(Protocol):
    """Plays one task at a time. `info` always holds `anchor` (the state's text for GiGPO's groups) and
    `admissible` (a tuple of actions); after a step also `action` (the projected text), `valid` (the text had
    the asked form), `won` and `score` (0..1). Whatever text comes in, `step` never raises."""

    def reset(self, *, seed: int | None = None, options: dict[str, Task]) -> tuple[str, dict]: ...
    def step(self, response: str) -> tuple[str, float, bool, bool, dict]: ...


class Player(Protocol):
    """A scripted policy. Kinds: `expert` (sees the hidden state: the ceiling), `guided` (knows the skill text's
    facts, sees only the view), `novice` (knows none: makes the unhinted demonstrations), `random` (the floor)."""

    def __call__(self, view: View, env: Env) -> str: ...  # a whole response, tags included


class Domain(Protocol):
    """An environment family."""

    name: str  # alfworld | webshop | search
    source: str  # where the tasks come from: "generated", or the data folder
    max_turns: int  # model calls an episode
    history: int  # (observation, action) pairs in a prompt
    invalid_penalty: float  # taken off the reward of a turn whose text lacks the asked form

    def tasks(self, split: str) -> list[Task]: ...  # sorted by id; splits share no task
    def make(self) -> Env: ...
    def prompt(self, view: View, lean: bool) -> str: ...  # the user message; `lean`: the same parts, few words
    def player(self, kind: str, rng: np.random.Generator) -> Player: ...


class LeanDomain(Domain, Protocol):
    """A domain in which a small policy can be made (warmstart.py)."""

    def words(self) -> list[str]: ...  # every word of lean prompts, scripted responses and lean skills, sorted
    def practice(self, count: int, seed: int) -> list[tuple[Task, str]]: ...  # facts drawn anew, and notes of them
    def key_moves(self, view: View) -> list[str]: ...  # the actions that take what is wanted, while it is in view


_TAGS = re.compile(r"</?(?:think|action)>")
_CJK = re.compile(r"[\u4e00-\u9fff]")


def parse_action(response: str, fallback: int = 30, think_in_prompt: bool = False) -> tuple[str, bool]:
    """The action in a response, and whether the response has the asked form.

    The action is the lower-cased text between the first <action> and the first </action> behind it; without
    such a pair it is the last `fallback` characters, which the environment will hardly understand. Valid: each of
    <think> </think> <action> </action> exactly once and in this order (`think_in_prompt`: the prompt holds the
    think block, as in Qwen3's non-thinking mode, and only the action pair is asked for), and no CJK character.
    Source: method.md section 4. Never raises.
    """
    text = response.lower()
    start = text.find("<action>")
    end = text.find("</action>", start)
    found = 0 <= start < end
    action = text[start + len("<action>") : end] if found else text[-fallback:]
    want = ["<action>", "</action>"] if think_in_prompt else ["<think>", "</think>", "<action>", "</action>"]
    tags = _TAGS.findall(text)
    if think_in_prompt and tags[:2] == ["<think>", "</think>"]:
        tags = tags[2:]
    return action.strip(), found and tags == want and not _CJK.search(response)


def panel_hash(tasks: list[Task]) -> str:
    """Names a panel: first 16 hex digits of the sha256 over ids and digests. Raises ValueError on a repeated id."""
    ids = [task.id for task in tasks]
    if ids != sorted(set(ids)):
        raise ValueError("a panel holds each task once, sorted by id")
    lines = "".join(f"{task.id}\t{task.digest}\n" for task in tasks)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def stratified(tasks: list[Task], count: int, seed: int = 0) -> list[Task]:
    """`count` of the tasks, each type in proportion (largest remainder), drawn with `seed`, sorted by id.

    A larger count of the same seed holds every task of a smaller one up to rounding between types, so that data
    fractions are nested. Raises ValueError where `count` is not in 1..len(tasks).
    """
    if not 1 <= count <= len(tasks):
        raise ValueError(f"asked for {count} of {len(tasks)} tasks")
    by_type = defaultdict(list)
    for task in sorted(tasks, key=lambda task: task.id):
        by_type[task.type].append(task)
    rng = np.random.default_rng(seed)
    shares = {kind: count * len(group) / len(tasks) for kind, group in by_type.items()}
    taken = {kind: int(share) for kind, share in shares.items()}
    by_remainder = sorted(shares, key=lambda kind: (taken[kind] - shares[kind], kind))
    for kind in by_remainder[: count - sum(taken.values())]:
        taken[kind] += 1
    chosen = [group[i] for kind, group in by_type.items() for i in rng.permutation(len(group))[: taken[kind]]]
    return sorted(chosen, key=lambda task: task.id)
