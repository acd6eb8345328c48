"""How the CPU time of a training step grows: with episodes, with turns, with the model, and with a second process.

    python -m bench.scale --out bench/scale

ADRS with TVA, all passes, one thread. Three sweeps around one point: 8 to 512 episodes, 1 to 11 turns (both with the
small policy that ships), and random models of 64 to 384 units. Writes OUT.csv, a line a step, and OUT.png; prints the
straight line seconds = a + b * tokens that fits the first two sweeps, with the share of its largest error, and padding.
Then two processes against one under torchrun: the CPU time of both together, for the same episodes.
"""

import argparse
import csv
import subprocess
import time
from pathlib import Path

import numpy as np
import torch

import envs
from bench.loop import Loop
from bench.measure import ROOT, module, ratio
from policy import choose_model, load_policy, micro_batches
from rollout import Batch
from teacher import SkillProvider, skill_folder
from warmstart import new_policy

GROUP_SIZE = 8
EPISODES, TURNS, WIDTHS = (8, 16, 32, 64, 128, 256, 512), (1, 2, 4, 8, 11), (64, 128, 256, 384)
MIDDLE = {"episodes": 16, "turns": 2}


def make_loop(episodes: int, turns: int, width: int | None = None) -> Loop:
    """A loop on generated household games; `width`: a random model of three layers instead of the one that ships."""
    domain = envs.load("alfworld", lean=True)
    torch.manual_seed(0)
    policy = new_policy(domain.words(), width, 3) if width else load_policy(choose_model("tiny", "alfworld", False)[0])
    provider = SkillProvider(skill_folder("alfworld", True))
    return Loop(policy, domain, provider, groups=episodes // GROUP_SIZE, group_size=GROUP_SIZE, max_turns=turns, lr=0.0)


def padding(batch: Batch, tokens: int) -> float:
    """The share of padding in the forward passes over a batch."""
    real, computed = int((batch.rows.prompt_len + batch.rows.response_len).sum()), 0
    for index in micro_batches(batch.rows, tokens):
        part = batch.rows.take(index)
        computed += len(index) * (part.prompt_ids.shape[1] + part.response_ids.shape[1])
    return 1 - real / computed


def point(sweep: str, episodes: int, turns: int, width: int | None = None) -> dict:
    """One line of the table: one step."""
    loop = make_loop(episodes, turns, width)
    seconds, batch = loop.step()
    return {
        "sweep": sweep, "episodes": episodes, "turns": turns,
        "parameters": sum(p.numel() for p in loop.policy.model.parameters()),
        "rows": len(batch.steps), "tokens": int((batch.rows.prompt_len + batch.rows.response_len).sum()),
        "padding": round(padding(batch, loop.s.micro_tokens), 4), "cpu": round(sum(seconds.values()), 4),
        **{phase: round(value, 4) for phase, value in seconds.items()},
    }  # fmt: skip


def sweeps(episodes=EPISODES, turns=TURNS, widths=WIDTHS):
    """All points, one after the other; a first step warms up and does not count."""
    point("warm", GROUP_SIZE, 1)
    yield from (point("episodes", count, MIDDLE["turns"]) for count in episodes)
    yield from (point("turns", MIDDLE["episodes"], count) for count in turns)
    yield from (point("model", MIDDLE["episodes"], MIDDLE["turns"], width) for width in widths)


def line(rows: list[dict]) -> tuple[float, float, float]:
    """Seconds = a + b * tokens by least squares of relative errors, and the largest relative error."""
    tokens, cpu = (np.array([row[name] for row in rows], float) for name in ("tokens", "cpu"))
    (a, b), *_ = np.linalg.lstsq(np.stack([1 / cpu, tokens / cpu], 1), np.ones(len(rows)), rcond=None)
    return a, b, float(np.abs((a + b * tokens) / cpu - 1).max())


def write(rows: list[dict], out: Path) -> None:
    """OUT.csv and OUT.png."""
    with out.with_suffix(".csv").open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    draw(rows, out.with_suffix(".png"))


def draw(rows: list[dict], file: Path) -> None:
    """Seconds over tokens with the line, padding over episodes, seconds a token over parameters."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    by = {name: [row for row in rows if row["sweep"] == name] for name in ("episodes", "turns", "model")}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for name, mark in (("episodes", "o"), ("turns", "s")):
        left.loglog([r["tokens"] for r in by[name]], [r["cpu"] for r in by[name]], mark, label=f"sweep of {name}")
    a, b, _ = line(by["episodes"] + by["turns"])
    reach = np.geomspace(min(r["tokens"] for r in rows), max(r["tokens"] for r in rows))
    left.loglog(reach, a + b * reach, "-", lw=1, label=f"{a:.2f} s + {1e3 * b:.3f} ms a token")
    left.set(xlabel="tokens of the step's rows", ylabel="CPU-s a step")
    left.legend(frameon=False)
    for name, mark in (("episodes", "o-"), ("turns", "s-")):
        middle.semilogx([r["tokens"] for r in by[name]], [100 * r["padding"] for r in by[name]], mark, label=name)
    middle.set(xlabel="tokens of the step's rows", ylabel="padding, % of computed tokens", ylim=(0, None))
    middle.legend(frameon=False)
    right.loglog([r["parameters"] for r in by["model"]], [1e3 * r["cpu"] / r["tokens"] for r in by["model"]], "o-")
    right.set(xlabel="parameters", ylabel="CPU-ms a token")
    right.xaxis.set_minor_formatter("")
    right.yaxis.set_minor_formatter("{x:.1f}")
    for axis in (left, middle, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def share(steps: int, episodes: int) -> None:
    """One process of several: takes steps and prints its CPU seconds after a first one that does not count."""
    loop = make_loop(episodes, MIDDLE["turns"])
    loop.step()
    start = time.process_time()
    for _ in range(steps):
        loop.step()
    seconds = loop.accelerator.gather(torch.tensor([time.process_time() - start]))
    loop.accelerator.print("cpu " + " ".join(f"{value:.3f}" for value in seconds.tolist()))
    loop.accelerator.end_training()


def processes(count: int, steps: int, episodes: int) -> list[float]:
    """CPU seconds of each of `count` processes for the same steps."""
    command = module("torch.distributed.run", "--nproc_per_node", str(count), "-m", "bench.scale")
    done = subprocess.run([*command, "--share", str(steps), str(episodes)], cwd=ROOT, capture_output=True, text=True)
    told = [text for text in done.stdout.splitlines() if text.startswith("cpu ")]
    if done.returncode or not told:
        raise RuntimeError(f"{count} processes did not finish:\n{done.stderr[-2000:]}")
    return [float(value) for value in told[0].split()[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("bench/scale"), help="OUT.csv and OUT.png are written")
    parser.add_argument("--rounds", type=int, default=3, help="of two processes against one")
    parser.add_argument("--share", nargs=2, type=int, metavar=("STEPS", "EPISODES"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.share:
        share(*args.share)
        return
    rows = []
    for row in sweeps():
        rows.append(row)
        print(*(f"{name} {value}" for name, value in row.items()), sep="  ", flush=True)
    write(rows, args.out)
    straight = [row for row in rows if row["sweep"] != "model"]
    a, b, error = line(straight)
    print(f"seconds = {a:.3f} + {1e3 * b:.4f} ms * tokens, largest error {100 * error:.0f} %")
    print(f"padding {100 * min(r['padding'] for r in rows):.0f} to {100 * max(r['padding'] for r in rows):.0f} %")
    one, two = [], []
    for _ in range(args.rounds):
        one.append(sum(processes(1, 2, 32)))
        two.append(sum(processes(2, 2, 32)))
    print(f"two processes / one, CPU-s together: {ratio(two, one)}", flush=True)


if __name__ == "__main__":
    main()
