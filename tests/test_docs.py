"""docs/researcher.md: its three examples run as they stand there, and its numbers are plan.py's."""

import importlib.util
import json
import re
import signal
import sys

import pytest
import torch

import envs
import settings
import train
from envs.base import panel_hash
from grpo import group_stats
from plan import GIB, Lengths, memory, peak, shape_of, without_weights
from rollout import play
from settings import Settings, parse, resolve
from tests.conftest import ROOT
from tests.toy import Toy
from warmstart import new_policy

PAGE = (ROOT / "docs" / "researcher.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (\S+)\n(.*?)```", PAGE, re.DOTALL))
SMALL = "--groups 2 --group_size 3 --max_response 6 --eval_tasks 2 --steps 1 --threads 1 --probe 0 --run r"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Imports an example from a file of its name; what it swaps in train.py is put back afterwards."""
    for name in ("backbone", "SkillProvider"):
        monkeypatch.setattr(train, name, getattr(train, name))
    monkeypatch.setattr(signal, "signal", lambda *args: None)
    monkeypatch.chdir(tmp_path)

    def load(file: str):
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(EXAMPLES[file])
        name = file.removesuffix(".py").replace("/", ".")
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def run(tmp_path, policy):
    """Runs train.py for a step with a policy of random weights and returns its log and the text of all its files."""

    def start(flags: str, policy=policy) -> tuple[list[dict], str]:
        policy.model.save_pretrained(tmp_path / "model")
        policy.tokenizer.save_pretrained(tmp_path / "model")
        train.train(parse(f"--model {tmp_path / 'model'} --results {tmp_path / 'results'} {SMALL} {flags}".split()))
        files = [path for path in (tmp_path / "results" / "r").rglob("*.json*") if path.is_file()]
        log = (tmp_path / "results" / "r" / "log.jsonl").read_text().splitlines()
        return [json.loads(line) for line in log], "".join(path.read_text() for path in files)

    return start


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(envs, "load", lambda name, **options: Toy())


def test_there_are_three_short_examples():
    assert list(EXAMPLES) == ["envs/guess.py", "leave_one_out.py", "notes.py"]
    assert all(len(code.splitlines()) <= 70 for code in EXAMPLES.values())
    assert all(len(line) <= 120 for code in EXAMPLES.values() for line in code.splitlines())


def test_the_environment(example, run, monkeypatch):
    example("envs/guess.py")
    names = (*envs.NAMES, "guess")
    monkeypatch.setattr(envs, "NAMES", names)
    monkeypatch.setitem(settings.CHOICES, "env", names)
    domain = envs.load("guess", lean=True)
    tasks = {split: domain.tasks(split) for split in ("train", "seen", "unseen")}
    ids = [task.id for split in tasks.values() for task in split]
    assert len(set(ids)) == len(ids) == 9
    assert all(panel_hash(split) for split in tasks.values())  # sorted, each task once
    assert all(trajectory.won for trajectory in play(domain, tasks["unseen"], "expert", seed=0))
    assert not all(trajectory.won for trajectory in play(domain, tasks["train"], "random", seed=0))

    env = domain.make()
    env.reset(options={"task": tasks["seen"][0]})
    said = [env.step(f"<think> </think> <action>{guess}</action>")[0] for guess in ("1", "9", "2")]
    assert said == ["higher", "lower", "higher"] and env.step("<action>4</action>")[3]
    for hostile in ("", "\0", "\ud800", "<action>" * 9999, "<action>²</action>", f"<action>{'9' * 9999}</action>"):
        assert env.step(hostile)[1] == 0.0

    words = {word for split in tasks.values() for trajectory in play(domain, split, "random", seed=1)
             for step in trajectory.steps for word in (step.prompt + step.response).split()}  # fmt: skip
    log, _ = run("--env guess --method none", new_policy(sorted(words), width=32, layers=1))
    assert log[1]["episode/length/mean"] <= 4 and "actor/pg_loss" in log[1]


def test_the_method_by_hand(example):
    leave_one_out = example("leave_one_out.py").leave_one_out
    assert train.backbone is leave_one_out
    w = train.World(
        mask=torch.ones(5, 1, dtype=torch.bool), group=torch.tensor([0, 0, 0, 0, 1]),
        episode=torch.tensor([0, 0, 1, 2, 3]), turn=torch.tensor([0, 1, 0, 0, 0]), reward=torch.zeros(5),
        valid=torch.ones(5, dtype=torch.bool), anchors=[], task_ids=[], sampler_logp=torch.zeros(5, 1),
    )  # fmt: skip
    returns = torch.tensor([10.0, 8.0, 0.0, 3.0, 7.0])  # episodes of 9, 0, 3; and one alone in its group
    advantage, std = leave_one_out(Settings(), w, returns, None, None)
    assert advantage[:4].tolist() == [7.5, 7.5, -6.0, -1.5]
    assert advantage[:4].unique().sum() == 0 and std.equal(group_stats(returns, w.group, w.episode, "row", 1e-6)[1])


def test_the_method_trains(example, run, toy):
    example("leave_one_out.py")
    log, _ = run("--method none --max_turns 2 --lr 0.01")
    assert log[1]["critic/advantages/max"] > 1  # in units of the return, not of its deviation
    assert abs(log[1]["actor/grad_norm"]) > 0


def test_the_skill_provider(example, run, toy, tmp_path):
    notes = [{"task": task.id, "note": "secret 7"} for task in Toy().tasks("train")]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))
    example("notes.py")
    log, written = run("--tva --preset always")
    assert log[1]["teacher/gap_std"] > 0 and log[1]["adrs/term_abs_mean"] > 0
    assert "secret 7" not in written and json.loads((tmp_path / "results" / "r" / "config.json").read_text())["skills"]


def test_a_task_without_a_note_stops_the_run(example, run, toy, tmp_path):
    (tmp_path / "notes.jsonl").write_text('{"task": "train/00", "note": "x"}\n')
    example("notes.py")
    with pytest.raises(ValueError, match=r"notes.jsonl: no note for task train/"):
        run("--tva --preset always")


def test_links_and_commands_of_the_page():
    for target in re.findall(r"\]\((\.\./[^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
    for command in re.findall(r"bash reproduce\.sh (.*)", PAGE):
        assert set(command.split()) <= {"--dry_run", "paper", "alfworld", "3b"}
    for flags in re.findall(r"--(?:method|score|skill) \w+", PAGE):
        assert parse(flags.split())
    for module, flags in re.findall(r"`python -m (\S+) ([^`]+)`", PAGE):
        source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
        assert all(f'"{flag}"' in source for flag in re.findall(r"--\w+", flags)), module
    for file in re.findall(r"`(requirements\S*\.txt)`", PAGE):
        assert (ROOT / file).exists(), file


@pytest.mark.slow
def test_the_hardware_table_is_the_plans():
    rows = re.findall(r"^\| (Qwen\S+) \| (LoRA 32|in full), (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 6
    domain = envs.load("alfworld")
    for model, tuned, dtype, numbers in rows:
        name = f"Qwen/{model}" + "-Instruct" * model.startswith("Qwen2.5")
        lora = 32 * tuned.startswith("LoRA")
        shadow = without_weights(shape_of(name)[0], getattr(torch, dtype), lora).model
        parts = []
        for checkpointing in (False, True):
            s = Settings(model=name, lora=lora, dtype=dtype, micro_tokens=8192, eval_tasks=128,
                         gradient_checkpointing=checkpointing)  # fmt: skip
            parts.append(memory(resolve(s, False, True, domain), shadow, Lengths(509, 1109, "")))
        plain, saving = parts
        expected = [
            plain["weights"] + plain["copies"] + plain["gradients"] + plain["optimizer"],
            plain["activations"] + plain["logits"], saving["activations"] + saving["logits"],
            plain["cache"] + plain["prefill"], peak(plain), peak(saving),
        ]  # fmt: skip
        assert [float(x) for x in numbers.split(" | ")] == [pytest.approx(x / GIB, abs=0.06) for x in expected], model
