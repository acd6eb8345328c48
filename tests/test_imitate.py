"""imitate.py: which turns it takes, that the loss falls, that end tokens are learned."""

import pytest
import torch

import imitate as module
from imitate import examples, imitate


def test_examples_are_the_experts_turns_with_their_end_token(policy, domain):
    policy.lean = False
    rows = examples(policy, domain, 9, seed=0)
    assert rows == examples(policy, domain, 9, seed=0) != examples(policy, domain, 9, seed=1)
    for prompt, response in rows:
        assert response[-1] == policy.tokenizer.eos_token_id
        assert policy.decode(prompt).startswith("<|user|> task say")
        assert policy.decode(response).startswith("<think> </think> <action> say")


def test_imitating_goes_once_through_the_rows_and_lowers_their_loss(policy, domain):
    rows = examples(policy, domain, 12, seed=0)
    before = [p.detach().clone() for p in policy.model.parameters()]
    assert imitate(policy, rows, 3, lr=0.0, tokens=40) == pytest.approx(imitate(policy, rows, 3, 0.0, 10_000), abs=1e-4)
    assert all(torch.equal(a, b) for a, b in zip(before, policy.model.parameters(), strict=True))
    losses = imitate(policy, rows * 4, 24, lr=0.02, tokens=500)
    assert len(losses) == 24 and losses[-1] < losses[0] - 1


def test_a_wrong_number_of_steps_names_the_flag(monkeypatch, tmp_path):
    monkeypatch.setattr("sys.argv", ["imitate.py", "--env", "alfworld", "--model", "tiny", "--out", str(tmp_path),
                                     "--examples", "3", "--steps", "4"])  # fmt: skip
    with pytest.raises(ValueError, match="--steps 4: give 1 to --examples"):
        module.main()
