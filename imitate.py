"""From the expert's games to a model that answers in the asked form: a few supervised steps on any causal LM.

    envs -> [imitate] -> a model folder          then: envs -> rollout -> teacher -> ... -> train

A small instruct model never writes <think>...</think> <action>...</action> unasked (SmolLM2-135M: 0 of 20), and
reinforcement learning finds nothing to reward. A few dozen turns of the expert teach it the form, and hardly more.
warmstart.py is for the small policies that are made from nothing; this is for models that can read. Left out: skills.

    python imitate.py --env alfworld --model FOLDER --out FOLDER
"""

import argparse
import sys

import numpy as np
import torch
from tqdm import tqdm

import envs
from envs.base import Domain, stratified
from policy import Policy, Rows, load_policy, micro_batches, pad_left, pad_right, token_logp, use_threads
from rollout import play


def examples(policy: Policy, domain: Domain, count: int, seed: int) -> list[tuple[list[int], list[int]]]:
    """(prompt ids, response ids) of `count` turns of the expert, drawn from games of every type, shuffled. Where the
    prompt holds the think block, the response is the action alone."""
    tasks = domain.tasks("train")
    games = play(domain, stratified(tasks, min(len(tasks), count // 2 + 1), seed), "expert", seed, policy.lean)
    turns = [step for game in games for step in game.steps]
    rng = np.random.default_rng([seed, 0x1417])
    end = policy.tokenizer.eos_token_id
    chosen = [turns[i] for i in rng.permutation(len(turns))[:count]]
    responses = [step.response for step in chosen]
    if policy.think_in_prompt:
        responses = [response.partition("</think>")[2].strip() for response in responses]
    prompts = [policy.encode(step.prompt) for step in chosen]
    return [(prompt, [*policy.encode_raw(text), end]) for prompt, text in zip(prompts, responses, strict=True)]


def imitate(policy: Policy, rows: list[tuple[list[int], list[int]]], steps: int, lr: float, tokens: int) -> list[float]:
    """`steps` AdamW steps that go once through the rows, in parts of equal size; the mean negative log-prob of the
    responses' tokens, end token included, in nats a token: before each step."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=lr, weight_decay=0.01)
    losses = []
    for part in tqdm(np.array_split(np.arange(len(rows)), steps), desc="imitate", disable=not sys.stderr.isatty()):
        pad = policy.tokenizer.pad_token_id
        batch = Rows(*pad_left([rows[i][0] for i in part], pad), *pad_right([rows[i][1] for i in part], pad))
        total, loss = int(batch.response_len.sum()), 0.0
        for index in micro_batches(batch, tokens):
            micro = batch.take(index).to(next(policy.model.parameters()).device)
            share = -token_logp(policy.model, micro, 1.0)[0].sum() / total
            share.backward()
            loss += share.item()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss)
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--env", required=True, choices=envs.NAMES)
    parser.add_argument("--env_args", nargs="*", default=[], help="options of the environment, KEY=VALUE ...")
    parser.add_argument("--model", required=True, help="hub id or folder")
    parser.add_argument("--out", required=True, help="folder to write")
    parser.add_argument("--examples", type=int, default=48, help="turns of the expert")
    parser.add_argument("--steps", type=int, default=24, help="optimizer steps, at most as many as examples")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--micro_tokens", type=int, default=2048, help="padded tokens of a forward pass")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--no_thinking", action="store_true", help="as train.py --no_thinking (Qwen3; the paper)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if not 1 <= args.steps <= args.examples:
        raise ValueError(f"--steps {args.steps}: give 1 to --examples ({args.examples})")
    use_threads(args.threads, 1)
    policy = load_policy(args.model, thinking=not args.no_thinking, device=args.device)
    domain = envs.load(
        args.env, lean=policy.lean, think_in_prompt=policy.think_in_prompt, **envs.read_args(args.env_args)
    )
    rows = examples(policy, domain, args.examples, args.seed)
    losses = imitate(policy, rows, args.steps, args.lr, args.micro_tokens)
    print(f"{len(rows)} turns, {args.steps} steps: {losses[0]:.2f} nats a token at first, {losses[-1]:.2f} at last")
    policy.model.save_pretrained(args.out)
    policy.tokenizer.save_pretrained(args.out)
    print(f"saved {args.out}")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
