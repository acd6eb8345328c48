"""A seed in, generated household games out, for people without ALFWorld's data. Played by the same engine.

    [envs/alfworld/rooms] -> engine.Play -> the Env -> rollout -> ...

The world is the table `ROOMS`. A room has nine or ten receptacles. Every object has a kind of receptacle where it
usually is; where it is today is drawn anew for each task and hidden from the player. Whoever knows the homes needs
few steps; whoever does not runs out of turns. The homes are the same in all splits, so they can be learned, and they
are what the skill notes under skills/alfworld/lean say. Left out: several receptacles at one place, sliced objects.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from envs.alfworld.engine import Game, Goal, Receptacle, Thing
from envs.base import SPLITS, Task

MAX_TURNS = 10  # the expert needs 3 to 9, whoever knows the homes hardly ever more than this
SIZES = {"train": 600, "seen": 256, "unseen": 512}  # tasks
RECEPTACLES = (9, 10)  # in a room
ROOMS_A_KIND = 12  # training rooms of each kind, and as many new ones in the unseen split
USUAL, ELSE = 0.80, 0.15  # an object is in its first home, in its second; the rest of the time anywhere
TOGETHER = 0.9  # two objects of one kind lie in one place
COPY = 0.3  # there are two of a kind although one would do
PRESENT = 0.8  # an object that the task is not about is in the room at all
CROWD = 4  # objects in one receptacle, at most


class Home(NamedTuple):
    first: str  # kind of receptacle
    second: str
    can: str = ""  # c, h, f: can be cleaned, heated, cooled (in the fridge)


class Kind(NamedTuple):
    receptacles: dict[str, tuple[int, ...]]  # how many there may be
    targets: tuple[str, ...]  # where tasks want things to be put
    homes: dict[str, Home]  # the objects that tasks are about
    clutter: tuple[str, ...]  # objects that are only in the way; each room has two of these, anywhere
    lamp: str = ""


OPENABLE = frozenset({"fridge", "microwave", "cabinet", "drawer"})

ROOMS = {
    "kitchen": Kind(
        receptacles=dict(
            countertop=(1,), diningtable=(1,), shelf=(1,), stoveburner=(1,), sinkbasin=(1,), garbagecan=(1,),
            fridge=(1,), microwave=(1,), cabinet=(0, 1, 2), drawer=(0, 1, 2), coffeemachine=(0, 1), toaster=(0, 1),
        ),
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
        receptacles=dict(
            countertop=(1,), shelf=(1,), cabinet=(1,), towelholder=(1,), sinkbasin=(1,), bathtubbasin=(1,),
            toilet=(1,), garbagecan=(1,), drawer=(0, 1, 2), sidetable=(0, 1), handtowelholder=(0, 1, 2),
            toiletpaperhanger=(0, 1),
        ),
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
        receptacles=dict(
            desk=(1,), shelf=(1,), sidetable=(1,), drawer=(1, 2), bed=(1,), dresser=(1,), armchair=(1,),
            garbagecan=(1,), cabinet=(0, 1), ottoman=(0, 1), coffeetable=(0, 1), cart=(0, 1),
        ),
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
        receptacles=dict(
            coffeetable=(1,), armchair=(1,), sidetable=(1,), shelf=(1,), drawer=(1, 2), sofa=(1,), tvstand=(1,),
            garbagecan=(1,), cabinet=(0, 1), ottoman=(0, 1), dresser=(0, 1), diningtable=(0, 1),
        ),
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
    return [counts for counts in every if sum(counts.values()) in RECEPTACLES]


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
    rooms_here = rooms(seed)[split]
    tasks = []
    while len(tasks) < SIZES[split]:
        task = _draw(f"{split}/", len(tasks), rooms_here, HOMES, rng)
        if task.digest not in taken:  # a game is in one split only, and there once
            taken.add(task.digest)
            tasks.append(task)
    return sorted(tasks, key=lambda task: task.id)


@dataclass(frozen=True)
class Practice:
    """The payload of a practice task: a game, and the homes that hold in it."""

    played: Game
    homes: dict[str, Home]

    def game(self) -> Game:
        return self.played


def practice(count: int, seed: int = 0) -> list[tuple[Task, str]]:
    """Tasks in the training rooms in which every object has other homes than in the world, each with the note that
    says so. Who learns from these learns to read notes, and nothing about the world."""
    rng = np.random.default_rng([seed, 1 + len(SPLITS)])
    rooms_here = rooms()["train"]
    drawn = []
    for number in range(count):
        homes = dict(HOMES)
        for kind in ROOMS.values():
            everywhere = [name for name, counts in kind.receptacles.items() if min(counts) > 0]
            for name, home in kind.homes.items():
                first, second = rng.permutation(everywhere)[:2]
                homes[name] = Home(str(first), str(second), home.can)
        task = _draw("practice/", number, rooms_here, homes, rng)
        drawn.append((replace(task, payload=Practice(task.payload, homes)), note(task.topic, homes)))
    return drawn


def note(kind: str, homes: dict[str, Home] | None = None) -> str:
    """What a skill says about where a kind of object is."""
    home = (homes or HOMES)[kind]
    return f"{kind} : usually in {home.first} , else in {home.second} ."


def _draw(prefix: str, number: int, among: list[Room], homes: dict[str, Home], rng: np.random.Generator) -> Task:
    task_type = list(TYPES)[number % len(TYPES)]
    sentence, need, state = TYPES[task_type]
    lit = task_type == "look_at_obj_in_light"
    names = [n for n, k in ROOMS.items() if (k.lamp or not lit) and any(need in home.can for home in k.homes.values())]
    name = names[number // len(TYPES) % len(names)]
    kind = ROOMS[name]
    room = _pick([room for room in among if room.kind == name], rng)
    wanted = _pick([o for o, home in kind.homes.items() if need in home.can], rng)
    target = "" if lit else _pick([t for t in kind.targets if t not in homes[wanted][:2]], rng)
    goal = Goal(wanted, target, state, 2 if "two" in sentence else 1, kind.lamp if lit else "")
    text = sentence.format(kind=wanted, target=target, lamp=kind.lamp)
    game = _Hiding(room, goal, homes, rng).game(text)
    id_ = f"{prefix}{task_type}-{wanted}-none-{target or kind.lamp}-{room.name}/{number:04d}"
    return Task(id_, task_type, text, wanted, _digest(game), game)


class _Hiding:
    """Lays the objects of one game: the wanted ones first, which are never where they are to be put."""

    def __init__(self, room: Room, goal: Goal, homes: dict[str, Home], rng: np.random.Generator):
        self.room, self.goal, self.homes, self.rng = room, goal, homes, rng
        self.laid: list[tuple[str, int]] = []  # (kind of object, receptacle)
        kind = ROOMS[room.kind]
        self._lay(goal.kind, 2 if goal.count == 2 or rng.random() < COPY else 1)
        for other in kind.homes:
            if other != goal.kind and rng.random() < PRESENT:
                self._lay(other, 1 + int(rng.random() < COPY))
        for other in (*room.clutter, *room.clutter[:1]):  # the first kind twice, each somewhere else
            self._lay(other, 1)
        if kind.lamp:
            self._lay(kind.lamp, 1)

    def game(self, text: str) -> Game:
        left = Counter(name for name, _ in self.laid)
        things, inside = [], [set() for _ in self.room.receptacles]
        for name, r in sorted(self.laid):
            inside[r].add(len(things))
            can = frozenset({"toggle"} if name in LAMPS else {"pickup", *_abilities(name)})
            things.append(Thing(f"{name} {left[name]}", name, can, frozenset({r})))
            left[name] -= 1
        receptacles = self.room.receptacles
        return Game(text, self.goal, receptacles, tuple(things), tuple(map(frozenset, inside)), start=len(receptacles))

    def _lay(self, name: str, copies: int) -> None:
        spot = self._spot(name)
        for copy in range(copies):
            if copy and (self.rng.random() >= TOGETHER or self._full(spot)):
                spot = self._spot(name)
            self.laid.append((name, spot))

    def _spot(self, name: str) -> int:
        receptacles, home = self.room.receptacles, self.homes.get(name, Home("", ""))
        while True:
            where = self.rng.random() if home.first else 1.0
            kind = home.first if where < USUAL else home.second if where < USUAL + ELSE else ""
            spot = _pick([i for i, r in enumerate(receptacles) if kind in ("", r.kind)], self.rng)
            done = name == self.goal.kind and receptacles[spot].kind == self.goal.target
            if not done and not self._full(spot):
                return spot

    def _full(self, spot: int) -> bool:
        return sum(r == spot for _, r in self.laid) >= CROWD


def _abilities(name: str) -> list[str]:
    return [ABILITIES[letter] for letter in HOMES[name].can] if name in HOMES else []


def _pick(choices: list, rng: np.random.Generator):
    return choices[int(rng.integers(len(choices)))]


def _digest(game: Game) -> str:
    """sha256 over everything that decides how the game plays."""
    lines = [game.task, *map(str, game.goal), *(f"{r.name} {r.openable}" for r in game.receptacles)]
    lines += [f"{thing.name} {sorted(thing.can)} {sorted(thing.places)}" for thing in game.things]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
