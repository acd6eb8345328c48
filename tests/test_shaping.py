"""shaping.py: hand values, slow twins, and the algebra of the token term that method.md claims."""

import itertools
import math
import statistics

import pytest
import torch

from grpo import group_advantage, group_stats
from shaping import CENTRES, JOINS, SCALES, clip_term, in_window, standardise, summed, token_term, whiten
from tests.ragged import JUNK, SEEDS, close, pure, ragged, tokens

ON = torch.ones(1, 2, dtype=torch.bool)
ONE = torch.zeros(1, dtype=torch.long)


def one_group(*values: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A row of these values: score [1, T], mask, group."""
    score = torch.tensor([values])
    return score, torch.ones_like(score, dtype=torch.bool), ONE


def pools(scope: str, r) -> list[list[int]]:
    """For each row the rows that share its statistic."""
    rows = range(len(r.group))
    return [[k for k in rows if scope == "global" or (k == i if scope == "step" else r.group[k] == r.group[i])]
            for i in rows]  # fmt: skip


# ------------------------------------------------------------------------------------------------ standardise


def twin_standardise(r, centre: str, scale: str) -> list[list[float]]:
    score = tokens(r.teacher, r.mask)
    centred = [list(row) for row in score]
    if centre != "none":
        for i, shared in enumerate(pools(centre, r)):
            mean = statistics.fmean(v for k in shared for v in score[k])
            centred[i] = [v - mean for v in score[i]]
    out = [[0.0] * r.mask.shape[1] for _ in score]
    for i, shared in enumerate(pools(scale, r)):
        sd = statistics.pstdev([v for k in shared for v in centred[k]])
        for j, v in enumerate(centred[i]):
            out[i][j] = v if scale == "none" else v / (sd + 1e-8) if sd > 0 else 0.0
    return out


def test_standardise_by_hand():
    close(standardise(*one_group(-1.0, -3.0)), [[1.0, -1.0]])
    close(standardise(*one_group(0.0, -3.0, -6.0)), [[math.sqrt(1.5), 0.0, -math.sqrt(1.5)]])
    close(standardise(*one_group(-1.0, -3.0), "none", "step"), [[-1.0, -3.0]])
    close(standardise(*one_group(-1.0, -4.0), "step", "none"), [[1.5, -1.5]])


@pytest.mark.parametrize(("centre", "scale"), itertools.product(CENTRES, SCALES))
@pytest.mark.parametrize("seed", SEEDS)
def test_standardise_equals_its_slow_twin(seed, centre, scale):
    r = ragged(seed)
    close(pure(standardise, r.teacher, r.mask, r.group, centre, scale), twin_standardise(r, centre, scale))


@pytest.mark.parametrize("scale", SCALES)
def test_rows_sum_to_zero_when_centred_by_step(scale):
    r = ragged(0, width=300)
    q_hat = standardise(r.teacher, r.mask, r.group, "step", scale)
    assert q_hat.sum(1).abs().max() < 1e-4
    assert q_hat.abs().sum(1).max() > 100


def test_the_step_is_the_default_scope():
    r = ragged(1)
    assert torch.equal(standardise(r.teacher, r.mask, r.group),
                       standardise(r.teacher, r.mask, r.group, centre="step", scale="step"))  # fmt: skip


@pytest.mark.parametrize("level", [-0.1, -987.65])
@pytest.mark.parametrize(("centre", "scale"), itertools.product(CENTRES, SCALES))
def test_standardise_has_no_signal_in_equal_scores(centre, scale, level):
    score, mask, group = torch.full((3, 7), level), torch.ones(3, 7, dtype=torch.bool), torch.tensor([0, 0, 1])
    q_hat = standardise(score, mask, group, centre, scale)
    assert torch.equal(q_hat, score if centre == scale == "none" else torch.zeros_like(score))


def test_float_noise_between_scores_is_not_blown_up():
    """A certain token's log-prob is 0 or one rounding step below it."""
    assert not standardise(*one_group(0.0, -1.2e-7, -2.4e-7, 0.0)).any()
    assert standardise(*one_group(0.0, -1.2e-4, -2.4e-4, 0.0)).abs().max() > 1


def test_standardise_of_short_and_empty_rows():
    score = torch.tensor([[-2.0, JUNK], [JUNK, JUNK], [-1.0, -2.0]])
    mask = torch.tensor([[True, False], [False, False], [True, True]])
    close(standardise(score, mask, torch.tensor([0, 1, 0])), [[0.0, 0.0], [0.0, 0.0], [1.0, -1.0]])
    for centre, scale in itertools.product(CENTRES, SCALES):
        assert not standardise(score, torch.zeros_like(mask), torch.tensor([0, 1, 0]), centre, scale).any()
    assert standardise(score[:0], mask[:0], torch.zeros(0, dtype=torch.long)).shape == (0, 2)


def test_standardise_ignores_what_should_not_matter():
    r = ragged(2)
    q_hat = standardise(r.teacher, r.mask, r.group, "group", "group")
    order = torch.randperm(len(r.group), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(standardise(r.teacher[order], r.mask[order], r.group[order], "group", "group"), q_hat[order])
    assert torch.equal(standardise(r.teacher, r.mask, 1000 - r.group, "group", "group"), q_hat)
    assert torch.equal(standardise(r.teacher.where(r.mask, torch.nan), r.mask, r.group, "group", "group"), q_hat)
    for mask in (r.mask.long(), r.mask.float()):
        assert torch.equal(standardise(r.teacher, mask, r.group, "group", "group"), q_hat)
    wider = torch.nn.functional.pad(r.teacher, (0, 3), value=JUNK), torch.nn.functional.pad(r.mask, (0, 3))
    assert torch.equal(standardise(*wider, r.group, "group", "group")[:, :-3], q_hat)


def test_a_constant_cancels_where_it_is_centred():
    r = ragged(3)
    by_row = torch.arange(len(r.group))[:, None].float()
    apart = standardise(r.teacher + by_row, r.mask, r.group)
    assert torch.allclose(apart, standardise(r.teacher, r.mask, r.group), atol=1e-4)
    shifted, plain = (standardise(r.teacher + c, r.mask, r.group, "group", "group") for c in (r.group[:, None], 0))
    assert torch.allclose(shifted, plain, atol=1e-4)
    raised, plain = (standardise(r.teacher + c, r.mask, r.group, "none") for c in (1, 0))
    assert not torch.allclose(raised, plain)


def test_step_statistics_do_not_see_the_rest_of_the_batch():
    r = ragged(0)
    alone = [standardise(r.teacher[i : i + 1], r.mask[i : i + 1], r.group[i : i + 1]) for i in range(len(r.group))]
    assert torch.equal(torch.cat(alone), standardise(r.teacher, r.mask, r.group))


def test_standardise_scales_cancel_and_extremes_stay_finite():
    r = ragged(1)
    tripled, plain = (standardise(k * r.teacher, r.mask, r.group) for k in (3, 1))
    assert torch.allclose(tripled, plain, atol=1e-5)
    extreme = standardise(*one_group(-1e4, 0.0, -1e-4))
    assert extreme.isfinite().all()
    assert extreme[0, 0] < -1


@pytest.mark.parametrize("wrong", [{"centre": "global"}, {"scale": "batch"}])
def test_standardise_names_the_choices(wrong):
    with pytest.raises(ValueError, match=r"--centre takes step, group, none; --scale takes step, group, global, none"):
        standardise(*one_group(-1.0, -2.0), **wrong)


# ------------------------------------------------------------------------------------------ whiten, token_term


def twin_whiten(term: torch.Tensor, r) -> list[list[float]]:
    value = tokens(term, r.mask)
    out = [[0.0] * r.mask.shape[1] for _ in value]
    for i, shared in enumerate(pools("group", r)):
        pool = [v for k in shared for v in value[k]]
        mean, var = statistics.fmean(pool), statistics.variance(pool) if len(pool) > 1 else 0.0
        for j, v in enumerate(value[i]):
            out[i][j] = (v - mean) / math.sqrt(var + 1e-8)
    return out


def test_whiten_by_hand():
    close(whiten(*one_group(1.0, 3.0)), [[-math.sqrt(0.5), math.sqrt(0.5)]])
    close(whiten(*one_group(1e-4, -1e-4)), [[math.sqrt(1 / 3), -math.sqrt(1 / 3)]])  # variance 2e-8 + 1e-8


@pytest.mark.parametrize("seed", SEEDS)
def test_whiten_equals_its_slow_twin(seed):
    r = ragged(seed)
    close(pure(whiten, r.teacher, r.mask, r.group), twin_whiten(r.teacher, r))


def test_whiten_ignores_what_should_not_matter():
    r = ragged(1)
    z = whiten(r.teacher, r.mask, r.group)
    assert torch.equal(whiten(r.teacher.where(r.mask, torch.nan), r.mask.long(), 99 - r.group), z)
    assert torch.equal(whiten(r.teacher.flip(0), r.mask.flip(0), r.group.flip(0)).flip(0), z)
    assert torch.allclose(whiten(5 * r.teacher + r.group[:, None], r.mask, r.group), z, atol=1e-4)
    few = r.group <= 20
    assert torch.equal(whiten(r.teacher[few], r.mask[few], r.group[few]), z[few])


def test_whiten_is_exactly_zero_without_variance():
    constant = torch.full((3, 4), 0.1)
    assert not whiten(constant, torch.ones(3, 4, dtype=torch.bool), torch.tensor([0, 0, 1])).any()
    assert not whiten(torch.tensor([[-3.0]]), torch.tensor([[True]]), ONE).any()
    assert not whiten(constant, torch.zeros(3, 4, dtype=torch.bool), torch.tensor([0, 0, 1])).any()
    assert whiten(constant[:0], torch.zeros(0, 4, dtype=torch.bool), ONE[:0]).shape == (0, 4)


def q_hat_of(r) -> torch.Tensor:
    return standardise(r.teacher, r.mask, r.group)


def gate_of(r, level: str) -> torch.Tensor:
    """[B, 1] in (0, 1): constant in a task group (L2), or different between the rows of a group (L3)."""
    value = r.group if level == "L2" else torch.arange(len(r.group))
    return torch.sigmoid(value[:, None].float() / 10 - 1)


@pytest.mark.parametrize("level", ["L2", "L3"])
@pytest.mark.parametrize("seed", SEEDS)
def test_token_term_equals_its_slow_twin(seed, level):
    r = ragged(seed)
    q_hat, gate = q_hat_of(r), gate_of(r, level)
    z = torch.tensor(twin_whiten(q_hat, r))
    close(pure(token_term, q_hat, gate, r.mask, r.group, "post_whiten"), gate.double() * z)
    close(pure(token_term, q_hat, gate, r.mask, r.group, "pre_whiten"), twin_whiten(gate * q_hat, r))
    close(pure(token_term, q_hat, gate, r.mask, r.group, "raw"), gate.double() * q_hat.double())
    close(pure(token_term, q_hat, gate, r.mask, r.group, "sum_only"), torch.zeros_like(q_hat))


def test_before_whitening_a_gate_constant_in_the_group_cancels():
    r = ragged(0)
    q_hat, gate, ones = q_hat_of(r), gate_of(r, "L2"), torch.ones(len(r.group), 1)
    ungated = token_term(q_hat, ones, r.mask, r.group, "pre_whiten")
    assert (token_term(q_hat, gate, r.mask, r.group, "pre_whiten") - ungated).abs().max() < 1e-6
    after = token_term(q_hat, gate, r.mask, r.group, "post_whiten")
    assert torch.equal(after, gate * ungated)
    assert (after - ungated).abs().max() > 0.1


def test_before_whitening_a_gate_that_differs_in_the_group_matters():
    r = ragged(0)
    q_hat, gate, ones = q_hat_of(r), gate_of(r, "L3"), torch.ones(len(r.group), 1)
    gated, ungated = (token_term(q_hat, g, r.mask, r.group, "pre_whiten") for g in (gate, ones))
    assert (gated - ungated).abs().max() > 0.1


def test_a_global_scale_cancels_in_whitening_but_a_step_scale_does_not():
    r = ragged(2)
    ones = torch.ones(len(r.group), 1)
    by_scale = {s: token_term(standardise(r.teacher, r.mask, r.group, "step", s), ones, r.mask, r.group, "pre_whiten")
                for s in SCALES}  # fmt: skip
    assert torch.allclose(by_scale["global"], by_scale["none"], atol=1e-5)
    assert not torch.allclose(by_scale["step"], by_scale["none"], atol=1e-2)


@pytest.mark.parametrize("join", ["post_whiten", "raw"])
def test_half_the_gate_is_half_the_term(join):
    r = ragged(1)
    q_hat, gate = q_hat_of(r), gate_of(r, "L3")
    term, half = (token_term(q_hat, g, r.mask, r.group, join) for g in (gate, gate / 2))
    assert torch.equal(half, term / 2)
    assert term.any()


def test_without_a_gate_both_orders_agree():
    r = ragged(1)
    ones = torch.ones(len(r.group), 1)
    post, pre = (token_term(q_hat_of(r), ones, r.mask, r.group, join) for join in ("post_whiten", "pre_whiten"))
    assert torch.equal(post, pre)


@pytest.mark.parametrize("join", JOINS)
def test_token_term_takes_a_gate_by_token_and_adds_nothing_outside_the_mask(join):
    r = ragged(3)
    gate = gate_of(r, "L3")
    term = token_term(q_hat_of(r), gate.expand_as(r.mask), r.mask, r.group, join)
    assert torch.equal(term, token_term(q_hat_of(r), gate, r.mask, r.group, join))
    assert not term[~r.mask].any()


def test_token_term_names_the_choices():
    with pytest.raises(ValueError, match="--join before: unknown, choose one of post_whiten, pre_whiten"):
        token_term(torch.zeros(1, 2), torch.ones(1, 1), ON, ONE, "before")


# ------------------------------------------------------------------------------------------------------ summed


def test_summed_by_hand():
    q_hat, gate = torch.tensor([[1.0, -2.0, 0.5], [1.0, 1.0, 0.0]]), torch.tensor([[0.5], [1.0]])
    close(pure(summed, torch.tensor([10.0, 0.0]), q_hat, gate, 0.1), [10 + 0.1 * 0.5 * -0.5, 0.2])


@pytest.mark.parametrize("seed", SEEDS)
def test_summing_a_centred_term_into_the_return_is_a_no_op(seed):
    r = ragged(seed, width=60)
    score = r.reward + r.turn

    def advantage(score):
        return group_advantage(score, *group_stats(score, r.group, r.episode))

    shaped = summed(score, q_hat_of(r), gate_of(r, "L3"), 0.1)
    assert (advantage(shaped) - advantage(score)).abs().max() < 1e-5
    raw = summed(score, standardise(r.teacher, r.mask, r.group, "none"), gate_of(r, "L3"), 0.1)
    assert (advantage(raw) - advantage(score)).abs().max() > 0.01


def test_float_noise_of_the_row_sum_reaches_the_advantage_only_without_a_floor():
    """method.md 0.7: in a group without signal the residual of a row sum is divided by (itself + 1e-6)."""
    r = ragged(0, width=300)
    failed = torch.zeros(len(r.group))
    shaped = summed(failed, q_hat_of(r), torch.ones(len(r.group), 1), 0.1)
    assert 0 < shaped.abs().max() < 1e-6
    noisy = group_advantage(shaped, *group_stats(shaped, r.group, r.episode, floor=0.0))
    assert noisy.abs().max() > 1e-3
    assert not group_advantage(shaped, *group_stats(shaped, r.group, r.episode)).any()


# --------------------------------------------------------------------------------------------------- clip_term

TERM = torch.tensor([[1.0, -1.0, 0.05, -0.05]])


def test_clip_none_and_fixed_by_hand():
    spread = torch.tensor([0.0])
    assert torch.equal(pure(clip_term, TERM, 0.2, "none", spread, ONE), TERM)
    close(pure(clip_term, TERM, 0.2, "fixed", spread, ONE), [[0.2, -0.2, 0.05, -0.05]])


def test_clip_adaptive_by_hand():
    """Spreads .1, .2, .4 have the median .2: bounds 0.2 * 1/2, 0.2, 0.2. Group 1 counts once though it has 3 rows."""
    group, spread = torch.tensor([7, 1, 1, 1, 9]), torch.tensor([0.2, 0.1, 0.1, 0.1, 0.4])
    bound = pure(clip_term, TERM.expand(5, 4), 0.2, "adaptive", spread, group)
    close(bound[:, 0], [0.2, 0.1, 0.1, 0.1, 0.2])
    close(bound[:, 1], [-0.2, -0.1, -0.1, -0.1, -0.2])
    assert torch.equal(bound[:, 2:], TERM[:, 2:].expand(5, 2))


def test_clip_adaptive_takes_the_lower_of_two_medians():
    group, spread = torch.tensor([0, 1]), torch.tensor([1.0, 3.0])
    close(clip_term(TERM.expand(2, 4), 0.2, "adaptive", spread, group)[:, 0], [0.2, 0.2])


def test_clip_adaptive_is_zero_without_spread():
    group, spread = torch.tensor([0, 1, 2]), torch.tensor([0.0, 1.0, 1.0])
    close(clip_term(TERM.expand(3, 4), 0.2, "adaptive", spread, group)[:, 0], [0.0, 0.2, 0.2])
    assert not clip_term(TERM, 0.2, "adaptive", torch.zeros(1), ONE).any()
    mostly_none = torch.tensor([0.0, 0.0, 1.0])
    close(clip_term(TERM.expand(3, 4), 0.2, "adaptive", mostly_none, group)[:, 0], [0.0, 0.0, 0.2])
    assert clip_term(TERM[:0], 0.2, "adaptive", spread[:0], group[:0]).shape == (0, 4)


@pytest.mark.parametrize("seed", SEEDS)
def test_clip_adaptive_equals_its_slow_twin(seed):
    r = ragged(seed)
    spread = torch.sin(r.group.float()).abs() * 3
    median = statistics.median_low({int(g): float(s) for g, s in zip(r.group, spread, strict=True)}.values())
    term, got = r.teacher, clip_term(r.teacher, 0.2, "adaptive", spread, r.group)
    for i, s in enumerate(spread.tolist()):
        bound = 0.2 * min(1.0, s / median)
        close(got[i], [max(-bound, min(bound, v)) for v in term[i].tolist()])


def test_clip_names_the_choices():
    with pytest.raises(ValueError, match=r"--clip_mode soft: unknown, choose one of none, fixed, adaptive"):
        clip_term(TERM, 0.2, "soft", torch.zeros(1), ONE)


# --------------------------------------------------------------------------------------------------- in_window


def active(steps: int, start: float, stop: float) -> list[int]:
    return [step for step in range(1, steps + 1) if in_window(step, steps, start, stop)]


def test_in_window_by_hand():
    assert active(150, 20 / 150, 70 / 150) == list(range(21, 71))
    assert active(30, 0.0, 1.0) == list(range(1, 31))
    assert active(10, 0.5, 0.5) == []
    assert active(100, 0.29, 0.57) == list(range(30, 58))  # 0.29 * 100 is 28.999999999999996 in floats


def test_every_pair_of_whole_steps_gives_exactly_those_steps():
    for steps in (7, 22, 49):
        for start, stop in itertools.combinations(range(steps + 1), 2):
            assert active(steps, start / steps, stop / steps) == list(range(start + 1, stop + 1))
