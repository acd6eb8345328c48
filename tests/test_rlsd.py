"""rlsd.py: the mixing schedule and the multiplied advantage, by hand and against slow twins."""

import itertools
import math

import pytest
import torch

from rlsd import mixing, scaled_advantage
from tests.ragged import SEEDS, close, pure, ragged

# ------------------------------------------------------------------------------------------------------ mixing


def test_mixing_by_hand():
    assert [mixing(step) for step in (1, 51, 101, 102, 150)] == pytest.approx([0.5, 0.25, 0.0, 0.0, 0.0])
    assert [mixing(step, 0.8, 4) for step in range(1, 7)] == pytest.approx([0.8, 0.6, 0.4, 0.2, 0.0, 0.0])


def test_mixing_falls_by_equal_steps_and_is_never_negative():
    schedule = [mixing(step) for step in range(1, 200)]
    assert all(a - b == pytest.approx(0.005) for a, b in itertools.pairwise(schedule[:101]))
    assert min(schedule) == 0.0


# -------------------------------------------------------------------------------------------- scaled_advantage


def scaled(adv: float, gap: float, mix: float, clip: float = 0.2) -> float:
    adv, old_logp, teacher_logp = (torch.tensor([[x]]) for x in (adv, -1.0, gap - 1.0))
    return scaled_advantage(adv, old_logp, teacher_logp, mix, clip).item()


def test_scaled_advantage_by_hand():
    """What the teacher likes by a factor of 1.1 counts for more in a good row and for less in a bad one."""
    up, far = math.log(1.1), 3.0
    assert scaled(2.0, up, 0.5) == pytest.approx(2 * (0.5 + 0.5 * 1.1))
    assert scaled(-2.0, up, 0.5) == pytest.approx(-2 * (0.5 + 0.5 / 1.1))
    assert scaled(2.0, -up, 1.0) == pytest.approx(2 / 1.1)
    assert scaled(2.0, far, 0.5) == pytest.approx(2 * (0.5 + 0.5 * 1.2))
    assert scaled(2.0, -far, 0.5) == pytest.approx(2 * (0.5 + 0.5 * 0.8))
    assert scaled(-2.0, -far, 0.25) == pytest.approx(-2 * (0.75 + 0.25 * 1.2))
    assert scaled(2.0, far, 1.0, clip=0.5) == pytest.approx(3.0)
    assert scaled(2.0, -far, 1.0, clip=0.5) == pytest.approx(1.0)


@pytest.mark.parametrize("mix", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_scaled_advantage_equals_its_slow_twin(seed, mix):
    r = ragged(seed)
    adv = torch.sin(torch.arange(r.mask.numel()).float()).view_as(r.teacher)
    want = []
    for row in zip(adv.tolist(), r.student.tolist(), r.teacher.tolist(), strict=True):
        for a, old, teacher in zip(*row, strict=True):
            ratio = math.exp((1 if a > 0 else -1) * (teacher - old))
            want.append(a * ((1 - mix) + mix * min(max(ratio, 0.8), 1.2)))
    close(pure(scaled_advantage, adv, r.student, r.teacher, mix).flatten(), want)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_sign_stays_and_the_size_changes_by_at_most_the_clip(seed):
    r = ragged(seed)
    adv = (r.reward - 0.4)[:, None].expand_as(r.teacher)
    got = scaled_advantage(adv, r.student, r.teacher, 0.5)
    assert torch.equal(got.sign(), adv.sign())
    assert ((got / adv - 1).abs() <= 0.1 + 1e-6).all()
    assert not torch.allclose(got, adv)
    by_row = scaled_advantage(adv[:, :1], r.student, r.teacher, 0.5)
    assert torch.equal(by_row, got)


def test_without_mixing_or_without_a_gap_nothing_changes():
    r = ragged(0)
    adv = torch.randn(r.teacher.shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(scaled_advantage(adv, r.student, r.teacher, 0.0), adv)
    torch.testing.assert_close(scaled_advantage(adv, r.teacher, r.teacher, 0.5), adv)


def test_zero_stays_zero_and_extremes_stay_finite():
    zero, gap = torch.zeros(1, 2), torch.tensor([[1e4, -1e4]])
    assert torch.equal(scaled_advantage(zero, zero, gap, 0.5), zero)
    close(scaled_advantage(zero + 1, zero, gap, 0.5), [[1.1, 0.9]])
    close(scaled_advantage(zero - 1, zero, gap, 0.5), [[-0.9, -1.1]])
