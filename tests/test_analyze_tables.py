"""Groups and tables: labels, what may be compared, and golden tables in three formats.

The golden files are written anew with ADRS_GOLDEN=write. Bootstrap ends are masked in the comparison: they depend on
scipy's random stream.
"""

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest

from analysis import tables, tokens
from analysis.foreign import read_runs
from analysis.groups import groups, label, one_panel
from analysis.logs import LogError, read_run
from analysis.paper import TABLE2, others, published, read_table2
from analysis.render import Table, chance, parse, signed
from analysis.stats import Measure
from tests.made_results import METHODS, everything, run

GOLDEN = Path(__file__).parent / "golden" / "analyze"


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    return everything(tmp_path_factory.mktemp("made") / "results")


@pytest.fixture(scope="module")
def runs(results) -> list:
    return read_runs(results)


def of(runs, table):
    return groups(run for run in runs if run.table == table)


def masked(text: str) -> str:
    """Interval ends and p values out of random streams, and their CSV columns, made alike."""
    text = re.sub(r"\[-?\d[^\]|]*, [^\]|]*\]", "[.., ..]", text)
    text = re.sub(r"(?<=\| )<?0\.\d{4}(?= \|)|(?<=\| )1\.0000(?= \|)", "p", text)
    return re.sub(r'(?<=,)-?\d+\.\d+,-?\d+\.\d+,("\d+/\d+, \d+ runs?"|\d+ episodes)', r"..,..,\1", text)


def same_as_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("ADRS_GOLDEN") == "write":
        path.write_text(text, encoding="utf-8", newline="\n")
    assert masked(text) == masked(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "settings, name",
    [
        ({"method": "none"}, "GRPO"),
        ({"method": "none", "backbone": "gigpo"}, "GiGPO"),
        ({"method": "adrs", "tva": False}, "ADRS"),
        ({"method": "adrs", "tva": True}, "ADRS+TVA"),
        ({"method": "adrs", "tva": True, "backbone": "gigpo"}, "GiGPO+ADRS+TVA"),
        ({"method": "sdar", "tva": False}, "SDAR"),
        ({"method": "grpo_opsd"}, "GRPO+OPSD"),
        ({"method": "opsd"}, "OPSD"),
        ({"method": "skill_sd"}, "Skill-SD"),
        ({"method": "new"}, "new"),
    ],
)
def test_labels(settings, name):
    assert label(settings) == name


def test_groups_hold_seeds_in_order_and_methods_in_the_paper_s(runs):
    main = of(runs, "main")
    assert [g.label for g in main if g.env == "alfworld"] == [
        "GRPO", "GiGPO", "SDAR", "ADRS", "ADRS+TVA", "GiGPO+ADRS", "GiGPO+ADRS+TVA",
    ]  # fmt: skip
    assert main[0].seeds == "seeds 0, 1" and main[0].variant == ""
    assert [g.variant for g in of(runs, "data") if g.label == "GRPO"] == [
        "fraction=0.2", "fraction=0.6", "fraction=1.0",
    ]  # fmt: skip
    assert sorted(g.variant for g in of(runs, "ablation")) == ["", "centre=none", "eta=0.1", "scale=none"]


def test_a_preset_names_what_it_sets_and_never_the_plain_run(tmp_path):
    """Two of three runs share a preset: still the one without is the reference."""
    strong = {"preset": "always", "eta": 0.3, "window_start": 0.0, "window_stop": 1.0}
    made = [run(tmp_path / "main" / name, **changes) for name, changes in {
        "plain": {"preset": None, "window_start": 0.1, "window_stop": 0.5, "score": "teacher_logprob"},
        "always": strong | {"score": "teacher_logprob"},
        "gap": strong | {"score": "gap"},
    }.items()]  # fmt: skip
    assert {g.runs[0].path.name: g.variant for g in groups([read_run(folder) for folder in made])} == {
        "plain": "", "always": "eta=0.3, every step", "gap": "eta=0.3, score=gap, every step",
    }  # fmt: skip


def test_skills_in_the_prompt_get_a_star(runs):
    assert [g.label for g in of(runs, "baselines")] == ["Vanilla", "Skill-GRPO", "Skill-GRPO*"]


def test_the_same_run_twice_is_refused(tmp_path):
    first, second = run(tmp_path / "main" / "a"), run(tmp_path / "main" / "b", run="another name")
    with pytest.raises(LogError, match="have the same settings and seed"):
        groups([read_run(first), read_run(second)])


def test_panels_are_not_mixed(tmp_path):
    one = run(tmp_path / "main" / "a", method="none")
    other = run(tmp_path / "main" / "b", digest="0000000000000000")
    with pytest.raises(LogError, match="different panels") as error:
        tables.outcomes("main", groups([read_run(one), read_run(other)]))
    assert str(one) in str(error.value) and str(other) in str(error.value) and "0000000000000000" in str(error.value)
    seen = run(tmp_path / "main" / "c", digest="1111111111111111", eval_split="seen")
    assert len(tables.outcomes("main", groups([read_run(one), read_run(seen)])).rows) == 2  # two panels, two rows
    with pytest.raises(LogError):
        one_panel(groups([read_run(one), read_run(seen)]))


def test_one_run_has_wilson_s_interval_and_each_column_its_own_evaluations(tmp_path):
    folder = run(tmp_path / "main" / "a", n=128)
    lines = [json.loads(line) for line in (folder / "eval.jsonl").read_text().splitlines()]
    wins = {0: 10, 5: 121, 10: 60, 15: 70, 20: 64}
    for line in lines:
        k = wins[line["step"]]
        line |= {"outcomes": "1" * k + "0" * (128 - k), "success": k / 128}
    (folder / "eval.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = tables.outcomes("main", groups([read_run(folder)]))
    assert str(table.cell("alfworld/ADRS", "final")) == "50.0 [41.5, 58.5] (64/128, 1 run)"
    assert str(table.cell("alfworld/ADRS", "best")) == "94.5 [89.1, 97.3] (121/128, 1 run)"
    assert str(table.cell("alfworld/ADRS", "last-3")).startswith("50.5 [")
    assert str(table.cell("alfworld/ADRS", "last-3")).endswith("(194/384, 1 run)")


def test_a_partial_run_is_used_and_named(tmp_path):
    made = groups([read_run(run(tmp_path / "main" / "a", last=12))])
    table = tables.outcomes("main", made)
    assert "main/a is partial: step 12 of 20." in table.notes
    assert isinstance(table.cell("alfworld/ADRS", "final"), Measure)
    young = groups([read_run(run(tmp_path / "main" / "b", last=0))])
    assert tables.outcomes("main", young).cell("alfworld/ADRS", "final") != "–"
    folder = run(tmp_path / "main" / "c", last=3)
    (folder / "eval.jsonl").write_text("")
    table = tables.outcomes("main", groups([read_run(folder)]))
    assert table.cell("alfworld/ADRS", "final") == "–"
    assert table.notes[0] == "alfworld: no evaluation on the unseen panel at temperature 0.4 yet."


def test_pairs(runs):
    table = tables.pairs("main", of(runs, "main"))
    alfworld = [row[1:3] for row in table.rows if row[0] == "alfworld"]
    assert ("ADRS+TVA", "GRPO") in alfworld and ("ADRS+TVA", "ADRS") in alfworld and ("ADRS", "SDAR") in alfworld
    assert ("GiGPO+ADRS+TVA", "GiGPO") in alfworld and ("GiGPO", "GRPO") in alfworld
    assert not any(one == other for one, other in alfworld)
    data = [row[1:3] for row in tables.pairs("data", of(runs, "data")).rows]
    assert ("ADRS+TVA fraction=0.6", "GRPO fraction=1.0") in data  # the paper's claim about data
    unseen = [row[1:3] for row in tables.pairs("unseen", of(runs, "unseen")).rows]
    assert unseen == [(f"ADRS+TVA eval_split={split}", f"GRPO eval_split={split}") for split in ("seen", "unseen")]
    ablation = [row[1:3] for row in tables.pairs("ablation", of(runs, "ablation")).rows]
    assert sorted(ablation) == [("ADRS centre=none", "ADRS"), ("ADRS eta=0.1", "ADRS"), ("ADRS scale=none", "ADRS")]


def test_a_difference_is_found_and_one_run_is_no_verdict(tmp_path):
    made = [
        run(tmp_path / "main" / f"{method}{seed}", rate, n=200, seed=seed, method=method)
        for method, rate in (("none", 0.3), ("adrs", 0.9))
        for seed in range(4)
    ]
    (row,) = tables.pairs("main", groups(map(read_run, made))).rows
    assert row[-1] == "differs" and 50 < row[3].value < 70 and row[3].low < row[3].value < row[3].high
    single = [made[0], made[4]]
    (row,) = tables.pairs("main", groups(map(read_run, single))).rows
    assert row[-1] == "one run: seeds untested" and row[5] == "–"


def test_types_have_macro_and_micro(runs):
    table = tables.by_type("main", [g for g in of(runs, "main") if g.env == "search"])
    kinds = [row[3] for row in table.rows if row[1] == "GRPO"]
    assert kinds == ["bamboogle", "hotpotqa", "nq", "mean of types (macro)", "all tasks (micro)"]


def test_cost(runs):
    table = tables.cost("main", of(runs, "main"))
    row = dict(zip(table.columns, next(row for row in table.rows if row[:2] == ("alfworld", "ADRS")), strict=True))
    assert (row["rollout, s"], row["teacher, s"], row["sum, s"], row["teacher, %"]) == ("1.00", "0.20", "1.80", "11.1")
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["method"] == "GRPO" and row["teacher, s"] == "–" and row["teacher, %"] == "0.0"


def test_the_paper_s_numbers_stand_beside_ours(runs, shared):
    printed = read_table2(shared / "paper" / "table2.csv")
    for name, row in TABLE2.items():
        line = printed["Qwen2.5-3B-Instruct", {"ADRS+TVA": "ADRS"}.get(name, name)]
        assert row == (line["alf_avg"], line["qa_avg"], line["webshop_success"])
    for name, model, value in others("models"):
        assert printed[model, {"ADRS+TVA": "ADRS"}.get(name, name)]["alf_avg"] == value
    assert [published("main", g) for g in of(runs, "main") if g.label == "ADRS+TVA"] == [94.5, 45.0, 76.6]
    assert [published("data", g) for g in of(runs, "data") if g.label == "ADRS+TVA"] == [57.8, 78.1, 94.5]
    assert all(published("ablation", g) is None for g in of(runs, "ablation"))


def test_what_is_no_table2(tmp_path, shared):
    path = tmp_path / "t.csv"
    path.write_text("model,method\na,b\n")
    with pytest.raises(ValueError, match="not Table 2, it has no column 2wiki, alf_avg"):
        read_table2(path)
    lines = (shared / "paper" / "table2.csv").read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace("44.4", "")]))
    with pytest.raises(ValueError, match=r"t\.csv, line 2: a number is missing in 'Vanilla'"):
        read_table2(path)


def test_golden_tables(runs):
    made = [tables.outcomes("main", of(runs, "main")), tables.pairs("main", of(runs, "main")),
            tables.by_type("unseen", of(runs, "unseen")), tables.outcomes("horizon", of(runs, "horizon")),
            tokens.gap_table("tokens", *tokens.gaps_by_method(of(runs, "tokens")))]  # fmt: skip
    for table in made:
        same_as_golden(f"{table.name}.md", table.markdown)
    same_as_golden("main.csv", made[0].csv)
    same_as_golden("main.tex", made[0].latex)


ROWS = [("one|two & 3", Measure(1.0, 0.5, 1.5, "3/4")), ("y", "–")]
EXAMPLE = Table("x", "a 100 % title", ("a_b", "c"), ROWS, 1, ["note_1"])


def test_markdown_is_read_back():
    back = parse("x", EXAMPLE.markdown)
    assert back.markdown == EXAMPLE.markdown
    assert back.rows == [("one|two & 3", "1.0 [0.5, 1.5] (3/4)"), ("y", "–")]
    with pytest.raises(ValueError, match="not the Markdown of a table"):
        parse("x", "hello")


def test_csv_spreads_a_measure():
    assert list(csv.reader(io.StringIO(EXAMPLE.csv))) == [
        ["a_b", "c", "c low", "c high", "c of"], ["one|two & 3", "1.0", "0.5", "1.5", "3/4"], ["y", "–", "", "", ""],
    ]  # fmt: skip


def test_latex_escapes():
    assert r"a 100 \% title" in EXAMPLE.latex and r"a\_b & c \\" in EXAMPLE.latex
    assert r"one\textbar{}two \& 3 & 1.0 [0.5, 1.5] (3/4) \\" in EXAMPLE.latex
    assert all(mark in EXAMPLE.latex for mark in (r"\toprule", r"\midrule", r"\bottomrule", "{lr}"))


def test_cells_are_found_by_name_or_not_at_all():
    assert EXAMPLE.cell("y", "c") == "–"
    for row, column, said in (("z", "c", "no row 'z'"), ("y", "d", "no column 'd'")):
        with pytest.raises(ValueError, match=said):
            EXAMPLE.cell(row, column)
    twice = Table("x", "t", ("a", "b"), [("y", "1"), ("y", "2")])
    with pytest.raises(ValueError, match="2 rows 'y'"):
        twice.cell("y", "b")
    with pytest.raises(ValueError, match="3 cells under 2 columns"):
        Table("x", "t", ("a", "b"), [("1", "2", "3")])


def test_numbers_as_text():
    assert [signed(x) for x in (9.375, -6.25, -0.04, 0.0)] == ["+9.4", "-6.2", "+0.0", "+0.0"]
    assert [chance(p) for p in (None, 0.5, 0.00001)] == ["–", "0.5000", "<0.0001"]


def test_methods_differ_in_the_made_results(runs):
    main = [g for g in of(runs, "main") if g.env == "alfworld"]
    assert len({tuple(g.pick("final")[0][0].outcomes) for g in main}) == len(METHODS)
