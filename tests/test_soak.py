"""500 steps of the shipped policy, with the memory of the process at each: it does not grow after step 50.

    python tests/test_soak.py     # does the run again and draws results/soak/memory.png
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
SMALL = ["--groups", "2", "--group_size", "2", "--max_turns", "2", "--max_response", "8", "--mini_rows", "0"]
OFTEN = ["--eval_tasks", "2", "--eval_every", "50", "--save_every", "50", "--preset", "always", "--tva"]


def memory(steps: int) -> np.ndarray:
    """Resident memory of the process after each of so many steps, MiB: [steps]."""
    with TemporaryDirectory() as folder:
        flags = ["--env", "alfworld", "--steps", str(steps), "--run", "r", "--results", folder, "--threads", "1"]
        done = subprocess.run(
            [sys.executable, "train.py", *flags, *SMALL, *OFTEN],
            cwd=ROOT, env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:]
        lines = (Path(folder) / "r" / "timing.jsonl").read_text().splitlines()
    return np.array([json.loads(line)["memory/process_gb"] for line in lines]) * 1024


def growth(used: np.ndarray) -> float:
    """MiB by which the last hundred steps stand above the hundred from step 50: medians."""
    return float(np.median(used[-100:]) - np.median(used[50:150]))


def test_growth_by_hand():
    assert growth(np.r_[np.zeros(50), np.full(100, 7.0), np.full(100, 9.0)]) == 2


@pytest.mark.slow
def test_memory_does_not_grow():
    assert growth(memory(500)) < 16


def draw(used: np.ndarray, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    axes.plot(np.arange(1, len(used) + 1), used, linewidth=1)
    axes.axvline(50, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel="step", ylabel="resident memory, MiB", ylim=(0, None),
             title=f"{len(used)} steps of the shipped policy: {growth(used):+.1f} MiB after step 50")  # fmt: skip
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    (ROOT / "results" / "soak").mkdir(exist_ok=True)
    used = memory(500)
    np.savetxt(ROOT / "results" / "soak" / "memory.csv", used, fmt="%.1f", header="MiB after each step")
    draw(used, ROOT / "results" / "soak" / "memory.png")
    print(f"{growth(used):+.1f} MiB after step 50; highest {used.max():.0f}")
