"""teacher.py: who gets which skill, what the teacher reads, and that it scores the sampled ids."""

import json
from dataclasses import replace

import pytest
import torch

from policy import score
from rollout import collate, rollout, stream
from teacher import HEADER, SkillProvider, Teacher, skill_folder, with_skill


@pytest.fixture
def folder(tmp_path):
    mapping = {
        "skill_files": {"r": "r.md", "gb": "gb.md"},
        "task_to_skill": {"say_red": "r", "say_green": "gb", "say_blue": "gb"},
        "topics": {"red": "turn 1", "green": "turn 2", "blue": "turn 3"},
    }
    (tmp_path / "skill_mapping.json").write_text(json.dumps(mapping))
    (tmp_path / "r.md").write_text("say red\n")
    (tmp_path / "gb.md").write_text("say green blue")
    (tmp_path / "general_skills.md").write_text("secret")
    return tmp_path


@pytest.fixture
def batch(policy, domain):
    tasks = domain.tasks("train")[:3]
    trajectories = rollout(policy, domain, [(g, t, stream(0, 1, t, g)) for g, t in enumerate(tasks)], 1.0, 8)
    return collate(trajectories, policy.tokenizer.pad_token_id)


def test_every_task_gets_general_type_and_topic(folder, domain):
    red, green, blue = domain.tasks("train")[:3]
    provider = SkillProvider(folder)
    assert provider.text(red) == "secret\n\nsay red\n\nturn 1"
    assert provider.text(green) == "secret\n\nsay green blue\n\nturn 2"
    assert provider.text(blue) == "secret\n\nsay green blue\n\nturn 3"


def test_the_other_kinds(folder, domain):
    red = domain.tasks("train")[0]
    assert SkillProvider(folder, "general").text(red) == "secret"
    assert SkillProvider(folder, "none").text(red) == ""
    wrong = SkillProvider(folder, "shuffled").text(red)
    assert wrong != SkillProvider(folder).text(red) and "turn 1" not in wrong and wrong.startswith("secret")


def test_noise_gives_its_share_of_tasks_a_wrong_skill(folder, domain):
    tasks = [replace(domain.tasks("train")[0], id=str(i)) for i in range(2000)]
    right = SkillProvider(folder).text(tasks[0])
    for noise in (0.0, 0.25, 1.0):
        provider = SkillProvider(folder, noise=noise, seed=3)
        share = sum(provider.text(task) != right for task in tasks) / len(tasks)
        assert share == pytest.approx(noise, abs=0.03)
        assert [provider.is_wrong(t) for t in tasks[:50]] == [provider.is_wrong(t) for t in tasks[:50]]


def test_what_is_wrong_is_named(folder, domain):
    with pytest.raises(ValueError, match=r"skill_mapping.json: no skill for task type 'swim'"):
        SkillProvider(folder).text(replace(domain.tasks("train")[0], type="swim"))
    with pytest.raises(ValueError, match="--skill best"):
        SkillProvider(folder, "best")
    (folder / "gb.md").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match=r"gb.md: not UTF-8"):
        SkillProvider(folder)
    (folder / "gb.md").unlink()
    with pytest.raises(FileNotFoundError, match=r"gb.md: skill file missing"):
        SkillProvider(folder)
    (folder / "skill_mapping.json").write_text('{"skill_files": {}, "task_to_skill": {"say_red": "r"}}')
    with pytest.raises(ValueError, match="names r, which skill_files lacks"):
        SkillProvider(folder)
    for broken in ("{", "[]", '{"skill_files": 3}', '{"skill_files": {}}'):
        (folder / "skill_mapping.json").write_text(broken)
        with pytest.raises(ValueError, match=r"skill_mapping.json: not a skill mapping"):
            SkillProvider(folder)


def test_the_fingerprint_changes_with_the_text(folder):
    before = SkillProvider(folder).fingerprint()
    assert before == SkillProvider(folder).fingerprint()
    (folder / "r.md").write_text("say blue")
    assert SkillProvider(folder).fingerprint() != before


def test_the_teacher_reads_the_skill_and_then_the_students_prompt(policy, batch, folder):
    provider = SkillProvider(folder)
    system = Teacher(policy, provider).prompts(batch)
    raw = Teacher(policy, provider, placement="raw_prefix").prompts(batch)
    for task, step, in_system, in_front in zip(batch.tasks, batch.steps, system, raw, strict=True):
        skill = provider.text(task)
        assert in_system[-len(step.prompt_ids) :] == step.prompt_ids == in_front[-len(step.prompt_ids) :]
        assert policy.tokenizer.decode(in_system).startswith("<|system|> " + " ".join(skill.split()))
        assert in_front[: -len(step.prompt_ids)] == policy.encode_raw(f"{HEADER}\n{skill}\n\n")


def test_an_empty_skill_makes_the_teacher_the_student(policy, batch, folder):
    teacher = Teacher(policy, SkillProvider(folder, "none"))
    assert torch.equal(teacher.logp(batch, policy.model, 1.0, 300), score(policy.model, batch.rows, 1.0, 300))


def test_a_skill_changes_the_log_probs_of_the_same_ids(policy, batch, folder):
    told = Teacher(policy, SkillProvider(folder)).logp(batch, policy.model, 1.0, 300)
    plain = score(policy.model, batch.rows, 1.0, 300)
    assert told.shape == plain.shape and (told[~batch.rows.mask] == 0).all()
    assert (told - plain)[batch.rows.mask].abs().mean() > 0.01


def test_teacher_log_probs_equal_a_plain_computation(policy, batch, folder):
    teacher = Teacher(policy, SkillProvider(folder))
    logp, prompts = teacher.logp(batch, policy.model, 0.7, 150), teacher.prompts(batch)
    for row in (0, len(prompts) - 1):
        ids = batch.steps[row].response_ids
        logits = policy.model(torch.tensor([prompts[row] + ids])).logits[0, -len(ids) - 1 : -1] / 0.7
        slow = logits.log_softmax(-1)[torch.arange(len(ids)), ids]
        assert torch.allclose(logp[row, : len(ids)], slow, atol=2e-5)


def test_live_frozen_and_ema_teachers(policy, batch, folder):
    provider = SkillProvider(folder)
    live, frozen, ema = (Teacher(policy, provider, kind, decay=0.5) for kind in ("live", "frozen", "ema"))
    before = live.logp(batch, policy.model, 1.0, 300)
    weight = policy.model.model.layers[0].mlp.up_proj.weight
    old = weight.detach().clone()
    with torch.no_grad():
        weight.add_(0.5)
    for teacher in (live, frozen, ema):
        teacher.follow(policy.model)
    assert torch.equal(frozen.logp(batch, policy.model, 1.0, 300), before)
    assert not torch.allclose(live.logp(batch, policy.model, 1.0, 300), before)
    assert torch.allclose(ema.copy.model.layers[0].mlp.up_proj.weight, old + 0.25, atol=1e-6)
    with pytest.raises(ValueError, match="--teacher best"):
        Teacher(policy, provider, "best")
    with pytest.raises(ValueError, match="--placement below"):
        Teacher(policy, provider, "live", "below")


def test_nothing_is_cut(policy, batch, folder):
    (folder / "general_skills.md").write_text("secret " * 1100)
    with pytest.raises(ValueError, match="the model's context is 1024"):
        Teacher(policy, SkillProvider(folder)).logp(batch, policy.model, 1.0, 300)


def test_skill_in_the_acting_prompt(policy, domain, folder):
    red = domain.tasks("train")[0]
    encode = with_skill(policy, SkillProvider(folder))
    assert policy.tokenizer.decode(encode(red, "turn 0")).startswith("<|system|> secret say red turn 1 <|user|> turn 0")
    policy.lean = False
    assert policy.tokenizer.decode(encode(red, "turn 0")).startswith("<|user|>")


@pytest.mark.parametrize("lean", [False, True])
@pytest.mark.parametrize("env", ["alfworld", "webshop", "search"])
def test_the_shipped_skills_cover_every_task_type(env, lean):
    import envs

    try:
        domain = envs.load(env)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    provider = SkillProvider(skill_folder(env, lean))
    for split in ("train", "unseen"):
        for task in domain.tasks(split):
            assert provider.text(task)
