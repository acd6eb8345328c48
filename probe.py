"""From the initial policy to a few episodes that stay the same, scored anew whenever the run is evaluated.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                       ^^^^^^^ [probe] watches what this says     ^^^^^

How does the teacher's opinion of the same tokens move while the policy learns? Fresh episodes cannot tell: they change
with the policy. So a run of any method, the bare backbone too, keeps some episodes of the initial policy on held-out
tasks; the current weights score them without and with the true skill. This only looks: nothing of it is trained on.
"""

from torch import Tensor

from envs.base import Domain, Task
from policy import Policy, score
from rollout import collate, rollout, stream
from teacher import SkillProvider, Teacher


class Probe:
    """The episodes of `policy`, as it is now, one a task; always the same, whatever the seed of the run."""

    def __init__(self, policy: Policy, domain: Domain, tasks: list[Task], provider: SkillProvider,
                 temperature: float, max_response: int):  # fmt: skip
        starts = [(group, task, stream(0, 0, task, 0)) for group, task in enumerate(tasks)]
        self.policy, self.temperature = policy, temperature
        self.trajectories = rollout(policy, domain, starts, temperature, max_response)
        self.batch = collate(self.trajectories, policy.tokenizer.pad_token_id)
        self.mask = self.batch.rows.mask
        self.teacher = Teacher(policy, provider)

    def measure(self, tokens: int) -> dict[str, Tensor]:
        """The log-probs of its tokens, [B, T] in nats, by the current weights without and with the skill; `tokens` is
        the size of a micro-batch."""
        rows, model = self.batch.rows, self.policy.model
        return {
            "student_logp": score(model, rows, self.temperature, tokens),
            "teacher_logp": self.teacher.logp(self.batch, model, self.temperature, tokens),
        }
