"""From a log's extremes to what the code behind it can have added to the advantages.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

Plain GRPO puts the advantage of a group with two reward values on a lattice: with n rows, k of them high,
A(n, k) = (1 - k/n) / (std + 1e-6). A token term on top moves the largest logged advantage off it. On ALFWorld so many
n are possible that the largest says nothing, but the smallest does: one invalid turn among n rows without reward.
Also here: on which panel printed percentages can have been measured. Source: method.md 1.9 and 4.
"""

from collections.abc import Iterable

import numpy as np

from analysis.foreign import fractions_of
from analysis.logs import Run
from analysis.paper import TYPES

WINDOWS = ((1, 20), (21, 70), (71, 150), (151, 300))  # the schedule of the authors' last code: the term acts in 21..70
GROUP = 8  # episodes of one task
PADDING = 1.3  # verl repeats rows until they divide evenly, so that a group can have more than it played
# env: metric, reward difference in the group, how near is "on the lattice" (logs have 6 decimals; the smaller the
# reward, the more float noise and the 1e-6 in the denominator count)
EDGES = {
    "search": ("critic/advantages/max", 1.0, 1.5e-4),
    "webshop": ("critic/advantages/max", 10.0, 1e-5),
    "alfworld": ("critic/advantages/min", 0.1, 1e-4),
}


def lattice(env: str, turns: int) -> np.ndarray:
    """All A(n, k) of groups of 8 episodes of up to `turns` rows, ascending; for ALFWorld the lone low row of groups
    of 60 rows and more, -(n-1)/n / (std + 1e-6)."""
    height, out = EDGES[env][1], []
    lone = env == "alfworld"
    for n in range(60, int(PADDING * GROUP * turns) + 1) if lone else range(GROUP, GROUP * turns + 1):
        k = np.array([n - 1]) if lone else np.arange(1, n)
        std = height * np.sqrt(k * (n - k) / (n * (n - 1)))
        out.append((-k / n if lone else 1 - k / n) * height / (std + 1e-6))
    return np.unique(np.concatenate(out))


def distances(values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """How far each value is from the nearest point."""
    right = np.clip(np.searchsorted(points, values), 1, len(points) - 1)
    return np.minimum(np.abs(values - points[right - 1]), np.abs(values - points[right]))


def on_lattice(run: Run) -> list[tuple[str, int, float, float]]:
    """(steps, how many, share on the lattice, share expected by chance) for each window of a run's steps.

    Chance: the part of the values' range that lies as near to the lattice. Windows with fewer than 5 values in the
    lattice's range are left out; GiGPO's advantages have no such lattice.
    """
    env = run.settings["env"]
    if env not in EDGES or run.settings["backbone"] != "grpo":
        return []
    metric, _, near = EDGES[env]
    points = lattice(env, run.settings["max_turns"])
    steps, values = run.series(metric)
    out = []
    for first, last in WINDOWS:
        here = values[(steps >= first) & (steps <= last) & (values >= points[0]) & (values <= points[-1])]
        if len(here) >= 5:
            grid = np.linspace(here.min(), here.max(), 20001)
            chance = float((distances(grid, points) <= near).mean())
            out.append((f"{first}-{last}", len(here), float((distances(here, points) <= near).mean()), chance))
    return out


def residual(run: Run) -> float | None:
    """The largest |logged shaped reward - environment's score|: how far row sums of a centred term are from zero."""
    off = [
        np.abs(run.series(f"critic/rewards/{end}")[1] - run.series(f"critic/score/{end}")[1]).max(initial=0.0)
        for end in ("max", "min")
        if len(run.series(f"critic/rewards/{end}")[1]) == len(run.series(f"critic/score/{end}")[1]) > 0
    ]
    return float(max(off)) if off else None


def composition(runs: Iterable[Run], step: int) -> dict[str, int] | None:
    """How many episodes of each ALFWorld type one validation at this step had: the smallest numbers of which all
    runs' rates are fractions. Runs with the same seed draw the same panel. None unless the numbers add up to it."""
    rates: dict[str, list[float]] = {}
    total = set()
    for run in runs:
        for entry in run.evals:
            if run.settings["env"] == "alfworld" and entry.step == step:
                total.add(entry.n)
                for kind, rate in entry.by_type.items():
                    rates.setdefault(kind, []).append(rate)
    sizes = np.arange(1, 129)
    fits = {kind: fractions_of(values, sizes) for kind, values in rates.items()}
    found = {kind: int(sizes[fit.argmax()]) for kind, fit in fits.items() if fit.any()}
    return found if len(found) == len(TYPES) and total == {sum(found.values())} else None


def misfits(row: dict[str, float], panel: dict[str, int]) -> list[str]:
    """The columns of a Table 2 row whose printed percentage no count on this panel gives (to 0.1: some are cut off
    instead of rounded)."""
    out = []
    for column, kind in TYPES.items():
        shown = 100 * np.arange(panel[kind] + 1) / panel[kind]
        if np.abs(shown - row[column]).min() > 0.1:
            out.append(column)
    return out
