"""Intervals and tests: hand values, slow twins, and what they must not do."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from analysis.stats import (
    Measure,
    bootstrap_difference,
    bootstrap_mean,
    difference_of_rates,
    fisher,
    holm,
    mcnemar,
    over_clusters,
    over_runs,
    over_tasks,
    wilson,
)


def test_the_issue_s_example():
    low, high = wilson(121, 128)
    assert str(Measure(100 * 121 / 128, 100 * low, 100 * high, "121/128, 1 run")) == (
        "94.5 [89.1, 97.3] (121/128, 1 run)"
    )
    assert str(Measure(float("nan"))) == "–"
    assert str(Measure(0.5, digits=3)) == "0.500"


def test_wilson_by_its_formula():
    k, n, z = 7, 30, 1.959963984540054
    p = k / n
    middle, half = (p + z * z / 2 / n), z * math.sqrt(p * (1 - p) / n + z * z / 4 / n / n)
    assert wilson(k, n) == pytest.approx(((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)))


def test_bootstrap_follows_a_slow_twin():
    rng = np.random.default_rng(1)
    values, kinds = (rng.random((4, 30)) < 0.6).astype(float), np.array(["a", "b", "b"] * 10)
    means = []
    for _ in range(4000):
        runs = rng.integers(0, 4, 4)
        tasks = np.concatenate([rng.choice(np.flatnonzero(kinds == k), (kinds == k).sum()) for k in ("a", "b")])
        means.append(values[np.ix_(runs, tasks)].mean())
    assert bootstrap_mean(values, kinds) == pytest.approx(np.quantile(means, (0.025, 0.975)), abs=0.02)
    assert bootstrap_mean(values, kinds) == bootstrap_mean(values, kinds)  # the same each time


def test_bootstrap_keeps_types_apart():
    values = np.array([[1.0] * 20 + [0.0] * 20])
    low, high = bootstrap_mean(values, ["a"] * 20 + ["b"] * 20)
    assert low == high == 0.5  # within a type nothing varies
    low, high = bootstrap_mean(values)
    assert low < 0.45 and high > 0.55
    assert bootstrap_mean(np.ones((1, 1))) == (1.0, 1.0)


def test_bootstrap_of_runs_sees_the_spread_of_seeds():
    same, different = np.full((4, 50), 0.5), np.repeat([[0.2], [0.4], [0.6], [0.8]], 50, axis=1)
    assert bootstrap_mean(same) == (0.5, 0.5)
    low, high = bootstrap_mean(different)
    assert high - low > 0.3


def test_difference_pairs_tasks():
    rng = np.random.default_rng(0)
    hard = np.repeat([0.0, 1.0], 100)[None]
    better = np.minimum(1, hard + (rng.random((1, 200)) < 0.1))
    low, high = bootstrap_difference(better, hard)
    assert 0 < low <= better.mean() - hard.mean() <= high
    assert high - low < 0.1  # unpaired it would be .19
    assert bootstrap_difference(hard, better) == pytest.approx((-high, -low), abs=0.02)


def test_mcnemar_by_hand():
    one, other = np.array([1, 1, 1, 1, 1, 0, 0, 1]), np.array([0, 0, 0, 0, 0, 1, 0, 1])
    # 5 gained, 1 lost: 2 * (C(6,5) + C(6,6)) / 64
    assert mcnemar(one, other) == pytest.approx(14 / 64)
    assert mcnemar(one, one) == 1.0
    assert over_tasks(one[None].astype(float), other[None].astype(float)) == pytest.approx(14 / 64)


def test_permutation_over_tasks_by_listing_all_signs():
    one, other = np.array([[1, 1, 1, 0, 1.0], [1, 1, 0, 1, 1.0]]), np.array([[0, 1, 0, 0, 1.0], [0, 0, 0, 1, 0.0]])
    difference = (one - other).mean(0)
    all_means = [np.mean(np.array(signs) * difference) for signs in itertools.product((-1, 1), repeat=5)]
    expected = np.mean(np.abs(all_means) >= abs(difference.mean()) - 1e-12)
    assert over_tasks(one, other) == pytest.approx(expected)
    assert over_tasks(one, other) == over_tasks(other, one)


def test_welch_over_runs():
    one, other = np.array([[0.6], [0.7], [0.65]]), np.array([[0.5], [0.52], [0.4]])
    assert over_runs(one, other) == pytest.approx(ttest_ind(one[:, 0], other[:, 0], equal_var=False).pvalue)
    assert over_runs(one[:1], other) is None
    assert over_runs(np.full((3, 2), 0.1), np.full((3, 2), 0.1)) == 1.0
    assert over_runs(np.full((3, 2), 0.1), np.full((3, 2), 0.2)) == 0.0


def test_unpaired_rates():
    assert fisher(121, 128, 108, 128) == pytest.approx(0.01337, abs=1e-5)
    low, high = difference_of_rates(56, 70, 48, 80)  # Newcombe 1998, example a: .0524 to .3339
    assert (low, high) == pytest.approx((0.0524, 0.3339), abs=5e-4)


def test_holm():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_clusters_are_redrawn_whole():
    sums, counts = np.array([10.0, 0.0, 5.0, 5.0]), np.array([10.0, 10.0, 10.0, 10.0])
    low, high = over_clusters([sums, counts], lambda s, c: s / c)
    assert low < 0.3 and high > 0.7
    assert over_clusters([sums[:1], counts[:1]], lambda s, c: s / c) == (None, None)
