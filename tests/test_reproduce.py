"""reproduce.sh: every command that it prints is one that train.py takes, and what it skips, resumes and reports."""

import json
import os
import re
import shlex
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from dataclasses import asdict

import pytest

from analysis.groups import NOT_A_SETTING, label
from settings import METHODS, Settings, parse
from tests.conftest import ROOT

IDS = ("main", "long", "tva", "tva-noise", "data", "tokens", "models", "baselines", "ablation", "horizon", "unseen")
SCRIPT = (ROOT / "reproduce.sh").read_text()


def listed(*what: str, **variables) -> list[Settings]:
    """The settings of every command that `reproduce.sh --list` prints, through train.py's own parser."""
    done = subprocess.run(["bash", ROOT / "reproduce.sh", "--list", *what], capture_output=True, text=True,
                          env=os.environ | variables, check=True)  # fmt: skip
    return [parse(shlex.split(line.partition(" train.py ")[2])) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def experiments() -> dict[str, list[Settings]]:
    runs = defaultdict(list)
    for s in listed(*IDS) + listed("paper"):
        runs[s.run.partition("/")[0]].append(s)
    return dict(runs)


def test_every_experiment_is_listed_and_every_command_parses(experiments):
    assert list(experiments) == [*IDS, "paper"] and f'EXPERIMENTS="{" ".join(IDS)}"' in SCRIPT


def test_runs_are_named_after_what_they_do(experiments):
    for name, runs in experiments.items():
        assert len({s.run for s in runs}) == len(runs), name
        for s in runs:
            assert re.fullmatch(rf"{name}/{s.env}-[a-z0-9.-]+-s{s.seed}", s.run) and s.steps is not None


def test_no_two_runs_of_an_experiment_are_the_same(experiments):
    places = NOT_A_SETTING - {"seed"}
    for runs in experiments.values():
        settings = [{name: value for name, value in asdict(s).items() if name not in places} for s in runs]
        assert len({json.dumps(values) for values in settings}) == len(runs)


def test_main_is_every_method_in_every_environment(experiments):
    cells = Counter((s.env, label(asdict(s))) for s in experiments["main"])
    methods = {"GRPO", "GiGPO", "SDAR", "ADRS", "ADRS+TVA", "GiGPO+ADRS", "GiGPO+ADRS+TVA"}
    assert set(cells) == {(env, method) for env in ("alfworld", "webshop", "search") for method in methods}
    seeds = {method: 5 for method in methods} | {"ADRS+TVA": 15}  # as published; strong in every step; so with the gap
    assert all(count == seeds[method] for (_, method), count in cells.items())
    assert {s.steps for s in experiments["main"]} == {150}
    assert {s.eval_tasks for s in experiments["main"]} == {512} and {s.threads for s in experiments["main"]} == {1}


def test_seeds_can_be_given():
    assert [s.seed for s in listed("long", SEEDS="7 8")] == [7] * 4 + [8] * 4
    assert {s.lr for s in listed("long", MINI="--model tiny --lr 5e-5")} == {5e-5}


def test_an_ablation_changes_one_thing(experiments):
    full = next(s for s in experiments["ablation"] if s.run == "ablation/alfworld-adrs-tva-full-s1")
    variants = [s for s in experiments["ablation"] if s.seed == 1 and s is not full]
    assert len(variants) >= 15
    for s in variants:
        changed = {k for k, v in asdict(s).items() if v != getattr(full, k)} - {"run"}
        assert len(changed) == 1 or changed == {"preset", "window_start", "window_stop"}, s.run


def test_what_an_experiment_varies_is_a_setting(experiments):
    varied = {
        "tva-noise": ("skill_noise", {0, 0.25, 0.5, 0.75, 1}), "data": ("fraction", {0.2, 0.4, 0.6, 0.8, 1}),
        "horizon": ("max_turns", {6, 8, 10}), "unseen": ("eval_split", {"seen", "unseen"}), "long": ("steps", {300}),
        "tva": ("flat_gate", {1.0, 0.6}), "tokens": ("eval_every", {25}), "baselines": ("method", set(METHODS)),
        "models": ("model", {"tiny", "models/alfworld-64x2", "models/alfworld-256x4"}),
    }  # fmt: skip
    for name, (setting, values) in varied.items():
        assert {getattr(s, setting) for s in experiments[name]} == values, name


def test_the_papers_protocol(experiments):
    """By hand from method.md, sections 1.9 and 4."""
    sizes = {"3b": "Qwen/Qwen2.5-3B-Instruct", "7b": "Qwen/Qwen2.5-7B-Instruct", "1.7b": "Qwen/Qwen3-1.7B"}
    protocol = {"alfworld": (16, 50, 256, 0.01, "seen", 5), "webshop": (16, 15, 64, 0.01, "seen", 5),
                "search": (128, 4, 256, 0.001, "unseen", 25)}  # fmt: skip
    eta = {("webshop", "3b"): 0.02, ("webshop", "7b"): 0.02, ("webshop", "1.7b"): 0.02, ("search", "3b"): 0.02}
    assert len(experiments["paper"]) == 9 * 12
    for s in experiments["paper"]:
        size = s.run.split("-")[1]
        assert s.model == sizes[size] and s.thinking == (size != "1.7b")
        assert (s.groups, s.max_turns, s.mini_rows, s.kl, s.eval_split, s.eval_every) == protocol[s.env]
        assert (s.group_size, s.max_response, s.eval_temperatures, s.seed) == (8, 512, [0.4], 0)
        assert s.steps == (0 if s.method in ("vanilla", "skill_prompt") else 150)
        own = s.method == "adrs" and (s.env, size) == ("alfworld", "1.7b")
        assert s.lr == (2e-6 if own else 1e-6)
        if s.method == "adrs":
            assert (s.eta, s.join, s.placement) == (eta.get((s.env, size), 0.1), "pre_whiten", "raw_prefix")
            assert s.gate_norm == ((s.env, size) in (("alfworld", "3b"), ("webshop", "1.7b")))
            assert (s.window_start, s.window_stop) == (20 / 150, 70 / 150)
    assert {s.run for s in listed("paper", "search", "7b")} <= {s.run for s in experiments["paper"]}


def test_the_papers_table_comes_from_the_logs(experiments, shared):
    """Means over steps 1 to 150 of the authors' logs; bytes by parameter: 5 x 4 in full, 2 and the adapter's 4 x 4."""
    counts = {"3b": (3_085_938_688, 59_867_136), "7b": (7_615_616_512, 80_740_352), "1.7b": (1_720_574_976, 34_865_152)}
    rows = re.findall(r"^# +(alfworld|webshop|search) (\S+) +(\d) +([\d.]+) M +(\d+) +(\d+) +([\d.]+) +([\d.]+) +"
                      r"([\d.]+) +([\d.]+)$", SCRIPT, re.MULTILINE)  # fmt: skip
    assert len(rows) == 9
    for env, size, _, *numbers in rows:
        file = shared / "paper" / "logs" / "table2" / f"{size.replace('1.7b', 'q3')}_{env}.jsonl"
        log = [row for row in map(json.loads, file.read_text().splitlines()) if 1 <= row["step"] <= 150]

        def mean(metric, log=log):
            values = [row[metric] for row in log if metric in row]
            return sum(values) / len(values)

        whole, adapter = counts[size]
        expected = [mean("perf/total_num_tokens") / 1e6, mean("timing_s/step"), mean("timing_s/teacher_forward"),
                    mean("timing_s/step") * len(log) / 3600, mean("perf/max_memory_allocated_gb"),
                    20 * whole / 2**30, (2 * whole + 16 * adapter) / 2**30]  # fmt: skip
        for said, value in zip(numbers, expected, strict=True):
            digits = len(said.partition(".")[2])
            assert abs(float(said) - value) <= 0.6 * 10**-digits, (env, size, said, value)


def test_the_commands_in_its_comments_exist():
    (command,) = re.findall(r"python warmstart\.py (.*)$", SCRIPT, re.MULTILINE)
    source = (ROOT / "warmstart.py").read_text()
    for flag in re.findall(r"--\w+", command):
        assert f'add_argument("{flag}"' in source, flag
    (tuning,) = re.findall(r'TUNING="([^"]+)"', SCRIPT)
    assert parse(tuning.split()).lora == 32


# ------------------------------------------------------------------------------------------------- running it


@pytest.fixture
def bench(tmp_path):
    """A copy of the script beside a `python` that notes its calls and writes the log that train.py would."""
    shutil.copy(ROOT / "reproduce.sh", tmp_path)
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "python"
    fake.write_text(r"""#!/usr/bin/env bash
echo "start $*" >>calls
while (($#)); do case $1 in --run) run=$2 ;; --steps) steps=$2 ;; esac; shift; done
[[ $run != ${BREAK:-*-sdar-s[01]} ]] || { echo broken >&2; exit 3; }
sleep ${SLEEP:-0.2}
mkdir -p "results/$run" && echo "{\"step\": $steps, \"val/success_rate\": 0.5}" >"results/$run/log.jsonl"
echo "end $run" >>calls
""")
    fake.chmod(0o755)

    def run(*what: str, **variables):
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(["bash", "reproduce.sh", *what], cwd=tmp_path, capture_output=True, text=True,
                              env=os.environ | {"PATH": path} | variables)  # fmt: skip
        calls = tmp_path / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        calls.unlink(missing_ok=True)
        return done, lines

    run.folder = tmp_path
    return run


def test_two_runs_at_a_time_and_none_twice(bench):
    done, calls = bench("horizon", SEEDS="1")
    assert done.returncode == 0 and sum(call.startswith("start") for call in calls) == 6
    assert not any("--resume" in call for call in calls)
    alive = [sum(1 if call.startswith("start") else -1 for call in calls[:i]) for i in range(len(calls) + 1)]
    assert max(alive) == 2 and alive[-1] == 0
    done, calls = bench("horizon", SEEDS="1")
    assert not calls and done.stdout.count("complete: horizon/alfworld-") == 6
    _, calls = bench("unseen", SEEDS="1", JOBS="1")
    assert [call.split()[0] for call in calls] == ["start", "end"] * 4


def test_a_run_that_was_cut_goes_on(bench):
    bench("horizon", SEEDS="1")
    log = bench.folder / "results" / "horizon" / "alfworld-grpo-turns8-s1" / "log.jsonl"
    for cut in ('{"step": 40, "x": 1}\n', '{"step": 150, "x": ', '{"step": 15, "x": 1}\n', ""):
        log.write_text(cut)
        _, calls = bench("horizon", SEEDS="1")
        assert len(calls) == 2 and "--run horizon/alfworld-grpo-turns8-s1 --steps 150 --resume" in calls[0], cut


def test_a_run_that_fails_is_named_and_the_others_go_on(bench):
    done, calls = bench("long", SEEDS="1")
    assert done.returncode == 1 and sum(call.startswith("end") for call in calls) == 3
    assert "failed: long/alfworld-sdar-s1" in done.stderr and "long/alfworld-grpo" not in done.stderr
    assert (bench.folder / "results" / "runs" / "long-alfworld-sdar-s1.txt").read_text() == "broken\n"


def test_no_failure_is_lost_and_a_signal_reaches_the_runs(bench):
    done, calls = bench("horizon", SEEDS="1 2", BREAK="*")
    assert done.returncode == 1 and len(calls) == 12 and done.stderr.count("failed: horizon/alfworld-") == 12
    own = os.environ | {"PATH": f"{bench.folder / 'bin'}:{os.environ['PATH']}", "SLEEP": "3"}
    script = subprocess.Popen(["bash", "reproduce.sh", "long"], cwd=bench.folder, stdout=subprocess.DEVNULL, env=own)
    calls = bench.folder / "calls"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not (calls.exists() and calls.read_text().count("start") == 2):
        time.sleep(0.05)
    script.terminate()
    assert script.wait(timeout=20) == 130
    assert "end" not in calls.read_text()


def test_the_papers_runs_start_through_the_launcher(bench):
    done, calls = bench("paper", "search", "3b", LAUNCH="python", SEARCH_DATA="/data")
    starts = [call for call in calls if call.startswith("start")]
    assert done.returncode == 1 and len(starts) == 12 and all("train.py --env search" in call for call in starts)
    assert "failed: paper/search-3b-sdar-s0" in done.stderr and calls[1] == "end paper/search-3b-vanilla-s0"


def test_a_plan_runs_every_command_with_dry_run(bench):
    done, calls = bench("long", "--dry_run", SEEDS="2")
    starts = [call for call in calls if call.startswith("start")]
    assert done.returncode == 0 and len(starts) == 4 and all(call.endswith("--steps 300 --dry_run") for call in starts)


@pytest.mark.parametrize(("wrong", "complaint"), [
    ("main nonsense", "no experiment nonsense"), ("", "name an experiment"), ("paper chess", "no environment chess"),
    ("paper search 3b main", "too many words behind paper"), ("main paper", "no experiment paper"),
    ("paper search 70b", "no model 70b"), ("--lst main", "no option --lst"), ("paper webshop 3b", "set WEBSHOP_DATA"),
])  # fmt: skip
def test_what_does_not_exist_is_refused(bench, wrong, complaint):
    done, calls = bench(*wrong.split())
    assert done.returncode == 2 and done.stderr.startswith(complaint) and "bash reproduce.sh ID..." in done.stderr
    assert not calls
