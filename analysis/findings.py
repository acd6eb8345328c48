"""From the audit's tables to sentences: what a reader of the paper should know.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Every number in a sentence is computed here from logs and printed table; nothing is quoted. Left out: the tables that
hold the same in full (audit.py, qa.py).
"""

from analysis import qa
from analysis.audit import AVERAGE, Paper, at_training_end, best, last_three, printed, rate, steps_that_match, what
from analysis.foreign import TRAINING
from analysis.forensics import on_lattice
from analysis.groups import label
from analysis.health import explodes, teacher_share
from analysis.logs import Run
from analysis.render import signed


def findings(runs: list[Run], paper: Paper) -> list[str]:
    """The audit in sentences."""
    return [
        *_cells(runs, paper), *_gains(runs, paper), *_questions(paper), *_teacher(runs), *_training(runs),
        *_term(runs),
    ]  # fmt: skip


def _cells(runs: list[Run], paper: Paper) -> list[str]:
    """Printed numbers that the log does not show at step 150."""
    out = []
    for run in runs:
        evals, (row, source) = at_training_end(run), printed(run, paper)
        column = AVERAGE.get(run.settings["env"])
        if not evals:
            out.append(f"{run.name}: no evaluation up to step {TRAINING} in its log.")
            continue
        about = f"{what(run)}, {run.settings['env']}, {run.settings['model']}"
        shown = f"{rate(evals[-1:])} at step {evals[-1].step}"
        if column not in row:
            out.append(
                f"{run.name} ({about}): no printed number; log {shown}, best {best(evals)}, last-3 "
                f"{last_three(evals)}."
            )
            continue
        found, whole = steps_that_match(run, {column: row[column]}), steps_that_match(run, row)
        gap = 100 * evals[-1].success - row[column]
        if evals[-1].step in found:
            continue
        steps = ", ".join(map(str, (whole or found)[:3]))
        kind = "the whole printed row" if whole else "the number but not its row"
        kind = "the printed number" if len(row) == 1 else kind
        where = f"step {steps} shows {kind}" if found else "no step shows it"
        out.append(
            f"{run.name} ({about}): printed {row[column]:.1f} ({source}), log {shown} ({signed(gap)}); {where}; "
            f"last-3 {last_three(evals)}."
        )
    return out


def _gains(runs: list[Run], paper: Paper) -> list[str]:
    """The printed gain over GRPO, and the gain over the authors' own GRPO log."""
    out = []
    for run in runs:
        column, evals = AVERAGE.get(run.settings["env"]), at_training_end(run)
        top = paper.get((run.settings["model"], "ADRS"), {}).get(column)
        base = paper.get((run.settings["model"], "GRPO"), {}).get(column)
        if what(run) == "GRPO" and evals and top is not None and base is not None:
            own = 100 * evals[-1].success
            out.append(
                f"{run.settings['env']}, {run.settings['model']}: the printed gain of ADRS over GRPO is "
                f"{signed(top - base)} ({top:.1f} over {base:.1f}); over the authors' own GRPO log ({own:.1f} at step "
                f"{evals[-1].step}) it is {signed(top - own)}."
            )
    return out


def _questions(paper: Paper) -> list[str]:
    out = []
    for model in dict.fromkeys(model for model, _ in paper):
        top, base = paper.get((model, "ADRS")), paper.get((model, "GRPO"))
        if top and base:
            kind = qa.footing(base["bamboogle"])
            gains = (top["qa_avg"] - base["qa_avg"], *(f(top) - f(base) for f in (qa.on_batch_footing, qa.micro)))
            out.append(
                f"search, {model}: ADRS prints {top['qa_avg']:.1f}, the macro average of its columns is "
                f"{qa.macro(top):.1f}, the micro average {qa.micro(top):.1f}; GRPO's Bamboogle "
                f"{base['bamboogle']:.1f} is {kind[0] if kind else '?'}. Gain as printed {signed(gains[0])}, both "
                f"macro with Bamboogle as (x + 100) / 2 {signed(gains[1])}, both micro {signed(gains[2])}."
            )
    return out


def _teacher(runs: list[Run]) -> list[str]:
    shares = [100 * share for run in runs if (share := teacher_share(run))]
    if not shares:
        return []
    low, high = min(shares), max(shares)
    return [f"The teacher's forward pass takes {low:.1f} to {high:.1f} % of the step time ({len(shares)} runs)."]


def _training(runs: list[Run]) -> list[str]:
    loud = []
    for run in runs:
        entropy, kl = run.series("actor/entropy_loss")[1], run.series("actor/kl_loss")[1]
        if explodes(entropy):
            drift = f", KL up to {kl.max():.1f}" if len(kl) else ""
            loud.append(f"{run.name} ({entropy[0]:.2f} to {entropy.max():.1f} nats{drift})")
    return [f"Entropy explodes in {len(loud)} of {len(runs)} runs: {'; '.join(loud)}."] if loud else []


def _term(runs: list[Run]) -> list[str]:
    """Which ADRS runs show a token term in the extreme advantages, and when."""
    with_term, without = [], []
    for run in runs:
        shares = on_lattice(run)
        if not label(run.settings).startswith("ADRS") or not shares:
            continue
        moved = [steps for steps, _, share, chance in shares if share < 5 * chance]
        (with_term if moved else without).append(f"{run.name} (steps {', '.join(moved)})" if moved else run.name)
    out = []
    if without:
        out.append(
            f"No token term shows in the advantages of {len(without)} ADRS runs, which look like plain GRPO: "
            f"{', '.join(without)}."
        )
    if with_term:
        out.append(f"Something is added to the advantages of {len(with_term)} ADRS runs: {'; '.join(with_term)}.")
    return out
