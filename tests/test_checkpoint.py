"""checkpoint.py: complete or not there, named faults, safe names, one owner."""

import errno
import json
import os
import subprocess
import sys

import pytest
import torch

import checkpoint
from card import card as card_of
from tests.conftest import ROOT


@pytest.fixture
def trained(policy):
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.01)
    for parameter in policy.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return policy, optimizer


def test_what_is_saved_comes_back(trained, tmp_path):
    policy, optimizer = trained
    path = checkpoint.save(tmp_path, 3, policy, optimizer, {"pool": {"a": 0.5}})
    assert checkpoint.fault(path) is None and checkpoint.newest(tmp_path) == (path, [])
    fresh = torch.optim.AdamW(policy.model.parameters(), lr=0.01)
    assert checkpoint.restore(path, policy.model, fresh) == {"step": 3, "pool": {"a": 0.5}}
    for parameter in policy.model.parameters():
        for key, value in optimizer.state[parameter].items():
            assert torch.equal(fresh.state[parameter][key], value)
    weight = policy.model.model.norm.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight.zero_()
    checkpoint.load_weights(path, policy.model)
    assert torch.equal(weight, before)


@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "no manifest", "bad manifest", "outside"])
def test_a_damaged_checkpoint_is_passed_over_and_named(trained, tmp_path, damage):
    good = checkpoint.save(tmp_path, 1, *trained, {})
    bad = checkpoint.save(tmp_path, 2, *trained, {})
    file = bad / "model.safetensors"
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "flip":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    elif damage == "remove":
        file.unlink()
    elif damage == "no manifest":
        (bad / "manifest.json").unlink()
    elif damage == "bad manifest":
        (bad / "manifest.json").write_text("{")
    else:
        (bad / "manifest.json").write_text(json.dumps({"../../etc/passwd": [1, "x"]}))
    found, complaints = checkpoint.newest(tmp_path)
    assert found == good and len(complaints) == 1 and "checkpoint-2 is passed over" in complaints[0]


def test_a_full_disk_keeps_what_was_there(trained, tmp_path, monkeypatch):
    first = checkpoint.save(tmp_path, 1, *trained, {})

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match=r"No space left on device.*earlier checkpoints are untouched"):
        checkpoint.save(tmp_path, 2, *trained, {})
    assert checkpoint.newest(tmp_path) == (first, []) and [p.name for p in tmp_path.iterdir()] == ["checkpoint-1"]


def test_a_save_that_is_killed_leaves_no_checkpoint(trained, tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, *trained, {})

    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "_sync", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, *trained, {})
    assert [p.name for p in tmp_path.glob("checkpoint-*")] == ["checkpoint-1"]


def test_prune_keeps_the_newest(trained, tmp_path):
    for step in (9, 10, 100):
        checkpoint.save(tmp_path, step, *trained, {})
    checkpoint.prune(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-100"]


def test_no_pickle_is_written_or_read(trained, tmp_path):
    path = checkpoint.save(tmp_path, 1, *trained, {})
    assert {file.suffix for file in path.iterdir()} <= {".safetensors", ".json", ".jinja"}
    (path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/owned'\ntR.")
    checkpoint.load_weights(path, trained[0].model)
    assert "pickle" not in (ROOT / "checkpoint.py").read_text().split('"""', 2)[2]


def test_a_folder_has_one_owner(tmp_path):
    handle = checkpoint.lock(tmp_path)
    code = f"import pathlib, checkpoint; checkpoint.lock(pathlib.Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert other.returncode != 0 and "another process is running here" in other.stderr
    os.close(handle)
    os.close(checkpoint.lock(tmp_path))


@pytest.mark.parametrize("name", ["..", "../x", "a/../b", ".hidden", "a b", "a/b/c", "", "x" * 101, "a\x00b", "/abs"])
def test_unsafe_names_are_refused(tmp_path, name):
    with pytest.raises(ValueError, match="--run"):
        checkpoint.run_folder(tmp_path, name, resume=False, overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_carries_the_runs_settings_and_a_card(trained, tmp_path):
    policy, optimizer = trained
    settings = {"model": "some/base", "env": "toy", "method": "adrs", "tva": True, "backbone": "grpo", "steps": 9}
    config = {"settings": settings | {"seed": 4}, "command": "train.py --tva", "commit": "abc123",
              "games": "generated", "panels": {"unseen": {"hash": "0f0f", "n": 6}}}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    path = checkpoint.save(tmp_path, 2, policy, optimizer, {})
    assert json.loads((path / "run.json").read_text()) == config and checkpoint.fault(path) is None
    card = (path / "README.md").read_text()
    assert "base_model: some/base" in card and "library_name: transformers" in card
    assert "adrs with TVA on grpo, step 2 of 9" in card and "commit abc123, seed 4" in card and "hash 0f0f" in card
    assert 'AutoModelForCausalLM.from_pretrained("checkpoint-2")' in card
    (tmp_path / "some.gguf").touch()
    told = card_of(config, str(tmp_path), "checkpoint-2", 2, adapter=True)
    assert 'gguf_file="some.gguf")' in told and 'PeftModel.from_pretrained(base, "checkpoint-2")' in told
