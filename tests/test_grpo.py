"""grpo.py: hand values, slow twins, gradients of the loss, float noise, and TRL's loss as an oracle where it is."""

import math
import statistics

import pytest
import torch

from grpo import group_advantage, group_stats, k3, row_score, surrogate
from tests.ragged import SEEDS, close, pure, ragged, tokens


def advantage(score, group, episode=None, unit: str = "row", by_std: bool = True) -> torch.Tensor:
    score, group = torch.as_tensor(score), torch.as_tensor(group)
    episode = torch.arange(len(score)) if episode is None else torch.as_tensor(episode)
    return group_advantage(score, *group_stats(score, group, episode, unit), by_std)


# -------------------------------------------------------------------------------------------------- row_score


def test_row_score_by_hand():
    """Episode 4 earns 10 on its two rows; the penalty stays on the row that was invalid."""
    reward, episode = torch.tensor([0.0, 0.0, 10.0]), torch.tensor([4, 2, 4])
    valid = torch.tensor([False, True, True])
    close(pure(row_score, reward, valid, episode, 0.1), [9.9, 0.0, 10.0])
    for kind in (torch.long, torch.uint8, torch.float):
        close(row_score(reward, valid.to(kind), episode, 0.1), [9.9, 0.0, 10.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_row_score_equals_its_slow_twin(seed):
    r = ragged(seed)
    reward, valid, episode = r.reward.tolist(), r.valid.tolist(), r.episode.tolist()
    want = [sum(x for x, e in zip(reward, episode, strict=True) if e == mine) - (0.0 if ok else 0.5)
            for mine, ok in zip(episode, valid, strict=True)]  # fmt: skip
    close(pure(row_score, r.reward, r.valid, r.episode, 0.5), want)
    close(row_score(r.reward.flip(0), r.valid.flip(0), 90 - r.episode.flip(0), 0.5).flip(0), want)


# --------------------------------------------------------------------------------- group_stats, group_advantage


def test_advantage_by_hand():
    """Mean 1/2; unbiased deviation sqrt(1/3)."""
    a = 0.5 / (math.sqrt(1 / 3) + 1e-6)
    close(advantage([1.0, 0.0, 1.0, 0.0], [0, 0, 0, 0]), [a, -a, a, -a])
    close(advantage([1.0, 0.0, 1.0, 0.0], [0, 0, 0, 0], by_std=False), [0.5, -0.5, 0.5, -0.5])
    a = 1.5e-4 / (3e-4 * math.sqrt(0.5) + 1e-6)
    close(advantage([3e-4, 0.0], [0, 0]), [a, -a])


def test_rows_and_episodes_as_units_by_hand():
    """An episode of three rows scores 1, one of one row scores 0: long episodes weigh more by row."""
    score, group, episode = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([2] * 4), torch.tensor([8, 8, 8, 5])
    mean, std = pure(group_stats, score, group, episode, "row")
    close(mean, [0.75] * 4)
    close(std, [0.5] * 4)
    mean, std = pure(group_stats, score, group, episode, "episode")
    close(mean, [0.5] * 4)
    close(std, [math.sqrt(0.5)] * 4)


def test_rows_and_episodes_as_units_agree_on_episodes_of_one_row():
    score, group, episode = torch.tensor([1.0, 0.0, 4.0, 2.0, 3.0]), torch.tensor([0, 0, 0, 1, 1]), torch.arange(5)
    for by_row, by_episode in zip(*(group_stats(score, group, episode, u) for u in ("row", "episode")), strict=True):
        torch.testing.assert_close(by_row, by_episode)


def test_on_even_episodes_units_agree_in_the_mean():
    """And differ in the deviation only by what unbiased means: 2 units less one, or 6 rows less one."""
    score, group, episode = torch.tensor([1.0, 0.0] * 3), torch.zeros(6, dtype=torch.long), torch.tensor([0, 1] * 3)
    (row_mean, row_std), (mean, std) = (group_stats(score, group, episode, unit) for unit in ("row", "episode"))
    torch.testing.assert_close(row_mean, mean)
    torch.testing.assert_close(row_std, std * math.sqrt(3 / 5))


def twin_stats(score: list, group: list, episode: list, unit: str) -> tuple[list, list]:
    means, stds = [], []
    for g in group:
        mine = [k for k in range(len(group)) if group[k] == g]
        if unit == "row":
            values = [score[k] for k in mine]
        else:
            names = sorted({episode[k] for k in mine})
            values = [statistics.fmean(score[k] for k in mine if episode[k] == e) for e in names]
        means.append(statistics.fmean(values))
        stds.append(statistics.stdev(values) if len(values) > 1 and max(values) > min(values) else 0.0)
    return means, stds


@pytest.mark.parametrize("unit", ["row", "episode"])
@pytest.mark.parametrize("seed", SEEDS)
def test_group_stats_and_advantage_equal_their_slow_twins(seed, unit):
    r = ragged(seed)
    score = row_score(r.reward, r.valid, r.episode, 0.5)
    mean, std = pure(group_stats, score, r.group, r.episode, unit)
    means, stds = twin_stats(*(v.tolist() for v in (score, r.group, r.episode)), unit)
    close(mean, means)
    close(std, stds)
    for by_std in (True, False):
        want = [0.0 if sd == 0 else (s - m) / (sd + 1e-6 if by_std else 1)
                for s, m, sd in zip(score.tolist(), means, stds, strict=True)]  # fmt: skip
        close(pure(group_advantage, score, mean, std, by_std), want)
        assert any(want)


def test_advantages_of_a_group_sum_to_zero_and_ignore_a_constant_and_a_scale():
    r = ragged(1)
    score = row_score(r.reward, r.valid, r.episode, 0.5)
    a = advantage(score, r.group, r.episode)
    for g in r.group.unique():
        assert a[r.group == g].sum().abs() < 1e-5
    torch.testing.assert_close(advantage(score + 7, r.group, r.episode), a, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(advantage(score * 3, r.group, r.episode), a, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(advantage(score * 3, r.group, r.episode, by_std=False),
                               3 * advantage(score, r.group, r.episode, by_std=False))  # fmt: skip
    torch.testing.assert_close(advantage(score.flip(0), 70 - r.group.flip(0), r.episode.flip(0)).flip(0), a)


def test_a_group_keyed_by_its_own_row_has_nothing_to_compare():
    """rllm issue 605: such advantages were the raw rewards."""
    assert not advantage([1.0, 0.0, 1.0, 0.0], [0, 1, 2, 3]).any()
    assert not advantage([1.0, 0.4, 1.0], [0, 0, 0], [6, 6, 6], unit="episode").any()


@pytest.mark.parametrize("unit", ["row", "episode"])
@pytest.mark.parametrize("by_std", [True, False])
@pytest.mark.parametrize(
    "score",
    [[0.1] * 3, [10.1] * 7, [-0.3] * 3, [0.1 + 0.2, 0.3], [1.0, 1.0000001, 1.0], [0.0, 1e-7], [-9.9, -9.900001, -9.9]],
)
def test_equal_scores_give_exactly_zero(score, by_std, unit):
    group = [0] * len(score)
    assert not advantage(score, group, by_std=by_std, unit=unit).any()
    assert not advantage(score * 2, group * 2, list(range(len(score))) * 2, unit, by_std).any()


def test_equal_returns_summed_in_another_order_give_exactly_zero():
    """Ten rewards of 0.1, or one of 1: in float32 they differ by 1.2e-7, which over 1e-6 is not nothing."""
    reward = torch.tensor([0.1] * 10 + [1.0])
    score = row_score(reward, torch.ones(11, dtype=torch.bool), torch.tensor([0] * 10 + [1]), 0.1)
    assert score[0] != score[-1]
    group, episode = torch.zeros(11, dtype=torch.long), torch.tensor([0] * 10 + [1])
    for unit in ("row", "episode"):
        assert not advantage(score, group, episode, unit).any()
        noisy = group_advantage(score, *group_stats(score, group, episode, unit, floor=0.0))
        assert noisy.abs().max() > 0.01


def test_a_small_true_difference_is_not_taken_for_noise():
    for low, high in ((0.0, 1e-5), (10.0, 10.0001), (-10.0, -9.9999)):
        a = advantage([low, high], [0, 0], by_std=True)
        assert a[1] > 0.5
        assert a[0] < -0.5


def test_no_rows_at_all():
    none, rows = torch.zeros(0), torch.zeros(0, dtype=torch.long)
    for unit in ("row", "episode"):
        assert group_advantage(none, *group_stats(none, rows, rows, unit)).shape == (0,)
    assert row_score(none, none.bool(), rows, 0.1).shape == (0,)


def test_group_stats_names_the_choices():
    with pytest.raises(ValueError, match="--group_unit token: unknown, choose row or episode"):
        advantage([1.0, 0.0], [0, 0], unit="token")


# --------------------------------------------------------------------------------------------------- surrogate

CASES = [  # ratio, advantage, loss, gradient by logp
    (1.0, 2.0, -2.0, -2.0),
    (1.0, -2.0, 2.0, 2.0),
    (1.1, 1.0, -1.1, -1.1),
    (1.5, 1.0, -1.2, 0.0),
    (0.5, 1.0, -0.5, -0.5),
    (1.5, -1.0, 1.5, 1.5),
    (0.5, -1.0, 0.8, 0.0),
    (5.0, -1.0, 3.0, 0.0),
    (5.0, 1.0, -1.2, 0.0),
    (2.9, -2.0, 5.8, 5.8),
    (1.5, 0.0, 0.0, 0.0),
]


@pytest.mark.parametrize(("ratio", "adv", "loss", "gradient"), CASES)
def test_surrogate_by_hand(ratio, adv, loss, gradient):
    old = torch.tensor([[-1.3]])
    logp = (old + math.log(ratio)).requires_grad_()
    got = pure(surrogate, logp, old, torch.tensor([[adv]]))
    close(got.detach(), [[loss]])
    close(torch.autograd.grad(got.sum(), logp)[0], [[gradient]])


def test_surrogate_takes_other_bounds():
    logp, old, adv = torch.full((1, 2), math.log(9.0)), torch.zeros(1, 2), torch.tensor([[1.0, -1.0]])
    close(surrogate(logp, old, adv, clip=0.5, dual_clip=4.0), [[-1.5, 4.0]])
    close(surrogate(-logp, old, adv, clip=0.5), [[-1 / 9, 0.5]])


@pytest.mark.parametrize("seed", SEEDS)
def test_surrogate_equals_its_slow_twin(seed):
    r = ragged(seed)
    adv = torch.sin(torch.arange(len(r.group)).float())[:, None]
    got = pure(surrogate, r.teacher, r.student, adv)
    want = []
    for new, old, a in zip(tokens(r.teacher, r.mask), tokens(r.student, r.mask), adv[:, 0].tolist(), strict=True):
        ratios = [math.exp(x - y) for x, y in zip(new, old, strict=True)]
        losses = [max(-w * a, -min(max(w, 0.8), 1.2) * a) for w in ratios]
        want += [min(loss, -3 * a) if a < 0 else loss for loss in losses]
    close(got[r.mask], want)


def test_at_the_behaviour_policy_the_gradient_is_minus_the_advantage_times_that_of_logp():
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 6, requires_grad=True)
    ids, adv = torch.randint(6, (3, 4, 1)), torch.randn(3, 4)
    logp = logits.log_softmax(-1).gather(-1, ids)[..., 0]
    got = torch.autograd.grad(surrogate(logp, logp.detach(), adv).sum(), logits, retain_graph=True)[0]
    torch.testing.assert_close(got, torch.autograd.grad(-(adv * logp).sum(), logits)[0])


def test_surrogate_stays_finite_at_the_extremes():
    logp = torch.tensor([[-1e4, 0.0, -1e4, 0.0]], requires_grad=True)
    old, adv = torch.tensor([[0.0, -1e4, 0.0, -1e4]]), torch.tensor([[1.0, 1.0, -1.0, -1.0]])
    loss = surrogate(logp, old, adv)
    close(loss.detach(), [[0.0, -1.2, 0.8, 3.0]])
    close(torch.autograd.grad(loss.sum(), logp)[0], [[0.0] * 4])


# ---------------------------------------------------------------------------------------------------------- k3


def test_k3_by_hand():
    logp = torch.tensor([[-1.0, -1.0, -1.0, 0.0, -20.0]], requires_grad=True)
    ref = torch.tensor([[-1.0, -1.0 + math.log(2), -1.0 - math.log(2), -20.0, 0.0]])
    got = pure(k3, logp, ref)
    close(got.detach(), [[0.0, 1 - math.log(2), math.log(2) - 0.5, 10.0, 10.0]])
    close(torch.autograd.grad(got.sum(), logp)[0], [[0.0, -1.0, 0.5, 0.0, 0.0]])  # 1 - exp(ref - logp), 0 at the cap


def test_k3_is_never_negative_and_zero_only_where_both_agree():
    d = torch.linspace(-2, 2, 40001)
    assert (k3(torch.zeros_like(d), d) >= 0).all()
    assert (k3(torch.zeros_like(d), d)[d.abs() > 1e-3] > 0).all()
    close(k3(torch.zeros(1), torch.tensor([1e-4])) * 1e8, [0.5 + 1e-4 / 6], tolerance=1e-2)


def test_k3_stays_finite_at_the_extremes():
    logp = torch.tensor([[0.0, -1e4]], requires_grad=True)
    loss = k3(logp, torch.tensor([[-1e4, 0.0]]))
    close(loss.detach(), [[10.0, 10.0]])
    close(torch.autograd.grad(loss.sum(), logp)[0], [[0.0, 0.0]])


def test_k3_is_unbiased():
    """Under the policy its mean is KL(policy || reference)."""
    policy, ref = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.3, 0.5])
    mean = (policy * k3(policy.log(), ref.log())).sum()
    assert mean.item() == pytest.approx(float((policy * (policy / ref).log()).sum()), abs=1e-6)


# --------------------------------------------------------------------------------------------- TRL as an oracle


def test_the_loss_equals_that_of_trl(tmp_path):
    """Clipped, dual-clipped, with KL, averaged over the tokens of the batch: the same tensors through TRL's trainer."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from datasets.table import InMemoryTable
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "go": 2}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(tmp_path)
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=16, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1)  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(tmp_path)
    trainer = trl.GRPOTrainer(
        model=str(tmp_path),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=trl.GRPOConfig(output_dir=str(tmp_path / "out"), loss_type="bnpo", beta=0.05, epsilon=0.2, delta=3.0,
                            use_cpu=True, bf16=False, report_to=[], num_generations=4, per_device_train_batch_size=4),
        train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": ["go"] * 4}), fingerprint="four"),
    )  # fmt: skip
    trainer.current_gradient_accumulation_steps = 1
    trainer.args.use_bias_correction_kl = False  # newer versions weigh the KL by the ratio unless told not to

    prompt, response = torch.randint(2, 16, (4, 3)), torch.randint(2, 16, (4, 5))
    mask = torch.arange(5) < torch.tensor([[5], [1], [3], [4]])
    logits = trainer.model(torch.cat([prompt, response], 1)).logits[:, 2:-1]
    logp = logits.log_softmax(-1).gather(-1, response[..., None])[..., 0]
    old_logp, ref_logp = (logp.detach() + size * torch.randn(4, 5) for size in (1.2, 0.8))
    adv = advantage([1.0, 0.0, 1.0, 0.0], [0, 0, 0, 0])
    assert ((logp - old_logp).exp() > 3)[mask & (adv < 0)[:, None]].any()  # the dual clip is at work
    ours = (surrogate(logp, old_logp, adv[:, None]) + 0.05 * k3(logp, ref_logp))[mask].mean()
    theirs = trainer.compute_loss(trainer.model, {
        "prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt), "completion_ids": response,
        "completion_mask": mask.long(), "advantages": adv, "old_per_token_logps": old_logp,
        "ref_per_token_logps": ref_logp,
    })  # fmt: skip
    torch.testing.assert_close(ours, theirs)
    weights = list(trainer.model.parameters())
    for a, b in zip(torch.autograd.grad(ours, weights), torch.autograd.grad(theirs, weights), strict=True):
        torch.testing.assert_close(a, b)
