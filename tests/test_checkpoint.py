"""checkpoint.py: complete or not there, named faults, safe names, one owner."""

import errno
import json
import os
import pickle
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import checkpoint
from card import card as card_of
from policy import add_lora, load_policy
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


DAMAGES = ["cut", "flip", "remove", "no manifest", "bad manifest", "empty manifest", "folder manifest", "outside"]


@pytest.mark.parametrize("damage", DAMAGES)
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
    elif damage == "empty manifest":
        (bad / "manifest.json").write_text("{}")
    elif damage == "folder manifest":
        (bad / "manifest.json").unlink()
        (bad / "manifest.json").mkdir()
    else:
        names = {name: [1, "x"] for name in ("../../etc/passwd", "state.json", "optimizer.safetensors")}
        (bad / "manifest.json").write_text(json.dumps(names))
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


def test_a_disk_that_fills_up_while_writing_keeps_what_was_there(trained, tmp_path):
    """A real refusal of the kernel: no file of this process may grow beyond a few kilobytes."""
    first = checkpoint.save(tmp_path, 1, *trained, {})
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, limit[1]))
    try:
        with pytest.raises(OSError, match=r"checkpoint-2 .*earlier checkpoints are untouched"):
            checkpoint.save(tmp_path, 2, *trained, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert checkpoint.newest(tmp_path) == (first, []) and [p.name for p in tmp_path.iterdir()] == ["checkpoint-1"]


def test_no_room_is_found_out_before_anything_is_written(trained, tmp_path, monkeypatch):
    weights = sum(4 * p.numel() for p in trained[0].model.parameters())
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda folder: SimpleNamespace(free=3 * weights))
    with pytest.raises(OSError, match=r"a checkpoint takes 1 MiB, 0 are free; make room"):
        checkpoint.save(tmp_path, 2, *trained, {})
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda folder: SimpleNamespace(free=3 * weights + 2**20))
    checkpoint.save(tmp_path, 2, *trained, {})
    with pytest.raises(OSError, match="are free"):
        checkpoint.check_room(tmp_path, trained[0].model, ema=trained[0].model)


@pytest.mark.parametrize("where", ["weights", "moments"])
def test_what_is_not_finite_is_not_saved(trained, tmp_path, where):
    policy, optimizer = trained
    weight = policy.model.model.norm.weight
    with torch.no_grad():
        (weight if where == "weights" else optimizer.state[weight]["exp_avg"])[3] = float("nan")
    with pytest.raises(FloatingPointError, match=r"step 2: model.norm.weight.* is not finite; not saved"):
        checkpoint.save(tmp_path, 2, policy, optimizer, {})
    assert not list(tmp_path.iterdir())


def test_a_save_that_is_killed_leaves_no_checkpoint(trained, tmp_path, monkeypatch):
    folder, handle = checkpoint.run_folder(tmp_path, "r", resume=False, overwrite=False)
    checkpoint.save(folder, 1, *trained, {})

    def killed(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "_sync", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(folder, 2, *trained, {})
    assert {p.name for p in folder.iterdir()} == {".lock", ".saving-2", "checkpoint-1"}
    os.close(handle)
    os.close(checkpoint.run_folder(tmp_path, "r", resume=True, overwrite=False)[1])
    assert {p.name for p in folder.iterdir()} == {".lock", "checkpoint-1"}


def test_prune_keeps_the_newest(trained, tmp_path):
    for step in (9, 10, 100):
        checkpoint.save(tmp_path, step, *trained, {})
    checkpoint.prune(tmp_path, 2, 100)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-100"]


def test_prune_never_counts_a_damaged_checkpoint(trained, tmp_path):
    """A run resumed from 2, since 9 was torn, keeps 3 and 2, whatever lies in 9; and other folders are not its own."""
    for step in (1, 2, 9, 3):
        checkpoint.save(tmp_path, step, *trained, {})
    (tmp_path / "checkpoint-9" / "model.safetensors").write_bytes(b"torn")
    (tmp_path / "checkpoint-old").mkdir()
    checkpoint.prune(tmp_path, 1, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["checkpoint-3", "checkpoint-9", "checkpoint-old"]
    assert checkpoint.newest(tmp_path)[0] == tmp_path / "checkpoint-3"


def test_an_adapter_comes_back_with_plain_transformers_and_peft(policy, tmp_path):
    policy.model.save_pretrained(tmp_path / "base")
    policy.tokenizer.save_pretrained(tmp_path / "base")
    policy = load_policy(str(tmp_path / "base"))
    add_lora(policy, 2)
    optimizer = torch.optim.AdamW([p for p in policy.model.parameters() if p.requires_grad], lr=0.1)
    ids = torch.tensor([policy.encode("task say red")])
    policy.model(ids).logits.square().mean().backward()
    for _ in range(3):
        optimizer.step()
    path = checkpoint.save(tmp_path, 1, policy, optimizer, {})
    logits = policy.model(ids).logits
    base = AutoModelForCausalLM.from_pretrained(tmp_path / "base")
    assert not torch.allclose(base(ids).logits, logits, atol=1e-2)
    assert torch.equal(PeftModel.from_pretrained(base, path).eval()(ids).logits, logits)
    assert torch.equal(load_policy(str(path)).model(ids).logits, logits)
    fresh = load_policy(str(tmp_path / "base"))
    add_lora(fresh, 2, seed=1)
    checkpoint.load_weights(path, fresh.model)
    assert torch.equal(fresh.model(ids).logits, logits)
    restored = torch.optim.AdamW([p for p in fresh.model.parameters() if p.requires_grad])
    assert checkpoint.restore(path, fresh.model, restored) == {"step": 1}
    assert len(restored.state) == len(optimizer.state) > 0


class Bomb:
    """What it is to unpickle a stranger's file."""

    def __reduce__(self):
        return exec, ("raise SystemExit('opened')",)


def test_no_pickle_is_written_or_read(trained, tmp_path):
    policy, optimizer = trained
    path = checkpoint.save(tmp_path, 1, policy, optimizer, {})
    assert {file.suffix for file in path.iterdir()} <= {".safetensors", ".json", ".jinja"}
    for place in (tmp_path, path):
        for name in ("pytorch_model.bin", "optimizer.pt", "adapter_model.bin", "model.pt", "random_states_0.pkl"):
            (place / name).write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(SystemExit, match="opened"):
        pickle.loads((path / "model.pt").read_bytes())
    assert checkpoint.newest(tmp_path) == (path, [])
    checkpoint.load_weights(path, policy.model)
    checkpoint.restore(path, policy.model, torch.optim.AdamW(policy.model.parameters()))
    load_policy(str(path))
    (path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"--model .*checkpoint-1: cannot be loaded"):
        load_policy(str(path))
    assert "pickle" not in (ROOT / "checkpoint.py").read_text().split('"""', 2)[2]


def test_a_models_own_code_is_never_run(policy, tmp_path):
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "evil"}))
    (tmp_path / "evil.py").write_text("raise SystemExit('opened')")
    with pytest.raises(ValueError, match="cannot be loaded"):
        load_policy(str(tmp_path))


def test_a_folder_has_one_owner(tmp_path):
    handle = checkpoint.lock(tmp_path)
    code = f"import pathlib, checkpoint; checkpoint.lock(pathlib.Path({str(tmp_path)!r}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert other.returncode != 0 and "another process is running here" in other.stderr
    os.close(handle)
    os.close(checkpoint.lock(tmp_path))


def test_overwriting_waits_for_the_owner_and_takes_runs_alone(tmp_path):
    folder, handle = checkpoint.run_folder(tmp_path, "table/run", resume=False, overwrite=False)
    (folder / "config.json").write_text("{}")
    (folder / "checkpoint-1").mkdir()
    for resume, overwrite in ((False, True), (True, False), (False, False)):
        with pytest.raises(BlockingIOError, match="another process"):
            checkpoint.run_folder(tmp_path, "table/run", resume, overwrite)
    assert (folder / "checkpoint-1").is_dir()
    os.close(handle)
    with pytest.raises(FileExistsError, match="--resume to go on, --overwrite"):
        checkpoint.run_folder(tmp_path, "table/run", resume=False, overwrite=False)
    with pytest.raises(ValueError, match=r"table holds no config.json, so it is no run"):
        checkpoint.run_folder(tmp_path, "table", resume=False, overwrite=True)
    assert (folder / "checkpoint-1").is_dir()
    os.close(checkpoint.run_folder(tmp_path, "table/run", resume=False, overwrite=True)[1])
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_link_out_of_the_results_is_no_run(tmp_path):
    for name, target in (("out", tmp_path), ("loop", tmp_path / "results" / "loop")):
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "results" / name).symlink_to(target)
        with pytest.raises((ValueError, OSError, RuntimeError), match=f"{name}"):
            checkpoint.run_folder(tmp_path / "results", name, resume=True, overwrite=False)
    assert {path.name for path in tmp_path.iterdir()} == {"results"}


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
