"""From the way a run was launched to processes that train one model: who is connected, what is sharded, who plays.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                [processes] serves    ^^^^^

A rollout calls nothing collective: episodes end at different turns, and a process that waits for another one's forward
pass waits for ever. So the model that plays is whole in every process. Where the trained weights are whole too (cpu,
gpu, ddp and zero2 in configs/) both are one object. Where they are sharded (fsdp2, zero3), or float32 under bf16
arithmetic (at a learning rate of 1e-6 a bf16 weight does not move), a copy plays, and takes over the weights after
every update.
Left out: what the processes do with each other's rows (train.gather_world, update.py).
"""

import contextlib
import os
from dataclasses import replace

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs, DistributedType

from policy import Policy, frozen_copy
from settings import Settings

CPU_COMMAND = "on a CPU use ACCELERATE_USE_CPU=true torchrun --nproc_per_node {} train.py ..."
KNOWN = {DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.DEEPSPEED,
         DistributedType.FSDP}  # fmt: skip


def connect(cuda: bool, mixed: bool, tracker: str | None) -> Accelerator:
    """The accelerator, its processes counted: accelerate leaves out in silence what it cannot do on a CPU. `mixed`:
    bf16 arithmetic on float32 weights, whatever the launch says.

    Raises RuntimeError where fewer processes are connected than were asked for, or FSDP or DeepSpeed is ignored.
    """
    # Without buffers to broadcast a forward pass of DDP waits for no one: beginnings that prompts share take one more.
    alone = DistributedDataParallelKwargs(broadcast_buffers=False)
    accelerator = Accelerator(
        cpu=not cuda, log_with=tracker, mixed_precision="bf16" if mixed else None, kwargs_handlers=[alone]
    )
    asked = int(os.environ.get("WORLD_SIZE", "1"))
    if accelerator.num_processes != asked:
        raise RuntimeError(
            f"{asked} processes were started but {accelerator.num_processes} are connected; {CPU_COMMAND.format(asked)}"
        )
    # `accelerate launch` sets the address of a meeting point where it was asked for several processes, and on a CPU
    # then starts one.
    if "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ:
        raise RuntimeError(
            f"several processes were asked for (MASTER_ADDR is set) but one was started; {CPU_COMMAND.format(2)}"
        )
    kind = accelerator.distributed_type
    for name, wanted in (("FSDP", DistributedType.FSDP), ("DEEPSPEED", DistributedType.DEEPSPEED)):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() == "true" and kind != wanted:
            raise RuntimeError(f"{name} was asked for, but accelerate starts {kind.value}: it needs GPUs")
    return accelerator


def sharded(accelerator: Accelerator) -> bool:
    """Whether every process holds only a part of the trained weights."""
    kind = accelerator.distributed_type
    stage = accelerator.deepspeed_plugin.zero_stage if kind == DistributedType.DEEPSPEED else 0
    return kind == DistributedType.FSDP or stage == 3


def refuse(accelerator: Accelerator, s: Settings) -> None:
    """Raises ValueError for what this launch does not do soundly, and says what does."""
    kind = accelerator.distributed_type
    if kind not in KNOWN or (kind == DistributedType.FSDP and not accelerator.is_fsdp2):
        raise ValueError(f"accelerate's {kind.value} is not supported: take one of configs/ (of FSDP, version 2)")
    if accelerator.mixed_precision not in ("no", "bf16"):
        raise ValueError(f"mixed_precision {accelerator.mixed_precision} is not supported: bf16 or no")
    if s.steps and s.groups < accelerator.num_processes:
        raise ValueError(f"--groups {s.groups}: {accelerator.num_processes} processes play whole groups, give as many")
    if sharded(accelerator) and s.lora:
        raise ValueError("LoRA trains few weights, there is nothing to shard: use configs/ddp.yaml, or --lora 0")
    if s.resume and (sharded(accelerator) or kind == DistributedType.DEEPSPEED):
        raise ValueError(
            f"--resume: under {kind.value} checkpoints hold weights without the optimizer; start a new run with "
            "--model CHECKPOINT"
        )


def apart(accelerator: Accelerator, policy: Policy, s: Settings) -> torch.nn.Module:
    """The model to be trained. It is the policy's own, or, where a copy has to play, the policy gets that copy in
    --dtype and this is the original."""
    trained = policy.model
    floats = accelerator.distributed_type != DistributedType.DEEPSPEED and not s.lora and s.dtype == "bfloat16"
    if sharded(accelerator) or floats:  # DeepSpeed keeps float32 weights in its optimizer
        policy.model = frozen_copy(trained).to(getattr(torch, s.dtype))
    return trained


def kept(accelerator: Accelerator, policy: Policy, trained: torch.nn.Module, optimizer):
    """What a checkpoint holds, as (policy, optimizer): the trained weights and the optimizer, or where shards hold
    them the copy that plays; DeepSpeed's optimizer has no tensors by parameter."""
    if sharded(accelerator):
        return policy, None
    kind = accelerator.distributed_type
    return replace(policy, model=trained), None if kind == DistributedType.DEEPSPEED else optimizer


def prepare(accelerator: Accelerator, trained: torch.nn.Module, optimizer, s: Settings):
    """`accelerator.prepare`, with DeepSpeed told what its own file cannot know."""
    if accelerator.distributed_type == DistributedType.DEEPSPEED:
        config = accelerator.deepspeed_plugin.deepspeed_config
        config["train_micro_batch_size_per_gpu"] = 1  # DeepSpeed only counts with it
        config["gradient_clipping"] = s.max_grad_norm
    return accelerator.prepare(trained, optimizer)


@torch.no_grad()
def hand_over(trained: torch.nn.Module, playing: torch.nn.Module) -> None:
    """Gives the model that plays the trained weights. All processes call this together: shards are gathered, one
    parameter after the other."""
    if trained is playing:
        return
    for whole, part in zip(playing.parameters(), trained.parameters(), strict=True):
        with _gathered(part):
            whole.copy_(part.full_tensor() if hasattr(part, "full_tensor") else part)


def _gathered(parameter: torch.nn.Parameter):
    """Within it, a parameter that ZeRO-3 has spread over the processes is whole."""
    if not hasattr(parameter, "ds_id"):
        return contextlib.nullcontext()
    from deepspeed.zero import GatheredParameters

    return GatheredParameters([parameter])


def busiest(accelerator: Accelerator, count: int) -> int:
    """The largest of the processes' counts. All of them call this together."""
    return int(accelerator.gather(torch.tensor([count], device=accelerator.device)).max())


def stepping(accelerator: Accelerator, model: torch.nn.Module, last: bool):
    """The context of a backward pass: gradients are exchanged in the last one of an optimizer step alone. DeepSpeed
    makes the step itself, inside that backward pass."""
    accelerator.sync_gradients = last
    return contextlib.nullcontext() if last else accelerator.no_sync(model)
