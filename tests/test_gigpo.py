"""gigpo.py: step returns, anchor groups and the step advantage, by hand and against slow twins."""

import math
import statistics

import pytest
import torch

from gigpo import anchor_groups, step_advantage, step_returns
from tests.ragged import SEEDS, close, pure, ragged

# ----------------------------------------------------------------------------------------------- step returns


def test_step_returns_by_hand():
    """Episode 7 earns 0, 2, 1 in its turns 0, 1, 2, which stand in another order; episode 3 stays apart."""
    reward, episode, turn = torch.tensor([1.0, 0.0, 5.0, 2.0]), torch.tensor([7, 7, 3, 7]), torch.tensor([2, 0, 0, 1])
    close(pure(step_returns, reward, episode, turn, 0.5), [1.0, 0 + 0.5 * 2 + 0.25 * 1, 5.0, 2 + 0.5 * 1])
    close(step_returns(reward, episode, turn, 0.0), reward.double())
    close(step_returns(reward, episode, turn, 1.0), [1.0, 3.0, 5.0, 3.0])
    close(step_returns(reward, episode, turn), [1.0, 0.95 * 2 + 0.95**2, 5.0, 2.95])


@pytest.mark.parametrize("seed", SEEDS)
def test_step_returns_equal_their_slow_twin(seed):
    r = ragged(seed)
    reward, episode, turn = (v.tolist() for v in (r.reward, r.episode, r.turn))
    rows = range(len(reward))
    want = [sum(0.9 ** (turn[k] - turn[i]) * reward[k] for k in rows if episode[k] == episode[i] and turn[k] >= turn[i])
            for i in rows]  # fmt: skip
    close(pure(step_returns, r.reward, r.episode, r.turn, 0.9), want)


def test_step_returns_of_no_rows():
    rows = torch.zeros(0, dtype=torch.long)
    assert step_returns(torch.zeros(0), rows, rows).shape == (0,)


# ---------------------------------------------------------------------------------------------- anchor groups


def sets(index: torch.Tensor) -> list[list[int]]:
    """The rows of each anchor group."""
    assert index.dtype == torch.long
    rows = [[i for i, v in enumerate(index.tolist()) if v == name] for name in sorted(set(index.tolist()))]
    assert sorted(set(index.tolist())) == list(range(len(rows)))
    return rows


def test_exact_anchors_by_hand():
    """The same text in another task is another state, and so is a text that differs by a space."""
    group, texts = torch.tensor([5, 5, 2, 5, 2, 5]), ["desk", "shelf", "desk", "desk", "desk", "desk "]
    assert sets(pure(anchor_groups, group, texts)) == [[0, 3], [1], [2, 4], [5]]


def test_similar_anchors_by_hand():
    """`abcdefghij` and the second text share 9 of 10 characters: a ratio of exactly 0.9. The third text is that near
    to the second but not to the first, whose group the second joined; an equal text joins its own group."""
    texts = ["abcdefghij", "abcdefghiX", "abcdefghXX", "abcdefghXX", "abcdefghij"]
    assert sets(anchor_groups(torch.zeros(5, dtype=torch.long), texts, 0.9)) == [[0, 1, 4], [2, 3]]
    assert sets(anchor_groups(torch.zeros(5, dtype=torch.long), texts, 0.91)) == [[0, 4], [1], [2, 3]]
    assert sets(anchor_groups(torch.zeros(5, dtype=torch.long), texts, 0.8)) == [[0, 1, 2, 3, 4]]
    assert sets(anchor_groups(torch.zeros(5, dtype=torch.long), texts)) == [[0, 4], [1], [2, 3]]
    assert sets(anchor_groups(torch.tensor([0, 1, 0, 1, 0]), texts, 0.9)) == [[0, 4], [1, 3], [2]]


@pytest.mark.parametrize("seed", SEEDS)
def test_exact_anchors_equal_their_slow_twin(seed):
    r = ragged(seed)
    texts = [f"room {turn % 2}" for turn in r.turn.tolist()]
    index = anchor_groups(r.group, texts)
    for i, g in enumerate(r.group.tolist()):
        for k, h in enumerate(r.group.tolist()):
            assert (index[i] == index[k]).item() is (g == h and texts[i] == texts[k])


def test_no_anchors_and_wrong_input():
    none = anchor_groups(torch.zeros(0, dtype=torch.long), [])
    assert none.shape == (0,)
    assert none.dtype == torch.long
    for similarity in (0.0, -1.0, 1.01, math.nan):
        with pytest.raises(ValueError, match=r"--anchor_similarity .*: give a number above 0 and at most 1"):
            anchor_groups(torch.zeros(1, dtype=torch.long), ["a"], similarity)
    with pytest.raises(ValueError):
        anchor_groups(torch.zeros(2, dtype=torch.long), ["a"])


# --------------------------------------------------------------------------------------------- step advantage


def test_step_advantage_by_hand():
    """Two actions in one state, one state seen once, and one in which all went alike."""
    step_ret, anchor = torch.tensor([4.0, 1.0, 9.0, 0.1, 0.1, 0.1]), torch.tensor([3, 3, 1, 0, 0, 0])
    close(pure(step_advantage, step_ret, anchor), [1.5, -1.5, 0.0, 0.0, 0.0, 0.0])
    assert torch.equal(step_advantage(step_ret, anchor)[2:], torch.zeros(4))
    scaled = 1.5 / (3 / math.sqrt(2) + 1e-6)
    close(pure(step_advantage, step_ret, anchor, True), [scaled, -scaled, 0.0, 0.0, 0.0, 0.0])
    close(step_advantage(10 * step_ret, anchor), [15.0, -15.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_step_advantage_equals_its_slow_twin(seed, by_std):
    r = ragged(seed)
    anchor = anchor_groups(r.group, [f"room {turn % 2}" for turn in r.turn.tolist()])
    step_ret = step_returns(r.reward + 0.1 * r.turn, r.episode, r.turn)
    got = pure(step_advantage, step_ret, anchor, by_std)
    want = []
    for a, x in zip(anchor.tolist(), step_ret.tolist(), strict=True):
        pool = [v for v, b in zip(step_ret.tolist(), anchor.tolist(), strict=True) if a == b]
        sd = statistics.stdev(pool) if len(pool) > 1 else 0.0
        want.append(0.0 if sd < 1e-6 else (x - statistics.fmean(pool)) / (sd + 1e-6 if by_std else 1.0))
    close(got, want)
    assert (got.abs() > 0.1).any()
    close(step_advantage(step_ret.flip(0), anchor.flip(0), by_std).flip(0), got.double())


def test_step_advantage_of_no_rows():
    assert step_advantage(torch.zeros(0), torch.zeros(0, dtype=torch.long)).shape == (0,)
