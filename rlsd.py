"""The baseline that multiplies: RLSD scales each token's advantage by how much more the teacher likes it.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                               \\-> [rlsd] -----------------------^^^^^

Source: method.md 3. Shapes: [B, T] nats, nothing carries a gradient.
"""

from torch import Tensor


def mixing(step: int, start: float = 0.5, steps: int = 100) -> float:
    """lambda_t: from `start` linearly down to 0 over the first `steps` steps (step counts from 1)."""
    return start * max(0.0, 1 - (step - 1) / steps)


def scaled_advantage(adv: Tensor, old_logp: Tensor, teacher_logp: Tensor, mix: float, clip: float = 0.2) -> Tensor:
    """A * [(1 - mix) + mix * clip(exp(sign(A) * (l_T - l_old)), 1 - clip, 1 + clip)]  (Eq. 22): [B, T]. The sign of an
    advantage never changes; 0 stays 0."""
    ratio = (adv.sign() * (teacher_logp - old_logp)).exp().clamp(1 - clip, 1 + clip)
    return adv * ((1 - mix) + mix * ratio)
