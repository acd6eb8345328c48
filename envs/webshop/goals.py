"""From a catalogue and a seed to goals: what is asked for, at what price, in which order.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, [goals] -> shop (pages, reward) -> Env          prepare, generate, mini make one

Prices of ranges, price caps and the order of goals are drawn from one seeded stream, in the original's call order, so
that a seed gives the original's goals (webshop.md 1.2). Left out: who is held out (splits.py), how a goal is scored
(reward.py).
"""

import itertools
import math
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

CAPS = [10.0 * step for step in range(1, 100)]  # price caps that a goal may name, dollars
NO_CAP = 1_000_000


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


def draw_stock(catalogue, seed: int, human: bool = False, shuffle: bool = True, most: int | None = None) -> Stock:
    """Prices and goals as the original draws them with that seed: seeded, prices, caps, seeded again, shuffled.

    human: the instructions that people wrote instead of the synthetic ones. most: at most so many synthetic goals of a
    product, drawn by its asin; the original has up to 558 of one. Source: webshop.md 1.1, 1.2.
    """
    rng = random.Random(seed)
    prices = [tag[0] if len(tag) == 1 else rng.uniform(*tag) for tag in catalogue.prices]
    goals: list[Goal] = []
    for i, product in catalogue.asked_for():
        price = prices[i]
        goals += _human_goals(i, product, price, rng) if human else _synthetic_goals(i, product, price, rng, most)
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


def _synthetic_goals(position: int, product, price: float, rng: random.Random, most: int | None) -> Iterator[Goal]:
    """One goal for every combination of the product's option values, all with the same cap."""
    if not product.instruction:
        return
    cap, cap_text = _cap(price, rng)
    names = sorted(product.options)
    groups = [product.options[name] for name in names]
    count = math.prod(len(values) for values in groups)
    kept = set(random.Random(product.asin).sample(range(count), most)) if most and count > most else None
    for number, values in enumerate(itertools.product(*groups)):
        if kept is None or number in kept:
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
