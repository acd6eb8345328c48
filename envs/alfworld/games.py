"""Real ALFWorld games: a folder of game files or the packed corpus in, `Game`s out.

    [envs/alfworld/games] -> engine.Play -> the Env -> rollout -> ...

A game file is the JSON object {pddl_domain, grammar, pddl_problem, solvable, walkthrough}, found at
json_2.1.1/<split>/<task>/<trial>/game.tw-pddl. The packed corpus holds many in one `*.jsonl.xz`: the first line
has the shared domain and grammar, every other line one game with `split`, `task`, `trial`, `goal`, `walkthrough`
and `pddl_problem`. All are listed, few are parsed: a game is parsed when first played. Source: alfworld.md, head, 2.

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
from functools import lru_cache
from itertools import chain
from pathlib import Path

from envs.alfworld.engine import Game, Goal, Receptacle, Thing, Wording

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
    """One listed game: what a task needs to know of it, and where it is."""

    task: str  # "pick_heat_then_place_in_recep-Egg-None-Fridge-13"
    trial: str  # "trial_T20190909_021613_077537"
    goal: str  # "heat some egg and put it in fridge."
    digest: str  # sha256 of the game's text
    file: Path
    packed: bytes = b""  # the game's line of a packed corpus, compressed
    wording: Wording | None = None  # that corpus's

    @property
    def type(self) -> str:
        return self.task.split("-")[0]

    @property
    def topic(self) -> str:
        """The goal object's type in lower case."""
        return self.task.split("-")[1].lower()

    def game(self) -> Game:
        """Raises ValueError naming the file and trial where the game cannot be understood."""
        return _load(self)


@lru_cache(maxsize=512)
def _load(entry: Entry) -> Game:
    try:
        parts = json.loads(zlib.decompress(entry.packed) if entry.packed else entry.file.read_bytes())
        wording = entry.wording or wording_of(parts["grammar"])
        return parse(parts["pddl_problem"], entry.goal, wording, tuple(parts.get("walkthrough") or ()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{entry.file} ({entry.trial}): {_reason(error)}") from error


def find(data: str | Path) -> dict[str, list[Entry]]:
    """The games under `data` by ALFWorld's split name, sorted by task and trial.

    `data` is a packed corpus, a folder that holds one, a folder that holds json_2.1.1/, or that folder itself.
    Raises FileNotFoundError where there is none of these, ValueError naming a file that holds no game.
    """
    data = Path(data)
    if not data.exists():
        raise FileNotFoundError(f"no such file or folder: {data} (ALFWORLD_DATA; unset it to play generated games)")
    root = data / "json_2.1.1" if (data / "json_2.1.1").is_dir() else data
    packs = [data] if data.is_file() else sorted(data.glob("*.jsonl.xz"))
    splits = defaultdict(list)
    for split, entry in chain.from_iterable(map(_unpack, packs)) if packs and root == data else _walk(root):
        splits[split].append(entry)
    if not splits:
        raise FileNotFoundError(f"{data} holds neither json_2.1.1/<split>/<task>/<trial>/game.tw-pddl nor *.jsonl.xz")
    return {split: sorted(entries, key=lambda entry: (entry.task, entry.trial)) for split, entries in splits.items()}


def _walk(root: Path) -> Iterator[tuple[str, Entry]]:
    """As ALFWorld's own loader: games of its six types; ALFRED's sliced and movable ones, and games that its planner
    marked unsolvable, stand in some downloads and are none of ALFWorld's."""
    for file in sorted(root.glob("*/*/*/game.tw-pddl")):
        split, task, trial = file.parts[-4:-1]
        if task.split("-")[0] not in TYPES or "movable" in task or "Sliced" in task:
            continue
        text = file.read_bytes()
        try:
            game = json.loads(text)
            goal = re.search(r'Your task is to: ([^"]*)"', game["grammar"])[1]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"{file}: no ALFWorld game ({_reason(error)}); fetch it again") from error
        if game.get("solvable", True):
            yield split, Entry(task, trial, goal, hashlib.sha256(text).hexdigest(), file)


def _unpack(file: Path) -> Iterator[tuple[str, Entry]]:
    number, first_seen = 1, {}
    try:
        with lzma.open(file, "rb") as lines:
            head = next(lines)
            wording = wording_of(json.loads(head)["grammar"])
            for number, line in enumerate(lines, start=2):
                game = json.loads(line)
                name = tuple(game[key] for key in ("split", "task", "trial", "goal"))
                if not all(isinstance(part, str) for part in name):
                    raise ValueError("split, task, trial and goal must be texts")
                if first_seen.setdefault(name[:3], number) != number:
                    raise ValueError(f"the game of line {first_seen[name[:3]]} again")
                digest = hashlib.sha256(head + line).hexdigest()
                entry = Entry(game["task"], game["trial"], game["goal"], digest, file, zlib.compress(line, 1), wording)
                yield game["split"], entry
    except (
        lzma.LZMAError, EOFError, StopIteration, ValueError, LookupError, TypeError, RecursionError
    ) as error:  # fmt: skip
        raise ValueError(f"{file}, line {number}: no packed ALFWorld corpus ({_reason(error)})") from error


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error)[:500]


def wording_of(grammar: str) -> Wording:
    """Which of ALFWorld's texts a grammar holds: those of 0.4.x ("move X to Y") or of 0.3.x ("put X in/on Y").

    Raises ValueError where it is neither: a policy that says one would hear "Nothing happens." from the other.
    """
    put = re.search(r'action PutObject \{\s*template :: "([^"]*)"', grammar)
    puts = re.search(r'"PutObject.feedback": \[\s*\{\s*"rhs": "([^"]*)"', grammar)
    arrive = re.search(r'"You arrive at \{(r|lend).name\}', grammar)
    known = {"move {o} to {r}", "put {o} in/on {r}"}
    if not (put and puts and arrive and put[1] in known):
        raise ValueError("unknown grammar: neither ALFWorld 0.4.x nor 0.3.x")
    return Wording(put[1], puts[1].replace(".name}", "}"), arrive[1] == "r", "action help {" in grammar)


_PREDICATES = {
    "pickupable": "pickup",
    "cleanable": "clean",
    "heatable": "heat",
    "coolable": "cool",
    "toggleable": "toggle",
    "sliceable": "slice",
}
_ENTITY = re.compile(r"^\s*([^\s()]+) - (object|receptacle|location)\b", re.MULTILINE)
_FACT = re.compile(r"\((\w+) ([^\s()?]+)(?: ([^\s()?]+))?\)")
_LAMP_LIT = frozenset(
    {
        *("toggleable ?ot", "istoggled ?ot", "inreceptacle ?ot ?r", "receptacleatlocation ?r ?l"),
        *("atlocation ?a ?l", "holds ?a ?o"),
    }
)
_TWO_PLACED = frozenset({"inreceptacle ?o1 ?r", "= ?o1 ?o2", "inreceptacle ?o2 ?r"})


def parse(problem: str, task: str, wording: Wording, walkthrough: tuple[str, ...] = ()) -> Game:
    """A PDDL problem to a `Game`. Ids are compared in lower case, as the planner does, and instances numbered
    down from their count in the order of their ids ("cabinet 3" stands before "cabinet 2").

    Raises ValueError, KeyError or IndexError where the text is not one of ALFWorld's problems.
    """
    if not {"(:init", "(:goal"} <= set(re.findall(r"\(:\w+", problem)):
        raise ValueError("a PDDL problem without (:init or (:goal")
    header, rest = problem.lower().split("(:init", 1)
    init, goal = rest.split("(:goal", 1)
    facts = defaultdict(list)
    for predicate, *terms in _FACT.findall(init):
        facts[predicate].append(terms)
    entities = sorted((name, kind) for name, kind in _ENTITY.findall(header) if "_bar_" in name)
    names = _number([name for name, _ in entities])
    places = {name: i for i, name in enumerate(n for n, kind in entities if kind == "location")}
    where = {r: places[place] for r, place in facts["receptacleatlocation"]}
    rank = {name: i for i, name in enumerate(n for n, kind in entities if kind == "object")}
    shelves = [name for name, kind in entities if kind == "receptacle" and name in where]
    inside = defaultdict(set)
    for o, r in facts["inreceptacle"]:
        inside[r].add(rank[o])
    return Game(
        task=task,
        goal=_goal(goal),
        receptacles=tuple(_receptacles(shelves, names, where, facts)),
        things=tuple(_things(rank, names, places, facts)),
        inside=tuple(frozenset(inside[r]) for r in shelves),
        start=places[facts["atlocation"][0][1]],
        cool=frozenset(rank[o] for o, _ in facts["iscool"]),
        wording=wording,
        place_names=tuple(names[place] for place in places),
        walkthrough=walkthrough,
    )


def _number(ids: list[str]) -> dict[str, str]:
    """Sorted ids to the names that the player reads."""
    stems = {i: i.split("_bar_")[0] + "basin" * ("basin" in i) for i in ids}
    left = Counter(stems.values())
    names = {}
    for i, stem in stems.items():
        names[i] = f"{stem} {left[stem]}"
        left[stem] -= 1
    return names


def _receptacles(ids: list[str], names: dict, where: dict, facts: dict) -> Iterator[Receptacle]:
    kinds = {r: kind.removesuffix("type") for r, kind in facts["receptacletype"]}
    fits = defaultdict(set)
    for kind, inner in facts["cancontain"]:
        fits[kind.removesuffix("type")].add(inner.removesuffix("type"))
    fits = {kind: frozenset(inner) for kind, inner in fits.items()}
    openable = {r for r, _ in facts["openable"]}
    for r in ids:
        yield Receptacle(names[r], kinds[r], where[r], r in openable, fits.get(kinds[r], frozenset()))


def _things(ids: dict, names: dict, places: dict, facts: dict) -> Iterator[Thing]:
    can, at, holds = defaultdict(set), defaultdict(set), defaultdict(list)
    for predicate, verb in _PREDICATES.items():
        for o, _ in facts[predicate]:
            can[o].add(verb)
    for o, place in facts["objectatlocation"]:
        at[o].add(places[place])
    for inner, outer in sorted(facts["inreceptacleobject"]):
        holds[outer].append(names[inner])
    kinds = {o: kind.removesuffix("type") for o, kind in facts["objecttype"]}
    vessels = {o for o, _ in facts["isreceptacleobject"]}
    for o in ids:
        abilities, kind = frozenset(can[o]), kinds.get(o, o.split("_bar_")[0])
        yield Thing(names[o], kind, abilities, frozenset(at[o]), o in vessels, tuple(holds[o]))


def _goal(formula: str) -> Goal:
    """The goal formula, whose conditions may stand in any order. Raises ValueError where ALFWorld has no such goal."""
    conditions = [text for text in re.findall(r"\(([^()]+)\)", formula) if " - " not in text]
    typed = dict(re.findall(r"(?:object|receptacle)type (\?\w+) (\w+)type", " ".join(conditions)))
    rest = frozenset(text for text in conditions if not text.startswith(("objecttype", "receptacletype")))
    if rest == _LAMP_LIT:
        return Goal(typed["?o"], lamp=typed["?ot"])
    if rest == _TWO_PLACED and typed["?o1"] == typed["?o2"]:
        return Goal(typed["?o1"], typed["?r"], count=2)
    if rest == {"inreceptacle ?o ?r"}:
        return Goal(typed["?o"], typed["?r"])
    for state, ability in (("clean", "cleanable"), ("hot", "heatable"), ("cool", "coolable")):
        if rest == {f"{ability} ?o", f"is{state} ?o", "inreceptacle ?o ?r"}:
            return Goal(typed["?o"], typed["?r"], state)
    raise ValueError(f"a goal that ALFWorld does not have: {' & '.join(sorted(rest)) or 'none'}")
