"""The baselines that add a distillation loss: SDAR, OPSD, GRPO+OPSD, Skill-SD.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                               \\-> [sdar] -----------------------^^^^^

They pull the policy towards the skill-informed teacher with a loss of their own, beside the policy loss, where ADRS
shapes the advantage. All read the same teacher log-probs. Source: method.md 3. Left out: their coefficients
(train.py). Shapes: [B, T] nats; `logp` carries the gradient, `teacher_logp` none. Each result is averaged over tokens.
"""

import torch
from torch import Tensor


def distil_gate(logp: Tensor, teacher_logp: Tensor, beta: float) -> Tensor:
    """g = sigmoid(beta * (l_T - l_S)), detached  (Eq. 19): [B, T]; 1/2 everywhere for beta = 0 (OPSD)."""
    return torch.sigmoid(beta * (teacher_logp - logp)).detach()


def gated_distillation(logp: Tensor, teacher_logp: Tensor, beta: float) -> Tensor:
    """g * (l_T - l_S)  (Eq. 20): [B, T]. Its gradient is -g grad l_S: a gated likelihood of the policy's own tokens,
    always upward. To first order at the sampling policy that is a policy gradient with advantage lambda * g."""
    return distil_gate(logp, teacher_logp, beta) * (teacher_logp - logp)


def skill_sd(logp: Tensor, old_logp: Tensor, teacher_logp: Tensor) -> Tensor:
    """rho * k3 with rho = exp(min(l_S - l_old, 10)), k3 = exp(-x) - 1 + x, x = l_S - l_T  (Eq. 21): [B, T]. The
    gradient flows through both factors; -x is capped at 20."""
    x = logp - teacher_logp
    return (logp - old_logp).clamp(max=10).exp() * ((-x).clamp(max=20).expm1() + x)
