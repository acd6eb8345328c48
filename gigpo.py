"""From anchor states and step returns to GiGPO's second advantage: which action was better in the same state?

    envs -> rollout -> teacher -> shaping, tva -> grpo, [gigpo] -> train          analyze

Rows of one task whose environment shows the same text form an anchor group; their discounted returns are compared as
GRPO compares episodes. A = A_episode + omega * A_step. Source: GiGPO (arXiv 2505.10978), method.md 2 and 6.
Left out: the episode's advantage (grpo.py). Known aliasing: equal text does not mean equal state.
"""

from difflib import SequenceMatcher

import torch
from torch import Tensor

from grpo import group_advantage, group_stats


def step_returns(reward: Tensor, episode: Tensor, turn: Tensor, gamma: float = 0.95) -> Tensor:
    """R_t = sum_k gamma^(k - t) r_k over the rest of the row's episode  (Eq. 16): [B]. Environment reward only."""
    ret = torch.zeros_like(reward)
    for e in episode.unique():
        rows = (episode == e).nonzero()[:, 0]
        following = reward.new_zeros(())
        for row in rows[turn[rows].argsort(descending=True)]:
            following = reward[row] + gamma * following
            ret[row] = following
    return ret


def anchor_groups(group: Tensor, anchors: list[str], similarity: float = 1.0) -> Tensor:
    """[B] indices: rows of one task with the same anchor text, or with similarity < 1 a text whose difflib ratio to
    the first text of an anchor group is at least that (search pages: 0.9)."""
    if not 0 < similarity <= 1:
        raise ValueError(f"--anchor_similarity {similarity}: give a number above 0 and at most 1")
    names: dict[tuple[int, str], int] = {}
    index = []
    for g, text in zip(group.tolist(), anchors, strict=True):
        name = (g, text)
        if similarity < 1 and name not in names:
            near = (n for n in names if n[0] == g and SequenceMatcher(None, n[1], text).ratio() >= similarity)
            name = next(near, name)
        index.append(names.setdefault(name, len(names)))
    return torch.tensor(index, dtype=torch.long, device=group.device)


def step_advantage(step_ret: Tensor, anchor_group: Tensor, by_std: bool = False) -> Tensor:
    """A_step = R_t - mean over the anchor group (with `by_std` divided by its deviation)  (Eq. 17): [B]; 0 for a row
    that is alone in its state."""
    row = torch.arange(len(step_ret), device=step_ret.device)
    return group_advantage(step_ret, *group_stats(step_ret, anchor_group, row), by_std)
