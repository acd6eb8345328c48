"""From outcomes to numbers with intervals, and to tests between methods. The statistics are scipy's.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          [analyze]

One run: Wilson's interval. Several runs on one panel: a bootstrap that redraws seeds, and tasks within their type.
Two methods on one panel: McNemar's exact test for one run each; for several, two tests that answer two questions.
Would other tasks say the same (paired permutation over tasks)? Would other seeds (Welch's t over runs)? A difference
is claimed only if both say yes. All random draws start from a fixed seed. Left out: which numbers are compared
(tables.py, audit.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95
RESAMPLES = 999


@dataclass(frozen=True)
class Measure:
    """A value in printed units with its interval: `94.5 [89.1, 97.3] (121/128, 1 run)`."""

    value: float
    low: float | None = None
    high: float | None = None
    of: str = ""  # what was counted
    digits: int = 1

    def __str__(self) -> str:
        if np.isnan(self.value):
            return "–"
        show = f"{{:.{self.digits}f}}".format
        span = "" if self.low is None else f" [{show(self.low)}, {show(self.high)}]"
        return show(self.value) + span + (f" ({self.of})" if self.of else "")


def wilson(hits: int, n: int) -> tuple[float, float]:
    """Wilson's interval for a rate. ValueError unless 0 <= hits <= n and n > 0."""
    interval = stats.binomtest(hits, n).proportion_ci(LEVEL, method="wilson")
    return float(interval.low), float(interval.high)


def _times_drawn(draws: np.ndarray, size: int) -> np.ndarray:
    """How often each of `size` items is in each resample: [resamples, size] from indices [resamples, k]."""
    rows = np.arange(len(draws))[:, None] * size
    return np.bincount((rows + draws.astype(int)).ravel(), minlength=len(draws) * size).reshape(-1, size)


def _interval(
    samples: list[np.ndarray], statistic: Callable, resamples: int, paired: bool = False
) -> tuple[float, float]:
    """scipy's percentile bootstrap over independent samples of indices; a sample of one item is never redrawn."""
    result = stats.bootstrap(
        samples, statistic, vectorized=True, paired=paired, n_resamples=resamples, confidence_level=LEVEL,
        method="percentile", rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def bootstrap_mean(values: np.ndarray, types: Sequence = (), resamples: int = RESAMPLES) -> tuple[float, float]:
    """Interval of the mean of `values` [runs, tasks], redrawing runs, and tasks within their type."""
    return bootstrap_difference(values, np.zeros_like(values[:1]), types, resamples)


def bootstrap_difference(
    one: np.ndarray, other: np.ndarray, types: Sequence = (), resamples: int = RESAMPLES
) -> tuple[float, float]:
    """Interval of mean(one) - mean(other), both [runs, tasks] on the same tasks: each side's runs are redrawn on
    their own, the tasks (within their type) for both sides together."""
    tasks = one.shape[1]
    kinds = np.array(types if len(types) else [""] * tasks)
    strata = [np.flatnonzero(kinds == kind) for kind in sorted(set(kinds.tolist()))]
    samples = [np.arange(len(one)), np.arange(len(other)), *strata]
    redrawn = [sample for sample in samples if len(sample) > 1]
    if not redrawn:
        point = float(one.mean() - other.mean())
        return point, point

    def statistic(*draws: np.ndarray, axis: int) -> np.ndarray:
        draws = [np.atleast_2d(draw) for draw in draws]
        left = iter(draws)
        full = [next(left) if len(s) > 1 else np.broadcast_to(s, (len(draws[0]), len(s))) for s in samples]
        mine, theirs = _times_drawn(full[0], len(one)), _times_drawn(full[1], len(other))
        weight = _times_drawn(np.concatenate(full[2:], axis=1), tasks)
        difference = mine @ one / len(one) - theirs @ other / len(other)
        return (difference * weight).sum(1) / tasks

    return _interval(redrawn, statistic, resamples)


def over_clusters(samples: list[np.ndarray], statistic: Callable) -> tuple[float | None, float | None]:
    """Interval of `statistic` of the sums of each of `samples` [clusters], redrawing whole clusters (episodes); None
    with fewer than two. `statistic` takes and returns arrays."""
    if len(samples[0]) < 2:
        return None, None

    def of_sums(*redrawn: np.ndarray, axis: int) -> np.ndarray:
        return statistic(*(sample.sum(axis) for sample in redrawn))

    low, high = _interval(samples, of_sums, RESAMPLES, paired=True)
    return (low, high) if np.isfinite([low, high]).all() else (None, None)


def mcnemar(one: np.ndarray, other: np.ndarray) -> float:
    """Exact p that two runs [tasks] of 0/1 win equally often, from the tasks on which they disagree."""
    gained, lost = int(((one == 1) & (other == 0)).sum()), int(((one == 0) & (other == 1)).sum())
    return float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0


def over_tasks(one: np.ndarray, other: np.ndarray) -> float:
    """p that [runs, tasks] and [runs, tasks] have equal means, exchanging the two methods on whole tasks. McNemar
    where each has one run with outcomes of 0 and 1."""
    if len(one) == len(other) == 1 and np.isin([one, other], (0, 1)).all():
        return mcnemar(one[0], other[0])
    difference = one.mean(0) - other.mean(0)
    difference = difference[difference != 0]  # the others are the same either way round
    if len(difference) < 2:
        return 1.0
    result = stats.permutation_test(
        (difference,), np.sum, permutation_type="samples", vectorized=True, n_resamples=2999,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    return float(result.pvalue)


def over_runs(one: np.ndarray, other: np.ndarray) -> float | None:
    """p that the runs [runs, tasks] of two methods have equal means, by Welch's t-test on the runs' means; None with
    fewer than two runs each. (Exchanging five runs against five cannot give less than .008, which no correction over
    a table survives.)"""
    if min(len(one), len(other)) < 2:
        return None
    (mine, spread, n), (theirs, other_spread, m) = ((x.mean(), x.mean(1).std(ddof=1), len(x)) for x in (one, other))
    if max(spread, other_spread) < 1e-12:  # no spread to divide by
        return float(abs(mine - theirs) < 1e-12)
    result = stats.ttest_ind_from_stats(mine, spread, n, theirs, other_spread, m, equal_var=False)
    return float(result.pvalue)


def fisher(hits: int, n: int, other_hits: int, other_n: int) -> float:
    """Exact p that two rates are equal, for outcomes that cannot be paired."""
    return float(stats.fisher_exact([[hits, n - hits], [other_hits, other_n - other_hits]]).pvalue)


def difference_of_rates(hits: int, n: int, other_hits: int, other_n: int) -> tuple[float, float]:
    """Newcombe's interval of hits / n - other_hits / other_n, unpaired: built from the two Wilson intervals."""
    one, other = hits / n, other_hits / other_n
    (low, high), (other_low, other_high) = wilson(hits, n), wilson(other_hits, other_n)
    return one - other - np.hypot(one - low, other_high - other), one - other + np.hypot(high - one, other - other_low)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's adjusted p of each test in a family, in the order given."""
    order = np.argsort(values, kind="stable")
    adjusted, highest = np.zeros(len(values)), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted.tolist()
