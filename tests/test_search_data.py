"""Search: files of questions, their splits, the converter, and how the domain finds its data."""

import json
import subprocess
import sys

import pytest

import envs
from envs.base import SPLITS, panel_hash
from envs.search import data_files
from envs.search.convert import from_flashrag, from_search_r1, parquet_rows, records
from envs.search.questions import divide, kind_of, question_from, read_questions

GOOD = {"id": "q1", "question": " who wrote it ", "golden_answers": ["Mira Volt"], "source": "nq"}


def write(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def test_a_question_by_hand():
    question = question_from(GOOD, "here")
    assert (question.id, question.text, question.golds) == ("nq:q1", "who wrote it?", ("Mira Volt",))
    assert (question.source, question.split, question.kind, question.titles) == ("nq", "test", "direct", ())
    full = GOOD | {"split": "val", "supporting_titles": ["A", "B"], "kind": "multi_hop", "question": "Really?", "id": 7}
    question = question_from(full, "here")
    assert (question.id, question.text, question.kind, question.titles) == ("nq:7", "Really?", "multi_hop", ("A", "B"))


def test_golds():
    assert question_from(GOOD | {"golden_answers": "one"}, "").golds == ("one",)
    assert question_from(GOOD | {"golden_answers": ["the", "x", "!!!", "A"]}, "").golds == ("x",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "needs `question`"),
        ({"question": "  "}, "needs `question`"),
        ({"source": 3}, "needs `source`"),
        ({"source": "../nq"}, "source '../nq' must be letters"),
        ({"id": None}, "needs an `id`"),
        ({"split": "dev2"}, "split 'dev2' is none of"),
        ({"golden_answers": None}, "`golden_answers` must be a text or a list of texts"),
        ({"golden_answers": [1]}, "`golden_answers` must be a text or a list of texts"),
        ({"golden_answers": ["the", "!!!"]}, "no gold answer is left"),
        ({"golden_answers": []}, "no gold answer is left"),
        ({"kind": "hard"}, "kind 'hard' is none of"),
        ({"supporting_titles": "A", "kind": "x"}, "kind 'x'"),
        ({"supporting_titles": [1]}, "`supporting_titles` must be"),
    ],
)
def test_a_broken_question_is_named_by_file_and_line(tmp_path, change, message):
    file = write(tmp_path / "questions.jsonl", [GOOD, GOOD | {"id": "q2"} | change])
    with pytest.raises(ValueError, match=message) as caught:
        read_questions(file)
    assert str(caught.value).startswith(f"{file}, line 2: ")


def test_broken_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none.jsonl"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="holds no question"):
        read_questions(write(tmp_path / "empty.jsonl", []))
    with pytest.raises(ValueError, match=r"line 3: id nq:q1 was used on line 1"):
        read_questions(write(tmp_path / "twice.jsonl", [GOOD, GOOD | {"source": "popqa"}, GOOD]))


@pytest.mark.parametrize(
    ("source", "text", "kind"),
    [
        ("nq", "who is it?", "direct"),
        ("popqa", "What is his job?", "attribute"),
        ("musique", "Who is it?", "multi_hop"),
        ("mine", "Who is it?", "direct"),
        ("hotpotqa", "Which is older, A or B?", "comparison"),
        ("hotpotqa", "Which team, A or B, plays for C?", "multi_hop"),  # "for"
        ("hotpotqa", "In which origin is it?", "multi_hop"),  # "or" is a word, not a part of one
        ("nq", "which one Or that?", "comparison"),
    ],
)
def test_kinds(source, text, kind):
    assert kind_of(source, text) == kind


def questions(*specs):
    return [question_from(GOOD | {"id": i, "source": s, "split": p}, "") for i, (s, p) in enumerate(specs)]


def ids(parts):
    return {split: [question.id for question in part] for split, part in parts.items()}


def test_splits():
    asked = questions(("nq", "train"), ("nq", "val"), ("popqa", "train"), ("popqa", "test"), ("bamboogle", "test"))
    paper = {"train": ["nq:0"], "seen": ["nq:1"], "unseen": ["popqa:2", "popqa:3", "bamboogle:4"]}
    assert ids(divide(asked)) == paper  # nq and hotpotqa, as far as the file has them
    assert ids(divide(asked, ["nq", "popqa"])) == {
        "train": ["nq:0", "popqa:2"], "seen": ["nq:1", "popqa:3"], "unseen": ["bamboogle:4"],
    }  # fmt: skip
    mine = questions(("a", "train"), ("b", "train"), ("b", "test"))
    assert ids(divide(mine)) == {"train": ["a:0", "b:1"], "seen": ["b:2"], "unseen": []}
    with pytest.raises(ValueError, match=r"train_sources: bamboogle has no question in split train \(has: nq, popqa\)"):
        divide(asked, ["bamboogle"])


# ------------------------------------------------------------------------------------------ the domain's data


def test_the_tiny_set_plays(shared, tmp_path, monkeypatch):
    if not (shared / "searchqa").is_dir():
        pytest.skip("no search data")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    search = envs.load("search", data=str(shared / "searchqa" / "tiny"))
    tasks = {split: search.tasks(split) for split in SPLITS}
    assert search.source.endswith("tiny") and sum(map(len, tasks.values())) == 56
    assert {task.topic for task in tasks["train"] + tasks["seen"]} == {"tiny-nq", "tiny-hotpotqa"}
    assert not {task.topic for task in tasks["unseen"]} & {"tiny-nq", "tiny-hotpotqa"}
    assert all(task.id.startswith(f"{task.topic}:") for part in tasks.values() for task in part)
    assert len({panel_hash(part) for part in tasks.values()}) == 3
    from rollout import play

    for split, part in tasks.items():
        assert all(trajectory.won for trajectory in play(search, part, "expert", 0)), split
    floor = [t.won for kind in ("random", "guided") for t in play(search, tasks["unseen"], kind, 0)]
    assert sum(floor) < 0.2 * len(floor)


def test_a_corpus_changes_the_panel(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path / "questions.jsonl", [GOOD | {"split": "train"}])
    hashes = []
    for text in ("one", "two"):
        write(tmp_path / "corpus.jsonl", [{"id": "1", "title": "t", "text": text}])
        hashes.append(panel_hash(envs.load("search", data=str(tmp_path)).tasks("train")))
    hashes.append(panel_hash(envs.load("search", data=str(tmp_path), topk=1).tasks("train")))
    assert len(set(hashes)) == 3
    again = envs.load("search", data=str(tmp_path))
    assert panel_hash(again.tasks("train")) == hashes[1]
    with pytest.raises(ValueError, match=r"split unseen is empty\. train_sources"):
        again.tasks("unseen")


def test_where_data_is_looked_for(tmp_path, monkeypatch):
    assert envs.load("search").source == "generated"
    monkeypatch.setenv("SEARCH_DATA", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError, match=r"none_questions.jsonl: no such file"):
        envs.load("search")
    write(tmp_path / "mini_questions.jsonl", [GOOD])
    with pytest.raises(FileNotFoundError, match=f"questions.jsonl: no such file .*; there is data={tmp_path}/mini"):
        envs.load("search", data=str(tmp_path))
    assert data_files(tmp_path / "mini") == (tmp_path / "mini_questions.jsonl", tmp_path / "mini_corpus.jsonl", "mini")
    with pytest.raises(FileNotFoundError, match=r"mini_corpus.jsonl: no such corpus"):
        envs.load("search", data=str(tmp_path / "mini"))


# ------------------------------------------------------------------------------------------ the converter

ROW = {
    "data_source": "nq",
    "prompt": [{"role": "user", "content": "Answer as in <answer> Beijing </answer>. Question: who wrote it?\n"}],
    "reward_model": {"style": "rule", "ground_truth": {"target": ["Mira Volt", "M. Volt"]}},
    "extra_info": {"split": "train", "index": 0},
}


def test_a_row_of_search_r1_by_hand():
    record = from_search_r1(ROW, "here", "train")
    question = question_from(record, "here")
    assert (question.id, question.text, question.golds) == ("nq:train-0", "who wrote it?", ("Mira Volt", "M. Volt"))
    assert question_from(from_search_r1(ROW | {"question": "why"}, "", "train"), "").text == "why?"
    other = question_from(from_search_r1(ROW | {"data_source": "hotpotqa"}, "", "train"), "")
    assert other.id == "hotpotqa:train-0"  # the same index in two sources is two questions
    with pytest.raises(ValueError, match=r"^here: not a row"):
        from_search_r1(ROW | {"prompt": [{"role": "user", "content": "who wrote it?"}]}, "here", "train")
    for field in ("data_source", "prompt", "reward_model", "extra_info"):
        with pytest.raises(ValueError, match=rf"^here: not a row of Search-R1's question files .*{field}"):
            from_search_r1({key: value for key, value in ROW.items() if key != field}, "here", "train")


def test_a_line_of_flashrag_by_hand(tmp_path):
    line = {"id": "dev_0", "question": "who", "golden_answers": ["x"], "metadata": {"type": "bridge"}}
    assert from_flashrag(line, "musique", "dev") == {
        "id": "dev_0", "question": "who", "golden_answers": ["x"], "source": "musique", "split": "dev",
    }  # fmt: skip
    file = write(tmp_path / "dev.jsonl", [line, line | {"golden_answers": []}])
    with pytest.raises(ValueError, match=r"dev.jsonl, line 2: no gold answer"):
        list(records(file, "musique", "dev"))


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is an extra (requirements-search.txt)")
    import pyarrow

    rows = [ROW | {"data_source": source, "extra_info": {"split": "train", "index": i}}
            for source in ("nq", "hotpotqa") for i in range(3)]  # fmt: skip
    file, out = tmp_path / "train.parquet", tmp_path / "questions.jsonl"
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    command = [sys.executable, "-m", "envs.search.convert", str(file), str(out), "--split", "train"]
    root = envs.__path__[0] + "/.."
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 and "6 questions" in done.stdout, done.stderr
    assert [question.id for question in read_questions(out)] == [
        f"{source}:train-{i}" for source in ("nq", "hotpotqa") for i in range(3)
    ]
    again = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert again.returncode == 1 and "give --append" in again.stderr and "Traceback" not in again.stderr
    file.write_bytes(b"PAR1 nonsense")
    broken = subprocess.run([*command, "--append"], cwd=root, capture_output=True, text=True)
    assert broken.returncode == 1 and "not a parquet file" in broken.stderr and "Traceback" not in broken.stderr
    assert len(read_questions(out)) == 6


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(ValueError, match=r"requirements-search\.txt"):
        list(parquet_rows(tmp_path / "x.parquet"))
    with pytest.raises(FileNotFoundError):
        list(parquet_rows(tmp_path / "y.parquet"))
