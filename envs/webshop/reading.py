"""From a page's text back to its parts: what prompts and scripted players can know, since they see no more.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: View -> [reading] -> lean, players

Left out: the shop itself. Whatever a title holds, reading it gives some page and never an exception.
"""

import re
from dataclasses import dataclass
from itertools import pairwise

_ID = re.compile(r"b\d{1,2}|[A-Z0-9]{10}")
_NUMBER = re.compile(r"Page (\d+) \(Total results: (\d+)\)")
_CAP = re.compile(r", and price lower than (\d+)\.\d\d dollars$")
_FIRST_OPTION = re.compile(r" with ((?:(?! with )[^:,])+: .*)$")


@dataclass(frozen=True)
class Listing:
    """One product on a results page."""

    id: str  # as it is clicked: the lower-cased asin, or its place b1, b2, ...
    title: str
    price: str  # "$9.99", or "$9.99 to $12.5"


@dataclass(frozen=True)
class Sight:
    """A page as read. `options`: name -> values, of an item page whose admissible actions are known; `texts`: the
    entries of a description, features or reviews page."""

    kind: str  # search | results | item | sub | done
    number: int = 1
    listings: tuple[Listing, ...] = ()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    title: str = ""
    price: str = ""
    texts: tuple[str, ...] = ()


def read_page(observation: str, admissible: tuple[str, ...] = ()) -> Sight:
    """The page that an observation shows."""
    texts = observation.strip("'").split("' [SEP] '")
    if texts == ["Search"]:
        return Sight("search")
    if texts[0] != "Back to Search" or len(texts) < 2:
        return Sight("done")
    if found := _NUMBER.fullmatch(texts[1]):
        return Sight("results", number=int(found[1]), listings=tuple(_listings(texts[2:])))
    if texts[-1] == "Buy Now" and "Rating: N.A." in texts:
        return _item(texts, {action[len("click[") : -1] for action in admissible})
    return Sight("sub", texts=tuple(text for text in texts[2:] if text))


def _listings(texts: list[str]) -> list[Listing]:
    texts = texts[texts.index("Next >") + 1 :] if "Next >" in texts else texts
    starts = [i for i, text in enumerate(texts) if _ID.fullmatch(text) and (i == 0 or texts[i - 1].startswith("$"))]
    entries = [texts[start:end] for start, end in pairwise([*starts, len(texts)])]
    return [Listing(entry[0].lower(), " ".join(entry[1:-1]), entry[-1]) for entry in entries]


def _item(texts: list[str], clickable: set[str]) -> Sight:
    rating = texts.index("Rating: N.A.")
    price = texts[rating - 1].removeprefix("Price: ")
    options: list[tuple[str, list[str]]] = []
    title = ""
    for text in texts[2 : rating - 1]:
        if options and text in clickable:
            options[-1][1].append(text)
        else:
            options.append((text, []))
    if options and not options[-1][1]:
        title = options.pop()[0]
    return Sight("item", options=tuple((name, tuple(values)) for name, values in options), title=title, price=price)


@dataclass(frozen=True)
class Wish:
    """A synthetic goal as its text tells it."""

    product: str  # "waterproof, padded sneakers for hiking"
    options: tuple[tuple[str, str], ...]  # (name, value)
    cap: float | None  # dollars


def read_goal(text: str) -> Wish:
    """What "Find me <product> with <name>: <value>, and ..., and price lower than <cap> dollars" asks for. The part
    before the first option counts as the product, whatever it says."""
    found = _CAP.search(text)
    body, *rest = (text[: found.start()] if found else text).removeprefix("Find me ").split(", and ")
    if split := _FIRST_OPTION.search(body):
        product, first = body[: split.start()], split[1]
    else:
        product, first = ", and ".join([body, *rest]), ""
    pairs = [part.partition(": ") for part in ([first, *rest] if first else [])]
    options = tuple((name, value) for name, colon, value in pairs if colon)
    return Wish(product, options, float(found[1]) if found else None)
