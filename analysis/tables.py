"""From `Group`s to tables: what was reached, by type, who beats whom, what it cost, and on which files it rests.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

One function a table. Success is in percent of the tasks of one panel, each played once; final, last-3 and best have
their own columns. What is partial, and on which panel and at which temperature, stands below. Left out: token gaps
(tokens.py) and other people's logs (audit.py).
"""

import numpy as np

from analysis.groups import WHERE, Group, one_panel, per_task
from analysis.logs import HEADLINE, Eval, Run
from analysis.paper import others, published
from analysis.render import Cell, Table, chance
from analysis.stats import Measure, bootstrap_difference, bootstrap_mean, holm, over_runs, over_tasks, wilson

NONE = "–"
WORLD = ("env", "model", "fraction", "max_turns", "skill_noise", "eval_split", "steps")  # what a method is tried in
PHASES = ("rollout", "teacher", "ref", "old", "credit", "update")


def success(chosen: list[list[Eval]]) -> Cell:
    """`94.5 [89.1, 97.3] (121/128, 1 run)`: Wilson for one evaluation or for rates alone; for several evaluations or
    runs with outcomes the bootstrap over runs and tasks within their type."""
    if not chosen:
        return NONE
    evals = [entry for run in chosen for entry in run]
    mean = float(np.mean([np.mean([entry.success for entry in run]) for run in chosen]))
    runs = f"{len(chosen)} run{'s' * (len(chosen) > 1)}"
    if any(entry.n is None for entry in evals):
        return Measure(100 * mean, of=f"{runs}, number of episodes unknown")
    n = sum(entry.n for entry in evals)
    hits = sum(round(entry.success * entry.n) for entry in evals)
    values = per_task(chosen)
    low, high = wilson(hits, n) if len(evals) == 1 or values is None else bootstrap_mean(values, evals[0].types)
    return Measure(100 * mean, 100 * low, 100 * high, f"{hits}/{n}, {runs}")


def score(chosen: list[list[Eval]]) -> Cell:
    """Mean score in percent, with the bootstrap over runs and tasks."""
    values = per_task(chosen, "scores") if chosen else None
    if values is None:
        means = [entry.score for run in chosen for entry in run if entry.score is not None]
        return Measure(100 * float(np.mean(means))) if means else NONE
    low, high = bootstrap_mean(values, chosen[0][0].types)
    return Measure(100 * values.mean(), 100 * low, 100 * high, f"{values.size} episodes")


def conditions(members: list[Group]) -> list[str]:
    """What stands below a table of success: panel, ceiling and floor of each environment; what is partial."""
    notes = []
    for key in sorted({(group.env, group.split) for group in members}):
        entry = one_panel(_on(members, *key))
        if entry is None:
            notes.append(f"{key[0]}: no evaluation on the {key[1]} panel at temperature {HEADLINE} yet.")
            continue
        ends = (entry.expert, entry.random)
        scripted = "" if None in ends else "; expert {:.1f}, random search {:.1f}".format(*(100 * x for x in ends))
        notes.append(
            f"{key[0]}: {key[1]} panel {entry.digest}, {entry.n} tasks, temperature {HEADLINE}, "
            f"95 % intervals{scripted}."
        )
    return notes + [f"{text}." for group in members for text in group.partial]


def _on(members: list[Group], env: str, split: str) -> list[Group]:
    return [g for g in members if g.env == env and g.split == split]


def _names(group: Group) -> tuple[str, str, str]:
    return group.env, group.label, group.variant


def outcomes(table: str, members: list[Group], authors: dict[tuple[str, str], str] | None = None) -> Table:
    """What every group of an experiment reached. Columns that nobody fills are left out.

    `authors`: (environment, label) -> what the authors' own log shows, from the audit.
    """
    gates = {"gate": "tva/gate_mean", "TVA": "tva/d_mean", "control": "tva/control_mean"}
    columns = ["environment", "method", "variant", *WHERE, "final, T=1", "score", *gates, "paper", "authors' log"]
    rows = []
    for group in members:
        paper = published(table, group)
        last = group.pick("final")
        rows.append(
            (
                *_names(group),
                *(success(group.pick(where)) for where in WHERE),
                success(group.pick("final", 1.0)) if group.runs[0].ours else NONE,
                score(last) if group.env == "webshop" else NONE,
                *(_mean_over_runs(group, metric) for metric in gates.values()),
                NONE if paper is None else f"{paper:.1f}",
                (authors or {}).get((group.env, group.label), NONE),
            )
        )
    if any(group.env == "alfworld" for group in members):
        empty = [NONE] * (len(columns) - 5)
        rows += [
            ("alfworld", label, f"paper, {said}", *empty, f"{value:.1f}", NONE) for label, said, value in others(table)
        ]
    kept = [
        i for i, name in enumerate(columns) if i < 2 or name in WHERE or any(row[i] not in (NONE, "") for row in rows)
    ]
    index = 3 if 2 in kept else 2
    trimmed = [tuple(row[i] for i in kept) for row in rows]
    title = f"{table}: success in percent"
    return Table(table, title, tuple(columns[i] for i in kept), trimmed, index, conditions(members))


def _mean_over_runs(group: Group, metric: str) -> Cell:
    means = [values.mean() for run in group.runs if len(values := run.series(metric)[1])]
    return Measure(float(np.mean(means)), digits=3) if means else NONE


def by_type(table: str, members: list[Group]) -> Table:
    """Final success of every group by task type or question source, and for search both averages."""
    rows = []
    for group in members:
        last = group.pick("final")
        if not last:
            continue
        kinds = sorted(last[0][0].by_type)
        for kind in kinds:
            rows.append((*_names(group), kind, _of_type(last, kind)))
        macro = np.mean([np.mean([run[0].by_type[kind] for kind in kinds]) for run in last]) if kinds else None
        if macro is not None:
            rows.append((*_names(group), "mean of types (macro)", Measure(100 * float(macro))))
        rows.append((*_names(group), "all tasks (micro)", success(last)))
    columns = ("environment", "method", "variant", "type", "final")
    return Table(f"{table}_types", f"{table}: final success by type, percent", columns, rows, 4, conditions(members))


def _of_type(chosen: list[list[Eval]], kind: str) -> Cell:
    values = per_task(chosen)
    if values is None:
        return Measure(100 * float(np.mean([run[0].by_type[kind] for run in chosen])))
    part = values[:, np.array(chosen[0][0].types) == kind]
    hits, n, runs = int(part.sum()), part.size, f"{len(part)} run{'s' * (len(part) > 1)}"
    low, high = wilson(hits, n) if len(part) == 1 else bootstrap_mean(part)
    return Measure(100 * part.mean(), 100 * low, 100 * high, f"{hits}/{n}, {runs}")


def rivals(label: str) -> list[str]:
    """The labels that a method is set against: its backbone, SDAR where it is an ADRS, ADRS where it has the gate."""
    prefix = "GiGPO+" if label.startswith("GiGPO+") else ""
    names = [f"{prefix}SDAR"] * ("ADRS" in label) + [f"{prefix}ADRS"] * label.endswith("+TVA")
    return [name for name in [prefix.strip("+") or "GRPO", *names] if name != label]


def comparisons(members: list[Group]) -> list[tuple[Group, Group]]:
    """Which groups are set against each other: a method against its rivals in the same world; with fewer tasks or
    wrong skills also against its backbone, which has all tasks and no skills; a variant against the reference."""
    out = []
    for group in members:
        for peer in members:
            differing = {key for key in WORLD if group.settings.get(key) != peer.settings.get(key)}
            whole = peer.label in rivals(group.label)[:1] and peer.settings.get("fraction", 1.0) == 1.0
            allowed = {"fraction", "skill_noise"} if whole else set()
            rival = peer.label in rivals(group.label) and differing <= allowed
            reference = peer.label == group.label and not differing and bool(group.variant) and not peer.variant
            if rival or reference:
                out.append((group, peer))
    return out


def pairs(table: str, members: list[Group]) -> Table:
    """Differences in final success between methods on one panel, in points, and whether they could be chance.

    `p, tasks`: McNemar (one run each), or exchanging the methods on whole tasks. `p, seeds`: Welch's t on the runs.
    Holm corrects the larger of the two over the table. A verdict needs two runs of each side.
    """
    found = []
    for one, other in comparisons(members):
        one_panel([one, other])
        mine, theirs = one.pick("final"), other.pick("final")
        values = [per_task(chosen) if chosen else None for chosen in (mine, theirs)]
        if values[0] is None or values[1] is None:
            continue
        low, high = bootstrap_difference(*values, mine[0][0].types)
        gap = Measure(100 * float(values[0].mean() - values[1].mean()), 100 * low, 100 * high)
        found.append((one, other, gap, over_tasks(*values), over_runs(*values)))
    adjusted = holm([max(tasks, seeds or 0.0) for *_, tasks, seeds in found])
    rows = []
    for (one, other, gap, tasks, seeds), p in zip(found, adjusted, strict=True):
        verdict = "one run: seeds untested" if seeds is None else ("differs" if p < 0.05 else "within noise")
        rows.append((one.env, one.name, other.name, gap, chance(tasks), chance(seeds), chance(p), verdict))
    columns = ("environment", "method", "against", "difference, points", "p, tasks", "p, seeds", "p, Holm", "verdict")
    notes = [f"{len(rows)} comparisons in one family.", *conditions(members)]
    return Table(f"{table}_pairs", f"{table}: differences in final success", columns, rows, 3, notes)


def cost(table: str, members: list[Group]) -> Table:
    """Tokens and seconds of a training step by phase, evaluation aside, and the teacher's share of the seconds."""
    rows = []
    for group in members:
        seconds = {phase: _mean_of(group.runs, f"time/{phase}_s") for phase in PHASES}
        if not any(seconds.values()):
            continue
        total = sum(filter(None, seconds.values()))
        share = 100 * seconds["teacher"] / total if seconds["teacher"] else 0.0
        tokens = [_mean_of(group.runs, f"tokens/{part}") for part in ("prompt", "response")]
        rows.append(
            (
                *_names(group),
                *(NONE if value is None else f"{value:.0f}" for value in tokens),
                *(NONE if value is None else f"{value:.2f}" for value in seconds.values()),
                f"{total:.2f}",
                f"{share:.1f}",
            )
        )
    columns = (
        "environment",
        "method",
        "variant",
        "prompt tokens",
        "response tokens",
        *(f"{p}, s" for p in PHASES),
        "sum, s",
        "teacher, %",
    )
    return Table(
        f"{table}_cost", f"{table}: cost of a training step", columns, rows, 3,
        ["Means over all steps and runs of a row; one machine's seconds."],
    )  # fmt: skip


def _mean_of(runs: tuple[Run, ...], metric: str) -> float | None:
    values = [value for run in runs for value in run.series(metric)[1]]
    return float(np.mean(values)) if values else None


def provenance(members: list[Run]) -> Table:
    """Every run behind the other tables: steps done, panel, commit, and what was odd about its files."""
    rows = []
    for run in members:
        evals = run.on_panel() or run.evals
        panel = f"{evals[-1].panel} {evals[-1].digest}, {evals[-1].n} tasks" if evals else NONE
        planned = run.settings.get("steps", NONE)
        remarks = [note.replace(f"{run.path}/", "").replace(str(run.path), run.name) for note in run.notes]
        odd = "; ".join(filter(None, [run.partial and "partial", *remarks])) or NONE
        rows.append(
            (run.name, str(run.settings.get("seed", NONE)), f"{run.last}/{planned}", panel, run.commit or NONE, odd)
        )
    columns = ("run", "seed", "steps", "panel", "commit", "remarks")
    return Table("runs", "runs behind the tables", columns, rows)
