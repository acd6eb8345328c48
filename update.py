"""From credit to new weights: the losses of every token, and one pass over a batch in optimizer steps.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
                                                    [update] serves ^^^^^

The loss of an optimizer step is the mean over all its tokens, however they fall into micro-batches and processes. A
number that is not finite stops everything before the weights change. Left out: where the credit comes from (train.py).
"""

import math
from dataclasses import replace

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from torch import Tensor

from grpo import k3, surrogate
from policy import layers_recomputed, micro_batches, token_logp
from processes import busiest, stepping
from rollout import Batch
from sdar import distil_gate, gated_distillation, skill_sd
from settings import DISTILLED, Settings


def token_losses(s: Settings, logp: Tensor, old_logp: Tensor, ref_logp: Tensor | None, teacher_logp: Tensor | None,
                 adv: Tensor, entropy: Tensor) -> dict[str, tuple[float, Tensor]]:  # fmt: skip
    """The parts of the loss by their names in the log: coefficient, and the value of every token [B, T]."""
    losses = {"actor/pg_loss": (s.policy_coef, surrogate(logp, old_logp, adv, s.clip, s.dual_clip)),
              "actor/entropy_loss": (-s.entropy, entropy)}  # fmt: skip
    if s.kl > 0:
        losses["actor/kl_loss"] = (s.kl, k3(logp, ref_logp))
    if s.method == "skill_sd":
        losses["distil/loss"] = (s.distil, skill_sd(logp, old_logp, teacher_logp))
    elif s.method in DISTILLED:
        losses["distil/loss"] = (s.distil, gated_distillation(logp, teacher_logp, s.beta))
    return losses


def update(accelerator: Accelerator, model, optimizer, s: Settings, batch: Batch, logps: dict, adv: Tensor) -> dict:
    """One pass over this process's rows: `s.mini_rows` rows of all processes together make one optimizer step (0: all
    of them). The loss is the mean over all tokens of those rows, however they fall into micro-batches and processes.

    Raises FloatingPointError that names the rows and their episode where a loss or a gradient is not finite. With
    `s.skip_nonfinite` such a micro-batch adds nothing and is counted; only a majority of them, or a gradient, stops.
    """
    rows, device = batch.rows, accelerator.device
    if s.gradient_checkpointing or accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
        rows = replace(rows, family=None)  # recomputed layers keep no cache; shards count on one pass a micro-batch
    total = int(accelerator.reduce(torch.tensor(len(batch.steps), device=device)).item())
    pieces = math.ceil(total / s.mini_rows) if s.mini_rows else 1
    metrics: dict[str, float] = {}
    for piece in torch.arange(len(batch.steps)).tensor_split(pieces):
        tokens = accelerator.reduce(rows.response_len[piece].sum().to(device)).item()
        micros = [piece[index] for index in micro_batches(rows.take(piece), s.micro_tokens)] if len(piece) else []
        rounds = busiest(accelerator, len(micros))
        skipped = 0.0
        for k in range(rounds):  # every process makes as many backward passes as the busiest
            index, weight = (micros[k], 1.0) if k < len(micros) else (torch.arange(1), 0.0)
            part = rows.take(index).to(device)
            width = part.response_ids.shape[1]
            cut = {name: None if value is None else value[index, :width].to(device) for name, value in logps.items()}
            with stepping(accelerator, model, last=k + 1 == rounds), layers_recomputed(model):
                logp, entropy = token_logp(model, part, s.temperature)
                old_logp = logp.detach() if cut["old_logp"] is None else cut["old_logp"]
                losses = token_losses(
                    s, logp, old_logp, cut["ref_logp"], cut["teacher_logp"], adv[index, :width].to(device), entropy
                )
                sums = {name: weight * value[part.mask].sum() / tokens for name, (_, value) in losses.items()}
                loss = sum(coefficient * sums[name] for name, (coefficient, _) in losses.items())
                bad = not torch.isfinite(loss)
                skipped += bad * weight
                if bad and (not s.skip_nonfinite or 2 * skipped > len(micros)):
                    odd = sum(~value.where(part.mask, 0.0).isfinite().all(1) for _, value in losses.values()) > 0
                    refuse("loss", loss, index[odd.cpu()] if odd.any() else index, batch)
                if bad:  # a backward pass all the same, since other processes wait for it
                    loss = sum(0.0 * p.sum() for p in model.parameters() if p.requires_grad)
                accelerator.backward(loss * accelerator.num_processes)
            with torch.no_grad():
                sums["actor/ppo_kl"] = weight * (old_logp - logp)[part.mask].sum() / tokens
                clipped = ((logp - old_logp).exp() - 1).abs() > s.clip
                sums["actor/pg_clipfrac"] = weight * clipped[part.mask].sum() / tokens
                drift = (logp - batch.sampler_logp[index, :width].to(device)).where(part.mask, 0.0)
                sums["sampler/logp_diff"] = weight * drift.abs().sum() / tokens
                if s.method in DISTILLED:
                    gate = distil_gate(logp, cut["teacher_logp"], s.beta)
                    sums["distil/gate_mean"] = weight * gate[part.mask].sum() / tokens
            for name, value in sums.items():
                metrics[name] = metrics.get(name, 0.0) + (0.0 if bad else value.item() / pieces)
        norm = float(accelerator.clip_grad_norm_(model.parameters(), s.max_grad_norm))
        if not math.isfinite(norm):
            refuse("gradient", norm, piece, batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        metrics["actor/grad_norm"] = metrics.get("actor/grad_norm", 0.0) + norm / pieces
        if s.skip_nonfinite:
            metrics["actor/skipped"] = metrics.get("actor/skipped", 0.0) + skipped
    summed_up = accelerator.reduce(torch.tensor([metrics[name] for name in sorted(metrics)], device=device))
    metrics = dict(zip(sorted(metrics), summed_up.tolist(), strict=True))
    metrics["actor/grad_norm"] /= accelerator.num_processes  # every process saw the same norm
    return metrics


def refuse(what: str, value: Tensor | float, rows: Tensor, batch: Batch) -> None:
    """Raises FloatingPointError: in which step and rows what is not finite, and where the first of them was played."""
    first, where = int(rows[0]), ", ".join(map(str, rows.tolist()[:8]))
    played = f"turn {int(batch.turn[first])} of episode {int(batch.episode[first])}, task {batch.tasks[first].id}"
    number = torch.as_tensor(value).item()
    raise FloatingPointError(
        f"step {batch.training_step}: the {what} is {number} in rows {where} ({played}); nothing updated or saved"
    )
