"""From `Group`s to figures of what was reached in the end: one function a figure.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Each takes the groups of its experiment and returns a matplotlib Figure; the paper's numbers stand in grey beside
ours. Left out: what happens on the way (curves.py) and the style (draw.py).
"""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.draw import GREY, LOOKS, OTHERS, STYLE, Look, canvas, dressed, finish, looks, said_of, short
from analysis.groups import Group
from analysis.paper import DATA, HORIZON
from analysis.stats import Measure
from analysis.tables import success


def _point(group: Group) -> tuple[float, float, float] | None:
    """Final success and its interval, percent."""
    reached = success(group.pick("final"))
    return (
        (reached.value, reached.low, reached.high) if isinstance(reached, Measure) and reached.low is not None else None
    )


def _against(groups: list[Group], setting: str, unit: str, scale: float, paper: dict) -> Figure:
    """Final success over a setting: every group with its interval, a line through the mean of those with equal
    settings, and the paper's values in grey."""
    envs = sorted({group.env for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, len(envs), height=3, width=4)
        for axes, env in zip(row, envs, strict=True):
            here = [group for group in groups if group.env == env]
            labels = list(dict.fromkeys(group.label for group in here))
            for name, look in zip(labels, looks(labels), strict=True):
                found = [(g.settings.get(setting), _point(g)) for g in here if g.label == name]
                points = [(scale * value, *point) for value, point in found if value is not None and point]
                _with_intervals(axes, points, look, name)
            for name, values in paper.items() if env == "alfworld" else ():
                dashes, marker = LOOKS[name][1:]
                x = [scale * value for value in values]
                axes.plot(x, list(values.values()), color=GREY, ls=dashes, marker=marker, ms=3, lw=1, zorder=0)
                axes.plot([], [], color=GREY, ls=dashes, marker=marker, ms=3, lw=1, label=f"paper, {name}")
            axes.set(title=env, xlabel=unit, ylabel="final success, %")
        said = "Points: final success with 95 % intervals." + " Paper: one run, ALFWorld 3B." * bool(paper)
        return finish(figure, said_of(groups, said))


def _with_intervals(axes: Axes, points: list[tuple], look: Look, name: str) -> None:
    """`points`: (x, mean, low, high)."""
    if not points:
        return
    colour, dashes, marker = look
    x, mean, low, high = np.array(points, float).T
    axes.errorbar(x, mean, [mean - low, high - mean], color=colour, marker=marker, ms=4, ls="none", capsize=2)
    line = [mean[x == value].mean() for value in np.unique(x)]
    axes.plot(np.unique(x), line, color=colour, ls=dashes, marker=marker, ms=4, label=name)


def data_fraction(groups: list[Group], _: list) -> Figure:
    """Final success over the share of the training tasks."""
    return _against(groups, "fraction", "training tasks, % of all", 100, DATA)


def horizon(groups: list[Group], _: list) -> Figure:
    """Final success over the turn limit."""
    return _against(groups, "max_turns", "turn limit", 1, HORIZON)


def skill_noise(groups: list[Group], _: list) -> Figure:
    """Final success over the share of tasks whose skill is wrong."""
    return _against(groups, "skill_noise", "tasks with a wrong skill, %", 100, {})


def models(groups: list[Group], _: list) -> Figure:
    """Final success by model and method, as dots with intervals."""
    names = sorted({short(group.settings.get("model")) for group in groups})
    labels = list(dict.fromkeys(group.label for group in groups))
    with matplotlib.rc_context(STYLE):
        figure, ((axes,),) = canvas(1, 1, width=5)
        for group in groups:
            point = _point(group)
            if point is None:
                continue
            position = labels.index(group.label)
            colour, _, marker = looks(labels)[position]
            aside = 0.8 * (position - (len(labels) - 1) / 2) / len(labels)
            x, (mean, low, high) = names.index(short(group.settings.get("model"))) + aside, point
            ends = [[mean - low], [high - mean]]
            axes.errorbar(x, mean, ends, color=colour, marker=marker, ms=5, capsize=2, ls="none", label=group.label)
        axes.set(xlabel="model", ylabel="final success, %")
        axes.set_xticks(range(len(names)), names)
        return finish(figure, said_of(groups, "Points: final success; bars: 95 % intervals."))


def unseen(groups: list[Group], _: list) -> Figure:
    """Final success by task type: the lowest and the highest method joined by a bar (a dumbbell)."""
    panels = sorted({group.split for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, len(panels), height=3, width=4.4)
        for axes, panel in zip(row, panels, strict=True):
            here = [g for g in groups if g.split == panel and g.pick("final")]
            kinds = sorted({kind for group in here for kind in group.pick("final")[0][0].by_type})
            for y, kind in enumerate(kinds):
                rates = [100 * np.mean([run[0].by_type[kind] for run in group.pick("final")]) for group in here]
                axes.plot([min(rates), max(rates)], [y, y], color="0.75", lw=3, zorder=0)
                for (group, (colour, _, marker)), rate in zip(dressed(here), rates, strict=True):
                    axes.plot(
                        rate, y, color=colour, marker=marker, ms=6, ls="none", label=group.label if not y else None
                    )
            axes.set_yticks(range(len(kinds)), kinds, fontsize=6)
            axes.set(title=f"{panel} panel", xlabel="final success, %", xlim=(0, 102))
        return finish(figure, said_of(groups, "Points: mean over seeds by task type."))


def forest(groups: list[Group], _: list) -> Figure:
    """Final success of every group with its interval, one line each."""
    with matplotlib.rc_context(STYLE):
        figure, ((axes,),) = canvas(1, 1, height=0.7 + 0.2 * len(groups), width=6)
        for y, group in enumerate(groups):
            point = _point(group)
            if point:
                mean, low, high = point
                look = {"color": LOOKS.get(group.label, OTHERS[0])[0], "marker": LOOKS.get(group.label, OTHERS[0])[2]}
                axes.errorbar(mean, y, xerr=[[mean - low], [high - mean]], ms=5, capsize=2, ls="none", **look)
        axes.set_yticks(range(len(groups)), [f"{group.env}, {group.name}" for group in groups], fontsize=6)
        axes.invert_yaxis()
        axes.set(xlabel="final success, %")
        return finish(figure, said_of(groups, "Points: final success; bars: 95 % intervals."))


def cost(groups: list[Group], _: list) -> Figure:
    """Seconds of a training step by phase, stacked; the hatches tell the phases apart in grey."""
    phases = (
        ("rollout", "0.35", ""),
        ("teacher", "#d1495b", "//"),
        ("ref", "0.6", ".."),
        ("old", "0.75", "xx"),
        ("credit", "0.5", "--"),
        ("update", "0.88", ""),
    )
    with matplotlib.rc_context(STYLE):
        figure, ((axes,),) = canvas(1, 1, height=0.7 + 0.22 * len(groups), width=7)
        left = np.zeros(len(groups))
        for phase, colour, hatch in phases:
            seconds = [[v for run in g.runs for v in run.series(f"time/{phase}_s")[1]] for g in groups]
            means = np.array([np.mean(values) if values else 0.0 for values in seconds])
            axes.barh(
                range(len(groups)), means, left=left, color=colour, hatch=hatch, edgecolor="white", lw=0.3, label=phase
            )
            left += means
        axes.set_yticks(range(len(groups)), [f"{group.env}, {group.name}" for group in groups], fontsize=6)
        axes.invert_yaxis()
        axes.set(xlabel="seconds a training step, evaluation aside")
        return finish(figure, said_of(groups, "Bars: mean over all steps and seeds."))
