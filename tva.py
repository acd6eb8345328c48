"""From teacher log-probs and returns to the trust gate: do confident rollouts earn more?

    envs -> rollout -> teacher -> shaping, [tva] -> grpo, gigpo -> train          analyze

TVA, the teacher-value association of a group: the mean return of the units in which the teacher is confident minus
that of the others. A sigmoid of it gates the token term. A unit is a row or a whole episode; a group is a task (L2)
or a set of rows in the same state (L3, GiGPO's anchor groups). Equation numbers are README's. Left out: where the
gate multiplies (shaping.py). Shapes: B rows, T tokens; `weight` [B] is 1 / (rows of the unit), so that a unit counts
once however many rows it has. Sums are in double: equal returns must not leave float noise, which `trust` could
then divide by its own deviation. Nothing writes to an argument.
"""

import torch
from torch import Tensor

LEVELS = ("auto", "L1", "L2-row", "L2-traj", "L3")


def confidence(logp: Tensor, mask: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """c_u: the mean log-prob over a unit's tokens, on each of its rows, and the rows' weights  (Eq. 8): both [B].

    `logp` [B, T] in nats: the raw teacher log-probs (or, as control, the student's own). `unit` [B]: indices of
    rows (torch.arange(B)) or of episodes. A unit without a token has confidence 0.
    """
    mask = mask.bool()
    total = _sums(logp.double().where(mask, 0.0).sum(1), unit)
    tokens, rows = _sums(mask.sum(1), unit), _sums(torch.ones_like(unit), unit)
    return (total / tokens.clamp(min=1)).to(logp.dtype), (1 / rows).to(logp.dtype)


def _sums(value: Tensor, name: Tensor) -> Tensor:
    """The sum of `value` over the rows of the same name, on every row: [B], double."""
    pool = name.unique(return_inverse=True)[1]
    return torch.zeros_like(value, dtype=torch.double).index_add(0, pool, value.double())[pool]


def alignment(conf: Tensor, weight: Tensor, group: Tensor, norm: str = "batch", split: str = "soft") -> Tensor:
    """alpha_u in [0, 1]: how far unit u belongs to the confident ones  (Eq. 9): [B].

    split="soft": sigmoid(c - mean of c over the batch's units), the paper at temperature 1; norm="group_z" takes
    the z-score within the group instead (raw log-probs leave alpha close to 1/2). split="median": 1 above the
    group's median unit, 0 below, 1/2 on it.
    """
    if split == "median":
        align = torch.zeros_like(conf)
        for rows in (group == g for g in group.unique()):
            align[rows] = _median_side(conf[rows], weight[rows])
        return align
    if split != "soft":
        raise ValueError(f"--tva_split {split}: unknown, choose soft or median")
    c, w = conf.double(), weight.double()
    if norm == "batch":
        return torch.sigmoid(c - (w * c).sum() / w.sum()).to(conf.dtype)
    if norm == "group_z":
        off = c - _sums(w * c, group) / _sums(w, group)
        std = (_sums(w * off.square(), group) / _sums(w, group)).sqrt()
        return torch.sigmoid(off / (std + 1e-8)).to(conf.dtype)
    raise ValueError(f"--alpha_norm {norm}: unknown, choose batch or group_z")


def _median_side(conf: Tensor, weight: Tensor) -> Tensor:
    """For the rows of one group: 1 where more weight lies below a row than above it, 0 where less, 1/2 on a draw."""
    below, above = ((weight * side).sum(1) for side in (conf < conf[:, None], conf > conf[:, None]))
    return ((1 + torch.sign((below - above).round(decimals=4))) / 2).to(conf.dtype)


def association(align: Tensor, ret: Tensor, weight: Tensor, group: Tensor) -> Tensor:
    """d = mu_plus - mu_minus, the TVA of a row's group  (Eq. 10): [B], in units of the return.

    mu_plus weighs the returns `ret` [B] by alpha, mu_minus by 1 - alpha. It equals
    Cov_g(alpha, R) / (mean alpha * (1 - mean alpha)). 0 in a group of fewer than two units, and where all are on
    one side. Source: method.md 1.4.
    """
    plus, minus = weight.double() * align, weight.double() * (1 - align)
    w_plus, w_minus = _sums(plus, group), _sums(minus, group)
    mu_plus, mu_minus = _sums(plus * ret, group) / w_plus, _sums(minus * ret, group) / w_minus
    two = (_sums(weight, group) > 1.5) & (w_plus > 1e-6) & (w_minus > 1e-6)
    return (mu_plus - mu_minus).where(two, 0.0).to(ret.dtype)


def trust(tva: Tensor, weight: Tensor, tau: float = 2.0, norm: bool = False) -> Tensor:
    """m = sigmoid(tau * d) in (0, 1), detached  (Eq. 11): [B]. Below 1/2 the term shrinks, it never changes sign.

    `norm` divides d by its standard deviation over the batch's units first (no centring; a spread of 0 leaves d).
    """
    if norm:
        d, w = tva.double(), weight.double()
        mean = (w * d).sum() / w.sum()
        std = ((w * (d - mean).square()).sum() / w.sum()).sqrt()
        tva = (d / std).to(tva.dtype) if std > 1e-6 else tva
    return torch.sigmoid(tau * tva).detach()


def token_trust(teacher_logp: Tensor, ref_logp: Tensor, mask: Tensor, tau: float = 2.0) -> Tensor:
    """The level-1 gate, by token: sigmoid(tau * (l_T - l_ref) / std over the batch's tokens)  (Eq. 12): [B, T]."""
    mask = mask.bool()
    gap, count = (teacher_logp - ref_logp).where(mask, 0.0), mask.sum().clamp(min=1)
    std = ((gap - gap.sum() / count).where(mask, 0.0).square().sum() / count).sqrt()
    return torch.sigmoid(tau * gap / (std + 1e-8)).detach().where(mask, 0.0)


class Pool:
    """A running TVA of every task, since one group of eight episodes is mostly noise (cpu_scale.md 7)."""

    def __init__(self, decay: float, values: dict[str, float] | None = None):
        self.decay, self.values = decay, dict(values or {})

    def mix(self, tva: Tensor, task_ids: list[str]) -> Tensor:
        """[B] the tasks' values after this visit: decay * old + (1 - decay) * tva, at a first visit tva itself."""
        seen = dict(zip(task_ids, tva.tolist(), strict=True))
        for task, new in seen.items():
            old = self.values.get(task, new)
            self.values[task] = self.decay * old + (1 - self.decay) * new
        return tva.new_tensor([self.values[task] for task in task_ids])
