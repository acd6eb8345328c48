"""From a catalogue to two tables: its statistics beside those of the real 1,000 products, and how hard its goals are.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue, goals -> [survey]          prepare, generate, mini make one

    python -m envs.webshop.survey            the generated catalogue
    python -m envs.webshop.survey FOLDER     raw or prepared files

The numbers of the real set are those of webshop.md 3. Left out: anything an agent does over several pages.
"""

import argparse
from pathlib import Path

import numpy as np

from envs.webshop import generate
from envs.webshop.catalogue import NO_PRICE, Product, read_raw
from envs.webshop.goals import Goal, Stock, draw_stock
from envs.webshop.reward import reward
from envs.webshop.splits import CANONICAL_SEED

REAL = {
    "categories": 5, "queries": 246, "products of the largest query": 12, "category path empty": 0.022,
    "category path of 4 levels": 0.41, "title words, mean": 18, "title words, 10 %": 8, "title words, 90 %": 29,
    "title characters, mean": 116, "description words, mean": 79, "description words, median": 49,
    "description empty": 0.30, "bullets, mean": 4.6, "words a bullet": 26, "attributes, mean": 2.83,
    "no attributes": 0.185, "attributes, 90 %": 6, "distinct attributes": 598,
    "attributes that stand in the text": 0.79,
    "products with options": 0.42, "option names, mean": 0.61, "values a name, mean": 5.7, "values a name, median": 4,
    "values a name, 90 %": 10, "price, median": 29.5, "price, 10 %": 9, "price, 90 %": 200, "no price": 0.089,
    "price ranges": 0.093, "products asked for": 0.415, "attributes asked, mean": 3.2, "goals": 6910,
    "goals with 2 options": 0.68, "goals with 3 options": 0.21, "price cap, median": 50,
    "target first": 0.53, "target in ten": 0.91, "target in fifty": 0.996, "first hit, literal options: score": 0.794,
    "first hit, literal options: success": 0.548, "first hit, no options: score": 0.578,
    "first hit, no options: success": 0.022, "random product: score": 0.011, "oracle: success": 0.934,
}  # fmt: skip


def _words(texts: list[str]) -> np.ndarray:
    return np.array([len(text.split()) for text in texts])


def statistics(products: list[Product], goals: list[Goal]) -> dict[str, float]:
    """The measured values of a catalogue and its goals, keyed as in `REAL`."""
    depths = [len(one.product_category.split("›")) if one.product_category else 0 for one in products]
    titles, described = _words([one.title for one in products]), _words([one.description for one in products])
    bullets = _words([bullet for one in products for bullet in one.bullets])
    attributes = np.array([len(one.attributes) for one in products])
    every = [(attribute, one) for one in products for attribute in one.attributes]
    groups = [values for one in products for values in one.options.values() if values]
    values = np.array([len(group) for group in groups])
    prices = np.array([one.prices[0] for one in products if one.prices != (NO_PRICE,)])
    queries = [one.query for one in products]
    options = np.array([len(goal.options) for goal in goals])
    asked = [one for one in products if one.instruction]
    return {
        "categories": len({one.category for one in products}),
        "queries": len(set(queries)),
        "products of the largest query": max(queries.count(query) for query in set(queries)),
        "category path empty": np.mean(np.equal(depths, 0)),
        "category path of 4 levels": np.mean(np.equal(depths, 4)),
        "title words, mean": titles.mean(),
        "title words, 10 %": np.quantile(titles, 0.1),
        "title words, 90 %": np.quantile(titles, 0.9),
        "title characters, mean": np.mean([len(one.title) for one in products]),
        "description words, mean": described.mean(),
        "description words, median": np.median(described),
        "description empty": np.mean(described == 0),
        "bullets, mean": np.mean([len(one.bullets) for one in products]),
        "words a bullet": bullets.mean(),
        "attributes, mean": attributes.mean(),
        "no attributes": np.mean(attributes == 0),
        "attributes, 90 %": np.quantile(attributes, 0.9),
        "distinct attributes": len({attribute for attribute, _ in every}),
        "attributes that stand in the text": np.mean([attribute in _text(one) for attribute, one in every]),
        "products with options": np.mean([bool(one.options) for one in products]),
        "option names, mean": len(groups) / len(products),
        "values a name, mean": values.mean(),
        "values a name, median": np.median(values),
        "values a name, 90 %": np.quantile(values, 0.9),
        "price, median": np.median(prices),
        "price, 10 %": np.quantile(prices, 0.1),
        "price, 90 %": np.quantile(prices, 0.9),
        "no price": np.mean([one.prices == (NO_PRICE,) for one in products]),
        "price ranges": np.mean([len(one.prices) > 1 for one in products]),
        "products asked for": len(asked) / len(products),
        "attributes asked, mean": np.mean([len(one.instruction_attributes) for one in asked]),
        "goals": len(goals),
        "goals with 2 options": np.mean(options == 2),
        "goals with 3 options": np.mean(options == 3),
        "price cap, median": np.median([goal.price_cap for goal in goals]),
    }


def _text(product: Product) -> str:
    return " ".join([product.title, *product.bullets, product.description]).lower()


def calibration(catalogue, stock: Stock, mode: str = "fixed", sample: int = 1000, seed: int = 0) -> dict[str, float]:
    """How hard the goals are, on a sample of them: the target's rank with the whole instruction as query, and what
    buying blindly earns. Success is a score of 1."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(stock.goals), min(sample, len(stock.goals)), replace=False)
    ranks, scores = [], []
    for goal in (stock.goals[i] for i in chosen):
        hits = catalogue.index.search(goal.text)
        ranks.append(hits.index(goal.position) if goal.position in hits else len(hits))
        first = hits[0] if hits else goal.position

        def bought(position: int, options: dict[str, str], goal: Goal = goal) -> float:
            return reward(catalogue[position], goal, stock.prices[position], options, mode)[0]

        product = catalogue[first]
        literal = {name: value for name, values in product.options.items() for value in values if value in goal.text}
        scores.append((
            bought(first, literal), bought(first, {}), bought(int(rng.integers(len(catalogue))), {}),
            bought(goal.position, goal.options),
        ))  # fmt: skip
    ranks, (literal, bare, blind, oracle) = np.array(ranks), np.array(scores).T
    return {
        "target first": np.mean(ranks < 1),
        "target in ten": np.mean(ranks < 10),
        "target in fifty": np.mean(ranks < 50),
        "first hit, literal options: score": literal.mean(),
        "first hit, literal options: success": np.mean(literal == 1),
        "first hit, no options: score": bare.mean(),
        "first hit, no options: success": np.mean(bare == 1),
        "random product: score": blind.mean(),
        "oracle: success": np.mean(oracle == 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("folder", nargs="?", type=Path, help="raw files; without it the generated catalogue")
    parser.add_argument("--mode", default="fixed", help="fixed or parity")
    args = parser.parse_args()
    catalogue = read_raw(args.folder) if args.folder else generate.build()
    stock = draw_stock(catalogue, CANONICAL_SEED)
    ours = statistics(list(catalogue), stock.goals) | calibration(catalogue, stock, args.mode)
    print(f"{'':36s} {'real':>9s} {catalogue.source[-20:]:>20s}")
    for name, real in REAL.items():
        print(f"{name:36s} {real:9.4g} {ours[name]:20.4g}")


if __name__ == "__main__":
    main()
