"""What several test files share: the test data, a toy domain, a small random policy. CPU only, no network."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")
for variable in ("ALFWORLD_DATA", "WEBSHOP_DATA", "SEARCH_DATA", "SEARCH_URL"):
    os.environ.pop(variable, None)  # the tests name the data that they use
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("ADRS_TEST_DATA", ROOT.parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no test data at {folder} (set ADRS_TEST_DATA)")
    return folder


@pytest.fixture
def policy():
    """A policy of 40 thousand random weights over the toy domain's words."""
    from tests.toy import WORDS
    from warmstart import new_policy

    torch.manual_seed(0)
    policy = new_policy(WORDS, width=32, layers=2)
    for parameter in policy.model.parameters():  # sharper than initial weights, so that tokens differ in log-prob
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return policy


@pytest.fixture
def domain():
    from tests.toy import Toy

    return Toy()


@pytest.fixture
def launch(policy, tmp_path, monkeypatch):
    """Runs train.py on the toy domain and returns the run's folder."""
    import envs
    import train as module
    from settings import parse
    from tests.toy import Toy

    skills = tmp_path / "skills"
    skills.mkdir()
    types = {f"say_{noun}": "all" for noun in ("red", "green", "blue")}
    topics = {noun: f"say {noun}" for noun in ("red", "green", "blue")}
    mapping = {"skill_files": {"all": "all.md"}, "task_to_skill": types, "topics": topics}
    (skills / "skill_mapping.json").write_text(json.dumps(mapping))
    (skills / "all.md").write_text("secret secret")
    policy.model.save_pretrained(tmp_path / "model")
    policy.tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.setattr(envs, "load", lambda name, lean, think_in_prompt: Toy())
    monkeypatch.setattr(module, "skill_folder", lambda env, lean: skills)
    monkeypatch.setattr(signal, "signal", lambda *args: None)  # the test runner keeps its own handlers

    def run(*flags: str):
        own = ["--model", str(tmp_path / "model"), "--results", str(tmp_path / "results"), "--threads", "1"]
        small = ["--groups", "3", "--group_size", "3", "--eval_tasks", "6", "--max_response", "8", "--lr", "0.01"]
        s = parse([*own, *small, "--run", "r", *flags])
        module.train(s)
        return tmp_path / "results" / s.run

    return run
