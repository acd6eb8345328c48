"""What a run leaves behind: its folder, its lines, its config, the seconds of its phases; and how it is stopped.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                    [record] serves ^^^^^

    config.json     settings, commit, versions, hashes of panels and skills
    log.jsonl       a line a step, under verl's metric names (ours: adrs/*, tva/*, teacher/*, tokens/*)
    timing.jsonl    seconds of each phase of a step, apart from log.jsonl, so that equal runs have equal logs
    eval.jsonl      a line an evaluation: panel, hash, outcome of every task
    episodes.jsonl  a few episodes with every token's log-probs and credit (analyze.py draws them)

A line is one synced write. When a run is reopened, what a kill tore off and the lines behind its checkpoint move into
FILE.torn. Left out: weights (checkpoint.py). No skill text is written anywhere.
"""

import faulthandler
import json
import math
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
import psutil
import torch
import transformers
from accelerate import Accelerator
from torch import Tensor

from policy import HERE, Policy
from rollout import Batch, Trajectory
from settings import Settings


class Run:
    """The folder of a run, held by the lock `handle` until it closes; None in every process but the first.
    Only the first process writes; the lines of a step are written before its checkpoint."""

    def __init__(self, folder: Path, handle: int | None):
        self.folder, self.handle, self.main = folder, handle, handle is not None

    def __enter__(self) -> "Run":
        for file in sorted(self.folder.glob("*.jsonl")) if self.main else ():
            mend(file)
        return self

    def __exit__(self, *error) -> None:
        watch(0)
        if self.main:
            os.close(self.handle)

    def append(self, file: str, row: dict) -> None:
        """One more line. Raises FloatingPointError naming numbers that are not finite, OSError on a full disk."""
        if odd := [name for name, value in row.items() if isinstance(value, float) and not math.isfinite(value)]:
            raise FloatingPointError(f"step {row.get('step')}: {', '.join(odd)} not finite; not logged, not saved")
        if self.main:
            path, line = self.folder / file, (json.dumps(row, allow_nan=False) + "\n").encode()
            try:
                with path.open("ab", buffering=0) as out:
                    if out.write(line) < len(line):
                        raise OSError("the disk is full")
                    os.fsync(out.fileno())
            except OSError as error:
                raise OSError(f"{path}: not written ({error}); make room and go on with --resume") from error

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
            _replace(self.folder / "config.json", (json.dumps(config, indent=1) + "\n").encode())

    def changes(self, s: Settings, panels: dict) -> list[str]:
        """A line about every setting that a resumed run changes. Raises ValueError where its tasks are others, since
        then neither its order of tasks nor its evaluations would go on, or where config.json is damaged."""
        path = self.folder / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
            before, played = dict(config["settings"]), config["panels"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(f"{path}: not the config of a run ({error}); start another run") from error
        if played != panels:
            raise ValueError(f"{path}: the run's tasks were {played}, now they are {panels}; give the same")
        now = json.loads(json.dumps(asdict(s)))
        same = ("resume", "overwrite", "results")
        changed = [name for name in now if name not in same and before.get(name) != now[name]]
        return [f"--{name} was {before.get(name)}, is {now[name]}" for name in changed]

    def rewind(self, step: int) -> None:
        """Takes the lines of later steps out, into FILE.torn: the resumed run writes them anew. Raises ValueError that
        names file and line of what is no line of a run."""
        for file in sorted(self.folder.glob("*.jsonl")) if self.main else ():
            lines, kept, dropped = file.read_bytes().splitlines(keepends=True), [], []
            for number, line in enumerate(lines, 1):
                try:
                    later = json.loads(line)["step"] > step
                except (ValueError, KeyError, TypeError) as error:
                    raise ValueError(f"{file}, line {number}: no line of a run ({error}); mend or remove it") from error
                (dropped if later else kept).append(line)
            if dropped:
                _put_aside(file, b"".join(dropped))
                _replace(file, b"".join(kept))


def mend(file: Path) -> None:
    """Cuts off a last line that no newline ends, lest the next one glue to it, and keeps it in FILE.torn."""
    data = file.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        _put_aside(file, data[end:] + b"\n")
        os.truncate(file, end)


def _put_aside(file: Path, data: bytes) -> None:
    with file.with_name(f"{file.name}.torn").open("ab") as torn:
        torn.write(data)


def _replace(file: Path, data: bytes) -> None:
    """Gives a file new content in one move: old or new, never half."""
    new = file.with_name(f".{file.name}.new")
    with new.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    new.replace(file)


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
        "episode/error_ratio": sum(trajectory.failed for trajectory in trajectories) / n,
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


def watch(seconds: float) -> None:
    """The watchdog: unless called again within `seconds`, the stacks of all threads go to stderr, and once more after
    each such silence. 0: off."""
    faulthandler.cancel_dump_traceback_later()
    if seconds > 0:
        faulthandler.dump_traceback_later(seconds, repeat=True, file=2)


class Clock:
    """Seconds of each phase of a step, and the process's memory. A phase that ends calms the watchdog."""

    def __init__(self, silence: float = 0):
        self.seconds, self.last, self.silence = {}, time.perf_counter(), silence

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[f"time/{phase}_s"] = round(now - self.last, 4)
        self.last = now
        watch(self.silence)

    def row(self, step: int) -> dict[str, float]:
        """The line of a step for timing.jsonl."""
        return {"step": step, **self.seconds, "memory/process_gb": round(psutil.Process().memory_info().rss / 2**30, 4)}


class Stop:
    """Remembers SIGINT and SIGTERM, so that a step is finished and saved before the run ends; a second one ends it."""

    def __init__(self):
        self.signal = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.remember)

    def remember(self, number: int, frame) -> None:
        self.signal = number
        signal.signal(number, signal.SIG_DFL)

    def agreed(self, accelerator: Accelerator) -> int:
        """The signal that any process got, or 0."""
        seen = accelerator.gather(torch.tensor([self.signal], device=accelerator.device))
        return int(seen.max())
