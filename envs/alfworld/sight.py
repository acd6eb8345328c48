"""A view in, what it shows out: what is asked for, where one stands, what is held, what could be done.

    [envs/alfworld/sight] -> players

Everything is read off the task sentence and the admissible commands, in the texts of ALFWorld 0.4.x and 0.3.x alike,
so that a player which uses this module knows what the policy knows. Left out: the game's hidden state.
"""

import re
from typing import NamedTuple

from envs.alfworld.engine import TURNS, Goal
from envs.base import View

RECEPTACLES = frozenset(
    (
        *("armchair", "bathtubbasin", "bed", "cabinet", "cart", "coffeemachine", "coffeetable", "countertop"),
        *("desk", "diningtable", "drawer", "dresser", "fridge", "garbagecan", "handtowelholder", "laundryhamper"),
        *("microwave", "ottoman", "paintinghanger", "safe", "shelf", "sidetable", "sinkbasin", "sofa"),
        *("stoveburner", "toaster", "toilet", "toiletpaperhanger", "towelholder", "tvstand"),
    )
)
_SENTENCES = [
    re.compile(r"put (?:a|some) (?P<state>clean|hot|cool) (?P<kind>\w+) (?:in|on) (?P<target>\w+)"),
    re.compile(r"(?P<verb>clean|heat|cool) some (?P<kind>\w+) and put it (?:in|on) (?P<target>\w+)"),
    re.compile(r"put (?P<two>two) (?P<kind>\w+) (?:in|on) (?P<target>\w+)"),
    re.compile(r"find (?P<two>two) (?P<kind>\w+) and put them (?:in|on) (?P<target>\w+)"),
    re.compile(r"put (?:a|some) (?P<kind>\w+) (?:in|on) (?P<target>\w+)"),
    re.compile(r"(?:look at|examine the) (?P<kind>\w+) (?:under|with) the (?P<lamp>\w+)"),
]


def read_goal(sentence: str) -> Goal:
    """What a task sentence asks for, in any of ALFWorld's twelve wordings. Raises ValueError for other sentences."""
    for pattern in _SENTENCES:
        if match := pattern.match(sentence):
            said = match.groupdict("")
            state = said.get("state") or TURNS.get(said.get("verb", ""), "")
            return Goal(said["kind"], said.get("target", ""), state, 2 if "two" in said else 1, said.get("lamp", ""))
    raise ValueError(f"not one of ALFWorld's task sentences: {sentence!r}")


class Sight(NamedTuple):
    here: tuple[str, ...]  # receptacles one stands at
    closed: tuple[str, ...]  # those of them that are shut
    places: tuple[str, ...]  # all receptacles, by kind and number
    held: str  # "mug 1", or ""
    takes: tuple[tuple[str, str], ...]  # (object, receptacle) of what can be picked up
    puts: tuple[tuple[str, str], ...]  # (command, receptacle) of where the held object can be put down
    treats: tuple[tuple[str, str], ...]  # (command, receptacle) that clean, heat or cool it
    uses: tuple[str, ...]  # lamps that can be turned on


def read_view(view: View) -> Sight:
    """Sorts the admissible commands by what they show."""

    def after(verb: str) -> list[str]:
        return [text.removeprefix(verb) for text in view.admissible if text.startswith(verb)]

    def onto(verbs: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        found = [text for text in view.admissible if text.split(" ", 1)[0] in verbs]
        return tuple((text, " ".join(text.split()[-2:])) for text in found)

    examined = after("examine ")
    here = tuple(name for name in examined if kind_of(name) in RECEPTACLES)
    return Sight(
        here=here,
        closed=tuple(after("open ")),
        places=tuple(sorted({*here, *after("go to ")}, key=by_number)),
        held=next((name for name in examined if kind_of(name) not in RECEPTACLES), ""),
        takes=tuple(tuple(text.split(" from ")) for text in after("take ")),
        puts=onto(("move", "put")),
        treats=onto(tuple(TURNS)),
        uses=tuple(after("use ")),
    )


def wanted(goal: Goal, sight: Sight) -> list[tuple[str, str]]:
    """(object, receptacle) of what is in view and to be taken now: nothing while one is held; and what lies at the
    target is left there, unless it still has to be cleaned, heated or cooled."""
    fit = [(o, r) for o, r in sight.takes if kind_of(o) == goal.kind]
    return [(o, r) for o, r in fit if goal.state or kind_of(r) != goal.target]


def kind_of(name: str) -> str:
    """ "mug 2" is a "mug"."""
    return name.rsplit(" ", 1)[0]


def by_number(name: str) -> tuple[str, int]:
    """Sorts "drawer 2" before "drawer 10"."""
    kind, _, number = name.rpartition(" ")
    return kind, int(number) if number.isdigit() else 0
