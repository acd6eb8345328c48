"""From teacher log-probs and returns to the trust gate: do confident rollouts earn more?

    envs -> rollout -> teacher -> shaping, [tva] -> grpo, gigpo -> train          analyze

TVA, the teacher-value association of a group: the mean return of the units in which the teacher is confident minus
that of the others. A sigmoid of it gates the token term. A unit is a row or a whole episode; a group is a task (L2)
or a set of rows in the same state (L3, GiGPO's anchor groups). Equation numbers are README's. Left out: where the
gate multiplies (shaping.py). Shapes: B rows, T tokens; `weight` [B] is 1 / (rows of the unit), so that a unit counts
once however many rows it has. Nothing writes to an argument.
"""

import torch
from torch import Tensor

LEVELS = ("auto", "L1", "L2-row", "L2-traj", "L3")


def confidence(logp: Tensor, mask: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """c_u: the mean log-prob over a unit's tokens, on each of its rows, and the rows' weights  (Eq. 8): both [B].

    `logp` [B, T] in nats: the raw teacher log-probs (or, as control, the student's own). `unit` [B]: indices of
    rows (torch.arange(B)) or of episodes. A unit without a token has confidence 0.
    """
    pool = unit.unique(return_inverse=True)[1]
    zero = logp.new_zeros(int(pool.max()) + 1)
    total = zero.index_add(0, pool, logp.where(mask, 0.0).sum(1))
    tokens = zero.index_add(0, pool, mask.sum(1).to(logp.dtype)).clamp(min=1)
    rows = zero.index_add(0, pool, torch.ones_like(logp[:, 0]))
    return (total / tokens)[pool], (1 / rows)[pool]


def _group_mean(value: Tensor, weight: Tensor, pool: Tensor) -> Tensor:
    """Weighted mean of `value` in each row's pool, on every row: [B]."""
    zero = value.new_zeros(int(pool.max()) + 1)
    total, count = zero.index_add(0, pool, weight * value), zero.index_add(0, pool, weight)
    return (total / (count + 1e-8))[pool]


def alignment(conf: Tensor, weight: Tensor, group: Tensor, norm: str = "batch", split: str = "soft") -> Tensor:
    """alpha_u in [0, 1]: how far unit u belongs to the confident ones  (Eq. 9): [B].

    split="soft": sigmoid(c - mean of c over the batch's units), the paper at temperature 1; norm="group_z" takes
    the z-score within the group instead (raw log-probs leave alpha close to 1/2). split="median": 1 above the
    group's median unit, 0 below, 1/2 on it.
    """
    pool = group.unique(return_inverse=True)[1]
    if split == "median":
        return torch.stack([_median_side(conf[i], conf[pool == pool[i]], weight[pool == pool[i]]) for i in range(len(conf))])
    if split != "soft":
        raise ValueError(f"--tva_split {split}: unknown, choose soft or median")
    if norm == "batch":
        return torch.sigmoid(conf - (weight * conf).sum() / weight.sum())
    if norm == "group_z":
        off = conf - _group_mean(conf, weight, pool)
        std = _group_mean(off.square(), weight, pool).sqrt()
        return torch.sigmoid(off / (std + 1e-8))
    raise ValueError(f"--alpha_norm {norm}: unknown, choose batch or group_z")


def _median_side(value: Tensor, values: Tensor, weights: Tensor) -> Tensor:
    """1, 1/2 or 0: whether at most, or at least, half of the weight lies on the other side of `value`."""
    below, above = weights[values < value].sum(), weights[values > value].sum()
    return (1 + torch.sign((below - above).round(decimals=4))) / 2


def association(align: Tensor, ret: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    """d = mu_plus - mu_minus, the TVA of a row's group  (Eq. 10): [B], in units of the return.

    mu_plus weighs the returns `ret` [B] by alpha, mu_minus by 1 - alpha. It equals
    Cov_g(alpha, R) / (mean alpha * (1 - mean alpha)). 0 in a group of fewer than two units, and where all are on
    one side. Source: method.md 1.4.
    """
    pool = group.unique(return_inverse=True)[1]
    zero = ret.new_zeros(int(pool.max()) + 1)
    plus, minus = weight * align, weight * (1 - align)
    w_plus, w_minus = zero.index_add(0, pool, plus), zero.index_add(0, pool, minus)
    mu_plus = zero.index_add(0, pool, plus * ret) / (w_plus + 1e-8)
    mu_minus = zero.index_add(0, pool, minus * ret) / (w_minus + 1e-8)
    two = (zero.index_add(0, pool, weight) > 1.5) & (w_plus > 1e-6) & (w_minus > 1e-6)
    return (mu_plus - mu_minus).where(two, 0.0)[pool]


def trust(tva: Tensor, weight: Tensor, tau: float = 2.0, norm: bool = False) -> Tensor:
    """m = sigmoid(tau * d) in (0, 1), detached  (Eq. 11): [B]. Below 1/2 the term shrinks, it never changes sign.

    `norm` divides d by its standard deviation over the batch's units first (no centring; a spread of 0 leaves d).
    """
    if norm:
        mean = (weight * tva).sum() / weight.sum()
        std = ((weight * (tva - mean).square()).sum() / weight.sum()).sqrt()
        tva = tva / std if std > 1e-8 else tva
    return torch.sigmoid(tau * tva).detach()


def token_trust(teacher_logp: Tensor, ref_logp: Tensor, mask: Tensor, tau: float = 2.0) -> Tensor:
    """The level-1 gate, by token: sigmoid(tau * (l_T - l_ref) / std over the batch's tokens)  (Eq. 12): [B, T]."""
    gap = (teacher_logp - ref_logp).where(mask, 0.0)
    std = gap[mask].std(unbiased=False)
    return torch.sigmoid(tau * gap / (std + 1e-8)).detach().where(mask, 0.0)
