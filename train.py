"""One loop: play, let the teacher score, turn scores and returns into credit, update, evaluate.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> [train]          analyze

    accelerate launch train.py --env alfworld --tva

Read `credit` first: it is the method, and in it the difference between GRPO and ADRS is one block. What a run leaves:
config.json, log.jsonl (a line a step, verl's metric names), timing.jsonl, eval.jsonl, episodes.jsonl, checkpoint-N/.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import gather_object
from torch import Tensor
from tqdm import tqdm

import checkpoint
import plan
import processes
from bank import SkillBank
from envs.base import Domain, Task, panel_hash, stratified
from evaluate import evaluate, panel, percent, result_row, scripted_rates, table
from gigpo import anchor_groups, step_advantage, step_returns
from grpo import group_advantage, group_stats, row_score
from policy import (
    Policy,
    frozen_copy,
    reference,
    score,
)
from probe import Probe
from record import Clock, Run, Stop, episode_metrics, episode_row, eval_metrics, token_rows, watch
from rlsd import mixing, scaled_advantage
from rollout import Batch, Trajectory, collate, rollout, stream
from settings import NEEDS_TEACHER, SKILL_IN_PROMPT, Settings, parse
from shaping import clip_term, in_window, standardise, summed, token_term
from start import newest_checkpoint, open_run, start
from teacher import SkillProvider, Teacher, skill_folder, with_skill
from tva import Pool, alignment, association, confidence, token_trust, trust
from update import refuse, update
from vllm_engine import Vllm

# ---------------------------------------------------------------------------------------------- the method


@dataclass(frozen=True)
class World:
    """The rows of all processes, as far as credit needs them, so that every statistic is that of the whole batch.
    [B] and [B, T] as in `Batch`; log-probs that no method asked for are None."""

    mask: Tensor
    group: Tensor
    episode: Tensor
    turn: Tensor
    reward: Tensor
    valid: Tensor
    anchors: list[str]
    task_ids: list[str]
    sampler_logp: Tensor
    old_logp: Tensor | None = None
    ref_logp: Tensor | None = None
    teacher_logp: Tensor | None = None


@dataclass(frozen=True)
class Credit:
    """What the update is made with, and what the log and the credit page show of it."""

    adv: Tensor  # [B, T]
    base: Tensor  # [B] the backbone's advantage
    gate: Tensor | None  # [B, 1] or [B, T]
    term: Tensor | None  # [B, T] what the teacher added
    metrics: dict[str, float]


def credit(s: Settings, w: World, step: int, pool: Pool) -> Credit:
    """From returns and log-probs to the advantage of every token."""
    metrics, gate, term = {}, None, None

    # The backbone: GRPO compares episodes of one task; GiGPO adds a comparison of turns in one state.
    returns = row_score(w.reward, w.valid, w.episode, s.penalty)
    step_ret = anchor = None
    if s.backbone == "gigpo" or s.level == "L3":  # else no one looks at states, and likeness of pages is slow to find
        step_ret = step_returns(w.reward, w.episode, w.turn, s.gamma) - s.penalty * (~w.valid)
        anchor = anchor_groups(w.group, w.anchors, s.anchor_similarity)
        metrics["groups/anchor_alone"] = (anchor.bincount()[anchor] == 1).float().mean().item()
    base, std = backbone(s, w, returns, step_ret, anchor)
    adv = base[:, None].where(w.mask, 0.0)

    # ADRS: on top of it, a token term from the teacher's log-probs, gated by TVA.
    if s.method == "adrs" and in_window(step, s.steps, s.window_start, s.window_stop):
        q_hat = standardise(_score(s, w, step), w.mask, w.group, s.centre, s.scale)
        gate = torch.full((len(base), 1), s.flat_gate)
        if s.tva:
            gate, gate_metrics = trust_gate(s, w, returns, step_ret, anchor, pool)
            metrics |= gate_metrics
        if s.credit == "shaped" or s.join == "sum_only":
            floor = 0.0 if s.credit == "shaped" else 1e-6
            shaped, _ = backbone(s, w, summed(returns, q_hat, gate, s.eta), step_ret, anchor, floor)
            base = shaped if s.credit == "shaped" else shaped.where(std > 0, base)
            adv = base[:, None].where(w.mask, 0.0)
        spread = std if s.backbone == "grpo" else _group_max(base.abs(), w.group)
        term = s.eta * token_term(q_hat, gate, w.mask, w.group, s.join)
        term = clip_term(term, s.clip_term, s.clip_mode, spread, w.group).where(w.mask, 0.0)
        if s.zero_variance == "skip":
            term = term.where(std[:, None] > 0, 0.0)
        adv = adv + term
        metrics |= {"adrs/term_abs_mean": term[w.mask].abs().mean().item(), "adrs/term_max": term.abs().max().item()}

    if s.method == "rlsd":
        mix = mixing(step, s.rlsd_start, s.rlsd_steps)
        scaled = scaled_advantage(adv, w.old_logp, w.teacher_logp, mix, s.rlsd_clip)
        metrics |= {"rlsd/mix": mix, "rlsd/change_abs_mean": (scaled - adv)[w.mask].abs().mean().item()}
        adv = scaled

    if w.teacher_logp is not None:
        gap = (w.teacher_logp - w.sampler_logp)[w.mask]
        metrics |= {"teacher/gap_mean": gap.mean().item(), "teacher/gap_std": gap.std().item()}
    in_mask = adv[w.mask]
    metrics |= {
        "critic/score/mean": returns.mean().item(),
        "critic/advantages/mean": in_mask.mean().item(),
        "critic/advantages/max": in_mask.max().item(),
        "critic/advantages/min": in_mask.min().item(),
        "groups/zero_variance": (_group_max(std, w.group) == 0)[_firsts(w.group)].float().mean().item(),
    }
    return Credit(adv, base, gate, term, metrics)


def backbone(
    s: Settings, w: World, returns: Tensor, step_ret: Tensor | None, anchor: Tensor | None, floor: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """A^E, with GiGPO A^E + omega * A^S (Eq. 18), and the spread of the returns in each row's group: both [B]."""
    mean, std = group_stats(returns, w.group, w.episode, s.group_unit, floor)
    base = group_advantage(returns, mean, std, s.by_std)
    if s.backbone == "gigpo":
        base = base + s.omega * step_advantage(step_ret, anchor, s.by_std)
    return base, std


def _score(s: Settings, w: World, step: int) -> Tensor:
    """What is centred and scaled: teacher log-probs (the paper), their gap to the student's, or noise (a control)."""
    if s.score == "gap":
        return w.teacher_logp - w.old_logp
    if s.score == "noise":
        draws = np.random.default_rng([s.seed, step, 0x5EED]).standard_normal(tuple(w.mask.shape))
        return torch.from_numpy(draws).float()
    return w.teacher_logp


def trust_gate(
    s: Settings, w: World, returns: Tensor, step_ret: Tensor | None, anchor: Tensor | None, pool: Pool
) -> tuple[Tensor, dict[str, float]]:
    """The TVA gate at the chosen level, [B, 1] or [B, T], and its statistics. The control is the same statistic
    computed from the student's own log-probs: what it shows, the skill did not cause (cpu_scale.md 7)."""
    level = s.level if s.level != "auto" else ("L3" if s.backbone == "gigpo" else "L2-traj")
    if level == "L1":
        gate = token_trust(w.teacher_logp, w.ref_logp, w.mask, s.tau)
        return gate, {"tva/gate_mean": gate[w.mask].mean().item()}
    unit = w.episode if level == "L2-traj" else torch.arange(len(returns))
    group, ret = (anchor, step_ret) if level == "L3" else (w.group, returns)
    tva = {}
    for name, logp in (("teacher", w.teacher_logp), ("student", w.sampler_logp)):
        conf, weight = confidence(logp, w.mask, unit)
        tva[name] = association(alignment(conf, weight, group, s.alpha_norm, s.tva_split), ret, weight, group)
    d = tva["teacher"]
    if s.tva_pool > 0:
        d = pool.mix(d, w.task_ids)
    gate = trust(d, weight, s.tau, s.gate_norm)[:, None]
    first = _firsts(group)
    return gate, {
        "tva/level": float(level[1]),
        "tva/d_mean": tva["teacher"][first].mean().item(),
        "tva/d_std": tva["teacher"][first].std(unbiased=False).item(),
        "tva/positive_ratio": (tva["teacher"][first] > 0).float().mean().item(),
        "tva/control_mean": tva["student"][first].mean().item(),
        "tva/pooled_mean": d[first].mean().item(),
        "tva/gate_mean": gate[first].mean().item(),
        "tva/groups": float(len(first)),
    }


def _group_max(value: Tensor, group: Tensor) -> Tensor:
    """The largest value in each row's group: [B]."""
    pool = group.unique(return_inverse=True)[1]
    return value.new_zeros(int(pool.max()) + 1).scatter_reduce(0, pool, value, "amax", include_self=False)[pool]


def _firsts(group: Tensor) -> Tensor:
    """The index of one row of each group."""
    pool = group.unique(return_inverse=True)[1]
    return torch.full((int(pool.max()) + 1,), len(group)).scatter_reduce(0, pool, torch.arange(len(group)), "amin")


# ------------------------------------------------------------------------------------------------- the loop


def draw_tasks(tasks: list[Task], s: Settings, step: int) -> list[Task]:
    """The tasks of a step: the next `groups` of an endless run of shuffled epochs, derived from the seed."""
    places = [divmod(position, len(tasks)) for position in range((step - 1) * s.groups, step * s.groups)]
    order = {epoch: np.random.default_rng([s.seed, epoch]).permutation(len(tasks)) for epoch, _ in places}
    return [tasks[order[epoch][place]] for epoch, place in places]


def play_step(accelerator: Accelerator, policy: Policy, domain: Domain, tasks: list[Task], s: Settings, step: int,
              encode) -> list[Trajectory]:  # fmt: skip
    """This process's share of a step's episodes: whole groups, dealt out in turn. No collective call in here. What an
    environment ended is told; raises RuntimeError where none of them works."""
    starts = [
        (group, task, stream(s.seed, step, task, group * s.group_size + k))
        for group, task in enumerate(tasks)
        if group % accelerator.num_processes == accelerator.process_index
        for k in range(s.group_size)
    ]
    trajectories = rollout(policy, domain, starts, s.temperature, s.max_response, encode)
    failed = [trajectory for trajectory in trajectories if trajectory.failed]
    for trajectory in failed:
        print(f"step {step}, task {trajectory.task.id}: {trajectory.ended}", file=sys.stderr)
    if failed and len(failed) == len(trajectories):
        raise RuntimeError(f"step {step}: no environment works, the first: {failed[0].ended}")
    return trajectories


def gather_world(batch: Batch, logps: dict[str, Tensor | None]) -> tuple[World, slice]:
    """The rows of all processes in the order of their ranks, and where this process's own lie among them."""
    own = {"mask": batch.rows.mask, "group": batch.group, "episode": batch.episode, "turn": batch.turn,
           "reward": batch.reward, "valid": batch.valid, "sampler_logp": batch.sampler_logp, **logps}  # fmt: skip
    anchors, ids = [step.anchor for step in batch.steps], [task.id for task in batch.tasks]
    state = PartialState()
    shares = gather_object([(own, anchors, ids)]) if state.num_processes > 1 else [(own, anchors, ids)]
    width = max(share[0]["mask"].shape[1] for share in shares)
    episodes_before = 0
    for tensors, _, _ in shares:
        count = int(tensors["episode"].max()) + 1
        tensors["episode"] = tensors["episode"] + episodes_before
        episodes_before += count
        for name, value in tensors.items():
            if value is not None and value.dim() == 2:
                tensors[name] = torch.nn.functional.pad(value, (0, width - value.shape[1]))
    joined = {name: None if own[name] is None else torch.cat([share[0][name] for share in shares]) for name in own}
    before = sum(len(share[1]) for share in shares[: state.process_index])
    anchors, ids = ([text for share in shares for text in share[k]] for k in (1, 2))
    world = World(**joined, anchors=anchors, task_ids=ids)
    return world, slice(before, before + len(batch.steps))


# -------------------------------------------------------------------------------------------------- the run


@dataclass(frozen=True)
class Panel:
    """What every evaluation of a run plays, under which prompts, and how the scripted players do on it."""

    tasks: list[Task]
    scripted: dict[str, float]
    encodings: dict[str, Callable | None]  # label -> `encode` of rollout; Skill-GRPO is shown with and without skills
    probe: Probe | None  # the first process has one


def evaluations(accelerator: Accelerator, policy: Policy, domain: Domain, s: Settings, held_out: Panel, step: int,
                run: Run) -> tuple[dict, str]:  # fmt: skip
    """Plays the panel at every temperature, tasks dealt out to the processes, and writes the rows to eval.jsonl.
    Returns the log's metrics and a table, both of the headline: the first temperature, no skill in the prompt."""
    headline = None
    if held_out.probe:
        lines = token_rows(held_out.probe.mask, held_out.probe.measure(s.micro_tokens), range(len(held_out.probe.mask)))
        for trajectory in held_out.probe.trajectories:
            run.append("episodes.jsonl", episode_row(trajectory, step, "frozen", policy, lines))
    for label, encode in held_out.encodings.items():
        for temperature in s.eval_temperatures:
            mine = held_out.tasks[accelerator.process_index :: accelerator.num_processes]
            played = everywhere(accelerator, evaluate(policy, domain, mine, temperature, s.max_response, encode))
            played = sorted(played, key=lambda trajectory: trajectory.task.id)
            row = {"step": step, "skills": label}
            row |= result_row(played, s.eval_split, temperature, held_out.scripted)
            run.append("eval.jsonl", row)
            for trajectory in played[: s.episodes]:
                run.append("episodes.jsonl", episode_row(trajectory, step, f"eval-{temperature}", policy, None))
            rate = percent(row["outcomes"].count("1"), row["n"])
            shown = "" if label == "none" else ", skills in the prompt"
            accelerator.print(f"step {step}: success {rate} on {s.eval_split} at temperature {temperature}{shown}")
            headline = headline or (eval_metrics(row), table(row))
    return headline


def everywhere(accelerator: Accelerator, items: list) -> list:
    """The lists of all processes, one behind the other."""
    return gather_object(items) if accelerator.num_processes > 1 else items


def asks_teacher(s: Settings, step: int) -> bool:
    """Whether this step reads the teacher: the method does (ADRS inside its window alone), and so do the episodes that
    an evaluation saves."""
    if s.method == "adrs":
        shown = step % s.eval_every == 0 or step == s.steps
        return shown or in_window(step, s.steps, s.window_start, s.window_stop)
    return s.method in NEEDS_TEACHER


def log_probs(accelerator: Accelerator, policy: Policy, trained, batch: Batch, teacher: Teacher | None, frozen,
              s: Settings, clock: Clock) -> dict:  # fmt: skip
    """The log-probs that are read in this step; no other pass is paid for. With one optimizer step a batch the ratio is
    one, and `update` takes old_logp from its own forward pass; else they are those of the `trained` model's arithmetic.
    """
    logps = {"old_logp": None, "ref_logp": None, "teacher_logp": None}
    if s.mini_rows or s.score == "gap" or s.method == "rlsd":
        rounds = partial(processes.busiest, accelerator) if processes.sharded(accelerator) else None
        logps["old_logp"] = score(trained, batch.rows, s.temperature, s.micro_tokens, rounds)
        clock.lap("old")
    if s.kl > 0:
        with reference(policy.model, frozen) as initial:
            logps["ref_logp"] = score(initial, batch.rows, s.temperature, s.micro_tokens)
        clock.lap("ref")
    if teacher:
        logps["teacher_logp"] = teacher.logp(batch, policy.model, s.temperature, s.micro_tokens)
        clock.lap("teacher")
    for name, value in {"sampler_logp": batch.sampler_logp, **logps}.items():
        if value is not None and not (finite := value.isfinite()).all():
            refuse(name, value[~finite][0], (~finite.all(1)).nonzero()[:, 0], batch)
    return logps


def train(s: Settings) -> None:
    """A whole run, from its settings to its last checkpoint; with --dry_run, what it would need."""
    if s.dry_run:
        print(plan.report(s))
        return
    accelerator, s, domain, policy = start(s)
    run, s = open_run(accelerator, s)
    with run:
        learn(accelerator, s, domain, policy, run)
    accelerator.end_training()


def learn(accelerator: Accelerator, s: Settings, domain: Domain, policy: Policy, run: Run) -> None:
    """What `train` does inside the run's folder."""
    say = accelerator.print

    # tasks
    train_tasks = domain.tasks("train")
    train_tasks = stratified(train_tasks, max(1, round(s.fraction * len(train_tasks))), s.seed)
    eval_tasks = panel(domain, s.eval_split, s.eval_tasks)
    if s.eval_split != "train" and {task.id for task in train_tasks} & {task.id for task in eval_tasks}:
        raise ValueError(f"--eval_split {s.eval_split} shares tasks with the training split")

    # skills, in training alone: a teacher reads them, or (Skill-GRPO, Skill-Prompt) the acting policy does
    provider = teacher = encode = None
    encodings = {"none": None}
    if s.method in NEEDS_TEACHER or s.method in SKILL_IN_PROMPT:
        provider = SkillProvider(skill_folder(s.env, policy.lean), s.skill, s.skill_noise, s.seed)
        provider = SkillBank(provider, s.skills_topk) if s.skills == "bank" else provider
    if s.method in NEEDS_TEACHER:
        teacher = Teacher(policy, provider, s.teacher, s.placement, s.ema)
    if s.method in SKILL_IN_PROMPT:
        encode = encodings["prompt"] = with_skill(policy, provider)

    watch(s.silence)
    # before anything is learned or loaded: the episodes that stay the same
    probe = None
    if s.probe and accelerator.is_main_process:
        true_skills = SkillProvider(skill_folder(s.env, policy.lean))
        watched = stratified(eval_tasks, min(s.probe, len(eval_tasks)))
        probe = Probe(policy, domain, watched, true_skills, s.temperature, s.max_response)

    # weights and optimizer, a resumed run's from its newest whole checkpoint
    frozen = frozen_copy(policy.model) if s.kl > 0 and not policy.new_adapter else None
    if frozen is not None and not s.lora:
        frozen.to(getattr(torch, s.dtype))
    ema = teacher.copy if teacher and s.teacher == "ema" else None
    found, complaints = newest_checkpoint(run) if s.resume else (None, [])
    for complaint in complaints:
        say(complaint)
    if found:
        checkpoint.load_weights(found, policy.model)
    trained = processes.apart(accelerator, policy, s)
    optimizer = torch.optim.AdamW([p for p in trained.parameters() if p.requires_grad], lr=s.lr, weight_decay=0.01)
    state = {"step": 0, "pool": {}}
    if found:
        state = checkpoint.restore(found, trained, optimizer)
        if ema is not None:
            checkpoint.load_weights(found / "ema", ema)
        say(f"resumed from {found}")
    elif s.resume:
        say(f"{run.folder} holds no whole checkpoint: the run begins at step 0")
    if run.main:
        checkpoint.check_room(run.folder, policy.model, ema)
    pool = Pool(s.tva_pool, state["pool"])
    model, optimizer = processes.prepare(accelerator, trained, optimizer, s)
    trained = accelerator.unwrap_model(model)
    if s.engine == "vllm":
        policy.engine = Vllm(policy, s.vllm_memory)

    held_out = Panel(eval_tasks, scripted_rates(domain, eval_tasks), encodings, probe)
    panels = {split: {"hash": panel_hash(tasks), "n": len(tasks)}
              for split, tasks in (("train", train_tasks), (s.eval_split, eval_tasks))}  # fmt: skip
    if found:
        for change in run.changes(s, panels):
            say(change)
    run.rewind(state["step"] if found else -1)
    if not found:
        skills = provider.fingerprint() if provider else None
        machine = {"processes": accelerator.num_processes, "threads": torch.get_num_threads()}
        run.describe(s, panels, {"scripted": held_out.scripted, "games": domain.source, "skills": skills} | machine)
    scripted = ", ".join(f"{name} {100 * rate:.1f}" for name, rate in held_out.scripted.items())
    say(f"run: {run.folder}; {len(train_tasks)} training tasks; panel {panels[s.eval_split]}: {scripted}")
    if s.tracker:
        accelerator.init_trackers("adrs")

    stopping, before, after = Stop(), None, None
    if not found:
        before, shown = evaluations(accelerator, policy, domain, s, held_out, 0, run)
        run.append("log.jsonl", {"step": 0} | before)
    quiet = not (accelerator.is_main_process and sys.stderr.isatty())
    for step in (bar := tqdm(range(state["step"] + 1, s.steps + 1), desc="train", disable=quiet)):
        clock = Clock(s.silence)
        tasks = draw_tasks(train_tasks, s, step)
        trajectories = play_step(accelerator, policy, domain, tasks, s, step, encode)
        batch = collate(trajectories, policy.tokenizer.pad_token_id, step)
        clock.lap("rollout")
        asked = teacher if asks_teacher(s, step) else None
        logps = log_probs(accelerator, policy, trained, batch, asked, frozen, s, clock)
        world, mine = gather_world(batch, logps)
        made = credit(s, world, step, pool)
        clock.lap("credit")
        metrics = update(accelerator, model, optimizer, s, batch, logps, made.adv[mine])
        processes.hand_over(trained, policy.model)
        if policy.engine:
            policy.engine.follow(policy)
        if teacher:
            teacher.follow(policy.model)
        clock.lap("update")

        shares = everywhere(accelerator, [episode_metrics(trajectories, batch)])
        metrics |= {key: sum(share[key] for share in shares) / len(shares) for key in shares[0]} | made.metrics
        stop = stopping.agreed(accelerator)
        last = step == s.steps or stop
        if step % s.eval_every == 0 or last:
            after, shown = evaluations(accelerator, policy, domain, s, held_out, step, run)
            metrics |= after
            quantities = {"student_logp": world.sampler_logp, "teacher_logp": world.teacher_logp, "gate": made.gate,
                          "term": made.term, "adv": made.adv}  # fmt: skip
            lines = token_rows(world.mask, quantities, range(mine.start, mine.stop), made.base)
            for trajectory in trajectories[: s.episodes]:
                run.append("episodes.jsonl", episode_row(trajectory, step, "fresh", policy, lines))
            clock.lap("eval")
        run.append("log.jsonl", {"step": step} | metrics)
        run.append("timing.jsonl", clock.row(step))
        if s.tracker:
            accelerator.log(metrics, step=step)
        told = f"success {100 * metrics['episode/success_rate']:5.1f}  turns {metrics['episode/length/mean']:.1f}"
        told += f"  gate {metrics['tva/gate_mean']:.3f}" if "tva/gate_mean" in metrics else ""
        bar.set_postfix_str(told)
        if quiet:
            say(f"step {step}/{s.steps}: {told}  {sum(clock.seconds.values()):.1f} s", flush=True)
        if (step % s.save_every == 0 or last) and accelerator.is_main_process:
            kept = processes.kept(accelerator, policy, trained, optimizer)
            checkpoint.save(run.folder, step, *kept, {"pool": pool.values}, ema)
            checkpoint.prune(run.folder, s.keep, step)
        if stop:
            say(f"stopped by signal {stop} after step {step}; go on with --run {s.run} --resume")
            sys.exit(128 + stop)

    if before or after:
        say(shown)
    if before and after:
        old, new = (100 * metrics["val/success_rate"] for metrics in (before, after))
        told = f"{len(eval_tasks)} {s.eval_split} tasks, temperature {s.eval_temperatures[0]}"
        say(f"success before {old:.1f}, after {new:.1f} ({new - old:+.1f} points): {told}")


if __name__ == "__main__":
    try:
        train(parse())
    except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
        rank = os.environ.get("RANK")  # of several processes: where one dies, the others lose their connection to it
        sys.exit(f"{f'process {rank}: ' if rank else ''}{type(error).__name__}: {error}")
