"""From `Group`s to figures over training steps: one function a figure.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Each takes the groups of its experiment and the authors' logs (drawn in grey behind ours where they show the same
thing; an empty list draws none), and returns a matplotlib Figure. The authors' own logs go through the same
functions as groups. Left out: what was reached in the end (points.py) and the style (draw.py).
"""

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.draw import (
    GREY,
    STYLE,
    Look,
    canvas,
    dressed,
    finish,
    grey_lines,
    metric_curve,
    said_of,
    short,
    success_curve,
)
from analysis.groups import Group
from analysis.logs import Run
from analysis.paper import GAPS
from analysis.stats import Measure

BAND = "Lines: mean over seeds; bands: 95 % over seeds and tasks (Wilson for one log without outcomes)."
RANGE = "Lines: running mean over 5 steps, averaged over seeds; bands: range over seeds."


def _cells(groups: list[Group]) -> list[tuple[str, str]]:
    return sorted({(group.env, str(group.settings.get("model"))) for group in groups})


def _of(groups: list[Group], env: str, model: str) -> list[Group]:
    return [group for group in groups if (group.env, str(group.settings.get("model"))) == (env, model)]


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
            here = _of(groups, env, model)
            grey_lines(axes, authors, here, "val/success_rate", 100)
            for group, look in dressed(here):
                success_curve(axes, group, look)
            axes.set(title=f"{env}, {short(model)}", xlabel="training step", ylabel="success, %")
        return finish(figure, said_of(groups, BAND))


def length_grid(groups: list[Group], authors: list[Run]) -> Figure:
    """Turns an episode (above) and tokens a response (below) over steps: one pair for each environment and model."""
    cells = _cells(groups)
    columns = min(3, len(cells))
    metrics = (("episode/length/mean", "turns an episode"), ("response_length/mean", "tokens a response"))
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2 * -(-len(cells) // columns), columns, height=2.0)
        for place in range(columns * len(grid) // 2):
            pair = grid[2 * (place // columns) : 2 * (place // columns) + 2, place % columns]
            if place >= len(cells):
                for axes in pair:
                    axes.set_axis_off()
                continue
            env, model = cells[place]
            for axes, (metric, unit) in zip(pair, metrics, strict=True):
                grey_lines(axes, authors, _of(groups, env, model), metric)
                for group, look in dressed(_of(groups, env, model)):
                    metric_curve(axes, group, metric, look)
                axes.set(title=f"{env}, {short(model)}", xlabel="training step", ylabel=unit)
        return finish(figure, said_of(groups, RANGE))


def _four(groups: list[Group], authors: list[Run], last: tuple[str, str]) -> Figure:
    metrics = (("episode/length/mean", "turns an episode"), ("response_length/mean", "tokens a response"), last)
    env = groups[0].env
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, 2, height=2.3, width=4)
        grey_lines(grid[0, 0], authors, groups, "val/success_rate", 100)
        for axes, (metric, _) in zip(grid.flat[1:], metrics, strict=True):
            grey_lines(axes, authors, groups, metric)
        for group, look in dressed(groups):
            success_curve(grid[0, 0], group, look)
            for axes, (metric, _) in zip(grid.flat[1:], metrics, strict=True):
                metric_curve(axes, group, metric, look, window=1 if metric.startswith("val/") else 5)
        for axes, unit in zip(grid.flat, ("success, %", *(unit for _, unit in metrics)), strict=True):
            axes.set(xlabel="training step", ylabel=unit)
        grid[0, 0].set_title(env)
        return finish(figure, said_of(groups, f"{BAND} {RANGE}"))


def long_run(groups: list[Group], authors: list[Run]) -> Figure:
    """The long ALFWorld runs: success, episode length, response length, reward."""
    return _four(
        [group for group in groups if group.env == "alfworld"], authors, ("episode/reward/mean", "reward an episode")
    )


def webshop(groups: list[Group], authors: list[Run]) -> Figure:
    """WebShop: success, episode length, response length, mean score of the evaluation."""
    return _four(
        [group for group in groups if group.env == "webshop"], authors, ("val/score", "evaluation score, 0 to 1")
    )


def entropy_kl(groups: list[Group], authors: list[Run]) -> Figure:
    """Entropy and KL to the initial policy over steps, one column for each environment."""
    envs = sorted({group.env for group in groups})
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, len(envs), height=2.2)
        for column, env in enumerate(envs):
            metrics = (("actor/entropy_loss", "entropy, nats a token"), ("actor/kl_loss", "KL to the start (k3), nats"))
            for axes, (metric, unit) in zip(grid[:, column], metrics, strict=True):
                here = [group for group in groups if group.env == env]
                grey_lines(axes, authors, here, metric)
                for group, look in dressed(here):
                    metric_curve(axes, group, metric, look)
                axes.set(title=env, xlabel="training step", ylabel=unit)
        return finish(figure, said_of(groups, RANGE))


def tva(groups: list[Group], authors: list[Run]) -> Figure:
    """The gate: success with and without it, the mean gate, and TVA beside its control (the student's own
    log-probs)."""
    with matplotlib.rc_context(STYLE):
        figure, (row,) = canvas(1, 3)
        for group, look in dressed(groups):
            success_curve(row[0], group, look)
            metric_curve(row[1], group, "tva/gate_mean", look)
            metric_curve(row[2], group, "tva/d_mean", look)
            for run in group.runs[:1]:
                steps, values = run.series("tva/control_mean")
                if len(steps):
                    row[2].plot(steps, values, color="0.6", lw=0.8, label=f"control, {group.name}, first seed")
        grey_lines(row[1], authors, groups, "tva/gate_mean")
        grey_lines(row[2], authors, groups, "tva/d_mean")
        row[1].axhline(0.5, color="0.5", lw=0.8)
        row[2].axhline(0, color="0.5", lw=0.8)
        units = ("success, %", "mean gate m, 0 to 1", "mean TVA d, reward units")
        for axes, unit in zip(row, units, strict=True):
            axes.set(xlabel="training step", ylabel=unit)
        return finish(figure, said_of(groups, f"{BAND} {RANGE}"))


CATEGORY_LOOKS = {
    "action": ("#111111", "-", "o"),
    "object": ("#d1495b", (0, (4, 2)), "s"),
    "style": ("#7f7f7f", (0, (1, 1)), "^"),
}


def token_gaps(gaps: dict[str, list[dict]], said: list[str]) -> Figure:
    """Mean teacher gap of action, object and style tokens over steps (signed above, absolute below), one column for
    each method and set of episodes. `gaps`: name -> rows of tokens.summarise."""
    columns = [(name, kind) for name, rows in gaps.items() for kind in sorted({row["set"] for row in rows})]
    with matplotlib.rc_context(STYLE):
        figure, grid = canvas(2, len(columns), height=2.2)
        for (above, below), (name, kind_of_set) in zip(grid.T, columns, strict=True):
            rows = [row for row in gaps[name] if row["set"] == kind_of_set]
            for position, (kind, look) in enumerate(CATEGORY_LOOKS.items()):
                here = [row for row in rows if row["category"] == kind]
                _gap_curve(above, kind, look, [(row["step"], row["mean"]) for row in here])
                _gap_curve(below, kind, look, [(row["step"], row["mean_abs"]) for row in here])
                values = [means[position] for means in GAPS.values()]
                above.plot(list(GAPS), values, color=GREY, lw=0.9, ls=look[1], zorder=0, label=f"paper, {kind}")
            above.axhline(0, color="0.5", lw=0.8)
            above.set(title=f"{name}, {kind_of_set}", xlabel="training step", ylabel="mean gap, nats")
            below.set(xlabel="training step", ylabel="mean |gap|, nats")
        return finish(figure, said)


def _gap_curve(axes: Axes, kind: str, look: Look, points: list[tuple[int, Measure]]) -> None:
    colour, dashes, marker = look
    steps = [step for step, _ in points]
    axes.plot(steps, [gap.value for _, gap in points], color=colour, ls=dashes, marker=marker, ms=3, label=kind)
    ends = np.array([(gap.low, gap.high) for _, gap in points], float).reshape(-1, 2)
    axes.fill_between(steps, *ends.T, color=colour, alpha=0.13, lw=0)
