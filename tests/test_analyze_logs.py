"""Reading logs: ours and verl's, whole, cut and broken."""

import json

import numpy as np
import pytest

from analysis.foreign import episodes, infer, read_foreign, read_runs
from analysis.logs import LogError, read_episodes, read_eval, read_log, read_run
from tests.made_results import episode, evaluation, run


def write(path, *lines, end="\n"):
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("\n".join(texts).encode("utf-8", "surrogatepass") + end.encode())
    return path


def test_log_is_sorted_renamed_and_finite(tmp_path):
    path = write(tmp_path / "a.jsonl", {"step": 2, "timing_s/gen": 3, "actor/kl_loss": 0.5}, "", {"step": 1, "x": True})
    rows, notes = read_log(path)
    assert rows == [{"step": 1, "x": True}, {"step": 2, "time/rollout_s": 3, "actor/kl_loss": 0.5}]
    assert notes == []


def test_what_is_not_finite_is_left_out_and_named(tmp_path):
    path = write(
        tmp_path / "a.jsonl", '{"step": 1, "kl": NaN, "h": 1}', '{"step": 2, "kl": -Infinity, "h": null}',
        '{"step": 3, "kl": 1e999, "h": 1' + "0" * 400 + "}",
    )  # fmt: skip
    rows, notes = read_log(path)
    assert rows == [{"step": 1, "h": 1}, {"step": 2}, {"step": 3}]
    assert [note.split("a.jsonl, ")[1] for note in notes] == [
        "line 2: h is not a finite number (so in 2 lines); left out",
        "line 1: kl is not a finite number (so in 3 lines); left out",
    ]


def test_missing_final_newline_is_no_fault_but_a_cut_line_is_said(tmp_path):
    whole = write(tmp_path / "a.jsonl", {"step": 1}, {"step": 2}, end="")
    assert read_log(whole) == ([{"step": 1}, {"step": 2}], [])
    cut = write(tmp_path / "b.jsonl", {"step": 1}, '{"step": 2, "x', end="")
    rows, notes = read_log(cut)
    assert rows == [{"step": 1}]
    assert notes == [f"{cut}, line 2: cut off while being written; left out"]


@pytest.mark.parametrize(
    "line, said",
    [
        ('{"step": 2, "x', "not JSON"),
        ("[1, 2]", "a list, where one JSON object is needed"),
        ("7", "a int, where one JSON object is needed"),
        ("[" * 100_000, "not JSON"),
        ('{"x": 1}', "'step' is None, a whole number from 0 is needed"),
        ('{"step": "3"}', "'step' is 3, a whole number"),
        ('{"step": 1.5}', "'step' is 1.5"),
        ('{"step": -1}', "'step' is -1"),
        ('{"step": true}', "'step' is True"),
        ('{"step": NaN}', "'step' is nan"),
        ('{"step": 1, "actor/kl_loss": "high"}', "actor/kl_loss is 'high', a number is needed"),
        ('{"step": 1, "val/success_rate": 84.4}', "val/success_rate is 84.4, a rate from 0 to 1 is needed"),
        ('{"step": 1, "val/heat_success_rate": -0.1}', "a rate from 0 to 1"),
    ],
)
def test_a_bad_line_names_file_and_line(tmp_path, line, said):
    path = write(tmp_path / "a.jsonl", {"step": 0}, line, {"step": 9})
    with pytest.raises(LogError, match=r"a\.jsonl, line 2: ") as error:
        read_log(path)
    assert said in str(error.value)
    assert len(str(error.value)) < 400


def test_bytes_that_are_no_text_name_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 0}\n\xff\xfe\n{"step": 1}\n')
    with pytest.raises(LogError, match=r"a\.jsonl, line 2: not JSON"):
        read_log(path)


def test_empty_and_absent_files(tmp_path):
    assert read_log(write(tmp_path / "a.jsonl", end="")) == ([], [])
    with pytest.raises(LogError, match="no whole log line"):
        read_foreign(tmp_path / "a.jsonl")
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "b.jsonl")
    with pytest.raises(FileNotFoundError, match="no such folder of logs"):
        read_runs(tmp_path / "c")


def test_a_resumed_run_counts_its_later_line(tmp_path):
    path = write(tmp_path / "a.jsonl", {"step": 1, "x": 1}, {"step": 2, "x": 2}, {"step": 1, "x": 3})
    rows, notes = read_log(path)
    assert rows == [{"step": 1, "x": 3}, {"step": 2, "x": 2}]
    assert notes == [f"{path}, line 3: step 1 is logged again; the later line counts"]


def test_a_line_of_ten_megabytes(tmp_path):
    path = write(tmp_path / "a.jsonl", {"step": 1, "val/success_rate": 0.5} | {f"{i:060}": i for i in range(150_000)})
    assert path.stat().st_size > 10_000_000
    rows, _ = read_log(path)
    assert len(rows[0]) == 150_002


def test_our_run(tmp_path):
    folder = run(tmp_path / "main" / "adrs-s3", seed=3, tva=True, n=12)
    got = read_run(folder)
    assert (got.table, got.name, got.last, got.partial, got.notes) == ("main", "main/adrs-s3", 20, "", [])
    assert [(e.step, e.temperature, e.n) for e in got.on_panel()] == [(s, 0.4, 12) for s in (0, 5, 10, 15, 20)]
    assert len(got.on_panel(1.0)) == 5 and got.on_panel(0.7) == []
    final = got.on_panel()[-1]
    assert final.success == pytest.approx(final.outcomes.mean())
    kinds = np.array(final.types)
    assert final.by_type["heat"] == pytest.approx(final.outcomes[kinds == "heat"].mean())
    steps, seconds = got.series("time/teacher_s")  # timing.jsonl joins log.jsonl
    assert steps.tolist() == list(range(1, 21)) and set(seconds) == {0.2}


def test_checkpoints_are_no_runs_and_a_model_is_its_folder_s_name(tmp_path):
    folder = run(tmp_path / "main" / "a", model="/somewhere/models/tiny-alfworld")
    (folder / "checkpoint-20").mkdir()
    (folder / "checkpoint-20" / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / "tables").mkdir()
    (got,) = read_runs(tmp_path)
    assert got.path == folder and got.settings["model"] == "tiny-alfworld"


def test_a_run_that_stopped_says_so(tmp_path):
    got = read_run(run(tmp_path / "main" / "a", last=12))
    assert got.partial == "main/a is partial: step 12 of 20"
    assert [e.step for e in got.on_panel()] == [0, 5, 10]


def test_a_run_without_its_logs_is_noted_and_without_its_config_refused(tmp_path):
    folder = tmp_path / "main" / "a"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"settings": {"env": "alfworld", "steps": 5}}')
    assert read_run(folder).notes == [f"{folder}: no log.jsonl yet", f"{folder}: no eval.jsonl yet"]
    for text in ("", "[]", '{"settings": 3}', "{}"):
        (folder / "config.json").write_text(text)
        with pytest.raises(LogError, match=r"config\.json: not the config of a run"):
            read_run(folder)


EVAL = evaluation(np.random.default_rng(0), "webshop", 5, 0.4, 0.5, 4, "ab")


@pytest.mark.parametrize(
    "change, said",
    [
        ({"panel_hash": ...}, "no panel_hash"),
        ({"n": 5}, "4 outcomes for a panel of 5 tasks"),
        ({"n": 0}, "n is 0"),
        ({"success": 1.5}, "success is 1.5"),
        ({"success": "x"}, "success is x"),
        ({"outcomes": "1111", "success": 0.5}, "its outcomes say 1.0000"),
        ({"outcomes": "01x1"}, "must be a string of 0 and 1"),
        ({"outcomes": {"a": 1}}, "must be a string of 0 and 1"),
        ({"scores": [0.1, 0.2, 0.3, 7]}, "scores must be"),
        ({"scores": [0.1, None, 0.3, 0.4]}, "scores must be"),
        ({"types": ["a"]}, "1 types for a panel of 4 tasks"),
    ],
)
def test_an_evaluation_that_contradicts_itself(tmp_path, change, said):
    line = {key: value for key, value in (EVAL | change).items() if value is not ...}
    with pytest.raises(LogError, match=r"eval\.jsonl, line 2: ") as error:
        read_eval(write(tmp_path / "eval.jsonl", EVAL, line))
    assert said in str(error.value)


def test_sources_name_the_types_of_questions(tmp_path):
    line = evaluation(np.random.default_rng(0), "search", 5, 0.4, 0.5, 6, "ab")
    (got,), _ = read_eval(write(tmp_path / "eval.jsonl", line))
    assert sorted(got.by_type) == ["bamboogle", "hotpotqa", "nq"]


def test_episodes(tmp_path):
    good = episode(np.random.default_rng(0), 5, "fresh")
    path = write(tmp_path / "episodes.jsonl", good)
    assert read_episodes(path)[0] == [good]
    for key, value, said in (
        ("adv", [1.0], "turn 1: 1 adv for 16 tokens"),
        ("teacher_logp", "no", "needs a list 'tokens'"),
        ("tokens", None, "needs a list 'tokens'"),
        ("adv", [float("nan")] * 16, "adv holds 'nan', a number is needed"),
        ("gate", ["x"] * 16, "gate holds 'x'"),
        ("tokens", [3] * 16, "tokens holds '3', a text is needed"),
    ):
        bad = json.loads(json.dumps(good))
        bad["turns"][1][key] = value
        with pytest.raises(LogError, match=r"episodes\.jsonl, line 2") as error:
            read_episodes(write(tmp_path / "episodes.jsonl", good, bad))
        assert said in str(error.value)


def test_foreign_settings_come_from_metrics_first(tmp_path):
    rows = [{"step": 1, "star/eta": 0.1, "star/tva_level": 3, "tva/gate_mean": 0.5, "episode/length/max": 14.0,
             "val/webshop_task_score": 0.1}]  # fmt: skip
    settings, notes = infer(tmp_path / "grpo_alfworld_7b.jsonl", rows)
    assert settings == {"env": "webshop", "method": "adrs", "backbone": "gigpo", "tva": True,
                        "model": "Qwen2.5-7B-Instruct", "max_turns": 14, "fraction": 1.0,
                        "eval_split": "seen"}  # fmt: skip
    assert notes == []


def test_foreign_settings_that_nothing_tells_are_noted(tmp_path):
    settings, notes = infer(tmp_path / "run.jsonl", [{"step": 1}])
    assert (settings["env"], settings["method"], settings["model"]) == ("unknown", "none", "Qwen2.5-3B-Instruct")
    assert [note.split(": ", 1)[1] for note in notes] == [
        "neither its metrics nor its name tell the environment",
        "neither its metrics nor its name tell the method: taken as plain GRPO",
        "no model in its name: taken as Qwen2.5-3B-Instruct",
    ]


def test_each_environment_is_known_by_any_of_its_types(tmp_path):
    for metric, env in (
        ("val/pick_heat_then_place_in_recep_success_rate", "alfworld"), ("episode/look_at_obj_in_light_x", "alfworld"),
        ("episode/nq_success_rate", "search"), ("val/bamboogle/test_score", "search"), ("val/score", "webshop"),
    ):  # fmt: skip
        assert infer(tmp_path / "run.jsonl", [{"step": 1, metric: 0.5}])[0]["env"] == env
    assert infer(tmp_path / "adrs_unseen.jsonl", [{"step": 1}])[0]["eval_split"] == "unseen"


def test_number_of_episodes_follows_from_the_rates():
    assert episodes([0.84375, 0.75, 0.945312], "alfworld") == 128
    assert episodes([0.5, 0.1], "alfworld") == 10  # not 128ths: the smallest that fits
    assert episodes([round(k / 134, 6) for k in (3, 67, 133)], "alfworld") == 134
    assert episodes([0.785398], "webshop") is None  # 355/452 would fit, by chance
    assert episodes([0.785398, 0.1, 0.2], "webshop") is None
    assert episodes([0.4], "search") == 51713


def test_the_authors_logs(shared):
    runs = {read.name: read for read in read_runs(shared / "paper" / "logs")}
    assert len(runs) == 21
    got = {name: read.settings for name, read in runs.items()}
    assert got["table2/q3_search"]["model"] == "Qwen3-1.7B" and got["table2/q3_search"]["env"] == "search"
    assert got["curves_300step/sdar_alfworld"]["method"] == "sdar"
    assert got["curves_300step/gigpo_alfworld"]["backbone"] == "gigpo"
    assert not got["curves_300step/adrs_notva_webshop"]["tva"] and got["table2/3b_webshop"]["tva"]
    assert got["data_fraction/frac20_ent"]["fraction"] == 0.2
    assert {read.settings["max_turns"] for read in runs.values() if read.settings["env"] == "alfworld"} == {50}
    assert {read.evals[-1].n for read in runs.values()} == {128, 51713}
    assert runs["curves_300step/grpo_alfworld"].evals[30].success == 0.84375


def test_a_run_with_fewer_turns_is_known_by_its_longest_episode(shared, tmp_path):
    lines = (shared / "paper/logs/curves_300step/sdar_alfworld.jsonl").read_text().splitlines()[:61]
    short = [json.loads(line) for line in lines]
    for row in short:
        row.update({"episode/length/max": 15.0} if "episode/length/max" in row else {})
    got = read_foreign(write(tmp_path / "sdar_ms.jsonl", *short))
    assert (got.settings["max_turns"], got.table, got.last) == (15, "horizon", 60)
