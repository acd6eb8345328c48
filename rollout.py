"""From a policy and tasks to episodes: batched turns, `Step`, `Trajectory`, and the `Batch` that is trained on.

    envs -> [rollout] -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze

One row is one agent turn: a prompt made from a short window of history, and the response that was sampled. Ids
sampled are ids trained on; nothing is decoded and tokenized again. Every episode draws from its own stream, derived
from (seed, step, task, episode), so that neither the batch nor the number of processes decides what is sampled. A game
that raises or hangs ends its own episode alone, without reward, and says why; its group stays whole.
Left out: skills. A rollout cannot see one; Skill-GRPO hands in its own `encode`.
"""

import contextlib
import hashlib
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, StaticCache

from envs.base import Domain, Task, View
from policy import Policy, Rows, pad_left, pad_right

ENV_SECONDS = 60.0  # the most that one turn of a game may take; those here need milliseconds


@dataclass
class Step:
    """One turn: what the policy saw, what it sampled, what came of it."""

    prompt: str  # the user message
    prompt_ids: list[int]  # exactly what the policy saw
    response_ids: list[int]  # exactly what it sampled, end token included
    sampler_logp: list[float]  # the sampler's log-prob of each of them, nats
    response: str
    observation: str
    admissible: tuple[str, ...]
    anchor: str  # the state's text, for GiGPO's groups
    action: str = ""
    valid: bool = False  # the response had the asked form
    reward: float = 0.0  # the environment's, without penalty


@dataclass
class Trajectory:
    """One episode of a task. `group`: the index of its task in the batch; `ended`: won, done, turns, or an error."""

    task: Task
    group: int
    steps: list[Step] = field(default_factory=list)
    won: bool = False
    score: float = 0.0
    ended: str = "turns"

    @property
    def failed(self) -> bool:
        """Whether the environment, not the policy, ended it."""
        return self.ended.startswith("error")


@dataclass(frozen=True)
class Batch:
    """All turns of some trajectories as tensors. Rows never move and no field is added after `collate`."""

    rows: Rows
    sampler_logp: Tensor  # [B, T]
    reward: Tensor  # [B] the environment's, by turn
    valid: Tensor  # [B] bool
    group: Tensor  # [B] index of the task
    episode: Tensor  # [B] index of the trajectory
    turn: Tensor  # [B] from 0
    steps: list[Step]
    tasks: list[Task]  # of each row
    training_step: int = 0


class Episode:
    """An environment with the window of history that the next prompt shows."""

    def __init__(self, domain: Domain, task: Task):
        self.env, self.task, self.window = domain.make(), task, domain.history
        self.history: list[tuple[str, str]] = []
        self.observation, self.info = self.env.reset(options={"task": task})
        self.turn, self.over, self.reward, self.ended = 0, False, 0.0, "turns"

    def view(self) -> View:
        window = tuple(self.history[-self.window :]) if self.window else ()
        return View(self.task, self.turn, window, self.observation, tuple(self.info["admissible"]))

    def advance(self, result: tuple[str, float, bool, bool, dict]) -> None:
        """Takes in what the environment answered to a response."""
        observation, self.reward, terminated, truncated, self.info = result
        self.history.append((self.observation, self.info["action"]))
        self.observation, self.turn, self.over = observation, self.turn + 1, terminated or truncated
        if terminated:
            self.ended = "won" if self.info["won"] else "done"

    def fail(self, error: Exception) -> None:
        """Ends the episode where its environment broke: no reward, and no penalty, as no response is at fault."""
        self.over, self.reward, self.ended = True, 0.0, f"error: {type(error).__name__}: {error}"[:300]
        self.info = self.info | {"action": "", "valid": True, "won": False, "score": 0.0}


def step_all(domain: Domain, episodes: list[Episode], responses: list[str]) -> None:
    """One turn of every episode; in one call where the domain can (search: one batch of queries; there it is a shared
    service that fails, and the run stops). Elsewhere an episode whose game raises or hangs ends, the others go on."""
    if hasattr(domain, "step_many"):
        results = domain.step_many([episode.env for episode in episodes], responses)
        for episode, result in zip(episodes, results, strict=True):
            episode.advance(result)
        return
    for episode, response in zip(episodes, responses, strict=True):
        try:
            with within(ENV_SECONDS):
                episode.advance(episode.env.step(response))
        except Exception as error:  # a game may be anyone's code: whatever it raises is the reason
            episode.fail(error)


@contextlib.contextmanager
def within(seconds: float):
    """Raises TimeoutError inside the block after that much wall time. An alarm signal, so in the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number, frame):
        raise TimeoutError(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def stream(seed: int, step: int, task: Task, episode: int) -> np.random.Generator:
    """The random stream of one episode."""
    name = int.from_bytes(hashlib.sha256(task.id.encode()).digest()[:8], "big")
    return np.random.default_rng([seed, step, name, episode])


class InverseCdf(LogitsProcessor):
    """Samples token t of row i with the uniform number draws[i, t] and keeps its log-prob: temperature softmax,
    then the first token whose cumulative probability passes the number. As a logits processor it leaves one token
    possible, so that greedy `generate` takes it. No top-k, no top-p: what is trained is what is sampled from."""

    def __init__(self, draws: Tensor, temperature: float):
        self.draws, self.temperature, self.logp = draws, temperature, []

    def pick(self, logits: Tensor) -> Tensor:
        """The next token of every row: [rows] from logits [rows, vocabulary]."""
        if self.temperature == 0:
            token = logits.argmax(-1)
            self.logp.append(torch.zeros(len(token)))
            return token
        logp = (logits.float() / self.temperature).log_softmax(-1)
        cdf = logp.double().exp().cumsum(-1)
        target = self.draws[:, len(self.logp), None].to(cdf.device) * cdf[:, -1:]
        token = torch.searchsorted(cdf, target, right=True).clamp(max=logits.shape[-1] - 1)[:, 0]
        self.logp.append(logp.gather(-1, token[:, None])[:, 0].cpu())
        return token

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        token = self.pick(scores)
        return torch.full_like(scores, -torch.inf).scatter(-1, token[:, None], 0.0)


@torch.no_grad()
def generate(
    policy: Policy, prompts: list[list[int]], draws: np.ndarray, temperature: float
) -> list[tuple[list[int], list[float]]]:
    """One response to each prompt: its ids, end token included, and their log-probs.

    This call is the interface of a rollout engine: another one can stand in `policy.engine` (vllm_engine.py).
    `draws` [rows, tokens] holds the uniform numbers and so the most tokens a response may have. Raises
    FloatingPointError where a log-prob is not finite: nothing sensible can be sampled.
    """
    device = next(policy.model.parameters()).device
    ids, lengths = pad_left(prompts, policy.tokenizer.pad_token_id)
    attention = (torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]).long()
    sampler = InverseCdf(torch.from_numpy(draws), temperature)
    sample = _loop if policy.lean else _hf_generate
    out = sample(policy, ids.to(device), attention.to(device), sampler).tolist()
    logp, ends = torch.stack(sampler.logp, 1), set(policy.end_ids)
    if not logp.isfinite().all():
        raise FloatingPointError("the policy gives log-probs that are not finite: its weights are damaged")
    responses = []
    for row_ids, row_logp in zip(out, logp.tolist(), strict=True):
        length = next((j + 1 for j, token in enumerate(row_ids) if token in ends), len(row_ids))
        responses.append((row_ids[:length], row_logp[:length]))
    return responses


def _hf_generate(policy: Policy, ids: Tensor, attention: Tensor, sampler: InverseCdf) -> Tensor:
    out = policy.model.generate(
        input_ids=ids,
        attention_mask=attention,
        logits_processor=[sampler],
        max_new_tokens=sampler.draws.shape[1],
        do_sample=False,
        eos_token_id=policy.end_ids,
        pad_token_id=policy.tokenizer.pad_token_id,
        synced_gpus=False,  # no process waits for another one in here
    )
    return out[:, ids.shape[1] :]


def _loop(policy: Policy, ids: Tensor, attention: Tensor, sampler: InverseCdf) -> Tensor:
    """What `generate` does, without its bookkeeping: for a small model that costs more than the model (LOG.md)."""
    ends, most = torch.tensor(policy.end_ids, device=ids.device), sampler.draws.shape[1]
    done = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    logits, cache = _read(policy.model, ids, attention, ids.shape[1] + most)
    position, tokens = attention.sum(1, keepdim=True), []
    while True:
        token = sampler.pick(logits[:, -1])[:, None]
        tokens.append(token)
        done |= torch.isin(token[:, 0], ends)
        if len(tokens) == most or done.all():
            return torch.cat(tokens, 1)
        attention = torch.cat([attention, torch.ones_like(token)], 1)
        logits = policy.model(
            input_ids=token, attention_mask=attention, position_ids=position, cache=cache, use_cache=True
        ).logits
        position = position + 1


def _read(model: torch.nn.Module, ids: Tensor, attention: Tensor, length: int) -> tuple[Tensor, StaticCache]:
    """The logits behind every prompt [B, 1, vocabulary], and a cache with room for `length` tokens a row. Equal prompts
    (a group's first turn) are read once."""
    prompts, which = torch.cat([ids, attention], 1).unique(dim=0, return_inverse=True)
    ids, attention = prompts.chunk(2, 1)
    position = (attention.cumsum(1) - 1).clamp(min=0)
    out = model(input_ids=ids, attention_mask=attention, position_ids=position, use_cache=True, logits_to_keep=1)
    cache = StaticCache(model.config, max_cache_len=length)
    for number, layer in enumerate(out.cache.layers):
        cache.update(layer.keys[which], layer.values[which], number)
    return out.logits[which], cache


def rollout(
    policy: Policy,
    domain: Domain,
    starts: list[tuple[int, Task, np.random.Generator]],
    temperature: float,
    max_tokens: int,
    encode: Callable[[Task, str], list[int]] | None = None,
) -> list[Trajectory]:
    """Plays one episode for every (group, task, stream), all of them a turn at a time; finished ones leave.

    `encode` turns a task's user message into prompt ids in place of `policy.encode`. Raises ValueError
    where a prompt and a full response do not fit the model's context; nothing is ever cut.
    """
    trajectories = [Trajectory(task, group) for group, task, _ in starts]
    episodes = [Episode(domain, task) for _, task, _ in starts]
    limit = getattr(policy.model.config, "max_position_embeddings", None) or 10**9
    active = list(range(len(starts)))
    while active:
        prompts = [domain.prompt(episodes[i].view(), policy.lean) for i in active]
        ids = [
            encode(episodes[i].task, text) if encode else policy.encode(text)
            for i, text in zip(active, prompts, strict=True)
        ]
        longest = max(range(len(ids)), key=lambda k: len(ids[k]))
        if len(ids[longest]) + max_tokens > limit:
            raise ValueError(
                f"a prompt of {len(ids[longest])} tokens (task {episodes[active[longest]].task.id}) and "
                f"--max_response {max_tokens} exceed the model's context of {limit}"
            )
        draws = np.stack([starts[i][2].random(max_tokens) for i in active])
        sampled = (policy.engine or generate)(policy, ids, draws, temperature)
        texts = [policy.decode(response_ids) for response_ids, _ in sampled]
        for i, prompt, prompt_ids, (response_ids, logp), text in zip(active, prompts, ids, sampled, texts, strict=True):
            info = episodes[i].info
            trajectories[i].steps.append(
                Step(prompt, prompt_ids, response_ids, logp, text, episodes[i].observation,
                     tuple(info["admissible"]), info["anchor"])
            )  # fmt: skip
        step_all(domain, [episodes[i] for i in active], texts)
        for i in active:
            episode, step = episodes[i], trajectories[i].steps[-1]
            step.action, step.valid, step.reward = episode.info["action"], episode.info["valid"], episode.reward
            trajectories[i].won, trajectories[i].score = bool(episode.info["won"]), float(episode.info["score"])
            trajectories[i].ended = episode.ended
        active = [i for i in active if not episodes[i].over]
    return trajectories


def play(domain: Domain, tasks: list[Task], kind: str, seed: int, lean: bool = True) -> list[Trajectory]:
    """One episode a task with the scripted player `kind`; its steps hold texts, no ids. `lean`: which prompts."""
    trajectories = []
    for group, task in enumerate(tasks):
        episode, trajectory = Episode(domain, task), Trajectory(task, group)
        player = domain.player(kind, stream(seed, 0, task, 0))
        while not episode.over:
            view, anchor = episode.view(), episode.info["anchor"]
            response, prompt = player(view, episode.env), domain.prompt(view, lean)
            step = Step(prompt, [], [], [], response, view.observation, view.admissible, anchor)
            trajectory.steps.append(step)
            step_all(domain, [episode], [response])
            step.action, step.valid, step.reward = episode.info["action"], episode.info["valid"], episode.reward
        trajectory.won, trajectory.score = bool(episode.info["won"]), float(episode.info["score"])
        trajectory.ended = episode.ended
        trajectories.append(trajectory)
    return trajectories


def collate(trajectories: list[Trajectory], pad: int, training_step: int = 0) -> Batch:
    """All turns of the trajectories as one `Batch`, in order. Raises ValueError where there is none."""
    steps = [step for trajectory in trajectories for step in trajectory.steps]
    if not steps:
        raise ValueError("no turn was played: nothing to train on")
    lengths = torch.tensor([len(trajectory.steps) for trajectory in trajectories])
    group = torch.tensor([trajectory.group for trajectory in trajectories]).repeat_interleave(lengths)
    response_ids, response_len = pad_right([step.response_ids for step in steps], pad)
    return Batch(
        rows=Rows(*pad_left([step.prompt_ids for step in steps], pad), response_ids, response_len, group),
        sampler_logp=pad_right([step.sampler_logp for step in steps], 0.0)[0],
        reward=torch.tensor([step.reward for step in steps]),
        valid=torch.tensor([step.valid for step in steps]),
        group=group,
        episode=torch.arange(len(trajectories)).repeat_interleave(lengths),
        turn=torch.cat([torch.arange(n) for n in lengths.tolist()]),
        steps=steps,
        tasks=[trajectory.task for trajectory in trajectories for _ in trajectory.steps],
        training_step=training_step,
    )
