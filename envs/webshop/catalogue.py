"""From the raw product files to `Product`s: what a shop holds, before anything is drawn at random.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: [catalogue] -> search, goals -> shop (pages, reward) -> Env          prepare, generate, mini make one

Raw files (webshop.md 1.1): items_shuffle*.json, a list of products, and items_ins_v2*.json, attributes and
instructions by asin; optional are items_human_ins.json, instructions that people wrote, and title_nouns*.json, the
tagged nouns of each title. A product that cannot be used is named and counted in a `Report`; nothing vanishes
silently. Left out: prices that are drawn (goals.py), the index (search.py), streaming of large files (prepare.py).
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from envs.webshop.search import Index

NO_PRICE = 100.0  # what a product without a price costs
NO_ATTRIBUTES = ("DUMMY_ATTR",)  # of a product that the instruction file lacks
LARGEST_RAW = 200_000_000  # bytes of a product file that is still read into memory
Nouns = Callable[[str, str], tuple[str, ...]]  # (asin, title) -> the title's nouns
SHOWN = 5  # names printed of each kind of fault


@dataclass(frozen=True, slots=True)
class Product:
    """One product. `prices` holds one price, or the two ends of a range; `options` keep the order of the file."""

    asin: str
    title: str
    description: str
    bullets: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    prices: tuple[float, ...]
    attributes: tuple[str, ...]  # hidden: what the reward compares
    category: str  # hidden: beauty, electronics, fashion, garden or grocery
    query: str  # hidden: the product type
    product_category: str  # hidden: "A › B › C"
    nouns: tuple[str, ...] = ()  # of the title, lower-cased; the reward's type check
    instruction: str = ""  # "Find me ...", where the product is asked for
    instruction_attributes: tuple[str, ...] = ()
    human: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = ()  # (text, attributes, options) people wrote

    @property
    def price_tag(self) -> str:
        return " to ".join(f"${price}" for price in self.prices)

    def search_text(self) -> str:
        """What is indexed: title, description, first bullet and options (webshop.md 4)."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options.items())
        first = self.bullets[0] if self.bullets else ""
        return " ".join([self.title, self.description, first, options]).lower()


def to_record(product: Product) -> bytes:
    """One line of JSON; `from_record` gives the product back."""
    return json.dumps(asdict(product), separators=(",", ":")).encode() + b"\n"


def from_record(record: bytes) -> Product:
    """Raises ValueError, KeyError or TypeError where the line is damaged."""
    raw = json.loads(record)
    for name in ("bullets", "prices", "attributes", "nouns", "instruction_attributes"):
        raw[name] = tuple(raw[name])
    raw["options"] = {name: tuple(values) for name, values in raw["options"].items()}
    raw["human"] = tuple((text, tuple(attributes), tuple(options)) for text, attributes, options in raw["human"])
    return Product(**raw)


@dataclass
class Report:
    """How many products were kept, and which were not, by reason (the first few by name, all of them by number)."""

    kept: int = 0
    named: dict[str, list[str]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, position: int, asin: Any) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.named.setdefault(reason, [])
        if len(names) < SHOWN:
            names.append(f"#{position} {str(asin)[:20]}")

    def lines(self) -> list[str]:
        """One line for the kept ones and one for every reason."""
        faults = [f"{count} {reason}: {', '.join(self.named[reason])}{', ...' if count > SHOWN else ''}"
                  for reason, count in sorted(self.counts.items())]  # fmt: skip
        return [f"{self.kept} products", *faults]


class MemoryCatalogue:
    """Products in memory, in file order, with their search index. `prepare.PreparedCatalogue` is its twin on disk."""

    def __init__(self, products: list[Product], source: str, report: Report | None = None):
        self.products, self.source = products, source
        self.report = report or Report(kept=len(products))
        self.index = Index.build((product.search_text() for product in products), [one.asin for one in products])
        self.prices = [product.prices for product in products]
        digest = hashlib.sha256()
        for product in products:
            digest.update(to_record(product))
        self.digest = digest.hexdigest()

    def __len__(self) -> int:
        return len(self.products)

    def __getitem__(self, position: int) -> Product:
        return self.products[position]

    def asked_for(self) -> Iterator[tuple[int, Product]]:
        """(position, product) of those that a goal can be made of."""
        return ((i, product) for i, product in enumerate(self.products) if product.instruction or product.human)


def parse_prices(text: str | None) -> tuple[float, ...]:
    """ "$9.99" -> (9.99,), "$1.5$2" -> (1.5, 2.0), nothing -> (100.0,). Raises ValueError where no number is found."""
    if not text:
        return (NO_PRICE,)
    prices = tuple(float(re.sub(r"[^\d.]", "", part)) for part in text.split("$")[1:])
    if not prices:
        raise ValueError("price without a $ part")
    return prices[:2]


def _text(raw: dict, name: str) -> str:
    value = raw.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value


def _words(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise TypeError("a list of texts")  # and not one text, which would fall into letters
    return tuple(values)


def _options(raw: dict) -> dict[str, tuple[str, ...]]:
    """Names lower-cased; values stripped, lower-cased, "/" written as " | "; a name without a list is left away."""
    groups = raw.get("customization_options") or {}
    if not isinstance(groups, dict):
        raise ValueError("customization_options is no object")
    options = {}
    for name, choices in groups.items():
        if choices is None:
            continue
        if not isinstance(choices, list) or not all(
            isinstance(choice, dict) and isinstance(choice.get("value"), str) for choice in choices
        ):
            raise ValueError(f"option {name[:20]!r} is no list of values")
        options[name.lower()] = tuple(choice["value"].strip().replace("/", " | ").lower() for choice in choices)
    return options


def parse_product(raw: dict, instruction: dict | None, human: list[dict], nouns: Nouns) -> Product:
    """A raw product, its entry in the instruction file (None: absent) and the instructions people wrote for it.

    `nouns(asin, title)` gives the title's nouns. Raises ValueError with the reason where the product is malformed.
    """
    bullets = raw.get("small_description") or []
    bullets = [bullets] if isinstance(bullets, str) else bullets
    if not isinstance(bullets, list) or not all(isinstance(bullet, str) for bullet in bullets):
        raise ValueError("small_description is no list of texts")
    if not isinstance(raw.get("pricing"), str | None):
        raise ValueError("pricing is no text")
    entry = {"attributes": NO_ATTRIBUTES} if instruction is None else instruction
    try:
        people = tuple(
            (_text(one, "instruction"), _words(one["instruction_attributes"]), _words(one["instruction_options"]))
            for one in human
        )
        attributes, asked = _words(entry["attributes"]), _words(entry.get("instruction_attributes") or ())
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"its instruction lacks {error}") from error
    return Product(
        asin=raw["asin"],
        title=_text(raw, "name"),
        description=_text(raw, "full_description"),
        bullets=tuple(bullets),
        options=_options(raw),
        prices=parse_prices(raw.get("pricing")),
        attributes=attributes,
        category=_text(raw, "category"),
        query=_text(raw, "query").lower().strip(),
        product_category=_text(raw, "product_category"),
        nouns=tuple(nouns(raw["asin"], _text(raw, "name"))),
        instruction=_text(entry, "instruction"),
        instruction_attributes=asked,
        human=people,
    )


def parse_products(
    raws: Iterable[Any], instructions: dict, human: dict, nouns: Nouns, report: Report,
    drop_malformed: bool = False,
) -> Iterator[Product]:  # fmt: skip
    """Products in file order. Asin "nan", asin longer than ten characters and repeated asins are left away as in the
    original, and counted in `report`. After the last one, raises ValueError naming the malformed ones, or counts
    them too (`drop_malformed`)."""
    seen, malformed = set(), Report()
    for position, raw in enumerate(raws):
        asin = raw.get("asin") if isinstance(raw, dict) else None
        if not isinstance(asin, str) or not asin:
            (report if drop_malformed else malformed).drop("malformed (no asin)", position, asin)
        elif asin == "nan" or len(asin) > 10:
            report.drop("without a usable asin", position, asin)
        elif asin in seen:
            report.drop("repeated", position, asin)
        else:
            seen.add(asin)
            try:
                product = parse_product(raw, instructions.get(asin), human.get(asin, []), nouns)
            except ValueError as error:
                (report if drop_malformed else malformed).drop(f"malformed ({error})", position, asin)
                continue
            report.kept += 1
            yield product
    if malformed.counts:
        raise ValueError("; ".join(malformed.lines()[1:]) + " (--drop-malformed leaves them away)")


def only_file(folder: Path, pattern: str, needed: bool = True) -> Path | None:
    """The one file of that pattern. Raises FileNotFoundError where it is needed and missing, ValueError on several."""
    files = sorted(folder.glob(pattern))
    if len(files) > 1:
        names = ", ".join(file.name for file in files)
        raise ValueError(f"{folder}: several files {pattern} ({names}); choose with `python -m envs.webshop.prepare`")
    if not files and needed:
        raise FileNotFoundError(f"{folder}: no file {pattern}; see README, WebShop data")
    return files[0] if files else None


def read_json(file: Path, kind: type) -> Any:
    """The JSON value in `file`. Raises ValueError naming it where it is truncated, no JSON, or no `kind`."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: broken or truncated JSON ({error})") from error
    if not isinstance(value, kind):
        raise ValueError(f"{file}: holds a {type(value).__name__}, expected a {kind.__name__}")
    return value


def tagged_nouns(file: Path | None) -> Nouns:
    """Looks a title's nouns up in title_nouns*.json."""
    table = read_json(file, dict) if file else {}

    def nouns(asin: str, title: str) -> tuple[str, ...]:
        if asin not in table:
            raise ValueError(f"its title nouns are not in {file.name if file else 'any title_nouns*.json'}")
        try:
            return _words(table[asin])
        except TypeError as error:
            raise ValueError(f"its title nouns lack {error}") from error

    return nouns


def read_raw(folder: Path, limit: int | None = None) -> MemoryCatalogue:
    """The catalogue of a folder of raw files; `limit`: the first so many products of the file.

    Raises FileNotFoundError or ValueError that name the file, the faulty products and what to do.
    """
    products_file = only_file(folder, "items_shuffle*.json")
    if products_file.stat().st_size > LARGEST_RAW:
        raise ValueError(f"{products_file}: too large to be read whole; run `python -m envs.webshop.prepare` once")
    nouns_file = only_file(folder, "title_nouns*.json", needed=False)
    if nouns_file is None:
        raise FileNotFoundError(
            f"{folder}: no title_nouns*.json, which the reward needs; `python -m envs.webshop.prepare` tags the titles"
        )
    human_file = only_file(folder, "items_human_ins.json", needed=False)
    instructions = read_json(only_file(folder, "items_ins_v2*.json"), dict)
    human = read_json(human_file, dict) if human_file else {}
    report = Report()
    raws = read_json(products_file, list)[:limit]
    try:
        products = list(parse_products(raws, instructions, human, tagged_nouns(nouns_file), report))
    except ValueError as error:
        raise ValueError(f"{products_file}: {error}") from error
    if not products:
        raise ValueError(f"{products_file}: holds no product that can be used")
    return MemoryCatalogue(products, str(folder), report)
