"""A seed to a small shop for a small policy: the same engine, pages and reward, with short titles and few words.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, reward) -> Env          prepare, generate, [mini] make one

Fourteen topics. Each can be called by three words; a goal uses the first, sellers use one of the three, and the other
two only find things that go with it (laces, a hanger). For every titled attribute there are two products that differ
in one attribute alone, which the title does not tell: it stands on the description or on the features page. So two
facts decide about a topic, its `Fact`: what sellers call it, and where the proof stands. They hold for every product
of the topic, also for those never seen in training. Left out: players and prompts.
"""

from dataclasses import dataclass

import numpy as np

from envs.webshop.catalogue import MemoryCatalogue, Product
from envs.webshop.lean import plain
from envs.webshop.pages import SUB_PAGES

MAX_TURNS = 10
PAGE_SIZE = 5
LOOK_ALIKES = 5  # products a wrong word finds: a whole page
WORLD = 1  # the seed of the shop that is trained on and tested with; 0 favours the first match (LOG.md, 2026-12-01)
PROOFS = SUB_PAGES[:2]  # pages that may hold the proof


@dataclass(frozen=True)
class Kind:
    """What products of one task type have in common. `options`: name -> (values of a product, all values)."""

    category: str
    path: str
    titled: tuple[str, ...]  # attributes that stand in titles
    proven: tuple[str, ...]  # the two attributes of which a product has one, told on a proof page
    options: dict[str, tuple[int, tuple[str, ...]]]


@dataclass(frozen=True)
class Topic:
    """The words for one sort of thing, the first of them is the goals'; and what is sold to go with it."""

    kind: str
    words: tuple[str, str, str]
    companion: str


@dataclass(frozen=True)
class Fact:
    """What a shopper must know about a topic: the word that sellers use, and the page with the proof."""

    word: str
    proof: str


def _kind(category: str, path: str, titled: str, proven: str, **options: tuple[int, str]) -> Kind:
    groups = {name: (count, tuple(values.split())) for name, (count, values) in options.items()}
    return Kind(category, path, tuple(titled.split()), tuple(proven.split()), groups)


COLORS = "red blue black white green brown gray pink"
KINDS = {
    "apparel": _kind(
        "fashion", "Clothing › Outfits", "hooded quilted striped pleated reversible plaid ribbed cropped",
        "breathable insulated", color=(3, COLORS), size=(3, "small medium large tall petite"),
    ),
    "footwear": _kind(
        "fashion", "Clothing › Shoes", "suede leather canvas mesh woven knitted padded pointed",
        "cushioned nonslip", color=(3, COLORS), size=(3, "6 7 8 9 10 11"),
    ),
    "accessories": _kind(
        "fashion", "Clothing › Accessories", "beaded braided engraved vintage layered minimalist hammered twisted",
        "adjustable handmade", color=(6, COLORS),
    ),
    "electronics": _kind(
        "electronics", "Electronics › Audio", "wireless portable foldable compact stereo magnetic retro mini",
        "rechargeable shockproof", color=(3, COLORS), pack=(3, "single double triple quad"),
    ),
    "home_decor": _kind(
        "garden", "Home › Furnishings", "velvet linen tufted modern rustic corduroy oval patterned",
        "fireproof recycled", color=(3, COLORS), size=(3, "small medium large tall wide"),
    ),
    "beauty_health": _kind(
        "beauty", "Beauty › Care", "herbal floral citrus coconut almond woody honey aloe",
        "organic refillable", bottle=(6, "travel regular family sample pump jumbo"),
    ),
    "other": _kind(
        "grocery", "Food › Pantry", "ginger lemon vanilla chocolate cinnamon peppermint mango salted",
        "kosher unsweetened", pack=(6, "single double triple quad bulk dozen"),
    ),
}  # fmt: skip

_TOPICS = """
apparel jacket coat parka hanger          apparel trousers slacks chinos press
footwear sneakers trainers runners laces  footwear slippers loafers moccasins insoles
accessories handbag purse tote strap      accessories necklace pendant choker clasp
electronics headphones earphones headset adapter  electronics speaker soundbar boombox bracket
home_decor sofa couch settee cover        home_decor curtain drape blind rod
beauty_health shampoo cleanser lather dispenser  beauty_health perfume fragrance cologne atomizer
other cookies biscuits crackers tin       other tea brew infusion strainer
"""
_WORDS = np.array(_TOPICS.split()).reshape(-1, 5).tolist()
TOPICS = {words[0]: Topic(kind, tuple(words), companion) for kind, *words, companion in _WORDS}
_BRANDS = "zeno arlo bexa corvi duna elmo faro gilda hanno iska jura kelva luma miro nola orsa"
BRANDS = tuple(_BRANDS.split())
FILLERS = ("Ships in a box.", "Comes with a bag.", "Made with care.", "Two year warranty.")


# The words that the recipes of the lean skills may use beside those of pages and notes.
RECIPES = """
search . open b1 then read the proof is it wrong take b2 click and buy now first must be right
"""


class MiniCatalogue(MemoryCatalogue):
    """The products, and the facts that they were made with."""

    def __init__(self, products: list[Product], facts: dict[str, Fact]):
        super().__init__(products, "generated (mini)")
        self.facts = facts


def draw_facts(rng: np.random.Generator) -> dict[str, Fact]:
    """A fact for every topic; each place of the word, and each proof page, is used about equally often."""
    places = rng.permutation(np.arange(len(TOPICS)) % 3)
    proofs = rng.permutation(np.arange(len(TOPICS)) % 2)
    return {
        name: Fact(topic.words[place], PROOFS[proof])
        for (name, topic), place, proof in zip(TOPICS.items(), places, proofs, strict=True)
    }


def build(seed: int = WORLD) -> MiniCatalogue:
    """The shop of a seed: 16 products and 10 look-alikes a topic, about 360."""
    rng = np.random.default_rng([seed, 0x3114])
    facts = draw_facts(rng)
    made = [product for name, topic in TOPICS.items() for product in _topic(name, topic, facts[name], rng)]
    # Equal scores go by id, so random ids put either product of a pair first.
    ids = rng.permutation(len(made))
    return MiniCatalogue([product(f"M{number:04d}") for product, number in zip(made, ids, strict=True)], facts)


def _topic(name: str, topic: Topic, fact: Fact, rng: np.random.Generator) -> list:
    """Functions from an id to a product: the pairs of a topic, then what its wrong words find."""
    kind, tens = KINDS[topic.kind], int(rng.integers(1, 6))
    made = []
    for titled in kind.titled:
        options, brands = _options(kind, rng), rng.choice(BRANDS, 2, replace=False)
        for brand, proven in zip(brands, rng.permutation(kind.proven), strict=True):
            made.append(_product(name, fact, str(brand), (titled, str(proven)), options, tens, rng))
    for word in topic.words:
        if word != fact.word:
            titles = rng.choice(kind.titled, LOOK_ALIKES, replace=False)
            made += [_look_alike(word, topic, str(titled), tens, rng) for titled in titles]
    return made


def _options(kind: Kind, rng: np.random.Generator) -> dict[str, tuple[str, ...]]:
    """A few values of each group, in the order of the table."""
    return {
        name: tuple(values[i] for i in sorted(rng.choice(len(values), count, replace=False)))
        for name, (count, values) in kind.options.items()
    }


def _price(tens: int, rng: np.random.Generator) -> tuple[float]:
    return (float(10 * tens + 5 + rng.integers(3)),)


def _product(name: str, fact: Fact, brand: str, attributes: tuple[str, str], options: dict, tens: int, rng):
    kind, price = KINDS[TOPICS[name].kind], _price(tens, rng)
    fillers = [FILLERS[i] for i in rng.choice(len(FILLERS), 2, replace=False)]
    proof = f"It is {attributes[1]}."
    proofs = [fillers[0], proof]  # only the first bullet is searched
    return lambda asin: Product(
        asin=asin,
        title=f"{brand} {attributes[0]} {fact.word}".title(),
        description=" ".join(proofs) if fact.proof == "description" else fillers[1],
        bullets=tuple(proofs) if fact.proof == "features" else (fillers[1],),
        options=options,
        prices=price,
        attributes=attributes,
        category=kind.category,
        query=name,
        product_category=f"{kind.path} › {name.title()}",
        nouns=(fact.word,),
        instruction=f"Find me {', '.join(attributes)} {name}",
        instruction_attributes=attributes,
    )


def _look_alike(word: str, topic: Topic, titled: str, tens: int, rng: np.random.Generator):
    kind, brand, price = KINDS[topic.kind], str(rng.choice(BRANDS)), _price(tens, rng)
    filler = FILLERS[rng.integers(len(FILLERS))]
    return lambda asin: Product(
        asin=asin,
        title=f"{brand} {titled} {word} {topic.companion}".title(),
        description=f"For your {word}.",
        bullets=(filler,),
        options={},
        prices=price,
        attributes=(titled,),
        category=kind.category,
        query=f"{word} {topic.companion}",
        product_category=f"{kind.path} › {topic.companion.title()}",
        nouns=(word, topic.companion),
    )


def note(topic: str, fact: Fact) -> str:
    """A fact in the words of the lean skills."""
    return f"for {topic} search {fact.word} . the proof is in {fact.proof} ."


def vocabulary() -> set[str]:
    """All words that goals, pages and notes of any mini shop can hold, as `plain` writes them."""
    texts = [f"{name} {' '.join(topic.words)} {topic.companion}" for name, topic in TOPICS.items()]
    for kind in KINDS.values():
        texts += [*kind.titled, *kind.proven]
        texts += [f"{name} {' '.join(values)}" for name, (_, values) in kind.options.items()]
    texts += [*BRANDS, *FILLERS, *PROOFS, "it is", "for your", note("", Fact("", ""))]
    numbers = [str(10 * tens + 5 + ones) for tens in range(1, 6) for ones in range(3)]
    caps = [str(cap) for cap in range(30, 100, 10)]
    return {word for text in texts for word in plain(text).split()} | {*numbers, *caps, "."}
