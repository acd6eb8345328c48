"""sdar.py: hand values, slow twins, and gradients, the paper's local equivalence among them."""

import math

import pytest
import torch

from grpo import surrogate
from sdar import distil_gate, gated_distillation, skill_sd
from tests.ragged import SEEDS, close, pure, ragged


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def gradient(loss, *logps: float) -> torch.Tensor:
    """The derivative of `loss` by its first argument: [1]."""
    logp, *others = (torch.tensor([x]) for x in logps)
    logp.requires_grad_()
    return torch.autograd.grad(loss(logp, *others).sum(), logp)[0]


def sampled_logp(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [3, 4, 6] of a policy, and the log-probs [3, 4] of the tokens that it sampled."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, 4, 6, generator=generator, requires_grad=True)
    ids = torch.randint(6, (3, 4, 1), generator=generator)
    return logits, logits.log_softmax(-1).gather(-1, ids)[..., 0]


# ------------------------------------------------------------------------------ distil_gate, gated_distillation


def test_distil_gate_by_hand():
    logp, teacher = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-0.8, -1.2, -1.0])
    close(pure(distil_gate, logp, teacher, 5.0), [sigmoid(1.0), sigmoid(-1.0), 0.5])
    close(distil_gate(logp, teacher, 10.0), [sigmoid(2.0), sigmoid(-2.0), 0.5])
    close(distil_gate(logp, teacher, 0.0), [0.5, 0.5, 0.5])  # OPSD


def test_gated_distillation_by_hand():
    logp, teacher = torch.tensor([-1.0, -1.0]), torch.tensor([-0.8, -3.0])
    close(pure(gated_distillation, logp, teacher, 5.0), [sigmoid(1.0) * 0.2, sigmoid(-10.0) * -2.0])
    close(gated_distillation(logp, teacher, 0.0), [0.1, -1.0])


@pytest.mark.parametrize("beta", [0.0, 5.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_gated_distillation_equals_its_slow_twin(seed, beta):
    r = ragged(seed)
    want = [[sigmoid(beta * (t - s)) * (t - s) for s, t in zip(*pair, strict=True)]
            for pair in zip(r.student.tolist(), r.teacher.tolist(), strict=True)]  # fmt: skip
    close(pure(gated_distillation, r.student, r.teacher, beta), want)


@pytest.mark.parametrize(("student", "teacher"), [(-1.0, -0.5), (-0.5, -1.0), (-2.0, -2.0)])
def test_the_gradient_is_minus_the_gate_and_always_upward(student, teacher):
    """The gate is not differentiated, and a teacher that dislikes the token still pulls it up, only less."""
    got = gradient(lambda logp, t: gated_distillation(logp, t, 5.0), student, teacher)
    close(got, [-sigmoid(5 * (teacher - student))])
    assert got < 0


def test_distil_gate_carries_no_gradient():
    assert not distil_gate(torch.zeros(2, requires_grad=True), torch.ones(2), 5.0).requires_grad


@pytest.mark.parametrize("beta", [0.0, 5.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_locally_sdar_is_a_policy_gradient_with_advantage_lambda_g(seed, beta):
    """At the behaviour policy, clipping inactive: GRPO + lambda * SDAR has the gradient of GRPO with A + lambda * g."""
    logits, logp = sampled_logp(seed)
    behaviour, mask, coefficient = logp.detach(), torch.arange(4) < torch.tensor([[4], [1], [3]]), 0.3
    teacher, adv = behaviour + torch.linspace(-2, 2, 12).view(3, 4), torch.tensor([[0.9], [-1.4], [0.0]])
    auxiliary = surrogate(logp, behaviour, adv) + coefficient * gated_distillation(logp, teacher, beta)
    shaped = surrogate(logp, behaviour, adv + coefficient * distil_gate(behaviour, teacher, beta))
    a, b, plain = (torch.autograd.grad(loss[mask].mean(), logits, retain_graph=True)[0]
                   for loss in (auxiliary, shaped, surrogate(logp, behaviour, adv)))  # fmt: skip
    torch.testing.assert_close(a, b)
    assert (a - plain).abs().max() > 1e-3


def test_away_from_the_behaviour_policy_the_two_differ():
    """The equivalence is local: the distillation loss is not clipped."""
    logits, logp = sampled_logp(0)
    behaviour, teacher = logp.detach() - 1.0, logp.detach() + 0.5
    a = torch.autograd.grad(gated_distillation(logp, teacher, 5.0).sum(), logits, retain_graph=True)[0]
    b = torch.autograd.grad(surrogate(logp, behaviour, distil_gate(behaviour, teacher, 5.0)).sum(), logits)[0]
    assert not b.any()
    assert a.abs().max() > 0.1


# ---------------------------------------------------------------------------------------------------- skill_sd


def test_skill_sd_by_hand():
    """rho * (exp(-x) - 1 + x): at ratio 1 with x = 1, at ratio 2 with x = -1, and 0 where teacher and student agree."""
    logp, old = torch.tensor([-1.0, -1.0, -1.0]), torch.tensor([-1.0, -1.0 - math.log(2), -2.0])
    close(pure(skill_sd, logp, old, torch.tensor([-2.0, 0.0, -1.0])), [math.exp(-1), 2 * (math.e - 2), 0.0])


@pytest.mark.parametrize("seed", SEEDS)
def test_skill_sd_equals_its_slow_twin(seed):
    r = ragged(seed)
    old = r.student + 0.3 * torch.sin(torch.arange(r.student.numel()).float()).view_as(r.student)
    want = []
    for row in zip(r.student.tolist(), old.tolist(), r.teacher.tolist(), strict=True):
        for s, o, t in zip(*row, strict=True):
            want.append(math.exp(min(s - o, 10)) * (math.exp(min(t - s, 20)) - 1 + (s - t)))
    close(pure(skill_sd, r.student, old, r.teacher).flatten(), want, tolerance=1e-4)


@pytest.mark.parametrize(("student", "old", "teacher"), [(-1.0, -1.2, -2.0), (-1.0, -0.7, -0.5), (-1.0, -1.0, -1.5)])
def test_the_gradient_of_skill_sd_flows_through_both_factors(student, old, teacher):
    """d(rho k3) = rho k3 + rho (1 - exp(-x))."""
    rho, x = math.exp(student - old), student - teacher
    close(gradient(skill_sd, student, old, teacher), [rho * (math.exp(-x) - 1 + x) + rho * (1 - math.exp(-x))])


def test_skill_sd_is_capped():
    close(skill_sd(torch.tensor([0.0]), torch.tensor([-50.0]), torch.tensor([-1.0])), [math.exp(10) * math.exp(-1)])
    close(skill_sd(torch.tensor([-30.0]), torch.tensor([-30.0]), torch.tensor([0.0])), [math.exp(20) - 31])
    close(gradient(skill_sd, 0.0, -50.0, 0.0), [0.0])  # rho is at its cap, k3 at its minimum


def test_skill_sd_is_never_negative():
    x = torch.linspace(-2, 2, 40001)
    assert (skill_sd(x, x, torch.zeros_like(x)) >= 0).all()


def test_everything_stays_finite_at_the_extremes():
    logp = torch.tensor([-1e4, 0.0, -1e4], requires_grad=True)
    other, third = torch.tensor([0.0, -1e4, -1e4]), torch.tensor([0.0, -1e4, 0.0])
    for loss in (gated_distillation(logp, other, 5.0), skill_sd(logp, third, other)):
        assert loss.isfinite().all()
        assert torch.autograd.grad(loss.sum(), logp)[0].isfinite().all()
