"""bank.py: items, search, and that it serves a teacher as the provider does."""

import json
from dataclasses import replace

import pytest

from bank import SkillBank, items_of
from envs.base import Task
from teacher import SkillProvider, Teacher

TASK = Task("t/0", "put", "put a clean mug in shelf.", "mug")


@pytest.fixture
def provider(tmp_path):
    mapping = {"skill_files": {"put": "put.md"}, "task_to_skill": {"put": "put"},
               "topics": {"mug": "mug : usually in cabinet .", "pan": "pan : usually on stove ."}}  # fmt: skip
    (tmp_path / "skill_mapping.json").write_text(json.dumps(mapping))
    put = "# Putting\n\n1. Clean first: wash it in the\n   sink. Apply when clean.\n2. Sofa: sit.\n"
    (tmp_path / "put.md").write_text(put)
    return SkillProvider(tmp_path)


def test_items_are_entries_or_lines():
    assert items_of("# H\n\n1. one\n   more\n2. two\n\nprose") == ["one more", "two"]
    assert items_of("- a\n- b") == ["a", "b"] and items_of("x y\nz") == ["x y", "z"] and items_of("# only") == []


def test_the_goal_finds_its_items_best_first(provider):
    bank = SkillBank(provider, topk=2)
    found = bank.text(TASK).splitlines()
    assert len(found) == 2 and set(found) == {
        "mug : usually in cabinet .", "Clean first: wash it in the sink. Apply when clean.",
    }  # fmt: skip
    assert "pan" not in bank.text(TASK) and "pan" in bank.text(replace(TASK, goal="find a pan"))
    assert SkillBank(provider, topk=1).text(replace(TASK, goal="the mug, the mug")) == "mug : usually in cabinet ."


def test_nothing_in_common_is_an_empty_skill(provider):
    assert SkillBank(provider).text(replace(TASK, goal="xyzzy")) == ""
    with pytest.raises(ValueError, match="--skills_topk 0"):
        SkillBank(provider, topk=0)


def test_a_teacher_takes_it_as_it_takes_the_provider(provider, policy):
    teacher = Teacher(policy, SkillBank(provider))
    assert teacher.provider.text(TASK) and teacher.provider.fingerprint() != provider.fingerprint()


def test_the_shipped_notes_are_found_by_their_tasks():
    import envs
    from teacher import skill_folder

    provider = SkillProvider(skill_folder("alfworld", lean=True))
    bank = SkillBank(provider, topk=3)
    tasks = envs.load("alfworld").tasks("seen")
    assert all(provider.topics[task.topic] in bank.text(task) for task in tasks)
