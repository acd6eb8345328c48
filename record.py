"""What a run leaves behind: its folder, its lines, its config, the seconds of its phases; and how it is stopped.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                    [record] serves ^^^^^

    config.json     settings, commit, versions, hashes of panels and skills
    log.jsonl       a line a step, under verl's metric names (ours: adrs/*, tva/*, teacher/*, tokens/*)
    timing.jsonl    seconds of each phase of a step, apart from log.jsonl, so that equal runs have equal logs
    eval.jsonl      a line an evaluation: panel, hash, outcome of every task
    episodes.jsonl  a few episodes with every token's log-probs and credit (analyze.py draws them)

Left out: weights (checkpoint.py). No skill text is written anywhere.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import accelerate
import numpy as np
import torch
import transformers
from accelerate import Accelerator
from torch import Tensor

import checkpoint
from policy import HERE, Policy
from rollout import Batch, Trajectory
from settings import Settings


class Run:
    """The folder of a run, locked while it is open.
    Only the first process writes; the lines of a step are written before its checkpoint."""

    def __init__(self, folder: Path, main: bool):
        self.folder, self.main = folder, main

    def __enter__(self) -> "Run":
        self.lock = checkpoint.lock(self.folder) if self.main else None
        return self

    def __exit__(self, *error) -> None:
        if self.main:
            os.close(self.lock)

    def append(self, file: str, row: dict) -> None:
        if self.main:
            with (self.folder / file).open("a", encoding="utf-8") as out:
                out.write(json.dumps(row, allow_nan=False) + "\n")

    def describe(self, s: Settings, panels: dict, extra: dict) -> None:
        """Writes config.json: everything that made the run."""
        git = subprocess.run(
            ["git", "-C", str(HERE), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
        modules = {"torch": torch, "transformers": transformers, "accelerate": accelerate, "numpy": np}
        config = {
            "settings": asdict(s),
            "command": " ".join(["train.py", *sys.argv[1:]]),
            "commit": git.stdout.strip() or "unknown",
            "panels": panels,
            "versions": {"python": sys.version.split()[0]} | {name: m.__version__ for name, m in modules.items()},
            **extra,
        }
        if self.main:
            (self.folder / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")

    def rewind(self, step: int) -> None:
        """Drops the lines of later steps, and a torn last line: the resumed run writes them anew."""
        for file in self.folder.glob("*.jsonl") if self.main else ():
            lines = [
                line for line in file.read_text(encoding="utf-8").split("\n")[:-1] if json.loads(line)["step"] <= step
            ]
            file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def episode_row(trajectory: Trajectory, step: int, kind: str, policy: Policy, tokens: Iterator[dict] | None) -> dict:
    """One episode for episodes.jsonl; `tokens` yields the token quantities of each of its turns."""
    turns = []
    for turn in trajectory.steps:
        row = {"prompt": turn.prompt, "response": turn.response, "observation": turn.observation,
               "admissible": list(turn.admissible), "action": turn.action, "valid": turn.valid, "reward": turn.reward,
               "tokens": [policy.tokenizer.decode([token]) for token in turn.response_ids]}  # fmt: skip
        turns.append(row | (next(tokens) if tokens else {"student_logp": [round(x, 5) for x in turn.sampler_logp]}))
    return {"step": step, "set": kind, "task": trajectory.task.id, "task_type": trajectory.task.type,
            "return": sum(turn.reward for turn in trajectory.steps), "won": trajectory.won,
            "ended": trajectory.ended, "turns": turns}  # fmt: skip


def token_rows(
    mask: Tensor, quantities: dict[str, Tensor | None], rows: range, base: Tensor | None = None
) -> Iterator[dict]:
    """The token quantities of some rows, one dict a row, as episodes.jsonl holds them: [B, T] or [B, 1]; and the
    backbone's advantage `base` [B], where there is one."""
    for row in rows:
        n = int(mask[row].sum())
        yield ({} if base is None else {"base_adv": round(base[row].item(), 5)}) | {
            name: None if value is None else [round(x, 5) for x in value[row].expand(mask.shape[1])[:n].tolist()]
            for name, value in quantities.items()
        }


def episode_metrics(trajectories: list[Trajectory], batch: Batch) -> dict[str, float]:
    """Means over this process's episodes and turns, under verl's names."""
    n = len(trajectories)
    return {
        "episode/success_rate": sum(trajectory.won for trajectory in trajectories) / n,
        "episode/score/mean": sum(trajectory.score for trajectory in trajectories) / n,
        "episode/reward/mean": batch.reward.sum().item() / n,
        "episode/length/mean": len(batch.steps) / n,
        "episode/valid_action_ratio": batch.valid.float().mean().item(),
        "response_length/mean": batch.rows.response_len.float().mean().item(),
        "prompt_length/mean": batch.rows.prompt_len.float().mean().item(),
        "tokens/prompt": batch.rows.prompt_len.sum().item(),
        "tokens/response": batch.rows.response_len.sum().item(),
    }


def eval_metrics(row: dict) -> dict[str, float]:
    """A result row's success, score and success by task type, under verl's names."""
    metrics = {"val/success_rate": row["success"], "val/score": row["score"]}
    for kind in sorted(set(row["types"])):
        won = [outcome == "1" for type_, outcome in zip(row["types"], row["outcomes"], strict=True) if type_ == kind]
        metrics[f"val/{kind}_success_rate"] = sum(won) / len(won)
    return metrics


class Clock:
    """Seconds of each phase of a step."""

    def __init__(self):
        self.seconds, self.last = {}, time.perf_counter()

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[f"time/{phase}_s"] = round(now - self.last, 4)
        self.last = now


class Stop:
    """Remembers SIGINT and SIGTERM, so that a step is finished and saved before the run ends."""

    def __init__(self):
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.remember)

    def remember(self, number: int, frame) -> None:
        self.signal = number

    def agreed(self, accelerator: Accelerator) -> int:
        """The signal that any process got, or 0."""
        seen = accelerator.gather(torch.tensor([self.signal], device=accelerator.device))
        return int(seen.max())
