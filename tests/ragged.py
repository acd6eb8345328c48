"""Ragged random batches for the tests of the formula files, and two checks that all of them share."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

SEEDS = range(4)
JUNK = 77.0  # stands where the mask is off: no result may depend on it


@dataclass(frozen=True)
class Rows:
    """Rows in random order; group labels have gaps; the first group is one row of one token, another one episode."""

    mask: Tensor  # [B, T] bool
    group: Tensor  # [B]
    episode: Tensor  # [B]
    turn: Tensor  # [B]
    reward: Tensor  # [B]
    valid: Tensor  # [B] bool
    teacher: Tensor  # [B, T] nats
    student: Tensor  # [B, T] nats


def ragged(seed: int, width: int = 7) -> Rows:
    """Five tasks of 1 to 4 episodes of 1 to 4 turns of 1 to `width` tokens."""
    draw = random.Random(seed)
    rows = [(3, 0, 0, 1)]  # group, episode, turn, tokens
    for task, episodes in enumerate((1, 2, 3, 4), start=1):
        for member in range(episodes):
            rows += [(10 * task, 10 * task + member, t, draw.randint(1, width)) for t in range(draw.randint(1, 4))]
    draw.shuffle(rows)
    group, episode, turn, tokens = (torch.tensor(column) for column in zip(*rows, strict=True))
    mask = torch.arange(width) < tokens[:, None]

    def logp() -> Tensor:
        values = [[-draw.expovariate(1.0) if on else JUNK for on in row] for row in mask.tolist()]
        return torch.tensor(values)

    reward = torch.tensor([float(draw.choice((0, 0, 1))) for _ in rows])
    valid = torch.tensor([draw.random() < 0.7 for _ in rows])
    return Rows(mask, group, episode, turn, reward, valid, logp(), logp())


def tokens(value: Tensor, mask: Tensor) -> list[list[float]]:
    """The masked values of every row, as Python numbers."""
    return [[v for v, on in zip(*pair, strict=True) if on] for pair in zip(value.tolist(), mask.tolist(), strict=True)]


def close(got: Tensor, want, tolerance: float = 1e-5) -> None:
    """`got` equals the nested numbers `want`, and is float32."""
    want = torch.as_tensor(want, dtype=torch.double)
    assert got.dtype == torch.float32
    assert got.shape == want.shape
    torch.testing.assert_close(got.double(), want, atol=tolerance, rtol=tolerance)


def pure(function: Callable, *args, **kwargs):
    """The result, after a check that no tensor argument was written to."""
    before = [a.clone() if isinstance(a, Tensor) else a for a in args]
    result = function(*args, **kwargs)
    for old, new in zip(before, args, strict=True):
        assert torch.equal(old, new) if isinstance(old, Tensor) else old == new
    return result
