"""A view in, a whole response out, without a model: demonstrations to learn from, ceilings and floors to beat.

    [envs/alfworld/players] -> warmstart, evaluate (the lines printed beside every result)

All four know the recipes. They differ in how they find things: `expert` sees where everything is, `guided` goes
through the usual places in order and then tries any, `random` tries any place, and so does `novice`, who slips now
and then.
`guided`, `random` and `novice` use the `View` alone, as the policy must: whether something is hot they read in the
last two observations, and where to look next follows from where they stand. Responses are plain lower-case words with
single blanks. The thought says in small steps what is wanted, what is here and what to do, so that every next word is
easy to copy or to compare. Left out: anything from skills/; the usual places are read from the table in rooms.py.
"""

import re

import numpy as np

from envs.alfworld.engine import STATIONS, TURNS, Goal, Play, Receptacle
from envs.alfworld.rooms import HOMES, Home
from envs.alfworld.sight import Sight, kind_of, read_goal, read_view, wanted
from envs.base import Env, View

KINDS = ("expert", "guided", "novice", "random")
SLIP = 0.16  # how often a novice does just anything
VERBS = {state: verb for verb, state in TURNS.items()}
STYLE = {  # words that mean the same: which of them is said tells nothing about the task
    "want": ("i want", "i need", "i look for"),
    "here": ("here is", "i see", "there is"),
    "none": ("not here", "nothing here", "no luck here"),
    "next": ("so next", "so now", "then"),
}


def make_player(kind: str, rng: np.random.Generator) -> "Expert | Searcher":
    """Raises ValueError for an unknown kind."""
    if kind not in KINDS:
        raise ValueError(f"unknown player {kind!r}: choose one of {', '.join(KINDS)}")
    return Expert(rng) if kind == "expert" else Searcher(kind, rng)


def search_order(home: Home | None, places: tuple[str, ...], at: str = "") -> list[str]:
    """The usual places that are left to look in: the first home's by number, the second's; behind `at`, if that is one
    of them, and none if it is another place (then both homes have been looked in)."""
    kinds = [home.first, home.second] if home else []
    usual = [place for kind in kinds for place in places if kind_of(place) == kind]  # `places` are by number
    return usual[usual.index(at) + 1 :] if at in usual else [] if at else usual


class Phrases:
    """The thoughts of one turn, in one draw of the style words."""

    def __init__(self, goal: Goal, rng: np.random.Generator):
        self.goal = goal
        drawn = {slot: words[int(rng.integers(len(words)))] for slot, words in STYLE.items()}
        self._want, self._here, self._none, self._next = drawn.values()
        number = "two" if goal.count == 2 else f"a {goal.state}" if goal.state else "a"
        self.want = f"{self._want} {number} {goal.kind} ."

    def take(self, thing: str, receptacle: str) -> str:
        return _say(f"{self.want} {self._here} {thing} . i take it .", f"take {thing} from {receptacle}")

    def open(self, receptacle: str, held: str) -> str:
        have = f"i hold {held} ." if held else self.want
        return _say(f"{have} {receptacle} is closed . i open it .", f"open {receptacle}")

    def drop(self, held: str, command: str) -> str:
        return _say(f"{self.want} {held} is wrong . i put it away .", command)

    def treat(self, held: str, station: str, command: str) -> str:
        must = f"i hold {held} . it must be {self.goal.state} ."
        return _say(f"{must} {self._here} {station} . i {VERBS[self.goal.state]} it .", command)

    def put(self, held: str, receptacle: str, command: str) -> str:
        return _say(f"{self._goes(held)} {self._here} {receptacle} . i put it .", command)

    def use(self, held: str, lamp: str) -> str:
        return _say(f"i hold {held} . {self._here} {lamp} . i use it .", f"use {lamp}")

    def go_treat(self, held: str, station: str) -> str:
        return self._go(f"i hold {held} . it must be {self.goal.state}", station)

    def go_put(self, held: str, receptacle: str) -> str:
        return self._go(self._goes(held).removesuffix(" ."), receptacle)

    def go_back(self, receptacle: str) -> str:
        return self._go(f"{self.want} one is done . more may be in {kind_of(receptacle)}", receptacle)

    def go_find(self, held: str, looked: bool, why: str, receptacle: str) -> str:
        want = f"i hold {held} . {self._want} a {self.goal.lamp} ." if held else self.want
        return self._go(f"{want} {self._none} . {why}" if looked else f"{want} {why}", receptacle)

    def guess(self, action: str) -> str:
        return _say(f"{self.want} i am not sure . i try this .", action)

    def _goes(self, held: str) -> str:
        is_ready = f" it is {self.goal.state} ." if self.goal.state else ""
        return f"i hold {held} .{is_ready} it goes in {self.goal.target} ."

    def _go(self, reason: str, receptacle: str) -> str:
        return _say(f"{reason} {self._next} {receptacle} .", f"go to {receptacle}")


def _say(thought: str, action: str) -> str:
    return f"<think> {' '.join(thought.split())} </think> <action> {action} </action>"


class Searcher:
    """`guided`, `novice` and `random`: one recipe, and a way of choosing where to look next."""

    def __init__(self, kind: str, rng: np.random.Generator):
        self.guided, self.slip, self.rng = kind == "guided", SLIP * (kind == "novice"), rng

    def __call__(self, view: View, env: Env) -> str:
        goal, sight = read_goal(view.task.goal), read_view(view)
        say = Phrases(goal, self.rng)
        if self.rng.random() < self.slip:
            return say.guess(_pick([text for text in view.admissible if text != "help"], self.rng))
        if not sight.held:
            return self._fetch(view, goal, sight, say)
        if kind_of(sight.held) != goal.kind:
            return self._drop(view, goal, sight, say)
        if goal.lamp:
            lamps = [lamp for lamp in sight.uses if kind_of(lamp) == goal.lamp]
            return say.use(sight.held, lamps[0]) if lamps else self._search(view, goal, sight, say)
        if goal.state and not _treated(view, sight.held, VERBS[goal.state]):
            return self._treat(view, goal, sight, say)
        return self._put(goal, sight, say)

    def _fetch(self, view: View, goal: Goal, sight: Sight, say: Phrases) -> str:
        takes = wanted(goal, sight)
        if takes:
            return say.take(*takes[0])
        closed = [r for r in sight.closed if kind_of(r) != goal.target]
        if closed:
            return say.open(closed[0], "")
        back = _source(view, goal) if self.guided and goal.count == 2 else ""
        return say.go_back(back) if back else self._search(view, goal, sight, say)

    def _drop(self, view: View, goal: Goal, sight: Sight, say: Phrases) -> str:
        if sight.puts:
            return say.drop(sight.held, sight.puts[0][0])
        if sight.closed:
            return say.open(sight.closed[0], sight.held)
        return self._search(view, goal, sight, say)

    def _treat(self, view: View, goal: Goal, sight: Sight, say: Phrases) -> str:
        verb = VERBS[goal.state]
        treats = [(command, r) for command, r in sight.treats if command.startswith(verb)]
        if treats:
            return say.treat(sight.held, treats[0][1], treats[0][0])
        stations = [place for place in sight.places if kind_of(place) in STATIONS[verb] and place not in sight.here]
        return say.go_treat(sight.held, stations[0]) if stations else self._search(view, goal, sight, say)

    def _put(self, goal: Goal, sight: Sight, say: Phrases) -> str:
        puts = [(command, r) for command, r in sight.puts if kind_of(r) == goal.target]
        if puts:
            return say.put(sight.held, puts[0][1], puts[0][0])
        closed = [r for r in sight.closed if kind_of(r) == goal.target]
        if closed:
            return say.open(closed[0], sight.held)
        return say.go_put(sight.held, next(place for place in sight.places if kind_of(place) == goal.target))

    def _search(self, view: View, goal: Goal, sight: Sight, say: Phrases) -> str:
        """Goes on to the next place: the guided by the usual places, the others to any they do not remember."""
        looked = bool(sight.here) and not _just_put(view)
        kind = goal.lamp if sight.held else goal.kind
        if not self.guided:
            return say.go_find(sight.held, looked, "", _pick(self._fresh(view, sight), self.rng))
        homes = getattr(view.task.payload, "homes", HOMES)  # a practice game has its own
        home = homes.get(kind)
        usual = search_order(home, sight.places, _standing(view, sight) if _searching(view) else "")
        usual = [place for place in usual if place not in sight.here]
        elsewhere = [place for place in self._fresh(view, sight) if not home or kind_of(place) not in home[:2]]
        place = usual[0] if usual else _pick(elsewhere or list(sight.places), self.rng)
        return say.go_find(sight.held, looked, _why(kind, home, place), place)

    @staticmethod
    def _fresh(view: View, sight: Sight) -> list[str]:
        """The places that the window does not show; all others where it shows them all."""
        known = {*sight.here, *(action.removeprefix("go to ") for _, action in view.history)}
        places = [place for place in sight.places if place not in sight.here]
        return [place for place in places if place not in known] or places


def _why(kind: str, home: Home | None, place: str) -> str:
    where = kind_of(place)
    if home and where == home.first:
        return f"{kind} is usually in {where}"
    return f"{kind} may be in {where}" if home and where == home.second else f"{kind} may be anywhere"


def _treated(view: View, held: str, verb: str) -> bool:
    """Whether the window shows that the held object was cleaned, heated or cooled."""
    texts = [observation for observation, _ in view.history] + [view.observation]
    return any(text.startswith(f"You {verb} the {held} ") for text in texts)


def _standing(view: View, sight: Sight) -> str:
    """The receptacle one is at; of several at one place, the one that was gone to."""
    gone = [action.removeprefix("go to ") for _, action in view.history]
    return next((place for place in reversed(gone) if place in sight.here), sight.here[0] if sight.here else "")


def _searching(view: View) -> bool:
    """Whether what is seen is a place that was looked in, not the outcome of taking, treating or putting."""
    return view.observation.startswith(("You arrive at ", "You open ", "The ", "On the "))


def _just_put(view: View) -> bool:
    return view.observation.startswith(("You move ", "You put "))


def _source(view: View, goal: Goal) -> str:
    """Where the object that was put down just now came from, if the window still shows it."""
    seen = view.history[-2][0] if len(view.history) > 1 and _just_put(view) else ""
    match = re.match(rf"You pick up the {goal.kind} \d+ from the (\w+ \d+)\.", seen)
    return match[1] if match else ""


class Expert:
    """Sees the hidden state and takes a shortest way, or nearly: the ceiling. Plays real games too."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def __call__(self, view: View, env: Env) -> str:
        now: Play = env.play
        say = Phrases(now.game.goal, self.rng)
        if now.held is None:
            return self._fetch(now, say)
        held, goal = now.game.things[now.held], now.game.goal
        if held.kind != goal.kind:
            return self._drop(now, held.name, say)
        if goal.lamp:
            lamp, r = next((o, r) for o, r in _contents(now) if now.game.things[o].kind == goal.lamp)
            name = now.game.things[lamp].name
            return say.use(held.name, name) if _near(now, r) else self._go(now, r, goal.lamp, held.name, say)
        if goal.state and now.held not in now.states[goal.state]:
            verb = VERBS[goal.state]
            station = next(r for r in now.game.receptacles if r.kind in STATIONS[verb])
            if station.place != now.place:
                return say.go_treat(held.name, station.name)
            return say.treat(held.name, station.name, f"{verb} {held.name} with {station.name}")
        return self._put(now, held.name, now.game.receptacles[_target(now)], say)

    def _fetch(self, now: Play, say: Phrases) -> str:
        """Takes the nearest object that will do: here before elsewhere, open before closed."""
        goal, things = now.game.goal, now.game.things
        need = {"pickup", VERBS[goal.state]} if goal.state else {"pickup"}
        done = _target(now) if goal.count == 2 else None
        fit = [(o, r) for o, r in _contents(now) if things[o].kind == goal.kind and need <= things[o].can and r != done]
        o, r = min(fit, key=lambda at: (not _near(now, at[1]), _shut(now, at[1]), at))
        name = now.game.receptacles[r].name
        if not _near(now, r):
            return self._go(now, r, goal.kind, "", say)
        return say.open(name, "") if _shut(now, r) else say.take(things[o].name, name)

    def _put(self, now: Play, held: str, target: Receptacle, say: Phrases) -> str:
        if target.place != now.place:
            return say.go_put(held, target.name)
        if f"open {target.name}" in now.admissible:
            return say.open(target.name, held)
        return say.put(held, target.name, now.game.wording.put.format(o=held, r=target.name))

    def _drop(self, now: Play, held: str, say: Phrases) -> str:
        fits = [r for r in now.game.receptacles if now.game.things[now.held].kind in r.fits]
        spot = min(fits, key=lambda r: (r.place != now.place, r.openable))
        if spot.place != now.place:
            return say.go_find("", False, f"{held} is wrong", spot.name)
        if f"open {spot.name}" in now.admissible:
            return say.open(spot.name, held)
        return say.drop(held, now.game.wording.put.format(o=held, r=spot.name))

    def _go(self, now: Play, r: int, kind: str, held: str, say: Phrases) -> str:
        receptacle = now.game.receptacles[r]
        looked = bool(now.game.at[now.place]) and not now.observation.startswith(("You move ", "You put "))
        return say.go_find(held, looked, f"{kind} is in {receptacle.kind}", receptacle.name)


def _contents(now: Play) -> list[tuple[int, int]]:
    return [(o, r) for r, inside in enumerate(now.inside) for o in sorted(inside)]


def _near(now: Play, r: int) -> bool:
    return now.game.receptacles[r].place == now.place


def _shut(now: Play, r: int) -> bool:
    return now.game.receptacles[r].openable and r not in now.opened


def _target(now: Play) -> int:
    """The receptacle to fill: the one that holds most of the wanted kind already, an open one among equals."""
    goal, game = now.game.goal, now.game
    fits = [r for r, rec in enumerate(game.receptacles) if rec.kind == goal.target and goal.kind in rec.fits]

    def filled(r: int) -> int:
        return sum(game.things[o].kind == goal.kind for o in now.inside[r])

    return min(fits, key=lambda r: (-filled(r), _shut(now, r), game.receptacles[r].place != now.place, -r))


def _pick(choices: list, rng: np.random.Generator):
    return choices[int(rng.integers(len(choices)))]
