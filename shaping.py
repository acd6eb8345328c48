"""From teacher log-probs to the token term of the credit: centre, scale, whiten, gate, clip, schedule.

    envs -> rollout -> teacher -> [shaping], tva -> grpo, gigpo -> train          analyze

A teacher that knows the skill says how likely each sampled token is. What is said about whole responses is removed
(centring: every row then sums to zero), what is left is measured in standard deviations, and a small multiple of it
is added to the backbone's advantage. Equation numbers are README's. Left out: the gate itself (tva.py).
Shapes: B rows, T response tokens, `mask` [B, T] bool, `group` [B] indices of tasks. Nothing writes to an argument.
"""

import torch
from torch import Tensor

CENTRES = ("step", "group", "none")
SCALES = ("step", "group", "global", "none")
JOINS = ("post_whiten", "pre_whiten", "sum_only", "raw")
CLIPS = ("none", "fixed", "adaptive")


def _pool(scope: str, group: Tensor) -> Tensor:
    """Which rows share a statistic: [B] indices from 0."""
    if scope == "step":
        return torch.arange(len(group), device=group.device)
    if scope == "group":
        return group.unique(return_inverse=True)[1]
    return torch.zeros_like(group)  # global


def _sums(value: Tensor, mask: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of `value` over the masked tokens of each pool, and their number: both [B], of which the first are used."""
    zero = value.new_zeros(len(pool))
    total = zero.index_add(0, pool, value.where(mask, 0.0).sum(1))
    return total, zero.index_add(0, pool, mask.sum(1).to(value.dtype))


def _mean(value: Tensor, mask: Tensor, pool: Tensor) -> Tensor:
    """Mean over the masked tokens of a row's pool, on every row: [B, 1]. 0 where a pool has no token."""
    total, count = _sums(value, mask, pool)
    return (total / count.clamp(min=1))[pool][:, None]


def _variance(value: Tensor, mask: Tensor, pool: Tensor, unbiased: bool) -> Tensor:
    """Variance over the masked tokens of a row's pool, on every row: [B, 1]."""
    total, count = _sums((value - _mean(value, mask, pool)).square(), mask, pool)
    return (total / (count - int(unbiased)).clamp(min=1))[pool][:, None]


def standardise(score: Tensor, mask: Tensor, group: Tensor, centre: str = "step", scale: str = "step") -> Tensor:
    """q_hat = (score - mean) / (std + 1e-8)  (Eq. 2, 3), [B, T], 0 outside the mask.

    `score` [B, T]: teacher log-probs in nats (the paper), or their gap to the student's. `centre` and `scale` name
    the tokens that share the mean and the (biased) standard deviation: those of a step (one row), a group, the
    whole batch, or none. With centre="step" every row sums to 0, and a row of one token, or of equal ones, is 0.
    Source: method.md 1.3.
    """
    if centre not in CENTRES or scale not in SCALES:
        raise ValueError(f"--centre takes {', '.join(CENTRES)}; --scale takes {', '.join(SCALES)}")
    score, mask = score.double(), mask.bool()
    if centre != "none":
        score = score - _mean(score, mask, _pool(centre, group))
    if scale != "none":
        std = _variance(score, mask, _pool(scale, group), unbiased=False).sqrt()
        score = torch.where(std > 1e-6, score / (std + 1e-8), 0.0)  # below: the float noise of equal scores
    return score.where(mask, 0.0).float()


def whiten(term: Tensor, mask: Tensor, group: Tensor) -> Tensor:
    """Z = (term - mean_g) / sqrt(var_g + 1e-8) over all tokens of a group (Eq. 5), var unbiased: [B, T].

    Source: method.md 1.5. A constant term gives 0.
    """
    pool, value, mask = _pool("group", group), term.double(), mask.bool()
    z = (value - _mean(value, mask, pool)) / (_variance(value, mask, pool, unbiased=True) + 1e-8).sqrt()
    return z.where(mask, 0.0).float()


def token_term(q_hat: Tensor, gate: Tensor, mask: Tensor, group: Tensor, join: str) -> Tensor:
    """What is added to the advantage, before eta and clipping: [B, T]  (Eq. 6).

    `gate` broadcasts to [B, T] (ones: no TVA).
      post_whiten  gate * whiten(q_hat)    the gate acts at every level (default)
      pre_whiten   whiten(gate * q_hat)    the published form: a gate that is constant in a group cancels
      raw          gate * q_hat
      sum_only     0: the term is only summed into the return (`summed`), where its row sum of 0 changes nothing
    """
    if join == "post_whiten":
        return gate * whiten(q_hat, mask, group)
    if join == "pre_whiten":
        return whiten(gate * q_hat, mask, group)
    if join == "raw":
        return gate * q_hat
    if join == "sum_only":
        return torch.zeros_like(q_hat)
    raise ValueError(f"--join {join}: unknown, choose one of {', '.join(JOINS)}")


def summed(score: Tensor, q_hat: Tensor, gate: Tensor, eta: float) -> Tensor:
    """score + sum_j eta * gate * q_hat_j  [B]: the shaped return of the published recipe (Eq. 4). With step centring
    it equals `score` up to float error; kept as the control `--credit shaped`, which shows just that."""
    return score + eta * (gate * q_hat).sum(1)


def clip_term(term: Tensor, limit: float, mode: str, spread: Tensor, group: Tensor) -> Tensor:
    """`term` [B, T] clipped to +-limit, or to +-limit * min(1, spread_g / median_g' spread_g')  (Eq. 7).

    `spread` [B]: the standard deviation of the returns in a row's group; the median is over groups (the lower one
    of two), each counted once. Source: method.md 1.5 (c = 0.2).
    """
    if mode == "none":
        return term
    if mode == "fixed":
        return term.clamp(-limit, limit)
    if mode == "adaptive":
        names, pool = group.unique(return_inverse=True)
        by_group = spread.new_zeros(len(names)).scatter(0, pool, spread)
        bound = limit * (spread / by_group.median().clamp(min=1e-6)).clamp(max=1.0)[:, None]
        return term.clamp(-bound, bound)
    raise ValueError(f"--clip_mode {mode}: unknown, choose one of {', '.join(CLIPS)}")


def in_window(step: int, steps: int, start: float, stop: float) -> bool:
    """Whether the term is active at `step` (1..steps): start * steps < step <= stop * steps. The authors' run has
    it in steps 21 to 70 of 150: start = 20/150, stop = 70/150."""
    return round(start * steps, 6) < step <= round(stop * steps, 6)  # 0.29 * 100 is 28.999999999999996
