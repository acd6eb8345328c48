"""Every method on every environment and both backbones: two steps with a policy of random weights."""

import json

import pytest
import torch

import envs
from settings import EVALUATION_ONLY, METHODS, parse
from train import train
from warmstart import new_policy


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A random policy in the words of each environment, as an ordinary folder."""
    folders = {}
    for env in envs.NAMES:
        torch.manual_seed(1)
        policy = new_policy(envs.load(env, lean=True).words(), width=32, layers=1)
        folders[env] = tmp_path_factory.mktemp(env)
        policy.model.save_pretrained(folders[env])
        policy.tokenizer.save_pretrained(folders[env])
    return folders


@pytest.mark.parametrize("env", envs.NAMES)
@pytest.mark.parametrize("backbone", ["grpo", "gigpo"])
@pytest.mark.parametrize("method", [*METHODS, "adrs --tva"])
def test_two_steps(models, tmp_path, monkeypatch, env, method, backbone):
    monkeypatch.setattr("signal.signal", lambda *args: None)
    steps = 0 if method in EVALUATION_ONLY else 2
    what = f"--env {env} --model {models[env]} --method {method} --backbone {backbone}"
    flags = f"{what} --steps {steps} --results {tmp_path}"
    small = "--groups 2 --group_size 2 --max_turns 2 --max_response 6 --eval_tasks 3 --eval_temperatures 1.0 --run r"
    train(parse(f"{flags} {small} --threads 1 --preset always".split()))
    log = [json.loads(line) for line in (tmp_path / "r" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in log] == list(range(steps + 1))
    assert all(abs(row["actor/pg_loss"]) < 1e3 for row in log[1:])
