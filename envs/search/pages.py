"""From what a search found to the observation that the model reads, in two published styles, and back.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

`search-r1`: one line a passage inside <information>. `verl-agent`: the same as one JSON string. Source: searchqa.md
1.1 and 1.3. Both originals cut a page that is too long and lose </information> with it; here each passage has its own
limit and the closing tag is always there. Left out: what is searched (passages.py).
"""

import json
import re
from collections.abc import Sequence

from envs.search.passages import Passage

STYLES = ("search-r1", "verl-agent")
MAX_WORDS = 120  # of a passage's text: three of them stay under 500 tokens
NOTHING_FOUND = "No search results found."
SERVICE_DOWN = "Search error: the search service did not answer."
_DOCUMENT = {
    "search-r1": re.compile(r"^Doc \d+\(Title: \"(.*?)\"\) (.*)$", re.MULTILINE),
    "verl-agent": re.compile(r"^Doc \d+: \"(.*)\"\n(.*)$", re.MULTILINE),
}


def page(found: Sequence[Passage], style: str) -> str:
    """The observation of a search: the passages in order, or the words that nothing was found."""
    lines = []
    for i, passage in enumerate(found, 1):
        title, text = " ".join(passage.title.split()), " ".join(passage.text.split()[:MAX_WORDS])
        lines.append(f'Doc {i}(Title: "{title}") {text}' if style == "search-r1" else f'Doc {i}: "{title}"\n{text}')
    return notice("\n".join(lines) or NOTHING_FOUND, style)


def notice(text: str, style: str) -> str:
    """A text in the place of a page."""
    inside = text if style == "search-r1" else json.dumps({"result": text})
    return f"<information>{inside}</information>"


def read_page(observation: str) -> list[tuple[str, str]]:
    """(title, text) of every passage on a page of either style; [] where it is none. Never raises."""
    if not (observation.startswith("<information>") and observation.endswith("</information>")):
        return []
    inside = observation[len("<information>") : -len("</information>")]
    try:
        result = json.loads(inside)["result"]
    except (ValueError, KeyError, TypeError, RecursionError):  # not JSON: the plain style
        return _DOCUMENT["search-r1"].findall(inside)
    return _DOCUMENT["verl-agent"].findall(result) if isinstance(result, str) else []
