"""From a goal, a bought product, its chosen options and its price to a reward in 0..1, with its parts.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, [reward]) -> Env          prepare, generate, mini make one

    reward = type * (attributes hit + options hit + price ok) / (attributes + options asked + 1)

`parity` keeps the original's quirk that a synthetic goal's option is compared as the text of a (name, value) pair, so
that 7 % of the real goals cannot be won; `fixed` compares values. Fuzzy matching is thefuzz 0.19's, by rapidfuzz.
Source: webshop.md 1.6.
"""

import re

from rapidfuzz.fuzz import token_set_ratio

from envs.webshop.catalogue import Product
from envs.webshop.goals import Goal

MODES = ("fixed", "parity")
ALIKE = 85  # a token-set ratio above it is a hit
SAME_TITLE = 0.2  # share of common title nouns above which two products are of one type

# The first of these that a text contains stands for the whole text.
_COLORS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo caramel
champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal dark denim
eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory ivy khaki
lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor mushroom mustard
natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand sapphire seashell silver
skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut wheat white wine yellow
"""
COLORS = tuple(_COLORS.split())
_DROPPED = re.compile("[\x80-\xff]")
_NO_WORD = re.compile(r"\W")


def processed(text: str) -> str:
    """thefuzz 0.19's pre-processing: U+0080..U+00FF dropped, every other non-word character a space, lower case."""
    return _NO_WORD.sub(" ", _DROPPED.sub("", text)).lower().strip()


def alike(one: str, other: str) -> bool:
    one, other = processed(one), processed(other)
    return bool(one and other) and round(token_set_ratio(one, other)) > ALIKE


def color_of(option: str | tuple[str, str]) -> str:
    """The first colour that the option contains, else the option. A (name, value) pair contains its two parts."""
    return next((color for color in COLORS if color in option), str(option))


def type_reward(product: Product, goal: Goal) -> dict:
    """`r_type` and why: 1 for the same query, two common categories or similar titles, else 0.5; and at most 0.1, or
    0, where the titles share hardly any noun, or none."""
    query_match = product.query == goal.query
    common = {part.strip() for part in product.product_category.split("›")}
    common &= {part.strip() for part in goal.product_category.split("›")}
    shared = set(product.nouns) & set(goal.nouns)
    title_score = len(shared) / len(goal.nouns) if goal.nouns else 0.2
    r_type = 1.0 if query_match or len(common) >= 2 or title_score > SAME_TITLE else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score > 0 else 0.0
    matches = {"query_match": query_match, "category_match": len(common) >= 2}
    return {"r_type": r_type, **matches, "title_score": title_score}


def attribute_hits(product: Product, goal: Goal) -> int:
    """Goal attributes that resemble one of the product's, or that stand in its title, bullets or description."""
    texts = product.title.lower(), " ".join(product.bullets).lower(), product.description.lower()
    return sum(
        any(alike(own, wanted) for own in product.attributes) or any(wanted in text for text in texts)
        for wanted in goal.attributes
    )


def option_hits(chosen: dict[str, str], goal: Goal, mode: str) -> int:
    """Goal options that a chosen value resembles, after the colour rule."""
    wanted = list(goal.options.items()) if isinstance(goal.options, dict) else list(goal.options)
    if mode == "fixed" and isinstance(goal.options, dict):
        wanted = list(goal.options.values())
    bought = [color_of(value) for value in chosen.values()]
    return sum(any(alike(value, color_of(want)) for value in bought) for want in wanted)


def reward(product: Product, goal: Goal, price: float, chosen: dict[str, str], mode: str) -> tuple[float, dict]:
    """(reward 0..1, its parts). `chosen`: option name -> value; `price` in dollars; `mode`: fixed or parity."""
    kind = type_reward(product, goal)
    n_attributes, n_options = len(goal.attributes), len(goal.options)
    attributes, options = attribute_hits(product, goal), option_hits(chosen, goal, mode)
    price_ok = price <= goal.price_cap
    asked = n_attributes + n_options + 1
    parts = dict(kind, r_att=attributes / n_attributes if n_attributes else 0.0, w_att=n_attributes / asked)
    if n_options:
        parts |= {"r_option": options / n_options, "w_option": n_options / asked}
    parts |= {"r_price": price_ok, "w_price": 1 / asked}
    return (attributes + options + price_ok) / asked * kind["r_type"], parts
