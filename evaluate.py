"""From a policy and a frozen panel to success with its interval. No skill is in reach of this file.

    envs -> rollout -> teacher -> shaping, tva -> grpo, gigpo -> train          analyze
       \\-> rollout -> [evaluate]

Every task of the panel is played once. Beside the policy stand two scripted players: the expert, who sees the hidden
state (the ceiling), and random search (the floor). A row of results carries the panel's hash, so that two rows can be
compared only where they mean the same tasks.

    python evaluate.py --model results/quick/RUN/checkpoint-60 --env alfworld
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable

from scipy.stats import binomtest

import envs
from envs.base import SPLITS, Domain, Task, panel_hash, stratified
from envs.search.scores import Outcome, score_table
from policy import Policy, choose_model, load_policy, use_threads
from rollout import Trajectory, play, rollout, stream


def panel(domain: Domain, split: str, count: int) -> list[Task]:
    """The frozen panel of a split: all its tasks, or `count` of them, each type in proportion (0: all)."""
    tasks = domain.tasks(split)
    return stratified(tasks, count) if 0 < count < len(tasks) else tasks


def evaluate(
    policy: Policy,
    domain: Domain,
    tasks: list[Task],
    temperature: float,
    max_response: int,
    encode: Callable[[Task, str], list[int]] | None = None,
    seed: int = 0,
    batch: int = 256,
) -> list[Trajectory]:
    """One episode of every task, in the panel's order. The streams depend on the seed alone, so that every
    checkpoint meets the same luck. `encode` as in `rollout`: how Skill-Prompt shows what this file cannot know."""
    starts = [(group, task, stream(seed, 0, task, 0)) for group, task in enumerate(tasks)]
    return [
        trajectory
        for first in range(0, len(starts), batch)
        for trajectory in rollout(policy, domain, starts[first : first + batch], temperature, max_response, encode)
    ]


def result_row(trajectories: list[Trajectory], split: str, temperature: float, scripted: dict[str, float]) -> dict:
    """What one evaluation adds to eval.jsonl: outcomes task by task in the panel's order, and their means."""
    tasks = [trajectory.task for trajectory in trajectories]
    won, scores = [trajectory.won for trajectory in trajectories], [trajectory.score for trajectory in trajectories]
    row = {
        "panel": split,
        "panel_hash": panel_hash(tasks),
        "temperature": temperature,
        "n": len(tasks),
        "success": sum(won) / len(won),
        "score": sum(scores) / len(scores),
        "turns": sum(len(trajectory.steps) for trajectory in trajectories) / len(trajectories),
        **scripted,
        "types": [task.type for task in tasks],
        "outcomes": "".join("01"[win] for win in won),
    }
    if errors := sum(trajectory.failed for trajectory in trajectories):
        row["errors"] = errors  # episodes that their environment ended; they count as lost
    if any(score not in (0.0, 1.0) for score in scores):
        row["scores"] = [round(score, 4) for score in scores]
    if all(hasattr(task.payload, "source") for task in tasks):
        row["sources"] = [task.payload.source for task in tasks]
    return row


def scripted_rates(domain: Domain, tasks: list[Task]) -> dict[str, float]:
    """Success of the expert and of random search on a panel."""
    return {
        kind: sum(trajectory.won for trajectory in play(domain, tasks, kind, seed=0)) / len(tasks)
        for kind in ("expert", "random")
    }


def percent(wins: int, n: int) -> str:
    """A success rate as `94.5 [89.1, 97.3] (121/128)`: percent, Wilson's 95 % interval, counts."""
    low, high = binomtest(wins, n).proportion_ci(method="wilson")
    return f"{100 * wins / n:.1f} [{100 * low:.1f}, {100 * high:.1f}] ({wins}/{n})"


def table(row: dict) -> str:
    """A result row as text, by task type."""
    by_type = defaultdict(list)
    for kind, outcome in zip(row["types"], row["outcomes"], strict=True):
        by_type[kind].append(outcome == "1")
    lines = [f"{kind:32s} {percent(sum(wins), len(wins))}" for kind, wins in sorted(by_type.items())]
    if "errors" in row:
        lines.append(f"{row['errors']} episodes were ended by their environment and count as lost")
    total = percent(row["outcomes"].count("1"), row["n"])
    return "\n".join(
        [
            *lines,
            f"{'all':32s} {total}",
            *(by_data_set(row) if "sources" in row else []),
            f"{row['panel']} panel {row['panel_hash']}, temperature {row['temperature']}, mean score {row['score']:.3f}"
            f"; expert {100 * row['expert']:.1f}, random search {100 * row['random']:.1f}",
        ]
    )


def by_data_set(row: dict) -> list[str]:
    """EM and F1 in percent as text: micro for each data set, macro over the sets, and over all questions alike."""
    f1 = row.get("scores") or [float(outcome) for outcome in row["outcomes"]]
    rows = zip(row["sources"], row["outcomes"], f1, strict=True)
    found = score_table(Outcome(str(i), source, float(won), f1) for i, (source, won, f1) in enumerate(rows))
    labels = [*(f"micro/{source}" for source in sorted(set(row["sources"]))), "macro", "overall"]
    return [f"{label:32s} EM {100 * found[f'em/{label}']:.1f}  F1 {100 * found[f'f1/{label}']:.1f}" for label in labels]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--env", required=True, choices=envs.NAMES)
    parser.add_argument("--env_args", nargs="*", default=[], help="options of the environment, KEY=VALUE ...")
    parser.add_argument("--model", help="hub id, folder (a run's checkpoint too) or tiny; default as in train.py")
    parser.add_argument("--split", default="unseen", choices=SPLITS)
    parser.add_argument("--tasks", type=int, default=256, help="size of the panel, 0: the whole split")
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.4, 1.0])
    parser.add_argument("--max_turns", type=int, help="model calls an episode (default: the environment's)")
    parser.add_argument("--max_response", type=int, default=512, help="tokens")
    parser.add_argument("--no_thinking", action="store_true", help="as train.py --no_thinking (Qwen3; the paper)")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    use_threads(0, 1)
    name, reason = choose_model(args.model, args.env, args.device != "cpu")
    print(f"model {name} ({reason})")
    policy = load_policy(name, thinking=not args.no_thinking, device=args.device)
    domain = envs.load(
        args.env, lean=policy.lean, think_in_prompt=policy.think_in_prompt, **envs.read_args(args.env_args)
    )
    domain.max_turns = args.max_turns or domain.max_turns
    tasks = panel(domain, args.split, args.tasks)
    scripted = scripted_rates(domain, tasks)
    for temperature in args.temperature:
        trajectories = evaluate(policy, domain, tasks, temperature, args.max_response)
        print(table(result_row(trajectories, args.split, temperature, scripted)))


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
