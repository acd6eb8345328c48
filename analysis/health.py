"""From a log's seconds, entropy and advantages to what training cost, how stable it was, and what it trained on.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

The second half of the audit: one function a table. Left out: success (audit.py), and how an advantage betrays a token
term (forensics.py).
"""

import numpy as np

from analysis.audit import NONE, what
from analysis.foreign import TRAINING
from analysis.forensics import on_lattice, residual
from analysis.logs import Run
from analysis.render import Table


def teacher_share(run: Run, evaluation: bool = True) -> float | None:
    """The teacher's forward pass as a part of all seconds of a run's steps, with or without those of evaluation; None
    where it has none."""
    rows = [row for row in run.log if "time/step_s" in row]
    teacher = sum(row.get("time/teacher_s", 0.0) for row in rows)
    whole = sum(row["time/step_s"] - (0.0 if evaluation else row.get("time/eval_s", 0.0)) for row in rows)
    return teacher / whole if teacher and whole else None


def explodes(entropy: np.ndarray) -> bool:
    """Whether an entropy, by step, rises above three times its first value."""
    return bool(len(entropy)) and entropy.max() > 3 * entropy[0]


def cost(runs: list[Run]) -> Table:
    """Seconds of a step, and the teacher's share: of all seconds, and with evaluation left out."""
    rows = []
    for run in runs:
        both = [row for row in run.log if "time/step_s" in row]
        if not both:
            continue
        step, test = (np.mean([row.get(key, 0.0) for row in both]) for key in ("time/step_s", "time/eval_s"))
        phases = [
            np.mean([row.get(f"time/{phase}_s", 0.0) for row in both]) for phase in ("rollout", "old", "ref", "update")
        ]
        teacher = np.mean([row.get("time/teacher_s", 0.0) for row in both])
        share = [f"{100 * (teacher_share(run, whole) or 0):.1f}" if teacher else NONE for whole in (True, False)]
        rows.append(
            (
                run.name,
                what(run),
                f"{step:.0f}",
                f"{test:.0f}",
                *(f"{value:.0f}" for value in phases),
                f"{teacher:.1f}" if teacher else NONE,
                *share,
            )
        )
    heads = (
        "run", "method", "step, s", "of it evaluation", "rollout", "old", "ref", "update", "teacher, s",
        "teacher, % of step", "without evaluation",
    )  # fmt: skip
    return Table("audit_cost", "mean seconds of a step", heads, rows)


def training(runs: list[Run]) -> Table:
    """Entropy, KL to the start, valid actions and response length over a run: what an unstable run shows first."""
    rows = []
    for run in runs:
        entropy, kl = run.series("actor/entropy_loss")[1], run.series("actor/kl_loss")[1]
        valid, length = run.series("episode/valid_action_ratio")[1], run.series("response_length/mean")[1]
        if not len(entropy):
            continue
        rows.append((
            run.name, what(run), f"{entropy[0]:.2f}", f"{entropy[:20][-1]:.2f}", f"{entropy.max():.2f}",
            f"{entropy[-1]:.2f}", "explodes" if explodes(entropy) else "bounded",
            f"{kl[:TRAINING][-10:].mean():.2f}" if len(kl) else NONE, f"{kl.max():.2f}" if len(kl) else NONE,
            f"{valid[-10:].mean():.2f}" if len(valid) else NONE,
            f"{length[:10].mean():.0f} to {length[-10:].mean():.0f}" if len(length) else NONE,
        ))  # fmt: skip
    heads = (
        "run", "method", "entropy at first", "at step 20", "highest", "last", "entropy", f"KL to {TRAINING}",
        "highest KL", "valid actions", "response tokens",
    )  # fmt: skip
    notes = [
        "Entropy in nats a token; 'explodes': above three times its first value. KL, valid actions, response tokens: "
        "means of ten steps."
    ]
    return Table("audit_training", "how stable training was", heads, rows, 1, notes)


def term(runs: list[Run]) -> Table:
    """Can a token term have been added? Shares of the extreme advantages that lie where plain GRPO puts them."""
    rows = []
    for run in runs:
        off, shares = residual(run), on_lattice(run)
        for steps, count, share, by_chance in shares:
            verdict = "plain GRPO" if share > 0.5 else ("something added" if share < 5 * by_chance else "mixed")
            rows.append((
                run.name, what(run), steps, str(count), f"{100 * share:.0f}", f"{100 * by_chance:.1f}", verdict,
                NONE if off is None else f"{off:.0e}",
            ))  # fmt: skip
    heads = ("run", "method", "steps", "values", "on the lattice, %", "by chance, %", "looks like", "largest residual")
    notes = [
        "Residual: the largest difference between the shaped reward and the environment's. A centred term sums to "
        "zero over a row, so that what is left is float noise."
    ]
    return Table("audit_term", "is there a token term in the advantages?", heads, rows, 3, notes)


def tables(runs: list[Run]) -> list[Table]:
    return [cost(runs), training(runs), term(runs)]
