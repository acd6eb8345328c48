"""From `Group`s to figures: one function a figure.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Each takes the groups of its experiment and the authors' logs (drawn in grey behind ours where they show the same
thing; an empty list draws none), and returns a matplotlib Figure. The authors' own logs go through the same
functions as groups. Left out: the style (draw.py).
"""

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from analysis.draw import STYLE, canvas, finish, grey_line, look, metric_curve, said_of, success_curve
from analysis.groups import Group, per_task
from analysis.logs import Run
from analysis.paper import DATA, GAPS, HORIZON
from analysis.stats import bootstrap_mean, wilson

BAND = "Lines: mean over seeds; bands: 95 % over seeds and tasks (Wilson for one log without outcomes)."
RANGE = "Lines: running mean over 5 steps, averaged over seeds; bands: range over seeds."


def _cells(groups: list[Group]) -> list[tuple[str, str]]:
    return sorted({(group.env, str(group.settings.get("model"))) for group in groups})


def _of(groups: list[Group], env: str, model: str) -> list[Group]:
    return [group for group in groups if (group.env, str(group.settings.get("model"))) == (env, model)]


def _short(model: str) -> str:
    return model.rstrip("/").split("/")[-1]


def success_grid(groups: list[Group], authors: list[Run]) -> Figure:
    """Success over steps: one panel for each environment and model."""
    cells = _cells(groups)
    columns = min(3, len(cells))
    rows = -(-len(cells) // columns)
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(rows, columns)
        for axes in grid.flat[len(cells) :]:
            axes.set_axis_off()
        for axes, (env, model) in zip(grid.flat, cells, strict=False):
            for run in authors:
                if run.settings["env"] == env:
                    grey_line(axes, run, "val/success_rate", 100)
            for position, group in enumerate(_of(groups, env, model)):
                success_curve(axes, group, position)
            axes.set(title=f"{env}, {_short(model)}", xlabel="training step", ylabel="success, %")
            axes.legend(fontsize=6)
        return finish(figure, said_of(groups, BAND))


def length_grid(groups: list[Group], authors: list[Run]) -> Figure:
    """Turns an episode (above) and tokens a response (below) over steps, one column for each environment and model."""
    cells = _cells(groups)
    metrics = (("episode/length/mean", "turns an episode"), ("response_length/mean", "tokens a response"))
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, len(cells), height=2.2)
        for column, (env, model) in enumerate(cells):
            for axes, (metric, unit) in zip(grid[:, column], metrics, strict=True):
                for run in authors:
                    if run.settings["env"] == env:
                        grey_line(axes, run, metric)
                for position, group in enumerate(_of(groups, env, model)):
                    metric_curve(axes, group, metric, position)
                axes.set(title=f"{env}, {_short(model)}", xlabel="training step", ylabel=unit)
        grid[0, 0].legend(fontsize=6)
        return finish(figure, said_of(groups, RANGE))


def _four(groups: list[Group], authors: list[Run], last: tuple[str, str]) -> Figure:
    metrics = (("episode/length/mean", "turns an episode"), ("response_length/mean", "tokens a response"), last)
    env = groups[0].env
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, 2, height=2.3, width=4)
        for run in authors:
            if run.settings["env"] == env:
                grey_line(grid[0, 0], run, "val/success_rate", 100)
                for axes, (metric, _) in zip(grid.flat[1:], metrics, strict=True):
                    grey_line(axes, run, metric)
        for position, group in enumerate(groups):
            success_curve(grid[0, 0], group, position)
            for axes, (metric, _) in zip(grid.flat[1:], metrics, strict=True):
                metric_curve(axes, group, metric, position)
        for axes, unit in zip(grid.flat, ("success, %", *(unit for _, unit in metrics)), strict=True):
            axes.set(xlabel="training step", ylabel=unit)
        grid[0, 0].legend(fontsize=6)
        grid[0, 0].set_title(env)
        return finish(figure, said_of(groups, f"{BAND} {RANGE}"))


def long_run(groups: list[Group], authors: list[Run]) -> Figure:
    """The long ALFWorld runs: success, episode length, response length, reward."""
    return _four([group for group in groups if group.env == "alfworld"], authors, ("episode/reward/mean", "reward an episode"))


def webshop(groups: list[Group], authors: list[Run]) -> Figure:
    """WebShop: success, episode length, response length, mean score of the evaluation."""
    return _four([group for group in groups if group.env == "webshop"], authors, ("val/score", "evaluation score, 0 to 1"))


def entropy_kl(groups: list[Group], authors: list[Run]) -> Figure:
    """Entropy and KL to the initial policy over steps, one column for each environment."""
    envs = sorted({group.env for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, len(envs), height=2.2)
        for column, env in enumerate(envs):
            metrics = (("actor/entropy_loss", "entropy, nats a token"), ("actor/kl_loss", "KL to the start (k3), nats"))
            for axes, (metric, unit) in zip(grid[:, column], metrics, strict=True):
                for run in authors:
                    if run.settings["env"] == env:
                        grey_line(axes, run, metric)
                for position, group in enumerate(g for g in groups if g.env == env):
                    metric_curve(axes, group, metric, position)
                axes.set(title=env, xlabel="training step", ylabel=unit)
            grid[0, column].legend(fontsize=5)
        return finish(figure, said_of(groups, RANGE))


def tva(groups: list[Group], authors: list[Run]) -> Figure:
    """The gate: success with and without it, the mean gate, and TVA beside its control (the student's own
    log-probs)."""
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, 3)
        for position, group in enumerate(groups):
            success_curve(row[0], group, position)
            metric_curve(row[1], group, "tva/gate_mean", position)
            metric_curve(row[2], group, "tva/d_mean", position)
            for run in group.runs[:1]:
                steps, values = run.series("tva/control_mean")
                if len(steps):
                    row[2].plot(steps, values, color="0.6", lw=0.8, label=f"control, {group.name}, first seed")
        for run in authors:
            grey_line(row[1], run, "tva/gate_mean")
            grey_line(row[2], run, "tva/d_mean")
        row[1].axhline(0.5, color="0.5", lw=0.8)
        row[2].axhline(0, color="0.5", lw=0.8)
        units = ("success, %", "mean gate m, 0 to 1", "mean TVA d, reward units")
        for axes, unit in zip(row, units, strict=True):
            axes.set(xlabel="training step", ylabel=unit)
            axes.legend(fontsize=5)
        return finish(figure, said_of(groups, f"{BAND} {RANGE}"))


def _point(group: Group, where: str = "final") -> tuple[float, float, float] | None:
    """Success and its interval, percent."""
    chosen = group.pick(where)
    if not chosen:
        return None
    entries, values = [entry for run in chosen for entry in run], per_task(chosen)
    mean = float(np.mean([entry.success for entry in entries]))
    n = sum(entry.n or 0 for entry in entries)
    if values is not None and len(entries) > 1:
        low, high = bootstrap_mean(values, entries[0].types)
    else:
        low, high = wilson(round(mean * n), n) if n else (mean, mean)
    return 100 * mean, 100 * low, 100 * high


def _against(groups: list[Group], setting: str, unit: str, scale: float, paper: dict) -> Figure:
    """Final success over a setting, with the interval as a band, and the paper's values in grey."""
    envs = sorted({group.env for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, len(envs))
        for axes, env in zip(row, envs, strict=True):
            here = [group for group in groups if group.env == env]
            for position, name in enumerate(dict.fromkeys(group.label for group in here)):
                found = [(g.settings.get(setting), _point(g)) for g in here if g.label == name]
                points = sorted((scale * value, *point) for value, point in found if value is not None and point)
                if not points:
                    continue
                x, mean, low, high = np.array(points, float).T
                colour, dashes, marker = look(name, position)
                axes.plot(x, mean, color=colour, ls=dashes, marker=marker, ms=4, label=name)
                axes.fill_between(x, low, high, color=colour, alpha=0.13, lw=0)
            for name, values in paper.items() if env == "alfworld" else ():
                x = [scale * value for value in values]
                axes.plot(x, list(values.values()), color=GREY_PAPER, lw=1, ls=look(name)[1], marker=look(name)[2], ms=3,
                          label=f"paper, {name}", zorder=0)  # fmt: skip
            axes.set(title=env, xlabel=unit, ylabel="final success, %")
            axes.legend(fontsize=6)
        return finish(figure, said_of(groups, "Points: final success; bands: 95 % intervals. Paper: one run, ALFWorld 3B."))


GREY_PAPER = "0.6"


def data_fraction(groups: list[Group], authors: list[Run]) -> Figure:
    """Final success over the share of the training tasks."""
    return _against(groups, "fraction", "training tasks, % of all", 100, DATA)


def horizon(groups: list[Group], authors: list[Run]) -> Figure:
    """Final success over the turn limit."""
    return _against(groups, "max_turns", "turn limit", 1, HORIZON)


def skill_noise(groups: list[Group], authors: list[Run]) -> Figure:
    """Final success over the share of tasks whose skill is wrong."""
    return _against(groups, "skill_noise", "tasks with a wrong skill, %", 100, {})


def models(groups: list[Group], authors: list[Run]) -> Figure:
    """Final success by model and method, as dots with intervals."""
    names = sorted({_short(str(group.settings.get("model"))) for group in groups})
    labels = list(dict.fromkeys(group.label for group in groups))
    with matplotlib.rc_context(STYLE):
        figure, ((axes,),) = canvas(1, 1, width=5)
        for group in groups:
            point = _point(group)
            if point is None:
                continue
            position = labels.index(group.label)
            colour, _, marker = look(group.label, position)
            x = names.index(_short(str(group.settings.get("model")))) + 0.8 * (position - (len(labels) - 1) / 2) / len(labels)
            axes.errorbar(x, point[0], [[point[0] - point[1]], [point[2] - point[0]]], color=colour, marker=marker, ms=5,
                          capsize=2, ls="none", label=group.label)  # fmt: skip
        handles, texts = axes.get_legend_handles_labels()
        kept = dict(zip(texts, handles, strict=True))
        axes.legend(kept.values(), kept.keys(), fontsize=6)
        axes.set(xlabel="model", ylabel="final success, %")
        axes.set_xticks(range(len(names)), names)
        return finish(figure, said_of(groups, "Points: final success; bars: 95 % intervals."))


def unseen(groups: list[Group], authors: list[Run]) -> Figure:
    """Final success by task type: the lowest and the highest method joined by a bar (a dumbbell)."""
    panels = sorted({str(group.settings.get("eval_split", "unseen")) for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, len(panels), height=3, width=4.4)
        for axes, panel in zip(row, panels, strict=True):
            here = [g for g in groups if str(g.settings.get("eval_split", "unseen")) == panel and g.pick("final")]
            kinds = sorted({kind for group in here for kind in group.pick("final")[0][0].by_type})
            for y, kind in enumerate(kinds):
                rates = [100 * np.mean([run[0].by_type[kind] for run in group.pick("final")]) for group in here]
                axes.plot([min(rates), max(rates)], [y, y], color="0.75", lw=3, zorder=0)
                for position, (group, rate) in enumerate(zip(here, rates, strict=True)):
                    colour, _, marker = look(group.label, position)
                    axes.plot(rate, y, color=colour, marker=marker, ms=6, ls="none", label=group.label if not y else None)
            axes.set_yticks(range(len(kinds)), kinds, fontsize=6)
            axes.set(title=f"{panel} panel", xlabel="final success, %", xlim=(0, 102))
            axes.legend(fontsize=6)
        return finish(figure, said_of(groups, "Points: mean over seeds by task type."))


def cost(groups: list[Group], authors: list[Run]) -> Figure:
    """Seconds of a training step by phase, stacked; the hatches tell the phases apart in grey."""
    phases = (("rollout", "0.35", ""), ("teacher", "#d1495b", "//"), ("ref", "0.6", ".."), ("old", "0.75", "xx"),
              ("credit", "0.5", "--"), ("update", "0.88", ""))  # fmt: skip
    with matplotlib.rc_context(STYLE):
        figure, ((axes,),) = canvas(1, 1, height=0.7 + 0.22 * len(groups), width=7)
        left = np.zeros(len(groups))
        for phase, colour, hatch in phases:
            seconds = [[v for run in g.runs for v in run.series(f"time/{phase}_s")[1]] for g in groups]
            means = np.array([np.mean(values) if values else 0.0 for values in seconds])
            axes.barh(range(len(groups)), means, left=left, color=colour, hatch=hatch, edgecolor="white", lw=0.3, label=phase)
            left += means
        axes.set_yticks(range(len(groups)), [f"{group.env}, {group.name}" for group in groups], fontsize=6)
        axes.invert_yaxis()
        axes.set(xlabel="seconds a training step, evaluation aside")
        axes.legend(fontsize=6, ncols=6, loc="lower right")
        return finish(figure, said_of(groups, "Bars: mean over all steps and seeds."))


def token_gaps(gaps: dict[str, list[dict]], said: list[str]) -> Figure:
    """Mean teacher gap of action, object and style tokens over steps (signed above, absolute below), one column for
    each method. `gaps`: name -> rows of tokens.summarise."""
    looks = {"action": ("#111111", "-", "o"), "object": ("#d1495b", (0, (4, 2)), "s"), "style": ("#7f7f7f", (0, (1, 1)), "^")}
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, max(1, len(gaps)), height=2.2)
        for column, (name, rows) in enumerate(gaps.items()):
            for axes, key in zip(grid[:, column], ("mean", "mean_abs"), strict=True):
                for kind, (colour, dashes, marker) in looks.items():
                    here = [row for row in rows if row["category"] == kind]
                    x = [row["step"] for row in here]
                    axes.plot(x, [row[key].value for row in here], color=colour, ls=dashes, marker=marker, ms=3, label=kind)
                    axes.fill_between(x, [row[key].low for row in here], [row[key].high for row in here], color=colour, alpha=0.13, lw=0)
                    if key == "mean":
                        values = [gap[list(looks).index(kind)] for gap in GAPS.values()]
                        axes.plot(list(GAPS), values, color=GREY_PAPER, lw=0.9, ls=dashes, zorder=0, label=f"paper, {kind}")
                axes.axhline(0, color="0.5", lw=0.8)
                axes.set(xlabel="training step", ylabel="gap, nats" if key == "mean" else "|gap|, nats")
            grid[0, column].set_title(name)
        grid[0, 0].legend(fontsize=5)
        return finish(figure, said)
