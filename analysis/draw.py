"""The hand that draws: one style for every figure, readable in grey, and the same bytes each time.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

A method is told apart by its dash pattern and its marker before its colour. Every figure carries a line that says
what was measured: panel, tasks, temperature, seeds. Left out: what is drawn (figures.py).
"""

import itertools
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from analysis.groups import Group, label, per_task
from analysis.logs import HEADLINE, Run
from analysis.stats import bootstrap_mean, wilson

STYLE = {
    "svg.hashsalt": "adrs",  # with no date in the metadata: the same bytes each time
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.dpi": 130,
}
# label: colour, dashes, marker; no two alike in grey
LOOKS = {
    "GRPO": ("#7f7f7f", (0, (4, 2)), "s"),
    "GiGPO": ("#b0781e", (0, (6, 2, 1, 2)), "D"),
    "SDAR": ("#2a9d8f", (0, (1, 1)), "^"),
    "ADRS": ("#3a6fd8", (0, (5, 1)), "v"),
    "ADRS+TVA": ("#111111", "-", "o"),
    "GiGPO+SDAR": ("#6b8e23", (0, (2, 2)), "<"),
    "GiGPO+ADRS": ("#d1495b", (0, (3, 1, 1, 1)), "P"),
    "GiGPO+ADRS+TVA": ("#7b2d8b", "-", "X"),
    "Vanilla": ("#a0a0a0", (0, (1, 3)), "."),
    "Skill-Prompt*": ("#808000", (0, (1, 3)), "*"),
    "OPSD": ("#c07a50", (0, (8, 2)), ">"),
    "GRPO+OPSD": ("#8c564b", (0, (7, 1)), ">"),
    "Skill-GRPO": ("#4f9fcf", (0, (4, 1, 1, 1, 1, 1)), "h"),
    "Skill-GRPO*": ("#1f77b4", (0, (4, 1, 1, 1, 1, 1)), "H"),
    "Skill-SD": ("#9467bd", (0, (2, 1)), "p"),
    "RLSD": ("#555500", (0, (1, 2)), "d"),
}
OTHERS = [
    ("#4d4d4d", (0, (2, 1, 1, 1)), "<"),
    ("#c04000", (0, (9, 1)), ">"),
    ("#0080a0", (0, (1, 1, 3, 1)), "h"),
    ("#a050c0", (0, (5, 1, 1, 1, 1, 1)), "*"),
    ("#606020", (0, (8, 3)), "p"),
]
AUTHORS_MODEL = "Qwen2.5-3B-Instruct"
GREY = "0.72"  # the authors' logs, behind ours


Look = tuple[str, object, str]  # colour, dashes, marker


def looks(names: list[str]) -> list[Look]:
    """A look for each label: its own where it comes first, one of OTHERS for a repetition or an unknown one."""
    out, others = [], itertools.cycle(OTHERS)
    for position, name in enumerate(names):
        out.append(LOOKS[name] if name in LOOKS and name not in names[:position] else next(others))
    return out


def dressed(groups: list[Group]) -> list[tuple[Group, Look]]:
    """Groups with their looks."""
    return list(zip(groups, looks([group.label for group in groups]), strict=True))


def short(model: object) -> str:
    """A model's name without its folder or owner."""
    return str(model).rstrip("/").split("/")[-1]


def canvas(rows: int, columns: int, height: float = 2.5, width: float = 3.4) -> tuple[Figure, np.ndarray]:
    """A figure and its axes, [rows, columns]; `height` and `width` of one of them in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, np.array(figure.subplots(rows, columns, squeeze=False))


def finish(figure: Figure, said: list[str]) -> Figure:
    """Adds one legend above the axes and, below them, the lines that say what was measured."""
    named = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(name, handle)
    width, height = figure.get_size_inches()
    columns = max(1, int(width // 2.1))
    figure.legend(named.values(), named.keys(), loc="outside upper left", ncols=columns, fontsize=6, handlelength=3.5)
    above = 0.14 * -(-len(named) // columns)
    lines = [part for line in said for part in textwrap.wrap(line, int(width * 20))]
    below = 0.1 + 0.105 * len(lines)
    total = height + above + below
    figure.set_size_inches(width, total)
    figure.get_layout_engine().set(rect=(0, below / total, 1, 1 - below / total))
    figure.text(0.04 / width, 0.04 / total, "\n".join(lines), fontsize=6, va="bottom", color="0.25")
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """NAME.svg and NAME.png, byte for byte the same for the same figure."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.svg", folder / f"{name}.png"]
    with matplotlib.rc_context(STYLE):
        figure.savefig(paths[0], metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # laid out by now, and the second layout would be the same
        figure.savefig(paths[1], metadata={"Software": None})
    return paths


def band(group: Group) -> tuple[np.ndarray, ...]:
    """Steps, mean success, low and high in percent, at the steps that all runs of a group were evaluated at."""
    by_step = [{entry.step: entry for entry in evals} for evals in group.evals()]
    steps = sorted(set.intersection(*(set(evals) for evals in by_step))) if by_step else []
    points = []
    for step in steps:
        chosen = [[evals[step]] for evals in by_step]
        values, n = per_task(chosen), chosen[0][0].n
        mean = float(np.mean([evals[0].success for evals in chosen]))
        if values is not None:
            low, high = bootstrap_mean(values, chosen[0][0].types, resamples=299)
        elif n and len(chosen) == 1:
            low, high = wilson(round(mean * n), n)
        else:
            low = high = mean
        points.append((step, 100 * mean, 100 * low, 100 * high))
    return tuple(np.array(points, float).reshape(-1, 4).T)


def success_curve(axes: Axes, group: Group, look: Look) -> None:
    """Success over steps with its 95 % band."""
    steps, mean, low, high = band(group)
    if not len(steps):
        return
    colour, dashes, marker = look
    every = max(1, len(steps) // 8)
    axes.plot(steps, mean, color=colour, ls=dashes, marker=marker, markevery=every, ms=3.5, label=group.name)
    axes.fill_between(steps, low, high, color=colour, alpha=0.13, lw=0)


def metric_curve(axes: Axes, group: Group, metric: str, look: Look, window: int = 5) -> None:
    """A metric over steps: the mean over runs of its running mean over `window` steps; the runs' range as a band."""
    curves = []
    for run in group.runs:
        steps, values = run.series(metric)
        if len(values) >= window:
            means = np.convolve(values, np.ones(window) / window, "valid")
            curves.append(dict(zip(steps[window - 1 :].tolist(), means, strict=True)))
    shared = sorted(set.intersection(*(set(curve) for curve in curves))) if curves else []
    if not shared:
        return
    values = np.array([[curve[step] for step in shared] for curve in curves])
    colour, dashes, marker = look
    every = max(1, len(shared) // 8)
    axes.plot(shared, values.mean(0), color=colour, ls=dashes, marker=marker, markevery=every, ms=3.5, label=group.name)
    if len(values) > 1:
        axes.fill_between(shared, values.min(0), values.max(0), color=colour, alpha=0.13, lw=0)


def grey_lines(axes: Axes, authors: list[Run], groups: list[Group], metric: str, scale: float = 1.0) -> None:
    """The authors' logs of the same environment and quantity, behind ours and as long as ours: the 3B model's, one
    dash pattern a method."""
    until = max(run.last for group in groups for run in group.runs)
    for run in authors:
        steps, values = run.series(metric)
        if len(steps) and run.settings["env"] == groups[0].env and run.settings["model"] == AUTHORS_MODEL:
            name = label(run.settings)
            dashes, here = LOOKS.get(name, OTHERS[0])[1], steps <= until
            axes.plot(
                steps[here], scale * values[here], color=GREY, lw=1.0, ls=dashes, zorder=0, label=f"authors, {name}"
            )


def said_of(groups: list[Group], what: str = "") -> list[str]:
    """The lines below a figure: what was measured, on how many tasks, with which seeds, and what is partial."""
    lines = [what] if what else []
    for env, split in sorted({(group.env, group.split) for group in groups}):
        here = [group for group in groups if (group.env, group.split) == (env, split)]
        entries = [entry for group in here for evals in group.evals() for entry in evals]
        n = f"{entries[-1].n} episodes an evaluation" if entries else "no evaluation yet"
        ours = entries and here[0].runs[0].ours
        panel = f", {split} panel {entries[-1].digest}, T={HEADLINE}" if ours else ""
        seeds = "; ".join(f"{group.name}: {group.seeds}" for group in here)
        lines.append(f"{env}: n = {n}{panel}. {seeds}.")
    partial = [text for group in groups for text in group.partial]
    return lines + (["Partial: " + "; ".join(partial)] if partial else [])
