"""From goals to who is trained on what: the types of tasks, and three schemes of train, seen and unseen.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> [splits], shop -> Env          prepare, generate, mini make one

`by_product`, the default, holds whole products out. The two others are those of upstream and of verl-agent, in which
train and test share products, and in verl-agent's goals too. Source: webshop.md 1.3.
"""

import hashlib
import itertools
import re

from envs.webshop.goals import Goal, Stock, draw_stock

CANONICAL_SEED = 233  # upstream's
HELD_OUT = 500  # goals at the head of a shuffled list that verl-agent and upstream test on
UPSTREAM_EVAL = 1500  # upstream: 500..1499 are for evaluation, the rest for training
PER_PRODUCT = 16  # goals that by_product keeps of one product
UNSEEN_EVERY = 5  # by_product holds out every fifth product, sorted by query and hash
SEEN_SHARE = 0.1  # and so much of the goals of the other products
TYPES = ("apparel", "footwear", "accessories", "electronics", "home_decor", "beauty_health", "other")
SCHEMES = ("by_product", "upstream", "verl")
Named = list[tuple[str, Goal]]  # goals with the ids of their tasks

_FOOTWEAR = re.compile(r"› shoes|shoes\b(?! & jewelry)|boots|sandals|sneakers|slippers|pumps|loafers|oxfords|flats")
_WORN = re.compile(r"› (?:accessories|jewelry|watches|handbags|wallets)|sunglasses|belts|scarves|hats")


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
        return _by_product(draw_stock(catalogue, CANONICAL_SEED, human, shuffle=False, most=PER_PRODUCT))
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
    products = sorted({(goal.query, goal.asin) for goal in stock.goals}, key=lambda pair: (pair[0], fraction(pair[1])))
    held_out = {asin for _, asin in products[::UNSEEN_EVERY]}
    for asin, group in itertools.groupby(stock.goals, key=lambda goal: goal.asin):
        for i, goal in enumerate(group):
            name = f"{asin}-{i:02d}"
            known = "seen" if fraction(name) < SEEN_SHARE else "train"
            parts["unseen" if asin in held_out else known].append((name, goal))
    return {split: (stock, goals) for split, goals in parts.items()}


def overlap(train: list[Goal], held: list[Goal]) -> tuple[float, float]:
    """How far a split leaks: the share of held-out goals whose wish (product and options) is trained on, and the share
    whose product is."""
    wishes = {(goal.asin, str(goal.options)) for goal in train}
    products = {goal.asin for goal in train}
    same = sum((goal.asin, str(goal.options)) in wishes for goal in held)
    return same / len(held), sum(goal.asin in products for goal in held) / len(held)
