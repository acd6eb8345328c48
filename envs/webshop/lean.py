"""From a view to the user message of a small policy: the prompt's parts in few plain words.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: View -> [lean] -> policy          prompt is the form of the same parts for an instruct model

One line each: the task, the remembered (page, action) pairs, the page, and what can be clicked. All lower case, words
between single blanks; "click[" and "]" are words, so that a policy with one token a word writes actions that the
environment reads.
"""

import re

from envs.base import View
from envs.webshop.reading import Sight, read_goal, read_page

# The fixed words of lean prompts, with those of pages, of a query that was left open, and numbers of result pages.
FIXED = """
task : under before page can results ; none item text search done search[ click[ ] < your query > back to search prev
next description features reviews buy now b1 b2 b3 b4 b5 1 2 3 4 5 6 7 8 9 10
"""
_WORD = re.compile(r"[a-z0-9]+(?:[.'-][a-z0-9]+)*|[<>]")
_ACTION = re.compile(r"(search|click)\[(.*)\]", re.DOTALL)


def plain(text: str) -> str:
    """Lower-case words between single blanks, without punctuation; 35.0 is 35."""
    return " ".join(re.sub(r"\.0+$", "", word) for word in _WORD.findall(text.lower()))


def plain_action(action: str) -> str:
    """ "click[buy now]" -> "click[ buy now ]"."""
    if found := _ACTION.fullmatch(action):
        return " ".join(f"{found[1]}[ {plain(found[2])} ]".split())
    return plain(action)


def lean_prompt(view: View) -> str:
    """The user message: task, before, page and can lines."""
    wish = read_goal(view.task.goal)
    task = " ".join([plain(wish.product), *(f"{plain(name)} {plain(value)}" for name, value in wish.options)])
    under = f" under {wish.cap:.0f}" if wish.cap else ""
    lines = [f"task : {task}{under}"]
    lines += [f"before : {brief(read_page(page))} {plain_action(action)}" for page, action in view.history]
    lines += [f"page : {whole(read_page(view.observation, view.admissible))}", f"can : {_clickable(view)}"]
    return "\n".join(lines)


def whole(sight: Sight) -> str:
    """A page with everything on it."""
    if sight.kind == "results":
        shown = " ; ".join(f"{one.id} {plain(one.title)} {plain(one.price)}" for one in sight.listings)
        return f"results {sight.number} ; {shown or 'none'}"
    if sight.kind == "item":
        groups = [f"{plain(name)} : {' '.join(plain(value) for value in values)}" for name, values in sight.options]
        return " ; ".join(["item", f"{plain(sight.title)} {plain(sight.price)}", *groups])
    return brief(sight)


def brief(sight: Sight) -> str:
    """A page in the history: what kind it was, and the text that it told."""
    if sight.kind == "sub":
        return f"text ; {' ; '.join(plain(text) for text in sight.texts) or 'none'}"
    return sight.kind


def _clickable(view: View) -> str:
    words = [plain(action[len("click[") : -1]) for action in view.admissible if action.startswith("click[")]
    return " ".join(words)
