"""From a folder of results to `Run`s: settings, metrics by step, evaluations, episodes.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

A folder with a config.json is a run of ours: log.jsonl, timing.jsonl, eval.jsonl, episodes.jsonl. Any other *.jsonl is
a log that someone else wrote (foreign.py), and goes through the same `read_log`. A bad line is one error that names
file and line. Only a last line that was cut while being written (no newline ends it) is left out, and `Run.notes` says
so. Left out: statistics, and what is compared with what (groups.py).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HEADLINE = 0.4  # the temperature of every headline number

# verl's names of what our logs hold too; everything behind this file uses ours.
ALIASES = {
    "timing_s/gen": "time/rollout_s", "timing_s/teacher_forward": "time/teacher_s", "timing_s/ref": "time/ref_s",
    "timing_s/old_log_prob": "time/old_s", "timing_s/adv": "time/credit_s", "timing_s/update_actor": "time/update_s",
    "timing_s/testing": "time/eval_s", "timing_s/step": "time/step_s", "perf/total_num_tokens": "tokens/total",
    "tva/modulation_mean": "tva/gate_mean", "tva_l2/mean": "tva/d_mean",
    "star_tva/teacher_student_gap_mean": "teacher/gap_mean", "sdar/teacher_gap_mean": "teacher/gap_mean",
    "val/webshop_task_score (not success_rate)": "val/score",
}  # fmt: skip
RATE = re.compile(r"(?:val|episode)/(?:.*_)?success_rate$|val/score$")  # metrics that must lie in 0..1


class LogError(ValueError):
    """A file that cannot be read: the message names the file, the line and what is wrong."""


@dataclass(frozen=True)
class Eval:
    """One panel played once, at one step. Rates in 0..1; per-task values in the panel's order."""

    step: int
    panel: str
    digest: str  # the panel's hash; "" where a log gives none
    temperature: float | None
    n: int | None  # tasks
    success: float
    score: float | None  # mean over tasks
    by_type: dict[str, float]  # success of each task type or question source
    types: tuple[str, ...] = ()  # [n]
    outcomes: np.ndarray | None = None  # [n] 0 or 1
    scores: np.ndarray | None = None  # [n] in 0..1
    expert: float | None = None  # what the scripted players reach on this panel
    random: float | None = None
    skills: str = "none"  # "prompt": evaluated with the skill text in the prompt


@dataclass(frozen=True)
class Run:
    """One training run. `notes` holds what was odd about its files."""

    path: Path
    table: str  # the experiment it belongs to
    ours: bool
    settings: dict
    log: list[dict]  # by step; finite numbers only
    evals: list[Eval]  # by step
    notes: list[str] = field(default_factory=list)
    commit: str = ""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name.removesuffix('.jsonl')}"

    @property
    def last(self) -> int:
        """The last step of which anything is known."""
        return max([row["step"] for row in self.log] + [entry.step for entry in self.evals], default=0)

    @property
    def partial(self) -> str:
        """In what way the run is not whole, or ""."""
        planned = self.settings.get("steps")
        return f"{self.name} is partial: step {self.last} of {planned}" if planned and self.last < planned else ""

    def series(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps and values of a metric, where it was logged: both [k]."""
        rows = [(row["step"], row[metric]) for row in self.log if metric in row]
        return np.array([step for step, _ in rows], int), np.array([value for _, value in rows], float)

    def on_panel(self, temperature: float = HEADLINE, skills: str = "none") -> list[Eval]:
        """The evaluations on the run's panel at one temperature, by step. A foreign log knows only one kind."""
        if not self.ours:
            return self.evals
        wanted = (self.settings.get("eval_split", "unseen"), temperature, skills)
        return [entry for entry in self.evals if (entry.panel, entry.temperature, entry.skills) == wanted]


def read_lines(path: Path, notes: list[str]) -> Iterator[tuple[str, dict]]:
    """("FILE, line N", object) for each line of a JSON-lines file; blank lines hold nothing and are passed over.

    A fragment at the end of the file is left out with a note. Raises LogError for any other line that is not one
    JSON object in UTF-8, FileNotFoundError without the file.
    """
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            where = f"{path}, line {number}"
            if not raw.strip():
                continue
            try:
                value = json.loads(raw.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                if not raw.endswith(b"\n"):
                    notes.append(f"{where}: cut off while being written; left out")
                    return
                raise LogError(f"{where}: not JSON ({error}); mend or remove this line") from None
            if not isinstance(value, dict):
                raise LogError(f"{where}: a {type(value).__name__}, where one JSON object is needed")
            step = value.get("step")
            if isinstance(step, bool) or not isinstance(step, int | float) or not 0 <= step < 2**53 or step % 1:
                raise LogError(f"{where}: 'step' is {str(step)[:40]}, a whole number from 0 is needed")
            yield where, value | {"step": int(step)}


def read_log(path: Path) -> tuple[list[dict], list[str]]:
    """The metrics of a log by step, under our names, and notes on what was left out.

    Only finite numbers are kept: NaN, infinite and null ones are left out and counted in a note. Of a step that is
    logged twice (a resumed run) the later line counts. Raises LogError for a metric that is not a number, and for a
    rate outside 0..1.
    """
    rows, notes, holes = {}, [], {}
    for where, line in read_lines(path, notes):
        row = {}
        for metric, value in line.items():
            metric = ALIASES.get(metric, metric)
            if value is None or (isinstance(value, int | float) and not _finite(value)):
                holes.setdefault(metric, []).append(where)
            elif not isinstance(value, int | float):
                raise LogError(f"{where}: {metric} is {str(value)[:40]!r}, a number is needed")
            elif RATE.match(metric) and not 0 <= value <= 1:
                raise LogError(f"{where}: {metric} is {value}, a rate from 0 to 1 is needed")
            else:
                row[metric] = value
        if line["step"] in rows:
            notes.append(f"{where}: step {line['step']} is logged again; the later line counts")
        rows[line["step"]] = row
    for metric, places in sorted(holes.items()):
        notes.append(f"{places[0]}: {metric} is not a finite number (so in {len(places)} lines); left out")
    return [rows[step] for step in sorted(rows)], notes


def _per_task(line: dict, key: str, where: str) -> np.ndarray | None:
    """The per-task values of an evaluation, [n], or None. Outcomes are a string of 0 and 1, scores a list."""
    given = line.get(key)
    if given is None:
        return None
    if isinstance(given, str) and set(given) <= {"0", "1"}:
        values = np.frombuffer(given.encode(), np.uint8) - 48.0
    elif isinstance(given, list) and all(_finite(value) and 0 <= value <= 1 for value in given):
        values = np.array(given, float)
    else:
        raise LogError(f"{where}: {key} must be a string of 0 and 1, or a list of numbers in 0..1")
    if len(values) != line["n"]:
        raise LogError(f"{where}: {len(values)} {key} for a panel of {line['n']} tasks")
    return values


def _evaluation(line: dict, where: str) -> Eval:
    missing = sorted({"panel", "panel_hash", "temperature", "n", "success"} - set(line))
    if missing:
        raise LogError(f"{where}: no {', '.join(missing)}")
    if not _finite(line["success"]) or not 0 <= line["success"] <= 1:
        raise LogError(f"{where}: success is {line['success']}, a rate from 0 to 1 is needed")
    if not isinstance(line["n"], int) or line["n"] < 1:
        raise LogError(f"{where}: n is {line['n']}, a number of tasks from 1 is needed")
    outcomes, scores = _per_task(line, "outcomes", where), _per_task(line, "scores", where)
    types, by_type = line.get("sources") or line.get("types") or [], {}
    if not isinstance(types, list) or not all(isinstance(kind, str) for kind in types):
        raise LogError(f"{where}: the types of its tasks must be a list of texts")
    types = tuple(types)
    if outcomes is not None:
        if abs(outcomes.mean() - line["success"]) > 1e-3:
            raise LogError(f"{where}: success is {line['success']}, but its outcomes say {outcomes.mean():.4f}")
        if types and len(types) != line["n"]:
            raise LogError(f"{where}: {len(types)} types for a panel of {line['n']} tasks")
        kinds = np.array(types)
        by_type = {kind: float(outcomes[kinds == kind].mean()) for kind in sorted(set(types))}
    fixed = (line[key] for key in ("step", "panel", "panel_hash", "temperature", "n", "success"))
    scripted = line.get("expert"), line.get("random"), line.get("skills", "none")
    return Eval(*fixed, line.get("score"), by_type, types, outcomes, scores, *scripted)


def read_eval(path: Path) -> tuple[list[Eval], list[str]]:
    """The evaluations in an eval.jsonl by step, and notes. Raises LogError for a line that contradicts itself."""
    evals, notes = {}, []
    for where, line in read_lines(path, notes):
        entry = _evaluation(line, where)
        key = (entry.step, entry.panel, entry.temperature, entry.skills)
        if key in evals:
            notes.append(f"{where}: {entry.panel} at step {entry.step} is there again; the later line counts")
        evals[key] = entry
    return sorted(evals.values(), key=lambda entry: entry.step), notes


PER_TOKEN = ("student_logp", "teacher_logp", "gate", "term", "adv")  # lists of a turn, in step with its tokens


def _check_turn(turn: dict, where: str) -> None:
    if not isinstance(turn, dict):
        raise LogError(f"{where}: a {type(turn).__name__}, where one JSON object is needed")
    lists = {key: turn[key] for key in ("tokens", *PER_TOKEN) if turn.get(key) is not None}
    if not all(isinstance(values, list) for values in lists.values()) or "tokens" not in lists:
        raise LogError(f"{where}: needs a list 'tokens', and lists (or null) for {', '.join(PER_TOKEN)}")
    for key, values in lists.items():
        if len(values) != len(lists["tokens"]):
            raise LogError(f"{where}: {len(values)} {key} for {len(lists['tokens'])} tokens")
        bad = [v for v in values if not (isinstance(v, str) if key == "tokens" else _finite(v))]
        if bad:
            raise LogError(
                f"{where}: {key} holds {str(bad[0])[:40]!r}, a {'text' if key == 'tokens' else 'number'} is needed"
            )


def _finite(value) -> bool:
    return isinstance(value, int | float) and -1e300 < value < 1e300


def read_episodes(path: Path) -> tuple[list[dict], list[str]]:
    """The saved episodes of a run (its episodes.jsonl), and notes. Raises LogError where a turn's per-token lists do
    not agree, FileNotFoundError where the run kept none."""
    episodes, notes = [], []
    for where, line in read_lines(path, notes):
        if not isinstance(line.get("turns"), list):
            raise LogError(f"{where}: no list 'turns'")
        for number, turn in enumerate(line["turns"]):
            _check_turn(turn, f"{where}, turn {number}")
        episodes.append(line)
    return episodes, notes


def read_run(folder: Path) -> Run:
    """A run of ours. A log that is not there (yet) is noted; config.json must hold an object 'settings'. The seconds
    in timing.jsonl join the metrics of their step."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        settings, commit = dict(config["settings"]), str(config.get("commit", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LogError(f"{path}: not the config of a run ({error}); it needs an object 'settings'") from None
    settings["model"] = Path(str(settings.get("model"))).name  # a folder's place says nothing about the model in it
    parts, notes = {"log": [], "eval": [], "timing": []}, []
    for name, read in (("log", read_log), ("eval", read_eval), ("timing", read_log)):
        if (folder / f"{name}.jsonl").is_file():
            parts[name], more = read(folder / f"{name}.jsonl")
            notes += more
            notes += [] if parts[name] or name == "timing" else [f"{folder}: nothing in {name}.jsonl yet"]
        elif name != "timing":
            notes.append(f"{folder}: no {name}.jsonl yet")
    seconds = {row["step"]: row for row in parts["timing"]}
    log = [row | seconds.get(row["step"], {}) for row in parts["log"]]
    return Run(folder, folder.parent.name, True, settings, log, parts["eval"], notes, commit)
