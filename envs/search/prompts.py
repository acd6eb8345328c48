"""From a view to the user message, in full for instruct models and in few words for a small one.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

The parts and their order are the protocol's (searchqa.md 1.3): role, question, past steps with what they brought,
instructions. Thoughts of past turns are left out, and so is everything that only the environment knows.
"""

import re

from envs.base import View
from envs.search.pages import read_page

ROLE = "You answer a question step by step, with a search engine at hand."
HOW = """First reason inside <think> </think>. Then do exactly one of these:
(1) search: <search> query </search>. What is found comes back inside <information> </information>.
(2) answer: <answer> answer </answer>, short and without explanation, for example <answer> Beijing </answer>."""
_WORDS = re.compile(r"[^\W_]+|[.?]")


def past_steps(view: View) -> list[tuple[str, str]]:
    """(action, what it brought) of the steps that the window still shows, oldest first."""
    brought = [observation for observation, _ in view.history[1:]] + [view.observation]
    return [(action, result) for (_, action), result in zip(view.history, brought, strict=True)] if view.history else []


def full_prompt(view: View, max_turns: int) -> str:
    """For a model that was taught to follow instructions."""
    parts = [f"{ROLE}\nQuestion: {view.task.goal}"]
    steps = past_steps(view)
    if steps:
        first = view.turn - len(steps) + 1
        lines = [f"Step {number}:{action} {result}" for number, (action, result) in enumerate(steps, first)]
        parts.append(f"Before this step, you have already taken {view.turn} step(s):\n" + "\n".join(lines))
    parts.append(f"This is step {view.turn + 1} of {max_turns}; a search in the last step is not carried out.\n{HOW}")
    return "\n\n".join(parts)


def lean_prompt(view: View, max_turns: int) -> str:
    """Lower-case words and single blanks: at most 150 words on the encyclopaedia's questions."""
    said = [f"question {plain(view.task.goal)}"]
    for action, result in past_steps(view):
        entries = [plain(text) for _, text in read_page(result)]
        did = plain(action.rpartition("</")[0]) or "nothing"
        said.append(f"{did} page {' '.join(entries) or 'empty .'}")
    return " ".join([*said, f"turn {view.turn + 1} of {max_turns}"])


def plain(text: str) -> str:
    """A text's words, full stops and question marks, in lower case between single blanks."""
    return " ".join(_WORDS.findall(text.lower()))
