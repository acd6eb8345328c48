"""From a policy and a domain to the CPU seconds of each phase: the body of train.py's loop, and nothing around it.

    bench/[loop] -> trl, teacher, scale

Every phase is the function that training calls. Left out: log, evaluation, checkpoint.
"""

import time
from dataclasses import replace

import torch
from accelerate import Accelerator

from envs.base import Domain
from policy import Policy, frozen_copy
from rollout import Batch, collate
from settings import Settings, resolve
from teacher import SkillProvider, Teacher
from train import credit, draw_tasks, gather_world, log_probs, play_step
from tva import Pool
from update import update


class CpuClock:
    """CPU seconds of each phase of a step."""

    def __init__(self):
        self.seconds, self.last = {}, time.process_time()

    def lap(self, phase: str) -> None:
        now = time.process_time()
        self.seconds[phase], self.last = now - self.last, now


class Loop:
    """A training run that only takes steps. With a provider its teacher is asked in every step. `micro_tokens` and the
    other settings are the laptop's where `changes` does not say otherwise."""

    def __init__(self, policy: Policy, domain: Domain, provider: SkillProvider | None = None, **changes):
        torch.set_num_threads(1)
        s = Settings(method="adrs" if provider else "none", tva=bool(provider), window_start=0.0, window_stop=1.0)
        s = resolve(replace(s, **changes), True, False, domain)
        self.s, self.policy, self.domain = s, policy, domain
        domain.max_turns = s.max_turns
        self.tasks = domain.tasks("train")
        self.teacher = Teacher(policy, provider) if provider else None
        self.frozen = frozen_copy(policy.model) if s.kl > 0 and not s.lora else None
        self.accelerator = Accelerator(cpu=True)
        optimizer = torch.optim.AdamW([p for p in policy.model.parameters() if p.requires_grad], lr=s.lr)
        self.model, self.optimizer = self.accelerator.prepare(policy.model, optimizer)
        self.number = 0

    def step(self) -> tuple[dict[str, float], Batch]:
        """The next step: CPU seconds by phase, and the batch that it was made with."""
        self.number += 1
        s, policy, clock = self.s, self.policy, CpuClock()
        tasks = draw_tasks(self.tasks, s, self.number)
        trajectories = play_step(self.accelerator, policy, self.domain, tasks, s, self.number, None)
        batch = collate(trajectories, policy.tokenizer.pad_token_id)
        clock.lap("rollout")
        logps = log_probs(self.accelerator, policy, self.model, batch, self.teacher, self.frozen, s, clock)
        world, mine = gather_world(batch, logps)
        made = credit(s, world, self.number, Pool(s.tva_pool, {}))
        clock.lap("credit")
        update(self.accelerator, self.model, self.optimizer, s, batch, logps, made.adv[mine])
        clock.lap("update")
        return clock.seconds, batch
