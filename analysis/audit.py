"""From a paper's own logs and its printed table to what the logs show: cell by cell, pair by pair, second by second.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

    python analyze.py --logs DIR --paper table2.csv

One function a table; `findings` says in sentences what they hold. "At step 150": the paper's training length; a log
that ends earlier is read at its last evaluation and says so. Left out: how a log is read (foreign.py), averages over
question sets (qa.py), seconds and stability (health.py).
"""

import numpy as np

from analysis.foreign import TRAINING, TURNS
from analysis.forensics import composition, misfits
from analysis.groups import ORDER, label
from analysis.logs import Eval, Run
from analysis.paper import DATA, HORIZON, ON_GIGPO, SETS, TYPES, UNSEEN, name
from analysis.render import Table, chance, signed
from analysis.stats import Measure, difference_of_rates, fisher, holm, wilson

Paper = dict[tuple[str, str], dict[str, float]]  # Table 2: (model, method) -> column -> percent
NONE = "–"
NEAR = 0.1  # printed numbers are rounded or cut off at one decimal
AVERAGE = {"alfworld": "alf_avg", "search": "qa_avg", "webshop": "webshop_success"}
QUESTIONS = {column: count for column, (_, count) in SETS.items()}


def columns(entry: Eval, env: str) -> dict[str, float]:
    """An evaluation as Table 2 prints it: column -> percent."""
    out = {AVERAGE[env]: entry.success} if env in AVERAGE else {}
    kinds = TYPES if env == "alfworld" else {column: source for column, (source, _) in SETS.items()}
    out |= {column: entry.by_type[kind] for column, kind in kinds.items() if kind in entry.by_type}
    if env == "webshop" and entry.score is not None:
        out["webshop_score"] = entry.score
    return {column: 100 * value for column, value in out.items()}


def at_training_end(run: Run) -> list[Eval]:
    """The evaluations up to step 150, by step."""
    return [entry for entry in run.evals if entry.step <= TRAINING]


def printed(run: Run, paper: Paper) -> tuple[dict[str, float], str]:
    """What the paper prints for this run, column -> percent, and where. Empty where it prints nothing."""
    settings = run.settings
    kind, env = label(settings), settings["env"]
    if env == "alfworld" and settings["fraction"] < 1:
        value = DATA.get(kind, {}).get(settings["fraction"])
        return ({} if value is None else {"alf_avg": value}), "data figure"
    if env == "alfworld" and settings["max_turns"] < TURNS[env]:
        value = HORIZON.get(kind, {}).get(settings["max_turns"])
        return ({} if value is None else {"alf_avg": value}), "horizon figure"
    if settings["eval_split"] == "unseen":
        return UNSEEN.get(kind, {}), "unseen figure"
    if kind in ON_GIGPO and env == "alfworld":
        return {"alf_avg": ON_GIGPO[kind]}, "TVA figure"
    row = paper.get((settings["model"], name(kind)), {}) if settings["backbone"] == "grpo" and kind != "ADRS" else {}
    wanted = {
        "alfworld": ("alf_avg", *TYPES),
        "search": ("qa_avg", *SETS),
        "webshop": ("webshop_success", "webshop_score"),
    }
    return {column: row[column] for column in wanted.get(env, ()) if column in row}, "Table 2"


def steps_that_match(run: Run, row: dict[str, float]) -> list[int]:
    """The steps at which every one of these printed columns that the log holds agrees to 0.1."""
    out = []
    for entry in run.evals:
        shown = columns(entry, run.settings["env"])
        shared = [column for column in row if column in shown]
        if shared and all(abs(shown[column] - row[column]) <= NEAR for column in shared):
            out.append(entry.step)
    return out


def rate(evals: list[Eval]) -> Measure | str:
    """Success over some evaluations of one run. Each drew its own episodes, so the counts add up (Wilson)."""
    if not evals:
        return NONE
    mean = float(np.mean([entry.success for entry in evals]))
    if evals[0].n is None:
        return Measure(100 * mean, of="1 run, number of episodes unknown")
    n = sum(entry.n for entry in evals)
    hits = round(mean * n)
    low, high = wilson(hits, n)
    return Measure(100 * mean, 100 * low, 100 * high, f"{hits}/{n}, 1 run")


def best(evals: list[Eval]) -> str:
    if not evals:
        return NONE
    top = max(evals, key=lambda entry: entry.success)
    return f"{100 * top.success:.1f} @{top.step}"


def last_three(evals: list[Eval]) -> Measure | str:
    return rate(evals[-3:]) if len(evals) >= 3 else NONE


def cells(runs: list[Run], paper: Paper) -> Table:
    """Cell by cell: the printed number, and what the log shows at step 150, best, last-3, and at its end."""
    rows, notes = [], []
    for run in runs:
        evals = at_training_end(run)
        row, source = printed(run, paper)
        value = row.get(AVERAGE.get(run.settings["env"], ""))
        if run.evals and run.last < TRAINING:
            notes.append(f"{run.name} is partial: it ends at step {run.last}, before {TRAINING}.")
        now = rate(evals[-1:])
        gap = NONE if value is None or not evals else signed(100 * evals[-1].success - value)
        alone = {column: row[column] for column in [AVERAGE.get(run.settings["env"])] if column in row}
        matches = [_listed(steps_that_match(run, part)) if part else NONE for part in (alone, row)]
        rows.append((
            run.name, run.settings["env"], run.settings["model"], what(run),
            NONE if value is None else f"{value:.1f}", source if row else NONE,
            str(evals[-1].step) if evals else NONE, now, gap, *matches, best(evals), last_three(evals),
            str(run.evals[-1].step) if run.evals else NONE, rate(run.evals[-1:]), best(run.evals),
            last_three(run.evals),
        ))  # fmt: skip
    if any(run.settings["env"] == "search" for run in runs):
        notes.append(
            "Search: the logs give means over batches; intervals take them as rates over all 51,713 questions."
        )
    heads = (
        "run", "environment", "model", "method", "printed", "where", "step", "log", "log − printed",
        "number found at step", "whole row found at", f"best to {TRAINING}", f"last-3 to {TRAINING}", "end",
        "at the end", "best", "last-3",
    )  # fmt: skip
    return Table("audit_cells", "what is printed and what the log shows, success in percent", heads, rows, 1, notes)


def _listed(steps: list[int]) -> str:
    return ", ".join(map(str, steps[:4])) + ", ..." * (len(steps) > 4) or "none"


def what(run: Run) -> str:
    """The method, and what is unusual about the run."""
    settings = run.settings
    extra = [f"{100 * settings['fraction']:.0f} % of tasks"] * (settings["fraction"] < 1)
    extra += [f"{settings['max_turns']} turns"] * (settings["max_turns"] != TURNS.get(settings["env"]))
    extra += ["unseen games"] * (settings["eval_split"] == "unseen")
    return ", ".join([label(settings), *extra])


def types(runs: list[Run], paper: Paper) -> Table:
    """The other columns of Table 2 at step 150, with the printed ones, and Wilson's interval where the number of
    episodes of a type follows from the rates of all runs together."""
    rows = []
    for run in runs:
        evals, row = at_training_end(run), printed(run, paper)[0]
        if not evals:
            continue
        env = run.settings["env"]
        panel = composition(runs, evals[-1].step) if env == "alfworld" else None
        for column, value in columns(evals[-1], env).items():
            if column == AVERAGE.get(env):
                continue
            n = (panel or {}).get(TYPES.get(column, "")) if env == "alfworld" else QUESTIONS.get(column)
            low, high = (100 * x for x in wilson(round(value / 100 * n), n)) if n else (None, None)
            shown = Measure(value, low, high, f"of {n}" if n else "")
            said = row.get(column)
            rows.append((
                run.name, column, NONE if said is None else f"{said:.1f}", shown,
                NONE if said is None else signed(value - said),
            ))  # fmt: skip
    heads = ("run", "column", "printed", f"log at {TRAINING}", "log − printed")
    return Table("audit_types", "the columns of Table 2 and the logs, percent", heads, rows, 2)


def panels(runs: list[Run], paper: Paper) -> Table:
    """Which ALFWorld rows of Table 2 can have been measured on the panel that all logs had at step 150."""
    panel = composition(runs, TRAINING)
    if panel is None:
        return Table(
            "audit_panels", "validation panel at step 150", ("model", "method", "misfits"), [], 2,
            ["The logs do not determine how many episodes of each type a validation had."],
        )  # fmt: skip
    rows = [(model, method, ", ".join(misfits(row, panel)) or "fits") for (model, method), row in paper.items()]
    said = ", ".join(f"{column} {panel[kind]}" for column, kind in TYPES.items())
    return Table(
        "audit_panels", "columns that do not fit the validation panel of step 150", ("model", "method", "misfits"),
        rows, 2, [f"Episodes by type, from the rates of all runs at step {TRAINING}: {said}."],
    )  # fmt: skip


def pairs(runs: list[Run], paper: Paper) -> Table:
    """Do two methods differ beyond noise at step 150? Log against log, and log against the printed number of a
    rival. Unpaired (every validation drew its own episodes): Fisher's exact test, Newcombe's interval, Holm."""
    found = []
    whole = [run for run in runs if at_training_end(run) and run.settings["fraction"] == 1 and run.evals[-1].n]
    for one in whole:
        for other in whole:
            if _challenges(one, other):
                rival = at_training_end(other)[-1]
                found.append((one, f"{what(other)} ({other.name})", rival.success, rival.n))
        for method in ("GRPO", "SDAR") if what(one) in ("ADRS", "ADRS+TVA") else ():
            value = paper.get((one.settings["model"], method), {}).get(AVERAGE.get(one.settings["env"]))
            if value is not None:
                found.append((one, f"{method} as printed", value / 100, one.evals[-1].n))
    tests = []
    for one, _, theirs, m in found:
        mine = at_training_end(one)[-1]
        counts = (round(mine.success * mine.n), mine.n, round(theirs * m), m)
        tests.append((difference_of_rates(*counts), fisher(*counts)))
    rows = []
    for (one, said, theirs, _), (ends, p), q in zip(found, tests, holm([p for _, p in tests]), strict=True):
        mine = at_training_end(one)[-1].success
        gap = Measure(100 * (mine - theirs), 100 * ends[0], 100 * ends[1])
        rows.append((
            f"{what(one)} ({one.name})", said, one.settings["env"], one.settings["model"], f"{100 * mine:.1f}",
            f"{100 * theirs:.1f}", gap, chance(p), chance(q), "differs" if q < 0.05 else "within noise",
        ))  # fmt: skip
    heads = (
        "log", "against", "environment", "model", "success", "its success", "difference, points", "p", "p, Holm",
        "verdict",
    )  # fmt: skip
    notes = [
        f"{len(rows)} comparisons in one family; one run each, so that a verdict is about episodes, not seeds. Search "
        "rates are means over batches, and a printed rival is taken as a rate of the same number of episodes."
    ]
    return Table("audit_pairs", f"differences at step {TRAINING}", heads, rows, 2, notes)


def _challenges(one: Run, other: Run) -> bool:
    """Whether `one` is the newer method of two that were run on the same cell; of equal methods, the later file."""
    same = all(one.settings[key] == other.settings[key] for key in ("env", "model", "max_turns", "eval_split"))
    places = [
        (ORDER.index(label(run.settings)) if label(run.settings) in ORDER else 99, str(run.path))
        for run in (one, other)
    ]
    return same and places[0] > places[1]


def tables(runs: list[Run], paper: Paper) -> list[Table]:
    """The tables about success on ALFWorld and WebShop, and the search average."""
    return [cells(runs, paper), types(runs, paper), panels(runs, paper), pairs(runs, paper)]
