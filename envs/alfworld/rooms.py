"""A seed in, generated household games out, for people without ALFWorld's data. Played by the same engine.

    [envs/alfworld/rooms] -> engine.Play -> the Env -> rollout -> ...

The world is the table `ROOMS`. A room has eight to ten receptacles and one kind of place in it where each object
usually is; where it is today is drawn anew for every task and hidden from the player. Whoever knows the homes needs
few steps; whoever does not runs out of turns. The homes are the same in all splits, so they can be learned, and they
are what the skill notes under skills/alfworld/lean say. Left out: several receptacles at one place, sliced objects.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from envs.alfworld.engine import Game, Goal, Receptacle, Thing
from envs.base import SPLITS, Task

MAX_TURNS = 11  # the expert needs 3 to 9, whoever knows the homes hardly ever more than this
SIZES = {"train": 600, "seen": 256, "unseen": 512}  # tasks
ROOMS_A_KIND = 12  # training rooms of each kind, and as many new ones in the unseen split
USUAL, ELSE = 0.80, 0.15  # an object is in its first home, in its second; the rest of the time anywhere
TOGETHER = 0.9  # two objects of one kind lie in one place
COPY = 0.25  # a second one of the wanted kind lies beside the first where only one is asked for
CROWD = 4  # objects in one receptacle, at most


class Home(NamedTuple):
    first: str  # kind of receptacle
    second: str
    can: str = ""  # c, h, f: can be cleaned, heated, cooled (in the fridge)


class Kind(NamedTuple):
    receptacles: dict[str, tuple[int, ...]]  # how many there may be
    sizes: tuple[int, ...]  # receptacles in all
    targets: tuple[str, ...]  # where tasks want things to be put
    homes: dict[str, Home]  # the objects that tasks are about
    clutter: tuple[str, ...]  # objects that are only in the way; each room has two of these, anywhere
    lamp: str = ""


OPENABLE = frozenset({"fridge", "microwave", "cabinet", "drawer"})

ROOMS = {
    "kitchen": Kind(
        receptacles={
            **{"countertop": (1, 2, 3), "diningtable": (1, 2), "shelf": (1, 2, 3), "stoveburner": (1, 2)},
            **{"sinkbasin": (1,), "garbagecan": (1,), "fridge": (1,), "microwave": (1,)},
        },
        sizes=(9, 10),
        targets=("countertop", "diningtable", "shelf", "garbagecan"),
        homes={
            "mug": Home("shelf", "countertop", "chf"),
            "plate": Home("diningtable", "shelf", "chf"),
            "apple": Home("countertop", "diningtable", "chf"),
            "tomato": Home("fridge", "countertop", "chf"),
            "potato": Home("sinkbasin", "diningtable", "chf"),
            "pan": Home("stoveburner", "shelf", "cf"),
        },
        clutter=("fork", "spoon", "saltshaker", "papertowelroll"),
    ),
    "bathroom": Kind(
        receptacles={
            **{"countertop": (1, 2), "shelf": (1, 2, 3), "cabinet": (1, 2), "towelholder": (1, 2)},
            **{"sinkbasin": (1,), "bathtubbasin": (1,), "toilet": (1,), "garbagecan": (1,)},
        },
        sizes=(9, 10),
        targets=("countertop", "shelf", "toilet", "garbagecan"),
        homes={
            "soapbar": Home("bathtubbasin", "sinkbasin", "c"),
            "cloth": Home("towelholder", "countertop", "c"),
            "spraybottle": Home("shelf", "toilet"),
            "toiletpaper": Home("cabinet", "toilet"),
            "candle": Home("countertop", "shelf"),
        },
        clutter=("handtowel", "tissuebox", "plunger", "scrubbrush"),
    ),
    "bedroom": Kind(
        receptacles={
            **{"desk": (1, 2), "shelf": (1, 2, 3), "sidetable": (1, 2), "drawer": (1, 2)},
            **{"bed": (1,), "dresser": (1,), "armchair": (1,), "garbagecan": (1,)},
        },
        sizes=(9, 10),
        targets=("bed", "dresser", "armchair", "sidetable"),
        homes={
            "book": Home("shelf", "bed"),
            "cd": Home("desk", "shelf"),
            "pillow": Home("bed", "armchair"),
            "cellphone": Home("sidetable", "desk"),
            "keychain": Home("drawer", "dresser"),
        },
        clutter=("pencil", "mirror", "boots", "basketball"),
        lamp="desklamp",
    ),
    "livingroom": Kind(
        receptacles={
            **{"coffeetable": (1, 2), "armchair": (1, 2), "sidetable": (1, 2), "shelf": (1, 2), "drawer": (1, 2)},
            **{"sofa": (1,), "tvstand": (1,), "garbagecan": (1,)},
        },
        sizes=(9, 10),
        targets=("sofa", "coffeetable", "tvstand", "garbagecan"),
        homes={
            "newspaper": Home("coffeetable", "sofa"),
            "remotecontrol": Home("sofa", "armchair"),
            "vase": Home("shelf", "coffeetable"),
            "watch": Home("drawer", "sidetable"),
            "creditcard": Home("armchair", "coffeetable"),
        },
        clutter=("houseplant", "statue", "box", "laptop"),
        lamp="floorlamp",
    ),
}
LAMPS = {"desklamp": Home("desk", "sidetable"), "floorlamp": Home("sidetable", "shelf")}
HOMES = {name: home for kind in ROOMS.values() for name, home in kind.homes.items()} | LAMPS

TYPES = {  # task type -> its sentence, what must be possible with its object, and the state it ends in
    "pick_and_place_simple": ("put a {kind} in {target}.", "", ""),
    "look_at_obj_in_light": ("look at {kind} under the {lamp}.", "", ""),
    "pick_clean_then_place_in_recep": ("put a clean {kind} in {target}.", "c", "clean"),
    "pick_heat_then_place_in_recep": ("put a hot {kind} in {target}.", "h", "hot"),
    "pick_cool_then_place_in_recep": ("put a cool {kind} in {target}.", "f", "cool"),
    "pick_two_obj_and_place": ("put two {kind} in {target}.", "", ""),
}
ABILITIES = {"c": "clean", "h": "heat", "f": "cool"}
FITS = frozenset(HOMES) | {clutter for kind in ROOMS.values() for clutter in kind.clutter}  # everything, anywhere


@dataclass(frozen=True)
class Room:
    name: str  # "kitchen3"
    kind: str
    receptacles: tuple[Receptacle, ...]
    clutter: tuple[str, ...]  # the kinds that lie about here


def rooms(seed: int = 0) -> dict[str, list[Room]]:
    """The rooms of the training split (which `seen` shares) and those of the unseen split: no two rooms have both
    the same receptacles and the same clutter."""
    rng = np.random.default_rng([seed, 0])
    drawn: dict[str, list[Room]] = {"train": [], "unseen": []}
    for name, kind in ROOMS.items():
        designs = [(counts, pair) for counts in _layouts(kind) for pair in combinations(kind.clutter, 2)]
        chosen = rng.permutation(len(designs))[: 2 * ROOMS_A_KIND]
        for number, design in enumerate(chosen, start=1):
            counts, clutter = designs[design]
            split = "train" if number <= ROOMS_A_KIND else "unseen"
            drawn[split].append(Room(f"{name}{number}", name, _furnish(counts), clutter))
    return drawn | {"seen": drawn["train"]}


def _layouts(kind: Kind) -> list[dict[str, int]]:
    every = (dict(zip(kind.receptacles, counts, strict=True)) for counts in product(*kind.receptacles.values()))
    return [counts for counts in every if sum(counts.values()) in kind.sizes]


def _furnish(counts: dict[str, int]) -> tuple[Receptacle, ...]:
    """In ALFWorld's order: by kind, and the highest number first. Every receptacle is a place of its own."""
    names = [(kind, number) for kind in sorted(counts) for number in range(counts[kind], 0, -1)]
    return tuple(Receptacle(f"{k} {n}", k, place, k in OPENABLE, FITS) for place, (k, n) in enumerate(names))


def generate(split: str, seed: int = 0) -> list[Task]:
    """The tasks of a split, sorted by id; the same for the same seed. Task types take turns, and within a type the
    kinds of room that allow it. The payload of a task is its `Game`. Raises ValueError for an unknown split."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}: choose one of {', '.join(SPLITS)}")
    taken = {task.digest for task in generate("train", seed)} if split == "seen" else set()
    rng = np.random.default_rng([seed, 1 + SPLITS.index(split)])
    homes = rooms(seed)[split]
    tasks = []
    while len(tasks) < SIZES[split]:
        task = _draw(split, len(tasks), homes, rng)
        if task.digest not in taken:  # a game is in one split only, and there once
            taken.add(task.digest)
            tasks.append(task)
    return sorted(tasks, key=lambda task: task.id)


def _draw(split: str, number: int, homes: list[Room], rng: np.random.Generator) -> Task:
    task_type = list(TYPES)[number % len(TYPES)]
    sentence, need, state = TYPES[task_type]
    lit = task_type == "look_at_obj_in_light"
    kinds = [
        name
        for name, kind in ROOMS.items()
        if (kind.lamp or not lit) and any(need in home.can for home in kind.homes.values())
    ]
    name = kinds[number // len(TYPES) % len(kinds)]
    kind = ROOMS[name]
    room = _pick([room for room in homes if room.kind == name], rng)
    wanted = _pick([o for o, home in kind.homes.items() if need in home.can], rng)
    target = "" if lit else _pick([t for t in kind.targets if t not in kind.homes[wanted][:2]], rng)
    count = 2 if task_type == "pick_two_obj_and_place" else 1
    text = sentence.format(kind=wanted, target=target, lamp=kind.lamp)
    goal = Goal(wanted, target, state, count, kind.lamp if lit else "")
    game = _game(text, goal, room, rng)
    id_ = f"{split}/{task_type}-{wanted}-none-{target or kind.lamp}-{room.name}/{number:04d}"
    return Task(id_, task_type, text, wanted, _digest(game), game)


def _game(text: str, goal: Goal, room: Room, rng: np.random.Generator) -> Game:
    """Hides the objects of the room. The wanted kind is never at the target kind, or the task might be done."""
    kind = ROOMS[room.kind]
    laid: list[tuple[str, int]] = []  # (kind of object, receptacle)
    copies = 2 if goal.count == 2 or rng.random() < COPY else 1
    _lay(laid, room, goal.kind, copies, goal, rng)
    for other in kind.homes:
        if other != goal.kind and rng.random() < 0.8:
            _lay(laid, room, other, 1 + int(rng.random() < 0.4), goal, rng)
    for other in room.clutter:
        _lay(laid, room, other, 1 + int(rng.random() < 0.4), goal, rng)
    if kind.lamp:
        _lay(laid, room, kind.lamp, 1, goal, rng)
    left = Counter(o for o, _ in laid)
    things, inside = [], [set() for _ in room.receptacles]
    for name, r in sorted(laid):
        inside[r].add(len(things))
        can = {"toggle"} if name in LAMPS else {"pickup", *(ABILITIES[a] for a in _abilities(name))}
        things.append(Thing(f"{name} {left[name]}", name, frozenset(can), frozenset({r})))
        left[name] -= 1
    return Game(text, goal, room.receptacles, tuple(things), tuple(map(frozenset, inside)), start=-1)


def _abilities(name: str) -> str:
    return HOMES[name].can if name in HOMES else ""


def _lay(laid: list, room: Room, name: str, copies: int, goal: Goal, rng: np.random.Generator) -> None:
    """Adds `copies` objects of kind `name` to `laid`, together more often than not."""
    spot = None
    for _ in range(copies):
        if spot is None or rng.random() >= TOGETHER or _count(laid, spot) >= CROWD:
            spot = _spot(laid, room, name, goal, rng)
        laid.append((name, spot))


def _spot(laid: list, room: Room, name: str, goal: Goal, rng: np.random.Generator) -> int:
    while True:
        where, home = rng.random(), HOMES.get(name)
        kind = None if home is None or where >= USUAL + ELSE else home.first if where < USUAL else home.second
        spot = _pick([i for i, r in enumerate(room.receptacles) if kind in (None, r.kind)], rng)
        done = name == goal.kind and room.receptacles[spot].kind == goal.target
        if not done and _count(laid, spot) < CROWD:
            return spot


def _count(laid: list, spot: int) -> int:
    return sum(r == spot for _, r in laid)


def _pick(choices: list, rng: np.random.Generator):
    return choices[int(rng.integers(len(choices)))]


def _digest(game: Game) -> str:
    """sha256 over everything that decides how the game plays."""
    lines = [game.task, *map(str, game.goal), *(f"{r.name} {r.openable}" for r in game.receptacles)]
    lines += [f"{thing.name} {sorted(thing.can)} {sorted(thing.places)}" for thing in game.things]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
