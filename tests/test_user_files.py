"""Every file that a user brings, under every kind of fault: it loads whole, or there is one error, of a few lines, that
names the file (and in JSON lines the line). Never another exception, and nothing half-loaded."""

import json
import lzma
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.logs import read_episodes, read_run
from envs.alfworld import games
from envs.search.passages import read_corpus
from envs.search.questions import read_questions
from envs.webshop.catalogue import read_raw
from envs.webshop.prepare import PreparedCatalogue
from policy import load_policy
from settings import parse
from teacher import SkillProvider
from tests import made_results, test_alfworld_engine, test_webshop_files
from tests.toy import toy_policy

Reader = Callable[[], object]  # gives what was read, in a form that can be compared


def skills(folder: Path) -> tuple[Path, Reader]:
    mapping = {"skill_files": {"a": "a.md"}, "task_to_skill": {"say": "a"}, "topics": {"red": "say red"}}
    (folder / "a.md").write_text("say it")
    (folder / "skill_mapping.json").write_text(json.dumps(mapping))
    return folder / "skill_mapping.json", lambda: SkillProvider(folder).fingerprint()


def questions(folder: Path) -> tuple[Path, Reader]:
    file = folder / "questions.jsonl"
    rows = [{"id": i, "question": f"who is {i}?", "golden_answers": [f"p{i}", "x"], "source": "nq", "split": "train",
             "kind": "direct", "supporting_titles": ["T"]} for i in range(4)]  # fmt: skip
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, lambda: read_questions(file)


def corpus(folder: Path) -> tuple[Path, Reader]:
    file = folder / "corpus.jsonl"
    rows = [{"id": str(i), "title": f"T{i}", "text": f"text {i}"} for i in range(4)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file, lambda: list(read_corpus(file))


def played(data: Path) -> list:
    entries = games.find(data)["train"]
    return [(entry.task, entry.trial, entry.game()) for entry in entries]


def game(folder: Path) -> tuple[Path, Reader]:
    file = test_alfworld_engine._file(folder, test_alfworld_engine.GAME)
    return file, lambda: played(folder)


def pack(file: Path, text: bytes) -> None:
    file.write_bytes(lzma.compress(text))


def packed(folder: Path) -> tuple[Path, Reader]:
    file = folder / "all.jsonl.xz"
    head = {"grammar": test_alfworld_engine.GAME["grammar"]}
    rows = [{"split": "train", "task": "pick_clean_then_place_in_recep-Mug-None-Shelf-1", "trial": f"trial_{i}",
             "goal": "clean a mug.", "walkthrough": ["look"], "pddl_problem": test_alfworld_engine.CLEAN}
            for i in range(2)]  # fmt: skip
    pack(file, "".join(json.dumps(row) + "\n" for row in [head, *rows]).encode())
    return file, lambda: played(file)


def shop(folder: Path) -> Path:
    return test_webshop_files.folder_of(folder, [test_webshop_files.raw(f"B{i}") for i in range(3)])


def products(folder: Path) -> tuple[Path, Reader]:
    shop(folder)
    return folder / "items_shuffle.json", lambda: read_raw(folder).products


def instructions(folder: Path) -> tuple[Path, Reader]:
    shop(folder)
    return folder / "items_ins_v2.json", lambda: read_raw(folder).products


def nouns(folder: Path) -> tuple[Path, Reader]:
    shop(folder)
    return folder / "title_nouns.json", lambda: read_raw(folder).products


def prepared(name: str) -> Callable[[Path], tuple[Path, Reader]]:
    def make(folder: Path) -> tuple[Path, Reader]:
        out = folder / "prepared"
        test_webshop_files.prepare_folder(shop(folder), out)

        def read():
            catalogue = PreparedCatalogue(out)
            return [*catalogue], [*catalogue.asked_for()], catalogue.index.search("lamp")

        return out / name, read

    return make


def results(name: str) -> Callable[[Path], tuple[Path, Reader]]:
    def make(folder: Path) -> tuple[Path, Reader]:
        made_results.run(folder / "run")

        def read():
            run = read_run(folder / "run")
            told = [run.notes, read_episodes(folder / "run" / "episodes.jsonl")[1]]
            return ("noted", told) if any(told) else repr(run) + repr(read_episodes(folder / "run" / "episodes.jsonl"))

        return folder / "run" / name, read

    return make


def settings(folder: Path) -> tuple[Path, Reader]:
    file = folder / "settings.json"
    file.write_text(json.dumps({"env": "search", "seed": 3, "eval_temperatures": [0.4], "tva": True, "lr": 0.1}))
    return file, lambda: parse([str(file)])


def yaml(folder: Path) -> tuple[Path, Reader]:
    file = folder / "settings.yaml"
    file.write_text("env: search\nseed: 3\neval_temperatures: [0.4]\n")
    return file, lambda: parse([str(file)])


def model(name: str) -> Callable[[Path], tuple[Path, Reader]]:
    def make(folder: Path) -> tuple[Path, Reader]:
        policy = toy_policy()
        policy.model.save_pretrained(folder)
        policy.tokenizer.save_pretrained(folder)

        def read():
            loaded = load_policy(str(folder))
            weights = {key: value.numpy().tobytes() for key, value in loaded.model.state_dict().items()}
            return weights, loaded.encode("say red"), loaded.end_ids

        return folder / name, read

    return make


KINDS = {
    "skills": skills, "questions": questions, "corpus": corpus, "game": game, "packed games": packed,
    "products": products, "instructions": instructions, "nouns": nouns, "prepared meta": prepared("meta.json"),
    "prepared products": prepared("products.jsonl"), "prepared offsets": prepared("offsets.npy"),
    "config": results("config.json"), "log": results("log.jsonl"), "eval": results("eval.jsonl"),
    "episodes": results("episodes.jsonl"), "settings": settings, "yaml": yaml, "model config": model("config.json"),
    "weights": model("model.safetensors"), "tokenizer": model("tokenizer.json"),
}  # fmt: skip


def damages(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The faults of a whole file, by name."""
    half = len(data) * 2 // 5 + 2
    yield "empty", b""
    yield "cut in half", data[:half]
    yield "cut near its end", data[:-5]
    yield "zeros at its end, as after a power cut", data[:half] + bytes(len(data) - half)
    yield "in UTF-16", data.decode("latin-1").encode("utf-16")
    yield "not UTF-8", data[:half] + b"\xff\xfe" + data[half:]
    yield "random bytes", random.Random(0).randbytes(500)
    yield "a page of a proxy", b"<!DOCTYPE html><html>502 Bad Gateway</html>\n"
    yield "twice", data + data
    for value in ("7", "[]", "{}", "null", '"text"', '{"a": 1}', "[[]]", '[{"step": 1}]', '{"step": -1}', "NaN"):
        yield value, f"{value}\n".encode()
    yield "deeply nested", b"[" * 10**5
    yield "a line of 10 MB", b'{"id": "' + b"x" * 10**7 + b'"}\n'
    yield "a line of 10 MB, cut", b'{"step": 1, "id": "' + b"x" * 10**7


def problem(file: Path, read: Reader, intact: object) -> str:
    """What is wrong with how a file was taken, or "": it may be read as `intact`, or with a note, or be refused."""
    try:
        got = read()
    except (ValueError, OSError) as error:
        told = str(error)
        named = file.name in told or str(file.parent) in told
        return "" if named and len(told) < 2000 else f"an error of {len(told)} characters: {told[:200]}"
    except Exception as error:
        return repr(error)[:300]
    noted = isinstance(got, tuple) and got[0] == "noted"
    return "" if intact is ANYTHING or got == intact or noted else f"half of it was read: {str(got)[:100]}"


ANYTHING = object()
NOT_SEEN = [
    ("weights", "zeros at its end, as after a power cut"),  # a bare model has no checksum
    *(("instructions", name) for name in ("{}", '{"a": 1}', '{"step": -1}', "a line of 10 MB")),  # nothing is asked for
    ("episodes", "twice"), ("episodes", "empty"),  # a group may hold two that are alike; a run may keep none
    ("settings", "{}"), *(("yaml", name) for name in ("{}", "cut in half", "cut near its end")),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_loads_whole_or_is_named(tmp_path, kind):
    file, read = KINDS[kind](tmp_path)
    data, intact, problems = file.read_bytes(), read(), {}
    for name, damaged in damages(data):
        file.write_bytes(damaged)
        unseen = (kind, name) in NOT_SEEN
        problems[name] = problem(file, read, ANYTHING if unseen else intact)
    file.unlink()
    problems["missing"] = problem(file, read, intact)
    file.mkdir()
    problems["a folder"] = problem(file, read, intact)
    file.rmdir()
    file.symlink_to(file)
    problems["a link to itself"] = problem(file, read, intact)
    assert not {name: told for name, told in problems.items() if told}


def leaves(value, path=()) -> Iterator[tuple]:
    """The paths of everything in a JSON value, containers too."""
    yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from leaves(inner, (*path, key))


def put(value, path: tuple, new):
    """A copy of a JSON value with `new` at the path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = put(value[path[0]], path[1:], new)
    return copy


JSON_KINDS = [kind for kind in KINDS if kind not in ("weights", "prepared offsets", "yaml", "tokenizer")]
WRONG = [None, 7, -1, True, "text", "\0\ud800", [], {}, [None], {"a": [3]}, 1e308, "x" * 10**5]


@pytest.mark.parametrize("kind", JSON_KINDS)
def test_a_value_of_a_wrong_type_is_fine_or_named(tmp_path, kind):
    file, read = KINDS[kind](tmp_path)
    data, intact = file.read_bytes(), read()
    text = lzma.decompress(data) if kind == "packed games" else data
    by_line = file.suffix in (".jsonl", ".xz")
    values = [json.loads(line) for line in text.splitlines()] if by_line else [json.loads(text)]
    draw, places = random.Random(kind), [(n, path) for n, value in enumerate(values) for path in leaves(value)]
    problems = {}
    for n, path in draw.sample(places, min(60, len(places))):
        wrong = draw.choice(WRONG)
        changed = [put(value, path, wrong) if k == n else value for k, value in enumerate(values)]
        text = "".join(json.dumps(value) + "\n" for value in changed).encode()
        file.write_bytes(lzma.compress(text) if kind == "packed games" else text)
        problems[n, path, str(wrong)[:20]] = problem(file, read, ANYTHING)
    assert not {place: told for place, told in problems.items() if told}
    file.write_bytes(data)
    assert read() == intact


@pytest.mark.parametrize("kind", ["questions", "corpus", "log", "eval", "episodes", "packed games"])
def test_the_line_is_named(tmp_path, kind):
    file, read = KINDS[kind](tmp_path)
    lines = (lzma.decompress(file.read_bytes()) if kind == "packed games" else file.read_bytes()).splitlines()
    lines[1] = lines[1][: len(lines[1]) // 2]
    text = b"\n".join(lines) + b"\n"
    file.write_bytes(lzma.compress(text) if kind == "packed games" else text)
    with pytest.raises(ValueError, match=rf"{re.escape(file.name)}, line 2\b"):
        read()


def test_repeated_ids_are_named(tmp_path):
    for kind, line in (("questions", 5), ("corpus", 5), ("packed games", 4)):
        (tmp_path / kind).mkdir()
        file, read = KINDS[kind](tmp_path / kind)
        text = lzma.decompress(file.read_bytes()) if kind == "packed games" else file.read_bytes()
        text += text.splitlines(keepends=True)[1]
        file.write_bytes(lzma.compress(text) if kind == "packed games" else text)
        with pytest.raises(ValueError, match=rf"{re.escape(file.name)}, line {line}\b"):
            read()
    folder = tmp_path / "skills"
    folder.mkdir()
    file, read = skills(folder)
    file.write_text(file.read_text().replace('"say": "a"', '"say": "a", "say": "a"'))
    with pytest.raises(ValueError, match=r"skill_mapping.json.*'say' stands twice"):
        read()


def test_a_text_of_skills_is_there_and_text(tmp_path):
    _, read = skills(tmp_path)
    for broken, told in ((b"", "a.md: empty"), (b" \n", "a.md: empty"), (b"\xff\xfe", "a.md: not UTF-8")):
        (tmp_path / "a.md").write_bytes(broken)
        with pytest.raises(ValueError, match=told):
            read()
