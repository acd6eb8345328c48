"""WebShop's files: malformed, truncated, repeated products are named; a prepared folder is the raw one, or refused."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import envs
from envs.base import panel_hash
from envs.webshop import prepare as prepared
from envs.webshop.catalogue import read_raw
from envs.webshop.generate import draw_products
from envs.webshop.prepare import APPROXIMATE, PreparedCatalogue, approximate_nouns, noun_source, prepare, stream, write


def raw(asin: str, **changes) -> dict:
    return {
        "asin": asin, "name": f"Lamp {asin}", "full_description": "It glows.", "small_description": ["Warm light."],
        "pricing": "$10.5", "category": "garden", "query": " Lamps ", "product_category": "Home › Lamps",
        "customization_options": {"Color": [{"value": " Red/Blue "}], "Size": None},
    } | changes  # fmt: skip


def folder_of(path: Path, products: list, instructions: dict | None = None, nouns: dict | None = None) -> Path:
    path.mkdir(exist_ok=True)
    asked = {"attributes": ["warm light"], "instruction": "Find me lamps", "instruction_attributes": ["warm light"]}
    asins = [product["asin"] for product in products if isinstance(product, dict) and "asin" in product]
    instructions = instructions if instructions is not None else {str(asin): asked for asin in asins}
    nouns = nouns if nouns is not None else {str(asin): ["lamp"] for asin in asins}
    (path / "items_shuffle.json").write_text(json.dumps(products))
    (path / "items_ins_v2.json").write_text(json.dumps(instructions))
    (path / "title_nouns.json").write_text(json.dumps(nouns))
    return path


def prepare_folder(folder: Path, out: Path, **options):
    nouns = options.pop("nouns", str(folder / "title_nouns.json"))
    return prepare(folder / "items_shuffle.json", folder / "items_ins_v2.json", out, nouns, **options)


def test_a_raw_product_by_hand(tmp_path):
    catalogue = read_raw(folder_of(tmp_path / "raw", [raw("B1"), raw("B2", small_description="One text.")]))
    product = catalogue[0]
    assert product.options == {"color": ("red | blue",)} and product.query == "lamps"
    assert (product.prices, product.price_tag) == ((10.5,), "$10.5")
    assert product.search_text() == "lamp b1 it glows. warm light. color: red | blue"
    assert catalogue[1].bullets == ("One text.",)


def test_products_without_an_instruction_entry(tmp_path):
    product = read_raw(folder_of(tmp_path / "raw", [raw("B1")], instructions={}))[0]
    assert product.attributes == ("DUMMY_ATTR",) and product.instruction == ""


def test_repeated_and_unusable_products_are_counted(tmp_path, capsys):
    many = [raw(asin) for asin in ("B1", "B1", "nan", "B2", *["B1"] * 6, "TOOLONGASIN")]
    folder = folder_of(tmp_path / "raw", many)
    report = read_raw(folder).report
    assert report.kept == 2 and report.counts == {"repeated": 7, "without a usable asin": 2}
    assert report.lines()[1] == "7 repeated: #1 B1, #4 B1, #5 B1, #6 B1, #7 B1, ..."
    envs.load("webshop", data=str(folder))
    assert "7 repeated" in capsys.readouterr().err
    assert prepare_folder(folder, tmp_path / "out").counts == report.counts


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (raw("B9", name=7), "name is no text"),
        (raw("B9", small_description={"a": 1}), "small_description"),
        (raw("B9", pricing=9.5), "pricing is no text"),
        (raw("B9", pricing="free"), "price"),
        (raw("B9", pricing="$ten"), "could not convert"),
        (raw("B9", customization_options=[1]), "customization_options"),
        (raw("B9", customization_options={"size": [{"worth": "9"}]}), "option 'size'"),
        ({"name": "no asin"}, "no asin"),
        (["a list"], "no asin"),
        (raw(12345), "no asin"),
    ],
)
def test_malformed_products_are_named(tmp_path, bad, message):
    folder = folder_of(tmp_path / "raw", [raw("B1"), bad, raw("B2")])
    for read in (lambda: read_raw(folder), lambda: prepare_folder(folder, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"items_shuffle.json.*1 malformed.*#1") as error:
            read()
        assert message in str(error.value)
    assert not list(tmp_path.glob("out*"))
    report = prepare_folder(folder, tmp_path / "out", drop_malformed=True)
    assert report.kept == 2 and sum(report.counts.values()) == 1


def test_an_instruction_without_its_parts_is_malformed(tmp_path):
    folder = folder_of(tmp_path / "raw", [raw("B1")], instructions={"B1": {"instruction": "x"}})
    with pytest.raises(ValueError, match=r"#0 B1"):
        read_raw(folder)


def test_missing_nouns_are_named(tmp_path):
    folder = folder_of(tmp_path / "raw", [raw("B1"), raw("B2")], nouns={"B1": ["lamp"]})
    with pytest.raises(ValueError, match=r"title nouns are not in title_nouns.json.*#1 B2"):
        read_raw(folder)
    (folder / "title_nouns.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"envs.webshop.prepare"):
        read_raw(folder)


@pytest.mark.parametrize("cut", [1, 60, 5000])
def test_truncated_files_are_named(tmp_path, cut):
    folder = folder_of(tmp_path / "raw", [raw(f"B{i}") for i in range(40)])
    file = folder / "items_shuffle.json"
    whole = file.read_text()
    file.write_text(whole[:-cut])
    with pytest.raises(ValueError, match=r"items_shuffle.json: broken or truncated JSON"):
        read_raw(folder)
    with pytest.raises(ValueError, match=r"items_shuffle.json: broken or truncated JSON behind product \d+"):
        prepare_folder(folder, tmp_path / "out")
    file.write_text(whole)
    (folder / "items_ins_v2.json").write_text('{"B1": {"attri')
    for read in (lambda: read_raw(folder), lambda: prepare_folder(folder, tmp_path / "out")):
        with pytest.raises(ValueError, match=r"items_ins_v2.json: broken or truncated"):
            read()
    assert not list(tmp_path.glob("out*"))


def test_wrong_top_levels_and_folders(tmp_path):
    folder = folder_of(tmp_path / "raw", [raw("B1")])
    (folder / "items_shuffle.json").write_text("{}")
    with pytest.raises(ValueError, match="expected a list"):
        read_raw(folder)
    with pytest.raises(ValueError, match="no products"):
        prepare_folder(folder, tmp_path / "out")
    (folder / "items_shuffle_1000.json").write_text("[]")
    with pytest.raises(ValueError, match=r"several files items_shuffle\*.json"):
        read_raw(folder)
    with pytest.raises(FileNotFoundError, match=r"no file items_shuffle\*.json"):
        read_raw(tmp_path)


def test_the_stream_is_the_list(tmp_path):
    products = [raw(f"B{i}") for i in range(30)]
    file = tmp_path / "items.json"
    file.write_text(json.dumps(products))
    assert list(stream(file)) == products


# ---------------------------------------------------------------------------------------------------------- prepared


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """120 generated products as raw files would give them, prepared."""
    out = tmp_path_factory.mktemp("webshop") / "prepared"
    products = draw_products(120, seed=1)
    write(iter(products), out, "generated", prepared.Report(kept=120))
    return products, out


def test_a_prepared_folder_is_its_products(made):
    products, out = made
    catalogue = PreparedCatalogue(out)
    assert list(catalogue) == products and len(catalogue) == 120
    assert list(catalogue.prices) == [product.prices for product in products]
    assert list(catalogue.asked_for()) == [(i, one) for i, one in enumerate(products) if one.instruction]
    assert isinstance(catalogue.index.docs.base, np.memmap)
    assert not catalogue.index.docs.flags.writeable
    copy = pickle.loads(pickle.dumps(catalogue))
    assert copy[5] == products[5] and copy.index.search("shampoo") == catalogue.index.search("shampoo")


def test_raw_and_prepared_give_one_panel(shared, tmp_path):
    folder, out = shared / "webshop", tmp_path / "out"
    prepare(
        folder / "items_shuffle_1000.json", folder / "items_ins_v2_1000.json", out,
        str(folder / "title_nouns_sm380.json"), folder / "items_human_ins.json",
    )  # fmt: skip
    ours, theirs = (envs.load("webshop", data=str(path)) for path in (out, folder))
    assert panel_hash(ours.tasks("unseen")) == panel_hash(theirs.tasks("unseen"))
    for query in ("red shoes for women", "hdmi cable", "the of"):
        assert ours.catalogue.index.search(query) == theirs.catalogue.index.search(query)


def damage_counts(folder):
    offsets = np.load(folder / "offsets.npy")
    np.save(folder / "offsets.npy", offsets[:-1])


def damage_index(folder):
    other = folder.with_name("other")
    write(iter(draw_products(90, seed=2)), other, "generated", prepared.Report(kept=90))
    for name in ("terms.json", "index.json", "start.npy", "docs.npy", "impact.npy", "peak.npy", "rank.npy"):
        (other / name).rename(folder / name)


def damage_same_size(folder):
    other = folder.with_name("same")
    write(iter(draw_products(120, seed=3)), other, "generated", prepared.Report(kept=120))
    for name in ("terms.json", "index.json", "start.npy", "docs.npy", "impact.npy", "peak.npy", "rank.npy"):
        (other / name).rename(folder / name)


def damage_products(folder):
    file = folder / "products.jsonl"
    file.write_bytes(file.read_bytes()[:-20])


def damage_postings(folder):
    np.save(folder / "docs.npy", np.load(folder / "docs.npy")[:-1])


def damage_version(folder):
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"version": 0}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_counts, "disagree"),
        (damage_index, "disagree"),
        (damage_same_size, "disagree"),
        (damage_products, "bytes, expected"),
        (damage_postings, "do not fit together"),
        (damage_version, "another version"),
    ],
)
def test_products_and_index_that_disagree_are_refused(tmp_path, damage, message):
    folder = tmp_path / "prepared"
    write(iter(draw_products(120, seed=1)), folder, "generated", prepared.Report(kept=120))
    PreparedCatalogue(folder)
    damage(folder)
    with pytest.raises(ValueError, match=message) as error:
        envs.load("webshop", data=str(folder))
    assert str(tmp_path) in str(error.value)


def test_an_existing_folder_is_kept(made):
    products, out = made
    with pytest.raises(FileExistsError, match="remove it"):
        write(iter(products), out, "generated", prepared.Report())


def test_title_nouns(tmp_path, monkeypatch):
    assert approximate_nouns("B1", "The Desk Lamp with USB-C, 2 Pack") == ("desk", "lamp", "usb-c", "pack")
    assert noun_source(APPROXIMATE) is approximate_nouns
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ImportError, match=r"requirements-webshop.txt.*--nouns approximate"):
        noun_source("spacy")
    folder, out = folder_of(tmp_path / "raw", [raw("B1")]), tmp_path / "out"
    prepare_folder(folder, out, nouns=APPROXIMATE)
    assert "approximate" in envs.load("webshop", data=str(out)).source
    with pytest.raises(ValueError, match="approximate, which parity"):
        envs.load("webshop", data=str(out), mode="parity")


def test_command_line(tmp_path):
    folder, out = folder_of(tmp_path / "raw", [raw("B1"), raw("B1")]), tmp_path / "out"
    run = [sys.executable, "-m", "envs.webshop.prepare", "--out", str(out)]
    root = Path(__file__).parent.parent
    files = ["--products", str(folder / "items_shuffle.json"), "--instructions", str(folder / "items_ins_v2.json")]
    done = subprocess.run([*run, *files, "--nouns", APPROXIMATE], cwd=root, capture_output=True, text=True, check=True)
    assert "1 products" in done.stdout and "1 repeated: #1 B1" in done.stdout and "100%" in done.stderr
    wrong = subprocess.run(run, cwd=root, capture_output=True, text=True, check=False)
    assert wrong.returncode == 2 and "--generated" in wrong.stderr


@pytest.mark.slow
def test_a_hundred_thousand_products(tmp_path):
    """Load in under 3 s and search in under 5 ms (webshop.md 5)."""
    out = tmp_path / "large"
    write(iter(draw_products(100_000, seed=0)), out, "generated", prepared.Report(kept=100_000))
    code = (
        "import sys, time; from pathlib import Path; from envs.webshop.prepare import PreparedCatalogue\n"
        "t = time.process_time(); c = PreparedCatalogue(Path(sys.argv[1])); load = time.process_time() - t\n"
        "goals = [c[i].title + ' ' + c[i].instruction for i in range(0, 100_000, 250)]\n"
        "t = time.process_time(); [c.index.search(g) for g in goals]\n"
        "print(load, (time.process_time() - t) / len(goals))"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=root, capture_output=True, text=True, check=True)
    load, search = map(float, done.stdout.split())
    assert load < 3 and search < 0.005
