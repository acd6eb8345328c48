"""From sampled rows and a skill provider to teacher log-probs: the same policy, told more.

    envs -> rollout -> [teacher] -> shaping, tva -> grpo, gigpo -> train          analyze

The provider maps a task to a privileged text (type's recipe, topic's note). The teacher reads it in the chat
template's system slot, in front of exactly the prompt that the student saw, and scores exactly the ids that the
student sampled. This exists in training alone: nothing under envs/, rollout.py or evaluate.py imports this file.
Left out: what is done with the log-probs (shaping.py, tva.py).
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from envs.base import Task
from policy import Policy, Rows, frozen_copy, pad_left, score
from rollout import Batch

HERE = Path(__file__).parent
SKILLS = ("task", "general", "shuffled", "none")
TEACHERS = ("live", "frozen", "ema")
PLACEMENTS = ("system", "raw_prefix")
HEADER = "[Privileged Skill Information]"  # what the authors' code writes above a skill


class SkillProvider:
    """Task -> privileged text, from a folder with `skill_mapping.json`:

      skill_files    {skill name: file}          the texts
      task_to_skill  {task type: skill name}     which one a task gets
      topics         {topic: one-line note}      optional; added where the task's topic has one
    and, where it exists, `general_skills.md`, which every task gets first.

    kind: task (the task's own), general (general text alone), shuffled (the text of another task type and topic, a
    wrong skill of the same style), none (empty). `noise` is the share of tasks, drawn by `seed` and the task's id, that
    get the shuffled text under kind "task". Source: method.md 1.6.
    Raises FileNotFoundError or ValueError that name the file, and on a task type that the mapping does not know.
    """

    def __init__(self, folder: Path, kind: str = "task", noise: float = 0.0, seed: int = 0):
        if kind not in SKILLS:
            raise ValueError(f"--skill {kind}: unknown, choose one of {', '.join(SKILLS)}")
        self.folder, self.kind, self.noise, self.seed = Path(folder), kind, noise, seed
        mapping_file = self.folder / "skill_mapping.json"
        try:
            mapping = json.loads(self._read(mapping_file), object_pairs_hook=_once)
            parts = mapping["skill_files"], mapping["task_to_skill"], mapping.get("topics", {})
            files, self.task_to_skill, self.topics = map(_texts, parts)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{mapping_file}: not a skill mapping ({error!r}); see SkillProvider in teacher.py"
            ) from error
        self.texts = {name: self._read(self.folder / file) for name, file in files.items()}
        if missing := sorted(set(self.task_to_skill.values()) - set(self.texts)):
            raise ValueError(f"{mapping_file}: task_to_skill names {', '.join(missing)}, which skill_files lacks")
        general = self.folder / "general_skills.md"
        self.general = self._read(general) if general.exists() else ""

    @staticmethod
    def _read(file: Path) -> str:
        if not file.is_file():
            raise FileNotFoundError(f"{file}: skill file missing")
        try:
            text = file.read_text(encoding="utf-8").strip()
        except UnicodeDecodeError as error:
            raise ValueError(f"{file}: not UTF-8 text ({error})") from error
        if not text:
            raise ValueError(f"{file}: empty; write the text or take the file out")
        return text

    def text(self, task: Task) -> str:
        """The privileged text of a task."""
        if task.type not in self.task_to_skill:
            known = ", ".join(sorted(self.task_to_skill))
            raise ValueError(
                f"{self.folder / 'skill_mapping.json'}: no skill for task type {task.type!r} (has {known})"
            )
        if self.kind == "none":
            return ""
        if self.kind == "general":
            return self.general
        kind, topic = task.type, task.topic
        if self.kind == "shuffled" or self.is_wrong(task):
            kind, topic = _next(kind, sorted(self.task_to_skill)), _next(topic, sorted(self.topics))
        parts = [self.general, self.texts[self.task_to_skill[kind]], self.topics.get(topic, "")]
        return "\n\n".join(part for part in parts if part)

    def is_wrong(self, task: Task) -> bool:
        """Whether this task is among the share `noise` that gets a wrong skill."""
        draw = hashlib.sha256(f"{self.seed}\t{task.id}".encode()).digest()[:8]
        return int.from_bytes(draw, "big") / 2**64 < self.noise

    def fingerprint(self) -> str:
        """First 16 hex digits of the sha256 over all texts, for config.json."""
        everything = json.dumps([self.kind, self.general, self.texts, self.task_to_skill, self.topics], sort_keys=True)
        return hashlib.sha256(everything.encode()).hexdigest()[:16]


def _once(pairs: list[tuple[str, object]]) -> dict:
    """A JSON object. Raises ValueError on a name that stands in it twice."""
    if repeated := [name for name, times in Counter(name for name, _ in pairs).items() if times > 1]:
        raise ValueError(f"{repeated[0][:80]!r} stands twice")
    return dict(pairs)


def _texts(part: object) -> dict[str, str]:
    if not isinstance(part, dict) or not all(isinstance(value, str) for value in part.values()):
        raise TypeError("every part must be an object of names and texts")
    return part


def _next(name: str, names: list[str]) -> str:
    """Another of the names: the one half a turn further in their circle; `name` where it is not among them."""
    return names[(names.index(name) + max(1, len(names) // 2)) % len(names)] if name in names else name


def skill_folder(env: str, lean: bool) -> Path:
    """The shipped skills of an environment; those for a policy with lean prompts are a few words long."""
    return HERE / "skills" / env / "lean" if lean else HERE / "skills" / env


def with_skill(policy: Policy, provider: SkillProvider) -> Callable[[Task, str], list[int]]:
    """An `encode` for `rollout` that shows the skill to the acting policy (Skill-GRPO, Skill-Prompt): inside the user
    message as in the authors' code; to a policy of lean prompts in the system slot, where it learned to read it."""

    def encode(task: Task, user: str) -> list[int]:
        skill = provider.text(task)
        return policy.encode(user, system=skill) if policy.lean else policy.encode(f"{HEADER}\n{skill}\n\n{user}")

    return encode


class Teacher:
    """Scores a batch's responses under the skill. `kind`: live (the current weights), frozen (the initial ones),
    ema (a running mean with `decay` a step)."""

    def __init__(self, policy: Policy, provider: SkillProvider, kind: str = "live", placement: str = "system",
                 decay: float = 0.95):  # fmt: skip
        if kind not in TEACHERS:
            raise ValueError(f"--teacher {kind}: unknown, choose one of {', '.join(TEACHERS)}")
        if placement not in PLACEMENTS:
            raise ValueError(f"--placement {placement}: unknown, choose one of {', '.join(PLACEMENTS)}")
        self.policy, self.provider, self.kind, self.placement, self.decay = policy, provider, kind, placement, decay
        self.copy = None if kind == "live" else frozen_copy(policy.model)

    def prompts(self, batch: Batch) -> list[list[int]]:
        """The teacher's prompt ids of every row: the skill, then the student's prompt. An empty skill leaves the
        student's prompt as it is. raw_prefix is the authors' form: header and skill before the first chat token."""
        ids = []
        for task, step in zip(batch.tasks, batch.steps, strict=True):
            skill = self.provider.text(task)
            if not skill:
                ids.append(step.prompt_ids)
            elif self.placement == "system":
                ids.append(self.policy.encode(step.prompt, system=skill))
            else:
                ids.append(self.policy.encode_raw(f"{HEADER}\n{skill}\n\n") + step.prompt_ids)
        return ids

    def logp(self, batch: Batch, model: torch.nn.Module, temperature: float, tokens: int) -> Tensor:
        """l_T: log pi_teacher(y_j | skill, prompt, y_<j), nats, [B, T], no gradient  (Eq. 1). `model`: the live one.

        Raises ValueError where skill, prompt and response exceed the model's context: nothing is cut.
        """
        prompt_ids, prompt_len = pad_left(self.prompts(batch), self.policy.tokenizer.pad_token_id)
        limit = getattr(self.policy.model.config, "max_position_embeddings", None) or 10**9
        longest = int((prompt_len + batch.rows.response_len).max())
        if longest > limit:
            raise ValueError(f"skill, prompt and response make {longest} tokens, the model's context is {limit}")
        rows = Rows(prompt_ids, prompt_len, batch.rows.response_ids, batch.rows.response_len, batch.group)
        return score(self.copy or model, rows, temperature, tokens)

    @torch.no_grad()
    def follow(self, model: torch.nn.Module) -> None:
        """After an update: the running mean takes in the new weights (ema alone)."""
        if self.kind == "ema":
            for mean, new in zip(self.copy.parameters(), model.parameters(), strict=True):
                mean.lerp_(new.detach().to(mean), 1 - self.decay)
