"""A game and a command in, a text, the commands that would work next, and won-or-not out.

    [envs/alfworld/engine] -> games, rooms (what is played) -> players, the Env -> rollout -> ...

ALFWorld plays household tasks through TextWorld's PDDL planner bindings. Only a dozen of that planner's rules are
ever used, so they are written out here: the same texts, commands, reward and done, step for step, hundreds of times
faster and with the standard library alone. Source: alfworld.md 2 and 4.

Left out: shuffled numbering, intermediate rewards, movable receptacles and sliced goals (ALFWorld has none).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

HELP = """Available commands:
  look:                             look around your current location
  inventory:                        check your current inventory
  go to (receptacle):               move to a receptacle
  open (receptacle):                open a receptacle
  close (receptacle):               close a receptacle
  take (object) from (receptacle):  take an object from a receptacle
  move (object) to (receptacle):  place an object in or on a receptacle
  examine (something):              examine a receptacle or an object
  use (object):                     use an object
  heat (object) with (receptacle):  heat an object using a receptacle
  clean (object) with (receptacle): clean an object using a receptacle
  cool (object) with (receptacle):  cool an object using a receptacle
  slice (object) with (object):     slice an object using a sharp object
"""
BLADES = ("knife", "butterknife")
STATIONS = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}  # which receptacle does what
TURNS = {"clean": "clean", "heat": "hot", "cool": "cool"}  # what it makes of the object


class Wording(NamedTuple):
    """What differs between the texts of ALFWorld 0.4.x and those of 0.3.x."""

    put: str  # the command that puts down
    puts: str  # its feedback
    arrive: bool  # `go to` says at which receptacle you arrive; else at which location ("loc 12")
    help: bool  # whether there is a `help` command


MODERN = Wording("move {o} to {r}", "You move the {o} to the {r}.", True, True)
CLASSIC = Wording("put {o} in/on {r}", "You put the {o} in/on the {r}.", False, False)


class Receptacle(NamedTuple):
    name: str  # "drawer 2"
    kind: str  # "drawer"
    place: int  # where one stands to use it; several may share a place
    openable: bool
    fits: frozenset[str]  # kinds of objects that may be put in or on it


class Thing(NamedTuple):
    """An object. `can` holds what may be done with it: pickup, clean, heat, cool, toggle, slice."""

    name: str  # "mug 1"
    kind: str  # "mug"
    can: frozenset[str]
    places: frozenset[int]  # where it is at the start; only slicing asks
    vessel: bool = False  # something can lie in it; `examine` then lists `holds`
    holds: tuple[str, ...] = ()


class Goal(NamedTuple):
    """Won while `count` objects of `kind` (each in `state`, if any) are in or on one receptacle of kind `target`;
    with a `lamp`, while one is held and a lamp of that kind, once used, is where the agent stands."""

    kind: str
    target: str = ""
    state: str = ""  # "", clean, hot or cool
    count: int = 1
    lamp: str = ""


@dataclass(frozen=True)
class Game:
    """Everything about a game that play does not change; shared by all episodes of it.

    Receptacles and things stand in the engine's order (that of their ids), which is the order of every list in a text.
    """

    task: str  # "put a clean mug in shelf."
    goal: Goal
    receptacles: tuple[Receptacle, ...]
    things: tuple[Thing, ...]
    inside: tuple[frozenset[int], ...]  # at the start, for each receptacle, the things in or on it
    start: int  # the place where the agent starts
    cool: frozenset[int] = frozenset()  # things that are cool at the start
    wording: Wording = MODERN
    place_names: tuple[str, ...] = ()  # "loc 12", for the 0.3.x texts
    walkthrough: tuple[str, ...] = ()

    @cached_property
    def intro(self) -> str:
        seen = _listing(f"a {receptacle.name}" for receptacle in self.receptacles)
        return (
            "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, "
            f"you see {seen}.\n\nYour task is to: {self.task}"
        )

    @cached_property
    def at(self) -> dict[int, tuple[int, ...]]:
        """Receptacles at each place."""
        places = sorted({receptacle.place for receptacle in self.receptacles} | {self.start})
        return {p: tuple(i for i, r in enumerate(self.receptacles) if r.place == p) for p in places}

    @cached_property
    def ways(self) -> dict[int, tuple[str, ...]]:
        """The `go to` commands from each place: to every receptacle that is elsewhere."""
        return {p: tuple(f"go to {r.name}" for r in self.receptacles if r.place != p) for p in self.at}

    @cached_property
    def targets(self) -> dict[str, int]:
        """The receptacle that each `go to` command leads to."""
        return {f"go to {r.name}": i for i, r in enumerate(self.receptacles)}


class Play:
    """One episode of a game. `observation`, `admissible` and `won` describe where it stands."""

    def __init__(self, game: Game):
        self.game = game
        self.reset()

    def reset(self) -> str:
        """Back to the start. Returns the introduction, which names every receptacle and the task."""
        game = self.game
        self.place = game.start
        self.held: int | None = None
        self.opened: set[int] = set()
        self.inside = [set(things) for things in game.inside]
        self.moved: dict[int, frozenset[int]] = {}  # places of the things that were ever taken or put
        self.left: set[tuple[int, int]] = set()  # (thing, receptacle) it was taken out of and not put back
        self.states = {"clean": set(), "hot": set(), "cool": set(game.cool), "used": set(), "sliced": set()}
        self.observation = game.intro
        self._look_around()
        return self.observation

    def step(self, command: str) -> tuple[str, int, bool]:
        """Plays one command, outer blanks aside. Returns the text, the reward (1 while the goal holds, else 0) and
        whether it holds. A command that is not admissible changes nothing. Play may go on after a win."""
        command = command.strip()
        action = self._local.get(command)
        if action is not None:
            self.observation = getattr(self, "_" + action[0])(*action[1:])
        elif command in self.game.targets and self.game.receptacles[self.game.targets[command]].place != self.place:
            self.observation = self._go(self.game.targets[command])
        else:
            self.observation = "Nothing happens."
            return self.observation, int(self.won), self.won
        self._look_around()
        return self.observation, int(self.won), self.won

    @property
    def admissible(self) -> tuple[str, ...]:
        """The commands that would work now, sorted as text."""
        return tuple(sorted((*self._local, *self.game.ways[self.place])))

    def _look_around(self) -> None:
        """Finds what can be done here (command -> action and its arguments) and whether the goal holds."""
        game, held = self.game, self.held
        local: dict[str, tuple] = {"look": ("look",), "inventory": ("inventory",)}
        if game.wording.help:
            local["help"] = ("help",)
        if held is not None:
            local[f"examine {game.things[held].name}"] = ("examine_held",)
            if game.things[held].kind in BLADES:
                local |= self._cuts()
        for r in game.at[self.place]:
            local |= self._uses(r)
        self._local = local
        self.won = self._goal_holds()

    def _uses(self, r: int) -> dict[str, tuple]:
        """Commands that concern receptacle `r`, at which the agent stands."""
        game, held = self.game, self.held
        receptacle = game.receptacles[r]
        name = receptacle.name
        uses: dict[str, tuple] = {f"examine {name}": ("examine", r)}
        if receptacle.openable:
            uses[f"close {name}" if r in self.opened else f"open {name}"] = ("turn", r)
        for o in self.inside[r]:
            if "toggle" in game.things[o].can:
                uses[f"use {game.things[o].name}"] = ("use", o)
        reachable = not receptacle.openable or r in self.opened
        if held is None:
            if reachable:
                for o in self.inside[r]:
                    if "pickup" in game.things[o].can:
                        uses[f"take {game.things[o].name} from {name}"] = ("take", o, r)
            return uses
        thing = game.things[held]
        if reachable and thing.kind in receptacle.fits:
            uses[game.wording.put.format(o=thing.name, r=name)] = ("put", r)
        for verb, stations in STATIONS.items():
            if receptacle.kind in stations and verb in thing.can:
                uses[f"{verb} {thing.name} with {name}"] = ("treat", verb, r)
        return uses

    def _cuts(self) -> dict[str, tuple]:
        things = self.game.things
        here = (o for o, thing in enumerate(things) if "slice" in thing.can and self.place in self._places(o))
        return {f"slice {things[o].name} with {things[self.held].name}": ("slice", o) for o in here}

    def _places(self, o: int) -> frozenset[int]:
        return self.moved.get(o, self.game.things[o].places)

    def _goal_holds(self) -> bool:
        game, goal = self.game, self.game.goal
        if goal.lamp:
            if self.held is None or game.things[self.held].kind != goal.kind:
                return False
            near = (o for r in game.at[self.place] for o in self.inside[r])
            return any(game.things[o].kind == goal.lamp and o in self.states["used"] for o in near)
        fit = self.states[goal.state] if goal.state else None
        asked = {"clean": "clean", "hot": "heat", "cool": "cool"}.get(goal.state)
        for r, receptacle in enumerate(game.receptacles):
            if receptacle.kind == goal.target:
                of_kind = (o for o in self.inside[r] if game.things[o].kind == goal.kind)
                good = sum(fit is None or (o in fit and asked in game.things[o].can) for o in of_kind)
                if good >= goal.count:
                    return True
        return False

    # What each action does, and what it says.

    def _go(self, r: int) -> str:
        receptacle = self.game.receptacles[r]
        self.place = receptacle.place
        where = receptacle.name if self.game.wording.arrive else self.game.place_names[self.place]
        return f"You arrive at {where}. {self._examine(r)}"

    def _turn(self, r: int) -> str:
        name = self.game.receptacles[r].name
        if r in self.opened:
            self.opened.remove(r)
            return f"You close the {name}."
        self.opened.add(r)
        return f"You open the {name}. {self._examine(r)}"

    def _take(self, o: int, r: int) -> str:
        self.inside[r].remove(o)
        self.left.add((o, r))
        self.moved[o] = self._places(o) - {self.place}
        self.held = o
        return f"You pick up the {self.game.things[o].name} from the {self.game.receptacles[r].name}."

    def _put(self, r: int) -> str:
        o, self.held = self.held, None
        self.inside[r].add(o)
        self.left.discard((o, r))
        self.moved[o] = self._places(o) | {self.place}
        return self.game.wording.puts.format(o=self.game.things[o].name, r=self.game.receptacles[r].name)

    def _treat(self, verb: str, r: int) -> str:
        self.states[TURNS[verb]].add(self.held)
        if verb != "clean":
            self.states["cool" if verb == "heat" else "hot"].discard(self.held)
        return f"You {verb} the {self.game.things[self.held].name} using the {self.game.receptacles[r].name}."

    def _use(self, o: int) -> str:
        self.states["used"].add(o)
        return f"You turn on the {self.game.things[o].name}."

    def _slice(self, o: int) -> str:
        self.states["sliced"].add(o)
        return f"You sliced the {self.game.things[o].name} with the {self.game.things[self.held].name}."

    def _examine(self, r: int) -> str:
        receptacle = self.game.receptacles[r]
        if receptacle.openable and r not in self.opened:
            return f"The {receptacle.name} is closed."
        seen = _listing(f"a {self.game.things[o].name}" for o in sorted(self.inside[r]))
        if receptacle.openable:
            return f"The {receptacle.name} is open. In it, you see {seen}."
        return f"On the {receptacle.name}, you see {seen}."

    def _examine_held(self) -> str:
        o = self.held
        thing = self.game.things[o]
        if thing.vessel:
            return f"This is a normal {thing.name}. In it, you see {_listing(f'a {name}' for name in thing.holds)}."
        is_ = {state: o in things for state, things in self.states.items()}
        heat = "hot" if is_["hot"] else "cool" if is_["cool"] else ""
        if is_["sliced"] and (is_["clean"] or heat):
            words = ["clean"] * is_["clean"]
            return f"This is a {' and '.join([heat] * bool(heat) + words)} sliced {thing.name}."
        if is_["clean"] and heat:
            return f"This is a {heat} and clean {thing.name}."
        if heat or is_["clean"]:
            return f"This is a {'cold' if heat == 'cool' else heat or 'clean'} {thing.name}."
        if "toggle" in thing.can:
            return f"This {thing.name} is {'on' if is_['used'] else 'off'}."
        if is_["sliced"]:
            return f"This is a sliced {thing.name}."
        return f"There's nothing special about {thing.name}."

    def _inventory(self) -> str:
        if self.held is None:
            return "You are not carrying anything."
        return f"You are carrying: a {self.game.things[self.held].name}."

    def _look(self) -> str:
        facing = self.game.at[self.place]
        if not facing:
            return "You are in the middle of a room. Looking quickly around you, you see nothing."
        names = _listing(self.game.receptacles[r].name for r in facing)
        # A quirk kept for parity: what was moved between receptacles of one place is seen beside the one it left.
        near = [o for o, r in sorted(self.left) if r in facing and self.place in self._places(o)]
        seen = _listing(f"a {self.game.things[o].name}" for o in near)
        return f"You are facing the {names}. Next to it, you see {seen}."

    def _help(self) -> str:
        return HELP


def _listing(names: Iterable[str]) -> str:
    """ "a", "a, and b", "a, b, and c"; "nothing" where there is none."""
    *most, last = list(names) or ["nothing"]
    return f"{', '.join(most)}, and {last}" if most else last
