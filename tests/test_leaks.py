"""A canary in every skill: it sings in the teacher's prompts, of the right type, and nowhere else."""

import json
import sys

import pytest

import rollout
import teacher
from tests.toy import CANARY, launcher, lines, toy_policy


def sung(text: str) -> list[str]:
    """Whose canaries a text holds."""
    return [noun for noun, song in CANARY.items() if song in text]


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """(flags) -> (the run's folder, students' prompts, the teacher's (task, prompt) pairs, all that was printed)."""
    students, taught, policy = [], [], toy_policy()
    generate, prompts = rollout.generate, teacher.Teacher.prompts

    def seen(policy, ids, *rest):
        students.extend(policy.tokenizer.decode(row) for row in ids)
        return generate(policy, ids, *rest)

    def taught_by(self, batch):
        ids = prompts(self, batch)
        taught.extend((task, self.policy.tokenizer.decode(row)) for task, row in zip(batch.tasks, ids, strict=True))
        return ids

    monkeypatch.setattr(rollout, "generate", seen)
    monkeypatch.setattr(teacher.Teacher, "prompts", taught_by)
    launch = launcher(tmp_path, policy, monkeypatch)

    def go(*flags: str):
        folder = launch("--steps", "2", "--preset", "always", "--eval_every", "1", "--save_every", "1", *flags)
        return folder, students, taught, "".join(capfd.readouterr())

    return go


def leaked(folder) -> list[str]:
    """The files of a run that hold a canary."""
    return [path.name for path in sorted(folder.rglob("*")) if path.is_file() and sung(path.read_text("latin-1"))]


METHODS = ["--tva", "--tva --skills bank", "--tva --skill shuffled", "--placement raw_prefix", "--teacher ema",
           "--method sdar --lora 2", "--method rlsd"]  # fmt: skip


@pytest.mark.parametrize("flags", METHODS)
def test_the_canary_reaches_the_teacher_alone(run, flags):
    folder, students, taught, printed = run(*flags.split())
    assert len(students) > 50 and not any(map(sung, students))
    assert leaked(folder) == [] and not sung(printed)
    assert (folder / "checkpoint-2" / "tokenizer.json").is_file() and (folder / "episodes.jsonl").stat().st_size > 0
    assert {task.topic for task, _ in taught} == set(CANARY) and len(taught) > 20
    for task, prompt in taught:
        assert len(sung(prompt)) == 1 and (sung(prompt) == [task.topic]) == ("shuffled" not in flags)


def test_the_net_would_catch_a_leak(tmp_path):
    (tmp_path / "log.jsonl").write_text(json.dumps({"step": 0, "note": CANARY["green"]}))
    assert leaked(tmp_path) == ["log.jsonl"]


def test_skills_in_the_prompt_stay_out_of_files_and_of_the_plain_evaluation(run):
    """Skill-GRPO acts with the skill; the headline is played without it, and nothing written down holds it."""
    folder, students, taught, printed = run("--method", "skill_grpo", "--eval_temperatures", "0.4")
    shown = [bool(sung(text)) for text in students]
    assert any(shown) and not taught
    assert leaked(folder) == [] and not sung(printed)
    evaluated = [row["skills"] for row in lines(folder / "eval.jsonl")]
    assert evaluated == ["none", "prompt"] * 3
    assert 6 <= shown.index(True) <= 18  # the first evaluation, of six tasks of up to three turns, is the plain one


def test_evaluation_does_not_even_load_the_provider(monkeypatch):
    """In a fresh interpreter `evaluate` brings no teacher along (test_structure follows the imports in the text)."""
    for name in ("teacher", "bank", "train", "settings", "evaluate"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import evaluate  # noqa: F401

    assert not {"teacher", "bank", "train", "settings"} & set(sys.modules)
