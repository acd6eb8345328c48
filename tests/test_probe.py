"""probe.py: the same episodes at every evaluation, scored by the weights of the day."""

import json

import pytest
import torch

from probe import Probe
from teacher import SkillProvider, Teacher
from tests.toy import Toy, lines


def frozen(folder) -> dict[int, list[dict]]:
    """The frozen episodes of a run by step."""
    found: dict[int, list[dict]] = {}
    for row in lines(folder / "episodes.jsonl"):
        if row["set"] == "frozen":
            found.setdefault(row["step"], []).append(row)
    return found


def texts(rows: list[dict]) -> list:
    return [[turn["response"] for turn in row["turns"]] for row in rows]


def test_a_run_of_any_method_scores_the_same_episodes_at_every_evaluation(launch):
    flags = ("--steps", "2", "--eval_every", "1", "--probe", "3")
    plain = frozen(launch(*flags, "--method", "none", "--run", "plain"))
    adrs = frozen(launch(*flags, "--preset", "always", "--seed", "7", "--run", "adrs"))
    assert sorted(plain) == [0, 1, 2] and all(len(rows) == 3 for rows in plain.values())
    assert texts(plain[0]) == texts(plain[2]) == texts(adrs[1]) and plain[0] == adrs[0]
    scores = [[turn[kind] for row in plain[step] for turn in row["turns"]] for step in (0, 2)
              for kind in ("student_logp", "teacher_logp")]  # fmt: skip
    assert all(a != b for i, a in enumerate(scores) for b in scores[:i])


def test_a_resumed_run_goes_on_with_the_episodes_of_the_initial_policy(launch):
    flags = ("--eval_every", "1", "--probe", "3", "--method", "none")
    whole = frozen(launch("--steps", "3", *flags, "--run", "whole"))
    launch("--steps", "1", *flags, "--run", "part")
    part = frozen(launch("--steps", "3", *flags, "--resume", "--run", "part"))
    assert part == whole


def test_none_are_kept_where_none_are_asked_for(launch):
    assert frozen(launch("--steps", "1", "--method", "none", "--probe", "0")) == {}


@pytest.fixture
def provider(tmp_path):
    types = {f"say_{noun}": "all" for noun in ("red", "green", "blue")}
    mapping = {"skill_files": {"all": "all.md"}, "task_to_skill": types}
    (tmp_path / "skill_mapping.json").write_text(json.dumps(mapping))
    (tmp_path / "all.md").write_text("secret secret")
    return SkillProvider(tmp_path)


def test_it_says_what_the_teacher_and_the_student_say(policy, provider):
    watched = Probe(policy, Toy(), Toy().tasks("unseen")[:3], provider, 1.0, 8)
    found = watched.measure(10**6)
    torch.testing.assert_close(found["student_logp"], watched.batch.sampler_logp, atol=1e-4, rtol=0)
    teacher = Teacher(policy, provider).logp(watched.batch, policy.model, 1.0, 10**6)
    torch.testing.assert_close(found["teacher_logp"], teacher)
    assert found["student_logp"][watched.mask].ne(found["teacher_logp"][watched.mask]).any()
    with torch.no_grad():
        next(policy.model.parameters()).add_(0.1)
    assert not torch.equal(watched.measure(10**6)["student_logp"], found["student_logp"])
