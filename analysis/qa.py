"""From the seven question sets to averages that can be compared.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

A success rate in these logs is a mean over batches of a validation, and Bamboogle's 125 questions fall into one batch
with 124 of them and one with a single question. So its printed score is x, or (x + 0) / 2, or (x + 100) / 2, and the
mean of the seven columns moves by 7 points with one question. Here each printed score is put back into questions.
Source: method.md 5.4. Left out: everything that is not about question answering.
"""

import numpy as np

from analysis.audit import NONE, QUESTIONS, Paper, at_training_end, columns
from analysis.groups import label
from analysis.logs import Run
from analysis.paper import SETS, name
from analysis.render import Table, signed

LONE = 124  # questions in the large one of Bamboogle's two batches
NEAR = 0.06  # a printed average against one computed from printed columns
# footing: (printed percent from k right answers, number of questions that k counts, right answers among all 125)
FOOTINGS = {
    "x": (lambda k: 100 * k / 125, 125, lambda k: k),
    "(x + 0) / 2": (lambda k: 50 * k / LONE, LONE, lambda k: k),
    "(x + 100) / 2": (lambda k: 50 * k / LONE + 50, LONE, lambda k: k + 1),
}


def macro(row: dict[str, float]) -> float:
    """The mean of the seven columns."""
    return float(np.mean([row[column] for column in QUESTIONS]))


def micro(row: dict[str, float]) -> float:
    """The mean over all questions of the full test sets."""
    return float(np.average([row[column] for column in QUESTIONS], weights=list(QUESTIONS.values())))


def footing(score: float) -> tuple[str, float] | None:
    """How a Bamboogle score (percent, one decimal) came about, and what percent of its 125 questions were right: the
    first footing with a count that gives this score. None where none does."""
    for said, (shown, size, right) in FOOTINGS.items():
        for k in range(size + 1):
            if abs(shown(k) - score) <= 0.051:
                return said, 100 * right(k) / 125
    return None


def on_batch_footing(row: dict[str, float]) -> float:
    """The macro average with Bamboogle as (x + 100) / 2, the footing of the paper's ADRS row."""
    kind = footing(row["bamboogle"])
    score = row["bamboogle"]
    if kind and kind[0] == "x":
        score = (score + 100) / 2
    elif kind and kind[0] == "(x + 0) / 2":
        score += 50
    return macro(row | {"bamboogle": score})


def by_question(row: dict[str, float]) -> float:
    """The macro average with Bamboogle by question."""
    kind = footing(row["bamboogle"])
    return macro(row | {"bamboogle": kind[1] if kind else row["bamboogle"]})


def averages(runs: list[Run], paper: Paper) -> Table:
    """Every printed average beside the macro and the micro average of its own columns, and beside macro averages with
    Bamboogle on one footing."""
    overall = {
        (run.settings["model"], name(label(run.settings))): 100 * at_training_end(run)[-1].success
        for run in runs
        if run.settings["env"] == "search" and at_training_end(run)
    }
    rows = []
    for (model, method), row in paper.items():
        said = []
        if abs(macro(row) - row["qa_avg"]) <= NEAR:
            said.append("macro")
        if abs(overall.get((model, method), -1.0) - row["qa_avg"]) <= NEAR:
            said.append("success over all questions")
        kind = footing(row["bamboogle"])
        rows.append((
            model, method, f"{row['qa_avg']:.1f}", f"{macro(row):.1f}", f"{micro(row):.1f}",
            " and ".join(said) or "neither", f"{row['bamboogle']:.1f}", kind[0] if kind else "?",
            f"{kind[1]:.1f}" if kind else "?", f"{on_batch_footing(row):.1f}", f"{by_question(row):.1f}",
        ))  # fmt: skip
    heads = (
        "model", "method", "printed average", "macro", "micro", "printed is", "Bamboogle", "is", "by question",
        "macro, all (x + 100) / 2", "macro, by question",
    )  # fmt: skip
    return Table(
        "audit_qa", "averages over the seven question sets, percent", heads, rows, 2,
        ["x: share of right answers among Bamboogle's questions. Micro: weighted with the questions of a set."],
    )  # fmt: skip


def like_for_like(paper: Paper) -> Table:
    """ADRS against GRPO with the same average on both sides, points."""
    rows = []
    for model in dict.fromkeys(model for model, _ in paper):
        ours, base = paper.get((model, "ADRS")), paper.get((model, "GRPO"))
        if ours and base:
            gains = (
                ours["qa_avg"] - base["qa_avg"],
                *(f(ours) - f(base) for f in (macro, micro, on_batch_footing, by_question)),
            )
            rows.append((model, *map(signed, gains)))
    heads = ("model", "as printed", "macro", "micro", "macro, all (x + 100) / 2", "macro, by question")
    return Table("audit_qa_gain", "ADRS − GRPO on question answering, points", heads, rows)


def scores(runs: list[Run]) -> Table:
    """What the logs hold besides success rates: the mean test score of every set, which is not halved."""
    rows = []
    for run in runs:
        evals = at_training_end(run)
        if run.settings["env"] != "search" or not evals:
            continue
        line = next(row for row in run.log if row["step"] == evals[-1].step)
        keys = {column: f"val/{source}/test_score" for column, (source, _) in SETS.items()}
        sets = {column: 100 * line[key] for column, key in keys.items() if key in line}
        rates = columns(evals[-1], "search")
        whole = len(sets) == len(QUESTIONS) and all(column in rates for column in QUESTIONS)
        rows.append(
            (
                run.name,
                run.settings["model"],
                str(evals[-1].step),
                f"{100 * evals[-1].success:.1f}",
                f"{macro(rates):.1f}" if whole else NONE,
                *(f"{sets[c]:.1f}" if c in sets else NONE for c in QUESTIONS),
                f"{macro(sets):.1f}" if whole else NONE,
            )
        )
    heads = ("run", "model", "step", "success, all", "success, macro", *QUESTIONS, "test score, macro")
    return Table("audit_qa_scores", "search: success rates and test scores in the logs, percent", heads, rows)


def tables(runs: list[Run], paper: Paper) -> list[Table]:
    """Every table about question sets."""
    return [averages(runs, paper), like_for_like(paper), scores(runs)]
