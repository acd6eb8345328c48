"""From rewards and groups to the GRPO advantage, and from log-probs to the loss.

    envs -> rollout -> teacher -> shaping, tva -> [grpo], gigpo -> train          analyze

Every method of the repository ends in this loss. Equation numbers are README's. Left out: anything that a teacher
says. Shapes: B rows (one is one turn), T response tokens; log-probs in nats. Nothing writes to an argument.
"""

import torch
from torch import Tensor


def row_score(reward: Tensor, valid: Tensor, episode: Tensor, penalty: float) -> Tensor:
    """The episode's summed reward on each of its rows, less `penalty` on rows whose text was invalid: [B].

    Source: method.md 2, items 4 and 5 (the penalty is the row's own and is not propagated).
    """
    pool = episode.unique(return_inverse=True)[1]
    return _sums(reward, pool)[pool] - penalty * valid.logical_not().to(reward.dtype)


def group_stats(
    score: Tensor, group: Tensor, episode: Tensor, unit: str = "row", floor: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Mean and unbiased standard deviation of the scores in a row's group: both [B].

    unit="row": over all rows (the authors' way; long episodes weigh more); "episode": over the episodes' mean
    scores. The deviation is exactly 0 in a group of one unit and where all units score the same: their range is at
    most `floor` (1 + largest |score|), since ten rewards of 0.1 do not sum to 1. With floor=0 such float noise counts.
    """
    if unit not in ("row", "episode"):
        raise ValueError(f"--group_unit {unit}: unknown, choose row or episode")
    pool, weight, value = group.unique(return_inverse=True)[1], torch.ones_like(score).double(), score.double()
    if unit == "episode":
        member = episode.unique(return_inverse=True)[1]
        weight = 1 / torch.bincount(member)[member].double()
        value = _sums(weight * value, member)[member]
    count = _sums(weight, pool)
    mean = (_sums(weight * value, pool) / count)[pool]
    variance = (_sums(weight * (value - mean).square(), pool) / (count - 1).clamp(min=1e-9))[pool]
    low, high = (torch.zeros_like(value).scatter_reduce(0, pool, value, kind, include_self=False)[pool]
                 for kind in ("amin", "amax"))  # fmt: skip
    std = variance.sqrt().where(high - low > floor * (1 + torch.maximum(high, -low)), 0.0)
    return mean.float(), std.float()


def _sums(value: Tensor, pool: Tensor) -> Tensor:
    """The sum of `value` [B] in each pool: [B], of which the first are used."""
    return torch.zeros_like(value).index_add(0, pool, value)


def group_advantage(score: Tensor, mean: Tensor, std: Tensor, by_std: bool = True) -> Tensor:
    """A = (S - mean_g) / (std_g + 1e-6)  (Eq. 13): [B]; without `by_std` the division is left out.

    A group of zero spread has nothing to compare and gets exactly 0, not float noise over 1e-6.
    """
    centred = (score - mean).where(std > 0, 0.0)
    return centred / (std + 1e-6) if by_std else centred


def surrogate(logp: Tensor, old_logp: Tensor, adv: Tensor, clip: float = 0.2, dual_clip: float = 3.0) -> Tensor:
    """The clipped policy loss of every token  (Eq. 14): [B, T], to be averaged over tokens.

    -min(w A, clip(w, 1 - clip, 1 + clip) A) with w = exp(logp - old_logp); where A < 0 it is at most -dual_clip A.
    `adv` broadcasts to [B, T].
    """
    ratio = (logp - old_logp).clamp(max=20).exp()
    loss = -torch.minimum(ratio * adv, ratio.clamp(1 - clip, 1 + clip) * adv)
    return torch.where(adv < 0, torch.minimum(loss, -dual_clip * adv), loss)


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """The low-variance estimate of KL(policy || reference) of every token  (Eq. 15): [B, T] in nats, at most 10.

    exp(d) - d - 1 with d = ref_logp - logp. Never negative, 0 where both agree.
    """
    d = (ref_logp - logp).clamp(max=20)
    return (d.expm1() - d).clamp(max=10)
