"""rollout.py: what is sampled, from which stream, with which log-prob, and what is collated."""

import numpy as np
import pytest
import torch

from policy import score
from rollout import InverseCdf, Step, Trajectory, _hf_generate, _loop, collate, generate, play, rollout, stream


def starts(domain, count=4, group_size=2, step=1):
    tasks = domain.tasks("train")[:count]
    return [(g, t, stream(0, step, t, g * group_size + k)) for g, t in enumerate(tasks) for k in range(group_size)]


def test_inverse_cdf_by_hand():
    logits = torch.log(torch.tensor([[0.2, 0.5, 0.3]])).repeat(5, 1)
    sampler = InverseCdf(torch.tensor([[0.0], [0.19], [0.21], [0.69], [0.71]]), temperature=1.0)
    assert sampler.pick(logits).tolist() == [0, 0, 1, 1, 2]
    assert sampler.logp[0].exp().tolist() == pytest.approx([0.2, 0.2, 0.5, 0.5, 0.3], abs=1e-6)


def test_inverse_cdf_follows_the_tempered_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).repeat(40_000, 1)
    draws = torch.from_numpy(np.random.default_rng(0).random((40_000, 1)))
    token = InverseCdf(draws, temperature=0.5).pick(logits)
    share = token.bincount(minlength=4) / 40_000
    assert torch.allclose(share, (logits[0] / 0.5).softmax(0), atol=0.01)


def test_temperature_zero_is_greedy():
    sampler = InverseCdf(torch.full((2, 1), 0.999), temperature=0)
    assert sampler.pick(torch.tensor([[1.0, 3.0, 2.0], [5.0, 0.0, 0.0]])).tolist() == [1, 0]


def test_the_loop_samples_what_generate_samples(policy):
    texts = ("task say red", "turn 1", "task say blue turn 2 secret", "turn 1")  # an equal prompt is read once
    prompts = [policy.encode(text) for text in texts]
    draws = np.random.default_rng(1).random((4, 12))
    results = {}
    for sample in (_loop, _hf_generate):
        from policy import pad_left

        ids, lengths = pad_left(prompts, policy.tokenizer.pad_token_id)
        attention = (torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]).long()
        sampler = InverseCdf(torch.from_numpy(draws), 1.0)
        with torch.no_grad():
            out = sample(policy, ids, attention, sampler)
        results[sample] = (out, torch.stack(sampler.logp, 1))
    ends = set(policy.end_ids)
    for row in range(4):
        loop, hf = (results[sample][0][row].tolist() for sample in (_loop, _hf_generate))
        length = next((j + 1 for j, token in enumerate(loop) if token in ends), len(loop))
        assert loop[:length] == hf[:length]
        logps = (results[sample][1][row, :length] for sample in (_loop, _hf_generate))
        assert torch.allclose(*logps, atol=1e-5)


def test_equal_prompts_are_read_once(policy, monkeypatch):
    forward, read = policy.model.forward, []
    monkeypatch.setattr(policy.model, "forward", lambda **k: read.append(tuple(k["input_ids"].shape)) or forward(**k))
    generate(policy, [[7, 8, 9]] * 5 + [[7, 8]], np.full((6, 3), 0.5), 1.0)
    assert read[0] == (2, 3) and all(shape == (6, 1) for shape in read[1:])


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_samplers_log_probs_are_those_that_training_scores(policy, domain, temperature):
    trajectories = rollout(policy, domain, starts(domain), temperature, max_tokens=10)
    batch = collate(trajectories, policy.tokenizer.pad_token_id)
    rescored = score(policy.model, batch.rows, temperature, 200)
    assert torch.allclose(rescored, batch.sampler_logp, atol=2e-5)


def test_an_episode_does_not_depend_on_its_company(policy, domain):
    together = rollout(policy, domain, starts(domain), 1.0, 10)
    alone = [rollout(policy, domain, [start], 1.0, 10)[0] for start in starts(domain)]
    assert [[s.response_ids for s in t.steps] for t in together] == [[s.response_ids for s in t.steps] for t in alone]


def test_streams_differ_by_seed_step_task_and_episode(domain):
    one, two = domain.tasks("train")[:2]
    keys = [(0, 1, one, 0), (1, 1, one, 0), (0, 2, one, 0), (0, 1, two, 0), (0, 1, one, 1)]
    draws = {tuple(stream(*key).random(4)) for key in keys}
    assert len(draws) == 5
    assert stream(0, 1, one, 0).random() == stream(0, 1, one, 0).random()


def test_episodes_of_a_group_differ(policy, domain):
    trajectories = rollout(policy, domain, starts(domain, count=1, group_size=6), 1.0, 10)
    assert len({str([s.response_ids for s in t.steps]) for t in trajectories}) > 1


def test_finished_episodes_leave_the_batch_and_say_how_they_ended(policy, domain, monkeypatch):
    import rollout as module

    sizes = []

    def scripted(policy, prompts, draws, temperature):
        sizes.append(len(prompts))
        ids = policy.encode_raw("<think> </think> <action> say red </action>")
        return [([*ids, policy.tokenizer.eos_token_id], [0.0] * (len(ids) + 1)) for _ in prompts]

    monkeypatch.setattr(module, "generate", scripted)
    trajectories = module.rollout(policy, domain, starts(domain, count=3, group_size=2), 1.0, 10)
    assert sizes == [6, 4, 4]  # the two episodes about red are won at once, the others run to the third turn
    assert [t.ended for t in trajectories] == ["won", "won", "turns", "turns", "turns", "turns"]
    assert [len(t.steps) for t in trajectories] == [1, 1, 3, 3, 3, 3]
    assert [t.steps[0].reward for t in trajectories] == [10, 10, 0, 0, 0, 0]
    assert all(s.valid and s.action == "say red" for t in trajectories for s in t.steps)


def test_prompts_show_the_window_and_not_more(policy, domain):
    domain.max_turns = 5
    trajectory = max(rollout(policy, domain, starts(domain), 1.0, 8), key=lambda t: len(t.steps))
    assert len(trajectory.steps) == 5
    for t, step in enumerate(trajectory.steps):
        assert [f"turn {k}" in step.prompt for k in range(5)] == [max(0, t - 2) <= k <= t for k in range(5)]
        assert step.prompt_ids == policy.encode(step.prompt)


def test_a_prompt_too_long_is_an_error_that_names_the_task(policy, domain):
    with pytest.raises(ValueError, match=r"train/00.*context of 1024"):
        rollout(policy, domain, starts(domain, count=1), 1.0, max_tokens=1020)


def step(prompt, response, reward=0.0, valid=True):
    return Step("", prompt, response, [-0.5] * len(response), "", "", (), "a", "", valid, reward)


def test_collate_by_hand(domain):
    one, two = domain.tasks("train")[:2]
    trajectories = [
        Trajectory(one, 0, [step([5], [6, 7]), step([5, 6, 7], [8], reward=10.0)], won=True),
        Trajectory(two, 3, [step([9, 9], [1], valid=False)]),
    ]
    batch = collate(trajectories, pad=0)
    assert batch.rows.prompt_ids.tolist() == [[0, 0, 5], [5, 6, 7], [0, 9, 9]]
    assert batch.rows.response_ids.tolist() == [[6, 7], [8, 0], [1, 0]]
    assert batch.rows.mask.tolist() == [[True, True], [True, False], [True, False]]
    assert batch.reward.tolist() == [0, 10, 0] and batch.valid.tolist() == [True, True, False]
    assert batch.group.tolist() == [0, 0, 3]
    assert batch.episode.tolist() == [0, 0, 1] and batch.turn.tolist() == [0, 1, 0]
    assert [task.id for task in batch.tasks] == [one.id, one.id, two.id]
    with pytest.raises(ValueError, match="nothing to train on"):
        collate([], pad=0)


def test_generate_cuts_behind_the_end_token(policy):
    draws = np.random.default_rng(3).random((8, 30))
    responses = generate(policy, [policy.encode("turn 1")] * 8, draws, 1.0)
    ends = set(policy.end_ids)
    assert any(ids[-1] in ends for ids, _ in responses)
    for ids, logp in responses:
        assert len(ids) == len(logp) <= 30 and not ends & set(ids[:-1])


def test_scripted_play_has_its_ceiling_and_its_floor(domain):
    tasks = domain.tasks("unseen")
    rates = {kind: np.mean([t.won for t in play(domain, tasks, kind, 0)]) for kind in ("expert", "random")}
    assert rates["expert"] == 1.0 and 0 < rates["random"] < 1.0
