"""Makes result folders as train.py writes them, for the tests of analyze.py: numbers drawn from a seed, no training."""

import json
import zlib
from pathlib import Path

import numpy as np

TYPES = {
    "alfworld": ("clean", "cool", "heat", "look", "pick", "pick_two"),
    "webshop": ("electronics", "footwear"),
    "search": ("nq", "hotpotqa", "bamboogle"),
}
ADMISSIBLE = ["go to fridge 1", "take mug 1 from desk 2", "look"]
RESPONSE = ["<think>", "i", " need", " the", " mug", "</think>",
            "<action>", "take", " mu", "g", " 1", " from", " desk", " 2", "</action>", "<|im_end|>"]  # fmt: skip


def settings(env: str = "alfworld", **changes) -> dict:
    return {
        "env": env, "model": "models/tiny", "method": "adrs", "backbone": "grpo", "tva": False, "seed": 0, "steps": 20,
        "fraction": 1.0, "max_turns": 12, "eta": 0.02, "eval_split": "unseen", "run": "x", "results": "results",
        "skill_noise": 0.0,
    } | changes  # fmt: skip


def episode(rng: np.random.Generator, step: int, kind: str, task: str = "task-1", teacher: bool = True) -> dict:
    turns = []
    for turn in range(2):
        n = len(RESPONSE)
        student, gap = -rng.random(n), rng.normal(0, 0.3, n)
        term = [round(float(x), 5) for x in rng.normal(0, 0.02, n)]
        turns.append({
            "prompt": f"Your task is to: take the mug. Step {turn}.", "response": "".join(RESPONSE[:-1]),
            "observation": "You pick up the mug 1.", "admissible": ADMISSIBLE, "action": "take mug 1 from desk 2",
            "valid": True, "reward": float(turn), "tokens": RESPONSE,
            "student_logp": student.round(5).tolist(),
            "teacher_logp": (student + gap).round(5).tolist() if teacher else None,
            "gate": [0.6] * n if teacher else None, "term": term if teacher else None,
            "base_adv": 0.5, "adv": [0.5 + (x if teacher else 0.0) for x in term],
        })  # fmt: skip
    return {"step": step, "set": kind, "task": task, "task_type": "pick", "return": 1.0, "won": True, "ended": "won",
            "turns": turns}  # fmt: skip


def evaluation(rng: np.random.Generator, env: str, step: int, temperature: float, rate: float, n: int, digest: str,
               split: str = "unseen", skills: str = "none") -> dict:  # fmt: skip
    won = (rng.random(n) < rate).astype(int)
    kinds = [TYPES[env][i % len(TYPES[env])] for i in range(n)]
    line = {
        "step": step, "skills": skills, "panel": split, "panel_hash": digest, "temperature": temperature, "n": n,
        "success": float(won.mean()), "score": float(won.mean()), "expert": 0.95, "random": 0.3,
        "types": kinds, "outcomes": "".join(map(str, won)),
    }  # fmt: skip
    if env == "webshop":
        scores = np.maximum(won, rng.random(n).round(4))
        line |= {"scores": scores.tolist(), "score": float(scores.mean())}
    if env == "search":
        line |= {"sources": kinds, "types": ["question"] * n}
    return line


def run(folder: Path, rate: float = 0.6, n: int = 24, digest: str = "aaaabbbbccccdddd", last: int | None = None,
        frozen: bool = False, **changes) -> Path:  # fmt: skip
    """A run that ends at step `last` (default: its last one), its success rising to `rate`."""
    s = settings(**changes)
    rng = np.random.default_rng(zlib.crc32(json.dumps(s | {"run": folder.name}, sort_keys=True).encode()))
    env, steps, end = s["env"], s["steps"], s["steps"] if last is None else last
    teacher = s["method"] not in ("none", "vanilla", "skill_grpo")
    log, timing, evals, episodes = [], [], [], []
    for step in range(end + 1):
        row = {"step": step}
        if step:
            row |= {
                "episode/success_rate": float(rng.random()), "episode/length/mean": 10 - 3 * step / steps,
                "response_length/mean": 20 + float(rng.random()), "episode/reward/mean": float(rng.random()),
                "episode/valid_action_ratio": 0.99, "actor/entropy_loss": 1.0 - 0.5 * step / steps,
                "actor/kl_loss": 0.001 * step, "actor/pg_loss": 0.0, "actor/grad_norm": 1.0,
                "critic/advantages/max": 1.5, "tokens/prompt": 9000.0, "tokens/response": 1500.0,
            }  # fmt: skip
            if s["tva"]:
                row |= {"tva/gate_mean": 0.55, "tva/d_mean": 0.1, "tva/control_mean": 0.12}
            timing.append({"step": step, "time/rollout_s": 1.0, "time/update_s": 0.5, "time/ref_s": 0.1}
                          | ({"time/teacher_s": 0.2} if teacher else {}))  # fmt: skip
        if step % (steps // 4) == 0:
            for skills in ("none", "prompt") if s["method"] in ("skill_grpo", "skill_prompt") else ("none",):
                for temperature in (0.4, 1.0):
                    evals.append(evaluation(rng, env, step, temperature, rate * (0.5 + 0.5 * step / steps), n, digest,
                                            s["eval_split"], skills))  # fmt: skip
            row |= {"val/success_rate": evals[-2]["success"], "val/score": evals[-2]["score"]}
            episodes += [episode(rng, step, "fresh", f"task-{k}", teacher) for k in range(2)]
            episodes += [episode(rng, step, "frozen", f"task-{k}") for k in range(4 * frozen)]
        log.append(row)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"settings": s, "commit": "abc1234", "command": "train.py"}))
    for name, lines in (("log", log), ("timing", timing), ("eval", evals), ("episodes", episodes)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


METHODS = {
    "grpo": {"method": "none"},
    "sdar": {"method": "sdar"},
    "adrs": {"method": "adrs"},
    "adrs-tva": {"method": "adrs", "tva": True},
    "gigpo": {"method": "none", "backbone": "gigpo"},
    "gigpo-adrs": {"method": "adrs", "backbone": "gigpo"},
    "gigpo-adrs-tva": {"method": "adrs", "backbone": "gigpo", "tva": True},
}


def everything(root: Path, n: int = 24, seeds: int = 2, steps: int = 20) -> Path:
    """A folder of results with every experiment of the project in small."""

    def several(table: str, name: str, count: int = seeds, **changes) -> None:
        for seed in range(count):
            run(root / table / f"{name}-s{seed}", n=n, seed=seed, steps=steps, **changes)

    for rank, (name, method) in enumerate(METHODS.items()):
        rate = 0.5 + 0.06 * rank
        for env in TYPES:
            several("main", f"{env}-{name}", rate=rate, env=env, **method)
        several("long", f"{name}", rate=rate, **method)
    for name in ("gigpo", "gigpo-adrs", "gigpo-adrs-tva"):
        several("tva", name, **METHODS[name])
    for noise in (0.0, 0.5, 1.0):
        several("tva-noise", f"adrs-{noise}", skill_noise=noise, **METHODS["adrs-tva"])
    for fraction in (0.2, 0.6, 1.0):
        for name in ("grpo", "adrs-tva"):
            several("data", f"{name}-{fraction}", rate=0.3 + 0.4 * fraction, fraction=fraction, **METHODS[name])
    for turns in (8, 12):
        several("horizon", f"adrs-{turns}", max_turns=turns)
    for split, digest in (("seen", "1111222233334444"), ("unseen", "aaaabbbbccccdddd")):
        for name in ("grpo", "adrs-tva"):
            several("unseen", f"{split}-{name}", eval_split=split, digest=digest, **METHODS[name])
    for model in ("models/tiny", "models/small"):
        several("models", f"adrs-{model[7:]}", model=model)
    several("tokens", "adrs", frozen=True)
    several("tokens", "grpo", **METHODS["grpo"])
    several("ablation", "reference")
    for change in ({"centre": "none"}, {"scale": "none"}, {"eta": 0.1}):
        several("ablation", "-".join(map(str, *change.items())), **change)
    several("baselines", "skill_grpo", method="skill_grpo")
    several("baselines", "vanilla", count=1, method="vanilla")
    return root
