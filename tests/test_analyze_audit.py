"""The audit finds in the authors' logs what method.md 0, 1.8, 1.9 and 5.4 say is there; and survives other logs."""

import json
import shutil

import numpy as np
import pytest

from analysis import audit, health, qa
from analysis.findings import findings
from analysis.foreign import read_foreign, read_runs
from analysis.forensics import composition, distances, lattice, misfits, on_lattice, residual
from analysis.paper import read_table2
from analysis.stats import Measure


@pytest.fixture(scope="module")
def authors(shared):
    return read_runs(shared / "paper" / "logs")


@pytest.fixture(scope="module")
def paper(shared):
    return read_table2(shared / "paper" / "table2.csv")


@pytest.fixture(scope="module")
def cells(authors, paper):
    table = audit.cells(authors, paper)
    return {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}


def near(cell, value):
    """A cell shows a value that was written down with one decimal."""
    return abs(float(str(cell).split()[0]) - value) <= 0.11


def test_grpo_s_own_log_is_not_the_printed_number(cells):
    row = cells["curves_300step/grpo_alfworld"]
    assert str(row["log"]) == "84.4 [77.1, 89.7] (108/128, 1 run)"
    assert (row["printed"], row["log − printed"], row["step"]) == ("75.0", "+9.4", "150")
    assert row["whole row found at"] == "none"


# method.md 1.8: run, at 150, best up to 150, last-3 at 150, at the end, best, last-3
CURVES = [
    ("curves_300step/grpo_alfworld", 84.4, "84.4 @150", 82.5, 86.7, "92.2 @225", 86.2),
    ("curves_300step/sdar_alfworld", 75.8, "78.9 @130", 74.5, 84.4, "89.8 @265", 85.7),
    ("curves_300step/gigpo_alfworld", 82.8, "86.7 @125", 83.3, 91.4, "96.9 @240", 93.0),
    ("table2/3b_alfworld", 94.5, "94.5 @150", 90.3, 89.8, "96.1 @220", 90.6),
    ("curves_300step/adrs_alfworld", 88.3, "88.3 @150", 85.9, 87.5, "93.8 @255", 88.0),
]


@pytest.mark.parametrize("name, at, best, last3, end, best_all, last3_all", CURVES)
def test_150_against_300_steps(cells, name, at, best, last3, end, best_all, last3_all):
    row = cells[name]
    assert near(row["log"], at) and near(row["last-3 to 150"], last3)
    assert near(row["at the end"], end) and near(row["last-3"], last3_all)
    assert (row["best to 150"], row["best"], row["end"]) == (best, best_all, "300")


# method.md 1.8 and 1.9: run, printed, final at 150, last-3, where the printed number is from
CHECKPOINTS = [
    ("data_fraction/frac20", "57.8", 40.6, 45.0, "none"),
    ("data_fraction/frac20_ent", "57.8", 50.0, 50.3, "125"),
    ("data_fraction/frac40", "62.5", 60.9, 61.4, "90, 135"),
    ("data_fraction/frac60", "78.1", 66.4, 72.6, "140"),
    ("data_fraction/frac80", "80.5", 80.5, 77.6, "140, 150"),
    ("table2/7b_webshop", "79.7", 75.8, None, "120"),
    ("table2/q3_alfworld", "62.5", 60.9, None, "125"),
    ("table2/3b_alfworld", "94.5", 94.5, 90.3, "150"),
    ("table2/3b_webshop", "76.6", 76.6, 69.8, "150"),
    ("table2/q3_webshop", "65.6", 65.6, None, "150"),
    ("table2/q3_search", "42.9", 42.9, None, "150"),
]


@pytest.mark.parametrize("name, printed, final, last3, found", CHECKPOINTS)
def test_which_checkpoint_a_printed_number_is(cells, name, printed, final, last3, found):
    row = cells[name]
    assert row["printed"] == printed and near(row["log"], final) and row["whole row found at"] == found
    assert last3 is None or near(row["last-3 to 150"], last3)


def test_the_gain_over_grpo(authors, paper):
    said = "\n".join(findings(authors, paper))
    assert "gain of ADRS over GRPO is +19.5 (94.5 over 75.0)" in said
    assert "over the authors' own GRPO log (84.4 at step 150) it is +10.1." in said


def test_pairs_are_judged(authors, paper):
    rows = {row[:2]: row for row in audit.pairs(authors, paper).rows}
    own = rows["ADRS+TVA (table2/3b_alfworld)", "GRPO (curves_300step/grpo_alfworld)"]
    assert str(own[6]) == "10.2 [2.6, 18.0]" and own[7] == "0.0134" and own[9] == "within noise"
    printed = rows["ADRS+TVA (table2/3b_alfworld)", "GRPO as printed"]
    assert printed[9] == "differs"
    assert rows["SDAR (curves_300step/sdar_alfworld)", "GRPO (curves_300step/grpo_alfworld)"][6].value < 0
    assert not any(one == other for one, other in rows)


def test_question_averages(paper):
    row = {method: paper["Qwen2.5-3B-Instruct", method] for method in ("GRPO", "ADRS", "SDAR")}
    assert qa.macro(row["ADRS"]) == pytest.approx(44.1, abs=0.05) and row["ADRS"]["qa_avg"] == 45.0
    assert qa.macro(row["GRPO"]) == pytest.approx(36.4, abs=0.05)
    assert qa.on_batch_footing(row["GRPO"]) == pytest.approx(41.7, abs=0.05)
    assert qa.on_batch_footing(paper["Qwen2.5-7B-Instruct", "GRPO"]) == pytest.approx(46.5, abs=0.05)
    assert qa.on_batch_footing(row["ADRS"]) == pytest.approx(qa.macro(row["ADRS"]))
    assert qa.micro(dict.fromkeys(row["ADRS"], 0.0) | {"popqa": 100.0}) == pytest.approx(100 * 14267 / 51713)


def test_bamboogle_is_put_back_into_questions(paper):
    assert qa.footing(26.4) == ("x", pytest.approx(26.4))  # 33 of 125
    assert qa.footing(64.9) == ("(x + 100) / 2", pytest.approx(100 * 38 / 125))  # 37 of 124, and the lone one
    assert qa.footing(12.5) == ("(x + 0) / 2", pytest.approx(100 * 31 / 125))
    skills = paper["Qwen2.5-7B-Instruct", "Skill-GRPO"], paper["Qwen2.5-7B-Instruct", "Skill-GRPO*"]
    assert [qa.footing(row["bamboogle"])[0] for row in skills] == ["(x + 0) / 2", "(x + 100) / 2"]  # 50 apart
    assert all(qa.footing(row["bamboogle"]) for row in paper.values())
    assert qa.footing(49.7) is None


def test_like_for_like_gains_on_questions(paper):
    rows = {row[0]: row[1:] for row in qa.like_for_like(paper).rows}
    as_printed, same_footing = ({model: row[i] for model, row in rows.items()} for i in (0, 3))
    assert list(as_printed.values()) == ["+8.6", "+6.2", "+2.1"]
    assert list(same_footing.values()) == ["+2.4", "+1.2", "+1.4"]


def test_what_the_printed_average_is(authors, paper):
    said = {row[:2]: row[5] for row in qa.averages(authors, paper).rows}
    assert {key for key, kind in said.items() if kind != "macro"} == {(model, "ADRS") for model, _ in paper}
    assert said["Qwen2.5-3B-Instruct", "ADRS"] == "success over all questions"


def test_test_scores_of_search(authors):
    rows = {row[0]: row for row in qa.scores(authors).rows}
    expected = {"table2/3b_search": ("29.7", "38.7"), "table2/7b_search": ("39.5", "42.2"),
                "table2/q3_search": ("30.6", "35.0")}  # fmt: skip
    assert {name: row[-2:] for name, row in rows.items()} == expected


def test_the_teacher_s_share(authors):
    shares = [float(row[-2]) for row in health.cost(authors).rows if row[-2] != "–"]
    assert len(shares) == 18 and (min(shares), max(shares)) == pytest.approx((8.0, 16.5), abs=0.1)
    seconds = {row[0]: row for row in health.cost(authors).rows}
    assert seconds["curves_300step/grpo_alfworld"][2:5] == ("300", "40", "192")  # method.md 4: 300 s, rollout 192
    assert seconds["table2/3b_alfworld"][8] == "28.6"


def test_entropy_and_kl(authors):
    table = health.training(authors)
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    loud = {name for name, row in rows.items() if row["entropy"] == "explodes"}
    assert loud == {"curves_300step/adrs_alfworld", "curves_300step/adrs_notva_webshop", "table2/3b_alfworld",
                    "table2/7b_alfworld", "data_fraction/frac20_ent", "data_fraction/frac80_ent"}  # fmt: skip
    headline, grpo = rows["table2/3b_alfworld"], rows["curves_300step/grpo_alfworld"]
    assert (headline["entropy at first"], headline["at step 20"]) == ("0.96", "4.05")
    assert float(grpo["KL to 150"]) < 0.2 < 1.0 < float(headline["KL to 150"])


# method.md 1.9: the share of steps whose extreme advantage is where plain GRPO puts it
LATTICE = {
    "table2/3b_search": (70, 0, 99),
    "table2/7b_search": (50, 96, 95),
    "table2/q3_search": (95, 100, 97),
    "table2/3b_webshop": (93, 98, 90, 83),
    "table2/7b_webshop": (79, 86, 70),
    "curves_300step/grpo_webshop": (93, 96, 84, 91),
}


def test_a_term_shows_where_it_was_added(authors):
    by_name = {run.name: on_lattice(run) for run in authors}
    for name, shares in LATTICE.items():
        tolerance = 4 if "search" in name else 29  # method.md's WebShop figures were made with a wider lattice
        assert [100 * share for _, _, share, _ in by_name[name]] == pytest.approx(shares, abs=tolerance), name
    for name in ("frac20", "frac40", "frac60", "frac80", "frac20_ent", "frac80_ent"):  # the code with a schedule
        before, during, after = (share for _, _, share, _ in by_name[f"data_fraction/{name}"])
        assert during < 0.02 and min(before, after) > 0.7
    assert min(share for _, _, share, _ in by_name["table2/3b_alfworld"]) > 0.8  # the headline run: plain GRPO
    assert all(chance < 0.03 for shares in by_name.values() for *_, chance in shares)
    assert by_name["curves_300step/gigpo_alfworld"] == []


def test_lattice_by_hand():
    points = lattice("search", 1)  # one turn: eight rows; one right of eight has (1 - 1/8) / sqrt(1/8)
    assert len(points) == 7 and points[-1] == pytest.approx(np.sqrt(8) * 7 / 8, abs=1e-4)
    assert distances(np.array([points[3] + 0.01, points[-1] + 5]), points) == pytest.approx([0.01, 5])
    assert np.abs(lattice("alfworld", 50) + 19.946012).min() < 1e-4  # 400 rows, one invalid: in GRPO's log at step 2


def test_residuals_are_float_noise(authors):
    off = {run.name: residual(run) for run in authors}
    assert off["curves_300step/grpo_alfworld"] == 0.0
    assert 1e-4 < off["curves_300step/adrs_alfworld"] < 1e-3
    assert off["table2/3b_search"] < 1e-5


def test_the_validation_panel_of_step_150(authors, paper):
    panel = composition(authors, 150)
    assert sorted(panel.values()) == [8, 19, 20, 21, 26, 34] and panel["pick_and_place"] == 34
    assert misfits(paper["Qwen2.5-3B-Instruct", "GRPO"], panel) == []
    for row in (("Qwen2.5-3B-Instruct", "RLSD"), ("Qwen2.5-7B-Instruct", "SDAR"), ("Qwen3-1.7B", "ADRS")):
        assert misfits(paper[row], panel)  # method.md 4: other checkpoints
    assert composition(authors, 151) is None


@pytest.fixture
def one_log(shared, tmp_path):
    """A folder with one log that can be changed, and its path."""
    path = tmp_path / "logs" / "sdar_ms.jsonl"
    path.parent.mkdir()
    shutil.copyfile(shared / "paper/logs/curves_300step/sdar_alfworld.jsonl", path)
    path.chmod(0o644)
    return path


def rewrite(path, change, stop=None):
    rows = [json.loads(line) for line in path.read_text().splitlines()][:stop]
    path.write_text("".join(json.dumps(change(row)) + "\n" for row in rows))


@pytest.mark.parametrize("turns, printed", [(15, "–"), (25, "78.9"), (35, "75.0")])
def test_runs_with_fewer_turns(one_log, paper, turns, printed):
    rewrite(one_log, lambda row: row | ({"episode/length/max": turns} if "episode/length/max" in row else {}), 151)
    runs = read_runs(one_log.parent)
    table = audit.cells(runs, paper)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["method"] == f"SDAR, {turns} turns" and row["printed"] == printed and near(row["log"], 75.8)
    assert f"(SDAR, {turns} turns, alfworld, Qwen2.5-3B-Instruct)" in findings(runs, paper)[0]
    for table in [*audit.tables(runs, paper), *qa.tables(runs, paper), *health.tables(runs)]:
        assert table.markdown and table.csv and table.latex


def test_a_run_on_unseen_games_is_held_against_its_own_figure(shared, tmp_path, paper):
    shutil.copyfile(shared / "paper/logs/table2/3b_alfworld.jsonl", tmp_path / "adrs_unseen.jsonl")
    table = audit.cells(read_runs(tmp_path), paper)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["method"], row["printed"], row["where"]) == ("ADRS+TVA, unseen games", "82.8", "unseen figure")


def test_a_run_that_was_cut_is_read_where_it_ends_and_called_partial(one_log, paper):
    one_log.write_bytes(one_log.read_bytes()[:200_000])
    runs = read_runs(one_log.parent)
    assert any("cut off while being written" in note for note in runs[0].notes)
    table = audit.cells(runs, paper)
    assert f"is partial: it ends at step {runs[0].last}, before 150." in table.notes[0]
    assert table.cell("logs/sdar_ms", "step") == str(runs[0].evals[-1].step)


def test_not_a_number_is_left_out_and_the_rest_is_used(one_log, paper):
    def spoil(row):
        return row | ({"val/success_rate": float("nan"), "actor/kl_loss": float("nan")} if row["step"] == 150 else {})

    rewrite(one_log, spoil)
    (run,) = read_runs(one_log.parent)
    assert any("val/success_rate is not a finite number" in note for note in run.notes)
    assert audit.cells([run], paper).cell("logs/sdar_ms", "step") == "145"


def test_a_log_without_evaluation_is_said_to_have_none(tmp_path, paper):
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1, "actor/entropy_loss": 1.0}\n')
    run = read_foreign(path)
    assert any("no val/success_rate" in note for note in run.notes)
    assert audit.cells([run], paper).rows[0][7] == "–"
    assert "no evaluation up to step 150" in findings([run], paper)[0]
    for table in [*audit.tables([run], paper), *qa.tables([run], paper), *health.tables([run])]:
        assert table.markdown


def test_last_three_needs_three(authors):
    run = next(run for run in authors if run.name == "curves_300step/grpo_alfworld")
    assert audit.last_three(run.evals[:2]) == "–"
    pooled = audit.last_three(run.evals[28:31])
    assert isinstance(pooled, Measure) and pooled.of == "317/384, 1 run"
