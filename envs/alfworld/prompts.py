"""What the policy reads at one turn, for a language model in sentences and for the small one in few words.

    rollout -> [envs/alfworld/prompts] -> policy

Both forms hold the same parts in the same order: the task, the last observations and actions, what is seen now, what
could be done, and (sentences only, the small model knows it) how to answer. Source: method.md 4, in our own words.
"""

import re
from itertools import groupby

from envs.alfworld.sight import by_number, kind_of
from envs.base import View

_ROLE = "You are an agent in a simulated household, ALFRED Embodied Environment, and act through text commands."
_ANSWER = (
    "Now choose your next action. First reason step by step about the situation, inside <think> </think> tags. "
    "Then give exactly one of the admissible actions, inside <action> </action> tags."
)


def full_prompt(view: View) -> str:
    """The user message for an instruction-tuned model."""
    actions = "\n ".join(f"'{action}'" for action in view.admissible if action != "help")
    actions = f"Your admissible actions now are: [{actions}]."
    if view.turn == 0:
        return f"{_ROLE}\nYou see this: {view.observation}\n{actions}\n\n{_ANSWER}\n"
    first = view.turn - len(view.history) + 1
    past = "\n".join(
        f"[Observation {i}: '{observation}', Action {i}: '{action}']"
        for i, (observation, action) in enumerate(view.history, start=first)
    )
    return (
        f"{_ROLE} Your task is to: {view.task.goal}\n"
        f"You have taken {view.turn} step(s) so far. The last {len(view.history)} observation(s), each with the action "
        f"that you took, were:\n{past}\n"
        f"You are now at step {view.turn + 1} and see this: {view.observation}\n{actions}\n\n{_ANSWER}\n"
    )


def lean_prompt(view: View) -> str:
    """The same parts as lower-case words with single blanks: `task`, `before` (once for each remembered turn),
    `now` and `can` lines."""
    lines = [f"task : {_words(view.task.goal.rstrip('.'))}"]
    lines += [f"before : {brief(observation)} > {_words(action)}" for observation, action in view.history]
    lines += [f"now : {brief(view.observation)}", f"can : {_grouped(view.admissible)}"]
    return "\n".join(lines)


_BRIEF = [  # observations of ALFWorld, and what is left of them
    (r"(?s)-= Welcome.*", "start"),
    (r"(?:You arrive at [^.]*\. )?The (\w+ \d+) is closed\.", r"\1 closed"),
    (r"(?:You (?:arrive at|open) [^.]*\. )?The (\w+ \d+) is open\. In it, you see (.*)\.", r"\1 : \2"),
    (r"(?:You arrive at [^.]*\. )?On the (\w+ \d+), you see (.*)\.", r"\1 : \2"),
    (r"You pick up the (\w+ \d+) from the (\w+ \d+)\.", r"took \1 from \2"),
    (r"You (?:move|put) the (\w+ \d+) (?:to|in/on) the (\w+ \d+)\.", r"moved \1 to \2"),
    (r"You (heat|cool|clean) the (\w+ \d+) using the (\w+ \d+)\.", r"\1 \2 with \3 done"),
    (r"You turn on the (\w+ \d+)\.", r"\1 on"),
    (r"You close the (\w+ \d+)\.", r"\1 closed"),
    (r"You are facing the (.*)\. Next to it, you see .*", r"at \1"),
    (r"(?s)You are in the middle of a room\..*", "start"),
    (r"You are carrying: a (.*)\.", r"hold \1"),
    (r"You are not carrying anything\.", "hold nothing"),
    (r"This is a (.*)\.(?: In it.*)?", r"\1"),
    (r"There's nothing special about (.*)\.", r"normal \1"),
    (r"(?s)\s*Available commands:.*", "help"),
]  # fmt: skip
_BRIEF = [(re.compile(pattern), short) for pattern, short in _BRIEF]


def brief(observation: str) -> str:
    """An observation as few words: receptacle, its state, the objects. One that is not known is kept whole."""
    for pattern, short in _BRIEF:
        if match := pattern.fullmatch(observation):
            head, colon, seen = match.expand(short).partition(" : ")
            listed = [re.sub(r"^(?:and )?a ", "", name) for name in seen.split(", ")]  # as the actions list them
            return _words(head + colon + " , ".join(sorted(listed, key=by_number)))
    return _words(observation)


def _words(text: str) -> str:
    """Words, numbers and punctuation, each between single blanks."""
    return " ".join(re.findall(r"[a-z0-9]+(?:/[a-z0-9]+)*|[^\sa-z0-9]", text.lower()))


def _grouped(admissible: tuple[str, ...]) -> str:
    """`go to shelf 1 2 , drawer 1 ; take mug 1 , pen 2 from shelf 3 ; look ; inventory`."""
    going = sorted((text[6:] for text in admissible if text.startswith("go to ")), key=by_number)
    kinds = [f"{kind} {' '.join(name[len(kind) + 1 :] for name in group)}" for kind, group in groupby(going, kind_of)]
    takes = [text[5:].split(" from ") for text in admissible if text.startswith("take ")]
    takes.sort(key=lambda take: take[1])
    parts = [f"go to {' , '.join(kinds)}"] if kinds else []
    for place, group in groupby(takes, key=lambda take: take[1]):
        parts.append(f"take {' , '.join(name for name, _ in group)} from {place}")
    parts += [text for text in admissible if not text.startswith(("go to ", "take ")) and text != "help"]
    return _words(" ; ".join(parts))
