"""From a place in the shop to a page: the texts that are seen and the words that can be clicked, in page order.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop ([pages], reward) -> Env          prepare, generate, mini make one

A page is a tuple of texts, never one string that is split again, so that a product whose title holds " [SEP] "
changes nothing but itself. Source: webshop.md 1.4, 1.5. Left out: what a click does (shop.py).
"""

import json
from dataclasses import dataclass

from envs.webshop.catalogue import Product

SEP = " [SEP] "
BACK, PREV, NEXT, BUY = "back to search", "< prev", "next >", "buy now"
SUB_PAGES = ("description", "features", "reviews")

# The done page shows hidden markup too, with the original's spelling.
_DONE = """
Thank you for shopping with us!|Your code:|None|(Paste it in your MTurk interface.)
|Purchased|asin|{asin}|options|{options}|attrs|None|category|None|query|None|product category|None
|Target|asin|options|attrs|price upper|instuction text|category|product category|query|Goal|None
|Reward|Your score (min 0.0, max 1.0)|{reward}|Reward Details|None
""".replace("\n", "")


@dataclass(frozen=True, slots=True)
class Page:
    """`texts`: what stands below the instruction. `clicks`: clickable word -> what it stands for: one of the words
    above, a position in the catalogue, or an option's (name, value)."""

    kind: str  # search | results | item | sub | done
    texts: tuple[str, ...]
    clicks: dict[str, str | int | tuple[str, str]]

    def raw(self, goal_text: str) -> str:
        """The page as the original environment shows it."""
        heads = {"search": ("WebShop", "Instruction:", goal_text), "done": ()}
        return SEP.join(heads.get(self.kind, ("Instruction:", goal_text)) + self.texts)

    def quoted(self) -> str:
        """The page as verl-agent shows it, which is also the anchor: without the instruction, each text in quotes."""
        return SEP.join(self.texts if self.kind == "done" else [f"'{text}'" for text in self.texts])

    def admissible(self) -> tuple[str, ...]:
        """The actions of this page. After the end they are those of a fresh search page, as in the original."""
        if self.kind in ("search", "done"):
            return ("search[<your query>]", "click[search]")
        return tuple(f"click[{word}]" for word in self.clicks)


def _words(*words: str) -> dict[str, str | int | tuple[str, str]]:
    return {word: word for word in words}


SEARCH_PAGE = Page("search", ("Search",), _words("search"))


def results_page(shown: list[tuple[int, Product]], number: int, total: int, ranks: bool) -> Page:
    """One page of results. `shown`: its (position, product)s; `ranks`: products are named b1, b2, ... by their place on
    the page instead of by asin."""
    buttons = ["Back to Search", "< Prev", "Next >"] if number > 1 else ["Back to Search", "Next >"]
    texts = [buttons[0], f"Page {number} (Total results: {total})", *buttons[1:]]
    clicks = _words(*(button.lower() for button in buttons))
    for place, (position, product) in enumerate(shown, start=1):
        name = f"b{place}" if ranks else product.asin
        title = product.title.strip()
        texts += [name, title, product.price_tag] if title else [name, product.price_tag]
        clicks[name.lower()] = position
    return Page("results", tuple(texts), clicks)


def item_page(product: Product) -> Page:
    """A product with its options. Which ones are chosen is not shown."""
    texts = ["Back to Search", "< Prev"]
    clicks = _words(BACK, PREV, *SUB_PAGES, BUY)
    for name, values in product.options.items():
        texts += [name, *values]
        for value in values:
            if value not in (BACK, PREV, *SUB_PAGES, BUY):  # a button of that name comes first
                clicks[value] = (name, value)
    title = product.title.strip()
    texts += [title] if title else []
    texts += [f"Price: {product.price_tag}", "Rating: N.A.", "Description", "Features", "Reviews", "Buy Now"]
    return Page("item", tuple(texts), clicks)


def sub_page(product: Product, which: str) -> Page:
    """Description, features or (empty) reviews of a product."""
    description = product.description.strip()
    entries = {
        "description": [description] if description else [],
        "features": [bullet.strip() for bullet in product.bullets],
        "reviews": [],
    }
    return Page("sub", ("Back to Search", "< Prev", *entries[which]), _words(BACK, PREV))


def done_page(product: Product, chosen: dict[str, str], reward: float) -> Page:
    options = json.dumps(chosen, sort_keys=True)
    for char in "<>&'":  # the original writes the options as JSON that is safe inside HTML
        options = options.replace(char, f"\\u{ord(char):04x}")
    filled = (text.format(asin=product.asin, options=options, reward=reward) for text in _DONE.split("|"))
    return Page("done", tuple(filled), {})
