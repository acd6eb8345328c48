"""From a log that verl wrote to a `Run`: what it was a run of, and its evaluations.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Such a log holds metrics and no settings. They are inferred from the metrics first and from the file's name second,
and every assumption is a note. Also here: `read_runs`, which takes a folder of either kind. Left out: what the
authors say about these runs (paper.py).
"""

import re
from pathlib import Path

import numpy as np

from analysis.logs import Eval, LogError, Run, read_log, read_run

TYPE = re.compile(r"val/(.+)_success_rate$")
TURNS = {"alfworld": 50, "webshop": 15, "search": 4}  # the protocol's turn limits, method.md section 4
EPISODES = {"alfworld": 128, "webshop": 128, "search": 51713}  # of one validation; search: all seven test sets
TRAINING = 150  # steps of a run behind the paper's Table 2; a longer one belongs to its long curves

# (value, a mark among the metric names): the first that fits
ENVS = (
    ("alfworld", r"pick_and_place|look_at_obj|pick_\w+_then_place|pick_two_obj"),
    ("webshop", r"webshop_task_score|val/score"),
    ("search", r"/(?:nq|triviaqa|popqa|hotpotqa|2wikimultihopqa|musique|bamboogle)[_/]"),
)
METHODS = (("sdar", "sdar/"), ("rlsd", "rlsd/"), ("adrs", "star/"), ("skill_sd", "skillsd/"))
MODELS = (
    ("Qwen3-1.7B", r"q3|1\.7b"),
    ("Qwen2.5-1.5B-Instruct", r"1\.5b"),
    ("Qwen2.5-7B-Instruct", r"7b"),
    ("Qwen2.5-3B-Instruct", r"3b"),
)


def infer(path: Path, rows: list[dict]) -> tuple[dict, list[str]]:
    """The settings of a log, and notes on what had to be assumed."""
    name, metrics = path.stem.lower(), " ".join(sorted(set().union(*rows)))
    notes = []

    def either(choices: tuple, default: str, assumed: str) -> str:
        found = [value for value, mark in choices if re.search(mark, metrics)] or [v for v, _ in choices if v in name]
        if not found and assumed:
            notes.append(f"{path}: neither its metrics nor its name tell the {assumed}")
        return found[0] if found else default

    env = either(ENVS, "unknown", "environment")
    backbone = "gigpo" if "gigpo" in name or any(row.get("star/tva_level") == 3 for row in rows) else "grpo"
    method = either(METHODS, "none", "" if backbone in name else "method: taken as plain GRPO")
    model = next((model for model, mark in MODELS if re.search(mark, name)), None)
    if model is None:
        model = "Qwen2.5-3B-Instruct"
        notes.append(f"{path}: no model in its name: taken as {model}")
    turns = max((row["episode/length/max"] for row in rows if "episode/length/max" in row), default=TURNS.get(env, 0))
    fraction = re.search(r"frac(\d+)", name)
    settings = {
        "env": env,
        "method": method,
        "backbone": backbone,
        "tva": "tva/gate_mean" in metrics,
        "model": model,
        "max_turns": int(turns),
        "fraction": int(fraction[1]) / 100 if fraction else 1.0,
        "eval_split": "unseen" if "unseen" in name else "seen",  # verl-agent validates on games in seen rooms
    }
    return settings, notes


def experiment(settings: dict, last: int) -> str:
    """Which of our experiments a log with these settings and this many steps belongs to."""
    if settings["fraction"] < 1:
        return "data"
    if settings["eval_split"] == "unseen":
        return "unseen"
    if settings["max_turns"] < TURNS.get(settings["env"], 0):
        return "horizon"
    return "long" if last > TRAINING else "main"


def fractions_of(rates: list[float], sizes: np.ndarray) -> np.ndarray:
    """Of which `sizes` all these rates (rounded to 6 decimals) are whole fractions: bool, like `sizes`."""
    counts = np.array(rates, float)[:, None] * sizes
    return (np.abs(counts - counts.round()) < 1e-6 * sizes).all(0)


def episodes(rates: list[float], env: str) -> int | None:
    """How many episodes one validation had: the protocol's number where the rates agree with it, else the smallest
    number of which they are fractions, else None. One or two rates fit some number by chance, so that only small ones
    are tried for them. Search rates are means over batches and fit none."""
    usual = EPISODES.get(env)
    if usual and (env == "search" or fractions_of(rates, np.array([usual])).all()):
        return usual
    sizes = np.arange(1, 1025 if len(set(rates)) > 2 else 101)
    fits = fractions_of(rates, sizes)
    return int(sizes[fits.argmax()]) if fits.any() else None


def read_foreign(path: Path) -> Run:
    """A log with verl's names. Raises LogError, FileNotFoundError."""
    rows, notes = read_log(path)
    if not rows:
        raise LogError(f"{path}: no whole log line in it")
    settings, assumed = infer(path, rows)
    tested = [row for row in rows if "val/success_rate" in row]
    n = episodes([row["val/success_rate"] for row in tested], settings["env"])
    evals = []
    for row in tested:
        by_type = {match[1]: row[metric] for metric in sorted(row) if (match := TYPE.match(metric))}
        evals.append(Eval(row["step"], "authors", "", None, n, row["val/success_rate"], row.get("val/score"), by_type))
    if not evals:
        notes.append(f"{path}: no val/success_rate in it")
    return Run(path, experiment(settings, rows[-1]["step"]), False, settings, rows, evals, notes + assumed)


def read_runs(root: Path) -> list[Run]:
    """Every run under a folder, or the one log that `root` names, by path. Raises LogError, FileNotFoundError."""
    root = Path(root)
    if root.is_file():
        return [read_foreign(root)]
    if not root.is_dir():
        raise FileNotFoundError(f"{root}: no such folder of logs")
    found = {path.parent for path in root.rglob("config.json")}
    folders = sorted(folder for folder in found if not found & set(folder.parents))  # a checkpoint is inside its run
    logs = sorted(path for path in root.rglob("*.jsonl") if not set(folders) & set(path.parents))
    return [read_run(folder) for folder in folders] + [read_foreign(path) for path in logs]
