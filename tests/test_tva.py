"""tva.py: hand values, slow twins, the covariance identity, and what a unit, a group and float noise may not change."""

import itertools
import math
import statistics

import pytest
import torch

from tests.ragged import JUNK, SEEDS, close, pure, ragged, tokens
from tva import Pool, alignment, association, confidence, token_trust, trust

ALPHA, RETURN = torch.tensor([0.9, 0.1, 0.8, 0.2]), torch.tensor([1.0, 0.0, 1.0, 0.0])
FOUR, SAME = torch.ones(4), torch.zeros(4, dtype=torch.long)


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def units(r, level: str) -> torch.Tensor:
    return r.episode if level == "traj" else torch.arange(len(r.episode))


# ------------------------------------------------------------------------------------------------- confidence


def test_confidence_by_hand():
    """Episode 5 has the tokens -1, -2, -6 on two rows: their mean is -3, not the mean of the rows' means."""
    logp = torch.tensor([[-1.0, -2.0], [-4.0, JUNK], [-6.0, JUNK]])
    mask = torch.tensor([[True, True], [True, False], [True, False]])
    conf, weight = pure(confidence, logp, mask, torch.tensor([5, 9, 5]))
    close(conf, [-3.0, -4.0, -3.0])
    close(weight, [0.5, 1.0, 0.5])
    conf, weight = confidence(logp, mask, torch.arange(3))
    close(conf, [-1.5, -4.0, -6.0])
    close(weight, [1.0, 1.0, 1.0])


@pytest.mark.parametrize("level", ["row", "traj"])
@pytest.mark.parametrize("seed", SEEDS)
def test_confidence_equals_its_slow_twin(seed, level):
    r = ragged(seed)
    unit = units(r, level)
    conf, weight = pure(confidence, r.teacher, r.mask, unit)
    rows = tokens(r.teacher, r.mask)
    for i, u in enumerate(unit.tolist()):
        mine = [k for k, v in enumerate(unit.tolist()) if v == u]
        assert conf[i].item() == pytest.approx(statistics.fmean(v for k in mine for v in rows[k]), rel=1e-5)
        assert weight[i].item() == pytest.approx(1 / len(mine))


def test_a_unit_without_tokens_has_confidence_zero():
    conf, weight = confidence(torch.full((2, 3), JUNK), torch.zeros(2, 3, dtype=torch.bool), torch.tensor([0, 0]))
    close(conf, [0.0, 0.0])
    close(weight, [0.5, 0.5])


# -------------------------------------------------------------------------------------------------- alignment


def test_soft_alignment_by_hand():
    """The batch mean is that of units: the third row is one unit, the first two share one. (0 + 3) / 2 = 1.5."""
    conf, weight = torch.tensor([0.0, 0.0, 3.0]), torch.tensor([0.5, 0.5, 1.0])
    close(pure(alignment, conf, weight, torch.tensor([0, 0, 1])), [sigmoid(-1.5), sigmoid(-1.5), sigmoid(1.5)])


def test_group_z_alignment_by_hand():
    """Units 0 and 4: mean 2, deviation 2, z -1 and 1. A unit alone in its group has z = 0."""
    conf, weight = torch.tensor([0.0, 0.0, 4.0, -9.0]), torch.tensor([0.5, 0.5, 1.0, 1.0])
    align = pure(alignment, conf, weight, torch.tensor([3, 3, 3, 8]), "group_z")
    close(align, [sigmoid(-1), sigmoid(-1), sigmoid(1), 0.5])


@pytest.mark.parametrize(
    ("conf", "want"),
    [
        ([1.0, 4.0, 2.0, 3.0], [0.0, 1.0, 0.0, 1.0]),
        ([-1.0, -3.0, -2.0], [1.0, 0.0, 0.5]),
        ([2.0, 2.0, 2.0], [0.5, 0.5, 0.5]),
        ([1.0, 1.0, 1.0, 2.0], [0.0, 0.0, 0.0, 1.0]),
        ([7.0], [0.5]),
    ],
)
def test_median_alignment_by_hand(conf, want):
    conf = torch.tensor(conf)
    close(pure(alignment, conf, torch.ones_like(conf), torch.zeros(len(conf), dtype=torch.long), split="median"), want)


def test_median_alignment_counts_units_not_rows():
    """Three rows of one unit below, one of another above it, and one of a third on top: the second is the median."""
    conf, weight = torch.tensor([1.0, 1.0, 1.0, 2.0, 3.0]), torch.tensor([1 / 3, 1 / 3, 1 / 3, 1.0, 1.0])
    close(alignment(conf, weight, torch.zeros(5, dtype=torch.long), split="median"), [0.0, 0.0, 0.0, 0.5, 1.0])


def test_median_alignment_of_a_draw_is_not_decided_by_float_noise():
    """Ten times 0.1 is not 1 in floats: n rows of one unit below, one row of another above."""
    for n in range(2, 60):
        conf, weight = torch.tensor([1.0] * n + [2.0, 3.0]), torch.tensor([1 / n] * n + [1.0, 1.0])
        assert alignment(conf, weight, torch.zeros(n + 2, dtype=torch.long), split="median")[n] == 0.5


def twin_alignment(conf: list, weight: list, group: list, norm: str, split: str) -> list[float]:
    out = []
    for i, c in enumerate(conf):
        mine = [k for k in range(len(conf)) if norm == "batch" or group[k] == group[i]]
        total = sum(weight[k] for k in mine)
        mean = sum(weight[k] * conf[k] for k in mine) / total
        sd = math.sqrt(sum(weight[k] * (conf[k] - mean) ** 2 for k in mine) / total)
        soft = sigmoid(c - mean) if norm == "batch" else sigmoid((c - mean) / (sd + 1e-8))
        mine = [k for k in range(len(conf)) if group[k] == group[i]]
        below, above = (sum(weight[k] for k in mine if s * conf[k] < s * c) for s in (1, -1))
        hard = 0.5 if abs(below - above) < 1e-5 else float(below > above)
        out.append(soft if split == "soft" else hard)
    return out


@pytest.mark.parametrize(("norm", "split"), [("batch", "soft"), ("group_z", "soft"), ("batch", "median")])
@pytest.mark.parametrize(("seed", "level"), itertools.product(SEEDS, ["row", "traj"]))
def test_alignment_equals_its_slow_twin(seed, level, norm, split):
    r = ragged(seed)
    conf, weight = confidence(r.teacher, r.mask, units(r, level))
    want = twin_alignment(conf.tolist(), weight.tolist(), r.group.tolist(), norm, split)
    close(pure(alignment, conf, weight, r.group, norm, split), want)


@pytest.mark.parametrize("kind", [{"norm": "batch"}, {"norm": "group_z"}, {"split": "median"}])
def test_alignment_of_equal_confidences_is_one_half(kind):
    conf = torch.full((7,), -0.1)
    weight = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.5, 0.5, 1.0, 1.0])
    close(alignment(conf, weight, torch.tensor([0, 0, 0, 0, 0, 0, 1]), **kind), [0.5] * 7, tolerance=1e-7)


def test_alignment_takes_its_mean_over_the_batch_or_the_group():
    conf, group = torch.tensor([-1.0, -2.0, -8.0, -9.0]), torch.tensor([0, 0, 1, 1])
    far = torch.tensor([-1.0, -2.0, -18.0, -19.0])
    for kind in ({"norm": "batch"}, {"norm": "group_z"}, {"split": "median"}):
        moved = alignment(far, FOUR, group, **kind)[:2] - alignment(conf, FOUR, group, **kind)[:2]
        assert bool(moved.abs().max() > 0.01) is (kind == {"norm": "batch"})
        close(alignment(conf + 3, FOUR, group, **kind), alignment(conf, FOUR, group, **kind).double())


def test_alignment_stays_finite_at_the_extremes():
    conf = torch.tensor([0.0, -1e4, -1.0, -2e4])
    for kind in ({"norm": "batch"}, {"norm": "group_z"}, {"split": "median"}):
        align = alignment(conf, FOUR, SAME, **kind)
        assert ((align >= 0) & (align <= 1)).all()
        assert association(align, RETURN, FOUR, SAME).isfinite().all()


def test_alignment_names_the_choices():
    with pytest.raises(ValueError, match="--alpha_norm task: unknown, choose batch or group_z"):
        alignment(ALPHA, FOUR, SAME, norm="task")
    with pytest.raises(ValueError, match="--tva_split hard: unknown, choose soft or median"):
        alignment(ALPHA, FOUR, SAME, split="hard")


# ------------------------------------------------------------------------------------------ association, trust


def test_the_papers_example():
    tva = pure(association, ALPHA, RETURN, FOUR, SAME)
    close(tva, [0.70] * 4)
    close(pure(trust, tva, FOUR), [sigmoid(1.4)] * 4)
    assert trust(tva, FOUR)[0].item() == pytest.approx(0.802, abs=5e-4)


def twin_association(align: list, ret: list, weight: list, group: list) -> list[float]:
    out = []
    for g in group:
        mine = [k for k in range(len(group)) if group[k] == g]
        plus, minus = (sum(weight[k] * a for k, a in pairs) for pairs in
                       ([(k, align[k]) for k in mine], [(k, 1 - align[k]) for k in mine]))  # fmt: skip
        if sum(weight[k] for k in mine) < 1.5:
            out.append(0.0)
        else:
            mu_plus = sum(weight[k] * align[k] * ret[k] for k in mine) / plus
            mu_minus = sum(weight[k] * (1 - align[k]) * ret[k] for k in mine) / minus
            out.append(mu_plus - mu_minus)
    return out


@pytest.mark.parametrize(("seed", "level"), itertools.product(SEEDS, ["row", "traj"]))
def test_association_equals_its_slow_twin_and_the_covariance(seed, level):
    r = ragged(seed)
    conf, weight = confidence(r.teacher, r.mask, units(r, level))
    align, ret = alignment(conf, weight, r.group), r.reward - 0.1 * r.turn
    tva = pure(association, align, ret, weight, r.group)
    a, x, w, group = (v.tolist() for v in (align, ret, weight, r.group))
    close(tva, twin_association(a, x, w, group))
    assert (tva.abs() > 0.01).any()
    for i, g in enumerate(group):
        mine = [k for k in range(len(group)) if group[k] == g]
        total = sum(w[k] for k in mine)
        if total > 1.5:
            mean_a, mean_x = (sum(w[k] * v[k] for k in mine) / total for v in (a, x))
            cov = sum(w[k] * (a[k] - mean_a) * (x[k] - mean_x) for k in mine) / total
            assert tva[i].item() == pytest.approx(cov / (mean_a * (1 - mean_a)), abs=1e-5)


def test_a_group_of_one_unit_is_neutral():
    one_row = association(torch.tensor([0.9]), torch.tensor([1.0]), torch.ones(1), SAME[:1])
    one_episode = association(ALPHA, RETURN, FOUR / 4, SAME)
    for tva in (one_row, one_episode):
        assert not tva.any()
        assert torch.equal(trust(tva, torch.ones_like(tva)), torch.full_like(tva, 0.5))
    two_rows = association(ALPHA[:2], RETURN[:2], FOUR[:2], SAME[:2])
    close(two_rows, [0.8, 0.8])


def test_a_group_whose_units_are_all_on_one_side_is_neutral():
    for align in (torch.ones(4), torch.zeros(4)):
        assert not association(align, RETURN, FOUR, SAME).any()
    close(association(torch.tensor([1.0, 1.0, 1.0, 0.0]), RETURN, FOUR, SAME), [2 / 3] * 4)
    close(association(torch.tensor([1.0, 1.0, 1.0, 0.999]), RETURN, FOUR, SAME), [2 / 3.999] * 4)


def test_association_of_equal_returns_is_zero_whatever_the_weights():
    """Not only up to 1e-8 over a small sum of weights, which a return of 10 would make visible."""
    align = torch.tensor([1.0, 1.0, 1.0, 0.99999])
    assert association(align, torch.full((4,), 10.1), FOUR, SAME).abs().max() < 1e-9


def test_association_in_the_returns_and_in_alpha():
    tva = association(ALPHA, RETURN, FOUR, SAME)
    close(association(ALPHA, 3 * RETURN, FOUR, SAME), 3 * tva.double())
    close(association(ALPHA, RETURN + 5, FOUR, SAME), tva.double())
    close(association(1 - ALPHA, RETURN, FOUR, SAME), -tva.double())


def test_groups_do_not_see_each_other():
    align, ret, group = torch.cat([ALPHA, 1 - ALPHA]), torch.cat([RETURN, RETURN]), torch.tensor([6] * 4 + [2] * 4)
    close(association(align, ret, torch.ones(8), group), [0.70] * 4 + [-0.70] * 4)


def test_trust_by_hand():
    tva, weight = torch.tensor([0.0, 1.0, -1.0]), torch.ones(3)
    close(trust(tva, weight), [0.5, sigmoid(2), sigmoid(-2)])
    close(trust(tva, weight, tau=0.5), [0.5, sigmoid(0.5), sigmoid(-0.5)])
    close(trust(torch.tensor([1e4, -1e4]), weight[:2]), [1.0, 0.0])


def test_normed_trust_by_hand():
    """The deviation of 2 and 6 is 2; by units, that of 0, 0 and 3 with weights 1/2, 1/2, 1 is 1.5."""
    close(pure(trust, torch.tensor([2.0, 6.0]), torch.ones(2), 2.0, True), [sigmoid(2), sigmoid(6)])
    weight = torch.tensor([0.5, 0.5, 1.0])
    close(trust(torch.tensor([0.0, 0.0, 3.0]), weight, 1.0, norm=True), [0.5, 0.5, sigmoid(2)])


def test_normed_trust_does_not_divide_by_float_noise():
    """Every group has the same association, or none at all: there is no spread to measure it in."""
    equal = torch.full((7,), 0.3)
    weight = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.5, 0.5, 1.0, 1.0])
    close(trust(equal, weight, norm=True), [sigmoid(0.6)] * 7)
    close(trust(equal + torch.linspace(0, 1e-7, 7), weight, norm=True), [sigmoid(0.6)] * 7)
    close(trust(torch.full((7,), 987.65), weight, 1e-3, norm=True), [sigmoid(0.98765)] * 7)
    group = torch.tensor([0, 0, 1, 1, 2, 2])
    align = torch.tensor([0.3, 0.9, 0.6, 0.45, 0.1, 0.7])
    tva = association(align, torch.full((6,), 10.1), torch.ones(6), group)
    close(trust(tva, torch.ones(6), norm=True), [0.5] * 6)


def test_no_gate_carries_a_gradient():
    logp = torch.full((4, 2), -1.0, requires_grad=True)
    mask = torch.ones(4, 2, dtype=torch.bool)
    conf, weight = confidence(logp, mask, torch.arange(4))
    tva = association(alignment(conf, weight, SAME), RETURN, weight, SAME)
    assert tva.requires_grad
    assert not trust(tva, weight).requires_grad
    assert not token_trust(logp, logp - 1, mask).requires_grad


def gate_of(r, level: str, **kinds) -> torch.Tensor:
    conf, weight = confidence(r.teacher, r.mask, units(r, level))
    return trust(association(alignment(conf, weight, r.group, **kinds), r.reward, weight, r.group), weight)


@pytest.mark.parametrize("kinds", [{}, {"norm": "group_z"}, {"split": "median"}])
@pytest.mark.parametrize("level", ["row", "traj"])
def test_the_gate_ignores_what_should_not_matter(level, kinds):
    r = ragged(2)
    gate = gate_of(r, level, **kinds)
    assert ((gate > 0) & (gate < 1)).all()
    assert len(gate.unique()) > 2
    order = torch.randperm(len(gate), generator=torch.Generator().manual_seed(1))
    moved = type(r)(**{name: value[order] for name, value in vars(r).items()})
    torch.testing.assert_close(gate_of(moved, level, **kinds), gate[order])
    named = type(r)(**{**vars(r), "group": 500 - r.group, "episode": 500 - r.episode})
    torch.testing.assert_close(gate_of(named, level, **kinds), gate)
    teacher = torch.nn.functional.pad(r.teacher, (0, 4), value=torch.nan)
    wide = type(r)(**{**vars(r), "teacher": teacher, "mask": torch.nn.functional.pad(r.mask.long(), (0, 4))})
    torch.testing.assert_close(gate_of(wide, level, **kinds), gate)


def test_a_unit_counts_once_however_many_rows_it_has():
    """By episode, cutting an episode's tokens into more rows changes nothing; by row it does."""
    whole, cut = torch.tensor([[-1.0, -2.0], [-4.0, -1.0]]), torch.tensor([[-1.0, JUNK], [-2.0, JUNK], [-4.0, -1.0]])
    mask = torch.tensor([[True, False], [True, False], [True, True]])
    for unit, same in ((torch.tensor([0, 0, 1]), True), (torch.arange(3), False)):
        tva = []
        for logp, on, u, ret in ((whole, torch.ones(2, 2, dtype=torch.bool), torch.arange(2), [1.0, 0.0]),
                                 (cut, mask, unit, [1.0, 1.0, 0.0])):  # fmt: skip
            conf, weight = confidence(logp, on, u)
            group = torch.zeros(len(u), dtype=torch.long)
            tva.append(association(alignment(conf, weight, group), torch.tensor(ret), weight, group)[0])
        assert torch.isclose(*tva).item() is same


def test_empty_batches():
    none, rows = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    conf, weight = confidence(torch.zeros(0, 3), torch.zeros(0, 3, dtype=torch.bool), rows)
    for kinds in ({}, {"norm": "group_z"}, {"split": "median"}):
        assert alignment(conf, weight, rows, **kinds).shape == (0,)
    assert association(none, none, none, rows).shape == trust(none, none, norm=True).shape == (0,)


# ------------------------------------------------------------------------------------------- token_trust, Pool


def test_token_trust_by_hand():
    teacher, ref, mask = torch.tensor([[1.0, -1.0, JUNK]]), torch.zeros(1, 3), torch.tensor([[True, True, False]])
    close(pure(token_trust, teacher, ref, mask), [[sigmoid(2), sigmoid(-2), 0.0]])
    close(token_trust(teacher, ref, mask, tau=1.0), [[sigmoid(1), sigmoid(-1), 0.0]])


@pytest.mark.parametrize("seed", SEEDS)
def test_token_trust_equals_its_slow_twin(seed):
    r = ragged(seed)
    gap = tokens(r.teacher.double() - r.student.double(), r.mask)
    sd = statistics.pstdev([v for row in gap for v in row])
    want = [[sigmoid(2 * v / (sd + 1e-8)) for v in row] + [0.0] * (r.mask.shape[1] - len(row)) for row in gap]
    close(pure(token_trust, r.teacher, r.student, r.mask), want)
    assert torch.equal(token_trust(r.teacher, r.student.where(r.mask, torch.nan), r.mask.long()),
                       token_trust(r.teacher, r.student, r.mask))  # fmt: skip


def test_token_trust_without_a_difference_or_without_tokens():
    logp, mask = torch.full((2, 2), -1.0), torch.ones(2, 2, dtype=torch.bool)
    close(token_trust(logp, logp, mask), [[0.5, 0.5], [0.5, 0.5]])
    close(token_trust(logp, logp - 1, ~mask), torch.zeros(2, 2))


def test_the_running_tva_of_a_task_by_hand():
    pool = Pool(0.75, {"heat": 0.4})
    visit = torch.tensor([0.8, 0.8, -1.0])
    close(pure(pool.mix, visit, ["heat", "heat", "cool"]), [0.75 * 0.4 + 0.25 * 0.8] * 2 + [-1.0])
    close(pool.mix(torch.tensor([0.0]), ["cool"]), [-0.75])
    assert pool.values == {"heat": pytest.approx(0.5), "cool": pytest.approx(-0.75)}


def test_the_running_tva_leaves_the_given_values_alone():
    given = {"heat": 0.4}
    Pool(0.5, given).mix(torch.tensor([1.0]), ["heat"])
    assert given == {"heat": 0.4}
    with pytest.raises(ValueError):
        Pool(0.5).mix(torch.tensor([1.0]), ["heat", "cool"])
