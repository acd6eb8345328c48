"""Real ALFWorld games: a folder of game files or the packed corpus in, `Game`s out.

    [envs/alfworld/games] -> engine.Play -> the Env -> rollout -> ...

A game file is the JSON object {pddl_domain, grammar, pddl_problem, solvable, walkthrough}, found at
json_2.1.1/<split>/<task>/<trial>/game.tw-pddl. The packed corpus holds many in one `*.jsonl.xz`: the first line
has the shared domain and grammar, every other line one game with `split`, `task`, `trial`, `goal`, `walkthrough`
and `pddl_problem`. Listing is cheap; a game is parsed when it is first played. Source: alfworld.md, head and 2.

Left out: the PDDL domain. It is the same in every game, and the engine is its rules written out.
"""

import hashlib
import json
import lzma
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from envs.alfworld.engine import Game, Goal, Receptacle, Thing, Wording

FOLDERS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"}  # our splits in ALFWorld's words
TYPES = (
    "look_at_obj_in_light",
    "pick_and_place_simple",
    "pick_clean_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_two_obj_and_place",
)


@dataclass(frozen=True)
class Entry:
    """Where one game is. `packed` is its line of a packed corpus, compressed, and `wording` that corpus's texts."""

    task: str  # "pick_heat_then_place_in_recep-Egg-None-Fridge-13"
    trial: str  # "trial_T20190909_021613_077537"
    digest: str  # sha256 of the game's text
    file: Path
    packed: bytes = b""
    wording: Wording | None = None

    @property
    def type(self) -> str:
        return self.task.split("-")[0]

    @property
    def topic(self) -> str:
        """The goal object's type in lower case."""
        return self.task.split("-")[1].lower()

    def read(self) -> dict:
        """`task`, `wording`, `pddl_problem`, `walkthrough`. Raises ValueError naming the file if it holds no game."""
        if self.packed:
            game = json.loads(zlib.decompress(self.packed))
            return game | {"task": game["goal"], "wording": self.wording}
        try:
            game = json.loads(self.file.read_text("utf-8"))
            task = re.search(r'Your task is to: ([^"]*)"', game["grammar"])[1]
            return game | {"task": task, "wording": wording_of(game["grammar"])}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.file} is no ALFWorld game ({error}): fetch it again") from error

    @property
    def goal(self) -> str:
        return self.read()["task"]

    def game(self) -> Game:
        """Reads and parses the game. Raises ValueError naming the file (and trial) where it is not one."""
        parts = self.read()
        try:
            game = parse(parts["pddl_problem"], parts["task"], parts["wording"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.file} ({self.trial}) is no ALFWorld game: {error}") from error
        return game


def find(data: str | Path) -> dict[str, list[Entry]]:
    """The games under `data` by ALFWorld's split name, sorted by task and trial.

    `data` is a packed corpus, a folder that holds one, a folder that holds json_2.1.1/, or that folder itself.
    Raises FileNotFoundError where there is none of these.
    """
    data = Path(data)
    if not data.exists():
        raise FileNotFoundError(f"ALFWORLD_DATA: no such file or folder: {data}")
    packs = [data] if data.is_file() else sorted(data.glob("*.jsonl.xz"))
    root = data / "json_2.1.1" if (data / "json_2.1.1").is_dir() else data
    splits = defaultdict(list)
    for split, entry in _unpack(packs[0]) if packs else _walk(root):
        splits[split].append(entry)
    if not splits:
        raise FileNotFoundError(f"{data} holds neither json_2.1.1/<split>/<task>/<trial>/game.tw-pddl nor *.jsonl.xz")
    return {split: sorted(entries, key=lambda entry: (entry.task, entry.trial)) for split, entries in splits.items()}


def _walk(root: Path) -> Iterator[tuple[str, Entry]]:
    """Game files of ALFWorld's six types. (ALFRED's other task types, and games marked unsolvable, are not part of
    ALFWorld and stand in some downloads.)"""
    for file in sorted(root.glob("*/*/*/game.tw-pddl")):
        split, task, trial = file.parts[-4:-1]
        if task.split("-")[0] in TYPES and "movable" not in task and "Sliced" not in task:
            text = file.read_bytes()
            if b'"solvable": false' not in text:
                yield split, Entry(task, trial, hashlib.sha256(text).hexdigest(), file)
