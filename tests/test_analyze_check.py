"""The command line, and the check that ties README to the logs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import analyze
from analysis.check import complaints, fill
from analysis.foreign import read_runs
from analysis.render import Table
from analysis.stats import Measure
from tests.made_results import METHODS, run

ROOT = Path(__file__).parent.parent
ROWS = [("alfworld", "GRPO", Measure(84.375, 77.1, 89.7, "108/128, 1 run")), ("alfworld", "ADRS", "–")]
TABLE = Table("main", "t", ("environment", "method", "final"), ROWS, 2)
TABLES = {"main": TABLE}
GOOD = f"""# Title

<!-- analyze:main -->
{TABLE.markdown}<!-- /analyze -->

GRPO reaches <!-- num:main:alfworld/GRPO:final -->84.4<!-- /num --> %, that is
<!-- cell:main:alfworld/GRPO:final -->84.4 [77.1, 89.7] (108/128, 1 run)<!-- /cell -->; the paper prints
<!-- cite:arXiv:2608.03223, Table 2 -->75.0<!-- /cite -->. Install `torch==2.13.0` for Qwen2.5-3B under Apache-2.0
([arXiv 2608.03223](https://arxiv.org/abs/2608.03223), eta 0.02);
$\\eta = 0.02$ and see [here](https://example.org/1.5).

```
success 84.4
```
"""


def test_a_good_readme_has_no_complaint_and_is_left_as_it_is():
    assert complaints(GOOD, TABLES) == []
    assert fill(GOOD, TABLES) == GOOD


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("-->84.4<", "-->84.5<", "line 12: says 84.5, the logs give 84.4 (main, alfworld/GRPO, final)"),
        ("[77.1, 89.7] (108/128, 1 run)<", "[77.1, 89.8] (108/128, 1 run)<", "line 13: says 84.4 [77.1, 89.8]"),
        ("| GRPO | 84.4", "| GRPO | 94.4", "line 3: table 'main' is not what the logs give"),
        ("num:main:alfworld/GRPO:final", "num:main:alfworld/RLSD:final", "line 12: table main has no row"),
        ("num:main:alfworld/GRPO:final", "num:other:alfworld/GRPO:final", "there is no table 'other'"),
        ("GRPO reaches", "GRPO, 9.5 points up, reaches", "line 12: 9.5 has no mark"),
        ("GRPO reaches", "In 60 % of runs GRPO reaches", "line 12: 60 % has no mark"),
        ("GRPO reaches", "GRPO, -9.5 down, reaches", "line 12: -9.5 has no mark"),
        ("GRPO reaches", "GRPO, 0.5 points up, reaches", "line 12: 0.5 points has no mark"),
        ("<!-- /num -->", "", "num:main:alfworld/GRPO:final --> has no partner"),
        ("cite:arXiv:2608.03223, Table 2", "cite: ", "has no partner"),
        ("<!-- /analyze -->", "", "has no partner"),
    ],
)  # fmt: skip
def test_a_changed_number_is_found(old, new, said):
    assert old in GOOD
    found = complaints(GOOD.replace(old, new, 1), TABLES)
    assert any(said in line for line in found), found


def test_write_mends_what_is_marked():
    spoilt = GOOD.replace("-->84.4<", "-->0.1<").replace("| GRPO | 84.4", "| GRPO | 1.0").replace("-->84.4 [", "-->4 [")
    assert complaints(spoilt, TABLES) and fill(spoilt, TABLES) == GOOD
    with pytest.raises(ValueError, match="line 12: table main has no row"):
        fill(GOOD.replace("num:main:alfworld/GRPO", "num:main:alfworld/RLSD"), TABLES)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with two methods' results and a README, and the working directory in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("grpo", "adrs"):
        for seed in (0, 1):
            run(Path("results/main") / f"{name}-s{seed}", seed=seed, **METHODS[name])
    Path("README.md").write_text("<!-- analyze:main -->\n<!-- /analyze -->\n"
                                 "<!-- num:main:alfworld/GRPO:final --><!-- /num -->\n")  # fmt: skip
    return tmp_path


def test_write_then_check_then_a_log_changes(project, capsys):
    analyze.main([])
    assert sorted(path.name for path in Path("results/tables").glob("*.md")) == [
        "main.md", "main_cost.md", "main_pairs.md", "main_types.md", "runs.md", "tokens_gaps.md",
    ]  # fmt: skip
    assert Path("results/figures/success_grid.svg").is_file()
    analyze.main(["--write"])
    analyze.main(["--check"])
    assert "every number comes from a log" in capsys.readouterr().out
    log = Path("results/main/grpo-s0/eval.jsonl")
    lines = log.read_text().splitlines()
    log.write_text("\n".join(lines[:-2]) + "\n")  # the last evaluations are gone
    with pytest.raises(SystemExit) as stop:
        analyze.main(["--check"])
    assert "README.md, line 1: table 'main' is not what the logs give" in str(stop.value)
    assert "results/tables/main.md: not what the logs give" in str(stop.value)


def made_tables() -> dict[str, Table]:
    runs = read_runs(Path("results"))
    return analyze.our_tables(runs, analyze.experiments(runs), ({}, []), Path("results"))


def test_tables_are_the_same_each_time(project):
    for one, other in zip(made_tables().values(), made_tables().values(), strict=True):
        assert (one.markdown, one.csv, one.latex) == (other.markdown, other.csv, other.latex)


def test_audit_then_readme(project, shared, capsys):
    for name in ("curves_300step/grpo_alfworld", "table2/3b_alfworld", "table2/3b_search"):
        Path("logs", name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(shared / f"paper/logs/{name}.jsonl", f"logs/{name}.jsonl")
    logs = ["--logs", "logs", "--paper", str(shared / "paper/table2.csv")]
    analyze.main(logs)
    out = capsys.readouterr().out
    assert "printed 75.0 (Table 2), log 84.4 [77.1, 89.7] (108/128, 1 run) at step 150 (+9.4)" in out
    assert Path("results/audit/audit_cells.csv").is_file() and Path("results/audit/success_grid.png").is_file()
    text = ("<!-- num:audit_cells:curves_300step/grpo_alfworld:log --><!-- /num --> and "
            "<!-- num:audit_qa_gain:Qwen2.5-3B-Instruct:macro --><!-- /num -->\n")  # fmt: skip
    Path("README.md").write_text(text)
    analyze.main(["--write"])
    filled = text.replace("log --><", "log -->84.4<").replace("macro --><", "macro -->+7.7<")
    assert Path("README.md").read_text() == filled
    analyze.main(["--check", *logs])  # made anew from the logs
    assert str(made_tables()["main"].cell("alfworld/GRPO", "authors' log")) == "84.4"


@pytest.mark.parametrize(
    "args, said",
    [
        (["--paper", "x.csv"], "--paper says what was printed; name the logs"),
        (["--logs", "nowhere"], "nowhere: no such folder of logs"),
        (["--results", "nowhere"], "nowhere: no such folder of logs"),
        (["--page", "results/main/nobody"], "no config.json, so not the folder of a run"),
        (["--page", "a", "--page", "b", "--page", "c"], "--page was given 3 times"),
        (["--logs", "README.md", "--paper", "README.md"], "README.md, line 1: not JSON"),
    ],
)
def test_what_is_asked_wrongly_is_said(project, args, said):
    with pytest.raises((ValueError, OSError), match=re.escape(said)):
        analyze.main(args)


def test_no_abbreviations(project):
    with pytest.raises(SystemExit):
        analyze.main(["--pap", "x"])


def test_a_broken_log_stops_the_program_with_one_line(project):
    Path("results/main/grpo-s0/log.jsonl").write_text('{"step": 1}\n{"step": 2, "x": }\n{"step": 3}\n')
    done = subprocess.run([sys.executable, str(ROOT / "analyze.py")], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.startswith("LogError: results/main/grpo-s0/log.jsonl, line 2: not JSON")


def test_no_torch_is_loaded():
    code = "import sys, analyze; sys.exit(any(name.split('.')[0] in ('torch', 'transformers') for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_readme_and_the_committed_tables_say_what_the_logs_say(monkeypatch):
    monkeypatch.chdir(ROOT)
    analyze.main(["--check"])
