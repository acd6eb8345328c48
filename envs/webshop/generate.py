"""A seed to a catalogue with the statistics of the real one, and nothing of its text: the shop that ships.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, reward) -> Env          prepare, [generate], mini make one

A product is drawn from its type: attributes, title, bullets, description, options and price, each with the
distribution measured on the real 1,000 products. Every fifth product is a distractor: the twin of a product that is
asked for, but for one attribute, so that attributes decide. Titles know their nouns, so no tagger is needed.
`survey` prints how close it comes. Source: webshop.md 3.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from envs.webshop.catalogue import NO_PRICE, MemoryCatalogue, Product
from envs.webshop.vocabulary import (
    CLOTHING_SIZES,
    COLORS,
    CONSONANTS,
    DIMENSIONS,
    FILLERS,
    FITS,
    FLAVORS,
    LENGTHS,
    PACKS,
    PHRASES,
    ROOTS,
    SCENTS,
    SENTENCES,
    SHOE_SIZES,
    STYLES,
    TYPES,
    USES,
    VOWELS,
    Type,
)

COUNT = 1000
SHARES = {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}  # of 1,000 products
DISTRACTORS = 0.42  # of the products of a type behind the first that is asked for: a fifth of all
SLOTS = ("plain", "with", "for")
SLOT_SHARES = (0.55, 0.27, 0.18)  # of attributes
TYPE_PHRASES = {"plain": 13, "with": 10, "for": 6}  # that products of one type use
NO_ATTRIBUTE, MORE_ATTRIBUTES = 0.25, 2.65  # share without any; mean beyond the first
ASKED = 0.74  # of products with two attributes or more
LITERAL = 0.7  # of attributes that stand in the text
DEPTHS = {0: 0.022, 2: 0.05, 3: 0.12, 4: 0.40, 5: 0.325, 6: 0.063, 7: 0.02}  # of category paths
IN_TITLE, IN_DESCRIPTION = 0.2, 0.25  # where it stands; else in a bullet
BULLETS = {1: 0.1, 2: 0.03, 3: 0.07, 4: 0.1, 5: 0.55, 6: 0.07, 7: 0.04, 8: 0.04}
NO_DESCRIPTION = 0.3
PRICE_MU = {"beauty": 3.0, "electronics": 3.8, "garden": 4.2, "fashion": 3.3, "grocery": 3.1}  # mean of ln(dollars)
PRICE_SIGMA, HIGHEST = 1.15, 4300.0
NO_TAG, RANGE = 0.089, 0.093  # shares of products without a price, and with a range

# By category: the share of products with options, and its groups as (name, values, how likely such a product has it).
OPTIONS = {
    "fashion": (0.79, [("color", COLORS, 0.85), ("size", CLOTHING_SIZES, 0.85), ("fit type", FITS, 0.12)]),
    "garden": (0.47, [("color", COLORS, 0.2), ("size", DIMENSIONS, 0.15), ("style", STYLES, 0.05)]),
    "beauty": (0.32, [("color", COLORS, 0.15), ("size", PACKS, 0.1), ("scent", SCENTS, 0.1), ("style", STYLES, 0.05)]),
    "grocery": (0.22, [("flavor name", FLAVORS, 0.3), ("size", PACKS, 0.3)]),
    "electronics": (0.19, [("color", COLORS, 0.2), ("size", LENGTHS, 0.1), ("style", STYLES, 0.1)]),
}


@dataclass(frozen=True)
class Draft:
    """What decides about a product before its text is written. `attributes`: phrase -> slot, `shown` those that stand
    in the text."""

    type: Type
    attributes: dict[str, str]
    shown: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    price: float
    asked: bool


def build(count: int = COUNT, seed: int = 0) -> MemoryCatalogue:
    """The generated catalogue of a seed."""
    return MemoryCatalogue(draw_products(count, seed), "generated")


def draw_products(count: int, seed: int) -> list[Product]:
    """`count` products of a seed, in random order."""
    rng = np.random.default_rng([seed, 0x5109])
    drafts: list[Draft] = []
    for kind, number in zip(TYPES, _type_sizes(count, rng), strict=True):
        pool = _type_phrases(kind, rng)
        own: list[Draft] = []
        for _ in range(number):
            asked = [draft for draft in own if draft.asked]
            if asked and rng.random() < DISTRACTORS:
                wishes = np.array([math.prod(len(values) for values in one.options.values()) for one in asked])
                own.append(_distractor(asked[rng.choice(len(asked), p=wishes / wishes.sum())], pool, rng))
            else:
                own.append(_draft(kind, pool, rng))
        drafts += own
    ids = rng.choice(10**9, len(drafts), replace=False)
    order = rng.permutation(len(drafts))
    return [_write(drafts[i], f"G{ids[i]:09d}", rng) for i in order]


def _type_sizes(count: int, rng: np.random.Generator) -> list[int]:
    """How many products each type has: few types have many, most have some, all categories have their share."""
    sizes = np.zeros(len(TYPES), int)
    for category, share in SHARES.items():
        types = np.array([i for i, kind in enumerate(TYPES) if kind.category == category])
        weights = np.clip(rng.lognormal(0, 0.5, len(types)), 0.3, 2.8)
        want = round(count * share / 1000)
        exact = want * weights / weights.sum()
        sizes[types] = exact.astype(int)
        rest = np.argsort(sizes[types] - exact)[: want - sizes[types].sum()]
        sizes[types[rest]] += 1
    return sizes.tolist()


def _type_phrases(kind: Type, rng: np.random.Generator) -> dict[str, list[str]]:
    """The attribute phrases that products of a type use, common ones more often."""
    pool = {}
    for slot, size in TYPE_PHRASES.items():
        phrases = PHRASES[kind.category][slot]
        weights = 1 / (np.arange(len(phrases)) + 8.0)
        pool[slot] = rng.choice(phrases, size, replace=False, p=weights / weights.sum()).tolist()
    return pool


def _draft(kind: Type, pool: dict[str, list[str]], rng: np.random.Generator) -> Draft:
    number = 0 if rng.random() < NO_ATTRIBUTE else 1 + int(rng.poisson(MORE_ATTRIBUTES))
    attributes: dict[str, str] = {}
    for slot in rng.choice(SLOTS, number, p=SLOT_SHARES):
        weights = 1 / (np.arange(len(pool[slot])) + 4.0)
        attributes[str(rng.choice(pool[slot], p=weights / weights.sum()))] = str(slot)
    shown = tuple(phrase for phrase in attributes if rng.random() < LITERAL)
    price = float(np.clip(rng.lognormal(PRICE_MU[kind.category], PRICE_SIGMA), 1, HIGHEST))
    asked = len(attributes) > 1 and rng.random() < ASKED
    return Draft(kind, attributes, shown, _draw_options(kind, rng), price, asked)


def _distractor(twin: Draft, pool: dict[str, list[str]], rng: np.random.Generator) -> Draft:
    """The twin with one attribute exchanged for another of its slot. It shows all that it has."""
    lost = str(rng.choice(list(twin.attributes)))
    slot = twin.attributes[lost]
    others = [phrase for phrase in pool[slot] if phrase not in twin.attributes]
    kept = {phrase: slot for phrase, slot in twin.attributes.items() if phrase != lost}
    attributes = kept | ({str(rng.choice(others)): slot} if others else {})
    price = twin.price * rng.uniform(0.7, 1.3)
    return replace(twin, attributes=attributes, shown=tuple(attributes), price=price, asked=False)


def _draw_options(kind: Type, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """Option groups with their values in the order of the table: median 4 values, now and then up to 45."""
    share, groups = OPTIONS[kind.category]
    if rng.random() >= share:
        return {}
    made = {}
    sure = int(rng.integers(2))  # one of the two common groups is always there
    for place, (name, values, likely) in enumerate(groups):
        if place == sure or rng.random() < likely:
            values = SHOE_SIZES if kind.section == "Shoes" and name == "size" else values
            number = min(len(values), int(np.clip(round(rng.lognormal(np.log(4.1), 0.88)), 1, 45)))
            chosen = rng.choice(len(values), number, replace=False)
            made[name] = tuple(values[i] for i in sorted(chosen))
    return made


# ------------------------------------------------------------------------------------------------------------- texts


def _write(draft: Draft, asin: str, rng: np.random.Generator) -> Product:
    kind = draft.type
    head = str(rng.choice(kind.heads))
    in_title = [phrase for phrase in draft.shown if rng.random() < IN_TITLE]
    in_bullets = [phrase for phrase in draft.shown if phrase not in in_title]
    title, nouns = _title(draft, head, in_title, rng)
    described = rng.random() >= NO_DESCRIPTION
    in_description = [phrase for phrase in in_bullets if described and rng.random() < IN_DESCRIPTION]
    in_bullets = [phrase for phrase in in_bullets if phrase not in in_description]
    words = int(np.clip(rng.lognormal(np.log(74), 0.85), 8, 600))
    return Product(
        asin=asin,
        title=title,
        description=_prose(draft, head, in_description, words, rng) if described else "",
        bullets=_bullets(draft, head, in_bullets, rng),
        options=draft.options,
        prices=_price_tag(draft.price, rng),
        attributes=tuple(draft.attributes),
        category=kind.category,
        query=kind.query,
        product_category=_path(draft, head, rng),
        nouns=nouns,
        instruction=_instruction(draft) if draft.asked else "",
        instruction_attributes=tuple(draft.attributes) if draft.asked else (),
    )


def _brand(rng: np.random.Generator) -> str:
    letters = [(CONSONANTS, VOWELS)[i % 2] for i in range(int(rng.integers(4, 8)))]
    return "".join(str(rng.choice(list(choice))) for choice in letters)


def _title(draft: Draft, head: str, phrases: list[str], rng: np.random.Generator) -> tuple[str, tuple[str, ...]]:
    """Brand, attributes, head, features, use and an option; and the nouns among them."""
    kind, brand = draft.type, _brand(rng)
    nouns, words = FILLERS[kind.category]
    wanted = int(np.clip(rng.lognormal(np.log(16.5), 0.48), 4, 45))
    gender = kind.query.split()[0].split("'")[0] if "'s " in kind.query else ""
    parts = [brand, *([gender] if gender else []), *phrases, head]
    found = [brand, *([gender] if gender else []), *(phrase.split()[-1] for phrase in phrases), *head.split()]
    use = str(rng.choice(USES[kind.category].split(";")))
    teaser = [str(rng.choice(values)) for values in draft.options.values() if rng.random() < 0.3]
    used = len(" ".join([*parts, *teaser]).split()) + len(use.split()) + 1
    fillers = []
    while used + 2 * len(fillers) < wanted:
        noun = str(rng.choice(nouns))
        fillers.append(f"{rng.choice(words)} {noun}")
        found.append(noun)
    if used <= wanted:
        fillers.append(f"for {use}")
    text = " ".join(parts) + ("" if not fillers else " " + " ".join(fillers)) + "".join(f", {one}" for one in teaser)
    return text.title().replace("'S", "'s"), tuple(found)


def _prose(draft: Draft, head: str, phrases: list[str], words: int, rng: np.random.Generator) -> str:
    """Sentences of about so many words, in which the phrases stand literally."""
    plain = {phrase: draft.attributes[phrase] == "plain" for phrase in phrases}
    made = [f"It is {phrase}." if plain[phrase] else f"Good to know: {phrase}." for phrase in phrases]
    while sum(len(sentence.split()) for sentence in made) < words:
        made.insert(int(rng.integers(len(made) + 1)), _sentence(draft, head, rng))
    return " ".join(made)


def _sentence(draft: Draft, head: str, rng: np.random.Generator) -> str:
    nouns, words = FILLERS[draft.type.category]
    return str(rng.choice(SENTENCES)).format(
        head=head, noun=rng.choice(nouns), word=rng.choice(words),
        use=rng.choice(USES[draft.type.category].split(";")),
    )  # fmt: skip


def _bullets(draft: Draft, head: str, phrases: list[str], rng: np.random.Generator) -> tuple[str, ...]:
    number = int(rng.choice(list(BULLETS), p=list(BULLETS.values())))
    homes: list[list[str]] = [[] for _ in range(number)]
    for phrase in phrases:
        homes[rng.integers(number)].append(phrase)
    return tuple(_prose(draft, head, home, int(rng.integers(13, 30)), rng) for home in homes)


def _price_tag(price: float, rng: np.random.Generator) -> tuple[float, ...]:
    drawn = rng.random()
    if drawn < NO_TAG:
        return (NO_PRICE,)
    if drawn < NO_TAG + RANGE:
        return (round(price, 2), round(price * (1 + rng.lognormal(np.log(0.34), 0.8)), 2))
    return (round(price, 2),)


def _path(draft: Draft, head: str, rng: np.random.Generator) -> str:
    kind = draft.type
    depth = int(rng.choice(list(DEPTHS), p=list(DEPTHS.values())))
    levels = [ROOTS[kind.category], kind.department, kind.section, kind.query.title(), head.title(), "Sets", "More"]
    return " › ".join(levels[:depth])


def _instruction(draft: Draft) -> str:
    """ "Find me <plain ones> <query> with <with ones> for <for ones>"."""
    by_slot = {slot: [phrase for phrase, own in draft.attributes.items() if own == slot] for slot in SLOTS}
    plain = ", ".join(by_slot["plain"])
    text = f"Find me {plain} {draft.type.query}" if plain else f"Find me {draft.type.query}"
    for slot in ("with", "for"):
        text += f" {slot} {', '.join(by_slot[slot])}" if by_slot[slot] else ""
    return text
