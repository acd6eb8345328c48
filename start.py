"""From settings to what a run stands on: processes, policy, environment, and its folder.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                   [start] serves ^^^^^

Everything that depends on the machine, the model or the launch is decided in here, once, and said in the run's first
line. Left out: what happens then (train.learn).
"""

import time
from dataclasses import replace
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

import checkpoint
import envs
import processes
from envs.base import Domain
from policy import Policy, add_lora, choose_model, is_lean, load_policy, use_threads
from record import Run
from settings import Settings, resolve


def start(s: Settings) -> tuple[Accelerator, Settings, Domain, Policy]:
    """The accelerator, the resolved settings, the environment and the policy, with a first line that says why."""
    cuda = torch.cuda.is_available()
    name, reason = choose_model(s.model, s.env, cuda)
    dtype = s.dtype or ("bfloat16" if cuda and not is_lean(name) else "float32")
    full = s.lora == 0 or (s.lora is None and is_lean(name))  # all weights are trained: see processes.py
    accelerator = processes.connect(cuda, mixed=full and dtype == "bfloat16", tracker=s.tracker)
    use_threads(s.threads, accelerator.num_processes)
    policy = load_policy(name, "float32" if full else dtype, s.thinking, accelerator.device)
    domain = envs.load(
        s.env, lean=policy.lean, think_in_prompt=policy.think_in_prompt, **envs.read_args(s.env_args)
    )
    asked, s = s.lora, resolve(s, policy.lean, cuda, domain)
    domain.max_turns = s.max_turns
    s = adapt(s, policy, asked)
    processes.refuse(accelerator, s)
    if s.gradient_checkpointing:
        policy.model.activation_checkpointing_enable({"use_reentrant": False})
    method = f"{s.method} on {s.backbone}{' with TVA' if s.tva else ''}"
    accelerator.print(f"model: {name} ({reason}); games: {domain.source}; method: {method}")
    return accelerator, replace(s, model=name), domain, policy


def adapt(s: Settings, policy: Policy, asked: int | None) -> Settings:
    """Puts a new adapter on the model, unless there is one to train on: then the settings take its rank.
    Raises ValueError where another rank was asked for."""
    if not hasattr(policy.model, "peft_config"):
        if s.lora:
            add_lora(policy, s.lora, s.seed)
        return s
    rank = policy.model.peft_config["default"].r
    if asked not in (None, rank):
        raise ValueError(f"--lora {asked}: the adapter in --model {s.model} has rank {rank}; leave the flag out")
    return replace(s, lora=rank)


def open_run(accelerator: Accelerator, s: Settings) -> tuple[Run, Settings]:
    """The folder of the run, made or reopened by the first process, and the settings with its name in them."""
    method = f"{s.env}-{s.method}{'-tva' if s.tva else ''}-{s.backbone}-s{s.seed}"
    name = s.run or f"runs/{method}-{time.strftime('%m%d-%H%M%S')}"
    s = replace(s, run=broadcast_object_list([name])[0])
    folder, handle = Path(s.results) / s.run, None
    if accelerator.is_main_process:
        folder, handle = checkpoint.run_folder(Path(s.results), s.run, s.resume, s.overwrite)
    accelerator.wait_for_everyone()
    return Run(folder, handle), s


def newest_checkpoint(run: Run) -> tuple[Path | None, list[str]]:
    """The first process chooses: each for itself, they might see different files."""
    return broadcast_object_list([checkpoint.newest(run.folder) if run.main else None])[0]
