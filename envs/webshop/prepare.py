"""Once, from large raw files to a folder that every process maps: products on disk, postings in shared memory.

    [envs] -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
    envs/webshop: catalogue -> search, goals -> shop (pages, reward) -> Env          [prepare], generate, mini make one

    python -m envs.webshop.prepare --products items_shuffle.json --instructions items_ins_v2.json --out webshop
    WEBSHOP_DATA=webshop accelerate launch train.py --env webshop

The product file is streamed, so that 5 GB need no 14 GB of memory. The reward compares title nouns: from a tagged
file (title_nouns*.json), from spaCy (pip install -r requirements-webshop.txt), or, said aloud and refused in parity
mode, approximated. The folder holds products.jsonl with offsets, prices, the search index, and meta.json, written
last; opening it checks that products and index are of one make. Source: webshop.md 1.6, 5.
"""

import argparse
import hashlib
import json
import mmap
import re
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import ijson
import numpy as np
from tqdm import tqdm

from envs.webshop.catalogue import (
    Nouns,
    Product,
    Report,
    from_record,
    parse_products,
    read_json,
    tagged_nouns,
    to_record,
)
from envs.webshop.generate import draw_products
from envs.webshop.search import STOP_WORDS, Index, open_array

VERSION = 1
SPACY_MODEL = "en_core_web_sm"
APPROXIMATE = "approximate"
_NOT_NOUNS = STOP_WORDS | {"from", "has", "have", "more", "new", "you", "your", "best", "very", "easy", "high", "free"}


class PreparedCatalogue:
    """A prepared folder, read-only; the twin of `MemoryCatalogue` whose products stay on disk.

    Raises ValueError where the folder's parts do not fit together.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        meta = read_json(folder / "meta.json", dict)
        index = read_json(folder / "index.json", dict)
        if meta.get("version") != VERSION:
            raise ValueError(f"{folder}: prepared by another version; run prepare again")
        self.index = Index.load(folder)
        self.offsets, self._prices, self._asked = (
            open_array(folder / f"{name}.npy") for name in ("offsets", "prices", "asked")
        )
        if self.offsets.ndim != 1 or self.offsets[0] != 0 or (np.diff(self.offsets) <= 0).any():
            raise ValueError(f"{folder / 'offsets.npy'}: no offsets of products; run prepare again")
        counts = {
            "meta.json": meta["products"], "offsets": len(self.offsets) - 1, "prices": len(self._prices),
            "index.json": index["documents"], "postings": len(self.index.rank),
        }  # fmt: skip
        if len(set(map(repr, counts.values()))) > 1 or meta["ids"] != index["ids"]:
            raise ValueError(f"{folder}: products and index disagree ({counts}); run prepare again")
        file = folder / "products.jsonl"
        if file.stat().st_size != self.offsets[-1]:
            raise ValueError(f"{file}: {file.stat().st_size} bytes, expected {self.offsets[-1]}; run prepare again")
        with file.open("rb") as opened:
            self._records = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.digest, self.nouns = meta["digest"], meta["nouns"]
        self.source = f"{folder}{' (approximate title nouns)' if self.nouns == APPROXIMATE else ''}"
        self._product = lru_cache(maxsize=10_000)(self._read)

    def __reduce__(self) -> tuple:
        return PreparedCatalogue, (self.folder,)  # another process maps the folder itself

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, position: int) -> Product:
        return self._product(position)

    def _read(self, position: int) -> Product:
        try:
            return from_record(self._records[self.offsets[position] : self.offsets[position + 1]])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            file = self.folder / "products.jsonl"
            raise ValueError(f"{file}, line {position + 1}: broken ({str(error)[:200]}); run prepare again") from error

    @property
    def prices(self) -> Iterator[tuple[float, ...]]:
        """Price tags by position."""
        return ((low,) if high != high else (low, high) for low, high in self._prices.tolist())

    def asked_for(self) -> Iterator[tuple[int, Product]]:
        return ((i, self._read(i)) for i in self._asked.tolist())


def write(products: Iterator[Product], out: Path, nouns: str, report: Report) -> None:
    """Writes products as a prepared folder: first beside it, renamed when complete, so that half a folder never has its
    name. Raises FileExistsError where `out` is there already."""
    if out.exists():
        raise FileExistsError(f"{out} exists; remove it, or choose another --out")
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    offsets, prices, asked, ids = [0], [], [], []
    digest = hashlib.sha256()

    def texts(file) -> Iterator[str]:
        for position, product in enumerate(products):
            record = to_record(product)
            file.write(record)
            digest.update(record)
            offsets.append(offsets[-1] + len(record))
            prices.append((*product.prices, float("nan"))[:2])
            ids.append(product.asin)
            if product.instruction or product.human:
                asked.append(position)
            yield product.search_text()

    with (part / "products.jsonl").open("wb") as file:
        index = Index.build(texts(file), ids)
    if not ids:
        raise ValueError("the product file holds no products")
    index.save(part)
    np.save(part / "offsets.npy", np.asarray(offsets, np.int64))
    np.save(part / "prices.npy", np.asarray(prices, np.float64))
    np.save(part / "asked.npy", np.asarray(asked, np.int32))
    names = hashlib.sha256("\n".join(ids).encode("utf-8", "surrogatepass")).hexdigest()
    (part / "index.json").write_text(json.dumps({"documents": len(index.rank), "ids": names}))
    meta = {"version": VERSION, "products": len(ids), "ids": names, "digest": digest.hexdigest(), "nouns": nouns}
    (part / "meta.json").write_text(json.dumps(meta | {"report": report.lines()}, indent=1))
    part.rename(out)


def stream(file: Path) -> Iterator[Any]:
    """The elements of a JSON list, one by one, with a progress bar over bytes. Raises ValueError where the file is
    broken or truncated, naming it and how far it could be read."""
    count = 0
    size = file.stat().st_size
    with file.open("rb") as opened, tqdm(total=size, desc=file.name, unit="B", unit_scale=True) as bar:
        try:
            for raw in ijson.items(opened, "item", use_float=True):
                count += 1
                yield raw
                bar.update(opened.tell() - bar.n)
        except ijson.JSONError as error:
            reason = f"broken or truncated JSON behind product {count} ({str(error).splitlines()[0]})"
            raise ValueError(f"{file}: {reason}") from error


class Packed(dict):
    """The entries of a large JSON object, kept as text until they are asked for."""

    @classmethod
    def read(cls, file: Path) -> "Packed":
        with file.open("rb") as opened:
            try:
                return cls((key, json.dumps(entry)) for key, entry in ijson.kvitems(opened, "", use_float=True))
            except ijson.JSONError as error:
                raise ValueError(f"{file}: broken or truncated JSON ({str(error).splitlines()[0]})") from error

    def get(self, key: str, default: Any = None) -> Any:
        return json.loads(self[key]) if key in self else default


def noun_source(choice: str) -> Nouns:
    """The titles' nouns: `approximate`, `spacy`, or a file of tagged titles."""
    if choice == APPROXIMATE:
        return approximate_nouns
    return spacy_nouns() if choice == "spacy" else tagged_nouns(Path(choice))


def approximate_nouns(asin: str, title: str) -> tuple[str, ...]:
    """All words of letters but the commonest others. The reward's type check then agrees with a tagger's on only some
    93 of 100 pairs."""
    return tuple(word for word in re.findall(r"[a-z][a-z'-]+", title.lower()) if word not in _NOT_NOUNS)


def spacy_nouns() -> Nouns:
    """Nouns and proper nouns as spaCy tags them. Raises ImportError that says what to install or to do without."""
    try:
        import spacy

        tagger = spacy.load(SPACY_MODEL, exclude=["parser", "ner", "lemmatizer"])
    except (ImportError, OSError) as error:
        raise ImportError(
            f"title nouns need spaCy and {SPACY_MODEL} (pip install -r requirements-webshop.txt); else give a "
            f"title_nouns file with --nouns, or --nouns {APPROXIMATE}, which changes some rewards"
        ) from error

    def nouns(asin: str, title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in tagger(title) if token.pos_ in ("NOUN", "PROPN"))

    return nouns


def prepare(products: Path, instructions: Path, out: Path, nouns: str, human: Path | None = None,
            drop_malformed: bool = False) -> Report:  # fmt: skip
    """Raw files to a prepared folder; returns what was kept and what was not."""
    report = Report()
    people = read_json(human, dict) if human else {}
    made = parse_products(
        stream(products), Packed.read(instructions), people, noun_source(nouns), report, drop_malformed
    )
    try:
        write(made, out, nouns, report)
    except ValueError as error:
        shutil.rmtree(out.with_name(out.name + ".part"), ignore_errors=True)
        named = str(error).startswith(str(products))
        raise error if named else ValueError(f"{products}: {error}") from error
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--generated", type=int, help="so many generated products, instead of raw files")
    parser.add_argument("--products", type=Path, help="items_shuffle*.json")
    parser.add_argument("--instructions", type=Path, help="items_ins_v2*.json")
    parser.add_argument("--human", type=Path, help="items_human_ins.json")
    parser.add_argument("--nouns", default="spacy", help=f"spacy, {APPROXIMATE}, or a title_nouns*.json")
    parser.add_argument("--drop-malformed", action="store_true", help="leave malformed products away")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    args = parser.parse_args()
    if args.generated:
        report = Report(kept=args.generated)
        write(iter(draw_products(args.generated, seed=0)), args.out, "generated", report)
    elif args.products and args.instructions:
        report = prepare(args.products, args.instructions, args.out, args.nouns, args.human, args.drop_malformed)
    else:
        parser.error("give --products and --instructions, or --generated")
    print("\n".join([f"wrote {args.out}", *report.lines()]))


if __name__ == "__main__":
    main()
