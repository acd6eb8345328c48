"""From a catalogue and a seed to goals: what is asked for, at what price, in which order; and the three splits.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, [goals] -> shop (pages, reward) -> Env          prepare, generate, mini make one

Prices of ranges, price caps and the order of goals are drawn from one seeded stream, in the original's call order, so
that a seed gives the original's goals (webshop.md 1.2). Left out: how a goal is scored (reward.py).
"""

import hashlib
import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CAPS = [10.0 * step for step in range(1, 100)]  # price caps that a goal may name, dollars
NO_CAP = 1_000_000
CANONICAL_SEED = 233  # upstream's
HELD_OUT = 500  # goals at the head of a shuffled list that verl-agent and upstream test on
UPSTREAM_EVAL = 1500  # upstream: 500..1499 are for evaluation, the rest for training
PER_PRODUCT = 16  # goals by_product keeps of one product; the original has up to 558
UNSEEN_EVERY = 5  # by_product holds out every fifth product, sorted by query and hash
SEEN_SHARE = 0.1  # and so much of the goals of the other products
TYPES = ("apparel", "footwear", "accessories", "electronics", "home_decor", "beauty_health", "other")
SCHEMES = ("by_product", "upstream", "verl")

_FOOTWEAR = re.compile(r"› shoes|shoes\b(?! & jewelry)|boots|sandals|sneakers|slippers|pumps|loafers|oxfords|flats")
_WORN = re.compile(r"› (?:accessories|jewelry|watches|handbags|wallets)|sunglasses|belts|scarves|hats")


@dataclass(frozen=True, slots=True)
class Goal:
    """What one task asks for. `options` is a dict of names to values where the goal is synthetic, a tuple of values
    where people wrote it. `position`: of the product it was made of."""

    position: int
    asin: str
    text: str
    attributes: tuple[str, ...]
    options: dict[str, str] | tuple[str, ...]
    price_cap: float
    title: str
    query: str
    category: str
    product_category: str
    nouns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stock:
    """Everything about a catalogue that a seed decides: what each product costs, and the goals in their order."""

    seed: int
    prices: list[float] = field(repr=False)  # by position, dollars
    goals: list[Goal] = field(repr=False)


Named = list[tuple[str, Goal]]  # goals with the ids of their tasks


def draw_stock(catalogue, seed: int, human: bool = False, shuffle: bool = True) -> Stock:
    """Prices and goals as the original draws them with that seed: seeded, prices, caps, seeded again, shuffled.

    human: the instructions that people wrote instead of the synthetic ones. Source: webshop.md 1.1, 1.2.
    """
    rng = random.Random(seed)
    prices = [tag[0] if len(tag) == 1 else rng.uniform(*tag) for tag in catalogue.prices]
    make = _human_goals if human else _synthetic_goals
    goals = [goal for i, product in catalogue.asked_for() for goal in make(i, product, prices[i], rng)]
    if shuffle:
        random.Random(seed).shuffle(goals)
    return Stock(seed, prices, goals)


def _cap(price: float, rng: random.Random) -> tuple[float, str]:
    """A price cap above `price`, and the words that say so: the larger of two of the next four multiples of ten."""
    above = [cap for cap in CAPS if cap > price][:4]
    if len(above) < 2:
        return NO_CAP, ""
    cap = max(rng.sample(above, 2))
    return cap, f", and price lower than {cap:.2f} dollars"


def _goal(position: int, product, text: str, attributes: tuple, options, cap: float) -> Goal:
    return Goal(
        position, product.asin, text, attributes, options, cap, product.title, product.query, product.category,
        product.product_category, product.nouns,
    )  # fmt: skip


def _synthetic_goals(position: int, product, price: float, rng: random.Random) -> Iterator[Goal]:
    """One goal for every combination of the product's option values, all with the same cap."""
    if not product.instruction:
        return
    cap, cap_text = _cap(price, rng)
    names = sorted(product.options)
    for values in itertools.product(*(product.options[name] for name in names)):
        chosen = dict(zip(names, values, strict=True))
        wanted = ", and ".join(f"{name}: {value}" for name, value in chosen.items())
        text = product.instruction + (f" with {wanted}" if wanted else "") + cap_text
        yield _goal(position, product, text, product.instruction_attributes, chosen, cap)


def _human_goals(position: int, product, price: float, rng: random.Random) -> Iterator[Goal]:
    """One goal for every instruction that names at least one attribute."""
    for text, attributes, options in product.human:
        if attributes:
            cap, cap_text = _cap(price, rng)
            yield _goal(position, product, text.strip(".") + cap_text, attributes, options, cap)


def weights(goals: list[Goal]) -> list[float]:
    """How likely the original draws each goal when none is named: the mean of 1 / (goals with that attribute); 1 for
    goals that people wrote."""
    counts = Counter(attribute for goal in goals for attribute in goal.attributes)
    return [
        sum(1 / counts[attribute] for attribute in goal.attributes) / len(goal.attributes)
        if isinstance(goal.options, dict) else 1.0
        for goal in goals
    ]  # fmt: skip


def task_type(goal: Goal) -> str:
    """The kind of product that is asked for: apparel, footwear, accessories (of clothes and of phones), electronics,
    home_decor, beauty_health or other."""
    path = f"{goal.product_category} › {goal.query}".lower()
    if goal.category == "fashion":
        if _FOOTWEAR.search(path):
            return "footwear"
        return "accessories" if _WORN.search(path) else "apparel"
    if goal.category == "electronics":
        return "accessories" if path.startswith("cell phones & accessories") else "electronics"
    return {"garden": "home_decor", "beauty": "beauty_health"}.get(goal.category, "other")


def fraction(text: str) -> float:
    """A number in [0, 1) that the text decides, the same on every machine."""
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big") / 2**64


def split_goals(catalogue, scheme: str, seed: int = 0, human: bool = False) -> dict[str, tuple[Stock, Named]]:
    """{train, seen, unseen}: the stock of each split and its (id, goal) pairs, by the scheme:

    by_product  One seed (233) for everybody. unseen: the goals of every fifth product, sorted by query and hash of
                the asin; seen: a tenth of the other products' goals; train: the rest. At most 16 goals of a product.
    upstream    One seed (233). unseen: the first 500 goals (upstream's test), seen: the next 1000 (its eval), train:
                the rest. Goals are option combinations, so most test products also have train goals.
    verl        Leaky, for parity alone. train: verl-agent's first training worker, shuffled with `seed`, from position
                500 on; seen: the first 500 of its first validation worker, shuffled with seed + 1000; unseen: the
                first 500 of the training worker, which its other workers train on. `overlap` measures it.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme {scheme!r}: unknown, choose one of {', '.join(SCHEMES)}")
    if scheme == "by_product":
        return _by_product(draw_stock(catalogue, CANONICAL_SEED, human, shuffle=False))
    stock = draw_stock(catalogue, CANONICAL_SEED if scheme == "upstream" else seed, human)
    numbered = [(f"{stock.seed:04d}-{i:07d}", goal) for i, goal in enumerate(stock.goals)]
    if scheme == "upstream":
        cut = HELD_OUT, UPSTREAM_EVAL
        parts = {"train": numbered[cut[1] :], "seen": numbered[cut[0] : cut[1]], "unseen": numbered[: cut[0]]}
        return {split: (stock, goals) for split, goals in parts.items()}
    other = draw_stock(catalogue, seed + 1000, human)
    validation = [(f"{other.seed:04d}-{i:07d}", goal) for i, goal in enumerate(other.goals[:HELD_OUT])]
    return {"train": (stock, numbered[HELD_OUT:]), "seen": (other, validation), "unseen": (stock, numbered[:HELD_OUT])}


def _by_product(stock: Stock) -> dict[str, tuple[Stock, Named]]:
    parts: dict[str, Named] = {"train": [], "seen": [], "unseen": []}
    products = sorted({(goal.query, fraction(goal.asin), goal.asin) for goal in stock.goals})
    held_out = {asin for _, _, asin in products[::UNSEEN_EVERY]}
    for asin, group in itertools.groupby(stock.goals, key=lambda goal: goal.asin):
        named = sorted(((f"{asin}-{i:04d}", goal) for i, goal in enumerate(group)), key=lambda pair: fraction(pair[0]))
        for name, goal in named[:PER_PRODUCT]:
            known = "seen" if fraction(f"seen {name}") < SEEN_SHARE else "train"
            parts["unseen" if asin in held_out else known].append((name, goal))
    return {split: (stock, goals) for split, goals in parts.items()}


def overlap(train: list[Goal], held: list[Goal]) -> tuple[float, float]:
    """How far a split leaks: the share of held-out goals whose wish (product and options) is trained on, and the share
    whose product is."""
    wishes = {(goal.asin, str(goal.options)) for goal in train}
    products = {goal.asin for goal in train}
    same = sum((goal.asin, str(goal.options)) in wishes for goal in held)
    return same / len(held), sum(goal.asin in products for goal in held) / len(held)
